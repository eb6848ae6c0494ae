//! Starts runs for calls, independently of what happens to the call meanwhile.
//!
//! Each start runs in its own task, which always completes: a client that cancels, times out or disconnects
//! is answered at once, and the started run is recorded all the same.

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
use super::calls::{CallRegistry, POLL_INTERVAL, RunHoldGuard};
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
use crate::tools::McpTool;

/// How many processes are started at the same time. More have to wait.
const MAX_LAUNCHES: usize = 8;

/// How long the server waits at shutdown for runs that are being started.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);

/// How long to wait for another process that is starting a run for an equal call.
const EQUAL_CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// The maximum length of a client's name.
const CLIENT_CHARS: usize = 100;

/// What to start for a tool call, and the key by which equal calls share one run.
struct StartRequest {
    job: RequestedRun,
    /// Identifies equal calls.
    call: CallKey,
    /// Additional arguments for the run's process: approval mode and client name.
    terms: Vec<OsString>,
}

/// The run that answers a call.
pub(crate) struct StartedRun {
    pub(crate) run: RunId,
    /// Whether an equal call started it.
    pub(crate) is_repeated: bool,
    /// The call's registration as waiting for the run; `None` if it could not be registered. The call waits all
    /// the same.
    pub(crate) waiter: Option<RunHoldGuard>,
}

/// The progress message while the run is starting.
const STARTING: &str = "Starting the run.";

/// The answer if starting takes longer than the call may block.
const STILL_STARTING: &str = "The run is still starting, and nothing is lost: repeat the same call to get \
    that run, or list runs with delegate_status.";

/// The answer if another process is starting a run for an equal call and does not finish.
const EQUAL_CALL_STUCK: &str = "Another process is starting a run for an equal call and has not finished. \
    Repeat the same call in a moment to get that run, or list runs with delegate_status.";

/// Starts runs for calls.
#[derive(Clone)]
pub(crate) struct RunStarter {
    setup: Arc<ServerSetup>,
    runs: VisibleRuns,
    waiter: RunWaiter,
    approvals: QuestionRelay,
    processes: RunProcesses,
    calls: CallRegistry,
    launching: Arc<Semaphore>,
    /// Locked for reading by each start in progress. Shutdown waits for the write lock.
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

    /// Returns the run of an equal call, or starts one. Gives up when the client stops waiting; the start
    /// continues.
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

    /// Waits until all starts in progress have completed, up to a timeout.
    pub(crate) async fn wait_for_launches(&self) {
        let _ = timeout(SHUTDOWN_TIMEOUT, self.launches_running.write()).await;
    }

    /// Registers a call as waiting for a run until the result is dropped.
    pub(crate) async fn count_waiter(&self, run: RunId) -> Option<RunHoldGuard> {
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
        // The server's own settings are part of the call's identity: after a restart with another model or
        // budget, an equal call must start a new run.
        let terms = self.setup.arguments.iter().chain(&self.setup.task_arguments);
        let mut terms: Vec<_> = terms.map(|it| it.to_string_lossy()).collect();
        if let RequestedRun::Writers { .. } = job {
            // The same tasks for `Delegate` are another call.
            terms.push(McpTool::Write.name().into());
            terms.extend(self.setup.write_arguments.iter().map(|it| it.to_string_lossy()));
        }
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

    /// Returns the run of an equal call if it still answers this one.
    async fn run_of_equal_call(
        &self,
        run: RunId,
        job: &RequestedRun,
    ) -> Result<Option<StartedRun>, String> {
        // The other call may have started the process only a moment ago.
        if !self.runs.wait_until_readable(run).await {
            return Ok(None);
        }
        // Register before looking at the run's state. Otherwise a cancellation could end the run in between.
        let waiter = self.calls.register_waiter(run).await;
        let is_reported = job.asks_for_next_story() && self.processes.is_reported(run);
        let answers = self
            .runs
            .blocking(move |runs| Ok(!is_reported && runs.answers_equal_call(run)))
            .await?;
        Ok(answers.then_some(StartedRun { run, is_repeated: true, waiter }))
    }

    /// Starts the process of a run that is reserved in the registry.
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
            // A run that started is the answer, even if its process failed afterwards.
            Err(failure) if !self.runs.answers_equal_call(run) => {
                return Err(self.give_up(handover.call, run, failure).await);
            }
            Err(_) => {}
        }
        let waiter = self.calls.register_waiter(run).await;
        Ok(StartedRun { run, is_repeated: false, waiter })
    }

    /// Frees the call of a run that was not started. If the process may still start it, waits for its exit
    /// first.
    async fn give_up(&self, call: CallKey, run: RunId, failure: LaunchFailure) -> String {
        let LaunchFailure { problem, may_still_start_until_exit } = failure;
        let Some(mut gone) = may_still_start_until_exit else {
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

    /// Cancels the run of a cancelled call, unless another call started it or waits for it.
    pub(crate) async fn abandon(&self, run: RunId, is_own: bool) -> Result<(), String> {
        if !is_own {
            return Ok(());
        }
        // Hold the claim until the run has ended. An equal call that arrives meanwhile then starts a new run.
        let Some(right) = self.calls.claim_cancellation(run).await else { return Ok(()) };
        let cancelled = self.runs.blocking(move |runs| runs.cancel(&run.to_string())).await;
        right.release().await;
        cancelled.map(|_| ())
    }

    /// Returns additional arguments for the run's process: approval mode and client name.
    fn terms(&self, client: &str) -> Vec<OsString> {
        let approval = self.setup.approval;
        let client: String =
            client.chars().filter(|it| !it.is_control()).take(CLIENT_CHARS).collect();
        vec![format!("--approval={approval}").into(), format!("--client={client}").into()]
    }
}

/// Ends a call's registration as waiting for a run.
pub(crate) async fn release(waiter: Option<RunHoldGuard>) {
    if let Some(waiter) = waiter {
        waiter.release().await;
    }
}

fn flatten_join(
    started: Result<Result<StartedRun, String>, JoinError>,
) -> Result<StartedRun, String> {
    started.map_err(|error| error_chain(&error))?
}
