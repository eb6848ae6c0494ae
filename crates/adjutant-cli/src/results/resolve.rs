//! `merge --resolve`: a worktree with conflict markers, and what becomes of it.
//!
//! Start at [`run_resolve`].

use std::path::Path;

use adjutant_engine::Archive;
use adjutant_engine::results::{Conflict, ConflictKind, ConflictSide, MergeOutcome, ResolveError};
use adjutant_view::sanitize;

use super::merge::{ResultMergeOutcome, exit, line, merge_one, preview, say_next};
use super::{LISTED, ResultSelection, conflict_line, work_failure};
use crate::args::{MergeMode, MergeResultsArgs};
use crate::exit::{Exit, Failure};
use crate::hints::advise_commands;
use crate::output::print;

/// Runs `adjutant merge --resolve`, with `--continue` or `--abort`.
pub(super) fn run_resolve(
    archive: &Archive,
    mut chosen: ResultSelection,
    args: &MergeResultsArgs,
    as_json: bool,
) -> Result<Exit, Failure> {
    if as_json {
        return Err(Failure::usage("--resolve has no JSON output: it is for a person"));
    }
    chosen.say_gone()?;
    if chosen.picked.len() > 1 {
        choose_conflict(archive, &mut chosen)?;
    }
    let [picked] = chosen.picked.as_slice() else {
        return Err(Failure::usage(format!("{} has no results", chosen.name)));
    };
    let (id, title) = (picked.id(), picked.title());
    if args.abort {
        let path = chosen.work.end_resolution(&picked.kept);
        let path = path.map_err(|error| resolve_failure(&error, &id))?;
        let text = format!("removed  {}; the result of {title} stays as it was\n", path.display());
        return print(&text).map(|()| Exit::Completed);
    }
    if args.go_on {
        let resolved = chosen.work.commit_resolution(&picked.kept);
        let resolved = resolved.map_err(|error| resolve_failure(&error, &id))?;
        chosen.picked.iter_mut().for_each(|it| it.kept = resolved.clone());
        return merge_resolved(archive, &chosen);
    }
    let is_new = chosen.work.resolution_in_progress(&picked.kept).is_none();
    let outcomes = if is_new { preview(archive, &chosen)? } else { Vec::new() };
    if let [ResultMergeOutcome::MergedBefore] = outcomes.as_slice() {
        return Err(Failure::usage(format!("{id} was merged before")));
    }
    if let [ResultMergeOutcome::Judged(MergeOutcome::Merges { .. } | MergeOutcome::Already)] =
        outcomes.as_slice()
    {
        let text = format!("{id} has no conflicts");
        let hint = format!("`adjutant merge {id}` merges it.");
        return Err(Failure::usage(text).hint(hint));
    }
    let begun = chosen.work.begin_resolution(&picked.kept).map_err(|error| work_failure(&error))?;
    let path = begun.path.display();
    let word = if begun.is_continued { "in progress" } else { "worktree" };
    let mut text = format!("{word}  {title}: {path}\n");
    for conflict in begun.conflicts.iter().take(LISTED) {
        text += &conflict_line(conflict);
        text += &choice(conflict, &begun.path);
    }
    print(&text)?;
    let name = picked.name(archive, chosen.run);
    advise_commands(&[
        (format!("`adjutant merge --resolve {name} --continue`"), "merges it when that is done"),
        (
            format!("`adjutant merge --resolve {name} --abort`"),
            "removes the worktree and keeps the result",
        ),
    ]);
    Ok(Exit::Completed)
}

/// Leaves only the result that is in conflict. Fails if several are.
fn choose_conflict(archive: &Archive, chosen: &mut ResultSelection) -> Result<(), Failure> {
    let outcomes = preview(archive, chosen)?;
    let is_conflict = |outcome: &ResultMergeOutcome| {
        matches!(outcome, ResultMergeOutcome::Judged(MergeOutcome::Conflicts(_)))
    };
    let picked = std::mem::take(&mut chosen.picked).into_iter().zip(outcomes);
    let in_conflict = picked.filter(|(_, outcome)| is_conflict(outcome));
    chosen.picked = in_conflict.map(|(picked, _)| picked).collect();
    match chosen.picked.as_slice() {
        [_] => Ok(()),
        [] => Err(Failure::usage(format!("no result of {} is in conflict", chosen.name))),
        several => {
            let text = format!("{} results of {} are in conflict", several.len(), chosen.name);
            let commands = several
                .iter()
                .map(|it| format!("`adjutant merge --resolve {}` for {}", it.id(), it.title()));
            Err(Failure::usage(text).hint(commands.collect::<Vec<_>>().join("\n")))
        }
    }
}

