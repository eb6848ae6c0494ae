//! The commands that read recorded runs: `status`, `tree`, `result`, `transcript`, `log`; and `prune`.
//!
//! They read journals only and never contact the process of a run. Start at [`fold`].

use std::io::IsTerminal;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use adjutant_core::{Conversation, DelegationState, RunId, SessionId, Timestamp};
use adjutant_engine::results::disk_usage;
use adjutant_engine::{
    Archive, ArchiveError, Expiry, JournalFollower, LoadedJournal, PruneOutcome, RunFiles,
    RunLiveness, wall_now,
};
use adjutant_view::results::{CallResults, root_end, synthesis};
use adjutant_view::status::{self, ContentRetention, ObservedRun, StatusJson};
use adjutant_view::transcript::Transcript;
use adjutant_view::{
    Delegation, Palette, ProcessLiveness, RunView, TimedEvent, delegations, log, sanitize, tree,
};
use serde::Serialize;
use serde_json::{Value, json};

use crate::args::{
    LogArgs, PruneRunsArgs, ResultArgs, ResultFormat, RunArg, ScopeFlag, StatusArgs,
};
use crate::delegate::absolute;
use crate::execute::{show_results, transcripts};
use crate::exit::{Exit, Failure};
use crate::hints::{advise, program};
use crate::live::{columns, palette};
use crate::output::{
    has_no_reader, json_line, print, print_json, print_markdown, say, write_stdout,
};
use crate::pager;
use crate::projections;
use crate::results::{disk_usage_json, disk_usage_text, prune_merges, prune_results};
use crate::run_lookup::{self, CommandVerb, ProjectTree};
use crate::run_summaries::run_workdirs;

/// The version of the views in checkpoints. Increase it when the fields of [`RunView`] change.
const FOLD_VERSION: u32 = 15;

/// A run that was found, with its folded journal.
pub(crate) struct FoundRun {
    pub(crate) files: RunFiles,
    pub(crate) view: RunView,
    pub(crate) session: Option<SessionId>,
    liveness: ProcessLiveness,
}

impl FoundRun {
    fn read(
        (files, session): (RunFiles, Option<SessionId>),
        need: ViewDetail,
    ) -> Result<Self, Failure> {
        let (view, liveness) = fold(&files, need)?;
        Ok(Self { files, view, session, liveness })
    }

    fn now(&self) -> Timestamp {
        now(&self.files, &self.view)
    }

    fn observed(&self) -> ObservedRun<'_> {
        observe_run(&self.view, self.liveness, &self.files)
    }
}

/// How much of a run is read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ViewDetail {
    /// Tree, states and costs, from a checkpoint if there is one.
    Numbers,
    /// Findings and messages too, from the whole journal. Checkpoints do not contain them.
    Texts,
}

/// Combines a view with what the files say about the run.
pub(crate) fn observe_run<'a>(
    view: &'a RunView,
    liveness: ProcessLiveness,
    files: &RunFiles,
) -> ObservedRun<'a> {
    let content = match files.expiry() {
        Expiry::Kept => ContentRetention::Kept,
        Expiry::Expired => ContentRetention::Expired,
    };
    ObservedRun { view, liveness, now: now(files, view), content, program: program() }
}

/// Runs `adjutant status`.
pub(crate) fn run_status(
    archive: &Archive,
    args: &StatusArgs,
    as_json: bool,
) -> Result<Exit, Failure> {
    if args.tree {
        return run_tree(archive, &RunArg { run: args.run.clone() }, as_json);
    }
    let Some(text) = &args.run else { return list(archive, args, as_json) };
    // Only the JSON output contains every note and file.
    let found =
        find(archive, Some(text), if as_json { ViewDetail::Texts } else { ViewDetail::Numbers })?;
    if as_json {
        print_json(&status::detail_json(&found.observed(), found.session))?
    } else {
        print(&status::detail(&found.observed(), found.session, colours()))?
    }
    Ok(Exit::Completed)
}

/// What `adjutant status --json` prints without a run.
#[derive(Serialize)]
struct RunListJson {
    #[serde(flatten)]
    list: StatusJson,
    disk: Value,
}

