//! Copy-on-write workspaces: layers that are never written, and one that takes every change.
//!
//! Start at [`Overlay::mount`]. Nothing here knows git or who works in the workspace. Invariant: an upper directory is mounted by one holder at a time.

mod layers;
mod mounted;

pub(crate) use layers::mount_overlay;
pub use mounted::{Layers, Mounted, Overlay, OverlayError};
