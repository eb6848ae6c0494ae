//! PRDs: what is read and refused, which story is next, what is written back.

mod bytes;
mod consent;
mod editing;
mod order;
mod reading;
mod story_digest;

use adjutant_formats::prd::{Prd, PrdChildOutcome, PrdOutcome};
use adjutant_formats::{Usd, outcome};

fn prd(text: &str) -> Prd {
    Prd::read(text).unwrap()
}

fn refused(text: &str) -> String {
    Prd::read(text).unwrap_err().to_string()
}

/// The outcome of a story that is done.
fn done() -> PrdOutcome {
    PrdOutcome {
        passes: true,
        run: "run_1768900000_abc123".into(),
        status: outcome::Outcome::Completed,
        summary: "All of it works.".into(),
        branch: Some("adjutant/US-007".into()),
        reference: None,
        commit: None,
        cost: Usd::from_pico(450_000_000_000),
        estimated: false,
        tokens_in: 12_500,
        tokens_out: 3_200,
        finished_ms: 1_768_905_322_000,
        children: Vec::new(),
    }
}

fn child(id: &str, parent: &str) -> PrdChildOutcome {
    PrdChildOutcome {
        id: id.into(),
        parent: parent.into(),
        title: "Implement JWT".into(),
        description: "Implement JWT \"tokens\"".into(),
        hours: 4,
        depth: 1,
        can_delegate: true,
        max_delegations: 10,
        passes: true,
        status: outcome::Outcome::Completed,
        summary: "Tokens work.".into(),
        files_changed: vec!["lib/jwt.py".into()],
        cost: Usd::from_pico(120_000_000_000),
        estimated: false,
        tokens_in: 500,
        tokens_out: 40,
    }
}
