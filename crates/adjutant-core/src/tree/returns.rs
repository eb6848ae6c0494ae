//! What an agent hands back, judged against the contract: taken, or sent back for repair.

use std::collections::BTreeMap;

use super::node::End;
use super::turn::Held;
use super::{ROOT, Tree};
use crate::code::Code;
use crate::contract::{
    ArtifactFact, Contract, Metadata, MetadataSource, Status, repair_message, validate,
};
use crate::event::{Event, Nudge};
use crate::ids::{AgentName, SessionId};
use crate::outcome::{Outcome, Reason};
use crate::policy::ContractKind;
use crate::time::Timestamp;

/// Times an invalid return goes back to the model.
pub const MAX_REPAIRS: u32 = 2;
const EMPTY: &str = "Your answer was empty. Write your report as text.";

impl Tree {
    /// Judges the last answer against the contract: ends, or asks for a repair.
    pub(super) fn conclude(
        &self,
        now: Timestamp,
        session: SessionId,
        text: &str,
        artifacts: &[(String, ArtifactFact)],
    ) -> Vec<Event> {
        let Some((index, node)) = self.live(session) else { return Vec::new() };
        if !node.final_text {
            return Vec::new();
        }
        if let Some(code) = node.last_call {
            return self.end_subtree(index, &self.exhausted(code, node));
        }
        // The root answers a person, in free text; the contract is for what is handed up.
        let contract = if index == ROOT { ContractKind::Report } else { self.policy.contract };
        let (end, complaint) = match contract {
            ContractKind::Report if text.trim().is_empty() => (None, EMPTY.to_owned()),
            ContractKind::Report => (Some(End::completed()), String::new()),
            ContractKind::Standard => judge_return(text, self.metadata(now, index), artifacts),
        };
        let is_over = end.is_some() || node.repairs >= MAX_REPAIRS;
        if is_over && !self.mail(index, node, &Held::default()).is_empty() {
            // A person spoke after its last call: it hears that before anything is final.
            return self.take_turn_beside(session, &Held::default());
        }
        match end {
            Some(end) => self.end_subtree(index, &end),
            None if node.repairs < MAX_REPAIRS => {
                vec![Event::Told { session, nudge: Nudge::Repair, text: complaint }]
            }
            None => self.end_subtree(
                index,
                &End::new(
                    Outcome::Failed,
                    Code::ValidationFailed,
                    format!(
                        "The return was still invalid after {MAX_REPAIRS} repairs. {complaint}"
                    ),
                    "Read the original answer in the transcript, or delegate the task again.",
                ),
            ),
        }
    }

    /// Returns what the engine knows about a delegation, which no model has to claim.
    fn metadata(&self, now: Timestamp, index: usize) -> Metadata {
        let node = &self.nodes[index];
        Metadata {
            session_id: node.session,
            duration_seconds: now.since(node.started.unwrap_or_default()).as_secs(),
            agent_type: node.agent.clone(),
            delegation_depth: u32::try_from(node.depth).unwrap_or(u32::MAX),
            delegation_path: self.path(index).iter().map(|name| AgentName::new(name)).collect(),
        }
    }
}

/// Judges a standard return; `None` with the complaint when it must be repaired.
fn judge_return(
    text: &str,
    metadata: Metadata,
    artifacts: &[(String, ArtifactFact)],
) -> (Option<End>, String) {
    let contract = Contract {
        expected_session: Some(metadata.session_id),
        artifacts_required: false,
        metadata: MetadataSource::Engine(metadata),
    };
    let known: BTreeMap<&str, ArtifactFact> =
        artifacts.iter().map(|(path, fact)| (path.as_str(), *fact)).collect();
    let fact = |path: &str| known.get(path).copied().unwrap_or(ArtifactFact::Unchecked);
    let verdict = validate(text, &contract, &fact);
    let complaint = repair_message(&verdict);
    let end = verdict.accepted().map(|returned| {
        let outcome = match returned.status {
            Status::Completed => Outcome::Completed,
            Status::Failed => Outcome::Failed,
            Status::Partial => Outcome::Partial,
            Status::Blocked => Outcome::Blocked,
        };
        let first = returned.errors.first().filter(|_| outcome != Outcome::Completed);
        let reason = first.map(|error| Reason {
            code: Code::parse(error.code.as_str()).unwrap_or(Code::UnknownError),
            message: error.message.clone(),
            recommendation: error.recommendation.clone(),
            recoverable: error.recoverable,
        });
        End { outcome, reason }
    });
    (end, complaint)
}
