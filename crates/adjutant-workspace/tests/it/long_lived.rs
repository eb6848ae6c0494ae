//! Programs that run for long and talk to the engine, such as other coding agents: their input, a server of the engine
//! on their loopback interface, pseudo-terminals, what they are shown, and their end.

use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use adjutant_workspace::sandbox::{
    BoundedOutput, CancelHandle, LoopbackListenError, NetworkAccess, OutputStream, ProgramEnd,
    ProgramInput, ProgramSpec, RunError, Sandbox, SandboxWorkspace, UnconfinedRunner,
};

use rustix::event::{PollFd, PollFlags, poll};

use crate::overlay::{Ground, PROBE};
use crate::sandbox::{config, run, within};

/// A sandbox that shows the probe, over a plain directory or an overlay.
struct Cell {
    ground: Ground,
    sandbox: Sandbox,
}

impl Cell {
    fn new() -> Self {
        Self::over(|ground| SandboxWorkspace::directory(ground.path("at")))
    }

    fn over(workspace: impl FnOnce(&Ground) -> SandboxWorkspace) -> Self {
        Self::with_network(workspace, NetworkAccess::Off)
    }

    fn with_network(
        workspace: impl FnOnce(&Ground) -> SandboxWorkspace,
        network: NetworkAccess,
    ) -> Self {
        let ground = Ground::new();
        let mut config = config(&ground, workspace(&ground));
        config.grants = vec![PROBE.as_str().into()];
        config.network = network;
        Self { sandbox: Sandbox::new(config).unwrap(), ground }
    }

    /// Runs the probe to its end.
    fn probe(&self, words: &[&str]) -> (ProgramEnd, String) {
        let (ended, said) = run(&self.sandbox, &probe(words)).unwrap();
        (ended.end, said)
    }
}

fn probe(words: &[&str]) -> ProgramSpec {
    let words = std::iter::once(PROBE.as_str()).chain(words.iter().copied()).map(Into::into);
    ProgramSpec { timeout: Duration::from_secs(120), ..ProgramSpec::new(words) }
}

fn shell(text: &str) -> ProgramSpec {
    ProgramSpec { timeout: Duration::from_secs(120), ..ProgramSpec::shell(text) }
}

#[test]
fn a_program_answers_what_is_written_to_its_input_until_that_is_closed() {
    let cell = Cell::new();
    let (writer, input) = ProgramInput::pipe().unwrap();
    let program = ProgramSpec {
        input: Some(input),
        ..shell("echo ready; while read line; do echo \"got $line\"; done; echo end")
    };
    let mut writer = Some(writer);
    let (mut said, mut sent) = (String::new(), 0);
    let mut sink = |_: OutputStream, bytes: &[u8]| {
        said.push_str(&String::from_utf8_lossy(bytes));
        // Each line is sent after the answer to the previous one has arrived.
        while writer.is_some() && said.lines().count() == sent + 1 {
            sent += 1;
            writeln!(writer.as_mut().unwrap(), "{sent}").unwrap();
            if sent == 3 {
                writer = None;
            }
        }
    };
    let ended = cell.sandbox.run(&program, &CancelHandle::new().unwrap(), &mut sink).unwrap();
    assert_eq!(ended.end, ProgramEnd::Exited(0));
    assert_eq!(said, "ready\ngot 1\ngot 2\ngot 3\nend\n");
}

