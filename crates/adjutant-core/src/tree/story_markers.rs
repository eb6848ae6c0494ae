//! Runs on a story: delegation by markers in answers, the names of child stories, and telling
//! agents the results.
//!
//! Markers are delegated after the tools of the same answer are done, so that children start from
//! the resulting state. Invariant: an agent that wrote markers takes no turn before it was told
//! their results.

use super::node::{Node, PlannedEnd};
use super::tool_use::LOOP_END;
use super::turn_state::TurnState;
use super::{ROOT, Tree};
use crate::brief::{Brief, RequestedTask};
use crate::code::ErrorCode;
use crate::event::{AddedMessageReason, DelegationOrigin, Event, IllegalEvent};
use crate::fingerprint::Fingerprint;
use crate::ids::SessionId;
use crate::outcome::OutcomeReason;
use crate::refusal::{Refusal, TimeBound};
use crate::schema::ReturnFormat;
use crate::story::{AnswerMarkers, MarkedTask, RejectedMarker, StoryAssignment};
use crate::time::Timestamp;
use adjutant_formats::marker::{MarkerContext, parse};

impl Tree {
    /// Starts work on a story, with a deadline of `total_s`.
    pub(super) fn take_story(&self, now: Timestamp, story: Box<StoryAssignment>) -> Vec<Event> {
        let begins = self.nodes.first().is_some_and(|root| root.turn == 0);
        if !begins || self.story.is_some() {
            return Vec::new();
        }
        let deadline = self.policy.total_s.map(|seconds| now.plus_seconds(seconds));
        vec![Event::StoryTaken { story, deadline }]
    }

    pub(super) fn story_taken(
        &mut self,
        story: &StoryAssignment,
        deadline: Option<Timestamp>,
    ) -> Result<(), IllegalEvent> {
        if self.nodes.is_empty() {
            return Err(super::evolve::illegal_event("story_taken", "no run has begun"));
        }
        if deadline.is_some() {
            self.root_timed(ROOT, deadline, TimeBound::Total)?;
        }
        let root = &mut self.nodes[ROOT];
        root.terms.works = true;
        root.label = story.label();
        root.terms.story = Some(story.id.clone());
        root.terms.verify.clone_from(&story.verify);
        root.delegations.numbered = story.numbered;
        // Planned tasks are delegated as if the agent had written markers before its first turn.
        if !story.plan.is_empty() && root.model.is_some() {
            let plan = AnswerMarkers { tasks: story.plan.clone(), rejected: Vec::new() };
            *root.turn_state_mut() = TurnState::Delegating(plan);
        }
        self.check_readiness(ROOT);
        self.story = Some(Box::new(story.clone()));
        Ok(())
    }

    /// Returns the story that the run works on.
    #[must_use]
    pub fn story(&self) -> Option<&StoryAssignment> {
        self.story.as_deref()
    }

    /// Parses the markers of a complete answer; `None` if there are none or the run has no story.
    pub(super) fn markers_in(&self, text: &str) -> Option<AnswerMarkers> {
        self.story.as_ref()?;
        // The number of markers is limited at admission.
        let request = MarkerContext { parent: "", depth: 0, start: 1, max: usize::MAX };
        let parsed = parse(text, &request);
        let tasks = parsed.delegations.into_iter();
        let tasks = tasks.map(|it| MarkedTask {
            description: it.description,
            hours: it.estimated_hours,
            verify: None,
        });
        let rejected = parsed.errors.into_iter();
        let rejected = rejected.map(|it| RejectedMarker { reason: it.reason(), text: it.text });
        let markers = AnswerMarkers { tasks: tasks.collect(), rejected: rejected.collect() };
        (markers != AnswerMarkers::default()).then_some(markers)
    }

    /// Delegates the tasks of an answer's markers; if nothing is granted, tells the agent why.
    pub(super) fn delegate_markers(
        &self,
        now: Timestamp,
        session: SessionId,
        turn: u32,
        tasks: Vec<RequestedTask>,
        rejected: Vec<RejectedMarker>,
    ) -> Vec<Event> {
        let waits = |(_, node): &(usize, &Node)| node.markers().is_some() && node.turn == turn;
        let Some((index, node)) = self.at_work(session).filter(waits) else { return Vec::new() };
        if node.marks_again() >= LOOP_END || node.loops.vain_markers + 1 >= LOOP_END {
            // Recorded as read, so that a resume does not delegate them after all.
            let end = marked_again(session);
            let refused = end.reason.clone();
            let mut events = vec![Event::MarkersRead { session, turn, rejected, refused }];
            events.extend(self.end_subtree(index, &end));
            return events;
        }
        let read =
            |refused| Event::MarkersRead { session, turn, rejected: rejected.clone(), refused };
        let told = |refused: Option<&OutcomeReason>| Event::Told {
            session,
            nudge: AddedMessageReason::Results,
            text: not_handed_down(refused, &rejected),
        };
        if tasks.is_empty() {
            return vec![read(None), told(None)];
        }
        let origin = DelegationOrigin { turn, index: None, form: ReturnFormat::Markdown };
        match self.admit(now, session, tasks, None, Some(origin)) {
            Ok(admitted) => [read(None)].into_iter().chain(admitted).collect(),
            Err(refusal) => {
                let reason = refusal.reason();
                let told = told(Some(&reason));
                vec![read(Some(reason)), told]
            }
        }
    }