fn list(archive: &Archive, args: &StatusArgs, as_json: bool) -> Result<Exit, Failure> {
    let mut views = Vec::new();
    let mut unreadable = 0;
    let mut runs = if args.here {
        let tree = ProjectTree::around(&absolute(Path::new("."))?);
        let in_tree = run_workdirs(archive)?.into_iter().filter(|(_, workdir)| tree.has(workdir));
        in_tree.map(|(files, _)| files).collect()
    } else {
        archive.runs().map_err(archive_failure)?
    };
    let (all, most) = (runs.len(), if args.all { usize::MAX } else { args.number });
    // A live run is listed even if many runs started after it.
    let is_live = |files: &RunFiles| matches!(files.liveness(), Ok(RunLiveness::Live { .. }));
    let mut places = 0..runs.len();
    runs.retain(|files| {
        let place = places.next().unwrap_or(usize::MAX);
        place < most || (place < SEARCHED_FOR_LIVE && is_live(files))
    });
    for files in runs {
        // A damaged run must not hide the others.
        match fold(&files, ViewDetail::Numbers) {
            Ok((view, liveness)) => views.push((view, liveness, files)),
            Err(failure) => {
                unreadable += 1;
                say(&format!("adjutant: {failure}"));
            }
        }
    }
    let mut looks: Vec<ObservedRun<'_>> =
        views.iter().map(|(view, liveness, files)| observe_run(view, *liveness, files)).collect();
    // Stable, so that the newest run stays first within its kind.
    looks.sort_by_key(status::urgency);
    if as_json {
        let disk = disk_usage_json(disk_usage(archive.path()));
        print_json(&RunListJson { list: status::list_json(&looks), disk })?;
    } else if looks.is_empty() && unreadable > 0 {
        advise(&format!(
            "{} cannot be read. `adjutant log RUN` shows one as far as it goes; `adjutant prune` \
             removes what never began.",
            count_with_noun(unreadable, "run")
        ));
    } else if looks.is_empty() && args.here {
        say("No runs in this directory. `adjutant status` lists the runs of all directories.");
    } else if looks.is_empty() {
        say("No runs yet. `adjutant demo` makes one.");
    } else {
        print(&status::table(&looks, wall_now(), list_columns()))?;
        let left_out = all.saturating_sub(looks.len() + unreadable);
        if left_out > 0 {
            say(&format!(
                "{} not shown; -n N or --all shows more",
                count_with_noun(left_out, "older run")
            ));
        }
        if let Some(used) = disk_usage_text(disk_usage(archive.path())) {
            say(&format!("Disk space: {used}"));
        }
    }
    Ok(Exit::Completed)
}

/// Returns the width of lists: that of the terminal. A pipe gets wide lines, which a program can cut itself.
pub(crate) fn list_columns() -> usize {
    if pager::is_terminal() { pager::columns() } else { PIPE_COLUMNS }
}

/// Returns the width of tables on another output.
pub(crate) fn table_columns(output: impl AsFd + IsTerminal) -> usize {
    if output.is_terminal() { columns(output) } else { PIPE_COLUMNS }
}

const PIPE_COLUMNS: usize = 160;

/// How many of the newest runs are searched for live ones that are not among the listed.
const SEARCHED_FOR_LIVE: usize = 200;

/// Runs `adjutant tree`.
pub(crate) fn run_tree(archive: &Archive, run: &RunArg, as_json: bool) -> Result<Exit, Failure> {
    let found = find(archive, run.run.as_deref(), ViewDetail::Numbers)?;
    let (view, now, liveness) = (&found.view, found.now(), found.liveness);
    if as_json {
        print_json(&tree::json(view, now, liveness))?;
    } else {
        print(&tree::render(view, now, liveness, colours(), list_columns()))?;
        say_how_to_resume(&found.observed());
    }
    Ok(Exit::Completed)
}

/// Runs `adjutant result`. The exit code is that of the run.
pub(crate) fn run_result(
    archive: &Archive,
    args: &ResultArgs,
    as_json: bool,
) -> Result<Exit, Failure> {
    let found = find_in_scope(archive, &args.run, args.scope, RESULT, ViewDetail::Texts)?;
    let root = found.view.run().map(RunId::root_session);
    let one = found.session.filter(|session| Some(*session) != root);
    let results = match one.and_then(|session| found.view.delegation(session)) {
        Some(delegation) => CallResults::of_one(&found.view, delegation),
        None => CallResults::of_run(&found.view),
    };
    let results = results.with_liveness(found.liveness, found.observed().content, program());
    if found.liveness == ProcessLiveness::Dead {
        render_missing(&found);
    }
    let form = args.return_form.unwrap_or(if as_json {
        ResultFormat::Json
    } else {
        ResultFormat::Markdown
    });
    let synthesis = synthesis(&found.view);
    if one.is_none() && form == ResultFormat::Markdown && !synthesis.is_empty() {
        print_markdown(&format!("{}\n\n", sanitize::block(&synthesis)))?;
    }
    if let (None, ResultFormat::Markdown, Some(end)) = (one, form, root_end(&found.view)) {
        print_markdown(&format!("{end}\n"))?;
    }
    show_results(&found.view, &results, Some(&found.files), form, None)?;
    let outcome = match one.and_then(|session| found.view.delegation(session)) {
        Some(delegation) => match &delegation.state {
            DelegationState::Ended(outcome) => Some(*outcome),
            DelegationState::AwaitingApproval
            | DelegationState::Queued
            | DelegationState::Running => None,
        },
        None => found.view.outcome(),
    };
    Ok(outcome.map_or(Exit::Partial, Exit::of))
}

