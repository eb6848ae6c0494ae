//! What each tool does: begins a run, waits for one, or reports on one.

use std::sync::Arc;
use std::time::Duration;

use rmcp::RoleServer;
use rmcp::model::CallToolResponse;
use rmcp::service::RequestContext;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::Instant;

use crate::answer::{form_file, sizes};
use crate::approval::{AskOutcome, QuestionRelay};
use crate::client_call::ClientCall;
use crate::clients::detach_after;
use crate::reports::RunReports;
use crate::runs::wait::{RunWaiter, WaitFor, WaitOutcome};
use crate::runs::{RunSnapshot, VisibleRuns};
use crate::start::requested_run::RequestedRun;
use crate::start::starter::{RunStarter, StartedRun, release};
use crate::tools::{CancelToolArgs, MAX_WAIT_S, McpTool, ResultToolArgs, WaitToolArgs};
use crate::{ServerSetup, answer, tasks};

/// Answers calls of tools.
#[derive(Clone)]
pub(crate) struct ToolDispatcher {
    pub(crate) setup: Arc<ServerSetup>,
    pub(crate) runs: VisibleRuns,
    pub(crate) starter: RunStarter,
    pub(crate) waiter: RunWaiter,
    pub(crate) approvals: QuestionRelay,
    pub(crate) reports: RunReports,
}

impl ToolDispatcher {
    pub(crate) async fn call(
        &self,
        tool: McpTool,
        arguments: Value,
        call: &mut ClientCall<'_>,
    ) -> Result<CallToolResponse, String> {
        let bytes = sizes::result_limit(&self.setup, call.context);
        let answer = match tool {
            McpTool::Delegate | McpTool::Start | McpTool::Command | McpTool::Story => {
                return self.delegate(tool, &arguments, call).await;
            }
            McpTool::Wait => return self.wait(parse_arguments(arguments)?, call).await,
            McpTool::Status => self.reports.status(parse_arguments(arguments)?, bytes).await,
            McpTool::Result => {
                let args: ResultToolArgs = parse_arguments(arguments)?;
                self.reports.results(&args.run, args.form, false, bytes).await
            }
            McpTool::Cancel => {
                self.reports.cancel(parse_arguments::<CancelToolArgs>(arguments)?.run).await
            }
            McpTool::Validate => self.reports.validate(parse_arguments(arguments)?, bytes).await,
        };
        answer.map(Into::into)
    }

    /// Begins a run and waits as long as a call may: for its end, or for its first question alone where
    /// the client asked for a handle or knows tasks.
    async fn delegate(
        &self,
        tool: McpTool,
        arguments: &Value,
        call: &mut ClientCall<'_>,
    ) -> Result<CallToolResponse, String> {
        let job = RequestedRun::parse(tool, arguments, &self.setup.limits)?;
        let form = job.return_form(&self.setup.limits);
        let StartedRun { run: id, is_repeated, waiter } =
            self.starter.start(job, arguments, call).await?;
        // A call that is made again with the answer to its own question is still the first one.
        let is_repeated = !call.owns(id, is_repeated);
        let run = id.to_string();
        let is_start = tool == McpTool::Start;
        let waits = !is_start && !tasks::is_task_client(call.context);
        let outcome = match call.cancellation() {
            Some(cancellation) => AskOutcome::Cancelled(cancellation),
            None if waits => self.approvals.follow(&run, call).await?,
            None => self.approvals.ask(&run, call).await?,
        };
        release(waiter).await;
        match outcome {
            AskOutcome::Cancelled(cancellation) if cancellation.ends_the_run() => {
                self.starter.abandon(id, !is_repeated).await?;
            }
            AskOutcome::AnswerWith(question) => return Ok((*question).into()),
            AskOutcome::Clear if !waits && !is_start => {
                let keep = move |runs: &VisibleRuns| {
                    let seen = runs.read(&run)?;
                    // If the form cannot be kept, the task is answered for in the usual one.
                    let _ = form_file::save(seen.files.path(), form);
                    Ok(seen)
                };
                return self.runs.blocking(keep).await.map(|seen| tasks::task_answer(&seen));
            }
            AskOutcome::Clear | AskOutcome::Open | AskOutcome::Cancelled(_) => {}
        }
        if is_start {
            let seen: RunSnapshot = self.approvals.read(&run).await?;
            return Ok(answer::of_start(&seen, is_repeated, &self.setup.program_name).into());
        }
        let bytes = sizes::result_limit(&self.setup, call.context);
        self.reports.results(&run, form, is_repeated, bytes).await.map(Into::into)
    }

    /// Waits for a run as long as a call may.
    async fn wait(
        &self,
        args: WaitToolArgs,
        call: &mut ClientCall<'_>,
    ) -> Result<CallToolResponse, String> {
        if let Some(asked) = args.timeout_s.filter(|asked| *asked > MAX_WAIT_S) {
            return Err(format!("timeout_s: {asked} is more than {MAX_WAIT_S}"));
        }
        if let Some(asked) = args.timeout_s {
            // Never longer than the client waits: an answer that comes later is not heard.
            call.until = call.until.min(Instant::now() + Duration::from_secs(asked));
        }
        let run = args.run.clone();
        let (files, _) = self.runs.blocking(move |runs| runs.find(&run)).await?;
        let _waiter = self.starter.count_waiter(files.id()).await;
        // A client that no longer waits has not said that the work should end.
        let outcome = self.approvals.follow(&args.run, call).await?;
        if let AskOutcome::AnswerWith(question) = outcome {
            return Ok((*question).into());
        }
        if matches!(outcome, AskOutcome::Open) {
            let waited = self.waiter.wait_for(&args.run, WaitFor::End, call).await?;
            if waited == WaitOutcome::Over {
                self.waiter.wait_for_exit(&args.run, call.until).await;
            }
        }
        let bytes = sizes::result_limit(&self.setup, call.context);
        self.reports.results(&args.run, args.form, false, bytes).await.map(Into::into)
    }
}

/// Returns how long a call may keep its client waiting.
pub(crate) fn answer_timeout(
    setup: &ServerSetup,
    context: &RequestContext<RoleServer>,
) -> Duration {
    let client = context.client_info().map(|info| info.name).unwrap_or_default();
    let hears_progress = context.meta.get_progress_token().is_some();
    setup.detach_after.unwrap_or_else(|| detach_after(&client, hears_progress))
}

fn parse_arguments<T: DeserializeOwned>(arguments: Value) -> Result<T, String> {
    serde_json::from_value(arguments).map_err(|error| format!("arguments: {error}"))
}
