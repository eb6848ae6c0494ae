//! Progress events as JSON, one JSON object per event.
//!
//! The five events of the original format keep their names and fields; the others are additions. Each
//! delegation has exactly one `completed` event, even if it was refused, so that readers can count. Start at
//! [`translate`].
//!
//! A [`WireEvent`] is one such object and [`WireEventKind`] its content. [`ApprovalState`] and
//! [`DomainState`] are the states of a question to a person about a call or a host;
//! [`AutomaticApproval`] says how much of the automatic approval limit a call uses.

use adjutant_core::workspace::{ChangedFile, MergeConflict};
use adjutant_core::{
    Event, Outcome, OutcomeReason, RunId, SessionId, ToolOutput, Usd, WorkerAction,
    WorkerToolStatus,
};
use serde::Serialize;

use crate::progress::newly_reached;
use crate::run::{Delegation, OutcomeCounts, RunView};
use crate::stages::{CompletedStage, stages};
use crate::state_words::code_key;
use crate::timed_event::TimedEvent;
use crate::wire::{SpendJson, VERSION};

/// An event in the progress stream.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WireEvent {
    /// The version of the format.
    pub v: u32,
    /// Milliseconds since the run started.
    pub at_ms: u64,
    /// The delegation that the event is about: the one that asked for an approval, or the root for events of
    /// the run itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// The event's name and fields.
    #[serde(flatten)]
    pub what: WireEventKind,
}

