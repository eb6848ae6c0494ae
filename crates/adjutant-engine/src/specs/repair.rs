//! Finishes a change of the specs folder that was interrupted: for each file, renames the new version into place, or
//! keeps it beside the file if a person has edited that since.

use std::ffi::OsStr;

use adjutant_core::fingerprint::Fingerprint;
use adjutant_workspace::Overwrite;

use super::error::SpecsError;
use super::file_pair::{FILES, FileReplacement, PendingRecord, discard};
use super::folder::SpecsFolder;

/// The record of a change that must be finished.
pub(super) const PENDING: &str = ".adjutant-pending.json";

/// The record's temporary name.
pub(super) const PENDING_NEW: &str = ".adjutant-pending.json.new";

/// The most `.kept-N` copies of one file; a person has to remove some then.
const MAX_KEPT: u32 = 1_000;

/// What remains to be done for one file of an interrupted change.
enum FileRepair {
    /// The new file is in place.
    Nothing,
    /// The new file must be renamed into place.
    Settle(Overwrite),
    /// The file was edited since; the new version is kept beside it.
    Conflict,
}

/// Finishes the change of the record, or removes temporary files if there is no record. Returns messages about
/// what it did.
///
/// The folder must be locked exclusively.
pub(super) fn repair(folder: &SpecsFolder) -> Result<Vec<String>, SpecsError> {
    let Some(text) = folder.read_text(PENDING)? else {
        discard(folder);
        return Ok(Vec::new());
    };
    let bad = || SpecsError::BadRecord { path: folder.relative_path(PENDING) };
    let record: PendingRecord = serde_json::from_str(&text).map_err(|_| bad())?;
    if record.v != 1 {
        return Err(bad());
    }
    let mut plan = Vec::new();
    for file in &record.files {
        // Only known names are accepted, so a forged record cannot make us write elsewhere.
        let (name, temp) =
            FILES.into_iter().find(|(name, _)| *name == file.name).ok_or_else(bad)?;
        plan.push((name, temp, repair_one(folder, name, temp, file)?));
    }
    let said = if plan.iter().any(|(_, _, left)| matches!(left, FileRepair::Conflict)) {
        keep(folder, &plan)?
    } else {
        finish(folder, &plan)?
    };
    folder.dir.sync().map_err(|error| folder.file_error("sync", "", error))?;
    let gone = folder.place(PENDING)?.unlink();
    gone.map_err(|error| folder.file_error("remove", PENDING, error))?;
    discard(folder);
    Ok(said)
}

fn repair_one(
    folder: &SpecsFolder,
    name: &str,
    temp: &str,
    file: &FileReplacement,
) -> Result<FileRepair, SpecsError> {
    let print = |text: Option<String>| text.map(|text| Fingerprint::of_content(text.as_bytes()));
    let Some(new) = print(folder.read_text(temp)?) else { return Ok(FileRepair::Nothing) };
    let current = print(folder.read_text(name)?);
    Ok(if current == Some(file.after) {
        FileRepair::Nothing
    } else if current == file.before && new == file.after {
        FileRepair::Settle(if current.is_some() { Overwrite::Allowed } else { Overwrite::Refused })
    } else {
        FileRepair::Conflict
    })
}

fn finish(
    folder: &SpecsFolder,
    plan: &[(&str, &str, FileRepair)],
) -> Result<Vec<String>, SpecsError> {
    let mut said = Vec::new();
    for (name, temp, left) in plan {
        if let FileRepair::Settle(over) = left {
            let done = folder.place(name)?.move_into_place(OsStr::new(temp), *over);
            done.map_err(|error| folder.file_error("replace", name, error))?;
            said.push((*name).to_owned());
        }
    }
    if said.is_empty() {
        return Ok(said);
    }
    Ok(vec![format!("finished an interrupted change: {} in {}", said.join(" and "), folder.path)])
}

/// Leaves the edited files alone and keeps the interrupted change in `.kept-N` copies.
fn keep(
    folder: &SpecsFolder,
    plan: &[(&str, &str, FileRepair)],
) -> Result<Vec<String>, SpecsError> {
    let mut said = Vec::new();
    for (name, temp, left) in plan {
        if matches!(left, FileRepair::Nothing) {
            continue;
        }
        let copy = free_name(folder, name)?;
        let done = folder.place(&copy)?.move_into_place(OsStr::new(temp), Overwrite::Refused);
        done.map_err(|error| folder.file_error("keep", &copy, error))?;
        said.push(format!(
            "a change was interrupted and the files were edited since: {} stays as it is, the change is kept in {}",
            folder.relative_path(name),
            folder.relative_path(&copy)
        ));
    }
    Ok(said)
}

fn free_name(folder: &SpecsFolder, name: &str) -> Result<String, SpecsError> {
    for nth in 1..MAX_KEPT {
        let copy = format!("{name}.kept-{nth}");
        if !folder.has(&copy)? {
            return Ok(copy);
        }
    }
    Err(SpecsError::BadRecord { path: folder.relative_path(PENDING) })
}
