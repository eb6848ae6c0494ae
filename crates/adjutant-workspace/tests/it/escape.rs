//! Escape tests: each trick first works outside the sandbox, then must fail inside.

use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use adjutant_workspace::sandbox::{
    NetworkAccess, ProgramEnd, ProgramSpec, ResourceBounds, Sandbox, SandboxWorkspace,
    SandboxedExit,
};

use crate::overlay::{Ground, PROBE};
use crate::sandbox::{config, run};

/// A workspace that is a plain directory, with a secret beside it.
struct Cell {
    ground: Ground,
    sandbox: Sandbox,
}

impl Cell {
    fn new() -> Self {
        Self::bounded(ResourceBounds::default())
    }

    fn bounded(bounds: ResourceBounds) -> Self {
        Self::over(bounds, |ground| SandboxWorkspace::directory(ground.path("at")))
    }

    fn over(bounds: ResourceBounds, place: impl FnOnce(&Ground) -> SandboxWorkspace) -> Self {
        let ground = Ground::new();
        fs::create_dir(ground.path("at/.git")).unwrap();
        fs::write(ground.path("secret"), "outside").unwrap();
        let mut config = config(&ground, place(&ground));
        config.grants = vec![PROBE.as_str().into()];
        config.bounds = bounds;
        let sandbox = Sandbox::new(config).unwrap();
        Self { ground, sandbox }
    }

    fn path(&self, relative: &str) -> String {
        self.ground.path(relative).to_str().unwrap().to_owned()
    }

    fn inside(&self, words: &[&str]) -> (SandboxedExit, String) {
        let words = std::iter::once(PROBE.as_str()).chain(words.iter().copied()).map(Into::into);
        let mut program = ProgramSpec::new(words);
        program.timeout = Duration::from_secs(120);
        run(&self.sandbox, &program).unwrap()
    }

    /// The trick works outside and not inside.
    #[track_caller]
    fn only_outside(&self, words: &[&str]) {
        outside(words);
        self.not_inside(words);
    }

    #[track_caller]
    fn not_inside(&self, words: &[&str]) {
        let (ended, said) = self.inside(words);
        assert_eq!(ended.end, ProgramEnd::Exited(1), "{words:?} inside: {said}");
        assert!(said.starts_with("could not"), "{said}");
    }
}

/// Runs the trick outside, where it must work.
#[track_caller]
fn outside(words: &[&str]) -> String {
    let output = Command::new(PROBE.as_str()).args(words).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{words:?} outside: {said}{output:?}");
    said
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|it| std::os::unix::fs::MetadataExt::uid(&it) == 0)
}

#[test]
fn nothing_outside_the_workspace_is_written() {
    let cell = Cell::new();
    cell.only_outside(&["write", &cell.path("beside")]);
    cell.only_outside(&["write", &cell.path("secret")]);
    cell.only_outside(&["write", &cell.path("at/.git/config")]);
    cell.only_outside(&["chmod", &cell.path("at/.git")]);
    // The program's own file is granted read-only.
    let copy = cell.path("copy");
    fs::copy(PROBE.as_str(), &copy).unwrap();
    outside(&["write", &copy]);
    cell.not_inside(&["write", PROBE.as_str()]);
    let (ended, said) = cell.inside(&["write", &cell.path("at/file")]);
    assert_eq!((ended.end, said.as_str()), (ProgramEnd::Exited(0), "done\n"));
    assert_eq!(fs::read_to_string(cell.path("secret")).unwrap(), "outsidex");
}

/// Devices are shared with the machine, and root inside has the same user id as outside.
#[test]
fn the_permissions_of_devices_stay_as_they_are() {
    let cell = Cell::new();
    fs::write(cell.path("own"), "").unwrap();
    outside(&["chmod", &cell.path("own")]);
    for device in ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"]
    {
        let before = fs::metadata(device).unwrap().permissions();
        let (ended, said) = cell.inside(&["chmod", device]);
        let after = fs::metadata(device).unwrap().permissions();
        if after != before {
            fs::set_permissions(device, before.clone()).unwrap();
        }
        assert_eq!(after, before, "{device}");
        assert_eq!(ended.end, ProgramEnd::Exited(1), "{device}: {said}");
    }
    let (ended, said) = cell.inside(&["write", "/dev/null"]);
    assert_eq!(ended.end, ProgramEnd::Exited(0), "what is written to them is lost as ever: {said}");
}

