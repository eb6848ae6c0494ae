//! Seeing a run through for a client: its questions as they come up, its end, and how much is said of it.

use std::pin::Pin;

use rmcp::RoleServer;
use rmcp::service::RequestContext;
use tokio::time::Instant;

use crate::approval::Settled;
use crate::approval::rounds::Round;
use crate::server::Server;
use crate::sizes;
use crate::wait::{For, Waited};

impl Server {
    /// Waits for a run, putting its questions to the person as they come up; one that stays open
    /// ends the wait.
    pub(crate) async fn see_through(
        &self,
        run: &str,
        until: Instant,
        context: &RequestContext<RoleServer>,
        round: &Round,
        mut taken_back: Pin<&mut impl Future<Output = Option<String>>>,
    ) -> Result<Settled, String> {
        let mut dealt = Vec::new();
        let mut was_asked = false;
        loop {
            let known = dealt.len();
            let settled =
                self.settle(run, &mut dealt, until, context, round, taken_back.as_mut()).await?;
            if !matches!(settled, Settled::Clear) {
                return Ok(settled);
            }
            // A question that cannot be found again is left to where it waits.
            let is_lost = was_asked && dealt.len() == known;
            let what = if is_lost { For::End } else { For::Next(&dealt) };
            let waited = self.attend_to(run, what, until, context, taken_back.as_mut()).await?;
            was_asked = true;
            if waited != Waited::Over {
                return Ok(waited.into());
            }
            if self.runs.read(run)?.is_over() {
                self.children.gone(run).await;
                return Ok(Settled::Clear);
            }
        }
    }

    /// How much of a result this client takes, in bytes.
    pub(crate) fn room(&self, context: &RequestContext<RoleServer>) -> usize {
        let client = context.client_info().map(|info| info.name).unwrap_or_default();
        let said = self.setup.result_bytes.map(|bytes| bytes.max(sizes::LEAST));
        said.unwrap_or_else(|| sizes::result_bytes(&client))
    }
}
