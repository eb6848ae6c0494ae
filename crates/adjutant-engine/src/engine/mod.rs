//! Setting up a run: from tasks to briefs, from briefs to a preview or to the real thing.
//!
//! Start at [`Engine::new`], then [`Engine::delegate`] or [`Engine::run`]. `setup` has what a front end
//! brings, `commands` what a run begins with, `root_work` what its first agent is given, `error` why there is none.

mod commands;
mod error;
pub(crate) mod opening;
pub(crate) mod resume;
mod root_work;
mod setup;
pub(crate) mod terms;

use std::any::Any;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use adjutant_core::policy::{Operation, WorkspaceKind};
use adjutant_core::schema::TaskSpec;
use adjutant_core::space::SpaceTerms;
use adjutant_core::{
    AgentName, Brief, Command, Event, Outcome, Policy, RunId, Timestamp, ToolSpec, Tree, Usd,
};
use adjutant_store::{HomeError, RunLock};
use adjutant_tools::{Caps, Masker, ToolName, Toolbox};
use adjutant_workspace::space::Workspaces;
use adjutant_workspace::{Root, with_link_targets};

use crate::briefs::desk::{Asker, Desk, Models};
use crate::briefs::prompt::agent_name;
use crate::briefs::role::Role;
use crate::control::Door;
use crate::engine::opening::{ID_ATTEMPTS, Note, Opened};
use crate::ids::{Chance, IdSource, system};
use crate::roster::Definition;
use crate::runner::clock::{Clock, Wall, wall_now};
use crate::runner::effects::writing::settle_folder;
use crate::runner::{Runner, Shop};
use crate::slash::Handbook;
use crate::spaces::{SpaceSetup, Spaces};

use root_work::RootWork;

pub(crate) use commands::Opening;
pub use error::EngineError;
pub use setup::{Goal, Setup, Staff};

/// What would happen, computed by the core and not done.
pub struct Preview {
    /// The grants and refusals, and the question that would be asked.
    pub events: Vec<Event>,
}

/// A run that was carried to its end.
#[derive(Debug)]
pub struct Finished {
    /// The run.
    pub run: RunId,
    /// How it ended.
    pub outcome: Outcome,
    /// Its folder, when it has one.
    pub folder: Option<PathBuf>,
}

/// Something that is held while a run is at work; dropping it gives it back.
pub(crate) type RunGuard = Box<dyn Any + Send>;

/// Everything needed to run, before anything is run.
pub struct Engine {
    pub(crate) policy: Policy,
    pub(crate) desk: Desk,
    workdir: PathBuf,
    system: Option<String>,
    /// What the agent at the root is given beside its goal.
    root_work: RootWork,
    /// Whether a person is asked before the agent at the root begins.
    asks_first: bool,
    /// What a person says about workspaces.
    spaces: Option<SpaceSetup>,
    /// Who is told where the run is.
    note: Option<Note>,
    /// The depth of the root; see [`Engine::at_depth`].
    base_depth: u64,
    /// What is held while anything of the run is at work.
    guard: Option<RunGuard>,
    /// The id that was chosen for the run before this process started.
    run: Option<RunId>,
    pub(crate) version: String,
    pub(crate) ids: IdSource,
}

impl Engine {
    /// Opens the working tree and keeps the parts.
    pub fn new(setup: Setup) -> Result<Self, EngineError> {
        let path = &setup.workdir;
        let mut root = Root::open(path)
            .map_err(|source| EngineError::Workdir { path: path.clone(), source })?;
        root.guard_git_dirs();
        let mut policy = setup.policy;
        settle_folder(&mut policy, &root);
        let masker = Masker::new(setup.secrets);
        let caps = Caps { run_seconds: policy.run_max_s, ..Caps::default() };
        let mut toolbox = Toolbox::new(root, caps).with_masker(masker.clone());
        if let Some(web) = setup.web {
            toolbox = toolbox.with_web(web);
        }
        for tool in setup.tools {
            let name = tool.spec().name;
            let is_known = |spec: ToolSpec| spec.name == name;
            if ToolName::parse(&name).is_some() || toolbox.specs().into_iter().any(is_known) {
                return Err(EngineError::ToolName(name));
            }
            toolbox = toolbox.with_tool(tool);
        }
        let desk = Desk {
            toolbox: Arc::new(toolbox),
            masker,
            models: Models::new(setup.model, setup.opener),
            agent: agent_name(policy.preset),
            roles: Arc::default(),
            commands: Arc::default(),
            operation: Operation::default(),
            workdir: setup.workdir.as_path().into(),
            timeout_s: None,
            separate_work: Arc::default(),
            command_context: None,
        };
        Ok(Self {
            policy,
            desk,
            workdir: setup.workdir,
            system: setup.system,
            root_work: RootWork::default(),
            asks_first: false,
            spaces: None,
            note: None,
            base_depth: 0,
            guard: None,
            run: None,
            version: setup.version,
            ids: IdSource { wall: wall_now, chance: system },
        })
    }

