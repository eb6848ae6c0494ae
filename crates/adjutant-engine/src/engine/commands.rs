//! The first commands of a run: define the agents with their prompts and tools, then begin the work.
//!
//! Start at [`Engine::delegation_commands`] for a run without a root agent, at [`Engine::goal_commands`] for one
//! with a root agent. Nothing is decided here; the core decides each command.

use adjutant_core::policy::ContractKind;
use adjutant_core::schema::{AgentCard, CallLimits, TASK, delegate_spec, return_spec, task_spec};
use adjutant_core::write::{EDIT, WRITE};
use adjutant_core::{
    AgentName, Brief, Command, Event, ModelSpec, Rights, RunId, Timestamp, ToolSet, ToolSpec, Tree,
    WorkerPlace, WorkerTerms, WriteScope,
};

use super::{Engine, EngineError, Goal};
use crate::briefs::brief_builder::BriefBuilder;
use crate::briefs::instructions::shared_instructions;
use crate::briefs::prompt::{CommandConfinement, system_prompt, worker_prompt};
use crate::briefs::role::AgentRole;
use crate::briefs::working_method;

/// The beginning of a run: its first decisions, and the commands that follow.
pub(crate) struct RunOpening {
    /// The events of each command without which there is no run.
    pub(crate) decided: Vec<Vec<Event>>,
    /// The commands after those, not decided yet.
    pub(crate) commands: Vec<Command>,
}

impl RunOpening {
    /// Decides the commands up to the last `Begin` or `Delegate`. Fails if one of them is refused.
    pub(super) fn decide(mut commands: Vec<Command>) -> Result<Self, EngineError> {
        let is_vital =
            |it: &Command| matches!(it, Command::Begin { .. } | Command::Delegate { .. });
        let rest = commands.iter().rposition(is_vital).map_or(0, |last| last + 1);
        let rest = commands.split_off(rest);
        let (mut tree, mut decided) = (Tree::default(), Vec::new());
        for command in commands {
            let events = tree.decide(Timestamp::ZERO, command)?;
            for event in &events {
                tree.evolve(Timestamp::ZERO, event)?;
            }
            decided.push(events);
        }
        Ok(Self { decided, commands: rest })
    }
}

/// Whether an agent is the root of its run or a subagent, which decides the tools that it is offered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AgentPosition {
    /// The root agent.
    Root,
    /// A subagent.
    BelowRoot,
}

impl Engine {
    /// Returns the first commands of a run without a root agent, which delegates `briefs`.
    pub(super) fn delegation_commands(
        &self,
        run: RunId,
        briefs: &[Brief],
        concurrency: Option<u64>,
    ) -> Result<Vec<Command>, EngineError> {
        let begin = self.begin(run, AgentName::new("delegate"), String::new(), None);
        let root = run.root_session();
        let tasks = self.ids.tasks(briefs.to_vec(), |session| session == root)?;
        let delegate = Command::Delegate { parent: root, tasks, concurrency, origin: None };
        let child = self.define_child(None);
        let is_shown = matches!(&child, Command::Define { tools, .. } if tools.iter().any(|it| it.name == TASK));
        let mut commands = vec![begin, child];
        if is_shown {
            // A subagent can call these agents by name.
            let others =
                self.brief_builder.roles.values().filter(|role| self.is_callable(role, None));
            commands.extend(others.map(|role| self.define_role(role, None)));
        }
        commands.push(delegate);
        Ok(commands)
    }

