//! What the helper processes are told and what they answer.
//!
//! Plain data; see `wire` for how it travels. The engine's side fills it in `sandbox.rs` and `mounted.rs`, the
//! holder and the sandbox's first process act on it.

use std::fmt;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::wire::OsText;

/// One layer of the sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SandboxLayer {
    /// User, process, mount, message, host name and control group namespaces of its own.
    Namespaces,
    /// A network namespace of its own that leads nowhere.
    Network,
    /// A root directory that shows only what was allowed.
    Root,
    /// A `/proc` of its own that cannot be written.
    Proc,
    /// A bound on how many processes there can be.
    PidMax,
    /// No capabilities and no way to gain any.
    Privileges,
    /// Rules of Landlock about files.
    Landlock,
    /// Rules of Landlock about TCP, abstract sockets and signals.
    LandlockScopes,
    /// A filter of system calls.
    Seccomp,
    /// Bounds on open files, file sizes and core dumps.
    Limits,
}

impl SandboxLayer {
    /// Every layer, in the order in which they are put on.
    pub const ALL: [Self; 10] = [
        Self::Namespaces,
        Self::Network,
        Self::Root,
        Self::Proc,
        Self::PidMax,
        Self::Limits,
        Self::Privileges,
        Self::Landlock,
        Self::LandlockScopes,
        Self::Seccomp,
    ];
}

impl fmt::Display for SandboxLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Namespaces => "namespaces",
            Self::Network => "empty network",
            Self::Root => "root of its own",
            Self::Proc => "/proc of its own",
            Self::PidMax => "bound on processes",
            Self::Privileges => "no privileges",
            Self::Landlock => "Landlock",
            Self::LandlockScopes => "Landlock for TCP, abstract sockets and signals",
            Self::Seccomp => "system call filter",
            Self::Limits => "resource limits",
        })
    }
}

/// What the namespace holder sets up before it answers.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct HolderPlan {
    /// The overlay to mount; without one the holder only holds namespaces.
    pub(crate) overlay: Option<OverlayPlan>,
    /// Whether the calls share the machine's network.
    pub(crate) network: bool,
}

/// An overlay and where it appears in the holder's mount namespace.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct OverlayPlan {
    /// Lowest first.
    pub(crate) lowers: Vec<OsText>,
    pub(crate) upper: OsText,
    pub(crate) work: OsText,
    pub(crate) at: OsText,
}

/// What the holder answers, to its plan and to each request.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum HolderReply {
    /// Done; the files that belong to it come along.
    Done,
    /// Not done.
    Failed(SetupFailure),
}

/// What failed, in which step, with the number the kernel gave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SetupFailure {
    pub(crate) step: String,
    pub(crate) errno: Option<i32>,
    pub(crate) layer: Option<SandboxLayer>,
}

impl SetupFailure {
    pub(crate) fn new(step: impl Into<String>, error: impl Into<std::io::Error>) -> Self {
        let error = error.into();
        let step = step.into();
        match error.raw_os_error() {
            Some(errno) => Self { step, errno: Some(errno), layer: None },
            None => Self { step: format!("{step}: {error}"), errno: None, layer: None },
        }
    }

    /// Says whether the place where something was to be shown has gone, or another thing has taken it.
    ///
    /// It lies in another grant then, which is shown read-only: making the place anew answers that, and a mount
    /// of a folder on a file, or the other way round, is invalid. Whatever the reason, less is shown, not more.
    pub(crate) fn is_gone(&self) -> bool {
        let errnos = [Errno::NOENT, Errno::NOTDIR, Errno::INVAL, Errno::ROFS];
        self.errno.is_some_and(|errno| errnos.iter().any(|it| it.raw_os_error() == errno))
    }

    pub(crate) fn of(mut self, layer: SandboxLayer) -> Self {
        self.layer = Some(layer);
        self
    }
}

impl fmt::Display for SetupFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(layer) = self.layer {
            write!(f, "{layer}: ")?;
        }
        f.write_str(&self.step)?;
        match self.errno {
            Some(errno) => write!(f, ": {}", std::io::Error::from_raw_os_error(errno)),
            None => Ok(()),
        }
    }
}

/// Names a step that can fail.
pub(crate) trait StepContext<T> {
    /// Says which step it was when it failed.
    fn step(self, step: &str) -> Result<T, SetupFailure>;
}

impl<T, E: Into<std::io::Error>> StepContext<T> for Result<T, E> {
    fn step(self, step: &str) -> Result<T, SetupFailure> {
        self.map_err(|error| SetupFailure::new(step, error))
    }
}

/// What the holder is asked to do.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum HolderRequest {
    /// Start the first process of a sandbox; its plan, output and error streams come along.
    Run,
}

/// Everything the sandbox's first process needs to know.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RunPlan {
    /// The workspace as the holder sees it.
    pub(crate) workspace: OsText,
    /// Where programs in the sandbox see it.
    pub(crate) at: OsText,
    /// Where the program starts, beneath the workspace.
    pub(crate) cwd: OsText,
    pub(crate) start: RunTarget,
    pub(crate) environment: Vec<(OsText, OsText)>,
    /// Directories and files shown read-only at their own paths.
    pub(crate) grants: Vec<OsText>,
    /// The same, and nothing there can be run.
    pub(crate) data: Vec<OsText>,
    /// What is hidden even below a grant.
    pub(crate) hidden: Vec<OsText>,
    pub(crate) network: bool,
    pub(crate) bounds: BoundsPlan,
    /// The directory whose growth is watched: an overlay's upper.
    pub(crate) upper: Option<OsText>,
    /// The overlay's other directories, lowest first: what they hold was not added.
    pub(crate) lowers: Vec<OsText>,
    /// Layers that may be missing.
    pub(crate) may_miss: Vec<SandboxLayer>,
}

/// What is started.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum RunTarget {
    /// A program and its arguments.
    Program(Vec<OsText>),
    /// The helper itself, probing the sandbox from inside.
    SelfTest,
}

/// Bounds in numbers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct BoundsPlan {
    pub(crate) memory_bytes: u64,
    pub(crate) disk_bytes: u64,
    pub(crate) entries: u64,
    pub(crate) base_entries: u64,
    pub(crate) tmp_bytes: u64,
    pub(crate) processes: u32,
    pub(crate) open_files: u64,
    pub(crate) address_space_bytes: Option<u64>,
}

/// What the sandbox's first process says.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum InitReport {
    /// The program runs; these layers could not be put on.
    Started { missing: Vec<SandboxLayer> },
    /// The sandbox could not be built, or not as required.
    Refused(SetupFailure),
    /// The program could not be started.
    NotStarted(SetupFailure),
    /// The program ended by itself.
    Exited { code: Option<i32>, signal: Option<i32> },
    /// It was ended because it used too much memory.
    Memory { bytes: u64 },
    /// It was ended because it wrote too much.
    Disk { bytes: u64 },
    /// It was ended because it added too many files and directories.
    Entries { entries: u64 },
}
