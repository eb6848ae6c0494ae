//! The server: parse a call, hand it on, answer.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use adjutant_core::schema::ReturnForm;
use adjutant_engine::{artifact_facts, wall_now};
use adjutant_formats::contract::{Contract, MetadataSource, Required, validate};
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
use tokio::sync::{RwLock, Semaphore, oneshot, watch};
use tokio::time::timeout;

use crate::answer::sizes;
use crate::answer::{self, Form};
use crate::approval::Settled;
use crate::approval::ask::Asker;
use crate::approval::rounds::{Round, Seals};
use crate::clients::detach_after;
use crate::runs::children::Children;
use crate::runs::owner::Owner;
use crate::runs::wait::{For, Waited, left, said_meanwhile, wait};
use crate::runs::{Runs, chain};
use crate::start::begin::Begun;
use crate::start::calls::Calls;
use crate::start::canonical;
use crate::start::jobs::Job;
use crate::through::Turn;
use crate::tools::{CancelArgs, MAX_WAIT_S, Named, ResultArgs, StatusArgs, ValidateArgs, WaitArgs};
use crate::transport::eras;
use crate::transport::stdio;
use crate::transport::stdio::Stdio;
use crate::{Setup, prompts, resources, tasks};

/// Runs that have ended and are shown where nobody asks for one.
const STATUS_RUNS: usize = 10;

/// Threads for what may block: locks of other servers, runs that take their time to obey.
pub(crate) const BLOCKING_THREADS: usize = 8;

/// How many processes are begun at once; more wait for their turn.
const LAUNCHING: usize = 8;

/// How long a server whose clients have left waits for runs that are being begun.
const BEGINNINGS: Duration = Duration::from_secs(10);

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
    let stdio::Ends { closing, writing } = ends;
    runtime.block_on(async {
        let server = Server::new(setup, None, closing)?;
        let beginnings = Arc::clone(&server.beginnings);
        // A client that leaves before the handshake wanted nothing.
        if let Ok(running) = serve_server(server, stdio).await {
            let _ = running.waiting().await;
        }
        all_begun(&beginnings).await;
        Ok::<_, io::Error>(())
    })?;
    // A thread that waits for another server's lock is of no account any more.
    runtime.shutdown_background();
    writing.finish();
    Ok(())
}

/// Waits until every run that clients were told of is begun, as long as that is likely to end.
pub(crate) async fn all_begun(beginnings: &RwLock<()>) {
    let _ = timeout(BEGINNINGS, beginnings.write()).await;
}

