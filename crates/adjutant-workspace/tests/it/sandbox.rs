//! Running programs in the sandbox.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use adjutant_workspace::sandbox::{
    BoundedOutput, CancelHandle, OutputStream, ProgramEnd, ProgramSpec, RunError, Sandbox,
    SandboxConfig, SandboxWorkspace, SandboxedExit,
};

use crate::overlay::{Ground, PROBE, helper};

pub(crate) fn config(ground: &Ground, workspace: SandboxWorkspace) -> SandboxConfig {
    SandboxConfig::new(helper(), workspace, ground.path("at"))
}

/// The result of a program and its output.
pub(crate) fn run(
    sandbox: &Sandbox,
    program: &ProgramSpec,
) -> Result<(SandboxedExit, String), RunError> {
    let mut said = BoundedOutput::new(1 << 20);
    let ended = sandbox.run(program, &CancelHandle::new().unwrap(), &mut said)?;
    Ok((ended, String::from_utf8_lossy(&said.bytes()).into_owned()))
}

#[test]
fn a_command_writes_into_the_overlay_and_the_handle_sees_it() {
    let ground = Ground::new();
    let mounted = ground.mount();
    let sandbox =
        Sandbox::new(config(&ground, SandboxWorkspace::Overlay(mounted.clone()))).unwrap();
    let mut program = ProgramSpec::shell("echo hi > file; echo said; exit 3");
    program.timeout = Duration::from_secs(20);
    let (ended, said) = run(&sandbox, &program).unwrap();
    assert_eq!((ended.end, said.as_str()), (ProgramEnd::Exited(3), "said\n"));
    assert_eq!(std::fs::read_to_string(ground.path("upper/file")).unwrap(), "hi\n");
}

fn simple() -> (Ground, Sandbox) {
    let ground = Ground::new();
    let sandbox =
        Sandbox::new(config(&ground, SandboxWorkspace::directory(ground.path("at")))).unwrap();
    (ground, sandbox)
}

#[test]
fn every_sandbox_layer_works_on_this_machine() {
    let level = Sandbox::level_here(&helper()).unwrap();
    assert_eq!(level.to_string(), "full: every layer is active and was tested");
    let (_ground, sandbox) = simple();
    let (ended, _) = run(&sandbox, &ProgramSpec::shell("true")).unwrap();
    assert_eq!(ended.level, level);
}

#[test]
fn a_command_that_cannot_be_run_is_refused_with_a_reason() {
    let (ground, sandbox) = simple();
    fs::write(ground.path("at/text"), "no program").unwrap();
    let refused = |program: &ProgramSpec| run(&sandbox, program).unwrap_err().to_string();
    let at = ground.path("at/text");
    insta_like(&[
        (refused(&ProgramSpec::new([])), "the command is empty"),
        (refused(&ProgramSpec::shell("  \n")), "the command is empty"),
        (refused(&ProgramSpec::shell("echo a\0b")), "the command contains a NUL byte"),
        (
            refused(&ProgramSpec::new(["no-such-command".into()])),
            "cannot start no-such-command: No such file or directory (os error 2)",
        ),
        (
            refused(&ProgramSpec::new([at.clone().into()])),
            &format!("cannot start {}: Permission denied (os error 13)", at.display()),
        ),
    ]);
    let (ended, said) = run(&sandbox, &ProgramSpec::shell("no-such-command")).unwrap();
    assert_eq!(ended.end, ProgramEnd::Exited(127), "{said}");
}

#[track_caller]
fn insta_like(pairs: &[(String, &str)]) {
    for (got, expected) in pairs {
        assert_eq!(got, expected);
    }
}

#[test]
fn the_working_directory_must_be_in_the_workspace() {
    let (ground, sandbox) = simple();
    fs::create_dir_all(ground.path("at/a b/ü")).unwrap();
    std::os::unix::fs::symlink("/usr", ground.path("at/usr")).unwrap();
    std::os::unix::fs::symlink("a b", ground.path("at/inside")).unwrap();
    let mut program = ProgramSpec::shell("pwd -P");
    for (directory, shown) in [("", ""), ("a b/ü", "/a b/ü"), ("inside", "/a b")] {
        program.directory = directory.into();
        let (_, said) = run(&sandbox, &program).unwrap();
        assert_eq!(said, format!("{}{shown}\n", ground.path("at").display()));
    }
    for directory in ["..", "/usr", "usr", "missing", "a b/../.."] {
        program.directory = directory.into();
        let refused = run(&sandbox, &program).unwrap_err();
        assert!(matches!(refused, RunError::Directory { .. }), "{directory}: {refused}");
    }
}

