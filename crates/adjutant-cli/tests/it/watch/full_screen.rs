//! `watch` on a terminal: the full-screen program.

use std::io::Read;
use std::sync::mpsc::channel;

use portable_pty::{CommandBuilder, PtySize, native_pty_system};
use rustix::process::Signal;
use serde_json::json;

use crate::approvals::inbox;
use crate::delegate::signals::{hanging, rig};
use crate::support::mcp_client::task;
use crate::support::rig::{BINARY, Rig};
use crate::support::running::GUARD;
use crate::support::terminal::Terminal;

const DOWN: &str = "\x1b[B";
const TAKEN: (bool, bool) = (true, true);
const GIVEN_BACK: (bool, bool) = (false, false);

fn watch(rig: &Rig, args: &[&str]) -> Terminal {
    Terminal::start(rig, 100, &[], &[&["watch"], args].concat())
}

#[test]
fn a_live_run_of_another_process_is_selected_opened_and_one_agent_cancelled() {
    let rig = rig();
    let mut run = hanging(&rig);
    run.wait_for("[quick] ✓ complete");
    let mut terminal = watch(&rig, &[]);
    terminal.wait_for("1 live").wait_for("(here)").wait_for("> → running");
    assert_eq!(terminal.is_taken(), TAKEN);
    terminal.types("\r").wait_for("tokens").wait_for("#1 [slow]");
    terminal
        .types(DOWN)
        .wait_for(">   #1 [slow]")
        .types("c")
        .wait_for("Run `adjutant cancel sess_");
    terminal.types("y").wait_for("cancelled").wait_for("Press enter to go back.");
    assert_eq!(terminal.is_taken(), GIVEN_BACK, "commands run on the normal screen");
    terminal.types("\r").wait_for("#1 [slow]").wait_for("■ cancelled");
    terminal.types("q");
    assert_eq!(terminal.finish(), 0, "{}", terminal.screen());
    assert_eq!(terminal.is_taken(), GIVEN_BACK);
    assert!(terminal.screen().contains("opens it again"), "{}", terminal.screen());
    assert_eq!(run.finish().code, 3, "the other agent is complete");
}

#[test]
fn a_question_of_a_client_comes_first_and_is_approved_with_the_code_that_is_shown() {
    let rig = inbox::rig();
    let mut client = inbox::plain(&rig, &[]);
    let mut terminal = watch(&rig, &[]);
    terminal.wait_for("No runs yet.");
    let data = client.data("delegate_start", task("a"));
    let id = inbox::id(&data);
    terminal.wait_for("1 waiting for you");
    assert_eq!(terminal.raw.matches('\x07').count(), 1, "a new question rings");
    terminal.types("q");
    assert_eq!(terminal.finish(), 0);
    let mut terminal = watch(&rig, &[]);
    terminal.wait_for("1 waiting for you").wait_for("? tester asks: [a] call 1 of run_");
    assert!(!terminal.raw.contains('\x07'), "a question that was there before does not");
    terminal.types("\x1b[H").types("a").wait_for(&format!("Code that approves {id}"));
    assert_eq!(terminal.is_taken(), GIVEN_BACK);
    let screen = terminal.screen();
    let code = screen.split_once(&format!("approve {id} ")).unwrap().1;
    let code = code.split_whitespace().next().unwrap();
    assert!(!screen.contains("--home"), "nobody typed it: {screen}");
    // Escape and an empty line leave the question open, and go back at once.
    for keys in ["\x1b", "\r", "x\x7f\r"] {
        terminal.types(keys).wait_for("1 waiting for you");
        assert_eq!(terminal.is_taken(), TAKEN, "{keys:?}");
        terminal.types("a").wait_for(&format!("Code that approves {id}"));
    }
    terminal.types("WRONG2\r").wait_for("It was refused. Press enter to go back.");
    terminal.types("\r").wait_for("1 waiting for you").types("a").wait_for("Code that approves");
    terminal.types(&format!("{code}\r")).wait_for("approved: run_").wait_for("Press enter");
    terminal.types("\r").wait_for("✓ completed").types("q");
    assert_eq!(terminal.finish(), 0);
    let done = client.data("delegate_wait", json!({ "run": data["run"] }));
    assert_eq!(done["state"], "completed", "{done}");
}

#[test]
fn leaving_a_named_run_does_not_end_it() {
    let rig = rig();
    let mut run = hanging(&rig);
    for keys in ["q", "\x03"] {
        let mut terminal = watch(&rig, &["latest"]);
        terminal.wait_for("#1 [slow]").types(keys);
        assert_eq!(terminal.finish(), 130);
        assert_eq!(terminal.is_taken(), GIVEN_BACK);
        let screen = rig.redacted(&terminal.screen());
        assert!(screen.contains("no longer watching run_0000000000_aaaaaa"), "{screen}");
    }
    let status = rig.run(["status", "--json"]).json();
    assert_eq!(status["runs"][0]["state"], "running", "the run goes on");
    run.signal(Signal::INT);
    assert_eq!(run.finish().code, 130);
}

#[test]
fn a_named_run_stays_on_the_screen_after_its_end_and_gives_its_exit_code() {
    let rig = rig();
    let mut run = hanging(&rig);
    let mut terminal = watch(&rig, &["latest"]);
    terminal.wait_for("→ running");
    run.signal(Signal::INT);
    assert_eq!(run.finish().code, 130);
    terminal.wait_for("■ cancelled").types("\x1b[D").wait_for(" at ").types(" q");
    assert_eq!(terminal.finish(), 130);
    assert!(terminal.screen().contains("├─ #1 [slow] ■ cancelled"), "{}", terminal.screen());
}

