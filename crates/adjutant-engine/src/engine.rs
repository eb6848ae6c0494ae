//! Setting up a run: from tasks to briefs, from briefs to a preview or to the real thing.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use adjutant_core::marker::instructions;
use adjutant_core::policy::{ContractKind, Operation, WorkspaceKind};
use adjutant_core::schema::{
    AgentCard, CallLimits, ReturnForm, TASK, TaskSpec, delegate_spec, return_spec, task_spec,
};
use adjutant_core::space::SpaceTerms;
use adjutant_core::story::StoryWork;
use adjutant_core::write::{EDIT, WRITE};
use adjutant_core::{
    AgentName, Assignment, Brief, Command, Event, IllegalEvent, ModelSpec, Outcome, Policy,
    Refusal, Rights, RunId, SessionId, Timestamp, ToolSet, ToolSpec, Tree, Writes,
};
use adjutant_model::Model;
use adjutant_store::{FileError, HomeError, JournalError, LockError, OpenError, RunLock};
use adjutant_tools::{Caps, Masker, Tool, ToolName, Toolbox, Web};
use adjutant_workspace::space::Workspaces;
use adjutant_workspace::{PathError, Root};
use tokio::sync::mpsc;

use crate::clock::{Clock, Wall, wall_now};
use crate::control::Door;
use crate::desk::{Asker, Desk, ModelOpener, Models};
use crate::execute::{Answer, Approver};
use crate::ids::{Chance, IdSource, system};
use crate::opening::{Note, Opened, Storage};
use crate::prompt::{Hold, agent_name, system_prompt};
use crate::role::Role;
use crate::roster::Definition;
use crate::runner::{Control, Narrator, Reporter, Runner, Shop};
use crate::slash::Handbook;
use crate::spaces::{SpaceSetup, Spaces};
use crate::writing::settle_folder;

/// What a run is made of.
pub struct Setup {
    /// The limits.
    pub policy: Policy,
    /// What answers the agents.
    pub model: Arc<dyn Model>,
    /// What opens another model that a task asks for.
    pub opener: Option<ModelOpener>,
    /// The tree the agents may look at.
    pub workdir: PathBuf,
    /// What reaches the network for agents that may; absent where nobody may.
    pub web: Option<Web>,
    /// Tools of the embedding program; agents get those that the policy's `tools` name.
    pub tools: Vec<Arc<dyn Tool>>,
    /// What replaces the built-in base prompt.
    pub system: Option<String>,
    /// Texts that are masked wherever a tool shows them: the engine's own keys.
    pub secrets: Vec<String>,
    /// The version that is written into the journal.
    pub version: String,
}

