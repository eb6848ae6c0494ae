//! Beginning a run for a call, whatever becomes of the call meanwhile.
//!
//! A run is begun in a task of its own, which always gets to its end: a client that takes its call back,
//! runs out of patience or leaves is heard at once, and what was begun is remembered all the same.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use adjutant_core::RunId;
use adjutant_core::registry::CallKey;
use rmcp::RoleServer;
use rmcp::service::RequestContext;
use serde_json::{Value, json};
use tokio::sync::{RwLock, Semaphore};
use tokio::task::JoinError;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::call_hash::call_hash;
use super::calls::{CallHold, CallRegistry, POLL_INTERVAL};
use super::context_files;
use super::handover::LaunchHandover;
use super::launch::{LaunchFailure, launch};
use super::requested_run::RequestedRun;
use crate::ServerSetup;
use crate::approval::QuestionRelay;
use crate::client_call::ClientCall;
use crate::runs::run_processes::RunProcesses;
use crate::runs::wait::{RunWaiter, WaitOutcome};
use crate::runs::{VisibleRuns, error_chain};

/// How many processes are begun at once; more wait for their turn.
const MAX_LAUNCHES: usize = 8;

/// How long a server whose clients have left waits for runs that are being begun.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);

/// How long another process may take to begin an equal call.
const EQUAL_CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Characters of a client's name that are kept.
const CLIENT_CHARS: usize = 100;

/// What a call asks to begin.
struct StartRequest {
    job: RequestedRun,
    /// What an equal call is known by.
    call: CallKey,
    /// What the process of the run is told of the client.
    terms: Vec<OsString>,
}

/// The run that a call has.
pub(crate) struct StartedRun {
    pub(crate) run: RunId,
    /// Whether an equal call began it.
    pub(crate) is_repeated: bool,
    /// Counts the call among those that wait for it.
    pub(crate) waiter: Option<CallHold>,
}

/// What a client is told while its run is begun.
const STARTING: &str = "The run is being begun.";

/// What it is told where that takes longer than it waits.
const STILL_STARTING: &str = "The run is still being begun, and nothing is lost: make the same call again, and it is \
                       answered with that run; delegate_status lists what runs.";

/// What it is told where another does not get on with it.
const EQUAL_CALL_STUCK: &str = "An equal call is being begun elsewhere and does not get on. Make the same call again in a \
                    moment, and it is answered with that run; delegate_status lists what runs.";

/// Begins runs for calls.
#[derive(Clone)]
pub(crate) struct RunStarter {
    setup: Arc<ServerSetup>,
    runs: VisibleRuns,
    waiter: RunWaiter,
    approvals: QuestionRelay,
    processes: RunProcesses,
    calls: CallRegistry,
    launching: Arc<Semaphore>,
    /// Held by whatever begins a run, so that the process ends after that.
    launches_running: Arc<RwLock<()>>,
}

impl RunStarter {
    pub(crate) fn new(
        setup: Arc<ServerSetup>,
        runs: VisibleRuns,
        waiter: RunWaiter,
        approvals: QuestionRelay,
        processes: RunProcesses,
    ) -> Self {
        let calls = CallRegistry::new(setup.archive.registry().clone());
        let launching = Arc::new(Semaphore::new(MAX_LAUNCHES));
        let launches_running = Arc::default();
        Self { setup, runs, waiter, approvals, processes, calls, launching, launches_running }
    }

    /// Finds the run of an equal call, or begins one, as long as the client waits for that.
    pub(crate) async fn start(
        &self,
        job: RequestedRun,
        arguments: &Value,
        call: &mut ClientCall<'_>,
    ) -> Result<StartedRun, String> {
        let request = self.request(job, arguments, call.context).await?;
        let starter = self.clone();
        let unfinished = Arc::clone(&self.launches_running).read_owned().await;
        let mut beginning = tokio::spawn(async move {
            let _unfinished = unfinished;
            let started = starter.begin(request).await?;
            starter.approvals.add(started.run);
            Ok(started)
        });
        let waited = match self.waiter.wait_for_work(&mut beginning, STARTING, call).await {
            Ok(started) => return flatten_join(started),
            Err(waited) => waited,
        };
        if let WaitOutcome::Cancelled(cancellation) = waited
            && cancellation.ends_the_run()
        {
            let StartedRun { run, is_repeated, waiter } = flatten_join(beginning.await)?;
            release(waiter).await;
            self.abandon(run, call.owns(run, is_repeated)).await?;
        }
        Err(STILL_STARTING.into())
    }

    /// Waits until every run that clients were told of is begun, as long as that is likely to end.
    pub(crate) async fn wait_for_launches(&self) {
        let _ = timeout(SHUTDOWN_TIMEOUT, self.launches_running.write()).await;
    }

    /// Counts a call among those that wait for a run, until what is returned is dropped.
    pub(crate) async fn count_waiter(&self, run: RunId) -> Option<CallHold> {
        self.calls.register_waiter(run).await
    }