/// The kinds of progress events.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum WireEventKind {
    /// A run started.
    RunStarted {
        /// The run.
        run: RunId,
        /// The agent that the run is for.
        agent: String,
        /// What the run is to achieve.
        goal: String,
        /// `on` or `off`: whether commands run in the sandbox; absent if no agent writes in a workspace.
        #[serde(skip_serializing_if = "Option::is_none")]
        sandbox: Option<&'static str>,
    },
    /// A person resumed the run.
    RunResumed {
        /// The run.
        run: RunId,
        /// The version of Adjutant that resumes it.
        version: String,
        /// `on` or `off`: whether commands run in the sandbox; absent if no agent writes in a workspace.
        #[serde(skip_serializing_if = "Option::is_none")]
        sandbox: Option<&'static str>,
    },
    /// A task was admitted or resumed, and waits.
    Queued {
        /// The label of the task that the delegation works on.
        label: String,
        /// The place of the task in its call, from 0.
        index: u32,
        /// The name of the agent.
        agent: String,
    },
    /// A task was not admitted, or not approved.
    Refused {
        /// The label of the task that the delegation works on.
        label: String,
        /// The place of the task in its call, from 0.
        index: u32,
        /// The code of the refusal, in lower case.
        reason: String,
        /// What happened, as a sentence.
        message: String,
        /// What to do next.
        recommendation: String,
    },
    /// A person was asked about a call, or has answered.
    Approval {
        /// What happened to the question.
        state: ApprovalState,
        /// The number of the call in its run; absent in an answer.
        #[serde(skip_serializing_if = "Option::is_none")]
        call: Option<u32>,
        /// The hash of what is asked, the same in question and answer.
        hash: String,
        /// Why the answer was no.
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// How the call counts against the amount that needs no approval; only if that applied.
        #[serde(skip_serializing_if = "Option::is_none")]
        automatic: Option<AutomaticApproval>,
    },
    /// A delegation started; its call had `total` tasks.
    Started {
        /// The label of the task that the delegation works on.
        label: String,
        /// The place of the task in its call, from 0.
        index: u32,
        /// The number of tasks in its call.
        total: usize,
    },
    /// A tool is about to run.
    ToolCall {
        /// The label of the task that the delegation works on.
        label: String,
        /// The name of the tool.
        tool: String,
        /// The arguments, shortened for display.
        args: String,
    },
    /// A tool call was refused.
    ToolRefused {
        /// The label of the task that the delegation works on.
        label: String,
        /// The name of the tool.
        tool: String,
        /// The arguments, shortened for display.
        args: String,
        /// Why.
        message: String,
    },
    /// A model call of an external worker was refused.
    CallRefused {
        /// The label of the task that the delegation works on.
        label: String,
        /// Why.
        message: String,
    },
    /// A line was written to the scratchpad.
    Note {
        /// The label of the task that the delegation works on.
        label: String,
        /// The line.
        content: String,
    },
    /// The tokens and cost of the delegation's own model calls so far.
    Tokens {
        /// The label of the task that the delegation works on.
        label: String,
        /// Input tokens, those from a cache included.
        input: u64,
        /// Output tokens.
        output: u64,
        /// The cost; absent if the model has no price.
        cost_usd: Option<Usd>,
        /// Whether a part of this is an estimate, because a provider reported no usage.
        estimated: bool,
    },
    /// A model call failed and will be retried in `in_ms` milliseconds.
    Retry {
        /// The label of the task that the delegation works on.
        label: String,
        /// The number of the attempt that failed, from 1.
        attempt: u32,
        /// What went wrong.
        error: String,
        /// Milliseconds until the next attempt.
        in_ms: u64,
    },
    /// A model call is delayed by `in_ms` milliseconds, because its provider asked for a pause.
    Wait {
        /// The label of the task that the delegation works on.
        label: String,
        /// The provider.
        provider: String,
        /// Milliseconds until the call.
        in_ms: u64,
    },
    /// A person was asked about a host, or has answered.
    Domain {
        /// What happened to the question.
        state: DomainState,
        /// The host.
        host: String,
        /// The label of the task that wants to reach it; absent in an answer.
        #[serde(skip_serializing_if = "Option::is_none")]
        label: Option<String>,
        /// Why the answer was no.
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// A delegation under the standard contract has finished one of its five stages.
    Stage {
        /// The label of the task that the delegation works on.
        label: String,
        /// The stage and what came of it.
        #[serde(flatten)]
        over: CompletedStage,
    },
    /// A command of a delegation printed something.
    Output {
        /// The label of the task that the delegation works on.
        label: String,
        /// What it printed.
        content: String,
    },
    /// The work in a delegation's own workspace was committed, or `problem` says why not.
    Kept {
        /// The label of the task that the delegation works on.
        label: String,
        /// The commit; absent if there is none.
        commit: Option<String>,
        /// The git reference that keeps the commit.
        reference: Option<String>,
        /// The changed files.
        files: Vec<ChangedFile>,
        /// Why nothing was committed.
        #[serde(skip_serializing_if = "Option::is_none")]
        problem: Option<String>,
    },
    /// A delegation's work was merged into its parent's workspace, or `conflicts` and `problem` say why not.
    Merged {
        /// The label of the task that the delegation works on.
        label: String,
        /// The merged files.
        files: Vec<String>,
        /// The files in conflict.
        conflicts: Vec<MergeConflict>,
        /// Why nothing was merged, apart from conflicts.
        #[serde(skip_serializing_if = "Option::is_none")]
        problem: Option<String>,
    },
    /// A delegation's verify command has ended.
    Checked {
        /// The label of the task that the delegation works on.
        label: String,
        /// Whether it succeeded.
        passed: bool,
        /// What it printed.
        content: String,
    },
    /// A delegation whose context was full goes on in a fresh conversation, for the `number`th time.
    Continued {
        /// The label of the task that the delegation works on.
        label: String,
        /// The number of the fresh conversation, from 1.
        number: u32,
    },
    /// The run has spent this percentage of its budget; sent once for 50, 80 and 100.
    Budget {
        /// The percentage.
        percent: u64,
        /// What is spent.
        spent_usd: Usd,
        /// The budget.
        limit_usd: Usd,
    },
    /// A delegation ended.
    Completed {
        /// The label of the task that the delegation works on.
        label: String,
        /// The outcome as `ok`, `partial` or `error`.
        status: &'static str,
        /// The outcome.
        outcome: Outcome,
        /// The code of the reason, in lower case; absent if it completed.
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// What happened, as a sentence; absent if it completed.
        #[serde(skip_serializing_if = "Option::is_none")]
        message: Option<String>,
    },
    /// The run ended.
    RunEnded {
        /// The outcome as `ok`, `partial` or `error`.
        status: &'static str,
        /// The outcome of the run.
        outcome: Outcome,
        /// How many delegations ended how.
        outcomes: OutcomeCounts,
        /// The tokens and cost of the whole run.
        #[serde(flatten)]
        spent: SpendJson,
    },
}

/// How a call that starts without asking counts against the amount set for that.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct AutomaticApproval {
    /// The worst case of the call.
    pub amount_usd: Usd,
    /// The worst cases of all such calls in the run so far, summed.
    pub total_usd: Usd,
    /// The maximum of that sum.
    pub limit_usd: Usd,
}

