//! Two ways to wait: tokio's clock, which tests can pause, and an exact timer thread.
//!
//! tokio rounds up to milliseconds twice, so 20 ms become 21.4 ms. That is too much for benchmarks
//! whose limit is a few milliseconds above the ideal.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tokio::time::sleep;

/// How a server waits.
#[derive(Clone, Debug)]
pub(super) enum Clock {
    /// By tokio's clock, which may be paused.
    Simulated,
    /// By a timer thread.
    Exact(Sender<Alarm>),
}

/// A waiting task and its wake-up time.
#[derive(Debug)]
pub(super) struct Alarm {
    at: Instant,
    bell: oneshot::Sender<()>,
}

impl Clock {
    /// Starts the timer thread, which runs until the last clone of this clock is dropped.
    pub(super) fn exact() -> Self {
        // Unbounded, because there is at most one alarm per connection.
        let (sender, receiver) = channel();
        thread::spawn(move || keep_time(&receiver));
        Self::Exact(sender)
    }

    /// Waits.
    pub(super) async fn wait(&self, duration: Duration) {
        match self {
            Self::Simulated => sleep(duration).await,
            Self::Exact(alarms) => {
                let (bell, rung) = oneshot::channel();
                let alarm = Alarm { at: Instant::now() + duration, bell };
                alarms.send(alarm).expect("the thread lives as long as we know it");
                rung.await.expect("the thread rings every bell");
            }
        }
    }
}

fn keep_time(alarms: &Receiver<Alarm>) {
    let mut waiting: BTreeMap<(Instant, u64), oneshot::Sender<()>> = BTreeMap::new();
    let mut count = 0;
    loop {
        let next = waiting.first_key_value().map(|((at, _), _)| *at);
        let heard = match next {
            Some(at) => alarms.recv_timeout(at.saturating_duration_since(Instant::now())),
            None => alarms.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match heard {
            Ok(Alarm { at, bell }) => {
                waiting.insert((at, count), bell);
                count += 1;
            }
            Err(RecvTimeoutError::Timeout) => {
                if let Some((_, bell)) = waiting.pop_first() {
                    // The waiting task may have been dropped.
                    let _left = bell.send(());
                }
            }
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}
