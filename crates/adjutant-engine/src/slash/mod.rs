//! Slash commands: finds those in files, adds the built-in ones, and prepares a typed command for a run.
//!
//! The result is a [`PreparedCommand`], which becomes the root agent of a run. Files are searched and limited like
//! those of `roster`: they cannot widen rights, and nothing in them is executed. Start at [`find_commands`], then
//! [`SlashCommands::recognise`] and [`SlashCommands::prepare`]. Invariant: typed arguments are substituted once and
//! never parsed again as part of the body.

mod arguments;
mod builtin;
mod fill;
mod prepare;
mod read;
mod route;

use std::fmt;
use std::path::Path;

use adjutant_core::nearest;
use adjutant_core::policy::Operation;
use adjutant_tools::{ContextFileContent, ContextFileState, Masker, render_context};
use adjutant_workspace::PathError;

use crate::roster::{
    AgentDefinition, DefinitionFile, DefinitionScope, FileProblem, SearchFinding, ShadowedFile,
    SourceProduct, UserFolders, search_folders,
};

pub use arguments::{ArgumentError, ArgumentForm, CommandArguments, InPlaceMention};
pub use builtin::agents as builtin_agents;
pub use fill::{fill, words};
pub use prepare::{PrepareContext, PrepareError, PreparedCommand, TaskEntry, TaskLookup};
pub use route::{AgentRoute, CommandFileRoutes, ConfiguredRoutes, RouteError, RouteReason};

/// A slash command of a file, or a built-in one.
#[derive(Clone, Debug, PartialEq)]
pub struct SlashCommand {
    /// The command as root agent: name, body, tools, model, limits and file.
    pub definition: AgentDefinition,
    /// The form of its arguments.
    pub form: ArgumentForm,
    /// The placeholder of its arguments in help texts.
    pub hint: Option<String>,
    /// The language to assume if the task has none.
    pub language: Option<String>,
    /// The agents it can delegate to.
    pub routing: CommandFileRoutes,
    /// Context files of the agent that does the work, relative to the root.
    pub context: Vec<String>,
    /// Whether Adjutant carries it out itself, without an agent.
    pub is_ours: bool,
}

impl SlashCommand {
    /// Returns its name without the slash.
    #[must_use]
    pub fn name(&self) -> &str {
        self.definition.name.as_str()
    }

    /// Returns the kind of work.
    #[must_use]
    pub fn operation(&self) -> Operation {
        self.definition.limits.operation.unwrap_or_default()
    }

    /// Removes `--in-place` from what a person typed after the command. Never used for texts of agents.
    #[must_use]
    pub fn without_in_place(&self, typed: &str) -> (String, InPlaceMention) {
        arguments::without_in_place(self.form, typed)
    }

    /// Returns the usage line.
    #[must_use]
    pub fn usage(&self) -> String {
        let hint = self.hint.as_deref().unwrap_or_default();
        format!("/{} {hint}", self.name()).trim_end().to_owned()
    }
}

/// All slash commands.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SlashCommands {
    /// The commands, each name once: first the project's, then the person's, then the built-in ones.
    pub commands: Vec<SlashCommand>,
    /// Files and built-in commands whose name was taken.
    pub shadowed: Vec<ShadowedFile>,
    /// Files that cannot be used.
    pub problems: Vec<FileProblem>,
}

/// Finds all commands: first in the project, then in the person's folders, then the built-in ones.
pub fn find_commands(root: &Path, user: &UserFolders) -> Result<SlashCommands, PathError> {
    let mut book = SlashCommands::default();
    search_folders(root, &PROJECT_FOLDERS, user, |_| true, &mut |find| match find {
        SearchFinding::Problem(problem) => book.problems.push(problem),
        SearchFinding::File(leaf) => book.take(&leaf),
    })?;
    builtin::commands().into_iter().for_each(|command| book.add(command));
    Ok(book)
}

/// The folders of commands in a project, by product.
const PROJECT_FOLDERS: [(SourceProduct, &str); 4] = [
    (SourceProduct::Claude, ".claude/commands"),
    (SourceProduct::Opencode, ".opencode/command"),
    (SourceProduct::Opencode, ".opencode/commands"),
    (SourceProduct::Adjutant, ".adjutant/commands"),
];

/// Returns the default folders of commands below a person's home and configuration directories.
#[must_use]
pub fn user_folders(home: Option<&Path>, config: Option<&Path>) -> UserFolders {
    let below = |base: Option<&Path>, path: &str| base.map(|base| base.join(path));
    let folders = [
        (SourceProduct::Claude, below(home, ".claude/commands")),
        (SourceProduct::Opencode, below(config, "opencode/command")),
        (SourceProduct::Opencode, below(config, "opencode/commands")),
        (SourceProduct::Adjutant, below(config, "adjutant/commands")),
    ];
    UserFolders(folders.into_iter().filter_map(|(product, path)| Some((product, path?))).collect())
}

impl SlashCommands {
    /// Returns the command of that name.
    pub fn find(&self, name: &str) -> Result<&SlashCommand, UnknownCommand> {
        let plain = normalise_name(name.strip_prefix('/').unwrap_or(name));
        let found =
            self.commands.iter().find(|command| self::normalise_name(command.name()) == plain);
        found.ok_or_else(|| UnknownCommand::among(name, &self.commands))
    }

