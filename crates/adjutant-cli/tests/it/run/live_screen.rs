//! The live tree of `run` on a small terminal: what is left in the scrollback.

use crate::support::rig::{BINARY, Rig};
use crate::support::terminal::Terminal;

/// A parent that streams for a while, so slowly that each part of its text is drawn, with three subagents, one of which streams hostile text.
const SCRIPT: &str = r#"
[[turn]]
agent = "lead"
turn = 1
text = "I will ask three readers, and think about it for a while before that, so that there is something to see."
chunks = 20
chunk_delay_ms = 80
[[turn.call]]
tool = "Delegate"
args = { tasks = [
    { label = "one", prompt = "Look" },
    { label = "two", prompt = "Look" },
    { label = "three", prompt = "Look" },
] }

[[turn]]
label = "two"
delay_ms = 300
chunks = 10
chunk_delay_ms = 100
text = "\u001b[2J\u001b[10;10Hcleared \u202egnp.exe\u2066 \u0007 end of the hostile text"

[[turn]]
delay_ms = 400
times = "forever"
text = "Everything was looked at."
"#;

/// The line of the live tree that is there from the first drawing to the last.
const HEAD: &str = "Delegate [3 subagents]";

fn rig() -> Rig {
    Rig::with_script(SCRIPT)
}

fn arguments(rig: &Rig) -> [&'static str; 5] {
    ["run", "--yes", "--model", rig.model(), "Look at everything"]
}

/// Asserts that the history has the final tree once, and nothing of the live one.
fn assert_only_the_final_tree(history: &str) {
    for (text, times) in [(HEAD, 0), ("→", 0), ("[root] ✓", 1), ("[two] ✓", 1), ("[two]", 2)]
    {
        assert_eq!(history.matches(text).count(), times, "{text} in:\n{history}");
    }
}

#[test]
fn one_tree_is_left_in_the_scrollback_of_a_terminal_of_50_columns_and_8_rows() {
    let rig = rig();
    let mut terminal = Terminal::start_sized(&rig, (8, 50), &[], &arguments(&rig));
    assert_eq!(terminal.finish(), 0);
    let drawn = terminal.raw.matches("\x1b[?2026h").count();
    assert!(drawn > 5, "it was redrawn {drawn} times");
    assert_only_the_final_tree(&terminal.history());
    assert!(terminal.history().lines().all(|line| line.chars().count() <= 50));
}

#[test]
fn the_parent_agent_is_shown_before_it_delegates() {
    let rig = rig();
    let mut terminal = Terminal::start_sized(&rig, (8, 50), &[], &arguments(&rig));
    terminal.wait_until("text of the parent agent", |screen| {
        screen.contains("think") && !screen.contains(HEAD)
    });
    assert_eq!(terminal.finish(), 0);
}

/// Wider only: the terminal of the test cannot switch wrapping off, so it would wrap what is written while it shrinks.
#[test]
fn a_resize_leaves_no_copies() {
    let rig = rig();
    let mut terminal = Terminal::start_sized(&rig, (20, 50), &[], &arguments(&rig));
    terminal.wait_for("I will ask").resize(70).wait_for(HEAD).resize(90);
    assert_eq!(terminal.finish(), 0);
    assert_only_the_final_tree(&terminal.history());
}

#[test]
fn after_ctrl_z_and_fg_the_tree_is_drawn_below_what_was_printed_meanwhile() {
    let rig = rig();
    let line = format!(
        "set -m; {BINARY} run --yes --model {} 'Look at everything'; echo 'the shell speaks'; fg >/dev/null",
        rig.model()
    );
    let mut terminal = Terminal::shell(&rig, &line);
    terminal.wait_for("I will ask").types("\x1a").wait_for("the shell speaks");
    assert_eq!(terminal.finish(), 0);
    let history = terminal.history();
    let (_, below) = history.split_once("the shell speaks").unwrap();
    assert_only_the_final_tree(below);
}

#[test]
fn hostile_text_that_a_model_streams_is_shown_harmless() {
    let rig = rig();
    let mut terminal =
        Terminal::start_sized(&rig, (20, 100), &[("NO_COLOR", "1")], &arguments(&rig));
    terminal.wait_for("cleared");
    assert_eq!(terminal.finish(), 0);
    for sequence in ["\x1b[2J", "\x1b[10;10H", "\u{202e}", "\u{2066}"] {
        assert!(!terminal.raw.contains(sequence), "{sequence:?}");
    }
    assert_only_the_final_tree(&terminal.history());
}
