//! `errors`: lists the errors of runs, writes them to a file, marks them as fixed.

use std::collections::BTreeSet;

use adjutant_core::{Event, RunId};
use adjutant_engine::{Archive, ArchiveError, RunFiles};
use adjutant_formats::contract::{ErrorType, WireWord};
use adjutant_view::errors::{self, ErrorJson, ErrorsJson, FixStatus};
use adjutant_view::wire::pretty;
use adjutant_view::{RunSummary, error_groups, sanitize};

use crate::args::{ErrorsArgs, ErrorsCommand};
use crate::exit::{Exit, Failure};
use crate::output::{print, print_json, say};
use crate::projections;
use crate::records::{ViewDetail, archive_failure, colours, count_with_noun, fold, list_columns};
use crate::run_lookup;
use crate::run_summaries::readable_summaries;

/// The name of the file in the state directory.
const FILE: &str = "errors.json";

/// Runs `adjutant errors`.
pub(crate) fn run_errors(
    archive: &Archive,
    args: &ErrorsArgs,
    as_json: bool,
) -> Result<Exit, Failure> {
    if let Some(ErrorsCommand::Fixed { id }) = &args.tick {
        return mark_fixed(archive, id, as_json);
    }
    if args.write {
        let all =
            ErrorsJson::new(all_errors(archive)?.into_iter().map(|(_, error)| error).collect());
        let path =
            archive.write_projection(FILE, pretty(&all).as_bytes()).map_err(archive_failure)?;
        say(&format!(
            "adjutant: {} kept in {}",
            count_with_noun(all.errors.len(), "error"),
            path.display()
        ));
    }
    let found = match &args.run {
        Some(text) => {
            let (files, session) = run_lookup::find_to_show(archive, Some(text), |_| true)?;
            let root = files.id().root_session();
            let wanted = session.filter(|session| *session != root);
            let mut errors = of_run(&files)?;
            errors.retain(|error| wanted.is_none_or(|one| error.context.session_id == one));
            errors
        }
        None => all_errors(archive)?.into_iter().map(|(_, error)| error).collect(),
    };
    if let Some(kind) = &args.kind {
        check_type(kind, &found)?;
    }
    let is_of_type = |error: &ErrorJson| args.kind.as_ref().is_none_or(|it| error.kind == *it);
    let of_type: Vec<ErrorJson> = found.into_iter().filter(is_of_type).collect();
    let (shown, fixed): (Vec<_>, Vec<_>) =
        of_type.into_iter().partition(|error| args.all || error.is_unfixed());
    if as_json {
        print_json(&ErrorsJson::new(shown))?;
        return Ok(Exit::Completed);
    }
    // The errors of one run are few enough to list each.
    let is_grouped = args.run.is_none() && !args.each;
    let groups = error_groups::group(&shown);
    if is_grouped {
        print(&error_groups::render(&groups, list_columns(), colours()))?;
    } else {
        print(&errors::render(&shown, list_columns(), colours()))?;
    }
    say(&summary(&shown, fixed.len(), groups.len(), is_grouped));
    Ok(Exit::Completed)
}

fn summary(shown: &[ErrorJson], hidden: usize, kinds: usize, is_grouped: bool) -> String {
    let mut text = match shown {
        [] => "No errors".to_owned(),
        some => count_with_noun(some.len(), "error"),
    };
    if is_grouped && kinds < shown.len() {
        text += &format!(" of {}; --each lists each", count_with_noun(kinds, "kind"));
    }
    if hidden > 0 {
        text += &format!("; {hidden} fixed not shown, --all shows them");
    }
    match shown.iter().find(|error| error.is_unfixed()) {
        Some(first) => text + &format!("; `adjutant errors fixed {}` ticks one off", first.id),
        None => text,
    }
}

/// Records that an error is fixed. Fails while a process works on its run.
fn mark_fixed(archive: &Archive, id: &str, as_json: bool) -> Result<Exit, Failure> {
    let found = all_errors(archive)?.into_iter().find(|(_, error)| error.id == id);
    let Some((files, mut error)) = found else {
        return Err(Failure::usage(format!("no run has the error {id}"))
            .hint("`adjutant errors --all` lists them."));
    };
    let is_new = error.is_unfixed();
    if is_new {
        files.append(&Event::ErrorFixed { id: id.to_owned() }).map_err(|error| match error {
            ArchiveError::Live(run) => Failure::from_error(Exit::Failed, &error).hint(format!(
                "`adjutant wait {run}` waits until it has ended; mark the error as fixed then."
            )),
            ArchiveError::Expired(_) => Failure::from_error(Exit::Failed, &error)
                .hint("The run was pruned, so its errors can no longer be marked as fixed."),
            ArchiveError::Home(_)
            | ArchiveError::Find(_)
            | ArchiveError::NoSession(_)
            | ArchiveError::Ambiguous { .. }
            | ArchiveError::Read { .. }
            | ArchiveError::Write { .. }
            | ArchiveError::File(_) => archive_failure(error),
        })?;
        error.fix_status = FixStatus::Fixed;
    }
    // Even if it was fixed before: errors.json may have been missing then.
    projections::keep_errors(&fold(&files, ViewDetail::Numbers)?.0);
    if as_json {
        print_json(&ErrorsJson::new(vec![error]))?;
    } else {
        say(&format!("adjutant: {id} {} fixed", if is_new { "is" } else { "was already" }));
    }
    Ok(Exit::Completed)
}

/// Marks all errors of an ended run as fixed: the demo fails on purpose.
pub(crate) fn mark_all_fixed(archive: &Archive, run: RunId) -> Result<(), Failure> {
    let (files, _) = archive.find(&run.to_string()).map_err(archive_failure)?;
    for error in of_run(&files)?.into_iter().filter(ErrorJson::is_unfixed) {
        files.append(&Event::ErrorFixed { id: error.id }).map_err(archive_failure)?;
    }
    Ok(())
}

/// Returns the errors of all runs, each with the files of its run, newest run first.
fn all_errors(archive: &Archive) -> Result<Vec<(RunFiles, ErrorJson)>, Failure> {
    let summaries = readable_summaries(archive)?.into_iter();
    let errors_of = |(files, summary): (RunFiles, RunSummary)| {
        summary.errors.into_iter().map(move |error| (files.clone(), error))
    };
    Ok(summaries.flat_map(errors_of).collect())
}

fn of_run(files: &RunFiles) -> Result<Vec<ErrorJson>, Failure> {
    fold(files, ViewDetail::Numbers).map(|(view, liveness)| errors::of_run(&view, liveness))
}

/// Refuses a type that is neither standard nor the type of one of these errors.
fn check_type(kind: &str, found: &[ErrorJson]) -> Result<(), Failure> {
    let standard = ErrorType::ALL.iter().map(|known| known.word());
    let known: BTreeSet<&str> =
        standard.chain(found.iter().map(|error| error.kind.as_str())).collect();
    if known.contains(kind) {
        return Ok(());
    }
    let known = known.into_iter().map(|word| sanitize::line(word).into_owned());
    let known = known.collect::<Vec<_>>().join(", ");
    Err(Failure::usage(format!("unknown error type `{}`", sanitize::line(kind)))
        .hint(format!("Known types: {known}.")))
}
