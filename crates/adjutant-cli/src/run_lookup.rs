//! Resolves what a person names: a run id, a session id, a label or `#N` of the latest run, or nothing.
//!
//! Nothing, and the word `latest`, mean the latest run of this folder. A run is of a folder when both lie in the same
//! git work tree; without git, when it worked in that very folder. Commands that change files or end work, and commands
//! whose answer scripts rely on ([`find_in_scope`]), never take a run of another folder: they fail and name it. Commands that only
//! show something take it and say where it worked.
//!
//! Start at [`resolve`]. Invariant: no other file decides what a name means or which folder a run belongs to.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use adjutant_core::{RunId, SessionId, nearest};
use adjutant_engine::{Archive, ArchiveError, RunFiles};
use adjutant_view::{Delegation, ProcessLiveness, RunView, sanitize};

use crate::delegate::absolute;
use crate::exit::Failure;
use crate::output::say;
use crate::records::{archive_failure, liveness, numbers};
use crate::run_summaries::run_workdirs;

/// The word that means the latest run.
const LATEST: &str = "latest";

/// The words of a command in messages about a run that was not found.
#[derive(Clone, Copy)]
pub(crate) struct CommandVerb {
    /// The subcommand, such as `undo`.
    pub(crate) typed: &'static str,
    /// The noun for the run, such as `live run`.
    pub(crate) noun: &'static str,
    /// Whether the command takes `--anywhere`.
    pub(crate) has_anywhere: bool,
    /// A sentence about what else to type, with a space before it, or nothing.
    pub(crate) otherwise: &'static str,
}

/// The git work tree around a directory, or the directory itself without git.
pub(crate) struct ProjectTree(PathBuf);

impl ProjectTree {
    /// Finds the work tree around a directory.
    pub(crate) fn around(folder: &Path) -> Self {
        Self(folder.ancestors().find(|it| is_top(it)).unwrap_or(folder).to_owned())
    }

    /// Returns whether `workdir` exists and belongs to this tree.
    pub(crate) fn has(&self, workdir: &Path) -> bool {
        // The first comparison needs no system call and excludes most directories.
        workdir.starts_with(&self.0) && Self::around(workdir).0 == self.0 && workdir.is_dir()
    }
}

/// Returns whether a directory is the top of a work tree. As for git, an empty `.git` is not enough.
fn is_top(folder: &Path) -> bool {
    let git = folder.join(".git");
    // `HEAD` may be a symbolic link to a branch without a commit.
    git.join("HEAD").symlink_metadata().is_ok() || is_pointer(&git)
}

/// Returns whether `.git` is the `gitdir:` file of a linked work tree.
fn is_pointer(git: &Path) -> bool {
    let mut start = [0; POINTER.len()];
    let is_file = git.metadata().is_ok_and(|found| found.is_file());
    let read = |mut file: File| file.read_exact(&mut start);
    is_file && File::open(git).and_then(read).is_ok() && start == *POINTER
}

const POINTER: &[u8; 7] = b"gitdir:";

/// Returns the typed name; `None` for the latest run.
pub(crate) fn typed_name(text: Option<&str>) -> Option<&str> {
    text.filter(|text| *text != LATEST)
}

/// Finds the run or session that a name means.
///
/// Labels and `#N` belong to the run that `latest` returns, which is called only when the name is not a whole id. A
/// label wins over the beginning of an id. `RUN#N` is the N-th task of any run; `latest#N` means the same as `#N`, and
/// a shell does not take it for a comment.
pub(crate) fn resolve(
    archive: &Archive,
    text: &str,
    latest: impl FnOnce() -> Result<RunFiles, Failure>,
) -> Result<(RunFiles, Option<SessionId>), Failure> {
    if text.parse::<RunId>().is_ok() || text.parse::<SessionId>().is_ok() {
        return archive.find(text).map_err(archive_failure);
    }
    let latest = latest().and_then(|files| {
        let (view, _) = numbers(&files)?;
        Ok((files, view))
    });
    if let Some(number) = text.strip_prefix('#').or_else(|| text.strip_prefix("latest#")) {
        let (files, view) = latest?;
        let session = numbered(&view, files.id(), number)?;
        return Ok((files, Some(session)));
    }
    let (files, view) = match latest {
        Ok(latest) => latest,
        Err(why) => {
            let hint = || format!("Labels are those of the latest run here: {why}");
            return find_id(archive, text, hint);
        }
    };
    let has_name = |it: &&Delegation| {
        let label = it.label.as_str();
        text == label || text == sanitize::label(label) || it.story.as_deref() == Some(text)
    };
    let labelled: Vec<&Delegation> = view.delegations().filter(has_name).collect();
    match labelled.as_slice() {
        [one] => Ok((files, Some(one.session))),
        [] => find_id(archive, text, || not_a_label(text, files.id(), &view)),
        several => {
            let run = files.id();
            let text = format!("`{text}` is the label of {} tasks of {run}", several.len());
            let lines = several.iter().filter_map(|it| {
                Some(format!("\n  '#{}'  {}", view.ordinal(it.session)?, it.session))
            });
            let lines: String = lines.collect();
            Err(Failure::usage(text).hint(format!("Name one by its number or session:{lines}")))
        }
    }
}

