//! Executes a run for every command that starts or resumes one: tokio runtime, signals, live view, result.
//!
//! Start at [`execute_run`], then [`conclude`]. What the run may do was decided by the caller.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use adjutant_core::schema::ReturnFormat;
use adjutant_core::{Brief, ErrorCode, Event, Outcome, RunId, SessionId, Timestamp, Usd};
use adjutant_engine::{
    Approver, Archive, ControlCommand, Engine, EngineError, FinishedRun, Goal, LoadedJournal,
    Narrator, Reporter, ResumeRequest, RunFiles, RunHost,
};
use adjutant_view::progress::total;
use adjutant_view::results::{
    CallResults, ResultOptions, answer_command, command_end, command_head, resume_command,
    root_end, root_reason, synthesis,
};
use adjutant_view::samples::sample_groups;
use adjutant_view::{Delegation, ProcessLiveness, RunView, TimedEvent, cost, sanitize, tree};
use rustix::process::Signal;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::args::{MergeAfterRun, ResultFormat};
use crate::ask::{has_terminal_program, is_asking, note_answer, wait_for_terminal_program};
use crate::delegate::engine_failure;
use crate::demo;
use crate::exit::{Exit, Failure};
use crate::hints::{advise_commands, program};
use crate::live::{self, LiveView};
use crate::output::{print_json, print_markdown, say, say_view};
use crate::pager;
use crate::projections;
use crate::records::table_columns;
use crate::results::{MergeScope, after_run};
use crate::run_lookup::{is_latest_here, unique_label};

/// How progress and result of a run are shown, and what happens to its work.
pub(crate) struct DisplayOptions {
    /// The format of the result.
    pub(crate) form: ResultFormat,
    /// Whether standard output gets one JSON event per line instead of the result.
    pub(crate) events: bool,
    /// Tokens after which one result is cut; `None` prints all of it.
    pub(crate) result_tokens: Option<u64>,
    /// What happens to the work in workspaces after the run.
    pub(crate) merge: MergeAfterRun,
}

/// Blocking threads for tool calls.
///
/// Few, because a thousand children must not mean a thousand stacks, and most calls take microseconds. A question to
/// the person blocks one of them.
const TOOL_THREADS: usize = 4;

/// Capacity of the control channel. Only signals send on it, so it never fills in practice.
const ORDERS: usize = 8;

/// What to execute: tasks, a goal, or an existing run to resume.
pub(crate) enum RunRequest {
    /// Tasks that run without a parent agent.
    Tasks { briefs: Vec<Brief>, concurrency: Option<u64> },
    /// A goal that a parent agent works toward.
    Goal(Goal),
    /// A run of a cluster, to be followed again.
    Follow {
        files: RunFiles,
        journal: LoadedJournal,
        /// Sent to the run at once.
        order: Option<ControlCommand>,
    },
    /// An existing run, to be resumed.
    Resume { files: RunFiles, journal: LoadedJournal, wish: ResumeRequest },
}

/// A run after its execution, whether it ended or was interrupted by an error.
pub(crate) struct ExecutedRun {
    /// Its state, folded from the events.
    pub(crate) view: RunView,
    /// How it ended, or the error that interrupted it.
    pub(crate) finished: Result<FinishedRun, EngineError>,
}

/// Prints the result of a run and merges its work as `showing` says. `has_root_agent` says whether the run had a goal.
pub(crate) fn conclude(
    conducted: ExecutedRun,
    archive: &Archive,
    has_root_agent: bool,
    showing: &DisplayOptions,
) -> Result<Exit, Failure> {
    let view = &conducted.view;
    let files = view.run().and_then(|run| Some(archive.find(&run.to_string()).ok()?.0));
    if has_root_agent {
        show_synthesis(view, files.as_ref(), showing)?;
    } else if !showing.events && view.run().is_some() {
        let results = CallResults::of_run(view);
        show_results(view, &results, files.as_ref(), showing.form, showing.result_tokens)?;
    }
    let placed = after_run(archive, view, showing.merge, MergeScope::PendingResults);
    if let Some(files) = &files {
        say_how_to_go_on(archive, view, files);
    }
    archive.prune_daily();
    exit_of(conducted, placed.exit == Exit::Completed)
}

