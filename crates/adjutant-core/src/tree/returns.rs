//! Judges the result of an agent against the contract: accepted, or sent back for repair.
//!
//! A return is a call of the `Return` tool, or JSON in the last answer. Both are judged only here,
//! and every judgement is recorded. Start at [`Tree::conclude`].

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;

use super::admission::Admission;
use super::node::{Node, PlannedEnd};
use super::turn::UnrecordedReservations;
use super::turn_state::LastAnswer;
use super::{ROOT, Tree};
use crate::assignment::SlashCommandAssignment;
use crate::brief::Brief;
use crate::code::ErrorCode;
use crate::event::{AddedMessageReason, Event, IllegalEvent, ToolOutput};
use crate::ids::{AgentName, SessionId};
use crate::message::ToolCall;
use crate::outcome::{Outcome, OutcomeReason};
use crate::policy::ContractKind;
use crate::rights::ToolSet;
use crate::schema::RETURN;
use crate::time::Timestamp;
use crate::verify::VerifyCommand;
use crate::write::{EDIT, RUN, WRITE, WriteScope};
use adjutant_formats::contract::{
    ArtifactFileState, MetadataSource, ObservedWork, RequiredArtifacts, Return, ReturnContract,
    ReturnMetadata, ReturnStatus, ReturnVerdict, repair_message, validate,
};

/// How often an invalid return is sent back to the model.
pub const MAX_REPAIRS: u32 = 2;
/// How many errors of a return a person is shown.
const SHOWN: usize = 4;
const EMPTY: &str = "Your answer was empty. Write your report as text.";
const TAKEN: &str = "Taken.";
const TO_CHECK: &str = "Taken; whether the work passes is found out now.";
const HANDS_DOWN: &str = "Not taken: you handed tasks down in the same answer. Hand back your result once \
theirs are here.";
const NOT_YET: &str = "Not taken yet: a person has something to say to you first.";
const ONE_RETURN: &str =
    "Not run: one answer can hand back one return, and there is one before this.";

impl Tree {
    /// Judges a return: ends the delegation, or asks for a repair.
    pub(super) fn conclude(
        &self,
        now: Timestamp,
        session: SessionId,
        call: Option<u32>,
        text: &str,
        artifacts: &[(String, ArtifactFileState)],
        changed: Option<BTreeSet<String>>,
    ) -> Vec<Event> {
        let Some((index, node)) = self.live(session) else { return Vec::new() };
        let is_alone = |call| {
            node.calls().is_some_and(|calls| calls.count() == 1) && node.returns(call).is_some()
        };
        // A return that is being verified was judged already; a return next to other calls waits
        // for them.
        let is_final = node.last_answer().is_some_and(LastAnswer::is_final);
        if !call.map_or(is_final, is_alone) {
            return Vec::new();
        }
        if let Some(code) = node.corrections.last_call {
            return self.end_subtree(index, &self.exhausted_end(code, node));
        }
        match self.contract(index) {
            ContractKind::Report => self.take_report(index, text.trim().is_empty()),
            ContractKind::Standard => {
                let verdict = self.verdict(now, index, text, artifacts, changed);
                self.take_verdict(index, call, verdict)
            }
        }
    }

    /// Judges the last answer as a free-text report: ends the delegation, or asks for a repair.
    pub(super) fn conclude_report(&self, session: SessionId) -> Vec<Event> {
        let Some((index, node)) = self.live(session) else { return Vec::new() };
        let answer = node.last_answer().filter(|answer| answer.is_final());
        let is_report = self.contract(index) == ContractKind::Report;
        let Some(answer) = answer.filter(|_| is_report) else { return Vec::new() };
        if let Some(code) = node.corrections.last_call {
            return self.end_subtree(index, &self.exhausted_end(code, node));
        }
        self.take_report(index, answer.is_blank)
    }

    /// Returns the contract of a node. A root that only delegates answers a person in free text.
    pub(super) fn contract(&self, index: usize) -> ContractKind {
        if self.nodes[index].terms.works { self.policy.contract } else { ContractKind::Report }
    }

