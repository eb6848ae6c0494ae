//! Writes the files that are derived from a journal: transcripts, scratchpads and the project's `errors.json`.

use std::collections::BTreeMap;
use std::path::Path;

use adjutant_core::{Conversation, Event, Preset, SessionId};
use adjutant_engine::RunFiles;
use adjutant_engine::specs::{MissingFolder, Specs, SpecsError};
use adjutant_view::transcript::Transcript;
use adjutant_view::{ProcessLiveness, RunView, errors};
use serde_json::json;

use crate::exit::{Exit, Failure};
use crate::output::say;

/// Updates `errors.json` in the project's specs directory after a run with the preset `command`.
///
/// Only a slash command creates the directory. A failure is only printed, because the journal has the errors too.
pub(crate) fn keep_errors(view: &RunView) {
    if view.policy().is_none_or(|policy| policy.preset != Preset::Command) {
        return;
    }
    // As alive: an interrupted run is not an error in this file, because it may be resumed.
    let errors = errors::of_run(view, ProcessLiveness::Alive);
    let errors: Vec<_> = errors.iter().map(|error| json!(error)).collect();
    if errors.is_empty() {
        return;
    }
    let absent =
        if view.assignment().is_some() { MissingFolder::Create } else { MissingFolder::Leave };
    let kept = || -> Result<(), SpecsError> {
        let specs = Specs::open(Path::new(view.workdir()))?;
        specs.keep_errors(&errors, absent)?;
        specs.take_notices().iter().for_each(|notice| say(&format!("adjutant: {notice}")));
        Ok(())
    };
    if let Err(error) = kept() {
        say(&format!(
            "adjutant: errors.json is not up to date: {}",
            Failure::from_error(Exit::Failed, &error)
        ));
    }
}

/// Writes all transcripts and scratchpads of a run in one pass over its journal, which `view` has folded.
///
/// No process may be working on the run. A conversation is held in memory only until its session ends; sessions that
/// never ended are written last.
pub(crate) fn write(files: &RunFiles, view: &RunView) -> Result<(), Failure> {
    let failed = |error| Failure::from_error(Exit::Failed, &error);
    let mut talks: BTreeMap<SessionId, Conversation> = BTreeMap::new();
    let mut new_talk = Conversation::with_earlier();
    for record in files.records().map_err(failed)? {
        let record = record.map_err(failed)?;
        new_talk.enter_run(&record.event);
        let Some(session) = record.event.conversation() else { continue };
        talks.entry(session).or_insert_with(|| new_talk.clone()).apply(&record.event);
        let speaks_again = view.delegation(session).is_some_and(|delegation| delegation.reopened);
        if matches!(record.event, Event::Ended { .. } | Event::Refused { .. })
            && !speaks_again
            && let Some(talk) = talks.remove(&session)
        {
            write_one(files, view, session, &talk)?;
        }
    }
    talks.iter().try_for_each(|(session, talk)| write_one(files, view, *session, talk))
}

fn write_one(
    files: &RunFiles,
    view: &RunView,
    session: SessionId,
    talk: &Conversation,
) -> Result<(), Failure> {
    let Some(transcript) = Transcript::of_parts(view, session, talk, ProcessLiveness::Dead) else {
        return Ok(());
    };
    if transcript.messages.is_empty() {
        return Ok(());
    }
    let failed = |error| Failure::from_error(Exit::Failed, &error);
    let json = serde_json::to_vec_pretty(&transcript).map_err(|error| {
        Failure::new(Exit::Failed, format!("cannot write a transcript: {error}"))
    })?;
    files.write_transcript(session, &json).map_err(failed)?;
    if !transcript.notes.is_empty() {
        files
            .write_scratch(
                session,
                &transcript.notes.iter().map(|note| format!("{note}\n")).collect::<String>(),
            )
            .map_err(failed)?;
    }
    Ok(())
}
