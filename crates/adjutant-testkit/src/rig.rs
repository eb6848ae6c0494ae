//! The environment of an engine test, and the trace of the run that it made.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use adjutant_core::policy::{Operation, WorkspaceSharing};
use adjutant_core::schema::{ReturnFormat, TaskSpec};
use adjutant_core::{
    AgentName, Event, Outcome, Policy, Preset, RunId, SessionId, SlashCommandAssignment, Timestamp,
    ToolSet,
};
use adjutant_engine::roster::{UserFolders, find_agents};
use adjutant_engine::{
    AgentEfforts, Approver, ApproverAnswer, ApproverQuestion, ControlCommand, CustomTool, Engine,
    EngineError, EngineSetup, FinishedRun, Goal, Narrator, Reporter, ResumeRequest, RunHost,
    Storage, WallClock, WebAccess, WorkspaceSetup,
};
use adjutant_model::{Model, ScriptedModel};
use adjutant_store::MemoryDisk;
use tempfile::TempDir;
use tokio::sync::mpsc;

use crate::model::{ModelRequest, RecordingModel};

/// The wall clock of every test: a second in 2024.
const WALL_MS: u64 = 1_735_460_684_000;

/// The tools of agents that write.
const WRITING_TOOLS: [&str; 3] = ["Edit", "Write", "Run"];

/// Sees every event and may send control commands.
type EventHook = Box<dyn FnMut(&Event, &mpsc::Sender<ControlCommand>)>;

/// The environment of an engine test: work tree, policy, script, clock, ids and journal.
pub struct Rig {
    tree: TempDir,
    policy: Policy,
    script: String,
    tasks: Vec<TaskSpec>,
    concurrency: Option<u64>,
    system: Option<String>,
    approver: Approver,
    disk: MemoryDisk,
    control: (mpsc::Sender<ControlCommand>, mpsc::Receiver<ControlCommand>),
    watch: Option<EventHook>,
    goal: Option<String>,
    lead: AgentName,
    home: Option<TempDir>,
    default_agent: Option<AgentName>,
    models_allowed: Vec<String>,
    efforts: AgentEfforts,
    model: Option<Arc<dyn Model>>,
    web: Option<WebAccess>,
    wall: WallClock,
    tools: Vec<Arc<dyn CustomTool>>,
    assignment: Option<SlashCommandAssignment>,
    folder: Option<PathBuf>,
    spaces: Option<WorkspaceSetup>,
    guard: Option<Box<dyn Any + Send>>,
    guided: bool,
}

/// The events, the model requests and the result of one run.
#[derive(Debug)]
#[must_use]
pub struct RunTrace {
    /// Every replayed or reported event, with its time.
    pub events: Vec<(Timestamp, Event)>,
    /// How many of them were replayed from the journal of an earlier process.
    pub recalled: usize,
    /// How the run ended, or why it failed.
    pub result: Result<FinishedRun, EngineError>,
    /// The requests that the model got.
    pub requests: Vec<ModelRequest>,
}

impl Default for Rig {
    fn default() -> Self {
        Self::new()
    }
}

impl Rig {
    /// Builds an empty tree, the `scout` policy and a script without turns.
    #[must_use]
    pub fn new() -> Self {
        Self {
            tree: TempDir::new().expect("a temporary directory"),
            policy: Preset::Scout.policy(),
            script: String::new(),
            tasks: Vec::new(),
            concurrency: None,
            system: None,
            approver: Arc::new(|_| ApproverAnswer::Yes),
            disk: MemoryDisk::default(),
            control: mpsc::channel(8),
            watch: None,
            goal: None,
            lead: AgentName::new("lead"),
            home: None,
            default_agent: None,
            models_allowed: Vec::new(),
            efforts: AgentEfforts::default(),
            model: None,
            web: None,
            wall: || WALL_MS,
            tools: Vec::new(),
            assignment: None,
            folder: None,
            spaces: None,
            guard: None,
            guided: false,
        }
    }

    /// Tells agents about the project and how to work, as the command line does.
    #[must_use]
    pub const fn guided(mut self) -> Self {
        self.guided = true;
        self
    }

    /// Lets the engine hold this guard while the run is live.
    #[must_use]
    pub fn holding(mut self, guard: impl Send + 'static) -> Self {
        self.guard = Some(Box::new(guard));
        self
    }

    /// Uses this folder as work tree. It is not removed with the rig.
    #[must_use]
    pub fn in_folder(mut self, folder: PathBuf) -> Self {
        self.folder = Some(folder);
        self
    }

