//! Builds the portable program: static, so that it runs on every x86-64 Linux, even in an empty root file system.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Problem, output, run};

const TARGET: &str = "x86_64-unknown-linux-gnu";

/// `linux_getrandom`: a static C library finds no getrandom at run time, and /dev/urandom is missing in an empty root.
const FLAGS: [&str; 4] =
    ["-C", "target-feature=+crt-static", "--cfg", r#"getrandom_backend="linux_getrandom""#];

/// Builds the program and returns its path.
pub(super) fn build(root: &Path) -> Result<PathBuf, Problem> {
    let commit = output(Command::new("git").args(["rev-parse", "HEAD"]).current_dir(root))?;
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), Into::into);
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    run(Command::new(cargo)
        .args(["build", "--locked", "--profile", "dist", "-p", "adjutant-cli", "--bin", "adjutant"])
        // With a target, the flags are not those of build scripts and macros, which cannot be static.
        .args(["--target", TARGET])
        // Encoded, because a path may contain a blank.
        .env("CARGO_ENCODED_RUSTFLAGS", rustc_flags(root, &target).join("\x1f"))
        .env("ADJUTANT_COMMIT", commit.trim())
        .current_dir(root))?;
    Ok(target.join(TARGET).join("dist/adjutant"))
}

/// Returns the flags of the compiler. Paths of the machine that builds stay out of the program, where panic messages and
/// `file!()` would have them.
fn rustc_flags(root: &Path, target: &Path) -> Vec<String> {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let cargo_home =
        std::env::var_os("CARGO_HOME").map_or_else(|| home.join(".cargo"), PathBuf::from);
    // The last prefix that fits wins, so the deepest are last: a target directory is often below the checkout.
    let prefixes = [(root, "/adjutant"), (target, "/target"), (&cargo_home, "/cargo")];
    let remaps =
        prefixes.map(|(path, name)| format!("--remap-path-prefix={}={name}", path.display()));
    FLAGS.iter().map(|it| (*it).to_owned()).chain(remaps).collect()
}
