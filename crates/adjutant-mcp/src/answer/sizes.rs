//! The size of results that each client accepts, and how results are cut to it.
//!
//! Clients cut long results, often without telling the model, or move them to a file. The server therefore
//! cuts them itself, and says what is missing and where to find it.

use adjutant_view::layout::excerpt;
use adjutant_view::results::start_and_end;
use adjutant_view::sanitize;
use rmcp::RoleServer;
use rmcp::model::{CallToolResult, ContentBlock, Resource};
use rmcp::service::RequestContext;
use serde_json::Value;

use crate::ServerSetup;
use crate::resources::{self, ResourceKind};
use crate::runs::RunSnapshot;

/// The maximum size in bytes for unknown clients.
const DEFAULT_LIMIT: usize = 80_000;

/// The smallest limit a person may set; every answer must be able to name its run and the next step.
const MIN_LIMIT: usize = 4_000;

/// Client name prefixes and the maximum size in bytes.
const CLIENT_LIMITS: [(&str, usize); 3] = [
    // More than 50,000 characters go to a file; more than 25,000 tokens are an error
    // (code.claude.com/docs/en/mcp, MAX_MCP_OUTPUT_TOKENS).
    ("claude-code", 48_000),
    // 10 KB of what the model sees, which is the data if there is any (openai/codex#7906).
    ("codex", 19_000),
    // 50 KB or 2,000 lines (anomalyco/opencode#22565).
    ("opencode", 48_000),
];

/// Returns the size limit for results to this client, in bytes.
pub(crate) fn client_limit(client: &str) -> usize {
    let client = client.to_lowercase();
    CLIENT_LIMITS
        .iter()
        .find(|(name, _)| client.starts_with(name))
        .map_or(DEFAULT_LIMIT, |(_, bytes)| *bytes)
}

/// Returns the size limit for the result of a call: the person's setting, or the client's limit.
pub(crate) fn result_limit(setup: &ServerSetup, context: &RequestContext<RoleServer>) -> usize {
    let client = context.client_info().map(|info| info.name).unwrap_or_default();
    let said = setup.result_bytes.map(|bytes| bytes.max(MIN_LIMIT));
    said.unwrap_or_else(|| client_limit(&client))
}

/// Returns the size of a result as the client receives it.
pub(crate) fn result_size(result: &CallToolResult) -> usize {
    let content = serde_json::to_vec(&result.content).map_or(0, |bytes| bytes.len());
    let data = serde_json::to_vec(&result.structured_content).map_or(0, |bytes| bytes.len());
    content + data
}

/// The maximum length of client input that is quoted in an error message.
const QUOTED_CHARS: usize = 200;

/// Returns the start of a client's input for use in an error message.
pub(crate) fn quoted(text: &str) -> String {
    // Cut before sanitizing, so that very long input is not processed.
    let beginning = &text[..text.floor_char_boundary(QUOTED_CHARS * 4)];
    excerpt(&sanitize::line(beginning), QUOTED_CHARS)
}

/// The maximum length of an error message.
const PROBLEM_BYTES: usize = 2_000;

/// Shortens an error message to a readable length.
pub(crate) fn shorten_error(problem: &str) -> String {
    start_and_end(problem, PROBLEM_BYTES)
}

/// The string limit of the first attempt to shorten data.
const FIRST_STRING_LIMIT: usize = 16 << 10;

/// The string limit of the last attempt. The note about what is missing needs as many bytes.
const LAST_STRING_LIMIT: usize = 64;

/// Shortens strings and lists until the data fits, and marks it as cut.
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
        Value::String(text) if text.len() > longest => *text = start_and_end(text, longest),
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

/// Returns links to the complete result and to the transcripts of the cut sessions.
pub(crate) fn resource_links(
    snapshot: &RunSnapshot,
    cut: &[adjutant_core::SessionId],
) -> Vec<ContentBlock> {
    let run = snapshot.files.id();
    let whole = Resource::new(resources::uri(run, ResourceKind::Result), format!("{run}/result"))
        .with_title("The whole result")
        .with_mime_type(resources::MARKDOWN);
    let transcripts = cut.iter().map(|session| {
        let uri = resources::uri(run, ResourceKind::Session(*session));
        Resource::new(uri, format!("{session}/transcript"))
            .with_title(format!("Transcript of {session}"))
            .with_mime_type(resources::PLAIN)
    });
    std::iter::once(whole).chain(transcripts).map(ContentBlock::resource_link).collect()
}

/// Returns a link to the patches of a run.
pub(crate) fn patch_link(snapshot: &RunSnapshot) -> ContentBlock {
    let run = snapshot.files.id();
    let patch = Resource::new(resources::uri(run, ResourceKind::Patch), format!("{run}/patch"))
        .with_title("The whole patch")
        .with_mime_type(resources::DIFF);
    ContentBlock::resource_link(patch)
}
