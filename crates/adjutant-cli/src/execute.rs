//! Carrying a run out: the runtime, the signals, what is shown meanwhile, and the result.

use std::cell::RefCell;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use adjutant_core::schema::ReturnForm;
use adjutant_core::{Brief, Code, Event, Outcome, RunId, SessionId, Timestamp, Usd};
use adjutant_engine::{
    Approver, Archive, ControlCommand, Engine, EngineError, FinishedRun, Goal, LoadedJournal,
    Narrator, Reporter, ResumeRequest, RunFiles, RunHost,
};
use adjutant_view::progress::total;
use adjutant_view::results::{
    CallResults, ResultOptions, command_end, command_head, root_end, root_reason, synthesis,
};
use adjutant_view::{Delegation, Liveness, RunView, TimedEvent, cost, sanitize, tree};
use rustix::process::Signal;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::args::{MergeAfter, ResultFormat};
use crate::ask::is_asking;
use crate::delegate::failed;
use crate::exit::{Exit, Failure};
use crate::hints::program;
use crate::live::{self, LiveView};
use crate::output::{print, print_json, say, say_view};
use crate::projections;
use crate::results::{MergeScope, after_run};

/// How a run and its result are shown.
pub(crate) struct DisplayOptions {
    /// The form of the result.
    pub(crate) form: ResultFormat,
    /// Whether events go to standard output instead of the result.
    pub(crate) events: bool,
    /// Tokens of one result; `None` for all of it.
    pub(crate) result_tokens: Option<u64>,
    /// What becomes of the work in workspaces.
    pub(crate) merge: MergeAfter,
}

/// Threads for tools: a thousand children must not mean a thousand stacks, and each thread more is
/// one more to wake for a call that takes microseconds. One may be taken by a question to a person.
const TOOL_THREADS: usize = 4;

/// How often a live view is drawn anew.
const REDRAW: Duration = Duration::from_millis(100);

/// Room for orders to a run: nobody presses ctrl+c faster.
const ORDERS: usize = 8;

/// What is to be carried out.
pub(crate) enum RunRequest {
    /// Tasks without a parent agent.
    Tasks { briefs: Vec<Brief>, concurrency: Option<u64> },
    /// A goal for a parent agent.
    Goal(Goal),
    /// A run that exists.
    Resume { files: RunFiles, journal: LoadedJournal, wish: ResumeRequest },
}

/// A run that was carried as far as it came.
pub(crate) struct ExecutedRun {
    /// What it came to.
    pub(crate) view: RunView,
    /// How it ended, or why it broke off.
    pub(crate) finished: Result<FinishedRun, EngineError>,
}

/// Prints what came of a run, which may have pursued a goal, and merges what is to be merged.
pub(crate) fn conclude(
    conducted: ExecutedRun,
    archive: &Archive,
    pursues: bool,
    showing: &DisplayOptions,
) -> Result<Exit, Failure> {
    let view = &conducted.view;
    let files = view.run().and_then(|run| Some(archive.find(&run.to_string()).ok()?.0));
    if pursues {
        show_synthesis(view, files.as_ref(), showing)?;
    } else if !showing.events && view.run().is_some() {
        let results = CallResults::of_run(view);
        show_results(view, &results, files.as_ref(), showing.form, showing.result_tokens)?;
    }
    let placed = after_run(archive, view, showing.merge, MergeScope::PendingResults);
    archive.prune_daily();
    exit_of(conducted, placed.exit == Exit::Completed)
}

/// Returns how the command ends; `is_placed` says whether the work is where it was to be.
pub(crate) fn exit_of(conducted: ExecutedRun, is_placed: bool) -> Result<Exit, Failure> {
    let ExecutedRun { view, finished } = conducted;
    match finished {
        Ok(_) if ran_out_of_time(&view) => Ok(Exit::TimedOut),
        Ok(finished) if finished.outcome == Outcome::Completed && !is_placed => Ok(Exit::Partial),
        Ok(finished) => Ok(Exit::of(finished.outcome)),
        Err(error) => Err(interrupted_failure(&error, &view)),
    }
}

