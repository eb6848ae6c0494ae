//! A strict ACP agent that follows a script; see `adjutant_testkit::acp_agent`.

use std::process::ExitCode;

fn main() -> ExitCode {
    adjutant_testkit::acp_agent::main(std::env::args().skip(1))
}