    /// Replaces the wall clock and the source of ids; for tests.
    #[must_use]
    pub fn with_sources(self, wall: Wall, chance: Chance) -> Self {
        Self { ids: IdSource { wall, chance }, ..self }
    }

    /// Makes agents known by their definitions. `allowed` are the models that a project's file may
    /// choose, beside the run's own.
    #[must_use]
    pub fn with_agents(
        mut self,
        agents: impl IntoIterator<Item = Definition>,
        allowed: &[String],
    ) -> Self {
        let running = self.desk.models.default_spec().name.clone();
        let role = |agent: Definition| {
            let role = Role::of(agent, &self.policy, Some(&running), allowed);
            (role.definition.name.clone(), role)
        };
        self.desk.roles = Arc::new(agents.into_iter().map(role).collect());
        self
    }

    /// Gives every task that names nobody to the agent of that name.
    #[must_use]
    pub fn with_default_agent(mut self, agent: AgentName) -> Self {
        self.desk.agent = agent;
        self
    }

    /// Returns who does what no agent is named for.
    #[must_use]
    pub const fn default_agent(&self) -> &AgentName {
        &self.desk.agent
    }

    /// Has somebody note which run this is and where, before anything of it is recorded; where that fails
    /// there is no run.
    #[must_use]
    pub fn noted_by(mut self, note: impl FnOnce(RunId, &Path) -> io::Result<()> + 'static) -> Self {
        self.note = Some(Box::new(note));
        self
    }

    /// Gives the run an id that was chosen before, such as one that the registry knows already. Without it the
    /// engine draws one.
    #[must_use]
    pub const fn with_run_id(mut self, run: RunId) -> Self {
        self.run = Some(run);
        self
    }

    /// Lets calls start unasked whose worst case is at most `amount`, in place of what the policy says.
    #[must_use]
    pub const fn starting_unasked_below(mut self, amount: Usd) -> Self {
        self.policy.approve_below_usd = Some(amount);
        self
    }

    /// Starts the run at that depth: limits count from there. For a run that an agent of another run
    /// started, which has the depth of that agent.
    #[must_use]
    pub fn at_depth(mut self, base_depth: u64) -> Self {
        self.base_depth = base_depth;
        self
    }

    /// Holds `guard`, such as a place among live runs, until the work of the run is over. It is dropped before the end
    /// can be read in the journal: a reader that knows of the end finds it given back.
    #[must_use]
    pub fn holding(mut self, guard: impl Send + 'static) -> Self {
        self.guard = Some(Box::new(guard));
        self
    }

    /// Says where workspaces are kept, for agents that write in one of their own.
    #[must_use]
    pub fn with_spaces(mut self, setup: SpaceSetup) -> Self {
        self = self.closing(&setup.state);
        if let Some(config) = &setup.config {
            for path in with_link_targets(config) {
                self = self.closing(&path);
            }
        }
        if let Some(toolbox) = Arc::get_mut(&mut self.desk.toolbox) {
            setup.read_only.iter().for_each(|folder| toolbox.make_read_only(folder));
        }
        self.spaces = Some(setup);
        self
    }

    /// Keeps a directory or a file out of reach of agents' files, wherever it lies, such as the state directory.
    #[must_use]
    pub fn closing(mut self, folder: &Path) -> Self {
        if let Some(toolbox) = Arc::get_mut(&mut self.desk.toolbox) {
            toolbox.close(folder);
        }
        self
    }

    /// Opens the workspaces where the policy gives agents their own; before anything else is done.
    pub(crate) fn open_spaces(&self) -> Result<Option<(Workspaces, SpaceSetup)>, EngineError> {
        if !self.gives_spaces() {
            return Ok(None);
        }
        let missing = || EngineError::Spaces("nobody said where to keep them".to_owned());
        let mut setup = self.spaces.clone().ok_or_else(missing)?;
        setup.bounds.disk_bytes = self.policy.workspace_bytes;
        setup.bounds.entries = self.policy.workspace_entries;
        let all = setup.open(&self.workdir, self.policy.network).map_err(EngineError::Spaces)?;
        Ok(Some((all, setup)))
    }

    fn gives_spaces(&self) -> bool {
        self.policy.workspace == WorkspaceKind::Own && !self.policy.in_place
    }

    /// Returns what a person said about workspaces, where agents have their own.
    pub(crate) fn terms(&self) -> Option<SpaceTerms> {
        self.spaces.as_ref().filter(|_| self.gives_spaces()).map(SpaceSetup::terms)
    }

