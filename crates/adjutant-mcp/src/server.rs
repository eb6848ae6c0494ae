//! The server: parse a call, hand it on, answer.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use adjutant_core::RunId;
use adjutant_core::contract::{Contract, MetadataSource, Required, validate};
use adjutant_core::schema::ReturnForm;
use adjutant_engine::artifact_facts;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CancelTaskParams,
    CancelledNotificationParam, CustomRequest, CustomResult, ErrorCode, ErrorData,
    GetPromptRequestParams, GetPromptResponse, GetTaskParams, GetTaskResult, Implementation,
    ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult, ListToolsResult,
    PaginatedRequestParams, ProtocolVersion, ReadResourceRequestParams, ReadResourceResponse,
    RequestId, ServerCapabilities, ServerConfig, UpdateTaskParams,
};
use rmcp::service::{NotificationContext, RequestContext};
use rmcp::{RoleServer, ServerHandler, serve_server};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, oneshot, watch};

use crate::answer::{self, Form};
use crate::approval::Settled;
use crate::approval::ask::Asker;
use crate::approval::rounds::{Round, Seals};
use crate::calls::Calls;
use crate::canonical;
use crate::children::Children;
use crate::clients::detach_after;
use crate::jobs::Job;
use crate::launch::launch;
use crate::owner::Owner;
use crate::runs::{Runs, chain};
use crate::through::Turn;
use crate::tools::{CancelArgs, Named, ResultArgs, StatusArgs, ValidateArgs, WaitArgs};
use crate::wait::{For, Waited, left, said_meanwhile, wait};
use crate::wire::Stdio;
use crate::{Setup, era, prompts, resources, tasks, wire};

/// Threads for what may block: locks of other servers, runs that take their time to obey.
pub(crate) const BLOCKING_THREADS: usize = 8;

/// How many processes are begun at once; more wait for their turn.
const LAUNCHING: usize = 8;

/// Says why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The runtime, a thread or a stream cannot be had.
    #[error("the server cannot start")]
    Start(#[from] io::Error),
    /// Others could reach it.
    #[error(
        "{0} is not an address of this machine alone; clients elsewhere are served on 127.0.0.1 \
         through a tunnel of yours"
    )]
    NotLoopback(SocketAddr),
    /// The address cannot be had.
    #[error("cannot listen on {address}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// It is not what a browser says of a page.
    #[error(
        "`{0}` is no origin: that is http:// or https://, a host and, if it is not the usual one, a port"
    )]
    Origin(String),
}

/// Serves one client on standard input and output until it says nothing more.
pub fn serve(setup: Setup) -> Result<(), ServeError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS)
        .build()?;
    let (stdio, ends) = Stdio::open()?;
    let wire::Ends { closing, writing } = ends;
    runtime.block_on(async {
        let server = Server::new(setup, None, closing)?;
        // A client that leaves before the handshake wanted nothing.
        if let Ok(running) = serve_server(server, stdio).await {
            let _ = running.waiting().await;
        }
        Ok::<_, io::Error>(())
    })?;
    // A thread that waits for another server's lock is of no account any more.
    runtime.shutdown_background();
    writing.finish();
    Ok(())
}

/// One client's server; what it shares with those of other clients is behind its handles.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) setup: Arc<Setup>,
    pub(crate) runs: Runs,
    calls: Calls,
    closing: watch::Receiver<bool>,
    launching: Arc<Semaphore>,
    pub(crate) children: Children,
    pub(crate) asker: Asker,
    pub(crate) seals: Seals,
    // This client's alone: two clients may use the same id.
    // A std mutex: held for a look at a map, never across an await.
    waiting: Arc<Mutex<HashMap<RequestId, oneshot::Sender<Option<String>>>>>,
}