/// Writes the transcripts of a run whose process died before it could, because results name them.
fn render_missing(found: &FoundRun) {
    if found.files.expiry() == Expiry::Kept
        && !transcripts(&found.files).is_dir()
        && let Err(failure) = projections::write(&found.files, &found.view)
    {
        say(&format!("adjutant: {failure}"));
    }
}

/// Runs `adjutant transcript`.
pub(crate) fn run_transcript(
    archive: &Archive,
    run: &RunArg,
    as_json: bool,
) -> Result<Exit, Failure> {
    let found = find(archive, run.run.as_deref(), ViewDetail::Texts)?;
    let root = found.view.run().map(RunId::root_session);
    let leads = found.view.root().is_some_and(|root| root.model.is_some());
    let session = match found.session.filter(|session| leads || Some(*session) != root) {
        Some(session) => session,
        None => only_session(&found, root.filter(|_| leads))?,
    };
    let mut talk = Conversation::with_earlier();
    for record in found.files.records().map_err(archive_failure)? {
        let record = record.map_err(archive_failure)?;
        talk.enter_run(&record.event);
        if record.event.conversation() == Some(session) {
            talk.apply(&record.event);
        }
    }
    let transcript = Transcript::of_parts(&found.view, session, &talk, found.liveness)
        .ok_or_else(|| Failure::usage(format!("{session} has no transcript")))?;
    if as_json {
        print_json(&transcript)?
    } else {
        print(&transcript.render())?
    }
    Ok(Exit::Completed)
}

/// Chooses the session of a transcript if none is named: the only child, or a parent agent that worked alone.
///
/// If the root agent works itself, as in a story, it is chosen and the children are listed.
fn only_session(found: &FoundRun, lead: Option<SessionId>) -> Result<SessionId, Failure> {
    let children: Vec<_> = found.view.delegations().filter(|it| it.parent.is_some()).collect();
    let named = |it: &&Delegation| {
        let label = sanitize::label(it.label.as_str());
        let number = found.view.ordinal(it.session).map(|ordinal| format!("#{ordinal} "));
        let number = number.unwrap_or_default();
        format!("`adjutant transcript {}`   {number}[{label}]", it.session)
    };
    if let Some(lead) = lead.filter(|_| found.view.is_worked_on_at_root()) {
        for child in &children {
            advise(&format!("adjutant: there is more: {}", named(child)));
        }
        return Ok(lead);
    }
    if let [only] = children.as_slice() {
        return Ok(only.session);
    }
    if let (true, Some(lead)) = (children.is_empty(), lead) {
        return Ok(lead);
    }
    let run = found.files.id();
    if children.is_empty() {
        return Err(Failure::usage(format!("{run} has no transcripts: nothing was delegated")));
    }
    let lead = found.view.root().filter(|_| lead.is_some());
    let choices: Vec<String> = lead.iter().chain(&children).map(named).collect();
    Err(Failure::usage(format!("{run} has {} transcripts; name one:", choices.len()))
        .hint(choices.join("\n  ")))
}