    fn take_report(&self, index: usize, is_empty: bool) -> Vec<Event> {
        let node = &self.nodes[index];
        if let Some(turn) = self.hear_first(node, index, !is_empty) {
            return turn;
        }
        let end = match (is_empty, index) {
            (true, _) if node.corrections.repairs < MAX_REPAIRS => {
                return vec![repair(node, EMPTY.to_owned())];
            }
            (true, _) => still_invalid(EMPTY),
            (false, ROOT) => self.command_end(),
            (false, _) => PlannedEnd::completed(),
        };
        match node.terms.verify.clone().filter(|_| end.outcome == Outcome::Completed) {
            Some(verify) => {
                vec![Event::Checking { session: node.session, command: verify.command }]
            }
            None => self.end_subtree(index, &end),
        }
    }

    fn take_verdict(&self, index: usize, call: Option<u32>, verdict: ReturnVerdict) -> Vec<Event> {
        let node = &self.nodes[index];
        let (session, complaint) = (node.session, repair_message(&verdict));
        let answer = |output| call.map(|call| Event::ToolReturned { session, call, output });
        if let Some(turn) = self.hear_first(node, index, verdict.valid) {
            // The answered call leads to the next turn like any other.
            let answered = answer(ToolOutput::error(NOT_YET));
            return answered.map_or(turn, |answered| vec![answered]);
        }
        let returned = verdict.accepted().cloned();
        let end = returned.as_ref().map(end_of);
        let wrong = wrong_with(&verdict);
        let (errors, warnings) = (verdict.errors, verdict.warnings);
        let returned = returned.map(Box::new);
        let mut events = vec![Event::Judged { session, call, returned, errors, warnings }];
        match end {
            Some(end) if end.outcome == Outcome::Completed && node.terms.verify.is_some() => {
                let command = node.terms.verify.clone().unwrap_or_default().command;
                let content = TO_CHECK.to_owned();
                events.push(Event::Checking { session, command });
                events.extend(answer(ToolOutput { content, ..ToolOutput::default() }));
            }
            Some(end) => {
                let taken = ToolOutput { content: TAKEN.to_owned(), ..ToolOutput::default() };
                events.extend(answer(taken));
                events.extend(self.end_subtree(index, &end));
            }
            None if node.corrections.repairs < MAX_REPAIRS => {
                let asked = answer(ToolOutput::error(complaint.clone()));
                events.push(asked.unwrap_or_else(|| repair(node, complaint)));
            }
            None => {
                // If it is resumed, the agent must know what was wrong.
                let told = answer(ToolOutput::error(complaint.clone()));
                events.push(told.unwrap_or_else(|| repair(node, complaint)));
                events.extend(self.end_subtree(index, &still_invalid(&wrong)));
            }
        }
        events
    }

    /// Ends a delegation, unless a person's message has to be delivered first.
    pub(super) fn hear_or_end(&self, index: usize, end: &PlannedEnd) -> Vec<Event> {
        let heard = self.hear_first(&self.nodes[index], index, true);
        heard.unwrap_or_else(|| self.end_subtree(index, end))
    }

    /// Delivers messages that a person sent after the agent's last call, before its result is
    /// final.
    fn hear_first(&self, node: &Node, index: usize, is_valid: bool) -> Option<Vec<Event>> {
        let is_over = is_valid || node.corrections.repairs >= MAX_REPAIRS;
        let speaks =
            is_over && !self.mail(index, node, &UnrecordedReservations::default()).is_empty();
        speaks.then(|| self.take_turn_beside(node.session, &UnrecordedReservations::default()))
    }

