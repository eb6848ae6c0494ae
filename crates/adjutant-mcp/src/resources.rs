//! Runs as MCP resources: status, results, patches and transcripts.
//!
//! Exactly the runs that the tools show. Long resources are read in pages; each page ends with a line that
//! names the address of the next.

use std::collections::BTreeMap;

use adjutant_core::{Conversation, Event, RunId, SessionId};
use adjutant_view::results::{CallResults, ResultOptions};
use adjutant_view::transcript::Transcript;
use adjutant_view::{sanitize, wire};
use rmcp::model::{ReadResourceResult, Resource, ResourceContents, ResourceTemplate};
use serde_json::{Value, json};

use crate::answer::page::ResourcePage;
use crate::answer::patches::ResultPatch;
use crate::answer::root_summary::RootSummary;
use crate::runs::{RunSnapshot, VisibleRuns, error_chain};
use crate::{ServerSetup, answer};

/// The start of every resource address.
const SCHEME: &str = "adjutant://run/";

const JSON: &str = "application/json";
pub(crate) const MARKDOWN: &str = "text/markdown";
pub(crate) const PLAIN: &str = "text/plain";
pub(crate) const DIFF: &str = "text/x-diff";

/// The most bytes of one patch that can be read page by page. The rest is in git only.
const PATCH_BYTES: usize = 16 << 20;

/// The part of a run that a resource shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResourceKind {
    /// The status.
    Run,
    /// The complete results.
    Result,
    /// The patches of all results.
    Patch,
    /// The transcripts of all agents in the run.
    Transcript,
    /// The transcript of one subagent.
    Session(SessionId),
}

/// Returns the address of this part of the run.
pub(crate) fn uri(run: RunId, of: ResourceKind) -> String {
    match of {
        ResourceKind::Run => format!("{SCHEME}{run}"),
        ResourceKind::Result => format!("{SCHEME}{run}/result"),
        ResourceKind::Patch => format!("{SCHEME}{run}/patch"),
        ResourceKind::Transcript => format!("{SCHEME}{run}/transcript"),
        ResourceKind::Session(session) => format!("{SCHEME}{run}/{session}/transcript"),
    }
}

/// Parses an address into the run, its part and the byte offset.
fn parse_uri(uri: &str) -> Option<(RunId, ResourceKind, usize)> {
    let (path, query) =
        uri.split_once('?').map_or((uri, None), |(path, query)| (path, Some(query)));
    let offset = query.map_or(Some(0), |query| query.strip_prefix("offset=")?.parse().ok())?;
    let mut parts = path.strip_prefix(SCHEME)?.split('/');
    let run = parts.next()?.parse().ok()?;
    let of = match (parts.next(), parts.next(), parts.next()) {
        (None, ..) => ResourceKind::Run,
        (Some("result"), None, _) => ResourceKind::Result,
        (Some("patch"), None, _) => ResourceKind::Patch,
        (Some("transcript"), None, _) => ResourceKind::Transcript,
        (Some(session), Some("transcript"), None) => ResourceKind::Session(session.parse().ok()?),
        (Some(_), ..) => return None,
    };
    Some((run, of, offset))
}

/// Returns the address templates that clients are shown.
pub(crate) fn templates() -> Vec<ResourceTemplate> {
    let form = |rest: &str, name: &str, about: &str, mime: &str| {
        ResourceTemplate::new(format!("{SCHEME}{{run}}{rest}"), name)
            .with_description(about)
            .with_mime_type(mime)
    };
    vec![
        form("", "run", "The status of a run: each subagent, tokens, cost and time.", JSON),
        form("/result{?offset}", "result", "The complete results of a run, in pages.", MARKDOWN),
        form("/patch{?offset}", "patch", "What the writers of a run changed, in pages.", DIFF),
        form(
            "/transcript{?offset}",
            "transcript",
            "The transcripts of all agents of a run, in pages.",
            PLAIN,
        ),
        form(
            "/{session}/transcript{?offset}",
            "session-transcript",
            "The transcript of one subagent, in pages.",
            PLAIN,
        ),
    ]
}

/// Ended runs on one page of the resource list.
const PAGE_RUNS: usize = 25;

/// Resources and the cursor of the next page.
type ResourceListPage = (Vec<Resource>, Option<String>);

