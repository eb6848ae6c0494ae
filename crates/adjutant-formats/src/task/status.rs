//! The status of a task and the allowed transitions.
//!
//! Invariant: only the transitions in [`TaskStatus::next`] are allowed, and a COMPLETED task must be reopened
//! explicitly; work on it never does that implicitly.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The status of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskStatus {
    /// No work has started.
    NotStarted,
    /// Work is in progress, in no particular stage.
    InProgress,
    /// Work cannot continue until something else happens.
    Blocked,
    /// The task was abandoned.
    Abandoned,
    /// The task is done; only a person reopens it.
    Completed,
    /// Research is in progress.
    Researching,
    /// Research is done.
    Researched,
    /// A plan is being written.
    Planning,
    /// The plan is done.
    Planned,
    /// The plan is being revised.
    Revising,
    /// The plan was revised.
    Revised,
    /// Implementation is in progress.
    Implementing,
    /// Some of the work is done and can be continued.
    Partial,
}

use TaskStatus::{
    Abandoned, Blocked, Completed, Implementing, InProgress, NotStarted, Partial, Planned,
    Planning, Researched, Researching, Revised, Revising,
};

impl TaskStatus {
    /// All statuses, in the order of the standard.
    pub const ALL: [Self; 13] = [
        NotStarted,
        InProgress,
        Blocked,
        Abandoned,
        Completed,
        Researching,
        Researched,
        Planning,
        Planned,
        Revising,
        Revised,
        Implementing,
        Partial,
    ];

    /// Returns the word used in `state.json`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            NotStarted => "not_started",
            InProgress => "in_progress",
            Blocked => "blocked",
            Abandoned => "abandoned",
            Completed => "completed",
            Researching => "researching",
            Researched => "researched",
            Planning => "planning",
            Planned => "planned",
            Revising => "revising",
            Revised => "revised",
            Implementing => "implementing",
            Partial => "partial",
        }
    }

    /// Returns the marker used in `TODO.md`, such as `[NOT STARTED]`.
    #[must_use]
    pub const fn marker(self) -> &'static str {
        match self {
            NotStarted => "[NOT STARTED]",
            InProgress => "[IN PROGRESS]",
            Blocked => "[BLOCKED]",
            Abandoned => "[ABANDONED]",
            Completed => "[COMPLETED]",
            Researching => "[RESEARCHING]",
            Researched => "[RESEARCHED]",
            Planning => "[PLANNING]",
            Planned => "[PLANNED]",
            Revising => "[REVISING]",
            Revised => "[REVISED]",
            Implementing => "[IMPLEMENTING]",
            Partial => "[PARTIAL]",
        }
    }

    /// Parses a status: marker or word, in any case, with `_`, `-` or spaces between words.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let word = normalise(text);
        let known = Self::ALL.into_iter().find(|status| status.as_str() == word);
        known.or_else(|| alias(&word))
    }

    /// Returns the status if `text` is a non-standard word for it, such as `[COMPLETE]`.
    #[must_use]
    pub fn read_alias(text: &str) -> Option<Self> {
        let is_own = |status: &Self| normalise(text) == status.as_str();
        Self::read(text).filter(|status| !is_own(status))
    }

    /// Returns the statuses that may follow.
    ///
    /// A stage in progress ends in its own result, in IN PROGRESS (for example after a timeout), or is
    /// blocked or abandoned. A finished stage may be repeated or followed by a later stage. IN PROGRESS names
    /// no stage, so every result may follow it.
    #[must_use]
    pub const fn next(self) -> &'static [Self] {
        match self {
            NotStarted => &[InProgress, Researching, Planning, Implementing, Blocked, Abandoned],
            InProgress => &[
                Researching,
                Researched,
                Planning,
                Planned,
                Revising,
                Revised,
                Implementing,
                Partial,
                Completed,
                Blocked,
                Abandoned,
            ],
            Researching => &[Researched, InProgress, Blocked, Abandoned],
            Researched => &[Researching, Planning, Implementing, InProgress, Blocked, Abandoned],
            Planning => &[Planned, InProgress, Blocked, Abandoned],
            Planned | Revised => {
                &[Researching, Planning, Revising, Implementing, InProgress, Blocked, Abandoned]
            }
            Revising => &[Revised, InProgress, Blocked, Abandoned],
            Implementing => &[Completed, Partial, InProgress, Blocked, Abandoned],
            Partial => &[Researching, Revising, Implementing, InProgress, Blocked, Abandoned],
            Blocked => &[InProgress, Researching, Planning, Revising, Implementing, Abandoned],
            Abandoned => &[NotStarted],
            Completed => &[InProgress],
        }
    }

    /// Checks the transition to `to`; keeping the same status is always allowed.
    ///
    /// # Errors
    ///
    /// If `to` may not follow.
    pub fn step(self, to: Self) -> Result<(), RefusedTransition> {
        if self == to || self.next().contains(&to) {
            Ok(())
        } else {
            Err(RefusedTransition { from: self, to })
        }
    }

    /// Returns the intermediate status on the way to `to`: `None` if `to` may follow directly, otherwise IN
    /// PROGRESS.
    ///
    /// # Errors
    ///
    /// If `to` is not reachable even through IN PROGRESS. Nothing is reachable from COMPLETED.
    pub fn intermediate_status(self, to: Self) -> Result<Option<Self>, RefusedTransition> {
        if self == Completed && to != Completed {
            return Err(RefusedTransition { from: self, to });
        }
        match self.step(to) {
            Ok(()) => Ok(None),
            Err(_) if self.step(InProgress).is_ok() && InProgress.step(to).is_ok() => {
                Ok(Some(InProgress))
            }
            Err(refused) => Err(refused),
        }
    }

    /// Returns whether work is in progress.
    #[must_use]
    pub const fn is_under_way(self) -> bool {
        match self {
            InProgress | Researching | Planning | Revising | Implementing => true,
            NotStarted | Blocked | Abandoned | Completed | Researched | Planned | Revised
            | Partial => false,
        }
    }
}

