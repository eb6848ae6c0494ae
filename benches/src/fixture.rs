//! Test data for the real binary: a state directory, a source tree, scripts and task files.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::{IFlags, Mode, OFlags};
use rustix::io::Errno;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::Failure;
use crate::launch::ProcessUsage;
use crate::server::{GOAL, RunRequests, Server};
use crate::spawn::{Binary, target_dir};

/// Files of the tree: one for each turn of the longest run.
const FILES: usize = 1_300;

/// Lines of each file; with their length about 2 kB, as much as a record of the journal's bar.
const LINES: usize = 30;

/// The model of runs over HTTP. Its context window is set so large that no run reaches it.
const MODEL: &str = "anthropic/claude-haiku-4-5";

/// Where the state directory of a run is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StateLocation {
    /// On the disk that holds the target directory.
    Disk,
    /// In memory; absent where the system has no `/dev/shm`.
    Memory,
}

/// The files that a run of the real binary needs.
#[derive(Debug)]
pub(crate) struct Fixture {
    binary: Binary,
    dir: TempDir,
    state: TempDir,
}

/// The size of a measured run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// How many children work in parallel.
    pub(crate) children: usize,
    /// How many files each reads, one in each turn, before it reports.
    pub(crate) turns: usize,
}

impl Fixture {
    /// Makes the tree, and a state directory at `place`.
    pub(crate) fn new(binary: &Binary, place: StateLocation) -> Result<Self, Failure> {
        let state = match place {
            StateLocation::Disk => TempDir::new_in(target_dir()?)?,
            StateLocation::Memory => TempDir::new_in(MEMORY)?,
        };
        spread_subdirectories(state.path());
        let dir = TempDir::new_in(target_dir()?)?;
        let tree = dir.path().join("tree");
        fs::create_dir(&tree)?;
        for number in 1..=FILES {
            let line =
                format!("line of file {number}: some words that a reader may want to see.\n");
            fs::write(tree.join(format!("part_{number}.txt")), line.repeat(LINES))?;
        }
        Ok(Self { binary: binary.clone(), dir, state })
    }

    /// Returns the directory for scripts and logs.
    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Runs a parent agent against a model server and returns the time and memory used.
    pub(crate) fn run_goal(&self, server: &Server) -> Result<(ProcessUsage, RunRequests), Failure> {
        let mut args: Vec<OsString> = vec!["run".into(), GOAL.into()];
        args.extend(["--model".into(), MODEL.into()]);
        args.extend(limits(&self.home()?, server.load.children));
        let config = self.dir.path().join("config");
        if !config.exists() {
            fs::create_dir_all(config.join("adjutant"))?;
            let roomy = format!("[models.\"{MODEL}\"]\nwindow = 1_000_000_000\n");
            fs::write(config.join("adjutant/config.toml"), roomy)?;
        }
        let vars = [
            ("ANTHROPIC_API_KEY", OsStr::new("test-key")),
            ("ANTHROPIC_BASE_URL", OsStr::new(&server.url)),
            ("XDG_CONFIG_HOME", config.as_os_str()),
        ];
        let taken = self.binary.run_in(self.dir.path(), &args, &vars)?;
        Ok((taken, server.since(taken.began_ns)?))
    }

    /// Runs a load in a new state directory and returns the time and memory used.
    pub(crate) fn run(&self, load: Load, more: &[&str]) -> Result<ProcessUsage, Failure> {
        let home = self.home()?;
        self.run_at(&home, load, more)
    }

    fn run_at(&self, home: &Path, load: Load, more: &[&str]) -> Result<ProcessUsage, Failure> {
        self.binary.run(self.dir.path(), &self.delegate_args(home, load, more)?)
    }

    /// Returns the arguments of `adjutant` for a load. Its directory is [`Self::path`].
    pub(crate) fn delegate_args(
        &self,
        home: &Path,
        load: Load,
        more: &[&str],
    ) -> Result<Vec<OsString>, Failure> {
        let Load { children, turns } = load;
        let tasks = self.tasks(children)?;
        let mut args: Vec<OsString> = vec!["delegate".into(), tasks.into()];
        args.extend(["--model".into(), self.model(turns)?]);
        args.extend(limits(home, children));
        args.extend(more.iter().map(Into::into));
        Ok(args)
    }

