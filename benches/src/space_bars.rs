//! The bars of workspaces, compared with git on the same repositories in the same run.
//!
//! Wall time, because a person waits for it. Comparisons with git alternate between both in each round and
//! compare the minimum of each, which other load on the machine disturbs least.

use std::path::Path;
use std::time::{Instant, SystemTime};

use adjutant_workspace::sandbox::SandboxHelper;
use adjutant_workspace::space::{Workspace, WorkspaceBackingChoice, WorkspaceOptions, Workspaces};

use crate::fixture::StateLocation;
use crate::repos::{CHANGED, Repo, UNTRACKED, timed};
use crate::sample::{Plan, Spread};
use crate::spawn::Binary;
use crate::table::{COUNT, MILLIS, Row, TIMES};
use crate::{Failure, result_bars, say, writer_bars};

/// The run that workspaces are made for.
pub(crate) const RUN: &str = "run_bench";

/// How many files the repositories have.
const SIZES: [usize; 4] = [100, 1_000, 10_000, 50_000];

/// From how many files on a capture is compared: below, git is nothing but the start of a process.
const CAPTURED_FROM: usize = 1_000;

/// The most changed files that the bar of a capture is for; five of them are untracked.
const MOST_CHANGED: usize = 200 - UNTRACKED;

/// Work trees made at the same time.
const AT_ONCE: usize = 8;

const CAPTURE: &str = "files changed and five untracked since the last round, in memory; `git status --porcelain` of the \
same state in turn with it, the least of all rounds of one minus the least of the other";
const READY: &str = "another child of a batch, from the call until its tree, its own git directory and its top layer are \
there; the state of the user's tree was captured with the first of the batch; the sizes take turns";
const FALLBACK: &str = "as for the overlay, in a state with uncommitted files, which git's own work tree does not have";

/// Measures the group.
pub(crate) fn measure(plan: &Plan) -> Result<Vec<Row>, Failure> {
    let helper = SandboxHelper::at(Binary::build()?.path());
    let mut repos = Vec::new();
    for files in SIZES.into_iter().filter(|files| !plan.quick || *files <= 10_000) {
        say(&format!("making a repository of {files} files …"));
        repos.push(Repo::make(files, StateLocation::Memory)?);
    }
    let (Some(largest), Some(middle)) = (repos.last(), repos.get(1)) else {
        return Err("there is no repository to measure on".into());
    };
    let begun = Instant::now();
    let mut rows = Vec::new();
    // Shown as they come: a person waits a minute for the table.
    let mut add = |more: Vec<Row>| {
        for row in &more {
            let bar = row.bar.as_deref().unwrap_or_default();
            let seconds = begun.elapsed().as_secs();
            say(&format!("  {seconds:3} s  {}: {} {bar}", row.what, row.measured));
        }
        rows.extend(more);
    };
    add(writer_bars::measure_eight_writers(plan, largest)?);
    add(writer_bars::measure_first_use(plan, largest)?);
    largest.dirty(0)?;
    add(measure_captures(plan, &repos, &helper)?);
    add(measure_creation(plan, &repos, &helper)?);
    add(result_bars::measure_commits(plan, middle, largest, &helper)?);
    add(writer_bars::measure_sandboxed_calls(plan, middle, &helper)?);
    add(writer_bars::measure_sandboxes(plan, middle, largest, &helper)?);
    add(writer_bars::measure_idle_workspace(largest, &helper)?);
    add(result_bars::measure_base_updates(plan, middle, largest, &helper)?);
    add(measure_concurrent_worktrees(middle, &helper)?);
    add(result_bars::measure_commits_on_disk(
        plan,
        &Repo::make(middle.files, StateLocation::Disk)?,
        &helper,
    )?);
    say("removing the repositories …");
    Ok(rows)
}

