//! `merge`: merges results into the user's files or onto branches, and `merge --undo` reverts that.
//!
//! Start at [`run_merge`]. `after_run` uses the same functions for `--merge`.

use std::path::PathBuf;

use adjutant_core::registry::TreeKey;
use adjutant_core::{RegistryCommand, RegistryRefusal};
use adjutant_engine::results::{
    ApplyError, Conflict, Diff, MergeOutcome, ResultsError, SharedFile, UnmergeOutcome,
    UnrestoredFile, shared_files,
};
use adjutant_engine::{Archive, RegistryError};
use adjutant_view::sanitize;
use serde_json::{Value, json};

use super::resolve::run_resolve;
use super::{
    LISTED, MergedChildren, ResultSelection, SelectedResult, conflict_json, conflict_line,
    file_json, size, work_failure,
};
use crate::args::{MergeMode, MergeResultsArgs};
use crate::exit::{Exit, Failure};
use crate::hints::{advise, advise_commands, completed};
use crate::output::{print, print_json, say};
use crate::records::count_with_noun;

/// What happened to one result when it was merged.
pub(super) enum ResultMergeOutcome {
    /// The dry run or the merge into the files ended with this verdict.
    Judged(MergeOutcome),
    /// It was merged into the files earlier, so it is not merged again.
    MergedBefore,
    /// It is not merged, because the records of earlier merges cannot be read.
    UnreadRecords(ResultsError),
    /// It is not merged, because the registry of runs is unavailable.
    Unregistered(RegistryError),
    /// It is on a branch of this name.
    Branched { name: String, uncommitted: bool },
    /// The branch could not be created.
    Unbranched(ResultsError),
}

/// Runs `adjutant merge`.
pub(crate) fn run_merge(
    archive: &Archive,
    args: &MergeResultsArgs,
    as_json: bool,
) -> Result<Exit, Failure> {
    let chosen = ResultSelection::find(archive, args.run.as_deref(), MergedChildren::Exclude)?;
    if args.resolve {
        return run_resolve(archive, chosen, args, as_json);
    }
    if args.undo {
        return undo_merges(archive, &chosen, as_json);
    }
    refuse_other_commits(&chosen, &args.only_commits)?;
    if !as_json {
        chosen.say_gone()?;
    }
    let shared = shared_files(&chosen.diffs(&[])?);
    if !args.dry_run {
        recover(&chosen)?;
    }
    let previews = preview(archive, &chosen)?;
    if !as_json {
        chosen.say_shared(&shared);
        if chosen.is_nothing() || !previews.is_empty() {
            say(&summarize_previews(&chosen, &previews));
        }
    }
    let fates = match (args.how, args.dry_run) {
        (_, true) => previews,
        (how, false) => carry_out(archive, &chosen, how),
    };
    if as_json {
        print_json(&as_object(&chosen, args, &fates, &shared))?;
    } else {
        let lines = chosen.picked.iter().zip(&fates);
        print(&lines.map(|(picked, fate)| line(picked, fate, args.dry_run)).collect::<String>())?;
        say_next(archive, &chosen, &fates, args.dry_run);
        chosen.say_unkept();
        chosen.say_unfinished();
    }
    Ok(chosen.exit(exit(&fates, chosen.gone.len())))
}

/// Refuses to merge other results than those a person approved.
fn refuse_other_commits(chosen: &ResultSelection, approved: &[String]) -> Result<(), Failure> {
    let is_same = chosen.picked.iter().map(|it| &it.kept.commit).eq(approved);
    if approved.is_empty() || is_same {
        return Ok(());
    }
    let text = format!("the results of {} have changed since the question was asked", chosen.name);
    Err(Failure::new(Exit::Refused, text).hint("Ask again: the answer was about other commits."))
}

/// Restores files that a killed merge left half done, before any result is judged.
fn recover(chosen: &ResultSelection) -> Result<(), Failure> {
    let done = chosen.work.recover().map_err(|error| work_failure(&error))?;
    done.left.iter().for_each(|left| say(&format!("adjutant: {}", unrestored_line(left))));
    done.stuck.map_or(Ok(()), |error| Err(work_failure(&error)))
}