    /// Returns the first commands of a run whose root agent works on `goal`.
    pub(super) fn goal_commands(&self, run: RunId, goal: Goal) -> Vec<Command> {
        let Goal { agent, mut system, text } = goal;
        let model = self.brief_builder.models.default_spec().clone();
        let model = Some(self.brief_builder.with_effort(&agent, model));
        let role = self.brief_builder.roles.get(&agent);
        let rights = role.map_or_else(|| Rights::of(&self.policy), |role| role.rights.clone());
        if let Some(role) = role {
            system = format!("{system}\n\n{}", role.role_prompt(&self.brief_builder.masker));
        }
        let tools = self.tools(AgentPosition::Root, &rights, Some(&agent));
        let BriefBuilder { toolbox, masker, .. } = &self.brief_builder;
        let mut text = match &self.environment {
            // The environment has it.
            Some(_) => text,
            None => match shared_instructions(toolbox.root(), masker) {
                Some(quoted) => format!("{quoted}\n{text}"),
                None => text,
            },
        };
        if self.root_work.is_done_by_root() {
            let own = match self.worker_for(role) {
                Some(_) => worker_prompt(self.system.as_deref(), &self.policy),
                None => self.system_of(&tools, role.is_some()),
            };
            system = format!("{own}\n\n{system}").trim_end().to_owned();
        }
        if let Some(how) = self.root_work.instructions(&self.policy, self.base_depth) {
            text += &format!("\n\n{how}");
        }
        let max_turns = role.and_then(|role| role.definition.limits.max_turns);
        let worker = self.worker_for(role.filter(|_| self.root_work.is_done_by_root()));
        let worker = worker.filter(|_| self.root_work.is_done_by_root());
        let tools = if worker.is_some() { Vec::new() } else { tools };
        let define =
            Command::Define { agent: agent.clone(), system, tools, rights, max_turns, worker };
        let begin = self.begin(run, agent.clone(), text, model);
        let mut commands = vec![begin, define, self.define_child(Some(&agent))];
        let others =
            self.brief_builder.roles.values().filter(|role| self.is_callable(role, Some(&agent)));
        commands.extend(others.map(|role| self.define_role(role, Some(&agent))));
        commands.extend(self.root_work.opening(self.asks_first));
        commands.push(Command::TakeTurn { session: run.root_session() });
        commands
    }

    pub(super) fn begin(
        &self,
        run: RunId,
        agent: AgentName,
        goal: String,
        model: Option<ModelSpec>,
    ) -> Command {
        Command::Begin {
            run,
            agent,
            goal,
            workdir: self.workdir.display().to_string(),
            policy: Box::new(self.policy.clone()),
            version: self.version.clone(),
            model,
            terms: self.terms().map(Box::new),
            base_depth: self.base_depth,
            environment: self.environment().map(Box::new),
        }
    }

    /// Defines the agent for tasks that name no agent.
    fn define_child(&self, lead: Option<&AgentName>) -> Command {
        if let Some(role) = self.brief_builder.roles.get(&self.brief_builder.agent) {
            return self.define_role(role, lead);
        }
        let rights = Rights::of(&self.policy);
        let worker = self.worker_for(None);
        let (system, tools) = self.preamble_of(worker.as_deref(), &rights, lead, false);
        Command::Define {
            agent: self.brief_builder.agent.clone(),
            system,
            tools,
            rights,
            max_turns: None,
            worker,
        }
    }

    fn define_role(&self, role: &AgentRole, lead: Option<&AgentName>) -> Command {
        let worker = self.worker_for(Some(role));
        let (system, tools) = self.preamble_of(worker.as_deref(), &role.rights, lead, true);
        let system = format!("{system}\n\n{}", role.role_prompt(&self.brief_builder.masker));
        let agent = role.definition.name.clone();
        let max_turns = role.definition.limits.max_turns;
        let rights = role.rights.clone();
        Command::Define { agent, system, tools, rights, max_turns, worker }
    }

    /// Returns the system prompt and the tools of an agent below the root. A worker brings its own tools.
    fn preamble_of(
        &self,
        worker: Option<&WorkerTerms>,
        rights: &Rights,
        lead: Option<&AgentName>,
        has_file: bool,
    ) -> (String, Vec<ToolSpec>) {
        if worker.is_some() {
            return (worker_prompt(self.system.as_deref(), &self.policy), Vec::new());
        }
        let tools = self.tools(AgentPosition::BelowRoot, rights, lead);
        (self.system_of(&tools, has_file), tools)
    }

