//! `undo`: restores the files that a run or a delegation changed in place.

use std::path::{Path, PathBuf};

use adjutant_core::undo::WorkLocation;
use adjutant_core::{Event, RunId, SessionId};
use adjutant_engine::specs::Specs;
use adjutant_engine::{
    Archive, ArchiveError, FileUndo, RunFiles, UndoError, UndoOutcome, UndoReport,
};
use adjutant_formats::task::{Task, TaskStatus};
use adjutant_view::sanitize;
use clap::Args;
use serde_json::{Value, json};

use crate::delegate::absolute;
use crate::exit::{Exit, Failure};
use crate::hints::program;
use crate::output::{print, print_json, say};
use crate::records::count_with_noun;
use crate::results::open_work;
use crate::run_lookup::{self, CommandVerb};

/// The arguments of `adjutant undo`, which restores the files that agents changed in place.
#[derive(Debug, Args)]
#[command(after_help = UNDO_HELP)]
pub(crate) struct UndoInPlaceArgs {
    /// The run or session: an id or its beginning, or a label or '#N' of the latest run [default: the latest run in
    /// this directory].
    #[arg(value_name = crate::args::NAME)]
    run: Option<String>,

    /// The directory whose latest run is used when none is named.
    #[arg(long, value_name = "DIR", default_value = ".")]
    root: PathBuf,

    /// Show what would be restored, and change nothing.
    #[arg(long)]
    dry_run: bool,
}

const UNDO_HELP: &str = "\
A file is restored only if it is exactly as the agents left it; files that changed since are listed and left
alone. Files that the agents created are deleted. The undo is recorded in the run. The task list does not change,
but tasks that link to a restored file, or that the run completed, are listed. Results in workspaces are not
touched: `adjutant discard` deletes them, and `adjutant merge --undo` undoes a merge.

Examples:
  adjutant undo --dry-run           what can be restored of the latest run in this directory
  adjutant undo run_1738326967_x1y2z3
  adjutant undo sess_1738326967_a1b2c3    the changes of one subagent and of everything below it";

/// Runs `adjutant undo`.
pub(crate) fn run_undo(
    archive: &Archive,
    args: &UndoInPlaceArgs,
    as_json: bool,
) -> Result<Exit, Failure> {
    let (files, session) =
        run_lookup::find_to_change(archive, args.run.as_deref(), &args.root, UNDO, |_| true)?;
    let session = session.filter(|session| *session != files.id().root_session());
    let undone = files.undo(session, args.dry_run).map_err(|error| undo_failure(&error))?;
    let UndoReport { files: undone, elsewhere } = undone;
    let root = files.workdir().unwrap_or_default();
    let WorkLocations { elsewhere, discarded, merged } =
        locate_work(archive, files.id(), &root, elsewhere);
    let linked = stale_tasks(&files, &root, &undone);
    if as_json {
        let files_json: Vec<Value> = undone.iter().map(as_object).collect();
        let session = session.map(|session| session.to_string());
        print_json(&json!({
            "v": 1, "run": files.id(), "session": session, "dry_run": args.dry_run,
            "root": root, "files": files_json,
            "elsewhere": elsewhere.iter().map(elsewhere_object).collect::<Vec<_>>(),
            "tasks": linked.iter().map(StaleTask::object).collect::<Vec<_>>(),
        }))?;
    } else {
        if absolute(&args.root).ok().as_ref() != Some(&root) {
            let folder = root.display().to_string();
            say(&format!("adjutant: {} worked in {}", files.id(), sanitize::line(&folder)));
        }
        let lines = undone.iter().map(|undo| line(undo, args.dry_run));
        print(&lines.collect::<String>())?;
        let unmerged = elsewhere.iter().filter(|(session, _)| !merged.contains(session));
        let told = unmerged.filter_map(|it| elsewhere_sentence(files.id(), it));
        let told = told.chain(merged.iter().map(|session| merged_sentence(*session)));
        let gone = discarded.iter().map(|session| {
            format!("adjutant: {session} changed nothing here, and its work was discarded")
        });
        let told: Vec<String> = told.chain(gone).collect();
        if !undone.is_empty() || told.is_empty() {
            say(&summary(&undone, args.dry_run));
        }
        told.iter().for_each(|sentence| say(sentence));
        linked.iter().for_each(|linked| say(&format!("adjutant: {}", linked.sentence())));
    }
    Ok(exit(&undone))
}

