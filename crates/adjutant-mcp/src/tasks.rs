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

use crate::Setup;
use crate::answer::{self, Form, forms, sizes};
use crate::approval::Approvals;
use crate::runs::children::Children;
use crate::runs::wait::picture;
use crate::runs::{Runs, Seen};

/// How often a client should ask, in milliseconds.
const ASK_AGAIN_MS: u64 = 2_000;

/// Says whether a call may be answered with a task.
pub(crate) fn are_known(context: &RequestContext<RoleServer>) -> bool {
    let is_new = context.protocol_version().is_some_and(|version| !version.has_initialize());
    is_new && context.client_capabilities().is_some_and(|able| able.supports_tasks())
}

/// Answers a call with the run that it began.
pub(crate) fn begun(seen: &Seen) -> CallToolResponse {
    CallToolResponse::Task(CreateTaskResult::new(task(seen, status(seen))))
}

/// Shows runs as tasks.
#[derive(Clone)]
pub(crate) struct Tasks {
    pub(crate) setup: Arc<Setup>,
    pub(crate) runs: Runs,
    pub(crate) approvals: Approvals,
    pub(crate) children: Children,
}

impl Tasks {
    /// Answers with where a task stands; once it is over, with what the call would have returned.
    pub(crate) async fn get(
        &self,
        id: &str,
        context: &RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        let run = named(id)?;
        let (setup, bytes) = (Arc::clone(&self.setup), sizes::room(&self.setup, context));
        let approvals = self.approvals.clone();
        let read = move |_: &Runs| {
            let seen = approvals.read_now(&run.to_string())?;
            let results = forms::of(seen.files.path());
            let form = Form { results, is_repeated: false, bytes };
            let result = seen.is_over().then(|| answer::of_run(&seen, form, &setup));
            Ok((seen, result))
        };
        let (seen, result) = self.runs.blocking(read).await.map_err(refused)?;
        if seen.is_over() {
            self.children.tell(run);
        }
        let asks = if self.approvals.can_ask(context) {
            self.approvals.show_questions(&seen)
        } else {
            InputRequests::new()
        };
        state(&seen, asks, result, &self.setup.program_name)
    }

    /// Takes a person's answers to what a task asked in its course.
    pub(crate) async fn answer(
        &self,
        id: &str,
        said: &InputResponses,
        context: &RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let run = named(id)?;
        let seen = self.approvals.read(&run.to_string()).await.map_err(refused)?;
        for (hash, said) in said {
            // No other answer leads to a run: it must be to a question that was put, by one who can.
            let open = seen.asks.iter().find(|asking| &asking.hash == hash);
            let Some(open) = open.filter(|_| self.approvals.can_ask(context)) else {
                return Err(refused("inputResponses: nothing of that name is asked".to_owned()));
            };
            let said: ElicitResult = serde_json::from_value(said.clone())
                .map_err(|error| refused(sizes::brief(&format!("inputResponses: {error}"))))?;
            self.approvals.take_shown(run, open, &said).await.map_err(refused)?;
        }
        Ok(())
    }

    /// Cancels the run of a task.
    pub(crate) async fn cancel(&self, id: &str) -> Result<(), ErrorData> {
        let run = named(id)?.to_string();
        let cancelled = self.runs.blocking(move |runs| runs.cancel(&run)).await;
        cancelled.map(|_| ()).map_err(refused)
    }
}

/// Reads the id of a task: that of a run, and nothing else.
fn named(id: &str) -> Result<RunId, ErrorData> {
    id.parse().map_err(|_| refused(format!("there is no task `{}`", sizes::quoted(id))))
}

fn state(
    seen: &Seen,
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
    if let (TaskPayload::Working, Some(next)) = (&payload, answer::asks(seen, program)) {
        // This client cannot put the question, so the person has to be told where they answer it.
        task = task.with_status_message(next);
    }
    Ok(GetTaskResult::new(DetailedTask::new(task, payload)))
}

/// Answers for a task that there is not, or that does not obey.
fn refused(problem: String) -> ErrorData {
    ErrorData::invalid_params(problem, None)
}

fn status(seen: &Seen) -> TaskStatus {
    match (seen.is_over(), seen.view.outcome()) {
        (false, _) => TaskStatus::Working,
        (true, Some(Outcome::Cancelled)) => TaskStatus::Cancelled,
        // Also one that failed or was interrupted: the call has a result that says so.
        (true, _) => TaskStatus::Completed,
    }
}

fn task(seen: &Seen, status: TaskStatus) -> Task {
    let latest = seen.view.latest();
    let began = seen.view.began().map_or(latest.wall_ms, |moment| moment.wall_ms);
    let (began, latest) = (rfc3339(began), rfc3339(latest.wall_ms));
    let task = Task::new(seen.files.id().to_string(), status, began, latest);
    if matches!(status, TaskStatus::Working | TaskStatus::InputRequired) {
        let message = picture(&seen.view, seen.look("").now);
        return task.with_status_message(message).with_poll_interval_ms(ASK_AGAIN_MS);
    }
    task
}
