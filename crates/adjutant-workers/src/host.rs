//! Starts workers in their workspaces: the engine's `WorkerHost`.
//!
//! Start at [`Workers::start`](WorkerHost::start). `WorkerSession` is one running worker: its process, its gateway and
//! its ACP session. A worker that is told to stop is asked to cancel first, and killed a moment later.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use adjutant_core::{ModelSpec, WorkerPlace};
use adjutant_engine::{
    RunningWorker, StartedWorker, WorkerAnswer, WorkerFuture, WorkerHost, WorkerStart,
};
use adjutant_model::ModelSources;
use adjutant_model::gateway::Upstream;
use adjutant_model::wire::Wire;
use tokio::sync::watch;

use crate::acp::{AcpClient, SessionPlan};
use crate::definition::{BUILT_IN, PlaceholderValues, WorkerDefinition};
use crate::find::{FoundWorker, WorkerPaths};
use crate::gateway::{Gateway, ServedModel, is_set};
use crate::process::{ProcessKiller, ProcessPlan, start_process};

/// How long a cancelled worker may take to end its turn before it is killed.
const CANCEL_TIME: Duration = Duration::from_millis(1_200);

/// How long model calls may go on after the answer to a prompt, such as a title that is still being written.
const SETTLE_TIME: Duration = Duration::from_secs(2);

/// The most output tokens that a worker is told it may ask for; the gateway lowers them further.
const TOLD_OUTPUT: u64 = 16_384;

/// The workers of a machine.
pub struct Workers {
    definitions: BTreeMap<String, WorkerDefinition>,
    paths: WorkerPaths,
    sources: ModelSources,
}

/// A worker, and whether it can be used here.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerState {
    /// Its definition.
    pub definition: WorkerDefinition,
    /// The installation, or why there is none.
    pub found: Result<FoundWorker, String>,
}

impl Workers {
    /// Returns the built-in workers and those that a person configured, which replace built-in ones of the same name.
    #[must_use]
    pub fn new(
        configured: impl IntoIterator<Item = WorkerDefinition>,
        paths: WorkerPaths,
        sources: ModelSources,
    ) -> Self {
        let built_in = BUILT_IN.iter().filter_map(|name| WorkerDefinition::built_in(name));
        let definitions = built_in.chain(configured).map(|it| (it.name.clone(), it)).collect();
        Self { definitions, paths, sources }
    }

    /// Returns all workers, and whether each can be used here. Starts nothing.
    #[must_use]
    pub fn list(&self) -> Vec<WorkerState> {
        let state = |definition: &WorkerDefinition| WorkerState {
            definition: definition.clone(),
            found: self.paths.find(definition),
        };
        self.definitions.values().map(state).collect()
    }

    fn definition(&self, name: &str) -> Result<&WorkerDefinition, String> {
        self.definitions.get(name).ok_or_else(|| {
            let known: Vec<&str> = self.definitions.keys().map(String::as_str).collect();
            format!("there is no worker of this name; known are {}", known.join(", "))
        })
    }

    fn upstream(
        &self,
        definition: &WorkerDefinition,
        model: &ModelSpec,
    ) -> Result<Upstream, String> {
        let upstream = open_upstream(model, &self.sources)?;
        if definition.wires.iter().any(|wire| upstream.serves(*wire)) {
            return Ok(upstream);
        }
        let spoken: Vec<&str> = definition.wires.iter().map(|wire| api_name(*wire)).collect();
        Err(format!(
            "it speaks {}, and {} is served over {}; choose another model with --model",
            spoken.join(" or "),
            model.name,
            api_name(upstream.wire())
        ))
    }
}

/// Opens the provider of a model.
pub(crate) fn open_upstream(model: &ModelSpec, sources: &ModelSources) -> Result<Upstream, String> {
    if model.name.starts_with("script:") || model.name.starts_with("replay:") {
        return Err(format!("it needs a model of a provider, which {} is not", model.name));
    }
    Upstream::open(&model.name, sources).map_err(|error| error.to_string())
}

const fn api_name(wire: Wire) -> &'static str {
    match wire {
        Wire::Anthropic => "Anthropic's Messages API",
        Wire::Chat => "OpenAI's Chat Completions API",
        Wire::Responses => "OpenAI's Responses API",
        Wire::Gemini => "the Gemini API",
    }
}

