//! The bell and the `notify` program. Runs are announced from their tenth second on, so these tests take that long.

use std::fs;

use crate::delegate;
use crate::support::rig::Rig;
use crate::support::terminal::Terminal;

/// A model that thinks until the run is announced.
const SLOW: &str = "[[turn]]\ndelay_ms = 10500\ntext = 'Done.'\n";

/// Sets a program that appends its facts to a file.
fn with_program(rig: &Rig) {
    let folder = rig.home().join(".config/adjutant");
    fs::create_dir_all(&folder).unwrap();
    let file = rig.path().join("told");
    let told = format!("echo \"$ADJUTANT_EVENT $ADJUTANT_OUTCOME\" >> {}", file.display());
    fs::write(folder.join("config.toml"), format!("notify = ['/bin/sh', '-c', '{told}']\n"))
        .unwrap();
}

fn told(rig: &Rig) -> String {
    fs::read_to_string(rig.path().join("told")).unwrap_or_default()
}

#[test]
fn a_question_that_is_asked_at_once_is_announced_when_the_run_is_old_enough() {
    let rig = delegate::rig();
    with_program(&rig);
    let args = ["delegate", "--model", rig.model(), "-t", "echo=Say something"];
    let mut terminal = Terminal::start(&rig, 80, &[], &args);
    terminal.wait_for("Start? [y]es");
    assert!(!terminal.raw.contains('\x07'), "the person still looks at it");
    terminal.wait_for_bytes("\x07");
    assert_eq!(terminal.types("y\r").finish(), 0);
    assert_eq!(terminal.raw.matches('\x07').count(), 2, "the question and the end");
    assert_eq!(told(&rig), "waiting \nended completed\n");
}

#[test]
fn the_program_is_started_also_without_a_terminal() {
    let rig = Rig::with_script(SLOW);
    with_program(&rig);
    let out = rig.delegate(&["-t", "slow=Think"]);
    assert_eq!(out.code, 0, "{out}");
    assert_eq!(told(&rig), "ended completed\n");
    assert!(!out.stderr.contains('\x07'), "{out}");
}

#[test]
fn a_short_run_is_not_announced() {
    let rig = delegate::rig();
    with_program(&rig);
    let args = ["delegate", "--yes", "--model", rig.model(), "-t", "echo=Say something"];
    let mut terminal = Terminal::start(&rig, 80, &[], &args);
    assert_eq!(terminal.finish(), 0);
    assert_eq!((terminal.raw.contains('\x07'), told(&rig)), (false, String::new()));
}
