//! Compares, writes and renames the single files of a [`ReplacePlan`].
//!
//! Invariant: a file is written under a temporary name beside its path, and only renamed into place.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags, fchmod, openat, renameat, symlinkat, unlinkat};
use rustix::io::Errno;

use super::{FileState, ReplacePlan, ReplaceStep, StepError, StepSide};
use crate::git::{OpenedContent, content_at, path_of};
use crate::kernel::{self, SymlinkPolicy};
use crate::trees::export;
use crate::{MissingParents, PathError, RelPath, Root};

impl ReplacePlan {
    pub(super) fn matches(
        &self,
        root: &Root,
        number: usize,
        step: &ReplaceStep,
        when: StepSide,
    ) -> Result<bool, StepError> {
        let at_path = |error| StepError { path: step.path.clone(), source: PathError::Io(error) };
        let image = || fs::read(self.image(number, when)).map_err(at_path);
        // An unreadable file is not what the plan expects.
        let Some(found) = open_content(root, &step.path)? else { return Ok(false) };
        match (found, step.state(when)) {
            (OpenedContent::Nothing, FileState::Nothing) => Ok(true),
            (OpenedContent::Link(target), FileState::Link) => Ok(target == image()?),
            (OpenedContent::File { mut file, executable, .. }, FileState::File(mode)) => {
                let mut bytes = Vec::new();
                file.read_to_end(&mut bytes).map_err(at_path)?;
                Ok(executable == (mode & 0o100 != 0) && bytes == image()?)
            }
            (OpenedContent::Nothing | OpenedContent::Link(_) | OpenedContent::File { .. }, _) => {
                Ok(false)
            }
        }
    }

    /// Removes the path if it is to be absent; otherwise writes the content to its temporary file.
    pub(super) fn prepare(
        &self,
        root: &Root,
        number: usize,
        step: &ReplaceStep,
        when: StepSide,
    ) -> Result<(), StepError> {
        let at_path = |source| StepError { path: step.path.clone(), source };
        let thing = step.state(when);
        if *thing == FileState::Nothing {
            return export::remove_with_empty_parents(root, &step.path).map_err(at_path);
        }
        let folder = folder_of(root, step)?;
        let bytes = fs::read(self.image(number, when)).map_err(PathError::Io).map_err(at_path)?;
        create_temp(&folder, &self.temp(number), thing, &bytes)
            .map_err(PathError::from_errno)
            .map_err(at_path)
    }

    /// Renames the temporary file to its path.
    pub(super) fn move_into_place(
        &self,
        root: &Root,
        number: usize,
        step: &ReplaceStep,
        when: StepSide,
    ) -> Result<(), StepError> {
        let at_path = |source| StepError { path: step.path.clone(), source };
        if *step.state(when) == FileState::Nothing {
            return Ok(());
        }
        let folder = folder_of(root, step)?;
        let name = step.path.file_name().ok_or(PathError::Outside).map_err(at_path)?;
        renameat(&folder, self.temp(number), &folder, name)
            .map_err(PathError::from_errno)
            .map_err(at_path)
    }
}

fn folder_of(root: &Root, step: &ReplaceStep) -> Result<OwnedFd, StepError> {
    let at_path = |source| StepError { path: step.path.clone(), source };
    let folder = root.parent_dir_of(&step.path, MissingParents::Create).map_err(at_path)?;
    folder.ok_or(PathError::NotFound).map_err(at_path)
}

/// Opens what is at a path; `None` if it cannot be read.
fn open_content(root: &Root, path: &Path) -> Result<Option<OpenedContent>, StepError> {
    let at_path = |source| StepError { path: path.to_owned(), source };
    let found = RelPath::new(path).and_then(|path| content_at(root, &path)).map_err(at_path)?;
    Ok(found.ok())
}

/// Says whether a path is absent and all its existing parents are directories.
pub(super) fn is_absent(root: &Root, path: &Path) -> Result<bool, StepError> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW;
    match kernel::open(root.handle(), path, flags, SymlinkPolicy::Refuse) {
        Ok(_) | Err(Errno::NOTDIR | Errno::LOOP) => Ok(false),
        Err(Errno::NOENT) => Ok(true),
        Err(errno) => {
            Err(StepError { path: path.to_owned(), source: PathError::from_errno(errno) })
        }
    }
}

fn create_temp(
    folder: &OwnedFd,
    temp: &OsString,
    thing: &FileState,
    bytes: &[u8],
) -> Result<(), Errno> {
    match unlinkat(folder, temp, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(errno) => return Err(errno),
    }
    let FileState::File(mode) = thing else {
        return symlinkat(path_of(bytes), folder.as_fd(), temp);
    };
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(openat(folder, temp, flags, Mode::from_raw_mode(0o600))?);
    file.write_all(bytes).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    fchmod(&file, Mode::from_raw_mode(mode & 0o777))
}