/// Returns the label of a task, if no other task of its run has that name and it can be typed as it is.
pub(crate) fn unique_label(view: &RunView, delegation: &Delegation) -> Option<String> {
    let label = delegation.label.as_str();
    let is_plain = |it: char| it.is_ascii_alphanumeric() || "_-.".contains(it);
    let can_be_typed = label.starts_with(|it: char| it.is_ascii_alphabetic())
        && label.chars().all(is_plain)
        && label != LATEST
        && !label.starts_with("run_")
        && !label.starts_with("sess_");
    let mut all = view.delegations();
    let is_unique = all.all(|it| {
        it.session == delegation.session
            || (it.label.as_str() != label && it.story.as_deref() != Some(label))
    });
    (can_be_typed && is_unique).then(|| label.to_owned())
}

/// Returns whether a run is the latest of the current directory, whose labels can be typed.
pub(crate) fn is_latest_here(archive: &Archive, run: RunId) -> bool {
    let found =
        absolute(Path::new(".")).and_then(|root| LatestRuns::find(archive, &root, |_| true));
    found.is_ok_and(|found| found.preferred_here.is_some_and(|files| files.id() == run))
}

/// Returns the session of task `#N` of a run.
fn numbered(view: &RunView, run: RunId, number: &str) -> Result<SessionId, Failure> {
    let count = view.delegations().count();
    let found = number.parse().ok().and_then(|ordinal| view.by_ordinal(ordinal));
    found.map(|it| it.session).ok_or_else(|| {
        let range = match count {
            0 => "delegated nothing".to_owned(),
            1 => "has only #1".to_owned(),
            count => format!("has #1 to #{count}"),
        };
        let number = sanitize::line(number);
        Failure::usage(format!("there is no #{number}: {run} {range}"))
            .hint(format!("`adjutant tree {run}` shows the numbers."))
    })
}

/// Finds a run or session by the start of its id, or a task by `RUN#N`. `hint` is added to the error if nothing is
/// found.
fn find_id(
    archive: &Archive,
    text: &str,
    hint: impl FnOnce() -> String,
) -> Result<(RunFiles, Option<SessionId>), Failure> {
    if let Some((run, number)) = text.split_once('#')
        && let Ok((files, None)) = archive.find(run)
    {
        let session = numbered(&numbers(&files)?.0, files.id(), number)?;
        return Ok((files, Some(session)));
    }
    archive.find(text).map_err(|error| {
        let is_unknown = matches!(error, ArchiveError::Find(_));
        let failure = archive_failure(error);
        if is_unknown { failure.hint(hint()) } else { failure }
    })
}

/// Says that a name is not a label of the latest run, and suggests a similar label.
fn not_a_label(text: &str, run: RunId, view: &RunView) -> String {
    let labels = view.delegations().map(|it| it.label.as_str());
    // For labels of one or two letters, a similar label is not a plausible typing error.
    let meant = nearest(text, labels)
        .filter(|label| label.chars().count() > 2)
        .map(|label| format!(" Did you mean {}?", sanitize::shell_word(&sanitize::label(label))));
    format!(
        "It is not a label of the latest run here either: `adjutant tree {run}` lists them, `adjutant status` the runs.{}",
        meant.unwrap_or_default()
    )
}

