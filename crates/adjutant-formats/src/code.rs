//! The stable codes that identify refusals and errors in JSON output, journals and exit messages.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $variant:ident = $text:literal),+ $(,)?) => {
        /// A stable code for a refusal or an error. Each code is raised in exactly one place.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum ErrorCode {
            $($(#[doc = $doc])+ #[serde(rename = $text)] $variant,)+
        }

        impl ErrorCode {
            /// Every code, in the order of the documentation.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// Returns the code as it is written on the wire.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }

            /// Returns the code written as `text`, if there is one.
            #[must_use]
            pub fn parse(text: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|code| code.as_str() == text)
            }
        }
    };
}

codes! {
    /// Delegation is switched off by policy.
    DelegationDisabled = "DELEGATION_DISABLED",
    /// The parent does not exist or has ended.
    UnknownParent = "UNKNOWN_PARENT",
    /// No agent of that name is defined.
    UnknownAgent = "UNKNOWN_AGENT",
    /// The target agent is already an ancestor of the new delegation.
    CycleDetected = "CYCLE_DETECTED",
    /// The child would sit below the deepest permitted level.
    MaxDepthExceeded = "MAX_DEPTH_EXCEEDED",
    /// A parent or the run has used up its number of delegations.
    MaxDelegationsExceeded = "MAX_DELEGATIONS_EXCEEDED",
    /// The child would have a right that its parent does not have.
    RightsExceeded = "RIGHTS_EXCEEDED",
    /// The child's estimated context exceeds the context budget.
    ContextBudgetExceeded = "CONTEXT_BUDGET_EXCEEDED",
    /// The token or money budget is too small.
    BudgetExceeded = "BUDGET_EXCEEDED",
    /// No time is left for a child.
    TimeExceeded = "TIME_EXCEEDED",
    /// Too many delegations are waiting.
    QueueFull = "QUEUE_FULL",
    /// A person or the policy denied the request.
    ApprovalDenied = "APPROVAL_DENIED",
    /// A deadline passed.
    Timeout = "TIMEOUT",
    /// A return violates its contract, or an input violates its schema.
    ValidationFailed = "VALIDATION_FAILED",
    /// A required tool is not available.
    ToolUnavailable = "TOOL_UNAVAILABLE",
    /// A build or compilation failed.
    BuildError = "BUILD_ERROR",
    /// A required file does not exist.
    FileNotFound = "FILE_NOT_FOUND",
    /// `TODO.md` and `state.json` could not be updated together.
    StatusSyncFailed = "STATUS_SYNC_FAILED",
    /// Work could not be committed.
    GitCommitFailed = "GIT_COMMIT_FAILED",
    /// An error that was reported without a known code.
    UnknownError = "UNKNOWN_ERROR",
    /// The conversation no longer fits the model's window.
    ContextExhausted = "CONTEXT_EXHAUSTED",
    /// No byte arrived from the model for too long (`stall_s`).
    Stalled = "STALLED",
    /// The agent repeated the same tool call too often.
    LoopDetected = "LOOP_DETECTED",
    /// A person or the parent cancelled the work.
    Cancelled = "CANCELLED",
    /// The process died before the work ended.
    Interrupted = "INTERRUPTED",
    /// The model's provider failed.
    ProviderError = "PROVIDER_ERROR",
    /// The journal could not be written.
    DiskFull = "DISK_FULL",
    /// A bug in Adjutant.
    Internal = "INTERNAL",
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
