//! `TODO.md` and `state.json` together: the merged view of every task.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::Serialize;
use serde_json::{Value, json};

use super::disagreements::{TaskDisagreement, TaskFile};
use super::new_task::{MAX_SLUG_CHARS, TaskPriority, one_line, slug};
use super::number::TaskNumber;
use super::state_file::{self, StateFile, StateFileError, StateProject};
use super::status::TaskStatus;
use super::todo_entry::TodoEntry;
use super::todo_file::{self, TodoFile};

/// The parsed `TODO.md` and `state.json`.
#[derive(Clone, Debug)]
pub struct TaskFiles {
    pub(super) todo: TodoFile,
    pub(super) state: StateFile,
    pub(super) has_todo: bool,
    pub(super) has_state: bool,
    /// The indices of entries and projects, sorted by task number, then file order.
    places: Vec<(TaskNumber, TaskFile, usize)>,
}

/// Why the task files cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TaskFilesError {
    /// `state.json` cannot be parsed.
    #[error("state.json: {0}")]
    State(#[from] StateFileError),
}

/// A task as merged from both files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Task {
    /// Its number.
    pub number: TaskNumber,
    /// Its title from `TODO.md`, or its name from `state.json`.
    pub title: String,
    /// Its status; `None` if neither file has a known status.
    pub status: Option<TaskStatus>,
    /// The status as written, if it is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown_status: Option<String>,
    /// Its language; `general` if neither file names one.
    pub language: String,
    /// Its priority, if it has a known one.
    pub priority: Option<TaskPriority>,
    /// Why it is blocked or abandoned.
    pub reason: Option<String>,
    /// The description in `TODO.md`.
    pub description: Option<String>,
    /// The paths of its artifacts, relative to the project root.
    pub artifacts: Vec<String>,
    /// Its creation time, as written in `state.json`.
    pub created: Option<String>,
    /// The time of its last change, as written in `state.json`.
    pub last_updated: Option<String>,
}

impl TaskFiles {
    /// Parses both texts; pass `None` for a file that does not exist.
    ///
    /// A missing `state.json` is built from `TODO.md`.
    ///
    /// # Errors
    ///
    /// If `state.json` is damaged. Any text is a valid `TODO.md`.
    pub fn read(todo: Option<&str>, state: Option<&str>) -> Result<Self, TaskFilesError> {
        Self::take(todo.map(str::to_owned), state.map(str::to_owned))
    }

    /// Like [`TaskFiles::read`], for owned texts.
    ///
    /// # Errors
    ///
    /// Like [`TaskFiles::read`].
    pub fn take(todo: Option<String>, state: Option<String>) -> Result<Self, TaskFilesError> {
        let (has_todo, has_state) = (todo.is_some(), state.is_some());
        let todo = TodoFile::read(todo.unwrap_or_else(|| todo_file::BEGINNING.to_owned()));
        let state = match state {
            Some(state) => StateFile::read(state)?,
            None => StateFile::read(rebuild_state_json(&todo))?,
        };
        let entries = todo.entries.iter().enumerate();
        let projects = state.projects.iter().enumerate();
        let mut places: Vec<(TaskNumber, TaskFile, usize)> = entries
            .map(|(place, spot)| (spot.number, TaskFile::Todo, place))
            .chain(projects.map(|(place, spot)| (spot.number, TaskFile::State, place)))
            .collect();
        places.sort_unstable();
        Ok(Self { todo, state, has_todo, has_state, places })
    }

    /// Returns both texts; `None` for a file that did not exist.
    #[must_use]
    pub fn texts(&self) -> [Option<&str>; 2] {
        let todo = self.has_todo.then_some(self.todo.text.as_str());
        [todo, self.has_state.then_some(self.state.text.as_str())]
    }

    /// Returns all tasks by number, except those that exist only in the archive of `state.json`.
    #[must_use]
    pub fn tasks(&self) -> Vec<Task> {
        self.numbers()
            .filter(|number| !self.is_gone(*number))
            .map(|number| self.merged_task(number))
            .collect()
    }

    /// Returns a task, including archived ones.
    #[must_use]
    pub fn task(&self, number: TaskNumber) -> Option<Task> {
        (!self.occurrences(number).is_empty()).then(|| self.merged_task(number))
    }

