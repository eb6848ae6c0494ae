//! What processes and the server exchange, and what a run keeps on the server.
//!
//! Invariant: a stored [`DecisionBatch`] is never changed, so a copy of it is as good as the original.

use std::convert::Infallible;
use std::fmt;

use adjutant_core::{Command, Effect, RunId, SessionId, Timestamp};
use adjutant_engine::portable::PortableBase;
use adjutant_engine::{ControlRefusal, RecordedDecision};
use bytes::Bytes;
use restate_sdk::prelude::HandlerError;
use restate_sdk::serde::PayloadMetadata;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The service of runs: one virtual object per run.
pub(crate) const RUN_SERVICE: &str = "AdjutantRun";
/// The service that knows the workers: one virtual object.
pub(crate) const CLUSTER_SERVICE: &str = "AdjutantCluster";
/// The key of that object.
pub(crate) const CLUSTER_KEY: &str = "cluster";

/// Returns the name of the service of one worker.
pub(crate) fn worker_service(worker: &str) -> String {
    format!("AdjutantWorker-{worker}")
}

/// The only part of a run's state that its object reads for each input.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RunHead {
    /// The number of batches.
    pub(crate) batches: u64,
    /// The due times of the ticks that were sent and have not arrived.
    pub(crate) ticks: Vec<Timestamp>,
    /// Whether the run has ended.
    pub(crate) has_ended: bool,
    /// The time in the run of the last input, also if that changed nothing else.
    #[serde(default)]
    pub(crate) latest: Timestamp,
}

/// Everything that one input changed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct DecisionBatch {
    /// The decisions, in order.
    pub(crate) decisions: Vec<RecordedDecision>,
    /// The new worker of sessions. `None` takes a session from its worker: it gets one when it has something to perform and
    /// a worker for it is live.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) placed: Vec<(SessionId, Option<String>)>,
    /// What the agents of the run start from; only in the first batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) base: Option<Box<StoredBase>>,
}

/// What the agents of a run start from, if it is in the cluster's store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredBase {
    /// The address of the store.
    pub store: String,
    /// The state of the user's checkout.
    pub state: PortableBase,
}

/// An input of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RunInput {
    /// Starts the run.
    Open {
        /// Its first commands.
        commands: Vec<Command>,
        /// What its agents start from, if it is in a store.
        base: Option<Box<StoredBase>>,
    },
    /// Continues the run, which has ended.
    Resume(Box<TimedCommand>),
    /// Further commands.
    Commands(Vec<TimedCommand>),
    /// A deadline may have passed.
    Tick { due: Timestamp },
    /// A worker joined or was lost.
    WorkersChanged(WorkerChange),
}

/// What changed about the workers of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WorkerChange {
    /// A worker came, or its process was started again.
    Joined,
    /// The worker of this name sends no heartbeats any more, or has left.
    Lost(String),
}

/// A command with the time in the run at which it was sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct TimedCommand {
    pub(crate) at: Timestamp,
    pub(crate) command: Command,
}

/// An input with what its sender knows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Submission {
    /// The wall clock of the sender in Unix milliseconds.
    pub(crate) wall_ms: u64,
    /// The number of batches that the sender has.
    pub(crate) known: u64,
    /// The worker that sends it; `None` for a front end and for the run itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) worker: Option<String>,
    pub(crate) input: RunInput,
}

/// What became of a submission.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct SubmissionResult {
    /// The number of batches now.
    pub(crate) batches: u64,
    /// The last batch, if the sender has all others.
    pub(crate) last: Option<DecisionBatch>,
    /// Why each command was refused; `None` if it was carried out.
    pub(crate) refusals: Vec<Option<ControlRefusal>>,
}

/// Asks for batches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BatchQuery {
    /// The number of the first.
    pub(crate) from: u64,
    /// How long to wait if there is none yet.
    pub(crate) wait_ms: u64,
}

/// Some batches of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct BatchPage {
    pub(crate) batches: Vec<DecisionBatch>,
    /// How many the run has.
    pub(crate) total: u64,
}

/// A request to a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PerformRequest {
    pub(crate) run: RunId,
    /// How many batches there were when the effect became due.
    pub(crate) batches: u64,
    pub(crate) effect: Effect,
    /// Whether another worker may have begun it.
    pub(crate) is_repeated: bool,
}

impl PerformRequest {
    /// Returns whether a tool of an agent may change something, so that it must not be begun twice.
    pub(crate) const fn must_not_repeat(&self) -> bool {
        matches!(self.effect, Effect::Tool { .. } | Effect::Write { .. })
    }
}

/// A sign of life of a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Heartbeat {
    /// The worker's name.
    pub(crate) worker: String,
    /// Identifies its process.
    pub(crate) instance: String,
    pub(crate) abilities: ClusterWorkerAbilities,
    /// Whether it ends when its sessions have ended.
    pub(crate) is_leaving: bool,
}

