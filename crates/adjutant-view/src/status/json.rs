//! The status of runs as JSON.
//!
//! [`StatusJson`] is the whole answer, with one [`RunJson`] per run, one [`DelegationJson`] per
//! delegation and one [`RunningToolJson`] per running tool call.

use adjutant_core::{RunId, SessionId};
use serde::Serialize;

use super::{ContentRetention, ObservedRun};
use crate::run::{Activity, Delegation, DelegationWarning, OutcomeCounts};
use crate::state_words::{is_interrupted, state_key};
use crate::story::StoryNode;
use crate::time_text::rfc3339;
use crate::tree::worker_doing;
use crate::wire::{ReasonJson, SpendJson, VERSION, is_zero, seconds};
use crate::worker_text::WorkerJson;

/// The state of runs as JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StatusJson {
    /// The version of the format.
    pub v: u32,
    /// One entry for each run.
    pub runs: Vec<RunJson>,
}

/// The state of one run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunJson {
    /// The run.
    pub run: Option<RunId>,
    /// Its state; `interrupted` if its process is gone.
    pub state: &'static str,
    /// Its goal.
    pub goal: String,
    /// The directory in which it works.
    pub workdir: String,
    /// The preset that its limits are based on.
    pub preset: Option<&'static str>,
    /// Whether commands run in a sandbox, `on` or `off`; only set if agents write in workspaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<&'static str>,
    /// When it started.
    pub started_at: Option<String>,
    /// When it ended.
    pub ended_at: Option<String>,
    /// Seconds since its start, or until its end.
    pub elapsed_s: f64,
    /// Seconds of these in which it waited for a person without any other activity.
    pub waited_s: f64,
    /// Its delegations, counted by state.
    pub outcomes: OutcomeCounts,
    /// Its tokens and cost.
    #[serde(flatten)]
    pub spent: SpendJson,
    /// The command that resumes it, if it was interrupted.
    pub resume: Option<String>,
    /// Whether its content was pruned; metadata and cost stay.
    pub expired: bool,
    /// The root agent, if there is one; only in the status of a single run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lead: Option<Box<DelegationJson>>,
    /// Its delegations; only in the status of a single run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delegations: Option<Vec<DelegationJson>>,
}

/// The state of one delegation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DelegationJson {
    /// The session id.
    pub session_id: SessionId,
    /// The session id of the parent.
    pub parent: Option<SessionId>,
    /// The label.
    pub label: String,
    /// The slash command it works for, without the slash; only in runs of a slash command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The number of the task it works on; only in runs of a slash command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_number: Option<u64>,
    /// The name of the agent.
    pub agent: String,
    /// The model that runs it.
    pub model: Option<String>,
    /// The external worker that does its work, if one does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<WorkerJson>,
    /// The depth in the tree.
    pub depth: u64,
    /// The agents from the root to this one.
    pub path: Vec<String>,
    /// The number of the parent's call, from 1.
    pub call: u32,
    /// The position in that call, from 0.
    pub index: u32,
    /// Its state.
    pub state: &'static str,
    /// What it is doing, while it runs.
    pub activity: Option<&'static str>,
    /// The running tool and the most informative part of its arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<RunningToolJson>,
    /// Seconds since its model last sent something, if that is long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub silent_s: Option<f64>,
    /// When it started.
    pub started_at: Option<String>,
    /// When it ended.
    pub ended_at: Option<String>,
    /// Its time limit in seconds, counted from its start.
    pub timeout_s: Option<u64>,
    /// When it must have ended.
    pub deadline: Option<String>,
    /// Seconds until then, while it runs.
    pub left_s: Option<f64>,
    /// Seconds it has worked.
    pub elapsed_s: Option<f64>,
    /// Tokens and cost of its own model calls.
    pub own: SpendJson,
    /// Tokens and cost of it and everything below it.
    pub inclusive: SpendJson,
    /// Its work in a story; only set if the run works on one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub story: Option<StoryNode>,
    /// The number of turns, including the current one.
    pub turns: u32,
    /// The number of tool calls that were executed.
    pub tool_calls: u32,
    /// How often it went on in a fresh conversation because its context was full; absent if never.
    #[serde(skip_serializing_if = "is_zero")]
    pub continuations: u32,
    /// Its scratchpad.
    pub notes: Vec<String>,
    /// The files its tools touched.
    pub files: Vec<String>,
    /// How its latest command was sandboxed: `full`, `off`, `on`, or which layer is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
    /// Why it ended this way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<ReasonJson>,
    /// Problems that it continued despite.
    pub warnings: Vec<String>,
}

/// A running tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RunningToolJson {
    /// Its name.
    pub name: String,
    /// The most informative part of its arguments.
    pub args: String,
}

