//! The layouts of mise and asdf, which keep the versions of any tool in `installs/TOOL/VERSION`.

use std::collections::BTreeMap;
use std::path::Path;

use super::found::ToolVersion;
use super::node::node_tools;
use super::search::ToolchainSearch;
use super::table::RecognizedLayout;
use super::versions::{highest, matching, version};

/// The most tools of a version manager that commands see.
const MAX_TOOLS: usize = 64;

/// Plugins whose program has another name.
const PROGRAMS: [(&str, &str); 3] = [("nodejs", "node"), ("golang", "go"), ("maven", "mvn")];

/// Recognizes mise. Versions come from the user's own configuration, otherwise the highest counts.
pub(super) fn recognize_mise(
    search: &ToolchainSearch<'_>,
    base: &Path,
) -> Option<RecognizedLayout> {
    let mut wanted = tool_versions(search);
    let config = search.home().map(|home| home.join(".config/mise/config.toml"));
    if let Some(text) = config.and_then(|it| search.text(&it)) {
        wanted.extend(mise_tools(&text));
    }
    recognize_installs(search, base, &wanted)
}

/// Recognizes asdf. Versions come from `~/.tool-versions`, otherwise the highest counts.
pub(super) fn recognize_asdf(
    search: &ToolchainSearch<'_>,
    base: &Path,
) -> Option<RecognizedLayout> {
    recognize_installs(search, base, &tool_versions(search))
}

fn recognize_installs(
    search: &ToolchainSearch<'_>,
    base: &Path,
    wanted: &BTreeMap<String, String>,
) -> Option<RecognizedLayout> {
    let installs = base.join("installs");
    let mut layout = RecognizedLayout::default();
    for plugin in search.names(&installs).into_iter().take(MAX_TOOLS) {
        let versions = installs.join(&plugin);
        let program =
            PROGRAMS.iter().find(|(it, _)| *it == plugin).map_or(plugin.as_str(), |it| it.1);
        let mut names = search.names(&versions);
        let has_bin = |name: &String| {
            ["bin", "go/bin"]
                .iter()
                .any(|it| search.is_program(&versions.join(name).join(it).join(program)))
        };
        names.retain(has_bin);
        // `node` and `nodejs` mean the same tool.
        let asked = wanted.get(&plugin).or_else(|| wanted.get(program));
        let chosen = asked.and_then(|it| matching(&names, it));
        // `20` and `latest` are links to versions.
        let real = |name: &&str| {
            let is_link = versions.join(name).is_symlink();
            !is_link
        };
        let chosen = chosen.or_else(|| highest(names.iter().map(String::as_str).filter(real)));
        let Some(name) = chosen else { continue };
        let Some(directory) = search.directory(&versions.join(name)) else { continue };
        if program == "node" {
            layout.tools.extend(node_tools(search, &directory));
        } else {
            // Behind a link, the directory has the full version.
            let full = directory.file_name().and_then(|it| version(it.to_str()?));
            let full = full.or_else(|| version(name));
            layout.tools.push(ToolVersion::new(program, full, &directory));
        }
        layout.installed.push(directory);
    }
    (!layout.installed.is_empty()).then_some(layout)
}

/// Reads `~/.tool-versions`: a tool and its versions on each line, of which the first counts.
fn tool_versions(search: &ToolchainSearch<'_>) -> BTreeMap<String, String> {
    let file = search.home().map(|home| home.join(".tool-versions"));
    let text = file.and_then(|it| search.text(&it)).unwrap_or_default();
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    let pair = |line: &str| {
        let mut words = line.split_whitespace();
        Some((words.next()?.to_owned(), words.next()?.to_owned()))
    };
    lines.filter_map(pair).collect()
}

/// Reads the table `[tools]` of mise's configuration, as far as versions are written on one line.
fn mise_tools(text: &str) -> BTreeMap<String, String> {
    let mut tools = BTreeMap::new();
    let mut is_in_tools = false;
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') {
            is_in_tools = line == "[tools]";
        } else if is_in_tools && let Some((name, value)) = line.split_once('=') {
            // `"20"`, `["20", "18"]` or `{ version = "20" }`
            let mut quoted = value.split(['"', '\'']);
            if let Some(first) = quoted.nth(1) {
                tools.insert(name.trim().trim_matches(['"', '\'']).to_owned(), first.to_owned());
            }
        }
    }
    tools
}
