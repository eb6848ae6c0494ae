//! Consent to the verify commands that agent files of a project ask for.
//!
//! Such a command runs without a person asking for it, so it needs the same consent as the one of a PRD: given once
//! for exactly this command in this file, and recorded. Without consent the command is ignored and a warning says so.

use std::path::Path;

use adjutant_core::{Policy, Rights, content_hash};
use adjutant_engine::RegistryHandle;
use adjutant_engine::roster::AgentDefinition;
use adjutant_view::sanitize;
use serde_json::json;

use crate::ask::Terminal;
use crate::exit::{Exit, Failure};
use crate::output::say;

/// How a person may be asked for consent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConsentMode {
    /// On the terminal, if there is one.
    Ask,
    /// Not at all; only recorded consent counts.
    Recorded,
}

/// Allows the verify commands of project files that a person consented to, and asks about the others. Does nothing
/// if agents have no workspaces of their own, because nothing is verified then.
pub(crate) fn settle_verify_commands(
    agents: &mut [AgentDefinition],
    (root, policy): (&Path, &Policy),
    mode: ConsentMode,
    open: impl FnOnce() -> Result<RegistryHandle, Failure>,
) -> Result<(), Failure> {
    let is_open = |agent: &&mut AgentDefinition| {
        agent.verify.as_ref().is_some_and(|verify| !verify.is_allowed)
    };
    let mut waiting: Vec<&mut AgentDefinition> = agents.iter_mut().filter(is_open).collect();
    if waiting.is_empty() || !Rights::of(policy).has_own_space() {
        return Ok(());
    }
    let registry = open()?;
    waiting.retain_mut(|agent| {
        let is_given = registry.has_consent(&digest(root, agent));
        allow(agent, is_given);
        !is_given
    });
    if waiting.is_empty() {
        return Ok(());
    }
    let list: String = waiting.iter().map(|agent| line(agent)).collect();
    let text = format!("Agent files of this project ask for verify commands:\n{list}");
    let terminal = if mode == ConsentMode::Ask { Terminal::open() } else { None };
    let question = "Allow them, from now on? [y/N] ";
    if !terminal.is_some_and(|terminal| terminal.confirm(&text, question)) {
        say(&format!(
            "adjutant: {text}They are ignored without your consent, so the work of these agents is not verified; \
             --verify COMMAND verifies it with a command of yours."
        ));
        return Ok(());
    }
    for agent in waiting {
        allow(agent, true);
        if let Err(error) = registry.give_consent(&digest(root, agent)) {
            let failure = Failure::from_error(Exit::Failed, &error);
            say(&format!(
                "adjutant: your consent could not be saved, so you will be asked again: {failure}"
            ));
        }
    }
    Ok(())
}

fn allow(agent: &mut AgentDefinition, is_given: bool) {
    if let Some(verify) = &mut agent.verify {
        verify.is_allowed |= is_given;
    }
}

fn line(agent: &AgentDefinition) -> String {
    let Some(defined) = &agent.verify else { return String::new() };
    let mut what = format!("{} ({}): run `{}`", agent.name, agent.file, defined.verify.command);
    if !defined.verify.keep.is_empty() {
        what += &format!(", with {} from the base", defined.verify.keep.join(", "));
    }
    format!("  {}\n", sanitize::line(&what))
}

/// Returns the digest of the command, the files it keeps, and the file that asks for it.
fn digest(root: &Path, agent: &AgentDefinition) -> String {
    let file = root.join(&agent.file);
    let file = file.canonicalize().unwrap_or(file);
    let verify = agent.verify.as_ref().map(|defined| &defined.verify);
    let asked = json!(["adjutant agent verify 1", file.display().to_string(), verify]);
    content_hash(asked.to_string().as_bytes())
}
