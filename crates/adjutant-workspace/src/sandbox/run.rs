//! The sandbox as the engine uses it: made once for a workspace, then run for each call.
//!
//! [`Sandbox::run`] blocks the calling thread and uses no other. What is streamed costs no memory here; the
//! program waits when the sink is slow, and its time runs all the same.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Signal;

use super::call::{Call, Stopped};
use super::client::{Helper, Holder};
use super::level::{self, Level};
use super::output::Sink;
use super::plan::{BoundsPlan, Failure, HolderPlan, Layer, Report, RunPlan, Start};
use super::wire::{self, Text};
use crate::overlay::Mounted;

/// What a timeout that no clock can count to is taken for: thirty years.
pub(super) const FOREVER: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

/// Where programs work.
#[derive(Clone, Debug)]
pub enum Place {
    /// A mounted overlay.
    Overlay(Arc<Mounted>),
    /// A directory as it is.
    Directory(PathBuf),
}

/// Whether programs reach the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// There is none, not even loopback.
    Off,
    /// A person granted the machine's own network.
    Granted,
}

impl Network {
    /// Says what a grant leaves open, one sentence each.
    #[must_use]
    pub fn left_open(self) -> &'static [&'static str] {
        match self {
            Self::Off => &[],
            Self::Granted => &[
                "services on this machine's loopback addresses can be reached",
                "link-local addresses can be reached, which includes metadata services of cloud machines",
            ],
        }
    }
}

/// What one call may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Memory of all its processes together.
    pub memory_bytes: u64,
    /// What the workspace's top layer may hold, and the largest single file.
    pub disk_bytes: u64,
    /// Files and directories that may be added to the workspace.
    pub entries: u64,
    /// Files and directories that lie in the workspace's directory before any is added.
    pub base_entries: u64,
    /// What `/tmp` may hold; it is memory.
    pub tmp_bytes: u64,
    /// Processes and threads at a time. The kernel takes no less than 301.
    pub processes: u32,
    /// Files one process may have open.
    pub open_files: u64,
    /// Address space of one process; `None` for programs that reserve much and use little.
    pub address_space_bytes: Option<u64>,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            memory_bytes: 4 << 30,
            disk_bytes: 2 << 30,
            entries: 500_000,
            base_entries: 0,
            tmp_bytes: 1 << 30,
            processes: 2048,
            open_files: 4096,
            address_space_bytes: None,
        }
    }
}

/// What a sandbox is made of.
#[derive(Clone, Debug)]
pub struct Config {
    /// Which program acts as the helper.
    pub helper: Helper,
    /// Where programs work.
    pub place: Place,
    /// The absolute path by which programs see the workspace.
    pub at: PathBuf,
    /// Toolchains and caches, shown read-only at their own paths; credentials in them are covered.
    ///
    /// What does not exist is left out. Being read-only does not keep a program from connecting to a socket
    /// that lies there.
    pub grants: Vec<PathBuf>,
    /// Shown like a grant, but nothing there can be run as a program.
    pub data: Vec<PathBuf>,
    /// Covered even below a grant: home, state directory, main checkout.
    pub hidden: Vec<PathBuf>,
    /// Whether programs reach the network.
    pub network: Network,
    /// What one call may use.
    pub bounds: Bounds,
    /// Layers that may be missing. Empty unless a person accepted less.
    pub may_miss: Vec<Layer>,
}

/// What is run.
#[derive(Clone, Debug)]
pub struct Program {
    /// The program and its arguments.
    pub words: Vec<OsString>,
    /// Where it starts, relative to the workspace.
    pub directory: PathBuf,
    /// Its whole environment.
    pub environment: Vec<(OsString, OsString)>,
    /// How long it may take.
    pub timeout: Duration,
}

impl Program {
    /// A command in the shell's language, with the environment programs expect and ten minutes.
    #[must_use]
    pub fn shell(text: impl Into<OsString>) -> Self {
        Self::new(["/bin/sh".into(), "-c".into(), text.into()])
    }

    /// A program and its arguments, with the environment programs expect and ten minutes.
    #[must_use]
    pub fn new(words: impl IntoIterator<Item = OsString>) -> Self {
        let environment = [
            ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
            ("HOME", "/tmp"),
            ("TMPDIR", "/tmp"),
            ("LANG", "C.UTF-8"),
            ("TERM", "dumb"),
        ];
        Self {
            words: words.into_iter().collect(),
            directory: PathBuf::new(),
            environment: environment.map(|(name, value)| (name.into(), value.into())).into(),
            timeout: Duration::from_secs(600),
        }
    }
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The program exited with this status.
    Exited(i32),
    /// The program was ended by this signal.
    Signalled(i32),
    /// Its time was up.
    TimedOut,
    /// Somebody cancelled it.
    Cancelled,
    /// It used more memory than it may.
    OutOfMemory {
        /// What was measured.
        bytes: u64,
    },
    /// It added more files and directories than it may.
    TooManyEntries {
        /// What was counted.
        entries: u64,
    },
    /// It wrote more than it may.
    TooMuchWritten {
        /// What was measured.
        bytes: u64,
    },
}