impl Server {
    /// Makes a server that sees the runs of an owner, or of everyone.
    pub(crate) fn new(
        setup: Setup,
        owner: Option<Owner>,
        closing: watch::Receiver<bool>,
    ) -> io::Result<Self> {
        let seals = Seals::open(setup.archive.path())?;
        Ok(Self {
            runs: Runs::new(setup.archive.clone(), &setup.root, owner),
            calls: Calls::open(setup.archive.path())?,
            setup: Arc::new(setup),
            closing,
            launching: Arc::new(Semaphore::new(LAUNCHING)),
            children: Children::default(),
            asker: Asker::default(),
            seals,
            waiting: Arc::default(),
        })
    }

    /// Returns a server for another client of this process.
    pub(crate) fn another(&self) -> Self {
        Self { waiting: Arc::default(), ..self.clone() }
    }

    async fn call(
        &self,
        tool: Named,
        arguments: Value,
        context: &RequestContext<RoleServer>,
        round: &Round,
    ) -> Result<CallToolResponse, String> {
        let answer = match tool {
            Named::Delegate | Named::Command | Named::Story => {
                let job = Job::of(tool, &arguments, &self.setup.limits)?;
                return self.delegate(&job, &arguments, context, round).await;
            }
            Named::Start => {
                let job = Job::of(tool, &arguments, &self.setup.limits)?;
                return self.start(&job, &arguments, context, round).await;
            }
            Named::Wait => return self.wait_for(parsed(arguments)?, context, round).await,
            Named::Status => self.status(parsed(arguments)?, self.room(context)).await,
            Named::Result => {
                let args: ResultArgs = parsed(arguments)?;
                self.results(&args.run, args.form, false, self.room(context)).await
            }
            Named::Cancel => self.cancel(parsed::<CancelArgs>(arguments)?.run).await,
            Named::Validate => self.validate(&parsed(arguments)?),
        };
        answer.map(Into::into)
    }

    /// Begins a run and waits for it, as long as a call may.
    async fn delegate(
        &self,
        job: &Job,
        arguments: &Value,
        context: &RequestContext<RoleServer>,
        round: &Round,
    ) -> Result<CallToolResponse, String> {
        let mut turn = Turn::new(context, round, self.patience(context));
        // Entered before anything is awaited: a client may take its call back at any time.
        let mut entry = Entry::new(self, context.id.clone());
        let mut taken_back = pin!(entry.taken_back());
        let (id, is_repeated) = self.begin(job, arguments, context).await?;
        let waiter = self.calls.wait_for(id);
        let run = id.to_string();
        let has_tasks = tasks::are_known(context);
        let settled = match said_meanwhile(taken_back.as_mut()).await {
            Some(reason) => Settled::TakenBack(reason),
            None if has_tasks => self.settle(&run, &mut turn, taken_back).await?,
            None => self.see_through(&run, &mut turn, taken_back).await?,
        };
        drop(waiter);
        if settled.is_taken_back() {
            self.let_go(id, turn.owns(id, is_repeated)).await?;
        }
        if let Settled::Asks(question) = settled {
            return Ok((*question).into());
        }
        if matches!(settled, Settled::Clear) && has_tasks {
            return self.read(&run).await.map(|seen| tasks::begun(&seen));
        }
        let form = job.form(&self.setup.limits);
        self.results(&run, form, is_repeated, self.room(context)).await.map(Into::into)
    }

    /// Begins a run and waits for nothing but its first question.
    async fn start(
        &self,
        job: &Job,
        arguments: &Value,
        context: &RequestContext<RoleServer>,
        round: &Round,
    ) -> Result<CallToolResponse, String> {
        let mut turn = Turn::new(context, round, self.patience(context));
        let mut entry = Entry::new(self, context.id.clone());
        let mut taken_back = pin!(entry.taken_back());
        let (id, is_repeated) = self.begin(job, arguments, context).await?;
        let waiter = self.calls.wait_for(id);
        let run = id.to_string();
        let settled = match said_meanwhile(taken_back.as_mut()).await {
            Some(reason) => Settled::TakenBack(reason),
            None => self.settle(&run, &mut turn, taken_back).await?,
        };
        drop(waiter);
        if settled.is_taken_back() {
            self.let_go(id, turn.owns(id, is_repeated)).await?;
        }
        if let Settled::Asks(question) = settled {
            return Ok((*question).into());
        }
        let seen = self.read(&run).await?;
        Ok(answer::of_start(&seen, is_repeated, &self.setup.program_name).into())
    }

