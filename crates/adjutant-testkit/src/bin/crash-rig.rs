//! The engine in a program that tests kill; see `adjutant_testkit::crash_rig`.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(adjutant_testkit::crash_rig::main(std::env::args().skip(1)))
}
