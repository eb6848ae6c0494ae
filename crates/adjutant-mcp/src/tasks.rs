//! A run as a task, for clients that know tasks: `Delegate` is answered at once, and the client asks
//! for the task until it has ended.
//!
//! The task is the run and has its id, so it outlives the client and the server like any other, and all
//! tools take it.

use std::sync::Arc;

use adjutant_core::{Outcome, RunId};
use adjutant_view::when::rfc3339;
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

/// How often a client should ask, in milliseconds.
const POLL_INTERVAL_MS: u64 = 2_000;

/// Says whether a call may be answered with a task.
pub(crate) fn is_task_client(context: &RequestContext<RoleServer>) -> bool {
    let is_new = context.protocol_version().is_some_and(|version| !version.has_initialize());
    is_new && context.client_capabilities().is_some_and(|able| able.supports_tasks())
}

/// Answers a call with the run that it began.
pub(crate) fn task_answer(seen: &RunSnapshot) -> CallToolResponse {
    CallToolResponse::Task(CreateTaskResult::new(task(seen, status(seen))))
}

/// Shows runs as tasks.
#[derive(Clone)]
pub(crate) struct McpTasks {
    pub(crate) setup: Arc<ServerSetup>,
    pub(crate) runs: VisibleRuns,
    pub(crate) approvals: QuestionRelay,
    pub(crate) processes: RunProcesses,
}

impl McpTasks {
    /// Answers with where a task stands; once it is over, with what the call would have returned.
    pub(crate) async fn get(
        &self,
        id: &str,
        context: &RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        let run = parse_task_id(id)?;
        let (setup, bytes) = (Arc::clone(&self.setup), sizes::result_limit(&self.setup, context));
        let approvals = self.approvals.clone();
        let read = move |_: &VisibleRuns| {
            let seen = approvals.read_now(&run.to_string())?;
            let results = form_file::load(seen.files.path());
            let form = AnswerForm { results, is_repeated: false, bytes };
            let result = seen.is_over().then(|| answer::of_run(&seen, form, &setup));
            Ok((seen, result))
        };
        let (seen, result) = self.runs.blocking(read).await.map_err(invalid_params)?;
        if seen.is_over() {
            self.processes.mark_reported(run);
        }
        let asks = if self.approvals.can_ask(context) {
            self.approvals.show_questions(&seen)
        } else {
            InputRequests::new()
        };
        task_result(&seen, asks, result, &self.setup.program_name)
    }

    /// Takes a person's answers to what a task asked in its course.
    pub(crate) async fn answer(
        &self,
        id: &str,
        said: &InputResponses,
        context: &RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let run = parse_task_id(id)?;
        let seen = self.approvals.read(&run.to_string()).await.map_err(invalid_params)?;
        for (hash, said) in said {
            // No other answer leads to a run: it must be to a question that was put, by one who can.
            let open = seen.asks.iter().find(|asking| &asking.hash == hash);
            let Some(open) = open.filter(|_| self.approvals.can_ask(context)) else {
                return Err(invalid_params(
                    "inputResponses: nothing of that name is asked".to_owned(),
                ));
            };
            let said: ElicitResult = serde_json::from_value(said.clone()).map_err(|error| {
                invalid_params(sizes::shorten_error(&format!("inputResponses: {error}")))
            })?;
            self.approvals.take_shown(run, open, &said).await.map_err(invalid_params)?;
        }
        Ok(())
    }

    /// Cancels the run of a task.
    pub(crate) async fn cancel(&self, id: &str) -> Result<(), ErrorData> {
        let run = parse_task_id(id)?.to_string();
        let cancelled = self.runs.blocking(move |runs| runs.cancel(&run)).await;
        cancelled.map(|_| ()).map_err(invalid_params)
    }
}

/// Reads the id of a task: that of a run, and nothing else.
fn parse_task_id(id: &str) -> Result<RunId, ErrorData> {
    id.parse().map_err(|_| invalid_params(format!("there is no task `{}`", sizes::quoted(id))))
}

fn task_result(
    seen: &RunSnapshot,
    asks: InputRequests,
    result: Option<CallToolResult>,
    program: &str,
) -> Result<GetTaskResult, ErrorData> {
    let status = status(seen);
    let payload = if status == TaskStatus::Cancelled {
        TaskPayload::Cancelled
    } else if !status.is_terminal() && asks.is_empty() {
        TaskPayload::Working
    } else if !status.is_terminal() {
        TaskPayload::InputRequired { input_requests: asks }
    } else if let Ok(Value::Object(result)) = serde_json::to_value(result) {
        TaskPayload::Completed { result }
    } else {
        return Err(ErrorData::internal_error("the result cannot be written", None));
    };
    let mut task = task(seen, payload.status());
    if let (TaskPayload::Working, Some(next)) =
        (&payload, answer::approval_instructions(seen, program))
    {
        // This client cannot put the question, so the person has to be told where they answer it.
        task = task.with_status_message(next);
    }
    Ok(GetTaskResult::new(DetailedTask::new(task, payload)))
}

/// Answers for a task that there is not, or that does not obey.
fn invalid_params(problem: String) -> ErrorData {
    ErrorData::invalid_params(problem, None)
}

fn status(seen: &RunSnapshot) -> TaskStatus {
    match (seen.is_over(), seen.view.outcome()) {
        (false, _) => TaskStatus::Working,
        (true, Some(Outcome::Cancelled)) => TaskStatus::Cancelled,
        // Also one that failed or was interrupted: the call has a result that says so.
        (true, _) => TaskStatus::Completed,
    }
}

fn task(seen: &RunSnapshot, status: TaskStatus) -> Task {
    let latest = seen.view.latest();
    let began = seen.view.began().map_or(latest.wall_ms, |moment| moment.wall_ms);
    let (began, latest) = (rfc3339(began), rfc3339(latest.wall_ms));
    let task = Task::new(seen.files.id().to_string(), status, began, latest);
    if matches!(status, TaskStatus::Working | TaskStatus::InputRequired) {
        let message = draw_progress(&seen.view, seen.look("").now);
        return task.with_status_message(message).with_poll_interval_ms(POLL_INTERVAL_MS);
    }
    task
}
