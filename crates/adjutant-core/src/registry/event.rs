//! The events of the registry, as `registry.jsonl` stores them. Tags and fields are a file format:
//! they may only be added to.
//!
//! [`ImportedDay`] and [`ImportedCall`] are entries of the files that earlier versions kept instead
//! of the registry.

use serde::{Deserialize, Serialize};

use crate::budget::BudgetAmount;
use crate::ids::RunId;
use crate::money::Usd;

use super::samples::SampleGroup;
use super::state::{CallKey, HolderId, Registry, StoryEnd, StoryKey, StoryRun, TreeKey};

/// The auto-approved amount of one day, from an earlier version's file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportedDay {
    /// The day, counted from 1 January 1970 in UTC.
    pub day: u64,
    /// The amount that was spent or reserved.
    pub spent: Usd,
}

/// The run of a call, from an earlier version's file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportedCall {
    /// The call.
    pub call: CallKey,
    /// The run.
    pub run: RunId,
    /// When it was recorded, in Unix milliseconds.
    pub since_ms: u64,
}

/// A recorded fact of the registry.
///
/// The tag is the key of an outer object, unlike in a run's journal: with an inner tag, serde would
/// parse a large checkpoint twice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RegistryEvent {
    /// The whole state so far; a compacted file begins with it.
    Checkpoint {
        /// The state.
        state: Box<Registry>,
    },
    /// A process joined; it holds its lock file.
    HolderJoined {
        /// The process.
        holder: HolderId,
        /// The pid, only for display.
        pid: u32,
    },
    /// A process died (its lock file is not locked); everything it held is free.
    HolderGone {
        /// The process.
        holder: HolderId,
    },
    /// The files of a version without a registry were imported.
    Imported {
        /// Digests that a person consented to.
        consents: Vec<String>,
        /// Auto-approved amounts per day.
        days: Vec<ImportedDay>,
        /// Which call started which run.
        calls: Vec<ImportedCall>,
    },
    /// A run took a slot.
    RunAdmitted {
        /// The process of the run.
        holder: HolderId,
        /// The run.
        run: RunId,
        /// The work tree whose slot it takes.
        tree: TreeKey,
        /// The call that started it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call: Option<CallKey>,
    },
    /// A run ended and freed its slot.
    RunEnded {
        /// The run.
        run: RunId,
    },
    /// The worst-case cost of a run was reserved from a day's allowance.
    AllowanceReserved {
        /// The process of the run.
        holder: HolderId,
        /// The run.
        run: RunId,
        /// The day.
        day: u64,
        /// The worst-case cost.
        amount: Usd,
    },
    /// An auto-approved run was settled at its actual cost.
    AllowanceSettled {
        /// The run.
        run: RunId,
        /// The actual cost.
        spent: Usd,
    },
    /// A call was assigned a run, whose process is about to start.
    CallBegun {
        /// The process that starts the run.
        holder: HolderId,
        /// The call.
        call: CallKey,
        /// The run.
        run: RunId,
    },
    /// The run of a call was not started.
    CallAbandoned {
        /// The call.
        call: CallKey,
        /// The run that was not started.
        run: RunId,
    },
    /// A call waits for a run.
    WaitBegun {
        /// The process that serves the call.
        holder: HolderId,
        /// The run.
        run: RunId,
    },
    /// A call stopped waiting for a run.
    WaitEnded {
        /// The process that serves the call.
        holder: HolderId,
        /// The run.
        run: RunId,
    },
    /// A process started to cancel a run that no call waits for.
    CancellingStarted {
        /// The process.
        holder: HolderId,
        /// The run.
        run: RunId,
    },
    /// The cancellation is over.
    CancellingStopped {
        /// The run.
        run: RunId,
    },
    /// A process claimed a story.
    StoryClaimed {
        /// The process.
        holder: HolderId,
        /// The story.
        story: StoryKey,
    },
    /// A process released its claim on a story.
    StoryReleased {
        /// The process.
        holder: HolderId,
        /// The story.
        story: StoryKey,
    },
    /// A run on a story was started or resumed.
    StoryBegun {
        /// The process.
        holder: HolderId,
        /// The story.
        story: StoryKey,
        /// The run.
        run: RunId,
        /// The digest of the story's text.
        asked: String,
        /// The dollars left of the budget of all stories.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        left_usd: Option<Usd>,
        /// The tokens left of the budget of all stories.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        left_tokens: Option<u64>,
    },
    /// A run on a story ended.
    StoryEnded {
        /// The run.
        run: RunId,
        /// How.
        end: StoryEnd,
        /// What it spent.
        spent: BudgetAmount,
        /// The commit of its work.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        commit: Option<String>,
        /// The highest number that a child of the story had.
        #[serde(default)]
        last_child: u64,
    },
    /// Runs on the stories of a PRD were imported from versions without a registry.
    StoryRunsImported {
        /// The resolved path of the PRD.
        prd: String,
        /// The runs, oldest first.
        runs: Vec<StoryRun>,
    },
    /// A person consented to the content with this digest.
    ConsentGiven {
        /// The digest.
        digest: String,
    },
    /// A question waits for a person.
    QuestionOpened {
        /// The question's id.
        id: String,
        /// The run that asks.
        run: RunId,
        /// The hash that the answer refers to.
        hash: String,
        /// The code that a person must repeat to approve.
        code: String,
        /// The client on whose behalf it is asked.
        client: String,
        /// Whether it is shown at the prompt of a terminal.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        at_prompt: bool,
    },
    /// A question was closed.
    QuestionClosed {
        /// The question's id.
        id: String,
    },
    /// Work was merged into the user's files.
    WorkMerged {
        /// The tree it was merged into.
        tree: TreeKey,
        /// The run that did the work.
        run: RunId,
        /// The commit of the work.
        commit: String,
    },
    /// A merge was undone.
    MergeUndone {
        /// The tree.
        tree: TreeKey,
        /// The commit of the work.
        commit: String,
    },
    /// A run ended; this is what its delegations consumed.
    DelegationsSampled {
        /// The samples, by what makes them comparable.
        groups: Vec<SampleGroup>,
    },
}

impl RegistryEvent {
    /// Says whether the event must survive a power failure before anything depends on it.
    ///
    /// What a process holds need not: a power failure frees it anyway. A settlement need not
    /// either: without it the worst case stays spent. Samples are only information.
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
            | Self::QuestionClosed { .. }
            | Self::DelegationsSampled { .. } => false,
        }
    }
}
