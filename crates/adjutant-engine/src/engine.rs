//! Setting up a run: from tasks to briefs, from briefs to a preview or to the real thing.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use adjutant_core::schema::TaskSpec;
use adjutant_core::{
    Brief, Command, ContextFile, Event, Found, IllegalEvent, Outcome, Policy, Refusal, Rights,
    RunId, SessionId, Task, Timestamp, Tree,
};
use adjutant_model::Model;
use adjutant_store::{FileError, HomeError, JournalError, LockError, OpenError};
use adjutant_tools::{
    CONTEXT_CAP_BYTES, Caps, ContextState, Masker, Toolbox, Web, load_context, render_context,
};
use adjutant_workspace::{PathError, Root};
use tokio::sync::mpsc;

use crate::clock::{Clock, Wall, wall_now};
use crate::execute::Approver;
use crate::ids::{Chance, system};
use crate::opening::{Opened, Storage};
use crate::prompt::{agent_name, system_prompt};
use crate::runner::{Control, Reporter, Runner, Shop};

/// What a run is made of.
pub struct Setup {
    /// The limits.
    pub policy: Policy,
    /// What answers the agents.
    pub model: Arc<dyn Model>,
    /// The tree the agents may look at.
    pub workdir: PathBuf,
    /// What replaces the built-in base prompt.
    pub system: Option<String>,
    /// Texts that are masked wherever a tool shows them: the engine's own keys.
    pub secrets: Vec<String>,
    /// The version that is written into the journal.
    pub version: String,
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
    /// A thread cannot be started.
    #[error("cannot start a thread")]
    Thread(#[from] io::Error),
    /// The system gives no randomness for ids.
    #[error("the system gives no randomness")]
    Chance(#[from] getrandom::Error),
    /// A defect of ours.
    #[error("internal error: {0}")]
    Illegal(#[from] IllegalEvent),
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

/// Everything needed to run, before anything is run.
pub struct Engine {
    policy: Policy,
    model: Arc<dyn Model>,
    toolbox: Toolbox,
    masker: Masker,
    workdir: PathBuf,
    system: Option<String>,
    version: String,
    wall: Wall,
    chance: Chance,
}

impl Engine {
    /// Opens the working tree and keeps the parts.
    pub fn new(setup: Setup) -> Result<Self, EngineError> {
        let open = |path: &Path| {
            Root::open(path)
                .map_err(|source| EngineError::Workdir { path: path.to_owned(), source })
        };
        let masker = Masker::new(setup.secrets);
        let toolbox =
            Toolbox::new(open(&setup.workdir)?, Caps::default()).with_masker(masker.clone());
        Ok(Self {
            policy: setup.policy,
            model: setup.model,
            toolbox,
            masker,
            workdir: setup.workdir,
            system: setup.system,
            version: setup.version,
            wall: wall_now,
            chance: system,
        })
    }

    /// Adds the tools of the web; a policy without `network` still offers and permits none of them.
    #[must_use]
    pub fn with_web(self, web: Web) -> Self {
        Self { toolbox: self.toolbox.with_web(web), ..self }
    }

    /// Replaces the wall clock and the source of ids; for tests.
    #[must_use]
    pub fn with_sources(self, wall: Wall, chance: Chance) -> Self {
        Self { wall, chance, ..self }
    }

    /// Turns tasks into briefs, reading their context files.
    #[must_use]
    pub fn briefs(&self, tasks: &[TaskSpec]) -> Vec<Brief> {
        tasks.iter().map(|task| self.brief(task)).collect()
    }

    fn brief(&self, task: &TaskSpec) -> Brief {
        let mut brief =
            Brief::new(task.label.clone(), agent_name(self.policy.preset), &task.prompt);
        brief.max_output_tokens = task.max_output_tokens;
        brief.model = Some(self.model.spec().clone());
        let mut loaded = Vec::new();
        for path in &task.context {
            // One at a time, so that an unusable file is named and the others are still known.
            let found =
                match load_context(self.toolbox.root(), &[path], CONTEXT_CAP_BYTES, &self.masker) {
                    Ok(files) => {
                        let missing =
                            files.iter().any(|file| matches!(file.state, ContextState::Missing));
                        loaded.extend(files);
                        if missing { Found::Missing } else { Found::Loaded }
                    }
                    Err(error) => Found::Unusable(problem(&error)),
                };
            brief.context.push(ContextFile { path: path.clone(), found });
        }
        if !loaded.is_empty() {
            brief.opening = Some(format!("{}\n{}", render_context(&loaded), task.prompt));
        }
        brief
    }

    /// Returns what the core would answer, without doing any of it.
    pub fn preview(
        &self,
        briefs: Vec<Brief>,
        concurrency: Option<u64>,
    ) -> Result<Preview, EngineError> {
        let run = RunId::new((self.wall)() / 1000, (self.chance)()?);
        let mut tree = Tree::default();
        let mut events = Vec::new();
        for command in self.opening(run, briefs, concurrency)? {
            events = tree.decide(Timestamp::ZERO, command)?;
            for event in &events {
                tree.evolve(Timestamp::ZERO, event)?;
            }
        }
        Ok(Preview { events })
    }

    /// Delegates `briefs` and waits for their ends.
    ///
    /// A call that is refused as a whole leaves no trace; everything else is recorded.
    pub async fn delegate(
        self,
        storage: Storage,
        briefs: Vec<Brief>,
        concurrency: Option<u64>,
        approver: Approver,
        reporters: Vec<Box<dyn Reporter>>,
        control: mpsc::Receiver<Control>,
    ) -> Result<Finished, EngineError> {
        self.preview(briefs.clone(), concurrency)?;
        let Opened { id, folder, journal, durable, lock } =
            storage.open((self.wall)() / 1000, self.chance)?;
        let opening = self.opening(id, briefs, concurrency)?;
        let shop = Shop { model: self.model, toolbox: Arc::new(self.toolbox), approver };
        let runner =
            Runner::new(Clock::start(self.wall), journal, durable, control, shop, reporters);
        let outcome = runner.run(opening).await?;
        drop(lock);
        Ok(Finished { run: id, outcome, folder: folder.map(|folder| folder.path().to_owned()) })
    }

    /// Returns the commands every run of this engine begins with.
    fn opening(
        &self,
        run: RunId,
        briefs: Vec<Brief>,
        concurrency: Option<u64>,
    ) -> Result<Vec<Command>, EngineError> {
        let policy = &self.policy;
        let rights = Rights { tools: policy.tools.clone(), network: policy.network };
        let usable = rights.usable_tools();
        let mut tools = self.toolbox.specs();
        tools.retain(|spec| usable.contains(&spec.name));
        let offered = adjutant_core::ToolSet::new(tools.iter().map(|tool| tool.name.as_str()));
        let begin = Command::Begin {
            run,
            agent: adjutant_core::AgentName::new("delegate"),
            goal: String::new(),
            workdir: self.workdir.display().to_string(),
            policy: Box::new(policy.clone()),
            version: self.version.clone(),
        };
        let define = Command::Define {
            agent: agent_name(policy.preset),
            system: system_prompt(self.system.as_deref(), policy, &offered),
            tools,
            rights,
        };
        let tasks = briefs
            .into_iter()
            .map(|brief| Ok(Task { session: self.new_session(run)?, brief }))
            .collect::<Result<Vec<_>, getrandom::Error>>()?;
        Ok(vec![
            begin,
            define,
            Command::Delegate { parent: run.root_session(), tasks, concurrency },
        ])
    }

    /// Draws a session id; the chance that two of a run collide is one in two thousand million.
    fn new_session(&self, run: RunId) -> Result<SessionId, getrandom::Error> {
        loop {
            let session = SessionId::new((self.wall)() / 1000, (self.chance)()?);
            if session != run.root_session() {
                return Ok(session);
            }
        }
    }
}

/// Returns an error and its cause as one fragment; the path is said by the one who shows it.
fn problem(error: &adjutant_tools::ContextError) -> String {
    let source = std::error::Error::source(error);
    source.map_or_else(|| error.to_string(), ToString::to_string)
}
