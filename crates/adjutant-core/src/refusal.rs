//! Refusals: why the policy does not allow a request, and what to do instead.
//!
//! `Display` is a fragment for log lines. [`Refusal::message`] is the text for callers, some of
//! which the specifications prescribe word for word. All matches are exhaustive, so that no variant
//! lacks a code or a recommendation.
//!
//! [`Refusal`] is the error itself. The other types are parts of it: [`ContextRemedy`] (how a task
//! can be made to fit the context), [`TellProblem`] (why a message cannot be delivered),
//! [`FanOutScope`] and [`BudgetScope`] (which limit was exceeded) and [`TimeBound`] (which time
//! limit decides).

use crate::code::ErrorCode;
use crate::ids::{AgentName, Label, RunId, SessionId};
use crate::money::Usd;
use crate::numbers::{grouped, short};
use crate::outcome::OutcomeReason;
use crate::policy::{HARD_MAX_DEPTH, Preset};
use crate::rights::ToolSet;

/// Why a delegation or another request was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Delegation is disabled.
    #[error("delegation is disabled in preset `{preset}`")]
    Disabled {
        /// The preset in force.
        preset: Preset,
    },
    /// The parent does not exist or has ended.
    #[error("`{parent}` is not a live delegation")]
    UnknownParent {
        /// The name in the request.
        parent: String,
    },
    /// No agent of that name is defined.
    #[error("no agent `{agent}` is defined, known are {known}")]
    UnknownAgent {
        /// The name in the request.
        agent: AgentName,
        /// The names of the defined agents.
        known: String,
    },
    /// The target already works further up the path, so it would wait for itself.
    #[error("`{target}` already works above in the chain of delegations {}", path.join(" > "))]
    Cycle {
        /// The requested target.
        target: String,
        /// The path from the root, or around the cycle of stories.
        path: Vec<String>,
        /// Whether the path consists of stories instead of agents.
        stories: bool,
    },
    /// The task is only the name of a story. Each story is worked on once, by its own run or
    /// delegation.
    #[error(
        "the task `{story}` is the name of a story, which is worked on in its own run or delegation"
    )]
    OwnStory {
        /// The story.
        story: String,
    },
    /// The child would be deeper than the limit.
    #[error("delegating to `{target}` would reach depth {}, limit {max_depth}", depth + 1)]
    TooDeep {
        /// The requested target.
        target: String,
        /// The parent's depth.
        depth: u64,
        /// The limit.
        max_depth: u64,
    },
    /// The root itself would be deeper than the limit.
    #[error("the run would start at depth {base_depth} (DELEGATION_DEPTH), limit {max_depth}")]
    StartsTooDeep {
        /// The depth of the root.
        base_depth: u64,
        /// The limit.
        max_depth: u64,
    },
    /// The call has no tasks.
    #[error("the call contains no tasks")]
    NoTasks,
    /// The call, the parent or the run would have too many delegations.
    #[error("{} would have {count} delegations, limit {max}", scope.noun())]
    TooMany {
        /// Which limit was exceeded.
        scope: FanOutScope,
        /// How many there would be.
        count: u64,
        /// The limit.
        max: u64,
    },
    /// The child asks for rights that its parent does not have.
    #[error("rights beyond the parent's: {}", excess_rights_text(beyond, *network))]
    Rights {
        /// The tools that the parent does not have.
        beyond: ToolSet,
        /// Whether it asks for network access that the parent does not have.
        network: bool,
    },
    /// A context file must not be read.
    #[error("context file `{path}`: {problem}")]
    ContextFile {
        /// The path as the caller wrote it.
        path: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The requested model is not available.
    #[error("model unavailable: {problem}")]
    Model {
        /// Why.
        problem: String,
    },
    /// The external worker cannot do the task.
    #[error("worker `{worker}`: {problem}")]
    Worker {
        /// The worker.
        worker: String,
        /// Why it cannot.
        problem: String,
    },
    /// The estimated context does not fit the limit.
    #[error("context {current} + estimate {estimate} tokens, limit {max}")]
    ContextBudget {
        /// Tokens already in the context.
        current: u64,
        /// Tokens that the child is expected to need.
        estimate: u64,
        /// The limit.
        max: u64,
        /// How to make it fit.
        remedy: ContextRemedy,
    },
    /// Too few tokens are left.
    #[error("{needed} tokens needed, {left} left of the {} budget", scope.noun())]
    Tokens {
        /// The scope of the budget.
        scope: BudgetScope,
        /// Tokens that the smallest useful model call needs.
        needed: u64,
        /// The rest of the budget.
        left: u64,
        /// The budget.
        max: u64,
    },
    /// Too little money is left.
    #[error("{needed} needed, {left} left of the {} budget", scope.noun())]
    Money {
        /// The scope of the budget.
        scope: BudgetScope,
        /// The most that the smallest useful model call may cost.
        needed: Usd,
        /// The rest of the budget.
        left: Usd,
        /// The budget.
        max: Usd,
    },
    /// No time is left for a child.
    #[error("no time left: {}", bound.noun())]
    Time {
        /// Which time limit has run out.
        bound: TimeBound,
        /// The limit in seconds, if it is a fixed number.
        seconds: Option<u64>,
    },
    /// Too many delegations are queued.
    #[error("{waiting} delegations are waiting, limit {max}")]
    QueueFull {
        /// How many are queued.
        waiting: u64,
        /// The limit.
        max: u64,
    },
    /// A message to an agent cannot be delivered.
    #[error("cannot send the message to {session}: {problem}")]
    MessageRejected {
        /// The session it was for.
        session: SessionId,
        /// Why it cannot be delivered.
        problem: TellProblem,
    },
    /// A person or the policy denied the request.
    #[error("not approved: {reason}")]
    ApprovalDenied {
        /// Who denied it, or why no person could be asked.
        reason: String,
    },
}