/// Describes a file that could not be restored, and where its earlier content is.
pub(super) fn unrestored_line(UnrestoredFile { path, before }: &UnrestoredFile) -> String {
    let before = before.as_ref().map_or_else(String::new, |before| {
        format!("; its earlier content is in {}", before.display())
    });
    let path = path.display();
    format!("{path}: changed during an interrupted merge; left as it is{before}")
}

/// Tries the merges in order, without changing files.
pub(super) fn preview(
    archive: &Archive,
    chosen: &ResultSelection,
) -> Result<Vec<ResultMergeOutcome>, Failure> {
    let kept: Vec<_> = chosen.picked.iter().map(|it| it.kept.clone()).collect();
    let verdicts = chosen.work.preview(&kept).map_err(|error| work_failure(&error))?;
    let judged = chosen.picked.iter().zip(verdicts);
    Ok(judged.map(|(picked, verdict)| judged_outcome(archive, chosen, picked, verdict)).collect())
}

/// Returns the outcome for a verdict. A result that was merged earlier and now differs from the files is not in
/// conflict: the files were changed after the merge.
fn judged_outcome(
    archive: &Archive,
    chosen: &ResultSelection,
    picked: &SelectedResult,
    verdict: MergeOutcome,
) -> ResultMergeOutcome {
    let differs = matches!(verdict, MergeOutcome::Conflicts(_) | MergeOutcome::Dirty(_));
    if differs && is_registered(archive, chosen, &picked.kept.commit) {
        return ResultMergeOutcome::MergedBefore;
    }
    ResultMergeOutcome::Judged(verdict)
}

/// Returns whether the registry has the merge. If it cannot be read, merging is refused later.
pub(super) fn is_registered(archive: &Archive, chosen: &ResultSelection, commit: &str) -> bool {
    archive
        .registry()
        .read_unlocked()
        .is_ok_and(|known| known.has_merged(&tree_key(chosen), commit))
}

/// Merges the results one after the other. A failure does not stop the others.
fn carry_out(
    archive: &Archive,
    chosen: &ResultSelection,
    how: MergeMode,
) -> Vec<ResultMergeOutcome> {
    chosen.picked.iter().map(|picked| merge_one(archive, chosen, picked, how)).collect()
}

/// Merges one result.
pub(super) fn merge_one(
    archive: &Archive,
    chosen: &ResultSelection,
    picked: &SelectedResult,
    how: MergeMode,
) -> ResultMergeOutcome {
    match how {
        MergeMode::Apply => apply(archive, chosen, picked),
        MergeMode::Branch => match chosen.work.branch(&picked.kept) {
            Ok(name) => branched(chosen, picked, name),
            Err(error) => ResultMergeOutcome::Unbranched(error),
        },
    }
}

/// Merges one result into the files and records that in the registry of runs. Refuses if the registry is unavailable.
fn apply(
    archive: &Archive,
    chosen: &ResultSelection,
    picked: &SelectedResult,
) -> ResultMergeOutcome {
    let registry = archive.registry();
    if let Err(error) = registry.read_unlocked() {
        return ResultMergeOutcome::Unregistered(error.into());
    }
    let verdict = chosen.work.apply(&picked.kept);
    if matches!(verdict, MergeOutcome::Merges { .. }) {
        let (tree, commit) = (tree_key(chosen), picked.kept.commit.clone());
        let merge = RegistryCommand::RecordMerge { tree, run: chosen.run, commit };
        // `merge --undo` works from the record in the state directory, so a failure here is only printed.
        if let Err(error) = registry.submit(merge) {
            let failure = Failure::from_error(Exit::Failed, &error);
            say(&format!(
                "adjutant: {} was merged, but this could not be recorded in the registry: {failure}",
                picked.title()
            ));
        }
    }
    judged_outcome(archive, chosen, picked, verdict)
}

/// Returns the registry's key of the tree that results are merged into.
pub(super) fn tree_key(chosen: &ResultSelection) -> TreeKey {
    TreeKey::new(chosen.work.tree().to_string_lossy())
}