/// Carries `work` out, showing meanwhile what happens, and keeps the records of it.
pub(crate) fn execute_run(
    engine: Engine,
    archive: &Archive,
    work: RunRequest,
    approver: Approver,
    showing: &DisplayOptions,
) -> Result<ExecutedRun, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(TOOL_THREADS)
        .build()
        .map_err(|error| {
            Failure::new(Exit::Failed, format!("cannot start the runtime: {error}"))
        })?;
    let live = Rc::new(RefCell::new(LiveView::new(showing.events)));
    let (orders, control) = mpsc::channel(ORDERS);
    let telling = ResultNarrator { live: Rc::clone(&live), result_tokens: showing.result_tokens };
    let staff = |storage| RunHost {
        storage,
        approver,
        reporters: vec![Box::new(LiveReporter(Rc::clone(&live)))],
        narrator: Rc::new(telling),
        control,
    };
    let finished = runtime.block_on(async {
        match work {
            RunRequest::Tasks { briefs, concurrency } => {
                let staff = staff(archive.storage());
                wait_for_run(engine.delegate(briefs, concurrency, staff), &orders, &live).await
            }
            RunRequest::Goal(goal) => {
                wait_for_run(engine.run(goal, staff(archive.storage())), &orders, &live).await
            }
            RunRequest::Resume { files, journal, wish } => {
                let staff = staff(files.storage_read(journal));
                wait_for_run(engine.resume(files.id(), wish, staff), &orders, &live).await
            }
        }
    });
    // A person may still be sitting before a question nobody needs answered any more.
    runtime.shutdown_background();
    live.borrow_mut().close();
    if let Err(
        error @ (EngineError::NothingToResume(_) | EngineError::Lock(_) | EngineError::Context(_)),
    ) = &finished
    {
        // Nothing was done, so there is nothing to show.
        return Err(failed(error));
    }
    let view = std::mem::take(&mut live.borrow_mut().view);
    if let (Err(error @ EngineError::Refused(_)), None) = (&finished, view.run()) {
        // Refused as a whole: no run was begun.
        return Err(failed(error));
    }
    write_projections(archive, &view);
    Ok(ExecutedRun { view, finished })
}

/// Says whether the agent at the root was ended by its deadline.
fn ran_out_of_time(view: &RunView) -> bool {
    let reason = view.root().and_then(|root| root.reason.as_ref());
    reason.is_some_and(|reason| reason.code == Code::Timeout)
}

/// Writes what can be made anew from the journal: transcripts and the errors of the project.
pub(crate) fn write_projections(archive: &Archive, view: &RunView) {
    if let Some(run) = view.run() {
        write_transcripts(archive, view, run);
    }
    projections::keep_errors(view);
}

/// Leaves transcripts beside the journal; results are shown even where nothing could be kept.
fn write_transcripts(archive: &Archive, view: &RunView, run: RunId) {
    let found = archive.find(&run.to_string());
    let written = found
        .map_err(|error| Failure::caused(Exit::Failed, &error))
        .and_then(|(files, _)| projections::write(&files, view));
    if let Err(failure) = written {
        say(&format!("adjutant: not kept on disk: {failure}"));
    }
}

/// Says why a run broke off; what was done before counts.
pub(crate) fn interrupted_failure(error: &EngineError, view: &RunView) -> Failure {
    let mut failure = failed(error);
    if view.outcomes().completed > 0 {
        failure.exit = Exit::Partial;
    }
    match view.run() {
        Some(run) => failure.hint(format!(
            "{run} is interrupted there; `adjutant result {run}` shows what was recorded."
        )),
        None if error.is_disk_full() => {
            failure.hint("Free space, or keep runs elsewhere with ADJUTANT_HOME or --home DIR.")
        }
        None => failure,
    }
}