#[test]
fn a_resize_to_20_columns_and_back_draws_everything_again() {
    let rig = rig();
    let mut run = hanging(&rig);
    let mut terminal = watch(&rig, &["latest"]);
    terminal.wait_for("#1 [slow]").wait_for("spent");
    terminal.resize(20).wait_until("a narrow picture", |screen| {
        screen.lines().all(|line| line.chars().count() <= 20)
            && screen.contains("#1")
            && screen.lines().last().is_some_and(|line| line.contains("q quit"))
    });
    terminal.resize(100).wait_for("free of");
    terminal.types("q");
    assert_eq!(terminal.finish(), 130);
    run.signal(Signal::INT);
    assert_eq!(run.finish().code, 130);
}

#[test]
fn signals_leave_the_screen_as_it_was() {
    let rig = rig();
    assert_eq!(rig.delegate(&["-t", "quick=answer"]).code, 0);
    for signal in [Signal::TERM, Signal::HUP, Signal::INT] {
        let mut terminal = watch(&rig, &[]);
        terminal.wait_for("✓ completed").signal(signal);
        assert_eq!(terminal.finish(), 130, "{signal:?}");
        assert_eq!(terminal.is_taken(), GIVEN_BACK, "{signal:?}");
    }
}

#[test]
fn ctrl_z_gives_the_terminal_back_until_the_program_continues() {
    let rig = rig();
    assert_eq!(rig.delegate(&["-t", "quick=answer"]).code, 0);
    let mut terminal = watch(&rig, &[]);
    terminal.wait_for("✓ completed").types("\x1a");
    terminal.wait_until("the normal screen", |screen| screen.trim().is_empty());
    assert_eq!(terminal.is_taken(), GIVEN_BACK);
    terminal.wait_until_stopped().signal(Signal::CONT).wait_for("✓ completed");
    assert_eq!(terminal.is_taken(), TAKEN);
    terminal.types("q");
    assert_eq!(terminal.finish(), 0);
}

#[test]
fn the_transcript_of_an_agent_is_shown_and_left() {
    let rig = rig();
    assert_eq!(rig.delegate(&["-t", "quick=answer"]).code, 0);
    let mut terminal = watch(&rig, &["latest"]);
    terminal.wait_for("#1 [quick]").types(DOWN).types("\r");
    terminal.wait_for("transcript of [quick]").wait_for("quick answer");
    terminal.types("\x1b").wait_for("#1 [quick]").types("q");
    assert_eq!(terminal.finish(), 0);
}

#[test]
fn a_dumb_terminal_gets_lines_and_a_terminal_without_utf_8_gets_ascii() {
    let rig = rig();
    assert_eq!(rig.delegate(&["-t", "quick=answer"]).code, 0);
    let mut dumb = Terminal::start(&rig, 100, &[("TERM", "dumb")], &["watch"]);
    assert_eq!(dumb.finish(), 0);
    assert!(!dumb.raw.contains('\x1b') && dumb.raw.contains("[quick] ✓ complete"), "{}", dumb.raw);
    let mut plain = Terminal::start(&rig, 100, &[("LC_ALL", "C"), ("NO_COLOR", "1")], &["watch"]);
    plain.wait_for("+ completed").types("q");
    assert_eq!(plain.finish(), 0);
    let mut coloured = watch(&rig, &[]);
    coloured.wait_for("✓ completed").types("q");
    assert_eq!(coloured.finish(), 0);
    let has_colours = |terminal: &Terminal| terminal.raw.contains("\x1b[38;5;");
    assert_eq!((has_colours(&plain), has_colours(&coloured)), (false, true), "{:?}", plain.raw);
}

#[test]
fn a_list_without_runs_says_how_to_make_one() {
    let rig = Rig::new();
    let mut terminal = watch(&rig, &[]);
    terminal.wait_for("`adjutant demo`").types("q");
    assert_eq!(terminal.finish(), 0);
}

#[test]
fn a_terminal_that_goes_away_ends_the_program() {
    let rig = rig();
    let size = PtySize { rows: 20, cols: 80, pixel_width: 0, pixel_height: 0 };
    let pair = native_pty_system().openpty(size).unwrap();
    // Without SIGHUP, as for a program whose parent ignores it, only the input tells.
    let mut command = CommandBuilder::new("/bin/sh");
    command.args(["-c", &format!("trap '' HUP; {BINARY} watch")]);
    command.env_clear();
    rig.environment().iter().for_each(|(name, value)| command.env(name, value));
    command.cwd(rig.work());
    let mut child = pair.slave.spawn_command(command).unwrap();
    drop(pair.slave);
    let mut reader = pair.master.try_clone_reader().unwrap();
    let mut screen = String::new();
    while !screen.contains("No runs") {
        let mut bytes = [0; 4096];
        let count = reader.read(&mut bytes).unwrap();
        screen += &String::from_utf8_lossy(&bytes[..count]);
    }
    drop((reader, pair.master));
    let (sender, ended) = channel();
    std::thread::spawn(move || sender.send(child.wait().unwrap()));
    ended.recv_timeout(GUARD).expect("it goes on without a terminal");
}