/// Prints how to resume a run that is not finished, and at last what its subagents ask the person.
fn say_how_to_go_on(archive: &Archive, view: &RunView, files: &RunFiles) {
    let run = files.id();
    if is_unfinished(view, files) {
        let command = format!("`{}`", resume_command(view, run, "adjutant"));
        advise_commands(&[(command, "continues what is unfinished")]);
    }
    let asking: Vec<&Delegation> =
        view.delegations().filter(|it| it.open_question().is_some()).collect();
    if asking.is_empty() {
        return;
    }
    let is_latest = is_latest_here(archive, run);
    for agent in asking {
        let label = unique_label(view, agent).filter(|_| is_latest);
        let command = answer_command(view, agent.session, program());
        let command = match label {
            Some(label) => command.replace(&agent.session.to_string(), &label),
            None => command,
        };
        let label = sanitize::label(agent.label.as_str());
        let question = sanitize::collapsed(agent.open_question().unwrap_or_default());
        say(&format!("[{label}] asks: {question}"));
        advise_commands(&[(command, "")]);
    }
}

/// Returns whether a run has ended cancelled or partial, and `resume` would continue it. A demo is as scripted.
pub(crate) fn is_unfinished(view: &RunView, files: &RunFiles) -> bool {
    let has_rest = matches!(view.outcome(), Some(Outcome::Cancelled | Outcome::Partial));
    let past = has_rest.then(|| files.read().ok()?.resume_info()).flatten();
    past.is_some_and(|past| past.nothing.is_none() && past.model.as_deref() != Some(demo::MODEL))
}

/// Returns the exit code of the command. `is_placed` says whether merging the work succeeded.
pub(crate) fn exit_of(conducted: ExecutedRun, is_placed: bool) -> Result<Exit, Failure> {
    let ExecutedRun { view, finished } = conducted;
    match finished {
        Ok(_) if ran_out_of_time(&view) => Ok(Exit::TimedOut),
        Ok(finished) if finished.outcome == Outcome::Completed && !is_placed => Ok(Exit::Partial),
        Ok(finished) => Ok(Exit::of(finished.outcome)),
        Err(error) => Err(interrupted_failure(&error, &view)),
    }
}

/// Executes `work`, shows its progress, and writes the transcripts afterwards.
pub(crate) fn execute_run(
    engine: Engine,
    archive: &Archive,
    work: RunRequest,
    approver: Approver,
    showing: &DisplayOptions,
) -> Result<ExecutedRun, Failure> {
    execute_in_view(engine, archive, work, approver, (LiveView::new(showing.events), showing))
}

