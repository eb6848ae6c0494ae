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
    let commit = commit(root)?;
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), Into::into);
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    run(Command::new(cargo)
        .args(["build", "--locked", "--profile", "dist", "-p", "adjutant-cli", "--bin", "adjutant"])
        // With a target, the flags are not those of build scripts and macros, which cannot be static.
        .args(["--target", TARGET])
        // Encoded, because a path may contain a blank.
        .env("CARGO_ENCODED_RUSTFLAGS", rustc_flags(root, &target).join("\x1f"))
        .env("ADJUTANT_COMMIT", commit)
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

/// Returns the commit of a checkout, marked if files differ from it.
fn commit(root: &Path) -> Result<String, Problem> {
    let git = |arguments: &[&str]| output(Command::new("git").args(arguments).current_dir(root));
    let mut commit = git(&["rev-parse", "--short=12", "HEAD"])?.trim().to_owned();
    if !git(&["status", "--porcelain"])?.is_empty() {
        commit.push_str("-dirty");
    }
    Ok(commit)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use super::{Problem, commit, run};

    #[test]
    fn a_commit_is_marked_if_files_differ_from_it() -> Result<(), Problem> {
        let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
        let root = directory.path();
        let git = |arguments: &[&str]| {
            let person = ["-c", "user.name=You", "-c", "user.email=you@localhost"];
            run(Command::new("git").args(person).args(arguments).current_dir(root))
        };
        fs::write(root.join("file"), "one").map_err(|error| error.to_string())?;
        git(&["init", "-q"])?;
        git(&["add", "file"])?;
        git(&["commit", "-q", "-m", "first"])?;
        let clean = commit(root)?;
        assert_eq!(clean.len(), 12, "{clean}");
        fs::write(root.join("file"), "two").map_err(|error| error.to_string())?;
        assert_eq!(commit(root)?, format!("{clean}-dirty"));
        Ok(())
    }
}
