//! Overlays: mounted by a holder, used by a handle, read as changes.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use adjutant_workspace::Root;
use adjutant_workspace::overlay::{ChangeKind, Changes, Layers, Mounted, Overlay, OverlayError};
use adjutant_workspace::sandbox::{Helper, Network};
use rustix::fs::{Mode, OFlags, openat};
use tempfile::TempDir;

use crate::rel;

/// The helper and probe; elsewhere when another account runs the tests that cannot read the build's directory.
pub(crate) static PROBE: LazyLock<String> = LazyLock::new(|| {
    let built = env!("CARGO_BIN_EXE_workspace-probe");
    std::env::var("ADJUTANT_TEST_PROBE").unwrap_or_else(|_| built.to_owned())
});

pub(crate) fn helper() -> Helper {
    Helper::at(PROBE.as_str())
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
    let flags = OFlags::CREATE | OFlags::WRONLY;
    let new = openat(mounted.root(), "new", flags, Mode::from_raw_mode(0o644)).unwrap();
    rustix::io::write(&new, b"from outside").unwrap();
    assert_eq!(fs::read_to_string(ground.path("upper/new")).unwrap(), "from outside");
}

/// Shell commands in the merged tree, and what the changes are then.
#[test]
fn changes_are_what_commands_did() {
    let cases = [
        ("nothing", "cat file >/dev/null; ls dir >/dev/null", ""),
        ("a file is written", "echo x > file", "file: file"),
        ("a file is made executable", "chmod +x file", "file: executable"),
        ("a new file in an old directory", "echo x > dir/new", "dir: directory\ndir/new: file"),
        ("a file is deleted", "rm dir/inner", "dir: directory\ndir/inner: deleted"),
        ("a directory is deleted", "rm -r dir", "dir: deleted"),
        (
            "a file becomes a directory",
            "rm file; mkdir file; echo x > file/x",
            "file: replaced directory\nfile/x: file",
        ),
        ("a directory becomes a file", "rm -r dir; echo x > dir", "dir: file"),
        ("a file becomes a link", "rm file; ln -s dir file", "file: link"),
        ("a directory becomes a link", "rm -r dir; ln -s file dir", "dir: link"),
        ("a link becomes a file", "rm link; echo x > link", "link: file"),
        (
            "a directory is made anew",
            "rm -r dir; mkdir dir; echo x > dir/other",
            "dir: replaced directory\ndir/other: file",
        ),
        ("a file is renamed", "mv file moved", "file: deleted\nmoved: file"),
        (
            "a directory is renamed",
            "mv dir moved 2>/dev/null || cp -r dir moved && rm -rf dir",
            "dir: deleted\nmoved: directory\nmoved/inner: file",
        ),
        ("a new directory", "mkdir fresh; echo x > fresh/x", "fresh: directory\nfresh/x: file"),
        ("made and deleted again", "echo x > gone; rm gone", ""),
        ("a pipe", "mkfifo pipe", "pipe: special"),
        ("a name of any bytes", r"echo x > \$\'\\n", r"$'\n: file"),
    ];
    for (name, commands, expected) in cases {
        let ground = Ground::new();
        fs::create_dir(ground.path("base/dir")).unwrap();
        fs::write(ground.path("base/dir/inner"), "inner").unwrap();
        fs::write(ground.path("base/file"), "file").unwrap();
        std::os::unix::fs::symlink("dir", ground.path("base/link")).unwrap();
        let mounted = ground.mount();
        let mut command = mounted.command("/bin/sh", &ground.path("at"));
        assert!(command.args(["-c", commands]).status().unwrap().success(), "{name}");
        let changes = Changes::read(&ground.path("upper")).unwrap();
        assert_eq!(said(&changes), expected, "{name}");
        assert_eq!(changes.is_empty(), expected.is_empty(), "{name}");
    }
}