    /// Gives writing agents their own workspaces.
    #[must_use]
    pub fn spaces(mut self, setup: WorkspaceSetup) -> Self {
        self.policy.workspace = WorkspaceSharing::Own;
        self.policy.tools = ToolSet::new(self.policy.tools.iter().chain(WRITING_TOOLS));
        self.spaces = Some(setup);
        self
    }

    /// Puts a file into the work tree.
    #[must_use]
    pub fn file(self, path: &str, text: &str) -> Self {
        let path = self.tree().join(path);
        let folder = path.parent().unwrap_or(Path::new("/"));
        std::fs::create_dir_all(folder).expect("a folder in the tree");
        std::fs::write(&path, text).expect("a file in the tree");
        self
    }

    /// Returns the work tree.
    #[must_use]
    pub fn tree(&self) -> PathBuf {
        self.folder.clone().unwrap_or_else(|| self.tree.path().to_owned())
    }

    /// Changes the policy.
    #[must_use]
    pub fn policy(mut self, change: impl FnOnce(&mut Policy)) -> Self {
        change(&mut self.policy);
        self
    }

    /// Starts from another preset.
    #[must_use]
    pub fn preset(mut self, preset: Preset) -> Self {
        self.policy = preset.policy();
        self
    }

    /// Sets the script, in TOML.
    #[must_use]
    pub fn script(mut self, toml: &str) -> Self {
        toml.clone_into(&mut self.script);
        self
    }

    /// Asks this model instead of a script.
    #[must_use]
    pub fn model(mut self, model: Arc<dyn Model>) -> Self {
        self.model = Some(model);
        self
    }

    /// Uses this wall clock instead of a fixed one.
    #[must_use]
    pub fn wall(mut self, wall: WallClock) -> Self {
        self.wall = wall;
        self
    }

    /// Adds a custom tool and lets agents call it.
    #[must_use]
    pub fn tool(mut self, tool: impl CustomTool + 'static) -> Self {
        let name = tool.spec().name;
        let known = self.policy.tools.iter().chain([name.as_str()]);
        self.policy.tools = ToolSet::new(known);
        self.tools.push(Arc::new(tool));
        self
    }

    /// Sets the operation of the run.
    #[must_use]
    pub fn operation(self, operation: Operation) -> Self {
        self.assignment(SlashCommandAssignment::new("test", operation))
    }

    /// Makes the run one of a slash command.
    #[must_use]
    pub fn assignment(mut self, assignment: SlashCommandAssignment) -> Self {
        self.assignment = Some(assignment);
        self
    }

    /// Adds a task.
    #[must_use]
    pub fn task(mut self, label: &str, prompt: &str) -> Self {
        self.tasks.push(TaskSpec::new(label, prompt).expect("a label"));
        self
    }

    /// Runs a parent agent towards a goal instead of delegating tasks directly.
    #[must_use]
    pub fn goal(mut self, text: &str) -> Self {
        self.goal = Some(text.to_owned());
        self
    }

    /// Sets the root agent that works towards the goal.
    #[must_use]
    pub fn lead(mut self, agent: &str) -> Self {
        self.lead = AgentName::new(agent);
        self
    }

    /// Sets the agent for tasks that do not name one.
    #[must_use]
    pub fn default_agent(mut self, agent: &str) -> Self {
        self.default_agent = Some(AgentName::new(agent));
        self
    }

