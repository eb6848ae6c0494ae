//! Runs a command and fails when it leaves processes behind; see `adjutant_testkit::leftovers`.

use std::process::ExitCode;

fn main() -> ExitCode {
    adjutant_testkit::leftovers::main(std::env::args().skip(1))
}
