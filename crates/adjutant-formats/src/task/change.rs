//! Changes of tasks: checks a change and returns the new texts of `TODO.md` and `state.json`.

use std::path::{Component, Path};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::disagreements::{TaskDisagreement, TaskFile};
use super::error::{MAX_DESCRIPTION_BYTES, MAX_TITLE_CHARS, TaskError};
use super::new_task::{NewTaskText, TaskPriority, one_line, paragraphs};
use super::number::TaskNumber;
use super::status::TaskStatus;
use super::task_files::{Task, TaskFiles};
use crate::contract::ArtifactKind;
use crate::document::{Splice, apply};
use crate::time::{date, rfc3339};

/// The maximum length of a language name.
const MAX_LANGUAGE_CHARS: usize = 40;

/// A task to be added.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewTask {
    /// Its title; line breaks become spaces.
    pub title: String,
    /// Its language; `general` by default.
    pub language: Option<String>,
    /// Its priority.
    pub priority: TaskPriority,
    /// The estimated effort; `TBD` by default.
    pub effort: Option<String>,
    /// Its description.
    pub description: Option<String>,
}

/// A file that was made for a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskArtifact {
    /// The kind of the file.
    #[serde(rename = "type")]
    pub kind: ArtifactKind,
    /// Its path relative to the project root.
    pub path: String,
}

/// The result of work on a task: its new status and its artifacts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskUpdate {
    /// The new status; `None` keeps the old one. If the status is reachable only through IN PROGRESS, that
    /// step is made first.
    pub status: Option<TaskStatus>,
    /// The reason; required for BLOCKED and ABANDONED, refused for all others.
    pub reason: Option<String>,
    /// The artifacts to link; existing links stay unchanged.
    pub links: Vec<TaskArtifact>,
}

/// A change of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskChange {
    /// Add a task.
    Add(NewTask),
    /// Set the status; BLOCKED and ABANDONED need a reason.
    SetStatus {
        /// The task.
        number: TaskNumber,
        /// The new status.
        to: TaskStatus,
        /// The reason.
        reason: Option<String>,
    },
    /// Link an artifact to a task.
    Link {
        /// The task.
        number: TaskNumber,
        /// The artifact.
        artifact: TaskArtifact,
    },
    /// Set a status and add links at once; what already holds changes nothing.
    Update {
        /// The task.
        number: TaskNumber,
        /// The result of the work.
        update: TaskUpdate,
    },
}

/// The result of a change: the new texts of both files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskChangeResult {
    /// The new `TODO.md`.
    pub todo: String,
    /// The new `state.json`.
    pub state: String,
    /// The task after the change.
    pub task: Task,
    /// The status before; `None` for a new task.
    pub from: Option<TaskStatus>,
    /// Whether the change had any effect.
    pub is_different: bool,
    /// What the two files still disagree about for this task.
    pub disagreements: Vec<TaskDisagreement>,
}

/// Collects splices for both files.
#[derive(Default)]
struct TaskSplices {
    todo: Vec<Splice>,
    state: Vec<Splice>,
}

/// What one step of a task change did: the task, its status before, and the files after.
struct ChangeStep {
    number: TaskNumber,
    from: Option<TaskStatus>,
    /// The files after the step; `None` if it changed nothing.
    book: Option<TaskFiles>,
}

impl TaskFiles {
    /// Computes a change; `wall_ms` is the Unix time in milliseconds, `folder` the path of the task files
    /// relative to the project root.
    ///
    /// # Errors
    ///
    /// If the change is not allowed or not possible.
    pub fn change(
        &self,
        change: &TaskChange,
        wall_ms: u64,
        folder: &str,
    ) -> Result<TaskChangeResult, TaskError> {
        if let TaskChange::Update { number, update } = change {
            return self.update(*number, update, wall_ms, folder);
        }
        let step = self.step(change, wall_ms, folder)?;
        Ok(self.outcome(step.number, step.from, step.book))
    }

