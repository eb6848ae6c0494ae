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
use super::input::ProgramInput;
use super::level::{self, SandboxLevel};
use super::output::OutputSink;
use super::plan::{
    BindPlan, BoundsPlan, HolderPlan, InitReport, ReplacedFile, RunPlan, RunTarget, SandboxLayer,
    SetupFailure,
};
use super::wire::{self, OsText};
use crate::overlay::{CacheLayers, MountedOverlay};

/// Replaces timeouts that `Instant` cannot represent: thirty years.
pub(super) const FOREVER: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

/// The workspace that programs run in.
#[derive(Clone, Debug)]
pub enum SandboxWorkspace {
    /// A mounted overlay.
    Overlay(Arc<MountedOverlay>),
    /// A plain directory.
    Directory {
        /// Its path.
        path: PathBuf,
        /// Namespaces that several sandboxes share; `None` to create them for this sandbox, without caches.
        namespaces: Option<Arc<DirectoryNamespaces>>,
    },
}

impl SandboxWorkspace {
    /// A plain directory, with namespaces for one sandbox only.
    #[must_use]
    pub fn directory(path: impl Into<PathBuf>) -> Self {
        Self::Directory { path: path.into(), namespaces: None }
    }
}

/// The namespaces in which programs run if the workspace is a plain directory, with the caches mounted in them.
#[derive(Debug)]
pub struct DirectoryNamespaces {
    holder: NamespaceHolder,
    network: NetworkAccess,
    caches: Vec<CacheLayers>,
}

impl DirectoryNamespaces {
    /// Creates namespaces and mounts the caches in them.
    ///
    /// # Errors
    ///
    /// When the kernel refuses, or the helper does not work.
    pub fn create(
        helper: &SandboxHelper,
        network: NetworkAccess,
        caches: Vec<CacheLayers>,
    ) -> Result<Self, SandboxUnavailable> {
        let say = |why: String| SandboxUnavailable { why };
        let plans = caches.iter().map(CacheLayers::plan).collect();
        let is_granted = network == NetworkAccess::Granted;
        let plan = HolderPlan { overlay: None, caches: plans, network: is_granted };
        let (holder, answer) =
            NamespaceHolder::start(helper, &plan).map_err(|error| say(error.to_string()))?;
        answer.map_err(|failure| say(failure.to_string()))?;
        Ok(Self { holder, network, caches })
    }
}

/// A directory, and the path at which programs see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountedDir {
    /// The directory.
    pub from: PathBuf,
    /// The absolute path inside the sandbox.
    pub at: PathBuf,
}

impl MountedDir {
    /// Shows a directory at its own path.
    #[must_use]
    pub fn in_place(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        Self { from: path.clone(), at: path }
    }

    fn plan(&self) -> BindPlan {
        BindPlan { from: OsText::new(&self.from), at: OsText::new(&self.at) }
    }
}

/// Whether programs may use the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkAccess {
    /// A private loopback interface, through which nothing outside can be reached.
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
    /// The size of `/dev/shm`, and of `/tmp` where it is in memory.
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
    /// The directory in the workspace to which the working directories of programs are relative.
    pub start: PathBuf,
    /// Toolchains and caches, mounted read-only at their own paths; credentials in them are covered.
    ///
    /// Paths that do not exist are skipped. A program can still connect to a socket on a read-only mount.
    pub grants: Vec<PathBuf>,
    /// Mounted read-only like a grant, but at other paths, and nothing there can be executed.
    pub data: Vec<MountedDir>,
    /// Directories that programs may write besides the workspace: the private home directory and `/tmp`. Without a
    /// directory for it, `/tmp` is in memory and empty in every run.
    pub private: Vec<MountedDir>,
    /// Files that are shown with other content, if they exist, such as settings without their passwords.
    pub replaced: Vec<(PathBuf, OsString)>,
    /// Directories that come before the system's in `PATH`.
    pub path: Vec<PathBuf>,
    /// Environment variables that toolchains need.
    pub variables: Vec<(OsString, OsString)>,
    /// Covered even below a grant: the home directory, the state directory, the user's checkout.
    pub hidden: Vec<PathBuf>,
    /// Whether programs may use the network.
    pub network: NetworkAccess,
    /// The resources one program run may use.
    pub bounds: ResourceBounds,
    /// Layers that may be missing. Empty unless a person accepted a weaker sandbox.
    pub may_miss: Vec<SandboxLayer>,
}

impl SandboxConfig {
    /// Returns a configuration that shows programs only the workspace, at the absolute path `at`.
    #[must_use]
    pub fn new(helper: SandboxHelper, workspace: SandboxWorkspace, at: impl Into<PathBuf>) -> Self {
        Self {
            helper,
            workspace,
            at: at.into(),
            start: PathBuf::new(),
            grants: Vec::new(),
            data: Vec::new(),
            private: Vec::new(),
            replaced: Vec::new(),
            path: Vec::new(),
            variables: Vec::new(),
            hidden: Vec::new(),
            network: NetworkAccess::Off,
            bounds: ResourceBounds::default(),
            may_miss: Vec::new(),
        }
    }
}

