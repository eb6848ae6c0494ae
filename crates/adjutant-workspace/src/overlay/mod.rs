//! Copy-on-write workspaces: layers that are never written, and one that takes every change.
//!
//! Start at [`Overlay::mount`]. Nothing here knows git or who works in the workspace. Invariant: an upper directory is mounted by one holder at a time.

mod mount;
mod mounted;

pub(crate) use mount::mount_overlay;
pub use mounted::{MountedOverlay, Overlay, OverlayError, OverlayLayers};