    /// Computes one step.
    fn step(
        &self,
        change: &TaskChange,
        wall_ms: u64,
        folder: &str,
    ) -> Result<ChangeStep, TaskError> {
        let mut splices = TaskSplices::default();
        let (number, from) = match change {
            TaskChange::Add(task) => (self.add(task, wall_ms, &mut splices)?, None),
            TaskChange::SetStatus { number, to, reason } => {
                let from =
                    self.set_status(*number, *to, reason.as_deref(), wall_ms, &mut splices)?;
                (*number, Some(from))
            }
            TaskChange::Link { number, artifact } => {
                let from = self.link(*number, artifact, wall_ms, folder, &mut splices)?;
                (*number, from)
            }
            TaskChange::Update { number, .. } => (*number, self.only(*number)?.status),
        };
        if splices.todo.is_empty() && splices.state.is_empty() {
            return Ok(ChangeStep { number, from, book: None });
        }
        let todo = apply(&self.todo.text, splices.todo);
        let state = apply(&self.state.text, splices.state);
        // The new text is parsed again, so that an unusual layout cannot silently lose a change.
        let again =
            todo.zip(state).and_then(|(todo, state)| Self::take(Some(todo), Some(state)).ok());
        let again = again.filter(|book| self.is_meant(change, number, book));
        let book = again.ok_or(TaskError::Unwritable { number })?;
        Ok(ChangeStep { number, from, book: Some(book) })
    }

    /// Computes the steps of an update in sequence; the first refused step refuses the update.
    fn update(
        &self,
        number: TaskNumber,
        update: &TaskUpdate,
        wall_ms: u64,
        folder: &str,
    ) -> Result<TaskChangeResult, TaskError> {
        let task = self.only(number)?;
        let mut book: Option<Self> = None;
        for change in steps(&task, update)? {
            let step = book.as_ref().unwrap_or(self).step(&change, wall_ms, folder)?;
            book = step.book.or(book);
        }
        Ok(self.outcome(number, task.status, book))
    }

    /// Returns the result of a change, from the changed files or from `self` if nothing changed.
    fn outcome(
        &self,
        number: TaskNumber,
        from: Option<TaskStatus>,
        book: Option<Self>,
    ) -> TaskChangeResult {
        let new = book.as_ref().unwrap_or(self);
        let (task, disagreements) = (new.merged_task(number), new.disagreements_about(number));
        let is_different = book.is_some();
        let (todo, state) = match book {
            Some(book) => (book.todo.text, book.state.text),
            None => (self.todo.text.clone(), self.state.text.clone()),
        };
        TaskChangeResult { todo, state, task, from, is_different, disagreements }
    }

    fn is_meant(&self, change: &TaskChange, number: TaskNumber, again: &Self) -> bool {
        let Some(task) = again.task(number) else { return false };
        let status = match change {
            TaskChange::Add(_) => Some(TaskStatus::NotStarted),
            TaskChange::SetStatus { to, .. } => Some(*to),
            TaskChange::Link { .. } | TaskChange::Update { .. } => task.status,
        };
        let is_new = self.entry(number).is_none();
        let expected = self.todo.entries.len() + usize::from(is_new);
        task.status == status && again.todo.entries.len() == expected
    }

    fn add(
        &self,
        new: &NewTask,
        wall_ms: u64,
        out: &mut TaskSplices,
    ) -> Result<TaskNumber, TaskError> {
        let title = one_line(&new.title);
        match title.chars().count() {
            0 => return Err(TaskError::NoTitle),
            chars if chars > MAX_TITLE_CHARS => return Err(TaskError::LongTitle { chars }),
            _ => {}
        }
        let bytes = new.description.as_ref().map_or(0, String::len);
        if bytes > MAX_DESCRIPTION_BYTES {
            return Err(TaskError::LongDescription { bytes });
        }
        let language = new.language.as_deref().map_or(Ok("general".to_owned()), language)?;
        let number = self.next_number().ok_or(TaskError::NoNumber)?;
        let next = number.next().ok_or(TaskError::NoNumber)?;
        let plan = NewTaskText {
            number,
            title: &title,
            status: TaskStatus::NotStarted,
            language: &language,
            priority: new.priority,
            effort: new.effort.as_deref().map(one_line).filter(|effort| !effort.is_empty()),
            description: new.description.as_deref().and_then(paragraphs),
        };
        out.todo.extend(self.todo.set_next(next));
        out.todo.push(self.todo.append(&plan.entry()));
        out.state.extend(self.state.add(&plan.project(&rfc3339(wall_ms)), Some(next)));
        Ok(number)
    }

