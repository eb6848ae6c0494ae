//! An update of status and links is atomic and idempotent.

use adjutant_formats::contract::ArtifactKind::{Plan, Research, Summary};
use adjutant_formats::task::{RefusedTransition, TaskChange, TaskError, TaskStatus, TaskUpdate};
use proptest::prelude::*;

use super::{Files, because, link, number, set, update};

const TODO: &str = "### 1. a\n- **Status**: [PLANNED]\n- **Research**: None\n\n### 2. b\n";
const STATE: &str = r#"{"active_projects":[{"project_number":1,"status":"planned"}]}"#;

#[test]
fn an_update_is_one_change_and_repeating_it_changes_nothing() {
    let mut files = Files::both(TODO, STATE);
    let wanted = update(
        1,
        Some(TaskStatus::Researched),
        &[(Research, "r/1.md"), (Summary, "s.md"), (Research, "./r/2.md"), (Research, "r/1.md")],
    );
    let changed = files.change(&wanted).unwrap();
    assert!(changed.is_different);
    assert_eq!(changed.from, Some(TaskStatus::Planned));
    assert_eq!(changed.task.artifacts, ["r/1.md", "s.md", "r/2.md"]);
    insta::assert_snapshot!(files.picture(), @r#"
    ### 1. a
    - **Status**: [RESEARCHED]
    - **Started**: 2025-01-31
    - **Research**: [r/1.md](../../r/1.md), [r/2.md](../../r/2.md)
    - **Summary**: [s.md](../../s.md)

    ### 2. b
    =====
    {"active_projects":[{"project_number":1,"status":"researched", "last_updated": "2025-01-31T12:34:56Z", "started": "2025-01-31", "artifacts": [{"type":"research","path":"r/1.md"}, {"type":"summary","path":"s.md"}, {"type":"research","path":"r/2.md"}]}]}
    "#);
    let before = files.picture();
    let again = files.change(&wanted).unwrap();
    assert!(!again.is_different);
    assert_eq!(again.from, Some(TaskStatus::Researched));
    assert_eq!(files.picture(), before);
}

#[test]
fn a_refused_update_changes_nothing() {
    let mut files = Files::both(TODO, STATE);
    let blocked = |reason: Option<&str>| TaskChange::Update {
        number: number(1),
        update: TaskUpdate {
            status: Some(TaskStatus::Blocked),
            reason: reason.map(str::to_owned),
            ..TaskUpdate::default()
        },
    };
    for (change, expected) in [
        (
            update(1, Some(TaskStatus::Researched), &[(Plan, "p.md"), (Plan, "../x")]),
            "`../x` is not a path below the root of the project",
        ),
        (
            update(1, Some(TaskStatus::NotStarted), &[(Plan, "p.md")]),
            "task 1: [PLANNED] cannot become [NOT STARTED]; allowed next: researching, planning, \
             revising, implementing, in_progress, blocked, abandoned",
        ),
        (blocked(None), "blocked needs a reason"),
        (blocked(Some(" ")), "blocked needs a reason"),
        (update(7, None, &[]), "there is no task 7"),
    ] {
        assert_eq!(files.refusal(&change), expected);
    }
    assert_eq!(files.picture(), format!("{TODO}=====\n{STATE}"));
    assert!(!files.change(&update(1, None, &[])).unwrap().is_different);
    // For the same reason again the day it was blocked stays; another reason is a change.
    assert!(files.change(&blocked(Some("rain"))).unwrap().is_different);
    assert!(!files.change(&blocked(Some("rain "))).unwrap().is_different);
    assert!(files.change(&blocked(Some("snow"))).unwrap().is_different);
    let why = TaskUpdate { reason: Some("hail".into()), ..TaskUpdate::default() };
    let changed = files.change(&TaskChange::Update { number: number(1), update: why }).unwrap();
    assert_eq!(changed.task.reason.as_deref(), Some("hail"));
}

#[test]
fn a_disagreement_unrelated_to_the_status_causes_no_second_change() {
    let mut files = Files::both(
        "### 1. a\n- **Status**: [PLANNED]\n- **Language**: rust\n",
        r#"{"active_projects":[{"project_number":1,"status":"planned","language":"lean"}]}"#,
    );
    assert!(!files.change(&update(1, Some(TaskStatus::Planned), &[])).unwrap().is_different);
    let mut files = Files::both(TODO, r#"{"active_projects":[]}"#);
    assert!(files.change(&update(1, Some(TaskStatus::Planned), &[])).unwrap().is_different);
    assert!(!files.change(&update(1, Some(TaskStatus::Planned), &[])).unwrap().is_different);
}

/// The steps of an update as single changes.
fn by_hand(files: &mut Files, to: TaskStatus, links: &[&str]) -> Result<(), TaskError> {
    let from = files.book().task(number(1)).unwrap().status.unwrap();
    if from == TaskStatus::Completed && to != from {
        // A person can open it again, work cannot.
        return Err(TaskError::Step { number: number(1), step: RefusedTransition { from, to } });
    }
    let step = |to: TaskStatus| match to {
        TaskStatus::Blocked | TaskStatus::Abandoned => because(1, to, "so"),
        to => set(1, to),
    };
    if files.change(&step(to)).is_err() {
        // The refusal of the direct update is the one that is shown.
        let refused = from.step(to).unwrap_err();
        let refused = TaskError::Step { number: number(1), step: refused };
        files.change(&step(TaskStatus::InProgress)).map_err(|_| refused.clone())?;
        files.change(&step(to)).map_err(|_| refused)?;
    }
    for path in links {
        files.change(&link(1, Plan, path))?;
    }
    Ok(())
}

proptest! {
    #[test]
    fn an_update_equals_its_steps_one_by_one(
        from in 0..TaskStatus::ALL.len(),
        to in 0..TaskStatus::ALL.len(),
        links in proptest::collection::vec(prop_oneof!["[a-c]/[a-c]\\.md", Just("../x".to_owned())], 0..4),
        has_entry: bool,
        has_project: bool,
    ) {
        let (from, to) = (TaskStatus::ALL[from], TaskStatus::ALL[to]);
        let entry = format!("### 1. a\n- **Status**: {}\n- **Plan**: TBD\n", from.marker());
        let project = format!(r#"{{"project_number":1,"status":"{from}"}}"#);
        let todo = if has_entry || !has_project { entry } else { String::new() };
        let state = format!(r#"{{"active_projects":[{}]}}"#, if has_project { &project } else { "" });
        let (mut whole, mut steps) = (Files::both(&todo, &state), Files::both(&todo, &state));
        let links: Vec<&str> = links.iter().map(String::as_str).collect();
        let reason = matches!(to, TaskStatus::Blocked | TaskStatus::Abandoned).then(|| "so".to_owned());
        let made = super::made(&links.iter().map(|path| (Plan, *path)).collect::<Vec<_>>());
        let wanted = TaskUpdate { status: Some(to), reason, links: made };
        let wanted = TaskChange::Update { number: number(1), update: wanted };
        match by_hand(&mut steps, to, &links) {
            Ok(()) => {
                whole.change(&wanted).unwrap();
                prop_assert_eq!(whole.picture(), steps.picture());
                prop_assert!(!whole.change(&wanted).unwrap().is_different);
            }
            Err(refused) => {
                prop_assert_eq!(whole.change(&wanted).unwrap_err(), refused);
                prop_assert_eq!(whole.picture(), format!("{todo}=====\n{state}"));
            }
        }
    }
}
