//! The work behind each tool: starting a run, waiting for one, or reporting on one.

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
use crate::merging::ResultMerger;
use crate::reports::RunReports;
use crate::runs::wait::{RunWaiter, WaitFor, WaitOutcome};
use crate::runs::{RunSnapshot, VisibleRuns};
use crate::start::requested_run::RequestedRun;
use crate::start::starter::{RunStarter, StartedRun, release};
use crate::tools::{MAX_WAIT_S, McpTool, ResultToolArgs, RunIdArgs, WaitToolArgs};
use crate::{ServerSetup, answer, tasks};

/// Executes tool calls.
#[derive(Clone)]
pub(crate) struct ToolDispatcher {
    pub(crate) setup: Arc<ServerSetup>,
    pub(crate) runs: VisibleRuns,
    pub(crate) starter: RunStarter,
    pub(crate) waiter: RunWaiter,
    pub(crate) approvals: QuestionRelay,
    pub(crate) reports: RunReports,
    pub(crate) merger: ResultMerger,
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
            McpTool::Delegate
            | McpTool::Start
            | McpTool::Write
            | McpTool::Command
            | McpTool::Story => {
                return self.delegate(tool, &arguments, call).await;
            }
            McpTool::Wait => return self.wait(parse_arguments(arguments)?, call).await,
            McpTool::Status => self.reports.status(parse_arguments(arguments)?, bytes).await,
            McpTool::Result => {
                let args: ResultToolArgs = parse_arguments(arguments)?;
                self.reports.results(&args.run, args.form, false, bytes).await
            }
            McpTool::Diff => {
                self.reports.diff(parse_arguments::<RunIdArgs>(arguments)?.run, bytes).await
            }
            McpTool::Merge => {
                return self.merger.merge(parse_arguments(arguments)?, call, bytes).await;
            }
            McpTool::Cancel => {
                self.reports.cancel(parse_arguments::<RunIdArgs>(arguments)?.run).await
            }
            McpTool::Validate => self.reports.validate(parse_arguments(arguments)?, bytes).await,
        };
        answer.map(Into::into)
    }

    /// Starts a run and waits as long as the call may block: until the run ends, or only until its first
    /// question if the client asked for a handle or supports tasks.
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
        // A call that is repeated to bring the answer to its own question still counts as the first call.
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
                    let snapshot = runs.read(&run)?;
                    // If the form cannot be saved, the task's result has the default form.
                    let _ = form_file::save(snapshot.files.path(), form);
                    Ok(snapshot)
                };
                return self
                    .runs
                    .blocking(keep)
                    .await
                    .map(|snapshot| tasks::task_answer(&snapshot));
            }
            AskOutcome::Clear | AskOutcome::Open | AskOutcome::Cancelled(_) => {}
        }
        if is_start {
            let snapshot: RunSnapshot = self.approvals.read(&run).await?;
            return Ok(answer::of_start(&snapshot, is_repeated, &self.setup.program_name).into());
        }
        let bytes = sizes::result_limit(&self.setup, call.context);
        self.reports.results(&run, form, is_repeated, bytes).await.map(Into::into)
    }

    /// Waits for a run as long as the call may block.
    async fn wait(
        &self,
        args: WaitToolArgs,
        call: &mut ClientCall<'_>,
    ) -> Result<CallToolResponse, String> {
        if let Some(asked) = args.timeout_s.filter(|asked| *asked > MAX_WAIT_S) {
            return Err(format!("timeout_s: {asked} exceeds the limit of {MAX_WAIT_S}"));
        }
        if let Some(asked) = args.timeout_s {
            // A longer wait would outlast the client's own timeout, and the answer would be lost.
            call.until = call.until.min(Instant::now() + Duration::from_secs(asked));
        }
        let run = args.run.clone();
        let (files, _) = self.runs.blocking(move |runs| runs.find(&run)).await?;
        let _waiter = self.starter.count_waiter(files.id()).await;
        // Cancelling a wait does not cancel the run.
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

/// Returns how long a call may block before it has to be answered.
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