    /// Writes a file to the home directory, where the user.s agent definitions are.
    #[must_use]
    pub fn home_file(mut self, path: &str, text: &str) -> Self {
        let home = self.home.get_or_insert_with(|| TempDir::new().expect("a home"));
        let path = home.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).expect("a folder");
        std::fs::write(path, text).expect("a file at home");
        self
    }

    /// Lets files of the project choose this model.
    #[must_use]
    pub fn allow_model(mut self, name: &str) -> Self {
        self.models_allowed.push(name.to_owned());
        self
    }

    /// Sets the reasoning effort of agents, as configuration files do.
    #[must_use]
    pub fn efforts(mut self, efforts: AgentEfforts) -> Self {
        self.efforts = efforts;
        self
    }

    /// Gives the latest task a context file.
    #[must_use]
    pub fn context(mut self, path: &str) -> Self {
        self.tasks.last_mut().expect("a task").context.push(path.to_owned());
        self
    }

    /// Replaces the base prompt.
    #[must_use]
    pub fn system(mut self, text: &str) -> Self {
        self.system = Some(text.to_owned());
        self
    }

    /// Sets the concurrency, as a tool call does.
    #[must_use]
    pub const fn concurrency(mut self, concurrency: u64) -> Self {
        self.concurrency = Some(concurrency);
        self
    }

    /// Gives this answer to every question.
    #[must_use]
    pub fn answer(self, answer: ApproverAnswer) -> Self {
        self.approver(move |_| answer.clone())
    }

    /// Sets the approver that answers questions.
    #[must_use]
    pub fn approver(
        mut self,
        approver: impl Fn(&ApproverQuestion) -> ApproverAnswer + Send + Sync + 'static,
    ) -> Self {
        self.approver = Arc::new(approver);
        self
    }

    /// Gives the agents web access and allows it in the policy.
    #[must_use]
    pub fn web(mut self, web: WebAccess) -> Self {
        self.policy.network = true;
        self.web = Some(web);
        self
    }

    /// Returns the journal's disk, to plan failures or to look at it afterwards.
    #[must_use]
    pub fn disk(&self) -> MemoryDisk {
        self.disk.clone()
    }

    /// Calls `watch` with every event, so that a test can act at an exact event.
    #[must_use]
    pub fn on_event(
        mut self,
        watch: impl FnMut(&Event, &mpsc::Sender<ControlCommand>) + 'static,
    ) -> Self {
        self.watch = Some(Box::new(watch));
        self
    }

    /// Delegates the tasks and returns the trace of the run.
    pub async fn delegate(self) -> RunTrace {
        self.run_engine(None).await
    }

    /// Resumes the run of `journal` on a disk of `capacity` bytes.
    pub async fn resume_within(mut self, journal: &[u8], capacity: usize) -> RunTrace {
        self.disk = MemoryDisk::with_content(journal);
        self.disk.set_capacity(Some(capacity));
        self.resume_journal(journal, ResumeRequest::default()).await
    }

    /// Resumes the run of `journal` and returns its trace.
    pub async fn resume(mut self, journal: &[u8], request: ResumeRequest) -> RunTrace {
        self.disk = MemoryDisk::with_content(journal);
        self.resume_journal(journal, request).await
    }

    async fn resume_journal(self, journal: &[u8], request: ResumeRequest) -> RunTrace {
        let first = journal.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let first: serde_json::Value = serde_json::from_slice(first).expect("a first record");
        let run = first["event"]["run"].as_str().expect("a run's beginning");
        self.run_engine(Some((run.parse().expect("a run's id"), request))).await
    }

    async fn run_engine(self, past: Option<(RunId, ResumeRequest)>) -> RunTrace {
        let workdir = self.tree();
        let script = self.script;
        let scripted = || Arc::new(ScriptedModel::from_toml(&script).expect("a script")) as _;
        let model = RecordingModel::new(self.model.unwrap_or_else(scripted));
        let setup = EngineSetup {
            policy: self.policy,
            model: Arc::new(model.clone()),
            workdir: workdir.clone(),
            system: self.system,
            opener: None,
            web: self.web,
            tools: self.tools,
            secrets: Vec::new(),
            version: "test".into(),
            workers: None,
        };
        let mut engine =
            Engine::new(setup).expect("an engine").with_sources(self.wall, next_random);
        let home = self.home.as_ref().map(TempDir::path);
        let user =
            UserFolders::default_folders(home, home.map(|home| home.join(".config")).as_deref());
        let roster = find_agents(&workdir, &user).expect("a roster");
        engine = engine.with_agents(roster.agents, &self.models_allowed);
        engine = engine.with_efforts(self.efforts);
        if let Some(agent) = self.default_agent {
            engine = engine.with_default_agent(agent);
        }
        if let Some(assignment) = self.assignment {
            engine = engine.with_assignment(assignment);
        }
        if let Some(spaces) = self.spaces {
            engine = engine.with_spaces(spaces);
        }
        if self.guided {
            engine = engine.with_guidance();
        }
        if let Some(guard) = self.guard {
            engine = engine.with_guard(guard);
        }
        let briefs = engine.briefs(&self.tasks);
        let (sender, receiver) = self.control;
        let events = Rc::new(RefCell::new(Vec::new()));
        let recalled = Rc::new(Cell::new(0));
        let listener = EventRecorder {
            events: Rc::clone(&events),
            recalled: Rc::clone(&recalled),
            watch: self.watch,
            control: sender,
        };
        let host = RunHost {
            storage: Storage::Memory(self.disk),
            approver: self.approver,
            reporters: vec![Box::new(listener)],
            narrator: Rc::new(TaskEndLines(Rc::clone(&events))),
            control: receiver,
        };
        let result = match (past, self.goal) {
            (Some((run, request)), _) => engine.resume(run, request, host).await,
            (None, Some(text)) => {
                let (agent, system) = (self.lead, "You lead.".to_owned());
                engine.run(Goal { agent, system, text }, host).await
            }
            (None, None) => engine.delegate(briefs, self.concurrency, host).await,
        };
        let events = events.take();
        let requests = model.requests();
        RunTrace { events, recalled: recalled.get(), result, requests }
    }
}

