//! What a process asks of the registry.

use crate::budget::{BudgetAmount, BudgetCap};
use crate::ids::RunId;
use crate::money::Usd;

use super::event::{ImportedCall, ImportedDay};
use super::state::{CallKey, HolderId, StoryEnd, StoryKey, StoryRun, TreeKey};

/// A wish of a process; [`super::Registry::decide`] judges it.
#[derive(Clone, Debug, PartialEq)]
pub enum RegistryCommand {
    /// Makes a process known that has locked its lock file.
    Join {
        /// The process.
        holder: HolderId,
        /// Its number, to be shown.
        pid: u32,
    },
    /// Frees what a process held whose lock file is not locked.
    HolderGone {
        /// The process.
        holder: HolderId,
    },
    /// Records what an earlier version kept in files of its own.
    Import {
        /// Digests that a person agreed to.
        consents: Vec<String>,
        /// What started unasked.
        days: Vec<ImportedDay>,
        /// Which calls began which runs.
        calls: Vec<ImportedCall>,
    },

    /// Gives a run a place among the live runs of a tree.
    AdmitRun {
        /// The process of the run.
        holder: HolderId,
        /// The run.
        run: RunId,
        /// The tree it works on.
        tree: TreeKey,
        /// The most runs of that tree that may be live at once, this one included.
        max_runs: u32,
        /// The call that began it; it must have been begun with this run.
        call: Option<CallKey>,
    },
    /// Gives back the place of a run.
    EndRun {
        /// The run.
        run: RunId,
    },

    /// Reserves the worst case of a run that starts unasked from the amount of today.
    ReserveAllowance {
        /// The process of the run.
        holder: HolderId,
        /// The run.
        run: RunId,
        /// The most that it may cost.
        amount: Usd,
        /// The most that may start unasked in a day, inclusive.
        limit: Usd,
    },
    /// Replaces the worst case of a run with what it cost.
    SettleAllowance {
        /// The run.
        run: RunId,
        /// What it cost.
        spent: Usd,
    },

    /// Begins a run for a call, before its process starts.
    BeginCall {
        /// The process that starts the run's process.
        holder: HolderId,
        /// The call.
        call: CallKey,
        /// The id that the run will have.
        run: RunId,
        /// The run of an equal call that has ended and does not answer this one.
        instead_of: Option<RunId>,
    },
    /// Gives up a call whose run was not begun.
    AbandonCall {
        /// The call.
        call: CallKey,
        /// The run that was to be begun.
        run: RunId,
    },
    /// Counts a call among those that wait for a run.
    Wait {
        /// The process that serves the call.
        holder: HolderId,
        /// The run.
        run: RunId,
    },
    /// Ends one wait of this process.
    StopWaiting {
        /// The process that serves the call.
        holder: HolderId,
        /// The run.
        run: RunId,
    },
    /// Asks for the right to cancel a run that no call waits for.
    StartCancelling {
        /// The process that is going to cancel it.
        holder: HolderId,
        /// The run.
        run: RunId,
    },
    /// Says that the cancelling is over, whatever came of it.
    StopCancelling {
        /// The run.
        run: RunId,
    },

    /// Claims a story for a process.
    ClaimStory {
        /// The process.
        holder: HolderId,
        /// The story.
        story: StoryKey,
    },
    /// Gives a claim back.
    ReleaseStory {
        /// The process that claimed it.
        holder: HolderId,
        /// The story.
        story: StoryKey,
    },
    /// Begins or resumes a run on a story that the process claimed.
    BeginStory {
        /// The process.
        holder: HolderId,
        /// The story.
        story: StoryKey,
        /// The run.
        run: RunId,
        /// The digest of what the story asks for.
        asked: String,
        /// What all stories of the PRD may use up in this process.
        budget: BudgetCap,
    },
    /// Records how a run on a story ended.
    EndStory {
        /// The run.
        run: RunId,
        /// How it ended.
        end: StoryEnd,
        /// What it used up.
        spent: BudgetAmount,
        /// The commit of its work.
        commit: Option<String>,
        /// The highest number that a child of the story had.
        last_child: u64,
    },

    /// Records what runs on the stories of a PRD came to that versions before the registry began; once for each PRD.
    ImportStoryRuns {
        /// The resolved path of the PRD.
        prd: String,
        /// The runs, in the order in which they were begun.
        runs: Vec<StoryRun>,
    },

    /// Remembers that a person agreed to what has this digest.
    GiveConsent {
        /// The SHA-256 digest in lower-case hexadecimal.
        digest: String,
    },
    /// Points to a question that a run has recorded.
    OpenQuestion {
        /// What the question is called.
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
    /// Drops a question that was answered or that no run waits for.
    CloseQuestion {
        /// What the question is called.
        id: String,
    },
    /// Remembers that work was merged into a person's files.
    RecordMerge {
        /// The tree it was merged into.
        tree: TreeKey,
        /// The run that did the work.
        run: RunId,
        /// The commit of the work.
        commit: String,
    },
    /// Remembers that a merge was taken back.
    UndoMerge {
        /// The tree it was merged into.
        tree: TreeKey,
        /// The commit of the work.
        commit: String,
    },
}
