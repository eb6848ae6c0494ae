//! The three presets as data, and the time limits per operation of the preset `command`.
//!
//! A [`Preset`] is the name of a policy; an [`Operation`] is a kind of work, such as research or
//! review.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{
    ApprovalRule, CONTINUATIONS, ContractKind, CycleKey, DelegationTimeout, OnFullContext, Policy,
    VERIFY_ATTEMPTS, VERIFY_S, WorkspaceSharing,
};
use crate::money::Usd;
use crate::rights::ToolSet;
use crate::web_host::HostSet;

/// Where agents of the preset `command` may write, unless the project configures another specs
/// directory.
pub const SPECS: &str = ".adjutant/specs";

/// Output tokens of one model call for agents that can write: one tool call may contain a whole
/// file.
pub const WRITER_OUTPUT_TOKENS: u64 = 16_384;

/// A named policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Preset {
    /// Read-only subagents that report; called by a tool, the command line or MCP.
    Scout,
    /// Slash commands and named agents with validated returns.
    Command,
    /// Stories of a PRD whose agents write and delegate by markers.
    Story,
}

impl Preset {
    /// Every preset, in the order of the documentation.
    pub const ALL: [Self; 3] = [Self::Scout, Self::Command, Self::Story];

    /// Returns the preset of that name or alias.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|preset| name == preset.name() || name == preset.alias())
    }

    /// Returns the preset's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scout => "scout",
            Self::Command => "command",
            Self::Story => "story",
        }
    }

    /// Returns the alias: the name of the system that the preset was modelled on.
    #[must_use]
    pub const fn alias(self) -> &'static str {
        match self {
            Self::Scout => "forge",
            Self::Command => "opencode",
            Self::Story => "claude-loop",
        }
    }

    /// Returns how many tasks that a person typed run at once; `None` if `concurrency` applies to
    /// them too.
    #[must_use]
    pub const fn typed_concurrency(self) -> Option<u64> {
        match self {
            Self::Scout => Some(4),
            // `concurrency` applies to typed tasks too: agents of `command` write to one shared tree, so
            // they run one at a time, and the `concurrency` of `story` is high enough.
            Self::Command | Self::Story => None,
        }
    }

    /// Returns what the preset is for, in one line.
    #[must_use]
    pub const fn purpose(self) -> &'static str {
        match self {
            Self::Scout => "read-only subagents that report; one approval per batch",
            Self::Command => {
                "slash commands and named agents; timed by operation, validated returns"
            }
            Self::Story => "stories that write in their own workspaces; off until enabled",
        }
    }

    /// Returns the preset's policy.
    #[must_use]
    pub fn policy(self) -> Policy {
        match self {
            Self::Scout => scout(),
            Self::Command => Policy {
                preset: self,
                max_depth: 3,
                tasks_per_call: 1,
                concurrency: 1,
                cycle_key: CycleKey::Agent,
                timeout_s: DelegationTimeout::ByOperation,
                timeout_max_s: DelegationTimeout::ByOperation,
                result_tokens: None,
                tools: ToolSet::command(),
                write_below: Some(SPECS.to_owned()),
                approval: ApprovalRule::None,
                contract: ContractKind::Standard,
                ..scout()
            },
            Self::Story => Policy {
                preset: self,
                enabled: false,
                max_depth: 2,
                tasks_per_call: 10,
                children_per_parent: Some(10),
                concurrency: 3,
                concurrency_max: 8,
                cycle_key: CycleKey::Story,
                timeout_s: DelegationTimeout::Seconds(1_800),
                timeout_max_s: DelegationTimeout::Seconds(1_800),
                total_s: Some(7_200),
                context_tokens: Some(100_000),
                max_output_tokens: WRITER_OUTPUT_TOKENS,
                result_tokens: Some(2_000),
                workspace: WorkspaceSharing::Own,
                merge_children: true,
                tools: ToolSet::all(),
                approval: ApprovalRule::None,
                contract: ContractKind::Standard,
                ..scout()
            },
        }
    }
}

fn scout() -> Policy {
    Policy {
        preset: Preset::Scout,
        enabled: true,
        max_depth: 1,
        tasks_per_call: 8,
        children_per_parent: None,
        children_per_run: Some(50),
        concurrency: 2,
        concurrency_max: 4,
        cycle_key: CycleKey::Task,
        timeout_s: DelegationTimeout::None,
        timeout_max_s: DelegationTimeout::None,
        total_s: None,
        stall_s: Some(600),
        context_tokens: None,
        budget_tokens: Some(5_000_000),
        budget_tokens_run: Some(20_000_000),
        budget_usd: Some(Usd::from_pico(5_000_000_000_000)),
        max_output_tokens: 4_096,
        result_tokens: Some(4_096),
        on_full: OnFullContext::ByAgent,
        continuations: CONTINUATIONS,
        workspace: WorkspaceSharing::Shared,
        tools: ToolSet::read_only(),
        write_below: None,
        in_place: false,
        workspace_bytes: super::WORKSPACE_BYTES,
        workspace_entries: super::WORKSPACE_ENTRIES,
        disk_bytes: super::DISK_BYTES,
        run_max_s: super::RUN_MAX_S,
        merge_children: false,
        network: false,
        web_domains: HostSet::default(),
        approval: ApprovalRule::Batch,
        approve_below_usd: None,
        approval_s: crate::tree::APPROVAL_EXPIRES_S,
        answer_min_ms: Some(crate::tree::ANSWER_MIN_MS),
        verify_attempts: VERIFY_ATTEMPTS,
        verify_s: VERIFY_S,
        contract: ContractKind::Report,
        retention_days: 7,
    }
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The kind of work of a delegation; it decides the time limits in the preset `command`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// Finding information.
    Research,
    /// Planning the steps.
    Plan,
    /// Doing the work.
    Implement,
    /// Changing a plan.
    Revise,
    /// Reviewing work.
    Review,
    /// A small task.
    Simple,
    /// Anything else.
    #[default]
    Unknown,
}

impl Operation {
    /// Returns the operation with this name; any other name is [`Operation::Unknown`].
    #[must_use]
    pub fn parse(name: &str) -> Self {
        match name.trim_start_matches('/') {
            "research" => Self::Research,
            "plan" | "planning" => Self::Plan,
            "implement" | "implementation" => Self::Implement,
            "revise" => Self::Revise,
            "review" => Self::Review,
            "simple" => Self::Simple,
            _ => Self::Unknown,
        }
    }

    /// Returns the default timeout in seconds.
    #[must_use]
    pub const fn default_seconds(self) -> u64 {
        match self {
            Self::Research | Self::Review | Self::Unknown => 3_600,
            Self::Plan | Self::Revise => 1_800,
            Self::Implement => 7_200,
            Self::Simple => 300,
        }
    }

    /// Returns the longest timeout a caller may ask for, in seconds.
    #[must_use]
    pub const fn max_seconds(self) -> u64 {
        self.default_seconds() * 2
    }
}
