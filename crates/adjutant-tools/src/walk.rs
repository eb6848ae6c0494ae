//! Walks a directory tree relative to directory handles, without recursion.
//!
//! It opens each directory relative to its parent's handle, so renames cannot redirect it, and never follows
//! symbolic links. Names are sorted, and a directory comes before its content. It knows nothing about
//! patterns.
//!
//! Start at [`walk`]. Invariant: at most [`MAX_HANDLES`] directories are open at once.

use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};
use std::vec::IntoIter;

use adjutant_workspace::{Dir, DirEntry, FileKind, PathError, RelPath, Root};

use crate::ignore_rules::{IgnoreRules, IgnoreVerdict};
use crate::output::{count, remark};

/// The maximum number of open directories on the way down; older ones are reopened when the walk returns to
/// them.
const MAX_HANDLES: usize = 64;

/// The maximum length of a path, relative to the root.
///
/// Four times the limit of the kernel, which is never given the whole path at once. Longer paths could not be
/// used and would only make matching slow.
const MAX_PATH_BYTES: usize = 16 * 1024;

/// The options of a walk.
pub(crate) struct WalkOptions<'call> {
    /// Whether hidden files are visited.
    pub(crate) hidden: bool,
    /// The maximum number of directory entries to visit.
    pub(crate) max_entries: usize,
    /// Returns true when the walk must stop.
    pub(crate) should_stop: &'call dyn Fn() -> bool,
}

/// A file or directory that the walk visits.
pub(crate) struct WalkEntry<'walk> {
    /// Its parent directory.
    pub(crate) dir: &'walk Dir,
    /// Its name.
    pub(crate) name: &'walk OsStr,
    /// Its path from the root.
    pub(crate) path: &'walk Path,
    /// Its path from the start of the walk.
    pub(crate) below: &'walk Path,
    /// Its file type.
    pub(crate) kind: FileKind,
}

/// The counters of a walk and what it left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WalkSummary {
    /// The number of visited entries.
    pub(crate) entries: usize,
    /// Whether there were more entries than allowed.
    pub(crate) truncated: bool,
    /// Whether the caller stopped it.
    pub(crate) stopped: bool,
    /// The number of directories that could not be read.
    pub(crate) unreadable: usize,
    /// The number of paths that were too long.
    pub(crate) too_long: usize,
    /// The number of ignore files that could not be applied completely.
    pub(crate) broken_rules: usize,
}

impl WalkSummary {
    /// Adds remarks about what was left out.
    pub(crate) fn remarks(&self, text: &mut String) {
        if self.stopped {
            let seen = count(self.entries, "entry");
            let words = format!("stopped after {seen}: out of time or cancelled; narrow `path`");
            remark(text, words);
        }
        if self.truncated {
            let words =
                format!("incomplete: only {} entries were visited; narrow `path`", self.entries);
            remark(text, words);
        }
        if self.unreadable > 0 {
            remark(text, format!("{} could not be read", count(self.unreadable, "directory")));
        }
        if self.too_long > 0 {
            remark(text, format!("{} too long to follow", count(self.too_long, "path")));
        }
        if self.broken_rules > 0 {
            let files = count(self.broken_rules, "ignore file");
            remark(text, format!("{files} could not be applied in full"));
        }
    }
}

/// Visits everything below `start` until `visit` breaks.
pub(crate) fn walk(
    root: &Root,
    start: &RelPath,
    options: &WalkOptions<'_>,
    visit: &mut dyn FnMut(&WalkEntry<'_>) -> ControlFlow<()>,
) -> Result<WalkSummary, PathError> {
    let dir = root.open_dir(start)?;
    let mut walker = Walker {
        top: &dir,
        options,
        rules: rules_above(root, start),
        path: start.as_path().as_os_str().as_bytes().to_vec(),
        stack: Vec::new(),
        oldest_open: 0,
        summary: WalkSummary::default(),
    };
    walker.push(root.open_dir(start)?);
    while walker.step(visit).is_continue() {}
    walker.summary.broken_rules = walker.rules.broken;
    Ok(walker.summary)
}

/// Collects the ignore rules of the directories from the root to `start`, without `start` itself.
fn rules_above(root: &Root, start: &RelPath) -> IgnoreRules {
    let mut rules = IgnoreRules::default();
    let names = start.as_path().components();
    // A path with `..` does not tell which directories are above it, so their rules are not applied.
    if names.clone().any(|name| name == Component::ParentDir) {
        return rules;
    }
    let ancestors: Vec<_> = start.as_path().ancestors().skip(1).collect();
    for above in ancestors.into_iter().rev() {
        let dir = RelPath::new(above).and_then(|above| root.open_dir(&above));
        if let Ok(dir) = dir {
            rules.enter(&dir, above.as_os_str().len(), &|_| true);
        }
    }
    rules
}

struct Walker<'walk> {
    /// The start directory, from which closed directories are reopened.
    top: &'walk Dir,
    options: &'walk WalkOptions<'walk>,
    rules: IgnoreRules,
    /// The path from the root to the current entry.
    path: Vec<u8>,
    stack: Vec<WalkFrame>,
    /// The index of the first frame whose directory may still be open.
    oldest_open: usize,
    summary: WalkSummary,
}

