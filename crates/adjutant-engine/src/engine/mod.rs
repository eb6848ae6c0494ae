//! Setting up a run: turns tasks into briefs, and briefs into a preview or a run.
//!
//! Start at [`Engine::new`], then [`Engine::delegate`] or [`Engine::run`]. `setup` has what a front end
//! provides, `commands` the first commands of a run, `root_work` the work of the root agent, `storage` the journal.

mod commands;
mod error;
pub(crate) mod resume;
mod root_work;
mod setup;
pub(crate) mod storage;
pub(crate) mod terms;

use std::any::Any;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, OnceLock};

use adjutant_core::policy::{Operation, WorkspaceSharing};
use adjutant_core::schema::TaskSpec;
use adjutant_core::workspace::WorkspaceTerms;
use adjutant_core::{
    AgentName, Brief, Command, Event, ModelSpec, Outcome, Policy, ProjectGuidance, RunId,
    Timestamp, ToolSpec, Tree, Usd,
};
use adjutant_store::{JournalRecord, MemoryDisk, RunDir, RunLock, StateDirError};
use adjutant_tools::{Masker, ToolCaps, ToolName, Toolbox};
use adjutant_workspace::space::Workspaces;
use adjutant_workspace::{Root, with_link_targets};
use tokio::sync::mpsc;

use crate::briefs::brief_builder::{BriefBuilder, ModelPool, TaskRequester};
use crate::briefs::effort::AgentEfforts;
use crate::briefs::environment::collect;
use crate::briefs::prompt::agent_name;
use crate::briefs::role::AgentRole;
use crate::control::ControlListener;
use crate::engine::storage::{CreatedCallback, ID_ATTEMPTS, OpenRun, Storage};
use crate::ids::{IdSource, RandomSource, os_random};
use crate::portable::PortableWork;
use crate::remote::{
    FollowerRole, RecordedDecision, RemoteOpening, RemoteRun, RemoteRuntime, RunLink, count_decided,
};
use crate::roster::AgentDefinition;
use crate::runner::clock::{RunClock, WallClock, wall_now};
use crate::runner::effects::ApproverAnswer;
use crate::runner::effects::writing::choose_write_folder;
use crate::runner::{EffectContext, Narrator, Reporter, Runner};
use crate::slash::SlashCommands;
use crate::workers::WorkerHost;
use crate::workspaces::{RunWorkspaces, WorkspaceSetup};

use root_work::RootWork;

pub(crate) use commands::RunOpening;
pub use error::EngineError;
pub use setup::{EngineSetup, Goal, RunHost};

/// The core's decisions about a run that is not started.
pub struct RunPreview {
    /// The grants and refusals, and the question a person would be asked.
    pub events: Vec<Event>,
    /// The tools that commands of agents see, if agents have workspaces of their own.
    pub commands_see: Option<String>,
}

/// The result of a run that has ended.
#[derive(Debug)]
pub struct FinishedRun {
    /// The run.
    pub run: RunId,
    /// How it ended.
    pub outcome: Outcome,
    /// Its directory; absent for a run in memory.
    pub folder: Option<PathBuf>,
}

/// A guard that is held while a run is at work and releases something when dropped.
pub(crate) type RunGuard = Box<dyn Any + Send>;

