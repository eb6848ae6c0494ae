//! The engine in a program that is made to be killed; see `adjutant_testkit::crash_rig`.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(adjutant_testkit::crash_rig::main(std::env::args().skip(1)))
}