impl Setup {
    /// Takes what cannot be left out; no network, no other models, the built-in prompt.
    #[must_use]
    pub fn new(policy: Policy, model: Arc<dyn Model>, workdir: impl Into<PathBuf>) -> Self {
        Self {
            policy,
            model,
            opener: None,
            workdir: workdir.into(),
            web: None,
            tools: Vec::new(),
            system: None,
            secrets: Vec::new(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }
}

/// Says why a run could not be made or carried to its end.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The working tree cannot be opened.
    #[error("cannot open the working tree {}", path.display())]
    Workdir {
        /// Its path.
        path: PathBuf,
        /// Why.
        source: PathError,
    },
    /// A tool of the embedding program has the name of another.
    #[error("there is a tool named `{0}` already")]
    ToolName(String),
    /// The call was refused as a whole, before anything happened.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The state directory cannot be used.
    #[error(transparent)]
    Home(#[from] HomeError),
    /// The run is being written by someone else.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The journal cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A file of the run cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// The journal cannot be written; the run stopped there and nothing before it is lost.
    #[error("the run stopped: its journal cannot be written")]
    Journal(#[from] JournalError),
    /// The journal's thread ended without a word.
    #[error("the run stopped: the journal's writer is gone")]
    JournalGone,
    /// Nobody would find the run.
    #[error("the run cannot be noted where it is looked for")]
    Note(#[source] io::Error),
    /// A thread cannot be started.
    #[error("cannot start a thread")]
    Thread(#[from] io::Error),
    /// The system gives no randomness for ids.
    #[error("the system gives no randomness")]
    Chance(#[from] getrandom::Error),
    /// Nothing of the run can go on.
    #[error("nothing to resume: {0}")]
    NothingToResume(String),
    /// A model that the run needs cannot be had.
    #[error("cannot go on without the model {name}: {problem}")]
    Model {
        /// Its name.
        name: String,
        /// Why not.
        problem: String,
    },
    /// There is no place for agents that write.
    #[error("no workspaces: {0}")]
    Spaces(String),
    /// A defect of ours.
    #[error("internal error: {0}")]
    Illegal(#[from] IllegalEvent),
}

impl EngineError {
    /// Says whether there was no space left to write to.
    #[must_use]
    pub const fn is_disk_full(&self) -> bool {
        matches!(self, Self::Journal(JournalError::DiskFull(_)))
    }

    /// Says whether somebody else is at work on the run.
    #[must_use]
    pub const fn is_in_use(&self) -> bool {
        matches!(self, Self::Lock(LockError::Held { .. }))
    }
}

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

/// Who and what a run deals with outside the engine.
pub struct Staff {
    /// Where it is written.
    pub storage: Storage,
    /// Who is asked before a batch.
    pub approver: Approver,
    /// Who hears of every event.
    pub reporters: Vec<Box<dyn Reporter>>,
    /// Who puts results into words for a parent agent.
    pub narrator: Rc<dyn Narrator>,
    /// Where orders come from.
    pub control: mpsc::Receiver<Control>,
}

impl Staff {
    /// Runs without a person: every batch is approved, nobody gives orders, and a parent agent is
    /// told only that its tasks have ended. The limits of the policy are all that bounds it.
    #[must_use]
    pub fn unattended(storage: Storage) -> Self {
        let (_, control) = mpsc::channel(1);
        Self {
            storage,
            approver: Arc::new(|_| Answer::Yes),
            reporters: Vec::new(),
            narrator: Rc::new(Terse),
            control,
        }
    }

    /// Adds someone who hears of every event.
    #[must_use]
    pub fn with_reporter(mut self, reporter: impl Reporter + 'static) -> Self {
        self.reporters.push(Box::new(reporter));
        self
    }
}

struct Terse;

impl Narrator for Terse {
    fn results(&self, _parent: SessionId, _call: u32, _form: ReturnForm) -> String {
        "The tasks have ended.".to_owned()
    }
}

/// What a parent agent is to achieve.
#[derive(Clone)]
pub struct Goal {
    /// The name it goes by.
    pub agent: AgentName,
    /// What it is told first.
    pub system: String,
    /// The goal; what the project says to agents is quoted before it.
    pub text: String,
}

/// Everything needed to run, before anything is run.
pub struct Engine {
    pub(crate) policy: Policy,
    pub(crate) desk: Desk,
    workdir: PathBuf,
    system: Option<String>,
    /// What a slash command asks of the run.
    assignment: Option<Assignment>,
    /// The story the run works on.
    story: Option<StoryWork>,
    /// Whether a person is asked before the agent at the root begins.
    asks_first: bool,
    /// What a person says about workspaces.
    spaces: Option<SpaceSetup>,
    /// Who is told where the run is.
    note: Option<Note>,
    pub(crate) version: String,
    pub(crate) ids: IdSource,
}

impl Engine {
    /// Opens the working tree and keeps the parts.
    pub fn new(setup: Setup) -> Result<Self, EngineError> {
        let path = &setup.workdir;
        let root = Root::open(path)
            .map_err(|source| EngineError::Workdir { path: path.clone(), source })?;
        let mut policy = setup.policy;
        settle_folder(&mut policy, &root);
        let masker = Masker::new(setup.secrets);
        let mut toolbox = Toolbox::new(root, Caps::default()).with_masker(masker.clone());
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
            stories: Arc::default(),
        };
        Ok(Self {
            policy,
            desk,
            workdir: setup.workdir,
            system: setup.system,
            assignment: None,
            story: None,
            asks_first: false,
            spaces: None,
            note: None,
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

    /// Says what a slash command asks of the run. Its kind of work and the seconds it gives count for
    /// tasks whose agent's definition does not say otherwise; the agent at the root has the most time
    /// that such work may take.
    #[must_use]
    pub fn with_assignment(mut self, assignment: Assignment) -> Self {
        self.desk.take_assignment(&assignment);
        self.assignment = Some(assignment);
        self
    }

    /// Has somebody note which run this is and where, before anything of it is recorded; where that fails
    /// there is no run.
    #[must_use]
    pub fn noted_by(mut self, note: impl FnOnce(RunId, &Path) -> io::Result<()> + 'static) -> Self {
        self.note = Some(Box::new(note));
        self
    }

    /// Lets the run work on a story: the agent at the root does the work, in a workspace of its own.
    #[must_use]
    pub fn with_story(mut self, story: StoryWork) -> Self {
        self.story = Some(story);
        self
    }

    /// Has a person asked about the whole run before the agent at its root begins, unless the policy lets
    /// it; `sent` is the command that nobody has typed.
    #[must_use]
    pub fn asking_first(mut self, sent: Option<&str>) -> Self {
        self.asks_first = true;
        if let Some(assignment) = &mut self.assignment {
            assignment.sent = sent.map(str::to_owned);
        }
        self
    }

    /// Makes the names of stories known that are worked on by themselves: none is handed down.
    #[must_use]
    pub fn with_stories(mut self, stories: BTreeSet<String>) -> Self {
        self.desk.stories = Arc::new(stories);
        self
    }

    /// Says where workspaces are kept, for agents that write in one of their own.
    #[must_use]
    pub fn with_spaces(mut self, setup: SpaceSetup) -> Self {
        self = self.closing(&setup.state);
        self.spaces = Some(setup);
        self
    }

    /// Keeps the state directory out of reach of agents' files, wherever it lies.
    #[must_use]
    pub fn closing(mut self, state: &Path) -> Self {
        if let Some(toolbox) = Arc::get_mut(&mut self.desk.toolbox) {
            toolbox.close(state);
        }
        self
    }

    /// Opens the workspaces where the policy gives agents their own; before anything else is done.
    pub(crate) fn open_spaces(&self) -> Result<Option<(Workspaces, SpaceSetup)>, EngineError> {
        if !self.gives_spaces() {
            return Ok(None);
        }
        let missing = || EngineError::Spaces("nobody said where to keep them".to_owned());
        let setup = self.spaces.clone().ok_or_else(missing)?;
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
        let run = self.ids.run()?;
        let mut tree = Tree::default();
        let mut events = Vec::new();
        for command in self.delegation(run, briefs, concurrency)? {
            events = tree.decide(Timestamp::ZERO, command)?;
            for event in &events {
                tree.evolve(Timestamp::ZERO, event)?;
            }
        }
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
        self.preview(briefs.clone(), concurrency)?;
        self.drive(staff, |engine, run| engine.delegation(run, briefs, concurrency)).await
    }

    /// Runs a parent agent that works towards `goal` and may delegate.
    pub async fn run(self, goal: Goal, staff: Staff) -> Result<Finished, EngineError> {
        self.drive(staff, |engine, run| Ok(engine.pursuit(run, goal))).await
    }

    async fn drive(
        mut self,
        staff: Staff,
        opening: impl FnOnce(&Self, RunId) -> Result<Vec<Command>, EngineError>,
    ) -> Result<Finished, EngineError> {
        let Staff { storage, approver, reporters, narrator, control } = staff;
        let spaces = self.open_spaces()?;
        let opened = storage.open(self.ids)?.noted(self.note.take())?;
        let Opened { id, folder, journal, durable, lock } = opened;
        let opening = opening(&self, id)?;
        let wall = self.ids.wall;
        let spaces = spaces.map(|(all, setup)| Arc::new(Spaces::new(all, setup, id, wall)));
        let (desk, ids) = (self.desk, self.ids);
        let folder_of = folder.clone();
        let shop =
            Shop { desk, approver, narrator, ids, folder: folder_of, spaces: spaces.clone() };
        let clock = Clock::start(self.ids.wall, Timestamp::ZERO);
        let door = Door::new(lock.as_ref().map(RunLock::control_socket));
        let runner = Runner::new(clock, journal, durable, control, door, shop, reporters);
        let outcome = runner.run(opening).await?;
        if let Some(spaces) = spaces {
            // Nothing follows from it, so neither does an end it may come to.
            let _ = tokio::task::spawn_blocking(move || spaces.let_go(outcome)).await;
        }
        drop(lock);
        Ok(Finished { run: id, outcome, folder: folder.map(|folder| folder.path().to_owned()) })
    }

    /// Returns the commands of a run without a parent agent.
    fn delegation(
        &self,
        run: RunId,
        briefs: Vec<Brief>,
        concurrency: Option<u64>,
    ) -> Result<Vec<Command>, EngineError> {
        let begin = self.begin(run, AgentName::new("delegate"), String::new(), None);
        let root = run.root_session();
        let tasks = self.ids.tasks(briefs, |session| session == root)?;
        let delegate = Command::Delegate { parent: root, tasks, concurrency, origin: None };
        let child = self.define_child(None);
        let is_shown = matches!(&child, Command::Define { tools, .. } if tools.iter().any(|it| it.name == TASK));
        let mut commands = vec![begin, child];
        if is_shown {
            // Whoever can be named below must be known.
            let others = self.desk.roles.values().filter(|role| self.is_callable(role, None));
            commands.extend(others.map(|role| self.define_role(role, None)));
        }
        commands.push(delegate);
        Ok(commands)
    }

    /// Returns the commands of a run with a parent agent. Everyone it can name is made known.
    fn pursuit(&self, run: RunId, goal: Goal) -> Vec<Command> {
        let model = Some(self.desk.models.default_spec().clone());
        let Goal { agent, mut system, text } = goal;
        let role = self.desk.roles.get(&agent);
        let rights = role.map_or_else(|| Rights::of(&self.policy), |role| role.rights.clone());
        if let Some(role) = role {
            system = format!("{system}\n\n{}", role.told(&self.desk.masker));
        }
        let tools = self.tools(0, &rights, Some(&agent));
        let mut text = self.desk.project_text() + &text;
        if self.story.is_some() {
            // Who works on a story is no lead who only reads.
            system = format!("{}\n\n{system}", self.system_of(&tools)).trim_end().to_owned();
            let how = instructions(&self.policy, 0).map(|how| format!("\n\n{how}"));
            text.push_str(&how.unwrap_or_default());
        }
        let max_turns = role.and_then(|role| role.definition.limits.max_turns);
        let define = Command::Define { agent: agent.clone(), system, tools, rights, max_turns };
        let begin = self.begin(run, agent.clone(), text, model);
        let mut commands = vec![begin, define, self.define_child(Some(&agent))];
        let others = self.desk.roles.values().filter(|role| self.is_callable(role, Some(&agent)));
        commands.extend(others.map(|role| self.define_role(role, Some(&agent))));
        let (assignment, story) = (self.assignment.clone(), self.story.clone());
        let (assignment, story) = (assignment.map(Box::new), story.map(Box::new));
        if self.asks_first {
            commands.push(Command::AskToBegin { assignment, story });
        } else {
            commands.extend(assignment.map(Command::Assign));
            commands.extend(story.map(Command::TakeStory));
        }
        commands.push(Command::TakeTurn { session: run.root_session() });
        commands
    }

    fn begin(
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
        }
    }

    /// Makes the agent known who does what no agent is named for.
    fn define_child(&self, lead: Option<&AgentName>) -> Command {
        if let Some(role) = self.desk.roles.get(&self.desk.agent) {
            return self.define_role(role, lead);
        }
        let rights = Rights::of(&self.policy);
        let tools = self.tools(1, &rights, lead);
        let system = self.system_of(&tools);
        Command::Define { agent: self.desk.agent.clone(), system, tools, rights, max_turns: None }
    }

    fn define_role(&self, role: &Role, lead: Option<&AgentName>) -> Command {
        let tools = self.tools(1, &role.rights, lead);
        let system = format!("{}\n\n{}", self.system_of(&tools), role.told(&self.desk.masker));
        let agent = role.definition.name.clone();
        let max_turns = role.definition.limits.max_turns;
        Command::Define { agent, system, tools, rights: role.rights.clone(), max_turns }
    }

    fn system_of(&self, tools: &[ToolSpec]) -> String {
        let offered = ToolSet::new(tools.iter().map(|tool| tool.name.as_str()));
        let hold = match self.terms() {
            Some(terms) if terms.sandbox_off => Hold::Nothing,
            Some(_) | None => Hold::Sandbox,
        };
        system_prompt(self.system.as_deref(), &self.policy, &offered, hold)
    }

    /// Says whether an agent can be given a task by name.
    fn is_callable(&self, role: &Role, lead: Option<&AgentName>) -> bool {
        let name = &role.definition.name;
        role.definition.takes_tasks && Some(name) != lead && *name != self.desk.agent
    }

    /// Returns the tools an agent with these rights may be shown when it works no higher than `depth`.
    fn tools(&self, depth: u64, rights: &Rights, lead: Option<&AgentName>) -> Vec<ToolSpec> {
        let usable = rights.usable_tools();
        let limits = CallLimits {
            max_tasks: usize::try_from(self.policy.tasks_per_call).unwrap_or(usize::MAX),
            max_concurrency: self.policy.concurrency_max,
            default_concurrency: self.policy.concurrency,
            ..CallLimits::default()
        };
        let delegates = depth < self.policy.max_depth;
        let delegate = delegates.then(|| delegate_spec(&limits));
        let callable = self.desk.roles.values().filter(|role| self.is_callable(role, lead));
        let cards: Vec<AgentCard> =
            callable.filter(|_| delegates).map(|role| role.card(&self.desk.masker)).collect();
        let task = (!cards.is_empty()).then(|| task_spec(&cards, &limits));
        let works = depth > 0 || self.story.is_some();
        let returns = works && self.policy.contract == ContractKind::Standard;
        let known = self.desk.toolbox.specs().into_iter().chain(delegate).chain(task);
        known
            .filter(|spec| usable.contains(&spec.name))
            .map(|mut spec| {
                if let (Writes::Below(folder), EDIT | WRITE) = (&rights.writes, spec.name.as_str())
                {
                    spec.description += &format!(" You may write only below `{folder}`.");
                }
                spec
            })
            .chain(returns.then(return_spec))
            .collect()
    }
}
