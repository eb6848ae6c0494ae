//! Carrying a run's questions to a person through their client, and the answers back to the run.

use std::sync::Arc;
use std::time::Duration;

use adjutant_core::RunId;
use adjutant_engine::wall_now;
use rmcp::RoleServer;
use rmcp::model::{
    CallToolRequestParams, ElicitRequest, ElicitResult, InputRequest, InputRequests,
    InputRequiredResult, ProtocolVersion,
};
use rmcp::service::RequestContext;
use tokio::sync::watch;
use tokio::time::Instant;

use super::ask::{self, PersonAnswer, QuestionTracker, SentQuestion};
use super::rounds::{CallRound, QuestionSeals};
use super::{OpenQuestion, UnansweredReason};
use crate::ServerSetup;
use crate::client_call::{Cancellation, ClientCall};
use crate::runs::wait::{RunWaiter, WaitFor, WaitOutcome};
use crate::runs::{RunSnapshot, VisibleRuns, error_chain};

/// What became of the questions that a run may have.
#[derive(Debug)]
pub(crate) enum AskOutcome {
    /// Nothing is open.
    Clear,
    /// A question stays open, or the run goes on without this call.
    Open,
    /// The client cancelled its call.
    Cancelled(Cancellation),
    /// The call is answered with the question, and made again with its answer.
    // Boxed: it is the rare case, and larger than the others.
    AnswerWith(Box<InputRequiredResult>),
}

impl From<WaitOutcome> for AskOutcome {
    fn from(waited: WaitOutcome) -> Self {
        match waited {
            WaitOutcome::Over => Self::Clear,
            WaitOutcome::Detached => Self::Open,
            WaitOutcome::Cancelled(cancellation) => Self::Cancelled(cancellation),
        }
    }
}

/// Asks people through the clients of this server.
#[derive(Clone)]
pub(crate) struct QuestionRelay {
    setup: Arc<ServerSetup>,
    runs: VisibleRuns,
    waiter: RunWaiter,
    tracker: QuestionTracker,
    seals: QuestionSeals,
}

impl QuestionRelay {
    pub(crate) fn new(
        setup: Arc<ServerSetup>,
        runs: VisibleRuns,
        waiter: RunWaiter,
        seals: QuestionSeals,
    ) -> Self {
        Self { setup, runs, waiter, tracker: QuestionTracker::default(), seals }
    }

    /// Reads what a call brings back; `name` is that of the exact call.
    pub(crate) fn open_round(
        &self,
        name: String,
        request: &CallToolRequestParams,
    ) -> Result<CallRound, String> {
        self.seals.open_round(name, request, wall_now())
    }

    /// Notes that a call was given a run, whose questions may be asked here from now on.
    pub(crate) fn add(&self, run: RunId) {
        self.tracker.add_run(run);
    }

    /// Forgets the questions of a run once its process is gone.
    pub(crate) fn forget_after(&self, run: RunId, gone: watch::Receiver<bool>) {
        self.tracker.forget_after(run, gone);
    }

    /// Reads a run, with what is known here of its open questions.
    pub(crate) async fn read(&self, run: &str) -> Result<RunSnapshot, String> {
        let (approvals, run) = (self.clone(), run.to_owned());
        self.runs.blocking(move |_| approvals.read_now(&run)).await
    }

    /// Like [`Self::read`], on a thread that may block.
    pub(crate) fn read_now(&self, run: &str) -> Result<RunSnapshot, String> {
        let mut seen = self.runs.read(run)?;
        self.tracker.mark(seen.files.id(), &mut seen.asks);
        Ok(seen)
    }

    /// Says whether the client of a call can put a question to its person, and may.
    pub(crate) fn can_ask(&self, context: &RequestContext<RoleServer>) -> bool {
        self.setup.asks_client && ask::can_ask(context.client_capabilities().as_ref())
    }

    /// Waits for a run, putting its questions to the person as they come up; one that stays open
    /// ends the wait.
    pub(crate) async fn follow(
        &self,
        run: &str,
        call: &mut ClientCall<'_>,
    ) -> Result<AskOutcome, String> {
        let mut was_asked = false;
        loop {
            let known = call.handled_questions.len();
            let outcome = self.ask(run, call).await?;
            if !matches!(outcome, AskOutcome::Clear) {
                return Ok(outcome);
            }
            // A question that cannot be found again is left to where it waits.
            let is_lost = was_asked && call.handled_questions.len() == known;
            let dealt = call.handled_questions.clone();
            let what = if is_lost { WaitFor::End } else { WaitFor::Next(&dealt) };
            let waited = self.waiter.wait_for(run, what, call).await?;
            was_asked = true;
            if waited != WaitOutcome::Over {
                return Ok(waited.into());
            }
            if self.read(run).await?.is_over() {
                self.waiter.wait_for_exit(run, call.until).await;
                return Ok(AskOutcome::Clear);
            }
        }
    }

