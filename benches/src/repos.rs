//! Git repositories of several sizes for measuring workspaces, created with git plumbing commands.
//!
//! They are kept in memory, like everything that wall time bars are measured on. The cost of syncs on a
//! disk is measured separately.
//!
//! `by_1`, `by_100` and `by_1000` are branches one commit above `main` that differ in as many files.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use tempfile::TempDir;

use crate::Failure;
use crate::fixture::{MEMORY, StateLocation, has_memory_disk, spread_subdirectories};
use crate::spawn::target_dir;

/// Files of one folder.
const PER_FOLDER: usize = 100;

/// Files that differ from the last commit.
pub(crate) const CHANGED: usize = 10;

/// Files that were never committed.
pub(crate) const UNTRACKED: usize = 5;

/// A repository with a checkout, and room for state beside it.
///
/// Checkouts made beside it stay until it is dropped: removing many files slows down the creation of others in the
/// next minutes, see `spread_subdirectories` in `fixture`.
#[derive(Debug)]
pub(crate) struct Repo {
    dir: TempDir,
    /// How many files it has.
    pub(crate) files: usize,
}

impl Repo {
    /// Makes a repository of so many files, with a few changes that are not committed.
    pub(crate) fn make(files: usize, place: StateLocation) -> Result<Self, Failure> {
        let dir = match place {
            StateLocation::Memory if has_memory_disk() => TempDir::new_in(MEMORY)?,
            StateLocation::Memory | StateLocation::Disk => TempDir::new_in(target_dir()?)?,
        };
        let repo = Self { dir, files };
        spread_subdirectories(repo.dir.path());
        fs::create_dir(repo.tree())?;
        repo.git(["init", "--quiet", "-b", "main", "."])?;
        repo.git(["config", "gc.auto", "0"])?;
        repo.import()?;
        repo.clean()?;
        repo.dirty(0)?;
        Ok(repo)
    }

    /// Returns the checkout.
    pub(crate) fn tree(&self) -> PathBuf {
        self.dir.path().join("tree")
    }

    /// Returns a path beside the checkout.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Makes every committed file what it was.
    pub(crate) fn clean(&self) -> Result<(), Failure> {
        self.git(["reset", "--quiet", "--hard"])?;
        // Git reads files that are newer than the index again on every status.
        self.git(["status", "--porcelain"])?;
        Ok(())
    }

    /// Changes ten files all over the tree, and makes or changes five that are untracked.
    pub(crate) fn dirty(&self, round: usize) -> Result<(), Failure> {
        self.change(&self.evenly_spread_files(CHANGED), round)
    }

    /// Changes these files, and makes or changes five that are untracked.
    pub(crate) fn change(&self, paths: &[String], round: usize) -> Result<(), Failure> {
        for path in paths {
            fs::write(self.tree().join(path), format!("not committed, {round}: {path}\n"))?;
        }
        for number in 0..UNTRACKED {
            let text = format!("new, {round}: {number}\n");
            fs::write(self.tree().join(format!("folder-0/untracked-{number}")), text)?;
        }
        Ok(())
    }

    /// Runs plain git as a person would.
    pub(crate) fn git<A: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = A>,
    ) -> Result<String, Failure> {
        let args: Vec<OsString> = args.into_iter().map(|arg| arg.as_ref().to_owned()).collect();
        let output = self.command().args(&args).stdin(Stdio::null()).output()?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned());
        }
        Err(format!("git {args:?}: {}", String::from_utf8_lossy(&output.stderr)).into())
    }

    /// Names `count` files, spread evenly.
    pub(crate) fn evenly_spread_files(&self, count: usize) -> Vec<String> {
        let step = (self.files / count).max(1);
        (0..count.min(self.files)).map(|number| file(number * step)).collect()
    }

    /// Names `count` files, ten of each folder where there are so many.
    pub(crate) fn in_few_folders(&self, count: usize) -> Vec<String> {
        let step = (self.files / count).clamp(1, PER_FOLDER / 10);
        (0..count.min(self.files)).map(|number| file(number * step)).collect()
    }

    fn command(&self) -> Command {
        let mut command = Command::new("git");
        command
            .current_dir(self.tree())
            .env_clear()
            .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
            .env("HOME", self.dir.path())
            .env("GIT_CONFIG_NOSYSTEM", "1");
        command
    }

    fn import(&self) -> Result<(), Failure> {
        let mut git =
            self.command().args(["fast-import", "--quiet"]).stdin(Stdio::piped()).spawn()?;
        let mut stream = String::new();
        let all = (0..self.files).map(file);
        commit(&mut stream, "main", None, all, "as it was")?;
        for count in [1, 100, 1_000] {
            let name = format!("by_{count}");
            commit(
                &mut stream,
                &name,
                Some("main"),
                self.evenly_spread_files(count).into_iter(),
                &name,
            )?;
        }
        git.stdin.take().ok_or("git takes no input")?.write_all(stream.as_bytes())?;
        if git.wait()?.success() { Ok(()) } else { Err("git could not import".into()) }
    }
}

/// Returns the path of a file.
fn file(number: usize) -> String {
    format!("folder-{}/file-{number}.txt", number / PER_FOLDER)
}

fn commit(
    stream: &mut String,
    branch: &str,
    from: Option<&str>,
    files: impl Iterator<Item = String>,
    text: &str,
) -> Result<(), Failure> {
    write!(stream, "commit refs/heads/{branch}\ncommitter U <u@localhost> 1800000000 +0000\n")?;
    write!(stream, "data {}\n{text}\n", text.len())?;
    if let Some(from) = from {
        writeln!(stream, "from refs/heads/{from}")?;
    }
    for file in files {
        let content =
            format!("{text}: {file}\nand some more lines\nof the usual length\n").repeat(4);
        write!(stream, "M 100644 inline {file}\ndata {}\n{content}\n", content.len())?;
    }
    stream.push('\n');
    Ok(())
}

/// Returns the milliseconds that `work` takes, and what it returns.
pub(crate) fn timed<T, E>(work: impl FnOnce() -> Result<T, E>) -> Result<(f64, T), E> {
    let begun = Instant::now();
    let done = work()?;
    Ok((begun.elapsed().as_secs_f64() * 1e3, done))
}

/// Returns the bytes that a folder takes on the disk.
pub(crate) fn disk_bytes(folder: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    let mut sum = 0;
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        // What a running program takes away meanwhile takes nothing.
        let Ok(found) = entry.path().symlink_metadata() else { continue };
        sum += found.blocks() * 512;
        if found.is_dir() {
            sum += disk_bytes(&entry.path());
        }
    }
    sum
}

/// Returns the processes that this one started and those below them.
pub(crate) fn descendants() -> BTreeSet<u32> {
    let parents: Vec<(u32, u32)> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
            // The name before it may hold anything.
            let parent = stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()?;
            Some((entry.file_name().to_str()?.parse().ok()?, parent))
        })
        .collect();
    let mut found = BTreeSet::new();
    let mut above = vec![std::process::id()];
    while let Some(parent) = above.pop() {
        for (process, _) in parents.iter().filter(|(_, of)| *of == parent) {
            if found.insert(*process) {
                above.push(*process);
            }
        }
    }
    found
}
