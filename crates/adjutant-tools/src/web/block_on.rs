//! Runs async network code on a blocking thread, with a timeout and cancellation.

use std::time::Duration;

use tokio::runtime::Builder;
use tokio::time::{interval, timeout};

use crate::web::WebError;

/// The interval between checks of `should_stop`.
const STOP_CHECK: Duration = Duration::from_millis(20);

/// Runs `work` until it ends, `total` has passed, or `should_stop` returns true.
///
/// Dropping the work closes its connection. A pending name resolution is abandoned, because the system's
/// resolver cannot be interrupted.
pub(crate) fn block_on<T>(
    should_stop: &dyn Fn() -> bool,
    total: Duration,
    work: impl Future<Output = Result<T, WebError>>,
) -> Result<T, WebError> {
    let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
    let result = runtime.block_on(async {
        tokio::select! {
            () = told_to(should_stop) => Err(WebError::Stopped),
            done = timeout(total, work) => done.unwrap_or(Err(WebError::TooSlow(total))),
        }
    });
    runtime.shutdown_background();
    result
}

async fn told_to(should_stop: &dyn Fn() -> bool) {
    let mut ticks = interval(STOP_CHECK);
    while !should_stop() {
        ticks.tick().await;
    }
}
