//! Writes the text of `--version`, and asks the linker for compact relocations where the C library can read them.
//!
//! The loader reads every relocation at the start of a process: as a plain table they are 0.7 MB in the
//! memory of each run, packed they are 10 kB. A program made so needs at least [`READS_PACKED`] wherever
//! it is taken, so one that is made for another machine, or upon an older library, is left as it was.
#![allow(clippy::print_stdout, reason = "this is how a build script speaks to cargo")]

use std::env;
use std::process::Command;

/// The first glibc whose loader reads packed relocations.
const READS_PACKED: (u32, u32) = (2, 36);

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=ADJUTANT_COMMIT");
    println!("cargo::rustc-env=BUILD_VERSION={}", version());
    if may_pack() {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

/// Returns the version, with the commit and the kind of the build. Only packages know their commit for certain: a source
/// tree may have changed since its last commit.
fn version() -> String {
    let read = |name: &str| env::var(name).unwrap_or_default();
    let commit = read("ADJUTANT_COMMIT");
    let origin = if commit.is_empty() { "from source" } else { commit.as_str() };
    let is_static = read("CARGO_CFG_TARGET_FEATURE").split(',').any(|it| it == "crt-static");
    let linking = if is_static { ", static" } else { "" };
    let profile = read("PROFILE");
    format!("{} ({origin}, {profile}{linking}, {})", read("CARGO_PKG_VERSION"), read("TARGET"))
}

/// Says whether the program is for this machine, which is what its C library can be asked about.
fn may_pack() -> bool {
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|it| it == value);
    let is_glibc = is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ENV", "gnu");
    let is_native = env::var("TARGET").is_ok_and(|target| is("HOST", &target));
    is_glibc && is_native && glibc().is_some_and(|version| version >= READS_PACKED)
}

/// Returns the version of the C library that programs here are linked with.
fn glibc() -> Option<(u32, u32)> {
    let said = Command::new("getconf").arg("GNU_LIBC_VERSION").output().ok()?.stdout;
    let said = String::from_utf8(said).ok()?;
    let (major, rest) = said.trim().strip_prefix("glibc ")?.split_once('.')?;
    let minor = rest.split('.').next()?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}
