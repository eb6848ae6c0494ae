//! What lists of many runs show of each run, from the index of the state directory where it is up to date.

use std::path::PathBuf;

use adjutant_engine::{Archive, RunFiles, RunLiveness, SummaryFreshness};
use adjutant_view::run_summary::SUMMARY_VERSION;
use adjutant_view::{ProcessLiveness, RunSummary};

use crate::exit::Failure;
use crate::output::say;
use crate::records::{archive_failure, check_begun, numbers};

/// Returns a summary of every readable run, the newest first. Prints why the others cannot be read.
pub(crate) fn readable_summaries(
    archive: &Archive,
) -> Result<Vec<(RunFiles, RunSummary)>, Failure> {
    let mut readable = Vec::new();
    let all = archive.summaries(SummaryFreshness::Current, SUMMARY_VERSION, summarize, is_ended);
    let all = all.map_err(archive_failure)?;
    for (files, summary) in all {
        // A damaged run must not hide the others.
        match summary {
            Ok(summary) => readable.push((files, summary)),
            Err(failure) => say(&format!("adjutant: {failure}")),
        }
    }
    Ok(readable)
}

/// Returns the working directory of every readable run, the newest first.
pub(crate) fn run_workdirs(archive: &Archive) -> Result<Vec<(RunFiles, PathBuf)>, Failure> {
    // The first record of a live run is enough.
    let of_ended = |files: &RunFiles, liveness| match liveness {
        RunLiveness::Live { .. } => Err(()),
        RunLiveness::Dead => summarize(files, liveness).map_err(drop),
    };
    let all = archive.summaries(SummaryFreshness::AnyAge, SUMMARY_VERSION, of_ended, is_ended);
    let all = all.map_err(archive_failure)?;
    let workdirs = all.into_iter().filter_map(|(files, summary)| {
        let workdir = summary.ok().map(|summary| PathBuf::from(summary.workdir));
        let workdir = workdir.or_else(|| files.workdir())?;
        Some((files, workdir))
    });
    Ok(workdirs.collect())
}

fn is_ended(summary: &RunSummary) -> bool {
    summary.outcome.is_some()
}

fn summarize(files: &RunFiles, liveness: RunLiveness) -> Result<RunSummary, Failure> {
    let (mut view, _) = numbers(files)?;
    let liveness = match liveness {
        RunLiveness::Live { .. } => ProcessLiveness::Alive,
        RunLiveness::Dead => {
            view.close_open_calls();
            ProcessLiveness::Dead
        }
    };
    check_begun(files, &view, liveness)?;
    Ok(RunSummary::of(&view, liveness))
}