const UNDO: CommandVerb =
    CommandVerb { typed: "undo", noun: "run", has_anywhere: false, otherwise: "" };

/// A task whose entry in the task list is no longer true after the undo.
struct StaleTask {
    task: Task,
    /// The restored files that it links to.
    links: Vec<String>,
}

/// Finds tasks that link to restored files, or that the run completed.
fn stale_tasks(files: &RunFiles, root: &Path, undone: &[FileUndo]) -> Vec<StaleTask> {
    let back = |undo: &&FileUndo| matches!(undo.fate, UndoOutcome::PutBack | UndoOutcome::Removed);
    let back: Vec<&str> = undone.iter().filter(back).map(|undo| undo.path.as_str()).collect();
    // Without restored files or a task list there is nothing to report.
    let book = Some(root).filter(|_| !back.is_empty()).and_then(|root| {
        let specs = Specs::open(root).ok()?;
        specs.read().ok()
    });
    let Some(book) = book else { return Vec::new() };
    let worked_on = worked_on(files);
    let linked = |task: Task| {
        let links = task.artifacts.iter().filter(|path| back.contains(&path.as_str()));
        let links: Vec<String> = links.cloned().collect();
        let is_done = task.status == Some(TaskStatus::Completed);
        let is_meant = !links.is_empty() || (is_done && worked_on.contains(&task.number.get()));
        is_meant.then_some(StaleTask { task, links })
    };
    book.tasks().into_iter().filter_map(linked).collect()
}

/// Returns the tasks that a run was given.
fn worked_on(files: &RunFiles) -> Vec<u64> {
    let records = files.records().into_iter().flatten().map_while(Result::ok);
    let assigned = records.filter_map(|record| {
        let Event::Assigned(assignment) = record.event else { return None };
        Some(assignment.tasks)
    });
    assigned.flatten().collect()
}

impl StaleTask {
    fn object(&self) -> Value {
        json!({ "number": self.task.number, "status": self.task.status, "links": self.links })
    }

    fn sentence(&self) -> String {
        let number = self.task.number;
        let status = self.task.status.map_or("[?]", TaskStatus::marker);
        let links = sanitize::collapsed(&self.links.join(", "));
        let links = if links.is_empty() { links } else { format!(" and links {links}") };
        format!("task {number} is still {status}{links}")
    }
}

/// Where the work of delegations with workspaces is now.
#[derive(Default)]
struct WorkLocations {
    elsewhere: Vec<(SessionId, WorkLocation)>,
    /// Sessions whose work was discarded.
    discarded: Vec<SessionId>,
    /// Sessions whose work was merged into the files.
    merged: Vec<SessionId>,
}

/// Updates what the journal recorded: work may have been committed, discarded or merged later.
fn locate_work(
    archive: &Archive,
    run: RunId,
    root: &Path,
    recorded: Vec<(SessionId, WorkLocation)>,
) -> WorkLocations {
    let work = open_work(root, archive);
    // If git fails, only the journal counts.
    let Ok((work, kept)) = work.and_then(|work| work.results(run).map(|kept| (work, kept))) else {
        return WorkLocations { elsewhere: recorded, ..WorkLocations::default() };
    };
    let WorkLocations { elsewhere: mut now, mut discarded, mut merged } = WorkLocations::default();
    for (session, at) in recorded {
        let found = kept.iter().find(|it| it.session == Some(session));
        if found.is_some_and(|found| work.is_applied(&found.commit).unwrap_or(false)) {
            merged.push(session);
        }
        now.push(match (found, at) {
            (Some(found), _) => (session, WorkLocation::Kept(found.reference.clone())),
            (None, WorkLocation::Kept(_)) => {
                discarded.push(session);
                (session, WorkLocation::Nowhere)
            }
            (None, at @ (WorkLocation::Workspace | WorkLocation::Nowhere)) => (session, at),
        });
    }
    WorkLocations { elsewhere: now, discarded, merged }
}

/// Describes how to undo a merge.
fn merged_sentence(session: SessionId) -> String {
    format!(
        "adjutant: the work of {session} was merged into the files: `{} merge --undo {session}` undoes that",
        program()
    )
}

