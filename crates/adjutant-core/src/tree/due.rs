//! Computes from the state alone what must happen now.
//!
//! A running engine asks for the parts that an event touched and leaves out effects that were
//! already started (see `in_flight`); a resuming engine asks for everything. Invariant: when no
//! command is left to decide, the due effects are exactly those in flight.
//!
//! A `DueSubject` is the part of the state that is asked about: one node, the open questions, or
//! the run as a whole.

use super::node::Node;
use super::phase::Phase;
use super::turn_state::{ModelCall, OpenToolCalls, TurnState};
use super::{ROOT, Tree};
use crate::command::{Command, Effect, Reaction};
use crate::event::Event;
use crate::ids::SessionId;
use crate::message::{StopReason, ToolCall};
use crate::policy::ContractKind;
use crate::schema::{DELEGATE, RETURN, TASK};
use crate::web_host::WEB_FETCH;
use crate::write::{is_in_turn, is_read};

/// A part of the state for which something can be due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum DueSubject {
    /// The node at this index.
    Node(usize),
    /// The open questions to a person.
    Questions,
    /// The run as a whole.
    Run,
}

impl Tree {
    /// Returns everything that is due for the whole run.
    #[must_use]
    pub fn all_due(&self) -> Reaction {
        let mut due = Reaction::default();
        for subject in self.subjects() {
            let of_subject = self.due(subject);
            due.commands.extend(of_subject.commands);
            due.effects.extend(of_subject.effects);
        }
        due
    }

    pub(super) fn subjects(&self) -> impl Iterator<Item = DueSubject> + use<> {
        let nodes = (0..self.nodes.len()).map(DueSubject::Node);
        nodes.chain([DueSubject::Questions, DueSubject::Run])
    }

    /// Returns what is due for one part of the state.
    pub(super) fn due(&self, subject: DueSubject) -> Reaction {
        let mut due = Reaction::default();
        match subject {
            DueSubject::Node(index) => self.add_due_of(&self.nodes[index], &mut due),
            DueSubject::Questions => due.effects.extend(self.open_questions_put()),
            DueSubject::Run => due.commands.extend(self.ended.is_none().then_some(Command::EndRun)),
        }
        due
    }

    fn add_due_of(&self, node: &Node, due: &mut Reaction) {
        let session = node.session;
        due.effects.extend(self.due_mark(node));
        due.effects.extend(Self::due_keep(node));
        match &node.phase {
            // The root has no parent that starts it.
            Phase::Queued(_) if node.parent.is_none() => {
                due.commands.push(Command::StartQueued { parent: session });
            }
            Phase::MakingWorkspace(_) if !node.duties.list_updates.begin => {
                due.effects.push(self.make_space(node));
            }
            Phase::Working(turn_state) => self.add_due_turn(node, turn_state, due),
            // Nothing is due: a person, the parent or a list update lets it go on.
            Phase::AwaitingApproval(_)
            | Phase::Queued(_)
            | Phase::MakingWorkspace(_)
            | Phase::Ended(_) => {}
        }
        if !node.delegations.queue.is_empty() && !node.is_waiting() {
            due.commands.push(Command::StartQueued { parent: session });
        }
    }