    fn verdict(
        &self,
        now: Timestamp,
        index: usize,
        text: &str,
        artifacts: &[(String, ArtifactFileState)],
        changed: Option<BTreeSet<String>>,
    ) -> ReturnVerdict {
        let node = &self.nodes[index];
        // Only the work of the command itself must have artifacts, not helper delegations.
        let is_work =
            |it: &&SlashCommandAssignment| it.is_work_of(&node.agent) && node.parent == Some(ROOT);
        let command = self.assignment.as_ref().filter(is_work);
        let required =
            node.terms.artifacts_required || command.is_some_and(|it| it.artifacts_required);
        let made =
            || self.changed_below(node).into_iter().map(str::to_owned).collect::<BTreeSet<_>>();
        // An agent that cannot write has no files to name.
        let is_required = required && may_write(node);
        let runs_commands = node.rights.usable_tools().contains(RUN);
        let contract = ReturnContract {
            expected_session: Some(node.session),
            artifacts: match (is_required, runs_commands) {
                (false, _) => RequiredArtifacts::Nothing,
                // Files that a shell command wrote are not recorded one by one.
                (true, true) => RequiredArtifacts::Any,
                (true, false) => RequiredArtifacts::OneOf(made()),
            },
            kind: command.and_then(|it| it.artifact_kind),
            metadata: MetadataSource::Engine(self.metadata(now, index)),
            observed: Some(ObservedWork {
                changed: changed.or_else(|| (!runs_commands).then(made)),
                has_verify_command: node.terms.verify.is_some(),
            }),
        };
        let known: BTreeMap<&str, ArtifactFileState> =
            artifacts.iter().map(|(path, fact)| (path.as_str(), *fact)).collect();
        let fact = |path: &str| known.get(path).copied().unwrap_or(ArtifactFileState::Unchecked);
        validate(text, &contract, &fact)
    }

    /// Returns the metadata that the engine knows, so that no model has to state it.
    fn metadata(&self, now: Timestamp, index: usize) -> ReturnMetadata {
        let node = &self.nodes[index];
        ReturnMetadata {
            session_id: node.session,
            duration_seconds: now.since(node.time.started.unwrap_or_default()).as_secs(),
            agent_type: node.agent.clone(),
            delegation_depth: u32::try_from(node.depth).unwrap_or(u32::MAX),
            delegation_path: self.path(index).iter().map(|name| AgentName::new(name)).collect(),
        }
    }

    /// Folds in the judgement of a return.
    pub(super) fn fold_judged(
        &mut self,
        session: SessionId,
        call: Option<u32>,
        returned: Option<&Return>,
    ) -> Result<(), IllegalEvent> {
        let index = self.known_index("judged", session)?;
        let node = &mut self.nodes[index];
        match returned {
            Some(returned) => node.results.artifacts.clone_from(&returned.artifacts),
            // An invalid answer is counted when the agent is told (`AddedMessageReason::Repair`).
            None => node.corrections.repairs += u32::from(call.is_some()),
        }
        Ok(())
    }

    /// Returns the tools that an agent may call: those of its rights, and `Return` under the
    /// standard contract.
    pub(super) fn usable(&self, index: usize) -> ToolSet {
        let rights = &self.nodes[index].rights;
        // A root that only delegates has no workspace, so it cannot write.
        let is_idle = !self.nodes[index].terms.works && rights.writes == WriteScope::Own;
        let usable =
            if is_idle { rights.without_writing().usable_tools() } else { rights.usable_tools() };
        match self.contract(index) {
            ContractKind::Standard => usable.with(RETURN),
            ContractKind::Report => usable,
        }
    }

    /// Says why a `Return` call is not accepted: there is another one before it, or markers.
    pub(super) fn return_objection(&self, index: usize, number: u32) -> Option<String> {
        let node = &self.nodes[index];
        let calls = node.calls()?;
        let is_return = |call: &ToolCall| call.name == RETURN;
        if !calls.get(number).is_some_and(is_return) {
            return None;
        }
        if node.markers().is_some() {
            return Some(HANDS_DOWN.to_owned());
        }
        let mut before = calls.iter().filter(|(other, _)| *other < number);
        before.any(|(_, call)| is_return(call)).then(|| ONE_RETURN.to_owned())
    }

    /// Returns the text before a task: its delegation context under the standard contract, and the
    /// command that verifies its work.
    pub(super) fn preface(
        &self,
        session: SessionId,
        admission: &Admission,
        task: Option<u64>,
        brief: &Brief,
    ) -> Option<String> {
        let context = self.delegation_context(session, admission, task, brief);
        let verify = brief.verify.as_ref().filter(|_| self.story.is_none()).map(will_be_verified);
        let parts: Vec<String> = context.into_iter().chain(verify).collect();
        (!parts.is_empty()).then(|| parts.join("\n\n"))
    }