/// Executes `work` and shows its progress in `live`.
pub(crate) fn execute_in_view(
    engine: Engine,
    archive: &Archive,
    work: RunRequest,
    approver: Approver,
    (live, showing): (LiveView, &DisplayOptions),
) -> Result<ExecutedRun, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(TOOL_THREADS)
        .build()
        .map_err(|error| {
            Failure::new(Exit::Failed, format!("cannot start the runtime: {error}"))
        })?;
    let live = Rc::new(RefCell::new(live));
    let (orders, control) = mpsc::channel(ORDERS);
    let telling = ResultNarrator { live: Rc::clone(&live), result_tokens: showing.result_tokens };
    let ended = Rc::new(RefCell::new(BTreeSet::new()));
    let host = |storage| RunHost {
        storage,
        approver,
        reporters: vec![
            Box::new(LiveReporter(Rc::clone(&live))),
            Box::new(DelegationEndCollector(Rc::clone(&ended))),
        ],
        narrator: Rc::new(telling),
        control,
    };
    let finished = runtime.block_on(async {
        match work {
            RunRequest::Tasks { briefs, concurrency } => {
                let host = host(archive.storage());
                wait_for_run(engine.delegate(briefs, concurrency, host), &orders, &live).await
            }
            RunRequest::Goal(goal) => {
                wait_for_run(engine.run(goal, host(archive.storage())), &orders, &live).await
            }
            RunRequest::Follow { files, journal, order } => {
                if let Some(order) = order {
                    // The channel is empty.
                    let _ = orders.try_send(order);
                }
                let host = host(files.storage_read(journal));
                wait_for_run(engine.follow(files.id(), host), &orders, &live).await
            }
            RunRequest::Resume { files, journal, wish } => {
                let host = host(files.storage_read(journal));
                wait_for_run(engine.resume(files.id(), wish, host), &orders, &live).await
            }
        }
    });
    // Another terminal may have answered while this one shows an editor. A run that a signal ended does not wait for it.
    if live.borrow().view.outcome().is_some_and(|outcome| outcome != Outcome::Cancelled) {
        wait_for_terminal_program();
    }
    // A thread may still wait for a person's answer that is no longer needed.
    runtime.shutdown_background();
    {
        let mut live = live.borrow_mut();
        // The answer of a root agent is followed by the tree.
        let has_tree = showing.form == ResultFormat::Markdown && !showing.events;
        if has_tree && live.has_root_agent() {
            live.remove()
        } else {
            live.close()
        }
        live.notify_end();
    }
    if let Err(
        error @ (EngineError::NothingToResume(_) | EngineError::Lock(_) | EngineError::Context(_)),
    ) = &finished
    {
        // The run did nothing, so there is no result to show.
        return Err(engine_failure(error));
    }
    let view = std::mem::take(&mut live.borrow_mut().view);
    if let (Err(error @ EngineError::Refused(_)), None) = (&finished, view.run()) {
        // The whole call was refused: no run was started.
        return Err(engine_failure(error));
    }
    write_projections(archive, &view);
    if finished.is_ok() {
        record_samples(archive, &view, &ended.borrow());
    }
    Ok(ExecutedRun { view, finished })
}

/// Records what the delegations that ended in this process consumed. A failure changes nothing about the run.
fn record_samples(archive: &Archive, view: &RunView, ended: &BTreeSet<SessionId>) {
    let groups = sample_groups(view, ended);
    if let Err(error) = archive.registry().record_samples(groups) {
        let failure = Failure::from_error(Exit::Failed, &error);
        say(&format!(
            "adjutant: could not record what this run consumed, so later estimates do not include it: {failure}"
        ));
    }
}

/// Returns whether the root agent ended because its deadline passed.
fn ran_out_of_time(view: &RunView) -> bool {
    let reason = view.root().and_then(|root| root.reason.as_ref());
    reason.is_some_and(|reason| reason.code == ErrorCode::Timeout)
}

/// Writes the files that are derived from the journal: transcripts, and the project's `errors.json`.
pub(crate) fn write_projections(archive: &Archive, view: &RunView) {
    if let Some(run) = view.run() {
        write_transcripts(archive, view, run);
    }
    projections::keep_errors(view);
}

/// Writes transcripts beside the journal. A failure is only printed, because the results are shown anyway.
fn write_transcripts(archive: &Archive, view: &RunView, run: RunId) {
    let found = archive.find(&run.to_string());
    let written = found
        .map_err(|error| Failure::from_error(Exit::Failed, &error))
        .and_then(|(files, _)| projections::write(&files, view));
    if let Err(failure) = written {
        say(&format!("adjutant: cannot write transcripts: {failure}"));
    }
}

/// Describes the error that interrupted a run. The exit code is `Partial` if a task had completed before.
pub(crate) fn interrupted_failure(error: &EngineError, view: &RunView) -> Failure {
    let mut failure = engine_failure(error);
    if view.outcomes().completed > 0 {
        failure.exit = Exit::Partial;
    }
    match view.run() {
        Some(run) => failure.hint(format!(
            "{run} was interrupted; `adjutant result {run}` shows what was recorded."
        )),
        None if error.is_disk_full() => {
            failure.hint("Free space, or keep runs elsewhere with ADJUTANT_HOME or --home DIR.")
        }
        None => failure,
    }
}