    /// Ends a run whose call is taken back, unless another began it or waits for it.
    async fn let_go(&self, run: RunId, is_own: bool) -> Result<(), String> {
        if is_own && self.calls.is_left(run) {
            self.cancel(run.to_string()).await?;
        }
        Ok(())
    }

    async fn wait_for(
        &self,
        args: WaitArgs,
        context: &RequestContext<RoleServer>,
        round: &Round,
    ) -> Result<CallToolResponse, String> {
        let usual = self.patience(context);
        // Nobody hears an answer that comes after they have given up.
        let patience = args.timeout_s.map_or(usual, |it| Duration::from_secs(it).min(usual));
        let mut turn = Turn::new(context, round, patience);
        let mut entry = Entry::new(self, context.id.clone());
        let mut taken_back = pin!(entry.taken_back());
        let run = args.run.clone();
        let (files, _) = self.apart(move |runs| runs.find(&run)).await?;
        let _waiter = self.calls.wait_for(files.id());
        // Whoever no longer waits has not said that the work should end.
        let settled = self.see_through(&args.run, &mut turn, taken_back.as_mut()).await?;
        if let Settled::Asks(question) = settled {
            return Ok((*question).into());
        }
        if matches!(settled, Settled::Open) {
            let waited = self.attend_to(&args.run, For::End, &mut turn, taken_back).await?;
            if waited == Waited::Over {
                self.children.gone(&args.run).await;
            }
        }
        self.results(&args.run, args.form, false, self.room(context)).await.map(Into::into)
    }

    /// How long this call may keep its client waiting.
    fn patience(&self, context: &RequestContext<RoleServer>) -> Duration {
        let client = context.client_info().map(|info| info.name).unwrap_or_default();
        let hears_progress = context.meta.get_progress_token().is_some();
        self.setup.detach_after.unwrap_or_else(|| detach_after(&client, hears_progress))
    }

    pub(crate) async fn attend_to(
        &self,
        run: &str,
        what: For<'_>,
        turn: &mut Turn<'_>,
        taken_back: Pin<&mut impl Future<Output = Option<String>>>,
    ) -> Result<Waited, String> {
        let mut watch = self.runs.watch(run)?;
        let left = left(taken_back, turn.context.ct.clone().cancelled_owned());
        let closing = &mut self.closing.clone();
        wait(&mut watch, what, turn.until, &mut turn.telling, closing, left).await
    }

    /// Finds the run of an equal call, or begins one.
    async fn begin(
        &self,
        job: &Job,
        arguments: &Value,
        context: &RequestContext<RoleServer>,
    ) -> Result<(RunId, bool), String> {
        if let Some(refusal) = &self.setup.refusal {
            return Err(refusal.clone());
        }
        let client = context.client_info().map(|info| info.name).unwrap_or_default();
        let root = self.setup.root.display().to_string();
        let key = canonical::key(arguments, &root, &self.runs.caller(&client));
        let claim = self.calls.claim(&key).await.map_err(|error| chain(&error))?;
        let mut claim = claim.ok_or("an equal call is being begun and does not get on")?;
        let is_told = |run: &RunId| job.moves_on() && self.children.is_told(*run);
        if let Some(run) = claim.run().filter(|run| !is_told(run) && self.runs.answers(*run)) {
            return Ok((run, true));
        }
        let turn = self.launching.acquire().await.map_err(|error| chain(&error))?;
        let (run, gone) = launch(&self.setup, self.terms(&client), job).await?;
        drop(turn);
        if job.has_aftermath() {
            self.children.add(run, gone);
        }
        self.runs.own(run)?;
        self.runs.ready(run).await;
        // A run that cannot be remembered is no worse for it.
        let _ = claim.keep(run);
        Ok((run, false))
    }