/// Everything that is in the pipe arrives, and nothing but the program holds its read end.
#[test]
fn only_the_program_holds_its_input() {
    let cell = Cell::new();
    let (mut writer, input) = ProgramInput::pipe().unwrap();
    let program = ProgramSpec {
        input: Some(input),
        ..shell("exec <&-; echo closed; while [ ! -e go ]; do :; done")
    };
    let (go, mut failed) = (cell.ground.path("at/go"), None);
    let mut sink = |_: OutputStream, _: &[u8]| {
        // Ready as soon as the first process has closed its own copy.
        let minute = rustix::time::Timespec { tv_sec: 60, tv_nsec: 0 };
        let _ = poll(&mut [PollFd::new(&writer, PollFlags::empty())], Some(&minute));
        failed = writer.write_all(b"x").err().map(|error| error.kind());
        fs::write(&go, "").unwrap();
    };
    let ended = cell.sandbox.run(&program, &CancelHandle::new().unwrap(), &mut sink).unwrap();
    assert_eq!(ended.end, ProgramEnd::Exited(0));
    assert_eq!(failed, Some(ErrorKind::BrokenPipe), "another process holds the input");
    let refused = run(&cell.sandbox, &program).unwrap_err();
    assert!(matches!(refused, RunError::InputTaken), "{refused}");

    let (mut writer, input) = ProgramInput::pipe().unwrap();
    writer.write_all(&[b'x'; 60_000]).unwrap();
    drop(writer);
    let program = ProgramSpec { input: Some(input), ..probe(&["session"]) };
    let (_, said) = run(&cell.sandbox, &program).unwrap();
    assert_eq!(said, "session 1, input 60000, terminal false\n");
    let (_writer, input) = ProgramInput::pipe().unwrap();
    let program = ProgramSpec { input: Some(input), ..probe(&["files"]) };
    assert_eq!(run(&cell.sandbox, &program).unwrap().1, "could not: nothing is open\n");
}

#[test]
fn a_writer_notices_that_the_program_was_refused_or_has_ended() {
    let cell = Cell::new();
    for words in ["no-such-program", "/bin/true"] {
        let (mut writer, input) = ProgramInput::pipe().unwrap();
        let program = ProgramSpec { input: Some(input), ..ProgramSpec::new([words.into()]) };
        let _ = run(&cell.sandbox, &program);
        let failed = writer.write_all(b"x").unwrap_err();
        assert_eq!(failed.kind(), ErrorKind::BrokenPipe, "{words}");
        drop(program);
    }
}

#[test]
fn a_program_without_a_sandbox_gets_its_input_too() {
    let ground = Ground::new();
    let (mut writer, input) = ProgramInput::pipe().unwrap();
    writer.write_all(b"hello").unwrap();
    drop(writer);
    let program = ProgramSpec { input: Some(input), ..shell("cat") };
    let (mut said, cancel) = (BoundedOutput::new(100), CancelHandle::new().unwrap());
    UnconfinedRunner::new(ground.path("at")).run(&program, &cancel, &mut said).unwrap();
    assert_eq!(said.bytes(), b"hello");
}

/// Answers one connection with the question and a word that only this server knows.
fn answer_one(server: &TcpListener) -> std::io::Result<()> {
    let (mut client, _) = server.accept()?;
    let mut question = String::new();
    client.read_to_string(&mut question)?;
    write!(client, "{question} from outside")?;
    client.shutdown(Shutdown::Both)
}

