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

use crate::answer::page::ResourcePage;
use crate::answer::root_summary::RootSummary;
use crate::runs::{RunSnapshot, VisibleRuns, error_chain};
use crate::{ServerSetup, answer};

/// What every address begins with.
const SCHEME: &str = "adjutant://run/";

const JSON: &str = "application/json";
pub(crate) const MARKDOWN: &str = "text/markdown";
pub(crate) const PLAIN: &str = "text/plain";

/// What of a run is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResourceKind {
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
pub(crate) fn uri(run: RunId, of: ResourceKind) -> String {
    match of {
        ResourceKind::Run => format!("{SCHEME}{run}"),
        ResourceKind::Result => format!("{SCHEME}{run}/result"),
        ResourceKind::Transcript => format!("{SCHEME}{run}/transcript"),
        ResourceKind::Session(session) => format!("{SCHEME}{run}/{session}/transcript"),
    }
}

/// Reads an address: which run, what of it, from which byte on.
fn parse_uri(uri: &str) -> Option<(RunId, ResourceKind, usize)> {
    let (path, query) =
        uri.split_once('?').map_or((uri, None), |(path, query)| (path, Some(query)));
    let offset = query.map_or(Some(0), |query| query.strip_prefix("offset=")?.parse().ok())?;
    let mut parts = path.strip_prefix(SCHEME)?.split('/');
    let run = parts.next()?.parse().ok()?;
    let of = match (parts.next(), parts.next(), parts.next()) {
        (None, ..) => ResourceKind::Run,
        (Some("result"), None, _) => ResourceKind::Result,
        (Some("transcript"), None, _) => ResourceKind::Transcript,
        (Some(session), Some("transcript"), None) => ResourceKind::Session(session.parse().ok()?),
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
const PAGE_RUNS: usize = 25;

/// Some resources, and where the next ones begin.
type ResourceListPage = (Vec<Resource>, Option<String>);

/// Returns a page of the runs of the tree and where the next begins; nothing where there is no such page.
pub(crate) fn list(
    runs: &VisibleRuns,
    setup: &ServerSetup,
    cursor: Option<&str>,
) -> Result<Option<ResourceListPage>, String> {
    let from = cursor.map(str::parse).transpose();
    let Ok(from) = from else { return Ok(None) };
    let Some(listing) = runs.list(PAGE_RUNS, from)? else { return Ok(None) };
    let of_run = |seen: &RunSnapshot| {
        let run = seen.files.id();
        let what = answer::title(seen);
        let about = format!("{what} ({})", answer::state(seen, &setup.program_name));
        [
            Resource::new(uri(run, ResourceKind::Run), run.to_string())
                .with_description(about.clone())
                .with_mime_type(JSON),
            Resource::new(uri(run, ResourceKind::Result), format!("{run}/result"))
                .with_description(format!("What came of it: {about}"))
                .with_mime_type(MARKDOWN),
        ]
    };
    let all = listing.runs.iter().flat_map(of_run).collect();
    Ok(Some((all, listing.next.map(|place| place.to_string()))))
}

/// Reads a resource, a page of at most so many bytes; nothing where there is no such one.
pub(crate) fn read(
    runs: &VisibleRuns,
    setup: &ServerSetup,
    address: &str,
    page: usize,
) -> Result<Option<ReadResourceResult>, String> {
    let Some((run, of, offset)) = parse_uri(address) else { return Ok(None) };
    let Ok(seen) = runs.read(&run.to_string()) else { return Ok(None) };
    let mut filled = ResourcePage::new(offset, page);
    let mime = match of {
        // Data has no pages: what is cut somewhere is data no more.
        ResourceKind::Run if offset > 0 => return Ok(None),
        ResourceKind::Run => {
            let fits = |data: &Value| json!(wire::pretty(data)).to_string().len() <= page;
            let data = answer::run_status_json(&seen, &setup.program_name, fits);
            let contents = ResourceContents::text(wire::pretty(&data), address);
            return Ok(Some(ReadResourceResult::new(vec![contents.with_mime_type(JSON)])));
        }
        ResourceKind::Result => {
            filled.add(&full_result(&seen, setup));
            MARKDOWN
        }
        ResourceKind::Transcript => {
            let sessions: Vec<_> = seen.view.preorder().iter().map(|it| it.session).collect();
            add_transcripts(&seen, &sessions, &mut filled)?;
            PLAIN
        }
        ResourceKind::Session(session) if seen.view.delegation(session).is_some() => {
            add_transcripts(&seen, &[session], &mut filled)?;
            PLAIN
        }
        ResourceKind::Session(_) => return Ok(None),
    };
    let text = filled.finish(&uri(run, of));
    let contents = ResourceContents::text(text, address).with_mime_type(mime);
    Ok(Some(ReadResourceResult::new(vec![contents])))
}

/// Returns all that came of a run, uncut.
fn full_result(seen: &RunSnapshot, setup: &ServerSetup) -> String {
    let look = seen.look(&setup.program_name);
    let results = Results::of_run(&seen.view);
    let results = results.seen(seen.liveness, look.content, &setup.program_name);
    RootSummary::of(seen, setup).text + &results.markdown(&Options::default())
}

/// Adds what sessions were told and said, one after the other; those that said nothing are left out.
///
/// The journal is read once for all of them.
fn add_transcripts(
    seen: &RunSnapshot,
    sessions: &[SessionId],
    page: &mut ResourcePage,
) -> Result<(), String> {
    let mut talks: BTreeMap<SessionId, Conversation> =
        sessions.iter().map(|session| (*session, Conversation::default())).collect();
    for record in seen.files.records().map_err(|error| error_chain(&error))? {
        let event = record.map_err(|error| error_chain(&error))?.event;
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
        for of in [
            ResourceKind::Run,
            ResourceKind::Result,
            ResourceKind::Transcript,
            ResourceKind::Session(session),
        ] {
            assert_eq!(parse_uri(&uri(run, of)), Some((run, of, 0)));
            assert_eq!(parse_uri(&format!("{}?offset=7", uri(run, of))), Some((run, of, 7)));
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
            assert_eq!(parse_uri(wrong), None, "{wrong}");
        }
    }
}
