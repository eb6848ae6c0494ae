//! Runs as resources: where one stands, what came of it, and what was said.
//!
//! The same runs that the tools show, and no others. A resource is read in pages: one that does not fit
//! ends with a line that names the next.

use std::collections::BTreeMap;

use adjutant_core::{Conversation, RunId, SessionId};
use adjutant_view::results::{Options, Results};
use adjutant_view::transcript::Transcript;
use adjutant_view::{sanitize, wire};
use rmcp::model::{ReadResourceResult, Resource, ResourceContents, ResourceTemplate};
use serde_json::{Value, json};

use crate::answer::led::Led;
use crate::answer::page::Page;
use crate::runs::{Runs, Seen, chain};
use crate::{Setup, answer};

/// What every address begins with.
const SCHEME: &str = "adjutant://run/";

const JSON: &str = "application/json";
pub(crate) const MARKDOWN: &str = "text/markdown";
pub(crate) const PLAIN: &str = "text/plain";

/// What of a run is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    /// Where it stands.
    Run,
    /// All that came of it.
    Result,
    /// All that anybody in it was told and said.
    Transcript,
    /// What one subagent was told and said.
    Session(SessionId),
}

/// Returns the address of it.
pub(crate) fn uri(run: RunId, of: Of) -> String {
    match of {
        Of::Run => format!("{SCHEME}{run}"),
        Of::Result => format!("{SCHEME}{run}/result"),
        Of::Transcript => format!("{SCHEME}{run}/transcript"),
        Of::Session(session) => format!("{SCHEME}{run}/{session}/transcript"),
    }
}

/// Reads an address: which run, what of it, from which byte on.
fn parse(uri: &str) -> Option<(RunId, Of, usize)> {
    let (path, query) =
        uri.split_once('?').map_or((uri, None), |(path, query)| (path, Some(query)));
    let offset = query.map_or(Some(0), |query| query.strip_prefix("offset=")?.parse().ok())?;
    let mut parts = path.strip_prefix(SCHEME)?.split('/');
    let run = parts.next()?.parse().ok()?;
    let of = match (parts.next(), parts.next(), parts.next()) {
        (None, ..) => Of::Run,
        (Some("result"), None, _) => Of::Result,
        (Some("transcript"), None, _) => Of::Transcript,
        (Some(session), Some("transcript"), None) => Of::Session(session.parse().ok()?),
        (Some(_), ..) => return None,
    };
    Some((run, of, offset))
}

/// Returns the forms that addresses have.
pub(crate) fn templates() -> Vec<ResourceTemplate> {
    let form = |rest: &str, name: &str, about: &str, mime: &str| {
        ResourceTemplate::new(format!("{SCHEME}{{run}}{rest}"), name)
            .with_description(about)
            .with_mime_type(mime)
    };
    vec![
        form("", "run", "Where a run stands: each subagent, tokens, cost and time.", JSON),
        form("/result{?offset}", "result", "All that came of a run, uncut, in pages.", MARKDOWN),
        form(
            "/transcript{?offset}",
            "transcript",
            "What everybody in a run was told and said, in pages.",
            PLAIN,
        ),
        form(
            "/{session}/transcript{?offset}",
            "session-transcript",
            "What one subagent was told and said, in pages.",
            PLAIN,
        ),
    ]
}

/// Runs on a page of a list, beside those that go on.
const LISTED: usize = 25;

/// Some resources, and where the next ones begin.
type Listed = (Vec<Resource>, Option<String>);

/// Returns a page of the runs of the tree and where the next begins; nothing where there is no such page.
pub(crate) fn list(
    runs: &Runs,
    setup: &Setup,
    cursor: Option<&str>,
) -> Result<Option<Listed>, String> {
    let from = cursor.map(str::parse).transpose();
    let Ok(from) = from else { return Ok(None) };
    let Some(listing) = runs.list(LISTED, from)? else { return Ok(None) };
    let of_run = |seen: &Seen| {
        let run = seen.files.id();
        let what = answer::title(seen);
        let about = format!("{what} ({})", answer::state(seen, &setup.program_name));
        [
            Resource::new(uri(run, Of::Run), run.to_string())
                .with_description(about.clone())
                .with_mime_type(JSON),
            Resource::new(uri(run, Of::Result), format!("{run}/result"))
                .with_description(format!("What came of it: {about}"))
                .with_mime_type(MARKDOWN),
        ]
    };
    let all = listing.runs.iter().flat_map(of_run).collect();
    Ok(Some((all, listing.next.map(|place| place.to_string()))))
}