    pub(super) fn markers_read(
        &mut self,
        session: SessionId,
        rejected: &[RejectedMarker],
        refused: Option<&OutcomeReason>,
    ) -> Result<(), IllegalEvent> {
        let index = self.known_index("markers_read", session)?;
        let node = &mut self.nodes[index];
        // If the content has expired, the markers are unknown.
        let markers = node.take_markers().unwrap_or_default();
        node.loops.remember(fingerprint(&markers.tasks));
        node.delegations.rejected = rejected.to_vec();
        // Reset when a task is granted, which follows in the same decision.
        node.loops.vain_markers += 1;
        if let Some(refused) = refused {
            node.delegations.refusal = Some(refused.clone());
        }
        Ok(())
    }

    /// Tells an agent the results of the tasks that it delegated with markers.
    pub(super) fn tell_results(&self, session: SessionId, turn: u32, text: &str) -> Vec<Event> {
        let Some((_, node)) = self.at_work(session).filter(|(_, node)| node.turn == turn) else {
            return vec![Event::Late { session, what: "results".into(), text: text.to_owned() }];
        };
        let handed_down = &node.delegations;
        let is_done =
            handed_down.marked_call().is_some_and(|call| handed_down.open[&call].live == 0);
        if !is_done {
            return Vec::new();
        }
        let mut text = text.to_owned();
        if !node.delegations.rejected.is_empty() {
            text = format!("{}\n\n{text}", rejected_markers_text(&node.delegations.rejected));
        }
        vec![Event::Told { session, nudge: AddedMessageReason::Results, text }]
    }

    /// Says whether an agent waits for the results of this call.
    #[must_use]
    pub fn awaits_results(&self, session: SessionId, call: u32) -> bool {
        self.at_work(session).is_some_and(|(_, node)| node.delegations.marked_call() == Some(call))
    }

    /// Refuses a task that is only the name of a story.
    ///
    /// Stories of the PRD have their own runs and verify commands, and delegated ones were already
    /// paid for: either would be worked on twice.
    pub(super) fn check_named_story(&self, parent: usize, brief: &Brief) -> Result<(), Refusal> {
        let Some(top) = self.story.as_ref().map(|story| story.id.as_str()) else { return Ok(()) };
        let text = brief.prompt.trim();
        let is_known = text == top || self.stories.contains(text);
        let Some(named) = brief.story.as_deref().or_else(|| is_known.then_some(text)) else {
            return Ok(());
        };
        let own = self.nodes[parent].terms.story.as_deref().unwrap_or(top);
        match self.stories.cycle_closed_by(own, named) {
            Some(path) => Err(Refusal::Cycle { target: named.to_owned(), path, stories: true }),
            None => Err(Refusal::OwnStory { story: named.to_owned() }),
        }
    }

    /// Gives a task of a story an id of its own: the parent's id and a number.
    pub(super) fn with_story_id(&self, parent: usize, nth: u64, mut brief: Brief) -> Brief {
        let node = &self.nodes[parent];
        if let (Some(above), None) =
            (node.terms.story.as_ref().filter(|_| self.story.is_some()), &brief.story)
        {
            brief.story = Some(format!("{above}-DEL-{:03}", node.delegations.numbered + nth + 1));
        }
        brief
    }
}

fn fingerprint(tasks: &[MarkedTask]) -> Fingerprint {
    // Serialising this list cannot fail.
    Fingerprint::of_call("[delegate]", &serde_json::to_value(tasks).unwrap_or_default())
}

fn rejected_markers_text(rejected: &[RejectedMarker]) -> String {
    let lines: Vec<&str> = rejected.iter().take(SHOWN).map(|it| it.reason.as_str()).collect();
    let more = rejected.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!("\nand {more} more") } else { String::new() };
    format!("{}{more}", lines.join("\n"))
}

/// How many unparsable markers are quoted.
const SHOWN: usize = 10;

fn not_handed_down(refused: Option<&OutcomeReason>, rejected: &[RejectedMarker]) -> String {
    let refused = refused.map(|it| format!("{}: {}\n{}", it.code, it.message, it.recommendation));
    let unread = (!rejected.is_empty()).then(|| rejected_markers_text(rejected));
    let why: Vec<String> = refused.into_iter().chain(unread).collect();
    format!("Nothing was delegated.\n\n{}\n\nGo on with your task.", why.join("\n\n"))
}

fn marked_again(session: SessionId) -> PlannedEnd {
    PlannedEnd::partial(
        ErrorCode::LoopDetected,
        format!(
            "The agent was stopped: {LOOP_END} times its delegation markers started no task or repeated earlier ones."
        ),
        &format!("Say what to do differently, with `adjutant resume {session} --say`."),
    )
}

impl Node {
    /// Counts how often it wrote these markers, this time included.
    fn marks_again(&self) -> usize {
        let Some(markers) = self.markers() else { return 0 };
        let print = fingerprint(&markers.tasks);
        1 + self.loops.recent_calls.iter().filter(|seen| **seen == print).count()
    }
}