    fn add_due_turn(&self, node: &Node, turn_state: &TurnState, due: &mut Reaction) {
        let (session, turn) = (node.session, node.turn);
        match turn_state {
            TurnState::Thinking(_, None) => due.commands.push(Command::TakeTurn { session }),
            TurnState::Thinking(_, Some(ModelCall { reservation: open, .. }))
                if node.worker.is_some() =>
            {
                let (turn, attempt) = (open.turn, open.attempt);
                due.effects.push(Effect::Prompt { session, turn, attempt });
                due.effects.extend(node.forwarded_calls());
            }
            TurnState::Thinking(_, Some(ModelCall { reservation: open, .. })) => {
                due.effects.push(Effect::Model {
                    session,
                    turn: open.turn,
                    attempt: open.attempt,
                    max_output: open.max_output,
                    context_tokens: node.context_estimate(),
                    with_tools: !open.last_call,
                });
            }
            TurnState::UsingTools(calls) => self.add_due_tools(node, calls, due),
            TurnState::Delegating(markers) => {
                due.effects.push(Effect::Markers { session, turn, markers: markers.clone() });
            }
            TurnState::AwaitingResults => {
                let call = node.delegations.marked_call();
                due.effects.extend(call.and_then(|call| self.hand_up(node, call)));
            }
            TurnState::Judging(answer) => self.add_due_judgement(node, answer.stop, due),
            TurnState::Checking(_) => due.effects.extend(self.due_check(node)),
            TurnState::Continuing { has_note } => {
                due.effects.push(self.due_handover(node, *has_note));
            }
            // A timer starts the retry.
            TurnState::Retrying(..) => {}
        }
    }

    fn add_due_tools(&self, node: &Node, calls: &OpenToolCalls, due: &mut Reaction) {
        let mut begun = 0;
        for (number, call) in calls.iter().filter(|(number, _)| calls.is_begun(*number)) {
            begun += 1;
            due.effects.extend(match node.delegations.tool_call(node.turn, number) {
                Some(delegation) => self.hand_up(node, delegation),
                None => self.run_tool(node, number, call, calls.count() == 1),
            });
        }
        // Calls that wait for an answer about a host stay so; the command has no effect if there
        // are no others.
        if begun < calls.count() {
            due.commands.push(Command::UseTools { session: node.session });
        }
    }

    /// Returns the effect of a started tool call; `None` if it must wait for another call.
    fn run_tool(&self, node: &Node, index: u32, call: &ToolCall, is_last: bool) -> Option<Effect> {
        let (session, turn) = (node.session, node.turn);
        match call.name.as_str() {
            WEB_FETCH => self.fetch(session, turn, index, call.clone()),
            // The other calls may still be writing the artifacts that it names.
            RETURN if !is_last => None,
            RETURN => Some(Effect::Verify { session, returned: Some((index, call.clone())) }),
            name if is_in_turn(name) => node.write(index, call),
            // An earlier write of the same answer may still change what it reads.
            name if is_read(name) && node.is_behind_a_write(index) => None,
            DELEGATE | TASK => Some(Effect::Delegate { session, turn, index, call: call.clone() }),
            _ => Some(Effect::Tool { session, turn, index, call: call.clone() }),
        }
    }

    fn add_due_judgement(&self, node: &Node, stop: StopReason, due: &mut Reaction) {
        let session = node.session;
        let index = self.by_session.get(&session).copied().unwrap_or(ROOT);
        match (stop, self.contract(index)) {
            (StopReason::MaxOutput, _) => due.commands.push(Command::CutOff { session }),
            (StopReason::Refused, _) => due.commands.push(Command::Decline { session }),
            (StopReason::EndTurn | StopReason::ToolUse, ContractKind::Report) => {
                due.commands.push(Command::TakeReport { session });
            }
            (StopReason::EndTurn | StopReason::ToolUse, ContractKind::Standard) => {
                due.effects.push(Effect::Verify { session, returned: None });
            }
        }
    }

    /// Returns the next merge of a call whose tasks have all ended; after the last merge, the
    /// effect that returns their results to the parent.
    fn hand_up(&self, node: &Node, call: u32) -> Option<Effect> {
        let session = node.session;
        let open = node.delegations.open.get(&call).filter(|open| open.live == 0)?;
        if self.is_marking(session, call) || self.is_keeping(session, call) {
            return None;
        }
        let hand_up = Effect::ReturnResults { session, call, origin: open.origin };
        Some(self.due_merge(node, call).unwrap_or(hand_up))
    }

    fn open_questions_put(&self) -> impl Iterator<Item = Effect> {
        let calls = self.approvals.iter().filter_map(|(hash, open)| {
            let first = open.nodes.first()?;
            Some(Effect::AskApproval {
                parent: self.nodes[open.parent].session,
                call: self.nodes[*first].call,
                hash: hash.clone(),
            })
        });
        calls.chain(self.open_domain_questions())
    }

