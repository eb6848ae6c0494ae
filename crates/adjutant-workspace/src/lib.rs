//! Where agents work: the root directory handle and confined paths.
//!
//! Owns how a path a model wrote becomes an open file that certainly lies beneath the workspace.
//! It does not know tools, limits on what is read, or who may read (see `adjutant-tools`, `core`).
//!
//! Start at [`Root::open`], [`Root::open_file`] and [`Root::place`]. Invariant: no check of a path precedes its
//! opening; the kernel resolves and confines in the one call that opens.

mod dir;
mod error;
mod kernel;
pub mod overlay;
mod path;
mod place;
mod put;
mod root;
pub mod sandbox;

pub use dir::{Dir, Entry, Listing};
pub use error::{FileKind, PathError};
pub use path::RelPath;
pub use place::{Folders, Image, Place};
pub use put::{DirLock, Lock};
pub use root::{OpenedFile, Root};
