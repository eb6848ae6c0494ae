//! The sandbox as the engine uses it: created once for a workspace, then used for each program run.
//!
//! [`Sandbox::run`] blocks the calling thread and uses no other. Output is streamed, not collected: a slow sink
//! blocks the program, and its timeout keeps running.

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

/// Replaces timeouts that `Instant` cannot represent: thirty years.
pub(super) const FOREVER: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

/// The workspace that programs run in.
#[derive(Clone, Debug)]
pub enum SandboxWorkspace {
    /// A mounted overlay.
    Overlay(Arc<MountedOverlay>),
    /// A plain directory.
    Directory(PathBuf),
}

/// Whether programs may use the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkAccess {
    /// No network, not even loopback.
    Off,
    /// The machine's own network, which a person granted.
    Granted,
}

impl NetworkAccess {
    /// Lists what a granted network exposes, one sentence each.
    #[must_use]
    pub fn exposures(self) -> &'static [&'static str] {
        match self {
            Self::Off => &[],
            Self::Granted => &[
                "services on this machine's loopback addresses can be reached",
                "link-local addresses can be reached, which includes metadata services of cloud machines",
            ],
        }
    }
}

/// The resources one program run may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceBounds {
    /// Memory of all its processes together.
    pub memory_bytes: u64,
    /// The size of the workspace's upper layer and of the largest single file.
    pub disk_bytes: u64,
    /// Files and directories that may be added to the workspace.
    pub entries: u64,
    /// Files and directories in the workspace before any is added.
    pub base_entries: u64,
    /// The size of `/tmp`, which is in memory.
    pub tmp_bytes: u64,
    /// Processes and threads at a time. The kernel accepts no less than 301.
    pub processes: u32,
    /// Files one process may have open.
    pub open_files: u64,
    /// Address space of one process; `None` for no limit, because some programs reserve much more than they use.
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

/// The configuration of a sandbox.
#[derive(Clone, Debug)]
pub struct SandboxConfig {
    /// The program that is started as the helper.
    pub helper: SandboxHelper,
    /// The workspace that programs run in.
    pub workspace: SandboxWorkspace,
    /// The absolute path of the workspace inside the sandbox.
    pub at: PathBuf,
    /// Toolchains and caches, mounted read-only at their own paths; credentials in them are covered.
    ///
    /// Paths that do not exist are skipped. A program can still connect to a socket on a read-only mount.
    pub grants: Vec<PathBuf>,
    /// Mounted like a grant, but nothing there can be executed.
    pub data: Vec<PathBuf>,
    /// Covered even below a grant: the home directory, the state directory, the user's checkout.
    pub hidden: Vec<PathBuf>,
    /// Whether programs may use the network.
    pub network: NetworkAccess,
    /// The resources one program run may use.
    pub bounds: ResourceBounds,
    /// Layers that may be missing. Empty unless a person accepted a weaker sandbox.
    pub may_miss: Vec<SandboxLayer>,
}

/// A program to run.
#[derive(Clone, Debug)]
pub struct ProgramSpec {
    /// The program and its arguments.
    pub words: Vec<OsString>,
    /// Its working directory, relative to the workspace.
    pub directory: PathBuf,
    /// Its whole environment.
    pub environment: Vec<(OsString, OsString)>,
    /// How long it may run.
    pub timeout: Duration,
}

impl ProgramSpec {
    /// A shell command, with the default environment and a timeout of ten minutes.
    #[must_use]
    pub fn shell(text: impl Into<OsString>) -> Self {
        Self::new(["/bin/sh".into(), "-c".into(), text.into()])
    }

    /// A program and its arguments, with the default environment and a timeout of ten minutes.
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

/// How a program run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProgramEnd {
    /// The program exited with this status.
    Exited(i32),
    /// The program was killed by this signal.
    Signalled(i32),
    /// The timeout expired.
    TimedOut,
    /// The run was cancelled.
    Cancelled,
    /// It exceeded the memory bound.
    OutOfMemory {
        /// The measured size.
        bytes: u64,
    },
    /// It exceeded the bound on files and directories.
    TooManyEntries {
        /// The number counted.
        entries: u64,
    },
    /// It exceeded the disk bound.
    TooMuchWritten {
        /// The measured size.
        bytes: u64,
    },
}

/// The result of a program run in a sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxedExit {
    /// How it ended.
    pub end: ProgramEnd,
    /// How long the run took.
    pub elapsed: Duration,
    /// The sandbox level the program ran with.
    pub level: SandboxLevel,
    /// Whether every process had ended within a second; `false` only if the kernel could not kill one.
    pub tree_gone: bool,
}

