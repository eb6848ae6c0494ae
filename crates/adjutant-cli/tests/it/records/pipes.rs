//! Standard streams that are closed, full or read only in part.

use std::fs::File;
use std::process::Stdio;

use crate::delegate;
use crate::support::rig::{BINARY, Rig};

/// Returns the write end of a pipe without a reader.
fn unread() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

#[test]
fn a_closed_pipe_is_not_an_error() {
    let rig = delegate::rig();
    assert_eq!(rig.delegate(&["-t", "echo=x"]).code, 0);
    for args in [
        &["status"][..],
        &["status", "--json"],
        &["log"],
        &["log", "--json"],
        &["tree"],
        &["result"],
        &["transcript"],
        &["policy", "explain"],
        &["completions", "bash"],
        &["--help"],
    ] {
        let out = rig.call(args).stdout(unread()).finish();
        assert_eq!((out.code, out.stderr.as_str()), (0, ""), "{args:?}");
    }
}

#[test]
fn a_run_ends_normally_after_the_reader_of_its_events_has_left() {
    let rig = delegate::rig();
    let out = rig.delegating(&["-t", "echo=x", "--events"]).stdout(unread()).finish();
    assert_eq!((out.code, out.stderr.as_str()), (0, ""));
    let out = rig.delegating(&["-t", "echo=x"]).stdout(unread()).finish();
    assert_eq!(out.code, 0);
    assert!(!out.stderr.contains("adjutant:"), "{out}");
    rig.assert_unharmed();
}

/// A result that cannot be written is kept, and the exit code does not claim that it was given.
#[test]
fn a_full_disk_behind_standard_output_is_reported() {
    let rig = delegate::rig();
    let full = || File::options().write(true).open("/dev/full").unwrap();
    let out = rig.delegating(&["-t", "echo=x"]).stdout(full()).finish();
    let said = "adjutant: cannot write to standard output: No space left on device (os error 28)\n";
    assert!(out.stderr.ends_with(said), "{out}");
    assert_eq!(out.code, 1);
    assert!(rig.run(["result"]).stdout.contains("> You said: x"));
}

/// Runs a shell line with the command as `$0`, because only a shell can close a stream.
fn shell(rig: &Rig, line: &str) -> (i32, String, String) {
    let out = std::process::Command::new("sh")
        .args(["-c", line, BINARY])
        .env_clear()
        .envs(rig.environment())
        .current_dir(rig.work())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (out.status.code().unwrap(), text(out.stdout), text(out.stderr))
}

#[test]
fn closed_standard_streams_do_not_panic() {
    let rig = delegate::rig();
    let delegate = format!("\"$0\" delegate --yes --model {} ", rig.model());
    let (code, _, said) = shell(&rig, &format!("{delegate} - <&-"));
    assert_eq!(code, 2);
    assert_eq!(said, "adjutant: standard input: EOF while parsing a value at line 1 column 0\n");
    let (code, data, _) = shell(&rig, &format!("{delegate} -t echo=x 2>&-"));
    assert_eq!((code, data.contains("> You said: x")), (0, true));
    let (code, _, said) = shell(&rig, &format!("{delegate} -t echo=x >&-"));
    assert_eq!((code, said.contains("panicked")), (0, false), "{said}");
    let (code, _, _) = shell(&rig, &format!("{delegate} -t echo=x <&- >&- 2>&-"));
    assert_eq!(code, 0);
    rig.assert_unharmed();
    let (code, data, said) = shell(&rig, "\"$0\" log | head -n 1");
    assert_eq!((code, data.lines().count(), said.as_str()), (0, 1, ""));
}

/// The live run prints no further events, so no write would ever fail.
#[test]
fn watch_ends_when_its_reader_closes_the_pipe() {
    let rig = crate::delegate::signals::rig();
    let mut run = crate::delegate::signals::hanging(&rig);
    for line in ["\"$0\" watch | head -n 2", "\"$0\" watch --json | head -n 2"] {
        let (code, data, said) = shell(&rig, line);
        assert_eq!((code, data.lines().count(), said.as_str()), (0, 2, ""), "{line}");
    }
    run.signal(rustix::process::Signal::INT);
    assert_eq!(run.finish().code, 130);
}
