//! Selects the entry of a script that answers a request.
//!
//! The choice depends only on the request: agent, label, turn, attempt and the last message. Nothing is
//! remembered between requests, so the interleaving of sessions and restarts do not change the answers.
//! `docs/scripted-model.md` explains the rule to users.
//!
//! Start at [`ScriptIndex::select`]. A [`ScriptTrack`] has the entries that apply to one agent and
//! label, arranged by turn. Invariant: it depends on the script, the agent and the label only; caching
//! it only saves time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use adjutant_core::Message;

use super::entry::{RepeatCount, ScriptEntry};
use super::error::ScriptFault;
use crate::model::TurnRequest;

/// The number for agents and labels that the script does not name.
const UNNAMED: usize = 0;

/// The entries of a script, indexed by agent and label.
#[derive(Debug)]
pub(crate) struct ScriptIndex {
    entries: Vec<ScriptEntry>,
    /// The numbers of the named agents, which follow [`UNNAMED`].
    agents: BTreeMap<String, usize>,
    /// The numbers of the named labels, which follow [`UNNAMED`].
    labels: BTreeMap<String, usize>,
    /// The entries of each label by its number; entries without a label are under [`UNNAMED`].
    by_label: Vec<Vec<usize>>,
    // A std mutex: held for a map lookup or to build one track, never across an await. The map holds at most
    // one track per pair of names in the script, whatever names requests contain.
    tracks: Mutex<BTreeMap<(usize, usize), Arc<ScriptTrack>>>,
}

/// The entries that apply to one agent and label, by turn.
#[derive(Debug, Default)]
struct ScriptTrack {
    /// The entries with `turn`, by that turn.
    pinned: BTreeMap<u32, Vec<usize>>,
    /// The turns that the sequence skips, because an entry without `last` is pinned to them.
    claimed: Vec<u32>,
    /// The entries with `last` and without `turn`.
    reactive: Vec<usize>,
    /// The sequence, sorted by the start of each slot.
    slots: Vec<SequenceSlot>,
    /// The length of the sequence in turns; `None` if it is endless.
    places: Option<u64>,
}

/// Consecutive turns of the sequence that are answered by the same entries.
#[derive(Debug)]
struct SequenceSlot {
    start: u64,
    entries: Vec<usize>,
}

impl ScriptIndex {
    /// Indexes the entries of a script and rejects unreachable ones.
    pub(crate) fn new(entries: Vec<ScriptEntry>) -> Result<Self, ScriptFault> {
        check_reachable(&entries)?;
        let mut agents = BTreeMap::new();
        let mut labels = BTreeMap::new();
        let mut by_label = vec![Vec::new()];
        for (number, entry) in entries.iter().enumerate() {
            if let Some(agent) = &entry.agent {
                let next = agents.len() + 1;
                agents.entry(agent.clone()).or_insert(next);
            }
            let label = entry.label.as_ref().map_or(UNNAMED, |label| {
                let next = labels.len() + 1;
                *labels.entry(label.clone()).or_insert(next)
            });
            by_label.resize_with(by_label.len().max(label + 1), Vec::new);
            by_label[label].push(number);
        }
        Ok(Self { entries, agents, labels, by_label, tracks: Mutex::default() })
    }

    pub(crate) fn labels(&self) -> impl Iterator<Item = &str> {
        self.labels.keys().map(String::as_str)
    }

    /// Returns the entry that answers `request`, with its number.
    pub(crate) fn select(&self, request: &TurnRequest<'_>) -> Option<(usize, &ScriptEntry)> {
        let track = self.track(request);
        let last = request.messages.last().map_or("", Message::text);
        let fits = |number: &usize| {
            let pattern = self.entries.get(*number).and_then(|entry| entry.last.as_ref());
            pattern.is_none_or(|pattern| pattern.is_match(last))
        };
        let pinned = track.pinned.get(&request.turn).map_or(&[][..], Vec::as_slice);
        self.pick(pinned.iter().copied().filter(fits), request.attempt)
            .or_else(|| self.pick(track.reactive.iter().copied().filter(fits), request.attempt))
            .or_else(|| self.pick(track.slot(request.turn).iter().copied(), request.attempt))
    }

    /// Returns whether the script has any entry for the agent and label of `request`.
    pub(crate) fn has_entry_for(&self, request: &TurnRequest<'_>) -> bool {
        let track = self.track(request);
        !(track.pinned.is_empty() && track.reactive.is_empty() && track.slots.is_empty())
    }