/// A program to run.
#[derive(Clone, Debug)]
pub struct ProgramSpec {
    /// The program and its arguments.
    pub words: Vec<OsString>,
    /// Its working directory, relative to [`SandboxConfig::start`].
    pub directory: PathBuf,
    /// Its whole environment.
    pub environment: Vec<(OsString, OsString)>,
    /// Its standard input; `None` for an empty one.
    pub input: Option<ProgramInput>,
    /// Whether it can create pseudo-terminals, which only its own processes see.
    pub pseudo_terminals: bool,
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
            input: None,
            pseudo_terminals: false,
            timeout: Duration::from_secs(600),
        }
    }

    /// Takes the standard input for a run.
    pub(super) fn take_input(&self) -> Result<Option<OwnedFd>, RunError> {
        let take = |input: &ProgramInput| input.take().ok_or(RunError::InputTaken);
        self.input.as_ref().map(take).transpose()
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
    /// The standard input belongs to one run.
    #[error("the standard input was already given to another run")]
    InputTaken,
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
        mut config: SandboxConfig,
        level: SandboxLevel,
    ) -> Result<Self, SandboxUnavailable> {
        let network = match &mut config.workspace {
            SandboxWorkspace::Overlay(mounted) => mounted.layers().network,
            SandboxWorkspace::Directory { namespaces: Some(namespaces), .. } => namespaces.network,
            SandboxWorkspace::Directory { namespaces: missing @ None, .. } => {
                let made = DirectoryNamespaces::create(&config.helper, config.network, Vec::new())?;
                *missing = Some(Arc::new(made));
                config.network
            }
        };
        if network != config.network {
            let why = "the workspace was set up with another network setting".to_owned();
            return Err(SandboxUnavailable { why });
        }
        Ok(Self { config, level })
    }

    /// Returns the configuration.
    #[must_use]
    pub fn config(&self) -> &SandboxConfig {
        &self.config
    }

    /// Returns the level that was proved for this machine, before any program runs.
    #[must_use]
    pub fn level(&self) -> &SandboxLevel {
        &self.level
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
        let mut call = self.start_call(&self.plan(start, program), program.take_input()?)?;
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
        let config = &self.config;
        let bounds = &config.bounds;
        let (workspace, layers, caches) = match &config.workspace {
            SandboxWorkspace::Overlay(mounted) => {
                (&mounted.layers().at, Some(mounted.layers()), mounted.layers().caches.as_slice())
            }
            SandboxWorkspace::Directory { path, namespaces } => {
                (path, None, namespaces.as_ref().map_or(&[][..], |it| it.caches.as_slice()))
            }
        };
        let lowers = layers.map_or(&[][..], |layers| &layers.lowers);
        let pair = |(name, value): &(OsString, OsString)| (OsText::new(name), OsText::new(value));
        let cache =
            |it: &CacheLayers| BindPlan { from: OsText::new(&it.at), at: OsText::new(&it.cache) };
        let private = config.private.iter().map(|it| &it.from);
        let measured = private.chain(caches.iter().map(|it| &it.upper)).map(OsText::new);
        RunPlan {
            workspace: OsText::new(workspace),
            at: OsText::new(&config.at),
            cwd: OsText::new(config.start.join(&program.directory)),
            start,
            environment: program.environment.iter().map(pair).collect(),
            grants: config.grants.iter().map(OsText::new).collect(),
            data: config.data.iter().map(MountedDir::plan).collect(),
            private: config.private.iter().map(MountedDir::plan).collect(),
            caches: caches.iter().map(cache).collect(),
            replaced: config
                .replaced
                .iter()
                .map(|(at, content)| ReplacedFile {
                    at: OsText::new(at),
                    content: OsText::new(content),
                })
                .collect(),
            hidden: config.hidden.iter().map(OsText::new).collect(),
            network: config.network == NetworkAccess::Granted,
            pseudo_terminals: program.pseudo_terminals,
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
            measured: measured.collect(),
            may_miss: config.may_miss.clone(),
        }
    }

    pub(super) fn holder(&self) -> Option<&NamespaceHolder> {
        match &self.config.workspace {
            SandboxWorkspace::Overlay(mounted) => Some(mounted.holder()),
            SandboxWorkspace::Directory { namespaces, .. } => {
                namespaces.as_ref().map(|it| &it.holder)
            }
        }
    }

    fn start_call(&self, plan: &RunPlan, input: Option<OwnedFd>) -> Result<RunningCall, RunError> {
        let (control, theirs) = wire::socket_pair()?;
        let (out, out_end) = pipe_with(PipeFlags::CLOEXEC).map_err(io::Error::from)?;
        let (err, err_end) = pipe_with(PipeFlags::CLOEXEC).map_err(io::Error::from)?;
        let holder = self.holder().ok_or(io::ErrorKind::NotConnected).map_err(io::Error::from)?;
        let answer = holder.run(&[theirs.as_fd(), out_end.as_fd(), err_end.as_fd()])?;
        let files = answer.map_err(|failure| SandboxUnavailable { why: failure.to_string() })?;
        let process = wire::next_file(&mut files.into_iter())?;
        drop((theirs, out_end, err_end));
        let inputs: Vec<_> = input.iter().map(AsFd::as_fd).collect();
        wire::send(&control, plan, &inputs)?;
        let streams = [Some(File::from(out)), Some(File::from(err))];
        Ok(RunningCall { control, process, streams, report: None, missing: Vec::new() })
    }
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