    fn set_status(
        &self,
        number: TaskNumber,
        to: TaskStatus,
        reason: Option<&str>,
        wall_ms: u64,
        out: &mut TaskSplices,
    ) -> Result<TaskStatus, TaskError> {
        let task = self.only(number)?;
        let from = task.status.ok_or_else(|| TaskError::UnknownStatus {
            number,
            status: task.unknown_status.clone().unwrap_or_default(),
        })?;
        from.step(to).map_err(|step| TaskError::Step { number, step })?;
        let reason = reason.map(one_line).filter(|reason| !reason.is_empty());
        let needs_reason = matches!(to, TaskStatus::Blocked | TaskStatus::Abandoned);
        match &reason {
            // A task that stays blocked keeps its reason and needs no new one.
            None if needs_reason && !(from == to && task.reason.is_some()) => {
                return Err(TaskError::NoReason { to });
            }
            Some(_) if !needs_reason => return Err(TaskError::NeedlessReason { to }),
            Some(_) | None => {}
        }
        let is_known = reason.is_none() || reason == task.reason;
        if from == to && is_known && !self.is_status_disputed(number) {
            return Ok(from);
        }
        self.write_status(&task, to, reason, wall_ms, out);
        if from != to {
            self.forget(number, from, out);
        }
        Ok(from)
    }

    /// Removes the fields that belonged to the previous status.
    fn forget(&self, number: TaskNumber, from: TaskStatus, out: &mut TaskSplices) {
        let (names, keys): (Vec<_>, Vec<_>) = dated_by(from).iter().copied().unzip();
        let entry = self.entry(number);
        let removed = |name: &&str| entry.as_ref().and_then(|entry| entry.remove(name));
        out.todo.extend(names.iter().filter_map(removed));
        if let Some(project) = self.project(number) {
            out.state.extend(project.remove(&self.state.text, &keys));
        }
    }

    fn write_status(
        &self,
        task: &Task,
        to: TaskStatus,
        reason: Option<String>,
        wall_ms: u64,
        out: &mut TaskSplices,
    ) {
        let (today, now) = (date(wall_ms), rfc3339(wall_ms));
        let mut fields = Map::new();
        fields.insert("status".into(), json!(to));
        fields.insert("last_updated".into(), json!(now));
        let mut dated: Vec<(&str, &str, String)> = Vec::new();
        if to == TaskStatus::Completed {
            dated.push(("Completed", "completed", today));
        } else if to == TaskStatus::Blocked {
            dated.push(("Blocked", "blocked", today));
        } else if to == TaskStatus::Abandoned {
            dated.push(("Abandoned", "abandoned", today));
        } else if to.is_under_way() && !self.has_field(task.number, "started") {
            dated.push(("Started", "started", today));
        }
        if let Some(reason) = reason {
            dated.push(if to == TaskStatus::Abandoned {
                ("Abandonment Reason", "abandonment_reason", reason)
            } else {
                ("Blocking Reason", "blocking_reason", reason)
            });
        }
        for (_, key, value) in &dated {
            fields.insert((*key).into(), json!(value));
        }
        match self.entry(task.number) {
            Some(entry) => {
                let text = &self.todo.text;
                let is_alias = entry.marker(text).and_then(TaskStatus::read_alias).is_some();
                if entry.status(text) != Some(to) || is_alias {
                    out.todo.push(entry.set_status(text, to));
                }
                let set = |(name, _, value): &(&str, &str, String)| entry.set(text, name, value);
                out.todo.extend(dated.iter().map(set));
            }
            None => {
                let mut entry = self.restored(task, to).entry();
                for (name, _, value) in &dated {
                    entry += &format!("- **{name}**: {value}\n");
                }
                out.todo.push(self.todo.append(&entry));
            }
        }
        self.write_project(task, to, &fields, &now, out);
    }