/// Finds the run or session that a command changes or ends: by name, or the latest in the tree around `root` that
/// `fits`. A run of another directory is only mentioned in the error.
pub(crate) fn find_to_change(
    archive: &Archive,
    text: Option<&str>,
    root: &Path,
    verb: CommandVerb,
    fits: impl Fn(&RunFiles) -> bool,
) -> Result<(RunFiles, Option<SessionId>), Failure> {
    let latest = || latest_here(archive, root, verb, fits);
    match typed_name(text) {
        Some(text) => resolve(archive, text, latest),
        None => latest().map(|files| (files, None)),
    }
}

/// Returns the latest run in the tree around `root` that `fits`. The error mentions the latest run elsewhere.
fn latest_here(
    archive: &Archive,
    root: &Path,
    verb: CommandVerb,
    fits: impl Fn(&RunFiles) -> bool,
) -> Result<RunFiles, Failure> {
    let root = absolute(root)?;
    let found = LatestRuns::find(archive, &root, fits)?;
    found.preferred_here.ok_or_else(|| not_here(&root, verb, found.preferred_elsewhere))
}

/// Says that there is no run in this directory, and what to type for the latest one `elsewhere`.
fn not_here(root: &Path, verb: CommandVerb, elsewhere: Option<(RunFiles, PathBuf)>) -> Failure {
    let CommandVerb { typed, noun, has_anywhere, otherwise } = verb;
    let folder = sanitize::line(&root.display().to_string()).into_owned();
    let failure = Failure::usage(format!("no {noun} in {folder}"));
    let Some((files, workdir)) = elsewhere else {
        return failure.hint(format!("`adjutant status` lists the runs.{otherwise}"));
    };
    let run = files.id();
    let flag = if has_anywhere { " (or the flag --anywhere)" } else { "" };
    failure.hint(format!(
        "The latest elsewhere is {run}, in {}: `adjutant {typed} {run}`{flag} selects it.{otherwise}",
        sanitize::line(&workdir.display().to_string())
    ))
}

/// Where the latest run is searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunScope {
    /// In the tree around the current directory.
    Here,
    /// In all directories.
    Anywhere,
}

/// Finds the run or session for `wait`, `result` or `cost`: by name, or the latest in a scope, preferably one that is
/// `preferred`.
///
/// Scripts rely on these commands, so a run of another directory is used only with [`RunScope::Anywhere`].
pub(crate) fn find_in_scope(
    archive: &Archive,
    text: Option<&str>,
    scope: RunScope,
    verb: CommandVerb,
    preferred: impl Fn(&RunFiles) -> bool,
) -> Result<(RunFiles, Option<SessionId>), Failure> {
    let latest = || match scope {
        RunScope::Here => {
            let root = absolute(Path::new("."))?;
            let found = LatestRuns::find(archive, &root, preferred)?;
            let here = found.preferred_here.or(found.here);
            here.ok_or_else(|| not_here(&root, verb, found.elsewhere))
        }
        RunScope::Anywhere => latest_anywhere(archive, preferred),
    };
    match typed_name(text) {
        Some(text) => resolve(archive, text, latest),
        None => latest().map(|files| (files, None)),
    }
}

/// Returns the latest run of all directories, preferably a `preferred` one, and prints where it worked.
fn latest_anywhere(
    archive: &Archive,
    preferred: impl Fn(&RunFiles) -> bool,
) -> Result<RunFiles, Failure> {
    let found = archive.runs().map_err(archive_failure)?.into_iter().find(preferred);
    let files = match found {
        Some(files) => files,
        None => archive.find(LATEST).map_err(archive_failure)?.0,
    };
    if let Some(workdir) = files.workdir() {
        let workdir = sanitize::line(&workdir.display().to_string()).into_owned();
        say(&format!("adjutant: {} worked in {workdir}", files.id()));
    }
    Ok(files)
}

/// Finds the run or session that a command shows: by name, or the latest in this tree, preferably a `preferred` one.
/// If there is none in this tree, the latest of all, with a message.
pub(crate) fn find_to_show(
    archive: &Archive,
    text: Option<&str>,
    preferred: impl Fn(&RunFiles) -> bool,
) -> Result<(RunFiles, Option<SessionId>), Failure> {
    let latest = || latest_shown(archive, preferred);
    match typed_name(text) {
        Some(text) => resolve(archive, text, latest),
        None => latest().map(|files| (files, None)),
    }
}