/// Returns the fate of a result that is on the branch `name`.
pub(super) fn branched(
    chosen: &ResultSelection,
    picked: &SelectedResult,
    name: String,
) -> ResultMergeOutcome {
    // Only a remark depends on this, so an error of git is ignored.
    let uncommitted = chosen.work.holds_uncommitted(&picked.kept).unwrap_or(false);
    ResultMergeOutcome::Branched { name, uncommitted }
}

/// Summarizes the previews in one line.
pub(super) fn summarize_previews(
    chosen: &ResultSelection,
    previews: &[ResultMergeOutcome],
) -> String {
    use ResultMergeOutcome::{Judged, MergedBefore};
    if previews.is_empty() {
        return format!("adjutant: {} has no results: there is nothing to merge", chosen.name);
    }
    let count = |is: fn(&ResultMergeOutcome) -> bool| previews.iter().filter(|it| is(it)).count();
    let parts = [
        (count(|it| matches!(it, Judged(MergeOutcome::Merges { .. }))), "to merge"),
        (count(|it| matches!(it, Judged(MergeOutcome::Already))), "there already"),
        (count(|it| matches!(it, MergedBefore)), "merged before"),
        (count(|it| matches!(it, Judged(MergeOutcome::Conflicts(_)))), "in conflict"),
        (count(|it| matches!(it, Judged(MergeOutcome::Dirty(_)))), "held by uncommitted changes"),
        (count(|it| matches!(it, Judged(MergeOutcome::Failed(_)))), "failing"),
    ];
    let parts: Vec<String> = parts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, words)| format!("{count} {words}"))
        .collect();
    format!(
        "{} of {}: {}",
        count_with_noun(previews.len(), "result"),
        chosen.name,
        parts.join(", ")
    )
}

/// Describes what happened to a result, with the files that matter.
pub(super) fn line(picked: &SelectedResult, fate: &ResultMergeOutcome, dry_run: bool) -> String {
    let title = picked.title();
    match fate {
        ResultMergeOutcome::Judged(MergeOutcome::Merges { diff, submodules, git_like }) => {
            let word = if dry_run { "would merge" } else { "merged" };
            let unfinished = picked.unfinished().filter(|_| dry_run);
            let mut text =
                format!("{word}  {title}: {}{}\n", size(diff), unfinished.unwrap_or_default());
            for path in submodules {
                let path = path.to_string_lossy();
                text += &format!("  {}: a submodule, left as it is\n", sanitize::line(&path));
            }
            for path in git_like {
                let path = path.to_string_lossy();
                let shown = if path.is_empty() { ".".into() } else { sanitize::line(&path) };
                text += &format!(
                    "  warning: {shown} looks like a git directory: git reads its config and runs its hooks; \
                     look at them before you use git there\n"
                );
            }
            text
        }
        ResultMergeOutcome::Judged(MergeOutcome::Already) => format!("there already  {title}\n"),
        ResultMergeOutcome::MergedBefore => format!("merged before  {title}\n"),
        ResultMergeOutcome::UnreadRecords(error) => {
            let failure = work_failure(error).to_string();
            format!(
                "failed  {title}: not merged: cannot read whether it was merged before: {}\n",
                sanitize::line(&failure)
            )
        }
        ResultMergeOutcome::Unregistered(error) => {
            let failure = Failure::from_error(Exit::Failed, error).to_string();
            format!("failed  {title}: not merged: {}\n", sanitize::line(&failure))
        }
        ResultMergeOutcome::Judged(MergeOutcome::Conflicts(conflicts)) => {
            let head = format!("conflict  {title}: {}\n", count_with_noun(conflicts.len(), "file"));
            head + &conflicts.iter().map(conflict_line).collect::<String>()
        }
        ResultMergeOutcome::Judged(MergeOutcome::Dirty(paths)) => {
            let mut text = format!(
                "refused  {title}: {} with uncommitted changes it never saw\n",
                count_with_noun(paths.len(), "file")
            );
            for path in paths.iter().take(LISTED) {
                text += &format!("  {}\n", sanitize::line(&path.to_string_lossy()));
            }
            text
        }
        ResultMergeOutcome::Judged(MergeOutcome::Failed(error)) => {
            let failure = Failure::from_error(Exit::Failed, error).to_string();
            format!("failed  {title}: {}\n", sanitize::line(&failure))
        }
        ResultMergeOutcome::Branched { name, uncommitted } => {
            let remark = if *uncommitted {
                "; it also holds the uncommitted files the work began from"
            } else {
                ""
            };
            format!("branch  {title}: {name}{remark}\n")
        }
        ResultMergeOutcome::Unbranched(error) => {
            let failure = work_failure(error).to_string();
            format!("failed  {title}: {}\n", sanitize::line(&failure))
        }
    }
}

