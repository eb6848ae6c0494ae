//! The requested form of a task's result, saved in the run's directory because a client that polls a task
//! sends only its id.

use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use adjutant_core::schema::ReturnFormat;
use adjutant_engine::{open_private, open_private_existing};

/// The file name in the run's directory.
const FILE: &str = "form";

/// Upper bound for the file's size; longer than the name of any form.
const MAX_BYTES: u64 = 64;

/// Saves the form of a task, unless it is the default.
pub(crate) fn save(folder: &Path, form: ReturnFormat) -> io::Result<()> {
    if form == ReturnFormat::default() {
        return Ok(());
    }
    let mut file = open_private(&folder.join(FILE))?;
    file.set_len(0)?;
    file.write_all(form.as_str().as_bytes())
}

/// Returns the saved form of a task, or the default.
pub(crate) fn load(folder: &Path) -> ReturnFormat {
    let kept = read(&folder.join(FILE)).or_else(|| read(&of_version_0_1(folder)?));
    let found = ReturnFormat::ALL.into_iter().find(|form| Some(form.as_str()) == kept.as_deref());
    found.unwrap_or_default()
}

/// Reads a form. A file that cannot be read, a link or a pipe says nothing.
fn read(path: &Path) -> Option<String> {
    let mut kept = String::new();
    open_private_existing(path).ok()?.take(MAX_BYTES).read_to_string(&mut kept).ok()?;
    Some(kept)
}

/// Returns where version 0.1 kept the form of the task with this folder.
fn of_version_0_1(folder: &Path) -> Option<PathBuf> {
    let (runs, run) = (folder.parent()?, folder.file_name()?.to_str()?);
    Some(runs.parent()?.join("mcp").join(format!("{run}.form")))
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
        let form = ReturnFormat::ALL.into_iter().find(|it| *it != ReturnFormat::default()).unwrap();
        save(&folder, form).unwrap();
        assert_eq!(load(&folder), form);
        let victim = home.path().join("victim");
        std::fs::write(&victim, form.as_str()).unwrap();
        for plant in planted_files::ALL {
            plant(&folder.join(FILE), &victim);
            assert!(save(&folder, form).is_err());
            assert_eq!(load(&folder), ReturnFormat::default());
            assert_eq!(std::fs::read_to_string(&victim).unwrap(), form.as_str());
        }
    }

    #[test]
    fn the_form_of_a_task_that_version_0_1_began_is_known() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("runs/run_1735460684_abcdef");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::create_dir(home.path().join("mcp")).unwrap();
        let form = ReturnFormat::ALL.into_iter().find(|it| *it != ReturnFormat::default()).unwrap();
        std::fs::write(home.path().join("mcp/run_1735460684_abcdef.form"), form.as_str()).unwrap();
        assert_eq!(load(&folder), form);
    }
}
