//! The fake as a program of its own.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use adjutant_testkit::fake::Api;

use crate::rig::{Request, hello};

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_fake-model"))
}

#[test]
fn the_fake_model_program_prints_its_url_and_serves() {
    let folder = tempfile::tempdir().unwrap();
    let [script, log] = ["script.toml", "log.jsonl"].map(|name| folder.path().join(name));
    std::fs::write(&script, "[[conversation]]\nturn = [{ parts = [{ text = 'Hi.' }] }]\n").unwrap();
    let mut child = program()
        .args(["--api", "anthropic", "--port", "0", "--delay-ms", "1", "--script"])
        .arg(&script)
        .arg("--log")
        .arg(&log)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut url = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut url).unwrap();
    let address = url.trim().strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(&Request::new(Api::Anthropic, &hello(Api::Anthropic)).bytes()).unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"0\r\n\r\n") {
        let mut piece = [0; 4096];
        let count = stream.read(&mut piece).unwrap();
        assert!(count > 0, "{}", String::from_utf8_lossy(&answer));
        answer.extend_from_slice(&piece[..count]);
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(String::from_utf8(answer).unwrap().contains("event: message_stop"));
    assert_eq!(std::fs::read_to_string(&log).unwrap().lines().count(), 1);
}

#[test]
fn the_fake_model_program_reports_invalid_arguments() {
    for (arguments, why) in [
        (&[][..], "`--api` is missing"),
        (&["--api", "soap"], "`soap` is none of"),
        (&["--api", "chat"], "`--script` is missing"),
        (&["--api", "chat", "--script", "/nowhere/at/all"], "/nowhere/at/all: "),
        (&["--api"], "`--api` needs a value"),
        (&["--delay-ms", "soon"], "`--delay-ms` needs a number"),
        (&["--verbose", "1"], "`--verbose` is unknown"),
    ] {
        let output = program().args(arguments).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(said.contains(why), "{arguments:?}: {said}");
    }
}
