//! Text of models, files and callers cannot control the terminal.

use serde_json::json;

use crate::support::rig::{Output, Rig};
use crate::support::terminal::Terminal;

/// Clears the screen, turns the line around, sets the title, and speaks C1.
const EVIL: &str = "\x1b[2Jred\u{202e}live\u{7}\x1b]0;title\x07\u{9b}31m\r\u{2066}";

/// The same in TOML and JSON.
const ESCAPED: &str = r"\u001b[2Jred\u202elive\u0007\u001b]0;title\u0007\u009b31m\r\u2066";

fn rig() -> Rig {
    let rig = Rig::with_script(&format!(
        r#"
        [[turn]]
        text = "say {ESCAPED}"
        [[turn.call]]
        tool = "Note"
        args = {{ content = "note {ESCAPED}" }}
        [[turn.call]]
        tool = "Read"
        args = {{ path = "{ESCAPED}" }}
        [[turn.call]]
        tool = "Tool{ESCAPED}"
        [[turn.call]]
        tool = "Read"
        args = {{ path = "evil.txt" }}
        [[turn]]
        text = "end {ESCAPED} {{{{result 4}}}}"
        [[turn]]
        label = "failing"
        error = "bad_request"
        message = "no {ESCAPED}"
        "#
    ));
    rig.write("evil.txt", EVIL);
    rig
}

/// Only line breaks and tabs may come through; everything else that acts must not.
#[track_caller]
fn assert_clean(text: &str) {
    let acting = |c: &char| {
        (c.is_control() && !matches!(c, '\n' | '\t'))
            || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200b}'..='\u{200f}')
    };
    let found = text.chars().find(acting);
    assert_eq!(found, None, "{}", text.escape_debug());
}

#[track_caller]
fn assert_all_clean(out: &Output) {
    assert_clean(&out.stdout);
    assert_clean(&out.stderr);
}

fn tasks() -> String {
    let context = [EVIL, "evil.txt"];
    json!([{ "label": "l\u{1b}[31m\u{202e}]", "prompt": format!("do {EVIL}"), "context": context }])
        .to_string()
}

#[test]
fn texts_of_models_files_and_callers_are_escaped_in_every_view() {
    let rig = rig();
    let out = rig.delegating(&["-"]).stdin(tasks()).run();
    assert_all_clean(&out);
    assert!(out.stdout.contains("⟨U+001B⟩[2Jred⟨U+202E⟩live"), "shown, not dropped: {out}");
    for view in ["tree", "result", "transcript", "log", "cost"] {
        let out = rig.run([view]);
        assert_all_clean(&out);
        assert!(!out.stdout.is_empty(), "{view}");
    }
    assert_all_clean(&rig.run(["status", "latest"]));
    assert_all_clean(&rig.run(["status"]));
    assert_all_clean(&rig.delegating(&["-", "--dry-run"]).stdin(tasks()).run());
    let unasked = rig.call(["delegate", "-", "--model", rig.model()]).stdin(tasks()).run();
    assert_eq!(unasked.code, 4);
    assert_all_clean(&unasked);
}

#[test]
fn errors_of_providers_are_escaped() {
    let rig =
        Rig::with_script(&format!("[[turn]]\nerror = \"bad_request\"\nmessage = \"no {ESCAPED}\""));
    let out = rig.delegate(&["-t", "a=x"]);
    assert_eq!(out.code, 1);
    assert_all_clean(&out);
    assert_all_clean(&rig.run(["log"]));
}

#[test]
fn input_quoted_in_errors_is_escaped() {
    let rig = rig();
    let said = |args: &[&str], stdin: String| {
        let out = rig.delegating(args).stdin(stdin).run();
        assert_eq!(out.code, 2, "{out}");
        assert_all_clean(&out);
    };
    said(&["-"], json!([{ "label": "a", "prompt": "x", EVIL: 1 }]).to_string());
    said(&["-"], json!({ "tasks": EVIL }).to_string());
    said(&["-"], json!({ "tasks": [{ "label": "a", "prompt": "x" }], "return": EVIL }).to_string());
    said(&["-t", EVIL], String::new());
    said(&[EVIL], String::new());
    said(&["-t", "a=x", "--set", EVIL], String::new());
    said(&["-t", "a=x", "--preset", EVIL], String::new());
    said(&["-t", "a=x", "--root", EVIL], String::new());
    assert_all_clean(&rig.run(["tree", EVIL]));
    rig.write(".adjutant/config.toml", format!("[policy]\nx = \"{EVIL}\""));
    said(&["-t", "a=x"], String::new());
}

/// A folder may be called anything, and its name is shown with every run.
#[test]
fn names_of_folders_are_escaped() {
    let rig = rig();
    let evil = rig.work().join("red\x1b[2J\u{202e}");
    std::fs::create_dir(&evil).unwrap();
    let model = format!("script:{}", rig.path().join("script.toml").display());
    let home = evil.join("state");
    let home = home.to_str().unwrap();
    let call = |args: &[&str]| rig.call(args).cwd(&evil).env("ADJUTANT_HOME", home).run();
    assert_all_clean(&call(&["delegate", "--yes", "--model", &model, "-t", "a=x"]));
    assert_all_clean(&call(&["status", "latest"]));
    assert_all_clean(&call(&["log"]));
}

#[test]
fn the_question_and_the_live_tree_on_a_terminal_are_escaped() {
    let rig = rig();
    rig.write("tasks.json", tasks());
    let args = ["delegate", "tasks.json", "--model", rig.model()];
    let mut terminal = Terminal::start(&rig, 100, &[("NO_COLOR", "1")], &args);
    terminal.wait_for("Start? [y]es").types("y\r");
    terminal.finish();
    // All that may be left are our own movements: up, erasing a line, and the bounds of an update.
    let mut text = terminal.raw.clone();
    for own in ["\x1b[?2026h", "\x1b[?2026l", "\x1b[?7l", "\x1b[?7h", "\x1b[K"] {
        text = text.replace(own, "");
    }
    for lines in 1..40 {
        text = text.replace(&format!("\x1b[{lines}A"), "");
    }
    let text = text.replace('\r', "");
    assert_clean(&text);
}