impl WorkerHost for Workers {
    fn check(&self, worker: &str, model: &ModelSpec) -> Result<WorkerPlace, String> {
        let definition = self.definition(worker)?;
        self.paths.find(definition)?;
        self.upstream(definition, model)?;
        Ok(WorkerPlace::Workspace)
    }

    fn start(&self, start: WorkerStart) -> WorkerFuture<'static, Result<StartedWorker, String>> {
        let prepared = self.prepare(&start);
        Box::pin(async move {
            let (definition, found, models) = prepared?;
            start_worker(start, definition, found, models).await
        })
    }
}

impl Workers {
    fn prepare(
        &self,
        start: &WorkerStart,
    ) -> Result<(WorkerDefinition, FoundWorker, Vec<ServedModel>), String> {
        let definition = self.definition(&start.worker)?;
        let found = self.paths.find(definition)?;
        let models = std::iter::once(&start.model).chain(&start.further_models);
        let served = models.map(|spec| {
            let upstream = self.upstream(definition, spec)?;
            Ok(ServedModel { spec: spec.clone(), upstream })
        });
        let served = served.collect::<Result<Vec<_>, String>>()?;
        Ok((definition.clone(), found, served))
    }
}

async fn start_worker(
    start: WorkerStart,
    definition: WorkerDefinition,
    found: FoundWorker,
    models: Vec<ServedModel>,
) -> Result<StartedWorker, String> {
    let WorkerStart { workspace, model, link, earlier_session, mut stop, .. } = start;
    let workspace = workspace.ok_or("it has no workspace")?;
    let provider_model = models.first().map(|it| it.upstream.provider_model().to_owned());
    let values = PlaceholderValues {
        model: provider_model.unwrap_or_default(),
        output: model.max_output.min(TOLD_OUTPUT),
        window: model.window,
    };
    let plan = ProcessPlan {
        words: found.words.into_iter().chain(definition.arguments.iter().map(Into::into)).collect(),
        environment: definition.environment,
        prepare: definition.prepare,
        folders: found.folders,
        pseudo_terminals: definition.pseudo_terminals,
        values: values.clone(),
    };
    let opening = async {
        let (mut process, listener) = start_process(workspace, plan).await?;
        let gateway =
            Gateway::start(listener, link.clone(), models, None).map_err(|it| it.to_string())?;
        let url = gateway.base_url();
        let session = SessionPlan {
            authenticate: definition.authenticate.map(|it| values.fill_json(it, &url)),
            session: definition.session,
            mode: definition.mode,
            sets_title: definition.sets_title,
            remarks: definition.remarks,
            earlier_session,
        };
        let opened = AcpClient::open(&mut process, link, session).await?;
        Ok((process, gateway, opened))
    };
    let (process, gateway, opened) = tokio::select! {
        opened = opening => opened.map_err(|why: String| format!("{}: {why}", definition.name))?,
        () = is_set(&mut stop) => return Err("it was told to stop".to_owned()),
    };
    let client = Arc::new(opened.client);
    tokio::spawn(end_when_told(Arc::clone(&client), stop, process.killer));
    let worker = WorkerSession { name: definition.name, client, gateway };
    Ok(StartedWorker { worker: Box::new(worker), session_id: opened.id, start: opened.start })
}

/// A running worker with an open session.
struct WorkerSession {
    name: String,
    client: Arc<AcpClient>,
    gateway: Gateway,
}

impl RunningWorker for WorkerSession {
    fn prompt(&mut self, text: String) -> WorkerFuture<'_, Result<WorkerAnswer, String>> {
        Box::pin(async move {
            let answer = self.client.prompt(text).await;
            self.gateway.settle_open_calls(SETTLE_TIME).await;
            answer.map_err(|why| format!("{}: {why}", self.name))
        })
    }
}

/// Ends a worker when it is told to stop: asks it to cancel its prompt, then kills its processes.
async fn end_when_told(
    client: Arc<AcpClient>,
    mut stop: watch::Receiver<bool>,
    killer: ProcessKiller,
) {
    is_set(&mut stop).await;
    let _ = tokio::time::timeout(CANCEL_TIME, client.cancel()).await;
    killer.kill();
}
