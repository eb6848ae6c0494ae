//! What follows from a fact: further commands at once, effects once it is on disk.

use super::Tree;
use super::turn::{is_final, uses_tools};
use crate::command::{Command, Effect, Reaction};
use crate::domain::WEB_FETCH;
use crate::event::{Event, Nudge};
use crate::ids::SessionId;
use crate::message::{StopReason, ToolCall};
use crate::policy::ContractKind;
use crate::schema::{DELEGATE, RETURN, TASK};
use crate::write::{is_in_turn, is_look};

impl Tree {
    /// Returns what follows from `event`, which has been folded in already.
    #[must_use]
    pub fn react(&self, event: &Event) -> Reaction {
        match event {
            Event::Granted(grant) if !grant.awaiting_approval => {
                command(Command::StartQueued { parent: grant.parent })
            }
            Event::Delegated { session, call, .. } => self.hand_up(*session, *call),
            Event::Refused { .. } => command(Command::EndRun),
            Event::Assigned(_) => {
                Reaction { commands: Vec::new(), effects: self.due_marks().collect() }
            }
            Event::ApprovalAsked { parent, call, hash, .. } => {
                effect(Effect::AskApproval { parent: *parent, call: *call, hash: hash.clone() })
            }
            Event::Approved { parent, .. } => command(Command::StartQueued { parent: *parent }),
            Event::Started { session, .. } => {
                let mut reaction = self.after_start(*session);
                reaction.effects.extend(self.node(*session).and_then(|node| self.due_mark(node)));
                reaction
            }
            Event::Marked { session, mark, .. } => self.after_mark(*session, mark),
            Event::SpaceMade { session, .. } => self.after_start(*session),
            Event::StoryTaken { .. } => {
                self.nodes.first().map_or_else(Reaction::default, |root| self.after_start(root.session))
            }
            Event::Checking { session, .. } => {
                let check = self.node(*session).and_then(|node| self.due_check(node));
                check.map_or_else(Reaction::default, effect)
            }
            Event::Merged { session, .. } => self.after_merge(*session),
            Event::SpaceKept { session, .. } => self.after_keep(*session),
            Event::Reserved { session, .. } => self.call_model(*session),
            Event::Replied { session, text, tool_calls, stop, .. } => {
                self.after_reply(*session, text, tool_calls, *stop)
            }
            // After a stall the call is still open.
            Event::AttemptFailed { session, .. } => effect(Effect::StopModel { session: *session }),
            Event::Told {
                session,
                nudge: Nudge::Shorten | Nudge::Repair | Nudge::Results | Nudge::Check,
                ..
            } => command(Command::TakeTurn { session: *session }),
            Event::ToolCalled { session, call } => self.run_tool(*session, *call),
            Event::WritePrepared { session, call, .. } => self.run_tool(*session, *call),
            Event::DomainAsked { session, call, host, .. } => {
                self.ask_domain(*session, *call, host)
            }
            Event::ToolReturned { session, call, .. } | Event::ToolRefused { session, call, .. } => {
                let done = self.node(*session).is_some_and(|node| node.open_calls == 0);
                if done {
                    self.after_tools(*session)
                } else if let Some(verify) = self.return_alone(*session) {
                    effect(verify)
                } else {
                    self.after_write(*session, *call)
                }
            }
            Event::Resumed { .. } => self.go_on(),
            Event::Reopened(reopening) => self.after_reopening(reopening.session),
            Event::Ended { session, .. } => self.after_end(*session),
            Event::RunEnded { .. } => effect(Effect::Close),
            Event::RunStarted { .. }
            | Event::AgentDefined { .. }
            | Event::Judged { .. }
            | Event::MarkersRead { .. }
            | Event::Checked { .. }
            | Event::Granted(_)
            | Event::AutoApproved { .. }
            | Event::DomainAllowed { .. }
            | Event::DomainDenied { .. }
            | Event::Denied { .. }
            | Event::Settled { .. }
            | Event::Overran { .. }
            | Event::Progressed { .. }
            | Event::Printed { .. }
            | Event::Paused { .. }
            // A word waits for the next turn; once it is told, the call that follows is reserved.
            | Event::Messaged { .. }
            | Event::Told { nudge: Nudge::LastCall(_) | Nudge::Person, .. }
            | Event::Crashed { .. }
            | Event::Late { .. }
            | Event::ResultMerged { .. }
            | Event::Undone { .. }
            | Event::ErrorFixed { .. } => Reaction::default(),
        }
    }

    /// Whoever begins thinks first; whoever was taken up again may have others to wait for.
    fn after_start(&self, session: SessionId) -> Reaction {
        let mut reaction = Reaction::default();
        let begun = self.node(session).filter(|node| !node.is_waiting());
        let Some(node) = begun else { return reaction };
        self.next_step(node, &mut reaction);
        if !node.queue.is_empty() {
            reaction.commands.push(Command::StartQueued { parent: session });
        }
        reaction
    }

