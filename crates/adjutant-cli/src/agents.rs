//! Agents: `adjutant agents` lists them and what they may do, `--agent` selects one.

use std::path::Path;

use adjutant_core::numbers::grouped;
use adjutant_core::{AgentName, Preset};
use adjutant_engine::roster::{
    AgentDefinition, AgentRoster, DefinitionScope, FileProblem, OPENCODE_AGENTS, ShadowedFile,
    SourceProduct, find_agents,
};
use adjutant_engine::slash::builtin_agents;
use adjutant_engine::{AgentRole, Engine};
use adjutant_view::sanitize;
use serde_json::{Value, json};

use crate::args::{AgentsArgs, WorkFlags};
use crate::delegate::absolute;
use crate::exit::{Exit, Failure};
use crate::output::{print_json, print_list, say};
use crate::settings::{Settings, user_folders};
use crate::wiring::ChosenModel;

/// Characters after which a description is cut in a list.
const DESCRIPTION_CHARS: usize = 160;

/// Printed if there is no agent file.
const NO_AGENT_FILES: &str = "\
No agent is described by a file yet. Put one into .claude/agents,
.opencode/agent, .codex/agents, .gemini/agents or .adjutant/agents,
here or in your home directory, for example .claude/agents/reviewer.md:

  ---
  name: reviewer
  description: Judges a change and names what is wrong with it.
  tools: Read, Grep, Glob
  ---
  You review code. Cite files and lines.

Then: adjutant run --agent reviewer \"GOAL\"
`adjutant run` can also give it tasks by its name.
";

/// Reads the agent files of the project and of the user.
pub(crate) fn find(root: &Path) -> Result<AgentRoster, Failure> {
    find_agents(root, &user_folders())
        .map_err(|error| Failure::usage(format!("cannot open {}: {error}", root.display())))
}

/// Like [`find`], with the built-in agent `name` if a person named one.
///
/// Other built-in agents are left out, because a parent agent may delegate to every agent of the roster.
pub(crate) fn find_with(root: &Path, name: Option<&str>) -> Result<AgentRoster, Failure> {
    let mut roster = find(root)?;
    if let Some(name) = name {
        append_built_in(&mut roster, |it| it == name);
    }
    Ok(roster)
}

/// Appends the built-in agents whose name, or whose alias in opencode, is wanted.
pub(crate) fn append_built_in(roster: &mut AgentRoster, is_wanted: impl Fn(&str) -> bool) {
    let alias =
        |ours: &str| OPENCODE_AGENTS.iter().any(|(theirs, it)| *it == ours && is_wanted(theirs));
    let mut built_in = builtin_agents(&roster.agents);
    built_in.retain(|it| is_wanted(it.name.as_str()) || alias(it.name.as_str()));
    roster.agents.extend(built_in);
}

/// Returns the agent with this name.
pub(crate) fn find_agent<'a>(
    roster: &'a AgentRoster,
    name: &str,
) -> Result<&'a AgentDefinition, Failure> {
    roster.find(name).map_err(|error| {
        // The suggestion in the error may be any agent that `adjutant agents` lists.
        let mut all = roster.clone();
        append_built_in(&mut all, |_| true);
        Failure::usage(all.find(name).err().unwrap_or(error).to_string())
            .hint("`adjutant agents` lists the agents, and the files that cannot be used.")
    })
}

/// Chooses the model: `--model`, otherwise the one in the agent's definition, otherwise the default.
pub(crate) fn choose(
    settings: &Settings,
    flags: &WorkFlags,
    agent: Option<&AgentDefinition>,
    open: impl Fn(Option<&str>) -> Result<ChosenModel, Failure>,
) -> Result<ChosenModel, Failure> {
    let chosen = open(flags.model.as_deref().or(settings.model.as_deref()))?;
    let Some(agent) = agent.filter(|_| flags.model.is_none()) else { return Ok(chosen) };
    let running = &chosen.model.spec().name;
    let policy = settings.policy.policy();
    let role = AgentRole::of(agent.clone(), policy, Some(running), &settings.models_allowed);
    role.model.map_or(Ok(chosen), |model| open(Some(&model)))
}

/// Prints which agent works, whether its model setting is ignored, and that files are unusable.
pub(crate) fn introduce(engine: &Engine, agent: &AgentName, roster: &AgentRoster) {
    if let Some(role) = engine.role(agent) {
        say(&format!("adjutant: working as {agent} ({})", role.definition.file));
        let about_model = role.ignored.iter().filter(|ignored| ignored.starts_with("model "));
        about_model.for_each(|ignored| say(&format!("adjutant: {ignored}")));
    }
    notices(&roster.problems, "agent");
}