    async fn status(&self, args: StatusArgs, bytes: usize) -> Result<CallToolResult, String> {
        let is_one = args.run.is_some();
        let seen = match args.run {
            Some(run) => vec![self.read(&run).await?],
            None => self.apart(Runs::list).await?,
        };
        Ok(answer::of_status(&seen, is_one, &self.setup.program_name, bytes))
    }

    async fn results(
        &self,
        run: &str,
        results: ReturnForm,
        is_repeated: bool,
        bytes: usize,
    ) -> Result<CallToolResult, String> {
        let program = &self.setup.program_name;
        let form = Form { results, is_repeated, program, bytes };
        let seen = self.read(run).await?;
        if seen.is_over() {
            self.children.tell(seen.files.id());
        }
        Ok(answer::of_run(&seen, form, &self.setup))
    }

    async fn cancel(&self, run: String) -> Result<CallToolResult, String> {
        let (files, session, cancelled) = self.apart(move |runs| runs.cancel(&run)).await?;
        Ok(answer::of_cancel(&files, session, cancelled))
    }

    fn validate(&self, args: &ValidateArgs) -> Result<CallToolResult, String> {
        let session = args.session_id.as_deref().map(str::parse).transpose();
        let contract = Contract {
            expected_session: session.map_err(|error| format!("session_id: {error}"))?,
            artifacts: if args.artifacts_required { Required::Any } else { Required::Nothing },
            metadata: MetadataSource::Claimed,
        };
        let facts = artifact_facts(&self.setup.root).map_err(|error| chain(&error))?;
        let text = args.returned.as_str().map_or_else(|| args.returned.to_string(), str::to_owned);
        Ok(answer::of_data(json!(validate(text.as_str(), &contract, &facts))))
    }
}

/// Says whether a client took its call back only because it waited too long: the work goes on, and
/// the call that follows finds it.
pub(crate) fn is_a_timeout(reason: Option<&str>) -> bool {
    let reason = reason.unwrap_or_default().to_lowercase();
    reason.contains("timed out") || reason.contains("timeout")
}

fn parsed<T: DeserializeOwned>(arguments: Value) -> Result<T, String> {
    serde_json::from_value(arguments).map_err(|error| format!("arguments: {error}"))
}

/// A call among those that wait, left when this is dropped.
struct Entry {
    waiting: Arc<Mutex<HashMap<RequestId, oneshot::Sender<Option<String>>>>>,
    id: RequestId,
    taken_back: Option<oneshot::Receiver<Option<String>>>,
}

