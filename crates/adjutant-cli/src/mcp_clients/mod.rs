//! `mcp install` and `mcp remove`: edits the configurations of MCP clients, and checks them for `doctor`.
//!
//! `location` knows where the files are, `config_file` reads and replaces them, `config_text` edits their text. The
//! content of an entry is defined in `adjutant-mcp`. Start at [`install`].

mod config_file;
mod config_text;
mod doctor;
mod location;
mod server_flags;

use std::path::{Path, PathBuf};
use std::{env, fs};

use adjutant_mcp::{KnownClient, SERVER};
use adjutant_view::sanitize;
use serde_json::Value;

use crate::args::{McpClient, McpScope};
use crate::exit::{Exit, Failure};
use crate::models::model_of_server;
use crate::output::{print, say};

use config_text::ClientConfigText;
use location::ConfigLocation;

pub(crate) use doctor::{findings, unconfigured};

/// The client and scope whose configuration is changed.
pub(crate) struct InstallTarget<'a> {
    /// The client.
    pub(crate) client: McpClient,
    /// The project's or the user's configuration; `None` for the client's default.
    pub(crate) scope: Option<McpScope>,
    /// The project directory.
    pub(crate) root: &'a Path,
}

impl InstallTarget<'_> {
    fn client(&self) -> KnownClient {
        known(self.client)
    }

    /// Returns the existing files of the client, or the one that would be created.
    fn places(&self) -> Result<Vec<ConfigLocation>, Failure> {
        let client = self.client();
        let usual = if client == KnownClient::Codex { McpScope::User } else { McpScope::Project };
        ConfigLocation::find(client, self.scope.unwrap_or(usual), self.root)
    }

    /// Returns the name of the client and the file that `install` would change.
    pub(crate) fn title_and_file(&self) -> Result<(&'static str, String), Failure> {
        let (client, place) = self.place()?;
        Ok((client.title(), display_path(&place.path)))
    }

    /// Returns the file that has an entry for this server, otherwise the default one.
    fn place(&self) -> Result<(KnownClient, ConfigLocation), Failure> {
        let client = self.client();
        let mut places = self.places()?;
        let names_it = |place: &ConfigLocation| {
            let text = config_file::read_unlocked(&place.path).ok().flatten();
            let text = text.and_then(|text| ClientConfigText::read(client, text).ok());
            text.is_some_and(|text| text.entry().is_some())
        };
        let at = places.iter().position(names_it).unwrap_or(0);
        Ok((client, places.swap_remove(at)))
    }
}

const fn known(client: McpClient) -> KnownClient {
    match client {
        McpClient::Claude => KnownClient::Claude,
        McpClient::Codex => KnownClient::Codex,
        McpClient::Opencode => KnownClient::Opencode,
        McpClient::Gemini => KnownClient::Gemini,
        McpClient::Vscode => KnownClient::Vscode,
        McpClient::Cursor => KnownClient::Cursor,
    }
}

/// Prints what the client's file must contain.
pub(crate) fn show(
    order: &InstallTarget<'_>,
    flags: &[String],
    home: Option<&Path>,
) -> Result<Exit, Failure> {
    let (client, place) = order.place()?;
    let empty = ClientConfigText::read(client, String::new()).map_err(Failure::usage)?;
    let started = plan_launch(client, &place, &empty, flags, home)?;
    let new = empty.with_entry(&started.command).map_err(Failure::usage)?;
    say(&format!("adjutant: {} must contain:", display_path(&place.path)));
    print(&new)?;
    Ok(Exit::Completed)
}

/// Adds the server to a client's configuration.
pub(crate) fn install(
    order: &InstallTarget<'_>,
    flags: &[String],
    home: Option<&Path>,
) -> Result<Exit, Failure> {
    let (client, place) = order.place()?;
    let file = config_file::ClientConfigFile::open(&place)?;
    let broken = |problem: String| {
        Failure::new(
            Exit::Failed,
            format!("{} was left alone: {problem}", display_path(&place.path)),
        )
        .hint(format!(
            "`adjutant mcp install {} --print` shows what to add by hand.",
            client.name()
        ))
    };
    let text = ClientConfigText::read(client, file.text().to_owned()).map_err(broken)?;
    let started = plan_launch(client, &place, &text, flags, home)?;
    let new = text.with_entry(&started.command).map_err(broken)?;
    if new == file.text() {
        say(&format!("adjutant: {} has the server already", display_path(&place.path)));
    } else {
        started.check_kept(client, &place)?;
        let kept = file.replace(&new)?;
        say(&format!(
            "adjutant: {} starts the server for {}",
            display_path(&place.path),
            client.title()
        ));
        kept.iter().for_each(|old| say(&format!("  The file as it was: {}", display_path(old))));
    }
    started.tell_kept();
    let is_here = |it: &String| Path::new(it).is_absolute();
    if place.scope == McpScope::Project && started.command.iter().any(is_here) {
        say(
            "  It contains paths of this machine, which other people who share the project do not have.",
        );
    }
    say(&format!("  Next: {}", next_step(client, place.scope)));
    // The client's environment may differ, so a missing model does not change the exit code.
    match model_of_server(order.root, &started.command) {
        Ok(found) => say(&format!("  Model: {found}")),
        Err(failure) => say(&format!("  Model: {failure}")),
    }
    Ok(Exit::Completed)
}