/// Opens the workspaces of a repository, each kind with a state directory of its own.
pub(crate) fn open_workspaces(
    repo: &Repo,
    wish: WorkspaceBackingChoice,
    helper: &SandboxHelper,
) -> Result<Workspaces, Failure> {
    let state =
        repo.beside(if wish == WorkspaceBackingChoice::Worktree { "worktrees" } else { "state" });
    let options = WorkspaceOptions { backing: wish, ..WorkspaceOptions::new(helper.clone()) };
    Ok(Workspaces::open(&repo.tree(), &state, options)?)
}

/// Makes a workspace of the one batch there is.
pub(crate) fn make_workspace(all: &Workspaces, child: &str) -> Result<Workspace, Failure> {
    Ok(all.make(RUN, child, "batch", None)?)
}

/// Returns the least of one as a part of the least of the other.
pub(crate) fn ratio_of_minima(one: Spread, other: Spread) -> Spread {
    Spread::exact(one.min / other.min)
}

/// The state of the user's tree as a commit, against one look by git.
fn measure_captures(
    plan: &Plan,
    repos: &[Repo],
    helper: &SandboxHelper,
) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    for repo in repos.iter().filter(|repo| repo.files >= CAPTURED_FROM) {
        let all = open_workspaces(repo, WorkspaceBackingChoice::Overlay, helper)?;
        let cases = [
            (repo.evenly_spread_files(CHANGED), "15 changes"),
            (repo.in_few_folders(MOST_CHANGED), "200 changes, ten in a folder,"),
            (repo.evenly_spread_files(MOST_CHANGED), "200 changes all over the tree"),
        ];
        for (paths, changes) in cases {
            repo.clean()?;
            let [ours, theirs] = time_captures(plan, repo, &all, &paths)?;
            let of = format!("{changes} in {} files", repo.files);
            rows.push(Row::info(format!("git status, {of}"), theirs, MILLIS));
            rows.push(Row::info(format!("capture of the user's tree, {of}"), ours, MILLIS));
            let more = Spread::exact(ours.min - theirs.min);
            let what = format!("capture beyond git status, {of}");
            rows.push(Row::at_most(what, more, 15.0, MILLIS).note(CAPTURE));
        }
        repo.clean()?;
        repo.dirty(0)?;
    }
    Ok(rows)
}

/// Returns what a capture takes, and what git takes for its status.
fn time_captures(
    plan: &Plan,
    repo: &Repo,
    all: &Workspaces,
    paths: &[String],
) -> Result<[Spread; 2], Failure> {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let rounds = if repo.files < 10_000 { 60 } else { 16 };
    for round in 0..plan.pick(rounds, 6) {
        repo.change(paths, round + 1)?;
        let git = || timed(|| repo.git(["status", "--porcelain"]));
        let capture = || timed(|| all.repository().capture(SystemTime::now()));
        // Alternate the order, because the first of the two warms the cache for the other.
        let ((git, _), (capture, state)) = if round % 2 == 0 {
            (git()?, capture()?)
        } else {
            let capture = capture()?;
            (git()?, capture)
        };
        if state.changes.len() != paths.len() + UNTRACKED {
            return Err(format!("{} changes were captured", state.changes.len()).into());
        }
        ours.push(capture);
        theirs.push(git);
    }
    Ok([ours, theirs].map(Spread::of))
}

/// Workspaces of both kinds, beside `git worktree add`.
fn measure_creation(
    plan: &Plan,
    repos: &[Repo],
    helper: &SandboxHelper,
) -> Result<Vec<Row>, Failure> {
    let (mut rows, mut fallback, mut medians) = (Vec::new(), Vec::new(), Vec::new());
    for (repo, overlay) in repos.iter().zip(time_overlays(plan, repos, helper)?) {
        let [git, own] = time_worktrees(plan, repo, helper)?;
        let files = repo.files;
        medians.push(overlay.median);
        rows.push(Row::info(format!("git worktree add, {files} files"), git, MILLIS));
        let what = format!("overlay workspace ready, {files} files");
        rows.push(Row::at_most(what, overlay, 20.0, MILLIS).note(READY));
        let what = format!("work tree against git worktree add, {files} files");
        fallback.push(Row::at_most(what, ratio_of_minima(own, git), 1.05, TIMES).note(FALLBACK));
    }
    let Spread { min, max, .. } = Spread::of(medians);
    let what = "overlay workspace ready, slowest size against fastest";
    rows.push(Row::at_most(what, Spread::exact(max / min), 1.5, TIMES));
    rows.extend(fallback);
    Ok(rows)
}

