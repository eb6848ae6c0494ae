//! Checking that `.git` is the git directory of the directory it lies in.
//!
//! A directory from an unknown source may contain any `.git`. It must not lead to the repository of another
//! directory, nor to files that are not a repository.
//!
//! Start at [`git_dir_of`]. Invariant: a git directory outside the directory must refer back to it, and none of its
//! essential parts may be a link.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use super::GitError;
use super::repository::path_of;
use super::run::Git;

/// The most bytes of a `.git` file: a word and a path.
const POINTER_BYTES: u64 = 8 * 1024;

/// Files that git or this crate reads from a git directory.
const PLAIN_FILES: [&str; 8] = [
    "config",
    "config.worktree",
    "index",
    "info/exclude",
    "objects/info/alternates",
    "packed-refs",
    "shallow",
    "commondir",
];

/// Finds the git directory of a directory; `None` if it has no `.git`.
pub(super) fn git_dir_of(git: &Git, folder: &Path) -> Result<Option<PathBuf>, GitError> {
    let path = folder.join(".git");
    let untrusted = |reason| Err(GitError::Untrusted { path: path.clone(), reason });
    let Ok(found) = fs::symlink_metadata(&path) else { return Ok(None) };
    if found.is_symlink() {
        return untrusted("is a symbolic link; expected a directory or a regular file");
    }
    if found.is_dir() {
        if !is_git_dir(&path) {
            return Ok(None);
        }
        if exists(&path.join("commondir")) {
            return untrusted("is a directory whose `commondir` refers to another git directory");
        }
        return check_essential_parts(path).map(Some);
    }
    if !found.is_file() {
        return untrusted("is neither a directory nor a regular file");
    }
    let Some(target) = read_pointer(&path, "gitdir: ") else {
        return untrusted("is a file that does not name a git directory");
    };
    let Ok(target) = fs::canonicalize(folder.join(target)) else {
        return untrusted("names a git directory that does not exist");
    };
    if !is_git_dir(&target) {
        return untrusted("names a directory that is not a git directory");
    }
    if belongs_to(git, &target, folder, &path)? {
        check_essential_parts(target).map(Some)
    } else {
        Err(GitError::Foreign { path, git_dir: target })
    }
}

/// Says whether a git directory elsewhere belongs to `folder`.
fn belongs_to(git: &Git, git_dir: &Path, folder: &Path, pointer: &Path) -> Result<bool, GitError> {
    if exists(&git_dir.join("commondir")) {
        // A linked work tree: its git directory lies in the common directory and names the `.git` file. Only git
        // can have put it there.
        let all = common_dir_of(git_dir)?.join("worktrees");
        let back = read_pointer(&git_dir.join("gitdir"), "");
        let back = back.and_then(|back| fs::canonicalize(git_dir.join(back)).ok());
        return Ok(git_dir.parent() == Some(&all) && back.as_deref() == Some(pointer));
    }
    let named = work_tree_of(git, git_dir)?;
    let named = named.and_then(|named| fs::canonicalize(git_dir.join(named)).ok());
    Ok(named.as_deref() == Some(folder))
}

/// Returns the work tree that a git directory's configuration names, as for submodules.
fn work_tree_of(git: &Git, git_dir: &Path) -> Result<Option<PathBuf>, GitError> {
    let config = git_dir.join("config");
    if !fs::symlink_metadata(&config).is_ok_and(|found| found.is_file()) {
        return Ok(None);
    }
    let call = git.call("config").env("GIT_DIR", "/dev/null").folder("/").arg("--file");
    let call = call.arg(config).args(["--no-includes", "-z", "--get", "core.worktree"]);
    let output = call.accept(&[0, 1]).run()?;
    let value = output.bytes.strip_suffix(b"\0").filter(|value| !value.is_empty());
    Ok(value.map(path_of))
}

/// Refuses a git directory in which essential directories or files have the wrong type.
fn check_essential_parts(git_dir: PathBuf) -> Result<PathBuf, GitError> {
    let untrusted = |path: PathBuf, reason| Err(GitError::Untrusted { path, reason });
    let common = common_dir_of(&git_dir)?;
    if !has_essential_parts(&common) {
        let reason = "is a git directory whose HEAD, objects or refs is missing, a link or of the wrong type";
        return untrusted(common, reason);
    }
    for folder in [&git_dir, &common] {
        if !fs::symlink_metadata(folder.join("HEAD")).is_ok_and(|found| found.is_file()) {
            return untrusted(folder.join("HEAD"), "is not a regular file");
        }
        for name in PLAIN_FILES {
            // Reading a pipe would block. Links to files are allowed, because some people use them.
            let path = folder.join(name);
            if exists(&path) && !path.is_file() {
                return untrusted(path, "is not a regular file");
            }
        }
    }
    Ok(git_dir)
}

/// Says whether a common directory has its essential parts, and none is a link.
pub(crate) fn has_essential_parts(common: &Path) -> bool {
    let kind = |name: &str| fs::symlink_metadata(common.join(name)).map(|found| found.file_type());
    kind("HEAD").is_ok_and(|kind| kind.is_file())
        && kind("objects").is_ok_and(|kind| kind.is_dir())
        && kind("refs").is_ok_and(|kind| kind.is_dir())
}

fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

fn is_git_dir(path: &Path) -> bool {
    let shared = path.join("commondir").is_file();
    exists(&path.join("HEAD"))
        && (shared || (path.join("objects").is_dir() && path.join("refs").is_dir()))
}

/// Returns the common directory, which all work trees share.
pub(super) fn common_dir_of(git_dir: &Path) -> Result<PathBuf, GitError> {
    let Some(common) = read_pointer(&git_dir.join("commondir"), "") else {
        return Ok(git_dir.to_owned());
    };
    let found = fs::canonicalize(git_dir.join(common));
    let found = found.map_err(GitError::io("opening the common git directory"))?;
    if is_git_dir(&found) {
        Ok(found)
    } else {
        let reason = "names a common directory that is not a git directory";
        Err(GitError::Untrusted { path: git_dir.to_owned(), reason })
    }
}

/// Reads the path after `prefix` from a file with one line.
pub(crate) fn read_pointer(path: &Path, prefix: &str) -> Option<PathBuf> {
    let mut bytes = Vec::new();
    fs::symlink_metadata(path).ok().filter(fs::Metadata::is_file)?;
    open_regular_file(path).ok()?.take(POINTER_BYTES).read_to_end(&mut bytes).ok()?;
    let rest = bytes.strip_prefix(prefix.as_bytes())?;
    let end = rest.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r')).map_or(0, |at| at + 1);
    let name = rest.get(..end).filter(|name| !name.is_empty())?;
    Some(PathBuf::from(std::ffi::OsString::from_vec(name.to_vec())))
}

/// Opens a regular file for reading without blocking; a pipe is refused.
pub(crate) fn open_regular_file(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"))
    }
}
