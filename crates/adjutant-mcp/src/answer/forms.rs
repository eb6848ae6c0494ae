//! In which form the result of a task is wanted, kept on disk: whoever asks for it names only the task.
//!
//! The files lie beside those of the calls, and go with them when they are old.

use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use adjutant_core::RunId;
use adjutant_core::schema::ReturnForm;
use adjutant_engine::{open_private, open_private_existing};

/// More bytes than the name of a form has.
const MAX_BYTES: u64 = 64;

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
        let mut file = open_private(&self.file(task))?;
        file.set_len(0)?;
        file.write_all(form.as_str().as_bytes())
    }

    /// Returns the form of a task; the usual one where nothing else is known.
    pub(crate) fn of(&self, task: RunId) -> ReturnForm {
        let mut kept = String::new();
        // What cannot be read, or is a link or a pipe, says nothing.
        if let Ok(file) = open_private_existing(&self.file(task)) {
            let _ = file.take(MAX_BYTES).read_to_string(&mut kept);
        }
        let found = ReturnForm::ALL.into_iter().find(|form| form.as_str() == kept);
        found.unwrap_or_default()
    }

    fn file(&self, task: RunId) -> PathBuf {
        self.folder.join(format!("{task}.form"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planted;

    #[test]
    fn a_link_or_a_pipe_in_the_place_of_a_form_is_neither_followed_nor_waited_for() {
        let home = tempfile::tempdir().unwrap();
        let forms = Forms::at(home.path());
        std::fs::create_dir(home.path().join("mcp")).unwrap();
        let task: RunId = "run_1735460684_a1b2c3".parse().unwrap();
        let form = ReturnForm::ALL.into_iter().find(|it| *it != ReturnForm::default()).unwrap();
        forms.keep(task, form).unwrap();
        assert_eq!(forms.of(task), form);
        let victim = home.path().join("victim");
        std::fs::write(&victim, form.as_str()).unwrap();
        for plant in planted::ALL {
            plant(&forms.file(task), &victim);
            assert!(forms.keep(task, form).is_err());
            assert_eq!(forms.of(task), ReturnForm::default());
            assert_eq!(std::fs::read_to_string(&victim).unwrap(), form.as_str());
        }
    }
}
