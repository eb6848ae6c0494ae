//! Where `TODO.md` and `state.json` disagree, and which of them wins.
//!
//! For title, status and priority `TODO.md` wins, because people edit it. For the language, which selects the
//! agent, `state.json` wins, because programs look there first. Of two next numbers the larger wins, because
//! a number is never reused.

use std::fmt;

use serde::Serialize;

use super::new_task::TaskPriority;
use super::number::TaskNumber;
use super::state_file::StateProject;
use super::status::TaskStatus;
use super::task_files::TaskFiles;

/// One of the two files of a task list, named in a disagreement between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskFile {
    /// `TODO.md`.
    Todo,
    /// `state.json`.
    State,
}

impl fmt::Display for TaskFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Todo => "TODO.md",
            Self::State => "state.json",
        })
    }
}

/// What two files disagree about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DisputedField {
    /// The status.
    Status,
    /// The spelling of the status, which is not the standard one.
    Spelling,
    /// The language.
    Language,
    /// The priority.
    Priority,
    /// Whether the task exists.
    Presence,
    /// Which entry owns the number.
    Number,
    /// The number of the next task.
    NextNumber,
}

/// A disagreement between the two files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TaskDisagreement {
    /// The task; `None` if it concerns the files as a whole.
    pub number: Option<TaskNumber>,
    /// What the files disagree about.
    pub field: DisputedField,
    /// The value in `TODO.md`.
    pub todo: Option<String>,
    /// The value in `state.json`.
    pub state: Option<String>,
    /// The file that wins; `None` if a person must decide.
    pub wins: Option<TaskFile>,
}

impl fmt::Display for TaskDisagreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(number) = self.number {
            write!(f, "task {number}: ")?;
        }
        let (todo, state) = (self.todo.as_deref(), self.state.as_deref());
        match self.field {
            DisputedField::Presence if todo.is_none() => {
                f.write_str("is in state.json and not in TODO.md; its next change adds the entry")
            }
            DisputedField::Presence => {
                f.write_str("is in TODO.md and not in state.json; its next change adds it")
            }
            DisputedField::Spelling => {
                let (side, word) = match todo {
                    Some(word) => (TaskFile::Todo, word),
                    None => (TaskFile::State, state.unwrap_or_default()),
                };
                let status = TaskStatus::read(word).map(TaskStatus::marker).unwrap_or_default();
                write!(
                    f,
                    "{side} says {word}, which counts as {status}; its next change writes that"
                )
            }
            DisputedField::Number => write!(
                f,
                "the number is used more than once ({}); give one of them another",
                todo.or(state).unwrap_or_default()
            ),
            DisputedField::Status
            | DisputedField::Language
            | DisputedField::Priority
            | DisputedField::NextNumber => {
                let name = match self.field {
                    DisputedField::NextNumber => "next number: ",
                    DisputedField::Language => "language: ",
                    DisputedField::Priority => "priority: ",
                    DisputedField::Status
                    | DisputedField::Spelling
                    | DisputedField::Presence
                    | DisputedField::Number => "",
                };
                let said = |side: Option<&str>| side.unwrap_or("nothing").to_owned();
                write!(f, "{name}TODO.md says {}, state.json says {}", said(todo), said(state))?;
                self.wins.map_or(Ok(()), |side| write!(f, "; {side} counts"))
            }
        }
    }
}

impl TaskFiles {
    /// Returns all disagreements of the two files, by task number.
    #[must_use]
    pub fn disagreements(&self) -> Vec<TaskDisagreement> {
        let mut found = Vec::new();
        for number in self.numbers() {
            self.report_duplicates(number, &mut found);
            self.compare_task(number, &mut found);
        }
        found.extend(self.next_numbers());
        found
    }

    /// Returns whether writing the status of a task would fix a disagreement.
    pub(super) fn is_status_disputed(&self, number: TaskNumber) -> bool {
        let about = self.disagreements_about(number);
        about.iter().any(|it| {
            matches!(
                it.field,
                DisputedField::Status | DisputedField::Spelling | DisputedField::Presence
            )
        })
    }

    pub(super) fn report_duplicates(&self, number: TaskNumber, found: &mut Vec<TaskDisagreement>) {
        let [entries, projects] =
            [TaskFile::Todo, TaskFile::State].map(|it| self.indices_in(it, number).count());
        if entries < 2 && projects < 2 {
            return;
        }
        let lines = self.entries(number).map(|entry| format!("line {}", entry.line));
        let lines = lines.collect::<Vec<_>>().join(" and ");
        found.push(TaskDisagreement {
            number: Some(number),
            field: DisputedField::Number,
            todo: (entries > 1).then(|| format!("TODO.md {lines}")),
            state: (projects > 1).then(|| format!("{projects} times in state.json")),
            wins: None,
        });
    }

