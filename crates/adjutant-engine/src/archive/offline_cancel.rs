//! Cancelling a run whose process is gone, by appending the end to its journal.
//!
//! The journal is folded and the core decides the end. Of its effects only two are performed: work in
//! workspaces is kept, and the project's task list is updated.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use adjutant_core::workspace::OwnWorkspace;
use adjutant_core::{Command, Effect, Event, Outcome, SessionId, Timestamp, Tree};
use adjutant_store::{Durability, Journal, JournalRecord, RunDir};

use crate::engine::EngineError;
use crate::runner::changed_by;
use crate::runner::clock::wall_now;
use crate::runner::effects::marking;
use crate::workspaces::{RunWorkspaces, WorkspaceSetup};

/// What cancelling a run without its process came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OfflineCancel {
    /// The end was appended to the journal.
    Recorded,
    /// The journal already has an end.
    EndedBefore(Outcome),
}

/// Updates `ended` by `event`: the outcome of `session`, or of the whole run if it is `None`. Resuming
/// clears it.
pub(crate) fn track_end(ended: &mut Option<Outcome>, event: &Event, session: Option<SessionId>) {
    match (event, session) {
        (Event::RunEnded { outcome }, None) => *ended = Some(*outcome),
        (Event::Resumed { .. }, None) => *ended = None,
        (Event::Ended { session: of, outcome, .. }, Some(session)) if *of == session => {
            *ended = Some(*outcome);
        }
        (Event::Refused { session: of, .. }, Some(session)) if *of == session => {
            *ended = Some(Outcome::Refused);
        }
        (Event::Reopened(again), Some(session)) if again.session == session => *ended = None,
        _ => {}
    }
}

/// Ends a delegation and its descendants, or the whole run, in the journal of a run that is not live.
pub(crate) fn cancel(
    run: &RunDir,
    session: Option<SessionId>,
) -> Result<OfflineCancel, EngineError> {
    let lock = run.lock()?;
    let mut tree = Tree::default();
    let (mut at, mut ended, mut fits) = (Timestamp::ZERO, None, Ok(()));
    let mut workdir = PathBuf::new();
    let visit = |record: JournalRecord<Event>| {
        at = record.at;
        if let Event::RunStarted { workdir: path, .. } = &record.event {
            workdir = path.into();
        }
        track_end(&mut ended, &record.event, session);
        if fits.is_ok() {
            fits = tree.evolve(record.at, &record.event);
        }
    };
    let (journal, _) = lock.resume_journal(visit, |_| {})?;
    fits?;
    if let Some(outcome) = ended {
        return Ok(OfflineCancel::EndedBefore(outcome));
    }
    let target = session.unwrap_or_else(|| run.id().root_session());
    let is_live = tree.node(target).is_some_and(|node| node.is_live());
    // The process may have died after the root ended and before the run did.
    let first = if is_live || session.is_some() || tree.has_live_delegations() {
        Command::Cancel { session: target }
    } else {
        Command::EndRun
    };
    record(&mut tree, journal, at, first, run, &workdir)?;
    Ok(OfflineCancel::Recorded)
}

/// Keeps the work of ended delegations that is still in their workspaces.
fn keep_workspaces(tree: &Tree, run: &RunDir, workdir: &Path) -> Vec<Command> {
    let due: Vec<Effect> = tree.due_keeps().collect();
    if due.is_empty() {
        return Vec::new();
    }
    // A run's directory is `STATE/runs/ID`.
    let state = run.path().ancestors().nth(2).unwrap_or(workdir).to_owned();
    let setup = WorkspaceSetup::new(state);
    let spaces = setup.open(workdir, false);
    let spaces = spaces.map(|all| RunWorkspaces::new(all, setup, run.id(), wall_now));
    let kept = |session, space: &OwnWorkspace| match &spaces {
        Ok(spaces) => {
            spaces.keep(session, space, &message(tree, session), changed_by(tree, session))
        }
        Err(problem) => Err(problem.clone()),
    };
    due.into_iter()
        .filter_map(|effect| {
            let Effect::CommitWork { session, space } = effect else { return None };
            Some(Command::TakeKeptWork { session, kept: kept(session, &space) })
        })
        .collect()
}

fn message(tree: &Tree, session: SessionId) -> String {
    let label = tree.node(session).map(|node| node.label.to_string()).unwrap_or_default();
    crate::runner::message(&label, session)
}

/// Makes the updates of the project's task list that are due.
fn update_marks(tree: &Tree, workdir: &Path) -> Vec<Command> {
    let due = tree.due_marks().filter_map(|effect| {
        let Effect::UpdateTaskList { session, mark } = effect else { return None };
        let made = marking::make(workdir, wall_now, &mark);
        let problem = made.as_ref().err().cloned();
        Some(Command::TakeListUpdate { session, mark: made.unwrap_or(mark), problem })
    });
    due.collect()
}

fn record(
    tree: &mut Tree,
    mut journal: Journal<Event>,
    at: Timestamp,
    first: Command,
    run: &RunDir,
    workdir: &Path,
) -> Result<(), EngineError> {
    let wall_ms = wall_now();
    let mut commands = VecDeque::from([first]);
    while let Some(command) = commands.pop_front() {
        let events = tree.decide(at, command)?;
        let last = events.len().saturating_sub(1);
        for (nth, event) in events.iter().enumerate() {
            if nth < last {
                journal.stage_continued(at, wall_ms, event, Durability::Sync)?;
            } else {
                journal.stage(at, wall_ms, event, Durability::Sync)?;
            }
            tree.evolve(at, event)?;
        }
        // Queued delegations are not started here; the process that resumes the run does that.
        if commands.is_empty() {
            commands.extend(update_marks(tree, workdir));
            commands.extend(keep_workspaces(tree, run, workdir));
            commands.extend((!events.is_empty()).then_some(Command::EndRun));
        }
    }
    journal.close()?;
    Ok(())
}