/// The state of a question about a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalState {
    /// It is open.
    Asked,
    /// No one was asked, because the call fits the amount set for that.
    Automatic,
    /// The answer was yes.
    Approved,
    /// The answer was no, or the question expired.
    Denied,
}

/// The state of a question about a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DomainState {
    /// It is open.
    Asked,
    /// The answer was yes.
    Allowed,
    /// The answer was no, or the question expired.
    Denied,
}

/// Returns the progress events that an event causes. `view` must already include the event.
#[must_use]
pub fn translate(view: &RunView, entry: &TimedEvent<'_>) -> Vec<WireEvent> {
    let session = entry.event.session();
    let delegation = session.and_then(|session| view.delegation(session));
    let whats = match delegation {
        Some(delegation) => {
            let over = stages(view, delegation, entry).into_iter();
            let label = || delegation.label.to_string();
            let over: Vec<WireEventKind> =
                over.map(|over| WireEventKind::Stage { label: label(), over }).collect();
            // `completed` must be the last event of a delegation.
            let (mut whats, said) = (over, of_delegation(view, delegation, entry));
            whats.extend(newly_reached(view, entry.event).map(|it| WireEventKind::Budget {
                percent: it.percent,
                spent_usd: it.spent,
                limit_usd: it.limit,
            }));
            whats.extend(said);
            whats
        }
        None => of_run(view, entry.event).into_iter().collect(),
    };
    let about = session.or_else(|| parent_asked(view, entry.event));
    let about = about.or_else(|| view.root().map(|root| root.session));
    whats
        .into_iter()
        .map(|what| WireEvent { v: VERSION, at_ms: entry.at.as_millis(), session_id: about, what })
        .collect()
}

/// Returns the parent of the call that a person was asked about. A denial names only the question.
fn parent_asked(view: &RunView, event: &Event) -> Option<SessionId> {
    if let Event::ApprovalAsked { parent, .. }
    | Event::AutoApproved { parent, .. }
    | Event::Approved { parent, .. } = event
    {
        return view.delegation(*parent).map(|parent| parent.session);
    }
    None
}

fn of_run(view: &RunView, event: &Event) -> Option<WireEventKind> {
    let approval = |state, call, hash: &String, reason| {
        Some(WireEventKind::Approval { state, call, hash: hash.clone(), reason, automatic: None })
    };
    match event {
        Event::RunStarted { run, agent, goal, .. } => Some(WireEventKind::RunStarted {
            run: *run,
            agent: agent.to_string(),
            goal: goal.clone(),
            sandbox: view.sandbox(),
        }),
        Event::ApprovalAsked { call, hash, .. } => {
            approval(ApprovalState::Asked, Some(*call), hash, None)
        }
        Event::AutoApproved { call, hash, amount, .. } => Some(WireEventKind::Approval {
            state: ApprovalState::Automatic,
            call: Some(*call),
            hash: hash.clone(),
            reason: None,
            automatic: Some(AutomaticApproval {
                amount_usd: *amount,
                total_usd: view.auto_approved(),
                limit_usd: view.approve_below(),
            }),
        }),
        Event::Approved { hash, .. } => approval(ApprovalState::Approved, None, hash, None),
        Event::Denied { hash, reason } => {
            approval(ApprovalState::Denied, None, hash, Some(reason.clone()))
        }
        Event::DomainAllowed { host } => Some(WireEventKind::Domain {
            state: DomainState::Allowed,
            host: host.clone(),
            label: None,
            reason: None,
        }),
        Event::DomainDenied { host, reason } => Some(WireEventKind::Domain {
            state: DomainState::Denied,
            host: host.clone(),
            label: None,
            reason: Some(reason.clone()),
        }),
        Event::Resumed { version, .. } => view.run().map(|run| WireEventKind::RunResumed {
            run,
            version: version.clone(),
            sandbox: view.sandbox(),
        }),
        Event::RunEnded { outcome } => Some(WireEventKind::RunEnded {
            status: outcome.result_word(),
            outcome: *outcome,
            outcomes: view.outcomes(),
            spent: view.total().into(),
        }),
        Event::AgentDefined { .. }
        | Event::Assigned(_)
        | Event::StoryTaken { .. }
        | Event::MarkersRead { .. }
        | Event::Checking { .. }
        | Event::Checked { .. }
        | Event::Merged { .. }
        | Event::Judged { .. }
        | Event::Marked { .. }
        | Event::SpaceMade { .. }
        | Event::SpaceKept { .. }
        | Event::Printed { .. }
        | Event::Reopened(_)
        | Event::Delegated { .. }
        | Event::WritePrepared { .. }
        | Event::ResultMerged { .. }
        | Event::Undone { .. }
        | Event::ErrorFixed { .. }
        | Event::Granted(_)
        | Event::Refused { .. }
        | Event::Started { .. }
        | Event::Reserved { .. }
        | Event::Replied { .. }
        | Event::AttemptFailed { .. }
        | Event::Settled { .. }
        | Event::WorkerCallReserved { .. }
        | Event::WorkerCallRefused { .. }
        | Event::WorkerCallSettled { .. }
        | Event::WorkerSessionOpened { .. }
        | Event::WorkerActed { .. }
        | Event::WorkerReported { .. }
        | Event::Overran { .. }
        | Event::Progressed { .. }
        | Event::Paused { .. }
        | Event::DomainAsked { .. }
        | Event::Messaged { .. }
        | Event::Told { .. }
        | Event::NoteSkipped { .. }
        | Event::Continued { .. }
        | Event::ToolCalled { .. }
        | Event::ToolRefused { .. }
        | Event::ToolReturned { .. }
        | Event::Crashed { .. }
        | Event::Late { .. }
        | Event::Ended { .. } => None,
    }
}

