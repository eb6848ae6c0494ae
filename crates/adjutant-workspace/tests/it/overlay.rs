//! Overlays: mounted by a holder, used by a handle, read as changes.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use adjutant_workspace::overlay::{Change, ChangeKind, Changes, Layers, Mounted, Overlay, OverlayError};
use adjutant_workspace::sandbox::{Helper, Network};
use adjutant_workspace::Root;
use tempfile::TempDir;

use crate::rel;

pub(crate) fn helper() -> Helper {
    Helper::at(env!("CARGO_BIN_EXE_workspace-probe"))
}

/// Layers in a fresh directory.
pub(crate) struct Ground {
    pub(crate) directory: TempDir,
}

impl Ground {
    pub(crate) fn new() -> Self {
        // Not below /tmp, which the sandbox replaces with one of its own.
        let directory = TempDir::new_in("/var/tmp").unwrap();
        for name in ["base", "dirty", "upper", "work", "at"] {
            fs::create_dir(directory.path().join(name)).unwrap();
        }
        Self { directory }
    }

    pub(crate) fn path(&self, relative: &str) -> PathBuf {
        self.directory.path().join(relative)
    }

    pub(crate) fn layers(&self) -> Layers {
        Layers {
            lowers: vec![self.path("base"), self.path("dirty")],
            upper: self.path("upper"),
            work: self.path("work"),
            at: self.path("at"),
            network: Network::Off,
        }
    }

    pub(crate) fn mount(&self) -> Arc<Mounted> {
        Arc::new(Overlay::mount(&helper(), self.layers()).unwrap())
    }
}

#[test]
fn the_top_layer_takes_what_is_written_by_the_handle() {
    let ground = Ground::new();
    fs::write(ground.path("base/a"), "base").unwrap();
    fs::write(ground.path("dirty/a"), "dirty").unwrap();
    let mounted = ground.mount();
    let handle = mounted.root().try_clone_to_owned().unwrap();
    let root = Root::from_handle(handle, ground.path("at")).unwrap();
    let file = root.open_file(&rel("a")).unwrap().file;
    assert_eq!(std::io::read_to_string(file).unwrap(), "dirty");
    assert!(fs::read_dir(ground.path("at")).unwrap().next().is_none(), "mounted outside too");
    let _ = (ChangeKind::Deleted, OverlayError::NoLayers, Changes::default(), Path::new(""));
    let _: Vec<Change> = Vec::new();
}
