//! All limits of a run as data.
//!
//! A [`Policy`] starts as a [`Preset`] and changes only through [`LayeredPolicy`], which knows how
//! far each source is trusted. It knows nothing about trees or time; `Tree::decide` applies it.
//! Besides numbers it says where an agent works ([`WorkspaceSharing`]: in its parent's tree or in a workspace of its
//! own) and what it must return ([`ContractKind`]: a report in free text or the standard return object).
//!
//! [`CycleKey`] says what must repeat on a path to count as a cycle (the task, the agent or the
//! story), [`DelegationTimeout`] is a rule for the time of a delegation, and [`AllottedTime`] the
//! time that one delegation gets by it. [`ApprovalRule`] says whether a person must approve the
//! tasks of a call before they start, and [`OnFullContext`] which agents go on in a fresh
//! conversation when their context is full.

mod key;
mod layer;
mod marker_instructions;
mod prd_config;
mod preset;

use serde::{Deserialize, Serialize};

use crate::budget::BudgetCap;
use crate::money::Usd;
use crate::refusal::Refusal;
use crate::rights::ToolSet;
use crate::tree::{ANSWER_MIN_MS, APPROVAL_EXPIRES_S};
use crate::web_host::HostSet;

pub use key::{PolicyKey, TighteningRule};
pub use layer::{LayeredPolicy, PolicyError, PolicySource, SourceTrust, parse_assignment};
pub use preset::{Operation, Preset, SPECS, WRITER_OUTPUT_TOKENS};

/// The deepest level that any policy may permit. Inclusive; no setting can raise it.
pub const HARD_MAX_DEPTH: u64 = 3;

/// The default of `verify_attempts`.
pub(crate) const VERIFY_ATTEMPTS: u64 = 3;

/// The default of `verify_s`.
pub(crate) const VERIFY_S: u64 = 600;

/// The default of `continuations`.
pub(crate) const CONTINUATIONS: u64 = 3;

/// Every limit of a run; the keys are described in `key`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// The preset that this policy started as.
    pub preset: Preset,
    /// Whether anything may be delegated at all.
    pub enabled: bool,
    /// The deepest level of a delegation. Inclusive; the root is at depth 0.
    pub max_depth: u64,
    /// The most tasks of one call. Inclusive.
    pub tasks_per_call: u64,
    /// The most children of one parent over its life. Inclusive; absent means no limit.
    pub children_per_parent: Option<u64>,
    /// The most delegations of one run over its life. Inclusive; absent means no limit.
    pub children_per_run: Option<u64>,
    /// How many children of one parent run at once.
    pub concurrency: u64,
    /// The highest concurrency a model or a task file may ask for. Inclusive.
    pub concurrency_max: u64,
    /// What must repeat on the path for a delegation to be a cycle.
    pub cycle_key: CycleKey,
    /// The timeout of a delegation that asks for none.
    pub timeout_s: DelegationTimeout,
    /// The longest timeout a delegation may ask for; more is clamped.
    pub timeout_max_s: DelegationTimeout,
    /// How many seconds one parent may spend on delegations in total, from its first grant.
    pub total_s: Option<u64>,
    /// How many seconds a model call may go without receiving a byte.
    pub stall_s: Option<u64>,
    /// The context size of one agent in tokens; absent means the model's window.
    pub context_tokens: Option<u64>,
    /// Billed tokens of one delegation, descendants included.
    pub budget_tokens: Option<u64>,
    /// Billed tokens the whole run may use.
    pub budget_tokens_run: Option<u64>,
    /// Dollars of the whole run; applies to models with a known price.
    pub budget_usd: Option<Usd>,
    /// Output tokens of one model call, if the task asks for none; never more than the model
    /// supports.
    pub max_output_tokens: u64,
    /// Tokens of a result that the parent receives; absent means only summary and artifacts.
    pub result_tokens: Option<u64>,
    /// Which agents go on in a fresh conversation when their context is full.
    #[serde(default, skip_serializing_if = "OnFullContext::is_by_agent")]
    pub on_full: OnFullContext,
    /// How many fresh conversations a delegation may go on in, from its start and from each resume.
    /// Inclusive.
    #[serde(default = "usual_continuations", skip_serializing_if = "is_usual_continuations")]
    pub continuations: u64,
    /// Whether a delegation works in the shared tree or in a workspace of its own.
    pub workspace: WorkspaceSharing,
    /// The tools a delegation may hold.
    pub tools: ToolSet,
    /// The directory of the shared tree below which files may be written; absent means none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_below: Option<String>,
    /// Whether all of the shared tree may be written, as far as the agent's definition allows.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_place: bool,
    /// Bytes that commands may write into a workspace. Inclusive.
    #[serde(default = "usual_workspace_bytes", skip_serializing_if = "is_usual_workspace_bytes")]
    pub workspace_bytes: u64,
    /// Files and directories that commands may add to a workspace. Inclusive.
    #[serde(
        default = "usual_workspace_entries",
        skip_serializing_if = "is_usual_workspace_entries"
    )]
    pub workspace_entries: u64,
    /// Bytes that all workspaces in the state directory may occupy, with their bases, home directories and caches.
    /// Inclusive.
    #[serde(default = "usual_disk_bytes", skip_serializing_if = "is_usual_disk_bytes")]
    pub disk_bytes: u64,
    /// The most seconds that one shell command may run. Inclusive.
    #[serde(default = "usual_run_max_s", skip_serializing_if = "is_usual_run_max_s")]
    pub run_max_s: u64,
    /// Whether completed work of a child is merged into its parent's workspace.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub merge_children: bool,
    /// Whether tools may reach the network.
    pub network: bool,
    /// Hosts that WebFetch may use without approval; about any other a person is asked once per
    /// run.
    #[serde(default, skip_serializing_if = "HostSet::is_empty")]
    pub web_domains: HostSet,
    /// Whether a person must approve a batch of tasks before it starts.
    pub approval: ApprovalRule,
    /// Dollars up to which calls start without approval, as the sum of their worst cases over the
    /// run. Inclusive; absent means that every call needs approval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approve_below_usd: Option<Usd>,
    /// Seconds until a question to a person expires. Exclusive: an answer at that moment is too
    /// late.
    #[serde(default = "usual_approval_s", skip_serializing_if = "is_usual_approval_s")]
    pub approval_s: u64,
    /// The fewest milliseconds between asking a person through a client and a valid answer.
    /// Inclusive; a faster answer is ignored and leaves the question open. Absent means that every
    /// answer counts.
    #[serde(default = "usual_answer_min_ms", skip_serializing_if = "is_usual_answer_min_ms")]
    pub answer_min_ms: Option<u64>,
    /// How often the verify command may fail before the delegation ends. Inclusive.
    #[serde(default = "usual_verify_attempts", skip_serializing_if = "is_usual_verify_attempts")]
    pub verify_attempts: u64,
    /// The most seconds that the verify command may run.
    #[serde(default = "usual_verify_s", skip_serializing_if = "is_usual_verify_s")]
    pub verify_s: u64,
    /// What an agent must return at its end.
    pub contract: ContractKind,
    /// Days after which content is removed; metadata and cost stay.
    pub retention_days: u64,
}