fn of_delegation(
    view: &RunView,
    delegation: &Delegation,
    entry: &TimedEvent<'_>,
) -> Vec<WireEventKind> {
    let label = || delegation.label.to_string();
    let index = delegation.index;
    match entry.event {
        Event::Granted(_) | Event::Reopened(_) => {
            vec![WireEventKind::Queued {
                label: label(),
                index,
                agent: delegation.agent.to_string(),
            }]
        }
        Event::Refused { reason, .. } => {
            vec![refused(delegation, reason), completed(delegation, Outcome::Refused)]
        }
        Event::Started { .. } if delegation.parent.is_none() => Vec::new(),
        Event::Started { .. } => {
            vec![WireEventKind::Started {
                label: label(),
                index,
                total: view.call_size(delegation),
            }]
        }
        Event::Replied { .. } | Event::Settled { .. } => vec![tokens(delegation)],
        Event::AttemptFailed { attempt, error, retry_at, .. } => {
            let retry = retry_at.map(|at| WireEventKind::Retry {
                label: label(),
                attempt: *attempt,
                error: error.to_string(),
                in_ms: at.as_millis().saturating_sub(entry.at.as_millis()),
            });
            [tokens(delegation)].into_iter().chain(retry).collect()
        }
        Event::Paused { provider, until, .. } => vec![WireEventKind::Wait {
            label: label(),
            provider: provider.clone(),
            in_ms: until.as_millis().saturating_sub(entry.at.as_millis()),
        }],
        Event::DomainAsked { host, .. } => vec![WireEventKind::Domain {
            state: DomainState::Asked,
            host: host.clone(),
            label: Some(label()),
            reason: None,
        }],
        Event::ToolCalled { call, .. } => {
            let (tool, args) = tool_and_arguments(delegation, *call);
            vec![WireEventKind::ToolCall { label: label(), tool, args }]
        }
        Event::ToolRefused { call, text, .. } => {
            let (tool, args) = tool_and_arguments(delegation, *call);
            vec![WireEventKind::ToolRefused { label: label(), tool, args, message: text.clone() }]
        }
        Event::WorkerCallSettled { .. } => vec![tokens(delegation)],
        Event::WorkerCallRefused { refusal, .. } => {
            vec![WireEventKind::CallRefused { label: label(), message: refusal.to_string() }]
        }
        Event::WorkerActed { action, .. } => worker_event(delegation, action).into_iter().collect(),
        Event::ToolReturned { output: ToolOutput { note: Some(note), .. }, .. } => {
            vec![WireEventKind::Note { label: label(), content: note.clone() }]
        }
        Event::Printed { text, .. } => {
            vec![WireEventKind::Output { label: label(), content: text.clone() }]
        }
        Event::SpaceKept { kept, problem, .. } => vec![WireEventKind::Kept {
            label: label(),
            commit: kept.commit.clone(),
            reference: kept.reference.clone(),
            files: kept.files.clone(),
            problem: problem.clone(),
        }],
        Event::Merged { merged, problem, .. } => vec![WireEventKind::Merged {
            label: label(),
            files: merged.files.clone(),
            conflicts: merged.conflicts.clone(),
            problem: problem.clone(),
        }],
        Event::Checked { passed, text, .. } => {
            vec![WireEventKind::Checked { label: label(), passed: *passed, content: text.clone() }]
        }
        Event::Continued { .. } => {
            vec![WireEventKind::Continued { label: label(), number: delegation.continuations }]
        }
        Event::Ended { outcome, reason, .. } => end_events(delegation, *outcome, reason.as_ref()),
        Event::RunStarted { .. }
        | Event::Resumed { .. }
        | Event::AgentDefined { .. }
        | Event::Assigned(_)
        | Event::StoryTaken { .. }
        | Event::MarkersRead { .. }
        | Event::Checking { .. }
        | Event::Judged { .. }
        | Event::Marked { .. }
        | Event::SpaceMade { .. }
        | Event::Delegated { .. }
        | Event::WritePrepared { .. }
        | Event::ResultMerged { .. }
        | Event::Undone { .. }
        | Event::ErrorFixed { .. }
        | Event::ApprovalAsked { .. }
        | Event::AutoApproved { .. }
        | Event::DomainAllowed { .. }
        | Event::DomainDenied { .. }
        | Event::Approved { .. }
        | Event::Denied { .. }
        | Event::Reserved { .. }
        | Event::WorkerCallReserved { .. }
        | Event::WorkerSessionOpened { .. }
        | Event::WorkerReported { .. }
        | Event::Overran { .. }
        | Event::Progressed { .. }
        | Event::Messaged { .. }
        | Event::Told { .. }
        | Event::NoteSkipped { .. }
        | Event::ToolReturned { .. }
        | Event::Crashed { .. }
        | Event::Late { .. }
        | Event::RunEnded { .. } => Vec::new(),
    }
}

