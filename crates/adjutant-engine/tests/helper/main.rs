//! A helper program of the tests: the sandbox helper of workspaces, and another process that has a PRD open.

use std::io::Write;

use adjutant_core::{Usd, outcome};
use adjutant_engine::prd::PrdFile;
use adjutant_formats::prd::PrdOutcome;

fn main() {
    adjutant_workspace::sandbox::helper_main_if_asked();
    let mut args = std::env::args().skip(1);
    if let (Some(what), Some(path)) = (args.next(), args.next()) {
        with_prd(&what, &path);
    }
}

/// Opens a PRD. With `save-forever` it writes outcomes until it is killed.
fn with_prd(what: &str, path: &str) {
    let mut out = std::io::stdout();
    let mut file = match PrdFile::open(path) {
        Ok(file) => file,
        Err(error) => return drop(writeln!(out, "{error}")),
    };
    for round in 1.. {
        if writeln!(out, "open {round}").is_err() || what != "save-forever" {
            return;
        }
        let outcome = PrdOutcome {
            passes: round % 2 == 1,
            run: format!("run {round}"),
            status: outcome::Outcome::Completed,
            summary: "x".repeat(round % 5000),
            branch: None,
            reference: None,
            commit: None,
            cost: Usd::ZERO,
            estimated: false,
            tokens_in: 0,
            tokens_out: 0,
            finished_ms: 0,
            children: Vec::new(),
        };
        if file.save("US-001", &outcome).is_err() {
            return;
        }
    }
}
