//! Untouched bytes stay: a property over generated files.

use adjutant_formats::contract::ArtifactKind;
use adjutant_formats::task::{TaskChange, TaskFiles, TaskStatus};
use proptest::prelude::*;

use super::{FOLDER, NOW, link, new, set, update};

/// A piece of a file, as a person may have written it; `#` of tasks are filled in later.
fn piece() -> impl Strategy<Value = String> {
    let marker = prop_oneof![
        prop::sample::select(TaskStatus::ALL.map(TaskStatus::marker).to_vec())
            .prop_map(str::to_owned),
        Just("[EXPANDED]".to_owned()),
        Just("In Progress".to_owned()),
        Just(String::new()),
    ];
    let field = (prop::sample::select(vec!["- **", "**", "* **", "  - **"]), marker)
        .prop_map(|(lead, marker)| format!("{lead}Status**: {marker}"));
    let other = prop::sample::select(vec![
        "- **Priority**: High",
        "- **Research**: [a](b)",
        "- **Plan**: None",
        "- **Language**:",
        "**Description**: prose with [brackets] and ünïcode — 日本語",
        "Prose.  ",
        "",
        "\t",
        "---",
        "## Section",
        "#### Part",
        "### Not numbered",
        "```\n### 9001. In a fence\n- **Status**: [PLANNED]\n```",
        "```never closed",
        "~~~",
        "<!-- ### 9002. In a comment -->",
        "<!--\n### 9003. In a long comment\n-->",
        "### 3.5 A version",
        "- Status: of nothing",
        "\u{feff}\u{200b}",
        "a\rb",
    ]);
    prop_oneof![
        2 => Just("### # Task".to_owned()),
        2 => field,
        5 => other.prop_map(str::to_owned),
        1 => "[ -~]{0,40}",
    ]
}

/// A whole file: its own line ending, perhaps front matter, perhaps no last line ending.
fn file() -> impl Strategy<Value = String> {
    let eol = prop::sample::select(vec!["\n", "\r\n"]);
    let front = prop::sample::select(vec!["", "---\nnext_project_number: 40\nx: y\n---\n"]);
    let pieces = prop::collection::vec(piece(), 0..40);
    (pieces, eol, front, any::<bool>()).prop_map(|(pieces, eol, front, is_ended)| {
        let mut text = front.to_owned();
        let mut number = 0;
        for (nth, mut piece) in pieces.into_iter().enumerate() {
            if piece == "### # Task" {
                number += 1;
                piece = format!("### {number}. Task");
            }
            text += if nth > 0 { "\n" } else { "" };
            text += &piece;
        }
        text += if is_ended { "\n" } else { "" };
        text.replace('\n', eol)
    })
}