/// Everything needed to start or resume one run.
pub struct Engine {
    pub(crate) policy: Policy,
    pub(crate) brief_builder: BriefBuilder,
    workdir: PathBuf,
    system: Option<String>,
    /// The work of the root agent beside its goal.
    root_work: RootWork,
    /// Whether a person must approve the run before the root agent begins.
    asks_first: bool,
    /// The person's settings for workspaces.
    spaces: Option<WorkspaceSetup>,
    /// Called when the run's directory exists.
    note: Option<CreatedCallback>,
    /// The depth of the root; see [`Engine::at_depth`].
    base_depth: u64,
    /// Dropped when the run has ended; see [`Engine::with_guard`].
    guard: Option<RunGuard>,
    /// The run's id, if it was chosen before this process started.
    run: Option<RunId>,
    /// The facts about the project, collected when they are first needed; see [`Engine::with_guidance`].
    environment: Option<OnceLock<ProjectGuidance>>,
    /// Starts external agents.
    pub(crate) workers: Option<Arc<dyn WorkerHost>>,
    /// The worker that does the work of all subagents, and of a root agent that works itself.
    worker: Option<String>,
    /// The models that a worker may call beside the model of its task.
    further_models: Vec<ModelSpec>,
    pub(crate) version: String,
    pub(crate) ids: IdSource,
    /// Where the run is decided, if not in this process.
    runtime: Option<Rc<dyn RemoteRuntime>>,
    /// Where the work is stored for other machines.
    portable: Option<PortableWork>,
}

impl Engine {
    /// Opens the working tree and builds the toolbox.
    pub fn new(setup: EngineSetup) -> Result<Self, EngineError> {
        let root = open_root(&setup.workdir)?;
        let mut policy = setup.policy;
        choose_write_folder(&mut policy, &root);
        let masker = Masker::new(setup.secrets);
        let caps = ToolCaps { run_seconds: policy.run_max_s, ..ToolCaps::default() };
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
        let brief_builder = BriefBuilder {
            toolbox: Arc::new(toolbox),
            masker,
            models: ModelPool::new(setup.model, setup.opener),
            efforts: AgentEfforts::default(),
            agent: agent_name(policy.preset),
            roles: Arc::default(),
            commands: Arc::default(),
            operation: Operation::default(),
            workdir: setup.workdir.as_path().into(),
            timeout_s: None,
            separate_work: Arc::default(),
            command_context: None,
            quotes_instructions: false,
        };
        Ok(Self {
            policy,
            brief_builder,
            workdir: setup.workdir,
            system: setup.system,
            root_work: RootWork::default(),
            asks_first: false,
            spaces: None,
            note: None,
            base_depth: 0,
            guard: None,
            run: None,
            environment: None,
            workers: setup.workers,
            worker: None,
            further_models: Vec::new(),
            version: setup.version,
            ids: IdSource { wall: wall_now, random: os_random },
            runtime: None,
            portable: None,
        })
    }

    /// Replaces the wall clock and the random source; for tests.
    #[must_use]
    pub fn with_sources(self, wall: WallClock, random: RandomSource) -> Self {
        Self { ids: IdSource { wall, random }, ..self }
    }

    /// Sets the agents that files describe. `allowed` are the models that a project's file may choose
    /// beside the run's own.
    #[must_use]
    pub fn with_agents(
        mut self,
        agents: impl IntoIterator<Item = AgentDefinition>,
        allowed: &[String],
    ) -> Self {
        let running = self.brief_builder.models.default_spec().name.clone();
        let role = |agent: AgentDefinition| {
            let role = AgentRole::of(agent, &self.policy, Some(&running), allowed);
            (role.definition.name.clone(), role)
        };
        self.brief_builder.roles = Arc::new(agents.into_iter().map(role).collect());
        self
    }

    /// Sets the reasoning effort of agents.
    #[must_use]
    pub fn with_efforts(mut self, efforts: AgentEfforts) -> Self {
        self.brief_builder.efforts = efforts;
        self
    }

    /// Lets an external agent do the work of all subagents, and of a root agent that works itself.
    #[must_use]
    pub fn with_worker(mut self, worker: Option<String>) -> Self {
        self.worker = worker;
        self
    }

    /// Lets workers call these models beside the model of their task.
    #[must_use]
    pub fn with_further_models(mut self, models: Vec<ModelSpec>) -> Self {
        self.further_models = models;
        self
    }

    /// Lets a runtime decide, record and perform the run; this process only follows it.
    #[must_use]
    pub fn with_runtime(mut self, runtime: Option<Rc<dyn RemoteRuntime>>) -> Self {
        self.runtime = runtime;
        self
    }