/// A call that was started and is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// How it ended.
    pub end: End,
    /// How long it took.
    pub elapsed: Duration,
    /// What held it.
    pub level: Level,
    /// Whether every process of it was gone within a second; `false` only when the kernel kept one.
    pub tree_gone: bool,
}

/// Says why nothing was run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// There was nothing to run.
    #[error("the command is empty")]
    Empty,
    /// A NUL byte cannot be part of a command.
    #[error("the command contains a NUL byte")]
    Nul,
    /// The starting directory is not one beneath the workspace.
    #[error("the directory {} is not in the workspace", directory.display())]
    Directory {
        /// As asked for.
        directory: PathBuf,
    },
    /// The program does not exist or cannot be run.
    #[error("cannot start {}: {why}", program.display())]
    NotStarted {
        /// The program.
        program: PathBuf,
        /// What the system said.
        why: String,
    },
    /// The sandbox could not be built as required.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// The processes that build the sandbox failed.
    #[error("the sandbox helper failed")]
    Helper(#[from] io::Error),
}

/// Says why there is no sandbox, or not the one that is required.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no sandbox: {why}")]
pub struct Unavailable {
    /// What failed, or which layer is missing.
    pub why: String,
}

/// Cancels a call from another thread.
#[derive(Clone, Debug)]
pub struct Cancel {
    event: Arc<OwnedFd>,
}

impl Cancel {
    /// Makes one that has not been used.
    ///
    /// # Errors
    ///
    /// When the system is out of descriptors.
    pub fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { event: Arc::new(event) })
    }

    /// Readable once it was used.
    pub(super) fn event(&self) -> &OwnedFd {
        &self.event
    }

    /// Ends the call that watches this, or the next one, at once.
    pub fn cancel(&self) {
        // Fails only when the counter is full: then it is set already.
        let _ = rustix::io::write(&*self.event, &1_u64.to_ne_bytes());
    }
}

/// A sandbox for one workspace.
#[derive(Debug)]
pub struct Sandbox {
    config: Config,
    own_holder: Option<Holder>,
    level: Level,
}

impl Sandbox {
    /// Makes a sandbox, after its layers have been proved on this machine once.
    ///
    /// # Errors
    ///
    /// When a layer is missing that `config` does not let miss, or the helper does not work at all.
    pub fn new(config: Config) -> Result<Self, Unavailable> {
        let level = level::prove(&config.helper)?;
        level.allow(&config.may_miss)?;
        Self::unproved(config, level)
    }

    /// Makes a sandbox without asking for proof; the self-test's own way in.
    pub(crate) fn unproved(config: Config, level: Level) -> Result<Self, Unavailable> {
        let own_holder = match &config.place {
            Place::Overlay(mounted) if mounted.layers().network != config.network => {
                let why = "the overlay was mounted for another network".to_owned();
                return Err(Unavailable { why });
            }
            Place::Overlay(_) => None,
            Place::Directory(_) => Some(hold(&config)?),
        };
        Ok(Self { config, own_holder, level })
    }

    /// What it is made of.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// What holds programs here.
    #[must_use]
    pub fn level(&self) -> &Level {
        &self.level
    }

    /// Runs a program to its end and streams what it says.
    ///
    /// # Errors
    ///
    /// Why nothing was run. A program that ran and failed is no error.
    pub fn run(
        &self,
        program: &Program,
        cancel: &Cancel,
        sink: &mut dyn Sink,
    ) -> Result<Ended, RunError> {
        check(program)?;
        let words = program.words.iter().map(Text::new).collect();
        self.carry_out(Start::Program(words), program, cancel, sink)
    }

    pub(crate) fn carry_out(
        &self,
        start: Start,
        program: &Program,
        cancel: &Cancel,
        sink: &mut dyn Sink,
    ) -> Result<Ended, RunError> {
        let begun = Instant::now();
        let mut call = self.begin(&self.plan(start, program))?;
        let deadline = begun.checked_add(program.timeout).unwrap_or(begun + FOREVER);
        let stopped = call.attend(deadline, cancel, sink)?;
        let tree_gone = call.end(sink)?;
        let end = match (stopped, call.report) {
            (_, Some(Report::Refused(failure))) => return Err(refusal(&failure, program)),
            (_, Some(Report::NotStarted(failure))) => return Err(not_started(&failure, program)),
            (_, Some(Report::Exited { code: Some(code), .. })) => End::Exited(code),
            (_, Some(Report::Exited { signal: Some(signal), .. })) => End::Signalled(signal),
            (_, Some(Report::Memory { bytes })) => End::OutOfMemory { bytes },
            (_, Some(Report::Entries { entries })) => End::TooManyEntries { entries },
            (_, Some(Report::Disk { bytes })) => End::TooMuchWritten { bytes },
            (Stopped::TimedOut, _) => End::TimedOut,
            (Stopped::Cancelled, _) => End::Cancelled,
            // The kernel ended the first process, which it does when memory runs out.
            (Stopped::Ended, _) => End::Signalled(Signal::KILL.as_raw()),
        };
        let level = self.level.without(&call.missing);
        Ok(Ended { end, elapsed: begun.elapsed(), level, tree_gone })
    }

