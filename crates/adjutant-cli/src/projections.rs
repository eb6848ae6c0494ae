//! Transcripts and scratchpads: files for people and other programs, rendered from the journal.

use std::collections::BTreeMap;

use adjutant_core::{Conversation, Event, SessionId};
use adjutant_engine::RunFiles;
use adjutant_view::transcript::Transcript;
use adjutant_view::{Liveness, RunView};

use crate::exit::{Exit, Failure};

/// Writes every transcript and scratchpad of a run in one pass over its journal; `view` has seen
/// all of it.
///
/// Nobody works on the run any more. What a session said is held only until it ends, so memory
/// follows the live ones; what never ended is written as it stands.
pub(crate) fn write(files: &RunFiles, view: &RunView) -> Result<(), Failure> {
    let failed = |error| Failure::caused(Exit::Failed, &error);
    let mut talks: BTreeMap<SessionId, Conversation> = BTreeMap::new();
    for record in files.records().map_err(failed)? {
        let record = record.map_err(failed)?;
        let Some(session) = record.event.conversation() else { continue };
        talks.entry(session).or_default().apply(&record.event);
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
    let Some(transcript) = Transcript::of_parts(view, session, talk, Liveness::Dead) else {
        return Ok(());
    };
    if transcript.messages.is_empty() {
        return Ok(());
    }
    let failed = |error| Failure::caused(Exit::Failed, &error);
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
