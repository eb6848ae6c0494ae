//! All limits as data.
//!
//! A [`Policy`] is one value for every key of the design's table. It starts as a preset and is
//! changed only through layers, each of which says how far it is trusted. The policy knows nothing
//! of trees or time; `Tree::decide` reads it and is the only judge.

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

/// The deepest level any policy may permit. Inclusive; nothing and nobody raises it.
pub const HARD_MAX_DEPTH: u64 = 3;

/// Times a verify command may fail where a policy does not say it.
pub(crate) const VERIFY_ATTEMPTS: u64 = 3;

/// Seconds a verify command may take where a policy does not say it.
pub(crate) const VERIFY_S: u64 = 600;

/// Every limit of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// The preset this policy began as.
    pub preset: Preset,
    /// Whether anything may be delegated at all.
    pub enabled: bool,
    /// The deepest level a delegation may sit at. Inclusive; the root's own work is depth 0.
    pub max_depth: u64,
    /// The most tasks one call may bring. Inclusive.
    pub tasks_per_call: u64,
    /// The most children one parent may have over its life. Inclusive; absent means no limit.
    pub children_per_parent: Option<u64>,
    /// The most delegations one run may have over its life. Inclusive; absent means no limit.
    pub children_per_run: Option<u64>,
    /// How many children of one parent work at once.
    pub concurrency: u64,
    /// The highest concurrency a model or a task file may ask for. Inclusive.
    pub concurrency_max: u64,
    /// What makes a delegation a cycle.
    pub cycle_key: CycleKey,
    /// How long one delegation may take when it does not say.
    pub timeout_s: TimeoutRule,
    /// The longest a delegation may ask for; a larger wish is clamped.
    pub timeout_max_s: TimeoutRule,
    /// How long one parent may spend delegating in all, from its first grant.
    pub total_s: Option<u64>,
    /// How long a model call may go without a byte.
    pub stall_s: Option<u64>,
    /// The context one agent may fill; absent means the model's window.
    pub context_tokens: Option<u64>,
    /// Billed tokens one delegation may use, its descendants included.
    pub budget_tokens: Option<u64>,
    /// Billed tokens the whole run may use.
    pub budget_tokens_run: Option<u64>,
    /// Money the whole run may spend; holds for priced models.
    pub budget_usd: Option<Usd>,
    /// Output tokens of one model call when the task does not say; never more than its model gives.
    pub max_output_tokens: u64,
    /// Tokens of a result handed to the parent; absent means summary and artifacts only.
    pub result_tokens: Option<u64>,
    /// Where a delegation works.
    pub workspace: WorkspaceKind,
    /// The tools a delegation may hold.
    pub tools: ToolSet,
    /// The folder of the shared tree that may be written below; absent means none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_below: Option<String>,
    /// Whether all of the shared tree may be written, within an agent's definition.
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
    /// The most seconds a command of an agent may ask for. Inclusive.
    #[serde(default = "usual_run_max_s", skip_serializing_if = "is_usual_run_max_s")]
    pub run_max_s: u64,
    /// Whether what a child completed is merged into the workspace of its parent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub merge_children: bool,
    /// Whether tools may reach the network.
    pub network: bool,
    /// Hosts WebFetch may ask without a question; about any other a person is asked once in a run.
    #[serde(default, skip_serializing_if = "HostSet::is_empty")]
    pub web_domains: HostSet,
    /// Who is asked before a batch starts.
    pub approval: ApprovalRule,
    /// Dollars up to which calls start without asking, by their worst cases added up over the run.
    /// Inclusive; absent means that every call asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approve_below_usd: Option<Usd>,
    /// Seconds a question to a person stays open. Exclusive: an answer at that moment is too late.
    #[serde(default = "usual_approval_s", skip_serializing_if = "is_usual_approval_s")]
    pub approval_s: u64,
    /// Milliseconds between asking a person through a client and their answer. Inclusive: an answer at that moment
    /// counts, an earlier one does not and leaves the question open. Absent means that every answer counts.
    #[serde(default = "usual_answer_min_ms", skip_serializing_if = "is_usual_answer_min_ms")]
    pub answer_min_ms: Option<u64>,
    /// Times a verify command may fail before the delegation ends. Inclusive.
    #[serde(default = "usual_verify_attempts", skip_serializing_if = "is_usual_verify_attempts")]
    pub verify_attempts: u64,
    /// Seconds a verify command may take.
    #[serde(default = "usual_verify_s", skip_serializing_if = "is_usual_verify_s")]
    pub verify_s: u64,
    /// What a return must satisfy.
    pub contract: ContractKind,
    /// Days for which content is kept; metadata and cost stay.
    pub retention_days: u64,
}