/// What a worker has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterWorkerAbilities {
    /// The version of Adjutant.
    pub version: String,
    /// The host on which it runs.
    pub host: String,
    /// The level of its sandbox; `None` if it has none, so that it cannot work for agents that write.
    #[serde(default)]
    pub sandbox: Option<String>,
    /// The toolchains that commands of agents see.
    #[serde(default)]
    pub toolchains: Vec<String>,
    /// The tools that commands see, such as `cargo`.
    #[serde(default)]
    pub tools: Vec<String>,
    /// The same with versions, as agents are told, such as `cargo 1.95, python 3.11`.
    #[serde(default)]
    pub commands_see: Option<String>,
    /// The providers of models that it can ask.
    #[serde(default)]
    pub providers: Vec<String>,
    /// The store in which it keeps work; `None` if it works in directories that all machines share.
    #[serde(default)]
    pub store: Option<String>,
}

impl ClusterWorkerAbilities {
    /// Returns what an agent needs and this worker lacks.
    pub(crate) fn lacking(&self, needs: &AgentNeeds) -> Option<MissingAbility> {
        let provider = needs.provider.as_ref().filter(|it| !self.providers.contains(it));
        let tool = || needs.tools.iter().find(|it| !self.tools.contains(it));
        let sandbox = needs.sandbox && self.sandbox.is_none();
        let provider = provider.cloned().map(MissingAbility::Provider);
        provider
            .or_else(|| tool().cloned().map(MissingAbility::Tool))
            .or_else(|| sandbox.then_some(MissingAbility::Sandbox))
    }
}

/// What a worker must have to do the work of an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AgentNeeds {
    /// The provider of its model, if its name says it.
    pub(crate) provider: Option<String>,
    /// The tools that its commands need.
    pub(crate) tools: Vec<String>,
    /// Whether it writes, or runs commands.
    pub(crate) sandbox: bool,
}

/// Something that a worker does not have.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum MissingAbility {
    /// A key for this provider of models.
    Provider(String),
    /// A tool.
    Tool(String),
    /// A sandbox.
    Sandbox,
}

impl fmt::Display for MissingAbility {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Provider(provider) => write!(f, "a key for models of {provider}"),
            Self::Tool(tool) => write!(f, "the tool {tool}"),
            Self::Sandbox => f.write_str("a sandbox, which agents that write need"),
        }
    }
}

/// Returns the provider in the name of a model.
pub(crate) fn provider_of(model: &str) -> Option<String> {
    model.split_once(['/', ':']).map(|(provider, _)| provider.to_owned())
}

/// A live worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveClusterWorker {
    /// Its name.
    pub name: String,
    /// What it has.
    pub abilities: ClusterWorkerAbilities,
}

/// An argument of a handler that may come from a newer version. The SDK would refuse one that it cannot read for good;
/// with this the handler fails for now, and the call waits until a newer worker takes it.
pub(crate) struct RetryableInput<T>(Result<T, String>);

impl<T> RetryableInput<T> {
    /// Returns the argument.
    pub(crate) fn read(self) -> Result<T, HandlerError> {
        self.0.map_err(|reason| UnreadableInput { reason }.into())
    }
}

/// This version does not understand an argument.
#[derive(Debug, thiserror::Error)]
#[error("this version of Adjutant does not understand the call: {reason}")]
struct UnreadableInput {
    reason: String,
}

impl<T: Serialize> restate_sdk::serde::Serialize for RetryableInput<T> {
    type Error = serde_json::Error;

    fn serialize(&self) -> Result<Bytes, Self::Error> {
        match &self.0 {
            Ok(value) => serde_json::to_vec(value).map(Bytes::from),
            Err(reason) => Err(serde::ser::Error::custom(reason)),
        }
    }
}

impl<T: DeserializeOwned> restate_sdk::serde::Deserialize for RetryableInput<T> {
    type Error = Infallible;

    fn deserialize(bytes: &mut Bytes) -> Result<Self, Self::Error> {
        Ok(Self(serde_json::from_slice(bytes).map_err(|error| error.to_string())))
    }
}

impl<T> PayloadMetadata for RetryableInput<T> {}

impl<T> From<T> for RetryableInput<T> {
    fn from(value: T) -> Self {
        Self(Ok(value))
    }
}

/// Returns the session to which an effect belongs; `None` for questions, which a front end asks, and for the end.
pub(crate) const fn session_of(effect: &Effect) -> Option<SessionId> {
    match effect {
        Effect::Model { session, .. }
        | Effect::Prompt { session, .. }
        | Effect::ForwardCall { session, .. }
        | Effect::Tool { session, .. }
        | Effect::PrepareWrite { session, .. }
        | Effect::Write { session, .. }
        | Effect::Fetch { session, .. }
        | Effect::Delegate { session, .. }
        | Effect::ReturnResults { session, .. }
        | Effect::Verify { session, .. }
        | Effect::UpdateTaskList { session, .. }
        | Effect::MakeWorkspace { session, .. }
        | Effect::CommitWork { session, .. }
        | Effect::Markers { session, .. }
        | Effect::Merge { session, .. }
        | Effect::Check { session, .. }
        | Effect::CollectHandover { session, .. }
        | Effect::StopModel { session }
        | Effect::Stop { session } => Some(*session),
        Effect::AskApproval { .. } | Effect::AskDomain { .. } | Effect::Close => None,
    }
}
