//! A resuming process starts the effects that the crashed one had in flight, and nothing that was
//! done.

use std::collections::{BTreeMap, BTreeSet};

use adjutant_core::tree::EffectKey;
use adjutant_core::{
    Command, DelegationState, Effect, Event, ResumeOptions, Rights, SessionId, Tree,
};

use crate::properties::sessions;
use crate::sim::Sim;

/// Restarts a run and compares what is under way then with what was due before, both ways. A model call that was lost
/// counts as spent and a tool that may have acted is not run again, so what their agents do may differ; so may all that
/// agents do that end or are resumed because an effect was lost, and their ancestors and descendants.
pub(crate) fn check_restart(mut sim: Sim) {
    if sim.tree.outcome().is_some() {
        return;
    }
    let before = sim.tree.all_due();
    let leads_nowhere = |command: &Command| {
        sim.tree.decide(sim.now, command.clone()).is_ok_and(|events| events.is_empty())
    };
    // Where something is left to decide, the resumed run also starts what follows from that.
    let is_at_rest = before.commands.iter().all(leads_nowhere);
    let rights = Rights::of(sim.tree.policy());
    sim.spaces_at_once = false;
    let lived = sessions(&sim, |node| node.is_live());
    let queued = sessions(&sim, |node| node.state() == DelegationState::Queued);
    sim.restart(ResumeOptions { rights, ..ResumeOptions::default() });
    let began_or_ended = sessions(&sim, |node| node.is_live() != lived.contains(&node.session));
    let is_above = |one: SessionId, other| sim.chain(other).any(|above| above == one);
    let follows = |session| began_or_ended.iter().any(|other| is_above(*other, session));
    let follows_or_heard =
        |session| follows(session) || began_or_ended.iter().any(|other| is_above(session, *other));
    // One that ended leaves its place to the next.
    let parent = |session| sim.chain(session).nth(1);
    let takes_place = |session| {
        queued.contains(&session)
            && began_or_ended.iter().any(|other| parent(*other) == parent(session))
    };
    let after: BTreeSet<EffectKey> = sim.in_flight.keys().cloned().collect();
    let (mut lost_models, mut lost_tools) = (BTreeSet::new(), BTreeSet::new());
    for effect in before.effects.iter().filter(|effect| !after.contains(&effect.key())) {
        let session = session_of(effect);
        match effect {
            Effect::Model { .. } | Effect::Prompt { .. } | Effect::ForwardCall { .. } => {
                lost_models.insert(session)
            }
            Effect::Write { .. } | Effect::Fetch { .. } => lost_tools.insert(session),
            Effect::Tool { call, .. } if !["Read", "Grep"].contains(&call.name.as_str()) => {
                lost_tools.insert(session)
            }
            _ => {
                assert!(follows(session), "{effect:?} was under way and is not");
                continue;
            }
        };
    }
    if !is_at_rest || sim.tree.outcome().is_some() {
        return;
    }
    let due: BTreeSet<EffectKey> = before.effects.iter().map(Effect::key).collect();
    let all_due = sim.tree.all_due().effects.into_iter();
    for effect in all_due.filter(|effect| !due.contains(&effect.key())) {
        let session = session_of(&effect);
        let is_next = match effect {
            Effect::Model { .. } | Effect::Prompt { .. } if lost_models.contains(&session) => true,
            _ => lost_tools.contains(&session),
        };
        let is_explained = is_next || follows_or_heard(session) || takes_place(session);
        assert!(is_explained, "{effect:?} is under way and was not");
    }
}

/// Returns the agent that an effect is for.
fn session_of(effect: &Effect) -> SessionId {
    match effect {
        Effect::AskApproval { parent, .. } => *parent,
        Effect::Merge { into, .. } => *into,
        Effect::Model { session, .. }
        | Effect::Prompt { session, .. }
        | Effect::ForwardCall { session, .. }
        | Effect::Write { session, .. }
        | Effect::Fetch { session, .. }
        | Effect::UpdateTaskList { session, .. }
        | Effect::CommitWork { session, .. }
        | Effect::MakeWorkspace { session, .. }
        | Effect::AskDomain { session, .. }
        | Effect::Tool { session, .. }
        | Effect::PrepareWrite { session, .. }
        | Effect::Delegate { session, .. }
        | Effect::ReturnResults { session, .. }
        | Effect::Verify { session, .. }
        | Effect::Markers { session, .. }
        | Effect::CollectHandover { session, .. }
        | Effect::Check { session, .. } => *session,
        Effect::Stop { .. } | Effect::StopModel { .. } | Effect::Close => {
            panic!("{effect:?} follows from an event, never from a state")
        }
    }
}

