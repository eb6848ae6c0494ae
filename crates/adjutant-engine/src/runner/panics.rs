//! Catching panics in effects, so that a panic ends one delegation and its backtrace is recorded.

use std::any::Any;
use std::backtrace::Backtrace;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::panic::{self, AssertUnwindSafe};
use std::pin::Pin;
use std::sync::Once;
use std::task::{Context, Poll};

use adjutant_core::{Command, SessionId};

/// The message and backtrace of a caught panic.
#[derive(Clone, Debug)]
pub(crate) struct CaughtPanic {
    pub(crate) message: String,
    pub(crate) backtrace: String,
}

impl CaughtPanic {
    /// Returns the command that ends the delegation in which it happened.
    pub(crate) fn command(self, session: SessionId) -> Command {
        Command::Crash { session, message: self.message, backtrace: self.backtrace }
    }
}

thread_local! {
    static GUARDED: Cell<bool> = const { Cell::new(false) };
    static TRACE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs `work` and returns a panic as an error.
pub(crate) fn catch_panic<T>(work: impl FnOnce() -> T) -> Result<T, CaughtPanic> {
    install_hook();
    let outer = GUARDED.replace(true);
    let result = panic::catch_unwind(AssertUnwindSafe(work));
    GUARDED.set(outer);
    result.map_err(|payload| CaughtPanic {
        message: message_of(payload.as_ref()),
        backtrace: TRACE.take().unwrap_or_default(),
    })
}

/// A future that returns a panic as an error.
pub(crate) struct CatchPanic<F>(pub(crate) Pin<Box<F>>);

impl<F: Future> Future for CatchPanic<F> {
    type Output = Result<F::Output, CaughtPanic>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match catch_panic(|| self.0.as_mut().poll(context)) {
            Ok(Poll::Ready(output)) => Poll::Ready(Ok(output)),
            Ok(Poll::Pending) => Poll::Pending,
            Err(crash) => Poll::Ready(Err(crash)),
        }
    }
}

/// Installs a panic hook that stores the backtrace within `catch_panic` and calls the previous hook elsewhere.
fn install_hook() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if GUARDED.get() {
                let place = info.location().map(ToString::to_string).unwrap_or_default();
                TRACE.set(Some(format!("at {place}\n{}", Backtrace::force_capture())));
            } else {
                usual(info);
            }
        }));
    });
}

fn message_of(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    let owned = || payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(owned).unwrap_or("panic without a message").to_owned()
}
