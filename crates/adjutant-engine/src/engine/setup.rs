//! What a front end provides for a run: its parts ([`EngineSetup`]), the callbacks and channels to the outside
//! ([`RunHost`]) and the goal ([`Goal`]).

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use adjutant_core::schema::ReturnFormat;
use adjutant_core::{AgentName, Policy, SessionId};
use adjutant_model::Model;
use adjutant_tools::{CustomTool, WebAccess};
use tokio::sync::mpsc;

use crate::briefs::brief_builder::ModelOpener;
use crate::engine::storage::Storage;
use crate::runner::effects::{Approver, ApproverAnswer};
use crate::runner::{ControlCommand, Narrator, Reporter};
use crate::workers::WorkerHost;

/// The parts a run is made of.
pub struct EngineSetup {
    /// The limits.
    pub policy: Policy,
    /// The default model of the agents.
    pub model: Arc<dyn Model>,
    /// Opens another model that a task asks for.
    pub opener: Option<ModelOpener>,
    /// The working tree that agents read.
    pub workdir: PathBuf,
    /// Network access of the web tools; absent if no agent may use them.
    pub web: Option<WebAccess>,
    /// Tools of the embedding program; agents get those that the policy's `tools` name.
    pub tools: Vec<Arc<dyn CustomTool>>,
    /// Replaces the built-in base prompt.
    pub system: Option<String>,
    /// Texts to mask in the output of tools, such as the engine's API keys.
    pub secrets: Vec<String>,
    /// The program version to write into the journal.
    pub version: String,
    /// Starts external agents; absent if there are none.
    pub workers: Option<Arc<dyn WorkerHost>>,
}

impl EngineSetup {
    /// Returns a setup with the required parts: no network, no other models, the built-in prompt.
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
            workers: None,
        }
    }
}

/// The callbacks and channels by which a run reaches its front end, and its storage.
pub struct RunHost {
    /// Where the journal is written.
    pub storage: Storage,
    /// Asked before a batch of tasks starts.
    pub approver: Approver,
    /// Called with every durable event.
    pub reporters: Vec<Box<dyn Reporter>>,
    /// Formats the results of a call for the parent agent.
    pub narrator: Rc<dyn Narrator>,
    /// Receives commands from the front end, such as a cancellation.
    pub control: mpsc::Receiver<ControlCommand>,
}

impl RunHost {
    /// Returns a host without a person: every batch is approved, there are no control commands, and a parent
    /// agent is told only that its tasks have ended. Only the policy limits the run.
    #[must_use]
    pub fn unattended(storage: Storage) -> Self {
        let (_, control) = mpsc::channel(1);
        Self {
            storage,
            approver: Arc::new(|_| ApproverAnswer::Yes),
            reporters: Vec::new(),
            narrator: Rc::new(TerseNarrator),
            control,
        }
    }

    /// Adds a reporter.
    #[must_use]
    pub fn with_reporter(mut self, reporter: impl Reporter + 'static) -> Self {
        self.reporters.push(Box::new(reporter));
        self
    }
}

struct TerseNarrator;

impl Narrator for TerseNarrator {
    fn results(&self, _parent: SessionId, _call: u32, _form: ReturnFormat) -> String {
        "The tasks have ended.".to_owned()
    }
}

/// What the root agent is to achieve.
#[derive(Clone)]
pub struct Goal {
    /// The root agent's name.
    pub agent: AgentName,
    /// Its system prompt.
    pub system: String,
    /// The goal. The project's instructions for agents are quoted before it.
    pub text: String,
}
