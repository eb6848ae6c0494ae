//! Slash commands: the files in which people describe them, the built-in ones, and what one that was
//! typed comes to.
//!
//! Knows where three products keep such files, how arguments are read and put into a body, and which
//! agent a command is handed to. It does not know a run: what it makes is a [`PreparedCommand`] command that
//! the engine takes as the agent at the root. Files are found and bounded as those of `roster` are;
//! nothing in one can widen rights, nothing in one is executed. Start at [`find_commands`], then
//! [`SlashCommands::recognise`] and [`SlashCommands::prepare`]. Invariant: what was typed is put into a body
//! once, and never read again as part of it.

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
use adjutant_tools::{ContextFile, ContextState, Masker, render_context};
use adjutant_workspace::PathError;

use crate::roster::{
    AgentDefinition, DefinitionFile, DefinitionScope, FileProblem, SearchFinding, ShadowedFile,
    SourceProduct, UserFolders, search_folders,
};

pub use arguments::{ArgumentError, ArgumentForm, CommandArguments, InPlaceFlag};
pub use builtin::agents as builtin_agents;
pub use fill::{fill, words};
pub use prepare::{PrepareContext, PrepareError, PreparedCommand, TaskEntry, TaskLookup};
pub use route::{AgentRoute, CommandRouting, ConfiguredRoutes, RouteError, RouteReason};

/// A slash command as a file, or the program itself, describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct SlashCommand {
    /// The command as the agent at the root: name, body, tools, model, limits and file.
    pub definition: AgentDefinition,
    /// How its arguments are read.
    pub form: ArgumentForm,
    /// What its arguments look like, for people.
    pub hint: Option<String>,
    /// The language it is for, where the task does not say.
    pub language: Option<String>,
    /// Whom it is handed to.
    pub routing: CommandRouting,
    /// The files that the agent who does the work is given before its prompt, by path from the root.
    pub context: Vec<String>,
    /// Whether the program carries it out itself, without an agent.
    pub is_ours: bool,
}

impl SlashCommand {
    /// Returns what it is called, without the slash.
    #[must_use]
    pub fn name(&self) -> &str {
        self.definition.name.as_str()
    }

    /// Returns what kind of work it is.
    #[must_use]
    pub fn operation(&self) -> Operation {
        self.definition.limits.operation.unwrap_or_default()
    }

    /// Takes `--in-place` out of what a person typed behind it; nobody else's text is asked for it.
    #[must_use]
    pub fn without_in_place(&self, typed: &str) -> (String, InPlaceFlag) {
        arguments::without_in_place(self.form, typed)
    }

    /// Returns how it is typed.
    #[must_use]
    pub fn usage(&self) -> String {
        let hint = self.hint.as_deref().unwrap_or_default();
        format!("/{} {hint}", self.name()).trim_end().to_owned()
    }
}

/// Every command there is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SlashCommands {
    /// The commands, each name once: the project's, the person's, the built-in ones.
    pub commands: Vec<SlashCommand>,
    /// Files, and built-in commands, whose name was taken.
    pub shadowed: Vec<ShadowedFile>,
    /// Files that cannot be used.
    pub problems: Vec<FileProblem>,
}

/// Finds every command: in the project first, then in the person's folders, then the built-in ones.
pub fn find_commands(root: &Path, user: &UserFolders) -> Result<SlashCommands, PathError> {
    let mut book = SlashCommands::default();
    search_folders(root, &PROJECT_FOLDERS, user, |_| true, &mut |find| match find {
        SearchFinding::Problem(problem) => book.problems.push(problem),
        SearchFinding::File(leaf) => book.take(&leaf),
    })?;
    builtin::commands().into_iter().for_each(|command| book.add(command));
    Ok(book)
}

/// Where each product keeps its commands in a project.
const PROJECT_FOLDERS: [(SourceProduct, &str); 4] = [
    (SourceProduct::Claude, ".claude/commands"),
    (SourceProduct::Opencode, ".opencode/command"),
    (SourceProduct::Opencode, ".opencode/commands"),
    (SourceProduct::Adjutant, ".adjutant/commands"),
];

/// Returns the usual folders of commands below a person's home and configuration directories.
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
        let plain = plain(name.strip_prefix('/').unwrap_or(name));
        let found = self.commands.iter().find(|command| self::plain(command.name()) == plain);
        found.ok_or_else(|| UnknownCommand::among(name, &self.commands))
    }

    /// Returns the command that a typed text begins with, and what follows it.
    ///
    /// A text is a command when its first character is a slash with a name behind it. One whose name
    /// holds another slash and is nobody's is a path, so the text is a plain one.
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

    /// Returns what an agent is given whose task begins with a command: what the command says, with
    /// the arguments in it. `None` where it does not.
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
                let state = ContextState::Loaded { text, lossy: false };
                render_context(&[ContextFile { path: it.file.clone(), state }])
            }
        };
        Ok(Some(format!("{numbers}\n{}\n\n{}", prompt.trim(), said.trim_end()).trim_start().into()))
    }

    fn take(&mut self, leaf: &DefinitionFile) {
        match leaf.read(|text| read::command(leaf, text)) {
            Ok(command) => self.add(command),
            Err(reason) => {
                if !leaf.is_beyond {
                    self.problems.push(leaf.problem(reason));
                }
                if leaf.scope == DefinitionScope::User {
                    self.withdraw(&read::name_of(leaf), &leaf.file);
                }
            }
        }
    }

    /// Adds one more; the first of a name counts, and the person's own bounds a project's.
    fn add(&mut self, command: SlashCommand) {
        let name = plain(command.name());
        let Some(first) = self.commands.iter_mut().find(|it| plain(it.name()) == name) else {
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

    /// Takes back a project's command whose bounds stand in a file of the person's that cannot be read.
    fn withdraw(&mut self, name: &str, bounds: &str) {
        let name = plain(name);
        let bounded = |command: &mut SlashCommand| {
            command.definition.scope == DefinitionScope::Project && plain(command.name()) == name
        };
        let withdrawn = self.commands.extract_if(.., bounded).map(|command| FileProblem {
            file: command.definition.file,
            scope: DefinitionScope::Project,
            reason: format!("{bounds} would bound it and cannot be used"),
        });
        self.problems.extend(withdrawn.collect::<Vec<_>>());
    }

    /// Returns the file that was meant to describe a command and cannot be used.
    #[must_use]
    pub fn broken(&self, name: &str) -> Option<&FileProblem> {
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

/// Products join the folders of a command with different signs; a name is the same with either.
fn plain(name: &str) -> String {
    name.to_lowercase().replace(':', "/")
}

/// Says that no command has that name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct UnknownCommand {
    /// The name, without the slash.
    pub name: String,
    /// The name that was probably meant.
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