/// Waits for the run, redraws the live view and turns signals into orders to the run.
async fn wait_for_run(
    run: impl Future<Output = Result<FinishedRun, EngineError>>,
    orders: &mpsc::Sender<ControlCommand>,
    live: &Rc<RefCell<LiveView>>,
) -> Result<FinishedRun, EngineError> {
    let mut run = std::pin::pin!(run);
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    // Without a handler, SIGXFSZ kills the process; with one, the write fails with an error.
    let mut continued = signal(SignalKind::from_raw(Signal::CONT.as_raw()))?;
    let _too_long = signal(SignalKind::from_raw(Signal::XFSZ.as_raw()))?;
    let mut redraw = tokio::time::interval(live::REDRAW_CHECK_INTERVAL);
    redraw.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut asked = false;
    loop {
        tokio::select! {
            // In this order: after a stop, the shell's lines must not be drawn over.
            biased;
            _ = continued.recv() => live.borrow_mut().continue_below(),
            finished = &mut run => return finished,
            _ = interrupt.recv() => if !live.borrow().is_silent() && !has_terminal_program() { cancel(&mut asked, orders, live) },
            // A repeated SIGTERM is ignored: the kernel sends one for each thread of an MCP server that exits.
            _ = terminate.recv() => if !asked { cancel(&mut asked, orders, live) },
            // The terminal is gone. An open question stays open, and `resume` asks it again.
            _ = hang_up.recv() => if is_asking() { exit_at_once() } else { cancel(&mut asked, orders, live) },
            // No `if` guard on this arm: `select!` evaluates guards once, before anything has started.
            _ = redraw.tick() => live.borrow_mut().redraw(),
        }
    }
}

fn exit_at_once() -> ! {
    say("adjutant: exiting now; everything recorded so far is kept");
    std::process::exit(i32::from(Exit::Cancelled.code()))
}

/// Cancels the run at the first signal; exits at once at the second.
fn cancel(asked: &mut bool, orders: &mpsc::Sender<ControlCommand>, live: &Rc<RefCell<LiveView>>) {
    live.borrow_mut().finish();
    if std::mem::replace(asked, true) {
        exit_at_once();
    }
    say("adjutant: cancelling; results so far are kept (press ctrl+c again to exit at once)");
    // A full channel already contains an order to cancel.
    let _ = orders.try_send(ControlCommand::CancelRun);
}

/// Prints the final answer of a parent agent, then the tree and the cost.
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
        let tree = tree::json(view, now, ProcessLiveness::Alive);
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
        }
        let results = CallResults::of_run(view);
        if !results.items().is_empty() {
            json["results"] = json!(results.json(&ResultOptions::default()).results);
        }
        return print_json(&json);
    }
    let said = Some(sanitize::block(&text).into_owned()).filter(|text| !text.is_empty());
    let came = command_end(view, program());
    // A reason that a task already shows is not repeated for the command.
    let (head, end) = (command_head(view), root_end(view).filter(|_| !ended_like_a_task(view)));
    let end = end.map(|text| text.trim_end().to_owned());
    let parts: Vec<String> = head.into_iter().chain(said).chain(end).chain(came).collect();
    print_markdown(&format!("{}\n", parts.join("\n\n").trim_end()))?;
    say_view(&format!(
        "\n{}",
        tree::render(view, now, ProcessLiveness::Alive, palette, table_columns(io::stderr()))
    ));
    CallResults::of_run(view).receipts().iter().for_each(|line| say(line));
    say(&total(view, now, ProcessLiveness::Alive));
    auto_approved_line(view).iter().for_each(|words| say(words));
    if let Some(files) = files {
        say(&format!("Transcripts in {}", transcripts(files).display()));
    }
    Ok(())
}