    /// Updates the task in `state.json`, or adds it.
    fn write_project(
        &self,
        task: &Task,
        status: TaskStatus,
        fields: &Map<String, Value>,
        now: &str,
        out: &mut TaskSplices,
    ) {
        match self.project(task.number) {
            Some(project) => out.state.extend(project.set(&self.state.text, fields)),
            None => {
                let mut project = self.restored(task, status).project(now);
                project.extend(fields.clone());
                out.state.extend(self.state.add(&project, self.next_number()));
            }
        }
    }

    fn link(
        &self,
        number: TaskNumber,
        artifact: &TaskArtifact,
        wall_ms: u64,
        folder: &str,
        out: &mut TaskSplices,
    ) -> Result<Option<TaskStatus>, TaskError> {
        let task = self.only(number)?;
        let path = below_root(&artifact.path)?;
        let target = from_folder(&path, folder);
        let (name, link) = (field_name(artifact.kind), markdown_link(&path, &target));
        let text = &self.todo.text;
        // A task without a known status keeps its text; only a restored entry needs a status.
        let status = task.status.unwrap_or(TaskStatus::NotStarted);
        match self.entry(number) {
            Some(entry) => {
                let known = entry.value(text, name).unwrap_or_default();
                // Brackets in a path are escaped, so no link is a substring of another.
                if !known.contains(&link) {
                    out.todo.push(entry.add(text, name, &link));
                }
            }
            None => {
                let entry = self.restored(&task, status).entry();
                out.todo.push(self.todo.append(&format!("{entry}- **{name}**: {link}\n")));
            }
        }
        let value = json!({ "type": artifact.kind, "path": path });
        let now = rfc3339(wall_ms);
        match self.project(number) {
            Some(project) if project.artifacts.iter().any(|(_, known)| *known == path) => {}
            Some(project) => {
                let fields = Map::from_iter([("last_updated".to_owned(), json!(now))]);
                out.state.extend(project.link(&self.state.text, &value));
                out.state.extend(project.set(&self.state.text, &fields));
            }
            None => {
                let fields = Map::from_iter([("artifacts".to_owned(), json!([value]))]);
                self.write_project(&task, status, &fields, &now, out);
            }
        }
        Ok(task.status)
    }

    /// Returns a task whose number occurs at most once per file.
    fn only(&self, number: TaskNumber) -> Result<Task, TaskError> {
        let task = self.task(number).ok_or(TaskError::Unknown { number })?;
        let is_twice = |side| self.indices_in(side, number).count() > 1;
        if is_twice(TaskFile::Todo) || is_twice(TaskFile::State) {
            return Err(TaskError::Twice { number });
        }
        Ok(task)
    }

    fn has_field(&self, number: TaskNumber, name: &str) -> bool {
        self.entry(number).is_some_and(|entry| entry.value(&self.todo.text, name).is_some())
    }

    /// Returns the text of a task for the file that lacks it.
    fn restored<'a>(&self, task: &'a Task, status: TaskStatus) -> NewTaskText<'a> {
        NewTaskText {
            number: task.number,
            title: &task.title,
            status,
            language: &task.language,
            priority: task.priority.unwrap_or_default(),
            effort: None,
            description: None,
        }
    }
}

