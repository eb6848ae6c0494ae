//! Carries a run's questions through the client to a person, and the answers back to the run.

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
use super::rounds::{AskedQuestion, CallRound, QuestionSeals};
use super::{OpenQuestion, RejectedAnswerReason};
use crate::ServerSetup;
use crate::client_call::{Cancellation, ClientCall};
use crate::runs::wait::{RunWaiter, WaitFor, WaitOutcome};
use crate::runs::{RunSnapshot, VisibleRuns, error_chain};

/// The result of asking a run's open questions.
#[derive(Debug)]
pub(crate) enum AskOutcome {
    /// No question is open.
    Clear,
    /// A question stays open, or the call stopped waiting while the run continues.
    Open,
    /// The client cancelled its call.
    Cancelled(Cancellation),
    /// The call is answered with the question; the client repeats the call with the answer.
    // Boxed, because this variant is rare and larger than the others.
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

    /// Reads the answer that a repeated call brings. `name` is the hash of the exact call.
    pub(crate) fn open_round(
        &self,
        name: String,
        request: &CallToolRequestParams,
    ) -> Result<CallRound, String> {
        self.seals.open_round(name, request, wall_now())
    }

    /// Returns a question as the answer to a call.
    pub(crate) fn seal(
        &self,
        asked: AskedQuestion<'_>,
        round: &CallRound,
    ) -> Result<InputRequiredResult, String> {
        self.seals.seal(asked, round, wall_now())
    }

    /// Records that a call was given a run, so that this server may ask the run's questions.
    pub(crate) fn add(&self, run: RunId) {
        self.tracker.add_run(run);
    }

    /// Forgets a run's questions once its process has exited.
    pub(crate) fn forget_after(&self, run: RunId, gone: watch::Receiver<bool>) {
        self.tracker.forget_after(run, gone);
    }

    /// Reads a run and adds what this server knows about its open questions.
    pub(crate) async fn read(&self, run: &str) -> Result<RunSnapshot, String> {
        let (approvals, run) = (self.clone(), run.to_owned());
        self.runs.blocking(move |_| approvals.read_now(&run)).await
    }

    /// Like [`Self::read`], for threads that may block.
    pub(crate) fn read_now(&self, run: &str) -> Result<RunSnapshot, String> {
        let mut snapshot = self.runs.read(run)?;
        self.tracker.mark(snapshot.files.id(), &mut snapshot.open_questions);
        Ok(snapshot)
    }

    /// Returns whether the client supports asking its user and the server is configured to use that.
    pub(crate) fn can_ask(&self, context: &RequestContext<RoleServer>) -> bool {
        self.setup.asks_client && ask::can_ask(context.client_capabilities().as_ref())
    }

    /// Waits for a run to end and asks its questions as they come up. A question that stays open ends the
    /// wait.
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
            // A question that was reported but cannot be found again stays in the inbox; wait for the end
            // only.
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

    /// Asks the person one question of the run, if there is one this call has not handled and the client can
    /// ask.
    pub(crate) async fn ask(
        &self,
        run: &str,
        call: &mut ClientCall<'_>,
    ) -> Result<AskOutcome, String> {
        let context = call.context;
        let snapshot = self.read(run).await?;
        let Some(asking) =
            snapshot.open_questions.iter().find(|it| !call.handled_questions.contains(&it.hash))
        else {
            return Ok(AskOutcome::Clear);
        };
        call.handled_questions.push(asking.hash.clone());
        self.runs.wait_until_listed(&asking.id).await;
        if let Some(answered) = &call.round.answered
            && (answered.run.as_str(), &answered.hash) == (run, &asking.hash)
        {
            let (verdict, after) = (answered.verdict.clone(), answered.after);
            return self.take_answer(snapshot.files.id(), &asking.hash, verdict, after).await;
        }
        if !self.tracker.may_ask_for(snapshot.files.id()) || asking.left_open.is_some() {
            return Ok(AskOutcome::Open);
        }
        let root = self.setup.root.display().to_string();
        let has_rounds =
            context.protocol_version().is_some_and(|it| it >= ProtocolVersion::V_2026_07_28);
        if has_rounds && self.can_ask(context) {
            let form = ask::question_form(asking, &root);
            let asked = AskedQuestion { run, hash: &asking.hash, left_ms: asking.left_ms, form };
            let question = self.seal(asked, &call.round)?;
            return Ok(AskOutcome::AnswerWith(Box::new(question)));
        }
        let claim = self.tracker.claim(&asking.hash).filter(|_| self.can_ask(context));
        let Some(_claim) = claim else { return Ok(AskOutcome::Open) };
        self.ask_now(&snapshot, asking, run, call).await
    }

    /// Sends a question to the client, and waits until it is answered there or elsewhere.
    async fn ask_now(
        &self,
        snapshot: &RunSnapshot,
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
                    let run = snapshot.files.id();
                    self.take_answer(run, &asking.hash, verdict, asked.elapsed()).await
                }
                // The question stays in the inbox.
                Err(_) => Ok(AskOutcome::Open),
            },
            waited = waiting => {
                withdrawal.send("the question was answered elsewhere or is no longer needed").await;
                waited.map(AskOutcome::from)
            }
        }
    }

    /// Returns a run's open questions by hash, and records that they are shown now.
    pub(crate) fn show_questions(&self, snapshot: &RunSnapshot) -> InputRequests {
        let root = self.setup.root.display().to_string();
        let form = |asking: &OpenQuestion| {
            self.tracker.show(snapshot.files.id(), &asking.hash);
            let form = ElicitRequest::new(ask::question_form(asking, &root));
            (asking.hash.clone(), InputRequest::Elicitation(form))
        };
        snapshot.open_questions.iter().filter(|it| it.left_open.is_none()).map(form).collect()
    }

    /// Passes on the answer to a question that was shown as part of a task.
    pub(crate) async fn take_shown(
        &self,
        run: RunId,
        asking: &OpenQuestion,
        said: &ElicitResult,
    ) -> Result<(), String> {
        let open = Duration::from_millis(asking.open_ms);
        // Another server showed this question. Use the time since it was asked, which is an upper bound.
        let shown = self.tracker.shown_at(run, &asking.hash);
        let after = shown.map_or(open, |shown| shown.elapsed());
        self.take_answer(run, &asking.hash, ask::person_answer(said), after).await.map(|_| ())
    }

    /// Passes an answer to the run, which judges it. `after` is the time between question and answer.
    ///
    /// If the question is still open afterwards, it moves to the inbox.
    async fn take_answer(
        &self,
        run: RunId,
        hash: &str,
        verdict: Option<PersonAnswer>,
        after: Duration,
    ) -> Result<AskOutcome, String> {
        let mut why = RejectedAnswerReason::NotAPerson;
        if let Some(verdict) = verdict {
            let (runs, bound) = (self.runs.clone(), hash.to_owned());
            let decide = move || runs.decide(run, &bound, verdict, after);
            let decided = tokio::task::spawn_blocking(decide).await;
            let Err(refused) = decided.map_err(|error| error_chain(&error))? else {
                return Ok(AskOutcome::Clear);
            };
            // The question was closed by an earlier answer or has expired. The run's state tells which.
            if !self.read(&run.to_string()).await?.open_questions.iter().any(|it| it.hash == hash) {
                return Ok(AskOutcome::Clear);
            }
            why = refused;
        }
        self.tracker.leave_open(run, hash, why);
        Ok(AskOutcome::Open)
    }
}