    /// Resumes a run that was killed in its last turn and returns the time and memory used.
    pub(crate) fn resume(&self, load: Load) -> Result<ProcessUsage, Failure> {
        let home = self.home()?;
        self.run_at(&home, load, &[])?;
        let run = fs::read_dir(home.join("runs"))?.next().ok_or("no run was left")??;
        let journal = run.path().join("journal.jsonl");
        let text = fs::read_to_string(&journal)?;
        let last = text.rfind(r#""type":"reserved""#).ok_or("no call was reserved")?;
        let end = text[last..].find('\n').map(|end| last + end + 1).ok_or("a torn line")?;
        fs::File::options().write(true).open(&journal)?.set_len(end as u64)?;
        let _ = fs::remove_file(run.path().join("checkpoint.json"));
        let mut args: Vec<OsString> = vec!["resume".into(), run.file_name()];
        args.extend(["--model".into(), self.model(load.turns)?]);
        args.extend(["--home".into(), home.into()]);
        self.binary.run(self.dir.path(), &args)
    }

    fn model(&self, turns: usize) -> Result<OsString, Failure> {
        Ok(format!("script:{}", self.script(turns)?.display()).into())
    }

    /// Creates a new state directory. It stays until the fixture is dropped, see `spread_subdirectories`.
    pub(crate) fn home(&self) -> Result<PathBuf, Failure> {
        Ok(TempDir::new_in(self.state.path())?.keep())
    }

    fn script(&self, turns: usize) -> Result<PathBuf, Failure> {
        let read = json!({ "tool": "Read", "args": { "path": "part_{{turn}}.txt" } });
        let reading = json!({ "times": turns, "text": "Reading part {{turn}}.", "call": [read] });
        let report = json!({ "text": "I read all of them and found nothing wrong." });
        let script = json!({ "window": 1_000_000_000_u64, "turn": [reading, report] });
        write_new(self.dir.path(), &format!("read_{turns}.json"), &script.to_string())
    }

    fn tasks(&self, children: usize) -> Result<PathBuf, Failure> {
        let tasks: Vec<_> = (1..=children).map(task).collect();
        let name = format!("tasks_{children}.json");
        write_new(self.dir.path(), &name, &json!({ "tasks": tasks }).to_string())
    }
}

/// Returns the flags of every load: the state directory, and limits so high that no load reaches them.
fn limits(home: &Path, children: usize) -> Vec<OsString> {
    let mut args: Vec<OsString> = vec!["--yes".into(), "--root".into(), "tree".into()];
    args.extend(["--home".into(), home.into()]);
    for key in ["tasks_per_call", "children_per_run", "concurrency"] {
        args.extend(["--set".into(), format!("{key}={children}").into()]);
    }
    for key in ["budget_tokens", "budget_tokens_run"] {
        args.extend(["--set".into(), format!("{key}=1000000000000").into()]);
    }
    args.extend(["--set".into(), "budget_usd=1000000".into()]);
    args
}

/// Returns one child's task.
pub(crate) fn task(number: usize) -> Value {
    let prompt = format!("Read the parts and say what is wrong with them, reader {number}.");
    json!({ "label": format!("reader-{number}"), "prompt": prompt })
}

/// Asks the file system to place the subdirectories of `dir` far from each other.
///
/// An ext4 without a journal skips recently deleted inodes one by one when it creates files near
/// them: after a few runs of this bench each new transcript would cost a millisecond.
pub(crate) fn spread_subdirectories(dir: &Path) {
    let set = || {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::open(dir, flags, Mode::empty())?;
        let flags = rustix::fs::ioctl_getflags(&dir)?;
        rustix::fs::ioctl_setflags(&dir, flags | IFlags::TOPDIR)
    };
    // Other file systems do not support this flag and do not need it.
    let _: Result<(), Errno> = set();
}

/// The directory of the in-memory file system.
pub(crate) const MEMORY: &str = "/dev/shm";

/// Returns whether the system has an in-memory file system.
pub(crate) fn has_memory_disk() -> bool {
    Path::new(MEMORY).is_dir()
}

fn write_new(dir: &Path, name: &str, text: &str) -> Result<PathBuf, Failure> {
    let path = dir.join(name);
    if !path.exists() {
        fs::write(&path, text)?;
    }
    Ok(path)
}
