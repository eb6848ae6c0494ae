//! The run that is shown with its tree, at its newest event or at an earlier one.
//!
//! An [`OpenedRun`] keeps the records ([`WatchedRecord`]) of the journal, so that the state at any event can be folded
//! again. Start at [`OpenedRun::extend`] and [`OpenedRun::show_event`]. Invariant: the view and the timeline include
//! exactly the first `folded` records.

use std::collections::BTreeMap;

use adjutant_core::{DelegationState, Event, RunId, SessionId, Timestamp};
use adjutant_view::status::{ContentRetention, ObservedRun};
use adjutant_view::timeline::Timeline;
use adjutant_view::{Delegation, ProcessLiveness, RunView, TimedEvent, log, sanitize};

/// A record of a journal.
#[derive(Clone, Debug)]
pub struct WatchedRecord {
    /// The time on the run's own clock.
    pub at: Timestamp,
    /// The wall-clock time in milliseconds.
    pub wall_ms: u64,
    /// The event.
    pub event: Event,
}

impl WatchedRecord {
    /// Returns the record without the content of tool results, which takes most of the memory and is not shown.
    #[must_use]
    pub fn lean(at: Timestamp, wall_ms: u64, event: &Event) -> Self {
        let mut event = event.clone();
        if let Event::ToolReturned { output, .. } = &mut event {
            output.content = String::new();
        }
        Self { at, wall_ms, event }
    }

    const fn timed(&self) -> TimedEvent<'_> {
        TimedEvent::new(self.at, self.wall_ms, &self.event)
    }
}

/// States of the run after every so many records, from which going back is folded.
///
/// They are few, because each holds the whole tree: when there are too many, every second one is dropped.
#[derive(Clone, Debug)]
struct EarlierStates {
    states: BTreeMap<usize, (RunView, Timeline)>,
    /// The number of records between two states.
    every: usize,
}

/// The most states that are kept.
const MAX_STATES: usize = 16;

impl Default for EarlierStates {
    fn default() -> Self {
        Self { states: BTreeMap::new(), every: 256 }
    }
}

impl EarlierStates {
    /// Keeps the state after `count` records, if it is one of those to keep.
    fn keep(&mut self, count: usize, view: &RunView, timeline: &Timeline) {
        if !count.is_multiple_of(self.every) || self.states.contains_key(&count) {
            return;
        }
        self.states.insert(count, (view.clone(), timeline.clone()));
        if self.states.len() > MAX_STATES {
            self.every *= 2;
            self.states.retain(|count, _| count.is_multiple_of(self.every));
        }
    }

    /// Returns the last state of at most `count` records, with their number.
    fn before(&self, count: usize) -> (usize, RunView, Timeline) {
        match self.states.range(..=count).next_back() {
            Some((count, (view, timeline))) => (*count, view.clone(), timeline.clone()),
            None => (0, RunView::light(), Timeline::default()),
        }
    }
}

/// The run that is shown.
#[derive(Clone, Debug)]
pub struct OpenedRun {
    /// Its id.
    pub id: RunId,
    /// Whether its process is alive.
    pub liveness: ProcessLiveness,
    /// The current time on its own clock.
    pub now: Timestamp,
    /// Whether its texts are still stored.
    pub content: ContentRetention,
    /// The selected agent.
    pub selected: SessionId,
    /// Why its journal cannot be read further.
    pub problem: Option<String>,
    records: Vec<WatchedRecord>,
    folded: usize,
    view: RunView,
    timeline: Timeline,
    /// Earlier states, by the number of their records.
    earlier: EarlierStates,
    /// Whether the calls that were running when its process died are settled.
    is_closed: bool,
    /// How many records are shown; `None` for all.
    shown: Option<usize>,
}

impl OpenedRun {
    /// Returns a run of which nothing is read yet.
    #[must_use]
    pub fn new(id: RunId, selected: Option<SessionId>) -> Self {
        Self {
            id,
            liveness: ProcessLiveness::Alive,
            now: Timestamp::ZERO,
            content: ContentRetention::Kept,
            selected: selected.unwrap_or_else(|| id.root_session()),
            problem: None,
            records: Vec::new(),
            folded: 0,
            view: RunView::light(),
            timeline: Timeline::default(),
            earlier: EarlierStates::default(),
            is_closed: false,
            shown: None,
        }
    }

    /// Adds records that were appended to the journal.
    pub fn extend(&mut self, records: impl IntoIterator<Item = WatchedRecord>) {
        self.records.extend(records);
        self.fold();
    }

    /// Sets whether the process is alive, and the current time of the run.
    pub fn set_liveness(&mut self, liveness: ProcessLiveness, now: Timestamp) {
        (self.liveness, self.now) = (liveness, now);
        self.fold();
    }

