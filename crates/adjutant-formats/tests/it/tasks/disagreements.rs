//! Disagreements of the two files: each is reported with the file that takes precedence, and resolved by the next change.

use adjutant_formats::task::TaskStatus;

use super::{Files, new, set};

const TODO: &str = "\
---
next_project_number: 4
---
### 1. a
- **Status**: [PLANNED]
- **Language**: rust
- **Priority**: High
### 2. b
- **Status**: [EXPANDED]
### 3. c
### 7. d
- **Status**: [PLANNED]
### 7. e
";

const STATE: &str = r#"{
  "next_project_number": 6,
  "active_projects": [
    {"project_number": 1, "status": "researched", "language": "lean", "priority": "low"},
    {"project_number": 2, "status": "partial"},
    {"project_number": 5, "status": "planned", "project_name": "lost_in_todo"},
    {"project_number": 7, "status": "planned"}
  ],
  "completed_projects": [{"project_number": 4, "project_name": "done"}]
}
"#;

fn said(files: &Files) -> String {
    files.book().disagreements().iter().map(|it| format!("{it}\n")).collect()
}

#[test]
fn every_disagreement_is_named_with_the_file_that_counts() {
    insta::assert_snapshot!(said(&Files::both(TODO, STATE)), @r"
    task 1: TODO.md says [PLANNED], state.json says researched; TODO.md counts
    task 1: language: TODO.md says rust, state.json says lean; state.json counts
    task 1: priority: TODO.md says High, state.json says low; TODO.md counts
    task 2: TODO.md says [EXPANDED], state.json says partial; state.json counts
    task 3: is in TODO.md and not in state.json; its next change adds it
    task 5: is in state.json and not in TODO.md; its next change adds the entry
    task 7: the number is used more than once (TODO.md line 11 and line 13); give one of them another
    next number: TODO.md says 4, state.json says 6
    ");
}

#[test]
fn the_next_change_resolves_disagreements() {
    let mut files = Files::both(TODO, STATE);
    assert_eq!(
        files.change(&set(1, TaskStatus::Implementing)).unwrap().from,
        Some(TaskStatus::Planned)
    );
    assert_eq!(
        files.change(&set(2, TaskStatus::Implementing)).unwrap().from,
        Some(TaskStatus::Partial)
    );
    files.change(&set(3, TaskStatus::Planning)).unwrap();
    files.change(&set(5, TaskStatus::Implementing)).unwrap();
    let added = files.change(&new("f")).unwrap();
    assert_eq!(added.task.number.get(), 8);
    insta::assert_snapshot!(said(&files), @r"
    task 1: language: TODO.md says rust, state.json says lean; state.json counts
    task 1: priority: TODO.md says High, state.json says low; TODO.md counts
    task 7: the number is used more than once (TODO.md line 15 and line 17); give one of them another
    ");
    assert!(files.todo.unwrap().contains("### 5. lost_in_todo\n"));
    // To stay where TODO.md has it also brings the other file along.
    let state = r#"{"active_projects":[{"project_number":1,"status":"planned"}]}"#;
    let mut files = Files::both("### 1. a\n- **Status**: [PARTIAL]\n", state);
    assert!(files.change(&set(1, TaskStatus::Partial)).unwrap().is_different);
    assert_eq!(said(&files), "");
}
