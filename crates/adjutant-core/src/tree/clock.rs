//! What time alone changes: deadlines, stalls, retries and open questions.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::node::End;
use super::{Node, Tree};
use crate::code::Code;
use crate::event::Event;
use crate::ids::SessionId;
use crate::numbers::grouped;
use crate::time::Timestamp;

/// Why an instant matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Deadline {
    /// A delegation has used up its time.
    Timeout,
    /// A model has been silent for too long.
    Stall,
    /// A failed model call may be tried again.
    Retry,
    /// A question to a person goes stale.
    Approval,
}

impl Tree {
    /// Returns the next instant at which time alone changes something, and why.
    #[must_use]
    pub fn next_deadline(&self) -> Option<(Timestamp, Deadline)> {
        self.timers.first().map(|(at, _, why)| (*at, *why))
    }

    pub(super) fn expire(&self, now: Timestamp) -> Vec<Event> {
        let mut events = self.expire_approvals(now);
        // A question and its parent, or a parent and its child, may be due at once; whoever is
        // ended first stays so.
        let mut ended: BTreeSet<SessionId> = ends(&events).collect();
        let due = self.timers.iter().take_while(|(at, _, _)| *at <= now);
        for (_, index, why) in due {
            let node = &self.nodes[*index];
            if !node.state.is_live() || ended.contains(&node.session) {
                continue;
            }
            let new = match why {
                Deadline::Timeout => self.end_subtree(*index, &timed_out(node)),
                Deadline::Stall => self.end_subtree(*index, &self.stalled()),
                Deadline::Retry => self.take_turn(node.session),
                Deadline::Approval => continue,
            };
            let fresh =
                |event: &Event| event.session().is_none_or(|session| !ended.contains(&session));
            let new: Vec<Event> = new.into_iter().filter(fresh).collect();
            ended.extend(ends(&new));
            events.extend(new);
        }
        events
    }

    fn stalled(&self) -> End {
        let seconds = grouped(self.policy.stall_s.unwrap_or_default());
        End::partial(
            Code::Stalled,
            format!("No byte came from the model for {seconds} s."),
            "Try again, or use another model.",
        )
    }
}

fn ends(events: &[Event]) -> impl Iterator<Item = SessionId> {
    events.iter().filter(|event| matches!(event, Event::Ended { .. })).filter_map(Event::session)
}

fn timed_out(node: &Node) -> End {
    let seconds = match (node.started, node.deadline) {
        (Some(started), Some(deadline)) => deadline.since(started).as_secs(),
        (None, _) | (_, None) => 0,
    };
    End::partial(
        Code::Timeout,
        format!("Timed out after {} s, {}.", grouped(seconds), node.bound.noun()),
        "Delegate what is left with a longer timeout; what was found so far is in the result.",
    )
}