/// How a task can be made to fit the context limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContextRemedy {
    /// Raise the policy's limit; the model's window is large enough.
    RaiseLimit,
    /// Use another model: the window of this one is too small.
    LargerWindow,
    /// Let each child return less: the results of the call do not fit the parent's window together.
    SmallerResults {
        /// The tokens that each child may return.
        result_tokens: u64,
    },
}

/// Why a message cannot be delivered to an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TellProblem {
    /// The session does not exist.
    #[error("it is not a live delegation")]
    NotLive,
    /// The session has ended.
    #[error("it has ended")]
    Ended {
        /// Its run, which has not ended.
        run: RunId,
    },
    /// The session has ended with a question to the person.
    #[error("it has ended with a question")]
    Blocked {
        /// Its run, which has not ended.
        run: RunId,
    },
    /// The session has no model: it is the root of a run without a parent agent.
    #[error("it has no agent of its own; name one of its delegations")]
    NoAgent,
    /// The message is empty.
    #[error("it is empty")]
    Empty,
    /// The message is too long.
    #[error("it has {bytes} bytes, limit {max}")]
    TooLong {
        /// Its length in bytes.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// Too many messages are waiting.
    #[error("{max} messages are already waiting for it")]
    Full {
        /// The limit.
        max: usize,
    },
}

/// Which fan-out limit was exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FanOutScope {
    /// The limit per call.
    Call,
    /// The limit per parent, over its life.
    Parent,
    /// The whole run.
    Run,
}

impl FanOutScope {
    const fn noun(self) -> &'static str {
        match self {
            Self::Call => "the call",
            Self::Parent => "the parent",
            Self::Run => "the run",
        }
    }

    const fn key(self) -> &'static str {
        match self {
            Self::Call => "tasks_per_call",
            Self::Parent => "children_per_parent",
            Self::Run => "children_per_run",
        }
    }
}

/// Whose budget was exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetScope {
    /// One delegation with its descendants.
    Delegation,
    /// The whole run.
    Run,
}

impl BudgetScope {
    /// Returns the scope as a word.
    #[must_use]
    pub const fn noun(self) -> &'static str {
        match self {
            Self::Delegation => "delegation's",
            Self::Run => "run's",
        }
    }

    /// Returns the flag that sets this budget.
    pub(crate) fn flag(self, tokens: u64) -> String {
        match self {
            Self::Delegation => format!("--set budget_tokens={tokens}"),
            Self::Run => format!("--budget-tokens {tokens}"),
        }
    }
}

/// The text before the session id and flags in a recommendation to resume with a larger budget.
pub(crate) const RAISE: &str = "go on with a larger budget: `adjutant resume ";
/// The same in journals of earlier versions, without a session id.
const RAISE_BEFORE: &str = "raise the budget with ";

/// Returns the flags in a recommendation to raise a budget; `None` if it is another recommendation.
#[must_use]
pub fn raising_flags(recommendation: &str) -> Option<&str> {
    if let Some((_, command)) = recommendation.split_once(RAISE) {
        let (_, flags) = command.split_once(' ')?;
        return flags.strip_suffix("`.");
    }
    let (_, flags) = recommendation.split_once(RAISE_BEFORE)?;
    flags.strip_suffix('.')
}

