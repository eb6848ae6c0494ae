//! Which run is meant where none is named, or only by the word `latest`: the latest of this folder.
//!
//! A run is of a folder when both lie in the same work tree of git, or it worked in that very folder where there is
//! none. What changes files or ends work must not reach into another project because that ran last: it names the
//! latest elsewhere and leaves it alone. Commands that only look show that one, and say where it worked.
//!
//! Start at [`meant`] and [`shown`]. Invariant: no other file decides which folder a run belongs to.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use adjutant_core::{RunId, SessionId};
use adjutant_engine::{Archive, RunFiles};
use adjutant_view::{Liveness, sanitize};

use crate::delegate::absolute;
use crate::exit::Failure;
use crate::output::say;
use crate::records::{failed, liveness, numbers};

/// The word that means the latest run, as no name does.
const LATEST: &str = "latest";

/// What a command does with a run, for its hints.
#[derive(Clone, Copy)]
pub(crate) struct Verb {
    /// How it is typed, such as `undo`.
    pub(crate) typed: &'static str,
    /// What the run is called, such as `run`.
    pub(crate) noun: &'static str,
}

/// A folder and all that belongs together with it.
pub(crate) struct Tree(PathBuf);

impl Tree {
    /// Takes the work tree of git around a folder, or the folder itself where there is none.
    pub(crate) fn around(folder: &Path) -> Self {
        Self(folder.ancestors().find(|it| is_top(it)).unwrap_or(folder).to_owned())
    }

    /// Says whether a run that worked in a folder is one of this tree; a folder that is gone is of none.
    pub(crate) fn has(&self, workdir: &Path) -> bool {
        Self::around(workdir).0 == self.0 && workdir.is_dir()
    }
}

/// Says whether a folder is the top of a work tree: the name `.git` alone makes none, for git either.
fn is_top(folder: &Path) -> bool {
    let git = folder.join(".git");
    // The head of a repository may be a link to a branch that has no commit yet.
    git.join("HEAD").symlink_metadata().is_ok() || is_pointer(&git)
}

/// Says whether this is the file that stands for the repository in other work trees.
fn is_pointer(git: &Path) -> bool {
    let mut start = [0; POINTER.len()];
    let is_file = git.metadata().is_ok_and(|found| found.is_file());
    let read = |mut file: File| file.read_exact(&mut start);
    is_file && File::open(git).and_then(read).is_ok() && start == *POINTER
}

const POINTER: &[u8; 7] = b"gitdir:";

/// Returns the name of a run that was typed; none where the latest is meant.
pub(crate) fn name(text: Option<&str>) -> Option<&str> {
    text.filter(|text| *text != LATEST)
}

/// Finds the run or session that a command is to change or end: by its name, or the latest of the tree around `root`
/// that fits; one elsewhere is named and left alone.
pub(crate) fn meant(
    archive: &Archive,
    text: Option<&str>,
    root: &Path,
    verb: Verb,
    fits: impl Fn(&RunFiles) -> bool,
) -> Result<(RunFiles, Option<SessionId>), Failure> {
    if let Some(text) = name(text) {
        return archive.find(text).map_err(failed);
    }
    let root = absolute(root)?;
    let found = match latest(&archive.runs().map_err(failed)?, &root, fits) {
        Latest::Here(files) => return Ok((files, None)),
        Latest::Elsewhere(files, workdir) => Some((files.id(), workdir)),
        Latest::None => None,
    };
    let Verb { typed, noun } = verb;
    let folder = sanitize::line(&root.display().to_string()).into_owned();
    let failure = Failure::usage(format!("no {noun} worked in {folder}"));
    Err(match found {
        Some((run, workdir)) => failure.hint(format!(
            "The latest elsewhere is {run}, in {}: `adjutant {typed} {run}` names it.",
            sanitize::line(&workdir.display().to_string())
        )),
        None => failure.hint("`adjutant status` lists the runs."),
    })
}

/// Finds the run or session that is to be shown: by its name, or the latest of the tree one stands in, preferably one
/// that fits; where there is none in this tree, the latest of all, which is said.
pub(crate) fn shown(
    archive: &Archive,
    text: Option<&str>,
    preferred: impl Fn(&RunFiles) -> bool,
) -> Result<(RunFiles, Option<SessionId>), Failure> {
    if let Some(text) = name(text) {
        return archive.find(text).map_err(failed);
    }
    let (newest, _) = archive.find(LATEST).map_err(failed)?;
    // Where one stands in a folder that is gone, or the newest cannot be read, that one says what is wrong.
    let (Ok(root), Some(of_newest)) = (absolute(Path::new(".")), newest.workdir()) else {
        return Ok((newest, None));
    };
    let runs = archive.runs().map_err(failed)?;
    let liked = latest(&runs, &root, &preferred);
    if let Latest::Here(files) = liked {
        return Ok((files, None));
    }
    if let Latest::Here(files) = latest(&runs, &root, |_| true) {
        return Ok((files, None));
    }
    let (files, workdir) = match liked {
        Latest::Elsewhere(files, workdir) => (files, workdir),
        Latest::Here(_) | Latest::None => (newest, of_newest),
    };
    let workdir = sanitize::line(&workdir.display().to_string()).into_owned();
    say(&format!("adjutant: no run worked here; {} worked in {workdir}", files.id()));
    Ok((files, None))
}

/// The latest run that fits, and whether it is one of a tree.
enum Latest {
    Here(RunFiles),
    /// There is none here; this one worked in another folder.
    Elsewhere(RunFiles, PathBuf),
    None,
}

fn latest(runs: &[RunFiles], root: &Path, fits: impl Fn(&RunFiles) -> bool) -> Latest {
    let (tree, mut elsewhere) = (Tree::around(root), Latest::None);
    for files in runs.iter().filter(|it| fits(it)) {
        // One that cannot be read is passed over here; naming it says why.
        let Some(workdir) = files.workdir() else { continue };
        if tree.has(&workdir) {
            return Latest::Here(files.clone());
        }
        if let Latest::None = elsewhere {
            elsewhere = Latest::Elsewhere(files.clone(), workdir);
        }
    }
    elsewhere
}

/// How many of the latest runs are asked who works on a task.
const ASKED: usize = 20;

/// Finds the latest run at `root` that was given the task and has not ended.
///
/// A list of tasks is of its own folder: another one in the same work tree counts its tasks from one too.
pub(crate) fn at_work_on(archive: &Archive, root: &Path, task: u64) -> Option<(RunId, Liveness)> {
    let runs = archive.runs().unwrap_or_default();
    let mut here = runs.into_iter().take(ASKED).filter(|it| it.workdir().as_deref() == Some(root));
    here.find_map(|files| {
        // Asked first: a run that ends while it is read must not look interrupted.
        let alive = liveness(&files).ok()?;
        let (view, _) = numbers(&files).ok()?;
        let is_given = view.assignment().is_some_and(|it| it.tasks.contains(&task));
        (is_given && view.outcome().is_none()).then_some((files.id(), alive))
    })
}