/// Removes the server from a client's configuration.
pub(crate) fn remove(order: &InstallTarget<'_>) -> Result<Exit, Failure> {
    let client = order.client();
    for place in order.places()? {
        remove_from(client, &place)?;
    }
    Ok(Exit::Completed)
}

fn remove_from(client: KnownClient, place: &ConfigLocation) -> Result<(), Failure> {
    let file = config_file::ClientConfigFile::open(place)?;
    let broken = |problem: String| {
        Failure::new(
            Exit::Failed,
            format!("{} was left alone: {problem}", display_path(&place.path)),
        )
    };
    let text = ClientConfigText::read(client, file.text().to_owned()).map_err(broken)?;
    let new = text.without_entry().map_err(broken)?;
    if new == file.text() {
        say(&format!("adjutant: {} does not name the server", display_path(&place.path)));
        return Ok(());
    }
    let kept = file.replace(&new)?;
    say(&format!("adjutant: {} no longer starts the server", display_path(&place.path)));
    kept.iter().for_each(|old| say(&format!("  The file as it was: {}", display_path(old))));
    Ok(())
}

/// The command that a client will start, and what it keeps of the existing entry.
struct ServerLaunch {
    command: Vec<String>,
    /// Flags of the existing entry that were not typed now and that the client does not need.
    flags: Vec<String>,
    /// The names of the variables that the entry sets.
    variables: Vec<String>,
}

impl ServerLaunch {
    /// Refuses to keep flags or variables of a project's file that change what may be spent or reached: the file may come
    /// from other people, and only the user decides about that.
    fn check_kept(&self, client: KnownClient, place: &ConfigLocation) -> Result<(), Failure> {
        let is_harmless = self.variables.is_empty() && !server_flags::decide(&self.flags);
        if place.scope == McpScope::User || is_harmless {
            return Ok(());
        }
        let (path, name) = (display_path(&place.path), client.name());
        let what =
            format!("{path} was left alone: its entry has {} already", self.kept_parts_text());
        let hint = if self.variables.is_empty() {
            let typed: Vec<String> = self.flags.iter().map(|it| crate::hints::quoted(it)).collect();
            format!(
                "If they are yours, type them: adjutant mcp install {name} --scope project -- {}",
                typed.join(" ")
            )
        } else {
            format!(
                "Take the variables out of it, or `adjutant mcp remove {name} --scope project` all of it."
            )
        };
        Err(Failure::usage(what).hint(hint))
    }

    fn tell_kept(&self) {
        if !self.flags.is_empty() || !self.variables.is_empty() {
            say(&format!("  It keeps {} of the existing entry.", self.kept_parts_text()));
        }
    }

    fn kept_parts_text(&self) -> String {
        let line = |all: &[String]| sanitize::line(&all.join(" ")).into_owned();
        let flags = (!self.flags.is_empty()).then(|| format!("the flags `{}`", line(&self.flags)));
        let variables = (!self.variables.is_empty())
            .then(|| format!("the variables `{}`", line(&self.variables)));
        flags.into_iter().chain(variables).collect::<Vec<_>>().join(" and ")
    }
}

