//! Slash commands: `adjutant commands` lists them, `run "/NAME …"` runs one with the agent it is routed to.
//!
//! Start at [`read_slash_command`] and [`TypedSlashCommand::prepare`].

use std::path::{Path, PathBuf};

use adjutant_core::numbers::grouped;
use adjutant_core::policy::{Operation, WorkspaceSharing};
use adjutant_core::schema::ReturnFormat;
use adjutant_core::{Policy, Preset};
use adjutant_engine::roster::{AgentRoster, DefinitionScope, FileProblem, UserFolders};
use adjutant_engine::slash::{
    ConfiguredRoutes, InPlaceMention, PrepareContext, PrepareError, PreparedCommand, RouteReason,
    SlashCommand, SlashCommands, builtin_agents, find_commands,
};
use adjutant_engine::specs::TaskFinder;
use adjutant_engine::{AgentRole, Archive, Engine};
use adjutant_formats::task::TaskStatus;
use adjutant_view::{ProcessLiveness, sanitize};
use serde_json::{Value, json};

use crate::agents::{self, format_name, notices};
use crate::args::{CommandsArgs, ResultFormat, TaskAddArgs, WorkFlags};
use crate::delegate::{absolute, form};
use crate::exit::{Exit, Failure};
use crate::hints::advise;
use crate::output::{print, print_json, say};
use crate::run_lookup;
use crate::settings::{Settings, command_folders};
use crate::tasks;

/// How to type a goal that begins with a path.
const PATHS: &str =
    "`adjutant commands` lists them. To begin a goal with a path, put a space before it.";

/// A slash command as it was typed: the name is resolved, the arguments are not parsed yet.
pub(crate) struct TypedSlashCommand {
    root: PathBuf,
    book: SlashCommands,
    command: SlashCommand,
    typed: String,
    in_place: InPlaceMention,
}

/// Reads the slash commands of the project and of the user.
pub(crate) fn find(root: &Path) -> Result<SlashCommands, Failure> {
    find_commands(root, &command_folders())
        .map_err(|error| Failure::usage(format!("cannot open {}: {error}", root.display())))
}

/// Reads a goal as a slash command; `None` if it is a plain goal.
///
/// Only a typed goal can be a command, never piped input. The slash must be its first character. A path with several
/// components that is not the name of a command is a plain goal.
pub(crate) fn read_slash_command(
    root: &Path,
    goal: Option<&str>,
) -> Result<Option<TypedSlashCommand>, Failure> {
    let Some(goal) = goal.filter(|goal| goal.starts_with('/')) else { return Ok(None) };
    let book = find(root)?;
    let found = book.recognise(goal).map_err(|error| match book.problem_of(&error.name) {
        Some(problem) => {
            let (name, problem) = (error.name.clone(), problem.clone());
            prepare_failure(&PrepareError::Broken { name, problem })
        }
        None => Failure::usage(error.to_string()).hint(PATHS),
    })?;
    let found = found.map(|(command, typed)| (command.clone(), command.without_in_place(typed)));
    if found.is_none() {
        say(
            "adjutant: this begins with a path, not with the name of a command, so it is taken as a goal",
        );
    }
    Ok(found.map(|(command, (typed, in_place))| {
        let root = root.to_owned();
        TypedSlashCommand { root, book, command, typed, in_place }
    }))
}

/// Refuses what an MCP client may not send. A client's command is not typed by a person, so it grants no rights.
pub(crate) fn check_sent(slash: Option<&TypedSlashCommand>) -> Result<(), Failure> {
    let Some(slash) = slash else {
        return Err(Failure::usage("this begins with a path, not with the name of a command")
            .hint("`adjutant commands` lists the commands."));
    };
    let name = sanitize::line(slash.command.name());
    if slash.command.is_ours {
        let text =
            format!("/{name} is carried out by adjutant itself, so there is nothing to delegate");
        return Err(Failure::usage(text)
            .hint(format!("`adjutant run '/{name} …'` does it, in a terminal.")));
    }
    if slash.in_place == InPlaceMention::AsOption {
        let text = "--in-place: only a person can let agents write in the whole tree";
        return Err(Failure::new(Exit::Refused, text)
            .hint("Leave it out: the agents then write only below the specs folder."));
    }
    Ok(())
}

/// Reads a goal as a built-in command, ignoring the user's files.
pub(crate) fn built_in(root: &Path, goal: &str) -> Option<TypedSlashCommand> {
    let book = find_commands(root, &UserFolders::default()).ok()?;
    let (command, typed) = book.recognise(goal).ok()??;
    let (command, typed) = (command.clone(), typed.to_owned());
    let in_place = InPlaceMention::Absent;
    Some(TypedSlashCommand { root: root.to_owned(), book, command, typed, in_place })
}

