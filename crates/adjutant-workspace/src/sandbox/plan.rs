//! Messages to and from the helper processes.
//!
//! Plain data; see `wire` for the transport. The engine creates the plans in `run` and `overlay::mounted`; the
//! holder and the sandbox's first process carry them out.

use std::fmt;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::wire::OsText;

/// One layer of the sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SandboxLayer {
    /// Separate user, process, mount, IPC, host name and cgroup namespaces.
    Namespaces,
    /// A separate network namespace with a loopback interface and nothing else.
    Network,
    /// A root directory that contains only what was granted.
    Root,
    /// A separate, read-only `/proc`.
    Proc,
    /// A limit on the number of processes.
    PidMax,
    /// No capabilities, and no way to gain any.
    Privileges,
    /// Landlock rules for files.
    Landlock,
    /// Landlock rules for abstract sockets and signals.
    LandlockScopes,
    /// A seccomp filter for system calls.
    Seccomp,
    /// Limits on open files, file sizes and core dumps.
    Limits,
}

impl SandboxLayer {
    /// Every layer, in the order in which they are applied.
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
            Self::Network => "network isolation",
            Self::Root => "private root directory",
            Self::Proc => "private /proc",
            Self::PidMax => "process limit",
            Self::Privileges => "no capabilities",
            Self::Landlock => "Landlock",
            Self::LandlockScopes => "Landlock for abstract sockets and signals",
            Self::Seccomp => "system call filter",
            Self::Limits => "resource limits",
        })
    }
}

/// What the namespace holder sets up before it serves requests.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct HolderPlan {
    /// The overlay to mount; `None` if the workspace is a plain directory.
    pub(crate) overlay: Option<OverlayPlan>,
    /// Copy-on-write views of the user's package caches, each with one lower layer.
    pub(crate) caches: Vec<OverlayPlan>,
    /// Whether programs share the machine's network.
    pub(crate) network: bool,
}

/// The layers of an overlay, and where it is mounted in the holder's mount namespace.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct OverlayPlan {
    /// Lowest first.
    pub(crate) lowers: Vec<OsText>,
    pub(crate) upper: OsText,
    pub(crate) work: OsText,
    pub(crate) at: OsText,
}

/// The holder's answer to its plan and to each request.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum HolderReply {
    /// Done; the message carries the resulting file descriptors.
    Done,
    /// The request failed.
    Failed(SetupFailure),
}

/// A step that failed while the sandbox was set up, with the kernel's error number.
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

    /// Says whether the mount point of a grant has disappeared or was replaced.
    ///
    /// That happens when it lies in another, read-only grant: creating the mount point fails with EROFS, and
    /// mounting a directory on a file or the other way round with EINVAL; a link in its place gives ELOOP. In each
    /// case the sandbox shows less, not more.
    pub(crate) fn is_mount_point_gone(&self) -> bool {
        let errnos = [Errno::NOENT, Errno::NOTDIR, Errno::INVAL, Errno::ROFS, Errno::LOOP];
        self.errno.is_some_and(|errno| errnos.iter().any(|it| it.raw_os_error() == errno))
    }

    pub(crate) fn in_layer(mut self, layer: SandboxLayer) -> Self {
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

/// Adds the name of the failed step to an error.
pub(crate) trait StepErrorContext<T> {
    /// Converts an error and names the step that failed.
    fn step(self, step: &str) -> Result<T, SetupFailure>;
}

impl<T, E: Into<std::io::Error>> StepErrorContext<T> for Result<T, E> {
    fn step(self, step: &str) -> Result<T, SetupFailure> {
        self.map_err(|error| SetupFailure::new(step, error))
    }
}

/// A request to the holder.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum HolderRequest {
    /// Start the first process of a sandbox. The message carries its control socket and its output and error
    /// streams.
    Run,
    /// Listen on loopback in the private network namespace. The answer carries the listening socket.
    Listen,
}

/// What the sandbox's first process has to set up and run.
///
/// The message carries the program's standard input, if it has one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RunPlan {
    /// The path of the workspace in the holder's mount namespace.
    pub(crate) workspace: OsText,
    /// The path of the workspace inside the sandbox.
    pub(crate) at: OsText,
    /// The program's working directory, relative to the workspace.
    pub(crate) cwd: OsText,
    pub(crate) start: RunTarget,
    pub(crate) environment: Vec<(OsText, OsText)>,
    /// Directories and files mounted read-only at their own paths.
    pub(crate) grants: Vec<OsText>,
    /// Like `grants`, but at other paths, and nothing there can be executed.
    pub(crate) data: Vec<BindPlan>,
    /// Directories of the delegation that programs may write: its home and its temporary files. Without one at
    /// `/tmp`, `/tmp` is in memory.
    pub(crate) private: Vec<BindPlan>,
    /// Copy-on-write caches, from their mount points in the holder's mount namespace.
    pub(crate) caches: Vec<BindPlan>,
    /// Files that are shown with other content, if they exist.
    pub(crate) replaced: Vec<ReplacedFile>,
    /// Paths that are hidden even below a grant.
    pub(crate) hidden: Vec<OsText>,
    pub(crate) network: bool,
    /// Whether the program can create pseudo-terminals.
    pub(crate) pseudo_terminals: bool,
    pub(crate) bounds: BoundsPlan,
    /// The overlay's upper directory, whose size is bounded.
    pub(crate) upper: Option<OsText>,
    /// The overlay's lower directories, lowest first: files in them do not count as added.
    pub(crate) lowers: Vec<OsText>,
    /// Further directories whose size and entries count.
    pub(crate) measured: Vec<OsText>,
    /// Layers that the caller accepts as missing.
    pub(crate) may_miss: Vec<SandboxLayer>,
}

/// A directory, and the path at which programs see it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct BindPlan {
    pub(crate) from: OsText,
    pub(crate) at: OsText,
}

/// A file whose content is replaced inside the sandbox.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ReplacedFile {
    pub(crate) at: OsText,
    pub(crate) content: OsText,
}

/// The program that a sandbox runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum RunTarget {
    /// A program and its arguments.
    Program(Vec<OsText>),
    /// The helper itself, which tests the sandbox from inside.
    SelfTest,
}

/// The resource bounds, as sent to the first process.
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

/// A report of the sandbox's first process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum InitReport {
    /// The program was started; these layers could not be applied.
    Started { missing: Vec<SandboxLayer> },
    /// The sandbox could not be built, or a required layer is missing.
    Refused(SetupFailure),
    /// The program could not be started.
    NotStarted(SetupFailure),
    /// The program exited or was killed by a signal.
    Exited { code: Option<i32>, signal: Option<i32> },
    /// The program exceeded the memory bound.
    Memory { bytes: u64 },
    /// The program exceeded the disk bound.
    Disk { bytes: u64 },
    /// The program exceeded the bound on files and directories.
    Entries { entries: u64 },
}
