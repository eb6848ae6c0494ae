//! The built-in slash commands and agents.
//!
//! Their texts have the format of files and are parsed like files, so a person can copy one to start their own.
//! A file of the same name replaces a built-in command or agent.

use std::path::PathBuf;

use super::arguments::ArgumentForm;
use super::{SlashCommand, read};
use crate::roster::{AgentDefinition, DefinitionFile, DefinitionScope, SourceProduct, definition};

/// A built-in command: its file, its arguments and the agent it delegates to.
pub(super) struct BuiltinCommand {
    name: &'static str,
    text: &'static str,
    pub(super) form: ArgumentForm,
    pub(super) hint: &'static str,
    pub(super) agent: Option<&'static str>,
    /// Agents for special languages, by language.
    pub(super) languages: &'static [(&'static str, &'static str)],
}

const BUILTIN_COMMANDS: [BuiltinCommand; 9] = [
    BuiltinCommand {
        name: "research",
        text: include_str!("builtin/research.md"),
        form: ArgumentForm::Task(&["divide"]),
        hint: "N [--divide] [PROMPT]",
        agent: Some("researcher"),
        languages: &[("lean", "lean-research-agent")],
    },
    BuiltinCommand {
        name: "plan",
        text: include_str!("builtin/plan.md"),
        form: ArgumentForm::Task(&[]),
        hint: "N [PROMPT]",
        agent: Some("planner"),
        languages: &[("lean", "lean-planner")],
    },
    BuiltinCommand {
        name: "implement",
        text: include_str!("builtin/implement.md"),
        form: ArgumentForm::Tasks,
        hint: "N|A-B|A,B [--in-place] [PROMPT]",
        agent: Some("implementer"),
        languages: &[("lean", "lean-implementation-agent")],
    },
    BuiltinCommand {
        name: "revise",
        text: include_str!("builtin/revise.md"),
        form: ArgumentForm::Task(&[]),
        hint: "N [PROMPT]",
        agent: Some("planner"),
        languages: &[("lean", "lean-planner")],
    },
    BuiltinCommand {
        name: "review",
        text: include_str!("builtin/review.md"),
        form: ArgumentForm::Free,
        hint: "[SCOPE]",
        agent: Some("reviewer"),
        languages: &[],
    },
    BuiltinCommand {
        name: "task",
        text: include_str!("builtin/task.md"),
        form: ArgumentForm::Text(&["language=", "priority=", "effort="]),
        hint: "\"TEXT\" [--language L] [--priority P] [--effort E]",
        agent: None,
        languages: &[],
    },
    BuiltinCommand {
        name: "errors",
        text: include_str!("builtin/errors.md"),
        form: ArgumentForm::Options(&["all", "type="]),
        hint: "[--all] [--type T]",
        agent: Some("error-diagnostics-agent"),
        languages: &[],
    },
    BuiltinCommand {
        name: "todo",
        text: include_str!("builtin/todo.md"),
        form: ArgumentForm::Free,
        hint: "",
        agent: None,
        languages: &[],
    },
    BuiltinCommand {
        name: "meta",
        text: include_str!("builtin/meta.md"),
        form: ArgumentForm::Free,
        hint: "[PROMPT]",
        agent: None,
        languages: &[],
    },
];

const AGENTS: [(&str, &str); 7] = [
    ("researcher", include_str!("builtin/agents/researcher.md")),
    ("planner", include_str!("builtin/agents/planner.md")),
    ("implementer", include_str!("builtin/agents/implementer.md")),
    ("reviewer", include_str!("builtin/agents/reviewer.md")),
    ("error-diagnostics-agent", include_str!("builtin/agents/error-diagnostics-agent.md")),
    ("specialist", include_str!("builtin/agents/specialist.md")),
    ("helper", include_str!("builtin/agents/helper.md")),
];

/// Shown instead of a path.
const FILE: &str = "built-in";

/// The command that Adjutant carries out itself, without an agent.
const OURS: &str = "task";

impl BuiltinCommand {
    /// Returns the argument form of a file that replaces this command. Options of a text are passed on to the
    /// file's agent, which may know other options.
    pub(super) const fn form_for_files(&self) -> ArgumentForm {
        match self.form {
            ArgumentForm::Text(_) => ArgumentForm::Text(&[]),
            form @ (ArgumentForm::Free
            | ArgumentForm::Task(_)
            | ArgumentForm::Tasks
            | ArgumentForm::Options(_)) => form,
        }
    }
}

/// Returns the built-in command of that name.
pub(super) fn find(name: &str) -> Option<&'static BuiltinCommand> {
    BUILTIN_COMMANDS.iter().find(|built_in| built_in.name.eq_ignore_ascii_case(name))
}

/// Returns the built-in commands.
pub(super) fn commands() -> Vec<SlashCommand> {
    let leaf = |built_in: &BuiltinCommand| DefinitionFile {
        is_over_limit: false,
        product: SourceProduct::Adjutant,
        scope: DefinitionScope::BuiltIn,
        file: FILE.to_owned(),
        within: PathBuf::from(format!("{}.md", built_in.name)),
        text: Ok(built_in.text.to_owned()),
    };
    let read = |built_in: &BuiltinCommand| {
        let leaf = leaf(built_in);
        let command = leaf.read(|text| read::command(&leaf, text)).ok()?;
        let is_ours = built_in.name == OURS;
        Some(SlashCommand { form: built_in.form, is_ours, ..command })
    };
    BUILTIN_COMMANDS.iter().filter_map(read).collect()
}

/// Returns the built-in agents whose names are not in `taken`.
#[must_use]
pub fn agents(taken: &[AgentDefinition]) -> Vec<AgentDefinition> {
    let is_free = |name: &str| !taken.iter().any(|it| it.name.as_str().eq_ignore_ascii_case(name));
    let (product, scope) = (SourceProduct::Adjutant, DefinitionScope::BuiltIn);
    let built_in = AGENTS.iter().filter(|(name, _)| is_free(name));
    built_in.filter_map(|(name, text)| definition(product, scope, FILE, name, text).ok()).collect()
}

#[cfg(test)]
mod tests {
    use adjutant_core::Preset;

    use super::*;
    use crate::briefs::role::AgentRole;

    #[test]
    fn built_in_files_are_valid() {
        let commands = commands();
        assert_eq!(commands.len(), BUILTIN_COMMANDS.len());
        for command in &commands {
            assert_eq!(command.definition.ignored, [""; 0], "{}", command.name());
        }
        let agents = agents(&[]);
        assert_eq!(agents.len(), AGENTS.len());
        let policy = Preset::Command.policy();
        for agent in agents {
            let role = AgentRole::of(agent, &policy, None, &[]);
            assert_eq!(role.ignored, [""; 0], "{}", role.definition.name);
            let delegates = role.rights.tools.contains("Task");
            assert_eq!(delegates, role.definition.name.as_str() != "helper");
        }
    }

    #[test]
    fn agents_of_built_in_commands_exist() {
        for built_in in &BUILTIN_COMMANDS {
            let there = |agent| AGENTS.iter().any(|(name, _)| *name == agent);
            assert!(built_in.agent.is_none_or(there), "{}", built_in.name);
        }
    }
}
