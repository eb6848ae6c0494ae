//! Looking up the tasks that a slash command names.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};

use adjutant_core::assignment::TaskDetails;
use adjutant_formats::task::{TaskFiles, TaskNumber};

use super::Specs;
use super::error::SpecsError;
use crate::slash::{TaskEntry, TaskLookup};

/// The most characters of a task's description that agents of a command get.
const DESCRIPTION_CHARS: usize = 500;

/// Looks up tasks in the project's list, which is read once, on the first lookup.
#[derive(Debug)]
pub struct TaskFinder {
    root: PathBuf,
    list: OnceCell<Result<TaskList, String>>,
}

#[derive(Debug)]
struct TaskList {
    book: TaskFiles,
    is_empty: bool,
    folder: String,
    file: String,
    /// What was repaired before the list could be read.
    notices: Vec<String>,
}

impl TaskFinder {
    /// Returns a finder for the project at `root`. Reads nothing yet.
    #[must_use]
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned(), list: OnceCell::new() }
    }

    /// Looks up a task by its number.
    #[must_use]
    pub fn find(&self, number: u64) -> TaskLookup {
        let list = self.list.get_or_init(|| self.read().map_err(|error| error.to_string()));
        let list = match list {
            Ok(list) if list.is_empty => return TaskLookup::NoList,
            Ok(list) => list,
            Err(error) => return TaskLookup::Broken(error.clone()),
        };
        let (book, file) = (&list.book, list.file.clone());
        let known = TaskNumber::new(number).and_then(|number| book.task(number));
        let Some(task) = known else { return TaskLookup::Unknown { file } };
        let text = book.entry_text(task.number).unwrap_or(&task.title).trim_end().to_owned();
        let said = book.disagreements_about(task.number).into_iter().map(|it| it.to_string());
        let remarks = list.notices.iter().cloned().chain(said).collect();
        let folder = book.folder_name(task.number).map(|name| format!("{}/{name}", list.folder));
        let description = task.description.unwrap_or(task.title);
        let description = description.trim().chars().take(DESCRIPTION_CHARS).collect::<String>();
        let description = Some(description).filter(|text| !text.is_empty());
        let complexity = book.complexity(task.number);
        let facts = TaskDetails { number, description, complexity, folder };
        let (language, status) = (Some(task.language), task.status);
        TaskLookup::Found(TaskEntry { number, text, language, status, file, remarks, facts })
    }

    fn read(&self) -> Result<TaskList, SpecsError> {
        let specs = Specs::open(&self.root)?;
        let (book, folder) = (specs.read()?, specs.folder()?.to_owned());
        let (file, notices) = (format!("{folder}/TODO.md"), specs.take_notices());
        Ok(TaskList { is_empty: book.tasks().is_empty(), book, folder, file, notices })
    }
}