/// Turns an error of a command into a failure that says what to do.
fn prepare_failure(error: &PrepareError) -> Failure {
    let exit = if matches!(error, PrepareError::Step { .. }) { Exit::Refused } else { Exit::Usage };
    let failure = Failure::new(exit, sanitize::line(&error.to_string()));
    match error {
        PrepareError::Arguments { usage, .. } => {
            failure.hint(format!("adjutant run '{}'", sanitize::line(usage)))
        }
        PrepareError::Route(_) => {
            failure.hint("`adjutant agents` lists the agents; --agent NAME chooses one.")
        }
        PrepareError::Broken { .. } => failure
            .hint("`adjutant commands` lists the commands, and the files that cannot be used."),
        PrepareError::Step { number, step } if step.from == TaskStatus::Completed => {
            failure.hint(format!("`adjutant task set {number} in_progress` opens it again."))
        }
        PrepareError::Step { number, .. } => failure
            .hint(format!("`adjutant task set {number} STATUS` moves it, `adjutant task show {number}` shows it.")),
        PrepareError::NoTasks { .. } => {
            failure.hint("`adjutant run '/task \"TEXT\"'` adds the first one.")
        }
        PrepareError::UnknownTask { .. } => failure
            .hint("`adjutant task list` shows the tasks there are; `adjutant run '/task \"TEXT\"'` adds one."),
        PrepareError::Tasks(_) => failure
            .hint("Fix it, or move it away; `adjutant task list` says whether it can be read."),
    }
}

impl TypedSlashCommand {
    /// The default preset of slash commands.
    pub(crate) const PRESET: Preset = Preset::Command;

    /// Returns whether `--in-place` was typed as an option of the command.
    pub(crate) fn is_in_place(&self) -> bool {
        if self.in_place == InPlaceMention::InPrompt {
            say(
                "adjutant: --in-place is part of the prompt here and has no effect; as an option it goes before the prompt",
            );
        }
        self.in_place == InPlaceMention::AsOption
    }

    /// Parses the arguments and finds the agent. Adds the built-in agents to the roster.
    pub(crate) fn prepare(
        &self,
        routes: &ConfiguredRoutes,
        agent: Option<&str>,
        roster: &mut AgentRoster,
    ) -> Result<PreparedCommand, Failure> {
        roster.agents.extend(builtin_agents(&roster.agents));
        let lookout = TaskFinder::new(&self.root);
        let around =
            PrepareContext { roster, routes, agent, tasks: &|number| lookout.find(number) };
        let prepared = self.book.prepare(&self.command, &self.typed, &around);
        prepared.map_err(|error| prepare_failure(&error))
    }

    /// Runs a command that needs no agent; `None` for other commands. `piped` reads standard input.
    pub(crate) fn run_without_agent(
        &self,
        flags: &WorkFlags,
        as_json: bool,
        piped: impl FnOnce() -> Result<String, Failure>,
    ) -> Result<Option<Exit>, Failure> {
        if !self.command.is_ours {
            return Ok(None);
        }
        let arguments = self.book.arguments(&self.command, &self.typed);
        let arguments = arguments.map_err(|error| prepare_failure(&error))?;
        let name = self.command.name();
        let needless = [
            (flags.agent.is_some(), "--agent has no effect"),
            (flags.events, "--events has nothing to stream"),
        ];
        if let Some((_, why)) = needless.iter().find(|(is_given, _)| *is_given) {
            let text = format!("/{name} is carried out by adjutant itself, so {why}");
            return Err(Failure::usage(text));
        }
        let option = |name: &str| {
            let named = arguments.options.iter().rfind(|(option, _)| option == name);
            named.and_then(|(_, value)| value.clone())
        };
        let wish = TaskAddArgs {
            title: arguments.prompt.clone(),
            language: option("language"),
            priority: option("priority"),
            effort: option("effort"),
            description: Some(piped()?).filter(|text| !text.is_empty()),
        };
        let as_json =
            form(flags.return_form, ReturnFormat::Markdown, as_json) == ResultFormat::Json;
        tasks::add(&self.root, &wish, as_json, tasks::added).map(Some)
    }

    /// Gives the engine the assignment and the commands that its agents may use, and prints who works on what.
    pub(crate) fn configure(
        &self,
        engine: Engine,
        prepared: &PreparedCommand,
        policy: &Policy,
        roster: &AgentRoster,
    ) -> Engine {
        self.introduce(&engine, prepared, roster);
        let is_confined = !policy.in_place && policy.workspace == WorkspaceSharing::Shared;
        if is_confined && prepared.operation == Operation::Implement {
            let list = prepared.tasks.first().and_then(|task| task.file.rsplit_once('/'));
            let folder = list.map_or(".adjutant/specs", |(folder, _)| folder);
            say(&format!(
                "adjutant: in this run the agents may write only below {folder}; to let them change all of the \
                 working tree, start it with --in-place"
            ));
        }
        engine.with_assignment(prepared.assignment(policy)).with_commands(self.book.clone())
    }