/// Merges the committed resolution into the files, and removes the worktree if that succeeds.
fn merge_resolved(archive: &Archive, chosen: &ResultSelection) -> Result<Exit, Failure> {
    let Some(picked) = chosen.picked.first() else { return Ok(Exit::Failed) };
    let fates = [merge_one(archive, chosen, picked, MergeMode::Apply)];
    let [fate] = &fates;
    print(&line(picked, fate, false))?;
    // The resolution is committed, so a conflict with newer changes is resolved from it in a new worktree.
    let ended = chosen.work.end_resolution(&picked.kept);
    ended.map_err(|error| resolve_failure(&error, &picked.id()))?;
    say_next(archive, chosen, &fates, false);
    Ok(exit(&fates, 0))
}

/// Says how to resolve a conflict: by editing the file, or by choosing a side if there are no markers in it.
fn choice(conflict: &Conflict, worktree: &Path) -> String {
    const LINK: u32 = 0o120_000;
    let sides = [("yours", &conflict.ours), ("result", &conflict.theirs)];
    let is_link = |side: &Option<ConflictSide>| side.as_ref().is_some_and(|it| it.mode == LINK);
    let is_text = matches!(conflict.kind, ConflictKind::BothModified | ConflictKind::BothAdded);
    // Absolute, because a command that is typed in the user's own checkout must not change files there.
    let path = worktree.join(&conflict.path);
    let path = path.to_string_lossy();
    let shown = sanitize::line(&path);
    if is_text && !sides.iter().any(|(_, side)| is_link(side)) {
        return format!("    edit {shown}, remove the markers\n");
    }
    if shown != path {
        return "    its name has unusual characters: keep one side by hand\n".to_owned();
    }
    let path = sanitize::shell_word(&path);
    // Git stores such files beside each other.
    if conflict.kind == ConflictKind::FileAndFolder
        || (conflict.kind == ConflictKind::Mode && sides.iter().any(|(_, side)| is_link(side)))
    {
        let names = "as NAME~yours or NAME~result beside the other side";
        return format!(
            "    one side is stored {names}: keep one, and rename or remove the other\n"
        );
    }
    let take = |(name, side): (&str, &Option<ConflictSide>)| match side {
        Some(side) if side.mode == LINK => {
            format!("    {name}: ln -sfn \"$(git cat-file blob {})\" {path}\n", side.id.as_str())
        }
        Some(side) => format!("    {name}: git cat-file blob {} > {path}\n", side.id.as_str()),
        None => format!("    {name}: rm -f {path}\n"),
    };
    // Both sides renamed the file, and their names are listed too.
    if conflict.ours.is_none() && conflict.theirs.is_none() {
        return String::new();
    }
    sides.map(take).concat()
}

fn resolve_failure(error: &ResolveError, id: &str) -> Failure {
    let again = format!(
        "`adjutant merge --resolve {id} --abort`, then `adjutant merge --resolve {id}` begins again."
    );
    let (exit, hint) = match error {
        ResolveError::NotBegun(_) => {
            (Exit::Usage, format!("`adjutant merge --resolve {id}` makes the worktree."))
        }
        ResolveError::FilesGone(_) | ResolveError::ResultChanged(_) => (Exit::Failed, again),
        ResolveError::Unresolved(paths) => {
            let shown = paths.iter().take(LISTED).map(|path| path.to_string_lossy());
            let shown = shown.map(|path| sanitize::line(&path).into_owned()).collect::<Vec<_>>();
            (
                Exit::Failed,
                format!(
                    "Remove the conflict markers, or files named NAME~yours and NAME~result: {}",
                    shown.join(", ")
                ),
            )
        }
        ResolveError::Git(_) => return Failure::from_error(Exit::Failed, error),
    };
    Failure::from_error(exit, error).hint(hint)
}
