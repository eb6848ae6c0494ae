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

use super::call::{CallStop, RunningCall};
use super::holder_client::{NamespaceHolder, SandboxHelper};
use super::level::{self, SandboxLevel};
use super::output::OutputSink;
use super::plan::{
    BoundsPlan, HolderPlan, InitReport, RunPlan, RunTarget, SandboxLayer, SetupFailure,
};
use super::wire::{self, OsText};
use crate::overlay::MountedOverlay;

/// What a timeout that no clock can count to is taken for: thirty years.
pub(super) const FOREVER: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

/// Where programs work.
#[derive(Clone, Debug)]
pub enum SandboxWorkspace {
    /// A mounted overlay.
    Overlay(Arc<MountedOverlay>),
    /// A directory as it is.
    Directory(PathBuf),
}

/// Whether programs reach the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkAccess {
    /// There is none, not even loopback.
    Off,
    /// A person granted the machine's own network.
    Granted,
}

impl NetworkAccess {
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
pub struct ResourceBounds {
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

impl Default for ResourceBounds {
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
pub struct SandboxConfig {
    /// Which program acts as the helper.
    pub helper: SandboxHelper,
    /// Where programs work.
    pub place: SandboxWorkspace,
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
    pub network: NetworkAccess,
    /// What one call may use.
    pub bounds: ResourceBounds,
    /// Layers that may be missing. Empty unless a person accepted less.
    pub may_miss: Vec<SandboxLayer>,
}

/// What is run.
#[derive(Clone, Debug)]
pub struct ProgramSpec {
    /// The program and its arguments.
    pub words: Vec<OsString>,
    /// Where it starts, relative to the workspace.
    pub directory: PathBuf,
    /// Its whole environment.
    pub environment: Vec<(OsString, OsString)>,
    /// How long it may take.
    pub timeout: Duration,
}

impl ProgramSpec {
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
pub enum ProgramEnd {
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
pub struct SandboxedExit {
    /// How it ended.
    pub end: ProgramEnd,
    /// How long it took.
    pub elapsed: Duration,
    /// What held it.
    pub level: SandboxLevel,
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
    Unavailable(#[from] SandboxUnavailable),
    /// The processes that build the sandbox failed.
    #[error("the sandbox helper failed")]
    Helper(#[from] io::Error),
}

/// Says why there is no sandbox, or not the one that is required.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no sandbox: {why}")]
pub struct SandboxUnavailable {
    /// What failed, or which layer is missing.
    pub why: String,
}

/// Cancels a call from another thread.
#[derive(Clone, Debug)]
pub struct CancelHandle {
    event: Arc<OwnedFd>,
}

impl CancelHandle {
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
    config: SandboxConfig,
    own_holder: Option<NamespaceHolder>,
    level: SandboxLevel,
}

impl Sandbox {
    /// Makes a sandbox, after its layers have been proved on this machine once.
    ///
    /// # Errors
    ///
    /// When a layer is missing that `config` does not let miss, or the helper does not work at all.
    pub fn new(config: SandboxConfig) -> Result<Self, SandboxUnavailable> {
        let level = level::prove_level(&config.helper)?;
        level.check_missing(&config.may_miss)?;
        Self::unproved(config, level)
    }

    /// Makes a sandbox without asking for proof; the self-test's own way in.
    pub(crate) fn unproved(
        config: SandboxConfig,
        level: SandboxLevel,
    ) -> Result<Self, SandboxUnavailable> {
        let own_holder = match &config.place {
            SandboxWorkspace::Overlay(mounted) if mounted.layers().network != config.network => {
                let why = "the overlay was mounted for another network".to_owned();
                return Err(SandboxUnavailable { why });
            }
            SandboxWorkspace::Overlay(_) => None,
            SandboxWorkspace::Directory(_) => Some(start_holder(&config)?),
        };
        Ok(Self { config, own_holder, level })
    }

    /// What it is made of.
    #[must_use]
    pub fn config(&self) -> &SandboxConfig {
        &self.config
    }

    /// What holds programs here.
    #[must_use]
    pub fn level(&self) -> &SandboxLevel {
        &self.level
    }

    /// Runs a program to its end and streams what it says.
    ///
    /// # Errors
    ///
    /// Why nothing was run. A program that ran and failed is no error.
    pub fn run(
        &self,
        program: &ProgramSpec,
        cancel: &CancelHandle,
        sink: &mut dyn OutputSink,
    ) -> Result<SandboxedExit, RunError> {
        check_program(program)?;
        let words = program.words.iter().map(OsText::new).collect();
        self.run_target(RunTarget::Program(words), program, cancel, sink)
    }

    pub(crate) fn run_target(
        &self,
        start: RunTarget,
        program: &ProgramSpec,
        cancel: &CancelHandle,
        sink: &mut dyn OutputSink,
    ) -> Result<SandboxedExit, RunError> {
        let begun = Instant::now();
        let mut call = self.start_call(&self.plan(start, program))?;
        let deadline = begun.checked_add(program.timeout).unwrap_or(begun + FOREVER);
        let stopped = call.wait_for_end(deadline, cancel, sink)?;
        let tree_gone = call.kill_and_drain(sink)?;
        let end = match (stopped, call.report) {
            (_, Some(InitReport::Refused(failure))) => return Err(refusal(&failure, program)),
            (_, Some(InitReport::NotStarted(failure))) => {
                return Err(not_started(&failure, program));
            }
            (_, Some(InitReport::Exited { code: Some(code), .. })) => ProgramEnd::Exited(code),
            (_, Some(InitReport::Exited { signal: Some(signal), .. })) => {
                ProgramEnd::Signalled(signal)
            }
            (_, Some(InitReport::Memory { bytes })) => ProgramEnd::OutOfMemory { bytes },
            (_, Some(InitReport::Entries { entries })) => ProgramEnd::TooManyEntries { entries },
            (_, Some(InitReport::Disk { bytes })) => ProgramEnd::TooMuchWritten { bytes },
            (CallStop::TimedOut, _) => ProgramEnd::TimedOut,
            (CallStop::Cancelled, _) => ProgramEnd::Cancelled,
            // The kernel ended the first process, which it does when memory runs out.
            (CallStop::Ended, _) => ProgramEnd::Signalled(Signal::KILL.as_raw()),
        };
        let level = self.level.without(&call.missing);
        Ok(SandboxedExit { end, elapsed: begun.elapsed(), level, tree_gone })
    }

    fn plan(&self, start: RunTarget, program: &ProgramSpec) -> RunPlan {
        let SandboxConfig { place, at, grants, data, hidden, network, bounds, may_miss, helper: _ } =
            &self.config;
        let (workspace, layers) = match place {
            SandboxWorkspace::Overlay(mounted) => (&mounted.layers().at, Some(mounted.layers())),
            SandboxWorkspace::Directory(path) => (path, None),
        };
        let lowers = layers.map_or(&[][..], |layers| &layers.lowers);
        let pair = |(name, value): &(OsString, OsString)| (OsText::new(name), OsText::new(value));
        RunPlan {
            workspace: OsText::new(workspace),
            at: OsText::new(at),
            cwd: OsText::new(&program.directory),
            start,
            environment: program.environment.iter().map(pair).collect(),
            grants: grants.iter().map(OsText::new).collect(),
            data: data.iter().map(OsText::new).collect(),
            hidden: hidden.iter().map(OsText::new).collect(),
            network: *network == NetworkAccess::Granted,
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
            upper: layers.map(|layers| OsText::new(&layers.upper)),
            lowers: lowers.iter().map(OsText::new).collect(),
            may_miss: may_miss.clone(),
        }
    }

    fn holder(&self) -> Option<&NamespaceHolder> {
        match &self.config.place {
            SandboxWorkspace::Overlay(mounted) => Some(mounted.holder()),
            SandboxWorkspace::Directory(_) => self.own_holder.as_ref(),
        }
    }

    fn start_call(&self, plan: &RunPlan) -> Result<RunningCall, RunError> {
        let (control, theirs) = wire::pair()?;
        let (out, out_end) = pipe_with(PipeFlags::CLOEXEC).map_err(io::Error::from)?;
        let (err, err_end) = pipe_with(PipeFlags::CLOEXEC).map_err(io::Error::from)?;
        let holder = self.holder().ok_or(io::ErrorKind::NotConnected).map_err(io::Error::from)?;
        let answer = holder.run(&[theirs.as_fd(), out_end.as_fd(), err_end.as_fd()])?;
        let files = answer.map_err(|failure| SandboxUnavailable { why: failure.to_string() })?;
        let process = wire::next(&mut files.into_iter())?;
        drop((theirs, out_end, err_end));
        wire::send(&control, plan, &[])?;
        let streams = [Some(File::from(out)), Some(File::from(err))];
        Ok(RunningCall { control, process, streams, report: None, missing: Vec::new() })
    }
}

fn start_holder(config: &SandboxConfig) -> Result<NamespaceHolder, SandboxUnavailable> {
    let say = |why: String| SandboxUnavailable { why };
    let plan = HolderPlan { overlay: None, network: config.network == NetworkAccess::Granted };
    let (holder, answer) =
        NamespaceHolder::start(&config.helper, &plan).map_err(|error| say(error.to_string()))?;
    answer.map(|_| holder).map_err(|failure| say(failure.to_string()))
}

pub(super) fn check_program(program: &ProgramSpec) -> Result<(), RunError> {
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

fn refusal(failure: &SetupFailure, program: &ProgramSpec) -> RunError {
    if failure.step == "cwd" {
        return RunError::Directory { directory: program.directory.clone() };
    }
    SandboxUnavailable { why: failure.to_string() }.into()
}

fn not_started(failure: &SetupFailure, program: &ProgramSpec) -> RunError {
    let name = program.words.first().map(PathBuf::from).unwrap_or_default();
    let why = match failure.errno {
        Some(errno) => io::Error::from_raw_os_error(errno).to_string(),
        None => failure.step.clone(),
    };
    RunError::NotStarted { program: name, why }
}
