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

use super::calls::{AGAIN, CallWaiter, Calls};
use super::handover::LaunchHandover;
use super::jobs::Job;
use super::launch::{LaunchFailure, launch};
use super::{canonical, contexts};
use crate::Setup;
use crate::approval::Approvals;
use crate::client_call::ClientCall;
use crate::runs::children::Children;
use crate::runs::wait::{RunWaiter, Waited};
use crate::runs::{Runs, chain};

/// How many processes are begun at once; more wait for their turn.
const LAUNCHING: usize = 8;

/// How long a server whose clients have left waits for runs that are being begun.
const BEGINNINGS: Duration = Duration::from_secs(10);

/// How long another process may take to begin an equal call.
const HELD_FOR: Duration = Duration::from_secs(30);

/// Characters of a client's name that are kept.
const CLIENT_CHARS: usize = 100;

/// What a call asks to begin.
struct StartRequest {
    job: Job,
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
    pub(crate) waiter: Option<CallWaiter>,
}

/// What a client is told while its run is begun.
const BEGINNING: &str = "The run is being begun.";

/// What it is told where that takes longer than it waits.
const NOT_YET: &str = "The run is still being begun, and nothing is lost: make the same call again, and it is \
                       answered with that run; delegate_status lists what runs.";

/// What it is told where another does not get on with it.
const HELD: &str = "An equal call is being begun elsewhere and does not get on. Make the same call again in a \
                    moment, and it is answered with that run; delegate_status lists what runs.";

/// Begins runs for calls.
#[derive(Clone)]
pub(crate) struct RunStarter {
    setup: Arc<Setup>,
    runs: Runs,
    waiter: RunWaiter,
    approvals: Approvals,
    children: Children,
    calls: Calls,
    launching: Arc<Semaphore>,
    /// Held by whatever begins a run, so that the process ends after that.
    beginnings: Arc<RwLock<()>>,
}

impl RunStarter {
    pub(crate) fn new(
        setup: Arc<Setup>,
        runs: Runs,
        waiter: RunWaiter,
        approvals: Approvals,
        children: Children,
    ) -> Self {
        let calls = Calls::new(setup.archive.registry().clone());
        let launching = Arc::new(Semaphore::new(LAUNCHING));
        let beginnings = Arc::default();
        Self { setup, runs, waiter, approvals, children, calls, launching, beginnings }
    }

    /// Finds the run of an equal call, or begins one, as long as the client waits for that.
    pub(crate) async fn start(
        &self,
        job: Job,
        arguments: &Value,
        call: &mut ClientCall<'_>,
    ) -> Result<StartedRun, String> {
        let request = self.request(job, arguments, call.context).await?;
        let starter = self.clone();
        let unfinished = Arc::clone(&self.beginnings).read_owned().await;
        let mut beginning = tokio::spawn(async move {
            let _unfinished = unfinished;
            let started = starter.begin(request).await?;
            starter.approvals.add(started.run);
            Ok(started)
        });
        let waited = match self.waiter.wait_for_work(&mut beginning, BEGINNING, call).await {
            Ok(started) => return joined(started),
            Err(waited) => waited,
        };
        if let Waited::Cancelled(cancellation) = waited
            && cancellation.ends_the_run()
        {
            let StartedRun { run, is_repeated, waiter } = joined(beginning.await)?;
            release(waiter).await;
            self.abandon(run, call.owns(run, is_repeated)).await?;
        }
        Err(NOT_YET.into())
    }

    /// Waits until every run that clients were told of is begun, as long as that is likely to end.
    pub(crate) async fn all_begun(&self) {
        let _ = timeout(BEGINNINGS, self.beginnings.write()).await;
    }

    /// Counts a call among those that wait for a run, until what is returned is dropped.
    pub(crate) async fn count_waiter(&self, run: RunId) -> Option<CallWaiter> {
        self.calls.wait_for(run).await
    }

    async fn request(
        &self,
        job: Job,
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
        let contexts = self.runs.blocking(move |_| Ok(contexts::digest(&named, &tree))).await?;
        let key = canonical::key(&call, &root, &self.runs.caller(&client), contexts.as_deref());
        Ok(StartRequest { job, call: CallKey::new(key), terms: self.terms(&client) })
    }

    async fn begin(&self, request: StartRequest) -> Result<StartedRun, String> {
        let until = Instant::now() + HELD_FOR;
        let _turn = timeout_at(until, self.calls.turn(&request.call)).await.map_err(|_| HELD)?;
        loop {
            let known = self.calls.run_of(&request.call).await?;
            if let Some(run) = known
                && let Some(started) = self.repeated(run, &request.job).await?
            {
                return Ok(started);
            }
            if let Some(run) = self.calls.begin(&request.call, known).await? {
                return self.launch(run, request).await;
            }
            if Instant::now() >= until {
                return Err(HELD.into());
            }
            sleep(AGAIN).await;
        }
    }

    /// Returns the run of an equal call, if it answers this one.
    async fn repeated(&self, run: RunId, job: &Job) -> Result<Option<StartedRun>, String> {
        // Its process may have been started a moment ago.
        if !self.runs.ready(run).await {
            return Ok(None);
        }
        // Counted before one looks how it stands: a call that is cancelled ends it before that, or not at all.
        let waiter = self.calls.wait_for(run).await;
        let is_told = job.moves_on() && self.children.is_told(run);
        let answers = self.runs.blocking(move |runs| Ok(!is_told && runs.answers(run))).await?;
        Ok(answers.then_some(StartedRun { run, is_repeated: true, waiter }))
    }

    /// Starts the process of a run that the registry knows.
    async fn launch(&self, run: RunId, request: StartRequest) -> Result<StartedRun, String> {
        let StartRequest { job, call, terms } = request;
        let owner = self.runs.owner().cloned();
        let bytes = job.input().len();
        let handover = LaunchHandover { run, call, owner, bytes };
        let permit = self.launching.acquire().await.map_err(|error| chain(&error))?;
        let launched = launch(&self.setup, terms, &job, &handover).await;
        drop(permit);
        match launched {
            Ok(gone) => {
                self.approvals.forget_after(run, gone.clone());
                if job.has_aftermath() {
                    self.children.add(run, gone);
                }
                self.runs.ready(run).await;
            }
            // One that began something is the answer, whatever its process came to.
            Err(failure) if !self.runs.answers(run) => {
                return Err(self.give_up(handover.call, run, failure).await);
            }
            Err(_) => {}
        }
        let waiter = self.calls.wait_for(run).await;
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
        let Some(right) = self.calls.cancel_alone(run).await else { return Ok(()) };
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
pub(crate) async fn release(waiter: Option<CallWaiter>) {
    if let Some(waiter) = waiter {
        waiter.release().await;
    }
}

fn joined(started: Result<Result<StartedRun, String>, JoinError>) -> Result<StartedRun, String> {
    started.map_err(|error| chain(&error))?
}