/// Returns the event for a tool that an external worker uses or may not use.
fn worker_event(delegation: &Delegation, action: &WorkerAction) -> Option<WireEventKind> {
    let (label, args) = (delegation.label.to_string(), String::new());
    match action {
        WorkerAction::Tool { title, status: WorkerToolStatus::Begun, .. } => {
            let is_new = delegation.worker.as_ref().is_some_and(|worker| worker.is_news());
            is_new.then(|| WireEventKind::ToolCall { label, tool: title.clone(), args })
        }
        WorkerAction::Permission { title, allowed: false } => {
            let message = "not allowed".to_owned();
            Some(WireEventKind::ToolRefused { label, tool: title.clone(), args, message })
        }
        WorkerAction::Said { .. }
        | WorkerAction::Tool {
            status: WorkerToolStatus::Completed | WorkerToolStatus::Failed,
            ..
        }
        | WorkerAction::Permission { allowed: true, .. } => None,
    }
}

/// The root's end is reported by `run_ended`.
fn end_events(
    delegation: &Delegation,
    outcome: Outcome,
    reason: Option<&OutcomeReason>,
) -> Vec<WireEventKind> {
    if delegation.parent.is_none() {
        return Vec::new();
    }
    let not_admitted = reason.filter(|_| outcome == Outcome::Refused);
    let refused = not_admitted.map(|reason| refused(delegation, reason));
    refused.into_iter().chain([completed(delegation, outcome)]).collect()
}

fn refused(delegation: &Delegation, reason: &OutcomeReason) -> WireEventKind {
    WireEventKind::Refused {
        label: delegation.label.to_string(),
        index: delegation.index,
        reason: code_key(reason.code),
        message: reason.message.clone(),
        recommendation: reason.recommendation.clone(),
    }
}

fn completed(delegation: &Delegation, outcome: Outcome) -> WireEventKind {
    let reason = delegation.reason.as_ref().filter(|_| outcome != Outcome::Completed);
    WireEventKind::Completed {
        label: delegation.label.to_string(),
        status: outcome.result_word(),
        outcome,
        reason: reason.map(|reason| code_key(reason.code)),
        message: reason.map(|reason| reason.message.clone()),
    }
}

fn tokens(delegation: &Delegation) -> WireEventKind {
    let own = SpendJson::from(&delegation.own);
    WireEventKind::Tokens {
        label: delegation.label.to_string(),
        input: own.usage.input,
        output: own.usage.output,
        cost_usd: own.cost_usd,
        estimated: own.estimated,
    }
}

fn tool_and_arguments(delegation: &Delegation, number: u32) -> (String, String) {
    delegation
        .requested_call(number)
        .map(|call| (call.tool.clone(), call.arguments.clone()))
        .unwrap_or_default()
}
