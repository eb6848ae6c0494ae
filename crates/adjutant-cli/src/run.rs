//! Carrying a run out: the runtime, the signals, what is shown meanwhile, and the result.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use adjutant_core::{Brief, Event, Timestamp};
use adjutant_engine::{
    Approver, Archive, Control, Engine, EngineError, Finished, Reporter, RunFiles,
};
use adjutant_view::results::{Options, Results};
use adjutant_view::{Entry, RunView, sanitize};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::args::Form;
use crate::delegate::failed;
use crate::exit::{Exit, Failure};
use crate::live::Live;
use crate::output::{print, print_json, say};
use crate::projections;

/// How a run and its result are shown.
pub(crate) struct Showing {
    /// The form of the result.
    pub(crate) form: Form,
    /// Whether events go to standard output instead of the result.
    pub(crate) events: bool,
    /// Tokens of one result; `None` for all of it.
    pub(crate) result_tokens: Option<u64>,
}

/// Threads for tools: a disk is busy long before this many read from it, and a thousand children
/// must not mean a thousand stacks.
const TOOL_THREADS: usize = 8;

/// How often a live view is drawn anew.
const REDRAW: Duration = Duration::from_millis(100);

/// Room for orders to a run: nobody presses ctrl+c faster.
const ORDERS: usize = 8;

/// Runs `briefs` to their ends and prints the result.
pub(crate) fn carry_out(
    engine: Engine,
    archive: Archive,
    briefs: Vec<Brief>,
    concurrency: Option<u64>,
    approver: Approver,
    showing: &Showing,
) -> Result<Exit, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(TOOL_THREADS)
        .build()
        .map_err(|error| {
            Failure::new(Exit::Failed, format!("cannot start the runtime: {error}"))
        })?;
    let live = Rc::new(RefCell::new(Live::new(showing.events)));
    let reporters: Vec<Box<dyn Reporter>> = vec![Box::new(Shared(Rc::clone(&live)))];
    let (orders, control) = mpsc::channel(ORDERS);
    let storage = archive.storage();
    let run = engine.delegate(storage, briefs, concurrency, approver, reporters, control);
    let finished = runtime.block_on(attend(run, &orders, &live));
    // A person may still be sitting before a question nobody needs answered any more.
    runtime.shutdown_background();
    live.borrow_mut().finish();
    let finished = finished.map_err(|error| failed(&error))?;
    let (files, _) = archive
        .find(&finished.run.to_string())
        .map_err(|error| Failure::caused(Exit::Failed, &error))?;
    conclude(&live.borrow().view, &files, &finished, showing)
}

/// Waits for the run, drawing meanwhile and passing on the person's ctrl+c.
async fn attend(
    run: impl Future<Output = Result<Finished, EngineError>>,
    orders: &mpsc::Sender<Control>,
    live: &Rc<RefCell<Live>>,
) -> Result<Finished, EngineError> {
    let mut run = std::pin::pin!(run);
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut redraw = tokio::time::interval(REDRAW);
    let mut asked = false;
    loop {
        tokio::select! {
            finished = &mut run => return finished,
            _ = interrupt.recv() => cancel(&mut asked, orders, live),
            _ = terminate.recv() => cancel(&mut asked, orders, live),
            // Not a guard of this arm: guards are asked once, before anything has started.
            _ = redraw.tick() => live.borrow_mut().redraw(),
        }
    }
}

/// The first time everything is cancelled and kept; the second time we leave at once.
fn cancel(asked: &mut bool, orders: &mpsc::Sender<Control>, live: &Rc<RefCell<Live>>) {
    live.borrow_mut().finish();
    if std::mem::replace(asked, true) {
        say("adjutant: leaving now; what was recorded is kept");
        std::process::exit(i32::from(Exit::Cancelled.code()));
    }
    say("adjutant: cancelling, keeping what was found (ctrl+c again leaves at once)");
    // A full queue holds an order to cancel already.
    let _ = orders.try_send(Control::CancelRun);
}

/// Prints the result and leaves transcripts and scratchpads beside the journal.
fn conclude(
    view: &RunView,
    files: &RunFiles,
    finished: &Finished,
    showing: &Showing,
) -> Result<Exit, Failure> {
    if let Err(failure) = projections::write(files) {
        say(&format!("adjutant: {failure}"));
    }
    if !showing.events {
        show_results(view, &Results::of_run(view), files, showing.form, showing.result_tokens)?;
    }
    Ok(Exit::of(finished.outcome))
}

/// Prints results in the form that was asked for.
pub(crate) fn show_results(
    view: &RunView,
    results: &Results<'_>,
    files: &RunFiles,
    form: Form,
    result_tokens: Option<u64>,
) -> Result<(), Failure> {
    let folder = files.path().join("transcripts").display().to_string();
    let kept = files.expiry() == adjutant_engine::Expiry::Kept;
    let options = Options { result_tokens, transcripts: kept.then_some(folder.as_str()) };
    match form {
        Form::Json => print_json(&results.json(&options)),
        Form::Markdown => {
            let mut text = results.markdown(&options);
            if let (Some(run), true) = (view.run(), kept) {
                text += &format!("\nRun {run}, transcripts in {}\n", sanitize::line(&folder));
            }
            print(&text)
        }
    }
}

/// A view that the engine reports to and the loop draws.
struct Shared(Rc<RefCell<Live>>);

impl Reporter for Shared {
    fn report(&mut self, at: Timestamp, wall_ms: u64, event: &Event) {
        self.0.borrow_mut().take(Entry::new(at, wall_ms, event));
    }
}
