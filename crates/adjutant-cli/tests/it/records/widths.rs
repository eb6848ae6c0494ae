//! Lists on terminals of 60, 80 and 160 columns. Their snapshots are in `snapshots`, a file per width.

use std::fs;
use std::sync::LazyLock;

use adjutant_view::layout::{width, wrap_lines};
use regex::Regex;
use serde_json::json;

use crate::support::rig::Rig;
use crate::support::terminal::Terminal;

const WIDTHS: [u16; 3] = [60, 80, 160];

/// Every command that prints a list.
const LISTS: [&[&str]; 12] = [
    &["status"],
    &["errors"],
    &["errors", "--each"],
    &["cost"],
    &["cost", "--since", "7d"],
    &["cost", "--by", "model"],
    &["cost", "--by", "folder"],
    &["tree"],
    &["agents"],
    &["models"],
    &["workers"],
    &["approvals"],
];

static DAYS: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\n\d{4}-\d\d-\d\d ").unwrap());

const SCRIPT: &str = "price = { input = 3.0, output = 15.0 }
[[turn]]
label = 'good'
text = 'done'
usage = { input = 123456, output = 7890 }
[[turn]]
label = 'another one'
text = 'done'
usage = { input = 123456, output = 7890 }
";

/// What a command prints on a terminal of so many columns, without its messages, which the terminal wraps.
#[track_caller]
fn printed(rig: &Rig, columns: u16, args: &[&str]) -> String {
    let env = [("NO_COLOR", "1"), ("TERM", "xterm"), ("ADJUTANT_PAGER", "")];
    let mut terminal = Terminal::start(rig, columns, &env, args);
    let code = terminal.finish();
    assert_eq!(code, 0, "{args:?}: {}", terminal.raw);
    let messages = wrap_lines(&rig.run(args).stderr, columns.into());
    let text = terminal.raw.replace("\r\n", "\n");
    let is_data = |line: &&str| !messages.lines().any(|message| message == *line);
    let text: String = text.lines().filter(is_data).map(|line| format!("{line}\n")).collect();
    for line in text.lines() {
        assert!(width(line) <= columns.into(), "{args:?} at {columns}: `{line}` in\n{text}");
    }
    text
}

/// Returns `text` as [`Rig::redacted`] does, also without the short names of runs and without days.
fn without_names_and_days(rig: &Rig, text: &str) -> String {
    let mut text = rig.redacted(text);
    for run in rig.runs() {
        text = text.replace(&format!("\n{} ", &run[run.len() - 6..]), "\nxxxxxx ");
    }
    DAYS.replace_all(&text, "\n2000-01-01 ").into_owned()
}

#[test]
fn every_list_fits_terminals_of_60_80_and_160_columns() {
    let rig = Rig::with_script(SCRIPT);
    let run = |tasks: &[&str]| {
        let flags = tasks.iter().flat_map(|task| ["-t", task]);
        rig.delegating(&flags.collect::<Vec<_>>()).run().code
    };
    assert_eq!(run(&["good=Do it", "another one=Do it too"]), 0);
    assert_eq!(run(&["good=Do it", "bad=Fail", "missing=Look"]), 3);
    for columns in WIDTHS {
        let mut all = String::new();
        for args in LISTS {
            let text = printed(&rig, columns, args);
            // The column is as wide as the path of the test's directory.
            if !args.contains(&"folder") {
                all += &format!("$ adjutant {}\n{text}\n", args.join(" "));
            }
        }
        insta::assert_snapshot!(format!("lists-{columns}"), without_names_and_days(&rig, &all));
    }
}

#[test]
fn hostile_text_in_every_field_neither_widens_a_list_nor_reaches_the_terminal() {
    let evil = "\u{1b}[2J\u{202e}evil\u{200b}字字字字字";
    let rig = Rig::with_script("[[turn]]\nlabel = 'none'\ntext = 'x'\n");
    let folder = rig.work().join(evil.repeat(5));
    fs::create_dir(&folder).unwrap();
    fs::copy(rig.path().join("script.toml"), rig.work().join("script.toml")).unwrap();
    let long = "x".repeat(400);
    for label in [evil, "long", "字字字字字字字字"] {
        let task =
            json!({ "tasks": [{ "label": label, "prompt": format!("{label} {long} {evil}") }] });
        // The script is for another task, so every task fails with an error that quotes its label.
        let out = rig.delegating(&["-"]).cwd(&folder).stdin(task.to_string()).run();
        assert!(!rig.runs().is_empty(), "{out}");
    }
    let goal = format!("{evil} {long}");
    // `cost` and `tree` show the latest run of the directory in which they are called.
    for at in [&folder, &rig.work()] {
        let out = rig.call(["run", &goal, "--yes", "--model", rig.model()]).cwd(at).run();
        assert_ne!(out.code, 2, "{out}");
    }
    for columns in WIDTHS {
        for args in LISTS {
            let text = printed(&rig, columns, args);
            let is_bad =
                |c: char| c != '\n' && (c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c));
            assert!(!text.contains(is_bad), "{args:?}: {text:?}");
        }
    }
}
