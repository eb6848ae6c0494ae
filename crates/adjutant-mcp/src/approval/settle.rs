//! What becomes of a call that needs a person's yes: asked through the client, or left where it waits.

use std::ffi::OsString;
use std::pin::Pin;
use std::time::Duration;

use adjutant_core::RunId;
use adjutant_engine::wall_now;
use rmcp::RoleServer;
use rmcp::model::{InputRequiredResult, ProtocolVersion};
use rmcp::service::RequestContext;
use tokio::time::Instant;

use super::LeftOpen;
use super::ask::{self, Out, Verdict};
use crate::runs::chain;
use crate::runs::wait::{For, Waited};
use crate::server::{Server, is_a_timeout};
use crate::through::Turn;

/// Characters of a client's name that are kept.
const CLIENT_CHARS: usize = 100;

/// What became of a question that a run may have.
#[derive(Debug)]
pub(crate) enum Settled {
    /// Nothing is open.
    Clear,
    /// It stays open, or the run goes on without us.
    Open,
    /// The client took its call back, with its reason.
    TakenBack(Option<String>),
    /// The call is answered with the question, and made again with its answer.
    // Boxed: it is the rare case, and larger than the others.
    Asks(Box<InputRequiredResult>),
}

impl Settled {
    /// Says whether the client wants the work to end.
    pub(crate) fn is_taken_back(&self) -> bool {
        matches!(self, Self::TakenBack(reason) if !is_a_timeout(reason.as_deref()))
    }
}

impl From<Waited> for Settled {
    fn from(waited: Waited) -> Self {
        match waited {
            Waited::Over => Self::Clear,
            Waited::Detached => Self::Open,
            Waited::TakenBack(reason) => Self::TakenBack(reason),
        }
    }
}

impl Server {
    /// Puts a question of a run to the person, if there is one that was not dealt with and the client can.
    pub(crate) async fn settle(
        &self,
        run: &str,
        turn: &mut Turn<'_>,
        taken_back: Pin<&mut impl Future<Output = Option<String>>>,
    ) -> Result<Settled, String> {
        let (context, round) = (turn.context, turn.round);
        let seen = self.read(run).await?;
        let Some(asking) = seen.asks.iter().find(|it| !turn.dealt.contains(&it.hash)) else {
            return Ok(Settled::Clear);
        };
        turn.dealt.push(asking.hash.clone());
        self.runs.is_shown(&asking.id).await;
        if let Some(answered) = &round.answered
            && (answered.run.as_str(), &answered.hash) == (run, &asking.hash)
        {
            let (verdict, after) = (answered.verdict.clone(), answered.after);
            return self.take_answer(seen.files.id(), &asking.hash, verdict, after).await;
        }
        if !self.asker.may_ask_for(seen.files.id()) || asking.left_open.is_some() {
            return Ok(Settled::Open);
        }
        let root = self.setup.root.display().to_string();
        let has_rounds =
            context.protocol_version().is_some_and(|it| it >= ProtocolVersion::V_2026_07_28);
        if has_rounds && self.can_ask(context) {
            let question = self.seals.question(asking, run, &root, round, wall_now())?;
            return Ok(Settled::Asks(Box::new(question)));
        }
        let claim = self.asker.claim(&asking.hash).filter(|_| self.can_ask(context));
        let Some(_claim) = claim else { return Ok(Settled::Open) };
        let form = ask::form(asking, &root);
        let Ok(out) = Out::put(&context.peer, form).await else {
            return Ok(Settled::Open);
        };
        let asked = Instant::now();
        let (answer, take_back) = out.split();
        let waiting = self.attend_to(run, For::Answer(&asking.hash), turn, taken_back);
        tokio::select! {
            said = answer => match said {
                Ok(said) => {
                    let verdict = ask::verdict(&said);
                    let run = seen.files.id();
                    self.take_answer(run, &asking.hash, verdict, asked.elapsed()).await
                }
                // It stays where a person finds it.
                Err(_) => Ok(Settled::Open),
            },
            waited = waiting => {
                take_back.tell("the question was answered elsewhere, or waits for an answer there").await;
                waited.map(Settled::from)
            }
        }
    }

    pub(crate) fn can_ask(&self, context: &RequestContext<RoleServer>) -> bool {
        self.setup.asks_client && ask::can_ask(context.client_capabilities().as_ref())
    }

    /// Hands an answer to the run, which judges it; `after` is the time between the question and the answer.
    ///
    /// A question that is still open then is left to the inbox.
    pub(crate) async fn take_answer(
        &self,
        run: RunId,
        hash: &str,
        verdict: Option<Verdict>,
        after: Duration,
    ) -> Result<Settled, String> {
        let mut why = LeftOpen::NotAPerson;
        if let Some(verdict) = verdict {
            let (runs, bound) = (self.runs.clone(), hash.to_owned());
            let decide = move || runs.decide(run, &bound, verdict, after);
            let decided = tokio::task::spawn_blocking(decide).await;
            let Err(refused) = decided.map_err(|error| chain(&error))? else {
                return Ok(Settled::Clear);
            };
            // An answer that came too late, or after another, changes nothing; the run says how it stands.
            if !self.read(&run.to_string()).await?.asks.iter().any(|it| it.hash == hash) {
                return Ok(Settled::Clear);
            }
            why = refused;
        }
        self.asker.leave_open(run, hash, why);
        Ok(Settled::Open)
    }

    /// Returns what the process of a run is told of this client.
    pub(crate) fn terms(&self, client: &str) -> Vec<OsString> {
        let approval = self.setup.approval;
        let client: String =
            client.chars().filter(|it| !it.is_control()).take(CLIENT_CHARS).collect();
        vec![format!("--approval={approval}").into(), format!("--client={client}").into()]
    }
}