/// Returns what an overlay workspace takes in each of the repositories, which take turns.
fn time_overlays(
    plan: &Plan,
    repos: &[Repo],
    helper: &SandboxHelper,
) -> Result<Vec<Spread>, Failure> {
    let mut all = Vec::new();
    for repo in repos {
        let spaces = open_workspaces(repo, WorkspaceBackingChoice::Overlay, helper)?;
        // Stays, so that the others find their base and the captured state.
        let first = make_workspace(&spaces, "first")?;
        all.push((spaces, first, Vec::new()));
    }
    for round in 0..plan.pick(31, 7) {
        for (spaces, _, taken) in &mut all {
            let (time, space) = timed(|| make_workspace(spaces, &format!("overlay-{round}")))?;
            taken.push(time);
            space.close()?;
        }
    }
    all.into_iter()
        .map(|(_, first, taken)| {
            first.close()?;
            Ok(Spread::of(taken))
        })
        .collect()
}

/// Returns what git takes, and what ours takes.
fn time_worktrees(
    plan: &Plan,
    repo: &Repo,
    helper: &SandboxHelper,
) -> Result<[Spread; 2], Failure> {
    let all = open_workspaces(repo, WorkspaceBackingChoice::Worktree, helper)?;
    // Captures the state of the batch.
    make_workspace(&all, "first")?;
    let (mut theirs, mut ours) = (Vec::new(), Vec::new());
    let rounds = if repo.files < 10_000 { 9 } else { 5 };
    for round in 0..plan.pick(rounds, 2) {
        let place = repo.beside(&format!("git-{round}"));
        // Both stay until the repository goes, see `Repo`.
        let git = || timed(|| add_git_worktree(repo, &place));
        let own = || timed(|| make_workspace(&all, &format!("worktree-{round}")));
        let ((git, _), (own, _space)) = if round % 2 == 0 {
            (git()?, own()?)
        } else {
            let own = own()?;
            (git()?, own)
        };
        theirs.push(git);
        ours.push(own);
    }
    Ok([theirs, ours].map(Spread::of))
}

pub(crate) fn add_git_worktree(repo: &Repo, place: &Path) -> Result<String, Failure> {
    let words = ["worktree", "add", "--quiet", "--detach"].map(AsRef::as_ref);
    repo.git(words.into_iter().chain([place.as_os_str(), "HEAD".as_ref()]))
}

/// Eight work trees at the same time: ours, and what becomes of git's own.
fn measure_concurrent_worktrees(repo: &Repo, helper: &SandboxHelper) -> Result<Vec<Row>, Failure> {
    let all = open_workspaces(repo, WorkspaceBackingChoice::Worktree, helper)?;
    let made = std::thread::scope(|scope| {
        let one = |number| {
            let all = &all;
            // What a thread cannot send back as an error is one that is lost.
            scope.spawn(move || make_workspace(all, &format!("at-once-{number}")).ok())
        };
        let threads: Vec<_> = (0..AT_ONCE).map(one).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok().flatten()).collect::<Vec<_>>()
    });
    let listed = repo.git(["worktree", "list", "--porcelain"])?;
    let known = listed.lines().filter(|line| line.contains("at-once-")).count();
    let what = format!("work trees of {AT_ONCE} made at once that are there");
    let there = Spread::exact(made.len().min(known) as f64);
    Ok(vec![Row::above(what, there, AT_ONCE as f64 - 1.0, COUNT)])
}
