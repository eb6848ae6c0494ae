//! Results on a terminal: rendered Markdown, shown in the person's pager.

use crate::delegate;
use crate::support::rig::Rig;
use crate::support::terminal::Terminal;

const PATH: (&str, &str) = ("PATH", "/usr/bin:/bin");
const TERM: (&str, &str) = ("TERM", "xterm-256color");

fn rig_with_run() -> Rig {
    let rig = delegate::rig();
    assert_eq!(rig.delegate(&["-t", "echo=x"]).code, 0);
    rig
}

/// Runs a command on a terminal of 60 columns. Returns its exit code and the screen.
fn shown(rig: &Rig, env: &[(&str, &str)], args: &[&str]) -> (u32, String) {
    let mut terminal = Terminal::start(rig, 60, env, args);
    let code = terminal.finish();
    (code, terminal.screen())
}

#[test]
fn a_result_is_rendered_on_a_terminal_and_raw_in_a_pipe() {
    let rig = rig_with_run();
    let piped = rig.run(["result"]).stdout;
    assert!(piped.contains("\n> You said: x\n"), "{piped}");
    let (code, screen) = shown(&rig, &[TERM], &["result"]);
    assert_eq!(code, 0);
    assert!(screen.contains("│ You said: x"), "{screen}");
    assert!(piped.contains("**Usage**") && !screen.contains("**"), "{screen}");

    let (_, dumb) = shown(&rig, &[("TERM", "dumb")], &["result"]);
    assert!(dumb.contains("> You said: x"), "{dumb}");
    let (_, ascii) = shown(&rig, &[TERM, ("LC_ALL", "C")], &["result"]);
    assert!(ascii.is_ascii() && ascii.contains("You said: x"), "{ascii}");
}

#[test]
fn long_texts_go_through_the_pager() {
    let rig = rig_with_run();
    let pager = ("PAGER", "sed 's/^/paged: /'");
    for args in [&["result"][..], &["transcript"], &["log"], &["tree"], &["status"]] {
        let (code, screen) = shown(&rig, &[TERM, PATH, pager], args);
        assert_eq!(code, 0, "{screen}");
        assert!(screen.lines().all(|line| line.starts_with("paged: ")), "{args:?}: {screen}");
    }
    for args in [&["cost"][..], &["log", "--follow"], &["result", "--json"]] {
        let (_, screen) = shown(&rig, &[TERM, PATH, pager], args);
        assert!(!screen.contains("paged: "), "{args:?}: {screen}");
    }
}

#[test]
fn a_pager_that_is_missing_or_switched_off_is_not_used() {
    let rig = rig_with_run();
    for (pager, own) in [("no-such-pager -R", None), ("sed s/^/paged:/", Some(""))] {
        let mut env = vec![TERM, PATH, ("PAGER", pager)];
        env.extend(own.map(|own| ("ADJUTANT_PAGER", own)));
        let (code, screen) = shown(&rig, &env, &["result"]);
        assert_eq!(code, 0, "{screen}");
        assert!(screen.contains("You said: x") && !screen.contains("paged"), "{screen}");
    }
}

#[test]
fn leaving_the_pager_early_is_not_an_error() {
    let rig = rig_with_run();
    let (code, screen) = shown(&rig, &[TERM, PATH, ("PAGER", "head -n 1")], &["log"]);
    assert_eq!((code, screen.lines().count()), (0, 1), "{screen}");
}
