"""Servers on this machine that stand for the network: a provider, over HTTP and TLS, and an npm registry."""

import base64, hashlib, http.server, json, ssl, subprocess, tarfile, tempfile, threading
from pathlib import Path


class Server:
    """An HTTP server that lives as long as the `with` block, and counts its requests."""

    def __init__(self, answer, certificate=None):
        outer = self
        self.requests = 0

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                outer.requests += 1
                status, kind, body = answer(self.path)
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_POST(self):
                self.rfile.read(int(self.headers.get("content-length", 0)))
                self.do_GET()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


class NpmRegistry(Server):
    """Serves these tarballs as npm's registry would."""

    def __init__(self, tarballs):
        super().__init__(self.answer)
        self.files = {f"/{file.name}": file.read_bytes() for file in tarballs}
        self.packages = {}
        for file in tarballs:
            about = json.load(tarfile.open(file).extractfile("package/package.json"))
            sum = base64.b64encode(hashlib.sha512(file.read_bytes()).digest()).decode()
            about["dist"] = {"tarball": f"{self.url}/{file.name}", "integrity": f"sha512-{sum}"}
            self.packages[f"/{about['name']}"] = {
                "name": about["name"], "dist-tags": {"latest": about["version"]}, "versions": {about["version"]: about}}

    def answer(self, path):
        if path in self.files:
            return 200, "application/octet-stream", self.files[path]
        found = self.packages.get(path)
        return (200 if found else 404), "application/json", json.dumps(found or {"error": "not found"}).encode()


REFUSES = lambda path: (400, "application/json", b'{"error": {"message": "the fake provider was reached"}}')


def ask(root, url, home, env={}):
    """Delegates one task to a provider at this address, and returns the log of the run."""
    folder = root.path / "home/user/.config/adjutant"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.toml").write_text(
        f'[providers.fake]\nwire = "chat"\nbase_url = "{url}"\nkey_env = "FAKE_KEY"\n')
    env = {"FAKE_KEY": "key", **env}
    done = root.start("/adjutant", "--home", home, "delegate", "--yes", "--model", "fake/model", "-t", "it=Ask", env=env)
    return done.stdout + done.stderr + root.start("/adjutant", "--home", home, "log", "--json").stdout


def check_network(root, expect):
    """`localhost` is found without /etc/hosts; certificates are checked against the roots in the program, or a file."""
    with Server(REFUSES) as provider:
        said = ask(root, f"http://localhost:{provider.port}/v1", "/tmp/plain")
        expect(provider.requests > 0, f"localhost was not reached without /etc/hosts: {said[-2000:]}")
    with tempfile.TemporaryDirectory() as folder:
        both = Path(folder, "both.pem")
        made = subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", both,
             "-out", Path(folder, "certificate.pem"), "-subj", "/CN=localhost", "-days", "2", "-addext",
             "subjectAltName=DNS:localhost", "-addext", "basicConstraints=critical,CA:FALSE"], capture_output=True)
        if made.returncode != 0:
            print("NOT CHECKED: certificates in the empty root: openssl cannot make one")
            return
        certificate = Path(folder, "certificate.pem").read_text()
        both.write_text(both.read_text() + certificate)
        with Server(REFUSES, both) as provider:
            url = f"https://localhost:{provider.port}/v1"
            said = ask(root, url, "/tmp/unknown")
            expect("UnknownIssuer" in said and provider.requests == 0, f"certificates are not checked: {said[-2000:]}")
            (root.path / "tmp/roots.pem").write_text(certificate)
            said = ask(root, url, "/tmp/known", {"SSL_CERT_FILE": "/tmp/roots.pem"})
            expect(provider.requests > 0, f"SSL_CERT_FILE is not read: {said[-2000:]}")
    print(f"{'empty root':<24}localhost without /etc/hosts; certificate roots of the program; SSL_CERT_FILE")
