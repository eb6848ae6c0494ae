//! What a slash command needs to know of the tasks it names.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};

use adjutant_core::task::{Book, TaskNumber};

use super::Specs;
use super::error::SpecsError;
use crate::slash::{Looked, TaskEntry};

/// Looks for tasks; all that one command names are looked for in the same list, read once.
#[derive(Debug)]
pub struct Lookout {
    root: PathBuf,
    list: OnceCell<Result<List, String>>,
}

#[derive(Debug)]
struct List {
    book: Book,
    is_empty: bool,
    file: String,
    /// What had to be mended before it could be read.
    notices: Vec<String>,
}

impl Lookout {
    /// Looks in the project at `root`, and reads nothing before it is asked.
    #[must_use]
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned(), list: OnceCell::new() }
    }

    /// Looks for a task.
    #[must_use]
    pub fn look(&self, number: u64) -> Looked {
        let list = self.list.get_or_init(|| self.read().map_err(|error| error.to_string()));
        let list = match list {
            Ok(list) if list.is_empty => return Looked::NoList,
            Ok(list) => list,
            Err(error) => return Looked::Broken(error.clone()),
        };
        let (book, file) = (&list.book, list.file.clone());
        let known = TaskNumber::new(number).and_then(|number| book.task(number));
        let Some(task) = known else { return Looked::Unknown { file } };
        let text = book.entry_text(task.number).unwrap_or(&task.title).trim_end().to_owned();
        let said = book.disagreements_about(task.number).into_iter().map(|it| it.to_string());
        let remarks = list.notices.iter().cloned().chain(said).collect();
        let (language, status) = (Some(task.language), task.status);
        Looked::Found(TaskEntry { number, text, language, status, file, remarks })
    }

    fn read(&self) -> Result<List, SpecsError> {
        let specs = Specs::open(&self.root)?;
        let (book, file) = (specs.read()?, format!("{}/TODO.md", specs.folder()?));
        let notices = specs.take_notices();
        Ok(List { is_empty: book.tasks().is_empty(), book, file, notices })
    }
}