fn said(changes: &Changes) -> String {
    let word = |kind: ChangeKind| match kind {
        ChangeKind::File { executable: false } => "file",
        ChangeKind::File { executable: true } => "executable",
        ChangeKind::Link => "link",
        ChangeKind::Deleted => "deleted",
        ChangeKind::Directory => "directory",
        ChangeKind::ReplacedDirectory => "replaced directory",
        ChangeKind::Special => "special",
    };
    let line = |it: &adjutant_workspace::overlay::Change| {
        format!("{}: {}", it.path.display(), word(it.kind))
    };
    changes.all.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_directory_closed_to_us_is_reported_and_not_forgotten() {
    let ground = Ground::new();
    fs::create_dir(ground.path("upper/closed")).unwrap();
    fs::write(ground.path("upper/closed/x"), "x").unwrap();
    fs::set_permissions(ground.path("upper/closed"), fs::Permissions::from_mode(0o000)).unwrap();
    let changes = Changes::read(&ground.path("upper")).unwrap();
    fs::set_permissions(ground.path("upper/closed"), fs::Permissions::from_mode(0o700)).unwrap();
    // Root looks into everything.
    let seen = changes.paths(|kind| matches!(kind, ChangeKind::File { .. })).count();
    assert_eq!(seen + changes.unreadable.len(), 1, "{changes:?}");
    assert!(!changes.is_empty());
}

#[test]
fn an_upper_is_mounted_once_at_a_time() {
    let ground = Ground::new();
    let first = Overlay::mount(&helper(), ground.layers()).unwrap();
    let second = Overlay::mount(&helper(), ground.layers());
    assert!(matches!(second, Err(OverlayError::InUse { .. })), "{second:?}");
    first.unmount();
    Overlay::mount(&helper(), ground.layers()).unwrap();
}

#[test]
fn what_was_mounted_ends_with_its_handle() {
    let ground = Ground::new();
    let mounted = Overlay::mount(&helper(), ground.layers()).unwrap();
    let command = mounted.command("/bin/true", &ground.path("at"));
    let holder = command.get_args().nth(2).unwrap().to_str().unwrap().to_owned();
    assert!(Path::new("/proc").join(&holder).exists());
    drop(mounted);
    assert!(!Path::new("/proc").join(&holder).exists());
}

#[test]
fn many_layers_with_awkward_names_are_mounted_in_order() {
    let ground = Ground::new();
    let mut layers = ground.layers();
    layers.lowers = (0..400)
        .map(|number| {
            let lower =
                ground.path(&format!("layer, with:colon \\ and a long name, number {number}"));
            fs::create_dir(&lower).unwrap();
            fs::write(lower.join("which"), number.to_string()).unwrap();
            lower
        })
        .collect();
    let mounted = Overlay::mount(&helper(), layers.clone()).unwrap();
    let mut command = mounted.command("/bin/cat", &ground.path("at"));
    let output = command.arg("which").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "399");
    layers.lowers = vec![ground.path("base"); 501];
    let refused = Overlay::mount(&helper(), layers.clone());
    assert!(matches!(refused, Err(OverlayError::TooManyLayers { count: 501 })), "{refused:?}");
    layers.lowers.clear();
    assert!(matches!(Overlay::mount(&helper(), layers), Err(OverlayError::NoLayers)));
}

#[test]
fn what_cannot_be_mounted_says_why() {
    let ground = Ground::new();
    Overlay::probe(&helper(), ground.directory.path()).unwrap();
    let left: Vec<_> =
        fs::read_dir(ground.directory.path()).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert_eq!(left.len(), 5, "the probe left something: {left:?}");
    let mut layers = ground.layers();
    layers.lowers.push(ground.path("missing"));
    let refused = Overlay::mount(&helper(), layers).unwrap_err();
    assert!(refused.to_string().contains("lower layer: No such file"), "{refused}");
    // A state directory that itself lies on an overlay.
    let mounted = ground.mount();
    let output = mounted
        .command(PROBE.as_str(), &ground.path("at"))
        .args(["overlay", "."])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("lies on overlayfs"), "{said}");
}