    /// Warns about tasks that the task list shows as in progress, and names the run that may work on them.
    pub(crate) fn say_in_progress(&self, archive: &Archive, prepared: &PreparedCommand) {
        for task in &prepared.tasks {
            let Some(status) = task.status.filter(|status| is_stage(*status)) else { continue };
            let head = format!("adjutant: task {} is {}", task.number, status.marker());
            advise(&match run_lookup::unfinished_run_with_task(archive, &self.root, task.number) {
                Some((run, ProcessLiveness::Alive)) => format!(
                    "{head}: {run} is working on it; `adjutant status {run}` shows it, `adjutant cancel {run}` ends it"
                ),
                Some((run, ProcessLiveness::Dead)) => {
                    format!("{head}: {run} was interrupted; `adjutant resume {run}` continues it")
                }
                None => format!(
                    "{head}: a run may be working on it, or was interrupted; `adjutant status` shows it, `adjutant resume RUN` continues it"
                ),
            });
        }
    }

    /// Prints which agent runs the command, which settings of its file are ignored, and that files are unusable.
    fn introduce(&self, engine: &Engine, prepared: &PreparedCommand, roster: &AgentRoster) {
        let definition = &prepared.definition;
        let to = prepared.route.as_ref().map_or_else(String::new, |route| {
            let is_usual = route.because == RouteReason::Named;
            let why =
                if is_usual { String::new() } else { format!(" (chosen by {})", route.because) };
            format!(", done by {}{why}", sanitize::line(&route.agent))
        });
        let file = sanitize::line(&definition.file);
        say(&format!("adjutant: /{} ({file}){to}", sanitize::line(definition.name.as_str())));
        let ignored = engine.role(&definition.name).map_or(&definition.ignored, |it| &it.ignored);
        for said in prepared.remarks.iter().chain(ignored) {
            say(&format!("adjutant: {}", sanitize::collapsed(said)));
        }
        notices(&roster.problems, "agent");
        notices(&self.book.problems, "command");
    }
}

/// Returns whether a command sets this status while it runs.
fn is_stage(status: TaskStatus) -> bool {
    status.is_under_way() && status != TaskStatus::InProgress
}

/// Runs `adjutant commands`: lists the commands, or shows one.
pub(crate) fn run_commands(args: &CommandsArgs, as_json: bool) -> Result<Exit, Failure> {
    let root = absolute(&args.root)?;
    let settings = Settings::load_as(&args.policy, &root, Some(TypedSlashCommand::PRESET))?;
    let mut roster = agents::find(&root)?;
    roster.agents.extend(builtin_agents(&roster.agents));
    let mut book = find(&root)?;
    if let Some(name) = args.name.as_deref() {
        let found = book.find(name).cloned().map_err(|error| {
            Failure::usage(error.to_string())
                .hint("`adjutant commands` lists them, and the files that cannot be used.")
        })?;
        book.shadowed.retain(|shadowed| shadowed.by == found.definition.file);
        let broken = instead_of(&book, &found).cloned();
        book.problems.retain(|problem| broken.as_ref() == Some(problem));
        book.commands = vec![found];
    }
    let listing =
        CommandListing { settings: &settings, roster: &roster, whole: args.name.is_some() };
    if as_json {
        print_json(&listing.object(&book))?;
    } else {
        print(&listing.text(&book))?;
    }
    Ok(Exit::Completed)
}

/// Returns the unusable file that overrides a built-in command.
fn instead_of<'a>(book: &'a SlashCommands, command: &SlashCommand) -> Option<&'a FileProblem> {
    let is_built_in = command.definition.scope == DefinitionScope::BuiltIn;
    book.problem_of(command.name()).filter(|_| is_built_in)
}

/// Renders the output of `adjutant commands` as text or JSON.
struct CommandListing<'a> {
    settings: &'a Settings,
    roster: &'a AgentRoster,
    whole: bool,
}

/// The agent that runs a command for a language.
struct CommandRoute<'a> {
    language: &'a str,
    agent: &'a str,
    is_theirs: bool,
    is_known: bool,
}