    async fn request(
        &self,
        job: RequestedRun,
        arguments: &Value,
        context: &RequestContext<RoleServer>,
    ) -> Result<StartRequest, String> {
        if let Some(refusal) = &self.setup.refusal {
            return Err(refusal.clone());
        }
        let client = context.client_info().map(|info| info.name).unwrap_or_default();
        let root = self.setup.root.display().to_string();
        // Who starts the server anew with another model or budget wants another answer.
        let terms: Vec<_> = self.setup.arguments.iter().chain(&self.setup.task_arguments).collect();
        let terms: Vec<_> = terms.into_iter().map(|it| it.to_string_lossy()).collect();
        let call = json!([arguments, terms]);
        let (named, tree) = (arguments.clone(), self.setup.root.clone());
        let contexts =
            self.runs.blocking(move |_| Ok(context_files::digest(&named, &tree))).await?;
        let key = call_hash(&call, &root, &self.runs.caller(&client), contexts.as_deref());
        Ok(StartRequest { job, call: CallKey::new(key), terms: self.terms(&client) })
    }

    async fn begin(&self, request: StartRequest) -> Result<StartedRun, String> {
        let until = Instant::now() + EQUAL_CALL_TIMEOUT;
        let _lock = timeout_at(until, self.calls.lock_call(&request.call))
            .await
            .map_err(|_| EQUAL_CALL_STUCK)?;
        loop {
            let known = self.calls.run_of(&request.call).await?;
            if let Some(run) = known
                && let Some(started) = self.run_of_equal_call(run, &request.job).await?
            {
                return Ok(started);
            }
            if let Some(run) = self.calls.begin(&request.call, known).await? {
                return self.launch(run, request).await;
            }
            if Instant::now() >= until {
                return Err(EQUAL_CALL_STUCK.into());
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Returns the run of an equal call, if it answers this one.
    async fn run_of_equal_call(
        &self,
        run: RunId,
        job: &RequestedRun,
    ) -> Result<Option<StartedRun>, String> {
        // Its process may have been started a moment ago.
        if !self.runs.wait_until_readable(run).await {
            return Ok(None);
        }
        // Counted before one looks how it stands: a call that is cancelled ends it before that, or not at all.
        let waiter = self.calls.register_waiter(run).await;
        let is_reported = job.asks_for_next_story() && self.processes.is_reported(run);
        let answers = self
            .runs
            .blocking(move |runs| Ok(!is_reported && runs.answers_equal_call(run)))
            .await?;
        Ok(answers.then_some(StartedRun { run, is_repeated: true, waiter }))
    }

    /// Starts the process of a run that the registry knows.
    async fn launch(&self, run: RunId, request: StartRequest) -> Result<StartedRun, String> {
        let StartRequest { job, call, terms } = request;
        let owner = self.runs.owner().cloned();
        let bytes = job.input().len();
        let handover = LaunchHandover { run, call, owner, bytes };
        let permit = self.launching.acquire().await.map_err(|error| error_chain(&error))?;
        let launched = launch(&self.setup, terms, &job, &handover).await;
        drop(permit);
        match launched {
            Ok(gone) => {
                self.approvals.forget_after(run, gone.clone());
                if job.has_work_after_end() {
                    self.processes.add(run, gone);
                }
                self.runs.wait_until_readable(run).await;
            }
            // One that began something is the answer, whatever its process came to.
            Err(failure) if !self.runs.answers_equal_call(run) => {
                return Err(self.give_up(handover.call, run, failure).await);
            }
            Err(_) => {}
        }
        let waiter = self.calls.register_waiter(run).await;
        Ok(StartedRun { run, is_repeated: false, waiter })
    }

    /// Frees a call whose run was not begun; as long as its process may still begin it, the call is not free.
    async fn give_up(&self, call: CallKey, run: RunId, failure: LaunchFailure) -> String {
        let LaunchFailure { problem, may_begin_until } = failure;
        let Some(mut gone) = may_begin_until else {
            self.calls.abandon(call, run).await;
            return problem;
        };
        let calls = self.calls.clone();
        tokio::spawn(async move {
            let _ = gone.wait_for(|is_gone| *is_gone).await;
            calls.abandon(call, run).await;
        });
        problem
    }

    /// Ends a run whose call was cancelled, unless another call began it or waits for it.
    pub(crate) async fn abandon(&self, run: RunId, is_own: bool) -> Result<(), String> {
        if !is_own {
            return Ok(());
        }
        // Held while it ends: an equal call that comes now finds it ended, and begins another.
        let Some(right) = self.calls.claim_cancellation(run).await else { return Ok(()) };
        let cancelled = self.runs.blocking(move |runs| runs.cancel(&run.to_string())).await;
        right.release().await;
        cancelled.map(|_| ())
    }

    /// Returns what the process of a run is told of this client.
    fn terms(&self, client: &str) -> Vec<OsString> {
        let approval = self.setup.approval;
        let client: String =
            client.chars().filter(|it| !it.is_control()).take(CLIENT_CHARS).collect();
        vec![format!("--approval={approval}").into(), format!("--client={client}").into()]
    }
}

/// Stops counting a call among those that wait for a run.
pub(crate) async fn release(waiter: Option<CallHold>) {
    if let Some(waiter) = waiter {
        waiter.release().await;
    }
}

fn flatten_join(
    started: Result<Result<StartedRun, String>, JoinError>,
) -> Result<StartedRun, String> {
    started.map_err(|error| error_chain(&error))?
}
