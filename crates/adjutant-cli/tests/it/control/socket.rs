//! The control socket of a run with invalid input, too much input, and too many connections.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::support::rig::Rig;
use crate::support::running::{GUARD, Running};
use crate::support::schema::assert_fits;

const SCRIPT: &str = r#"
[[turn]]
[[turn.call]]
tool = "Note"
args = { content = "at work" }

[[turn]]
delay_ms = 300000
text = "too late"
"#;

fn at_work(rig: &Rig) -> (Running<'_>, PathBuf) {
    let mut run = rig.delegating(&["-t", "a=think"]).start();
    run.wait_for("[a] note: at work");
    let socket = rig.run_folder(&rig.only_run()).join("control.sock");
    (run, socket)
}

fn connect(socket: &PathBuf) -> UnixStream {
    let stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(GUARD)).unwrap();
    stream
}

/// Sends bytes and reads one line; nothing when the other end closes instead.
fn say(stream: &mut UnixStream, bytes: &[u8]) -> Option<Value> {
    // The other end may have closed before it took everything.
    let _ = stream.write_all(bytes);
    let mut line = Vec::new();
    let mut byte = [0];
    while let Ok(1) = stream.read(&mut byte) {
        if byte == *b"\n" {
            let answer = serde_json::from_slice(&line).unwrap();
            assert_fits("control", &answer);
            return Some(answer);
        }
        line.push(byte[0]);
    }
    None
}

fn ping() -> Vec<u8> {
    format!("{}\n", json!({ "v": 1, "do": "ping" })).into_bytes()
}

fn end(rig: &Rig, run: Running<'_>) {
    assert_eq!(rig.run(["cancel"]).code, 0);
    assert_eq!(run.finish().code, 130);
    rig.assert_unharmed();
}

#[test]
fn the_socket_is_private_and_answers_every_line() {
    let rig = Rig::with_script(SCRIPT);
    let (run, socket) = at_work(&rig);
    assert_eq!(socket.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let mut stream = connect(&socket);
    let answer = say(&mut stream, &ping()).unwrap();
    assert_eq!((&answer["ok"], &answer["state"]), (&true.into(), &"running".into()));
    assert_eq!(answer["run"], rig.only_run());
    assert_eq!(answer["pid"], run.pid());
    let bad: [&[u8]; 5] = [
        b"garbage\n",
        b"\n",
        b"\xff\xfe\x00\n",
        br#"{"v":1,"do":"approve"}
"#,
        br#"{"v":9,"do":"ping"}
"#,
    ];
    for line in bad {
        let answer = say(&mut stream, line).unwrap();
        assert_eq!(
            (&answer["ok"], &answer["error"]["code"]),
            (&false.into(), &"VALIDATION_FAILED".into())
        );
    }
    // Two at once, the second in pieces.
    let two = [ping(), ping()].concat();
    let (first, rest) = two.split_at(two.len() - 7);
    assert_eq!(say(&mut stream, first).unwrap()["ok"], true);
    assert_eq!(say(&mut stream, rest).unwrap()["ok"], true);
    end(&rig, run);
}

#[test]
fn an_overlong_line_closes_the_connection() {
    let rig = Rig::with_script(SCRIPT);
    let (run, socket) = at_work(&rig);
    let mut stream = connect(&socket);
    let line = vec![b'x'; 10 * 1024 * 1024];
    let answer = say(&mut stream, &line).unwrap();
    assert_eq!(answer["error"]["message"], "the line is longer than 65536 bytes");
    assert_eq!(say(&mut stream, &ping()), None, "the connection is closed");
    end(&rig, run);
}

#[test]
fn a_thousand_connections_do_not_block_the_control_socket() {
    let rig = Rig::with_script(SCRIPT);
    let (run, socket) = at_work(&rig);
    let idle: Vec<UnixStream> = (0..1_000).map(|_| connect(&socket)).collect();
    let mut heard = connect(&socket);
    assert_eq!(say(&mut heard, &ping()).unwrap()["ok"], true);
    let open = idle.iter().filter(|stream| {
        stream.set_nonblocking(true).unwrap();
        matches!((&mut &**stream).read(&mut [0]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
    });
    assert!(open.count() < 16, "all but the latest were closed");
    end(&rig, run);
}

/// A path that is too long for a socket's address, at both ends.
#[test]
fn a_state_directory_too_deep_for_a_socket_address_still_has_a_socket() {
    let rig = Rig::with_script(SCRIPT);
    let deep = rig.path().join("deep/".repeat(40));
    let mut run = rig.delegating(&["-t", "a=think"]).env("ADJUTANT_HOME", &deep).start();
    run.wait_for("[a] note: at work");
    let out = rig.call(["cancel", "--json"]).env("ADJUTANT_HOME", &deep).run();
    assert_eq!(out.json()["how"], "obeyed", "{out}");
    assert_eq!(run.finish().code, 130);
}