    fn delegation_context(
        &self,
        session: SessionId,
        admission: &Admission,
        task: Option<u64>,
        brief: &Brief,
    ) -> Option<String> {
        if self.policy.contract != ContractKind::Standard {
            return None;
        }
        let Admission { depth, path, timeout_s, .. } = admission;
        let caller = path.len().checked_sub(2).map(|above| path[above].as_str());
        let mut context = json!({
            "session_id": session,
            "delegation_depth": depth,
            "delegation_path": path,
            "timeout": timeout_s,
            "caller": caller,
        });
        if let Some(assignment) = &self.assignment {
            let mut about =
                json!({ "command": assignment.command, "language": assignment.language });
            if let Some(number) = task {
                about["task_number"] = json!(number);
            }
            if let Some(facts) = task.and_then(|number| assignment.facts_of(number)) {
                let known = [
                    ("description", &facts.description),
                    ("complexity", &facts.complexity),
                    ("task_folder", &facts.folder),
                ];
                for (key, value) in known {
                    if let Some(value) = value {
                        about[key] = json!(value);
                    }
                }
            }
            context["task_context"] = about;
        }
        let story = brief.story.as_deref().filter(|_| self.story.is_some());
        if let Some(story) = story {
            let hours = brief.hours;
            context["task_context"] = json!({ "story_id": story, "estimated_hours": hours });
        }
        let mut preface = format!("Delegation context, which you need not repeat:\n{context:#}");
        if let Some(how) = story.and_then(|_| self.policy.marker_instructions(*depth)) {
            preface = format!("{preface}\n\n{how}");
        }
        Some(preface)
    }
}

/// Tells an agent how its work is verified, so that it can run the command itself before it reports.
fn will_be_verified(verify: &VerifyCommand) -> String {
    let mut text = format!(
        "When you report that you are done, your work is committed and `{}` must succeed in a fresh \
         copy of that commit. If it fails, you get its output and go on.",
        verify.command
    );
    if !verify.keep.is_empty() {
        let keep: Vec<String> = verify.keep.iter().map(|glob| format!("`{glob}`")).collect();
        text += &format!(
            " Files that match {} are taken from the state you started from, so changes to them do \
             not count.",
            keep.join(" or ")
        );
    }
    text
}

fn may_write(node: &Node) -> bool {
    let usable = node.rights.usable_tools();
    usable.contains(WRITE) || usable.contains(EDIT)
}

fn repair(node: &Node, text: String) -> Event {
    Event::Told { session: node.session, nudge: AddedMessageReason::Repair, text }
}

/// Lists the errors of a return in one line, for people.
fn wrong_with(verdict: &ReturnVerdict) -> String {
    let said = verdict.errors.iter().take(SHOWN).map(|it| format!("{}: {}", it.field, it.message));
    let more = verdict.errors.len().saturating_sub(SHOWN);
    let more = (more > 0).then(|| format!("and {more} more"));
    said.chain(more).collect::<Vec<_>>().join("; ")
}

fn still_invalid(complaint: &str) -> PlannedEnd {
    PlannedEnd::new(
        Outcome::Failed,
        ErrorCode::ValidationFailed,
        format!("The return was still invalid after {MAX_REPAIRS} repairs. {complaint}"),
        "Read the original answer in the transcript, or delegate the task again.",
    )
}

/// Returns the end for an accepted return.
fn end_of(returned: &Return) -> PlannedEnd {
    let outcome = match returned.status {
        ReturnStatus::Completed => Outcome::Completed,
        ReturnStatus::Failed => Outcome::Failed,
        ReturnStatus::Partial => Outcome::Partial,
        ReturnStatus::Blocked => Outcome::Blocked,
    };
    // The first unrecoverable error decides, else the first error.
    let errors = &returned.errors;
    let fatal = errors.iter().find(|error| !error.recoverable).or_else(|| errors.first());
    let reason = fatal.filter(|_| outcome != Outcome::Completed).map(|error| OutcomeReason {
        code: ErrorCode::parse(error.code.as_str()).unwrap_or(ErrorCode::UnknownError),
        message: error.message.clone(),
        recommendation: error.recommendation.clone(),
        recoverable: error.recoverable,
    });
    PlannedEnd { outcome, reason }
}

impl Node {
    /// Returns the call with this number, if it is an open `Return` call.
    fn returns(&self, call: u32) -> Option<&ToolCall> {
        self.open_call(call).filter(|call| call.name == RETURN)
    }
}