/// Returns the latest run of this tree, preferably a `preferred` one, otherwise the latest of all, with a message.
fn latest_shown(
    archive: &Archive,
    preferred: impl Fn(&RunFiles) -> bool,
) -> Result<RunFiles, Failure> {
    let (newest, _) = archive.find(LATEST).map_err(archive_failure)?;
    // If the current directory is gone or the newest run is unreadable, showing the newest run reports the problem.
    let (Ok(root), Some(of_newest)) = (absolute(Path::new(".")), newest.workdir()) else {
        return Ok(newest);
    };
    let found = LatestRuns::find(archive, &root, preferred)?;
    if let Some(files) = found.preferred_here.or(found.here) {
        return Ok(files);
    }
    let (files, workdir) = found.preferred_elsewhere.unwrap_or_else(|| (newest.clone(), of_newest));
    let workdir = sanitize::line(&workdir.display().to_string()).into_owned();
    let latest = if files.id() == newest.id() { ", the latest," } else { "" };
    say(&format!(
        "adjutant: no run in this directory; showing {}{latest} from {workdir}",
        files.id()
    ));
    Ok(files)
}

/// The latest runs in a tree and outside of it. Unreadable runs are skipped; looking one up by name prints its
/// error.
#[derive(Default)]
struct LatestRuns {
    preferred_here: Option<RunFiles>,
    /// The latest in the tree, unless there is a preferred one that is later.
    here: Option<RunFiles>,
    preferred_elsewhere: Option<(RunFiles, PathBuf)>,
    elsewhere: Option<(RunFiles, PathBuf)>,
}

impl LatestRuns {
    /// Searches the tree around `root`, up to the latest run that `is_preferred`.
    fn find(
        archive: &Archive,
        root: &Path,
        is_preferred: impl Fn(&RunFiles) -> bool,
    ) -> Result<Self, Failure> {
        let (tree, mut found) = (ProjectTree::around(root), Self::default());
        let runs = archive.runs().map_err(archive_failure)?;
        let read_directly = runs.len().min(READ_DIRECTLY);
        for files in &runs[..read_directly] {
            let Some(workdir) = files.workdir() else { continue };
            if found.take(&tree, files, workdir, &is_preferred) {
                return Ok(found);
            }
        }
        if runs.len() == read_directly {
            return Ok(found);
        }
        // What was searched above changes nothing the second time.
        for (files, workdir) in run_workdirs(archive)? {
            if found.take(&tree, &files, workdir, &is_preferred) {
                break;
            }
        }
        Ok(found)
    }

    /// Takes the next older run. Returns whether the search is over.
    fn take(
        &mut self,
        tree: &ProjectTree,
        files: &RunFiles,
        workdir: PathBuf,
        is_preferred: impl Fn(&RunFiles) -> bool,
    ) -> bool {
        if tree.has(&workdir) {
            if is_preferred(files) {
                self.preferred_here = Some(files.clone());
                return true;
            }
            self.here.get_or_insert_with(|| files.clone());
            return false;
        }
        if self.preferred_elsewhere.is_none() && is_preferred(files) {
            self.preferred_elsewhere = Some((files.clone(), workdir.clone()));
        }
        self.elsewhere.get_or_insert_with(|| (files.clone(), workdir));
        false
    }
}

/// How many of the latest runs are read before the index of all runs is: usually one of them is wanted.
const READ_DIRECTLY: usize = 16;

/// How many of the latest runs are searched for a task.
const TASK_SEARCH_RUNS: usize = 20;

/// Finds the latest run in exactly `root` that was given the task and has not ended.
///
/// Task lists belong to a directory: another list in the same work tree has the same numbers.
pub(crate) fn unfinished_run_with_task(
    archive: &Archive,
    root: &Path,
    task: u64,
) -> Option<(RunId, ProcessLiveness)> {
    let runs = archive.runs().unwrap_or_default();
    let mut here =
        runs.into_iter().take(TASK_SEARCH_RUNS).filter(|it| it.workdir().as_deref() == Some(root));
    here.find_map(|files| {
        // Checked before reading the journal: a run that ends in between must not look interrupted.
        let alive = liveness(&files).ok()?;
        let (view, _) = numbers(&files).ok()?;
        let is_given = view.assignment().is_some_and(|it| it.tasks.contains(&task));
        (is_given && view.outcome().is_none()).then_some((files.id(), alive))
    })
}
