//! The policy keys: names, descriptions, tightening rules, and how each value is read and written.
//!
//! A table with one arm per key in each function. A new key is added here and in [`Policy`],
//! nowhere else.
//!
//! A [`PolicyKey`] names one setting; its [`TighteningRule`] says in which direction an untrusted
//! source may change it (for example only lower, only off, or fewer).

use serde_json::{Value, json};

use super::layer::PolicyError;
use super::{
    ApprovalRule, ContractKind, CycleKey, DelegationTimeout, HARD_MAX_DEPTH, OnFullContext, Policy,
    WorkspaceSharing,
};
use crate::money::Usd;
use crate::rights::ToolSet;
use crate::web_host::HostSet;
use crate::write::is_folder;

/// How an untrusted source may change a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TighteningRule {
    /// It may lower the value; `None` means no limit and is the loosest.
    Lower,
    /// It may lower or remove the value; `None` permits nothing and is the tightest.
    Less,
    /// It may switch the key off.
    Off,
    /// It may remove members of the set.
    Fewer,
    /// It may require approval where none was required.
    Ask,
    /// It may let fewer agents continue after a full context.
    Handover,
    /// It may not change the key: the values have no order.
    Unordered,
}

impl TighteningRule {
    /// Returns the rule as a fragment for error messages.
    #[must_use]
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Lower => "may only be lowered",
            Self::Less => "may only be lowered or taken away",
            Self::Off => "may only be switched off",
            Self::Fewer => "may only lose members",
            Self::Ask => "may only be made to ask",
            Self::Handover => "may only be made to hand over",
            Self::Unordered => "has no tighter value",
        }
    }
}

macro_rules! keys {
    ($($variant:ident $name:literal $tighter:ident $doc:literal),+ $(,)?) => {
        /// A key of the policy.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum PolicyKey { $(#[doc = $doc] $variant),+ }

        impl PolicyKey {
            /// Every key, in the order of the documentation.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// Returns the key's name in files and flags.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }

            /// Returns a one-line description.
            #[must_use]
            pub const fn doc(self) -> &'static str {
                match self { $(Self::$variant => $doc),+ }
            }

            /// Returns how an untrusted source may change it.
            #[must_use]
            pub const fn tighter(self) -> TighteningRule {
                match self { $(Self::$variant => TighteningRule::$tighter),+ }
            }
        }
    };
}

keys! {
    Enabled "enabled" Off "whether anything may be delegated",
    MaxDepth "max_depth" Lower "deepest level of a delegation; the root is 0; never above 3",
    TasksPerCall "tasks_per_call" Lower "most tasks in one call",
    ChildrenPerParent "children_per_parent" Lower "most children of one parent over its life",
    ChildrenPerRun "children_per_run" Lower "most delegations of one run",
    Concurrency "concurrency" Lower "children of one parent that work at once",
    ConcurrencyMax "concurrency_max" Lower "highest concurrency a model or task file may ask for",
    CycleKey "cycle_key" Unordered "what makes a cycle: task, agent or story",
    TimeoutS "timeout_s" Lower "seconds for one delegation, or by_operation",
    TimeoutMaxS "timeout_max_s" Lower "most seconds a delegation may ask for, or by_operation",
    TotalS "total_s" Lower "seconds one parent may spend delegating in all",
    StallS "stall_s" Lower "seconds a model call may go without a byte",
    ContextTokens "context_tokens" Lower "tokens one agent's context may hold; none: the model's window",
    BudgetTokens "budget_tokens" Lower "billed tokens of one delegation, descendants included",
    BudgetTokensRun "budget_tokens_run" Lower "billed tokens of the whole run",
    BudgetUsd "budget_usd" Lower "dollars of the whole run; holds for priced models",
    MaxOutputTokens "max_output_tokens" Lower "output tokens of one model call",
    ResultTokens "result_tokens" Lower "tokens of a result handed to the parent; none: summary and artifacts",
    OnFull "on_full" Handover "what a full context does: continue (a fresh conversation), handover (partial), by_agent (agents that write continue)",
    Continuations "continuations" Lower "fresh conversations that one delegation may go on in after a full context",
    Workspace "workspace" Unordered "where a delegation works: shared or own",
    Tools "tools" Fewer "tools a delegation may hold",
    WriteBelow "write_below" Less "folder of the shared tree that may be written below; none: nothing of it",
    InPlace "in_place" Off "whether all of the shared tree may be written, within an agent's definition",
    WorkspaceBytes "workspace_bytes" Lower "bytes that commands may write into a workspace",
    WorkspaceEntries "workspace_entries" Lower "files and directories that commands may add to a workspace",
    DiskBytes "disk_bytes" Unordered "bytes that all workspaces and their bases may occupy; unused bases are removed first",
    RunMaxS "run_max_s" Lower "most seconds a command of an agent may ask for",
    MergeChildren "merge_children" Off "whether completed work is merged into the parent's workspace, where it is clean",
    Network "network" Off "whether tools may reach the network",
    WebDomains "web_domains" Fewer "hosts WebFetch may ask without a question; others ask a person once",
    Approval "approval" Ask "who is asked before a batch: none or batch",
    ApproveBelowUsd "approve_below_usd" Less "dollars up to which calls start without asking, by their worst cases added up",
    ApprovalS "approval_s" Lower "seconds a question to a person stays open",
    AnswerMinMs "answer_min_ms" Unordered "milliseconds a person needs to answer through a client; a faster answer does not count",
    VerifyAttempts "verify_attempts" Lower "times a verify command may fail before the work ends as partial",
    VerifyS "verify_s" Lower "seconds a verify command may take; the time of its delegation ends it before that",
    Contract "contract" Unordered "what a return must satisfy: report or standard",
    RetentionDays "retention_days" Unordered "days for which content is kept",
}