/// Prints how many files of a kind are unusable.
pub(crate) fn notices(problems: &[FileProblem], kind: &str) {
    let files = match problems.len() {
        0 => return,
        1 => format!("1 {kind} file"),
        count => format!("{count} {kind} files"),
    };
    say(&format!("adjutant: {files} cannot be used; `adjutant {kind}s` says why"));
}

/// Runs `adjutant agents`: lists the agents, or shows one.
pub(crate) fn run_agents(args: &AgentsArgs, as_json: bool) -> Result<Exit, Failure> {
    let root = absolute(&args.root)?;
    let settings = Settings::load(&args.policy, &root)?;
    // Built-in agents work for slash commands, so their rights are shown under that preset.
    let there = Settings::load_as(&args.policy, &root, Some(Preset::Command))?;
    let mut roster = find(&root)?;
    add_built_in(&mut roster);
    if let Some(name) = args.name.as_deref() {
        let found = find_agent(&roster, name)?.clone();
        roster.shadowed.retain(|shadowed| shadowed.by == found.file);
        roster.problems.clear();
        roster.agents = vec![found];
    }
    let role = |agent: &AgentDefinition| {
        let settings = if agent.scope == DefinitionScope::BuiltIn { &there } else { &settings };
        let mut role =
            AgentRole::of(agent.clone(), settings.policy.policy(), None, &settings.models_allowed);
        role.ignored.extend(settings.efforts.ignored(agent));
        role
    };
    let roles: Vec<AgentRole> = roster.agents.iter().map(role).collect();
    let whole = args.name.is_some();
    if as_json {
        print_json(&as_object(&roster, &roles, whole))?;
    } else {
        print_list(&as_text(&roster, &roles, whole))?;
    }
    Ok(Exit::Completed)
}

/// Appends the built-in agents. A built-in agent is shadowed by a file with its name.
fn add_built_in(roster: &mut AgentRoster) {
    let taken = roster.agents.clone();
    roster.agents.extend(builtin_agents(&taken));
    for own in builtin_agents(&[]) {
        let name = own.name.as_str();
        if let Some(file) = taken.iter().find(|it| it.name.as_str().eq_ignore_ascii_case(name)) {
            roster.shadowed.push(ShadowedFile {
                name: name.to_owned(),
                file: own.file,
                scope: own.scope,
                by: file.file.clone(),
            });
        }
    }
}

fn as_object(roster: &AgentRoster, roles: &[AgentRole], whole: bool) -> Value {
    let agent = |role: &AgentRole| {
        let agent = &role.definition;
        let mut object = json!({
            "name": agent.name, "description": agent.description, "file": agent.file,
            "scope": agent.scope.as_str(), "format": format_name(agent.product),
            "tools": role.rights.usable_tools(), "network": role.rights.network,
            "model": agent.model, "effort": agent.effort, "max_turns": agent.limits.max_turns,
            "timeout_s": agent.limits.timeout_s,
            "max_output_tokens": agent.limits.max_output_tokens,
            "operation": agent.limits.operation, "takes_tasks": agent.takes_tasks,
            "bounded_by": agent.ceiling, "ignored": role.ignored,
        });
        if whole {
            object["prompt"] = agent.prompt.clone().into();
        }
        object
    };
    json!({
        "v": 1,
        "agents": roles.iter().map(agent).collect::<Vec<_>>(),
        "shadowed": shadowed(&roster.shadowed),
        "problems": problems(&roster.problems),
    })
}

/// Returns the shadowed files as JSON.
pub(crate) fn shadowed(shadowed: &[ShadowedFile]) -> Vec<Value> {
    let object = |it: &ShadowedFile| json!({ "name": it.name, "file": it.file, "scope": it.scope.as_str(), "by": it.by });
    shadowed.iter().map(object).collect()
}

/// Returns the unusable files as JSON.
pub(crate) fn problems(problems: &[FileProblem]) -> Vec<Value> {
    let object = |it: &FileProblem| json!({ "file": it.file, "scope": it.scope.as_str(), "reason": it.reason });
    problems.iter().map(object).collect()
}

