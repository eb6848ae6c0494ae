//! The scripted agent of the tests as a program.
//!
//! An example, because Cargo builds examples together with the tests of this crate, and the programs of other crates
//! only when the whole workspace is tested.

use std::process::ExitCode;

fn main() -> ExitCode {
    adjutant_testkit::acp_agent::main(std::env::args().skip(1))
}