    /// Makes the working tree known to models as `directory`, a directory of another machine of which it is a copy, and
    /// stores the work of agents where other machines can go on with it.
    pub fn as_copy_of(mut self, directory: &Path, work: PortableWork) -> Result<Self, EngineError> {
        let root = open_root(&self.workdir)?.known_as(directory);
        let toolbox = &self.brief_builder.toolbox;
        self.brief_builder.toolbox = Arc::new(toolbox.with_root(root));
        self.brief_builder.workdir = directory.into();
        self.portable = Some(work);
        Ok(self)
    }

    /// Sets the agent for tasks that name no agent.
    #[must_use]
    pub fn with_default_agent(mut self, agent: AgentName) -> Self {
        self.brief_builder.agent = agent;
        self
    }

    /// Returns the agent for tasks that name no agent.
    #[must_use]
    pub const fn default_agent(&self) -> &AgentName {
        &self.brief_builder.agent
    }

    /// Calls `note` with the run's id and directory before anything is recorded. If it fails, the run is not
    /// started.
    #[must_use]
    pub fn on_created(
        mut self,
        note: impl FnOnce(RunId, &Path) -> io::Result<()> + 'static,
    ) -> Self {
        self.note = Some(Box::new(note));
        self
    }

    /// Uses an id that was chosen before, such as one that the registry knows already. Otherwise the engine
    /// makes one.
    #[must_use]
    pub const fn with_run_id(mut self, run: RunId) -> Self {
        self.run = Some(run);
        self
    }

    /// Replaces the policy's `approve_below_usd`: calls whose worst case costs at most `amount` need no approval.
    #[must_use]
    pub const fn approving_below(mut self, amount: Usd) -> Self {
        self.policy.approve_below_usd = Some(amount);
        self
    }

    /// Starts the run at that depth instead of 0. For a run that an agent of another run started, so that the
    /// depth limit covers both.
    #[must_use]
    pub fn at_depth(mut self, base_depth: u64) -> Self {
        self.base_depth = base_depth;
        self
    }

    /// Holds `guard`, such as a place among live runs, until the run has ended. It is dropped before the end is
    /// written to the journal, so a reader that sees the end can rely on the release.
    #[must_use]
    pub fn with_guard(mut self, guard: impl Send + 'static) -> Self {
        self.guard = Some(Box::new(guard));
        self
    }

    /// Sets where and how workspaces are made for agents that write in their own.
    #[must_use]
    pub fn with_spaces(mut self, setup: WorkspaceSetup) -> Self {
        self = self.protecting(&setup.state);
        if let Some(config) = &setup.config {
            for path in with_link_targets(config) {
                self = self.protecting(&path);
            }
        }
        if let Some(toolbox) = Arc::get_mut(&mut self.brief_builder.toolbox) {
            setup.read_only.iter().for_each(|folder| toolbox.make_read_only(folder));
            toolbox.set_tool_availability(setup.tool_availability());
        }
        self.spaces = Some(setup);
        self
    }

    /// Denies the file tools access to a directory or file, such as the state directory.
    #[must_use]
    pub fn protecting(mut self, folder: &Path) -> Self {
        if let Some(toolbox) = Arc::get_mut(&mut self.brief_builder.toolbox) {
            toolbox.close(folder);
        }
        self
    }

    /// Tells agents about the project, quotes its texts for agents to them, and tells those that no file describes how
    /// to work. Without it they get only the prompts for their task.
    #[must_use]
    pub fn with_guidance(mut self) -> Self {
        self.environment = Some(OnceLock::new());
        self.brief_builder.quotes_instructions = true;
        self
    }

    /// Returns what to tell agents about the project. Looks at it once.
    fn environment(&self) -> Option<ProjectGuidance> {
        let collected = self.environment.as_ref()?.get_or_init(|| {
            let BriefBuilder { toolbox, masker, .. } = &self.brief_builder;
            collect(toolbox.root(), &self.workdir, masker, self.commands_see().as_deref())
        });
        Some(collected.clone())
    }