/// Which time limit decides a delegation's deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TimeBound {
    /// Its own timeout.
    Own,
    /// Its parent's deadline.
    Parent,
    /// The total time that its parent may spend on delegations (`total_s`).
    Total,
}

impl TimeBound {
    /// Returns the bound as a fragment for people.
    #[must_use]
    pub const fn noun(self) -> &'static str {
        match self {
            Self::Own => "its own timeout",
            Self::Parent => "its parent's deadline",
            Self::Total => "its parent's total for delegating (total_s)",
        }
    }
}

impl Refusal {
    /// Returns the stable code.
    #[must_use]
    pub const fn code(&self) -> ErrorCode {
        match self {
            Self::Disabled { .. } => ErrorCode::DelegationDisabled,
            Self::UnknownParent { .. } => ErrorCode::UnknownParent,
            Self::UnknownAgent { .. } => ErrorCode::UnknownAgent,
            Self::Cycle { .. } => ErrorCode::CycleDetected,
            Self::TooDeep { .. } | Self::StartsTooDeep { .. } => ErrorCode::MaxDepthExceeded,
            Self::TooMany { .. } => ErrorCode::MaxDelegationsExceeded,
            Self::Rights { .. } => ErrorCode::RightsExceeded,
            Self::NoTasks | Self::OwnStory { .. } | Self::ContextFile { .. } => {
                ErrorCode::ValidationFailed
            }
            Self::Model { .. } => ErrorCode::ProviderError,
            Self::Worker { .. } => ErrorCode::ToolUnavailable,
            Self::ContextBudget { .. } => ErrorCode::ContextBudgetExceeded,
            Self::Tokens { .. } | Self::Money { .. } => ErrorCode::BudgetExceeded,
            Self::Time { .. } => ErrorCode::TimeExceeded,
            Self::QueueFull { .. }
            | Self::MessageRejected { problem: TellProblem::Full { .. }, .. } => {
                ErrorCode::QueueFull
            }
            Self::MessageRejected {
                problem:
                    TellProblem::NotLive
                    | TellProblem::Ended { .. }
                    | TellProblem::Blocked { .. }
                    | TellProblem::NoAgent,
                ..
            } => ErrorCode::UnknownParent,
            Self::MessageRejected { .. } => ErrorCode::ValidationFailed,
            Self::ApprovalDenied { .. } => ErrorCode::ApprovalDenied,
        }
    }

    /// Says whether the same request can succeed after following the recommendation.
    #[must_use]
    pub const fn recoverable(&self) -> bool {
        match self {
            Self::Disabled { .. }
            | Self::UnknownAgent { .. }
            | Self::TooMany { .. }
            | Self::NoTasks
            | Self::ContextFile { .. }
            | Self::Model { .. }
            | Self::Worker { .. }
            | Self::ContextBudget { .. }
            | Self::Tokens { .. }
            | Self::Money { .. }
            | Self::QueueFull { .. }
            | Self::ApprovalDenied { .. } => true,
            Self::MessageRejected { problem, .. } => !matches!(
                problem,
                TellProblem::NotLive
                    | TellProblem::Ended { .. }
                    | TellProblem::Blocked { .. }
                    | TellProblem::NoAgent
            ),
            Self::TooDeep { max_depth, .. } => *max_depth < HARD_MAX_DEPTH,
            Self::StartsTooDeep { base_depth, .. } => *base_depth <= HARD_MAX_DEPTH,
            Self::UnknownParent { .. }
            | Self::Cycle { .. }
            | Self::OwnStory { .. }
            | Self::Rights { .. }
            | Self::Time { .. } => false,
        }
    }

