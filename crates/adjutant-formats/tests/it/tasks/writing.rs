//! What a change writes, and which changes are refused.

use adjutant_formats::contract::ArtifactKind;
use adjutant_formats::task::{NewTask, TaskChange, TaskPriority, TaskStatus};

use super::{Files, because, link, new, number, set, update, with_priority};

#[test]
fn a_task_is_added_to_both_files_and_updated_until_it_is_completed() {
    let mut files = Files::none();
    files
        .change(&TaskChange::Add(NewTask {
            title: "Fix the\nparser".into(),
            language: Some("Rust".into()),
            priority: TaskPriority::High,
            effort: Some("2 hours\n### 8. Not a task".into()),
            description: Some("It drops the last line.\n\n### 9. Not a task".into()),
        }))
        .unwrap();
    files.change(&new("Second")).unwrap();
    files.change(&set(1, TaskStatus::Researching)).unwrap();
    let report = ".adjutant/specs/1_fix_the_parser/reports/research-001.md";
    files.change(&link(1, ArtifactKind::Research, report)).unwrap();
    files.change(&link(1, ArtifactKind::Research, "docs/a b.md")).unwrap();
    files.change(&set(1, TaskStatus::Researched)).unwrap();
    files.change(&because(1, TaskStatus::Blocked, "waits for\n task 2")).unwrap();
    insta::assert_snapshot!(files.picture(), @r#"
    # TODO

    ## Tasks

    ### 1. Fix the parser
    - **Effort**: 2 hours ### 8. Not a task
    - **Status**: [BLOCKED]
    - **Blocked**: 2025-01-31
    - **Blocking Reason**: waits for task 2
    - **Started**: 2025-01-31
    - **Priority**: High
    - **Language**: rust
    - **Blocking**: None
    - **Dependencies**: None
    - **Research**: [.adjutant/specs/1_fix_the_parser/reports/research-001.md](1_fix_the_parser/reports/research-001.md), [docs/a b.md](<../../docs/a b.md>)

    **Description**: It drops the last line.

    \### 9. Not a task

    ### 2. Second
    - **Effort**: TBD
    - **Status**: [NOT STARTED]
    - **Priority**: Medium
    - **Language**: general
    - **Blocking**: None
    - **Dependencies**: None
    =====
    {
      "next_project_number": 3,
      "active_projects": [
        {
          "project_number": 1,
          "project_name": "fix_the_parser",
          "type": "task",
          "status": "blocked",
          "language": "rust",
          "priority": "high",
          "created": "2025-01-31T12:34:56Z",
          "last_updated": "2025-01-31T12:34:56Z",
          "artifacts": [
            {
              "type": "research",
              "path": ".adjutant/specs/1_fix_the_parser/reports/research-001.md"
            },
            {
              "type": "research",
              "path": "docs/a b.md"
            }
          ],
          "started": "2025-01-31",
          "blocked": "2025-01-31",
          "blocking_reason": "waits for task 2"
        },
        {
          "project_number": 2,
          "project_name": "second",
          "type": "task",
          "status": "not_started",
          "language": "general",
          "priority": "medium",
          "created": "2025-01-31T12:34:56Z",
          "last_updated": "2025-01-31T12:34:56Z",
          "artifacts": []
        }
      ],
      "completed_projects": []
    }
    "#);
    let task = files.book().task(number(1)).unwrap();
    assert_eq!(task.reason.as_deref(), Some("waits for task 2"));
    assert_eq!(task.artifacts, [report, "docs/a b.md"]);
    assert!(files.book().disagreements().is_empty());
}

#[test]
fn a_file_is_changed_in_its_own_style() {
    let todo = "---\nnext_project_number: 9\n---\r\n### 8. Old\r\n**Effort**: 1 h\r\n**Status**: [NOT STARTED] (for now)";
    let mut files = Files::both(
        todo,
        r#"{"x":1.50e2,"next_project_number":9,"active_projects":[{"project_number":8,"status":"not_started"}]}"#,
    );
    files.change(&set(8, TaskStatus::Implementing)).unwrap();
    assert_eq!(
        files.todo.as_deref().unwrap(),
        "---\nnext_project_number: 9\n---\r\n### 8. Old\r\n**Effort**: 1 h\r\n**Status**: [IMPLEMENTING] (for now)\r\n**Started**: 2025-01-31"
    );
    assert_eq!(
        files.state.as_deref().unwrap(),
        r#"{"x":1.50e2,"next_project_number":9,"active_projects":[{"project_number":8,"status":"implementing", "last_updated": "2025-01-31T12:34:56Z", "started": "2025-01-31"}]}"#
    );
    files.change(&with_priority("New", TaskPriority::Low)).unwrap();
    let todo = files.todo.unwrap();
    assert!(todo.starts_with("---\nnext_project_number: 10\n---\r\n"), "{todo:?}");
    assert!(todo.contains("2025-01-31\r\n\r\n### 9. New\r\n- **Effort**"), "{todo:?}");
}

#[test]
fn a_new_entry_is_inserted_after_the_last_entry_and_before_other_sections() {
    let mut files = Files::todo("## Tasks\n### 1. a\n- **Status**: [PLANNED]\n\n## Notes\nMine.\n");
    files.change(&new("b")).unwrap();
    let todo = files.todo.unwrap();
    let (before, after) = todo.split_once("### 2. b\n").unwrap();
    assert_eq!(before, "## Tasks\n### 1. a\n- **Status**: [PLANNED]\n\n");
    assert!(after.ends_with("- **Dependencies**: None\n\n## Notes\nMine.\n"), "{after}");
}

#[test]
fn task_numbers_are_never_reused() {
    let mut files = Files::none();
    for expected in 1..=3 {
        assert_eq!(files.change(&new("x")).unwrap().task.number, number(expected));
    }
    // A person removes what is done from both files; the counter remembers.
    files.todo = Some("# TODO\n".into());
    files.state = Some(r#"{"next_project_number":4,"active_projects":[]}"#.into());
    assert_eq!(files.change(&new("x")).unwrap().task.number, number(4));
}

#[test]
fn an_illegal_change_is_refused_with_the_legal_ones() {
    let todo = "### 1. a\n- **Status**: [PLANNING]\n### 2. b\n- **Status**: [COMPLETED]\n\
                ### 3. c\n- **Status**: [EXPANDED]\n### 4. d\n### 4. e\n";
    let mut files = Files::todo(todo);
    let report = |path: &str| link(1, ArtifactKind::Plan, path);
    for (change, expected) in [
        (
            set(1, TaskStatus::Completed),
            "task 1: [PLANNING] cannot become [COMPLETED]; allowed next: planned, in_progress, blocked, abandoned",
        ),
        (
            set(2, TaskStatus::Planning),
            "task 2: [COMPLETED] cannot become [PLANNING]; allowed next: in_progress",
        ),
        (
            update(2, Some(TaskStatus::InProgress), &[]),
            "task 2: [COMPLETED] cannot become [IN PROGRESS]; allowed next: in_progress",
        ),
        (
            set(3, TaskStatus::Planning),
            "task 3 has the unknown status [EXPANDED]; correct it in TODO.md first",
        ),
        (
            set(4, TaskStatus::Planning),
            "the number 4 is used more than once; give one of them another",
        ),
        (set(5, TaskStatus::Planning), "there is no task 5"),
        (set(1, TaskStatus::Blocked), "blocked needs a reason"),
        (because(1, TaskStatus::Blocked, " \n"), "blocked needs a reason"),
        (
            because(1, TaskStatus::Planned, "so"),
            "planned takes no reason; only blocked and abandoned do",
        ),
        (new("  "), "a task needs a title"),
        (
            new(&"x".repeat(201)),
            "the title has 201 characters, limit 200; put the rest into the description",
        ),
        (report("../x"), "`../x` is not a path below the root of the project"),
        (report("/etc/passwd"), "`/etc/passwd` is not a path below the root of the project"),
        (report(""), "`` is not a path below the root of the project"),
        (report("a\nb"), "`a b` is not a path below the root of the project"),
    ] {
        assert_eq!(files.refusal(&change), expected);
    }
    assert_eq!(files.todo.as_deref(), Some(todo));
}

#[test]
fn a_change_without_effect_leaves_the_files_unchanged() {
    let mut files = Files::none();
    files.change(&new("x")).unwrap();
    files.change(&link(1, ArtifactKind::Plan, "plan.md")).unwrap();
    files.change(&because(1, TaskStatus::Blocked, "rain")).unwrap();
    let before = files.picture();
    for change in [set(1, TaskStatus::Blocked), link(1, ArtifactKind::Plan, "./plan.md")] {
        assert!(!files.change(&change).unwrap().is_different);
        assert_eq!(files.picture(), before);
    }
    assert!(files.change(&because(1, TaskStatus::Blocked, "snow")).unwrap().is_different);
    assert_eq!(files.book().task(number(1)).unwrap().reason.as_deref(), Some("snow"));
}

#[test]
fn fields_of_a_status_are_removed_with_it() {
    let mut files = Files::none();
    files.change(&new("x")).unwrap();
    files.change(&set(1, TaskStatus::InProgress)).unwrap();
    let open = files.picture();
    for (change, brought) in [
        (because(1, TaskStatus::Blocked, "rain"), ["**Blocking Reason**: rain", "\"blocked\""]),
        (set(1, TaskStatus::Completed), ["**Completed**: 2025-01-31", "\"completed\": \"2025"]),
    ] {
        files.change(&change).unwrap();
        brought.iter().for_each(|part| assert!(files.picture().contains(part), "{part}"));
        files.change(&set(1, TaskStatus::InProgress)).unwrap();
        assert_eq!(files.picture(), open);
        assert!(files.book().disagreements().is_empty());
    }
    files.change(&because(1, TaskStatus::Abandoned, "hail")).unwrap();
    files.change(&set(1, TaskStatus::NotStarted)).unwrap();
    assert!(!files.picture().to_lowercase().contains("abandon"), "{}", files.picture());
}
