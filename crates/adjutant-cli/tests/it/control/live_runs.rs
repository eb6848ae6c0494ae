//! `cancel`, `wait` and `tell` from another process.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, test_kill_process};
use serde_json::Value;

use crate::support::rig::{Output, Rig};
use crate::support::running::Running;
use crate::support::schema::assert_fits;
use crate::support::terminal::Terminal;

/// Takes a note and then thinks for longer than any test waits; others answer at once.
const HANGING: &str = r#"
[[turn]]
label = "slow"
text = "First I take a note."
usage = { input = 1000, output = 10 }
[[turn.call]]
tool = "Note"
args = { content = "half of it is done" }

[[turn]]
label = "slow"
delay_ms = 300000
text = "too late"

[[turn]]
label = "other"
delay_ms = 300000
text = "too late"

[[turn]]
text = "quick answer"
usage = { input = 1000, output = 10 }
"#;

/// What `cancel` promises.
const PROMISED: Duration = Duration::from_secs(2);

fn rig() -> Rig {
    Rig::with_script(HANGING)
}

/// Starts a run with one or more children that hang.
fn hanging<'rig>(rig: &'rig Rig, labels: &[&str]) -> Running<'rig> {
    let tasks: Vec<String> = labels.iter().map(|label| format!("{label}=think")).collect();
    let args: Vec<&str> = tasks.iter().flat_map(|task| ["-t", task]).collect();
    let mut run = rig.delegating(&args).start();
    run.wait_for("[slow] note: half of it is done");
    run
}

/// The session of a label.
fn session(rig: &Rig, run: &str, label: &str) -> String {
    let granted = |event: &Value| event["type"] == "granted" && event["brief"]["label"] == label;
    let events = rig.events(run);
    let event = events.iter().find(|event| granted(event)).unwrap();
    event["session"].as_str().unwrap().to_owned()
}

/// Runs a command and says how long it took.
fn timed(rig: &Rig, args: &[&str]) -> (Output, Duration) {
    let start = Instant::now();
    let out = rig.run(args);
    (out, start.elapsed())
}

fn json(rig: &Rig, schema: &str, args: &[&str], code: i32) -> Value {
    let out = rig.call(args).arg("--json").run();
    assert_eq!(out.code, code, "{out}");
    assert_fits(schema, &out.json());
    out.json()
}

fn is_gone(pid: u32) -> bool {
    test_kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap()).is_err()
}

