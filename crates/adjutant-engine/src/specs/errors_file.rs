//! `errors.json` in the specs folder: the errors of runs, for people and for other tools.
//!
//! The file is derived from the journals, so an entry that is missing here loses no data.

use std::ffi::OsStr;

use adjutant_formats::task::merge_errors;
use adjutant_workspace::{LockMode, Overwrite};
use serde_json::Value;

use super::folder::SpecsFolder;
use super::{ATTEMPTS, Specs, SpecsError};

const ERRORS: &str = "errors.json";
const ERRORS_NEW: &str = ".errors.json.adjutant-new";

/// What to do if there is no specs folder yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingFolder {
    /// Create it.
    Create,
    /// Write nothing.
    Leave,
}

impl Specs {
    /// Merges the errors of a run, each an object with an `id`, into `errors.json`. Returns its path relative to
    /// the project's root if it was written.
    ///
    /// Entries of other runs and unknown fields are kept byte for byte.
    ///
    /// # Errors
    ///
    /// If it cannot be read, parsed or written. It is unchanged then.
    pub fn keep_errors(
        &self,
        errors: &[Value],
        absent: MissingFolder,
    ) -> Result<Option<String>, SpecsError> {
        if errors.is_empty() {
            return Ok(None);
        }
        let folder = match SpecsFolder::find(&self.root)? {
            Some(folder) => folder,
            None if absent == MissingFolder::Create => SpecsFolder::create(&self.root)?,
            None => return Ok(None),
        };
        let _alone = folder.lock(LockMode::Exclusive)?;
        for _ in 0..ATTEMPTS {
            let old = folder.read_text(ERRORS)?;
            let new = merge_errors(old.as_deref(), errors).map_err(|damage| {
                SpecsError::NotErrors { path: folder.relative_path(ERRORS), damage }
            })?;
            if old.as_ref() == Some(&new) {
                return Ok(None);
            }
            folder.check_size(ERRORS, &new)?;
            if replace(&folder, old.as_deref(), &new)? {
                return Ok(Some(folder.relative_path(ERRORS)));
            }
        }
        Err(SpecsError::Overtaken { folder: folder.path })
    }
}

/// Replaces the file atomically if its content is still `old`. Returns whether it was.
fn replace(folder: &SpecsFolder, old: Option<&str>, new: &str) -> Result<bool, SpecsError> {
    let (place, temp) = (folder.place(ERRORS)?, OsStr::new(ERRORS_NEW));
    let failed = |error| folder.file_error("write", ERRORS, error);
    let mode = place.mode().map_err(failed)?;
    place.prepare(new.as_bytes(), mode, temp).map_err(failed)?;
    let is_same = place.has_content(old.map(str::as_bytes)).map_err(failed);
    let over = if old.is_some() { Overwrite::Allowed } else { Overwrite::Refused };
    let done = match is_same {
        Ok(true) => place
            .move_into_place(temp, over)
            .and_then(|()| place.sync())
            .map(|()| true)
            .map_err(failed),
        other => other,
    };
    if !matches!(done, Ok(true)) {
        // Best effort: the next writer removes it.
        let _ = place.remove_temp(temp);
    }
    done
}
