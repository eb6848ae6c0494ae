//! Runs that are decided and recorded by another runtime, such as a cluster, while processes like this one follow them.
//!
//! A front end mirrors the events of its run into the journal of an ordinary run directory and asks the questions to
//! the person. A worker performs the effects that it is asked to perform. Both fold the same events as a local run, and
//! what a local run would decide itself is sent to the runtime as a [`SentCommand`]. Start at [`RemoteRuntime`] for a
//! front end, at [`crate::Engine::perform_for`] for a worker.
//!
//! Invariant: a process that follows a run never decides anything about it.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;

use adjutant_core::tree::EffectKey;
use adjutant_core::{Command, Effect, Event, RunId, Timestamp};
use adjutant_store::JournalRecord;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};

use crate::control::ControlRefusal;

/// The events of one decision, as the runtime recorded them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecordedDecision {
    /// The time in the run.
    pub at: Timestamp,
    /// The wall clock of the process that sent the command, in Unix milliseconds. For output only.
    pub wall_ms: u64,
    /// The events, which take effect together.
    pub events: Vec<Event>,
}

/// What a runtime tells a process that follows a run.
#[derive(Debug)]
pub enum RunUpdate {
    /// Further decisions of the run, in order and without gaps.
    Recorded(Vec<RecordedDecision>),
    /// Perform an effect, once all decisions up to its own were sent.
    Perform {
        /// The effect.
        effect: Box<Effect>,
        /// Whether a process that has ended may have begun it.
        is_repeated: bool,
        /// Told when the effect is no longer due: its result is recorded, or it became pointless.
        done: oneshot::Sender<()>,
    },
    /// The run has ended, and all of its decisions were told.
    Over,
    /// The run can no longer be followed, for this reason.
    Lost(String),
}

/// A command for the runtime.
#[derive(Debug)]
pub struct SentCommand {
    /// The time in the run, as far as the sender knows it: never later than the runtime's own.
    pub at: Timestamp,
    /// The wall clock of the sender in Unix milliseconds.
    pub wall_ms: u64,
    /// The command.
    pub command: Command,
    /// Told whether the run carried it out; absent for results of effects, whose refusal nobody could act on.
    pub answer: Option<oneshot::Sender<Result<(), ControlRefusal>>>,
}

/// The connection of a process that follows a run.
#[derive(Debug)]
pub struct RunLink {
    /// Takes commands. Unbounded, because the sender must not wait: it holds at most one command per effect that this
    /// process performs, and one signal per second and agent.
    pub commands: mpsc::UnboundedSender<SentCommand>,
    /// Tells what was recorded and what to perform.
    pub updates: mpsc::Receiver<RunUpdate>,
}

/// A run to be started on a runtime, or to be continued there.
#[derive(Clone, Debug)]
pub struct RemoteOpening {
    /// The run.
    pub run: RunId,
    /// Its first commands, or the one that continues it. This process has tried them.
    pub commands: Vec<Command>,
    /// The time in the run.
    pub at: Timestamp,
    /// The wall clock in Unix milliseconds.
    pub wall_ms: u64,
    /// The user's directory.
    pub workdir: PathBuf,
}

/// Connects to a run.
pub type LinkFuture = Pin<Box<dyn Future<Output = Result<RunLink, String>>>>;

/// Where runs are decided and recorded instead of in this process.
pub trait RemoteRuntime {
    /// Starts a run.
    fn start(&self, opening: RemoteOpening) -> LinkFuture;

    /// Continues a run that has ended, and follows it from its first event on. This machine has mirrored the first
    /// `mirrored` events before, with what belongs to them.
    fn resume(&self, opening: RemoteOpening, mirrored: u64) -> LinkFuture;

    /// Follows a run from its first event on. See [`Self::resume`] for `mirrored`.
    fn follow(&self, run: RunId, workdir: PathBuf, mirrored: u64) -> LinkFuture;

    /// Returns the address, which the run's directory keeps.
    fn address(&self) -> String;

    /// Returns the tools that commands see on every machine there; `None` if that differs or is not known.
    fn commands_see(&self) -> Option<String>;
}

/// What a process does for the run that it follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FollowerRole {
    /// Mirrors the events into a journal and asks the questions to a person.
    FrontEnd,
    /// Performs the effects that it is asked to perform.
    Worker,
}

/// Who decides and records the commands of a run.
pub(crate) enum RunAuthority {
    /// This process.
    Here,
    /// A runtime that this process follows.
    Remote(RemoteRun),
}

/// The state of following a run.
pub(crate) struct RemoteRun {
    pub(crate) link: RunLink,
    pub(crate) role: FollowerRole,
    /// How many events to skip: the mirror has them from an earlier process, and they come again.
    pub(crate) already_mirrored: u64,
    /// The effects that this process was asked to perform, with those who wait for their end.
    pub(crate) awaited: BTreeMap<EffectKey, Vec<oneshot::Sender<()>>>,
}

/// Returns how many of these records were decided by the runtime. Commands such as `merge` add others afterwards.
pub(crate) fn count_decided(records: &[JournalRecord<Event>]) -> u64 {
    records.iter().filter(|record| !record.event.is_added_afterwards()).count() as u64
}

impl RemoteRun {
    pub(crate) const fn new(link: RunLink, role: FollowerRole, already_mirrored: u64) -> Self {
        Self { link, role, already_mirrored, awaited: BTreeMap::new() }
    }
}
