//! `discard`: deletes the references to results. Git keeps the commits until it collects garbage.

use adjutant_engine::results::ResultsError;
use adjutant_engine::{Archive, WorkspaceSetup};
use adjutant_view::sanitize;
use serde_json::{Value, json};

use super::{MergedChildren, ResultSelection, SelectedResult, size, work_failure};
use crate::args::DiscardResultsArgs;
use crate::ask::Terminal;
use crate::exit::{Exit, Failure};
use crate::output::{print, print_json, say};
use crate::records::count_with_noun;

/// Runs `adjutant discard`.
pub(crate) fn run_discard(
    archive: &Archive,
    args: &DiscardResultsArgs,
    as_json: bool,
) -> Result<Exit, Failure> {
    let chosen = ResultSelection::find(archive, Some(&args.run), MergedChildren::Include)?;
    if !as_json || chosen.picked.is_empty() {
        chosen.say_gone()?;
    }
    if chosen.picked.is_empty() && !as_json {
        if chosen.is_nothing() {
            say(&format!("adjutant: {} has no results: there is nothing to discard", chosen.name));
        }
        chosen.say_unkept();
        chosen.say_unfinished();
        return Ok(chosen.exit(Exit::Completed));
    }
    if !args.yes && !chosen.picked.is_empty() {
        ask(&chosen)?;
    }
    let done: Vec<(&SelectedResult, Result<(), ResultsError>)> =
        chosen.picked.iter().map(|it| (it, chosen.work.discard(&it.kept))).collect();
    WorkspaceSetup::new(archive.path().to_owned()).release_base_refs(chosen.work.tree(), archive);
    let failed = done.iter().filter(|(_, done)| done.is_err()).count();
    if as_json {
        let results: Vec<Value> = done.iter().map(as_object).collect();
        print_json(&json!({
            "v": 1, "run": chosen.run, "tree": chosen.work.tree().to_string_lossy(),
            "results": results, "gone": chosen.gone_json(), "unfinished": chosen.unfinished_json(),
            "unkept": chosen.unkept_json(),
        }))?;
    } else {
        print(&done.iter().map(line).collect::<String>())?;
        if failed < done.len() {
            say("Until git collects them, `git branch NAME COMMIT` brings the work back.");
        }
        chosen.say_unkept();
        chosen.say_unfinished();
    }
    Ok(chosen.exit(match failed {
        0 => Exit::Completed,
        all if all == done.len() => Exit::Failed,
        _ => Exit::Partial,
    }))
}

/// Shows the results and asks for confirmation. Refuses if there is no terminal.
fn ask(chosen: &ResultSelection) -> Result<(), Failure> {
    let count = count_with_noun(chosen.picked.len(), "result");
    let Some(terminal) = Terminal::open() else {
        let text = format!("{count} would be discarded, and there is no terminal to ask on");
        return Err(Failure::new(Exit::Refused, text)
            .hint("Add --yes to discard without asking; `adjutant diff` shows what it is."));
    };
    let mut shown = String::new();
    for (picked, diff) in chosen.picked.iter().zip(chosen.diffs(&[])?) {
        let merged = if picked.kept.merged { "merged" } else { "not merged" };
        shown += &format!("{}: {}, {merged}\n", picked.title(), size(&diff));
    }
    if terminal.confirm(&shown, &format!("Discard {count}? [y/N] ")) {
        return Ok(());
    }
    Err(Failure::new(Exit::Refused, "nothing was discarded"))
}

fn line((picked, done): &(&SelectedResult, Result<(), ResultsError>)) -> String {
    match done {
        Ok(()) => format!("discarded  {}: commit {}\n", picked.title(), picked.kept.commit),
        Err(error) => {
            let why = work_failure(error).to_string();
            format!("kept  {}: {}\n", picked.title(), sanitize::line(&why))
        }
    }
}

fn as_object((picked, done): &(&SelectedResult, Result<(), ResultsError>)) -> Value {
    let mut object = picked.json();
    object["discarded"] = json!(done.is_ok());
    if let Err(error) = done {
        object["reason"] = json!(work_failure(error).to_string());
    }
    object
}