    fn plan(&self, start: Start, program: &Program) -> RunPlan {
        let Config { place, at, grants, data, hidden, network, bounds, may_miss, helper: _ } =
            &self.config;
        let (workspace, layers) = match place {
            Place::Overlay(mounted) => (&mounted.layers().at, Some(mounted.layers())),
            Place::Directory(path) => (path, None),
        };
        let lowers = layers.map_or(&[][..], |layers| &layers.lowers);
        let pair = |(name, value): &(OsString, OsString)| (Text::new(name), Text::new(value));
        RunPlan {
            workspace: Text::new(workspace),
            at: Text::new(at),
            cwd: Text::new(&program.directory),
            start,
            environment: program.environment.iter().map(pair).collect(),
            grants: grants.iter().map(Text::new).collect(),
            data: data.iter().map(Text::new).collect(),
            hidden: hidden.iter().map(Text::new).collect(),
            network: *network == Network::Granted,
            bounds: BoundsPlan {
                memory_bytes: bounds.memory_bytes,
                disk_bytes: bounds.disk_bytes,
                entries: bounds.entries,
                base_entries: bounds.base_entries,
                tmp_bytes: bounds.tmp_bytes,
                processes: bounds.processes.max(301),
                open_files: bounds.open_files,
                address_space_bytes: bounds.address_space_bytes,
            },
            upper: layers.map(|layers| Text::new(&layers.upper)),
            lowers: lowers.iter().map(Text::new).collect(),
            may_miss: may_miss.clone(),
        }
    }

    fn holder(&self) -> Option<&Holder> {
        match &self.config.place {
            Place::Overlay(mounted) => Some(mounted.holder()),
            Place::Directory(_) => self.own_holder.as_ref(),
        }
    }

    fn begin(&self, plan: &RunPlan) -> Result<Call, RunError> {
        let (control, theirs) = wire::pair()?;
        let (out, out_end) = pipe_with(PipeFlags::CLOEXEC).map_err(io::Error::from)?;
        let (err, err_end) = pipe_with(PipeFlags::CLOEXEC).map_err(io::Error::from)?;
        let holder = self.holder().ok_or(io::ErrorKind::NotConnected).map_err(io::Error::from)?;
        let answer = holder.run(&[theirs.as_fd(), out_end.as_fd(), err_end.as_fd()])?;
        let files = answer.map_err(|failure| Unavailable { why: failure.to_string() })?;
        let process = wire::next(&mut files.into_iter())?;
        drop((theirs, out_end, err_end));
        wire::send(&control, plan, &[])?;
        let streams = [Some(File::from(out)), Some(File::from(err))];
        Ok(Call { control, process, streams, report: None, missing: Vec::new() })
    }
}

fn hold(config: &Config) -> Result<Holder, Unavailable> {
    let say = |why: String| Unavailable { why };
    let plan = HolderPlan { overlay: None, network: config.network == Network::Granted };
    let (holder, answer) =
        Holder::start(&config.helper, &plan).map_err(|error| say(error.to_string()))?;
    answer.map(|_| holder).map_err(|failure| say(failure.to_string()))
}

pub(super) fn check(program: &Program) -> Result<(), RunError> {
    let blank = |word: &OsString| word.as_bytes().trim_ascii().is_empty();
    let shell = program.words.first().is_some_and(|first| first == "/bin/sh");
    match program.words.first() {
        None => return Err(RunError::Empty),
        Some(first) if blank(first) => return Err(RunError::Empty),
        Some(_) if shell && program.words.len() == 3 && program.words.last().is_some_and(blank) => {
            return Err(RunError::Empty);
        }
        Some(_) => {}
    }
    let pairs = program.environment.iter().flat_map(|(name, value)| [name, value]);
    let mut all = program.words.iter().chain(pairs).map(|text| text.as_bytes());
    if all.any(|text| text.contains(&0)) || program.directory.as_os_str().as_bytes().contains(&0) {
        return Err(RunError::Nul);
    }
    Ok(())
}

fn refusal(failure: &Failure, program: &Program) -> RunError {
    if failure.step == "cwd" {
        return RunError::Directory { directory: program.directory.clone() };
    }
    Unavailable { why: failure.to_string() }.into()
}

fn not_started(failure: &Failure, program: &Program) -> RunError {
    let name = program.words.first().map(PathBuf::from).unwrap_or_default();
    let why = match failure.errno {
        Some(errno) => io::Error::from_raw_os_error(errno).to_string(),
        None => failure.step.clone(),
    };
    RunError::NotStarted { program: name, why }
}
