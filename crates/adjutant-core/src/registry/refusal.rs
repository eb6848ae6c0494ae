//! Refusals of the registry, with their values and what to do next.

use crate::ids::RunId;
use crate::money::Usd;

use super::state::{HolderId, StoryKey};

/// Why the registry refused a command.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegistryRefusal {
    /// The process never joined, or was removed because it died.
    #[error("process `{holder}` holds no lock that the registry knows")]
    UnknownHolder {
        /// The process.
        holder: HolderId,
    },
    /// All run slots of the tree are taken.
    #[error(
        "QUEUE_FULL: {max_runs} runs of this tree that clients began are alive, those that wait for approval \
         included, limit {max_runs}"
    )]
    PlacesTaken {
        /// The most live runs of the tree.
        max_runs: u32,
    },
    /// The run already has a slot or a reservation, or its id belongs to another call.
    #[error("{run} is already registered")]
    RunKnown {
        /// The run.
        run: RunId,
    },
    /// The run has no slot, no reservation, or no story.
    #[error("{run} is not known here")]
    RunUnknown {
        /// The run.
        run: RunId,
    },
    /// The worst-case cost does not fit into the rest of today's allowance.
    #[error(
        "the call may spend {amount}, but only {left} is left of today's {limit} for calls without approval"
    )]
    AllowanceExceeded {
        /// The worst-case cost.
        amount: Usd,
        /// The rest of today's allowance.
        left: Usd,
        /// The allowance of a day.
        limit: Usd,
    },
    /// Today's allowance is used up, so only free runs can be auto-approved.
    #[error(
        "the call may spend {amount}, but nothing is left of today's {limit} for calls without approval"
    )]
    AllowanceUsedUp {
        /// The worst-case cost.
        amount: Usd,
        /// The allowance of a day.
        limit: Usd,
    },
    /// An equal call already has this run; its result is the answer.
    #[error("an equal call already started {run}")]
    CallHasRun {
        /// The run.
        run: RunId,
    },
    /// The call has another run by now, so this one must not start.
    #[error("an equal call started {run} in the meantime")]
    CallSuperseded {
        /// The run that the call has now.
        run: RunId,
    },
    /// The call was abandoned, so its run must not start.
    #[error("the call that reserved {run} was abandoned; {run} must not start")]
    CallAbandoned {
        /// The run that the call had.
        run: RunId,
    },
    /// The run is being cancelled; no call can wait for it any more.
    #[error("{run} is being cancelled")]
    BeingCancelled {
        /// The run.
        run: RunId,
    },
    /// Other calls wait for the run, so it must not be cancelled.
    #[error("other calls wait for {run} ({count})")]
    OthersWait {
        /// The run.
        run: RunId,
        /// How many.
        count: u32,
    },
    /// No call of this process waits for the run.
    #[error("no call of this process waits for {run}")]
    NotWaiting {
        /// The run.
        run: RunId,
    },
    /// Another process works on the story.
    #[error("process {pid} works on it")]
    StoryHeld {
        /// The process.
        holder: HolderId,
        /// Its pid.
        pid: u32,
    },
    /// The process has not claimed the story.
    #[error("story `{}` of `{}` is not claimed by this process", story.id, story.prd)]
    StoryNotClaimed {
        /// The story.
        story: StoryKey,
    },
    /// A run works on the story already.
    #[error("{run} works on it")]
    StoryHasRun {
        /// The run.
        run: RunId,
    },
    /// Earlier stories used up the budget of all stories.
    #[error("the budget of all stories is used up")]
    StoryBudgetUsedUp,
    /// The text is not a digest.
    #[error("`{digest}` is not a SHA-256 digest")]
    NotADigest {
        /// The text.
        digest: String,
    },
    /// There is no open question with this id.
    #[error("no question `{id}` is open")]
    QuestionUnknown {
        /// The id.
        id: String,
    },
    /// The commit was not merged into the tree, or the merge was undone.
    #[error("{commit} is not merged")]
    NotMerged {
        /// The commit.
        commit: String,
    },
    /// The files of an earlier version were already imported.
    #[error("the files of the earlier version were already imported")]
    AlreadyImported,
}

impl RegistryRefusal {
    /// Returns what to do about it, if a person or client can do something.
    #[must_use]
    pub const fn recommendation(&self) -> Option<&'static str> {
        match self {
            Self::PlacesTaken { .. } => Some(
                "Wait for one with delegate_wait or end one with delegate_cancel; delegate_status lists them. A \
                 person raises the limit with `max_runs` in [mcp] of their own config.toml.",
            ),
            Self::StoryHeld { .. } => {
                Some("`adjutant status` lists the runs, `adjutant watch RUN` follows one.")
            }
            Self::UnknownHolder { .. }
            | Self::RunKnown { .. }
            | Self::RunUnknown { .. }
            | Self::AllowanceExceeded { .. }
            | Self::AllowanceUsedUp { .. }
            | Self::CallHasRun { .. }
            | Self::CallSuperseded { .. }
            | Self::CallAbandoned { .. }
            | Self::BeingCancelled { .. }
            | Self::OthersWait { .. }
            | Self::NotWaiting { .. }
            | Self::StoryNotClaimed { .. }
            | Self::StoryHasRun { .. }
            | Self::StoryBudgetUsedUp
            | Self::NotADigest { .. }
            | Self::QuestionUnknown { .. }
            | Self::NotMerged { .. }
            | Self::AlreadyImported => None,
        }
    }
}
