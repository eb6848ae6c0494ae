//! The registry saying no: typed, with the numbers in it and a way on.

use crate::ids::RunId;
use crate::money::Usd;

use super::state::{HolderId, StoryKey};

/// Says why the registry refused a command.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegistryRefusal {
    /// The process never joined, or was found dead.
    #[error("process `{holder}` holds no lock that the registry knows")]
    UnknownHolder {
        /// The process.
        holder: HolderId,
    },
    /// All places of the tree are taken.
    #[error(
        "QUEUE_FULL: {max_runs} runs of this tree that clients began are alive, those that wait for approval \
         included, limit {max_runs}"
    )]
    PlacesTaken {
        /// The most live runs of the tree.
        max_runs: u32,
    },
    /// The run takes a place already, or its id belongs to another call.
    #[error("{run} is known already")]
    RunKnown {
        /// The run.
        run: RunId,
    },
    /// The run takes no place, has no reservation, or works on no story.
    #[error("{run} is not known here")]
    RunUnknown {
        /// The run.
        run: RunId,
    },
    /// The worst case does not fit into what is left of today's amount.
    #[error("{amount} may be spent, {left} is left of the {limit} that may start unasked today")]
    AllowanceExceeded {
        /// The worst case.
        amount: Usd,
        /// What is left.
        left: Usd,
        /// The amount of a day.
        limit: Usd,
    },
    /// Nothing is left of today's amount, so only what is free starts unasked.
    #[error("{amount} may be spent, nothing is left of the {limit} that may start unasked today")]
    AllowanceUsedUp {
        /// The worst case.
        amount: Usd,
        /// The amount of a day.
        limit: Usd,
    },
    /// An equal call has a run, which is the answer.
    #[error("an equal call began {run}")]
    CallHasRun {
        /// The run.
        run: RunId,
    },
    /// The call belongs to another run by now, so this one must not begin.
    #[error("an equal call began {} meanwhile", run.map_or_else(|| "nothing".to_owned(), |run| run.to_string()))]
    CallSuperseded {
        /// The run that the call has.
        run: Option<RunId>,
    },
    /// The run is being cancelled: no call can wait for it any more.
    #[error("{run} is being cancelled")]
    BeingCancelled {
        /// The run.
        run: RunId,
    },
    /// Other calls wait for the run, so it is not cancelled.
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
        /// Its number.
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
    /// The stories before it used up what all of them may.
    #[error("the budget of all stories is used up")]
    StoryBudgetUsedUp,
    /// A consent is known by a digest and by nothing else.
    #[error("`{digest}` is not a SHA-256 digest")]
    NotADigest {
        /// What was given.
        digest: String,
    },
    /// No question is called that.
    #[error("no question `{id}` is open")]
    QuestionUnknown {
        /// What was named.
        id: String,
    },
    /// The commit was not merged into the tree, or was taken back.
    #[error("{commit} is not merged")]
    NotMerged {
        /// The commit.
        commit: String,
    },
    /// What an earlier version kept was taken over before.
    #[error("the files of the earlier version were taken over before")]
    AlreadyImported,
}

impl RegistryRefusal {
    /// Returns what can be done about it, where a person or a client can do something.
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
