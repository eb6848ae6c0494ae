//! Decides registry commands against the current state; nothing else is consulted.

use super::command::RegistryCommand as Command;
use super::event::RegistryEvent as Event;
use super::refusal::RegistryRefusal;
use super::state::{HolderId, Registry};

/// The events of a decision, or why it was refused.
pub(super) type RegistryDecision = Result<Vec<Event>, RegistryRefusal>;

impl Registry {
    /// Judges `command` at `wall_ms` (Unix milliseconds). It is the only function of the registry
    /// that can refuse something.
    ///
    /// # Errors
    ///
    /// The refusal.
    pub fn decide(&self, wall_ms: u64, command: Command) -> RegistryDecision {
        match command {
            Command::Join { holder, pid } => Ok(vec![Event::HolderJoined { holder, pid }]),
            Command::HolderGone { holder } => {
                self.must_know(&holder)?;
                Ok(vec![Event::HolderGone { holder }])
            }
            Command::Import { consents, days, calls } => {
                if *self != Self::default() {
                    return Err(RegistryRefusal::AlreadyImported);
                }
                if consents.is_empty() && days.is_empty() && calls.is_empty() {
                    return Ok(Vec::new());
                }
                Ok(vec![Event::Imported { consents, days, calls }])
            }
            Command::AdmitRun { holder, run, tree, max_runs, call } => {
                self.admit_run(holder, run, tree, max_runs, call)
            }
            Command::EndRun { run } => self.end_run(run),
            Command::ReserveAllowance { holder, run, amount, limit } => {
                self.reserve_allowance(wall_ms, holder, run, amount, limit)
            }
            Command::SettleAllowance { run, spent } => self.settle_allowance(run, spent),
            Command::BeginCall { holder, call, run, instead_of } => {
                self.begin_call(holder, call, run, instead_of)
            }
            Command::AbandonCall { call, run } => {
                self.must_belong(&call, run)?;
                Ok(vec![Event::CallAbandoned { call, run }])
            }
            Command::Wait { holder, run } => self.wait(holder, run),
            Command::StopWaiting { holder, run } => self.stop_waiting(holder, run),
            Command::StartCancelling { holder, run } => self.start_cancelling(holder, run),
            Command::StopCancelling { run } => self.stop_cancelling(run),
            Command::ClaimStory { holder, story } => self.claim_story(holder, story),
            Command::ReleaseStory { holder, story } => {
                self.must_hold(&holder, &story)?;
                Ok(vec![Event::StoryReleased { holder, story }])
            }
            Command::BeginStory { holder, story, run, asked, budget } => {
                self.begin_story(holder, story, run, asked, budget)
            }
            Command::EndStory { run, end, spent, commit, last_child } => {
                self.must_work_on_story(run)?;
                Ok(vec![Event::StoryEnded { run, end, spent, commit, last_child }])
            }
            Command::ImportStoryRuns { prd, runs } => {
                if self.has_imported_story_runs(&prd) {
                    return Err(RegistryRefusal::AlreadyImported);
                }
                Ok(vec![Event::StoryRunsImported { prd, runs }])
            }
            Command::GiveConsent { digest } => self.give_consent(digest),
            Command::OpenQuestion { id, run, hash, code, client, at_prompt } => {
                Ok(vec![Event::QuestionOpened { id, run, hash, code, client, at_prompt }])
            }
            Command::CloseQuestion { id } => {
                if !self.questions.contains_key(&id) {
                    return Err(RegistryRefusal::QuestionUnknown { id });
                }
                Ok(vec![Event::QuestionClosed { id }])
            }
            Command::RecordMerge { tree, run, commit } => {
                if self.has_merged(&tree, &commit) {
                    return Ok(Vec::new());
                }
                Ok(vec![Event::WorkMerged { tree, run, commit }])
            }
            Command::RecordSamples { groups } => Self::record_samples(groups),
            Command::UndoMerge { tree, commit } => {
                if !self.has_merged(&tree, &commit) {
                    return Err(RegistryRefusal::NotMerged { commit });
                }
                Ok(vec![Event::MergeUndone { tree, commit }])
            }
        }
    }

    /// Refuses a process that did not join, or that was removed because it died.
    pub(super) fn must_know(&self, holder: &HolderId) -> Result<(), RegistryRefusal> {
        if self.holders.contains_key(holder) {
            return Ok(());
        }
        Err(RegistryRefusal::UnknownHolder { holder: holder.clone() })
    }

    fn give_consent(&self, digest: String) -> RegistryDecision {
        let is_digest = digest.len() == 64
            && digest.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if !is_digest {
            return Err(RegistryRefusal::NotADigest { digest });
        }
        if self.consents.contains(&digest) {
            return Ok(Vec::new());
        }
        Ok(vec![Event::ConsentGiven { digest }])
    }
}