/// Returns the status of runs as JSON, without their delegations.
#[must_use]
pub fn list_json(runs: &[ObservedRun<'_>]) -> StatusJson {
    StatusJson { v: VERSION, runs: runs.iter().map(run_json).collect() }
}

/// Returns the status of one run as JSON, with all its delegations, or with one and everything below it.
#[must_use]
pub fn detail_json(look: &ObservedRun<'_>, of: Option<SessionId>) -> StatusJson {
    let delegations = look.delegations(of).into_iter();
    let delegations = delegations.map(|delegation| delegation_json(look, delegation)).collect();
    let lead = look.root_agent(of).map(|lead| Box::new(delegation_json(look, lead)));
    let run = RunJson { lead, delegations: Some(delegations), ..run_json(look) };
    StatusJson { v: VERSION, runs: vec![run] }
}

fn run_json(look: &ObservedRun<'_>) -> RunJson {
    let view = look.view;
    RunJson {
        run: view.run(),
        state: state_key(&view.state(), look.liveness),
        goal: view.goal().to_owned(),
        workdir: view.workdir().to_owned(),
        preset: view.policy().map(|policy| policy.preset.name()),
        sandbox: view.sandbox(),
        started_at: view.started_at().map(|moment| rfc3339(moment.wall_ms)),
        ended_at: view.ended_at().map(|moment| rfc3339(moment.wall_ms)),
        elapsed_s: seconds(view.elapsed(look.now, look.liveness)),
        waited_s: seconds(view.waited(look.now, look.liveness)),
        outcomes: view.outcomes(),
        spent: view.total().into(),
        resume: look.resume(),
        expired: look.content == ContentRetention::Expired,
        lead: None,
        delegations: None,
    }
}

fn delegation_json(look: &ObservedRun<'_>, delegation: &Delegation) -> DelegationJson {
    let works = !is_interrupted(&delegation.state, look.liveness);
    let silent = delegation.silence(look.now).filter(|_| works);
    let (activity, tool) = match delegation.activity() {
        Activity::Thinking { .. } | Activity::WaitingForModel(_) | Activity::Writing(_)
            if silent.is_some() =>
        {
            (Some("stalled"), None)
        }
        Activity::Thinking { .. } | Activity::WaitingForModel(_) | Activity::Writing(_) => {
            (Some("thinking"), None)
        }
        Activity::Tool { call, .. } => (
            Some("tool"),
            Some(RunningToolJson { name: call.tool.clone(), args: call.arguments.clone() }),
        ),
        Activity::Retrying(_) => (Some("retrying"), None),
        Activity::Paused(_) => (Some("waiting"), None),
        Activity::AwaitingDomain(_) => (Some("asking"), None),
        Activity::Delegating => (Some("delegating"), None),
        // The state says the same.
        Activity::AwaitingApproval | Activity::Queued | Activity::Ended(_) => (None, None),
    };
    DelegationJson {
        session_id: delegation.session,
        parent: delegation.parent,
        label: delegation.label.to_string(),
        command: look.view.assignment().map(|assignment| assignment.command.clone()),
        task_number: look.view.task_number(delegation),
        agent: delegation.agent.to_string(),
        model: delegation.model.clone(),
        worker: WorkerJson::of(delegation).map(|it| WorkerJson {
            doing: worker_doing(delegation, look.now, look.liveness),
            ..it
        }),
        depth: delegation.depth,
        path: look.view.path(delegation),
        call: delegation.call,
        index: delegation.index,
        state: state_key(&delegation.state, look.liveness),
        activity: activity.filter(|_| works),
        tool: tool.filter(|_| works),
        silent_s: silent.map(seconds),
        started_at: delegation.started.map(|moment| rfc3339(moment.wall_ms)),
        ended_at: delegation.ended.map(|moment| rfc3339(moment.wall_ms)),
        timeout_s: delegation.timeout_s,
        deadline: deadline(delegation),
        left_s: look.time_left(delegation).map(seconds),
        elapsed_s: look.elapsed_of(delegation).map(seconds),
        own: (&delegation.own).into(),
        inclusive: (&delegation.inclusive).into(),
        story: StoryNode::of(look.view, delegation),
        turns: delegation.turns,
        tool_calls: delegation.tool_calls,
        continuations: delegation.continuations,
        notes: delegation.notes.clone(),
        files: delegation.files.iter().map(ToString::to_string).collect(),
        sandbox: look.view.sandbox_of(delegation).map(str::to_owned),
        reason: delegation.reason.as_ref().map(Into::into),
        warnings: delegation.warnings.iter().map(DelegationWarning::to_string).collect(),
    }
}

/// Converts the deadline from the run's own clock to wall-clock time.
fn deadline(delegation: &Delegation) -> Option<String> {
    let (started, at) = (delegation.began_last()?, delegation.deadline?);
    let left = u64::try_from(at.since(started.at).as_millis()).ok()?;
    Some(rfc3339(started.wall_ms.saturating_add(left)))
}