    fn call_model(&self, session: SessionId) -> Reaction {
        let Some(node) = self.node(session) else { return Reaction::default() };
        let Some(open) = &node.reservation else { return Reaction::default() };
        effect(Effect::Model {
            session,
            turn: open.turn,
            attempt: open.attempt,
            max_output: open.max_output,
            context_tokens: node.context_estimate(),
            with_tools: !open.last_call,
        })
    }

    fn after_reply(
        &self,
        session: SessionId,
        text: &str,
        calls: &[ToolCall],
        stop: StopReason,
    ) -> Reaction {
        let last_call = self.node(session).is_some_and(|node| node.last_call.is_some());
        if uses_tools(stop, calls, last_call) {
            return command(Command::UseTools { session });
        }
        if let Some(reading) = self.node(session).and_then(|node| self.read_markers(node)) {
            return reading;
        }
        if is_final(stop, calls, last_call) {
            let index = self.by_session.get(&session).copied().unwrap_or_default();
            return match self.contract(index) {
                ContractKind::Standard => effect(Effect::Verify { session, returned: None }),
                ContractKind::Report => command(Command::Conclude {
                    session,
                    call: None,
                    text: text.to_owned(),
                    artifacts: Vec::new(),
                }),
            };
        }
        match stop {
            StopReason::MaxOutput => command(Command::CutOff { session }),
            StopReason::Refused => command(Command::Decline { session }),
            StopReason::EndTurn | StopReason::ToolUse => Reaction::default(),
        }
    }

    /// Whoever wrote markers hands down what they ask for; everyone else thinks.
    fn after_tools(&self, session: SessionId) -> Reaction {
        let reading = self.node(session).and_then(|node| self.read_markers(node));
        reading.unwrap_or_else(|| command(Command::TakeTurn { session }))
    }

    pub(super) fn run_tool(&self, session: SessionId, index: u32) -> Reaction {
        let Some((_, node)) = self.live(session) else { return Reaction::default() };
        let Some(Some(call)) = node.pending.get(index as usize) else { return Reaction::default() };
        let (turn, call) = (node.turn, call.clone());
        if call.name == WEB_FETCH {
            return self.fetch(session, turn, index, call).map_or_else(Reaction::default, effect);
        }
        if call.name == RETURN {
            return self.return_alone(session).map_or_else(Reaction::default, effect);
        }
        if is_in_turn(&call.name) {
            return node.write(index, call).map_or_else(Reaction::default, effect);
        }
        // What it looks at may be about to change, and was to be changed before.
        if is_look(&call.name) && node.is_behind_a_write(index) {
            return Reaction::default();
        }
        effect(if call.name == DELEGATE || call.name == TASK {
            Effect::Delegate { session, turn, index, call }
        } else {
            Effect::Tool { session, turn, index, call }
        })
    }

    /// Hands results up once every task of a tool call has ended.
    pub(super) fn hand_up(&self, session: SessionId, call: u32) -> Reaction {
        let Some(node) = self.node(session) else { return Reaction::default() };
        let open = node.open_delegations.get(&call);
        let done = open.filter(|open| open.live == 0 && !self.is_at_chores(session, call));
        let Some(open) = done else { return Reaction::default() };
        let hand_up = Effect::HandUp { session, call, origin: open.origin };
        effect(self.due_merge(node, call).unwrap_or(hand_up))
    }

    /// Says whether a task of that call has ended and something of it is yet to be done.
    fn is_at_chores(&self, parent: SessionId, call: u32) -> bool {
        self.is_marking(parent, call) || self.is_keeping(parent, call)
    }

    fn after_end(&self, session: SessionId) -> Reaction {
        let above = self
            .node(session)
            .and_then(|node| node.parent)
            .map(|parent| self.nodes[parent].session);
        let mut commands: Vec<Command> =
            above.map(|parent| Command::StartQueued { parent }).into_iter().collect();
        commands.push(Command::EndRun);
        let mut effects = vec![Effect::Stop { session }];
        if let (Some(parent), Some(node)) = (above, self.node(session)) {
            effects.extend(self.hand_up(parent, node.call).effects);
        }
        if let Some(node) = self.node(session) {
            effects.extend(self.due_mark(node).filter(|_| !node.marks.begin));
            effects.extend(Self::due_keep(node));
        }
        Reaction { commands, effects }
    }
}

fn command(command: Command) -> Reaction {
    Reaction { commands: vec![command], effects: Vec::new() }
}

fn effect(effect: Effect) -> Reaction {
    Reaction { commands: Vec::new(), effects: vec![effect] }
}
