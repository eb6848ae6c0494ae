//! A run as a task, for clients that know tasks: `Delegate` is answered at once, and the client asks
//! for the task until it has ended.
//!
//! The task is the run and has its id, so it outlives the client and the server like any other, and all
//! tools take it.

use adjutant_core::Outcome;
use adjutant_view::when::rfc3339;
use rmcp::RoleServer;
use rmcp::model::{
    CallToolResponse, CallToolResult, CreateTaskResult, DetailedTask, ErrorData, GetTaskResult,
    Task, TaskPayload, TaskStatus,
};
use rmcp::service::RequestContext;
use serde_json::Value;

use crate::runs::Seen;
use crate::wait::picture;

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

/// Answers with where a run stands; once it is over, with what the call would have returned.
pub(crate) fn state(seen: &Seen, result: CallToolResult) -> Result<GetTaskResult, ErrorData> {
    let status = status(seen);
    let payload = if status == TaskStatus::Cancelled {
        TaskPayload::Cancelled
    } else if !status.is_terminal() {
        TaskPayload::Working
    } else if let Ok(Value::Object(result)) = serde_json::to_value(result) {
        TaskPayload::Completed { result }
    } else {
        return Err(ErrorData::internal_error("the result cannot be written", None));
    };
    Ok(GetTaskResult::new(DetailedTask::new(task(seen, payload.status()), payload)))
}

/// Answers for a task that there is not, or that does not obey.
pub(crate) fn refused(problem: String) -> ErrorData {
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
    if status == TaskStatus::Working {
        let message = picture(&seen.view, seen.look("").now);
        return task.with_status_message(message).with_poll_interval_ms(ASK_AGAIN_MS);
    }
    task
}