    /// Folds the records up to the shown one. Going back starts at the nearest earlier state that was kept.
    fn fold(&mut self) {
        let until = self.shown.unwrap_or(self.records.len());
        let goes_back = until < self.folded || (self.is_closed && until > self.folded);
        let is_dead = self.shown.is_none() && self.liveness == ProcessLiveness::Dead;
        if goes_back || (self.is_closed && !is_dead) {
            (self.folded, self.view, self.timeline) = self.earlier.before(until);
            self.is_closed = false;
        }
        for record in &self.records[self.folded..until] {
            self.view.apply(record.timed());
            self.timeline.apply(&self.view, &record.timed());
            self.folded += 1;
            self.earlier.keep(self.folded, &self.view, &self.timeline);
        }
        if is_dead && !self.is_closed {
            self.view.close_open_calls();
            self.is_closed = true;
        }
    }

    /// Moves through the events: shows the state after `steps` more events, or fewer if negative.
    pub fn step(&mut self, steps: isize) {
        let all = self.records.len();
        let from = self.shown.unwrap_or(all);
        self.show_event(from.saturating_add_signed(steps));
    }

    /// Shows the state after this many events. Beyond the last one, the newest state is shown and followed.
    pub fn show_event(&mut self, count: usize) {
        let all = self.records.len();
        self.shown = Some(count.max(1)).filter(|count| *count < all);
        self.fold();
    }

    /// Shows the newest state.
    pub fn show_newest(&mut self) {
        self.show_event(usize::MAX);
    }

    /// Returns how many events are shown and how many there are.
    #[must_use]
    pub fn position(&self) -> (usize, usize) {
        (self.folded, self.records.len())
    }

    /// Returns whether an earlier state is shown.
    #[must_use]
    pub const fn is_in_past(&self) -> bool {
        self.shown.is_some()
    }

    /// Returns the last shown event as a line.
    #[must_use]
    pub fn event_line(&self) -> Option<String> {
        let record = self.records.get(self.folded.checked_sub(1)?)?;
        let line = log::line(&self.view, &record.timed());
        // The time of day is not of interest here; the time since the start is shown beside it.
        Some(sanitize::line(line.split_once("  ").map_or(&*line, |(_, text)| text)).into_owned())
    }

    /// Returns the shown state for the folds of the view. A state in the past is shown as if the run were alive.
    #[must_use]
    pub fn observed(&self) -> ObservedRun<'_> {
        let (liveness, now) = if self.is_in_past() {
            (ProcessLiveness::Alive, self.view.latest().at)
        } else {
            (self.liveness, self.now)
        };
        ObservedRun { view: &self.view, liveness, now, content: self.content, program: "adjutant" }
    }

    /// Returns the shown state.
    #[must_use]
    pub const fn view(&self) -> &RunView {
        &self.view
    }

    /// Returns the timeline up to the shown event.
    #[must_use]
    pub const fn timeline(&self) -> &Timeline {
        &self.timeline
    }

    /// Returns the time of the first event, and that of the last one or, while the run goes on, the current time.
    #[must_use]
    pub fn time_range(&self) -> (Timestamp, Timestamp) {
        let first = self.records.first().map_or(Timestamp::ZERO, |record| record.at);
        let last = self.records.last().map_or(first, |record| record.at);
        let is_over = self.liveness == ProcessLiveness::Dead;
        (first, if is_over { last } else { last.max(self.now) })
    }

    /// Returns the rows of the tree: all agents whose label or state contains `filter`.
    #[must_use]
    pub fn rows(&self, filter: &str) -> Vec<&Delegation> {
        let mut rows = self.view.preorder();
        if !filter.is_empty() {
            let (look, filter) = (self.observed(), filter.to_lowercase());
            let has = |text: &str| text.to_lowercase().contains(&filter);
            rows.retain(|node| {
                // Finding the place in the queue takes a look at all siblings, and is not worth a search.
                has(node.label.as_str())
                    || if node.state == DelegationState::Queued {
                        has(node.state.word())
                    } else {
                        has(&look.activity_line(node, 80))
                    }
            });
        }
        rows
    }

    /// Returns the selected agent; the first row while `filter` or the shown state hides it.
    #[must_use]
    pub fn selected_agent(&self, filter: &str) -> Option<&Delegation> {
        if filter.is_empty()
            && let Some(selected) = self.view.delegation(self.selected)
        {
            return Some(selected);
        }
        let rows = self.rows(filter);
        let chosen = rows.iter().find(|node| node.session == self.selected);
        chosen.or_else(|| rows.first()).copied()
    }
}