/// Reports the end of each task to the parent agent, one line each.
struct TaskEndLines(Rc<RefCell<Vec<(Timestamp, Event)>>>);

impl Narrator for TaskEndLines {
    fn results(&self, parent: SessionId, call: u32, _form: ReturnFormat) -> String {
        let events = self.0.borrow();
        let of_call = |event: &Event| match event {
            Event::Granted(grant) if grant.parent == parent && grant.call == call => {
                Some((grant.session, grant.brief.label.to_string()))
            }
            _ => None,
        };
        let tasks: Vec<_> = events.iter().filter_map(|(_, event)| of_call(event)).collect();
        let end = |session: SessionId| {
            events.iter().find_map(|(_, event)| match event {
                Event::Ended { session: of, outcome, .. } if *of == session => Some(outcome.word()),
                _ => None,
            })
        };
        let line = |(session, label): &(SessionId, String)| {
            format!("{label}: {}", end(*session).unwrap_or("not ended"))
        };
        tasks.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}

impl RunTrace {
    /// Returns how the run ended.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        self.result.as_ref().expect("the run to end").outcome
    }

    /// Returns how each task ended, in the order of the ends: `label: outcome CODE`.
    #[must_use]
    pub fn ends(&self) -> Vec<String> {
        let name = |session: SessionId| self.label(session).unwrap_or_else(|| session.to_string());
        let ends = self.events.iter().filter_map(|(_, event)| match event {
            Event::Ended { session, outcome, reason } => {
                let code =
                    reason.as_ref().map(|reason| format!(" {}", reason.code)).unwrap_or_default();
                Some(format!("{}: {}{code}", name(*session), outcome.word()))
            }
            Event::Refused { label, reason, .. } => {
                Some(format!("{label}: refused {}", reason.code))
            }
            _ => None,
        });
        ends.filter(|end| !end.starts_with("sess_")).collect()
    }

    /// Returns the label of a session.
    #[must_use]
    pub fn label(&self, session: SessionId) -> Option<String> {
        self.events.iter().find_map(|(_, event)| match event {
            Event::Granted(grant) if grant.session == session => {
                Some(grant.brief.label.to_string())
            }
            _ => None,
        })
    }

    /// Returns the one request the model was sent.
    #[must_use]
    pub fn single_request(&self) -> &ModelRequest {
        assert_eq!(self.requests.len(), 1, "expected one request");
        &self.requests[0]
    }

    /// Returns the events of a kind, by the name they have in the journal.
    #[must_use]
    pub fn kinds(&self) -> Vec<String> {
        let kind = |event: &Event| {
            let value = serde_json::to_value(event).expect("an event is JSON");
            value["type"].as_str().unwrap_or_default().to_owned()
        };
        self.events.iter().map(|(_, event)| kind(event)).collect()
    }
}

struct EventRecorder {
    events: Rc<RefCell<Vec<(Timestamp, Event)>>>,
    recalled: Rc<Cell<usize>>,
    watch: Option<EventHook>,
    control: mpsc::Sender<ControlCommand>,
}

impl Reporter for EventRecorder {
    fn report(&mut self, at: Timestamp, _wall_ms: u64, event: &Event) {
        self.events.borrow_mut().push((at, event.clone()));
        if let Some(watch) = &mut self.watch {
            watch(event, &self.control);
        }
    }

    fn replay(&mut self, at: Timestamp, _wall_ms: u64, event: &Event) {
        self.events.borrow_mut().push((at, event.clone()));
        self.recalled.set(self.recalled.get() + 1);
    }
}

/// Counts instead of drawing; unique within a process, which is all a run needs.
fn next_random() -> Result<[u8; 6], getrandom::Error> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let mut bytes = [0; 6];
    let mut rest = number;
    for byte in bytes.iter_mut().rev() {
        *byte = u8::try_from(rest % 36).unwrap_or(0);
        rest /= 36;
    }
    Ok(bytes)
}
