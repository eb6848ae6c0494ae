//! Terminals without UTF-8, without control sequences, and narrow ones.

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
    &["transcript", "latest"],
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
fn a_dumb_or_unknown_terminal_gets_no_escape_codes() {
    let rig = rig();
    for term in ["dumb", ""] {
        for args in VIEWS.into_iter().chain([&["watch"][..]]) {
            let text = raw(&rig, 80, &[("TERM", term)], args);
            assert!(text.len() > 20 && !text.contains('\x1b'), "TERM={term} {args:?}: {text:?}");
        }
    }
}
