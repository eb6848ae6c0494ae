//! Making ids of runs and sessions from the wall clock and a random source.

use std::collections::BTreeSet;

use adjutant_core::ids::SUFFIX_LEN;
use adjutant_core::{Brief, RequestedTask, RunId, SessionId};

use crate::runner::clock::{WallClock, wall_now};

/// Returns the random part of an id.
pub type RandomSource = fn() -> Result<[u8; SUFFIX_LEN], getrandom::Error>;

/// Reads random bytes from the operating system.
pub(crate) fn os_random() -> Result<[u8; SUFFIX_LEN], getrandom::Error> {
    let mut bytes = [0; SUFFIX_LEN];
    getrandom::fill(&mut bytes)?;
    Ok(bytes)
}

/// Makes an id for a run that another process is going to start.
///
/// # Errors
///
/// The operating system's random source failed.
pub fn new_run_id() -> Result<RunId, getrandom::Error> {
    IdSource { wall: wall_now, random: os_random }.run()
}

/// Makes ids of runs and sessions.
#[derive(Clone, Copy)]
pub(crate) struct IdSource {
    pub(crate) wall: WallClock,
    pub(crate) random: RandomSource,
}

impl IdSource {
    pub(crate) fn run(&self) -> Result<RunId, getrandom::Error> {
        Ok(RunId::new((self.wall)() / 1000, (self.random)()?))
    }

    /// Gives each brief a session id that is not taken.
    ///
    /// The check is needed: of a thousand children made in one second, two would get the same id in one of five
    /// thousand runs.
    pub(crate) fn tasks(
        &self,
        briefs: Vec<Brief>,
        is_taken: impl Fn(SessionId) -> bool,
    ) -> Result<Vec<RequestedTask>, getrandom::Error> {
        let seconds = (self.wall)() / 1000;
        let mut made = BTreeSet::new();
        let mut tasks = Vec::with_capacity(briefs.len());
        for brief in briefs {
            let session = loop {
                let session = SessionId::new(seconds, (self.random)()?);
                if !is_taken(session) && made.insert(session) {
                    break session;
                }
            };
            tasks.push(RequestedTask { session, brief });
        }
        Ok(tasks)
    }
}
