//! Keeping the work of an agent apart from what the command writes that judges it.
//!
//! The state is committed before the command begins and noted beside the files; afterwards whatever
//! differs is put back. What the repository ignores stays, so that a build need not begin anew.
//!
//! Start at [`Workspace::claim`]. Invariant: while the note is there the work is what it names. Whoever
//! takes the workspace up or keeps its work puts back first, so a killed process changes nothing.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::SpaceError;
use super::take_in::leave_out;
use super::workspace::{STATE, Space, Workspace};
use super::workspaces::Shared;
use crate::git::Storing;
use crate::trees::{remove_journal, settle};
use crate::{ObjectId, PathError};

/// The note of the state that is judged. No child is called so: names do not begin with a dot.
const CLAIMED: &str = ".claimed";

/// The journal of what is being put back.
const BACK: &str = ".back";

impl Workspace {
    /// Notes the state as it is: until [`Workspace::put_back`] nothing that is written counts as work.
    ///
    /// # Errors
    ///
    /// Why it could not be noted; nothing has changed then.
    pub fn claim(&self, at: SystemTime) -> Result<(), SpaceError> {
        self.with(|shared, space| {
            put_back(shared, space, at)?;
            let state = space.import(STATE, at, Storing::Durable)?.0.made.commit;
            shared.hold(self.reference(), &state)?;
            note(&space.folder(), &state).map_err(SpaceError::io("noting what is judged"))
        })
    }

    /// Puts everything back that was written since [`Workspace::claim`] and is not ignored; returns the
    /// paths, in order.
    ///
    /// # Errors
    ///
    /// Why it could not be put back; the state that was noted still counts then.
    pub fn put_back(&self, at: SystemTime) -> Result<Vec<PathBuf>, SpaceError> {
        self.with(|shared, space| put_back(shared, space, at))
    }
}

/// Puts back what a command wrote, where one was at work.
pub(super) fn put_back(
    shared: &Shared,
    space: &mut Space,
    at: SystemTime,
) -> Result<Vec<PathBuf>, SpaceError> {
    let folder = space.folder();
    let Some(claimed) = noted(&folder)? else { return Ok(Vec::new()) };
    let repository = &shared.repository;
    let tree = repository.tree_of(&claimed)?;
    let journal = folder.join(BACK);
    let remove = || remove_journal(&journal).map_err(SpaceError::io("removing a journal"));
    // A killed process may have been at it; it is begun anew.
    let root = || space.root().map_err(|error| PathError::Io(io::Error::other(error)));
    if settle(&journal, root)?.is_some() {
        remove()?;
    }
    let mut paths = Vec::new();
    // Mostly nothing changed, and that is known without storing anything.
    if space.import(STATE, at, Storing::Nothing)?.0.made.tree != tree {
        let now = space.import(STATE, at, Storing::Durable)?.0.made.tree;
        let mut diff = repository.diff(&now, &tree)?;
        leave_out(&mut diff);
        let root = space.root()?;
        let in_the_way = repository.bring(&root, &diff, &journal, "")?;
        if let Some(first) = in_the_way.into_iter().next() {
            return Err(SpaceError::path(first.path)(PathError::Exists));
        }
        remove()?;
        paths = diff.entries.into_iter().map(|entry| entry.path).collect();
    }
    fs::remove_file(folder.join(CLAIMED)).map_err(SpaceError::io("forgetting what was judged"))?;
    Ok(paths)
}

fn noted(folder: &Path) -> Result<Option<ObjectId>, SpaceError> {
    let text = match fs::read_to_string(folder.join(CLAIMED)) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(SpaceError::io("reading what is judged")(error)),
    };
    ObjectId::parse(text.trim()).map(Some).ok_or(SpaceError::Record(text))
}

/// Notes a state, whole or not at all.
fn note(folder: &Path, state: &ObjectId) -> io::Result<()> {
    let next = folder.join(".claimed.next");
    let mut file = File::create(&next)?;
    file.write_all(format!("{state}\n").as_bytes())?;
    file.sync_all()?;
    fs::rename(next, folder.join(CLAIMED))?;
    File::open(folder)?.sync_all()
}
