//! Overlays: mounting them in a holder, using them by handle, reading their changes.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, LazyLock};

use adjutant_workspace::overlay::{MountedOverlay, Overlay, OverlayError, OverlayLayers};
use adjutant_workspace::sandbox::{
    NetworkAccess, ProgramEnd, ProgramSpec, Sandbox, SandboxHelper, SandboxWorkspace,
};
use adjutant_workspace::{FileChange, Root, layer_changes};
use rustix::fs::{Mode, OFlags, openat};
use tempfile::TempDir;

use crate::rel;
use crate::sandbox::{config, run};

/// The helper and probe program; at another path if the account that runs the tests cannot read the build
/// directory.
pub(crate) static PROBE: LazyLock<String> = LazyLock::new(|| {
    let built = env!("CARGO_BIN_EXE_workspace-probe");
    std::env::var("ADJUTANT_TEST_PROBE").unwrap_or_else(|_| built.to_owned())
});

pub(crate) fn helper() -> SandboxHelper {
    SandboxHelper::at(PROBE.as_str())
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

    pub(crate) fn layers(&self) -> OverlayLayers {
        OverlayLayers {
            lowers: vec![self.path("base"), self.path("dirty")],
            upper: self.path("upper"),
            work: self.path("work"),
            at: self.path("at"),
            network: NetworkAccess::Off,
            caches: Vec::new(),
        }
    }

    pub(crate) fn mount(&self) -> Arc<MountedOverlay> {
        Arc::new(Overlay::mount(&helper(), self.layers()).unwrap())
    }
}

#[test]
fn files_written_through_the_handle_are_in_the_upper_layer() {
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

/// Shell commands in the merged tree, and the resulting changes.
#[test]
fn the_upper_layer_shows_what_commands_changed() {
    let cases = [
        ("nothing", "cat file >/dev/null; ls dir >/dev/null", ""),
        ("a file is written", "echo x > file", "+file"),
        ("a file is made executable", "chmod +x file", "+file"),
        ("a new file in an old directory", "echo x > dir/new", "+dir/new"),
        ("a file is deleted", "rm dir/inner", "-dir/inner"),
        ("a directory is deleted", "rm -r dir", "-dir"),
        ("a file becomes a directory", "rm file; mkdir file; echo x > file/x", "-file +file/x"),
        ("a directory becomes a file", "rm -r dir; echo x > dir", "+dir"),
        ("a file becomes a link", "rm file; ln -s dir file", "+file"),
        ("a directory becomes a link", "rm -r dir; ln -s file dir", "+dir"),
        ("a link becomes a file", "rm link; echo x > link", "+link"),
        ("a directory is made anew", "rm -r dir; mkdir dir; echo x > dir/other", "-dir +dir/other"),
        ("a file is renamed", "mv file moved", "-file +moved"),
        (
            "a directory is renamed",
            "mv dir moved 2>/dev/null || cp -r dir moved && rm -rf dir",
            "-dir +moved/inner",
        ),
        ("a new directory", "mkdir fresh; echo x > fresh/x", "+fresh/x"),
        ("made and deleted again", "echo x > gone; rm gone", ""),
        ("a pipe", "mkfifo pipe", "?pipe"),
        ("a name of any bytes", r"echo x > \$\'\\n", r"+$'\n"),
    ];
    for (name, commands, expected) in cases {
        let ground = Ground::new();
        fs::create_dir(ground.path("base/dir")).unwrap();
        fs::write(ground.path("base/dir/inner"), "inner").unwrap();
        fs::write(ground.path("base/file"), "file").unwrap();
        std::os::unix::fs::symlink("dir", ground.path("base/link")).unwrap();
        let place = SandboxWorkspace::Overlay(ground.mount());
        let sandbox = Sandbox::new(config(&ground, place)).unwrap();
        let (ended, said) = run(&sandbox, &ProgramSpec::shell(commands)).unwrap();
        assert_eq!(ended.end, ProgramEnd::Exited(0), "{name}: {said}");
        let upper = Root::open(ground.path("upper")).unwrap();
        let (changes, skipped) = layer_changes(&upper).unwrap();
        let change = |it: &FileChange| match it {
            FileChange::Written(path) => format!("+{}", path.as_path().display()),
            FileChange::Deleted(path) => format!("-{}", path.as_path().display()),
        };
        let left_out = skipped.iter().map(|it| format!("?{}", it.path.display()));
        let shown: Vec<String> = changes.iter().map(change).chain(left_out).collect();
        assert_eq!(shown.join(" "), expected, "{name}");
    }
}

/// Finds the processes that have an overlay mounted at a path.
pub(crate) fn holders(ground: &Ground) -> Vec<i32> {
    let at = ground.path("at").display().to_string();
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let numbers = processes.filter_map(|it| it.file_name().to_str()?.parse().ok());
    let mounts = |number: &i32| {
        let mounts = fs::read_to_string(format!("/proc/{number}/mountinfo"));
        mounts.is_ok_and(|mounts| mounts.contains(&at))
    };
    numbers.filter(mounts).collect()
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
fn dropping_the_handle_ends_the_mount() {
    let ground = Ground::new();
    let mounted = Overlay::mount(&helper(), ground.layers()).unwrap();
    assert_ne!(holders(&ground), Vec::<i32>::new());
    drop(mounted);
    assert_eq!(holders(&ground), Vec::<i32>::new());
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
    let which = openat(mounted.root(), "which", OFlags::RDONLY, Mode::empty()).unwrap();
    assert_eq!(std::io::read_to_string(fs::File::from(which)).unwrap(), "399");
    drop(mounted);
    layers.lowers = vec![ground.path("base"); 501];
    let refused = Overlay::mount(&helper(), layers.clone());
    assert!(matches!(refused, Err(OverlayError::TooManyLayers { count: 501 })), "{refused:?}");
    layers.lowers.clear();
    assert!(matches!(Overlay::mount(&helper(), layers), Err(OverlayError::NoLayers)));
}

#[test]
fn a_failed_mount_says_why() {
    let ground = Ground::new();
    Overlay::probe(&helper(), ground.directory.path()).unwrap();
    let left: Vec<_> =
        fs::read_dir(ground.directory.path()).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert_eq!(left.len(), 5, "the probe left something: {left:?}");
    let mut layers = ground.layers();
    layers.lowers.push(ground.path("missing"));
    let refused = Overlay::mount(&helper(), layers).unwrap_err();
    assert!(refused.to_string().contains("lower layer: No such file"), "{refused}");
    // A state directory that is itself on an overlay.
    let script = format!(
        "mount -t overlay overlay -o lowerdir=base,upperdir=upper,workdir=work,userxattr at && cd at && {} overlay .",
        PROBE.as_str()
    );
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "/bin/sh", "-c", &script])
        .current_dir(ground.directory.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("is on overlayfs"), "{said} {output:?}");
}