    /// Opens the repository for workspaces, if the policy gives agents their own.
    pub(crate) fn open_spaces(&self) -> Result<Option<(Workspaces, WorkspaceSetup)>, EngineError> {
        if !self.gives_spaces() {
            return Ok(None);
        }
        let missing = || EngineError::Workspaces("no directory for workspaces is set".to_owned());
        let mut setup = self.spaces.clone().ok_or_else(missing)?;
        if let Some(tool) = setup.missing_tool().filter(|_| self.runtime.is_none()) {
            return Err(EngineError::MissingTool(tool.to_owned()));
        }
        setup.bounds.disk_bytes = self.policy.workspace_bytes;
        setup.bounds.entries = self.policy.workspace_entries;
        setup.disk_bytes = Some(self.policy.disk_bytes);
        let all =
            setup.open(&self.workdir, self.policy.network).map_err(EngineError::Workspaces)?;
        Ok(Some((all, setup)))
    }

    fn gives_spaces(&self) -> bool {
        self.policy.workspace == WorkspaceSharing::Own && !self.policy.in_place
    }

    /// Returns the workspace settings to record, if agents have their own workspaces.
    pub(crate) fn terms(&self) -> Option<WorkspaceTerms> {
        let mut terms = self.spaces.as_ref().filter(|_| self.gives_spaces())?.terms();
        if let Some(runtime) = &self.runtime {
            // Commands see the toolchains of the machine on which they run.
            terms.toolchains.clear();
            terms.commands_see = runtime.commands_see();
        }
        Some(terms)
    }

    /// Sets the slash commands that a task's prompt may begin with.
    #[must_use]
    pub fn with_commands(mut self, commands: SlashCommands) -> Self {
        self.brief_builder.commands = Arc::new(commands);
        self
    }

    /// Returns an agent set by [`Engine::with_agents`].
    #[must_use]
    pub fn role(&self, agent: &AgentName) -> Option<&AgentRole> {
        self.brief_builder.roles.get(agent)
    }

    /// Turns tasks into briefs, reading their context files.
    #[must_use]
    pub fn briefs(&self, tasks: &[TaskSpec]) -> Vec<Brief> {
        let model = self.brief_builder.models.default_spec();
        let root = self.brief_builder.toolbox.root();
        tasks
            .iter()
            .map(|task| self.brief_builder.brief(task, model, TaskRequester::Person, root))
            .collect()
    }

    /// Returns what the core would decide about delegating `briefs`, without starting a run.
    pub fn preview(
        &self,
        briefs: Vec<Brief>,
        concurrency: Option<u64>,
    ) -> Result<RunPreview, EngineError> {
        let commands = self.delegation_commands(self.ids.run()?, &briefs, concurrency)?;
        let events = RunOpening::decide(commands)?.decided.pop().unwrap_or_default();
        Ok(RunPreview { events, commands_see: self.commands_see() })
    }

    fn commands_see(&self) -> Option<String> {
        self.terms().and_then(|terms| terms.commands_see)
    }

    /// Returns what the core would decide about a goal before the root agent's first turn, without starting a run.
    pub fn preview_run(&self, goal: Goal) -> Result<RunPreview, EngineError> {
        let mut tree = Tree::default();
        let mut events = Vec::new();
        for command in self.goal_commands(self.ids.run()?, goal) {
            if matches!(command, Command::TakeTurn { .. }) {
                break;
            }
            for event in tree.decide(Timestamp::ZERO, command)? {
                tree.evolve(Timestamp::ZERO, &event)?;
                events.push(event);
            }
        }
        Ok(RunPreview { events, commands_see: self.commands_see() })
    }