    /// Puts a question of a run to the person, if there is one that was not dealt with and the client can.
    pub(crate) async fn ask(
        &self,
        run: &str,
        call: &mut ClientCall<'_>,
    ) -> Result<AskOutcome, String> {
        let context = call.context;
        let seen = self.read(run).await?;
        let Some(asking) = seen.asks.iter().find(|it| !call.handled_questions.contains(&it.hash))
        else {
            return Ok(AskOutcome::Clear);
        };
        call.handled_questions.push(asking.hash.clone());
        self.runs.wait_until_listed(&asking.id).await;
        if let Some(answered) = &call.round.answered
            && (answered.run.as_str(), &answered.hash) == (run, &asking.hash)
        {
            let (verdict, after) = (answered.verdict.clone(), answered.after);
            return self.take_answer(seen.files.id(), &asking.hash, verdict, after).await;
        }
        if !self.tracker.may_ask_for(seen.files.id()) || asking.left_open.is_some() {
            return Ok(AskOutcome::Open);
        }
        let root = self.setup.root.display().to_string();
        let has_rounds =
            context.protocol_version().is_some_and(|it| it >= ProtocolVersion::V_2026_07_28);
        if has_rounds && self.can_ask(context) {
            let question = self.seals.seal_question(asking, run, &root, &call.round, wall_now())?;
            return Ok(AskOutcome::AnswerWith(Box::new(question)));
        }
        let claim = self.tracker.claim(&asking.hash).filter(|_| self.can_ask(context));
        let Some(_claim) = claim else { return Ok(AskOutcome::Open) };
        self.ask_now(&seen, asking, run, call).await
    }

    /// Sends a question to the client and waits for the answer, from there or from elsewhere.
    async fn ask_now(
        &self,
        seen: &RunSnapshot,
        asking: &OpenQuestion,
        run: &str,
        call: &mut ClientCall<'_>,
    ) -> Result<AskOutcome, String> {
        let form = ask::question_form(asking, &self.setup.root.display().to_string());
        let Ok(out) = SentQuestion::send(&call.context.peer, form).await else {
            return Ok(AskOutcome::Open);
        };
        let asked = Instant::now();
        let (answer, withdrawal) = out.split();
        let waiting = self.waiter.wait_for(run, WaitFor::Answer(&asking.hash), call);
        tokio::select! {
            said = answer => match said {
                Ok(said) => {
                    let verdict = ask::person_answer(&said);
                    let run = seen.files.id();
                    self.take_answer(run, &asking.hash, verdict, asked.elapsed()).await
                }
                // It stays where a person finds it.
                Err(_) => Ok(AskOutcome::Open),
            },
            waited = waiting => {
                withdrawal.send("the question was answered elsewhere, or waits for an answer there").await;
                waited.map(AskOutcome::from)
            }
        }
    }

    /// Returns what a run asks, each by the hash that the answer is bound to, and notes that it is shown now.
    pub(crate) fn show_questions(&self, seen: &RunSnapshot) -> InputRequests {
        let root = self.setup.root.display().to_string();
        let form = |asking: &OpenQuestion| {
            self.tracker.show(seen.files.id(), &asking.hash);
            let form = ElicitRequest::new(ask::question_form(asking, &root));
            (asking.hash.clone(), InputRequest::Elicitation(form))
        };
        seen.asks.iter().filter(|it| it.left_open.is_none()).map(form).collect()
    }

    /// Takes the answer to a question that was shown.
    pub(crate) async fn take_shown(
        &self,
        run: RunId,
        asking: &OpenQuestion,
        said: &ElicitResult,
    ) -> Result<(), String> {
        let open = Duration::from_millis(asking.open_ms);
        // A question that another server showed was not shown before it was asked.
        let shown = self.tracker.shown_at(run, &asking.hash);
        let after = shown.map_or(open, |shown| shown.elapsed());
        self.take_answer(run, &asking.hash, ask::person_answer(said), after).await.map(|_| ())
    }

    /// Hands an answer to the run, which judges it; `after` is the time between the question and the answer.
    ///
    /// A question that is still open then is left to the inbox.
    async fn take_answer(
        &self,
        run: RunId,
        hash: &str,
        verdict: Option<PersonAnswer>,
        after: Duration,
    ) -> Result<AskOutcome, String> {
        let mut why = UnansweredReason::NotAPerson;
        if let Some(verdict) = verdict {
            let (runs, bound) = (self.runs.clone(), hash.to_owned());
            let decide = move || runs.decide(run, &bound, verdict, after);
            let decided = tokio::task::spawn_blocking(decide).await;
            let Err(refused) = decided.map_err(|error| error_chain(&error))? else {
                return Ok(AskOutcome::Clear);
            };
            // An answer that came too late, or after another, changes nothing; the run says how it stands.
            if !self.read(&run.to_string()).await?.asks.iter().any(|it| it.hash == hash) {
                return Ok(AskOutcome::Clear);
            }
            why = refused;
        }
        self.tracker.leave_open(run, hash, why);
        Ok(AskOutcome::Open)
    }
}
