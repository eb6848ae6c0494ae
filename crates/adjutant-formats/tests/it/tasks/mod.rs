//! Tasks in `TODO.md` and `state.json`: what is read, what changes, and what stays.

mod bytes;
mod disagreements;
mod reading;
mod shapes;
mod updates;
mod writing;

use adjutant_formats::contract::ArtifactKind;
use adjutant_formats::task::{
    NewTask, TaskArtifact, TaskChange, TaskChangeResult, TaskError, TaskFiles, TaskNumber,
    TaskPriority, TaskStatus, TaskUpdate,
};

/// 31 January 2025, 12:34:56 UTC.
const NOW: u64 = 1_738_326_896_000;

const FOLDER: &str = ".adjutant/specs";

fn number(number: u64) -> TaskNumber {
    TaskNumber::new(number).unwrap()
}

fn new(title: &str) -> TaskChange {
    TaskChange::Add(NewTask { title: title.into(), ..NewTask::default() })
}

fn set(task: u64, to: TaskStatus) -> TaskChange {
    TaskChange::SetStatus { number: number(task), to, reason: None }
}

fn because(task: u64, to: TaskStatus, reason: &str) -> TaskChange {
    TaskChange::SetStatus { number: number(task), to, reason: Some(reason.into()) }
}

fn link(task: u64, kind: ArtifactKind, path: &str) -> TaskChange {
    TaskChange::Link { number: number(task), artifact: TaskArtifact { kind, path: path.into() } }
}

fn made(links: &[(ArtifactKind, &str)]) -> Vec<TaskArtifact> {
    links.iter().map(|(kind, path)| TaskArtifact { kind: *kind, path: (*path).into() }).collect()
}

fn update(task: u64, status: Option<TaskStatus>, links: &[(ArtifactKind, &str)]) -> TaskChange {
    let update = TaskUpdate { status, reason: None, links: made(links) };
    TaskChange::Update { number: number(task), update }
}

/// Both files, changed step by step.
struct Files {
    todo: Option<String>,
    state: Option<String>,
}

impl Files {
    fn none() -> Self {
        Self { todo: None, state: None }
    }

    fn todo(text: &str) -> Self {
        Self { todo: Some(text.into()), state: None }
    }

    fn both(todo: &str, state: &str) -> Self {
        Self { todo: Some(todo.into()), state: Some(state.into()) }
    }

    fn book(&self) -> TaskFiles {
        TaskFiles::read(self.todo.as_deref(), self.state.as_deref()).unwrap()
    }

    fn change(&mut self, change: &TaskChange) -> Result<TaskChangeResult, TaskError> {
        let changed = self.book().change(change, NOW, FOLDER)?;
        self.todo = Some(changed.todo.clone());
        self.state = Some(changed.state.clone());
        Ok(changed)
    }

    fn refusal(&mut self, change: &TaskChange) -> String {
        self.change(change).unwrap_err().to_string()
    }

    /// Returns both files as one picture.
    fn picture(&self) -> String {
        let shown = |text: &Option<String>| text.clone().unwrap_or_default();
        format!("{}=====\n{}", shown(&self.todo), shown(&self.state))
    }
}

fn with_priority(title: &str, priority: TaskPriority) -> TaskChange {
    TaskChange::Add(NewTask { title: title.into(), priority, ..NewTask::default() })
}
