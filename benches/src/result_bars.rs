//! The bars of saving results and moving bases: the cost must depend on the changes, not on the repository's size.

use std::ffi::OsStr;
use std::fs;
use std::io::Write as _;
use std::time::SystemTime;

use adjutant_workspace::sandbox::SandboxHelper;
use adjutant_workspace::space::{Workspace, WorkspaceBackingChoice};
use adjutant_workspace::{BaseCheckouts, BaseLeaseCost, MissingParents, RelPath};

use crate::Failure;
use crate::repos::{Repo, timed};
use crate::sample::{Plan, Spread};
use crate::space_bars::{make_workspace, open_workspaces, ratio_of_minima};
use crate::table::{MILLIS, Row, TIMES};

/// How many files change.
const CHANGED: [usize; 3] = [1, 100, 1_000];

const KEEP: &str = "from the call until the commit is in its reference, synced, with the list of files and lines it \
comes to";
const SYNCS: &str =
    "objects are synced at the same time, before they get their names; a reference once more";
const MOVE: &str = "from the call until the base is leased; the base was unused";

/// Keeping the work in an overlay workspace.
pub(crate) fn measure_commits(
    plan: &Plan,
    middle: &Repo,
    largest: &Repo,
    helper: &SandboxHelper,
) -> Result<Vec<Row>, Failure> {
    let small = time_commits(plan, middle, 1, helper)?;
    let mut taken = Vec::new();
    for count in CHANGED {
        taken.push(time_commits(plan, largest, count, helper)?);
    }
    Ok(rows_by_change_size(
        "commit of",
        &taken,
        small,
        [middle.files, largest.files],
        Some(30.0),
        KEEP,
    ))
}

/// What the syncs of a disk add, on a small repository.
pub(crate) fn measure_commits_on_disk(
    plan: &Plan,
    repo: &Repo,
    helper: &SandboxHelper,
) -> Result<Vec<Row>, Failure> {
    let sync = plan.rounds(31, || -> Result<f64, Failure> {
        let mut file = fs::File::create(repo.beside("synced"))?;
        file.write_all(b"a line of text\n")?;
        Ok(timed(|| file.sync_data())?.0)
    })?;
    let all = open_workspaces(repo, WorkspaceBackingChoice::Overlay, helper)?;
    let mut round = 0;
    let captured = plan.rounds(9, || -> Result<f64, Failure> {
        round += 1;
        repo.dirty(round)?;
        Ok(timed(|| all.repository().capture(SystemTime::now()))?.0)
    })?;
    let kept = time_commits(plan, repo, 1, helper)?;
    let files = repo.files;
    Ok(vec![
        Row::info("sync of a new file on this disk", sync, MILLIS),
        Row::info(format!("capture of the user's tree on disk, {files} files"), captured, MILLIS)
            .note(SYNCS),
        Row::info(format!("commit of 1 in {files} files on disk"), kept, MILLIS).note(SYNCS),
    ])
}

fn time_commits(
    plan: &Plan,
    repo: &Repo,
    count: usize,
    helper: &SandboxHelper,
) -> Result<Spread, Failure> {
    let all = open_workspaces(repo, WorkspaceBackingChoice::Overlay, helper)?;
    let first = make_workspace(&all, "first")?;
    let mut round = 0;
    let rounds = if count == 1 { 15 } else { 5 };
    let taken = plan.rounds(rounds, || -> Result<f64, Failure> {
        round += 1;
        let space = make_workspace(&all, &format!("commit-{count}-{round}"))?;
        for path in repo.evenly_spread_files(count) {
            write(&space, &path, &format!("by child {round} of {count}: {path}\n"))?;
        }
        let (taken, kept) = timed(|| space.keep("Work of a child\n", SystemTime::now()))?;
        if kept.diff.entries.len() != count {
            return Err(format!("{} files were kept", kept.diff.entries.len()).into());
        }
        space.close()?;
        Ok(taken)
    })?;
    first.close()?;
    Ok(taken)
}

fn write(space: &Workspace, path: &str, text: &str) -> Result<(), Failure> {
    let root = space.root()?;
    let place =
        root.file_target(&RelPath::default(), &RelPath::new(path)?, MissingParents::Create)?;
    let before = place.read(1 << 20)?;
    Ok(place.replace(text.as_bytes(), before.as_ref(), OsStr::new(".new"))?)
}

/// Measures moving an unused base to another tree.
pub(crate) fn measure_base_updates(
    plan: &Plan,
    middle: &Repo,
    largest: &Repo,
    helper: &SandboxHelper,
) -> Result<Vec<Row>, Failure> {
    let small = time_base_updates(plan, middle, helper)?.remove(0);
    let taken = time_base_updates(plan, largest, helper)?;
    let files = [middle.files, largest.files];
    Ok(rows_by_change_size("move of an unused base by", &taken, small, files, None, MOVE))
}

fn time_base_updates(
    plan: &Plan,
    repo: &Repo,
    helper: &SandboxHelper,
) -> Result<Vec<Spread>, Failure> {
    // The base of the earlier workspaces, which is unused now.
    let all = open_workspaces(repo, WorkspaceBackingChoice::Overlay, helper)?;
    let repository = all.repository();
    let bases = BaseCheckouts::open(repository)?;
    let tree = |name: &str| -> Result<_, Failure> {
        let tree = repository.resolve(&format!("refs/heads/{name}^{{tree}}"))?;
        Ok(tree.ok_or_else(|| format!("there is no {name}"))?)
    };
    let main = tree("main")?;
    drop(bases.lease(&main)?);
    let mut taken = Vec::new();
    for count in CHANGED {
        let other = tree(&format!("by_{count}"))?;
        taken.push(plan.rounds(if count == 1 { 15 } else { 5 }, || -> Result<f64, Failure> {
            let (time, lease) = timed(|| bases.lease(&other))?;
            if lease.cost() != BaseLeaseCost::Moved(count) {
                return Err(format!("a base was not moved but {:?}", lease.cost()).into());
            }
            drop(lease);
            drop(bases.lease(&main)?);
            Ok(time)
        })?);
    }
    Ok(taken)
}

/// Rows that say whether a cost follows what changed: for ten times as much at most ten times the time, and
/// for the same change nearly the same in a large repository as in a small one.
fn rows_by_change_size(
    what: &str,
    taken: &[Spread],
    small: Spread,
    [few, many]: [usize; 2],
    bar: Option<f64>,
    note: &str,
) -> Vec<Row> {
    let mut rows = Vec::new();
    for (count, taken) in CHANGED.iter().zip(taken) {
        let name = format!("{what} {count} in {many} files");
        let row = match bar.filter(|_| *count == 1) {
            Some(bar) => Row::at_most(name, *taken, bar, MILLIS),
            None => Row::info(name, *taken, MILLIS),
        };
        rows.push(row.note(note));
    }
    if let [one, hundred, thousand] = taken {
        let more = ratio_of_minima(*thousand, *hundred);
        rows.push(Row::at_most(format!("{what} 1000 files against 100"), more, 10.0, TIMES));
        let size = ratio_of_minima(*one, small);
        let name = format!("{what} 1 file, in {many} against in {few}");
        rows.push(Row::at_most(name, size, 1.5, TIMES));
    }
    rows
}
