//! Runs as MCP tasks, for clients that support tasks: `Delegate` is answered at once, and the client polls
//! the task until it ends.
//!
//! A task is a run and has the run's id. It therefore outlives the client and the server, and every tool
//! accepts its id.

use std::sync::Arc;

use adjutant_core::{Outcome, RunId};
use adjutant_view::time_text::rfc3339;
use rmcp::RoleServer;
use rmcp::model::{
    CallToolResponse, CallToolResult, CreateTaskResult, DetailedTask, ElicitResult, ErrorData,
    GetTaskResult, InputRequests, InputResponses, Task, TaskPayload, TaskStatus,
};
use rmcp::service::RequestContext;
use serde_json::Value;

use crate::ServerSetup;
use crate::answer::{self, AnswerForm, form_file, sizes};
use crate::approval::QuestionRelay;
use crate::runs::run_processes::RunProcesses;
use crate::runs::wait::draw_progress;
use crate::runs::{RunSnapshot, VisibleRuns};

/// The polling interval that the server suggests, in milliseconds.
const POLL_INTERVAL_MS: u64 = 2_000;

/// Returns whether the client supports tasks, so that a call may be answered with one.
pub(crate) fn is_task_client(context: &RequestContext<RoleServer>) -> bool {
    let is_new = context.protocol_version().is_some_and(|version| !version.has_initialize());
    is_new && context.client_capabilities().is_some_and(|able| able.supports_tasks())
}

/// Answers a call with the run as a task.
pub(crate) fn task_answer(snapshot: &RunSnapshot) -> CallToolResponse {
    CallToolResponse::Task(CreateTaskResult::new(task(snapshot, status(snapshot))))
}

/// Shows runs as MCP tasks.
#[derive(Clone)]
pub(crate) struct McpTasks {
    pub(crate) setup: Arc<ServerSetup>,
    pub(crate) runs: VisibleRuns,
    pub(crate) approvals: QuestionRelay,
    pub(crate) processes: RunProcesses,
}

impl McpTasks {
    /// Returns the state of a task and, once it has ended, the result that the call would have returned.
    pub(crate) async fn get(
        &self,
        id: &str,
        context: &RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        let run = parse_task_id(id)?;
        let (setup, bytes) = (Arc::clone(&self.setup), sizes::result_limit(&self.setup, context));
        let approvals = self.approvals.clone();
        let read = move |_: &VisibleRuns| {
            let snapshot = approvals.read_now(&run.to_string())?;
            let results = form_file::load(snapshot.files.path());
            let form = AnswerForm { results, is_repeated: false, bytes };
            let result = snapshot.is_over().then(|| answer::of_run(&snapshot, form, &setup));
            Ok((snapshot, result))
        };
        let (snapshot, result) = self.runs.blocking(read).await.map_err(invalid_params)?;
        if snapshot.is_over() {
            self.processes.mark_reported(run);
        }
        let asks = if self.approvals.can_ask(context) {
            self.approvals.show_questions(&snapshot)
        } else {
            InputRequests::new()
        };
        task_result(&snapshot, asks, result, &self.setup.program_name)
    }

    /// Passes a person's answers to the questions of a task on to its run.
    pub(crate) async fn answer(
        &self,
        id: &str,
        said: &InputResponses,
        context: &RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let run = parse_task_id(id)?;
        let snapshot = self.approvals.read(&run.to_string()).await.map_err(invalid_params)?;
        for (hash, said) in said {
            // Only answers to a question that is open, from a client that may ask people, are passed on.
            let open = snapshot.open_questions.iter().find(|question| &question.hash == hash);
            let Some(open) = open.filter(|_| self.approvals.can_ask(context)) else {
                return Err(invalid_params(
                    "inputResponses: no open question has this key".to_owned(),
                ));
            };
            let said: ElicitResult = serde_json::from_value(said.clone()).map_err(|error| {
                invalid_params(sizes::shorten_error(&format!("inputResponses: {error}")))
            })?;
            self.approvals.take_shown(run, open, &said).await.map_err(invalid_params)?;
        }
        Ok(())
    }

    /// Cancels the run behind a task.
    pub(crate) async fn cancel(&self, id: &str) -> Result<(), ErrorData> {
        let run = parse_task_id(id)?.to_string();
        let cancelled = self.runs.blocking(move |runs| runs.cancel(&run)).await;
        cancelled.map(|_| ()).map_err(invalid_params)
    }
}

/// Parses a task id, which is always a run id.
fn parse_task_id(id: &str) -> Result<RunId, ErrorData> {
    id.parse().map_err(|_| invalid_params(format!("unknown task `{}`", sizes::quoted(id))))
}

fn task_result(
    snapshot: &RunSnapshot,
    asks: InputRequests,
    result: Option<CallToolResult>,
    program: &str,
) -> Result<GetTaskResult, ErrorData> {
    let status = status(snapshot);
    let payload = if status == TaskStatus::Cancelled {
        TaskPayload::Cancelled
    } else if !status.is_terminal() && asks.is_empty() {
        TaskPayload::Working
    } else if !status.is_terminal() {
        TaskPayload::InputRequired { input_requests: asks }
    } else if let Ok(Value::Object(result)) = serde_json::to_value(result) {
        TaskPayload::Completed { result }
    } else {
        return Err(ErrorData::internal_error("the result cannot be serialized", None));
    };
    let mut task = task(snapshot, payload.status());
    if let (TaskPayload::Working, Some(next)) =
        (&payload, answer::approval_instructions(snapshot, program))
    {
        // This client cannot ask the person, so the message says where to answer.
        task = task.with_status_message(next);
    }
    Ok(GetTaskResult::new(DetailedTask::new(task, payload)))
}

/// The error for a task that does not exist or an operation that was refused.
fn invalid_params(problem: String) -> ErrorData {
    ErrorData::invalid_params(problem, None)
}

fn status(snapshot: &RunSnapshot) -> TaskStatus {
    match (snapshot.is_over(), snapshot.view.outcome()) {
        (false, _) => TaskStatus::Working,
        (true, Some(Outcome::Cancelled)) => TaskStatus::Cancelled,
        // Failed and interrupted runs too: the call completes with a result that says so.
        (true, _) => TaskStatus::Completed,
    }
}

fn task(snapshot: &RunSnapshot, status: TaskStatus) -> Task {
    let latest = snapshot.view.latest();
    let began = snapshot.view.started_at().map_or(latest.wall_ms, |moment| moment.wall_ms);
    let (began, latest) = (rfc3339(began), rfc3339(latest.wall_ms));
    let task = Task::new(snapshot.files.id().to_string(), status, began, latest);
    if matches!(status, TaskStatus::Working | TaskStatus::InputRequired) {
        let message = draw_progress(&snapshot.view, snapshot.observed("").now);
        return task.with_status_message(message).with_poll_interval_ms(POLL_INTERVAL_MS);
    }
    task
}