/// Waits for the run, drawing meanwhile and passing on the person's ctrl+c.
async fn wait_for_run(
    run: impl Future<Output = Result<FinishedRun, EngineError>>,
    orders: &mpsc::Sender<ControlCommand>,
    live: &Rc<RefCell<LiveView>>,
) -> Result<FinishedRun, EngineError> {
    let mut run = std::pin::pin!(run);
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    // A file that may not grow further is an error of the write then, and no sudden death.
    let _too_long = signal(SignalKind::from_raw(Signal::XFSZ.as_raw()))?;
    let mut redraw = tokio::time::interval(REDRAW);
    let mut asked = false;
    loop {
        tokio::select! {
            finished = &mut run => return finished,
            _ = interrupt.recv() => cancel(&mut asked, orders, live),
            // Said again it is no hurry: the kernel repeats it for each thread of an MCP server that ends.
            _ = terminate.recv() => if !asked { cancel(&mut asked, orders, live) },
            // Nobody can answer any more; what was asked stays open, and `resume` asks again.
            _ = hang_up.recv() => if is_asking() { exit_at_once() } else { cancel(&mut asked, orders, live) },
            // Not a guard of this arm: guards are asked once, before anything has started.
            _ = redraw.tick() => live.borrow_mut().redraw(),
        }
    }
}

fn exit_at_once() -> ! {
    say("adjutant: leaving now; what was recorded is kept");
    std::process::exit(i32::from(Exit::Cancelled.code()))
}

/// The first time everything is cancelled and kept; the second time we leave at once.
fn cancel(asked: &mut bool, orders: &mpsc::Sender<ControlCommand>, live: &Rc<RefCell<LiveView>>) {
    live.borrow_mut().finish();
    if std::mem::replace(asked, true) {
        exit_at_once();
    }
    say("adjutant: cancelling, keeping what was found (ctrl+c again leaves at once)");
    // A full queue holds an order to cancel already.
    let _ = orders.try_send(ControlCommand::CancelRun);
}

/// Prints what a parent agent concluded, then shows the tree and the bill.
fn show_synthesis(
    view: &RunView,
    files: Option<&RunFiles>,
    showing: &DisplayOptions,
) -> Result<(), Failure> {
    let (now, palette) = (view.latest().at, live::palette(io::stderr().is_terminal()));
    if showing.events {
        return Ok(());
    }
    let text = synthesis(view);
    if showing.form == ResultFormat::Json {
        let tree = tree::json(view, now, Liveness::Alive);
        let cost = cost::json(view, None);
        let mut json = json!({ "v": 1, "synthesis": text, "tree": tree, "cost": cost });
        if let Some(reason) = root_reason(view) {
            json["reason"] = json!(reason);
        }
        let remarks = CallResults::of_run(view).remarks();
        if !remarks.is_empty() {
            json["remarks"] = json!(remarks);
        }
        if view.auto_approved() > Usd::ZERO {
            json["auto_approved_usd"] = json!(view.auto_approved());
        }
        if let Some(assignment) = view.assignment() {
            json["assignment"] = json!(assignment);
            json["results"] =
                json!(CallResults::of_run(view).json(&ResultOptions::default()).results);
        }
        return print_json(&json);
    }
    let said = Some(sanitize::block(&text).into_owned()).filter(|text| !text.is_empty());
    let came = command_end(view, program());
    // What one of the tasks says of itself need not be said of the command again.
    let (head, end) = (command_head(view), root_end(view).filter(|_| !ended_like_a_task(view)));
    let end = end.map(|text| text.trim_end().to_owned());
    let parts: Vec<String> = head.into_iter().chain(said).chain(end).chain(came).collect();
    print(&format!("{}\n", parts.join("\n\n").trim_end()))?;
    say_view(&format!("\n{}", tree::render(view, now, Liveness::Alive, palette)));
    say(&total(view, now, Liveness::Alive));
    auto_approved_line(view).iter().for_each(|words| say(words));
    if let Some(files) = files {
        say(&format!("Transcripts in {}", transcripts(files).display()));
    }
    Ok(())
}