fn state() -> impl Strategy<Value = Option<String>> {
    let project =
        (1..20u64, prop::sample::select(TaskStatus::ALL.to_vec())).prop_map(|(n, status)| {
            format!(r#"{{ "project_number": {n},"status":"{status}", "q":1.0e-7}}"#)
        });
    let made = prop::collection::btree_map(1..20u64, project, 0..6).prop_map(|projects| {
        let list: Vec<String> = projects.into_values().collect();
        format!(
            "{{\n   \"mine\" : [1e3,  \"\\u00e9\"],\n   \"active_projects\": [{}]\n}}",
            list.join(",\n")
        )
    });
    prop_oneof![Just(None), made.prop_map(Some)]
}

/// Checks that `new` is `old` with text inserted at one place.
fn is_insertion(old: &str, new: &str) -> bool {
    let same = old.bytes().zip(new.bytes()).take_while(|(a, b)| a == b).count();
    let rest = &old.as_bytes()[same..];
    // The inserted text may begin as the text behind it does, so the split may lie further left.
    new.len() >= old.len()
        && (new.as_bytes().ends_with(rest) || {
            let tail = old.bytes().rev().zip(new.bytes().rev()).take_while(|(a, b)| a == b).count();
            same + tail >= old.len()
        })
}

/// Checks that an entry changed nowhere but in the named line and in lines that are new.
fn only_lines(old: &str, new: &str, may_change: impl Fn(&str, &str) -> bool) -> bool {
    let mut new_lines = new.split('\n').map(|line| line.trim_end_matches('\r'));
    old.split('\n').map(|line| line.trim_end_matches('\r')).all(|old_line| {
        new_lines.any(|new_line| new_line == old_line || may_change(old_line, new_line))
    })
}

fn is_status_line(old: &str, new: &str) -> bool {
    let lead = |line: &str| line.split_once("Status").map(|(lead, _)| lead.to_owned());
    lead(old).is_some() && lead(old) == lead(new)
}

proptest! {
    // The promise is made for a thousand files; `PROPTEST_CASES` can only ask for more.
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.max(1_000), ..ProptestConfig::default() })]

    #[test]
    fn untouched_bytes_are_identical(todo in file(), state in state(), pick in any::<prop::sample::Index>(), to in prop::sample::select(TaskStatus::ALL.to_vec())) {
        let book = TaskFiles::read(Some(&todo), state.as_deref()).unwrap();
        let tasks = book.tasks();
        let in_todo: Vec<_> = tasks.iter().filter(|task| book.entry_range(task.number).is_some()).collect();
        // A stray opening fence ends at the next closing one, and lays bare what that one hid.
        let is_bare = todo.contains("never closed");
        prop_assert!(is_bare || !tasks.iter().any(|task| task.number.get() > 9000), "a hidden heading was read");
        if !in_todo.is_empty() {
            let number = in_todo[pick.index(in_todo.len())].number;
            let range = book.entry_range(number).unwrap();
            let (at, entry) = (range.start, &todo[range]);
            let report = (ArtifactKind::Research, "docs/r.md");
            let changes: [TaskChange; 3] = [
                set(number.get(), to),
                link(number.get(), report.0, report.1),
                update(number.get(), Some(to), &[report]),
            ];
            for change in &changes {
                let Ok(changed) = book.change(change, NOW, FOLDER) else { continue };
                prop_assert!(changed.todo.starts_with(&todo[..at]), "before the entry");
                prop_assert!(changed.todo.ends_with(&todo[at + entry.len()..]), "behind the entry");
                let inside = &changed.todo[at..changed.todo.len() - (todo.len() - at - entry.len())];
                let is_link = |old: &str, new: &str| old.contains("Research**") && new.starts_with(old);
                let fits = only_lines(entry, inside, |old, new| match change {
                    TaskChange::Link { .. } => is_link(old, new),
                    TaskChange::SetStatus { .. } | TaskChange::Add(_) => is_status_line(old, new),
                    TaskChange::Update { .. } => is_link(old, new) || is_status_line(old, new),
                });
                prop_assert!(fits, "{entry:?} became {inside:?}");
                let again = TaskFiles::read(Some(&changed.todo), Some(&changed.state)).unwrap();
                let numbers = |book: &TaskFiles| book.tasks().iter().map(|task| task.number).collect::<Vec<_>>();
                prop_assert_eq!(numbers(&again), numbers(&book));
            }
        }
        let changed = book.change(&new("Another"), NOW, FOLDER).unwrap();
        let bare = changed.todo.replacen(&format!("next_project_number: {}", changed.task.number.get() + 1), "next_project_number: 40", 1);
        prop_assert!(is_insertion(&todo, &bare) , "{todo:?} became {bare:?}");
        if let Some(state) = state {
            for kept in ["\"mine\" : [1e3,  \"\\u00e9\"],", "\"q\":1.0e-7"] {
                prop_assert_eq!(changed.state.matches(kept).count(), state.matches(kept).count());
            }
        }
    }

    #[test]
    fn no_text_makes_the_reader_panic(todo in ".{0,400}", state in ".{0,80}") {
        if let Ok(book) = TaskFiles::read(Some(&todo), None) {
            let _ = (book.tasks(), book.disagreements(), book.next_number());
        }
        let _ = TaskFiles::read(None, Some(&state));
    }
}