    /// Adds statuses with a non-standard spelling in either file.
    fn spellings(&self, number: TaskNumber, found: &mut Vec<TaskDisagreement>) {
        let is_alias = |text: &String| TaskStatus::read_alias(text).is_some();
        let entry = self.entry(number);
        let todo = entry.and_then(|it| it.marker(&self.todo.text).map(str::to_owned));
        let state = self.project(number).and_then(|it| it.status.clone());
        let sides = [
            (todo.filter(is_alias), None, TaskFile::Todo),
            (None, state.filter(is_alias), TaskFile::State),
        ];
        for (todo, state, side) in sides {
            if todo.is_some() || state.is_some() {
                let (field, wins) = (DisputedField::Spelling, Some(side));
                found.push(TaskDisagreement { number: Some(number), field, todo, state, wins });
            }
        }
    }

    pub(super) fn compare_task(&self, number: TaskNumber, found: &mut Vec<TaskDisagreement>) {
        self.spellings(number, found);
        // A missing file cannot disagree.
        if !self.has_todo || !self.has_state {
            return;
        }
        let number_of = Some(number);
        let mut say = |field, todo: Option<String>, state: Option<String>, wins| {
            found.push(TaskDisagreement { number: number_of, field, todo, state, wins });
        };
        match (self.entry(number), self.project(number)) {
            (Some(entry), Some(project)) => {
                let text = &self.todo.text;
                let marker = entry.marker(text).map(str::to_owned);
                let (here, there) = (entry.status(text), project.known_status());
                if here != there {
                    let wins = match (here, there) {
                        (Some(_), _) => Some(TaskFile::Todo),
                        (None, Some(_)) => Some(TaskFile::State),
                        (None, None) => None,
                    };
                    say(DisputedField::Status, marker, shown_status(&project), wins);
                }
                let differ = |a: &Option<String>, b: &Option<String>| match (a, b) {
                    (Some(a), Some(b)) => !a.trim().eq_ignore_ascii_case(b.trim()),
                    (None, _) | (_, None) => false,
                };
                let language = entry.value(text, "language").map(str::to_owned);
                if differ(&language, &project.language) {
                    say(
                        DisputedField::Language,
                        language,
                        project.language.clone(),
                        Some(TaskFile::State),
                    );
                }
                let priority = entry.value(text, "priority").map(str::to_owned);
                let read = |it: &Option<String>| it.as_deref().and_then(TaskPriority::read);
                if differ(&priority, &project.priority) && read(&priority).is_some() {
                    say(
                        DisputedField::Priority,
                        priority,
                        project.priority.clone(),
                        Some(TaskFile::Todo),
                    );
                }
            }
            (Some(entry), None) => {
                say(DisputedField::Presence, Some(entry.title.clone()), None, Some(TaskFile::Todo));
            }
            (None, Some(project)) if !project.is_archived => {
                let name = project.name.clone().or_else(|| Some(String::new()));
                say(DisputedField::Presence, None, name, Some(TaskFile::State));
            }
            (None, None | Some(_)) => {}
        }
    }

    fn next_numbers(&self) -> Option<TaskDisagreement> {
        let (todo, state) = (self.todo.next(), self.state.next().filter(|_| self.has_state));
        let highest = self.highest();
        let is_used = |next: Option<TaskNumber>| next.is_some_and(|next| Some(next) <= highest);
        let differ = todo.is_some() && state.is_some() && todo != state;
        (differ || is_used(todo) || is_used(state)).then(|| {
            let wins = match (todo > state, self.next_number()) {
                (true, next) if next == todo => Some(TaskFile::Todo),
                (false, next) if next == state => Some(TaskFile::State),
                (true | false, _) => None,
            };
            let todo_says = match (todo, wins) {
                (Some(todo), _) => Some(todo.to_string()),
                (None, _) => highest.map(|highest| format!("that {highest} is taken")),
            };
            TaskDisagreement {
                number: None,
                field: DisputedField::NextNumber,
                todo: todo_says,
                state: state.map(|next| next.to_string()),
                wins,
            }
        })
    }
}

fn shown_status(project: &StateProject) -> Option<String> {
    let archived = || project.is_archived.then(|| TaskStatus::Completed.as_str().to_owned());
    project.status.clone().or_else(archived)
}
