//! The requested form of a task's result, saved in the run's directory because a client that polls a task
//! sends only its id.

use std::io::{self, Read as _, Write as _};
use std::path::Path;

use adjutant_core::schema::ReturnForm;
use adjutant_engine::{open_private, open_private_existing};

/// The file name in the run's directory.
const FILE: &str = "form";

/// Upper bound for the file's size; longer than the name of any form.
const MAX_BYTES: u64 = 64;

/// Saves the form of a task, unless it is the default.
pub(crate) fn save(folder: &Path, form: ReturnForm) -> io::Result<()> {
    if form == ReturnForm::default() {
        return Ok(());
    }
    let mut file = open_private(&folder.join(FILE))?;
    file.set_len(0)?;
    file.write_all(form.as_str().as_bytes())
}

/// Returns the saved form of a task, or the default.
pub(crate) fn load(folder: &Path) -> ReturnForm {
    let mut kept = String::new();
    // A file that is unreadable, a symlink or a FIFO counts as missing.
    if let Ok(file) = open_private_existing(&folder.join(FILE)) {
        let _ = file.take(MAX_BYTES).read_to_string(&mut kept);
    }
    let found = ReturnForm::ALL.into_iter().find(|form| form.as_str() == kept);
    found.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planted_files;

    #[test]
    fn a_form_file_that_is_a_symlink_or_fifo_is_neither_followed_nor_waited_for() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("run");
        std::fs::create_dir(&folder).unwrap();
        let form = ReturnForm::ALL.into_iter().find(|it| *it != ReturnForm::default()).unwrap();
        save(&folder, form).unwrap();
        assert_eq!(load(&folder), form);
        let victim = home.path().join("victim");
        std::fs::write(&victim, form.as_str()).unwrap();
        for plant in planted_files::ALL {
            plant(&folder.join(FILE), &victim);
            assert!(save(&folder, form).is_err());
            assert_eq!(load(&folder), ReturnForm::default());
            assert_eq!(std::fs::read_to_string(&victim).unwrap(), form.as_str());
        }
    }
}