#[test]
fn a_live_run_is_cancelled_from_another_terminal() {
    let rig = rig();
    let run = hanging(&rig, &["slow", "quick"]);
    let (out, took) = timed(&rig, &["cancel"]);
    insta::assert_snapshot!(out, @"
    run_0000000000_aaaaaa cancelled
    --- stderr ---
      adjutant resume run_0000000000_aaaaaa   continues what is unfinished
    [exit 0]
    ");
    assert!(took < PROMISED, "{took:?}");
    let out = run.finish();
    assert_eq!(out.code, 130, "{out}");
    assert!(out.stdout.contains("> half of it is done"), "what was found is kept: {out}");
    rig.assert_unharmed();
    assert!(!rig.run_folder(&rig.only_run()).join("control.sock").exists());
}

#[test]
fn one_subagent_is_cancelled_and_the_others_continue() {
    let rig = rig();
    let run = hanging(&rig, &["slow", "other"]);
    let id = rig.only_run();
    let second = session(&rig, &id, "other");
    let said = json(&rig, "cancel", &["cancel", &second], 0);
    assert_eq!((&said["how"], &said["session"]), (&"obeyed".into(), &second.clone().into()));
    assert_eq!(json(&rig, "wait", &["wait", &second], 130)["state"], "cancelled");
    let again = rig.run(["cancel", &second]);
    insta::assert_snapshot!(again, @"
        sess_0000000000_aaaaaa had already ended: cancelled
        --- stderr ---
        [exit 0]
    ");
    let still = json(&rig, "wait", &["wait", "--timeout", "0"], 124);
    assert_eq!((&still["state"], &still["exit"]), (&"running".into(), &124.into()));
    assert_eq!(rig.run(["cancel", &id]).code, 0);
    assert_eq!(run.finish().code, 130);
}

#[test]
fn cancel_kills_a_stopped_process_and_records_its_end() {
    let rig = rig();
    let mut run = hanging(&rig, &["slow"]);
    let pid = run.pid();
    run.signal(Signal::STOP);
    let start = Instant::now();
    let said = json(&rig, "cancel", &["cancel"], 0);
    assert!(start.elapsed() < PROMISED, "{:?}", start.elapsed());
    assert_eq!((&said["how"], &said["pid"]), (&"killed".into(), &pid.into()));
    assert_eq!(run.finish().code, 128 + 9);
    assert!(is_gone(pid));
    rig.assert_unharmed();
    let id = rig.only_run();
    let lock = std::fs::read_to_string(rig.run_folder(&id).join("lock")).unwrap();
    assert!(lock.contains("\"released\":true"), "the lock is free: {lock}");
    insta::assert_snapshot!(rig.run(["tree"]), @"
        run_0000000000_aaaaaa
        [root] ■ cancelled · delegate · depth 0 · in=~2.1k out=~4.1k · no price · 0.0s
        └─ #1 [slow] ■ cancelled · scout · depth 1 · in=~2.1k out=~4.1k · no price · 0.0s
        ~ estimated: calls without reported usage are counted at the amount reserved for them
        --- stderr ---
        [exit 0]
    ");
    // What its process could not leave behind any more is there.
    let result = rig.run(["result"]);
    assert!(result.stdout.contains("> half of it is done"), "{result}");
    assert!(result.stdout.contains("transcripts in"), "{result}");
}

#[test]
fn cancelling_one_subagent_of_a_stopped_process_leaves_the_others_resumable() {
    let rig = rig();
    let mut run = hanging(&rig, &["slow", "other"]);
    let id = rig.only_run();
    let second = session(&rig, &id, "other");
    run.signal(Signal::STOP);
    let out = rig.run(["cancel", &second]);
    drop(run);
    let talk = out.stderr.lines().map(|line| line.replace(char::is_numeric, "")).next().unwrap();
    assert_eq!(talk, "adjutant: process  did not answer and was killed; the end is recorded");
    assert!(out.stderr.contains(&format!("`adjutant resume {id}`")), "{out}");
    assert_eq!(out.stdout, format!("{second} cancelled\n"));
    assert_eq!(rig.run(["wait", &second]).code, 130);
    insta::assert_snapshot!(rig.run(["wait", &id]), @"
        run_0000000000_aaaaaa interrupted
        --- stderr ---
        adjutant: the process that ran it is gone
          `adjutant resume run_0000000000_aaaaaa` continues it, `adjutant cancel run_0000000000_aaaaaa` ends it.
        [exit 3]
    ");
}

#[test]
fn cancel_ends_a_dead_run_without_a_kill_and_leaves_an_ended_run_alone() {
    let rig = rig();
    let mut run = hanging(&rig, &["slow"]);
    run.signal(Signal::KILL);
    assert_eq!(run.finish().code, 128 + 9);
    let id = rig.only_run();
    let nobody = rig.run(["cancel"]);
    insta::assert_snapshot!(nobody, @"

        --- stderr ---
        adjutant: no run is in progress
          `adjutant status` lists the runs; name one to end it.
        [exit 2]
    ");
    assert_eq!(json(&rig, "wait", &["wait"], 3)["state"], "interrupted");
    insta::assert_snapshot!(rig.run(["cancel", &id]), @"
    run_0000000000_aaaaaa cancelled
    --- stderr ---
    adjutant: its process was gone; the end is recorded
      adjutant resume run_0000000000_aaaaaa   continues what is unfinished
    [exit 0]
    ");
    rig.assert_unharmed();
    let before = rig.events(&id);
    insta::assert_snapshot!(rig.run(["cancel", &id]), @"
        run_0000000000_aaaaaa had already ended: cancelled
        --- stderr ---
        [exit 0]
    ");
    assert_eq!(rig.events(&id), before, "an ended run is not written to");
    assert_eq!(json(&rig, "cancel", &["cancel", &id], 0)["how"], "ended_before");
}

#[test]
fn wait_exits_with_the_exit_code_of_the_run() {
    let rig = rig();
    assert_eq!(rig.delegate(&["-t", "quick=now"]).code, 0);
    let ended = json(&rig, "wait", &["wait"], 0);
    assert_eq!(ended["state"], "completed");
    let run = hanging(&rig, &["slow"]);
    let (out, took) = timed(&rig, &["wait", "--timeout", "0.2"]);
    assert!(took >= Duration::from_millis(200), "{took:?}");
    insta::assert_snapshot!(out, @"
        run_0000000000_aaaaaa running
        --- stderr ---
        adjutant: the timeout passed and it is still running; `adjutant wait run_0000000000_aaaaaa` waits again
        [exit 124]
    ");
    let waiting = rig.call(["wait"]).start();
    assert_eq!(rig.run(["cancel"]).code, 0);
    let waited = waiting.finish();
    assert_eq!((waited.code, run.finish().code), (130, 130), "{waited}");
    for bad in ["-1", "soon", "nan"] {
        assert_eq!(rig.run(["wait", "--timeout", bad]).code, 2, "{bad}");
    }
}

#[test]
fn wait_on_a_terminal_shows_the_progress_of_the_run() {
    let rig = rig();
    let mut run = hanging(&rig, &["slow", "quick"]);
    run.wait_for("[quick] ✓ complete");
    let mut terminal = Terminal::start(&rig, 80, &[], &["wait"]);
    terminal.wait_for("[slow]").wait_for("[quick]");
    assert_eq!(rig.run(["cancel"]).code, 0);
    terminal.wait_for(&format!("{} cancelled", rig.only_run()));
    assert_eq!((terminal.finish(), run.finish().code), (130, 130));
}

/// A script that waits for a while and answers messages.
const LISTENING: &str = r#"
[[turn]]
text = "First I take a note."
[[turn.call]]
tool = "Note"
args = { content = "listening" }

[[turn]]
last = "the tests out"
text = "I left them out."

[[turn]]
delay_ms = 3000
text = "done without a word"
"#;

#[test]
fn tell_delivers_a_message_before_the_subagent_ends() {
    let rig = Rig::with_script(LISTENING);
    let mut run = rig.delegating(&["-t", "a=look"]).start();
    run.wait_for("[a] note: listening");
    let id = rig.only_run();
    let child = session(&rig, &id, "a");
    let said = json(&rig, "tell", &["tell", &child, "Leave the tests out."], 0);
    assert_eq!(said["bytes"], 20);
    let piped = rig.call(["tell", &child, "-"]).stdin("Really: leave\nthe tests out.").run();
    insta::assert_snapshot!(piped, @"
        sess_0000000000_aaaaaa gets it before its next turn
        --- stderr ---
        [exit 0]
    ");
    let out = run.finish();
    assert!(out.stdout.contains("> I left them out."), "{out}");
    assert!(
        out.stderr
            .contains("[a] your message, delivered before its next turn: Leave the tests out."),
        "{out}"
    );
    let transcript = rig.run(["transcript", &child]);
    assert!(transcript.stdout.contains("> Really: leave\n  > the tests out."), "{transcript}");
    // Its run is over now.
    insta::assert_snapshot!(rig.run(["tell", &child, "Hello?"]), @"

        --- stderr ---
        adjutant: run_0000000000_aaaaaa is not in progress
          `adjutant status run_0000000000_aaaaaa` shows its state.
        [exit 4]
    ");
}

#[test]
fn tell_refuses_a_message_that_no_agent_can_receive() {
    let rig = rig();
    let mut run = hanging(&rig, &["slow", "quick"]);
    run.wait_for("[quick] ✓ complete");
    let id = rig.only_run();
    let (quick, slow) = (session(&rig, &id, "quick"), session(&rig, &id, "slow"));
    let long = "x".repeat(20_000);
    let talks: Vec<String> = [(&quick, "Hello?"), (&id, "Hello?"), (&slow, " "), (&slow, &long)]
        .map(|(who, text)| rig.call(["tell", who, "-"]).stdin(text).run().talk())
        .into();
    insta::assert_snapshot!(talks.join("\n"), @"
    adjutant: cannot send the message to sess_0000000000_aaaaaa: it has ended.
      It can go on when its run has ended: `adjutant wait run_0000000000_bbbbbb` waits for that, then `adjutant resume sess_0000000000_aaaaaa --say` gives it more to do.
    [exit 4]
    adjutant: cannot send the message to sess_0000000000_aaaaaa: it has no agent of its own; name one of its delegations.
      Name a session at work; `adjutant status latest` lists them.
    [exit 4]
    adjutant: cannot send the message to sess_0000000000_aaaaaa: it is empty.
      Say something.
    [exit 2]
    adjutant: cannot send the message to sess_0000000000_aaaaaa: it has 20000 bytes, limit 16384.
      Say it shorter, or put it into a file the agent can read.
    [exit 2]
    ");
    assert_eq!(rig.run(["tell", "sess_1700000000_nobody", "x"]).code, 2);
    let many: Vec<i32> = (0..65).map(|_| rig.run(["tell", &slow, "x"]).code).collect();
    assert_eq!(many.iter().filter(|code| **code == 0).count(), 64);
    assert_eq!(many[64], 4);
    assert_eq!(rig.run(["cancel"]).code, 0);
    assert_eq!(run.finish().code, 130);
}

#[test]
fn the_question_of_a_subagent_in_a_live_run_is_answered_after_its_end() {
    let error = serde_json::json!({ "type": "validation", "message": "Warm or cold?", "code": "VALIDATION_FAILED",
        "recoverable": true, "recommendation": "Answer warm or cold" });
    let asks = serde_json::json!({ "status": "blocked", "summary": "I need to know which colours are meant here.",
        "artifacts": [], "errors": [error] });
    let rig = Rig::with_script(&format!("[[turn]]\nlabel = 'colors'\ntext = '{asks}'\n{HANGING}"));
    let mut run = rig
        .delegating(&["--set", "contract=standard", "-t", "colors=choose", "-t", "slow=think"])
        .start();
    run.wait_for("[colors] ? asks: Warm or cold?");
    let talks: Vec<String> = [
        &["tell", "colors", "warm"][..],
        &["resume", "colors", "--say", "warm"],
        &["resume", "colors", "--say"],
        &["resume", "colors", "--say", "TEXT"],
    ]
    .map(|args| rig.run(args).talk().replace(&run.pid().to_string(), "PID"))
    .into();
    insta::assert_snapshot!(talks.join("\n"), @"
    adjutant: cannot send the message to sess_0000000000_aaaaaa: it has ended with a question.
      Its question can be answered when its run has ended: `adjutant wait run_0000000000_bbbbbb` waits for that, then `adjutant resume sess_0000000000_aaaaaa --say` answers it.
    [exit 4]
    adjutant: run_0000000000_aaaaaa is being worked on by process PID
      Its question can be answered when its run has ended: `adjutant wait run_0000000000_aaaaaa` waits for that, then `adjutant resume sess_0000000000_bbbbbb --say` answers it.
    [exit 2]
    adjutant: run_0000000000_aaaaaa is being worked on by process PID
      Its question can be answered when its run has ended: `adjutant wait run_0000000000_aaaaaa` waits for that, then `adjutant resume sess_0000000000_bbbbbb --say` answers it.
    [exit 2]
    adjutant: `TEXT` only stands for the message
      `adjutant resume sess_0000000000_aaaaaa --say` asks for it.
    [exit 2]
    ");
    run.signal(Signal::INT);
    assert_eq!(run.finish().code, 130);
    let out = rig.run(["resume", "colors", "--say"]);
    assert!(
        out.stderr.contains("--say has no text, and there is no terminal to ask for it"),
        "{out}"
    );
}

#[test]
fn tell_reports_a_stopped_process_within_two_seconds() {
    let rig = rig();
    let mut run = hanging(&rig, &["slow"]);
    let id = rig.only_run();
    let slow = session(&rig, &id, "slow");
    run.signal(Signal::STOP);
    let (out, took) = timed(&rig, &["tell", &slow, "Hello?"]);
    assert!(took < PROMISED, "{took:?}");
    assert_eq!(out.code, 1, "{out}");
    assert!(out.stderr.contains(" does not answer\n"), "{out}");
    assert!(out.stderr.contains(&format!("`adjutant cancel {id}` ends the run")), "{out}");
}

#[test]
fn an_empty_message_to_an_ended_run_is_a_usage_error() {
    let rig = rig();
    assert_eq!(rig.delegate(&["-t", "quick=now"]).code, 0);
    for say in ["", " ", &"x".repeat(20_000)] {
        let out = rig.run(["resume", "--say", say]);
        assert_eq!(out.code, 2, "{out}");
    }
}

#[test]
fn wait_draws_at_most_four_times_per_second() {
    // Twenty events per second for more than a second.
    let note = |number: usize| {
        format!(
            "[[turn]]\ndelay_ms = 50\ntext = 'I take a note.'\n\
             [[turn.call]]\ntool = 'Note'\nargs = {{ content = 'number {number}' }}\n"
        )
    };
    let script = (0..30).map(note).collect::<String>() + "[[turn]]\ntext = 'Done.'\n";
    let rig = Rig::with_script(&script);
    let mut run = rig.delegating(&["-t", "busy=think"]).start();
    run.wait_for("[busy] started");
    let start = Instant::now();
    let mut terminal = Terminal::start(&rig, 80, &[], &["wait"]);
    assert_eq!(terminal.finish(), 0, "{}", terminal.screen());
    let quarters = start.elapsed().as_millis() / 250;
    let draws = terminal.raw.matches("\x1b[?2026h").count() as u128;
    // The first one, the last one, and one per quarter of a second.
    assert!(draws <= quarters + 2, "{draws} times in {quarters} quarters of a second");
    assert!(draws > 1, "it was drawn meanwhile");
    assert_eq!(run.finish().code, 0);
}

#[test]
fn after_ctrl_z_and_fg_wait_draws_below_what_the_shell_printed() {
    let rig = rig();
    let mut run = hanging(&rig, &["slow"]);
    let mut terminal = Terminal::start(&rig, 80, &[], &["wait"]);
    terminal.wait_for("Delegate [1 subagent]");
    terminal.signal(Signal::STOP).signal(Signal::CONT);
    terminal.wait_until("second picture", |screen| {
        screen.matches("Delegate [1 subagent]").count() == 2
    });
    run.signal(Signal::INT);
    assert_eq!(run.finish().code, 130);
    assert_eq!(terminal.finish(), 130);
}