    /// Delegates `briefs` and waits until all have ended.
    ///
    /// A call that is refused as a whole leaves no files behind; everything else is recorded.
    pub async fn delegate(
        self,
        briefs: Vec<Brief>,
        concurrency: Option<u64>,
        staff: RunHost,
    ) -> Result<FinishedRun, EngineError> {
        self.run_to_end(staff, |engine, run| engine.delegation_commands(run, &briefs, concurrency))
            .await
    }

    /// Runs a root agent that works on `goal` and may delegate.
    pub async fn run(self, mut goal: Goal, staff: RunHost) -> Result<FinishedRun, EngineError> {
        // A slash command that does not delegate gets its context files with the goal.
        let works_itself = self.root_work.assignment().filter(|it| it.agent.is_none());
        let context =
            works_itself.map(|it| self.brief_builder.quote_context(&it.context)).transpose()?;
        goal.text.extend(context);
        self.run_to_end(staff, |engine, run| Ok(engine.goal_commands(run, goal.clone()))).await
    }

    async fn run_to_end(
        mut self,
        staff: RunHost,
        commands: impl Fn(&Self, RunId) -> Result<Vec<Command>, EngineError>,
    ) -> Result<FinishedRun, EngineError> {
        let RunHost { storage, approver, reporters, narrator, control } = staff;
        let mut attempts = 1;
        let (opened, opening, remote, spaces) = loop {
            let run = self.run.map_or_else(|| self.ids.run(), Ok)?;
            let commands = commands(&self, run)?;
            let remote = self.runtime.clone().map(|runtime| {
                let opening = RemoteOpening {
                    run,
                    commands: commands.clone(),
                    at: Timestamp::ZERO,
                    wall_ms: (self.ids.wall)(),
                    workdir: self.workdir.clone(),
                };
                (runtime, opening)
            });
            // A refusal comes before any workspace or directory is created.
            let opening = RunOpening::decide(commands)?;
            let spaces = self.open_spaces()?;
            match storage.open(run) {
                Err(EngineError::Home(StateDirError::RunExists(_)))
                    if self.run.is_none() && attempts < ID_ATTEMPTS =>
                {
                    attempts += 1;
                }
                opened => break (opened?, opening, remote, spaces),
            }
        };
        let opened = opened.call_created_callback(self.note.take())?;
        let OpenRun { id, folder, journal, durable, lock } = opened;
        let wall = self.ids.wall;
        let spaces = spaces.map(|(all, setup)| Arc::new(RunWorkspaces::new(all, setup, id, wall)));
        let (brief_builder, ids) = (self.brief_builder, self.ids);
        let folder_of = folder.clone();
        let context = EffectContext {
            brief_builder,
            approver,
            narrator,
            ids,
            folder: folder_of,
            spaces: spaces.clone(),
            has_limits_in_environment: self.root_work.has_limits_in_environment(),
            workers: self.workers.take(),
        };
        let clock = RunClock::start(self.ids.wall, Timestamp::ZERO);
        let listener = ControlListener::new(lock.as_ref().map(RunLock::control_socket));
        let mut runner =
            Runner::new(clock, journal, durable, control, listener, context, reporters);
        runner.guard = self.guard.take();
        let outcome = match remote {
            None => runner.run(opening).await?,
            Some((runtime, opening)) => {
                // First, so that the run is found again if this process is lost while the run starts there.
                if let Some(folder) = &folder {
                    folder.save_runtime(&runtime.address())?;
                }
                let link = match runtime.start(opening).await {
                    Ok(link) => link,
                    Err(problem) => {
                        drop((runner, lock));
                        folder.iter().for_each(RunDir::remove_if_no_records);
                        return Err(EngineError::Remote(problem));
                    }
                };
                runner.follow(RemoteRun::new(link, FollowerRole::FrontEnd, 0)).await?
            }
        };
        if let Some(spaces) = spaces {
            // Best effort: the next sweep of workspaces tries again.
            let _ = tokio::task::spawn_blocking(move || spaces.release_base_refs(outcome)).await;
        }
        drop(lock);
        Ok(FinishedRun { run: id, outcome, folder: folder.map(|folder| folder.path().to_owned()) })
    }