/// Runs `adjutant log`: prints every event, or with `--delegations` the start and end of each delegation.
pub(crate) fn run_log(archive: &Archive, args: &LogArgs, as_json: bool) -> Result<Exit, Failure> {
    let (files, session) = run_lookup::find_to_show(archive, args.run.run.as_deref(), |_| true)?;
    let wanted = session.filter(|session| *session != files.id().root_session());
    let mut view = RunView::light();
    let mut delegated = false;
    // Reports a journal that is lost, which a follower takes for one that is not written yet.
    files.records().map(drop).map_err(archive_failure)?;
    let mut journal = files.follow();
    let life = loop {
        // Checked before reading: after a writer is gone, all its records are visible.
        let life = files.liveness().map_err(archive_failure)?;
        let mut text = String::new();
        let mut shown = Ok(());
        let write = if args.delegations || as_json { write_stdout } else { print };
        let read = journal.read_new(|record| {
            let entry = TimedEvent::new(record.at, record.wall_ms, &record.event);
            view.apply(entry);
            if shown.is_err() || (wanted.is_some() && record.event.session() != wanted) {
                return;
            }
            let line = if args.delegations {
                delegations::line(&view, &entry).map_or(Ok(String::new()), |it| json_line(&it))
            } else if as_json {
                let (at, wall, event) = (record.at, record.wall_ms, &record.event);
                json_line(&json!({ "v": 1, "seq": record.seq.get(), "at": at, "wall": wall, "event": event }))
            } else {
                Ok(format!("{}\n", log::line(&view, &entry)))
            };
            delegated |= line.as_ref().is_ok_and(|line| !line.is_empty());
            shown = line.and_then(|line| {
                text.push_str(&line);
                if text.len() < LOG_CHUNK_BYTES { Ok(()) } else { write(&std::mem::take(&mut text)) }
            });
        });
        write(&text)?;
        shown?;
        read.map_err(archive_failure)?;
        let is_over = match wanted.and_then(|session| view.delegation(session)) {
            Some(delegation) => !delegation.state.is_live(),
            None => view.outcome().is_some(),
        };
        // A silent run writes nothing, so waiting for a failed write is not enough.
        if !args.follow || is_over || life == RunLiveness::Dead || has_no_reader() {
            break life;
        }
        std::thread::sleep(LOG_LOOK);
    };
    if args.delegations && !delegated {
        let name = wanted.map_or_else(|| files.id().to_string(), |session| session.to_string());
        say(&format!("adjutant: {name} delegated nothing"));
    }
    if life == RunLiveness::Dead {
        say_torn(files.id(), journal.torn_bytes());
    }
    Ok(Exit::Completed)
}

/// How many bytes of `log` are written at once: a write per event takes more time than reading them.
const LOG_CHUNK_BYTES: usize = 64 * 1024;

/// How often `log --follow` looks for new events.
const LOG_LOOK: Duration = Duration::from_millis(100);

/// Runs `adjutant prune`: removes the content of old runs, old results and undo records.
pub(crate) fn run_prune(
    archive: &Archive,
    args: &PruneRunsArgs,
    as_json: bool,
) -> Result<Exit, Failure> {
    let swept = archive.prune(args.days).map_err(archive_failure)?;
    let mut bytes = 0;
    let mut expired = Vec::new();
    let mut removed = Vec::new();
    let mut problems = Vec::new();
    for (run, swept) in swept {
        match swept {
            PruneOutcome::Expired { bytes: freed } => {
                bytes += freed;
                expired.push(run.to_string());
            }
            PruneOutcome::Removed => removed.push(run.to_string()),
            PruneOutcome::Kept => {}
            PruneOutcome::Failed(problem) => problems.push(format!("{run}: {problem}")),
        }
    }
    // Before the results, so that the reported disk space no longer includes these records.
    problems.append(&mut prune_merges(archive, args.days));
    let mut old = prune_results(archive, args.days, args.unmerged);
    problems.append(&mut old.problems);
    for done in &old.swept {
        say(&format!("adjutant: {done}"));
    }
    for problem in &problems {
        say(&format!("adjutant: {problem}"));
    }
    if as_json {
        let (dropped, left, room) = old.json();
        print_json(&json!({
            "v": 1, "expired": expired, "removed": removed, "bytes": bytes, "problems": problems,
            "results_dropped": dropped, "results_left": left, "room": room,
        }))?;
    } else {
        let mut text = format!("{} expired", count_with_noun(expired.len(), "run"));
        if !removed.is_empty() {
            text += &format!(", {} that never began removed", removed.len());
        }
        print(&format!("{text}\n{}", old.lines()))?;
        old.advice().iter().for_each(|text| advise(text));
    }
    Ok(if problems.is_empty() { Exit::Completed } else { Exit::Partial })
}

fn find(archive: &Archive, text: Option<&str>, need: ViewDetail) -> Result<FoundRun, Failure> {
    FoundRun::read(run_lookup::find_to_show(archive, text, |_| true)?, need)
}

/// Finds and folds a run or session, in the directories that `scope` allows.
pub(crate) fn find_in_scope(
    archive: &Archive,
    run: &RunArg,
    scope: ScopeFlag,
    verb: CommandVerb,
    need: ViewDetail,
) -> Result<FoundRun, Failure> {
    let text = run.run.as_deref();
    FoundRun::read(run_lookup::find_in_scope(archive, text, scope.scope(), verb, |_| true)?, need)
}

const RESULT: CommandVerb =
    CommandVerb { typed: "result", noun: "run", has_anywhere: true, otherwise: "" };

