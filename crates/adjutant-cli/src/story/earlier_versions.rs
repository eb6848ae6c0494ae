//! Finds runs on stories that were started by versions without a registry, by reading journals, once per PRD.

use std::path::Path;

use adjutant_core::Event;
use adjutant_core::registry::{StoryEnd, StoryRun, StoryRunState};
use adjutant_engine::prd::with_canonical_dir;
use adjutant_engine::{Archive, ArchiveError, RunFiles, story_key};
use adjutant_view::{RunView, TimedEvent};

use super::run_end::{commit_of, last_child_of, story_end};
use crate::exit::Failure;
use crate::output::say;
use crate::records::numbers;

/// The most runs of a tree that are read, newest first.
const LOOKED_AT: usize = 500;

/// Returns the runs in a tree on the stories of a PRD, oldest first.
pub(super) fn runs_of_earlier_versions(
    archive: &Archive,
    workdir: &Path,
    prd: &Path,
) -> Result<Vec<StoryRun>, Failure> {
    let mut found = Vec::new();
    let mut looked_at = 0;
    for files in archive.runs().map_err(crate::records::archive_failure)? {
        match files.workdir() {
            Some(found) if found == workdir => {}
            // `None`: an unreadable run, whose tree is unknown.
            Some(_) | None => continue,
        }
        if looked_at == LOOKED_AT {
            say(&format!(
                "adjutant: only the latest {LOOKED_AT} runs of this folder were searched for earlier work; \
                 `adjutant prune` clears old ones"
            ));
            break;
        }
        looked_at += 1;
        found.extend(run_on_story(&files, prd));
    }
    found.reverse();
    Ok(found)
}

/// Returns what a run did for a story of the PRD; `None` for other runs.
fn run_on_story(files: &RunFiles, prd: &Path) -> Option<StoryRun> {
    let view = numbers(files).map(|(view, _)| view);
    // The story is in the first records of the journal, so even a damaged journal names it.
    let (view, is_read) = view.map_or_else(|_| (fold_beginning(files), false), |view| (view, true));
    // An earlier run may have been given another path to the same file.
    let is_of_prd = |path: &String| with_canonical_dir(Path::new(path)) == with_canonical_dir(prd);
    let story = view.story().filter(|it| it.prd.as_ref().is_some_and(is_of_prd))?;
    // The end of an unreadable run is unknown. Resuming it reads the journal again and reports the error.
    let end = if is_read { story_end(&view) } else { StoryEnd::Resumable };
    Some(StoryRun {
        story: story_key(prd, &story.id),
        run: files.id(),
        asked: story.asked.clone(),
        state: StoryRunState::Ended(end),
        passed_with: commit_of(&view).into_iter().filter(|_| end == StoryEnd::Passed).collect(),
        last_child: last_child_of(&view),
    })
}

/// Folds the readable beginning of a damaged journal.
fn fold_beginning(files: &RunFiles) -> RunView {
    let mut view = RunView::default();
    for record in files.records().into_iter().flatten().map_while(Result::ok) {
        view.apply(TimedEvent::new(record.at, record.wall_ms, &record.event));
    }
    view
}

/// Returns whether the journal says that the root agent of a run ever kept this commit.
///
/// For runs whose pass is not in the registry: those of versions without a registry, those whose end could not be
/// recorded, and those that the registry has already forgotten.
pub(super) fn has_kept(files: &RunFiles, commit: &str) -> Result<bool, ArchiveError> {
    let root = files.id().root_session();
    for record in files.records()? {
        if let Event::SpaceKept { session, kept, .. } = record?.event
            && session == root
            && kept.commit.as_deref() == Some(commit)
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Warns if the first record of a run cannot be read, so that its tree is unknown.
pub(super) fn warn_unreadable(files: &RunFiles) {
    let first = files.records().map(|mut records| records.next().transpose());
    if let Err(error) = first.and_then(|first| first) {
        say(&format!(
            "adjutant: the journal of {} cannot be read, so the story goes on as if this run had not happened: {}",
            files.id(),
            crate::records::archive_failure(error)
        ));
    }
}
