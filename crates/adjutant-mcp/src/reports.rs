//! The tools that report on existing runs (status, results, patches, validation) and the one that cancels them.

use std::sync::Arc;

use adjutant_core::schema::ReturnFormat;
use adjutant_engine::artifact_facts;
use adjutant_formats::contract::{MetadataSource, RequiredArtifacts, ReturnContract, validate};
use rmcp::model::CallToolResult;
use serde_json::json;

use crate::ServerSetup;
use crate::answer::patches::ResultPatch;
use crate::answer::{self, AnswerForm};
use crate::approval::QuestionRelay;
use crate::runs::run_processes::RunProcesses;
use crate::runs::{VisibleRuns, error_chain};
use crate::tools::{StatusToolArgs, ValidateToolArgs};

/// The number of ended runs in a status list.
const STATUS_RUNS: usize = 10;

/// Answers `delegate_status`, `delegate_result`, `delegate_cancel` and `validate_return`.
#[derive(Clone)]
pub(crate) struct RunReports {
    pub(crate) setup: Arc<ServerSetup>,
    pub(crate) runs: VisibleRuns,
    pub(crate) approvals: QuestionRelay,
    pub(crate) processes: RunProcesses,
}

impl RunReports {
    /// Returns the status of one run, or a list of runs.
    pub(crate) async fn status(
        &self,
        args: StatusToolArgs,
        bytes: usize,
    ) -> Result<CallToolResult, String> {
        let setup = Arc::clone(&self.setup);
        let status = move |runs: &VisibleRuns| match args.run {
            Some(run) => Ok(answer::of_status(&runs.read(&run)?, &setup.program_name, bytes)),
            None => {
                let listing = runs.list(STATUS_RUNS, None)?.ok_or("there is no beginning")?;
                Ok(answer::of_list(&listing, &setup.program_name, bytes))
            }
        };
        self.runs.blocking(status).await
    }

    /// Returns the results of a run; of one that is still running, those it has so far.
    pub(crate) async fn results(
        &self,
        run: &str,
        results: ReturnFormat,
        is_repeated: bool,
        bytes: usize,
    ) -> Result<CallToolResult, String> {
        let form = AnswerForm { results, is_repeated, bytes };
        let (setup, approvals) = (Arc::clone(&self.setup), self.approvals.clone());
        let run = run.to_owned();
        let read = move |_: &VisibleRuns| {
            let snapshot = approvals.read_now(&run)?;
            let over = snapshot.is_over().then(|| snapshot.files.id());
            Ok((answer::of_run(&snapshot, form, &setup), over))
        };
        let (result, over) = self.runs.blocking(read).await?;
        over.into_iter().for_each(|run| self.processes.mark_reported(run));
        Ok(result)
    }

    /// Returns the patches of a run's results.
    pub(crate) async fn diff(&self, run: String, bytes: usize) -> Result<CallToolResult, String> {
        let setup = Arc::clone(&self.setup);
        let read = move |runs: &VisibleRuns| {
            let snapshot = runs.read(&run)?;
            let patches = ResultPatch::read_all(&snapshot, &setup, bytes)?;
            Ok(answer::of_diff(&snapshot, &patches, bytes))
        };
        self.runs.blocking(read).await
    }

    /// Cancels a run.
    pub(crate) async fn cancel(&self, run: String) -> Result<CallToolResult, String> {
        let (files, session, cancelled) = self.runs.blocking(move |runs| runs.cancel(&run)).await?;
        Ok(answer::of_cancel(&files, session, cancelled))
    }

    /// Checks a subagent's return against the contract.
    pub(crate) async fn validate(
        &self,
        args: ValidateToolArgs,
        bytes: usize,
    ) -> Result<CallToolResult, String> {
        let setup = Arc::clone(&self.setup);
        self.runs.blocking(move |_| validated(&setup, &args, bytes)).await
    }
}

fn validated(
    setup: &ServerSetup,
    args: &ValidateToolArgs,
    bytes: usize,
) -> Result<CallToolResult, String> {
    let session = args.session_id.as_deref().map(str::parse).transpose();
    let contract = ReturnContract {
        expected_session: session.map_err(|error| format!("session_id: {error}"))?,
        artifacts: if args.artifacts_required {
            RequiredArtifacts::Any
        } else {
            RequiredArtifacts::Nothing
        },
        kind: None,
        metadata: MetadataSource::Claimed,
        observed: None,
    };
    let facts = artifact_facts(&setup.root).map_err(|error| error_chain(&error))?;
    let text = args.returned.as_str().map_or_else(|| args.returned.to_string(), str::to_owned);
    Ok(answer::of_validation(&json!(validate(text.as_str(), &contract, &facts)), bytes))
}