#[test]
fn links_in_the_workspace_lead_nowhere() {
    let cell = Cell::new();
    let beside = cell.path("secret");
    std::os::unix::fs::symlink(&beside, cell.path("at/link")).unwrap();
    std::os::unix::fs::symlink(cell.path(""), cell.path("at/up")).unwrap();
    cell.only_outside(&["read", &cell.path("at/link")]);
    cell.only_outside(&["read", &cell.path("at/up/secret")]);
    cell.only_outside(&["write", &cell.path("at/link")]);
    cell.only_outside(&["read", &cell.path("at/../secret")]);
}

#[test]
fn secrets_outside_are_not_read() {
    let cell = Cell::new();
    cell.only_outside(&["read", &cell.path("secret")]);
    let this = std::process::id();
    cell.only_outside(&["read", &format!("/proc/{this}/environ")]);
    cell.only_outside(&["read", &format!("/proc/{this}/root/{}", cell.path("secret"))]);
    cell.only_outside(&["parent-root"]);
    // An ordinary account cannot read it outside either.
    if is_root() {
        cell.only_outside(&["read", "/etc/shadow"]);
    }
    assert!(outside(&["list", &cell.path("")]).contains("secret"));
    let beside = cell.inside(&["list", &cell.path("")]).1;
    assert_eq!(beside, "at\n", "what lies beside the workspace shows");
}

#[test]
fn credentials_below_a_grant_are_covered_and_what_is_hidden_stays_so() {
    let ground = Ground::new();
    let cache = ground.path("cache");
    for folder in [".cargo/registry", ".ssh", "state/runs"] {
        fs::create_dir_all(cache.join(folder)).unwrap();
    }
    let secrets = [".cargo/credentials.toml", ".netrc", ".ssh/id", "state/runs/journal"];
    for secret in secrets {
        fs::write(cache.join(secret), "token").unwrap();
    }
    fs::write(cache.join(".cargo/registry/crate"), "code").unwrap();
    let mut config = config(&ground, SandboxWorkspace::directory(ground.path("at")));
    config.grants = vec![PROBE.as_str().into(), cache.clone()];
    config.hidden = vec![cache.join("state")];
    let cell = Cell { sandbox: Sandbox::new(config).unwrap(), ground };
    for secret in secrets {
        let path = cache.join(secret).to_str().unwrap().to_owned();
        assert!(outside(&["read", &path]).contains("token"));
        let (_, said) = cell.inside(&["read", &path]);
        assert!(!said.contains("token"), "{secret}: {said}");
    }
    let code = cache.join(".cargo/registry/crate");
    assert_eq!(cell.inside(&["read", code.to_str().unwrap()]).1, "code\n");
    cell.only_outside(&["write", code.to_str().unwrap()]);
}

