//! Waits for other processes that work on stories of the same PRD.
//!
//! A run in this process replaces the default handling of SIGINT, SIGTERM and SIGHUP until the process exits. So the
//! wait listens for these signals itself.

use std::io;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

use super::PrdSession;
use crate::exit::{Exit, Failure};
use crate::output::say;

/// How often the registry is asked whether another process still claims a story.
const CLAIM_POLL: Duration = Duration::from_millis(100);

/// How the wait for other processes ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HolderWait {
    /// The other processes have released their claims.
    Released,
    /// A signal ended the wait.
    Interrupted,
}

impl PrdSession<'_> {
    /// Waits until no other process claims the skipped stories, or a signal arrives.
    pub(super) fn wait_for_holders(&mut self) -> Result<HolderWait, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let waited = runtime.map_err(cannot_wait)?.block_on(self.attend_holders())?;
        if waited == HolderWait::Interrupted {
            say("adjutant: no longer waiting; the other process continues");
        }
        Ok(waited)
    }

    async fn attend_holders(&mut self) -> Result<HolderWait, Failure> {
        let mut interrupt = signal(SignalKind::interrupt()).map_err(cannot_wait)?;
        let mut terminate = signal(SignalKind::terminate()).map_err(cannot_wait)?;
        let mut hang_up = signal(SignalKind::hangup()).map_err(cannot_wait)?;
        for id in std::mem::take(&mut self.held) {
            let why = self.left.iter().find(|(left, _)| *left == id).map(|(_, why)| why.as_str());
            say(&format!("adjutant: {id}: {}", why.unwrap_or("another process is working on it")));
            say("adjutant: waiting until it ends (ctrl+c stops waiting)");
            let registry = self.archive.registry();
            let is_claimed = || registry.is_story_claimed(self.file.path(), &id);
            while is_claimed().map_err(|error| Failure::from_error(Exit::Failed, &error))? {
                tokio::select! {
                    biased;
                    _ = interrupt.recv() => return Ok(HolderWait::Interrupted),
                    _ = terminate.recv() => return Ok(HolderWait::Interrupted),
                    _ = hang_up.recv() => return Ok(HolderWait::Interrupted),
                    () = tokio::time::sleep(CLAIM_POLL) => {}
                }
            }
        }
        Ok(HolderWait::Released)
    }
}

fn cannot_wait(error: io::Error) -> Failure {
    Failure::new(Exit::Failed, format!("cannot wait for the other process: {error}"))
}