    /// Returns the command that a typed text begins with, and the text after it.
    ///
    /// A text that begins with a slash and a name is a command. If the name is unknown and contains another slash,
    /// it is taken for a path and the text for plain text.
    pub fn recognise<'a>(
        &self,
        typed: &'a str,
    ) -> Result<Option<(&SlashCommand, &'a str)>, UnknownCommand> {
        let Some((name, rest)) = split(typed) else { return Ok(None) };
        match self.find(name) {
            Ok(command) => Ok(Some((command, rest))),
            Err(unknown) if name.contains('/') && unknown.meant.is_none() => Ok(None),
            Err(unknown) => Err(unknown),
        }
    }

    /// Expands a task's prompt that begins with a command into the command's body with the arguments. Returns
    /// `None` for other prompts.
    pub(crate) fn expand(
        &self,
        prompt: &str,
        masker: &Masker,
    ) -> Result<Option<String>, ArgumentError> {
        let Ok(Some((command, rest))) = self.recognise(prompt) else { return Ok(None) };
        if command.is_ours {
            return Err(ArgumentError::Ours { command: command.name().to_owned() });
        }
        let arguments = arguments::read(command.name(), command.form, rest)?;
        let numbers = arguments.tasks.iter().map(|task| format!("Task: {task}\n"));
        let numbers: String = numbers.collect();
        let it = &command.definition;
        let body = fill(&it.prompt, &arguments.typed);
        let said = match it.scope {
            DefinitionScope::BuiltIn => body,
            DefinitionScope::Project | DefinitionScope::User => {
                let text = masker.mask(&body).into_owned();
                let state = ContextFileState::Loaded { text, lossy: false };
                render_context(&[ContextFileContent { path: it.file.clone(), state }])
            }
        };
        Ok(Some(format!("{numbers}\n{}\n\n{}", prompt.trim(), said.trim_end()).trim_start().into()))
    }

    fn take(&mut self, leaf: &DefinitionFile) {
        match leaf.read(|text| read::command(leaf, text)) {
            Ok(command) => self.add(command),
            Err(reason) => {
                if !leaf.is_over_limit {
                    self.problems.push(leaf.problem(reason));
                }
                if leaf.scope == DefinitionScope::User {
                    self.withdraw(&read::name_of(leaf), &leaf.file);
                }
            }
        }
    }

    /// Adds a command. The first of a name is used; the person's own limits a project's of the same name.
    fn add(&mut self, command: SlashCommand) {
        let name = normalise_name(command.name());
        let Some(first) = self.commands.iter_mut().find(|it| normalise_name(it.name()) == name)
        else {
            self.commands.push(command);
            return;
        };
        let (held, own) = (&mut first.definition, command.definition);
        if held.scope == DefinitionScope::Project
            && own.scope == DefinitionScope::User
            && held.ceiling.is_none()
        {
            held.bound_by(&own);
        }
        self.shadowed.push(ShadowedFile {
            name: own.name.as_str().to_owned(),
            file: own.file,
            scope: own.scope,
            by: held.file.clone(),
        });
    }

    /// Removes a project's command if the person's file of the same name, which would limit it, cannot be read.
    fn withdraw(&mut self, name: &str, bounds: &str) {
        let name = normalise_name(name);
        let bounded = |command: &mut SlashCommand| {
            command.definition.scope == DefinitionScope::Project
                && normalise_name(command.name()) == name
        };
        let withdrawn = self.commands.extract_if(.., bounded).map(|command| FileProblem {
            file: command.definition.file,
            scope: DefinitionScope::Project,
            reason: format!("{bounds} would limit it and cannot be used"),
        });
        self.problems.extend(withdrawn.collect::<Vec<_>>());
    }

    /// Returns the problem of a file with that command's name, if there is one.
    #[must_use]
    pub fn problem_of(&self, name: &str) -> Option<&FileProblem> {
        let last = name.rsplit(['/', ':']).next().unwrap_or(name);
        self.problems.iter().find(|problem| {
            Path::new(&problem.file).file_stem().is_some_and(|stem| stem.eq_ignore_ascii_case(last))
        })
    }
}

/// Splits a typed text into the name of a command and the rest.
pub(crate) fn split(typed: &str) -> Option<(&str, &str)> {
    let text = typed.strip_prefix('/').filter(|text| text.starts_with(char::is_alphanumeric))?;
    let (name, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    Some((name, rest.trim()))
}

/// Normalises a name for comparison. Products separate the folders in a name by `:` or `/`.
fn normalise_name(name: &str) -> String {
    name.to_lowercase().replace(':', "/")
}

/// No command has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct UnknownCommand {
    /// The name, without the slash.
    pub name: String,
    /// The most similar name.
    pub meant: Option<String>,
}

impl UnknownCommand {
    fn among(name: &str, commands: &[SlashCommand]) -> Self {
        let name = name.strip_prefix('/').unwrap_or(name);
        let meant = nearest(name, commands.iter().map(SlashCommand::name)).map(str::to_owned);
        Self { name: name.to_owned(), meant }
    }
}

impl fmt::Display for UnknownCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no command `/{}`", self.name)?;
        self.meant.as_ref().map_or(Ok(()), |meant| write!(f, ", did you mean `/{meant}`?"))
    }
}
