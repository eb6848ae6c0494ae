//! Copy-on-write workspaces: read-only lower layers, and an upper layer that receives every change.
//!
//! Start at [`Overlay::mount`]. This module does not know git or who works in the workspace. Invariant: an upper
//! directory is mounted by one holder at a time.

mod mount;
mod mounted;

pub(crate) use mount::mount_overlay;
pub use mounted::{CacheLayers, MountedOverlay, Overlay, OverlayError, OverlayLayers};