/// Prints what to type next.
pub(super) fn say_next(
    archive: &Archive,
    chosen: &ResultSelection,
    fates: &[ResultMergeOutcome],
    dry_run: bool,
) {
    let name = &chosen.name;
    let has = |is: fn(&ResultMergeOutcome) -> bool| fates.iter().any(is);
    let is_dirty =
        |it: &ResultMergeOutcome| matches!(it, ResultMergeOutcome::Judged(MergeOutcome::Dirty(_)));
    let mut judged = chosen.picked.iter().zip(fates);
    if let Some((picked, _)) = judged.find(|(_, fate)| is_dirty(fate)) {
        let result = picked.name(archive, chosen.run);
        say("Commit or stash those files, or:");
        advise_commands(&[
            (format!("`adjutant merge --resolve {result}`"), "makes a worktree to merge them in"),
            (format!("`adjutant merge {name} --as branch`"), "takes the work as a branch"),
        ]);
    }
    say_conflict_advice(archive, chosen, fates);
    if has(|it| {
        matches!(it, ResultMergeOutcome::Judged(MergeOutcome::Failed(ApplyError::Sparse { .. })))
    }) {
        say("This checkout is a sparse one.");
        advise_commands(&[
            ("git sparse-checkout add DIR".to_owned(), "brings a folder in"),
            (format!("`adjutant merge {name} --as branch`"), "takes the work as a branch"),
        ]);
    }
    let merges = has(|it| matches!(it, ResultMergeOutcome::Judged(MergeOutcome::Merges { .. })));
    if dry_run && merges {
        advise_commands(&[
            (format!("`adjutant diff {name}`"), "shows it"),
            (format!("`adjutant merge {name}`"), "does it"),
        ]);
    } else if merges {
        advise(&format!(
            "Merged as uncommitted changes. `adjutant merge --undo {name}` undoes it."
        ));
    }
}

/// Says how to resolve the first conflict, if there is one.
pub(super) fn say_conflict_advice(
    archive: &Archive,
    chosen: &ResultSelection,
    fates: &[ResultMergeOutcome],
) {
    let is_conflict = |fate: &ResultMergeOutcome| {
        matches!(fate, ResultMergeOutcome::Judged(MergeOutcome::Conflicts(_)))
    };
    let mut judged = chosen.picked.iter().zip(fates);
    let Some((picked, _)) = judged.find(|(_, fate)| is_conflict(fate)) else { return };
    let name = &chosen.name;
    match chosen.unmerged_before().as_slice() {
        [] => advise_on_conflict(archive, chosen, picked),
        // The work it builds on is missing, so resolving this conflict by hand would be wrong.
        before @ [first, ..] => advise(&format!(
            "{name} builds on the work of {}, which is not merged yet: `adjutant merge {first}` first.",
            before.join(", ")
        )),
    }
}

/// Says how to resolve a conflict.
fn advise_on_conflict(archive: &Archive, chosen: &ResultSelection, picked: &SelectedResult) {
    let name = picked.name(archive, chosen.run);
    let Some(path) = chosen.work.resolution_in_progress(&picked.kept) else {
        advise_commands(&[
            (
                format!("`adjutant merge --resolve {name}`"),
                "makes a worktree to resolve the conflict in",
            ),
            (format!("`adjutant resume {name} --rebase`"), "lets the agent resolve it"),
        ]);
        return;
    };
    say(&format!("It is being resolved in {}", path.display()));
    let typed = format!("`adjutant merge --resolve {name} --continue`");
    advise_commands(&[(typed, "merges it when it is done")]);
}