/// Folds a journal that was already read, with its texts. No process may be working on the run.
pub(crate) fn fold_read(run: RunId, journal: &LoadedJournal) -> RunView {
    let mut view = RunView::default();
    for record in journal.records() {
        view.apply(TimedEvent::new(record.at, record.wall_ms, &record.event));
    }
    say_torn(run, journal.torn_bytes());
    view.close_open_calls();
    view
}

pub(crate) fn fold(
    files: &RunFiles,
    need: ViewDetail,
) -> Result<(RunView, ProcessLiveness), Failure> {
    // Checked before reading the journal: a run that ends in between must not look interrupted.
    let liveness = liveness(files)?;
    let (mut view, torn) = match need {
        ViewDetail::Numbers => numbers(files).map(|(view, follow)| (view, follow.torn_bytes()))?,
        ViewDetail::Texts => texts(files)?,
    };
    if liveness == ProcessLiveness::Dead {
        say_torn(files.id(), torn);
        view.close_open_calls();
    }
    check_begun(files, &view, liveness)?;
    Ok((view, liveness))
}

/// Fails if nothing of a run is recorded.
pub(crate) fn check_begun(
    files: &RunFiles,
    view: &RunView,
    liveness: ProcessLiveness,
) -> Result<(), Failure> {
    if view.run().is_some() {
        return Ok(());
    }
    let text = match liveness {
        ProcessLiveness::Alive => "nothing is recorded yet; look again in a moment",
        ProcessLiveness::Dead => "nothing is recorded: the run died before its first step",
    };
    Err(Failure::new(Exit::Failed, format!("{}: {text}", files.id())))
}

/// Returns whether a live process works on a run.
pub(crate) fn liveness(files: &RunFiles) -> Result<ProcessLiveness, Failure> {
    Ok(match files.liveness().map_err(archive_failure)? {
        RunLiveness::Live { .. } => ProcessLiveness::Alive,
        RunLiveness::Dead => ProcessLiveness::Dead,
    })
}

/// Folds a run without its texts, from a checkpoint if there is one.
pub(crate) fn numbers(files: &RunFiles) -> Result<(RunView, JournalFollower), Failure> {
    fold_numbers(files).map_err(archive_failure)
}

/// Like [`numbers`], with the error of the archive.
pub(crate) fn fold_numbers(files: &RunFiles) -> Result<(RunView, JournalFollower), ArchiveError> {
    files.fold(FOLD_VERSION, RunView::light, |view, record| {
        view.apply(TimedEvent::new(record.at, record.wall_ms, &record.event));
    })
}

fn texts(files: &RunFiles) -> Result<(RunView, u64), Failure> {
    let mut view = RunView::default();
    let mut records = files.records().map_err(archive_failure)?;
    for record in &mut records {
        let record = record.map_err(archive_failure)?;
        view.apply(TimedEvent::new(record.at, record.wall_ms, &record.event));
    }
    Ok((view, records.torn_bytes()))
}

/// Prints how to resume an interrupted run, on standard error.
pub(crate) fn say_how_to_resume(look: &ObservedRun<'_>) {
    if let (Some(way), Some(run)) = (look.how_to_continue(), look.view.run()) {
        say(&format!("adjutant: {run}: {way}"));
    }
}

/// Warns about an incomplete last record. Only for runs without a live process, which may still be writing it.
fn say_torn(run: RunId, bytes: u64) {
    if bytes > 0 {
        say(&format!(
            "adjutant: {run}: the last {bytes} bytes of the journal were incomplete and are ignored"
        ));
    }
}

/// Returns the current time of a run: the time of its latest record plus the time since.
pub(crate) fn now(files: &RunFiles, view: &RunView) -> Timestamp {
    let latest = view.latest();
    latest.at.plus_millis(files.since(latest.wall_ms))
}

pub(crate) fn colours() -> Palette {
    palette(pager::is_terminal())
}

pub(crate) fn archive_failure(error: ArchiveError) -> Failure {
    let exit = match &error {
        ArchiveError::Find(_) | ArchiveError::NoSession(_) | ArchiveError::Ambiguous { .. } => {
            Exit::Usage
        }
        ArchiveError::Home(_)
        | ArchiveError::Read { .. }
        | ArchiveError::Live(_)
        | ArchiveError::Expired(_)
        | ArchiveError::Write { .. }
        | ArchiveError::File(_) => Exit::Failed,
    };
    let failure = Failure::from_error(exit, &error);
    if exit == Exit::Usage { failure.hint("`adjutant status` lists the runs.") } else { failure }
}

pub(crate) fn count_with_noun(number: usize, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}
