//! Beginning a run for a call, whatever becomes of the call meanwhile.
//!
//! A run is begun in a task of its own, which always gets to its end: a client that takes its call back,
//! runs out of patience or leaves is heard at once, and what was begun is remembered all the same.

use std::ffi::OsString;
use std::pin::Pin;
use std::sync::Arc;

use adjutant_core::RunId;
use rmcp::RoleServer;
use rmcp::service::RequestContext;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::runs::chain;
use crate::runs::wait::{Waited, left};
use crate::server::{Server, is_a_timeout};
use crate::start::calls::Waiter;
use crate::start::canonical;
use crate::start::contexts;
use crate::start::jobs::Job;
use crate::start::launch::launch;
use crate::through::Turn;

/// What a call asks to begin.
struct Wish {
    job: Job,
    /// What an equal call is known by.
    key: String,
    /// What the process of the run is told of the client.
    terms: Vec<OsString>,
}

/// The run that a call has.
pub(crate) struct Begun {
    pub(crate) run: RunId,
    /// Whether an equal call began it.
    pub(crate) is_repeated: bool,
    /// Counts the call among those that wait for it.
    pub(crate) waiter: Option<Waiter>,
}

/// What a client is told while its run is begun.
const BEGINNING: &str = "The run is being begun.";

/// What it is told where that takes longer than it waits.
const NOT_YET: &str = "The run is still being begun, and nothing is lost: make the same call again, and it is \
                       answered with that run; delegate_status lists what runs.";

/// What it is told where another does not get on with it.
const HELD: &str = "An equal call is being begun elsewhere and does not get on. Make the same call again in a \
                    moment, and it is answered with that run; delegate_status lists what runs.";

impl Server {
    /// Finds the run of an equal call, or begins one, as long as the client waits for that.
    pub(crate) async fn begun(
        &self,
        job: Job,
        arguments: &Value,
        turn: &mut Turn<'_>,
        taken_back: Pin<&mut impl Future<Output = Option<String>>>,
    ) -> Result<Begun, String> {
        let wish = self.wish(job, arguments, turn.context).await?;
        let server = self.clone();
        let unfinished = Arc::clone(&self.beginnings).read_owned().await;
        let mut beginning = tokio::spawn(async move {
            let _unfinished = unfinished;
            let begun = server.begin(wish).await?;
            server.asker.gave(begun.run);
            Ok(begun)
        });
        let waited = self.attend_beginning(&mut beginning, turn, taken_back).await;
        turn.telling.settle().await;
        let waited = match waited {
            Ok(begun) => return begun,
            Err(waited) => waited,
        };
        if let Waited::TakenBack(reason) = waited
            && !is_a_timeout(reason.as_deref())
        {
            let Begun { run, is_repeated, waiter } = done(beginning.await)?;
            drop(waiter);
            self.let_go(run, turn.owns(run, is_repeated)).await?;
        }
        Err(NOT_YET.into())
    }

    /// Waits for the run that is being begun, or for what keeps the client from doing so.
    async fn attend_beginning(
        &self,
        beginning: &mut JoinHandle<Result<Begun, String>>,
        turn: &mut Turn<'_>,
        taken_back: Pin<&mut impl Future<Output = Option<String>>>,
    ) -> Result<Result<Begun, String>, Waited> {
        let mut left = std::pin::pin!(left(taken_back, turn.context.ct.clone().cancelled_owned()));
        let mut closing = self.closing.clone();
        let mut is_due = false;
        loop {
            turn.telling.tell(is_due, || BEGINNING.to_owned());
            is_due = false;
            let due = turn.telling.due();
            tokio::select! {
                begun = &mut *beginning => return Ok(done(begun)),
                () = turn.telling.sent() => {}
                () = tokio::time::sleep_until(due) => is_due = true,
                () = tokio::time::sleep_until(turn.until) => return Err(Waited::Detached),
                _ = closing.wait_for(|is_closing| *is_closing) => return Err(Waited::Detached),
                waited = &mut left => return Err(waited),
            }
        }
    }

    async fn wish(
        &self,
        job: Job,
        arguments: &Value,
        context: &RequestContext<RoleServer>,
    ) -> Result<Wish, String> {
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
        let contexts = self.apart(move |_| Ok(contexts::digest(&named, &tree))).await?;
        let key = canonical::key(&call, &root, &self.runs.caller(&client), contexts.as_deref());
        Ok(Wish { job, key, terms: self.terms(&client) })
    }

    async fn begin(&self, wish: Wish) -> Result<Begun, String> {
        let Wish { job, key, terms } = wish;
        let claim = self.calls.claim(&key).await.map_err(|error| chain(&error))?;
        let claim = claim.ok_or(HELD)?;
        let is_told = |run: RunId| job.moves_on() && self.children.is_told(run);
        if let Some(run) = claim.run() {
            // Its process may have noted it a moment ago.
            self.runs.ready(run).await;
            // Counted before one looks how it stands: whoever takes their call back ends it before that,
            // or not at all.
            let waiter = self.calls.wait_for(run).await;
            if !is_told(run) && self.apart(move |runs| Ok(runs.answers(run))).await? {
                return Ok(Begun { run, is_repeated: true, waiter });
            }
        }
        let turn = self.launching.acquire().await.map_err(|error| chain(&error))?;
        let earlier = claim.run();
        let launched = launch(&self.setup, terms, &job, &claim, self.runs.owner()).await;
        drop(turn);
        let run = match launched {
            Ok((run, gone)) => {
                self.asker.forget_after(run, gone.clone());
                if job.has_aftermath() {
                    self.children.add(run, gone);
                }
                self.runs.ready(run).await;
                run
            }
            // One that was noted and began something is the answer, whatever its process came to.
            Err(problem) => {
                let noted = claim.run().filter(|run| Some(*run) != earlier);
                noted.filter(|run| self.runs.answers(*run)).ok_or(problem)?
            }
        };
        let waiter = self.calls.wait_for(run).await;
        Ok(Begun { run, is_repeated: false, waiter })
    }

    /// Ends a run whose call is taken back, unless another began it or waits for it.
    pub(crate) async fn let_go(&self, run: RunId, is_own: bool) -> Result<(), String> {
        if !is_own {
            return Ok(());
        }
        // Held while it ends: an equal call that comes now finds it ended, and begins another.
        if let Some(_left) = self.calls.leave(run) {
            self.cancel(run.to_string()).await?;
        }
        Ok(())
    }
}

fn done(begun: Result<Result<Begun, String>, tokio::task::JoinError>) -> Result<Begun, String> {
    begun.map_err(|error| chain(&error))?
}