/// Returns the exit code: `Completed` for all merged, `Partial` for some, `Failed` for none, `Refused` if uncommitted
/// changes prevented all of them.
pub(super) fn exit(fates: &[ResultMergeOutcome], gone: usize) -> Exit {
    let well = |fate: &&ResultMergeOutcome| {
        matches!(
            fate,
            ResultMergeOutcome::Judged(MergeOutcome::Merges { .. } | MergeOutcome::Already)
                | ResultMergeOutcome::MergedBefore
                | ResultMergeOutcome::Branched { .. }
        )
    };
    let dirty = |fate: &ResultMergeOutcome| {
        matches!(fate, ResultMergeOutcome::Judged(MergeOutcome::Dirty(_)))
    };
    let merged = fates.iter().filter(well).count();
    match merged {
        all if all == fates.len() && gone == 0 => Exit::Completed,
        0 if !fates.is_empty() && fates.iter().all(dirty) => Exit::Refused,
        0 => Exit::Failed,
        _ => Exit::Partial,
    }
}

fn as_object(
    chosen: &ResultSelection,
    args: &MergeResultsArgs,
    fates: &[ResultMergeOutcome],
    shared: &[SharedFile],
) -> Value {
    let how = match args.how {
        MergeMode::Apply => "apply",
        MergeMode::Branch => "branch",
    };
    let results = chosen.picked.iter().zip(fates);
    let merged = |it: &ResultMergeOutcome| {
        matches!(it, ResultMergeOutcome::Judged(MergeOutcome::Merges { .. }))
    };
    let undo = (!args.dry_run && fates.iter().any(merged))
        .then(|| command(&format!("adjutant merge --undo {}", chosen.name)));
    json!({
        "v": 1, "run": chosen.run, "tree": chosen.work.tree().to_string_lossy(), "how": how,
        "dry_run": args.dry_run, "undo": undo,
        "results": results.map(|(picked, fate)| fate_json(picked, fate, args.dry_run)).collect::<Vec<_>>(),
        "gone": chosen.gone_json(), "shared": chosen.shared_json(shared),
        "unfinished": chosen.unfinished_json(), "unkept": chosen.unkept_json(),
    })
}

/// Returns a command with the `--home` that was typed.
fn command(text: &str) -> String {
    completed(&format!("`{text}`")).trim_matches('`').to_owned()
}

fn fate_json(picked: &SelectedResult, fate: &ResultMergeOutcome, dry_run: bool) -> Value {
    let mut object = picked.json();
    let (word, name, value): (&str, &str, Value) = match fate {
        ResultMergeOutcome::Judged(MergeOutcome::Merges { diff, submodules, git_like }) => {
            let paths =
                |all: &[PathBuf]| all.iter().map(|it| json!(it.to_string_lossy())).collect();
            object["submodules"] = paths(submodules);
            object["git_like"] = paths(git_like);
            (if dry_run { "would_merge" } else { "merged" }, "files", files(diff))
        }
        ResultMergeOutcome::Judged(MergeOutcome::Already) | ResultMergeOutcome::MergedBefore => {
            ("already", "files", json!([]))
        }
        ResultMergeOutcome::Judged(MergeOutcome::Conflicts(all)) => {
            ("conflict", "conflicts", conflicts(all))
        }
        ResultMergeOutcome::Judged(MergeOutcome::Dirty(paths)) => {
            ("refused", "dirty", paths.iter().map(|it| json!(it.to_string_lossy())).collect())
        }
        ResultMergeOutcome::Judged(MergeOutcome::Failed(error)) => {
            ("failed", "reason", json!(Failure::from_error(Exit::Failed, error).to_string()))
        }
        ResultMergeOutcome::Branched { name, uncommitted } => {
            object["holds_uncommitted"] = json!(uncommitted);
            ("branched", "branch", json!(name))
        }
        ResultMergeOutcome::Unbranched(error) | ResultMergeOutcome::UnreadRecords(error) => {
            ("failed", "reason", json!(work_failure(error).to_string()))
        }
        ResultMergeOutcome::Unregistered(error) => {
            ("failed", "reason", json!(Failure::from_error(Exit::Failed, error).to_string()))
        }
    };
    object["fate"] = json!(word);
    object[name] = value;
    object
}

fn files(diff: &Diff) -> Value {
    diff.entries.iter().map(file_json).collect()
}

