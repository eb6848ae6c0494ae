//! Relative paths as models write them.
//!
//! A [`RelPath`] is only well formed, not safe: it may contain `..` and pass through symbolic links. The kernel
//! checks that it stays beneath the root when it is opened.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use crate::PathError;

/// A path relative to a root; empty means the root itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RelPath(PathBuf);

impl RelPath {
    /// Accepts a relative path and drops `.` and repeated slashes.
    ///
    /// # Errors
    ///
    /// [`PathError::Outside`] for an absolute path, [`PathError::Invalid`] for a NUL byte.
    pub fn new(path: impl AsRef<Path>) -> Result<Self, PathError> {
        let path = path.as_ref();
        if path.as_os_str().as_bytes().contains(&0) {
            return Err(PathError::Invalid);
        }
        let mut clean = OsString::with_capacity(path.as_os_str().len());
        for component in path.components() {
            match component {
                Component::Prefix(_) | Component::RootDir => return Err(PathError::Outside),
                Component::CurDir => {}
                Component::ParentDir | Component::Normal(_) => {
                    if !clean.is_empty() {
                        clean.push("/");
                    }
                    clean.push(component);
                }
            }
        }
        Ok(Self(clean.into()))
    }

    /// Returns the path.
    #[must_use]
    pub fn as_path(&self) -> &Path {
        &self.0
    }

    /// Says whether this is the root itself.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.0.as_os_str().is_empty()
    }

    /// Returns the path to pass to the kernel, which refuses an empty one: `.` for the root.
    pub(crate) fn to_open(&self) -> &Path {
        if self.is_root() { Path::new(".") } else { &self.0 }
    }
}

/// Resolves `.` and `..` in a relative path as text; `None` for a path that leads out of the directory it is relative to,
/// or that is absolute.
#[must_use]
pub fn without_dots(path: &Path) -> Option<PathBuf> {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => plain = plain.parent()?.to_owned(),
            Component::Normal(name) => plain.push(name),
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(plain)
}
