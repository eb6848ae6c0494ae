//! The codes by which programs tell refusals and errors apart.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $variant:ident = $text:literal),+ $(,)?) => {
        /// A stable code on the wire; every one is raised in exactly one place.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum Code {
            $($(#[doc = $doc])+ #[serde(rename = $text)] $variant,)+
        }

        impl Code {
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
    /// The target is already working above the parent.
    CycleDetected = "CYCLE_DETECTED",
    /// The child would sit below the deepest permitted level.
    MaxDepthExceeded = "MAX_DEPTH_EXCEEDED",
    /// A parent or the run has no more children to give.
    MaxDelegationsExceeded = "MAX_DELEGATIONS_EXCEEDED",
    /// The child would hold a right its parent lacks.
    RightsExceeded = "RIGHTS_EXCEEDED",
    /// The child's estimate does not fit the context budget.
    ContextBudgetExceeded = "CONTEXT_BUDGET_EXCEEDED",
    /// Tokens or money do not suffice.
    BudgetExceeded = "BUDGET_EXCEEDED",
    /// No time is left for a child.
    TimeExceeded = "TIME_EXCEEDED",
    /// Too many delegations are waiting.
    QueueFull = "QUEUE_FULL",
    /// A person or the policy said no.
    ApprovalDenied = "APPROVAL_DENIED",
    /// A deadline passed.
    Timeout = "TIMEOUT",
    /// A return did not satisfy its contract, or input its schema.
    ValidationFailed = "VALIDATION_FAILED",
    /// A tool that was needed is not there.
    ToolUnavailable = "TOOL_UNAVAILABLE",
    /// A build or compilation failed.
    BuildError = "BUILD_ERROR",
    /// A file that was needed is not there.
    FileNotFound = "FILE_NOT_FOUND",
    /// The task files could not be brought in step.
    StatusSyncFailed = "STATUS_SYNC_FAILED",
    /// Work could not be committed.
    GitCommitFailed = "GIT_COMMIT_FAILED",
    /// An error nobody named.
    UnknownError = "UNKNOWN_ERROR",
    /// The conversation no longer fits the model's window.
    ContextExhausted = "CONTEXT_EXHAUSTED",
    /// No byte and no progress for too long.
    Stalled = "STALLED",
    /// The same call was made over and over.
    LoopDetected = "LOOP_DETECTED",
    /// A person or the parent stopped it.
    Cancelled = "CANCELLED",
    /// The process died before the end.
    Interrupted = "INTERRUPTED",
    /// The model's provider failed.
    ProviderError = "PROVIDER_ERROR",
    /// The journal could not be written.
    DiskFull = "DISK_FULL",
    /// A defect of Adjutant itself.
    Internal = "INTERNAL",
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
