//! Writes the outcome of a story into its PRD with splices.
//!
//! Values that are already correct keep their layout, so writing the same outcome twice changes nothing the
//! second time. The new text is parsed again, so that an unusual layout cannot silently lose a change.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::error::PrdError;
use super::outcome::{CONTEXT, PrdChildOutcome, PrdOutcome, RECORD, is_taken};
use super::read::{BYTE_ORDER_MARK, Prd};
use crate::document::{DocumentNode, Splice, apply};

impl Prd {
    /// Returns the text as it was read.
    #[must_use]
    pub fn to_text(&self) -> String {
        self.with_byte_order_mark(&self.text)
    }

    /// Returns the text with the outcome of a story: `passes` and `adjutant` in its entry, and an entry for
    /// each child after it.
    ///
    /// An entry that has a child's id but does not name this story as its parent stays unchanged; that child
    /// is then recorded only under `adjutant`.
    ///
    /// # Errors
    ///
    /// If the story does not exist or the outcome cannot be written.
    pub fn edit(&self, story_id: &str, outcome: &PrdOutcome) -> Result<String, PrdError> {
        let id = || story_id.to_owned();
        let found = self.place(story_id).and_then(|place| Some((place, self.node(place)?)));
        let Some((place, node)) = found else {
            return Err(PrdError::Unknown { id: id(), nearest: None });
        };
        if is_taken(&self.text, node) {
            return Err(PrdError::Taken { id: id() });
        }
        let known = node.member(&self.text, RECORD).map(|known| known.read(&self.text));
        let fields = [("passes", json!(outcome.passes)), (RECORD, outcome.record(known))];
        let mut splices = self.set(node, &fields);
        let (known, new) = self.sorted(story_id, &outcome.children);
        for child in known {
            let Some(entry) = self.place(&child.id).and_then(|place| self.node(place)) else {
                continue;
            };
            splices.extend(self.set(entry, &child.fields()));
            // Present, because the entry names this parent; its other members belong to the user.
            let context = entry.member(&self.text, CONTEXT);
            splices.extend(context.into_iter().flat_map(|it| self.set(it, &child.context())));
        }
        splices.extend(self.add(place, node, &new));
        let text = apply(&self.text, splices).ok_or_else(|| PrdError::Unwritable { id: id() })?;
        let text = self.with_byte_order_mark(&text);
        let again = Self::read(&text).ok().filter(|again| {
            let is_there = |child: &&PrdChildOutcome| again.story(&child.id).is_some();
            again.stories().len() == self.stories().len() + new.len()
                && again.story(story_id).is_some_and(|story| story.passes == outcome.passes)
                && new.iter().all(is_there)
        });
        again.map(|_| text).ok_or_else(|| PrdError::Unwritable { id: id() })
    }

    fn with_byte_order_mark(&self, text: &str) -> String {
        let mark = if self.has_mark { BYTE_ORDER_MARK.to_string() } else { String::new() };
        mark + text
    }

    /// Sets the members of an entry whose values differ.
    fn set(&self, entry: &DocumentNode, fields: &[(&str, Value)]) -> Vec<Splice> {
        let is_new = |(key, value): &&(&str, Value)| {
            let known = entry.member(&self.text, key);
            known.is_none_or(|known| !has_value(known.raw(&self.text), value))
        };
        let new = fields.iter().filter(is_new).map(|(key, value)| (*key, value));
        entry.set_all(&self.text, &new.collect::<Vec<_>>())
    }

    /// Adds entries for children after their parent's entry and its existing children.
    fn add(&self, place: usize, parent: &DocumentNode, new: &[&PrdChildOutcome]) -> Option<Splice> {
        if new.is_empty() {
            return None;
        }
        let last = self.node(self.last_of(place))?;
        let entries: Vec<Value> = new.iter().map(|child| child.entry()).collect();
        Some(parent.add_beside(&self.text, last.range.end, &entries))
    }

    /// Returns the index of a story's last consecutive descendant.
    fn last_of(&self, place: usize) -> usize {
        let mut family = BTreeSet::from([self.stories()[place].id.as_str()]);
        let mut last = place;
        for story in &self.stories()[place + 1..] {
            if !story.parent().is_some_and(|parent| family.contains(parent)) {
                break;
            }
            family.insert(&story.id);
            last += 1;
        }
        last
    }

    /// Splits the children into those with an entry and those that need one, grouped by parent.
    fn sorted<'o>(
        &self,
        story_id: &'o str,
        children: &'o [PrdChildOutcome],
    ) -> (Vec<&'o PrdChildOutcome>, Vec<&'o PrdChildOutcome>) {
        let mut by_parent: BTreeMap<&str, Vec<&PrdChildOutcome>> = BTreeMap::new();
        for child in children {
            by_parent.entry(&child.parent).or_default().push(child);
        }
        let mut seen = BTreeSet::from([story_id]);
        let mut order = Vec::with_capacity(children.len());
        let mut open = vec![];
        let mut next = by_parent.get(story_id).cloned().unwrap_or_default();
        loop {
            open.extend(next.into_iter().rev());
            let Some(child) = open.pop() else { break };
            next = Vec::new();
            if seen.insert(&child.id) {
                order.push(child);
                next = by_parent.get(child.id.as_str()).cloned().unwrap_or_default();
            }
        }
        // Children whose parent is not in the list are added as well.
        order.extend(children.iter().filter(|child| seen.insert(&child.id)));
        let (known, new): (Vec<_>, Vec<_>) =
            order.into_iter().partition(|child| self.story(&child.id).is_some());
        let is_ours = |child: &&PrdChildOutcome| {
            self.story(&child.id).and_then(|story| story.parent()) == Some(child.parent.as_str())
        };
        (known.into_iter().filter(is_ours).collect(), new)
    }
}

/// Returns whether a JSON text already has this value, whatever its layout.
fn has_value(raw: &str, value: &Value) -> bool {
    let wanted = value.to_string();
    let mut wanted = wanted.bytes();
    let (mut is_text, mut is_escaped) = (false, false);
    for byte in raw.bytes() {
        if !is_text && byte.is_ascii_whitespace() {
            continue;
        }
        if wanted.next() != Some(byte) {
            return false;
        }
        is_text ^= byte == b'"' && !is_escaped;
        is_escaped = is_text && byte == b'\\' && !is_escaped;
    }
    wanted.next().is_none()
}