/// Returns a page of the visible runs. Returns `None` if the cursor is invalid.
pub(crate) fn list(
    runs: &VisibleRuns,
    setup: &ServerSetup,
    cursor: Option<&str>,
) -> Result<Option<ResourceListPage>, String> {
    let from = cursor.map(str::parse).transpose();
    let Ok(from) = from else { return Ok(None) };
    let Some(listing) = runs.list(PAGE_RUNS, from)? else { return Ok(None) };
    let of_run = |snapshot: &RunSnapshot| {
        let run = snapshot.files.id();
        let what = answer::title(snapshot);
        let about = format!("{what} ({})", answer::state(snapshot, &setup.program_name));
        [
            Resource::new(uri(run, ResourceKind::Run), run.to_string())
                .with_description(about.clone())
                .with_mime_type(JSON),
            Resource::new(uri(run, ResourceKind::Result), format!("{run}/result"))
                .with_description(format!("Result: {about}"))
                .with_mime_type(MARKDOWN),
        ]
    };
    let all = listing.runs.iter().flat_map(of_run).collect();
    Ok(Some((all, listing.next.map(|place| place.to_string()))))
}

/// Reads a page of at most `page` bytes of a resource. Returns `None` if there is no such resource.
pub(crate) fn read(
    runs: &VisibleRuns,
    setup: &ServerSetup,
    address: &str,
    page: usize,
) -> Result<Option<ReadResourceResult>, String> {
    let Some((run, of, offset)) = parse_uri(address) else { return Ok(None) };
    let Ok(snapshot) = runs.read(&run.to_string()) else { return Ok(None) };
    let mut filled = ResourcePage::new(offset, page);
    let mime = match of {
        // JSON is not paged: a part of it could not be parsed.
        ResourceKind::Run if offset > 0 => return Ok(None),
        ResourceKind::Run => {
            let fits = |data: &Value| json!(wire::pretty(data)).to_string().len() <= page;
            let data = answer::run_status_json(&snapshot, &setup.program_name, fits);
            let contents = ResourceContents::text(wire::pretty(&data), address);
            return Ok(Some(ReadResourceResult::new(vec![contents.with_mime_type(JSON)])));
        }
        ResourceKind::Result => {
            filled.add(&full_result(&snapshot, setup));
            MARKDOWN
        }
        ResourceKind::Patch => {
            let patches = ResultPatch::read_all(&snapshot, setup, PATCH_BYTES)?;
            patches.iter().all(|patch| filled.add(patch.text()));
            DIFF
        }
        ResourceKind::Transcript => {
            let sessions: Vec<_> = snapshot.view.preorder().iter().map(|it| it.session).collect();
            add_transcripts(&snapshot, &sessions, &mut filled)?;
            PLAIN
        }
        ResourceKind::Session(session) if snapshot.view.delegation(session).is_some() => {
            add_transcripts(&snapshot, &[session], &mut filled)?;
            PLAIN
        }
        ResourceKind::Session(_) => return Ok(None),
    };
    let text = filled.finish(&uri(run, of));
    let contents = ResourceContents::text(text, address).with_mime_type(mime);
    Ok(Some(ReadResourceResult::new(vec![contents])))
}

/// Returns the complete results of a run.
fn full_result(snapshot: &RunSnapshot, setup: &ServerSetup) -> String {
    let look = snapshot.observed(&setup.program_name);
    let results = CallResults::of_run(&snapshot.view);
    let results = results.with_liveness(snapshot.liveness, look.content, &setup.program_name);
    RootSummary::of(snapshot, setup).text + &results.markdown(&ResultOptions::default())
}

/// Adds the transcripts of these sessions. Sessions without messages are left out.
///
/// The journal is read only once for all of them.
fn add_transcripts(
    snapshot: &RunSnapshot,
    sessions: &[SessionId],
    page: &mut ResourcePage,
) -> Result<(), String> {
    let mut talks: BTreeMap<SessionId, Conversation> =
        sessions.iter().map(|session| (*session, Conversation::with_earlier())).collect();
    for record in snapshot.files.records().map_err(|error| error_chain(&error))? {
        let event = record.map_err(|error| error_chain(&error))?.event;
        if matches!(event, Event::RunStarted { .. }) {
            talks.values_mut().for_each(|talk| talk.enter_run(&event));
        }
        if let Some(talk) = event.conversation().and_then(|session| talks.get_mut(&session)) {
            talk.apply(&event);
        }
    }
    for (session, talk) in sessions.iter().filter_map(|session| talks.remove_entry(session)) {
        let found = Transcript::of_parts(&snapshot.view, session, &talk, snapshot.liveness);
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
    fn only_well_formed_addresses_are_parsed() {
        let run: RunId = "run_1735460684_a1b2c3".parse().unwrap();
        let session: SessionId = "sess_1735460684_d4e5f6".parse().unwrap();
        for of in [
            ResourceKind::Run,
            ResourceKind::Result,
            ResourceKind::Patch,
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