/// The defaults of `workspace_bytes`, `workspace_entries`, `disk_bytes` and `run_max_s`, also for
/// journals without these keys.
const WORKSPACE_BYTES: u64 = 2 << 30;
const WORKSPACE_ENTRIES: u64 = 500_000;
const DISK_BYTES: u64 = 20 << 30;
const RUN_MAX_S: u64 = 600;

/// Defines the functions by which serde omits a field that has its default.
macro_rules! usual {
    ($($value:ident $usual:ident $is_usual:ident),+ $(,)?) => {$(
        const fn $usual() -> u64 {
            $value
        }

        const fn $is_usual(value: &u64) -> bool {
            *value == $value
        }
    )+};
}

usual! {
    WORKSPACE_BYTES usual_workspace_bytes is_usual_workspace_bytes,
    WORKSPACE_ENTRIES usual_workspace_entries is_usual_workspace_entries,
    DISK_BYTES usual_disk_bytes is_usual_disk_bytes,
    RUN_MAX_S usual_run_max_s is_usual_run_max_s,
    APPROVAL_EXPIRES_S usual_approval_s is_usual_approval_s,
    VERIFY_ATTEMPTS usual_verify_attempts is_usual_verify_attempts,
    VERIFY_S usual_verify_s is_usual_verify_s,
    CONTINUATIONS usual_continuations is_usual_continuations,
}

#[expect(clippy::unnecessary_wraps, reason = "serde needs the type of the field")]
const fn usual_answer_min_ms() -> Option<u64> {
    Some(ANSWER_MIN_MS)
}

const fn is_usual_answer_min_ms(milliseconds: &Option<u64>) -> bool {
    matches!(milliseconds, Some(ANSWER_MIN_MS))
}

/// How long a delegation may run; used for the default and for the maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DelegationTimeout {
    /// No limit.
    None,
    /// The same for every operation.
    Seconds(u64),
    /// The default or maximum of the delegation's [`Operation`].
    ByOperation,
}

/// What must repeat on the path for a delegation to be a cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CycleKey {
    /// The same agent with the same task fingerprint.
    Task,
    /// The same agent name anywhere on the path.
    Agent,
    /// The same story, or the same task fingerprint.
    Story,
}

/// Which agents go on in a fresh conversation when their context is full. The others end as partial,
/// with their notes. The tightest value comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFullContext {
    /// No agent.
    Handover,
    /// The agents that hold Edit, Write or Run in a workspace of their own or in the user's tree.
    #[default]
    ByAgent,
    /// Every agent.
    Continue,
}

impl OnFullContext {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes the field by reference")]
    const fn is_by_agent(&self) -> bool {
        matches!(self, Self::ByAgent)
    }
}