impl CommandListing<'_> {
    fn role(&self, command: &SlashCommand) -> AgentRole {
        let policy = self.settings.policy.policy();
        AgentRole::of(command.definition.clone(), policy, None, &self.settings.models_allowed)
    }

    /// Returns the agents that a command is routed to, the default first.
    fn routes<'a>(&'a self, command: &'a SlashCommand) -> Vec<CommandRoute<'a>> {
        let own = self.settings.routes.0.get(command.name());
        let routing = &command.routing;
        let named = [&routing.default, &routing.target, &routing.agent].into_iter().flatten();
        let usual = named.take(1).map(|agent| ("default", agent));
        let languages = routing.languages.iter().filter(|_| routing.by_language != Some(false));
        let languages = languages.map(|(language, agent)| (language.as_str(), agent));
        let theirs = own.into_iter().flatten().map(|(to, agent)| (to.as_str(), agent));
        let goes = |(language, agent): (&'a str, &'a String), is_theirs| CommandRoute {
            language,
            agent,
            is_theirs,
            is_known: self.roster.find(agent).is_ok(),
        };
        match own {
            Some(_) => theirs.map(|way| goes(way, true)).collect(),
            None => usual.chain(languages).map(|way| goes(way, false)).collect(),
        }
    }

    fn object(&self, book: &SlashCommands) -> Value {
        let command = |command: &SlashCommand| {
            let (it, role) = (&command.definition, self.role(command));
            let ways = self.routes(command).into_iter().map(|goes| {
                json!({
                    "language": goes.language, "agent": goes.agent, "known": goes.is_known,
                    "by": if goes.is_theirs { "user config" } else { "command" },
                })
            });
            let mut object = json!({
                "name": it.name, "usage": command.usage(), "description": it.description,
                "file": it.file, "scope": it.scope.as_str(), "format": format_name(it.product),
                "arguments": command.form.as_str(), "language": command.language,
                "routing": ways.collect::<Vec<_>>(), "operation": command.operation(),
                "by_program": command.is_ours, "timeout_s": it.limits.timeout_s, "tools": role.rights.usable_tools(),
                "model": it.model, "bounded_by": it.ceiling, "ignored": role.ignored,
            });
            if let Some(problem) = instead_of(book, command) {
                object["unusable_because_of"] = problem.file.clone().into();
            }
            if self.whole {
                object["body"] = it.prompt.clone().into();
            }
            object
        };
        json!({
            "v": 1,
            "commands": book.commands.iter().map(command).collect::<Vec<_>>(),
            "shadowed": agents::shadowed(&book.shadowed),
            "problems": agents::problems(&book.problems),
        })
    }

    fn text(&self, book: &SlashCommands) -> String {
        let mut text: String = book.commands.iter().map(|it| self.paragraph(book, it)).collect();
        text += &agents::left_out(&book.shadowed, &book.problems);
        format!("{}\n", text.trim_end())
    }

    fn paragraph(&self, book: &SlashCommands, command: &SlashCommand) -> String {
        let (it, role) = (&command.definition, self.role(command));
        let place = match it.scope {
            DefinitionScope::BuiltIn => it.scope.as_str().to_owned(),
            DefinitionScope::Project | DefinitionScope::User => {
                format!("{} {}", it.scope.as_str(), sanitize::line(&it.file))
            }
        };
        let mut text = format!("{}  {place}\n", sanitize::line(&command.usage()));
        text += &agents::description_line(&it.description, self.whole);
        if let Some(problem) = instead_of(book, command) {
            let file = sanitize::line(&problem.file);
            text += &format!(
                "  cannot be used: {file} overrides this command and has an error, see below\n"
            );
        }
        let ways = self.routes(command).into_iter().map(|goes| {
            let who = sanitize::line(goes.agent);
            let missing = if goes.is_known { "" } else { " (not described)" };
            match goes.language {
                "default" => format!("{who}{missing}"),
                language => format!("{}: {who}{missing}", sanitize::line(language)),
            }
        });
        let ways = ways.collect::<Vec<_>>().join(" · ");
        if command.is_ours {
            text += "  agent: none, adjutant does it itself\n";
        } else if !ways.is_empty() {
            let theirs = self.settings.routes.0.contains_key(command.name());
            let by = if theirs { ", by your configuration" } else { "" };
            text += &format!("  agent: {ways}{by}\n");
        }
        if it.tools.allowed.is_some() {
            text += &format!("  tools: {}\n", role.rights.usable_tools());
        }
        let parts = [
            it.model.as_ref().map(|model| format!("model: {}", sanitize::line(model))),
            it.limits.timeout_s.map(|max| format!("{} s", grouped(max))),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        if !parts.is_empty() {
            text += &format!("  {}\n", parts.join(" · "));
        }
        if let Some(ceiling) = &it.ceiling {
            text += &format!("  bounded by your own {}\n", sanitize::line(ceiling));
        }
        for ignored in &role.ignored {
            text += &format!("  ignored: {}\n", sanitize::collapsed(ignored));
        }
        if self.whole {
            text += &format!("\nIt says:\n\n{}\n", sanitize::block(&it.prompt));
        }
        text + "\n"
    }
}
