//! Runs the engine on a thread of its own, so that the futures of this crate are `Send`.
//!
//! The engine's loop is single-threaded by design. The thread has a small tokio runtime; events, commands and the report
//! cross over channels. Start at [`spawn`].

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::thread;

use adjutant_core::schema::{ReturnFormat, TaskSpec};
use adjutant_core::{Event, RunId, SessionId, Timestamp};
use adjutant_engine::{
    ControlCommand, FinishedRun, Narrator, Reporter, ResumeRequest, RunFiles, RunHost, Storage,
};
use adjutant_view::results::{CallResults, ResultOptions};
use adjutant_view::{RunView, TimedEvent, events};
use tokio::sync::{mpsc, oneshot, watch};

use crate::builder::DelegationSetup;
use crate::{Error, LiveRun, ProgressEvent, ProgressKind, Report, advice};

/// Threads for tools. File tools take microseconds; commands wait outside.
const TOOL_THREADS: usize = 4;

/// What the thread works on.
pub(crate) enum RunRequest {
    Tasks(Vec<TaskSpec>),
    Resume(RunFiles),
}

/// Starts a run.
pub(crate) fn spawn(
    setup: Arc<DelegationSetup>,
    id: RunId,
    request: RunRequest,
) -> Result<LiveRun, Error> {
    let (event_sender, events) = mpsc::channel(LiveRun::MAX_WAITING_EVENTS);
    let (command_sender, commands) = mpsc::channel(LiveRun::MAX_WAITING_COMMANDS);
    let (is_cancelled, cancellation) = watch::channel(false);
    let (report_sender, report) = oneshot::channel();
    let work = move || {
        let queue = CommandQueue { commands, cancellation };
        let report = run_to_end(&setup, id, request, event_sender, queue);
        // Without a receiver the program has dropped the run.
        let _ = report_sender.send(report);
    };
    thread::Builder::new().name("adjutant-run".to_owned()).spawn(work).map_err(Error::Thread)?;
    Ok(LiveRun { id, events, commands: command_sender, is_cancelled, report: Some(report) })
}

/// What the program wants of a live run.
struct CommandQueue {
    commands: mpsc::Receiver<ControlCommand>,
    cancellation: watch::Receiver<bool>,
}

impl CommandQueue {
    /// Passes commands to the run loop until the run is cancelled, has ended, or the program has dropped its end.
    async fn forward(mut self, control: mpsc::Sender<ControlCommand>) {
        loop {
            let command = tokio::select! {
                biased;
                cancelled = self.cancellation.wait_for(|it| *it) => match cancelled {
                    Ok(_) => ControlCommand::CancelRun,
                    Err(_) => return,
                },
                Some(command) = self.commands.recv() => command,
            };
            let is_last = matches!(command, ControlCommand::CancelRun);
            if control.send(command).await.is_err() || is_last {
                return;
            }
        }
    }
}

fn run_to_end(
    setup: &DelegationSetup,
    id: RunId,
    request: RunRequest,
    events: mpsc::Sender<ProgressEvent>,
    queue: CommandQueue,
) -> Result<Report, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(TOOL_THREADS)
        .build()
        .map_err(Error::Thread)?;
    let view = Rc::new(RefCell::new(RunView::default()));
    // The queue of the program is the one with room; a second one would only hide when that is full.
    let (control_sender, control) = mpsc::channel(1);
    runtime.spawn(queue.forward(control_sender));
    let host = |storage: Storage| RunHost {
        storage,
        approver: Arc::clone(&setup.approver),
        reporters: vec![Box::new(ProgressReporter { view: Rc::clone(&view), events })],
        narrator: Rc::new(ResultNarrator(Rc::clone(&view), setup.policy.result_tokens)),
        control,
    };
    let finished = runtime.block_on(async {
        match request {
            RunRequest::Tasks(tasks) => {
                let engine = setup.engine(None)?.with_run_id(id);
                let briefs = engine.briefs(&tasks);
                Ok(engine.delegate(briefs, None, host(setup.archive.storage())).await?)
            }
            RunRequest::Resume(files) => resume(setup, &files, &view, host).await,
        }
    });
    // A thread may still wait for an approval that is no longer needed.
    runtime.shutdown_background();
    let FinishedRun { run, outcome, folder } = finished?;
    let report = Report::of(&view.borrow(), run, outcome, folder);
    Ok(report)
}

async fn resume(
    setup: &DelegationSetup,
    files: &RunFiles,
    view: &RefCell<RunView>,
    host: impl FnOnce(Storage) -> RunHost,
) -> Result<FinishedRun, Error> {
    let journal = files.read()?;
    let never_began = || Error::NothingToResume(files.id().to_string());
    let past = journal.resume_info().ok_or_else(never_began)?;
    if past.nothing.is_some() {
        let mut view = view.borrow_mut();
        for record in journal.records() {
            view.apply(TimedEvent::new(record.at, record.wall_ms, &record.event));
        }
        let outcome = view.outcome().ok_or_else(never_began)?;
        let folder = Some(files.path().to_owned());
        return Ok(FinishedRun { run: files.id(), outcome, folder });
    }
    let engine = setup.engine(Some(&past.workdir))?;
    let host = host(files.storage_read(journal));
    Ok(engine.resume(files.id(), ResumeRequest::default(), host).await?)
}

/// Folds events into the view and passes them to the program.
struct ProgressReporter {
    view: Rc<RefCell<RunView>>,
    events: mpsc::Sender<ProgressEvent>,
}

impl Reporter for ProgressReporter {
    fn report(&mut self, at: Timestamp, wall_ms: u64, event: &Event) {
        let entry = TimedEvent::new(at, wall_ms, event);
        self.view.borrow_mut().apply(entry);
        if self.events.is_closed() {
            return;
        }
        for mut progress in events::translate(&self.view.borrow(), &entry) {
            if let ProgressKind::Refused { recommendation, .. } = &mut progress.what {
                *recommendation = advice::reworded(recommendation);
            }
            // A program that reads too slowly misses events; the report has everything.
            let _ = self.events.try_send(progress);
        }
    }

    fn replay(&mut self, at: Timestamp, wall_ms: u64, event: &Event) {
        self.view.borrow_mut().apply(TimedEvent::new(at, wall_ms, event));
    }
}

/// Formats the results of delegated tasks for an agent that delegated them.
struct ResultNarrator(Rc<RefCell<RunView>>, Option<u64>);

impl Narrator for ResultNarrator {
    fn results(&self, parent: SessionId, call: u32, form: ReturnFormat) -> String {
        let view = self.0.borrow();
        let results = CallResults::of(&view, parent, Some(call));
        let options = ResultOptions { result_tokens: self.1, ..ResultOptions::default() };
        match form {
            ReturnFormat::Markdown => results.markdown(&options),
            ReturnFormat::Json => adjutant_view::wire::pretty(&results.json(&options)),
        }
    }
}