fn conflicts(all: &[Conflict]) -> Value {
    all.iter().map(conflict_json).collect()
}

/// Records that a merge was undone. Merges of earlier versions are not in the registry.
fn register_undo(archive: &Archive, chosen: &ResultSelection, commit: &str) {
    let undo = RegistryCommand::UndoMerge { tree: tree_key(chosen), commit: commit.to_owned() };
    match archive.registry().submit(undo) {
        Ok(_) | Err(RegistryError::Refused(RegistryRefusal::NotMerged { .. })) => {}
        Err(error) => {
            let failure = Failure::from_error(Exit::Failed, &error);
            say(&format!(
                "adjutant: the merge of {commit} was undone, but this could not be recorded in the registry: {failure}"
            ));
        }
    }
}

/// Undoes merges into the files, also of results that were discarded in between.
fn undo_merges(
    archive: &Archive,
    chosen: &ResultSelection,
    as_json: bool,
) -> Result<Exit, Failure> {
    recover(chosen)?;
    let there = chosen.picked.iter().map(|it| (it.json(), it.title(), it.kept.commit.clone()));
    let gone = chosen.gone.iter().zip(chosen.gone_json());
    let gone = gone.map(|(it, json)| (json, it.title(), it.commit.clone()));
    let all: Vec<(Value, String, String)> = there.chain(gone).collect();
    let commits: Vec<String> = all.iter().map(|(_, _, commit)| commit.clone()).collect();
    let taken = chosen.work.take_back(&commits).map_err(|error| work_failure(&error))?;
    for (commit, _) in
        commits.iter().zip(&taken).filter(|(_, it)| matches!(it, UnmergeOutcome::Done))
    {
        register_undo(archive, chosen, commit);
    }
    let done = taken.iter().filter(|it| matches!(it, UnmergeOutcome::Done)).count();
    let nothing = taken.iter().filter(|it| matches!(it, UnmergeOutcome::Nothing)).count();
    if as_json {
        let results: Vec<Value> = all
            .into_iter()
            .zip(&taken)
            .map(|((object, _, _), taken)| undo_json(object, taken))
            .collect();
        print_json(&json!({
            "v": 1, "run": chosen.run, "tree": chosen.work.tree().to_string_lossy(), "how": "undo",
            "dry_run": false, "undo": null, "results": results, "gone": [], "shared": [],
        }))?;
    } else {
        let lines = all.iter().zip(&taken).map(|((_, title, _), taken)| undo_line(title, taken));
        print(&lines.collect::<String>())?;
        if done == 0 && nothing == taken.len() {
            say(&format!("adjutant: nothing of {} is merged into the files", chosen.name));
        }
    }
    Ok(match taken.len() - nothing {
        all if all == done => Exit::Completed,
        _ if done == 0 => Exit::Refused,
        _ => Exit::Partial,
    })
}

fn undo_line(title: &str, taken: &UnmergeOutcome) -> String {
    match taken {
        UnmergeOutcome::Done => format!("taken back  {title}\n"),
        UnmergeOutcome::Nothing => String::new(),
        UnmergeOutcome::Changed(paths) => {
            let mut text =
                format!("left  {title}: {} changed since\n", count_with_noun(paths.len(), "file"));
            for path in paths.iter().take(LISTED) {
                text += &format!("  {}\n", sanitize::line(&path.to_string_lossy()));
            }
            text
        }
        UnmergeOutcome::Failed(error) => {
            let failure = Failure::from_error(Exit::Failed, error).to_string();
            format!("left  {title}: {}\n", sanitize::line(&failure))
        }
    }
}

fn undo_json(mut object: Value, taken: &UnmergeOutcome) -> Value {
    let word = match taken {
        UnmergeOutcome::Done => "taken_back",
        UnmergeOutcome::Nothing => "not_merged",
        UnmergeOutcome::Changed(paths) => {
            object["dirty"] = paths.iter().map(|it| json!(it.to_string_lossy())).collect();
            "refused"
        }
        UnmergeOutcome::Failed(error) => {
            object["reason"] = json!(Failure::from_error(Exit::Failed, error).to_string());
            "failed"
        }
    };
    object["fate"] = json!(word);
    object
}
