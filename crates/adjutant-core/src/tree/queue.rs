//! Starts queued delegations in free concurrency slots and sets their deadlines.
//!
//! How many may be queued is decided in `admission`. Start at [`Tree::start_queued`].

use super::{Node, Tree};
use crate::code::ErrorCode;
use crate::event::Event;
use crate::ids::SessionId;
use crate::refusal::TimeBound;
use crate::time::Timestamp;
use crate::tree::node::PlannedEnd;

impl Tree {
    /// Starts queued children of a parent in its free slots, first come, first served. A child
    /// without time left is ended instead: its model call would be paid for and cut off at once.
    pub(super) fn start_queued(&self, now: Timestamp, parent: SessionId) -> Vec<Event> {
        if let Some(begins) = self.start_root(now, parent) {
            return vec![begins];
        }
        // An ended parent has queued children only if a person resumed one.
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

/// Returns the deadline of a child that starts now, and which limit decided it.
fn deadline(now: Timestamp, parent: &Node, child: &Node) -> (Option<Timestamp>, TimeBound) {
    let own = child.time.timeout_s.map(|seconds| (now.plus_seconds(seconds), TimeBound::Own));
    if !parent.is_live() {
        // A person resumed it under an ended parent, whose deadline no longer applies.
        return (own.map(|(deadline, _)| deadline), TimeBound::Own);
    }
    // If two limits end at the same time, the outer one is named: admission may have cut the
    // child's own timeout to it.
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
        ErrorCode::Timeout,
        format!("Timed out before it found a place, {}.", bound.noun()),
        "Delegate it again, with more time or fewer tasks beside it.",
    )
}
