//! Delegation markers that were not run, each with the reason.

use adjutant_core::story::RejectedMarker;
use adjutant_core::{ErrorCode, OutcomeReason};
use adjutant_formats::marker::{MarkerContext, parse};

use super::{Delegation, TextRetention};

/// The maximum length of a marker and its reason in a view without texts.
const KEPT: usize = 200;

/// The maximum number of stored markers.
const MOST: usize = 20;

/// Returns what the markers of an answer request.
pub(super) fn markers_in(text: &str) -> Vec<String> {
    let request = MarkerContext { parent: "", depth: 0, start: 1, max: usize::MAX };
    parse(text, &request).delegations.into_iter().map(|it| it.description).collect()
}

impl Delegation {
    /// Stores the markers that were not run: the unreadable ones, or all if all were refused.
    pub(super) fn markers_read(
        &mut self,
        rejected: &[RejectedMarker],
        refused: Option<&OutcomeReason>,
        texts: TextRetention,
    ) {
        let wanted = std::mem::take(&mut self.wanted);
        let unreadable = rejected.iter().map(|it| it.reason.clone());
        let refused: Vec<String> = refused.map(|it| not_run(&wanted, it)).unwrap_or_default();
        for text in unreadable.chain(refused) {
            let text = texts.start_of(&text, KEPT);
            // Duplicates are dropped, and so are markers beyond a readable number.
            if self.unread_markers.len() < MOST && !self.unread_markers.contains(&text) {
                self.unread_markers.push(text);
            }
        }
    }
}

fn not_run(wanted: &[String], refused: &OutcomeReason) -> Vec<String> {
    let why = if refused.code == ErrorCode::DelegationDisabled {
        "delegation is off: add --enable-delegation"
    } else {
        refused.message.as_str()
    };
    if wanted.is_empty() {
        return vec![why.to_owned()];
    }
    wanted.iter().map(|task| format!("{task}: {why}")).collect()
}
