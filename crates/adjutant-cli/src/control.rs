//! `cancel`, `wait` and `tell`: control a live run from any terminal.

use std::path::Path;
use std::time::{Duration, Instant};

use adjutant_core::{DelegationState, ErrorCode, Outcome, RunId, SessionId};
use adjutant_engine::{Archive, CancelOutcome, ControlError, RunFiles, RunLiveness};
use adjutant_view::results::resume_command;
use adjutant_view::{RunView, TimedEvent};
use rustix::process::Signal as UnixSignal;
use serde_json::json;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::args::{CancelRunArgs, TellAgentArgs, WaitForRunArgs};
use crate::checks::read_stdin;
use crate::execute::is_unfinished;
use crate::exit::{Exit, Failure};
use crate::hints::{advise, advise_commands};
use crate::live::LiveView;
use crate::output::{print, print_json, say};
use crate::projections;
use crate::records::{ViewDetail, archive_failure, fold, now};
use crate::resume;
use crate::run_lookup::{self, CommandVerb};

/// How often `wait` reads the files of a run.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Runs `adjutant cancel`.
pub(crate) fn run_cancel(
    archive: &Archive,
    args: &CancelRunArgs,
    as_json: bool,
) -> Result<Exit, Failure> {
    let named = run_lookup::typed_name(args.run.as_deref());
    if named.is_none() && !archive.runs().map_err(archive_failure)?.iter().any(is_live) {
        return Err(Failure::usage("no run is in progress").hint(LISTS));
    }
    let (files, session) = run_lookup::find_to_change(archive, named, &args.root, CANCEL, is_live)?;
    let target = ControlTarget::new(&files, session);
    let cancelled = if files.runtime().is_some() && !is_live(&files) {
        let session = session.filter(|session| *session != files.id().root_session());
        let view = resume::cancel_on_cluster(archive, files.clone(), session)?;
        match target.outcome_in(&view).filter(|outcome| *outcome != Outcome::Cancelled) {
            Some(outcome) => CancelOutcome::EndedBefore(outcome),
            None => CancelOutcome::ByItsProcess,
        }
    } else {
        files.cancel(target.session).map_err(|error| target.control_failure(&error))?
    };
    let (how, pid, state) = match cancelled {
        CancelOutcome::ByItsProcess => ("obeyed", None, Outcome::Cancelled),
        CancelOutcome::Killed { pid } => ("killed", Some(pid), Outcome::Cancelled),
        CancelOutcome::Recorded => ("recorded", None, Outcome::Cancelled),
        CancelOutcome::EndedBefore(outcome) => ("ended_before", None, outcome),
    };
    if let CancelOutcome::Killed { .. } | CancelOutcome::Recorded = cancelled {
        write_projections(&files);
        target.say_stopped(pid);
    }
    if as_json {
        print_json(&json!({
            "v": 1, "run": target.run, "session": target.session, "state": state, "how": how,
            "pid": pid,
        }))?;
    } else if let CancelOutcome::EndedBefore(_) = cancelled {
        print(&format!("{target} had already ended: {}\n", state.word()))?;
    } else {
        print(&format!("{target} cancelled\n"))?;
        let (view, _) = fold(&files, ViewDetail::Numbers)?;
        if target.session.is_none() && is_unfinished(&view, &files) {
            let command = format!("`{}`", resume_command(&view, target.run, "adjutant"));
            advise_commands(&[(command, "continues what is unfinished")]);
        }
    }
    Ok(Exit::Completed)
}

/// Writes the transcripts and `errors.json` that the killed process of the run can no longer write.
fn write_projections(files: &RunFiles) {
    let written = fold(files, ViewDetail::Texts).and_then(|(view, _)| {
        projections::keep_errors(&view);
        projections::write(files, &view)
    });
    if let Err(failure) = written {
        say(&format!("adjutant: {failure}"));
    }
}