#[test]
fn programs_reach_a_listener_of_the_engine_and_no_other_server() {
    type Place = fn(&Ground) -> SandboxWorkspace;
    let kinds: [Place; 2] = [
        |ground| SandboxWorkspace::directory(ground.path("at")),
        |ground| SandboxWorkspace::Overlay(ground.mount()),
    ];
    for kind in kinds {
        let cell = Cell::over(kind);
        let listener = cell.sandbox.listen_on_loopback().unwrap();
        let address = listener.local_addr().unwrap();
        assert!(address.ip().is_loopback(), "{address}");
        let shown = address.to_string();
        // The machine's own server at the same address; if the port is taken there, that other server is it.
        let host = TcpListener::bind(address).ok();
        for _ in 0..2 {
            std::thread::scope(|scope| {
                let server = scope.spawn(|| answer_one(&listener));
                let (end, said) = cell.probe(&["ask", &shown, "question"]);
                assert_eq!(
                    (end, said.as_str()),
                    (ProgramEnd::Exited(0), "question from outside\n")
                );
                server.join().unwrap().unwrap();
            });
        }
        if let Some(host) = host {
            host.set_nonblocking(true).unwrap();
            assert!(host.accept().is_err(), "a program reached the machine's server");
            drop(host);
            assert!(TcpStream::connect(address).is_err(), "the listener can be reached outside");
        }
        let other = cell.sandbox.listen_on_loopback().unwrap();
        assert_ne!(other.local_addr().unwrap(), address);
        // Programs can neither take its place nor reach servers of the machine or of another sandbox.
        for taken in [&shown, &format!("0.0.0.0:{}", address.port())] {
            assert_eq!(cell.probe(&["take-port", taken]).0, ProgramEnd::Exited(1), "{taken}");
        }
        let machine = TcpListener::bind("127.0.0.1:0").unwrap();
        let machine = machine.local_addr().unwrap().to_string();
        assert_eq!(cell.probe(&["tcp", &machine]).0, ProgramEnd::Exited(1));
        assert_eq!(Cell::new().probe(&["tcp", &shown]).0, ProgramEnd::Exited(1));
        drop(listener);
        assert_eq!(cell.probe(&["tcp", &shown]).0, ProgramEnd::Exited(1));
    }
}

#[test]
fn a_listener_on_the_machines_own_network_is_refused() {
    let cell = Cell::with_network(
        |ground| SandboxWorkspace::directory(ground.path("at")),
        NetworkAccess::Granted,
    );
    let refused = cell.sandbox.listen_on_loopback().unwrap_err();
    assert!(matches!(refused, LoopbackListenError::NetworkGranted), "{refused}");
}

/// Node lists the interfaces by netlink when it starts, and resolves `localhost`.
#[test]
fn names_resolve_without_a_name_server() {
    let cell = Cell::new();
    let (_, said) = cell.probe(&["read", "/etc/hosts"]);
    assert!(said.starts_with("127.0.0.1 localhost\n::1 localhost"), "{said}");
    assert_eq!(cell.probe(&["read", "/etc/resolv.conf"]), (ProgramEnd::Exited(0), "\n".to_owned()));
    assert_eq!(cell.probe(&["socket", "16", "3", "0"]).0, ProgramEnd::Exited(0));
}

#[test]
fn a_run_has_pseudo_terminals_of_its_own_if_it_asks_for_them() {
    let cell = Cell::new();
    let script = "test -t 0 && tty && echo to the terminal > /dev/tty && stty -a | grep -c speed; ls /dev/pts";
    let shown = "not typed: /dev/pts/0\nto the terminal\n1\n0\nptmx\n\n";
    let mut program = probe(&["terminal", script]);
    let (ended, said) = run(&cell.sandbox, &program).unwrap();
    assert_eq!(ended.end, ProgramEnd::Exited(1), "{said}");
    program.pseudo_terminals = true;
    let (ended, said) = run(&cell.sandbox, &program).unwrap();
    assert_eq!(
        (ended.end, said.replace("0  ptmx", "0\nptmx").as_str()),
        (ProgramEnd::Exited(0), shown)
    );
    // The next run without them finds none.
    program.pseudo_terminals = false;
    assert_eq!(run(&cell.sandbox, &program).unwrap().0.end, ProgramEnd::Exited(1));
    assert_eq!(cell.probe(&["list", "/dev/pts"]), (ProgramEnd::Exited(0), "\n".to_owned()));
    let held = ProgramSpec { pseudo_terminals: true, ..probe(&["write", "/dev/pts/new"]) };
    assert_eq!(run(&cell.sandbox, &held).unwrap().0.end, ProgramEnd::Exited(1));
    let held = ProgramSpec { pseudo_terminals: true, ..probe(&["session"]) };
    assert_eq!(run(&cell.sandbox, &held).unwrap().1, "session 1, input 0, terminal false\n");
}

