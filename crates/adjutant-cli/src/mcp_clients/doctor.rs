//! The findings of `doctor` about MCP clients: which are installed, and whether they start this program.

use std::fs;
use std::path::{Path, PathBuf};

use adjutant_mcp::KnownClient;
use adjutant_view::sanitize;
use clap::ValueEnum;
use serde_json::Value;

use super::config_text::ClientConfigText;
use super::location::ConfigLocation;
use super::{
    config_file, display_path, is_ours, known, on_path, resolve_program, server_flags, this_program,
};
use crate::args::{McpClient, McpScope};

/// Checks the clients that are installed or configured. Returns name, whether it is fine, and an explanation that says
/// what to do.
pub(crate) fn findings(root: &Path) -> Vec<(String, bool, String)> {
    let found: Vec<_> =
        KnownClient::ALL.into_iter().filter_map(|client| check_client(client, root)).collect();
    if found.is_empty() {
        let says = "none found here; `adjutant mcp install CLIENT` adds the server to one";
        return vec![("mcp clients".to_owned(), true, says.to_owned())];
    }
    found
}

/// Returns the clients that are installed and have no entry for this server.
pub(crate) fn unconfigured(root: &Path) -> Vec<McpClient> {
    let clients = McpClient::value_variants().iter().copied();
    let is_new =
        |it: &McpClient| judge_all(known(*it), root).is_empty() && is_installed(known(*it));
    clients.filter(is_new).collect()
}

fn is_installed(client: KnownClient) -> bool {
    on_path(if client == KnownClient::Vscode { "code" } else { client.name() }).is_some()
}

/// Checks every configuration of a client that has an entry for this server.
fn judge_all(client: KnownClient, root: &Path) -> Vec<(bool, String)> {
    let scopes = [McpScope::Project, McpScope::User].into_iter();
    let places =
        scopes.flat_map(|scope| ConfigLocation::find(client, scope, root).unwrap_or_default());
    places.filter_map(|place| judge(client, &place)).collect()
}

fn check_client(client: KnownClient, root: &Path) -> Option<(String, bool, String)> {
    let name = format!("mcp {}", client.name());
    let seen = judge_all(client, root);
    if let Some((_, says)) = seen.iter().find(|(fine, _)| !fine) {
        return Some((name, false, says.clone()));
    }
    if let Some((_, says)) = seen.into_iter().next() {
        return Some((name, true, says));
    }
    let says = format!("installed, not configured: adjutant mcp install {}", client.name());
    is_installed(client).then_some((name, false, says))
}

/// Checks one configuration; `None` if it has no entry for this server.
fn judge(client: KnownClient, place: &ConfigLocation) -> Option<(bool, String)> {
    let path = display_path(&place.path);
    let fix = match place.scope {
        McpScope::Project => format!("adjutant mcp install {} --scope project", client.name()),
        McpScope::User => format!("adjutant mcp install {} --scope user", client.name()),
    };
    let text = match config_file::read_unlocked(&place.path) {
        Ok(text) => text?,
        Err(problem) => return Some((false, format!("{path} cannot be read: {problem}"))),
    };
    let text = match ClientConfigText::read(client, text) {
        Ok(text) => text,
        Err(problem) => {
            return Some((false, format!("{path}: {problem}; the client cannot read it either")));
        }
    };
    let entry = text.entry()?;
    let command = client.command_of(entry).unwrap_or_default();
    let Some((program, arguments)) = command.split_first() else {
        return Some((true, format!("{path} names a server that is not started here")));
    };
    let program_shown = display_path(&PathBuf::from(program));
    if client.is_disabled(entry) {
        return Some((false, format!("{path} has the server disabled")));
    }
    let Some(found) = resolve_program(program) else {
        return Some((false, format!("{path} starts {program_shown}, which is not there: {fix}")));
    };
    if this_program().is_ok_and(|own| own == found) {
        return Some(judge_flags(client, entry, arguments, &path, &fix));
    }
    if !is_ours(program) {
        let fix = fix.replace("mcp install", "mcp remove");
        let what = "which is not Adjutant; rename the entry, or take it out with";
        return Some((false, format!("{path} starts {program_shown}, {what} {fix}")));
    }
    let is_here = fs::metadata(&found).is_ok_and(|it| it.is_file());
    let what = if is_here { "another program than this one" } else { "which is not a program" };
    Some((false, format!("{path} starts {program_shown}, {what}: {fix}")))
}

/// Checks the flags with which a client starts this program.
fn judge_flags(
    client: KnownClient,
    entry: &Value,
    arguments: &[String],
    path: &str,
    fix: &str,
) -> (bool, String) {
    let Some((_, flags)) = arguments.split_first().filter(|(first, _)| *first == "mcp") else {
        return (false, format!("{path} does not start the server: {fix}"));
    };
    let gives_up = client.timeout(entry);
    match server_flags::without_long_detach(flags, gives_up) {
        Err(problem) => (false, format!("{path}: {problem}: {fix} -- FLAGS")),
        Ok(kept_parts_text) if client.arguments(&kept_parts_text, gives_up) != arguments => {
            (false, format!("{path}: the client gives up before it is answered: {fix}"))
        }
        Ok(kept_parts_text) if server_flags::decide(&kept_parts_text) => {
            let flags = sanitize::line(&kept_parts_text.join(" ")).into_owned();
            (true, format!("configured in {path}, with {flags}"))
        }
        Ok(_) => (true, format!("configured in {path}")),
    }
}
