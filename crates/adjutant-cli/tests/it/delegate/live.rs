//! The live tree during a run.

use crate::support::rig::Rig;
use crate::support::terminal::Terminal;

/// Long enough to be seen, short enough to wait for.
const SCRIPT: &str = r#"
price = { input = 3.0, output = 15.0 }

[[turn]]
label = "slow"
text = "Looking."
usage = { input = 1000, output = 10 }
[[turn.call]]
tool = "Read"
args = { path = "a file with quite a long name.txt" }

[[turn]]
delay_ms = 250
text = "Done."
usage = { input = 1000, output = 10 }
"#;

fn start(columns: u16, env: &[(&str, &str)], flags: &[&str]) -> (Rig, Terminal) {
    let rig = Rig::with_script(SCRIPT);
    rig.write("a file with quite a long name.txt", "x\n");
    let mut args = vec!["delegate", "--yes", "--model", rig.model(), "-t", "slow=Look"];
    args.extend(["-t", "second=Look twice", "-t", "third=Wait for the others"]);
    args.extend(flags);
    let terminal = Terminal::start(&rig, columns, env, &args);
    (rig, terminal)
}

#[test]
fn the_live_tree_is_redrawn_in_place_and_the_last_one_stays() {
    let (rig, mut terminal) = start(80, &[], &[]);
    assert_eq!(terminal.finish(), 0);
    assert!(terminal.raw.contains("→ thinking"), "it was drawn meanwhile: {}", terminal.raw);
    assert!(terminal.raw.matches("Delegate [3 subagents]").count() > 1, "and more than once");
    let screen = terminal.screen();
    assert_eq!(screen.matches("Delegate [3 subagents]").count(), 1, "{screen}");
    let picture: Vec<&str> = screen.lines().take(5).collect();
    insta::assert_snapshot!(rig.redacted(&picture.join("\n")), @"
        Delegate [3 subagents]
          [slow]    ✓ complete (in=2.0k out=20) 0.0s $0.0063
          [second]  ✓ complete (in=1.0k out=10) 0.0s $0.0032
          [third]   ✓ complete (in=1.0k out=10) 0.0s $0.0032
          3 subagents: 3 complete · in=4.0k out=40 · $0.0126 · 0.0s
    ");
    assert!(screen.contains("\nSubagents complete: 3/3\n"), "the result follows: {screen}");
    assert!(terminal.raw.contains("\x1b[32m"), "a terminal gets colours");
}

#[test]
fn no_color_is_respected() {
    let (_rig, mut terminal) = start(80, &[("NO_COLOR", "1")], &[]);
    assert_eq!(terminal.finish(), 0);
    assert!(terminal.screen().contains("Delegate [3 subagents]"));
    let colour = terminal.raw.split("\x1b[").skip(1).find(|rest| {
        rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';').starts_with('m')
    });
    assert_eq!(colour, None);
}

#[test]
fn at_40_columns_no_line_wraps() {
    let (rig, mut terminal) = start(40, &[], &[]);
    // Each line of the picture is one row: the labels stand directly below the head.
    terminal.wait_for("3 subagents: ");
    let screen = terminal.screen();
    let picture: Vec<&str> = screen.lines().take(5).collect();
    for (line, start) in
        picture.iter().zip(["Delegate [3", "  [slow]", "  [second]", "  [third]", "  3 subagents"])
    {
        assert!(line.starts_with(start), "{screen}");
    }
    assert_eq!(terminal.finish(), 0);
    rig.assert_unharmed();
}

#[test]
fn a_dumb_terminal_gets_lines() {
    let (_rig, mut terminal) = start(80, &[("TERM", "dumb")], &[]);
    assert_eq!(terminal.finish(), 0);
    assert!(!terminal.raw.contains('\x1b'), "{:?}", terminal.raw);
    assert!(terminal.raw.contains("[slow] started (1/3)\r\n"), "{}", terminal.raw);
    assert!(terminal.raw.contains("[third] ✓ complete"), "{}", terminal.raw);
}

#[test]
fn events_on_a_terminal_are_not_mixed_with_a_live_tree() {
    let (_rig, mut terminal) = start(80, &[], &["--events"]);
    assert_eq!(terminal.finish(), 0);
    for line in terminal.raw.lines() {
        serde_json::from_str::<serde_json::Value>(line).unwrap_or_else(|_| panic!("{line}"));
    }
}

/// A view printed to a terminal has colours; the same view in a pipe has none.
#[test]
fn views_are_coloured_on_a_terminal_only() {
    let rig = Rig::with_script("[[turn]]\ntext = 'ok'");
    assert_eq!(rig.delegate(&["-t", "a=x"]).code, 0);
    for view in ["tree", "status"] {
        let args = [view, "latest"];
        let mut terminal = Terminal::start(&rig, 80, &[], &args);
        assert_eq!(terminal.finish(), 0);
        assert!(terminal.raw.contains("\x1b["), "{view}");
        assert!(!rig.run(args).stdout.contains('\x1b'), "{view}");
        let mut plain = Terminal::start(&rig, 80, &[("NO_COLOR", "1")], &args);
        assert_eq!(plain.finish(), 0);
        assert!(!plain.raw.contains('\x1b'), "{view}");
    }
}
