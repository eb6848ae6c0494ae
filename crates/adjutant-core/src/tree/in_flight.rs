//! The effects that were started and are not over.
//!
//! A runtime keeps one [`EffectsInFlight`] beside its tree and passes it to [`Tree::react`]; a new
//! process starts with an empty one. Invariant: it holds exactly the effects that were due at the
//! last call, so each effect is started once.
//!
//! An [`EffectKey`] identifies one effect by its kind and its `EffectTarget`: a session, a call, a
//! text, or nothing.

use std::collections::{BTreeMap, BTreeSet};

use super::Tree;
use super::due::{DueSubject, stopped_by};
use crate::assignment::UpdateTrigger;
use crate::command::{Command, Effect, Reaction};
use crate::event::Event;
use crate::ids::SessionId;

/// The effects that are running, by what they are for.
#[derive(Clone, Debug, Default)]
pub struct EffectsInFlight(BTreeMap<DueSubject, BTreeSet<EffectKey>>);

/// The identity of an effect, without the fields that may differ when it is computed again.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EffectKey {
    kind: &'static str,
    about: EffectTarget,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum EffectTarget {
    Session(SessionId),
    /// A session, a turn, and a number within the turn.
    CallStep(SessionId, u32, u32),
    /// The hash of a question, or a host name.
    Text(String),
    Nothing,
}

impl Tree {
    /// Returns what follows from `events`, which were decided together and have been folded in:
    /// commands to decide at once, and effects to start once the events are on disk.
    ///
    /// Effects that `in_flight` already has are left out.
    pub fn react<'a>(
        &self,
        events: impl IntoIterator<Item = &'a Event>,
        in_flight: &mut EffectsInFlight,
    ) -> Reaction {
        let (mut reaction, mut seen) = (Reaction::default(), BTreeSet::new());
        let mut touched = Vec::new();
        for event in events {
            // Stop what became pointless before starting anything new.
            reaction.effects.extend(stopped_by(event));
            touched.extend(
                self.affected_subjects(event).into_iter().filter(|subject| seen.insert(*subject)),
            );
        }
        for subject in touched {
            let due = self.due(subject);
            reaction.effects.extend(in_flight.start(subject, due.effects));
            reaction.commands.extend(due.commands);
        }
        // Running agents continue before queued ones start; the end of the run comes last.
        reaction.commands.sort_by_key(|command| {
            let is_start = matches!(command, Command::StartQueued { .. });
            (*command == Command::EndRun, is_start)
        });
        reaction
    }
}

impl EffectsInFlight {
    /// Replaces the effects of a subject by those that are due now, and returns the new ones.
    fn start(&mut self, subject: DueSubject, due: Vec<Effect>) -> Vec<Effect> {
        let before = self.0.remove(&subject).unwrap_or_default();
        let mut now = BTreeSet::new();
        let is_new = |effect: &Effect| {
            let key = effect.key();
            let is_new = !before.contains(&key);
            now.insert(key);
            is_new
        };
        let new = due.into_iter().filter(is_new).collect();
        if !now.is_empty() {
            self.0.insert(subject, now);
        }
        new
    }

    /// Returns whether an effect is running.
    #[must_use]
    pub fn has(&self, key: &EffectKey) -> bool {
        self.0.values().any(|of_subject| of_subject.contains(key))
    }

    /// Returns the keys of all running effects.
    pub fn keys(&self) -> impl Iterator<Item = &EffectKey> {
        self.0.values().flatten()
    }
}

impl Effect {
    /// Returns the identity of this effect.
    #[must_use]
    pub fn key(&self) -> EffectKey {
        use EffectTarget::{CallStep, Nothing, Session, Text};
        let (kind, about) = match self {
            Self::AskApproval { hash, .. } => ("ask_approval", Text(hash.clone())),
            Self::AskDomain { host, .. } => ("ask_domain", Text(host.clone())),
            Self::Model { session, turn, attempt, .. } => {
                ("model", CallStep(*session, *turn, *attempt))
            }
            Self::Prompt { session, turn, attempt } => {
                ("prompt", CallStep(*session, *turn, *attempt))
            }
            Self::ForwardCall { session, call } => ("forward_call", CallStep(*session, 0, *call)),
            Self::Tool { session, turn, index, .. } => ("tool", CallStep(*session, *turn, *index)),
            Self::PrepareWrite { session, turn, index, .. } => {
                ("prepare_write", CallStep(*session, *turn, *index))
            }
            Self::Write { session, turn, index, .. } => {
                ("write", CallStep(*session, *turn, *index))
            }
            Self::Fetch { session, turn, index, .. } => {
                ("fetch", CallStep(*session, *turn, *index))
            }
            Self::Delegate { session, turn, index, .. } => {
                ("delegate", CallStep(*session, *turn, *index))
            }
            Self::ReturnResults { session, call, origin } => {
                ("hand_up", CallStep(*session, origin.turn, *call))
            }
            Self::Verify { session, returned: None } => ("verify", Session(*session)),
            Self::Verify { session, returned: Some((call, _)) } => {
                ("verify_call", CallStep(*session, 0, *call))
            }
            Self::UpdateTaskList { session, mark } => match mark.work {
                UpdateTrigger::Begun => ("mark_begun", Session(*session)),
                UpdateTrigger::Ended => ("mark_ended", Session(*session)),
            },
            Self::MakeWorkspace { session, .. } => ("make_space", Session(*session)),
            Self::CommitWork { session, .. } => ("keep_space", Session(*session)),
            Self::Markers { session, turn, .. } => ("markers", CallStep(*session, *turn, 0)),
            Self::Merge { session, .. } => ("merge", Session(*session)),
            Self::Check { session, .. } => ("check", Session(*session)),
            Self::CollectHandover { session, turn, .. } => {
                ("collect_handover", CallStep(*session, *turn, 0))
            }
            Self::StopModel { session } => ("stop_model", Session(*session)),
            Self::Stop { session } => ("stop", Session(*session)),
            Self::Close => ("close", Nothing),
        };
        EffectKey { kind, about }
    }
}
