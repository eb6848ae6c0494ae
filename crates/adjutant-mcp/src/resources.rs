//! Runs as resources: where one stands, what came of it, and what was said.
//!
//! The same runs that the tools show, and no others. A resource is read in pages: one that does not fit
//! ends with a line that names the next.

use adjutant_core::{Conversation, RunId, SessionId};
use adjutant_view::results::{Options, Results};
use adjutant_view::transcript::Transcript;
use adjutant_view::{sanitize, status, wire};
use rmcp::model::{ReadResourceResult, Resource, ResourceContents, ResourceTemplate};

use crate::led::Led;
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

/// Returns the latest runs of the tree.
pub(crate) fn list(runs: &Runs, setup: &Setup) -> Result<Vec<Resource>, String> {
    let all = runs.list()?;
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
    Ok(all.iter().flat_map(of_run).collect())
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
    let (text, mime) = match of {
        Of::Run => {
            let look = seen.look(&setup.program_name);
            (wire::pretty(&status::detail_json(&look, None)), JSON)
        }
        Of::Result => (whole(&seen, setup), MARKDOWN),
        Of::Transcript => {
            let sessions: Vec<_> = seen.view.preorder().iter().map(|it| it.session).collect();
            (transcripts(&seen, &sessions)?, PLAIN)
        }
        Of::Session(session) if seen.view.delegation(session).is_some() => {
            (transcripts(&seen, &[session])?, PLAIN)
        }
        Of::Session(_) => return Ok(None),
    };
    let text = paged(&text, offset, page, &uri(run, of));
    let contents = ResourceContents::text(text, address).with_mime_type(mime);
    Ok(Some(ReadResourceResult::new(vec![contents])))
}

/// Returns one page of a text, and says where the next is.
fn paged(text: &str, offset: usize, page: usize, address: &str) -> String {
    let begin = text.floor_char_boundary(offset.min(text.len()));
    if begin == 0 && text.len() <= page {
        return text.to_owned();
    }
    let end = text.floor_char_boundary((begin + page).min(text.len()));
    let total = text.len();
    let next = if end < total {
        format!("the rest begins at {address}?offset={end}")
    } else {
        "this is the end".to_owned()
    };
    format!("{}\n[bytes {begin} to {end} of {total}; {next}]\n", &text[begin..end])
}

/// Returns all that came of a run, uncut.
fn whole(seen: &Seen, setup: &Setup) -> String {
    let look = seen.look(&setup.program_name);
    let results = Results::of_run(&seen.view);
    let results = results.seen(seen.liveness, look.content, &setup.program_name);
    Led::of(seen, setup).text + &results.markdown(&Options::default())
}

/// Returns what sessions were told and said, one after the other; those that said nothing are left out.
fn transcripts(seen: &Seen, sessions: &[SessionId]) -> Result<String, String> {
    let mut text = String::new();
    for session in sessions {
        let mut talk = Conversation::default();
        for record in seen.files.records().map_err(|error| chain(&error))? {
            let record = record.map_err(|error| chain(&error))?;
            if record.event.conversation() == Some(*session) {
                talk.apply(&record.event);
            }
        }
        let found = Transcript::of_parts(&seen.view, *session, &talk, seen.liveness);
        let said = found.filter(|it| !it.messages.is_empty() || sessions.len() == 1);
        text.extend(said.map(|it| format!("{}\n", it.render().trim_end())));
    }
    Ok(sanitize::block(&text).into_owned())
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

    /// Whoever follows the pages has every byte once.
    #[test]
    fn pages_together_are_the_whole() {
        let text: String = (0..500).map(|n| format!("Zeile {n} äöü\n")).collect();
        let (mut offset, mut all) = (0, String::new());
        for _ in 0..1000 {
            let page = paged(&text, offset, 101, "x");
            let (body, note) = page.rsplit_once("\n[bytes ").unwrap();
            all += body;
            let Some((_, next)) = note.split_once("?offset=") else { break };
            offset = next.trim_end_matches("]\n").parse().unwrap();
        }
        assert_eq!(all, text);
    }
}