    /// Returns the worker that does the work of an agent: the one of its file, else the one of the run.
    fn worker_for(&self, role: Option<&AgentRole>) -> Option<Box<WorkerTerms>> {
        let of_role = role.and_then(|role| role.definition.worker.clone());
        let name = of_role.or_else(|| self.worker.clone())?;
        let model = self.brief_builder.models.default_spec();
        let none = || Err("external workers are not available in this program".to_owned());
        let found = self.workers.as_ref().map_or_else(none, |host| host.check(&name, model));
        let has_sandbox = !self.terms().is_some_and(|terms| terms.sandbox_off);
        let (place, problem) = match found {
            Ok(WorkerPlace::Workspace) if !has_sandbox => {
                let problem =
                    "it runs only in the sandbox, which is switched off; leave out --sandbox=off";
                (WorkerPlace::Workspace, Some(problem.to_owned()))
            }
            Ok(place) => (place, None),
            Err(problem) => (WorkerPlace::Workspace, Some(problem)),
        };
        let further_models = self.further_models.clone();
        Some(Box::new(WorkerTerms { name, place, further_models, problem }))
    }

    /// Returns the system prompt of an agent that works. One that a file describes is not told how to work, and
    /// neither is one whose base prompt a person replaced.
    fn system_of(&self, tools: &[ToolSpec], has_file: bool) -> String {
        let offered = ToolSet::new(tools.iter().map(|tool| tool.name.as_str()));
        let terms = self.terms();
        let hold = match &terms {
            Some(terms) if terms.sandbox_off => CommandConfinement::Unconfined,
            Some(_) | None => CommandConfinement::Sandbox,
        };
        // The environment says what commands see.
        let tools = terms.as_ref().and_then(|terms| terms.commands_see.as_deref());
        let tools = tools.filter(|_| self.environment.is_none());
        let prompt = system_prompt(self.system.as_deref(), &self.policy, &offered, hold, tools);
        if self.environment.is_none() || has_file || self.system.is_some() {
            return prompt;
        }
        format!("{prompt}\n\n{}", working_method::of_subagent(&offered))
    }

    /// Returns whether other agents can call this one by name.
    fn is_callable(&self, role: &AgentRole, lead: Option<&AgentName>) -> bool {
        let name = &role.definition.name;
        role.definition.takes_tasks && Some(name) != lead && *name != self.brief_builder.agent
    }

    /// Returns the tools of an agent with these rights at `position`.
    fn tools(
        &self,
        position: AgentPosition,
        rights: &Rights,
        lead: Option<&AgentName>,
    ) -> Vec<ToolSpec> {
        let usable = rights.usable_tools();
        let limits = CallLimits::of(&self.policy);
        let depth = match position {
            AgentPosition::Root => self.base_depth,
            AgentPosition::BelowRoot => self.base_depth + 1,
        };
        let delegates = depth < self.policy.max_depth;
        let delegate = delegates.then(|| delegate_spec(&limits));
        let callable =
            self.brief_builder.roles.values().filter(|role| self.is_callable(role, lead));
        let cards: Vec<AgentCard> = callable
            .filter(|_| delegates)
            .map(|role| role.card(&self.brief_builder.masker))
            .collect();
        let task = (!cards.is_empty()).then(|| task_spec(&cards, &limits));
        let works = position == AgentPosition::BelowRoot || self.root_work.is_done_by_root();
        let returns = works && self.policy.contract == ContractKind::Standard;
        let known = self.brief_builder.toolbox.specs().into_iter().chain(delegate).chain(task);
        known
            // Notes are passed to the parent, which the root agent does not have.
            .filter(|spec| works || spec.name != "Note")
            .filter(|spec| usable.contains(&spec.name))
            .map(|mut spec| {
                if let (WriteScope::Below(folder), EDIT | WRITE) =
                    (&rights.writes, spec.name.as_str())
                {
                    spec.description += &format!(" You may write only below `{folder}`.");
                }
                spec
            })
            .chain(returns.then(return_spec))
            .collect()
    }
}
