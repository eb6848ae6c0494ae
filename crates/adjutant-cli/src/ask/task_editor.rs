//! Lets the person edit the tasks of their own call in an editor.
//!
//! The tasks are a JSON file of the form that `adjutant delegate FILE` reads. An edited call is a new call: it is
//! admitted and asked about anew. What the person wrote is kept until it is valid or they go back to the question.

use std::io::Write;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use adjutant_core::schema::{CallLimits, DelegateCall};
use adjutant_view::sanitize;
use serde_json::{Map, Value};

use super::program;
use super::terminal::{Terminal, TypedLine};

/// A call as an object with `tasks`, as in a task file.
pub(crate) type CallObject = Map<String, Value>;

/// The largest file that is read back from the editor, in bytes.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// Edits the tasks of one call.
pub(crate) struct TaskEditor {
    limits: CallLimits,
    state: Mutex<EditState>,
}

struct EditState {
    /// The call that is asked about.
    asked: CallObject,
    /// What the person wrote last and did not use.
    draft: Option<String>,
    /// The call that replaces the one that is asked about.
    edited: Option<CallObject>,
}

/// How editing ended.
pub(super) enum EditEnd {
    /// There is a new call.
    Edited,
    /// The call stays as it was.
    Unchanged,
}

impl TaskEditor {
    /// Returns an editor for a call within these limits.
    pub(crate) const fn new(asked: CallObject, limits: CallLimits) -> Self {
        Self { limits, state: Mutex::new(EditState { asked, draft: None, edited: None }) }
    }

    /// Returns the edited call, if there is one.
    pub(crate) fn take_edited(&self) -> Option<CallObject> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).edited.take()
    }

    /// Shows why the call was refused as a whole, and lets the person edit it again. Returns the new call.
    pub(crate) fn edit_refused(&self, terminal: &Terminal, refusal: &str) -> Option<CallObject> {
        terminal.print(&format!("{}\n", sanitize::block(refusal)));
        if !wants_to_edit(terminal, &|| false) {
            return None;
        }
        match self.edit(terminal, &|| false) {
            EditEnd::Edited => self.take_edited(),
            EditEnd::Unchanged => None,
        }
    }

    /// Opens the editor until the tasks are valid, the person gives up, or the question `is_over`.
    pub(super) fn edit(&self, terminal: &Terminal, is_over: &dyn Fn() -> bool) -> EditEnd {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let asked = adjutant_view::wire::pretty(&state.asked);
        let mut text = state.draft.take().unwrap_or_else(|| asked.clone());
        loop {
            let written = match edit_text(terminal, &text) {
                Ok(written) => written,
                Err(problem) => {
                    terminal.print(&format!("{}\n", sanitize::line(&problem)));
                    // An editor that failed may have written nothing: what was there before is kept.
                    state.draft = Some(text).filter(|text| *text != asked);
                    return EditEnd::Unchanged;
                }
            };
            match self.read(&written) {
                // What an invalid file or unchanged tasks mean no longer matters.
                Ok(call) if is_over() && call == state.asked => return EditEnd::Unchanged,
                Err(_) if is_over() => return EditEnd::Unchanged,
                Ok(call) if call == state.asked => {
                    terminal.print("The tasks are as they were.\n");
                    return EditEnd::Unchanged;
                }
                Ok(call) => {
                    state.edited = Some(call);
                    return EditEnd::Edited;
                }
                Err(problem) => terminal.print(&format!("{}\n", sanitize::block(&problem))),
            }
            text = written;
            if !wants_to_edit(terminal, is_over) {
                if is_over() {
                    return EditEnd::Unchanged;
                }
                terminal.print("Type e to go on editing what you wrote.\n");
                state.draft = Some(text);
                return EditEnd::Unchanged;
            }
        }
    }

    fn read(&self, text: &str) -> Result<CallObject, String> {
        let call = task_object(text)?;
        DelegateCall::parse(&Value::Object(call.clone()), &self.limits)
            .map_err(|error| error.to_string())?;
        Ok(call)
    }
}

/// Asks whether to edit again. Enter means yes here: nothing starts, and nothing is lost.
fn wants_to_edit(terminal: &Terminal, is_over: &dyn Fn() -> bool) -> bool {
    terminal.print("Edit again? [Y/n] ");
    match terminal.wait_for_line(is_over) {
        TypedLine::Line(line) => !matches!(line.trim().to_lowercase().as_str(), "n" | "no"),
        TypedLine::Interrupted => false,
    }
}

/// Reads a task file: an object with `tasks`, or a list of tasks.
pub(crate) fn task_object(text: &str) -> Result<CallObject, String> {
    match adjutant_formats::json::from_str(text).map_err(|error| error.to_string())? {
        Value::Object(map) => Ok(map),
        Value::Array(tasks) => Ok(Map::from_iter([("tasks".to_owned(), Value::Array(tasks))])),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            Err("must hold an object with `tasks`, or a list of tasks".to_owned())
        }
    }
}

/// Opens a text in the editor, in a private file; returns what was saved.
fn edit_text(terminal: &Terminal, text: &str) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("cannot use a temporary file: {error}");
    let mut builder = tempfile::Builder::new();
    // The file has mode 0600.
    let mut file = builder.prefix("adjutant-tasks-").suffix(".json").tempfile().map_err(failed)?;
    file.write_all(text.as_bytes()).and_then(|()| file.flush()).map_err(failed)?;
    program::edit(terminal, file.path())?;
    read_saved(file.path()).map_err(failed)
}

/// Reads the file by its name, because editors replace files.
fn read_saved(path: &Path) -> std::io::Result<String> {
    use std::io::Read;
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(MAX_FILE_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