/// Reads a resource, a page of at most so many bytes; nothing where there is no such one.
pub(crate) fn read(
    runs: &Runs,
    setup: &Setup,
    address: &str,
    page: usize,
) -> Result<Option<ReadResourceResult>, String> {
    let Some((run, of, offset)) = parse(address) else { return Ok(None) };
    let Ok(seen) = runs.read(&run.to_string()) else { return Ok(None) };
    let mut filled = Page::new(offset, page);
    let mime = match of {
        // Data has no pages: what is cut somewhere is data no more.
        Of::Run if offset > 0 => return Ok(None),
        Of::Run => {
            let fits = |data: &Value| json!(wire::pretty(data)).to_string().len() <= page;
            let data = answer::standing(&seen, &setup.program_name, fits);
            let contents = ResourceContents::text(wire::pretty(&data), address);
            return Ok(Some(ReadResourceResult::new(vec![contents.with_mime_type(JSON)])));
        }
        Of::Result => {
            filled.add(&whole(&seen, setup));
            MARKDOWN
        }
        Of::Transcript => {
            let sessions: Vec<_> = seen.view.preorder().iter().map(|it| it.session).collect();
            transcripts(&seen, &sessions, &mut filled)?;
            PLAIN
        }
        Of::Session(session) if seen.view.delegation(session).is_some() => {
            transcripts(&seen, &[session], &mut filled)?;
            PLAIN
        }
        Of::Session(_) => return Ok(None),
    };
    let text = filled.finish(&uri(run, of));
    let contents = ResourceContents::text(text, address).with_mime_type(mime);
    Ok(Some(ReadResourceResult::new(vec![contents])))
}

/// Returns all that came of a run, uncut.
fn whole(seen: &Seen, setup: &Setup) -> String {
    let look = seen.look(&setup.program_name);
    let results = Results::of_run(&seen.view);
    let results = results.seen(seen.liveness, look.content, &setup.program_name);
    Led::of(seen, setup).text + &results.markdown(&Options::default())
}

/// Adds what sessions were told and said, one after the other; those that said nothing are left out.
///
/// The journal is read once for all of them.
fn transcripts(seen: &Seen, sessions: &[SessionId], page: &mut Page) -> Result<(), String> {
    let mut talks: BTreeMap<SessionId, Conversation> =
        sessions.iter().map(|session| (*session, Conversation::default())).collect();
    for record in seen.files.records().map_err(|error| chain(&error))? {
        let event = record.map_err(|error| chain(&error))?.event;
        if let Some(talk) = event.conversation().and_then(|session| talks.get_mut(&session)) {
            talk.apply(&event);
        }
    }
    for (session, talk) in sessions.iter().filter_map(|session| talks.remove_entry(session)) {
        let found = Transcript::of_parts(&seen.view, session, &talk, seen.liveness);
        let said = found.filter(|it| !it.messages.is_empty() || sessions.len() == 1);
        let Some(said) = said else { continue };
        if !page.add(&sanitize::block(&format!("{}\n", said.render().trim_end()))) {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_reads_back_and_nothing_else_is_one() {
        let run: RunId = "run_1735460684_a1b2c3".parse().unwrap();
        let session: SessionId = "sess_1735460684_d4e5f6".parse().unwrap();
        for of in [Of::Run, Of::Result, Of::Transcript, Of::Session(session)] {
            assert_eq!(parse(&uri(run, of)), Some((run, of, 0)));
            assert_eq!(parse(&format!("{}?offset=7", uri(run, of))), Some((run, of, 7)));
        }
        for wrong in [
            "",
            "adjutant://run/",
            "adjutant://run/..",
            "adjutant://run/../../etc/passwd",
            "adjutant://run/run_1735460684_a1b2c3/",
            "adjutant://run/run_1735460684_a1b2c3/journal",
            "adjutant://run/run_1735460684_a1b2c3/result/more",
            "adjutant://run/run_1735460684_a1b2c3/result?offset=-1",
            "adjutant://run/run_1735460684_a1b2c3/result?offset=1&x=2",
            "adjutant://run/run_1735460684_a1b2c3/x/transcript",
            "file:///etc/passwd",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
