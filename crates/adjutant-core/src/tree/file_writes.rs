//! Tool calls that change files, shell commands included: they run one after the other, and each is
//! recorded before it happens, so that none is made twice.
//!
//! `WriteFindings` says, after a crash, for each interrupted write whether it was applied.

use std::collections::BTreeMap;

use super::Tree;
use super::node::Node;
use crate::command::Effect;
use crate::event::{Event, ToolOutput};
use crate::ids::SessionId;
use crate::message::ToolCall;
use crate::tool_call::needed_tools;
use crate::write::{WriteFinding, WriteIntent, WriteScope, is_write};

/// Whether interrupted writes were applied, by session and call number: one finding for each file.
pub(super) type WriteFindings = BTreeMap<(SessionId, u32), Vec<WriteFinding>>;

impl Tree {
    /// Records the change that a tool is about to make, if the call is still open.
    pub(super) fn prepare_write(
        &self,
        session: SessionId,
        turn: u32,
        call: u32,
        intent: WriteIntent,
    ) -> Vec<Event> {
        let waits =
            |node: &Node| node.awaits_result_of(turn, call) && node.prepared(call).is_none();
        match self.live(session) {
            Some((_, node)) if waits(node) => vec![Event::WritePrepared { session, call, intent }],
            Some(_) | None => Vec::new(),
        }
    }

    /// Returns every prepared write without a result: session, turn, call, intent.
    pub fn open_writes(&self) -> impl Iterator<Item = (SessionId, u32, u32, &WriteIntent)> {
        self.nodes.iter().flat_map(|node| {
            let prepared = node.calls().into_iter().flat_map(|calls| &calls.prepared);
            let open = prepared.filter(|(call, _)| node.open_call(**call).is_some());
            open.map(|(call, intent)| (node.session, node.turn, *call, intent))
        })
    }
}

impl Node {
    /// Returns the first started write of the last answer that has no result. The others wait for
    /// it: two edits of one file must not both start from the same content.
    fn next_write(&self) -> Option<u32> {
        let calls = self.calls()?;
        calls.writing.iter().copied().find(|call| calls.get(*call).is_some())
    }

    /// Says whether an earlier write of the same answer is still pending.
    pub(super) fn is_behind_a_write(&self, call: u32) -> bool {
        self.next_write().is_some_and(|write| write < call)
    }

    /// Says whether a write waits for an earlier one, and so was certainly not made.
    pub(super) fn waits_its_turn(&self, call: u32) -> bool {
        let is_write = self.calls().is_some_and(|calls| calls.writing.contains(&call));
        is_write && self.next_write() != Some(call)
    }

    /// Returns the next effect of a write, if it is its turn.
    pub(super) fn write(&self, index: u32, call: &ToolCall) -> Option<Effect> {
        if self.next_write() != Some(index) {
            return None;
        }
        let (session, turn, call) = (self.session, self.turn, call.clone());
        if !is_write(&call.name) {
            return Some(Effect::Tool { session, turn, index, call });
        }
        // Rights may have shrunk on resume, after the call was permitted.
        let usable = self.rights.usable_tools();
        let is_held = needed_tools(&call).iter().all(|tool| usable.contains(tool));
        let writes = if is_held { self.rights.writes.clone() } else { WriteScope::Nowhere };
        Some(match self.prepared(index).cloned() {
            None => Effect::PrepareWrite { session, turn, index, call, writes },
            Some(intent) => Effect::Write { session, turn, index, call, writes, intent },
        })
    }

    /// Returns what a call is about to write.
    fn prepared(&self, call: u32) -> Option<&WriteIntent> {
        self.calls()?.prepared.get(&call)
    }

    /// Returns the result of a write that was interrupted after it was prepared.
    pub(super) fn looked_at(&self, call: u32, looked: &WriteFindings) -> Option<ToolOutput> {
        let intent = self.prepared(call)?;
        let looked = looked.get(&(self.session, call)).map_or(&[][..], Vec::as_slice);
        Some(intent.interrupted_result(looked))
    }
}