    /// Returns the candidate for this attempt: faults come first, each repeated as specified.
    ///
    /// If only faults remain, the last one repeats: a provider that is down stays down.
    fn pick(
        &self,
        candidates: impl Iterator<Item = usize>,
        attempt: u32,
    ) -> Option<(usize, &ScriptEntry)> {
        let mut failed: u32 = 0;
        let mut last_fault = None;
        for number in candidates {
            let entry = self.entries.get(number)?;
            if !entry.is_fault() {
                return Some((number, entry));
            }
            failed = match entry.times {
                RepeatCount::Count(times) => failed.saturating_add(times),
                RepeatCount::Forever => u32::MAX,
            };
            if attempt <= failed {
                return Some((number, entry));
            }
            last_fault = Some((number, entry));
        }
        last_fault
    }

    fn track(&self, request: &TurnRequest<'_>) -> Arc<ScriptTrack> {
        let agent = self.agents.get(request.agent).copied().unwrap_or(UNNAMED);
        let label = self.labels.get(request.label).copied().unwrap_or(UNNAMED);
        // A poisoned lock means a panic while a track was built; the map itself is intact.
        let mut tracks = self.tracks.lock().unwrap_or_else(PoisonError::into_inner);
        let lay_out = || Arc::new(self.lay_out(request.agent, label));
        Arc::clone(tracks.entry((agent, label)).or_insert_with(lay_out))
    }

    fn lay_out(&self, agent: &str, label: usize) -> ScriptTrack {
        let of = |label: usize| self.by_label.get(label).map_or(&[][..], Vec::as_slice);
        let labelled = if label == UNNAMED { &[][..] } else { of(label) };
        let mut numbers = [of(UNNAMED), labelled].concat();
        numbers.sort_unstable();
        let mut track = ScriptTrack::default();
        let mut sequence = Vec::new();
        for number in numbers {
            let entry = &self.entries[number];
            if entry.agent.as_ref().is_some_and(|name| name != agent) {
                continue;
            }
            match entry.turn {
                Some(turn) => track.pin(turn, number, entry.last.is_none()),
                None if entry.last.is_some() => track.reactive.push(number),
                None => sequence.push(number),
            }
        }
        track.claimed.sort_unstable();
        track.claimed.dedup();
        track.lay_sequence(&sequence, &self.entries);
        track
    }
}

impl ScriptTrack {
    fn pin(&mut self, turn: u32, number: usize, claims: bool) {
        self.pinned.entry(turn).or_default().push(number);
        if claims {
            self.claimed.push(turn);
        }
    }

    fn lay_sequence(&mut self, sequence: &[usize], entries: &[ScriptEntry]) {
        let mut places: u64 = 0;
        let mut faults = Vec::new();
        for number in sequence {
            let entry = &entries[*number];
            if entry.is_fault() {
                faults.push(*number);
                continue;
            }
            let after_faults = !faults.is_empty();
            faults.push(*number);
            self.slots.push(SequenceSlot { start: places, entries: std::mem::take(&mut faults) });
            if after_faults && entry.times != RepeatCount::Count(1) {
                // The fault entries before a repeated entry apply to its first turn only; this slot
                // answers its other turns without them.
                self.slots.push(SequenceSlot { start: places + 1, entries: vec![*number] });
            }
            match entry.times {
                RepeatCount::Count(times) => places += u64::from(times),
                RepeatCount::Forever => return,
            }
        }
        if !faults.is_empty() {
            self.slots.push(SequenceSlot { start: places, entries: faults });
            places += 1;
        }
        self.places = Some(places);
    }

    /// Returns the sequence entries for `turn`; pinned turns do not count in the sequence.
    fn slot(&self, turn: u32) -> &[usize] {
        let claimed = self.claimed.partition_point(|claimed| *claimed < turn);
        let place = u64::from(turn.saturating_sub(1)).saturating_sub(claimed as u64);
        if self.places.is_some_and(|places| place >= places) {
            return &[];
        }
        let behind = self.slots.partition_point(|slot| slot.start <= place);
        behind.checked_sub(1).and_then(|at| self.slots.get(at)).map_or(&[], |slot| &slot.entries)
    }
}

/// Rejects an entry that follows an endless one.
fn check_reachable(entries: &[ScriptEntry]) -> Result<(), ScriptFault> {
    let mut endless = BTreeSet::new();
    for entry in entries.iter().filter(|entry| entry.is_sequential()) {
        let (agent, label) = (entry.agent.as_deref(), entry.label.as_deref());
        let wider = [(agent, label), (agent, None), (None, label), (None, None)];
        if wider.iter().any(|names| endless.contains(names)) {
            let message = "this turn is never used: an earlier turn repeats \"forever\"";
            return Err(ScriptFault::new(entry.at, message));
        }
        if entry.times == RepeatCount::Forever {
            endless.insert((agent, label));
        }
    }
    Ok(())
}
