//! Replacing many files, all or none.
//!
//! Everything new and everything that was there is first written to a folder of its own, then the
//! plan; only then is a file touched. A plan without its mark of completion is put back. Knows
//! nothing of git.
//!
//! Start at [`Plan::carry_out`]. Invariant: a file is replaced or put back only while it is exactly
//! what the plan says it was.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, fchmod, fsync, openat, renameat, symlinkat, unlinkat};
use rustix::io::Errno;

use super::export;
use crate::git::{Content, bytes_of, content, path_of};
use crate::{Folders, PathError, RelPath, Root};

/// What lies, or is to lie, at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Thing {
    Nothing,
    /// A file with these permissions; its bytes are in an image.
    File(u32),
    /// A link; where it leads is in an image.
    Link,
}

/// One path of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) path: PathBuf,
    pub(super) before: Thing,
    pub(super) after: Thing,
}

/// What is to be replaced, with a folder that holds the images.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) folder: PathBuf,
    pub(super) steps: Vec<Step>,
}

/// A step that could not be made, and why.
#[derive(Debug)]
pub(super) struct Stuck {
    pub(super) path: PathBuf,
    pub(super) source: PathError,
}

/// The two states a step leads between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    Before,
    After,
}

impl When {
    const fn folder(self) -> &'static str {
        match self {
            Self::Before => "before",
            Self::After => "after",
        }
    }

    const fn other(self) -> Self {
        match self {
            Self::Before => Self::After,
            Self::After => Self::Before,
        }
    }
}

impl Step {
    const fn thing(&self, when: When) -> &Thing {
        match when {
            When::Before => &self.before,
            When::After => &self.after,
        }
    }
}

impl Plan {
    /// Writes the plan itself; from here on it is carried out or put back.
    pub(super) fn save(&self) -> io::Result<()> {
        for (number, step) in self.steps.iter().enumerate() {
            for when in [When::Before, When::After] {
                if *step.thing(when) != Thing::Nothing {
                    File::open(self.image(number, when))?.sync_all()?;
                }
            }
        }
        let mut bytes = Vec::new();
        for step in &self.steps {
            bytes.extend_from_slice(bytes_of(&step.path));
            bytes.push(0);
            for thing in [&step.before, &step.after] {
                let word = match thing {
                    Thing::Nothing => "-".to_owned(),
                    Thing::File(mode) => format!("{mode:o}"),
                    Thing::Link => "l".to_owned(),
                };
                bytes.extend_from_slice(word.as_bytes());
                bytes.push(0);
            }
        }
        let next = self.folder.join("plan.next");
        let mut file = File::create(&next)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(&next, self.folder.join("plan"))?;
        File::open(&self.folder)?.sync_all()
    }

    /// Reads a plan; none where it was never complete.
    pub(super) fn load(folder: &Path) -> Option<Self> {
        let bytes = fs::read(folder.join("plan")).ok()?;
        let mut words = bytes.split(|byte| *byte == 0);
        let mut steps = Vec::new();
        loop {
            let path = words.next()?;
            if path.is_empty() {
                return Some(Self { folder: folder.to_owned(), steps });
            }
            let mut thing = || match words.next()? {
                b"-" => Some(Thing::Nothing),
                b"l" => Some(Thing::Link),
                mode => {
                    let text = std::str::from_utf8(mode).ok()?;
                    u32::from_str_radix(text, 8).ok().map(Thing::File)
                }
            };
            let (before, after) = (thing()?, thing()?);
            steps.push(Step { path: path_of(path), before, after });
        }
    }

    /// Says whether everything was replaced.
    pub(super) fn is_done(&self) -> bool {
        self.folder.join("done").exists()
    }

    /// Replaces everything; on any failure everything is put back.
    pub(super) fn carry_out(&self, root: &Root) -> Result<(), Stuck> {
        if let Err(stuck) = self.go(root, When::After) {
            // What cannot be put back is found again by the next recovery.
            let _ = self.put_back(root);
            return Err(stuck);
        }
        let note = |error| Stuck { path: self.folder.clone(), source: PathError::Io(error) };
        File::create(self.folder.join("done")).and_then(|file| file.sync_all()).map_err(note)
    }

    /// Puts everything back that is as it was made; returns what somebody changed meanwhile.
    pub(super) fn put_back(&self, root: &Root) -> Result<Vec<PathBuf>, Stuck> {
        let note = |error| Stuck { path: self.folder.clone(), source: PathError::Io(error) };
        match fs::remove_file(self.folder.join("done")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(note(error)),
            Ok(()) | Err(_) => {}
        }
        // A step that was cut short may have left what it was about to put in its place.
        for (number, step) in self.steps.iter().enumerate() {
            export::remove(root, &step.path.with_file_name(self.temp(number)))
                .map_err(|source| Stuck { path: step.path.clone(), source })?;
        }
        let mut left = Vec::new();
        for number in self.order(When::Before) {
            let Some(step) = self.steps.get(number) else { continue };
            if self.matches(root, number, step, When::Before)? {
                continue;
            }
            // A step that was cut short leaves nothing in the place of what it removed.
            let absent = matches!(look(root, &step.path)?, Content::Nothing);
            if absent || self.matches(root, number, step, When::After)? {
                self.set(root, number, step, When::Before)?;
            } else {
                left.push(step.path.clone());
            }
        }
        Ok(left)
    }

