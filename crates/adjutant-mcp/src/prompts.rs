//! Slash commands as MCP prompts: a person picks one in the client, and the client's agent delegates it.
//!
//! The text of a command file is never put into the prompt: it is written for the agent that executes the
//! command, with that agent's rights. Nothing in the file is executed or included here.

use adjutant_engine::slash::{SlashCommand, SlashCommands, find_commands};
use adjutant_view::sanitize;
use rmcp::model::{
    GetPromptRequestParams, GetPromptResult, Prompt, PromptArgument, PromptMessage, Role,
};
use serde_json::{Value, json};

use crate::ServerSetup;
use crate::start::requested_run::COMMAND_BYTES;

/// The prompt's only argument: the text after the command's name.
const ARGUMENTS_KEY: &str = "arguments";

fn slash_commands(setup: &ServerSetup) -> Result<SlashCommands, String> {
    find_commands(&setup.root, &setup.command_folders).map_err(|error| error.to_string())
}

/// Returns a prompt for each usable slash command.
pub(crate) fn list(setup: &ServerSetup) -> Result<Vec<Prompt>, String> {
    Ok(slash_commands(setup)?.commands.iter().map(to_prompt).collect())
}

fn to_prompt(command: &SlashCommand) -> Prompt {
    let hint = command.hint.as_deref().unwrap_or("what to do");
    let about = format!("{}; quote it if it has several words", sanitize::line(hint));
    let argument = PromptArgument::new(ARGUMENTS_KEY).with_description(about).with_required(false);
    let about = sanitize::collapsed(&command.definition.description);
    Prompt::new(command.name(), Some(about), Some(vec![argument]))
        .with_title(sanitize::line(&command.usage()).into_owned())
}

/// Returns the message for the client's agent after a person picked a command.
pub(crate) fn get(
    setup: &ServerSetup,
    request: &GetPromptRequestParams,
) -> Result<GetPromptResult, String> {
    let book = slash_commands(setup)?;
    let command = book.find(&request.name).map_err(|error| error.to_string())?;
    if let Some(problem) = book.problem_of(command.name()) {
        let file = sanitize::line(&problem.file);
        return Err(format!("/{}: {file} defines it and has an error", command.name()));
    }
    let given = request.arguments.clone().unwrap_or_default();
    if let Some(unknown) = given.keys().find(|key| *key != ARGUMENTS_KEY) {
        return Err(format!(
            "unknown argument `{unknown}`; the only argument is `{ARGUMENTS_KEY}`"
        ));
    }
    let typed = match given.get(ARGUMENTS_KEY) {
        None | Some(Value::Null) => "",
        Some(Value::String(text)) => text.as_str(),
        Some(Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            return Err(format!("`{ARGUMENTS_KEY}` must be a string"));
        }
    };
    let typed = format!("/{} {typed}", command.name()).trim_end().to_owned();
    if typed.len() > COMMAND_BYTES {
        return Err(format!("{} bytes, limit {COMMAND_BYTES}", typed.len()));
    }
    let text = if command.is_ours {
        let quoted = sanitize::shell_word(&typed);
        format!(
            "Run this command in a shell, or tell me to run it: {} run {quoted}",
            setup.program_name
        )
    } else {
        let call = json!({ "command": typed });
        format!(
            "Call the tool delegate_command with exactly these arguments and report its result. While \
                `done` is false, call delegate_wait.\n\n{call}"
        )
    };
    let about = sanitize::collapsed(&command.definition.description);
    let message = PromptMessage::new_text(Role::User, text);
    Ok(GetPromptResult::new(vec![message]).with_description(about))
}