/// One client's server; what it shares with those of other clients is behind its handles.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) setup: Arc<Setup>,
    pub(crate) runs: Runs,
    pub(crate) calls: Calls,
    pub(crate) closing: watch::Receiver<bool>,
    pub(crate) launching: Arc<Semaphore>,
    /// Held by whatever begins a run, so that the process ends after that.
    pub(crate) beginnings: Arc<RwLock<()>>,
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
            beginnings: Arc::default(),
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
            Named::Delegate | Named::Start | Named::Command | Named::Story => {
                return self.delegate(tool, &arguments, context, round).await;
            }
            Named::Wait => return self.wait_for(parsed(arguments)?, context, round).await,
            Named::Status => self.status(parsed(arguments)?, self.room(context)).await,
            Named::Result => {
                let args: ResultArgs = parsed(arguments)?;
                self.results(&args.run, args.form, false, self.room(context)).await
            }
            Named::Cancel => self.cancel(parsed::<CancelArgs>(arguments)?.run).await,
            Named::Validate => {
                let (setup, args) = (Arc::clone(&self.setup), parsed(arguments)?);
                let bytes = self.room(context);
                self.apart(move |_| validated(&setup, &args, bytes)).await
            }
        };
        answer.map(Into::into)
    }

    /// Begins a run and waits as long as a call may: for its end, or for its first question alone where
    /// the client asked for a handle or knows tasks.
    async fn delegate(
        &self,
        tool: Named,
        arguments: &Value,
        context: &RequestContext<RoleServer>,
        round: &Round,
    ) -> Result<CallToolResponse, String> {
        let job = Job::of(tool, arguments, &self.setup.limits)?;
        let form = job.form(&self.setup.limits);
        let mut turn = Turn::new(context, round, self.patience(context));
        // Entered before anything is awaited: a client may take its call back at any time.
        let mut entry = Entry::new(self, context.id.clone());
        let mut taken_back = pin!(entry.taken_back());
        let begun = self.begun(job, arguments, &mut turn, taken_back.as_mut()).await?;
        let Begun { run: id, is_repeated, waiter } = begun;
        // A call that is made again with the answer to its own question is still the first one.
        let is_repeated = !turn.owns(id, is_repeated);
        let run = id.to_string();
        let is_start = tool == Named::Start;
        let waits = !is_start && !tasks::are_known(context);
        let settled = match said_meanwhile(taken_back.as_mut()).await {
            Some(reason) => Settled::TakenBack(reason),
            None if waits => self.see_through(&run, &mut turn, taken_back).await?,
            None => self.settle(&run, &mut turn, taken_back).await?,
        };
        drop(waiter);
        if settled.is_taken_back() {
            self.let_go(id, !is_repeated).await?;
        }
        if let Settled::Asks(question) = settled {
            return Ok((*question).into());
        }
        if is_start {
            let seen = self.read(&run).await?;
            return Ok(answer::of_start(&seen, is_repeated, &self.setup.program_name).into());
        }
        if matches!(settled, Settled::Clear) && !waits {
            let forms = self.forms();
            // One that cannot be kept is answered for in the usual form.
            let keep = move |runs: &Runs| Ok((runs.read(&run)?, forms.keep(id, form).ok()));
            return self.apart(keep).await.map(|(seen, _)| tasks::begun(&seen));
        }
        self.results(&run, form, is_repeated, self.room(context)).await.map(Into::into)
    }

    async fn wait_for(
        &self,
        args: WaitArgs,
        context: &RequestContext<RoleServer>,
        round: &Round,
    ) -> Result<CallToolResponse, String> {
        if let Some(asked) = args.timeout_s.filter(|asked| *asked > MAX_WAIT_S) {
            return Err(format!("timeout_s: {asked} is more than {MAX_WAIT_S}"));
        }
        let usual = self.patience(context);
        // Nobody hears an answer that comes after they have given up.
        let patience = args.timeout_s.map_or(usual, |it| Duration::from_secs(it).min(usual));
        let mut turn = Turn::new(context, round, patience);
        let mut entry = Entry::new(self, context.id.clone());
        let mut taken_back = pin!(entry.taken_back());
        let run = args.run.clone();
        let (files, _) = self.apart(move |runs| runs.find(&run)).await?;
        let _waiter = self.calls.wait_for(files.id()).await;
        // Whoever no longer waits has not said that the work should end.
        let settled = self.see_through(&args.run, &mut turn, taken_back.as_mut()).await?;
        if let Settled::Asks(question) = settled {
            return Ok((*question).into());
        }
        if matches!(settled, Settled::Open) {
            let waited = self.attend_to(&args.run, For::End, &mut turn, taken_back).await?;
            if waited == Waited::Over {
                self.children.gone(&args.run, turn.until).await;
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
        let run = run.to_owned();
        let mut watch = self.apart(move |runs| runs.watch(&run)).await?;
        let left = left(taken_back, turn.context.ct.clone().cancelled_owned());
        let closing = &mut self.closing.clone();
        wait(&mut watch, what, turn.until, &mut turn.telling, closing, left).await
    }

    async fn status(&self, args: StatusArgs, bytes: usize) -> Result<CallToolResult, String> {
        let setup = Arc::clone(&self.setup);
        self.apart(move |runs| match args.run {
            Some(run) => Ok(answer::of_status(&runs.read(&run)?, &setup.program_name, bytes)),
            None => {
                let listing = runs.list(STATUS_RUNS, None)?.ok_or("there is no beginning")?;
                Ok(answer::of_list(&listing, &setup.program_name, bytes))
            }
        })
        .await
    }

    async fn results(
        &self,
        run: &str,
        results: ReturnForm,
        is_repeated: bool,
        bytes: usize,
    ) -> Result<CallToolResult, String> {
        let form = Form { results, is_repeated, bytes };
        let (setup, asker, run) = (Arc::clone(&self.setup), self.asker.clone(), run.to_owned());
        let answered = move |runs: &Runs| {
            let mut seen = runs.read(&run)?;
            asker.mark(seen.files.id(), &mut seen.asks);
            let over = seen.is_over().then(|| seen.files.id());
            Ok((answer::of_run(&seen, form, &setup), over))
        };
        let (result, over) = self.apart(answered).await?;
        over.into_iter().for_each(|run| self.children.tell(run));
        Ok(result)
    }

    pub(crate) async fn cancel(&self, run: String) -> Result<CallToolResult, String> {
        let (files, session, cancelled) = self.apart(move |runs| runs.cancel(&run)).await?;
        Ok(answer::of_cancel(&files, session, cancelled))
    }
}

/// Judges a return.
fn validated(setup: &Setup, args: &ValidateArgs, bytes: usize) -> Result<CallToolResult, String> {
    let session = args.session_id.as_deref().map(str::parse).transpose();
    let contract = Contract {
        expected_session: session.map_err(|error| format!("session_id: {error}"))?,
        artifacts: if args.artifacts_required { Required::Any } else { Required::Nothing },
        kind: None,
        metadata: MetadataSource::Claimed,
    };
    let facts = artifact_facts(&setup.root).map_err(|error| chain(&error))?;
    let text = args.returned.as_str().map_or_else(|| args.returned.to_string(), str::to_owned);
    Ok(answer::of_verdict(&json!(validate(text.as_str(), &contract, &facts)), bytes))
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
        eras::VERSIONS.into()
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        whole(request)?;
        let tools = Named::ALL.map(|tool| tool.shown(&self.setup.limits)).to_vec();
        Ok(ListToolsResult::with_all_items(tools))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(tool) = Named::parse(&request.name) else {
            let text = format!("there is no tool `{}`", sizes::quoted(&request.name));
            return Err(ErrorData::invalid_params(text, None));
        };
        let arguments = Value::Object(request.arguments.clone().unwrap_or_default());
        let client = context.client_info().map(|info| info.name).unwrap_or_default();
        let named = canonical::key(&arguments, tool.name(), &self.runs.caller(&client), None);
        let answer = match self.seals.round(named, &request, wall_now()) {
            Ok(round) => self.call(tool, arguments, &context, &round).await,
            Err(problem) => Err(problem),
        };
        self.calls.sweep();
        let failed = |problem: String| answer::of_failure(&problem, self.room(&context)).into();
        Ok(answer.unwrap_or_else(failed))
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let (setup, cursor) = (Arc::clone(&self.setup), request.and_then(|it| it.cursor));
        let page = self.apart(move |runs| resources::list(runs, &setup, cursor.as_deref())).await;
        let (all, next) = page.map_err(internal)?.ok_or_else(no_such_page)?;
        let mut result = ListResourcesResult::with_all_items(all);
        result.next_cursor = next;
        Ok(result)
    }

    async fn list_resource_templates(
        &self,
        request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        whole(request)?;
        Ok(ListResourceTemplatesResult::with_all_items(resources::templates()))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let (setup, uri, page) =
            (Arc::clone(&self.setup), request.uri.clone(), self.room(&context));
        let read = self.apart(move |runs| resources::read(runs, &setup, &uri, page)).await;
        let read = read.map_err(internal)?;
        read.map(Into::into).ok_or_else(|| {
            let about = Some(json!({ "uri": sizes::quoted(&request.uri) }));
            ErrorData::resource_not_found("there is no such resource of this tree", about)
        })
    }

    async fn list_prompts(
        &self,
        request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        whole(request)?;
        let setup = Arc::clone(&self.setup);
        let all = self.apart(move |_| prompts::list(&setup)).await.map_err(internal)?;
        Ok(ListPromptsResult::with_all_items(all))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let setup = Arc::clone(&self.setup);
        let prompt = self.apart(move |_| prompts::get(&setup, &request)).await;
        prompt
            .map(Into::into)
            .map_err(|problem| ErrorData::invalid_params(sizes::brief(&problem), None))
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
        self.task(&request.task_id, &context).await
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.answer_task(&request.task_id, &request.input_responses, &context).await
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.cancel_run(&request.task_id).await
    }

    /// What the library could not read as the request that it is.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let method = request.method.as_str();
        Err(if METHODS.contains(&method) {
            let text = format!("{method}: the parameters are not of the form it has");
            ErrorData::invalid_params(text, None)
        } else {
            let (named, all) = (sizes::quoted(method), METHODS.join(", "));
            let text = format!("there is no method `{named}`; there are {all}");
            ErrorData::new(ErrorCode::METHOD_NOT_FOUND, text, None)
        })
    }
}

/// Every request that is answered.
const METHODS: [&str; 13] = [
    "initialize",
    "server/discover",
    "ping",
    "tools/list",
    "tools/call",
    "resources/list",
    "resources/templates/list",
    "resources/read",
    "prompts/list",
    "prompts/get",
    "tasks/get",
    "tasks/update",
    "tasks/cancel",
];

/// Refuses a cursor for a list that has one page.
fn whole(request: Option<PaginatedRequestParams>) -> Result<(), ErrorData> {
    let cursor = request.and_then(|it| it.cursor);
    cursor.map_or(Ok(()), |_| Err(no_such_page()))
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

/// Answers a cursor that no answer of ours had.
fn no_such_page() -> ErrorData {
    ErrorData::invalid_params("cursor: no page begins there; ask again without it", None)
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
