//! When each delegation worked and what it waited for, folded from the events of a run.
//!
//! A [`Timeline`] has the spans of every delegation; a span ends when the delegation does something else, which
//! [`SpanKind`] names. It is a second fold beside [`RunView`] because lists of runs do not need it. Start at
//! [`Timeline::apply`]. Invariant: the spans of a delegation are in order and do not overlap.

use std::collections::BTreeMap;

use adjutant_core::{SessionId, Timestamp};

use crate::palette::TextStyle;
use crate::run::{Activity, Delegation, RunView};
use crate::timed_event::TimedEvent;

/// What a delegation does or waits for during a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// A person has to answer.
    Person,
    /// It waits for a free slot, because enough of its siblings are running.
    Slot,
    /// Its model is answering.
    Model,
    /// A tool is running.
    Tool,
    /// Its subagents are at work.
    Subagents,
    /// A failed model call is retried later, or the provider asked for a pause.
    Retry,
}

impl SpanKind {
    /// All kinds, in the order of a legend.
    pub const ALL: [Self; 6] =
        [Self::Model, Self::Tool, Self::Subagents, Self::Slot, Self::Person, Self::Retry];

    fn of(delegation: &Delegation) -> Option<Self> {
        Some(match delegation.activity() {
            Activity::AwaitingApproval | Activity::AwaitingDomain(_) => Self::Person,
            Activity::Queued => Self::Slot,
            Activity::Thinking { .. } | Activity::WaitingForModel(_) | Activity::Writing(_) => {
                Self::Model
            }
            Activity::Tool { .. } => Self::Tool,
            Activity::Delegating => Self::Subagents,
            Activity::Retrying(_) | Activity::Paused(_) => Self::Retry,
            Activity::Ended(_) => return None,
        })
    }

    /// Returns the character that draws it, one column wide and different for each kind.
    #[must_use]
    pub const fn mark(self) -> char {
        match self {
            Self::Person => '?',
            Self::Slot => '░',
            Self::Model => '▒',
            Self::Tool => '█',
            Self::Subagents => '─',
            Self::Retry => '!',
        }
    }

    /// Returns the word for it in a legend.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Person => "person",
            Self::Slot => "free slot",
            Self::Model => "model",
            Self::Tool => "tool",
            Self::Subagents => "subagents",
            Self::Retry => "retry",
        }
    }

    /// Returns its style.
    #[must_use]
    pub const fn style(self) -> TextStyle {
        match self {
            Self::Person => TextStyle::Warning,
            Self::Slot | Self::Subagents => TextStyle::Quiet,
            Self::Model => TextStyle::Active,
            Self::Tool => TextStyle::Good,
            Self::Retry => TextStyle::Bad,
        }
    }
}

/// A time during which a delegation did one thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimelineSpan {
    /// What it did.
    pub kind: SpanKind,
    /// Since when.
    pub from: Timestamp,
    /// Until when; `None` while it lasts.
    pub until: Option<Timestamp>,
}

/// The spans of all delegations of a run.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    spans: BTreeMap<SessionId, Vec<TimelineSpan>>,
}

impl Timeline {
    /// Applies one event. `view` must already include it.
    pub fn apply(&mut self, view: &RunView, entry: &TimedEvent<'_>) {
        match entry.event.session() {
            Some(session) => {
                view.delegation(session).into_iter().for_each(|it| self.note(it, entry.at));
            }
            // Answers of a person and the end of a run concern several delegations, and are rare.
            None => view.preorder().into_iter().for_each(|it| self.note(it, entry.at)),
        }
    }

    fn note(&mut self, delegation: &Delegation, at: Timestamp) {
        let kind = SpanKind::of(delegation);
        let spans = self.spans.entry(delegation.session).or_default();
        let open = spans.last_mut().filter(|span| span.until.is_none());
        if open.as_ref().map(|span| span.kind) == kind {
            return;
        }
        if let Some(open) = open {
            open.until = Some(at);
        }
        spans.extend(kind.map(|kind| TimelineSpan { kind, from: at, until: None }));
    }

    /// Returns the spans of a delegation.
    #[must_use]
    pub fn spans(&self, session: SessionId) -> &[TimelineSpan] {
        self.spans.get(&session).map_or(&[], Vec::as_slice)
    }

    /// Divides the time from `from` to `to` into columns of equal length, and returns for each what the delegation
    /// did for most of it. A span that lasts still is drawn until `now`.
    #[must_use]
    pub fn strip(
        &self,
        session: SessionId,
        (from, to): (Timestamp, Timestamp),
        now: Timestamp,
        columns: usize,
    ) -> Vec<Option<SpanKind>> {
        let total = u128::from(to.since(from).as_millis() as u64);
        let mut shares = vec![[0_u128; SpanKind::ALL.len()]; columns];
        for span in self.spans(session) {
            // In units of a `columns`-th of a millisecond, so that the bounds of a column are whole numbers.
            let scaled = |at: Timestamp| at.since(from).as_millis() * columns as u128;
            let (begin, end) = (scaled(span.from), scaled(span.until.unwrap_or(now).min(to)));
            let first = begin.checked_div(total).unwrap_or(0) as usize;
            for (column, share) in shares.iter_mut().enumerate().skip(first) {
                let (left, right) = (column as u128 * total, (column as u128 + 1) * total);
                if left >= end {
                    break;
                }
                share[span.kind as usize] += end.min(right).saturating_sub(begin.max(left));
            }
        }
        let longest = |share: [u128; SpanKind::ALL.len()]| {
            let longest = |kind: &&SpanKind| share[**kind as usize];
            SpanKind::ALL.iter().max_by_key(longest).filter(|kind| longest(kind) > 0).copied()
        };
        shares.into_iter().map(longest).collect()
    }
}
