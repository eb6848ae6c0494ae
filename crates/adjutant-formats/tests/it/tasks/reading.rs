//! What is understood of files that people wrote.

use adjutant_formats::task::{TaskFiles, TaskPriority, TaskStatus};

use super::{Files, number};

/// A file in the manner of the system the format comes from, with what people add to such files.
const LIVED_IN: &str = "\
---
next_project_number: 700
task_counts:
  active: 3
---

# TODO

<!-- ### 1. A template -->

## High Priority

### 661. Create documentation standards ✅
- **Effort**: 2-3 hours
- **Status**: [COMPLETED]
- **Priority**: High
- **Language**: meta
- **Research**: [research-001.md](specs/661_x/reports/research-001.md)

**Description**: Create a `standards` file:

```markdown
### 5. Not a task
- **Status**: [BLOCKED]
```

---

### Notes on the above
- **Status**: of nothing

### Task 662: Consolidate
**Status**: [RESEARCHED] since May
**Priority**: Medium

#### A part
- **Status**: [PLANNED]

## Later

### 394) Port semantics
* **Status:** [EXPANDED]
### 395.
";

#[test]
fn entries_are_found_in_any_spelling() {
    let book = Files::todo(LIVED_IN).book();
    let tasks = book.tasks();
    let shown: Vec<_> = tasks
        .iter()
        .map(|task| {
            (task.number.get(), task.title.as_str(), task.status, task.unknown_status.as_deref())
        })
        .collect();
    assert_eq!(
        shown,
        [
            (394, "Port semantics", None, Some("[EXPANDED]")),
            (395, "", Some(TaskStatus::NotStarted), None),
            (661, "Create documentation standards ✅", Some(TaskStatus::Completed), None),
            (662, "Consolidate", Some(TaskStatus::Researched), None),
        ]
    );
    assert_eq!(tasks[2].language, "meta");
    assert_eq!(tasks[2].priority, Some(TaskPriority::High));
    assert!(tasks[2].description.as_deref().unwrap().ends_with("```"));
    assert_eq!(tasks[3].language, "general");
    assert!(book.disagreements().is_empty(), "a file that is not there disagrees with nobody");
    assert!(book.entry_text(number(661)).unwrap().ends_with("---\n\n"));
}

#[test]
fn the_next_number_is_above_all_numbers_in_both_files() {
    let next = |todo: Option<&str>, state: Option<&str>| {
        TaskFiles::read(todo, state).unwrap().next_number().unwrap().get()
    };
    let heading = |number: u64| format!("### {number}. x\n");
    for (todo, state, expected) in [
        (None, None, 1),
        (Some(heading(7)), None, 8),
        (Some(LIVED_IN.to_owned()), None, 700),
        (Some(heading(7)), Some(r#"{"next_project_number":12}"#), 12),
        (Some(heading(7)), Some(r#"{"next_project_number":2}"#), 8),
        (None, Some(r#"{"active_projects":[{"project_number":"9"}]}"#), 10),
        (None, Some(r#"{"completed_projects":[{"project_number":30}]}"#), 31),
    ] {
        assert_eq!(next(todo.as_deref(), state), expected, "{todo:?} {state:?}");
    }
}

#[test]
fn the_language_in_the_state_file_takes_precedence() {
    let todo = "### 1. a\n- **Language**: Rust\n### 2. b\n- **Language**: Lean\n### 3. c\n";
    let state = r#"{"active_projects":[{"project_number":1,"language":"python"}]}"#;
    let languages: Vec<String> =
        Files::both(todo, state).book().tasks().into_iter().map(|task| task.language).collect();
    assert_eq!(languages, ["python", "lean", "general"]);
}

#[test]
fn a_damaged_state_file_is_reported_with_the_position() {
    for (state, expected) in [
        ("", "state.json: not JSON, line 1 column 0: EOF while parsing a value"),
        (
            "{\n  \"active_projects\": [",
            "state.json: not JSON, line 2 column 22: EOF while parsing a list",
        ),
        ("[]", "state.json: not a JSON object"),
        (r#"{"active_projects":{}}"#, "state.json: `active_projects` is not a list"),
        (
            r#"{"next_project_number":0}"#,
            "state.json: `next_project_number` is not a positive whole number",
        ),
    ] {
        let error = TaskFiles::read(None, Some(state)).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
}
