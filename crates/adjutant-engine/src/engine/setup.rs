//! What a front end brings: the parts of a run ([`EngineSetup`]), who it deals with ([`RunHost`]), what it is to
//! achieve ([`Goal`]).

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use adjutant_core::schema::ReturnForm;
use adjutant_core::{AgentName, Policy, SessionId};
use adjutant_model::Model;
use adjutant_tools::{Tool, Web};
use tokio::sync::mpsc;

use crate::briefs::brief_builder::ModelOpener;
use crate::engine::storage::Storage;
use crate::runner::effects::{Approver, ApproverAnswer};
use crate::runner::{ControlCommand, Narrator, Reporter};

/// What a run is made of.
pub struct EngineSetup {
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

impl EngineSetup {
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

/// Who and what a run deals with outside the engine.
pub struct RunHost {
    /// Where it is written.
    pub storage: Storage,
    /// Who is asked before a batch.
    pub approver: Approver,
    /// Who hears of every event.
    pub reporters: Vec<Box<dyn Reporter>>,
    /// Who puts results into words for a parent agent.
    pub narrator: Rc<dyn Narrator>,
    /// Where orders come from.
    pub control: mpsc::Receiver<ControlCommand>,
}

impl RunHost {
    /// Runs without a person: every batch is approved, nobody gives orders, and a parent agent is
    /// told only that its tasks have ended. The limits of the policy are all that bounds it.
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

    /// Adds someone who hears of every event.
    #[must_use]
    pub fn with_reporter(mut self, reporter: impl Reporter + 'static) -> Self {
        self.reporters.push(Box::new(reporter));
        self
    }
}

struct TerseNarrator;

impl Narrator for TerseNarrator {
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
