//! Terminals without UTF-8, without control sequences, and narrow ones.

use adjutant_view::layout::width;

use crate::support::rig::Rig;
use crate::support::terminal::Terminal;

/// Commands that print recorded runs.
const VIEWS: [&[&str]; 9] = [
    &["status"],
    &["status", "latest"],
    &["errors"],
    &["errors", "--each"],
    &["log"],
    &["tree"],
    &["cost"],
    &["result"],
    &["transcript", "gut"],
];

/// A run with a failed task, and texts that are not ASCII.
fn rig() -> Rig {
    let rig = Rig::with_script("[[turn]]\nlabel = 'gut'\ntext = 'schön • fertig'\n");
    assert_eq!(rig.delegate(&["-t", "gut=Prüfe es", "-t", "böse=Scheitere"]).code, 3);
    rig
}

fn raw(rig: &Rig, columns: u16, env: &[(&str, &str)], args: &[&str]) -> String {
    let mut terminal = Terminal::start(rig, columns, env, args);
    let _ = terminal.finish();
    terminal.raw.clone()
}

#[test]
fn a_terminal_without_utf_8_gets_ascii_from_every_view() {
    let rig = rig();
    for args in VIEWS {
        let text = raw(&rig, 80, &[("LC_ALL", "C"), ("PAGER", "")], args);
        assert!(text.len() > 20 && text.is_ascii(), "{args:?}: {text}");
        let text = raw(&rig, 80, &[("LC_ALL", "C.UTF-8"), ("PAGER", "")], args);
        assert!(!text.is_ascii(), "{args:?}: {text}");
        let pipe = rig.call(args).env("LC_ALL", "C").run();
        assert!(!pipe.stdout.is_ascii(), "a pipe gets the text itself: {pipe}");
    }
    let json = raw(&rig, 80, &[("LC_ALL", "C")], &["result", "--json"]);
    assert!(json.contains("schön"), "JSON is UTF-8: {json}");
}

#[test]
fn a_message_is_ascii_on_a_terminal_without_utf_8() {
    let rig = rig();
    let text = raw(&rig, 80, &[("LC_ALL", "C")], &["status", "nirgends-für-böse"]);
    assert!(text.contains("adjutant: ") && text.is_ascii(), "{text}");
}

#[test]
fn a_dumb_or_unknown_terminal_gets_no_escape_codes() {
    let rig = rig();
    for term in ["dumb", ""] {
        for args in VIEWS.into_iter().chain([&["watch"][..]]) {
            let text = raw(&rig, 80, &[("TERM", term)], args);
            assert!(text.len() > 20 && !text.contains('\x1b'), "TERM={term} {args:?}: {text:?}");
        }
    }
}

#[test]
fn messages_are_wrapped_to_the_terminal() {
    let rig = rig();
    for (columns, args) in [(50, &["status"][..]), (40, &["status", "nothing-like-this"])] {
        let text = raw(&rig, columns, &[("NO_COLOR", "1"), ("PAGER", "")], args);
        for line in text.lines() {
            assert!(width(line) <= columns.into(), "{columns}: {line:?} in\n{text}");
        }
    }
}