pub(crate) const fn format_name(product: SourceProduct) -> &'static str {
    match product {
        SourceProduct::Claude => "claude",
        SourceProduct::Opencode => "opencode",
        SourceProduct::Codex => "codex",
        SourceProduct::Gemini => "gemini",
        SourceProduct::Adjutant => "adjutant",
    }
}

fn as_text(roster: &AgentRoster, roles: &[AgentRole], whole: bool) -> String {
    let mut text: String = roles.iter().map(|role| paragraph(role, whole)).collect();
    text += &left_out(&roster.shadowed, &roster.problems);
    if !roles.iter().any(|role| role.definition.scope != DefinitionScope::BuiltIn) && !whole {
        text += NO_AGENT_FILES;
    }
    format!("{}\n", text.trim_end())
}

/// Lists shadowed and unusable files, with the reasons.
pub(crate) fn left_out(shadowed: &[ShadowedFile], problems: &[FileProblem]) -> String {
    let mut text = String::new();
    if !shadowed.is_empty() {
        text += "Not used, because another file has the name:\n";
        for it in shadowed {
            let (file, by) = (sanitize::line(&it.file), sanitize::line(&it.by));
            let which = match it.scope {
                DefinitionScope::BuiltIn => format!(" {}", sanitize::line(&it.name)),
                DefinitionScope::Project | DefinitionScope::User => String::new(),
            };
            text += &format!("  {file}{which} (by {by})\n");
        }
        text.push('\n');
    }
    if !problems.is_empty() {
        text += "Cannot be used:\n";
        for it in problems {
            text +=
                &format!("  {}: {}\n", sanitize::line(&it.file), sanitize::collapsed(&it.reason));
        }
        text.push('\n');
    }
    text
}

/// Returns the line of a description in a list, cut unless `whole`.
pub(crate) fn description_line(description: &str, whole: bool) -> String {
    let description = sanitize::collapsed(description);
    if description.is_empty() {
        return String::new();
    }
    let is_cut = !whole && description.chars().count() > DESCRIPTION_CHARS;
    let most = if is_cut { DESCRIPTION_CHARS - 1 } else { usize::MAX };
    let shown: String = description.chars().take(most).collect();
    format!("  {shown}{}\n", if is_cut { "…" } else { "" })
}

fn paragraph(role: &AgentRole, whole: bool) -> String {
    let agent = &role.definition;
    let place = match agent.scope {
        DefinitionScope::BuiltIn => {
            let is_same = |it: &&(&str, &str)| it.1 == agent.name.as_str();
            let theirs = OPENCODE_AGENTS.iter().find(is_same);
            let also = theirs.map(|(theirs, _)| format!(", also `{theirs}`, as in opencode"));
            format!("{}, for slash commands{}", agent.scope.as_str(), also.unwrap_or_default())
        }
        DefinitionScope::Project | DefinitionScope::User => {
            format!("{} {}", agent.scope.as_str(), sanitize::line(&agent.file))
        }
    };
    let mut text = format!("{}  {place}\n", sanitize::line(agent.name.as_str()));
    text += &description_line(&agent.description, whole);
    text += &format!("  tools: {}\n", role.rights.usable_tools());
    let limits = &agent.limits;
    let parts = [
        agent.model.as_ref().map(|model| format!("model: {}", sanitize::line(model))),
        agent.effort.map(|effort| format!("effort: {}", effort.as_str())),
        limits.max_turns.map(|max| format!("{} turns", grouped(max.into()))),
        limits.timeout_s.map(|max| format!("{} s", grouped(max))),
        limits.max_output_tokens.map(|max| format!("{} tokens an answer", grouped(max))),
        limits.offline.then(|| "no network".to_owned()),
        (!agent.takes_tasks).then(|| "leads only, takes no tasks".to_owned()),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if !parts.is_empty() {
        text += &format!("  {}\n", parts.join(" · "));
    }
    if let Some(ceiling) = &agent.ceiling {
        text += &format!("  bounded by your own {}\n", sanitize::line(ceiling));
    }
    for ignored in &role.ignored {
        text += &format!("  ignored: {}\n", sanitize::collapsed(ignored));
    }
    if whole {
        let whose = match agent.scope {
            DefinitionScope::Project => "the project",
            DefinitionScope::User => "you",
            DefinitionScope::BuiltIn => "the program",
        };
        text += &format!("\nIt is told by {whose}:\n\n{}\n", sanitize::block(&agent.prompt));
    }
    text + "\n"
}
