//! What a process can ask of the registry, for example to claim a story or to record a merge.

use crate::budget::{BudgetAmount, BudgetCap};
use crate::ids::RunId;
use crate::money::Usd;

use super::event::{ImportedCall, ImportedDay};
use super::samples::SampleGroup;
use super::state::{CallKey, HolderId, StoryEnd, StoryKey, StoryRun, TreeKey};

/// A request of a process, judged by [`super::Registry::decide`].
#[derive(Clone, Debug, PartialEq)]
pub enum RegistryCommand {
    /// Registers a process that holds its lock file.
    Join {
        /// The process.
        holder: HolderId,
        /// The pid, only for display.
        pid: u32,
    },
    /// Frees everything held by a process whose lock file is not locked any more.
    HolderGone {
        /// The process.
        holder: HolderId,
    },
    /// Imports the files of versions that had no registry.
    Import {
        /// Digests that a person consented to.
        consents: Vec<String>,
        /// Auto-approved amounts per day.
        days: Vec<ImportedDay>,
        /// Which call started which run.
        calls: Vec<ImportedCall>,
    },

    /// Takes a slot among the live runs of a work tree.
    AdmitRun {
        /// The process of the run.
        holder: HolderId,
        /// The run.
        run: RunId,
        /// The work tree.
        tree: TreeKey,
        /// The most live runs of that tree. Inclusive.
        max_runs: u32,
        /// The call that started it; `BeginCall` must have named this run.
        call: Option<CallKey>,
    },
    /// Frees the slot of a run.
    EndRun {
        /// The run.
        run: RunId,
    },

    /// Reserves the worst-case cost of an auto-approved run from today's allowance.
    ReserveAllowance {
        /// The process of the run.
        holder: HolderId,
        /// The run.
        run: RunId,
        /// Its worst-case cost.
        amount: Usd,
        /// The allowance of a day. Inclusive.
        limit: Usd,
    },
    /// Replaces the reservation of a run with its actual cost.
    SettleAllowance {
        /// The run.
        run: RunId,
        /// The actual cost.
        spent: Usd,
    },

    /// Assigns a run to a call, before the run's process is started.
    BeginCall {
        /// The process that will start the run.
        holder: HolderId,
        /// The call.
        call: CallKey,
        /// The id of the new run.
        run: RunId,
        /// The ended run of an equal call, whose result is not reused.
        instead_of: Option<RunId>,
    },
    /// Abandons a call whose run was not started.
    AbandonCall {
        /// The call.
        call: CallKey,
        /// The run that was not started.
        run: RunId,
    },
    /// Records that a call waits for a run.
    Wait {
        /// The process that serves the call.
        holder: HolderId,
        /// The run.
        run: RunId,
    },
    /// Records that one call of this process stopped waiting.
    StopWaiting {
        /// The process that serves the call.
        holder: HolderId,
        /// The run.
        run: RunId,
    },
    /// Starts to cancel a run that no call waits for.
    StartCancelling {
        /// The process that cancels it.
        holder: HolderId,
        /// The run.
        run: RunId,
    },
    /// Records that the cancellation is over, successful or not.
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
    /// Releases a claim.
    ReleaseStory {
        /// The process that claimed it.
        holder: HolderId,
        /// The story.
        story: StoryKey,
    },
    /// Starts or resumes a run on a story that the process has claimed.
    BeginStory {
        /// The process.
        holder: HolderId,
        /// The story.
        story: StoryKey,
        /// The run.
        run: RunId,
        /// The digest of the story's text.
        asked: String,
        /// The budget of all stories of the PRD in this process.
        budget: BudgetCap,
    },
    /// Records how a run on a story ended.
    EndStory {
        /// The run.
        run: RunId,
        /// How it ended.
        end: StoryEnd,
        /// What it spent.
        spent: BudgetAmount,
        /// The commit of its work.
        commit: Option<String>,
        /// The highest number that a child of the story had.
        last_child: u64,
    },

    /// Imports the runs on the stories of a PRD from versions that had no registry; once per PRD.
    ImportStoryRuns {
        /// The resolved path of the PRD.
        prd: String,
        /// The runs, oldest first.
        runs: Vec<StoryRun>,
    },

    /// Records a person's consent to the content with this digest.
    GiveConsent {
        /// The SHA-256 digest in lower-case hexadecimal.
        digest: String,
    },
    /// Registers a question that a run has recorded in its journal.
    OpenQuestion {
        /// The question's id.
        id: String,
        /// The run that asks.
        run: RunId,
        /// The hash that the answer refers to.
        hash: String,
        /// The code that a person must repeat to approve.
        code: String,
        /// The client on whose behalf it is asked; empty for a question at a prompt.
        client: String,
        /// Whether it is shown at the prompt of a terminal, where it can be answered too.
        at_prompt: bool,
    },
    /// Removes a question that was answered or that no run waits for.
    CloseQuestion {
        /// The question's id.
        id: String,
    },
    /// Records that work was merged into the user's files.
    RecordMerge {
        /// The tree it was merged into.
        tree: TreeKey,
        /// The run that did the work.
        run: RunId,
        /// The commit of the work.
        commit: String,
    },
    /// Records what the delegations of an ended run consumed.
    RecordSamples {
        /// The samples, by what makes them comparable.
        groups: Vec<SampleGroup>,
    },
    /// Records that a merge was undone.
    UndoMerge {
        /// The tree it was merged into.
        tree: TreeKey,
        /// The commit of the work.
        commit: String,
    },
}
