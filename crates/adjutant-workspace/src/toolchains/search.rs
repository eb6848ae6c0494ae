//! Bounded, read-only access to the files that discovery looks at.
//!
//! Start at [`ToolchainSearch`]. Invariant: whatever is missing, unreadable, too large or of another kind than
//! expected counts as absent.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, OFlags, access};

/// What discovery may look at. The front end passes it in, because nothing below it reads the environment.
#[derive(Clone, Debug)]
pub struct ToolchainLookup {
    /// The user's home directory.
    pub home: Option<PathBuf>,
    /// The user's environment variables; only those in the table of toolchains are used.
    pub variables: BTreeMap<String, OsString>,
    /// The root of the system's directories: `/`, or another directory in tests.
    pub system_root: PathBuf,
}

/// The largest text file that is read as a whole.
const MAX_TEXT_BYTES: u64 = 64 * 1024;

/// The most entries of a directory. A directory of versions with more is not one.
const MAX_ENTRIES: usize = 2_000;

/// The most directories of `PATH` that are looked at.
const MAX_PATH_DIRECTORIES: usize = 200;

/// The most links that are followed one by one.
const MAX_LINKS: usize = 16;

/// The search for toolchains: the lookup, and what is computed from it once.
pub(super) struct ToolchainSearch<'lookup> {
    pub(super) lookup: &'lookup ToolchainLookup,
    /// The home directory as given, and the same without links.
    home: Option<(PathBuf, PathBuf)>,
    /// The canonical directories of the user's `PATH`, in order.
    path: Vec<PathBuf>,
    user: u32,
}

impl<'lookup> ToolchainSearch<'lookup> {
    pub(super) fn new(lookup: &'lookup ToolchainLookup) -> Self {
        let home = lookup.home.clone().filter(|home| home.is_absolute());
        let home = home.and_then(|home| home.canonicalize().ok().map(|real| (home, real)));
        let path = lookup.variables.get("PATH").map(std::env::split_paths).into_iter().flatten();
        let path = path.take(MAX_PATH_DIRECTORIES).filter(|it| it.is_absolute());
        let path = path.filter_map(|it| it.canonicalize().ok()).collect();
        Self { lookup, home, path, user: rustix::process::geteuid().as_raw() }
    }

    /// Returns the home directory as the environment names it.
    pub(super) fn home(&self) -> Option<&Path> {
        self.home.as_ref().map(|(given, _)| given.as_path())
    }

    pub(super) fn system(&self, below: &str) -> PathBuf {
        self.lookup.system_root.join(below)
    }

    /// Returns the canonical directories of the user's `PATH`.
    pub(super) fn path(&self) -> &[PathBuf] {
        &self.path
    }

    pub(super) fn variable(&self, name: &str) -> Option<&OsString> {
        self.lookup.variables.get(name).filter(|value| !value.is_empty())
    }

    /// Returns a directory without links, if commands may see it: it is readable, and neither `/`, nor the home
    /// directory, nor a parent of it.
    pub(super) fn directory(&self, path: &Path) -> Option<PathBuf> {
        if !path.is_absolute() {
            return None;
        }
        let real = path.canonicalize().ok().filter(|real| real.is_dir())?;
        let holds_home = |(given, home): &(PathBuf, PathBuf)| {
            given.starts_with(&real) || home.starts_with(&real)
        };
        let is_wide = real.parent().is_none() || self.home.as_ref().is_some_and(holds_home);
        let is_special = ["/proc", "/dev", "/sys"].iter().any(|it| real.starts_with(it));
        let is_readable = access(&real, Access::READ_OK | Access::EXEC_OK).is_ok();
        (!is_wide && !is_special && is_readable).then_some(real)
    }

    /// Like [`Self::directory`], for what commands will see: not a directory that many programs share, where they keep
    /// credentials and other data.
    pub(super) fn shown_directory(&self, path: &Path) -> Option<PathBuf> {
        const SHARED: [&str; 6] =
            [".local/share", ".local/state", ".config", ".cache", ".ssh", ".gnupg"];
        let is_shared = |real: &Path| {
            let homes = self.home.iter().flat_map(|(given, home)| [given, home]);
            homes.flat_map(|home| SHARED.map(|it| home.join(it))).any(|it| it.starts_with(real))
        };
        self.directory(path).filter(|real| !is_shared(real))
    }

    /// Like [`Self::directory`], for a path from the environment: the directory must belong to the user or to root.
    pub(super) fn named_directory(&self, path: &Path) -> Option<PathBuf> {
        let owner = |real: &Path| real.metadata().ok().map(|it| it.uid());
        self.directory(path).filter(|real| owner(real).is_some_and(|it| it == 0 || it == self.user))
    }

    /// Returns whether every sandbox shows this directory anyway.
    pub(super) fn is_system(&self, real: &Path) -> bool {
        let root = self.lookup.system_root.canonicalize();
        let root = root.as_ref().unwrap_or(&self.lookup.system_root);
        let shown = ["usr", "bin", "sbin", "lib", "lib32", "lib64", "nix/store", "gnu/store"];
        shown.iter().any(|it| real.starts_with(root.join(it)))
    }

    /// Returns the names in a directory, sorted; nothing if there are too many.
    pub(super) fn names(&self, directory: &Path) -> Vec<String> {
        let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
        let entries = entries.take(MAX_ENTRIES + 1).filter_map(Result::ok);
        let mut names: Vec<String> =
            entries.filter_map(|it| it.file_name().into_string().ok()).collect();
        if names.len() > MAX_ENTRIES {
            return Vec::new();
        }
        names.sort();
        names
    }

    /// Returns the text of a small file.
    pub(super) fn text(&self, path: &Path) -> Option<String> {
        bounded_text(path, MAX_TEXT_BYTES)
    }

    /// Returns a string of a small JSON file.
    pub(super) fn json(&self, path: &Path) -> Option<serde_json::Value> {
        serde_json::from_str(&self.text(path)?).ok()
    }

    /// Returns whether this is a program, itself or behind links.
    pub(super) fn is_program(&self, path: &Path) -> bool {
        path.metadata().is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
    }

    /// Returns the paths of a link, one after the other, ending at the file itself. Empty if a link is dangling.
    ///
    /// Absolute links lead to paths below the system's root, which makes tests possible.
    pub(super) fn link_chain(&self, path: &Path) -> Vec<PathBuf> {
        let mut chain = vec![path.to_owned()];
        while chain.len() <= MAX_LINKS {
            let Some(last) = chain.last() else { break };
            let Ok(target) = last.read_link() else {
                return if last.exists() { chain } else { Vec::new() };
            };
            let next = match target.strip_prefix("/") {
                Ok(absolute) => self.lookup.system_root.join(absolute),
                Err(_) => last.parent().unwrap_or(Path::new("/")).join(target),
            };
            chain.push(next);
        }
        Vec::new()
    }
}

/// Reads a text file of at most `max_bytes`. A larger file, and a pipe or device, counts as absent.
pub(super) fn bounded_text(path: &Path, max_bytes: u64) -> Option<String> {
    // Opening a pipe would block without this.
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).ok()?;
    let file = File::options().read(true).custom_flags(flags).open(path).ok()?;
    let metadata = file.metadata().ok()?;
    if !metadata.is_file() || metadata.len() > max_bytes {
        return None;
    }
    let mut text = String::new();
    file.take(max_bytes).read_to_string(&mut text).ok()?;
    Some(text)
}