/// Returns what the client will start: the program that it starts already if that is this one, with its existing flags
/// unless others are given.
fn plan_launch(
    client: KnownClient,
    place: &ConfigLocation,
    text: &ClientConfigText,
    flags: &[String],
    home: Option<&Path>,
) -> Result<ServerLaunch, Failure> {
    // An entry without a program or address may have only other settings; it is completed.
    let is_of_another =
        |entry: &&Value| ["command", "url", "httpUrl"].iter().any(|key| !entry[key].is_null());
    let known = text.entry().filter(is_of_another).map(|entry| {
        client.command_of(entry).ok_or_else(|| {
            let path = display_path(&place.path);
            let what = format!(
                "{path} has an entry `{SERVER}` whose `command` is missing or is not a program with arguments"
            );
            let hint = format!("Take it out with `adjutant mcp remove {}`, then install again.", client.name());
            Failure::usage(what).hint(hint)
        })
    });
    let known = known.transpose()?.unwrap_or_default();
    if let Some(program) = known.first().filter(|it| !is_ours(it)) {
        let (path, program) = (display_path(&place.path), sanitize::line(program).into_owned());
        let what =
            format!("{path} has a server `{SERVER}` that starts `{program}`, and was left alone");
        return Err(Failure::usage(what).hint(format!(
            "Rename it there, or take it out with `adjutant mcp remove {}`.",
            client.name()
        )));
    }
    let own = this_program()?;
    let program = match known.first().filter(|it| resolve_program(it).is_some_and(|it| it == own)) {
        Some(program) => program.clone(),
        None => program_name(&own, place.scope)?,
    };
    let entry = text.entry().unwrap_or(&Value::Null);
    let gives_up = client.timeout(entry);
    let plain = client.arguments(&server_flags::with_home(flags, home)?, gives_up);
    let keeps = flags.is_empty() && known.get(1).is_some_and(|first| first == "mcp");
    let arguments = if keeps {
        let kept = server_flags::without_long_detach(&known[2..], gives_up).map_err(|problem| {
            Failure::usage(format!("{} was left alone: {problem}", display_path(&place.path))).hint(
                format!("`adjutant mcp install {} -- FLAGS` replaces its flags.", client.name()),
            )
        })?;
        client.arguments(&kept, gives_up)
    } else {
        plain.clone()
    };
    let kept = if keeps && arguments != plain { arguments[1..].to_vec() } else { Vec::new() };
    let variables = ["env", "environment"].iter().filter_map(|key| entry[key].as_object());
    let variables = variables.flat_map(|all| all.keys().cloned()).collect();
    Ok(ServerLaunch { command: [vec![program], arguments].concat(), flags: kept, variables })
}

/// Returns how to name this program: by name in a project's file, which must not contain one person's paths; by path in
/// the user's file, because an editor may not have the person's `PATH`.
fn program_name(own: &Path, scope: McpScope) -> Result<String, Failure> {
    match on_path(SERVER).filter(|found| fs::canonicalize(found).is_ok_and(|it| it == own)) {
        Some(_) if scope == McpScope::Project => Ok(SERVER.to_owned()),
        Some(found) => text_of(&found),
        None => text_of(own),
    }
}

/// Returns whether a program may be this one, in any version and directory.
fn is_ours(program: &str) -> bool {
    let name = Path::new(program).file_name().unwrap_or_default();
    name.to_string_lossy().starts_with(SERVER)
}

fn this_program() -> Result<PathBuf, Failure> {
    env::current_exe().and_then(fs::canonicalize).map_err(|error| {
        Failure::new(Exit::Failed, format!("cannot find the path of the adjutant program: {error}"))
    })
}

/// Returns the file that a command starts.
fn resolve_program(program: &str) -> Option<PathBuf> {
    let found = if program.contains('/') { Some(PathBuf::from(program)) } else { on_path(program) };
    fs::canonicalize(found?).ok()
}

fn on_path(program: &str) -> Option<PathBuf> {
    use std::os::unix::fs::PermissionsExt;
    let path = env::var_os("PATH")?;
    let is_program = |file: &PathBuf| {
        fs::metadata(file).is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
    };
    let folders = env::split_paths(&path).filter(|folder| folder.is_absolute());
    folders.map(|folder| folder.join(program)).find(is_program)
}

fn text_of(path: &Path) -> Result<String, Failure> {
    let text = path.to_str().map(str::to_owned);
    text.ok_or_else(|| {
        Failure::usage(format!(
            "the path {} is not UTF-8 and cannot be written to a configuration file",
            display_path(path)
        ))
    })
}

fn display_path(path: &Path) -> String {
    sanitize::line(&path.display().to_string()).into_owned()
}

/// Returns what the person must do in the client.
const fn next_step(client: KnownClient, scope: McpScope) -> &'static str {
    match (client, scope) {
        (KnownClient::Claude, McpScope::Project) => {
            "start `claude` in this folder and approve the server; /mcp shows it."
        }
        (KnownClient::Claude, McpScope::User) => "restart Claude Code; /mcp shows it.",
        (KnownClient::Codex, McpScope::Project) => {
            "start `codex` in this folder, which you must have trusted; /mcp shows the server."
        }
        (KnownClient::Codex, McpScope::User) => {
            "restart Codex; /mcp shows the server. It gets no keys from your shell: `adjutant init` has a place for them."
        }
        (KnownClient::Opencode, _) => "restart opencode; `opencode mcp list` shows the server.",
        (KnownClient::Gemini, McpScope::Project) => {
            "start `gemini` in this folder, which you must have trusted; /mcp shows the server."
        }
        (KnownClient::Gemini, McpScope::User) => "restart Gemini CLI; /mcp shows the server.",
        (KnownClient::Vscode, _) => {
            "run `MCP: List Servers` in VS Code, start the server and trust it."
        }
        (KnownClient::Cursor, _) => "switch the server on in Cursor's settings, under MCP.",
    }
}