/// Returns the fields that belong to a status, with their names in `TODO.md` and `state.json`.
const fn dated_by(status: TaskStatus) -> &'static [(&'static str, &'static str)] {
    match status {
        TaskStatus::Completed => &[("Completed", "completed")],
        TaskStatus::Blocked => &[("Blocked", "blocked"), ("Blocking Reason", "blocking_reason")],
        TaskStatus::Abandoned => {
            &[("Abandoned", "abandoned"), ("Abandonment Reason", "abandonment_reason")]
        }
        TaskStatus::NotStarted
        | TaskStatus::InProgress
        | TaskStatus::Researching
        | TaskStatus::Researched
        | TaskStatus::Planning
        | TaskStatus::Planned
        | TaskStatus::Revising
        | TaskStatus::Revised
        | TaskStatus::Implementing
        | TaskStatus::Partial => &[],
    }
}

/// Returns the steps that an update needs, given the current task.
fn steps(task: &Task, update: &TaskUpdate) -> Result<Vec<TaskChange>, TaskError> {
    let number = task.number;
    let mut steps = Vec::new();
    let set = |to, reason| TaskChange::SetStatus { number, to, reason };
    // A reason without a status applies to the current status.
    let stays = task.status.filter(|_| update.reason.is_some());
    if let Some(to) = update.status.or(stays) {
        // The step itself refuses a task with an unknown status.
        let through = task.status.map_or(Ok(None), |from| from.intermediate_status(to));
        let through = through.map_err(|step| TaskError::Step { number, step })?;
        steps.extend(through.map(|between| set(between, None)));
        steps.push(set(to, update.reason.clone()));
    }
    let link = |artifact: &TaskArtifact| TaskChange::Link { number, artifact: artifact.clone() };
    steps.extend(update.links.iter().map(link));
    Ok(steps)
}

fn language(text: &str) -> Result<String, TaskError> {
    let word = text.trim().to_lowercase();
    let is_word = word.chars().all(|letter| letter.is_alphanumeric() || "+#-_./".contains(letter));
    if word.is_empty() || !is_word || word.chars().count() > MAX_LANGUAGE_CHARS {
        return Err(TaskError::BadLanguage { language: one_line(text) });
    }
    Ok(word)
}

const fn field_name(kind: ArtifactKind) -> &'static str {
    match kind {
        ArtifactKind::Research => "Research",
        ArtifactKind::Plan => "Plan",
        ArtifactKind::Implementation => "Implementation",
        ArtifactKind::Summary => "Summary",
        ArtifactKind::Documentation => "Documentation",
    }
}

/// Normalizes a path; refuses one that leaves the root.
fn below_root(path: &str) -> Result<String, TaskError> {
    let bad = || TaskError::BadPath { path: one_line(path) };
    if path.chars().any(char::is_control) {
        return Err(bad());
    }
    let mut parts = Vec::new();
    for component in Path::new(path).components() {
        match component {
            Component::Normal(part) => parts.push(part.to_str().ok_or_else(bad)?),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return Err(bad()),
        }
    }
    if parts.is_empty() { Err(bad()) } else { Ok(parts.join("/")) }
}

/// Returns `path` relative to `folder`, both given relative to the root.
fn from_folder(path: &str, folder: &str) -> String {
    let (from, to): (Vec<&str>, Vec<&str>) = (parts(folder), parts(path));
    let shared = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
    let up = std::iter::repeat_n("..", from.len() - shared);
    up.chain(to[shared..].iter().copied()).collect::<Vec<_>>().join("/")
}

fn parts(path: &str) -> Vec<&str> {
    path.split('/').filter(|part| !part.is_empty()).collect()
}

/// Formats a link with the path from the root as its text and the path from `TODO.md` as its target.
fn markdown_link(path: &str, target: &str) -> String {
    let escaped = |text: &str, marks: &[char]| {
        let mut out = String::with_capacity(text.len());
        for letter in text.chars() {
            if marks.contains(&letter) {
                out.push('\\');
            }
            out.push(letter);
        }
        out
    };
    let text = escaped(path, &['[', ']', '\\']);
    if target.contains([' ', '(', ')', '<', '>', '\\']) {
        format!("[{text}](<{}>)", escaped(target, &['<', '>', '\\']))
    } else {
        format!("[{text}]({target})")
    }
}
