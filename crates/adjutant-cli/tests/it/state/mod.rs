//! The state directory, across commands.

pub(crate) mod full_disk;
mod full_keep;
mod last_version;
mod private;
mod registry;