/// Two runs at a time, each with a terminal 0: neither sees the other's.
#[test]
fn pseudo_terminals_of_two_runs_are_separate() {
    let cell = Cell::new();
    let waiting = ProgramSpec {
        pseudo_terminals: true,
        ..probe(&["terminal", "tty > shown; while [ ! -e go ]; do sleep 0.05; done"])
    };
    std::thread::scope(|scope| {
        let first = scope.spawn(|| run(&cell.sandbox, &waiting).unwrap());
        let begun = Instant::now();
        while fs::read_to_string(cell.ground.path("at/shown")).ok().as_deref()
            != Some("/dev/pts/0\n")
        {
            assert!(begun.elapsed() < Duration::from_secs(60));
            std::thread::yield_now();
        }
        let second = ProgramSpec { pseudo_terminals: true, ..probe(&["list", "/dev/pts"]) };
        let (_, said) = run(&cell.sandbox, &second).unwrap();
        fs::write(cell.ground.path("at/go"), "").unwrap();
        assert_eq!(said, "ptmx\n");
        assert_eq!(first.join().unwrap().0.end, ProgramEnd::Exited(0));
    });
}

/// A program that ignores every signal it can, starts daemons in sessions of their own and never reads its input.
#[test]
fn a_cancelled_program_leaves_nothing_behind() {
    let cell = Cell::new();
    let script = "trap '' TERM INT HUP; for n in 1 2 3; do \
        setsid \"$0\" listen daemon-$n </dev/null >/dev/null 2>&1 & done; \
        for n in 1 2 3; do while [ ! -e daemon-$n ]; do sleep 0.01; done; done; \
        echo ready; while :; do sleep 1000 & wait; done";
    within(Duration::from_millis(1200), || {
        let (_writer, input) = ProgramInput::pipe().unwrap();
        let words = ["/bin/sh".into(), "-c".into(), script.into(), PROBE.as_str().into()];
        let program = ProgramSpec { input: Some(input), ..ProgramSpec::new(words) };
        let daemon = |number| cell.ground.path(&format!("at/daemon-{number}"));
        let cancel = CancelHandle::new().unwrap();
        let from_elsewhere = cancel.clone();
        let (mut alive, mut at) = (false, Instant::now());
        let mut sink = |_: OutputStream, _: &[u8]| {
            alive = (1..=3).all(|it| UnixStream::connect(daemon(it)).is_ok());
            at = Instant::now();
            from_elsewhere.cancel();
        };
        let ended = cell.sandbox.run(&program, &cancel, &mut sink).unwrap();
        let cancelled = at.elapsed();
        assert_eq!((ended.end, ended.tree_gone), (ProgramEnd::Cancelled, true));
        assert!(alive, "a daemon did not start");
        for number in 1..=3 {
            assert!(UnixStream::connect(daemon(number)).is_err(), "daemon {number} is alive");
            fs::remove_file(daemon(number)).unwrap();
        }
        cancelled
    });
}

#[test]
fn orphans_of_a_long_lived_program_are_reaped() {
    let cell = Cell::new();
    let script = "n=0; while [ $n -lt 200 ]; do (sleep 0 &) ; n=$((n + 1)); done; \
        while grep -qs '^State:.Z' /proc/[0-9]*/status; do sleep 0.02; done; \
        ls -d /proc/[0-9]* | grep -c .";
    let (ended, said) = run(&cell.sandbox, &shell(script)).unwrap();
    // The first process, the shell, and the two of the last line.
    assert_eq!((ended.end, said.trim()), (ProgramEnd::Exited(0), "4"));
}

#[test]
fn the_level_is_known_before_a_program_runs() {
    let cell = Cell::new();
    assert!(cell.sandbox.level().is_full(), "{}", cell.sandbox.level());
    let (ended, _) = run(&cell.sandbox, &shell("true")).unwrap();
    assert_eq!(&ended.level, cell.sandbox.level());
}
