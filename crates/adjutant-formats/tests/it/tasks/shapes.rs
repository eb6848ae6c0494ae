//! A `state.json` of any shape that is JSON accepts a change or refuses it without damage.

use adjutant_formats::contract::ArtifactKind;
use adjutant_formats::task::{TaskChange, TaskFiles, TaskStatus};
use proptest::prelude::*;

use super::{FOLDER, Files, NOW, because, link, new, number, set, update};

#[test]
fn missing_keys_are_added_to_the_state() {
    for (state, expected) in [
        ("{}", r#"{"next_project_number": 2, "active_projects": [{"#),
        ("{\n}\n", "{\n\"next_project_number\": 2,\n\"active_projects\": [\n{"),
        (r#"{"active_projects":null}"#, r#"{"active_projects":[{"#),
        (r#"{"completed_projects":[]}"#, r#"{"completed_projects":[], "next_project_number": 2, "#),
    ] {
        let mut files = Files::both("# TODO\n", state);
        files.change(&new("x")).unwrap();
        let written = files.state.as_deref().unwrap();
        assert!(written.starts_with(expected), "{state} became {written}");
        files.change(&set(1, TaskStatus::Planning)).unwrap();
        assert!(files.book().disagreements().is_empty(), "{}", files.picture());
    }
}

/// A project file as a person may have written it: each member present or not, in any order.
fn project() -> impl Strategy<Value = String> {
    let members = [
        r#""project_number": 1"#,
        r#""status": "planned""#,
        r#""status": null"#,
        r#""artifacts": []"#,
        r#""artifacts": null"#,
        r#""artifacts": ["a.md"]"#,
        r#""last_updated": null"#,
        r#""blocked": "2025-01-01""#,
        r#""blocking_reason": "rain""#,
        r#""completed": "2025-01-01""#,
        r#""mine": {}"#,
    ];
    prop::sample::subsequence(members.to_vec(), 0..members.len())
        .prop_shuffle()
        .prop_map(|members| format!("{{{}}}", members.join(",")))
}

fn state() -> impl Strategy<Value = String> {
    let lists = |name: &'static str| {
        prop_oneof![
            Just(format!("\"{name}\": []")),
            Just(format!("\"{name}\": null")),
            prop::collection::vec(project(), 1..3)
                .prop_map(move |list| format!("\"{name}\": [{}]", list.join(", "))),
        ]
    };
    let next = prop::sample::select(vec![
        r#""next_project_number": 2"#,
        r#""next_project_number": null"#,
        r#""next_project_number": "7""#,
    ]);
    let keys = (
        prop::option::of(lists("active_projects")),
        prop::option::of(lists("completed_projects")),
        prop::option::of(next.prop_map(str::to_owned)),
        prop::option::of(Just(r#""theirs": {}"#.to_owned())),
    );
    let keys = keys.prop_map(|(one, two, three, four)| {
        [one, two, three, four].into_iter().flatten().collect::<Vec<_>>()
    });
    (keys.prop_shuffle(), prop::sample::select(vec!["", " ", "\n", "\n  ", "\r\n\t"])).prop_map(
        |(keys, gap)| {
            let close = gap.trim_end_matches([' ', '\t']);
            format!("{{{gap}{}{close}}}", keys.join(&format!(",{gap}")))
        },
    )
}

fn todo() -> impl Strategy<Value = String> {
    let lines = vec![
        "- **Status**: [PLANNED]\n",
        "- **Blocked**: 2025-01-01\n",
        "- **Blocking Reason**: rain\n",
        "- **Completed**: 2025-01-01\n",
        "- **Plan**:",
        "\n",
        "**Description**: words\n",
    ];
    let entry = prop::sample::subsequence(lines.clone(), 0..lines.len()).prop_shuffle();
    (prop::sample::select(vec!["", "# TODO\n", "### 1. a\n"]), entry)
        .prop_map(|(head, lines)| format!("{head}{}", lines.concat()))
}

proptest! {
    #[test]
    fn a_change_to_files_of_any_shape_reads_back(
        state in state(), todo in prop::option::of(todo()),
    ) {
        let mut book = TaskFiles::read(todo.as_deref(), Some(&state)).unwrap();
        let before: Vec<_> = book.tasks();
        let added = book.change(&new("x"), NOW, FOLDER);
        let added = added.map_err(|error| TestCaseError::fail(format!("{error}: {state}")))?;
        let after = TaskFiles::read(Some(&added.todo), Some(&added.state)).unwrap();
        prop_assert_eq!(after.tasks().len(), before.len() + 1);
        prop_assert_eq!(after.task(added.task.number).unwrap().title, "x");
        book = after;
        let steps: [TaskChange; 7] = [
            set(1, TaskStatus::InProgress),
            because(1, TaskStatus::Blocked, "snow"),
            set(1, TaskStatus::Implementing),
            link(1, ArtifactKind::Plan, "plan.md"),
            update(1, Some(TaskStatus::Completed), &[(ArtifactKind::Summary, "s.md")]),
            set(1, TaskStatus::InProgress),
            because(1, TaskStatus::Abandoned, "hail"),
        ];
        for step in steps {
            // A repeated number or an unknown status is refused; only accepted changes matter here.
            let Ok(changed) = book.change(&step, NOW, FOLDER) else { continue };
            book = TaskFiles::read(Some(&changed.todo), Some(&changed.state)).unwrap();
            prop_assert_eq!(book.task(number(1)), Some(changed.task));
        }
    }
}