    /// Returns the byte range of a task's entry in `TODO.md`.
    #[must_use]
    pub fn entry_range(&self, number: TaskNumber) -> Option<Range<usize>> {
        self.entry(number).map(|entry| entry.range)
    }

    /// Returns the text of a task's entry in `TODO.md`.
    #[must_use]
    pub fn entry_text(&self, number: TaskNumber) -> Option<&str> {
        self.entry_range(number).map(|range| &self.todo.text[range])
    }

    /// Returns the name of the directory with a task's files: `{number}_{project_name}`.
    #[must_use]
    pub fn folder_name(&self, number: TaskNumber) -> Option<String> {
        let name = self.project(number).and_then(|project| project.name);
        let name = match name.filter(|name| is_folder_name(name)) {
            Some(name) => name,
            None => slug(&self.task(number)?.title),
        };
        Some(format!("{number}_{name}"))
    }

    /// Returns the complexity of a task as written in `state.json`, otherwise in `TODO.md`.
    #[must_use]
    pub fn complexity(&self, number: TaskNumber) -> Option<String> {
        let of_entry = || {
            let entry = self.entry(number)?;
            entry.value(&self.todo.text, "complexity").map(str::to_owned)
        };
        let said = self.project(number).and_then(|project| project.complexity).or_else(of_entry)?;
        Some(one_line(&said)).filter(|said| !said.is_empty())
    }

    /// Returns where the two files disagree about one task.
    #[must_use]
    pub fn disagreements_about(&self, number: TaskNumber) -> Vec<TaskDisagreement> {
        let mut found = Vec::new();
        self.report_duplicates(number, &mut found);
        self.compare_task(number, &mut found);
        found
    }

    /// Returns the number for the next task, which is larger than every number in either file.
    ///
    /// `None` if there is no larger number, which happens only with a damaged file.
    #[must_use]
    pub fn next_number(&self) -> Option<TaskNumber> {
        let unused = match self.highest() {
            Some(highest) => highest.next()?,
            None => TaskNumber::FIRST,
        };
        [Some(unused), self.todo.next(), self.state.next()].into_iter().flatten().max()
    }

    /// Returns all used numbers in ascending order.
    pub(super) fn numbers(&self) -> impl Iterator<Item = TaskNumber> {
        self.places.chunk_by(|one, next| one.0 == next.0).map(|same| same[0].0)
    }

    pub(super) fn highest(&self) -> Option<TaskNumber> {
        self.places.last().map(|(number, _, _)| *number)
    }

    /// Returns all occurrences of a number.
    fn occurrences(&self, number: TaskNumber) -> &[(TaskNumber, TaskFile, usize)] {
        let start = self.places.partition_point(|(known, _, _)| *known < number);
        let count = self.places[start..].partition_point(|(known, _, _)| *known == number);
        &self.places[start..start + count]
    }

    /// Returns the indices of a number's occurrences in one file.
    pub(super) fn indices_in(
        &self,
        side: TaskFile,
        number: TaskNumber,
    ) -> impl Iterator<Item = usize> {
        let on_side = move |it: &&(TaskNumber, TaskFile, usize)| it.1 == side;
        self.occurrences(number).iter().filter(on_side).map(|(_, _, place)| *place)
    }

    /// Returns the `TODO.md` entries with this number.
    pub(super) fn entries(&self, number: TaskNumber) -> impl Iterator<Item = TodoEntry> {
        let spots = self.indices_in(TaskFile::Todo, number).map(|place| &self.todo.entries[place]);
        spots.filter_map(|spot| self.todo.entry(spot))
    }

    /// Returns the first `TODO.md` entry with this number.
    pub(super) fn entry(&self, number: TaskNumber) -> Option<TodoEntry> {
        self.entries(number).next()
    }

    /// Returns the first `state.json` project with this number.
    pub(super) fn project(&self, number: TaskNumber) -> Option<StateProject> {
        let mut spots =
            self.indices_in(TaskFile::State, number).map(|place| &self.state.projects[place]);
        spots.find_map(|spot| self.state.project(spot))
    }

    fn is_gone(&self, number: TaskNumber) -> bool {
        let mut projects = self.indices_in(TaskFile::State, number);
        self.indices_in(TaskFile::Todo, number).next().is_none()
            && projects.all(|place| self.state.projects[place].is_archived)
    }

