//! `cargo xtask dist`: makes every package from one static program.
//!
//! Archives are written by the tools that users of each format have (tar, dpkg-deb, npm, python3), so that this crate
//! needs no dependency for them. Start at [`make_packages`].

mod binary;
mod debian;
mod licences;
mod npm;
mod readme;
mod wheel;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The platform in the names of packages.
const PLATFORM: &str = "x86_64-linux";

/// The completion scripts: the shell, and the file below `share`.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "bash-completion/completions/adjutant"),
    ("zsh", "zsh/site-functions/_adjutant"),
    ("fish", "fish/vendor_completions.d/adjutant.fish"),
];

/// What went wrong, in a sentence.
type Problem = String;

/// The files that every package contains, in the layout of a Unix prefix: `bin`, `share/man/man1` and so on.
struct Release {
    version: String,
    /// The workspace.
    root: PathBuf,
    /// The directory for finished packages.
    dist: PathBuf,
    /// The prefix.
    prefix: PathBuf,
}

/// Makes all packages in `dist/`. Packs `binary` if given, otherwise builds the program first.
pub(crate) fn make_packages(binary: Option<&Path>) -> Result<(), Problem> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("no workspace")?.to_owned();
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let dist = root.join("dist");
    if dist.exists() {
        fs::remove_dir_all(&dist).map_err(|error| format!("cannot empty dist/: {error}"))?;
    }
    let prefix = dist.join("build").join(format!("adjutant-{version}-{PLATFORM}"));
    let release = Release { version, root, dist, prefix };
    let program = match binary {
        Some(file) => file.to_owned(),
        None => binary::build(&release.root)?,
    };
    release.fill_prefix(&program)?;
    release.make_tarball()?;
    debian::make_package(&release)?;
    npm::make_packages(&release)?;
    wheel::make_wheel(&release)?;
    copy(&release.packaging("install.sh"), &release.dist.join("install.sh"), 0o755)?;
    fs::remove_dir_all(release.dist.join("build")).map_err(|error| error.to_string())?;
    release.write_checksums()
}

impl Release {
    /// Returns a file of `xtask/packaging`.
    fn packaging(&self, name: &str) -> PathBuf {
        self.root.join("xtask/packaging").join(name)
    }

    /// Returns a directory for the parts of a package.
    fn build_dir(&self, name: &str) -> PathBuf {
        self.dist.join("build").join(name)
    }

    /// Collects the program, man pages, completions and licences.
    fn fill_prefix(&self, program: &Path) -> Result<(), Problem> {
        let installed = self.prefix.join("bin/adjutant");
        copy(program, &installed, 0o755)?;
        let man = self.prefix.join("share/man/man1");
        fs::create_dir_all(&man).map_err(|error| error.to_string())?;
        run(Command::new(&installed).arg("man-pages").arg(&man))?;
        for (shell, file) in COMPLETIONS {
            let script = output(Command::new(&installed).args(["completions", shell]))?;
            write(&self.prefix.join("share").join(file), &script)?;
        }
        let documents = self.prefix.join("share/doc/adjutant");
        for name in ["LICENSE-MIT", "LICENSE-APACHE", "CHANGELOG.md"] {
            copy(&self.root.join(name), &documents.join(name), 0o644)?;
        }
        write(&documents.join("README.md"), &readme::packaged(self)?)?;
        let dependencies = licences::dependencies(&self.root)?;
        write(&self.dist.join("DEPENDENCIES.txt"), &licences::list(&dependencies))?;
        write(&documents.join("THIRD-PARTY-NOTICES"), &licences::notices(&dependencies)?)
    }

    fn make_tarball(&self) -> Result<(), Problem> {
        let (parent, name) = (self.prefix.parent(), self.prefix.file_name());
        let (parent, name) = parent.zip(name).ok_or("no prefix")?;
        let tarball = self.dist.join(format!("{}.tar.xz", name.display()));
        // The same input gives the same bytes.
        let fixed = ["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mtime=@0"];
        run(Command::new("tar")
            .args(fixed)
            .arg("-cJf")
            .arg(tarball)
            .arg("-C")
            .arg(parent)
            .arg(name))
    }

    fn write_checksums(&self) -> Result<(), Problem> {
        let mut names: Vec<String> = fs::read_dir(&self.dist)
            .map_err(|error| error.to_string())?
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect();
        names.sort();
        let sums = output(Command::new("sha256sum").args(&names).current_dir(&self.dist))?;
        write(&self.dist.join("SHA256SUMS"), &sums)?;
        for name in names {
            let size = fs::metadata(self.dist.join(&name)).map_or(0, |it| it.len());
            println!("{:8.2} MB  dist/{name}", size as f64 / 1e6);
        }
        Ok(())
    }
}

/// Runs a command. The problem names it.
fn run(command: &mut Command) -> Result<(), Problem> {
    let name = command.get_program().display().to_string();
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("`{name}` failed: {status}")),
        Err(error) => Err(format!("cannot run `{name}`: {error}")),
    }
}

/// Runs a command and returns what it prints.
fn output(command: &mut Command) -> Result<String, Problem> {
    let name = command.get_program().display().to_string();
    let done = command.output().map_err(|error| format!("cannot run `{name}`: {error}"))?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr);
        return Err(format!("`{name}` failed: {}", said.trim()));
    }
    String::from_utf8(done.stdout).map_err(|_| format!("`{name}` printed text that is not UTF-8"))
}

/// Writes a file, and the directories above it.
fn write(file: &Path, text: &str) -> Result<(), Problem> {
    let folder = file.parent().ok_or("no directory")?;
    let written = fs::create_dir_all(folder).and_then(|()| fs::write(file, text));
    written.map_err(|error| format!("cannot write {}: {error}", file.display()))
}

/// Copies a file with these permissions, and makes the directories above it.
fn copy(from: &Path, to: &Path, mode: u32) -> Result<(), Problem> {
    let folder = to.parent().ok_or("no directory")?;
    let permissions = fs::Permissions::from_mode(mode);
    let copied = fs::create_dir_all(folder)
        .and_then(|()| fs::copy(from, to))
        .and_then(|_| fs::set_permissions(to, permissions));
    copied.map_err(|error| format!("cannot copy {}: {error}", from.display()))
}

/// Copies a directory tree.
fn copy_tree(from: &Path, to: &Path) -> Result<(), Problem> {
    let folder = to.parent().ok_or("no directory")?;
    fs::create_dir_all(folder).map_err(|error| error.to_string())?;
    run(Command::new("cp").arg("-a").arg(from).arg(to))
}
