//! The real binary: building it and what it talks to, starting it through `launch`.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Failure;
use crate::args::LAUNCH;
use crate::launch::ProcessUsage;
use crate::say;

/// The profile of packages. Its directory below the target directory has the same name.
const PROFILE: &str = "dist";

/// The `adjutant` binary of this very source tree, built as for packages.
#[derive(Clone, Debug)]
pub(crate) struct Binary {
    path: PathBuf,
    launcher: PathBuf,
}

impl Binary {
    /// Builds the binary where it is missing or stale.
    pub(crate) fn build() -> Result<Self, Failure> {
        let launcher = std::env::current_exe()?;
        Ok(Self { path: build("adjutant-cli", "adjutant")?, launcher })
    }

    /// Builds the binary with the cargo feature `restate` into a target directory of its own, so that the ordinary one
    /// stays what packages have. The variable `ADJUTANT_CLUSTER_BINARY` names one that was built before.
    pub(crate) fn build_with_restate() -> Result<Self, Failure> {
        let launcher = std::env::current_exe()?;
        if let Some(path) = std::env::var_os("ADJUTANT_CLUSTER_BINARY") {
            return Ok(Self { path: path.into(), launcher });
        }
        let target = target_dir()?.join("restate");
        let path = build_into(&target, "adjutant-cli", "adjutant", &["--features", "restate"])?;
        Ok(Self { path, launcher })
    }

    /// Returns where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Runs `adjutant` with `args`, in an environment without settings, and returns what it took.
    pub(crate) fn run(&self, dir: &Path, args: &[OsString]) -> Result<ProcessUsage, Failure> {
        self.run_in(dir, args, &[])
    }

    /// Does the same in an environment of nothing but `vars`.
    pub(crate) fn run_in(
        &self,
        dir: &Path,
        args: &[OsString],
        vars: &[(&str, &OsStr)],
    ) -> Result<ProcessUsage, Failure> {
        let output = Command::new(&self.launcher)
            .arg(LAUNCH)
            .arg(&self.path)
            .args(args)
            .current_dir(dir)
            .env_clear()
            .envs(vars.iter().copied())
            .stderr(Stdio::inherit())
            .output()?;
        if !output.status.success() {
            return Err(format!("adjutant could not be measured with {args:?}").into());
        }
        let taken: ProcessUsage = serde_json::from_slice(&output.stdout)?;
        match taken.code {
            Some(0) => Ok(taken),
            code => Err(format!("adjutant ended with {code:?}: {args:?}").into()),
        }
    }
}

/// Builds one program with the profile of packages where it is missing or stale, and returns its path.
///
/// Each is built alone: together they would share the features of their dependencies, and what is
/// measured would not be what a person installs.
pub(crate) fn build(package: &str, program: &str) -> Result<PathBuf, Failure> {
    build_into(&target_dir()?, package, program, &[])
}

fn build_into(
    target: &Path,
    package: &str,
    program: &str,
    more: &[&str],
) -> Result<PathBuf, Failure> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    say(&format!("building {program} …"));
    let built = Command::new(cargo)
        .args(["build", "--quiet", "--profile", PROFILE, "-p", package, "--bin", program])
        .args(more)
        .arg("--target-dir")
        .arg(target)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stdout(Stdio::null())
        .status()?;
    if !built.success() {
        return Err(format!("cargo could not build {program}").into());
    }
    Ok(target.join(PROFILE).join(program))
}

/// Returns cargo's target directory, which this program was built into.
pub(crate) fn target_dir() -> Result<PathBuf, Failure> {
    let exe = std::env::current_exe()?;
    let target = exe.ancestors().nth(2).ok_or("this program is not in a target directory")?;
    Ok(target.to_owned())
}
