//! The state of the registry and what front ends may read of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::budget::BudgetAmount;
use crate::ids::RunId;
use crate::money::Usd;

/// Milliseconds of a day. Days are those of UTC: a day of a clock set by hand could come twice.
const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// Returns the day of a wall clock instant, counted from 1 January 1970 in UTC.
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
            /// Takes a text as the key.
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
    /// A process that holds something, by the name of its lock file. Never used again by another process.
    HolderId
}
text_key! {
    /// A call of a client, by the hash of everything that makes two calls equal.
    CallKey
}
text_key! {
    /// A work tree, by its path. Paths that are equal as text share places.
    TreeKey
}

/// A story of a PRD: the resolved path of the file, and the id in it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct StoryKey {
    /// The resolved path of the PRD.
    pub prd: String,
    /// The id of the story.
    pub id: String,
}

/// A process that may hold something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HolderRecord {
    /// Its process number, to be shown. It is no evidence that the process lives.
    pub pid: u32,
}

/// A run that takes a place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveRun {
    /// The process of the run.
    pub holder: HolderId,
    /// The tree whose place it takes.
    pub tree: TreeKey,
    /// The call that began it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallKey>,
}

/// What is known of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallRecord {
    /// The run that it began. The id is recorded before the process of the run starts.
    pub run: RunId,
    /// The process that begins the run or works on it; absent once no process does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<HolderId>,
    /// When that last changed, in Unix milliseconds.
    pub since_ms: u64,
}

/// How a run on a story ended, as far as it matters to later runs on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoryEnd {
    /// The story passes.
    Passed,
    /// The run was cut short, and `resume` goes on with it.
    Resumable,
    /// The run used up its limits; it goes on only where a person raises them.
    LimitsUsedUp,
    /// The run ended otherwise: the story is begun anew.
    Over,
}

/// Whether a run on a story goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoryRunState {
    /// A process works on it.
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
    /// The digest of what the story asked for.
    pub asked: String,
    /// Whether it goes on, or how it ended.
    pub state: StoryRunState,
    /// The commits that the story passed with, the latest last. Several where the run passed and then went on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub passed_with: Vec<String>,
    /// The highest number that a child of the story had.
    #[serde(default)]
    pub last_child: u64,
}

/// Where a question waits for a person. The question itself is in the journal of the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuestionPointer {
    /// The run that asks.
    pub run: RunId,
    /// What the answer is bound to.
    pub hash: String,
    /// What a person has to read before they can say yes.
    pub code: String,
    /// On whose behalf it is asked, as the client calls itself.
    pub client: String,
    /// Since when, in Unix milliseconds.
    pub asked_ms: u64,
}

/// Work that was merged into a person's files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MergeRecord {
    /// The tree it was merged into.
    pub tree: TreeKey,
    /// The run that did the work.
    pub run: RunId,
    /// The commit of the work.
    pub commit: String,
}

/// What started unasked on one day.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct AllowanceDay {
    /// What settled runs came to, and the worst cases of those that can settle no more.
    pub(super) spent: Usd,
    /// The worst cases of runs that are not settled, each with its holder.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) reserved: BTreeMap<RunId, (HolderId, Usd)>,
}

impl AllowanceDay {
    fn total(&self) -> Usd {
        self.spent + self.reserved.values().map(|(_, amount)| *amount).sum()
    }
}

/// What outlives a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Registry {
    pub(super) holders: BTreeMap<HolderId, HolderRecord>,
    pub(super) live_runs: BTreeMap<RunId, LiveRun>,
    /// By the day, which stands for an amount of its own.
    pub(super) allowance: BTreeMap<u64, AllowanceDay>,
    pub(super) calls: BTreeMap<CallKey, CallRecord>,
    /// How many calls of each process wait for a run.
    pub(super) waits: BTreeMap<RunId, BTreeMap<HolderId, u32>>,
    /// Runs that are being cancelled because no call waits for them any more, with who does so.
    pub(super) cancelling: BTreeMap<RunId, HolderId>,
    /// By PRD and story.
    pub(super) story_claims: BTreeMap<String, BTreeMap<String, HolderId>>,
    /// What the stories of a PRD came to in one process, by process and PRD.
    pub(super) story_spending: BTreeMap<HolderId, BTreeMap<String, BudgetAmount>>,
    /// In the order in which they were begun.
    pub(super) story_runs: Vec<StoryRun>,
    /// The PRDs whose runs of earlier versions are among them, the latest last.
    pub(super) imported_prds: Vec<String>,
    pub(super) consents: BTreeSet<String>,
    pub(super) questions: BTreeMap<String, QuestionPointer>,
    pub(super) merges: Vec<MergeRecord>,
}

impl Registry {
    /// Returns the processes that may hold something.
    pub fn holders(&self) -> impl Iterator<Item = (&HolderId, &HolderRecord)> {
        self.holders.iter()
    }

    /// Returns the runs that take a place, with their trees and processes.
    pub fn live_runs(&self) -> impl Iterator<Item = (RunId, &LiveRun)> {
        self.live_runs.iter().map(|(run, live)| (*run, live))
    }

    /// Returns what started unasked on the day of `wall_ms`: settled costs, and worst cases of the rest.
    #[must_use]
    pub fn spent_unasked(&self, wall_ms: u64) -> Usd {
        self.allowance.get(&day_of(wall_ms)).map(AllowanceDay::total).unwrap_or_default()
    }

    /// Returns what is known of a call.
    #[must_use]
    pub fn call(&self, call: &CallKey) -> Option<&CallRecord> {
        self.calls.get(call)
    }

    /// Returns how many calls wait for a run, in all processes.
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

    /// Returns what is known of a run on a story.
    #[must_use]
    pub fn story_run(&self, run: RunId) -> Option<&StoryRun> {
        self.story_runs.iter().find(|it| it.run == run)
    }

    /// Says whether the runs that earlier versions began on the stories of a PRD are among [`Self::story_runs`].
    #[must_use]
    pub fn has_imported_story_runs(&self, prd: &str) -> bool {
        self.imported_prds.iter().any(|it| it == prd)
    }

    /// Says whether a person agreed to what has this digest.
    #[must_use]
    pub fn has_consent(&self, digest: &str) -> bool {
        self.consents.contains(digest)
    }

    /// Returns the questions that wait for a person, by their ids.
    pub fn questions(&self) -> impl Iterator<Item = (&str, &QuestionPointer)> {
        self.questions.iter().map(|(id, question)| (id.as_str(), question))
    }

    /// Says whether a commit was merged into the files of a tree and not taken back.
    #[must_use]
    pub fn has_merged(&self, tree: &TreeKey, commit: &str) -> bool {
        self.merges.iter().any(|it| it.tree == *tree && it.commit == commit)
    }

    /// Returns what was merged and not taken back, the oldest first.
    pub fn merges(&self) -> impl Iterator<Item = &MergeRecord> {
        self.merges.iter()
    }
}