impl Entry {
    fn new(server: &Server, id: RequestId) -> Self {
        let (sender, receiver) = oneshot::channel();
        let waiting = Arc::clone(&server.waiting);
        waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone(), sender);
        Self { waiting, id, taken_back: Some(receiver) }
    }

    /// Waits until the client takes the call back, which may be never.
    fn taken_back(&mut self) -> impl Future<Output = Option<String>> + use<> {
        let receiver = self.taken_back.take();
        async move {
            match receiver {
                Some(receiver) => match receiver.await {
                    Ok(reason) => reason,
                    Err(_) => std::future::pending().await,
                },
                None => std::future::pending().await,
            }
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.taken_back = None;
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        // The id may have been used again for a call that still waits.
        if waiting.get(&self.id).is_some_and(oneshot::Sender::is_closed) {
            waiting.remove(&self.id);
        }
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let about = Implementation::new("adjutant", self.setup.version.clone());
        ServerConfig::new(capabilities())
            .with_server_info(about.with_title("Adjutant"))
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
            .with_instructions(INSTRUCTIONS)
    }

    fn supported_protocol_versions(&self) -> std::borrow::Cow<'static, [ProtocolVersion]> {
        era::VERSIONS.into()
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tools = Named::ALL.map(|tool| tool.shown(&self.setup.limits)).to_vec();
        Ok(ListToolsResult::with_all_items(tools))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(tool) = Named::parse(&request.name) else {
            let text = format!("there is no tool `{}`", request.name);
            return Err(ErrorData::invalid_params(text, None));
        };
        let arguments = Value::Object(request.arguments.clone().unwrap_or_default());
        let client = context.client_info().map(|info| info.name).unwrap_or_default();
        let named = canonical::key(&arguments, tool.name(), &self.runs.caller(&client));
        let answer = match self.seals.round(named, &request) {
            Ok(round) => self.call(tool, arguments, &context, &round).await,
            Err(problem) => Err(problem),
        };
        Ok(answer.unwrap_or_else(|problem| answer::of_failure(&problem).into()))
    }

    async fn list_resources(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let all = resources::list(&self.runs, &self.setup).map_err(internal)?;
        Ok(ListResourcesResult::with_all_items(all))
    }

    async fn list_resource_templates(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(ListResourceTemplatesResult::with_all_items(resources::templates()))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let page = self.room(&context);
        let read =
            resources::read(&self.runs, &self.setup, &request.uri, page).map_err(internal)?;
        read.map(Into::into).ok_or_else(|| {
            let about = Some(json!({ "uri": request.uri }));
            ErrorData::resource_not_found("there is no such resource of this tree", about)
        })
    }

    async fn list_prompts(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Ok(ListPromptsResult::with_all_items(prompts::list(&self.setup).map_err(internal)?))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let prompt = prompts::get(&self.setup, &request);
        prompt.map(Into::into).map_err(|problem| ErrorData::invalid_params(problem, None))
    }

    async fn on_cancelled(
        &self,
        notification: CancelledNotificationParam,
        _context: NotificationContext<RoleServer>,
    ) {
        let Some(id) = notification.request_id else { return };
        let taken_back = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
        if let Some(taken_back) = taken_back {
            // A call that is just being answered needs no word any more.
            let _ = taken_back.send(notification.reason);
        }
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        let seen = self.read(&request.task_id).await.map_err(tasks::refused)?;
        let (form, room) = (ReturnForm::default(), self.room(&context));
        let result = self.results(&request.task_id, form, false, room).await;
        tasks::state(&seen, result.map_err(tasks::refused)?)
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        // Nothing is asked in the course of a run, so there is nothing to take.
        self.read(&request.task_id).await.map(|_| ()).map_err(tasks::refused)
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.cancel(request.task_id).await.map(|_| ()).map_err(tasks::refused)
    }

    /// What the library could not read as the request that it is.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        Err(match request.method.as_str() {
            "tools/call"
            | "tools/list"
            | "initialize"
            | "ping"
            | "resources/list"
            | "resources/templates/list"
            | "resources/read"
            | "prompts/list"
            | "prompts/get" => ErrorData::invalid_params(
                format!("{}: the parameters are not of the form it has", request.method),
                None,
            ),
            _ => ErrorData::new(ErrorCode::METHOD_NOT_FOUND, request.method, None),
        })
    }
}

/// Nothing is announced that does not happen: lists change without a word, and nobody subscribes.
fn capabilities() -> ServerCapabilities {
    ServerCapabilities::builder()
        .enable_tools()
        .enable_tasks()
        .enable_resources()
        .enable_prompts()
        .build()
}

fn internal(problem: String) -> ErrorData {
    ErrorData::internal_error(problem, None)
}

const INSTRUCTIONS: &str = "Adjutant runs subagents under hard limits on depth, number, tokens, money \
    and time, and records every step. Use Delegate for two to four independent questions about this \
    tree that can be worked on side by side; reports are advice, so weigh them. A call that is answered \
    with `done: false` goes on by itself: wait with delegate_wait. delegate_command hands over a slash \
    command of this project, delegate_story a story of a PRD. What waits for approval only a \
    person can start, in a terminal of theirs; tell them what the answer says.";