/// Says whether the root ended for the reason that one of its tasks did: both were cancelled.
fn ended_like_a_task(view: &RunView) -> bool {
    let why = |it: &Delegation| it.reason.as_ref().map(|why| (why.code, why.message.clone()));
    let Some(root) = view.root() else { return false };
    root.reason.is_some() && view.children(root).any(|child| why(child) == why(root))
}

/// Prints results in the form that was asked for.
pub(crate) fn show_results(
    view: &RunView,
    results: &CallResults<'_>,
    files: Option<&RunFiles>,
    form: ResultFormat,
    result_tokens: Option<u64>,
) -> Result<(), Failure> {
    // A run that goes on, or refused everything, has no transcripts to name.
    let is_kept = |files: &&RunFiles| files.expiry() == adjutant_engine::Expiry::Kept;
    let folder = files.filter(is_kept).map(transcripts).filter(|folder| folder.is_dir());
    let kept = folder.is_some();
    let folder = folder.unwrap_or_default().display().to_string();
    let options = ResultOptions {
        result_tokens,
        transcripts: kept.then_some(folder.as_str()),
        ..ResultOptions::default()
    };
    match form {
        ResultFormat::Json => {
            let mut json = results.json(&options);
            json.auto_approved_usd = Some(view.auto_approved()).filter(|usd| *usd > Usd::ZERO);
            for result in &mut json.results {
                // A task that was refused has said nothing that could be kept.
                result.transcript.take_if(|path| !Path::new(path).is_file());
            }
            print_json(&json)
        }
        ResultFormat::Markdown => {
            let mut text = results.markdown(&options);
            if let Some(run) = view.run() {
                let place = format!(", transcripts in {}", sanitize::line(&folder));
                text += &format!("\nRun {run}{}\n", if kept { place.as_str() } else { "" });
                text.extend(auto_approved_line(view).map(|words| words + "\n"));
            }
            print(&text)
        }
    }
}

/// Says what started without asking, where anything did.
fn auto_approved_line(view: &RunView) -> Option<String> {
    let (total, limit) = (view.auto_approved(), view.approve_below());
    (total > Usd::ZERO)
        .then(|| format!("Approved without asking: {total} of {limit}, by the worst case"))
}

/// Returns where a run's transcripts lie, once there are any.
pub(crate) fn transcripts(files: &RunFiles) -> PathBuf {
    files.path().join("transcripts")
}

/// Words for a parent agent, from the same fold that people see.
struct ResultNarrator {
    live: Rc<RefCell<LiveView>>,
    result_tokens: Option<u64>,
}

impl Narrator for ResultNarrator {
    fn results(&self, parent: SessionId, call: u32, form: ReturnForm) -> String {
        let live = self.live.borrow();
        let results = CallResults::of(&live.view, parent, Some(call));
        let options =
            ResultOptions { result_tokens: self.result_tokens, ..ResultOptions::default() };
        match form {
            ReturnForm::Markdown => results.markdown(&options),
            ReturnForm::Json => adjutant_view::wire::pretty(&results.json(&options)),
        }
    }
}

/// A view that the engine reports to and the loop draws.
struct LiveReporter(Rc<RefCell<LiveView>>);

impl Reporter for LiveReporter {
    fn report(&mut self, at: Timestamp, wall_ms: u64, event: &Event) {
        self.0.borrow_mut().take(TimedEvent::new(at, wall_ms, event));
    }

    fn replay(&mut self, at: Timestamp, wall_ms: u64, event: &Event) {
        self.0.borrow_mut().recall(TimedEvent::new(at, wall_ms, event));
    }
}
