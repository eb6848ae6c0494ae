//! In which form the result of a task is wanted, kept on disk: whoever asks for it names only the task.
//!
//! The files lie beside those of the calls, and go with them when they are old.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use adjutant_core::RunId;
use adjutant_core::schema::ReturnForm;

/// The forms that are not the usual one.
#[derive(Clone, Debug)]
pub(crate) struct Forms {
    folder: PathBuf,
}

impl Forms {
    /// Takes those of a state directory.
    pub(crate) fn at(home: &Path) -> Self {
        Self { folder: home.join("mcp") }
    }

    /// Remembers the form of a task.
    pub(crate) fn keep(&self, task: RunId, form: ReturnForm) -> io::Result<()> {
        if form == ReturnForm::default() {
            return Ok(());
        }
        let mut options = File::options();
        options.write(true).create(true).truncate(true).mode(0o600);
        options.open(self.file(task))?.write_all(form.as_str().as_bytes())
    }

    /// Returns the form of a task; the usual one where nothing else is known.
    pub(crate) fn of(&self, task: RunId) -> ReturnForm {
        let kept = std::fs::read_to_string(self.file(task)).unwrap_or_default();
        let found = ReturnForm::ALL.into_iter().find(|form| form.as_str() == kept);
        found.unwrap_or_default()
    }

    fn file(&self, task: RunId) -> PathBuf {
        self.folder.join(format!("{task}.form"))
    }
}
