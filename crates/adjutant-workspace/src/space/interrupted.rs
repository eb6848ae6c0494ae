//! Workspaces that an earlier version left in the middle of a verify command.
//!
//! That version ran the command in the agent's own workspace, after it had committed the work and written the
//! commit to a file beside the workspace, `.claimed`. Such a workspace contains files of the command, so the commit
//! becomes the result and the workspace is recreated from it.

use std::fs;
use std::io;
use std::path::Path;

use super::WorkspaceError;
use super::workspaces::WorkspacesContext;
use crate::{ObjectId, ResultRef};

/// The file beside a workspace that names the commit, and the first line of that file.
const CLAIMED: &str = ".claimed";
const FORMAT: &str = "adjutant claimed 1";

impl WorkspacesContext {
    /// Keeps the work of a workspace whose verify command was interrupted as its result, and returns that commit;
    /// `None` if no command was interrupted. `directory` contains the workspace and its records.
    pub(super) fn keep_interrupted(
        &self,
        reference: &ResultRef,
        directory: &Path,
    ) -> Result<Option<ObjectId>, WorkspaceError> {
        let Some(work) = work_before_verify(directory)? else { return Ok(None) };
        let kept = self.repository.result(reference)?;
        if kept.as_ref() != Some(&work) {
            self.repository.keep(reference, &work, kept.as_ref())?;
        }
        Ok(Some(work))
    }
}

/// Says whether a verify command of an earlier version was interrupted in a workspace.
pub(super) fn is_interrupted(directory: &Path) -> bool {
    directory.join(CLAIMED).symlink_metadata().is_ok()
}

/// Returns the commit that an earlier version made before it ran a verify command.
fn work_before_verify(directory: &Path) -> Result<Option<ObjectId>, WorkspaceError> {
    let path = directory.join(CLAIMED);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(WorkspaceError::io("reading the verified commit")(error)),
    };
    let mut lines = text.lines();
    let format = lines.next().filter(|line| *line == FORMAT);
    let commit = format.and(lines.next()).and_then(ObjectId::parse);
    let commit = commit.ok_or_else(|| WorkspaceError::Record(path.display().to_string()))?;
    // Work that is in no commit exists only in the workspace, which therefore stays.
    let is_work =
        |line: &str| line.starts_with("skipped large:") || line.starts_with("skipped unreadable ");
    if lines.any(is_work) {
        return Err(WorkspaceError::Unkept { path: directory.to_owned() });
    }
    Ok(Some(commit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_the_earlier_version_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let id = "a".repeat(40);
        let file = directory.path().join(CLAIMED);
        assert_eq!(work_before_verify(directory.path()).unwrap(), None);
        // The format of that version: skipped files, patterns and permissions follow the commit.
        let whole = format!(
            "{FORMAT}\n{id}\nskipped special 70697065\nodd - 70697065\n\
             pattern 63616368652f2e67697469676e6f7265 2a0a\nmode 700 \n"
        );
        fs::write(&file, &whole).unwrap();
        assert!(is_interrupted(directory.path()));
        assert_eq!(work_before_verify(directory.path()).unwrap(), ObjectId::parse(&id));
        fs::write(&file, format!("{whole}skipped large:629145600 626967\n")).unwrap();
        let read = work_before_verify(directory.path());
        assert!(matches!(read, Err(WorkspaceError::Unkept { .. })), "{read:?}");
        for text in ["", &id, &format!("{FORMAT}\n"), &format!("adjutant claimed 2\n{id}\n")] {
            fs::write(&file, text).unwrap();
            let read = work_before_verify(directory.path());
            assert!(matches!(read, Err(WorkspaceError::Record(_))), "{text}: {read:?}");
        }
    }
}
