//! Says in one line that Adjutant needs Linux. Every program with Adjutant in it depends on this crate.
#![allow(clippy::print_stdout, reason = "this is how a build script speaks to cargo")]

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("linux") {
        println!(
            "cargo::error=Adjutant runs on Linux only; on macOS and Windows use a Linux container or WSL \
             (docs/platforms.md)"
        );
    }
}
