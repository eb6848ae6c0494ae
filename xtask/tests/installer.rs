//! The shell installer, run with small tarballs. `tests/dist` runs it with a real one.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

/// The tools that the installer may use, without xz.
const TOOLS: [&str; 14] = [
    "sh",
    "tar",
    "sed",
    "sort",
    "grep",
    "dirname",
    "basename",
    "uname",
    "mkdir",
    "rm",
    "rmdir",
    "sha256sum",
    "tail",
    "cat",
];

/// A directory with the installer, tarballs, and an empty home directory.
struct Site(TempDir);

impl Site {
    fn new(versions: &[&str]) -> Self {
        let site = Self(TempDir::new().unwrap());
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/install.sh");
        fs::copy(script, site.path("install.sh")).unwrap();
        fs::create_dir(site.path("home")).unwrap();
        for version in versions {
            let name = format!("adjutant-{version}-x86_64-linux");
            let program = site.path(&name).join("bin/adjutant");
            fs::create_dir_all(program.parent().unwrap()).unwrap();
            fs::write(&program, format!("#!/bin/sh\necho adjutant {version}\n")).unwrap();
            fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
            fs::create_dir_all(site.path(&name).join("share/man")).unwrap();
            fs::write(site.path(&name).join("share/man/adjutant.1"), version).unwrap();
            let tarball = site.path(&format!("{name}.tar.xz"));
            let packed = Command::new("tar")
                .arg("-cJf")
                .arg(tarball)
                .arg("-C")
                .arg(site.0.path())
                .arg(&name)
                .status();
            assert!(packed.unwrap().success());
        }
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("sh");
        command.arg(self.path("install.sh")).args(arguments).current_dir(self.0.path());
        command.env("HOME", self.path("home"));
        command
    }

    fn run(&self, arguments: &[&str]) -> String {
        self.told(&self.command(arguments).output().unwrap())
    }

    /// Returns what a run has printed, with the exit code if it failed.
    fn told(&self, output: &Output) -> String {
        let text = [&output.stdout[..], &output.stderr[..]].concat();
        let text = String::from_utf8(text).unwrap();
        let text = text.replace(self.0.path().to_str().unwrap(), "$SITE");
        match output.status.code() {
            Some(0) => text,
            code => format!("{text}exit {}\n", code.unwrap()),
        }
    }
}

#[test]
fn the_newest_of_several_versions_is_installed_and_removed() {
    let site = Site::new(&["0.2.0", "0.10.0"]);
    let said = site.run(&[]);
    assert_eq!(
        said,
        "installed adjutant 0.10.0 below $SITE/home/.local\n\
         try it: $SITE/home/.local/bin/adjutant demo (add $SITE/home/.local/bin to PATH)\n"
    );
    assert!(site.run(&[]).starts_with("installed adjutant 0.10.0"), "over itself");
    assert_eq!(site.run(&["--uninstall"]), "removed Adjutant from $SITE/home/.local\n");
    assert!(!site.path("home/.local").exists());
}

#[test]
fn a_foreign_program_is_neither_replaced_nor_removed() {
    let site = Site::new(&["0.2.0"]);
    let foreign = site.path("home/.local/bin/adjutant");
    fs::create_dir_all(foreign.parent().unwrap()).unwrap();
    fs::write(&foreign, "mine").unwrap();
    assert_eq!(
        site.run(&[]),
        "install.sh: $SITE/home/.local/bin/adjutant is not from this installer; remove it, or install elsewhere with \
         --prefix DIR\nexit 1\n"
    );
    assert_eq!(
        site.run(&["--uninstall"]),
        "install.sh: nothing is installed below $SITE/home/.local\nexit 1\n"
    );
    assert_eq!(fs::read_to_string(&foreign).unwrap(), "mine");
    assert!(!site.path("home/.local/share").exists());
}

#[test]
fn without_a_home_directory_the_prefix_must_be_given() {
    let site = Site::new(&["0.2.0"]);
    let said = site.told(&site.command(&[]).env_remove("HOME").output().unwrap());
    assert_eq!(said, "install.sh: HOME is not set; name a directory with --prefix DIR\nexit 2\n");
    let said = site.told(&site.command(&["--prefix", "here"]).env_remove("HOME").output().unwrap());
    assert!(said.starts_with("installed adjutant 0.2.0 below $SITE/here\n"), "{said}");
}

#[test]
fn a_relative_prefix_is_shown_as_an_absolute_path() {
    let site = Site::new(&["0.2.0"]);
    assert_eq!(
        site.run(&["--prefix", "here"]),
        "installed adjutant 0.2.0 below $SITE/here\n\
         try it: $SITE/here/bin/adjutant demo (add $SITE/here/bin to PATH)\n"
    );
}

#[test]
fn a_missing_xz_and_a_broken_tarball_are_told_apart() {
    let site = Site::new(&["0.2.0"]);
    let tools = site.path("tools");
    fs::create_dir(&tools).unwrap();
    for tool in TOOLS {
        let found = std::env::split_paths(&std::env::var_os("PATH").unwrap())
            .map(|directory| directory.join(tool))
            .find(|file| file.exists());
        symlink(found.unwrap(), tools.join(tool)).unwrap();
    }
    let said = site.told(&site.command(&[]).env("PATH", &tools).output().unwrap());
    assert_eq!(
        said,
        "install.sh: xz is needed to unpack the tarball; install xz-utils (Debian, Ubuntu) or xz\nexit 1\n"
    );
    fs::write(site.path("adjutant-0.2.0-x86_64-linux.tar.xz"), "no archive").unwrap();
    assert_eq!(
        site.run(&[]),
        "install.sh: $SITE/adjutant-0.2.0-x86_64-linux.tar.xz is not a tarball of Adjutant\nexit 1\n"
    );
    assert!(!site.path("home/.local").exists());
}
