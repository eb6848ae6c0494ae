//! `state.json`: the machine-readable copy of the tasks.
//!
//! Fields that are not named here belong to other programs and stay unchanged.

use serde_json::{Map, Value, json};

use super::number::TaskNumber;
use super::status::TaskStatus;
use crate::document::{DocumentNode, Splice, SyntaxError, parse_json};

/// The content of a new file.
pub(super) const BEGINNING: &str = "{
  \"next_project_number\": 1,
  \"active_projects\": [],
  \"completed_projects\": []
}
";

const NEXT: &str = "next_project_number";
const ACTIVE: &str = "active_projects";
const COMPLETED: &str = "completed_projects";

/// Why a text is not a valid `state.json`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StateFileError {
    /// The text is not JSON, perhaps because a write was interrupted.
    #[error("not JSON, line {line} column {column}: {reason}")]
    NotJson {
        /// The line, from 1.
        line: usize,
        /// The column, from 1.
        column: usize,
        /// The parser's message.
        reason: String,
    },
    /// The edited text would not parse to the intended values.
    #[error("its layout cannot be edited automatically; nothing was written")]
    Unwritable,
    /// The text is not a JSON object.
    #[error("not a JSON object")]
    NotObject,
    /// A field has the wrong type.
    #[error("`{field}` is not {wanted}")]
    WrongType {
        /// The field.
        field: &'static str,
        /// The required type.
        wanted: &'static str,
    },
}

/// A parsed `state.json`.
#[derive(Clone, Debug)]
pub(super) struct StateFile {
    pub(super) text: String,
    root: DocumentNode,
    next: Option<TaskNumber>,
    /// Active projects first; the content of a project is read on demand.
    pub(super) projects: Vec<ProjectEntryPosition>,
}

/// Where in the file the entry of a project is: its list, active or archived, and its index there.
#[derive(Clone, Debug)]
pub(super) struct ProjectEntryPosition {
    pub(super) number: TaskNumber,
    pub(super) is_archived: bool,
    /// Its index in its list.
    place: usize,
}

/// The project object of one task.
#[derive(Clone, Debug)]
pub(super) struct StateProject {
    pub(super) name: Option<String>,
    /// The status as written.
    pub(super) status: Option<String>,
    pub(super) language: Option<String>,
    pub(super) priority: Option<String>,
    pub(super) complexity: Option<String>,
    pub(super) created: Option<String>,
    pub(super) last_updated: Option<String>,
    /// The optional type and the path of each artifact.
    pub(super) artifacts: Vec<(Option<String>, String)>,
    /// Whether it is in the list of completed projects.
    pub(super) is_archived: bool,
    node: DocumentNode,
}

impl StateFile {
    /// Parses a `state.json`.
    pub(super) fn read(text: String) -> Result<Self, StateFileError> {
        let whole = text;
        let text = whole.as_str();
        let root = object(text)?;
        let next = match root.member(text, NEXT).map(|next| next.read(text)) {
            None | Some(Value::Null) => None,
            Some(number) => Some(number_of(&number).ok_or(StateFileError::WrongType {
                field: NEXT,
                wanted: "a positive whole number",
            })?),
        };
        let mut projects = Vec::new();
        for (field, is_archived) in [(ACTIVE, false), (COMPLETED, true)] {
            let list = root.member(text, field).filter(|list| !list.is_null(text));
            let Some(list) = list else { continue };
            let items =
                list.items().ok_or(StateFileError::WrongType { field, wanted: "a list" })?;
            projects.extend(items.iter().enumerate().filter_map(|(place, node)| {
                let number = number_in(text, node)?;
                Some(ProjectEntryPosition { number, is_archived, place })
            }));
        }
        Ok(Self { text: whole, root, next, projects })
    }

