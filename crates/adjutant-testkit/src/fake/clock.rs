//! Two ways to wait: tokio's clock, which tests pause, and a thread of our own, which is exact.
//!
//! tokio rounds up to milliseconds, twice: 20 ms become 21.4. A benchmark whose bar is a few
//! milliseconds above the ideal must not lose them in the fake.

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
    /// By a thread that keeps the time.
    Exact(Sender<Alarm>),
}

/// Someone who waits, and until when.
#[derive(Debug)]
pub(super) struct Alarm {
    at: Instant,
    bell: oneshot::Sender<()>,
}

impl Clock {
    /// Starts a thread that keeps the time until the last one who knows it is gone.
    pub(super) fn exact() -> Self {
        // Unbounded: one alarm per connection that waits is all there can be.
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
                    // Who waited may have left.
                    let _left = bell.send(());
                }
            }
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}