    /// Makes slash commands known to agents: a task that begins with one is given what it says.
    #[must_use]
    pub fn with_commands(mut self, commands: Handbook) -> Self {
        self.desk.commands = Arc::new(commands);
        self
    }

    /// Returns an agent that was made known by its definition.
    #[must_use]
    pub fn role(&self, agent: &AgentName) -> Option<&Role> {
        self.desk.roles.get(agent)
    }

    /// Turns tasks into briefs, reading their context files.
    #[must_use]
    pub fn briefs(&self, tasks: &[TaskSpec]) -> Vec<Brief> {
        let model = self.desk.models.default_spec();
        let root = self.desk.toolbox.root();
        tasks.iter().map(|task| self.desk.brief(task, model, Asker::Person, root)).collect()
    }

    /// Returns what the core would answer, without doing any of it.
    pub fn preview(
        &self,
        briefs: Vec<Brief>,
        concurrency: Option<u64>,
    ) -> Result<Preview, EngineError> {
        let commands = self.delegation(self.ids.run()?, &briefs, concurrency)?;
        let events = Opening::decide(commands)?.decided.pop().unwrap_or_default();
        Ok(Preview { events })
    }

    /// Returns what the core would answer to a goal before its agent takes a turn, without doing any of it.
    pub fn preview_run(&self, goal: Goal) -> Result<Preview, EngineError> {
        let mut tree = Tree::default();
        let mut events = Vec::new();
        for command in self.pursuit(self.ids.run()?, goal) {
            if matches!(command, Command::TakeTurn { .. }) {
                break;
            }
            for event in tree.decide(Timestamp::ZERO, command)? {
                tree.evolve(Timestamp::ZERO, &event)?;
                events.push(event);
            }
        }
        Ok(Preview { events })
    }

    /// Delegates `briefs` and waits for their ends.
    ///
    /// A call that is refused as a whole leaves no trace; everything else is recorded.
    pub async fn delegate(
        self,
        briefs: Vec<Brief>,
        concurrency: Option<u64>,
        staff: Staff,
    ) -> Result<Finished, EngineError> {
        self.drive(staff, |engine, run| engine.delegation(run, &briefs, concurrency)).await
    }

    /// Runs a parent agent that works towards `goal` and may delegate.
    pub async fn run(self, mut goal: Goal, staff: Staff) -> Result<Finished, EngineError> {
        // A command that works itself is given its files with the goal.
        let works_itself = self.root_work.assignment().filter(|it| it.agent.is_none());
        let context = works_itself.map(|it| self.desk.quote_context(&it.context)).transpose()?;
        goal.text.extend(context);
        self.drive(staff, |engine, run| Ok(engine.pursuit(run, goal.clone()))).await
    }

    async fn drive(
        mut self,
        staff: Staff,
        commands: impl Fn(&Self, RunId) -> Result<Vec<Command>, EngineError>,
    ) -> Result<Finished, EngineError> {
        let Staff { storage, approver, reporters, narrator, control } = staff;
        let mut attempts = 1;
        let (opened, opening, spaces) = loop {
            let run = self.run.map_or_else(|| self.ids.run(), Ok)?;
            // Refused before there is a workspace or a folder for it.
            let opening = Opening::decide(commands(&self, run)?)?;
            let spaces = self.open_spaces()?;
            match storage.open(run) {
                Err(EngineError::Home(HomeError::RunExists(_)))
                    if self.run.is_none() && attempts < ID_ATTEMPTS =>
                {
                    attempts += 1;
                }
                opened => break (opened?, opening, spaces),
            }
        };
        let opened = opened.noted(self.note.take())?;
        let Opened { id, folder, journal, durable, lock } = opened;
        let wall = self.ids.wall;
        let spaces = spaces.map(|(all, setup)| Arc::new(Spaces::new(all, setup, id, wall)));
        let (desk, ids) = (self.desk, self.ids);
        let folder_of = folder.clone();
        let shop = Shop {
            desk,
            approver,
            narrator,
            ids,
            folder: folder_of,
            spaces: spaces.clone(),
            has_limits_in_environment: self.root_work.has_limits_in_environment(),
        };
        let clock = Clock::start(self.ids.wall, Timestamp::ZERO);
        let door = Door::new(lock.as_ref().map(RunLock::control_socket));
        let mut runner = Runner::new(clock, journal, durable, control, door, shop, reporters);
        runner.guard = self.guard.take();
        let outcome = runner.run(opening).await?;
        if let Some(spaces) = spaces {
            // Nothing follows from it, so neither does an end it may come to.
            let _ = tokio::task::spawn_blocking(move || spaces.let_go(outcome)).await;
        }
        drop(lock);
        Ok(Finished { run: id, outcome, folder: folder.map(|folder| folder.path().to_owned()) })
    }
}