#[test]
fn arguments_of_any_bytes_and_the_given_environment_arrive() {
    let (_ground, sandbox) = simple();
    let odd = OsString::from_vec(b"\xff'\"$HOME \n".to_vec());
    let mut program = ProgramSpec::new(["/usr/bin/printf".into(), "%s|".into(), odd, "".into()]);
    let mut said = Vec::new();
    let mut sink = |_: OutputStream, bytes: &[u8]| said.extend_from_slice(bytes);
    sandbox.run(&program, &CancelHandle::new().unwrap(), &mut sink).unwrap();
    assert_eq!(said, b"\xff'\"$HOME \n||");
    program = ProgramSpec::new(["/usr/bin/env".into()]);
    program.environment = vec![("ONLY".into(), "this".into())];
    assert_eq!(run(&sandbox, &program).unwrap().1, "ONLY=this\n");
}

#[test]
fn exit_codes_and_signals_are_reported() {
    let (_ground, sandbox) = simple();
    let end = |text: &str| run(&sandbox, &ProgramSpec::shell(text)).unwrap().0.end;
    assert_eq!(end("exit 0"), ProgramEnd::Exited(0));
    assert_eq!(end("exit 255"), ProgramEnd::Exited(255));
    assert_eq!(end("kill -TERM $$"), ProgramEnd::Signalled(15));
    assert_eq!(end("kill -SEGV $$"), ProgramEnd::Signalled(11));
}

#[test]
fn a_gibibyte_of_output_costs_neither_memory_nor_much_time() {
    let (_ground, sandbox) = simple();
    let mut program = ProgramSpec::shell("echo begin; head -c 1073741824 /dev/zero; echo end");
    program.timeout = Duration::from_secs(300);
    let before = peak_kibibytes();
    let mut said = BoundedOutput::new(64 << 10);
    let ended = sandbox.run(&program, &CancelHandle::new().unwrap(), &mut said).unwrap();
    assert_eq!((ended.end, said.total_bytes()), (ProgramEnd::Exited(0), (1 << 30) + 10));
    let kept = said.bytes();
    assert!(kept.starts_with(b"begin\n") && kept.ends_with(b"end\n"));
    assert!(kept.len() < 65 << 10);
    assert!(peak_kibibytes() - before < 64 << 10, "memory grew with the output");
}

fn peak_kibibytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse().unwrap()
}

#[test]
fn both_streams_arrive_as_they_are_written() {
    let (_ground, sandbox) = simple();
    // The second line is written only after the first has arrived here.
    let ground_file = _ground.path("at/go");
    let mut seen = Vec::new();
    let mut sink = |stream: OutputStream, bytes: &[u8]| {
        seen.push((stream, String::from_utf8_lossy(bytes).into_owned()));
        fs::write(&ground_file, "").unwrap();
    };
    let program = ProgramSpec::shell("echo first; while [ ! -e go ]; do :; done; echo second >&2");
    sandbox.run(&program, &CancelHandle::new().unwrap(), &mut sink).unwrap();
    let expected =
        [(OutputStream::Out, "first\n".to_owned()), (OutputStream::Err, "second\n".to_owned())];
    assert_eq!(seen, expected);
}

/// Attempts for something that must be fast.
const ATTEMPTS: usize = 20;

/// One attempt must be fast enough: other load only makes it slower.
#[track_caller]
pub(crate) fn within(bound: Duration, mut attempt: impl FnMut() -> Duration) {
    let mut least = Duration::MAX;
    for _ in 0..ATTEMPTS {
        least = least.min(attempt());
        if least < bound {
            return;
        }
    }
    panic!("{least:?} at best, {bound:?} is the bound");
}