/// Returns whether the root ended for the same reason as one of its tasks, as when both were cancelled.
fn ended_like_a_task(view: &RunView) -> bool {
    let why = |it: &Delegation| it.reason.as_ref().map(|why| (why.code, why.message.clone()));
    let Some(root) = view.root() else { return false };
    root.reason.is_some() && view.children(root).any(|child| why(child) == why(root))
}

/// Prints results in the requested format.
pub(crate) fn show_results(
    view: &RunView,
    results: &CallResults<'_>,
    files: Option<&RunFiles>,
    form: ResultFormat,
    result_tokens: Option<u64>,
) -> Result<(), Failure> {
    // A running run, or one that refused everything, has no transcripts.
    let is_kept = |files: &&RunFiles| files.expiry() == adjutant_engine::Expiry::Kept;
    let folder = files.filter(is_kept).map(transcripts).filter(|folder| folder.is_dir());
    let kept = folder.is_some();
    let folder = folder.unwrap_or_default().display().to_string();
    let options = ResultOptions {
        result_tokens,
        transcripts: kept.then_some(folder.as_str()),
        is_rendered: pager::is_terminal() && !live::is_dumb(),
        program: Some(program()),
        ..ResultOptions::default()
    };
    match form {
        ResultFormat::Json => {
            let mut json = results.json(&options);
            json.auto_approved_usd = Some(view.auto_approved()).filter(|usd| *usd > Usd::ZERO);
            for result in &mut json.results {
                // A refused task has no transcript file.
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
            print_markdown(&text)
        }
    }
}

/// Returns the line about the cost that was approved automatically, if any was.
fn auto_approved_line(view: &RunView) -> Option<String> {
    let (total, limit) = (view.auto_approved(), view.approve_below());
    (total > Usd::ZERO)
        .then(|| format!("Approved without asking: {total} of {limit}, by the worst case"))
}

/// Returns the directory of a run's transcripts. It exists once there are any.
pub(crate) fn transcripts(files: &RunFiles) -> PathBuf {
    files.path().join("transcripts")
}

/// Renders results for the parent agent, from the same view that the person sees.
struct ResultNarrator {
    live: Rc<RefCell<LiveView>>,
    result_tokens: Option<u64>,
}

impl Narrator for ResultNarrator {
    fn results(&self, parent: SessionId, call: u32, form: ReturnFormat) -> String {
        results_for_agent(&self.live.borrow().view, (parent, call), form, self.result_tokens)
    }
}

/// Returns the results of a call as its agent is told them.
pub(crate) fn results_for_agent(
    view: &RunView,
    (parent, call): (SessionId, u32),
    form: ReturnFormat,
    result_tokens: Option<u64>,
) -> String {
    let results = CallResults::of(view, parent, Some(call));
    let options = ResultOptions { result_tokens, ..ResultOptions::default() };
    match form {
        ReturnFormat::Markdown => results.markdown(&options),
        ReturnFormat::Json => adjutant_view::wire::pretty(&results.json(&options)),
    }
}

/// Collects the delegations that ended, and tells an open prompt that its question was answered.
struct DelegationEndCollector(Rc<RefCell<BTreeSet<SessionId>>>);

impl Reporter for DelegationEndCollector {
    fn report(&mut self, _at: Timestamp, _wall_ms: u64, event: &Event) {
        note_answer(event);
        if let Event::Ended { session, .. } = event {
            self.0.borrow_mut().insert(*session);
        }
    }
}

/// Passes the engine's events to the live view that [`wait_for_run`] redraws.
struct LiveReporter(Rc<RefCell<LiveView>>);

impl Reporter for LiveReporter {
    fn report(&mut self, at: Timestamp, wall_ms: u64, event: &Event) {
        self.0.borrow_mut().take(TimedEvent::new(at, wall_ms, event));
    }

    fn show_text_end(&mut self, at: Timestamp, session: SessionId, text: &str) {
        self.0.borrow_mut().show_text_end(at, session, text);
    }

    fn replay(&mut self, at: Timestamp, wall_ms: u64, event: &Event) {
        self.0.borrow_mut().recall(TimedEvent::new(at, wall_ms, event));
    }
}
