//! The errors of a run, and which of them a person has marked as fixed.
//!
//! A [`DelegationError`] is one of them, [`DelegationErrors`] are all of a run.

use std::collections::BTreeSet;

use adjutant_core::{ErrorCode, Outcome, OutcomeReason, RunId, SessionId};
use adjutant_formats::contract::ReturnError;

use crate::timed_event::EventTime;

/// An error of a delegation. A return with several errors creates several.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct DelegationError {
    /// The id; derived from the journal, so every fold yields the same.
    pub id: String,
    /// The delegation.
    pub session: SessionId,
    /// When it was recorded.
    pub moment: EventTime,
    /// What happened.
    pub reason: OutcomeReason,
    /// The type and the code from the return that reported the error; absent for errors that the engine
    /// found.
    #[serde(default)]
    pub as_returned: Option<(String, String)>,
}

/// The errors of a run.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct DelegationErrors {
    all: Vec<DelegationError>,
    fixed: BTreeSet<String>,
}

impl DelegationErrors {
    /// Returns all errors in the order they happened.
    #[must_use]
    pub fn all(&self) -> &[DelegationError] {
        &self.all
    }

    /// Returns whether an error is marked as fixed.
    #[must_use]
    pub fn is_fixed(&self, id: &str) -> bool {
        self.fixed.contains(id)
    }

    pub(super) fn fix(&mut self, id: &str) {
        self.fixed.insert(id.to_owned());
    }

    /// Marks all errors of a delegation with this code as fixed.
    pub(super) fn fix_all(&mut self, session: SessionId, code: ErrorCode) {
        let met = self.all.iter().filter(|it| it.session == session && it.reason.code == code);
        self.fixed.extend(met.map(|fault| fault.id.clone()));
    }

    /// Records the end of a delegation. `returned` holds the errors of its return.
    pub(super) fn take(
        &mut self,
        run: RunId,
        session: SessionId,
        moment: EventTime,
        outcome: Outcome,
        reason: Option<&OutcomeReason>,
        returned: &[ReturnError],
    ) {
        match outcome {
            // A delegation that completed after a resume has no open errors.
            Outcome::Completed => {
                let before = self.all.iter().filter(|fault| fault.session == session);
                self.fixed.extend(before.map(|fault| fault.id.clone()));
            }
            // A cancellation or a refusal by a person is not an error.
            Outcome::Cancelled => {}
            Outcome::Partial | Outcome::Failed | Outcome::Blocked if !returned.is_empty() => {
                let name = |what: &str| fault_id(run, session, moment, what);
                self.all.extend(faults_of_return(session, moment, reason, returned, name));
            }
            Outcome::Partial | Outcome::Failed | Outcome::Blocked | Outcome::Refused => {
                let wrong = reason.filter(|reason| {
                    !matches!(reason.code, ErrorCode::Cancelled | ErrorCode::ApprovalDenied)
                });
                self.all.extend(wrong.map(|reason| DelegationError {
                    id: fault_id(run, session, moment, reason.code.as_str()),
                    session,
                    moment,
                    reason: reason.clone(),
                    as_returned: None,
                }));
            }
        }
    }
}

/// Returns one fault for each error of a return.
///
/// The error that ended the delegation is identified by its code alone, as in older versions, so that ids in
/// older journals stay valid.
fn faults_of_return(
    session: SessionId,
    moment: EventTime,
    reason: Option<&OutcomeReason>,
    returned: &[ReturnError],
    name: impl Fn(&str) -> String,
) -> Vec<DelegationError> {
    let ended_with = returned.iter().position(|error| {
        reason.is_some_and(|it| it.message == error.message && it.recoverable == error.recoverable)
    });
    let fault = |(nth, error): (usize, &ReturnError)| {
        let code = ErrorCode::parse(error.code.as_str()).unwrap_or(ErrorCode::UnknownError);
        let id = match ended_with {
            Some(place) if place == nth => name(code.as_str()),
            Some(_) | None => name(&format!("{code} {nth}")),
        };
        let reason = OutcomeReason {
            code,
            message: error.message.clone(),
            recommendation: error.recommendation.clone(),
            recoverable: error.recoverable,
        };
        let as_returned = Some((error.kind.to_string(), error.code.to_string()));
        DelegationError { id, session, moment, reason, as_returned }
    };
    returned.iter().enumerate().map(fault).collect()
}

/// Returns the id of an error: the second of its record, and six characters of a hash.
pub(crate) fn fault_id(run: RunId, session: SessionId, moment: EventTime, what: &str) -> String {
    let what = format!("{run} {session} {} {what}", moment.at.as_millis());
    format!("err_{}_{}", moment.wall_ms / 1_000, six_of(&what))
}

const LETTERS: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";

/// Returns six characters of `a-z0-9`, a hash of `text` (FNV-1a).
fn six_of(text: &str) -> String {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in text.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    (0..6)
        .map(|_| {
            let letter = LETTERS[(hash % 36) as usize];
            hash /= 36;
            char::from(letter)
        })
        .collect()
}
