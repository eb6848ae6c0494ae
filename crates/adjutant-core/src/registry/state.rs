//! The state of the registry, and the queries that front ends use.
//!
//! The registry has what outlives a run and several processes share: live runs, calls of clients, claims
//! on stories, spending, consents, open questions and merges. What happens inside a run is in that run's
//! journal; a [`QuestionPointer`] only refers to it.
//!
//! [`HolderRecord`] is one process that has joined, [`LiveRun`] a run that has not ended,
//! [`CallRecord`] one call of a client, [`StoryRun`] one run on a story ([`StoryRunState`] and
//! [`StoryEnd`] say whether and how it ended), `AllowanceDay` the auto-approved spending of one
//! day, and [`MergeRecord`] one merge into the user's files.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use super::samples::SampleGroup;
use crate::budget::BudgetAmount;
use crate::ids::RunId;
use crate::money::Usd;

/// Milliseconds of a day. Days are in UTC, because a local day can occur twice when the clock is
/// changed.
const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// Returns the day of a wall-clock time, counted from 1 January 1970 in UTC.
pub(super) const fn day_of(wall_ms: u64) -> u64 {
    wall_ms / DAY_MS
}

macro_rules! text_key {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// Makes a key from a text.
            #[must_use]
            pub fn new(text: impl Into<String>) -> Self {
                Self(text.into())
            }

            /// Returns the text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

text_key! {
    /// The id of a process: the name of its lock file, which no other process ever uses.
    HolderId
}
text_key! {
    /// The id of a client's call: a hash of everything that makes two calls equal.
    CallKey
}
text_key! {
    /// The id of a work tree: its path. Runs with the same path share slots.
    TreeKey
}

/// The id of a story: the resolved path of its PRD, and its id there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct StoryKey {
    /// The resolved path of the PRD.
    pub prd: String,
    /// The id of the story.
    pub id: String,
}

/// A process that uses the registry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HolderRecord {
    /// The pid, only for display; it does not prove that the process is alive.
    pub pid: u32,
}

/// A run in progress, which takes one of the slots of its work tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveRun {
    /// The process of the run.
    pub holder: HolderId,
    /// The work tree whose slot it takes.
    pub tree: TreeKey,
    /// The call that started it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallKey>,
}

/// The run that a client's call started, and the process that executes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallRecord {
    /// The run that it started. The id is recorded before the run's process starts.
    pub run: RunId,
    /// The process that starts or executes the run; absent once there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<HolderId>,
    /// When `holder` last changed, in Unix milliseconds.
    pub since_ms: u64,
}

/// How a run on a story ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoryEnd {
    /// The story passes.
    Passed,
    /// The run was interrupted; `resume` continues it.
    Resumable,
    /// The run used up its limits; it continues only if a person raises them.
    LimitsUsedUp,
    /// The run ended otherwise; the story has to be started again.
    Over,
}

/// Whether a run on a story is running.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoryRunState {
    /// This process executes it.
    Running(HolderId),
    /// It ended.
    Ended(StoryEnd),
}

/// One run on a story.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoryRun {
    /// The story.
    pub story: StoryKey,
    /// The run.
    pub run: RunId,
    /// The digest of the story's text at that time.
    pub asked: String,
    /// Whether it is running, or how it ended.
    pub state: StoryRunState,
    /// The commits that the story passed with, the latest last. There are several if the run was
    /// resumed after passing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub passed_with: Vec<String>,
    /// The highest number that a child of the story had.
    #[serde(default)]
    pub last_child: u64,
}

/// A reference to an open question; the question itself is in the run's journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuestionPointer {
    /// The run that asks.
    pub run: RunId,
    /// The hash that the answer refers to.
    pub hash: String,
    /// The code that a person must repeat to approve.
    pub code: String,
    /// The name of the client on whose behalf it is asked.
    pub client: String,
    /// When it was asked, in Unix milliseconds.
    pub asked_ms: u64,
    /// Whether it is shown at the prompt of a terminal.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub at_prompt: bool,
}

/// Work that was merged into the user's files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MergeRecord {
    /// The tree it was merged into.
    pub tree: TreeKey,
    /// The run that did the work.
    pub run: RunId,
    /// The commit of the work.
    pub commit: String,
}

/// The auto-approved amounts of one day.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct AllowanceDay {
    /// The costs of settled runs, and the worst cases of runs whose process died.
    pub(super) spent: Usd,
    /// The worst cases of unsettled runs, each with its process.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) reserved: BTreeMap<RunId, (HolderId, Usd)>,
}