    /// Returns the text for callers: what was attempted, the current value and the maximum.
    #[must_use]
    pub fn message(&self) -> String {
        match self {
            Self::Disabled { preset } => {
                format!("Delegation is disabled (preset {preset}, enabled = false).")
            }
            Self::UnknownParent { parent } => {
                format!("Unknown parent: {parent} is not a live delegation.")
            }
            Self::UnknownAgent { agent, known } => {
                let known = if known.is_empty() { "none" } else { known };
                format!("Unknown agent: {agent}. Known agents: {known}.")
            }
            Self::Cycle { path, stories: true, .. } => format!(
                "ERROR: Delegation cycle detected. Cannot delegate to avoid infinite loop.\n\n\
                 Cycle path: {} (attempted)\n\n\
                 This would create an infinite delegation loop.",
                path.join(" → ")
            ),
            Self::Cycle { target, path, stories: false } => {
                format!("Cycle detected: {} → {target}", path.join(" → "))
            }
            Self::TooDeep { target, depth, max_depth } => format!(
                "ERROR: Delegation depth limit ({max_depth}) reached. Cannot delegate further.\n\n\
                 Current depth: {depth}\n\
                 Attempted delegation: {target}\n\
                 Suggestion: Complete this task at current level or simplify."
            ),
            Self::TooMany { count, max, scope } => format!(
                "Too many delegations ({count}). Maximum: {max}{}",
                match scope {
                    FanOutScope::Call => "",
                    FanOutScope::Parent => " per parent",
                    FanOutScope::Run => " per run",
                }
            ),
            Self::Rights { .. }
            | Self::StartsTooDeep { .. }
            | Self::OwnStory { .. }
            | Self::NoTasks
            | Self::ContextFile { .. }
            | Self::Model { .. }
            | Self::QueueFull { .. } => sentence(self),
            Self::Worker { worker, problem } => format!("Worker {worker}: {problem}."),
            Self::MessageRejected { session, problem } => {
                format!("cannot send the message to {session}: {problem}.")
            }
            Self::ContextBudget { current, estimate, max, .. } => format!(
                "ERROR: Agent context budget ({} tokens) exceeded. Simplify subtask.\n\n\
                 Current context: {} tokens\n\
                 Subtask estimate: {} tokens\n\
                 Total would be: {} tokens\n\
                 Maximum allowed: {} tokens\n\n\
                 Suggestion: Break subtask into smaller pieces or reduce parent context.",
                short(*max),
                grouped(*current),
                grouped(*estimate),
                grouped(current.saturating_add(*estimate)),
                grouped(*max)
            ),
            Self::Tokens { scope, needed, left, max } => format!(
                "Token budget exceeded: the task needs at least {} tokens, {} of the {} {} are left.",
                grouped(*needed),
                grouped(*left),
                scope.noun(),
                grouped(*max)
            ),
            Self::Money { scope, needed, left, max } => format!(
                "Money budget exceeded: the task needs up to {needed}, {left} of the {} {max} are left.",
                scope.noun()
            ),
            Self::Time { bound, seconds } => format!(
                "No time left to delegate: {}{} is used up.",
                bound.noun(),
                seconds.map_or_else(String::new, |seconds| format!(" of {} s", grouped(seconds)))
            ),
            Self::ApprovalDenied { reason } => format!("Not approved: {reason}."),
        }
    }