/// Runs `adjutant wait`. The exit code is that of the run.
pub(crate) fn run_wait(
    archive: &Archive,
    args: &WaitForRunArgs,
    as_json: bool,
) -> Result<Exit, Failure> {
    let scope = args.scope.scope();
    let (files, session) =
        run_lookup::find_in_scope(archive, args.run.as_deref(), scope, WAIT, is_live)?;
    let target = ControlTarget::new(&files, session);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let ending = runtime.and_then(|runtime| {
        runtime.block_on(async {
            let mut continued = signal(SignalKind::from_raw(UnixSignal::CONT.as_raw()))?;
            Ok(follow(&files, &target, args.timeout, &mut continued).await)
        })
    });
    let ending =
        ending.map_err(|error| Failure::new(Exit::Failed, format!("cannot wait: {error}")))??;
    let (exit, state) = match ending {
        WaitEnding::Ended(outcome) => (Exit::of(outcome), outcome.word()),
        WaitEnding::Interrupted => (Exit::Partial, "interrupted"),
        WaitEnding::NeverBegan => (Exit::Failed, "never_began"),
        WaitEnding::TimedOut => (Exit::TimedOut, "running"),
    };
    if as_json {
        print_json(&json!({
            "v": 1, "run": target.run, "session": target.session, "state": state,
            "exit": exit.code(),
        }))?;
    } else {
        print(&format!("{target} {}\n", state.replace('_', " ")))?;
    }
    match ending {
        WaitEnding::Ended(_) => {}
        WaitEnding::Interrupted => advise(&target.interrupted()),
        WaitEnding::NeverBegan => advise(
            "adjutant: its process died before the first step; there is nothing to resume\n  \
             `adjutant prune` removes what is left of it.",
        ),
        WaitEnding::TimedOut => {
            advise(&format!(
                "adjutant: the timeout passed and it is still running; `adjutant wait {target}` waits again"
            ));
        }
    }
    Ok(exit)
}

/// Why `wait` returned.
#[derive(Clone, Copy)]
enum WaitEnding {
    Ended(Outcome),
    Interrupted,
    NeverBegan,
    TimedOut,
}

/// Follows the files of a run until it ends, its process is gone, or the timeout passes.
async fn follow(
    files: &RunFiles,
    target: &ControlTarget,
    timeout: Option<Duration>,
    continued: &mut Signal,
) -> Result<WaitEnding, Failure> {
    // A timeout beyond the range of `Instant` means no timeout.
    let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let mut live = LiveView::watching();
    let mut follow = files.follow();
    let mut joined = false;
    let ending = loop {
        // Checked before reading the journal: a run that ends in between must not look interrupted.
        let life = files.liveness().map_err(archive_failure)?;
        let mut take = |view: &mut LiveView| {
            follow.read_new(|record| {
                view.take(TimedEvent::new(record.at, record.wall_ms, &record.event));
            })
        };
        take(&mut live).map_err(archive_failure)?;
        if !std::mem::replace(&mut joined, true) {
            live.set_run_age(now(files, &live.view));
        }
        if let Some(outcome) = target.outcome_in(&live.view) {
            break WaitEnding::Ended(outcome);
        }
        if life == RunLiveness::Dead {
            let began = live.view.run().is_some();
            break if began { WaitEnding::Interrupted } else { WaitEnding::NeverBegan };
        }
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            break WaitEnding::TimedOut;
        }
        live.redraw();
        tokio::select! {
            biased;
            // The shell's lines must not be drawn over.
            _ = continued.recv() => live.continue_below(),
            () = tokio::time::sleep(left.map_or(POLL_INTERVAL, |left| left.min(POLL_INTERVAL))) => {}
        }
    };
    live.close();
    Ok(ending)
}

/// Runs `adjutant tell`: sends a message to a running agent.
pub(crate) fn run_tell(
    archive: &Archive,
    args: &TellAgentArgs,
    as_json: bool,
) -> Result<Exit, Failure> {
    let named = Some(args.session.as_str());
    let (files, session) =
        run_lookup::find_to_change(archive, named, Path::new("."), TELL, is_live)?;
    let session = session.unwrap_or_else(|| files.id().root_session());
    let text = if args.text == "-" { read_stdin()? } else { args.text.clone() };
    let bytes = text.len();
    let target = ControlTarget::new(&files, Some(session));
    files.tell(session, text).map_err(|error| target.control_failure(&error))?;
    if as_json {
        print_json(&json!({ "v": 1, "run": files.id(), "session": session, "bytes": bytes }))?;
    } else {
        print(&format!("{session} gets it before its next turn\n"))?;
    }
    Ok(Exit::Completed)
}

/// The run or delegation that a command controls.
struct ControlTarget {
    run: RunId,
    /// A delegation below the root; `None` for the whole run.
    session: Option<SessionId>,
    /// Where the run is decided, if that is not its process here.
    runtime: Option<String>,
}