/// Whether a delegation works in its parent's tree or in a workspace of its own.
///
/// How an own workspace is made (overlay or git worktree) is
/// [`WorkspaceKind`](crate::workspace::WorkspaceKind).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkspaceSharing {
    /// The parent's tree, read-only unless `write_below` or `in_place` permit writing.
    Shared,
    /// Its own copy of the tree.
    Own,
}

/// Whether a person must approve a batch of tasks before it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalRule {
    /// No approval is needed.
    None,
    /// A person approves each call.
    Batch,
}

/// What an agent must return at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContractKind {
    /// A report in free text that is not empty.
    Report,
    /// The standard return object, validated.
    Standard,
}

/// The timeout that a delegation gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllottedTime {
    /// Seconds; `None` means no timeout of its own.
    pub seconds: Option<u64>,
    /// Whether it asked for more than it gets.
    pub clamped: bool,
}

impl Policy {
    /// Returns the longest timeout for an operation in seconds; `None` means no limit.
    #[must_use]
    pub const fn longest(&self, operation: Operation) -> Option<u64> {
        match self.timeout_max_s {
            DelegationTimeout::None => None,
            DelegationTimeout::Seconds(seconds) => Some(seconds),
            DelegationTimeout::ByOperation => Some(operation.max_seconds()),
        }
    }

    /// Returns the timeout for an operation: the requested one or the default, clamped to the
    /// maximum.
    #[must_use]
    pub fn allot(&self, operation: Operation, wish: Option<u64>) -> AllottedTime {
        let default = match self.timeout_s {
            DelegationTimeout::None => None,
            DelegationTimeout::Seconds(seconds) => Some(seconds),
            DelegationTimeout::ByOperation => Some(operation.default_seconds()),
        };
        let max = self.longest(operation);
        // A timeout of zero counts as no request.
        let wish = wish.filter(|seconds| *seconds > 0);
        let wanted = wish.or(default);
        let seconds = match (wanted, max) {
            (Some(wanted), Some(max)) => Some(wanted.min(max)),
            (None, limit) | (limit, None) => limit,
        };
        AllottedTime { seconds, clamped: wish.is_some_and(|wish| Some(wish) != seconds) }
    }

    /// Judges whether an agent at `depth` may delegate to `target`. Returns the depth of the target.
    ///
    /// # Errors
    ///
    /// Delegation is disabled, or the target would be deeper than `max_depth`.
    pub fn judge_depth(&self, depth: u64, target: impl FnOnce() -> String) -> Result<u64, Refusal> {
        if !self.enabled {
            return Err(Refusal::Disabled { preset: self.preset });
        }
        let max_depth = self.max_depth;
        let below = depth + 1;
        if below > max_depth {
            return Err(Refusal::TooDeep { target: target(), depth, max_depth });
        }
        Ok(below)
    }

    /// Returns the token budget of one delegation, capped by that of the run.
    #[must_use]
    pub fn budget_tokens_within_run(&self) -> Option<u64> {
        self.budget_tokens.into_iter().chain(self.budget_tokens_run).min()
    }

    /// Returns the budget of the whole run.
    #[must_use]
    pub const fn run_cap(&self) -> BudgetCap {
        BudgetCap { tokens: self.budget_tokens_run, usd: self.budget_usd }
    }

    /// Returns the policy with another budget for the whole run.
    #[must_use]
    pub const fn with_run_cap(mut self, cap: BudgetCap) -> Self {
        (self.budget_tokens_run, self.budget_usd) = (cap.tokens, cap.usd);
        self
    }

    /// Returns whether an answer that a client gave `after_ms` after the question can be a person's.
    #[must_use]
    pub fn can_be_a_person_s_answer(&self, after_ms: u64) -> bool {
        self.answer_min_ms.is_none_or(|least| after_ms >= least)
    }

    /// Returns what is left of a shared auto-approval allowance: `amount - spent`, capped by
    /// `approve_below_usd`. `None` if nothing is left.
    #[must_use]
    pub fn auto_approval_left(&self, amount: Usd, spent: Usd) -> Option<Usd> {
        let left = amount.saturating_sub(spent);
        let left = self.approve_below_usd.map_or(left, |own| own.min(left));
        Some(left).filter(|left| *left > Usd::ZERO)
    }

    /// Returns the budget of an auto-approved run of agents: what is `left` of the allowance,
    /// capped by `budget_usd`.
    #[must_use]
    pub fn unasked_budget(&self, left: Usd) -> Usd {
        self.budget_usd.map_or(left, |own| own.min(left))
    }

    /// Returns what auto-approved tasks reserve of the allowance: their worst case, or all that is
    /// `left` if they may delegate further within the same allowance.
    #[must_use]
    pub fn unasked_reservation(&self, worst: Option<Usd>, left: Option<Usd>) -> Usd {
        worst.filter(|_| self.max_depth <= 1).or(left).unwrap_or_default()
    }
}