#[test]
fn a_program_that_never_ends_is_killed_at_the_timeout() {
    let (_ground, sandbox) = simple();
    let endless = [
        "while :; do :; done",
        "cat /dev/zero",
        "trap '' TERM INT HUP; while :; do sleep 1000 & wait; done",
        "sleep 1000 & sleep 1000",
        "kill -STOP $$",
    ];
    for text in endless {
        let mut program = ProgramSpec::shell(text);
        program.timeout = Duration::from_millis(200);
        within(Duration::from_millis(1200), || {
            let (ended, _) = run(&sandbox, &program).unwrap();
            assert_eq!((&ended.end, ended.tree_gone), (&ProgramEnd::TimedOut, true), "{text}");
            ended.elapsed
        });
    }
}

#[test]
fn a_cancelled_program_is_gone_at_once() {
    let (_ground, sandbox) = simple();
    within(Duration::from_secs(1), || {
        let cancel = CancelHandle::new().unwrap();
        let from_elsewhere = cancel.clone();
        // Cancelled from inside the sink: the program certainly runs by then.
        let mut sink = |_: OutputStream, _: &[u8]| from_elsewhere.cancel();
        let program = ProgramSpec::shell("echo started; sleep 1000");
        let begun = Instant::now();
        let ended = sandbox.run(&program, &cancel, &mut sink).unwrap();
        assert_eq!((ended.end, ended.tree_gone), (ProgramEnd::Cancelled, true));
        begun.elapsed()
    });
}

#[test]
fn background_processes_are_killed_and_do_not_delay_the_end() {
    let (_ground, sandbox) = simple();
    let begun = Instant::now();
    let (ended, said) = run(&sandbox, &ProgramSpec::shell("sleep 1000 & echo done")).unwrap();
    assert_eq!((ended.end, said.as_str()), (ProgramEnd::Exited(0), "done\n"));
    assert!(begun.elapsed() < Duration::from_secs(60));
}

#[test]
fn several_programs_run_at_once_in_one_workspace() {
    let (ground, sandbox) = simple();
    std::thread::scope(|scope| {
        for number in 0..8 {
            let sandbox = &sandbox;
            scope.spawn(move || {
                let text = format!("echo {number} > file{number}; cat file{number}");
                let (ended, said) = run(sandbox, &ProgramSpec::shell(text)).unwrap();
                assert_eq!((ended.end, said), (ProgramEnd::Exited(0), format!("{number}\n")));
            });
        }
    });
    assert_eq!(fs::read_dir(ground.path("at")).unwrap().count(), 8);
}

/// The engine is killed with SIGKILL; its sandboxes and holders end with it.
#[test]
fn nothing_outlives_the_engine() {
    let ground = Ground::new();
    let mut engine = Command::new(PROBE.as_str())
        .args(["engine", ground.path("at").to_str().unwrap()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0; 1];
    std::io::Read::read_exact(engine.stdout.as_mut().unwrap(), &mut first).unwrap();
    let socket = ground.path("at/alive");
    assert!(std::os::unix::net::UnixStream::connect(&socket).is_ok(), "the program runs");
    engine.kill().unwrap();
    engine.wait().unwrap();
    let begun = Instant::now();
    while std::os::unix::net::UnixStream::connect(&socket).is_ok() {
        assert!(begun.elapsed() < Duration::from_secs(60), "the program outlived the engine");
        std::thread::yield_now();
    }
}

#[test]
fn a_killed_holder_takes_its_programs_along_and_the_next_run_fails() {
    let ground = Ground::new();
    let mounted = ground.mount();
    let sandbox =
        Sandbox::new(config(&ground, SandboxWorkspace::Overlay(mounted.clone()))).unwrap();
    // Before a program runs, only the holder sees the overlay.
    let holders = crate::overlay::holders(&ground);
    let mut sink = |_: OutputStream, _: &[u8]| {
        for holder in &holders {
            let holder = rustix::process::Pid::from_raw(*holder).unwrap();
            // The processes of a holder end together.
            let _ = rustix::process::kill_process(holder, rustix::process::Signal::KILL);
        }
    };
    let program = ProgramSpec::shell("echo started; sleep 1000");
    let ended = sandbox.run(&program, &CancelHandle::new().unwrap(), &mut sink).unwrap();
    assert_eq!((ended.end, ended.tree_gone), (ProgramEnd::Signalled(9), true));
    let refused = run(&sandbox, &program).unwrap_err();
    assert!(matches!(refused, RunError::Helper(_)), "{refused}");
}
