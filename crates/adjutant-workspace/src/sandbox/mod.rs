//! Running programs that nobody trusts.
//!
//! A holder process owns the namespaces of a workspace; for each call it starts a first process, which builds
//! the sandbox around itself and then starts the program. Start at [`Sandbox::new`] and [`Sandbox::run`]; the
//! layers are in `init`. It does not know what the programs are for or who may run them.
//!
//! Invariant: when a required layer cannot be put on, nothing is started.

mod call;
mod client;
mod confine;
mod helper;
mod holder;
mod init;
mod level;
mod output;
mod plain;
mod plan;
mod probe;
mod raw;
mod rootfs;
mod run;
mod seccomp;
mod skeleton;
mod watch;
mod wire;

pub use client::Helper;
pub(crate) use client::Holder;
pub use helper::{SUBCOMMAND, helper_main, helper_main_if_asked};
pub use level::Level;
pub use output::{Captured, Sink, Stream};
pub use plain::{PlainEnd, Unconfined};
pub use plan::Layer;
pub(crate) use plan::{Failure, HolderPlan, OverlayPlan, Step};
pub use raw::close_inherited_files;
pub(crate) use raw::end_with_us;
pub(crate) use rootfs::{CREDENTIALS, is_credential_only_as_file};
pub use run::{
    Bounds, Cancel, Config, End, Ended, Network, Place, Program, RunError, Sandbox, Unavailable,
};
pub(crate) use watch::count_entries;
pub(crate) use wire::Text;
