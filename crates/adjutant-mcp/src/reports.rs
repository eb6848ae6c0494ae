//! Where runs stand and what came of them, as tools show it.

use std::sync::Arc;

use adjutant_core::schema::ReturnForm;
use adjutant_engine::artifact_facts;
use adjutant_formats::contract::{Contract, MetadataSource, Required, validate};
use rmcp::model::CallToolResult;
use serde_json::json;

use crate::ServerSetup;
use crate::answer::{self, AnswerForm};
use crate::approval::QuestionRelay;
use crate::runs::run_processes::RunProcesses;
use crate::runs::{VisibleRuns, error_chain};
use crate::tools::{StatusToolArgs, ValidateToolArgs};

/// Runs that have ended and are shown where no run is named.
const STATUS_RUNS: usize = 10;

/// Reports on runs, and ends them.
#[derive(Clone)]
pub(crate) struct RunReports {
    pub(crate) setup: Arc<ServerSetup>,
    pub(crate) runs: VisibleRuns,
    pub(crate) approvals: QuestionRelay,
    pub(crate) processes: RunProcesses,
}

impl RunReports {
    /// Says where a run stands, or lists the runs.
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

    /// Says what came of a run, or how far it is.
    pub(crate) async fn results(
        &self,
        run: &str,
        results: ReturnForm,
        is_repeated: bool,
        bytes: usize,
    ) -> Result<CallToolResult, String> {
        let form = AnswerForm { results, is_repeated, bytes };
        let (setup, approvals) = (Arc::clone(&self.setup), self.approvals.clone());
        let run = run.to_owned();
        let read = move |_: &VisibleRuns| {
            let seen = approvals.read_now(&run)?;
            let over = seen.is_over().then(|| seen.files.id());
            Ok((answer::of_run(&seen, form, &setup), over))
        };
        let (result, over) = self.runs.blocking(read).await?;
        over.into_iter().for_each(|run| self.processes.mark_reported(run));
        Ok(result)
    }

    /// Ends a run.
    pub(crate) async fn cancel(&self, run: String) -> Result<CallToolResult, String> {
        let (files, session, cancelled) = self.runs.blocking(move |runs| runs.cancel(&run)).await?;
        Ok(answer::of_cancel(&files, session, cancelled))
    }

    /// Judges a return.
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
    let contract = Contract {
        expected_session: session.map_err(|error| format!("session_id: {error}"))?,
        artifacts: if args.artifacts_required { Required::Any } else { Required::Nothing },
        kind: None,
        metadata: MetadataSource::Claimed,
    };
    let facts = artifact_facts(&setup.root).map_err(|error| error_chain(&error))?;
    let text = args.returned.as_str().map_or_else(|| args.returned.to_string(), str::to_owned);
    Ok(answer::of_validation(&json!(validate(text.as_str(), &contract, &facts)), bytes))
}