/// Reads the journal of a run back, as a new process does, and compares at every point where nothing was left to decide:
/// the due effects of the reader are those the writer had in flight, and none of them is recorded as done.
pub(crate) fn check_prefixes(sim: &Sim) {
    let (mut tree, mut done, mut read) = (Tree::default(), DoneEffects::default(), 0);
    for (end, under_way) in &sim.rests {
        for (at, event) in &sim.log[read..*end] {
            let bytes = serde_json::to_vec(event).unwrap();
            tree.evolve(*at, &serde_json::from_slice(&bytes).unwrap()).unwrap();
            done.fold(event);
        }
        read = *end;
        let due = tree.all_due().effects;
        let keys: BTreeSet<EffectKey> = due.iter().map(Effect::key).collect();
        assert_eq!(keys, *under_way, "due after {end} events, and under way then");
        for effect in due {
            assert!(!done.contains(&effect), "{effect:?} is due after {end} events, and done");
        }
    }
}

/// What is on record as done, read from the events alone.
#[derive(Default)]
struct DoneEffects {
    turns: BTreeMap<SessionId, u32>,
    /// Model calls that were settled: session, turn, attempt.
    models: BTreeSet<(SessionId, u32, u32)>,
    /// Model calls of workers that were settled.
    worker_calls: BTreeSet<(SessionId, u32)>,
    /// Tool calls that have a result: session, turn, number.
    tools: BTreeSet<(SessionId, u32, u32)>,
    /// Turns whose markers were read.
    markers: BTreeSet<(SessionId, u32)>,
    /// Those that have a workspace.
    spaces: BTreeSet<SessionId>,
    /// Those whose end, and whose kept work, waits for something.
    ended: BTreeSet<SessionId>,
    kept: BTreeSet<SessionId>,
    checking: BTreeSet<SessionId>,
    /// Turns after which a fresh conversation began.
    continued: BTreeSet<(SessionId, u32)>,
}

impl DoneEffects {
    fn fold(&mut self, event: &Event) {
        let turn = |session| self.turns.get(session).copied().unwrap_or_default();
        match event {
            Event::Reserved { session, reservation } => {
                self.turns.insert(*session, reservation.turn);
            }
            Event::Replied { session, turn, attempt, .. }
            | Event::AttemptFailed { session, turn, attempt, .. }
            | Event::Settled { session, turn, attempt, .. } => {
                self.models.insert((*session, *turn, *attempt));
            }
            Event::WorkerCallSettled { session, call, .. } => {
                self.worker_calls.insert((*session, *call));
            }
            Event::ToolReturned { session, call, .. }
            | Event::ToolRefused { session, call, .. } => {
                let turn = turn(session);
                self.tools.insert((*session, turn, *call));
            }
            Event::MarkersRead { session, turn, .. } => {
                self.markers.insert((*session, *turn));
            }
            Event::SpaceMade { session, .. } => {
                self.spaces.insert(*session);
            }
            Event::Checking { session, .. } => {
                self.checking.insert(*session);
            }
            Event::Checked { session, .. } => {
                self.checking.remove(session);
            }
            Event::Continued { session, .. } => {
                let turn = turn(session);
                self.continued.insert((*session, turn));
            }
            Event::Ended { session, .. } => {
                self.ended.insert(*session);
            }
            Event::SpaceKept { session, .. } => {
                self.ended.remove(session);
                self.kept.insert(*session);
            }
            Event::Merged { session, .. } => {
                self.kept.remove(session);
            }
            Event::Reopened(again) => {
                self.ended.remove(&again.session);
                self.kept.remove(&again.session);
                let turn = turn(&again.session);
                let looked = again.looked.iter().map(|(call, _)| call);
                for call in again.unanswered.iter().chain(looked) {
                    self.tools.insert((again.session, turn, *call));
                }
            }
            _ => {}
        }
    }

    fn contains(&self, effect: &Effect) -> bool {
        match effect {
            Effect::Model { session, turn, attempt, .. }
            | Effect::Prompt { session, turn, attempt } => {
                self.models.contains(&(*session, *turn, *attempt))
            }
            Effect::ForwardCall { session, call } => self.worker_calls.contains(&(*session, *call)),
            Effect::Tool { session, turn, index, .. }
            | Effect::PrepareWrite { session, turn, index, .. }
            | Effect::Write { session, turn, index, .. }
            | Effect::Fetch { session, turn, index, .. }
            | Effect::Delegate { session, turn, index, .. } => {
                self.tools.contains(&(*session, *turn, *index))
            }
            Effect::ReturnResults { session, origin, .. } => origin
                .index
                .is_some_and(|index| self.tools.contains(&(*session, origin.turn, index))),
            Effect::Markers { session, turn, .. } => self.markers.contains(&(*session, *turn)),
            Effect::CollectHandover { session, turn, .. } => {
                self.continued.contains(&(*session, *turn))
            }
            Effect::MakeWorkspace { session, .. } => self.spaces.contains(session),
            Effect::CommitWork { session, .. } => !self.ended.contains(session),
            Effect::Merge { session, .. } => !self.kept.contains(session),
            Effect::Check { session, .. } => !self.checking.contains(session),
            _ => false,
        }
    }
}
