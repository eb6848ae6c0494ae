//! Tasks of the cargo workspace itself: `cargo xtask dist` makes the packages, `cargo xtask shots` the pictures. The checks are in `tests/tidy.rs` and run
//! with all other tests.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command line speaks to its terminal"
)]

mod dist;
mod shots;

use std::process::ExitCode;

const HELP: &str = "\
Usage: cargo xtask dist [--binary FILE]
       cargo xtask shots [NAME]...

  dist   Builds the portable program for x86-64 Linux and makes all packages of it in dist/: tarball, Debian package,
         npm packages, Python wheel, installer, checksums, the list of dependencies and their licences.
         --binary FILE packs this program instead of building one.
         Needs: tar, xz, dpkg-deb, npm, python3, sha256sum.
  shots  Draws the pictures in docs/ anew from real runs with a scripted model. Needs: git, python3.";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["dist"] => dist::make_packages(None),
        ["dist", "--binary", file] => dist::make_packages(Some(file.as_ref())),
        ["shots", names @ ..] => shots::draw_pictures(names),
        ["-h" | "--help"] => {
            println!("{HELP}");
            Ok(())
        }
        _ => Err(HELP.to_owned()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::from(2)
        }
    }
}
