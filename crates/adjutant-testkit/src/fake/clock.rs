//! Two ways to wait: tokio's clock, which tests pause, and the kernel's, which is exact.
//!
//! tokio rounds up to milliseconds, twice: 20 ms become 21.4. A benchmark whose bar is a few
//! milliseconds above the ideal must not lose them in the fake.

use std::io;
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::sleep;

/// How a server waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Clock {
    /// By tokio's clock, which may be paused.
    Simulated,
    /// By the kernel's timer.
    Exact,
}

impl Clock {
    /// Waits.
    pub(super) async fn wait(self, duration: Duration) {
        match self {
            Self::Simulated => sleep(duration).await,
            Self::Exact => exact(duration).await.expect("a timer of the kernel"),
        }
    }
}

#[expect(
    deprecated,
    reason = "its successor is unsafe; we own the timer for as long as it is registered"
)]
async fn exact(duration: Duration) -> io::Result<()> {
    let timer =
        timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
    let seconds = i64::try_from(duration.as_secs()).map_err(io::Error::other)?;
    let once = Itimerspec {
        it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
        it_value: Timespec { tv_sec: seconds, tv_nsec: duration.subsec_nanos().into() },
    };
    timerfd_settime(&timer, TimerfdTimerFlags::empty(), &once)?;
    AsyncFd::with_interest(timer, Interest::READABLE)?.readable().await.map(drop)
}