    pub(super) fn merged_task(&self, number: TaskNumber) -> Task {
        let text = &self.todo.text;
        let (entry, project) = (self.entry(number), self.project(number));
        let (entry, project) = (entry.as_ref(), project.as_ref());
        let field = |name: &str| entry.and_then(|entry| entry.value(text, name)).map(str::to_owned);
        let (status, unknown_status) = effective_status(text, entry, project);
        let title = entry.map(|entry| entry.title.clone());
        let title =
            title.or_else(|| project.and_then(|project| project.name.as_deref()).map(one_line));
        let of_project = |get: fn(&StateProject) -> Option<String>| project.and_then(get);
        let language = of_project(|it| it.language.clone()).or_else(|| field("language"));
        let priority = field("priority").as_deref().and_then(TaskPriority::read);
        let mut artifacts = Vec::new();
        for (_, path) in project.into_iter().flat_map(|project| &project.artifacts) {
            if !artifacts.contains(path) {
                artifacts.push(path.clone());
            }
        }
        Task {
            number,
            title: title.unwrap_or_default(),
            status,
            unknown_status,
            language: language.map_or_else(
                || "general".to_owned(),
                |language| one_line(&language).to_lowercase(),
            ),
            priority: priority.or_else(|| {
                of_project(|it| it.priority.clone()).as_deref().and_then(TaskPriority::read)
            }),
            reason: match status {
                Some(TaskStatus::Blocked) => {
                    field("blocking reason").or_else(|| field("blocked by"))
                }
                Some(TaskStatus::Abandoned) => field("abandonment reason"),
                Some(_) | None => None,
            },
            description: entry.and_then(|entry| entry.description_text(text)).map(str::to_owned),
            artifacts,
            created: of_project(|it| it.created.clone()),
            last_updated: of_project(|it| it.last_updated.clone()),
        }
    }
}

/// Returns whether a name from `state.json`, which is untrusted, is safe as a directory name.
fn is_folder_name(name: &str) -> bool {
    let is_plain = |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '-' | '.');
    !name.is_empty() && name.chars().count() <= 2 * MAX_SLUG_CHARS && name.chars().all(is_plain)
}

/// Builds a `state.json` from a `TODO.md`.
fn rebuild_state_json(todo: &TodoFile) -> String {
    if todo.entries.is_empty() {
        return state_file::BEGINNING.to_owned();
    }
    let mut projects: BTreeMap<TaskNumber, Value> = BTreeMap::new();
    for entry in todo.entries.iter().filter_map(|spot| todo.entry(spot)) {
        let (status, unknown) = effective_status(&todo.text, Some(&entry), None);
        let status = status.map_or(unknown.unwrap_or_default(), |status| status.to_string());
        let mut project = json!({
            "project_number": entry.number, "project_name": slug(&entry.title), "type": "task",
            "status": status,
        });
        for name in ["language", "priority"] {
            if let Some(value) = entry.value(&todo.text, name) {
                project[name] = one_line(value).to_lowercase().into();
            }
        }
        project["artifacts"] = json!([]);
        projects.entry(entry.number).or_insert(project);
    }
    let next = projects.keys().next_back().and_then(|highest| highest.next()).max(todo.next());
    let state = json!({
        "next_project_number": next, "active_projects": projects.into_values().collect::<Vec<_>>(),
        "completed_projects": [],
    });
    format!("{state:#}\n")
}

/// Returns the effective status, or the unknown text in its place.
///
/// A task without a status is not started; an unknown marker gives no status.
fn effective_status(
    text: &str,
    entry: Option<&TodoEntry>,
    project: Option<&StateProject>,
) -> (Option<TaskStatus>, Option<String>) {
    let marker = entry.and_then(|entry| entry.marker(text));
    let word = project.and_then(|project| project.status.as_deref());
    let known = entry.and_then(|entry| entry.status(text));
    match known.or_else(|| project.and_then(StateProject::known_status)) {
        Some(status) => (Some(status), None),
        None => match marker.or(word) {
            Some(unknown) => (None, Some(unknown.to_owned())),
            None => (Some(TaskStatus::NotStarted), None),
        },
    }
}