impl std::fmt::Display for ControlTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.session {
            Some(session) => session.fmt(f),
            None => self.run.fmt(f),
        }
    }
}

impl ControlTarget {
    fn new(files: &RunFiles, session: Option<SessionId>) -> Self {
        let run = files.id();
        let session = session.filter(|session| *session != run.root_session());
        Self { run, session, runtime: files.runtime() }
    }

    fn outcome_in(&self, view: &RunView) -> Option<Outcome> {
        let Some(session) = self.session else { return view.outcome() };
        match view.delegation(session)?.state {
            DelegationState::Ended(outcome) => Some(outcome),
            DelegationState::AwaitingApproval
            | DelegationState::Queued
            | DelegationState::Running => None,
        }
    }

    /// Prints what happened to the process, and how to resume the rest of its run.
    fn say_stopped(&self, pid: Option<u32>) {
        match pid {
            Some(pid) => say(&format!(
                "adjutant: process {pid} did not answer and was killed; the end is recorded"
            )),
            None => say("adjutant: its process was gone; the end is recorded"),
        }
        if self.session.is_some() {
            advise(&format!("  `adjutant resume {}` continues the rest of the run.", self.run));
        }
    }

    fn interrupted(&self) -> String {
        let run = self.run;
        match &self.runtime {
            Some(runtime) => format!(
                "adjutant: no process here follows it, and it may go on at {runtime}\n  \
                 `adjutant resume {run}` follows it until it ends, `adjutant cancel {run}` ends it."
            ),
            None => format!(
                "adjutant: the process that ran it is gone\n  `adjutant resume {run}` continues it, \
                 `adjutant cancel {run}` ends it."
            ),
        }
    }

    /// Turns an error of a control command into a failure that says what to do.
    fn control_failure(&self, error: &ControlError) -> Failure {
        let run = self.run;
        match error {
            ControlError::Refused(complaint) => {
                let is_bad = complaint.code == ErrorCode::ValidationFailed;
                let exit = if is_bad { Exit::Usage } else { Exit::Refused };
                Failure::new(exit, error.to_string()).hint(&complaint.recommendation)
            }
            ControlError::NotLive => match &self.runtime {
                Some(runtime) => {
                    let text = format!("no process here follows {run}, which may go on at {runtime}");
                    Failure::new(Exit::Refused, text).hint(format!(
                        "`adjutant resume {run}` follows it until it ends, and passes messages on meanwhile."
                    ))
                }
                None => Failure::new(Exit::Refused, format!("{run} is not in progress"))
                    .hint(format!("`adjutant status {run}` shows its state.")),
            },
            ControlError::NotConfirmed => Failure::from_error(Exit::Failed, error)
                .hint(format!("`adjutant resume {}` follows it again.", self.run)),
            ControlError::NeverBegan => {
                Failure::usage(format!("nothing to cancel: {run} never began"))
                    .hint("`adjutant prune` removes what is left of it.")
            }
            ControlError::Silent(_) => Failure::from_error(Exit::Failed, error).hint(format!(
                "The process may be suspended or busy, and act on this later. `adjutant cancel {run}` ends \
                     the run in any case."
            )),
            ControlError::Unseen | ControlError::Kill(_) | ControlError::Stays(_) => {
                Failure::from_error(Exit::Failed, error)
                    .hint("Try again as the same user, on the host or in the container where the run was started.")
            }
            ControlError::Archive(_) | ControlError::Record(_) => {
                Failure::from_error(Exit::Failed, error)
            }
        }
    }
}

const LISTS: &str = "`adjutant status` lists the runs; name one to end it.";

/// Returns whether a live process works on a run. An unreadable lock counts as not live, so that it does not hide other
/// runs.
fn is_live(files: &RunFiles) -> bool {
    matches!(files.liveness(), Ok(RunLiveness::Live { .. }))
}

const CANCEL: CommandVerb =
    CommandVerb { typed: "cancel", noun: "live run", has_anywhere: false, otherwise: "" };

/// What to type instead for a subagent that has ended.
const GO_ON_AFTER_END: &str =
    " A subagent that has ended goes on with `adjutant resume SESSION --say`.";

const TELL: CommandVerb = CommandVerb {
    typed: "tell",
    noun: "live run",
    has_anywhere: false,
    otherwise: GO_ON_AFTER_END,
};

const WAIT: CommandVerb =
    CommandVerb { typed: "wait", noun: "run", has_anywhere: true, otherwise: "" };
