//! Reads and lists the two top levels of a project, without ignored files.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;

use adjutant_core::numbers::grouped;
use adjutant_workspace::{Dir, DirEntry, FileKind, PathError};

use super::{MAX_OVERVIEW_ENTRIES, shown};
use crate::Masker;
use crate::ignore_rules::{IgnoreRules, IgnoreVerdict};

/// The most entries of the root that are read. The kernel takes up to 1 µs for each, and a start has no time for more.
pub(super) const MAX_IN_ROOT: usize = 600;

/// The most entries of one folder of the second level that are read.
const MAX_IN_FOLDER: usize = 200;

/// The most folders of the root that are read.
const MAX_FOLDERS: usize = 48;

/// The most names of one folder of the second level that are shown.
const MAX_NAMES_IN_FOLDER: usize = 20;

/// The top levels of a project.
pub(super) struct TopLevels {
    rules: IgnoreRules,
    /// The entries of the root, folders first. Ignored folders are left out as far as folders were read.
    top: Vec<DirEntry>,
    /// The content of the first folders of `top`.
    folders: Vec<FolderContent>,
    entries_read: usize,
    is_truncated: bool,
}

/// The entries of one folder that are not ignored.
#[derive(Default)]
struct FolderContent {
    entries: Vec<DirEntry>,
    is_truncated: bool,
}

impl TopLevels {
    pub(super) fn read(root: &Dir) -> Self {
        let listing = root.list(MAX_IN_ROOT).unwrap_or_default();
        let has = |name: &str| listing.entries.iter().any(|entry| entry.name == name);
        let mut rules = IgnoreRules::default();
        // A rule file may be among the entries that were not read.
        rules.enter(root, 0, &|name| listing.truncated || has(name));
        let mut levels = Self {
            rules,
            top: Vec::new(),
            folders: Vec::new(),
            entries_read: listing.entries.len(),
            is_truncated: listing.truncated,
        };
        levels.top = listing.entries;
        levels.top.retain(|entry| entry.name != ".git");
        levels.top.sort_by_key(|entry| entry.kind != FileKind::Directory);
        levels.read_folders(root);
        levels
    }

    /// Reads the first folders of the root, as long as entries may be read, and drops those that are not shown.
    fn read_folders(&mut self, root: &Dir) {
        let mut rest = std::mem::take(&mut self.top).into_iter();
        while self.folders.len() < MAX_FOLDERS && self.left() > 0 {
            let Some(entry) = rest.next() else { break };
            if entry.kind != FileKind::Directory {
                self.top.push(entry);
                break;
            }
            let Some(opened) = self.open_shown(root, &entry) else { continue };
            let path = entry.name.as_bytes();
            // A folder that cannot be read is shown without its content.
            let mut content = FolderContent::default();
            if let Ok(dir) = opened
                && let Ok(listing) = dir.list(self.left().min(MAX_IN_FOLDER))
            {
                self.entries_read += listing.entries.len();
                content.entries = self.wanted_in(&dir, path, listing.entries);
                content.is_truncated = listing.truncated;
            }
            self.folders.push(content);
            self.top.push(entry);
        }
        self.top.extend(rest);
    }

    /// Returns how many entries may still be read.
    const fn left(&self) -> usize {
        MAX_OVERVIEW_ENTRIES.saturating_sub(self.entries_read)
    }

    /// Opens a folder of the root; `None` if it is ignored, or protected and therefore treated as missing.
    fn open_shown(&self, root: &Dir, folder: &DirEntry) -> Option<Result<Dir, PathError>> {
        if self.is_ignored(folder.name.as_bytes(), folder) {
            return None;
        }
        Some(root.open_dir(&folder.name)).filter(|it| !matches!(it, Err(PathError::Protected)))
    }

    fn wanted_in(&mut self, dir: &Dir, path: &[u8], mut entries: Vec<DirEntry>) -> Vec<DirEntry> {
        let before = self.rules.len();
        let has = |name: &str| entries.iter().any(|entry| entry.name == name);
        self.rules.enter(dir, path.len(), &has);
        entries.retain(|entry| {
            entry.name != ".git"
                && !self.is_ignored(&[path, b"/", entry.name.as_bytes()].concat(), entry)
        });
        self.rules.truncate(before);
        entries.sort_by_key(|entry| entry.kind != FileKind::Directory);
        entries
    }

    fn is_ignored(&self, path: &[u8], entry: &DirEntry) -> bool {
        let is_folder = entry.kind == FileKind::Directory;
        self.rules.verdict(path, is_folder) == IgnoreVerdict::Ignored
    }

    /// Returns whether `root`, the directory that was read, has a file of this name.
    pub(super) fn has(&self, root: &Dir, name: &str) -> bool {
        let is_read = self.top.iter().any(|entry| entry.name == name);
        is_read || (self.is_truncated && root.open_file(OsStr::new(name)).is_ok())
    }

    /// Returns the names of all entries that were read and are not ignored folders or below them.
    pub(super) fn names(&self) -> impl Iterator<Item = &OsStr> {
        let below = self.folders.iter().flat_map(|folder| &folder.entries);
        self.top.iter().chain(below).map(|entry| entry.name.as_os_str())
    }

    pub(super) const fn entries_read(&self) -> usize {
        self.entries_read
    }

    /// Adds the list of names to `text`, in at most `max_bytes`. `root` is the directory that was read.
    pub(super) fn render(&self, root: &Dir, masker: &Masker, max_bytes: usize, text: &mut String) {
        text.push_str("\nfiles, without ignored ones:");
        let end = text.len() + max_bytes.saturating_sub(80);
        let mut left_out = 0;
        for (place, entry) in self.top.iter().enumerate() {
            let is_folder = entry.kind == FileKind::Directory;
            if left_out > 0 {
                left_out += 1;
                continue;
            }
            let is_shown = match self.folders.get(place) {
                Some(_) => true,
                None if is_folder => self.open_shown(root, entry).is_some(),
                None => !self.is_ignored(entry.name.as_bytes(), entry),
            };
            if !is_shown {
                continue;
            }
            let mut line = format!("\n{}", name_of(entry, masker));
            if let Some(folder) = self.folders.get(place) {
                folder.render(masker, &mut line);
            }
            if text.len() + line.len() > end {
                left_out += 1;
            } else {
                text.push_str(&line);
            }
        }
        let more = grouped(left_out);
        let _ = match (self.is_truncated, left_out) {
            (true, _) => write!(
                text,
                "\n(there are more: only {} of them were read)",
                grouped(MAX_IN_ROOT as u64)
            ),
            (false, 0) => Ok(()),
            (false, _) => write!(text, "\n({more} more)"),
        };
    }
}

impl FolderContent {
    fn render(&self, masker: &Masker, line: &mut String) {
        if self.entries.is_empty() {
            return;
        }
        let shown = self.entries.iter().take(MAX_NAMES_IN_FOLDER);
        let mut names: Vec<String> = shown.map(|entry| name_of(entry, masker)).collect();
        let more = self.entries.len().saturating_sub(MAX_NAMES_IN_FOLDER);
        if self.is_truncated {
            names.push("and more".to_owned());
        } else if more > 0 {
            names.push(format!("{more} more"));
        }
        let _ = write!(line, ": {}", names.join(", "));
    }
}

fn name_of(entry: &DirEntry, masker: &Masker) -> String {
    let slash = if entry.kind == FileKind::Directory { "/" } else { "" };
    format!("{}{slash}", shown(&entry.name.to_string_lossy(), masker))
}
