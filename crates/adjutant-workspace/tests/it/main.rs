//! Integration tests of `adjutant-workspace`.

#![expect(clippy::unwrap_used, reason = "a test that cannot build its tree has failed")]

mod dir;
mod dir_write;
mod escape;
mod file_target;
mod git;
mod git_dirs;
mod home;
mod long_lived;
mod overlay;
mod race;
mod root;
mod sandbox;
mod space;
mod speed;
mod toolchains;

use std::path::Path;

use adjutant_workspace::{PathError, RelPath, Root};
use tempfile::TempDir;

/// A root with a secret next to it that must not be reachable.
struct Tree {
    outer: TempDir,
    root: Root,
}

impl Tree {
    fn new() -> Self {
        let outer = TempDir::new().unwrap();
        std::fs::create_dir(outer.path().join("root")).unwrap();
        std::fs::write(outer.path().join("secret"), "outside").unwrap();
        let root = Root::open(outer.path().join("root")).unwrap();
        Self { outer, root }
    }

    fn path(&self, relative: &str) -> std::path::PathBuf {
        self.outer.path().join("root").join(relative)
    }

    fn write(&self, relative: &str, text: &str) {
        let path = self.path(relative);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn link(&self, target: impl AsRef<Path>, relative: &str) {
        std::os::unix::fs::symlink(target, self.path(relative)).unwrap();
    }

    /// Reads a file like a tool, or returns the error.
    fn read(&self, written: impl AsRef<Path>) -> String {
        let opened = self.root.relative(written).and_then(|path| self.root.open_file(&path));
        match opened {
            Ok(opened) => std::io::read_to_string(opened.file).unwrap(),
            Err(error) => word(&error),
        }
    }
}

fn word(error: &PathError) -> String {
    match error {
        PathError::NotRegular(kind) => format!("<{kind}>"),
        PathError::Outside
        | PathError::NotFound
        | PathError::NotDirectory
        | PathError::Loop
        | PathError::PermissionDenied
        | PathError::NameTooLong
        | PathError::Invalid
        | PathError::SymbolicLink
        | PathError::InGitDir
        | PathError::GitDirUnknown
        | PathError::Exists
        | PathError::ReadOnly
        | PathError::TooLarge { .. }
        | PathError::DiskFull
        | PathError::Unsupported
        | PathError::Protected
        | PathError::Io(_) => format!("<{error:?}>"),
    }
}

fn rel(path: &str) -> RelPath {
    RelPath::new(path).unwrap()
}
