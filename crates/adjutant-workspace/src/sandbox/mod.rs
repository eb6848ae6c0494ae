//! Running untrusted programs in a sandbox.
//!
//! A holder process owns the namespaces of a workspace. For each run it starts a first process, which builds the
//! sandbox around itself and then starts the program. Start at [`Sandbox::new`] and [`Sandbox::run`]; `init`
//! applies the layers. This module does not know what the programs are for or who may run them.
//!
//! Invariant: if a required layer cannot be applied, no program is started.

mod call;
mod confine;
mod helper;
mod holder;
mod holder_client;
mod init;
mod input;
mod level;
mod loopback_listener;
mod output;
mod pinned_parents;
mod plan;
mod raw;
mod rootfs;
mod run;
mod seccomp;
mod self_test;
mod skeleton;
mod unconfined;
mod watch;
mod wire;

pub use helper::{SUBCOMMAND, helper_main, helper_main_if_asked};
pub(crate) use holder_client::NamespaceHolder;
pub use holder_client::SandboxHelper;
pub use input::ProgramInput;
pub use level::SandboxLevel;
pub use loopback_listener::LoopbackListenError;
pub use output::{BoundedOutput, OutputSink, OutputStream};
pub use plan::SandboxLayer;
pub(crate) use plan::{HolderPlan, OverlayPlan, SetupFailure, StepErrorContext};
pub use raw::close_inherited_files;
pub(crate) use raw::terminate_with_parent;
pub(crate) use rootfs::{CREDENTIALS, is_credential_only_as_file};
pub use run::{
    CancelHandle, DirectoryNamespaces, MountedDir, NetworkAccess, ProgramEnd, ProgramSpec,
    ResourceBounds, RunError, Sandbox, SandboxConfig, SandboxUnavailable, SandboxWorkspace,
    SandboxedExit,
};
pub use unconfined::{UnconfinedExit, UnconfinedRunner};
pub(crate) use watch::count_entries;
pub(crate) use wire::OsText;
