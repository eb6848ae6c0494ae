//! Delegations that wait for a place: who begins next, and until when it may work.
//!
//! How many may wait is judged at admission. Start at [`Tree::start_queued`].

use super::{Node, Tree};
use crate::code::Code;
use crate::event::Event;
use crate::ids::SessionId;
use crate::refusal::TimeBound;
use crate::time::Timestamp;
use crate::tree::node::PlannedEnd;

impl Tree {
    /// Gives free places of a parent to its waiting children, first come, first served. Whoever has
    /// no time left is not started: a model call would be paid for and cut off at once.
    pub(super) fn start_queued(&self, now: Timestamp, parent: SessionId) -> Vec<Event> {
        if let Some(begins) = self.start_root(now, parent) {
            return vec![begins];
        }
        // A parent that has ended has nobody waiting, unless a person took one up again.
        let Some(node) = self.node(parent).filter(|node| !node.is_waiting()) else {
            return Vec::new();
        };
        let mut free = node.delegations.places.saturating_sub(node.delegations.running);
        let mut events = Vec::new();
        for &child in &node.delegations.queue {
            if !self.nodes[child].is_queued() {
                continue;
            }
            let (deadline, bound) = deadline(now, node, &self.nodes[child]);
            let session = self.nodes[child].session;
            if deadline.is_some_and(|deadline| deadline <= now) {
                self.end_one(child, waited_too_long(bound), &mut events);
            } else if free > 0 {
                free -= 1;
                events.push(Event::Started { session, deadline, bound });
            } else {
                break;
            }
        }
        events
    }
}

/// Returns the instant by which a child that starts now must have ended, and whose time that is.
fn deadline(now: Timestamp, parent: &Node, child: &Node) -> (Option<Timestamp>, TimeBound) {
    let own = child.time.timeout_s.map(|seconds| (now.plus_seconds(seconds), TimeBound::Own));
    if !parent.is_live() {
        // Taken up again by a person, whose time it has; its parent's is over.
        return (own.map(|(deadline, _)| deadline), TimeBound::Own);
    }
    // Its own time may have been cut to what is left above: where both end at once, that is the reason.
    let all = [
        parent.delegations.total_deadline.map(|deadline| (deadline, TimeBound::Total)),
        parent.time.deadline.map(|deadline| (deadline, TimeBound::Parent)),
        own,
    ];
    let first = all.into_iter().flatten().min_by_key(|(deadline, _)| *deadline);
    let bound = first.map_or(TimeBound::Own, |(_, bound)| bound);
    (first.map(|(deadline, _)| deadline), bound)
}

fn waited_too_long(bound: TimeBound) -> PlannedEnd {
    PlannedEnd::partial(
        Code::Timeout,
        format!("Timed out before it found a place, {}.", bound.noun()),
        "Delegate it again, with more time or fewer tasks beside it.",
    )
}
