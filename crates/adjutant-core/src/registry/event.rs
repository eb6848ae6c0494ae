//! What happened, as `registry.jsonl` keeps it. Tags and fields are a file format: they only grow.

use serde::{Deserialize, Serialize};

use crate::budget::BudgetAmount;
use crate::ids::RunId;
use crate::money::Usd;

use super::state::{CallKey, HolderId, Registry, StoryEnd, StoryKey, StoryRun, TreeKey};

/// What started unasked on one day, as an earlier version kept it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportedDay {
    /// The day, counted from 1 January 1970 in UTC.
    pub day: u64,
    /// What was spent or set aside.
    pub spent: Usd,
}

/// Which run a call began, as an earlier version kept it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportedCall {
    /// The call.
    pub call: CallKey,
    /// The run.
    pub run: RunId,
    /// When it was noted, in Unix milliseconds.
    pub since_ms: u64,
}

/// A fact of the registry.
///
/// The tag is the key of an object, not a field as in the journal of a run: a checkpoint is large, and an inner
/// tag would have it parsed twice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RegistryEvent {
    /// The fold of everything before; a file that was compacted begins with it.
    Checkpoint {
        /// The state.
        state: Box<Registry>,
    },
    /// A process is known by the lock file it holds.
    HolderJoined {
        /// The process.
        holder: HolderId,
        /// Its number, to be shown.
        pid: u32,
    },
    /// The lock file of a process is not locked: all that it held is free.
    HolderGone {
        /// The process.
        holder: HolderId,
    },
    /// What an earlier version kept in files of its own was taken over.
    Imported {
        /// Digests that a person agreed to.
        consents: Vec<String>,
        /// What started unasked.
        days: Vec<ImportedDay>,
        /// Which calls began which runs.
        calls: Vec<ImportedCall>,
    },
    /// A run has a place.
    RunAdmitted {
        /// The process of the run.
        holder: HolderId,
        /// The run.
        run: RunId,
        /// The tree whose place it takes.
        tree: TreeKey,
        /// The call that began it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call: Option<CallKey>,
    },
    /// A run gave its place back.
    RunEnded {
        /// The run.
        run: RunId,
    },
    /// The worst case of a run is set aside from the amount of a day.
    AllowanceReserved {
        /// The process of the run.
        holder: HolderId,
        /// The run.
        run: RunId,
        /// The day.
        day: u64,
        /// The worst case.
        amount: Usd,
    },
    /// A run that started unasked cost this much.
    AllowanceSettled {
        /// The run.
        run: RunId,
        /// What it cost.
        spent: Usd,
    },
    /// A call has a run, whose process is about to be started.
    CallBegun {
        /// The process that starts it.
        holder: HolderId,
        /// The call.
        call: CallKey,
        /// The run.
        run: RunId,
    },
    /// The run of a call was not begun.
    CallAbandoned {
        /// The call.
        call: CallKey,
        /// The run that was to be begun.
        run: RunId,
    },
    /// A call waits for a run.
    WaitBegun {
        /// The process that serves the call.
        holder: HolderId,
        /// The run.
        run: RunId,
    },
    /// A call waits no more.
    WaitEnded {
        /// The process that serves the call.
        holder: HolderId,
        /// The run.
        run: RunId,
    },
    /// A process cancels a run that no call waits for.
    CancellingStarted {
        /// The process.
        holder: HolderId,
        /// The run.
        run: RunId,
    },
    /// The cancelling is over.
    CancellingStopped {
        /// The run.
        run: RunId,
    },
    /// A process has a story for itself.
    StoryClaimed {
        /// The process.
        holder: HolderId,
        /// The story.
        story: StoryKey,
    },
    /// A process gave a story back.
    StoryReleased {
        /// The process.
        holder: HolderId,
        /// The story.
        story: StoryKey,
    },
    /// A run works on a story.
    StoryBegun {
        /// The process.
        holder: HolderId,
        /// The story.
        story: StoryKey,
        /// The run.
        run: RunId,
        /// The digest of what the story asks for.
        asked: String,
        /// What is left of the dollars of all stories.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        left_usd: Option<Usd>,
        /// What is left of the tokens of all stories.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        left_tokens: Option<u64>,
    },
    /// A run on a story ended.
    StoryEnded {
        /// The run.
        run: RunId,
        /// How.
        end: StoryEnd,
        /// What it used up.
        spent: BudgetAmount,
        /// The commit of its work.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        commit: Option<String>,
        /// The highest number that a child of the story had.
        #[serde(default)]
        last_child: u64,
    },
    /// Runs on the stories of a PRD that versions before the registry began are known.
    StoryRunsImported {
        /// The resolved path of the PRD.
        prd: String,
        /// The runs, in the order in which they were begun.
        runs: Vec<StoryRun>,
    },
    /// A person agreed to what has this digest.
    ConsentGiven {
        /// The digest.
        digest: String,
    },
    /// A question waits for a person.
    QuestionOpened {
        /// What it is called.
        id: String,
        /// The run that asks.
        run: RunId,
        /// What the answer is bound to.
        hash: String,
        /// What a person has to read before they can say yes.
        code: String,
        /// On whose behalf it is asked.
        client: String,
    },
    /// A question waits no more.
    QuestionClosed {
        /// What it is called.
        id: String,
    },
    /// Work was merged into a person's files.
    WorkMerged {
        /// The tree it was merged into.
        tree: TreeKey,
        /// The run that did the work.
        run: RunId,
        /// The commit of the work.
        commit: String,
    },
    /// A merge was taken back.
    MergeUndone {
        /// The tree.
        tree: TreeKey,
        /// The commit of the work.
        commit: String,
    },
}

impl RegistryEvent {
    /// Says whether the fact must survive a loss of power before anyone builds on it.
    ///
    /// What a process holds does not: the loss frees it too. Nor does a settlement: without it the worst case
    /// stays spent.
    #[must_use]
    pub const fn must_be_durable(&self) -> bool {
        match self {
            Self::Checkpoint { .. }
            | Self::Imported { .. }
            | Self::AllowanceReserved { .. }
            | Self::CallBegun { .. }
            | Self::StoryBegun { .. }
            | Self::StoryEnded { .. }
            | Self::ConsentGiven { .. }
            | Self::WorkMerged { .. }
            | Self::MergeUndone { .. } => true,
            Self::HolderJoined { .. }
            | Self::HolderGone { .. }
            | Self::RunAdmitted { .. }
            | Self::RunEnded { .. }
            | Self::AllowanceSettled { .. }
            | Self::CallAbandoned { .. }
            | Self::WaitBegun { .. }
            | Self::WaitEnded { .. }
            | Self::CancellingStarted { .. }
            | Self::CancellingStopped { .. }
            | Self::StoryClaimed { .. }
            | Self::StoryReleased { .. }
            | Self::StoryRunsImported { .. }
            | Self::QuestionOpened { .. }
            | Self::QuestionClosed { .. } => false,
        }
    }
}