    /// Reads the project object at a position.
    pub(super) fn project(&self, spot: &ProjectEntryPosition) -> Option<StateProject> {
        let field = if spot.is_archived { COMPLETED } else { ACTIVE };
        let node = self.root.member(&self.text, field)?.items()?.get(spot.place)?;
        Some(StateProject::read(&self.text, node, spot.is_archived))
    }

    /// Returns the next task number named in the file.
    pub(super) const fn next(&self) -> Option<TaskNumber> {
        self.next
    }

    /// Adds a new project and updates the next task number.
    pub(super) fn add(
        &self,
        project: &Map<String, Value>,
        next: Option<TaskNumber>,
    ) -> Vec<Splice> {
        let (text, project) = (&self.text, Value::Object(project.clone()));
        let list = self.root.member(text, ACTIVE).filter(|list| list.items().is_some());
        let number = next.map(|next| json!(next));
        let (pushed, alone) = match list {
            Some(list) => (list.push_all(text, &[project]), None),
            None => (Vec::new(), Some(json!([project]))),
        };
        let fields = number.iter().map(|number| (NEXT, number));
        let fields: Vec<_> = fields.chain(alone.iter().map(|list| (ACTIVE, list))).collect();
        self.root.set_all(text, &fields).into_iter().chain(pushed).collect()
    }
}

impl StateProject {
    fn read(text: &str, node: &DocumentNode, is_archived: bool) -> Self {
        let artifact = |node: &DocumentNode| match node.as_string(text) {
            Some(path) => Some((None, path)),
            None => node.string(text, "path").map(|path| (node.string(text, "type"), path)),
        };
        let artifacts =
            node.member(text, "artifacts").and_then(DocumentNode::items).unwrap_or_default();
        Self {
            name: node.string(text, "project_name"),
            status: node.string(text, "status"),
            language: node.string(text, "language"),
            priority: node.string(text, "priority"),
            complexity: node.string(text, "complexity"),
            created: node.string(text, "created"),
            last_updated: node.string(text, "last_updated"),
            artifacts: artifacts.iter().filter_map(artifact).collect(),
            is_archived,
            node: node.clone(),
        }
    }

    /// Returns the status, if it is known; an archived task is completed.
    pub(super) fn known_status(&self) -> Option<TaskStatus> {
        let archived = self.is_archived.then_some(TaskStatus::Completed);
        self.status.as_deref().map_or(archived, TaskStatus::read)
    }

    /// Sets fields.
    pub(super) fn set(&self, text: &str, fields: &Map<String, Value>) -> Vec<Splice> {
        let fields = fields.iter().map(|(key, value)| (key.as_str(), value));
        self.node.set_all(text, &fields.collect::<Vec<_>>())
    }

    /// Removes fields.
    pub(super) fn remove(&self, text: &str, fields: &[&str]) -> Vec<Splice> {
        self.node.remove(text, fields)
    }

    /// Adds an artifact.
    pub(super) fn link(&self, text: &str, artifact: &Value) -> Vec<Splice> {
        match self.node.member(text, "artifacts").filter(|list| list.items().is_some()) {
            Some(list) => list.push_all(text, std::slice::from_ref(artifact)),
            None => self.node.set(text, "artifacts", &json!([artifact])),
        }
    }
}

/// Parses a text that must be a JSON object.
pub(super) fn object(text: &str) -> Result<DocumentNode, StateFileError> {
    let root = parse_json(text).map_err(|SyntaxError { line, column, reason }| {
        StateFileError::NotJson { line, column, reason }
    })?;
    if root.is_object() { Ok(root) } else { Err(StateFileError::NotObject) }
}

fn number_in(text: &str, node: &DocumentNode) -> Option<TaskNumber> {
    number_of(&node.member(text, "project_number")?.read(text))
}

/// Reads a task number; some programs write it as a string.
fn number_of(value: &Value) -> Option<TaskNumber> {
    match value {
        Value::Number(number) => number.as_u64().and_then(TaskNumber::new),
        Value::String(text) => TaskNumber::digits(text),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}
