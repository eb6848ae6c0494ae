//! The shared pause of a provider: after it asks for a wait, no session sends a request before that time.
//!
//! Owns the end of the pause and the waiting. It neither retries nor counts requests; the engine does. The
//! wait is part of an attempt and ends if the attempt's future is dropped.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use adjutant_core::{AttemptError, ModelErrorKind, SessionId};
use tokio::time::Instant;

/// The pause if a provider reports too many requests without saying how long to wait.
const SILENT_PAUSE: Duration = Duration::from_secs(1);

/// The maximum shared pause. If a provider asks for more (a daily quota), each session tries again after this
/// time, gets the error itself and can report it.
const LONGEST_PAUSE: Duration = Duration::from_secs(120);

/// The maximum random delay that keeps waiting sessions from sending all at once.
const MAX_SPREAD: Duration = Duration::from_secs(2);

/// The shared pause of one provider.
#[derive(Debug, Default)]
pub(crate) struct ProviderLimiter {
    // A std mutex: held for a copy, never across an await.
    state: Mutex<Option<RequestedPause>>,
}

#[derive(Clone, Copy, Debug)]
struct RequestedPause {
    until: Instant,
    spread: Duration,
}

impl ProviderLimiter {
    /// Waits until requests to this provider are allowed and reports the waiting time to `tell` first; `draw`
    /// spreads the waiting sessions.
    pub(crate) async fn pass(&self, draw: u64, mut tell: impl FnMut(Duration)) {
        // Another session may have extended the pause during this wait.
        while let Some(at) = self.opening_time(draw) {
            tell(at.saturating_duration_since(Instant::now()));
            tokio::time::sleep_until(at).await;
        }
    }

    /// Starts or extends the pause if a failed attempt asks for one.
    pub(crate) fn note_failure(&self, error: &AttemptError) {
        if !matches!(error.kind, ModelErrorKind::RateLimited | ModelErrorKind::Overloaded) {
            return;
        }
        let asked = error.retry_after_ms.map(Duration::from_millis);
        let pause = match (asked, error.kind) {
            (Some(asked), _) => asked.min(LONGEST_PAUSE),
            (None, ModelErrorKind::RateLimited) => SILENT_PAUSE,
            (None, _) => return,
        };
        let new =
            RequestedPause { until: Instant::now() + pause, spread: (pause / 4).min(MAX_SPREAD) };
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.is_none_or(|old| old.until < new.until) {
            *state = Some(new);
        }
    }

    fn opening_time(&self, draw: u64) -> Option<Instant> {
        let pause = (*self.state.lock().unwrap_or_else(PoisonError::into_inner))?;
        let spread_ms = u64::try_from(pause.spread.as_millis()).unwrap_or(u64::MAX);
        let at = pause.until + Duration::from_millis(draw % (spread_ms + 1));
        (at > Instant::now()).then_some(at)
    }
}

/// Returns a number that differs between sessions and attempts but is the same in every replay.
pub(crate) fn draw(session: SessionId, turn: u32, attempt: u32) -> u64 {
    // FNV-1a of the attempt's name; real randomness would make runs impossible to replay.
    let name = format!("{session} {turn} {attempt}");
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(kind: ModelErrorKind, retry_after_ms: Option<u64>) -> AttemptError {
        AttemptError { kind, message: String::new(), retry_after_ms, never_began: false }
    }

    #[tokio::test(start_paused = true)]
    async fn everyone_waits_as_long_as_the_provider_asked_and_not_all_alike() {
        let limiter = ProviderLimiter::default();
        let start = Instant::now();
        limiter.pass(3, |_| {}).await;
        assert_eq!(start.elapsed(), Duration::ZERO);
        limiter.note_failure(&told(ModelErrorKind::RateLimited, Some(8_000)));
        let waits = futures(&limiter, [0, 500, 2_000, 2_001]).await;
        assert_eq!(waits, [8_000, 8_500, 10_000, 10_000]);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_waits_hears_for_how_long_and_again_when_it_takes_longer() {
        let limiter = ProviderLimiter::default();
        limiter.pass(0, |_| panic!("there is no pause")).await;
        limiter.note_failure(&told(ModelErrorKind::RateLimited, Some(1_000)));
        let mut heard = Vec::new();
        let waits = limiter.pass(0, |wait| {
            if heard.is_empty() {
                limiter.note_failure(&told(ModelErrorKind::RateLimited, Some(3_000)));
            }
            heard.push(wait.as_millis());
        });
        waits.await;
        assert_eq!(heard, [1_000, 2_000]);
    }

    /// Runs the waits one after the other from the same pause.
    async fn futures(limiter: &ProviderLimiter, draws: [u64; 4]) -> Vec<u128> {
        let start = Instant::now();
        let mut waits = Vec::new();
        for draw in draws {
            limiter.pass(draw, |_| {}).await;
            waits.push(start.elapsed().as_millis());
        }
        waits
    }

    #[tokio::test(start_paused = true)]
    async fn a_longer_wish_wins_and_an_endless_one_is_cut() {
        let limiter = ProviderLimiter::default();
        limiter.note_failure(&told(ModelErrorKind::Overloaded, Some(86_400_000)));
        limiter.note_failure(&told(ModelErrorKind::RateLimited, Some(10)));
        let start = Instant::now();
        limiter.pass(0, |_| {}).await;
        assert_eq!(start.elapsed(), LONGEST_PAUSE);
    }

    #[tokio::test(start_paused = true)]
    async fn only_errors_about_load_make_others_wait() {
        let limiter = ProviderLimiter::default();
        limiter.note_failure(&told(ModelErrorKind::Network, Some(5_000)));
        limiter.note_failure(&told(ModelErrorKind::Overloaded, None));
        let start = Instant::now();
        limiter.pass(9, |_| {}).await;
        assert_eq!(start.elapsed(), Duration::ZERO);
        limiter.note_failure(&told(ModelErrorKind::RateLimited, None));
        limiter.pass(0, |_| {}).await;
        assert_eq!(start.elapsed(), SILENT_PAUSE);
    }
}