    /// Returns the paths that are not as they were left.
    pub(super) fn changed_since(&self, root: &Root) -> Result<Vec<PathBuf>, Stuck> {
        let mut changed = Vec::new();
        for (number, step) in self.steps.iter().enumerate() {
            if !self.matches(root, number, step, When::After)? {
                changed.push(step.path.clone());
            }
        }
        Ok(changed)
    }

    /// Returns those of `paths` that this plan replaced and nobody changed since.
    pub(super) fn still_as_left(
        &self,
        root: &Root,
        paths: &BTreeSet<PathBuf>,
    ) -> Result<Vec<PathBuf>, Stuck> {
        let mut left = Vec::new();
        for (number, step) in self.steps.iter().enumerate() {
            if paths.contains(&step.path) && self.matches(root, number, step, When::After)? {
                left.push(step.path.clone());
            }
        }
        Ok(left)
    }

    pub(super) fn image(&self, number: usize, when: When) -> PathBuf {
        self.folder.join(when.folder()).join(number.to_string())
    }

    /// Names the file beside a place that is written first.
    fn temp(&self, number: usize) -> OsString {
        let mut name = OsString::from(".adjutant-");
        name.push(self.folder.file_name().unwrap_or_default());
        name.push(format!("-{number}.new"));
        name
    }

    fn go(&self, root: &Root, to: When) -> Result<(), Stuck> {
        for number in self.order(to) {
            let Some(step) = self.steps.get(number) else { continue };
            if !self.matches(root, number, step, to.other())? {
                return Err(Stuck { path: step.path.clone(), source: PathError::Exists });
            }
            self.set(root, number, step, to)?;
        }
        Ok(())
    }

    /// Removals first, so that a file can come where a folder was and the other way round.
    fn order(&self, to: When) -> Vec<usize> {
        let gone = |number: &usize| {
            self.steps.get(*number).is_some_and(|step| *step.thing(to) == Thing::Nothing)
        };
        let (mut first, then): (Vec<usize>, Vec<usize>) = (0..self.steps.len()).partition(gone);
        first.extend(then);
        first
    }

    fn matches(&self, root: &Root, number: usize, step: &Step, when: When) -> Result<bool, Stuck> {
        let stuck = |error| Stuck { path: step.path.clone(), source: PathError::Io(error) };
        let image = || fs::read(self.image(number, when)).map_err(stuck);
        match (look(root, &step.path)?, step.thing(when)) {
            (Content::Nothing, Thing::Nothing) => Ok(true),
            (Content::Link(target), Thing::Link) => Ok(target == image()?),
            (Content::File { mut file, executable, .. }, Thing::File(mode)) => {
                let mut bytes = Vec::new();
                file.read_to_end(&mut bytes).map_err(stuck)?;
                Ok(executable == (mode & 0o100 != 0) && bytes == image()?)
            }
            (Content::Nothing | Content::Link(_) | Content::File { .. }, _) => Ok(false),
        }
    }

    fn set(&self, root: &Root, number: usize, step: &Step, when: When) -> Result<(), Stuck> {
        let stuck = |source| Stuck { path: step.path.clone(), source };
        let thing = step.thing(when);
        if *thing == Thing::Nothing {
            return export::remove(root, &step.path).map_err(stuck);
        }
        let parent = step.path.parent().unwrap_or(Path::new(""));
        let folder = root.folder(parent, Folders::Made).map_err(stuck)?;
        let folder = folder.ok_or(PathError::NotFound).map_err(stuck)?;
        let name = step.path.file_name().ok_or(PathError::Outside).map_err(stuck)?;
        let temp = self.temp(number);
        let bytes = fs::read(self.image(number, when)).map_err(PathError::Io).map_err(stuck)?;
        let placed = make(&folder, &temp, thing, &bytes)
            .and_then(|()| renameat(&folder, &temp, &folder, name))
            .and_then(|()| fsync(&folder));
        if placed.is_err() {
            // Best effort: the error that matters is the one above.
            let _ = unlinkat(&folder, &temp, AtFlags::empty());
        }
        placed.map_err(PathError::from_errno).map_err(stuck)
    }
}

fn look(root: &Root, path: &Path) -> Result<Content, Stuck> {
    let stuck = |source| Stuck { path: path.to_owned(), source };
    let found = RelPath::new(path).and_then(|path| content(root, &path)).map_err(stuck)?;
    // What cannot be read is certainly not what the plan knows.
    found.map_err(|_| stuck(PathError::PermissionDenied))
}

fn make(folder: &OwnedFd, temp: &OsString, thing: &Thing, bytes: &[u8]) -> Result<(), Errno> {
    match unlinkat(folder, temp, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(errno) => return Err(errno),
    }
    let Thing::File(mode) = thing else {
        return symlinkat(path_of(bytes), folder.as_fd(), temp);
    };
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(openat(folder, temp, flags, Mode::from_raw_mode(0o600))?);
    file.write_all(bytes).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    fchmod(&file, Mode::from_raw_mode(mode & 0o777))?;
    fsync(&file)
}