    /// Returns the parts of the state whose due effects and commands `event` may have changed.
    pub(super) fn affected_subjects(&self, event: &Event) -> Vec<DueSubject> {
        let node =
            |session: &SessionId| self.by_session.get(session).map(|it| DueSubject::Node(*it));
        let above = |session: &SessionId| {
            self.node(*session).and_then(|node| node.parent).map(DueSubject::Node)
        };
        match event {
            Event::Granted(grant) => node(&grant.parent).into_iter().collect(),
            Event::Refused { parent, .. } => {
                node(parent).into_iter().chain([DueSubject::Run]).collect()
            }
            Event::Approved { parent, .. } => {
                node(parent).into_iter().chain([DueSubject::Questions]).collect()
            }
            Event::ApprovalAsked { .. }
            | Event::Denied { .. }
            | Event::DomainAllowed { .. }
            | Event::DomainDenied { .. } => vec![DueSubject::Questions],
            Event::Assigned(_) | Event::StoryTaken { .. } => vec![DueSubject::Node(ROOT)],
            Event::DomainAsked { session, .. } | Event::ToolRefused { session, .. } => {
                node(session).into_iter().chain([DueSubject::Questions]).collect()
            }
            Event::Delegated { session, .. }
            | Event::Started { session, .. }
            | Event::SpaceMade { session, .. }
            | Event::Reserved { session, .. }
            | Event::Replied { session, .. }
            | Event::AttemptFailed { session, .. }
            | Event::Settled { session, .. }
            | Event::WorkerCallReserved { session, .. }
            | Event::WorkerCallSettled { session, .. }
            | Event::Told { session, .. }
            | Event::NoteSkipped { session }
            | Event::Continued { session, .. }
            | Event::ToolCalled { session, .. }
            | Event::WritePrepared { session, .. }
            | Event::ToolReturned { session, .. }
            | Event::MarkersRead { session, .. }
            | Event::Judged { session, .. }
            | Event::Checking { session, .. }
            | Event::Checked { session, .. } => node(session).into_iter().collect(),
            Event::Marked { session, .. }
            | Event::SpaceKept { session, .. }
            | Event::Merged { session, .. } => {
                node(session).into_iter().chain(above(session)).chain([DueSubject::Run]).collect()
            }
            Event::Ended { session, .. } => {
                let others = [DueSubject::Questions, DueSubject::Run];
                node(session).into_iter().chain(above(session)).chain(others).collect()
            }
            Event::Resumed { .. } => self.subjects().collect(),
            Event::Reopened(again) => {
                node(&again.session).into_iter().chain(above(&again.session)).collect()
            }
            Event::RunStarted { .. }
            | Event::AgentDefined { .. }
            | Event::AutoApproved { .. }
            | Event::Overran { .. }
            | Event::WorkerCallRefused { .. }
            | Event::WorkerSessionOpened { .. }
            | Event::WorkerActed { .. }
            | Event::WorkerReported { .. }
            | Event::Progressed { .. }
            | Event::Printed { .. }
            | Event::Paused { .. }
            // A message waits for the next turn.
            | Event::Messaged { .. }
            | Event::Crashed { .. }
            | Event::Late { .. }
            | Event::RunEnded { .. }
            | Event::ResultMerged { .. }
            | Event::Undone { .. }
            | Event::ErrorFixed { .. } => Vec::new(),
        }
    }
}

/// Returns the effect that stops work which an event made pointless.
pub(super) fn stopped_by(event: &Event) -> Option<Effect> {
    if let Event::Ended { session, .. } = event {
        return Some(Effect::Stop { session: *session });
    }
    if let Event::AttemptFailed { session, .. } = event {
        // After a stall the connection is still open.
        return Some(Effect::StopModel { session: *session });
    }
    matches!(event, Event::RunEnded { .. }).then_some(Effect::Close)
}