/// Says why no program was run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The command is empty.
    #[error("the command is empty")]
    Empty,
    /// A NUL byte cannot be part of a command.
    #[error("the command contains a NUL byte")]
    Nul,
    /// The working directory does not lie in the workspace.
    #[error("the directory {} is not in the workspace", directory.display())]
    Directory {
        /// The directory as requested.
        directory: PathBuf,
    },
    /// The program does not exist or cannot be executed.
    #[error("cannot start {}: {why}", program.display())]
    NotStarted {
        /// The program.
        program: PathBuf,
        /// The system's error message.
        why: String,
    },
    /// The sandbox could not be built with the required layers.
    #[error(transparent)]
    Unavailable(#[from] SandboxUnavailable),
    /// The helper processes failed.
    #[error("the sandbox helper failed")]
    Helper(#[from] io::Error),
}

/// Says why there is no sandbox with the required layers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no sandbox: {why}")]
pub struct SandboxUnavailable {
    /// What failed, or which layer is missing.
    pub why: String,
}

/// Cancels a program run from another thread.
#[derive(Clone, Debug)]
pub struct CancelHandle {
    event: Arc<OwnedFd>,
}

impl CancelHandle {
    /// Creates a handle that was not used yet.
    ///
    /// # Errors
    ///
    /// When no file descriptor is available.
    pub fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { event: Arc::new(event) })
    }

    /// Returns the event descriptor, which becomes readable on cancellation.
    pub(super) fn event(&self) -> &OwnedFd {
        &self.event
    }

    /// Ends the run that uses this handle, or the next one, at once.
    pub fn cancel(&self) {
        // Fails only if the event counter is full; then it is already set.
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
    /// Creates a sandbox. The first call in this process proves that its layers work on this machine.
    ///
    /// # Errors
    ///
    /// When a layer is missing that `config` requires, or the helper does not work.
    pub fn new(config: SandboxConfig) -> Result<Self, SandboxUnavailable> {
        let level = level::prove_level(&config.helper)?;
        level.check_missing(&config.may_miss)?;
        Self::without_proof(config, level)
    }

    /// Creates a sandbox without proving its layers; the self-test itself uses this.
    pub(crate) fn without_proof(
        config: SandboxConfig,
        level: SandboxLevel,
    ) -> Result<Self, SandboxUnavailable> {
        let own_holder = match &config.workspace {
            SandboxWorkspace::Overlay(mounted) if mounted.layers().network != config.network => {
                let why = "the overlay was mounted with another network setting".to_owned();
                return Err(SandboxUnavailable { why });
            }
            SandboxWorkspace::Overlay(_) => None,
            SandboxWorkspace::Directory(_) => Some(start_holder(&config)?),
        };
        Ok(Self { config, own_holder, level })
    }

    /// Returns the configuration.
    #[must_use]
    pub fn config(&self) -> &SandboxConfig {
        &self.config
    }

    /// Runs a program until it ends and streams its output.
    ///
    /// # Errors
    ///
    /// Why no program was run. A program that ran and failed is not an error.
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
            (_, Some(InitReport::Refused(failure))) => return Err(run_error(&failure, program)),
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
            // The kernel killed the first process, as it does when memory runs out.
            (CallStop::Ended, _) => ProgramEnd::Signalled(Signal::KILL.as_raw()),
        };
        let level = self.level.without(&call.missing);
        Ok(SandboxedExit { end, elapsed: begun.elapsed(), level, tree_gone })
    }

    fn plan(&self, start: RunTarget, program: &ProgramSpec) -> RunPlan {
        let SandboxConfig {
            workspace,
            at,
            grants,
            data,
            hidden,
            network,
            bounds,
            may_miss,
            helper: _,
        } = &self.config;
        let (workspace, layers) = match workspace {
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
        match &self.config.workspace {
            SandboxWorkspace::Overlay(mounted) => Some(mounted.holder()),
            SandboxWorkspace::Directory(_) => self.own_holder.as_ref(),
        }
    }

    fn start_call(&self, plan: &RunPlan) -> Result<RunningCall, RunError> {
        let (control, theirs) = wire::socket_pair()?;
        let (out, out_end) = pipe_with(PipeFlags::CLOEXEC).map_err(io::Error::from)?;
        let (err, err_end) = pipe_with(PipeFlags::CLOEXEC).map_err(io::Error::from)?;
        let holder = self.holder().ok_or(io::ErrorKind::NotConnected).map_err(io::Error::from)?;
        let answer = holder.run(&[theirs.as_fd(), out_end.as_fd(), err_end.as_fd()])?;
        let files = answer.map_err(|failure| SandboxUnavailable { why: failure.to_string() })?;
        let process = wire::next_file(&mut files.into_iter())?;
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

fn run_error(failure: &SetupFailure, program: &ProgramSpec) -> RunError {
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