fn elsewhere_object((session, at): &(SessionId, WorkLocation)) -> Value {
    let reference = match at {
        WorkLocation::Kept(reference) => Some(reference),
        WorkLocation::Workspace | WorkLocation::Nowhere => None,
    };
    json!({ "session": session, "reference": reference })
}

/// Describes where the work of a workspace is; `None` if there is none.
fn elsewhere_sentence(run: RunId, (session, at): &(SessionId, WorkLocation)) -> Option<String> {
    match at {
        WorkLocation::Kept(reference) => Some(format!(
            "adjutant: {session} changed nothing here: its work is in {reference}; `adjutant discard {session}` \
             drops it"
        )),
        WorkLocation::Workspace => Some(format!(
            "adjutant: {session} changed nothing here: its work is in a workspace and not committed yet; \
             `adjutant prune` commits it as it is, `adjutant resume {run}` continues what was interrupted"
        )),
        WorkLocation::Nowhere => None,
    }
}

fn undo_failure(error: &UndoError) -> Failure {
    let failure = Failure::from_error(Exit::Failed, error);
    match error {
        UndoError::Archive(ArchiveError::Live(run)) => failure
            .hint(format!("End it with `adjutant cancel {run}`, or wait until it has ended.")),
        UndoError::Archive(ArchiveError::Expired(_)) => {
            failure.hint("The run was pruned, and with it the earlier contents of its files.")
        }
        UndoError::Archive(_) | UndoError::NeverBegan => failure,
        UndoError::Workdir { .. } => {
            failure.hint("Files are restored in the directory where the run changed them, so that directory must exist.")
        }
    }
}

fn is_left(undo: &FileUndo) -> bool {
    matches!(undo.fate, UndoOutcome::Differs | UndoOutcome::Failed(_))
}

fn exit(undone: &[FileUndo]) -> Exit {
    let left = undone.iter().filter(|undo| is_left(undo)).count();
    match left {
        0 => Exit::Completed,
        all if all == undone.len() => Exit::Failed,
        _ => Exit::Partial,
    }
}

const fn word(fate: &UndoOutcome) -> &'static str {
    match fate {
        UndoOutcome::PutBack => "put_back",
        UndoOutcome::Removed => "removed",
        UndoOutcome::Unchanged => "unchanged",
        UndoOutcome::Differs => "differs",
        UndoOutcome::Failed(_) => "failed",
    }
}

fn as_object(undo: &FileUndo) -> Value {
    let mut object = json!({ "path": undo.path, "fate": word(&undo.fate) });
    if let UndoOutcome::Failed(reason) = &undo.fate {
        object["reason"] = json!(reason);
    }
    object
}

fn line(undo: &FileUndo, dry_run: bool) -> String {
    let path = sanitize::line(&undo.path);
    match (&undo.fate, dry_run) {
        (UndoOutcome::PutBack, false) => format!("put back   {path}\n"),
        (UndoOutcome::PutBack, true) => format!("would put back  {path}\n"),
        (UndoOutcome::Removed, false) => format!("removed    {path}\n"),
        (UndoOutcome::Removed, true) => format!("would remove    {path}\n"),
        (UndoOutcome::Unchanged, _) => format!("unchanged  {path}: it is as it was before\n"),
        (UndoOutcome::Differs, _) => {
            format!("left       {path}: it was changed after the run\n")
        }
        (UndoOutcome::Failed(reason), _) => {
            format!("left       {path}: {}\n", sanitize::line(reason))
        }
    }
}

fn summary(undone: &[FileUndo], dry_run: bool) -> String {
    if undone.is_empty() {
        return "Nothing was changed, so there is nothing to restore".to_owned();
    }
    let left = undone.iter().filter(|undo| is_left(undo)).count();
    let same = undone.iter().filter(|undo| undo.fate == UndoOutcome::Unchanged).count();
    let done = undone.len() - left - same;
    let verb = if dry_run { "would be put back or removed" } else { "put back or removed" };
    let mut text = format!("{} {verb}", count_with_noun(done, "file"));
    if left > 0 {
        text += &format!(", {left} left alone");
    }
    text
}