/// Converts a marker or a word to the spelling of `state.json`.
fn normalise(text: &str) -> String {
    let text = text.trim();
    let inner = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    inner.trim().to_ascii_lowercase().replace([' ', '-'], "_")
}

/// Non-standard words for a status that occur in files. Adjutant always writes the standard word.
fn alias(word: &str) -> Option<TaskStatus> {
    match word {
        "complete" | "done" | "finished" => Some(Completed),
        "todo" | "to_do" | "open" => Some(NotStarted),
        "wip" | "started" => Some(InProgress),
        "cancelled" | "canceled" => Some(Abandoned),
        _ => None,
    }
}

impl fmt::Display for TaskStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A transition that is not allowed; its message lists the allowed ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusedTransition {
    /// The current status.
    pub from: TaskStatus,
    /// The requested status.
    pub to: TaskStatus,
}

impl fmt::Display for RefusedTransition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, to } = self;
        write!(f, "{} cannot become {}", from.marker(), to.marker())?;
        let words: Vec<&str> = from.next().iter().map(|status| status.as_str()).collect();
        write!(f, "; allowed next: {}", words.join(", "))
    }
}

impl std::error::Error for RefusedTransition {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_is_read_back_from_its_marker_and_its_word() {
        for status in TaskStatus::ALL {
            assert_eq!(TaskStatus::read(status.marker()), Some(status));
            assert_eq!(TaskStatus::read(status.as_str()), Some(status));
            let wire = serde_json::to_string(&status).unwrap();
            assert_eq!(wire, format!("\"{}\"", status.as_str()));
        }
        for (text, expected) in [
            ("Not Started", Some(NotStarted)),
            ("in-progress", Some(InProgress)),
            ("[COMPLETE]", Some(Completed)),
            ("Done", Some(Completed)),
            ("[WIP]", Some(InProgress)),
            ("to-do", Some(NotStarted)),
            ("[Canceled]", Some(Abandoned)),
            ("[EXPANDED]", None),
            ("", None),
        ] {
            assert_eq!(TaskStatus::read(text), expected, "{text}");
        }
    }

    #[test]
    fn only_another_word_is_an_alias_not_another_case() {
        for (text, expected) in [
            ("[COMPLETE]", Some(Completed)),
            ("done", Some(Completed)),
            ("[COMPLETED]", None),
            ("in-progress", None),
            ("[Not Started]", None),
            ("[EXPANDED]", None),
        ] {
            assert_eq!(TaskStatus::read_alias(text), expected, "{text}");
        }
    }

    #[test]
    fn every_status_but_the_last_can_be_blocked_or_given_up() {
        for status in TaskStatus::ALL {
            assert!(!status.next().contains(&status), "{status} names itself");
            if status == Completed {
                assert_eq!(status.next(), [InProgress]);
            } else if status == Abandoned {
                assert_eq!(status.next(), [NotStarted]);
            } else {
                assert!(status == Blocked || status.next().contains(&Blocked), "{status}");
                assert!(status.next().contains(&Abandoned), "{status}");
            }
        }
    }

    #[test]
    fn a_refused_step_names_the_allowed_ones() {
        assert_eq!(
            Planning.step(Completed).unwrap_err().to_string(),
            "[PLANNING] cannot become [COMPLETED]; allowed next: planned, in_progress, blocked, abandoned"
        );
        assert_eq!(
            Completed.step(Planning).unwrap_err().to_string(),
            "[COMPLETED] cannot become [PLANNING]; allowed next: in_progress"
        );
        assert_eq!(Researching.step(Researching), Ok(()));
    }

    #[test]
    fn what_is_done_is_opened_by_a_step_and_never_by_work() {
        assert_eq!(Completed.step(InProgress), Ok(()));
        for to in TaskStatus::ALL {
            assert_eq!(Completed.intermediate_status(to).is_ok(), to == Completed, "{to}");
        }
    }
}