/// A directory between the start and the current entry.
struct WalkFrame {
    /// `None` if it was closed to limit the number of open handles.
    dir: Option<Dir>,
    entries: IntoIter<DirEntry>,
    /// The length of its path from the root.
    path_len: usize,
    /// The number of rules before its own were added.
    rules_len: usize,
}

impl Walker<'_> {
    /// Visits one more entry, or returns to the parent directory.
    fn step(
        &mut self,
        visit: &mut dyn FnMut(&WalkEntry<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        if (self.options.should_stop)() {
            self.summary.stopped = true;
            return ControlFlow::Break(());
        }
        let Some(frame) = self.stack.last_mut() else { return ControlFlow::Break(()) };
        let Some(entry) = frame.entries.next() else {
            self.rules.truncate(frame.rules_len);
            self.stack.pop();
            self.oldest_open = self.oldest_open.min(self.stack.len().saturating_sub(1));
            return ControlFlow::Continue(());
        };
        self.path.truncate(frame.path_len);
        if !self.path.is_empty() {
            self.path.push(b'/');
        }
        self.path.extend_from_slice(entry.name.as_bytes());
        if self.is_skipped(&entry) || !self.reopen() {
            return ControlFlow::Continue(());
        }
        self.enter(&entry, visit)
    }

    fn is_skipped(&mut self, entry: &DirEntry) -> bool {
        if entry.name == ".git" {
            return true;
        }
        if self.path.len() > MAX_PATH_BYTES {
            self.summary.too_long += 1;
            return true;
        }
        match self.rules.verdict(&self.path, entry.kind == FileKind::Directory) {
            IgnoreVerdict::Ignored => true,
            IgnoreVerdict::Wanted => false,
            IgnoreVerdict::Unmentioned => {
                !self.options.hidden && entry.name.as_bytes().starts_with(b".")
            }
        }
    }

    /// Passes the entry to `visit` and descends into it if it is a directory.
    fn enter(
        &mut self,
        entry: &DirEntry,
        visit: &mut dyn FnMut(&WalkEntry<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let from = self.stack.first().map_or(0, |top| top.path_len);
        let below = &self.path[if from == 0 { 0 } else { from + 1 }..];
        let Some(dir) = self.stack.last().and_then(|frame| frame.dir.as_ref()) else {
            return ControlFlow::Continue(());
        };
        let is_folder = entry.kind == FileKind::Directory;
        let child = is_folder.then(|| dir.open_dir(&entry.name));
        // Treated as nonexistent, so that the agent does not even see its name.
        if let Some(Err(PathError::Protected)) = child {
            return ControlFlow::Continue(());
        }
        visit(&WalkEntry {
            dir,
            name: &entry.name,
            path: Path::new(OsStr::from_bytes(&self.path)),
            below: Path::new(OsStr::from_bytes(below)),
            kind: entry.kind,
        })?;
        match child {
            Some(Ok(child)) => self.push(child),
            Some(Err(_)) => self.summary.unreadable += 1,
            None => {}
        }
        ControlFlow::Continue(())
    }

    /// Lists `dir`, whose path is the current one, and makes it the current directory.
    fn push(&mut self, dir: Dir) {
        let left = self.options.max_entries.saturating_sub(self.summary.entries);
        let listing = match dir.list(left) {
            Ok(listing) => listing,
            Err(_) => {
                self.summary.unreadable += 1;
                return;
            }
        };
        self.summary.entries += listing.entries.len();
        self.summary.truncated |= listing.truncated;
        let rules_len = self.rules.len();
        let has = |name: &str| {
            let found = listing
                .entries
                .binary_search_by(|entry| entry.name.as_os_str().cmp(OsStr::new(name)));
            found.is_ok()
        };
        self.rules.enter(&dir, self.path.len(), &has);
        let (path_len, entries) = (self.path.len(), listing.entries.into_iter());
        self.stack.push(WalkFrame { dir: Some(dir), entries, path_len, rules_len });
        if self.stack.len() - self.oldest_open > MAX_HANDLES {
            if let Some(oldest) = self.stack.get_mut(self.oldest_open) {
                oldest.dir = None;
            }
            self.oldest_open += 1;
        }
    }

    /// Reopens the current directory if it was closed; skips it if it no longer exists.
    fn reopen(&mut self) -> bool {
        let from = self.stack.first().map_or(0, |top| top.path_len);
        let depth = self.stack.len().saturating_sub(1);
        let Some(frame) = self.stack.last_mut() else { return false };
        if frame.dir.is_some() {
            return true;
        }
        let start = if from == 0 { 0 } else { (from + 1).min(frame.path_len) };
        let below = Path::new(OsStr::from_bytes(&self.path[start..frame.path_len]));
        match self.top.descend(below) {
            Ok(dir) => {
                frame.dir = Some(dir);
                self.oldest_open = depth;
                true
            }
            Err(_) => {
                frame.entries = Vec::new().into_iter();
                self.summary.unreadable += 1;
                false
            }
        }
    }
}