/// Servers on the host listen where a program can address them. Each trick reaches them from outside, and none from
/// inside, whatever the program itself is told.
#[test]
fn no_server_on_the_host_is_reached() {
    let cell = Cell::new();
    let mut servers = Vec::new();
    for address in ["127.0.0.1:0", "127.0.0.53:0", "0.0.0.0:0", "[::1]:0"] {
        let Ok(tcp) = TcpListener::bind(address) else { continue };
        tcp.set_nonblocking(true).unwrap();
        servers.push(tcp);
    }
    for tcp in &servers {
        let address = tcp.local_addr().unwrap();
        for trick in ["tcp", "fastopen"] {
            if trick == "fastopen" && address.is_ipv6() {
                continue;
            }
            outside(&[trick, &address.to_string()]);
            assert!(tcp.accept().is_ok(), "{trick} {address} outside");
            cell.inside(&[trick, &address.to_string()]);
            assert!(tcp.accept().is_err(), "{trick} {address} reached the host");
        }
        cell.not_inside(&["tcp", &address.to_string()]);
    }
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    udp.set_nonblocking(true).unwrap();
    let address = udp.local_addr().unwrap().to_string();
    outside(&["udp", &address]);
    assert!(udp.recv(&mut [0]).is_ok());
    cell.inside(&["udp", &address]);
    assert!(udp.recv(&mut [0]).is_err(), "UDP reached the host");
    let path = cell.path("socket");
    let _unix = UnixListener::bind(&path).unwrap();
    cell.only_outside(&["unix", &path]);
    let name = format!("adjutant-escape-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let _abstract = UnixListener::bind_addr(&address).unwrap();
    cell.only_outside(&["abstract", &name]);
    // Addresses outside this machine have no route.
    for address in ["192.0.2.1:80", "169.254.169.254:80", "[2001:db8::1]:80"] {
        cell.not_inside(&["tcp", address]);
        cell.not_inside(&["udp", address]);
    }
}

#[test]
fn only_sockets_for_loopback_can_be_opened() {
    let cell = Cell::new();
    let [unix, inet, inet6, netlink, packet, alg, vsock] = ["1", "2", "10", "16", "17", "38", "40"];
    let [stream, datagram, raw] = ["1", "2", "3"];
    let cloexec_datagram = (libc::SOCK_DGRAM | libc::SOCK_CLOEXEC).to_string();
    for words in [
        [unix, stream, "0"],
        [unix, datagram, "0"],
        [inet, stream, "6"],
        [inet6, stream, "0"],
        [inet, &cloexec_datagram, "17"],
        [netlink, raw, "0"],
    ] {
        let [family, kind, protocol] = words;
        let (ended, said) = cell.inside(&["socket", family, kind, protocol]);
        assert_eq!(ended.end, ProgramEnd::Exited(0), "{words:?}: {said}");
    }
    let kernel_events = libc::NETLINK_KOBJECT_UEVENT.to_string();
    let audit = libc::NETLINK_AUDIT.to_string();
    for words in [
        [netlink, raw, kernel_events.as_str()],
        [netlink, raw, audit.as_str()],
        [vsock, stream, "0"],
        [alg, "5", "0"],
        [packet, raw, "768"],
        [inet, raw, "1"],
        [inet, datagram, "1"],
        [inet, stream, "132"],
        [inet6, raw, "58"],
        [inet, stream, "262"],
    ] {
        let [family, kind, protocol] = words;
        cell.not_inside(&["socket", family, kind, protocol]);
    }
    cell.only_outside(&["socket", netlink, raw, &kernel_events]);
    cell.only_outside(&["socket", vsock, stream, "0"]);
}

#[test]
fn servers_and_clients_in_the_sandbox_reach_each_other() {
    let cell = Cell::new();
    let (ended, said) = cell.inside(&["serve"]);
    assert_eq!((ended.end, said.as_str()), (ProgramEnd::Exited(0), "done\n"));
}

#[test]
fn other_processes_are_neither_traced_nor_signalled() {
    let cell = Cell::new();
    cell.only_outside(&["trace-child"]);
    cell.only_outside(&["read-memory"]);
    cell.only_outside(&["kill", &std::process::id().to_string()]);
    let mut bystander =
        Command::new("/bin/cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut program = ProgramSpec::shell("kill -9 -1; exit 4");
    program.timeout = Duration::from_secs(120);
    let (ended, _) = run(&cell.sandbox, &program).unwrap();
    assert!(matches!(ended.end, ProgramEnd::Exited(4) | ProgramEnd::Signalled(9)), "{ended:?}");
    assert!(bystander.try_wait().unwrap().is_none(), "a process outside was ended");
    bystander.kill().unwrap();
    bystander.wait().unwrap();
}

#[test]
fn mounts_namespaces_and_kernel_interfaces_are_refused() {
    let cell = Cell::new();
    cell.only_outside(&["mount", &cell.path("at")]);
    cell.only_outside(&["unshare"]);
    cell.only_outside(&["clone"]);
    cell.only_outside(&["clone3"]);
    for name in [
        "keyctl",
        "memfd_create",
        "name_to_handle_at",
        "io_uring_setup",
        "open_tree",
        "fsopen",
        "userfaultfd",
    ] {
        cell.only_outside(&["call", name]);
    }
    // Few kernels support this; without it, the test proves nothing.
    cell.not_inside(&["call", "x32"]);
}

#[test]
fn proc_belongs_to_the_sandbox_and_is_read_only() {
    let cell = Cell::new();
    cell.only_outside(&["write", "/proc/self/comm"]);
    for path in [
        "/proc/sys/kernel/domainname",
        "/proc/sys/kernel/core_pattern",
        "/proc/sys/vm/overcommit_memory",
    ] {
        // An ordinary account cannot open any of them outside either.
        if is_root() {
            outside(&["open-to-write", path]);
        }
        cell.not_inside(&["open-to-write", path]);
    }
    // Outside, these give access to other processes of the same account.
    let mut other = Command::new("/bin/cat").stdin(Stdio::piped()).spawn().unwrap();
    for door in ["root/etc/passwd", "environ", "mem", "fd/0"] {
        outside(&["open", &format!("/proc/{}/{door}", other.id())]);
        cell.not_inside(&["open", &format!("/proc/1/{door}")]);
    }
    other.kill().unwrap();
    other.wait().unwrap();
    let own = cell.inside(&["read", "/proc/self/root/etc/passwd"]).1;
    assert!(own.contains("root:"), "/proc is of no use: {own}");
}

#[test]
fn no_process_survives_the_run() {
    let cell = Cell::new();
    let before = cell.path("before");
    outside(&["survive", &before]);
    let mut alive = UnixStream::connect(&before).expect("the survivor outside has gone");
    std::io::Write::write_all(&mut alive, b"x").unwrap();
    let path = cell.path("at/survivor");
    let (ended, said) = cell.inside(&["survive", &path]);
    assert_eq!((ended.end, said.as_str()), (ProgramEnd::Exited(0), "done\n"));
    assert!(ended.tree_gone);
    assert!(Path::new(&path).exists());
    assert!(UnixStream::connect(&path).is_err(), "the survivor inside is still there");
}

#[test]
fn the_number_of_processes_is_bounded() {
    let cell = Cell::bounded(ResourceBounds { processes: 320, ..ResourceBounds::default() });
    outside(&["threads", "400"]);
    let (ended, said) = cell.inside(&["threads", "400"]);
    assert_eq!(ended.end, ProgramEnd::Exited(1), "{said}");
    // The shell itself forks once, before the limit is reached: a shell that cannot fork exits.
    let mut bomb = ProgramSpec::shell("f() { f | f & }; f & while :; do :; done");
    bomb.timeout = Duration::from_millis(700);
    let begun = Instant::now();
    let (ended, _) = run(&cell.sandbox, &bomb).unwrap();
    assert_eq!((ended.end, ended.tree_gone), (ProgramEnd::TimedOut, true));
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
}

#[test]
fn memory_is_bounded() {
    let bytes = (200 << 20).to_string();
    let cell =
        Cell::bounded(ResourceBounds { memory_bytes: 100 << 20, ..ResourceBounds::default() });
    for trick in ["memory", "shared-memory"] {
        outside(&[trick, &bytes]);
        let (ended, said) = cell.inside(&[trick, &bytes]);
        assert!(matches!(ended.end, ProgramEnd::OutOfMemory { .. }), "{trick}: {ended:?} {said}");
        assert!(ended.tree_gone);
    }
    let (ended, said) = cell.inside(&["memory", &(20 << 20).to_string()]);
    assert_eq!(ended.end, ProgramEnd::Exited(0), "{said}");
}

/// The program removes the permissions of the directory it fills, so that its own account cannot list it.
#[test]
fn disk_use_is_bounded() {
    let bounds = ResourceBounds { disk_bytes: 20 << 20, ..ResourceBounds::default() };
    let cell = Cell::over(bounds, |ground| SandboxWorkspace::Overlay(ground.mount()));
    let bytes = (40 << 20).to_string();
    let beside = cell.path("full");
    outside(&["fill", &beside, &bytes]);
    fs::set_permissions(&beside, fs::Permissions::from_mode(0o700)).unwrap();
    let (ended, said) = cell.inside(&["fill", &cell.path("at/full"), &bytes]);
    assert!(matches!(ended.end, ProgramEnd::TooMuchWritten { .. }), "{ended:?} {said}");
    fs::set_permissions(cell.path("upper/full"), fs::Permissions::from_mode(0o700)).unwrap();
    let (ended, _) = cell.inside(&["memory", "4096"]);
    assert!(
        matches!(ended.end, ProgramEnd::TooMuchWritten { .. }),
        "the next call goes on: {ended:?}"
    );
    let mut one = ProgramSpec::shell("head -c 40000000 /dev/zero > big");
    one.timeout = Duration::from_secs(120);
    fs::remove_dir_all(cell.path("upper/full")).unwrap();
    let (ended, said) = run(&cell.sandbox, &one).unwrap();
    assert_ne!(ended.end, ProgramEnd::Exited(0), "a file larger than the bound: {said}");
    assert!(fs::metadata(cell.path("upper/big")).unwrap().len() <= 20 << 20);
}

#[test]
fn open_files_and_the_environment_are_not_inherited() {
    let cell = Cell::new();
    let leaked = fs::File::open(cell.path("secret")).unwrap();
    rustix::io::fcntl_setfd(&leaked, rustix::io::FdFlags::empty()).unwrap();
    assert!(outside(&["files"]).contains("secret"));
    cell.not_inside(&["files"]);
    let variable = std::env::vars()
        .map(|(name, _)| name)
        .find(|name| !["PATH", "HOME", "TMPDIR", "LANG", "TERM"].contains(&name.as_str()));
    let variable = variable.expect("the tests' own environment has a variable");
    cell.only_outside(&["environment", &variable]);
    let (_, said) = cell.inside(&["environment", "HOME"]);
    assert_eq!(said, "/tmp\n");
}

#[test]
fn there_is_no_terminal_and_no_input() {
    let cell = Cell::new();
    let (_, said) = cell.inside(&["session"]);
    assert_eq!(said, "session 1, input 0, terminal false\n");
}

#[test]
fn escape_sequences_arrive_as_they_were_written() {
    let cell = Cell::new();
    let program = ProgramSpec::shell(r"printf '\033]0;title\007\033[2J\000\377'");
    let mut said = Vec::new();
    let mut sink =
        |_: adjutant_workspace::sandbox::OutputStream, bytes: &[u8]| said.extend_from_slice(bytes);
    let cancel = adjutant_workspace::sandbox::CancelHandle::new().unwrap();
    cell.sandbox.run(&program, &cancel, &mut sink).unwrap();
    assert_eq!(said, b"\x1b]0;title\x07\x1b[2J\x00\xff");
}

#[test]
fn tmp_is_private_and_empty_in_each_run() {
    let cell = Cell::new();
    let mine = PathBuf::from("/tmp").join(format!("adjutant-escape-{}", std::process::id()));
    fs::write(&mine, "outside").unwrap();
    cell.only_outside(&["read", mine.to_str().unwrap()]);
    fs::remove_file(&mine).unwrap();
    // Outside, a run finds the files of the previous one.
    let left = format!("{}-left", mine.display());
    outside(&["write", &left]);
    outside(&["read", &left]);
    fs::remove_file(&left).unwrap();
    assert_eq!(cell.inside(&["write", &left]).1, "done\n");
    assert!(!Path::new(&left).exists());
    cell.not_inside(&["read", &left]);
}

/// Inside a sandbox, user namespaces are not allowed.
#[test]
fn without_user_namespaces_nothing_is_run() {
    let cell = Cell::new();
    let state = cell.path("at");
    cell.only_outside(&["overlay", &state]);
    let (_, said) = cell.inside(&["overlay", &state]);
    assert!(said.contains("this machine does not allow user namespaces"), "{said}");
    let (ended, said) = cell.inside(&["engine", &state]);
    assert_eq!(ended.end, ProgramEnd::Exited(1));
    assert!(said.contains("no sandbox: create user namespace"), "{said}");
    assert!(!Path::new(&cell.path("at/alive")).exists());
}

#[test]
fn a_granted_network_opens_the_network_and_nothing_else() {
    let ground = Ground::new();
    let mut config = config(&ground, SandboxWorkspace::directory(ground.path("at")));
    config.grants = vec![PROBE.as_str().into()];
    config.network = NetworkAccess::Granted;
    let cell = Cell { sandbox: Sandbox::new(config).unwrap(), ground };
    fs::write(cell.path("secret"), "outside").unwrap();
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = tcp.local_addr().unwrap().to_string();
    let (ended, said) = cell.inside(&["tcp", &address]);
    assert_eq!((ended.end, said.as_str()), (ProgramEnd::Exited(0), "connected\n"));
    // The open loopback is reported.
    assert!(NetworkAccess::Granted.exposures().iter().any(|it| it.contains("loopback")));
    let name = format!("adjutant-granted-{}", std::process::id());
    let listener = SocketAddr::from_abstract_name(&name).unwrap();
    let _abstract = UnixListener::bind_addr(&listener).unwrap();
    cell.only_outside(&["abstract", &name]);
    cell.only_outside(&["read", &cell.path("secret")]);
    cell.only_outside(&["kill", &std::process::id().to_string()]);
    cell.only_outside(&["unshare"]);
    cell.only_outside(&["socket", "40", "1", "0"]);
}

/// Two runs at a time in one workspace: neither sees the other.
#[test]
fn runs_in_one_workspace_do_not_see_each_other() {
    let cell = Cell::new();
    let mut waiting =
        ProgramSpec::shell("echo secret > /tmp/mine; echo ready; while [ ! -e go ]; do :; done");
    waiting.timeout = Duration::from_secs(120);
    std::thread::scope(|scope| {
        let (tell, told) = std::sync::mpsc::channel();
        let sandbox = &cell.sandbox;
        scope.spawn(move || {
            let mut sink = |_: adjutant_workspace::sandbox::OutputStream, _: &[u8]| {
                let _ = tell.send(());
            };
            let cancel = adjutant_workspace::sandbox::CancelHandle::new().unwrap();
            sandbox.run(&waiting, &cancel, &mut sink).unwrap();
        });
        told.recv().unwrap();
        let (_, processes) = cell.inside(&["list", "/proc"]);
        let (_, scratch) = cell.inside(&["list", "/tmp"]);
        fs::write(cell.path("at/go"), "").unwrap();
        let numbers: Vec<_> = processes.split(' ').filter(|it| it.parse::<u32>().is_ok()).collect();
        assert_eq!(numbers, ["1", "2"]);
        // The directory of the test programs may be visible there as well.
        assert!(!scratch.contains("mine"), "{scratch}");
    });
}

#[test]
fn a_dot_git_that_is_a_link_prevents_the_run() {
    let cell = Cell::new();
    fs::remove_dir(cell.path("at/.git")).unwrap();
    std::os::unix::fs::symlink("elsewhere", cell.path("at/.git")).unwrap();
    let refused = run(&cell.sandbox, &ProgramSpec::shell("true")).unwrap_err();
    assert!(refused.to_string().contains(".git, which is a symbolic link"), "{refused}");
    fs::remove_file(cell.path("at/.git")).unwrap();
    fs::write(cell.path("at/.git"), "gitdir: elsewhere").unwrap();
    cell.only_outside(&["write", &cell.path("at/.git")]);
    let mut there = Command::new("/bin/sh");
    there.args(["-c", "mv .git away && mv away .git"]);
    assert!(there.current_dir(cell.path("at")).status().unwrap().success(), "outside it can move");
    let moved = ProgramSpec::shell("mv .git away || rm -f .git");
    assert_eq!(run(&cell.sandbox, &moved).unwrap().0.end, ProgramEnd::Exited(1));
}

#[test]
fn a_hidden_home_shows_only_the_grants_inside_it() {
    let ground = Ground::new();
    let files = ["outer/file", "outer/home/secret", "outer/home/.cargo/crate", "outer/home/.netrc"];
    for file in files {
        let file = ground.path(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, "text").unwrap();
    }
    let mut config = config(&ground, SandboxWorkspace::directory(ground.path("at")));
    config.grants = vec![
        PROBE.as_str().into(),
        ground.path("outer/home/.cargo"),
        ground.path("outer"),
        ground.path("no such grant"),
    ];
    config.hidden = vec![ground.path("outer/home"), ground.path("nothing")];
    let cell = Cell { sandbox: Sandbox::new(config).unwrap(), ground };
    assert_eq!(cell.inside(&["read", &cell.path("outer/file")]).1, "text\n");
    assert_eq!(cell.inside(&["read", &cell.path("outer/home/.cargo/crate")]).1, "text\n");
    assert!(outside(&["list", &cell.path("outer/home")]).contains(".netrc"));
    assert_eq!(cell.inside(&["list", &cell.path("outer/home")]).1, ".cargo\n");
    cell.only_outside(&["read", &cell.path("outer/home/secret")]);
    cell.only_outside(&["write", &cell.path("outer/home/new")]);
}

#[test]
fn set_user_id_programs_cannot_be_created() {
    let cell = Cell::new();
    let file = cell.path("at/tool");
    fs::write(&file, "").unwrap();
    for trick in ["chmod", "fchmodat", "create", "openat2"] {
        cell.only_outside(&["lend", trick, &file]);
        let mode = fs::metadata(&file).map_or(0, |it| it.permissions().mode());
        if trick != "create" && trick != "openat2" {
            assert_ne!(mode & 0o4000, 0, "{trick} did nothing outside");
        }
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let (ended, said) =
        run(&cell.sandbox, &ProgramSpec::shell("chmod 755 tool && ./tool")).unwrap();
    assert_eq!(ended.end, ProgramEnd::Exited(0), "{said}");
}

/// Checks the mount options themselves, because Landlock would hide a writable mount.
#[test]
fn the_mounts_alone_prevent_writes_outside_the_workspace() {
    let ground = Ground::new();
    fs::create_dir(ground.path("base/.git")).unwrap();
    let mut config = config(&ground, SandboxWorkspace::Overlay(ground.mount()));
    config.grants = vec![PROBE.as_str().into(), "/opt".into()];
    let at = config.at.to_str().unwrap().to_owned();
    let cell = Cell { sandbox: Sandbox::new(config).unwrap(), ground };
    let (_, mounts) = cell.inside(&["read", "/proc/self/mounts"]);
    let mut writable = Vec::new();
    for mount in mounts.lines().filter(|line| !line.is_empty()) {
        let fields: Vec<_> = mount.split(' ').collect();
        let options: Vec<_> = fields[3].split(',').collect();
        assert!(options.contains(&"nosuid"), "{mount}");
        if options.contains(&"rw") {
            writable.push(fields[1]);
        }
        let device = fields[1].starts_with("/dev/") && fields[1] != "/dev/shm";
        assert!(device || options.contains(&"nodev"), "{mount}");
    }
    writable.sort_unstable();
    let mut expected = vec!["/dev/shm", "/tmp", &at];
    expected.sort_unstable();
    assert_eq!(writable, expected);
}