    /// Returns what to do next. Flags can be pasted as they are; they are for a command that starts
    /// a run, not for `resume`, because the refused task is not part of the run.
    #[must_use]
    pub fn recommendation(&self) -> String {
        match self {
            Self::Disabled { .. } => {
                "Start the run again with --enable-delegation, or with ENABLE_DELEGATION=true, or enabled = true in the user config.".into()
            }
            Self::UnknownParent { .. } => "Name a running delegation; `adjutant tree` lists them.".into(),
            Self::UnknownAgent { .. } => "Use one of the known agents.".into(),
            Self::Cycle { .. } => "Do this work at the current level, or delegate a smaller, different task.".into(),
            Self::OwnStory { .. } => "Leave that story to its own run; if your task needs a part of it, say in words what is to be done.".into(),
            Self::TooDeep { max_depth, .. } if *max_depth < HARD_MAX_DEPTH => format!(
                "Complete this task at the current level, or start the run again with --set max_depth={}.",
                max_depth + 1
            ),
            Self::TooDeep { .. } => {
                format!("Complete this task at the current level; {HARD_MAX_DEPTH} is the hard maximum.")
            }
            Self::StartsTooDeep { base_depth, .. } if *base_depth <= HARD_MAX_DEPTH => format!(
                "Do this work in the process that started this one, or start the run again with --set max_depth={base_depth}."
            ),
            Self::StartsTooDeep { .. } => format!(
                "Do this work in the process that started this one; {HARD_MAX_DEPTH} is the hard maximum."
            ),
            Self::TooMany { scope, count, .. } => {
                format!("Delegate fewer, larger tasks, or start the run again with --set {}={count}.", scope.key())
            }
            Self::Rights { network: true, .. } => {
                "Ask only for tools and a network that the parent holds.".into()
            }
            Self::NoTasks => "Give at least one task.".into(),
            Self::Rights { .. } => "Ask only for tools the parent holds.".into(),
            Self::Model { .. } => "Leave `model` out, or name one that `adjutant models` lists.".into(),
            Self::Worker { .. } => "`adjutant workers` says which workers there are and what each needs.".into(),
            Self::ContextFile { .. } => "Name regular files inside the working tree, below the size cap.".into(),
            Self::ContextBudget { remedy: ContextRemedy::LargerWindow, .. } => {
                "Break the task into smaller pieces, or use a model with a larger window.".into()
            }
            Self::ContextBudget {
                remedy: ContextRemedy::SmallerResults { result_tokens: 0 }, ..
            } => "Delegate fewer tasks in one call, or use a model with a larger window.".into(),
            Self::ContextBudget { remedy: ContextRemedy::SmallerResults { result_tokens }, .. } => format!(
                "Delegate fewer tasks in one call, or let each hand back less: start the run again with --set result_tokens={result_tokens}."
            ),
            Self::ContextBudget { remedy: ContextRemedy::RaiseLimit, current, estimate, .. } => format!(
                "Break the task into smaller pieces, or start the run again with --set context_tokens={}.",
                current.saturating_add(*estimate)
            ),
            Self::Tokens { scope, needed, left, max } => format!(
                "Start the run again with {}, or delegate less.",
                scope.flag(max.saturating_add(needed.saturating_sub(*left)))
            ),
            Self::Money { needed, left, max, .. } => format!(
                "Start the run again with --budget-usd {:.2}, or delegate less.",
                ((*max + needed.saturating_sub(*left)).as_dollars() * 100.0).ceil() / 100.0
            ),
            Self::Time { .. } => "Finish with what is there, or give the parent more time.".into(),
            Self::QueueFull { .. } => "Wait until delegations have ended, then try again.".into(),
            Self::MessageRejected { session, problem: TellProblem::Ended { run } } => format!(
                "It can go on when its run has ended: `adjutant wait {run}` waits for that, then `adjutant resume \
                 {session} --say` gives it more to do."
            ),
            Self::MessageRejected { session, problem: TellProblem::Blocked { run } } => format!(
                "Its question can be answered when its run has ended: `adjutant wait {run}` waits for that, then \
                 `adjutant resume {session} --say` answers it."
            ),
            Self::MessageRejected {
                problem: TellProblem::NotLive | TellProblem::NoAgent, ..
            } => {
                "Name a session at work; `adjutant status latest` lists them.".into()
            }
            Self::MessageRejected { problem: TellProblem::Empty, .. } => "Say something.".into(),
            Self::MessageRejected { problem: TellProblem::TooLong { .. }, .. } => {
                "Say it shorter, or put it into a file the agent can read.".into()
            }
            Self::MessageRejected { problem: TellProblem::Full { .. }, .. } => {
                "Wait until its next turn, or say it all in one message.".into()
            }
            // A calling agent reads this text; it must not be told to bypass the person with
            // `--yes`.
            Self::ApprovalDenied { reason } if reason.ends_with("said no") => {
                "Do not ask again unless the person wants it.".into()
            }
            Self::ApprovalDenied { reason } if reason.starts_with("nobody answered") => {
                "Call again to ask anew.".into()
            }
            Self::ApprovalDenied { .. } => "Run it in a terminal and approve it, or add --yes.".into(),
        }
    }

    /// Returns code, message and recommendation for a return or a tool result.
    #[must_use]
    pub fn reason(&self) -> OutcomeReason {
        OutcomeReason {
            code: self.code(),
            message: self.message(),
            recommendation: self.recommendation(),
            recoverable: self.recoverable(),
        }
    }
}

/// Lists the excess rights.
fn excess_rights_text(beyond: &ToolSet, network: bool) -> String {
    let network = network.then_some("the network");
    beyond.iter().chain(network).collect::<Vec<_>>().join(", ")
}

/// Returns the `Display` fragment as a sentence.
fn sentence(refusal: &Refusal) -> String {
    let fragment = refusal.to_string();
    let mut chars = fragment.chars();
    chars
        .next()
        .map_or_else(String::new, |first| format!("{}{}.", first.to_uppercase(), chars.as_str()))
}

/// Returns the name of a refused task for messages: the start of its prompt, or its label if the
/// prompt is empty.
pub(crate) fn target_name(label: &Label, prompt: &str) -> String {
    const LONGEST: usize = 120;
    let text = if prompt.trim().is_empty() { label.as_str() } else { prompt.trim() };
    match text.char_indices().nth(LONGEST) {
        None => text.to_owned(),
        Some((cut, _)) => format!("{}…", &text[..cut]),
    }
}