impl PolicyKey {
    /// Returns the key of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|key| key.name() == name)
    }

    /// Says whether `resume` may change the key: budgets, times and concurrency. All other keys are
    /// fixed when the run begins.
    #[must_use]
    pub const fn is_set_on_resume(self) -> bool {
        matches!(
            self,
            Self::BudgetTokens
                | Self::BudgetTokensRun
                | Self::BudgetUsd
                | Self::TimeoutS
                | Self::TimeoutMaxS
                | Self::TotalS
                | Self::StallS
                | Self::ApprovalS
                | Self::Concurrency
                | Self::ConcurrencyMax
        )
    }

    /// Returns the key's value in `policy`, as written in files.
    #[must_use]
    pub fn get(self, policy: &Policy) -> Value {
        match self {
            Self::Enabled => json!(policy.enabled),
            Self::MaxDepth => json!(policy.max_depth),
            Self::TasksPerCall => json!(policy.tasks_per_call),
            Self::ChildrenPerParent => json!(policy.children_per_parent),
            Self::ChildrenPerRun => json!(policy.children_per_run),
            Self::Concurrency => json!(policy.concurrency),
            Self::ConcurrencyMax => json!(policy.concurrency_max),
            Self::CycleKey => json!(policy.cycle_key),
            Self::TimeoutS => timeout_value(policy.timeout_s),
            Self::TimeoutMaxS => timeout_value(policy.timeout_max_s),
            Self::TotalS => json!(policy.total_s),
            Self::StallS => json!(policy.stall_s),
            Self::ContextTokens => json!(policy.context_tokens),
            Self::BudgetTokens => json!(policy.budget_tokens),
            Self::BudgetTokensRun => json!(policy.budget_tokens_run),
            Self::BudgetUsd => json!(policy.budget_usd),
            Self::MaxOutputTokens => json!(policy.max_output_tokens),
            Self::ResultTokens => json!(policy.result_tokens),
            Self::OnFull => json!(policy.on_full),
            Self::Continuations => json!(policy.continuations),
            Self::Workspace => json!(policy.workspace),
            Self::Tools => json!(policy.tools),
            Self::WriteBelow => json!(policy.write_below),
            Self::InPlace => json!(policy.in_place),
            Self::WorkspaceBytes => json!(policy.workspace_bytes),
            Self::WorkspaceEntries => json!(policy.workspace_entries),
            Self::DiskBytes => json!(policy.disk_bytes),
            Self::RunMaxS => json!(policy.run_max_s),
            Self::MergeChildren => json!(policy.merge_children),
            Self::Network => json!(policy.network),
            Self::WebDomains => json!(policy.web_domains),
            Self::Approval => json!(policy.approval),
            Self::ApproveBelowUsd => json!(policy.approve_below_usd),
            Self::ApprovalS => json!(policy.approval_s),
            Self::AnswerMinMs => json!(policy.answer_min_ms),
            Self::VerifyAttempts => json!(policy.verify_attempts),
            Self::VerifyS => json!(policy.verify_s),
            Self::Contract => json!(policy.contract),
            Self::RetentionDays => json!(policy.retention_days),
        }
    }

    /// Sets the key in `policy`, or says why `value` is invalid.
    pub(super) fn set(self, policy: &mut Policy, value: &Value) -> Result<(), PolicyError> {
        match self {
            Self::Enabled => policy.enabled = self.boolean(value)?,
            Self::MaxDepth => policy.max_depth = self.depth(value)?,
            Self::TasksPerCall => policy.tasks_per_call = self.count(value)?,
            Self::ChildrenPerParent => policy.children_per_parent = self.limit(value)?,
            Self::ChildrenPerRun => policy.children_per_run = self.limit(value)?,
            Self::Concurrency => policy.concurrency = self.count(value)?,
            Self::ConcurrencyMax => policy.concurrency_max = self.count(value)?,
            Self::CycleKey => {
                policy.cycle_key = self.word::<CycleKey>(value, "task, agent or story")?
            }
            Self::TimeoutS => policy.timeout_s = self.timeout(value)?,
            Self::TimeoutMaxS => policy.timeout_max_s = self.timeout(value)?,
            Self::TotalS => policy.total_s = self.limit(value)?,
            Self::StallS => policy.stall_s = self.limit(value)?,
            Self::ContextTokens => policy.context_tokens = self.limit(value)?,
            Self::BudgetTokens => policy.budget_tokens = self.limit(value)?,
            Self::BudgetTokensRun => policy.budget_tokens_run = self.limit(value)?,
            Self::BudgetUsd => policy.budget_usd = self.dollars(value)?,
            Self::MaxOutputTokens => policy.max_output_tokens = self.count(value)?,
            Self::ResultTokens => policy.result_tokens = self.limit(value)?,
            Self::OnFull => {
                policy.on_full =
                    self.word::<OnFullContext>(value, "by_agent, continue or handover")?
            }
            Self::Continuations => policy.continuations = self.count(value)?,
            Self::Workspace => {
                policy.workspace = self.word::<WorkspaceSharing>(value, "shared or own")?
            }
            Self::Tools => policy.tools = self.tools(value)?,
            Self::WriteBelow => policy.write_below = self.folder(value)?,
            Self::InPlace => policy.in_place = self.boolean(value)?,
            Self::WorkspaceBytes => policy.workspace_bytes = self.count(value)?,
            Self::WorkspaceEntries => policy.workspace_entries = self.count(value)?,
            Self::DiskBytes => policy.disk_bytes = self.count(value)?,
            Self::RunMaxS => policy.run_max_s = self.count(value)?,
            Self::MergeChildren => policy.merge_children = self.boolean(value)?,
            Self::Network => policy.network = self.boolean(value)?,
            Self::WebDomains => policy.web_domains = self.hosts(value)?,
            Self::Approval => {
                policy.approval = self.word::<ApprovalRule>(value, "none or batch")?
            }
            Self::ApproveBelowUsd => policy.approve_below_usd = self.dollars(value)?,
            Self::ApprovalS => policy.approval_s = self.count(value)?,
            Self::AnswerMinMs => policy.answer_min_ms = self.limit(value)?,
            Self::VerifyAttempts => policy.verify_attempts = self.count(value)?,
            Self::VerifyS => policy.verify_s = self.count(value)?,
            Self::Contract => {
                policy.contract = self.word::<ContractKind>(value, "report or standard")?
            }
            Self::RetentionDays => policy.retention_days = self.count(value)?,
        }
        Ok(())
    }

    fn boolean(self, value: &Value) -> Result<bool, PolicyError> {
        value.as_bool().ok_or_else(|| self.wrong_value(value, "true or false"))
    }

    /// Reads a positive whole number. Zero has an error of its own, because no limit here can be
    /// zero.
    fn count(self, value: &Value) -> Result<u64, PolicyError> {
        match value.as_u64() {
            Some(0) => Err(PolicyError::Zero { key: self }),
            Some(count) => Ok(count),
            None if value.as_f64().is_some_and(|number| number < 0.0) => {
                Err(PolicyError::Negative { key: self, value: value.to_string() })
            }
            None => Err(self.wrong_value(value, "a whole number")),
        }
    }

    fn depth(self, value: &Value) -> Result<u64, PolicyError> {
        let depth = self.count(value)?;
        if depth > HARD_MAX_DEPTH { Err(PolicyError::TooDeep { depth }) } else { Ok(depth) }
    }

    fn limit(self, value: &Value) -> Result<Option<u64>, PolicyError> {
        if is_none(value) { Ok(None) } else { self.count(value).map(Some) }
    }

    fn dollars(self, value: &Value) -> Result<Option<Usd>, PolicyError> {
        if is_none(value) {
            return Ok(None);
        }
        let dollars =
            value.as_f64().ok_or_else(|| self.wrong_value(value, "an amount of dollars"))?;
        if dollars < 0.0 {
            return Err(PolicyError::Negative { key: self, value: value.to_string() });
        }
        match Usd::from_dollars(dollars) {
            Some(Usd::ZERO) => Err(PolicyError::Zero { key: self }),
            Some(amount) => Ok(Some(amount)),
            None => Err(self.wrong_value(value, "an amount of dollars")),
        }
    }

    fn timeout(self, value: &Value) -> Result<DelegationTimeout, PolicyError> {
        if is_none(value) {
            Ok(DelegationTimeout::None)
        } else if value == "by_operation" {
            Ok(DelegationTimeout::ByOperation)
        } else {
            self.count(value).map(DelegationTimeout::Seconds)
        }
    }

    fn word<T: serde::de::DeserializeOwned>(
        self,
        value: &Value,
        allowed: &'static str,
    ) -> Result<T, PolicyError> {
        serde_json::from_value(value.clone()).map_err(|_| self.wrong_value(value, allowed))
    }

    fn names<'v>(
        self,
        value: &'v Value,
        expected: &'static str,
    ) -> Result<Vec<&'v str>, PolicyError> {
        let names = match value {
            Value::Array(items) => items.iter().map(Value::as_str).collect(),
            Value::String(text) => Some(text.split(',').map(str::trim).collect()),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
        };
        names.ok_or_else(|| self.wrong_value(value, expected))
    }

    fn hosts(self, value: &Value) -> Result<HostSet, PolicyError> {
        let expected = "a list of host names such as docs.rs";
        HostSet::new(self.names(value, expected)?)
            .map_err(|name| self.wrong_value(&Value::String(name.to_owned()), expected))
    }

    fn folder(self, value: &Value) -> Result<Option<String>, PolicyError> {
        if is_none(value) {
            return Ok(None);
        }
        let folder = value.as_str().filter(|folder| is_folder(folder));
        let folder = folder.ok_or_else(|| {
            self.wrong_value(value, "a folder relative to the root, such as docs/specs")
        })?;
        Ok(Some(folder.to_owned()))
    }

    fn tools(self, value: &Value) -> Result<ToolSet, PolicyError> {
        let names = self.names(value, "a list of tool names")?;
        let tools = ToolSet::new(names);
        let unknown = tools.difference(&ToolSet::all());
        match unknown.iter().next() {
            None => Ok(tools),
            Some(name) => Err(PolicyError::UnknownTool { name: name.to_owned() }),
        }
    }

    fn wrong_value(self, value: &Value, expected: &'static str) -> PolicyError {
        PolicyError::WrongType { key: self, value: value.to_string(), expected }
    }
}

fn is_none(value: &Value) -> bool {
    value.is_null() || value == "none"
}

fn timeout_value(timeout: DelegationTimeout) -> Value {
    match timeout {
        DelegationTimeout::None => Value::Null,
        DelegationTimeout::Seconds(seconds) => json!(seconds),
        DelegationTimeout::ByOperation => json!("by_operation"),
    }
}