/// The values of `workspace_bytes`, `workspace_entries` and `run_max_s` in every preset and in journals
/// without these keys.
const WORKSPACE_BYTES: u64 = 2 << 30;
const WORKSPACE_ENTRIES: u64 = 500_000;
const RUN_MAX_S: u64 = 600;

/// Defines what serde needs to leave out a field that has the value every preset has.
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
    RUN_MAX_S usual_run_max_s is_usual_run_max_s,
    APPROVAL_EXPIRES_S usual_approval_s is_usual_approval_s,
    VERIFY_ATTEMPTS usual_verify_attempts is_usual_verify_attempts,
    VERIFY_S usual_verify_s is_usual_verify_s,
}

#[expect(clippy::unnecessary_wraps, reason = "serde needs the type of the field")]
const fn usual_answer_min_ms() -> Option<u64> {
    Some(ANSWER_MIN_MS)
}

const fn is_usual_answer_min_ms(milliseconds: &Option<u64>) -> bool {
    matches!(milliseconds, Some(ANSWER_MIN_MS))
}

/// A time limit that may depend on the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TimeoutRule {
    /// No limit.
    None,
    /// The same for everything.
    Seconds(u64),
    /// The value of the operation's row.
    ByOperation,
}

/// What makes a delegation a cycle.
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

/// Where a delegation works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkspaceKind {
    /// The parent's tree, read-only.
    Shared,
    /// Its own copy of the tree.
    Own,
}

/// Who is asked before a batch starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalRule {
    /// Nobody.
    None,
    /// A person, once for each call.
    Batch,
}

/// What a return must satisfy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContractKind {
    /// A report in free text, not empty.
    Report,
    /// The standard return object.
    Standard,
}

/// The time a delegation is given, and whether its wish was cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllottedTime {
    /// Seconds, or `None` for no limit of its own.
    pub seconds: Option<u64>,
    /// Whether the wish was larger than allowed.
    pub clamped: bool,
}

impl Policy {
    /// Returns the most seconds an operation may be given; `None` for no limit.
    #[must_use]
    pub const fn longest(&self, operation: Operation) -> Option<u64> {
        match self.timeout_max_s {
            TimeoutRule::None => None,
            TimeoutRule::Seconds(seconds) => Some(seconds),
            TimeoutRule::ByOperation => Some(operation.max_seconds()),
        }
    }

    /// Returns the time for an operation: the wish where there is one, cut to the maximum.
    #[must_use]
    pub fn allot(&self, operation: Operation, wish: Option<u64>) -> AllottedTime {
        let default = match self.timeout_s {
            TimeoutRule::None => None,
            TimeoutRule::Seconds(seconds) => Some(seconds),
            TimeoutRule::ByOperation => Some(operation.default_seconds()),
        };
        let max = self.longest(operation);
        // No time at all is no wish.
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
    /// The refusal where delegation is disabled or the target would be below `max_depth`.
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

    /// Returns the billed tokens of one delegation, no more than those of the run.
    #[must_use]
    pub fn budget_tokens_within_run(&self) -> Option<u64> {
        self.budget_tokens.into_iter().chain(self.budget_tokens_run).min()
    }

    /// Returns what a run may use up in all.
    #[must_use]
    pub const fn run_cap(&self) -> BudgetCap {
        BudgetCap { tokens: self.budget_tokens_run, usd: self.budget_usd }
    }

    /// Returns the limits of a run that may use up `cap` in all.
    #[must_use]
    pub const fn with_run_cap(mut self, cap: BudgetCap) -> Self {
        (self.budget_tokens_run, self.budget_usd) = (cap.tokens, cap.usd);
        self
    }

    /// Returns what may start unasked of an amount that others share, of which `spent` is gone: no more than the policy
    /// itself lets start. `None` where nothing is left.
    #[must_use]
    pub fn unasked(&self, amount: Usd, spent: Usd) -> Option<Usd> {
        let left = amount.saturating_sub(spent);
        let left = self.approve_below_usd.map_or(left, |own| own.min(left));
        Some(left).filter(|left| *left > Usd::ZERO)
    }

    /// Returns what a run of agents that starts unasked may cost: all that is `left`, or its own budget.
    #[must_use]
    pub fn unasked_budget(&self, left: Usd) -> Usd {
        self.budget_usd.map_or(left, |own| own.min(left))
    }

    /// Returns what tasks that start unasked reserve of what is `left`: their worst case, or all of it where agents
    /// below them may start unasked within the same amount.
    #[must_use]
    pub fn unasked_reservation(&self, worst: Option<Usd>, left: Option<Usd>) -> Usd {
        worst.filter(|_| self.max_depth <= 1).or(left).unwrap_or_default()
    }
}
