//! What commands see, in words: one line for approvals and agents, a list for `adjutant doctor`.

use super::found::{FoundToolchain, ToolVersion};
use super::versions::major_minor;

/// Tools that come with another one or are rarely the reason to run a command. The line leaves them out.
const UNLISTED: [&str; 6] = ["rustc", "npm", "g++", "perl", "ninja", "pkg-config"];

/// The most tools in the line.
const MAX_LISTED: usize = 16;

/// Returns one line such as `Commands see: cargo 1.95, node 20.20, python 3.11`.
#[must_use]
pub fn summary_line(found: &[FoundToolchain]) -> String {
    let tools = tool_summary(found);
    format!("Commands see: {}", tools.as_deref().unwrap_or("no known compiler or interpreter"))
}

/// Returns the tools with short versions, such as `cargo 1.95, node 20.20`; `None` if there are none.
///
/// If several toolchains have the same tool, the first counts, as in `PATH`.
#[must_use]
pub fn tool_summary(found: &[FoundToolchain]) -> Option<String> {
    let mut tools = first_of_each(found);
    tools.retain(|tool| !UNLISTED.contains(&tool.name.as_str()));
    tools.sort_by_key(|tool| (tool.version.is_none(), tool.name.clone()));
    if tools.is_empty() {
        return None;
    }
    let more = tools.len().saturating_sub(MAX_LISTED);
    let mut shown: Vec<String> =
        tools.iter().take(MAX_LISTED).map(|it| named(it, major_minor)).collect();
    if more > 0 {
        shown.push(format!("{more} more"));
    }
    Some(shown.join(", "))
}

/// Returns one line for each toolchain, with full versions and where they come from.
///
/// A tool that a toolchain earlier in `PATH` has too is left out, because commands do not see it.
#[must_use]
pub fn tool_list(found: &[FoundToolchain]) -> Vec<(&'static str, String)> {
    let seen = first_of_each(found);
    found
        .iter()
        .filter_map(|toolchain| {
            let tools = toolchain.tools.iter().filter(|tool| seen.iter().any(|it| it == tool));
            let tools: Vec<String> = tools.map(|it| named(it, str::to_owned)).collect();
            let sources = toolchain.granted.iter().chain(&toolchain.caches);
            let sources: Vec<String> = sources.map(|it| it.display().to_string()).collect();
            let text = match (tools.is_empty(), sources.is_empty()) {
                (true, true) => return None,
                (true, false) => sources.join(", "),
                (false, true) => tools.join(", "),
                (false, false) => format!("{} ({})", tools.join(", "), sources.join(", ")),
            };
            Some((toolchain.name, text))
        })
        .collect()
}

/// Returns the tools that commands see: of each name, the first.
fn first_of_each(found: &[FoundToolchain]) -> Vec<&ToolVersion> {
    let mut seen: Vec<&ToolVersion> = Vec::new();
    for tool in found.iter().flat_map(|it| &it.tools) {
        let is_same = |it: &&ToolVersion| {
            // A `python` has a `python3` beside it.
            it.name == tool.name || (it.name == "python" && tool.name == "python3")
        };
        if !seen.iter().any(is_same) {
            seen.push(tool);
        }
    }
    seen
}

fn named(tool: &ToolVersion, shorten: impl Fn(&str) -> String) -> String {
    match &tool.version {
        Some(version) => format!("{} {}", tool.name, shorten(version)),
        None => tool.name.clone(),
    }
}