impl AllowanceDay {
    fn total(&self) -> Usd {
        self.spent + self.reserved.values().map(|(_, amount)| *amount).sum()
    }
}

/// What processes share beyond single runs: slots, allowances, calls, claims on stories, and merges.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Registry {
    pub(super) holders: BTreeMap<HolderId, HolderRecord>,
    pub(super) live_runs: BTreeMap<RunId, LiveRun>,
    /// By day; each day has its own allowance.
    pub(super) allowance: BTreeMap<u64, AllowanceDay>,
    pub(super) calls: BTreeMap<CallKey, CallRecord>,
    /// How many calls of each process wait for each run.
    pub(super) waits: BTreeMap<RunId, BTreeMap<HolderId, u32>>,
    /// Runs that are being cancelled because no call waits for them, with the cancelling process.
    pub(super) cancelling: BTreeMap<RunId, HolderId>,
    /// The claiming process, by PRD and story.
    pub(super) story_claims: BTreeMap<String, BTreeMap<String, HolderId>>,
    /// What the stories of each PRD have cost, by process and PRD.
    pub(super) story_spending: BTreeMap<HolderId, BTreeMap<String, BudgetAmount>>,
    /// The oldest first.
    pub(super) story_runs: Vec<StoryRun>,
    /// The PRDs whose runs of earlier versions were imported, the latest last.
    pub(super) imported_prds: Vec<String>,
    pub(super) consents: BTreeSet<String>,
    pub(super) questions: BTreeMap<String, QuestionPointer>,
    pub(super) merges: Vec<MergeRecord>,
    /// What ended delegations consumed; the group that was extended last is the last.
    pub(super) samples: Vec<SampleGroup>,
}

impl Registry {
    /// Returns the processes that have joined.
    pub fn holders(&self) -> impl Iterator<Item = (&HolderId, &HolderRecord)> {
        self.holders.iter()
    }

    /// Returns the runs that take a slot.
    pub fn live_runs(&self) -> impl Iterator<Item = (RunId, &LiveRun)> {
        self.live_runs.iter().map(|(run, live)| (*run, live))
    }

    /// Returns the auto-approved amount of the day of `wall_ms`: costs of settled runs and worst
    /// cases of the others.
    #[must_use]
    pub fn spent_unasked(&self, wall_ms: u64) -> Usd {
        self.allowance.get(&day_of(wall_ms)).map(AllowanceDay::total).unwrap_or_default()
    }

    /// Returns the run and process of a call.
    #[must_use]
    pub fn call(&self, call: &CallKey) -> Option<&CallRecord> {
        self.calls.get(call)
    }

    /// Returns how many calls of all processes wait for a run.
    #[must_use]
    pub fn waits_for(&self, run: RunId) -> u32 {
        let counts = self.waits.get(&run).into_iter().flat_map(BTreeMap::values);
        counts.fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Returns the process that claimed a story.
    #[must_use]
    pub fn story_holder(&self, story: &StoryKey) -> Option<(&HolderId, &HolderRecord)> {
        let holder = self.story_claims.get(&story.prd)?.get(&story.id)?;
        self.holders.get_key_value(holder)
    }

    /// Returns the runs on a story, the latest first.
    pub fn story_runs<'a>(&'a self, story: &'a StoryKey) -> impl Iterator<Item = &'a StoryRun> {
        self.story_runs.iter().rev().filter(move |it| it.story == *story)
    }

    /// Returns the record of a run on a story.
    #[must_use]
    pub fn story_run(&self, run: RunId) -> Option<&StoryRun> {
        self.story_runs.iter().find(|it| it.run == run)
    }

    /// Says whether runs of earlier versions on the stories of this PRD were imported.
    #[must_use]
    pub fn has_imported_story_runs(&self, prd: &str) -> bool {
        self.imported_prds.iter().any(|it| it == prd)
    }

    /// Says whether a person consented to the content with this digest.
    #[must_use]
    pub fn has_consent(&self, digest: &str) -> bool {
        self.consents.contains(digest)
    }

    /// Returns the open questions, by id.
    pub fn questions(&self) -> impl Iterator<Item = (&str, &QuestionPointer)> {
        self.questions.iter().map(|(id, question)| (id.as_str(), question))
    }

    /// Says whether a commit was merged into the files of a tree, and not undone.
    #[must_use]
    pub fn has_merged(&self, tree: &TreeKey, commit: &str) -> bool {
        self.merges.iter().any(|it| it.tree == *tree && it.commit == commit)
    }

    /// Returns the merges that were not undone, the oldest first.
    pub fn merges(&self) -> impl Iterator<Item = &MergeRecord> {
        self.merges.iter()
    }
}
