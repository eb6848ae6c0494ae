//! `init`: asks for a model, checks it, writes the user's configuration and offers to configure MCP clients; without a
//! terminal it writes a commented file.
//!
//! Start at [`run_init`]. Invariants: an existing file in which a person changed something is never changed, and nothing
//! is written before the model is chosen.

mod config_text;
mod model_check;
mod model_choice;
mod questions;

use std::fs::{self, File};
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use serde_json::json;

use crate::args::{InitArgs, PolicyFlags};
use crate::ask::Terminal;
use crate::exit::{Exit, Failure};
use crate::mcp_clients::{self, InstallTarget};
use crate::output::{print, print_json, say};
use crate::readiness::FIRST_DELEGATION;
use crate::settings::{Settings, user_config_path};
use crate::wiring::ModelSetup;

use config_text::TEMPLATE;
use model_check::CheckEnd;
use model_choice::ConfiguredModel;
use questions::SetupDialog;

/// Runs `adjutant init`.
pub(crate) fn run_init(
    args: &InitArgs,
    as_json: bool,
    home: Option<PathBuf>,
) -> Result<Exit, Failure> {
    let path = user_config_path()
        .ok_or_else(|| Failure::usage("no configuration directory: HOME is not set"))?;
    let may_ask = !args.yes && !as_json && io::stdin().is_terminal();
    if let Some(terminal) = may_ask.then(Terminal::open).flatten() {
        return interview(&SetupDialog::new(terminal)?, &path, home);
    }
    write_new(&path, TEMPLATE)?;
    if as_json {
        print_json(&json!({ "v": 1, "path": path }))?;
    } else {
        print(&format!("{}\n", path.display()))?;
    }
    Ok(Exit::Completed)
}

/// Asks for everything, and writes the file unless it exists.
fn interview(questions: &SetupDialog, path: &Path, home: Option<PathBuf>) -> Result<Exit, Failure> {
    let is_new = path.symlink_metadata().is_err() || is_unchanged_template(path);
    if is_new {
        check_writable(path)?;
    } else {
        questions.say(&format!("{} exists and stays as it is.\n", path.display()));
    }
    let settings = Settings::load(&PolicyFlags::default(), Path::new("."))?;
    let setup = ModelSetup::new(&settings)?;
    let untouched = |failure: Failure| hint_if_cancelled(failure, "Nothing was written.");
    let choice = choose_checked(questions, &setup, is_new, home.as_ref()).map_err(untouched)?;
    match &choice {
        Some(ConfiguredModel { model, section, .. }) if is_new => {
            if is_unchanged_template(path) {
                fs::remove_file(path).map_err(|error| cannot_write(path, &error))?;
            }
            write_new(path, &config_text::with_model(model, section.as_ref()))?;
        }
        Some(choice) if settings.model.as_ref() != Some(&choice.model) => {
            tell_lines(questions, choice);
        }
        Some(_) => {}
        None if is_new && !is_unchanged_template(path) => write_new(path, TEMPLATE)?,
        None => {}
    }
    if is_new {
        questions.say(&format!("Wrote {}\n", path.display()));
    }
    offer_clients(questions, home.as_deref()).map_err(|failure| {
        hint_if_cancelled(failure, "`adjutant mcp install CLIENT` adds the server to a client.")
    })?;
    let next = if choice.is_some() { FIRST_DELEGATION } else { "adjutant demo" };
    questions.say(&format!("Try it:\n  {next}\n  adjutant doctor"));
    Ok(Exit::Completed)
}

/// Adds a hint if the person ended the conversation.
fn hint_if_cancelled(failure: Failure, hint: &str) -> Failure {
    if failure.exit == Exit::Cancelled { failure.hint(hint) } else { failure }
}

/// Asks for a model and checks it. Repeats that until a model answers, or the person accepts one that did not answer, or
/// wants none.
fn choose_checked(
    questions: &SetupDialog,
    setup: &ModelSetup,
    can_store: bool,
    home: Option<&PathBuf>,
) -> Result<Option<ConfiguredModel>, Failure> {
    loop {
        let Some(choice) = model_choice::ask_model(questions, setup, can_store)? else {
            return Ok(None);
        };
        match model_check::check(questions, &choice, home.cloned())? {
            CheckEnd::Answered | CheckEnd::Skipped => return Ok(Some(choice)),
            CheckEnd::Failed if questions.confirm("Use it all the same?")? => {
                return Ok(Some(choice));
            }
            CheckEnd::Failed => {}
        }
    }
}

/// Shows what the existing file needs for the chosen model.
fn tell_lines(questions: &SetupDialog, choice: &ConfiguredModel) {
    let section = choice.section.as_ref();
    let section = section.map(|(name, section)| config_text::provider_lines(name, section));
    let model = config_text::model_line(&choice.model);
    questions.say("To use it in every run, put this into the file; `model` goes to its top:\n");
    let lines = format!("{model}{}", section.unwrap_or_default());
    lines.lines().for_each(|line| questions.say(&format!("  {line}")));
    questions.say("");
}

/// Offers to add the server to every MCP client that is installed and does not have it.
fn offer_clients(questions: &SetupDialog, home: Option<&Path>) -> Result<(), Failure> {
    let root = Path::new(".");
    for client in mcp_clients::unconfigured(root) {
        let target = InstallTarget { client, scope: None, root };
        let (title, file) = target.title_and_file()?;
        if !questions.confirm(&format!("Let {title} delegate to Adjutant? It changes {file}"))? {
            continue;
        }
        if let Err(failure) = mcp_clients::install(&target, &[], home) {
            say(&format!("adjutant: {failure}"));
        }
    }
    Ok(())
}

/// Returns whether the file is as `init` wrote it without a model.
fn is_unchanged_template(path: &Path) -> bool {
    fs::read_to_string(path).is_ok_and(|text| text == TEMPLATE)
}

/// Fails if the file could not be written, before anything is asked.
fn check_writable(path: &Path) -> Result<(), Failure> {
    let Some(existing) = path.ancestors().skip(1).find(|it| it.exists()) else { return Ok(()) };
    let fits = if existing.is_dir() {
        access(existing, Access::WRITE_OK | Access::EXEC_OK).map_err(io::Error::from)
    } else {
        Err(io::Error::from(io::ErrorKind::NotADirectory))
    };
    fits.map_err(|error| cannot_write(path, &error))
}

/// Writes the configuration. An existing file is never replaced, and a file that cannot be completed is removed.
fn write_new(path: &Path, text: &str) -> Result<(), Failure> {
    let failed = |error: io::Error| cannot_write(path, &error);
    path.parent().map_or(Ok(()), fs::create_dir_all).map_err(failed)?;
    // Private, because the file may contain keys.
    match File::options().write(true).create_new(true).mode(0o600).open(path) {
        Ok(mut file) => file.write_all(text.as_bytes()).map_err(|error| {
            let _ = fs::remove_file(path);
            failed(error)
        }),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            Err(Failure::usage(format!("{} exists already and was left alone", path.display())))
        }
        Err(error) => Err(failed(error)),
    }
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    let what = format!("cannot write {}: {error}", path.display());
    Failure::new(Exit::Failed, what).hint("XDG_CONFIG_HOME chooses another directory.")
}