    /// Performs effects of a run that a runtime decides, as it asks for them, until the run has ended there.
    ///
    /// `opening` are the decisions so far.
    pub async fn perform_for(
        mut self,
        run: RunId,
        opening: Vec<RecordedDecision>,
        link: RunLink,
        narrator: Rc<dyn Narrator>,
        reporters: Vec<Box<dyn Reporter>>,
    ) -> Result<Outcome, EngineError> {
        let spaces = self.open_spaces()?;
        let wall = self.ids.wall;
        let portable = self.portable.take();
        let spaces = spaces.map(|(all, setup)| {
            Arc::new(RunWorkspaces::new(all, setup, run, wall).with_portable(portable))
        });
        let events: Vec<&Event> = opening.iter().flat_map(|it| &it.events).collect();
        let is_story = resume::adopt(&mut self.brief_builder, &events);
        // The runtime has the events; this journal stays empty.
        let OpenRun { journal, durable, .. } = Storage::Memory(MemoryDisk::default()).open(run)?;
        let context = EffectContext {
            brief_builder: self.brief_builder,
            // The front end asks.
            approver: Arc::new(|_| ApproverAnswer::Later),
            narrator,
            ids: self.ids,
            folder: None,
            spaces,
            has_limits_in_environment: is_story,
            workers: self.workers,
        };
        let (_, control) = mpsc::channel(1);
        let clock = RunClock::start(wall, Timestamp::ZERO);
        let listener = ControlListener::new(None);
        let runner = Runner::new(clock, journal, durable, control, listener, context, reporters);
        runner.perform_requests(opening, RemoteRun::new(link, FollowerRole::Worker, 0)).await
    }

    /// Follows a run that its runtime decides, after the process that started it has gone. Catches up its mirror first.
    pub async fn follow(mut self, run: RunId, staff: RunHost) -> Result<FinishedRun, EngineError> {
        let Some(runtime) = self.runtime.take() else {
            return Err(EngineError::Remote("no runtime is set".to_owned()));
        };
        let RunHost { storage, approver, reporters, narrator, control } = staff;
        let mut records: Vec<JournalRecord<Event>> = Vec::new();
        let opened = storage.reopen(run, |record| records.push(record))?;
        let OpenRun { id, folder, journal, durable, lock } = opened;
        let known = count_decided(&records);
        let link = runtime.follow(run, self.workdir.clone(), known).await;
        let link = link.map_err(EngineError::Remote)?;
        let age = records.last().map_or(Timestamp::ZERO, |record| record.at);
        let context = EffectContext {
            brief_builder: self.brief_builder,
            approver,
            narrator,
            ids: self.ids,
            folder: folder.clone(),
            spaces: None,
            has_limits_in_environment: false,
            workers: None,
        };
        let clock = RunClock::start(self.ids.wall, age);
        let listener = ControlListener::new(lock.as_ref().map(RunLock::control_socket));
        let mut runner =
            Runner::new(clock, journal, durable, control, listener, context, reporters);
        for record in &records {
            runner.replay(record)?;
        }
        let followed = RemoteRun::new(link, FollowerRole::FrontEnd, known);
        let outcome = runner.follow_on(followed).await?;
        folder.as_ref().map_or(Ok(()), |folder| folder.mark_continued(false))?;
        drop(lock);
        Ok(FinishedRun { run: id, outcome, folder: folder.map(|folder| folder.path().to_owned()) })
    }
}

/// Opens the working tree of a run.
fn open_root(path: &Path) -> Result<Root, EngineError> {
    let mut root = Root::open(path)
        .map_err(|source| EngineError::Workdir { path: path.to_owned(), source })?;
    root.guard_git_dirs();
    Ok(root)
}
