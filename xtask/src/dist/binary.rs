//! Builds the portable program: static, so that it runs on every x86-64 Linux, even in an empty root file system.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Problem, output, run};

const TARGET: &str = "x86_64-unknown-linux-gnu";

/// `linux_getrandom`: a static C library finds no getrandom at run time, and /dev/urandom is missing in an empty root.
const FLAGS: &str = r#"-C target-feature=+crt-static --cfg getrandom_backend="linux_getrandom""#;

/// Builds the program and returns its path.
pub(super) fn build(root: &Path) -> Result<PathBuf, Problem> {
    let commit = output(Command::new("git").args(["rev-parse", "HEAD"]).current_dir(root))?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    run(Command::new(cargo)
        .args(["build", "--locked", "--profile", "dist", "-p", "adjutant-cli", "--bin", "adjutant"])
        // With a target, the flags are not those of build scripts and macros, which cannot be static.
        .args(["--target", TARGET])
        .env("RUSTFLAGS", FLAGS)
        .env("ADJUTANT_COMMIT", commit.trim())
        .current_dir(root))?;
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    Ok(target.join(TARGET).join("dist/adjutant"))
}
