//! Seeing a run through for a client: its questions as they come up, its end, and how much is said of it.

use std::pin::Pin;
use std::time::Duration;

use adjutant_core::RunId;
use rmcp::RoleServer;
use rmcp::service::RequestContext;
use tokio::time::Instant;

use crate::answer::forms::Forms;
use crate::answer::sizes;
use crate::approval::Settled;
use crate::approval::rounds::Round;
use crate::runs::wait::{For, Telling, Waited};
use crate::runs::{Runs, Seen, chain};
use crate::server::Server;

/// A call for as long as it waits.
pub(crate) struct Turn<'a> {
    pub(crate) context: &'a RequestContext<RoleServer>,
    pub(crate) round: &'a Round,
    pub(crate) until: Instant,
    /// One for the whole call: what it tells only ever grows.
    pub(crate) telling: Telling,
    /// The questions that were dealt with.
    pub(crate) dealt: Vec<String>,
}

impl<'a> Turn<'a> {
    pub(crate) fn new(
        context: &'a RequestContext<RoleServer>,
        round: &'a Round,
        patience: Duration,
    ) -> Self {
        let telling = Telling::new(&context.peer, context.meta.get_progress_token());
        Self { context, round, until: Instant::now() + patience, telling, dealt: Vec::new() }
    }

    /// Says whether a run is this call's own: it began it, or answers what it asked then.
    pub(crate) fn owns(&self, run: RunId, is_repeated: bool) -> bool {
        let answered = self.round.answered.as_ref();
        !is_repeated || answered.is_some_and(|it| it.run == run.to_string())
    }
}

impl Server {
    /// Waits for a run, putting its questions to the person as they come up; one that stays open
    /// ends the wait.
    pub(crate) async fn see_through(
        &self,
        run: &str,
        turn: &mut Turn<'_>,
        mut taken_back: Pin<&mut impl Future<Output = Option<String>>>,
    ) -> Result<Settled, String> {
        let mut was_asked = false;
        loop {
            let known = turn.dealt.len();
            let settled = self.settle(run, turn, taken_back.as_mut()).await?;
            if !matches!(settled, Settled::Clear) {
                return Ok(settled);
            }
            // A question that cannot be found again is left to where it waits.
            let is_lost = was_asked && turn.dealt.len() == known;
            let dealt = turn.dealt.clone();
            let what = if is_lost { For::End } else { For::Next(&dealt) };
            let waited = self.attend_to(run, what, turn, taken_back.as_mut()).await?;
            was_asked = true;
            if waited != Waited::Over {
                return Ok(waited.into());
            }
            if self.read(run).await?.is_over() {
                self.children.gone(run, turn.until).await;
                return Ok(Settled::Clear);
            }
        }
    }

    /// Reads a run.
    pub(crate) async fn read(&self, run: &str) -> Result<Seen, String> {
        let (run, asker) = (run.to_owned(), self.asker.clone());
        let mut seen = self.apart(move |runs| runs.read(&run)).await?;
        asker.mark(seen.files.id(), &mut seen.asks);
        Ok(seen)
    }

    /// Does something with the files of runs where nobody else is kept waiting by it.
    pub(crate) async fn apart<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Runs) -> Result<T, String> + Send + 'static,
    ) -> Result<T, String> {
        let runs = self.runs.clone();
        let done = tokio::task::spawn_blocking(move || work(&runs)).await;
        done.map_err(|error| chain(&error))?
    }

    /// The forms in which the results of tasks are wanted.
    pub(crate) fn forms(&self) -> Forms {
        Forms::at(self.setup.archive.path())
    }

    /// How much of a result this client takes, in bytes.
    pub(crate) fn room(&self, context: &RequestContext<RoleServer>) -> usize {
        let client = context.client_info().map(|info| info.name).unwrap_or_default();
        let said = self.setup.result_bytes.map(|bytes| bytes.max(sizes::LEAST));
        said.unwrap_or_else(|| sizes::result_bytes(&client))
    }
}
