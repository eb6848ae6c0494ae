//! How much of a result a client takes: text and data together.
//!
//! Clients cut what is too long, often without a word to the model, or put it into a file. What does not
//! fit is therefore cut here, where it can be said what is missing and where the whole of it is.

use adjutant_view::layout::excerpt;
use adjutant_view::results::ends;
use adjutant_view::sanitize;
use rmcp::RoleServer;
use rmcp::model::{CallToolResult, ContentBlock, Resource};
use rmcp::service::RequestContext;
use serde_json::Value;

use crate::ServerSetup;
use crate::resources::{self, ResourceKind};
use crate::runs::RunSnapshot;

/// Bytes of a result where nothing is known of the client.
const DEFAULT_LIMIT: usize = 80_000;

/// The least that a person may ask for: an answer says at least which run it is of, and what to do.
const MIN_LIMIT: usize = 4_000;

/// How the name of a client begins, and the bytes it takes.
const CLIENT_LIMITS: [(&str, usize); 3] = [
    // More than 50,000 characters go to a file, more than 25,000 tokens are an error
    // (code.claude.com/docs/en/mcp, MAX_MCP_OUTPUT_TOKENS).
    ("claude-code", 48_000),
    // 10 KB of what is shown to the model, the data where there is any (openai/codex#7906).
    ("codex", 19_000),
    // 50 KB or 2,000 lines (anomalyco/opencode#22565).
    ("opencode", 48_000),
];

/// Returns the bytes of text and data that a result for this client has at most.
pub(crate) fn client_limit(client: &str) -> usize {
    let client = client.to_lowercase();
    CLIENT_LIMITS
        .iter()
        .find(|(name, _)| client.starts_with(name))
        .map_or(DEFAULT_LIMIT, |(_, bytes)| *bytes)
}

/// Returns how much of a result the client of a call takes, in bytes.
pub(crate) fn result_limit(setup: &ServerSetup, context: &RequestContext<RoleServer>) -> usize {
    let client = context.client_info().map(|info| info.name).unwrap_or_default();
    let said = setup.result_bytes.map(|bytes| bytes.max(MIN_LIMIT));
    said.unwrap_or_else(|| client_limit(&client))
}

/// Returns the bytes that a client reads of a result.
pub(crate) fn result_size(result: &CallToolResult) -> usize {
    let content = serde_json::to_vec(&result.content).map_or(0, |bytes| bytes.len());
    let data = serde_json::to_vec(&result.structured_content).map_or(0, |bytes| bytes.len());
    content + data
}

/// Characters of what a client said that are said back to it.
const QUOTED_CHARS: usize = 200;

/// Returns what a client said as it is said back to it: enough to know it again.
pub(crate) fn quoted(text: &str) -> String {
    // Cut before it is made harmless too: the rest, however long, is not even looked at.
    let beginning = &text[..text.floor_char_boundary(QUOTED_CHARS * 4)];
    excerpt(&sanitize::line(beginning), QUOTED_CHARS)
}

/// Bytes of an error in words.
const PROBLEM_BYTES: usize = 2_000;

/// Returns what is wrong, in as many words as anybody reads.
pub(crate) fn shorten_error(problem: &str) -> String {
    ends(problem, PROBLEM_BYTES)
}

/// The longest string of data that has to be cut, at first.
const FIRST_STRING_LIMIT: usize = 16 << 10;

/// The shortest that strings are cut to: what is missing is counted in as many bytes.
const LAST_STRING_LIMIT: usize = 64;

/// Shortens the strings and lists of data until it fits, and says so in it.
pub(crate) fn shorten_to_fit(data: &Value, fits: impl Fn(&Value) -> bool) -> Value {
    let (mut cut, mut longest) = (data.clone(), FIRST_STRING_LIMIT);
    while !fits(&cut) && longest >= LAST_STRING_LIMIT {
        shorten(&mut cut, longest);
        cut["cut"] = Value::Bool(true);
        longest /= 2;
    }
    cut
}

fn shorten(data: &mut Value, longest: usize) {
    let most = longest / 16;
    match data {
        Value::String(text) if text.len() > longest => *text = ends(text, longest),
        Value::Array(all) => {
            all.truncate(most);
            all.iter_mut().for_each(|it| shorten(it, longest));
        }
        Value::Object(all) => {
            let names: Vec<_> = all.keys().enumerate().map(|(n, key)| (n, key.clone())).collect();
            for (n, name) in names {
                if n >= most.max(16) || name.len() > longest {
                    all.remove(&name);
                }
            }
            all.values_mut().for_each(|it| shorten(it, longest));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Names where the whole of what was cut is.
pub(crate) fn resource_links(
    seen: &RunSnapshot,
    cut: &[adjutant_core::SessionId],
) -> Vec<ContentBlock> {
    let run = seen.files.id();
    let whole = Resource::new(resources::uri(run, ResourceKind::Result), format!("{run}/result"))
        .with_title("The whole result")
        .with_mime_type(resources::MARKDOWN);
    let transcripts = cut.iter().map(|session| {
        let uri = resources::uri(run, ResourceKind::Session(*session));
        Resource::new(uri, format!("{session}/transcript"))
            .with_title(format!("All that {session} was told and said"))
            .with_mime_type(resources::PLAIN)
    });
    std::iter::once(whole).chain(transcripts).map(ContentBlock::resource_link).collect()
}
