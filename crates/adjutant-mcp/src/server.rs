//! The protocol handler: parses each request, passes it to the type that does the work, and returns the
//! answer.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CancelTaskParams, CancelledNotificationParam,
    CustomRequest, CustomResult, ErrorCode, ErrorData, GetPromptRequestParams, GetPromptResponse,
    GetTaskParams, GetTaskResult, Implementation, ListPromptsResult, ListResourceTemplatesResult,
    ListResourcesResult, ListToolsResult, PaginatedRequestParams, ProtocolVersion,
    ReadResourceRequestParams, ReadResourceResponse, ServerCapabilities, ServerConfig,
    UpdateTaskParams,
};
use rmcp::service::{NotificationContext, RequestContext};
use rmcp::{RoleServer, ServerHandler, serve_server};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::answer::{self, sizes};
use crate::approval::QuestionRelay;
use crate::approval::rounds::QuestionSeals;
use crate::client_call::{CancellableCalls, ClientCall};
use crate::merging::ResultMerger;
use crate::reports::RunReports;
use crate::runs::VisibleRuns;
use crate::runs::owner::RunOwner;
use crate::runs::run_processes::RunProcesses;
use crate::runs::wait::RunWaiter;
use crate::start::call_hash::call_hash;
use crate::start::starter::RunStarter;
use crate::tasks::McpTasks;
use crate::tool_calls::{ToolDispatcher, answer_timeout};
use crate::tools::McpTool;
use crate::transport::eras;
use crate::transport::stdio::{self, StdioTransport};
use crate::{ServerSetup, prompts, resources};

/// Threads for blocking work, such as waiting for locks of other servers or for runs that are slow to stop.
pub(crate) const BLOCKING_THREADS: usize = 8;

/// Explains why the server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The runtime, a thread or a standard stream could not be set up.
    #[error("the server cannot start")]
    Start(#[from] io::Error),
    /// The address is reachable from other machines.
    #[error(
        "{0} is not a loopback address; listen on 127.0.0.1 and let remote clients connect through a \
            tunnel"
    )]
    NotLoopback(SocketAddr),
    /// The address cannot be bound.
    #[error("cannot listen on {address}")]
    Listen {
        /// The requested address.
        address: SocketAddr,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The text is not a valid web origin.
    #[error(
        "`{0}` is not an origin; expected scheme://host[:port], for example http://localhost:3000"
    )]
    Origin(String),
}

/// Serves one client on standard input and output until the client closes its end.
pub fn serve(setup: ServerSetup) -> Result<(), ServeError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS)
        .build()?;
    let (stdio, ends) = StdioTransport::open()?;
    let stdio::StdioShutdown { closing, writing } = ends;
    runtime.block_on(async {
        let server = McpServer::new(setup, None, closing)?;
        let starter = server.starter().clone();
        // An error here means that the client left before the handshake. There is nothing to clean up.
        if let Ok(running) = serve_server(server, stdio).await {
            let _ = running.waiting().await;
        }
        starter.wait_for_launches().await;
        Ok::<_, io::Error>(())
    })?;
    // Blocking threads may still wait for a lock of another server. Do not wait for them.
    runtime.shutdown_background();
    writing.finish();
    Ok(())
}

/// The server as one client sees it. State shared with other clients is behind the handles in its fields.
///
/// It only reads requests and passes them on; no field depends on the server.
#[derive(Clone)]
pub(crate) struct McpServer {
    setup: Arc<ServerSetup>,
    runs: VisibleRuns,
    approvals: QuestionRelay,
    starter: RunStarter,
    tool_calls: ToolDispatcher,
    tasks: McpTasks,
    /// The only field that is not shared with other clients.
    cancellable: CancellableCalls,
}

impl McpServer {
    /// Creates a server that shows the runs of `owner`, or of everyone if `owner` is `None`.
    pub(crate) fn new(
        setup: ServerSetup,
        owner: Option<RunOwner>,
        closing: watch::Receiver<bool>,
    ) -> io::Result<Self> {
        let (setup, processes) = (Arc::new(setup), RunProcesses::default());
        let runs = VisibleRuns::new(setup.archive.clone(), &setup.root, owner);
        let seals = QuestionSeals::open(setup.archive.path())?;
        let waiter = RunWaiter::new(runs.clone(), processes.clone(), closing);
        let approvals = QuestionRelay::new(Arc::clone(&setup), runs.clone(), waiter.clone(), seals);
        let starter = RunStarter::new(
            Arc::clone(&setup),
            runs.clone(),
            waiter.clone(),
            approvals.clone(),
            processes.clone(),
        );
        let reports = RunReports {
            setup: Arc::clone(&setup),
            runs: runs.clone(),
            approvals: approvals.clone(),
            processes: processes.clone(),
        };
        let merger = ResultMerger {
            setup: Arc::clone(&setup),
            runs: runs.clone(),
            approvals: approvals.clone(),
            left_in_inbox: Arc::default(),
        };
        let tool_calls = ToolDispatcher {
            setup: Arc::clone(&setup),
            runs: runs.clone(),
            starter: starter.clone(),
            waiter,
            approvals: approvals.clone(),
            reports,
            merger,
        };
        let tasks = McpTasks {
            setup: Arc::clone(&setup),
            runs: runs.clone(),
            approvals: approvals.clone(),
            processes,
        };
        let cancellable = CancellableCalls::default();
        Ok(Self { setup, runs, approvals, starter, tool_calls, tasks, cancellable })
    }

    /// Returns a server for another client of this process; both share runs and questions.
    pub(crate) fn for_another_client(&self) -> Self {
        Self { cancellable: CancellableCalls::default(), ..self.clone() }
    }

    /// Returns the part that starts runs, so that shutdown can wait for it.
    pub(crate) const fn starter(&self) -> &RunStarter {
        &self.starter
    }
}

impl ServerHandler for McpServer {
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
        refuse_cursor(request)?;
        let tools = McpTool::ALL.map(|tool| tool.to_listed_tool(&self.setup.limits)).to_vec();
        Ok(ListToolsResult::with_all_items(tools))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(tool) = McpTool::parse(&request.name) else {
            let text = format!("unknown tool `{}`", sizes::quoted(&request.name));
            return Err(ErrorData::invalid_params(text, None));
        };
        let arguments = Value::Object(request.arguments.clone().unwrap_or_default());
        let client = context.client_info().map(|info| info.name).unwrap_or_default();
        let named = call_hash(&arguments, tool.name(), &self.runs.caller(&client), None);
        let answer = match self.approvals.open_round(named, &request) {
            Ok(round) => {
                let answer_timeout = answer_timeout(&self.setup, &context);
                let mut call = ClientCall::new(&context, round, answer_timeout, &self.cancellable);
                self.tool_calls.call(tool, arguments, &mut call).await
            }
            Err(problem) => Err(problem),
        };
        let bytes = sizes::result_limit(&self.setup, &context);
        Ok(answer.unwrap_or_else(|problem| answer::of_failure(&problem, bytes).into()))
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let (setup, cursor) = (Arc::clone(&self.setup), request.and_then(|it| it.cursor));
        let page =
            self.runs.blocking(move |runs| resources::list(runs, &setup, cursor.as_deref())).await;
        let (all, next) = page.map_err(internal_error)?.ok_or_else(no_such_page)?;
        let mut result = ListResourcesResult::with_all_items(all);
        result.next_cursor = next;
        Ok(result)
    }

    async fn list_resource_templates(
        &self,
        request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        refuse_cursor(request)?;
        Ok(ListResourceTemplatesResult::with_all_items(resources::templates()))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let (setup, uri, page) = (
            Arc::clone(&self.setup),
            request.uri.clone(),
            sizes::result_limit(&self.setup, &context),
        );
        let read = self.runs.blocking(move |runs| resources::read(runs, &setup, &uri, page)).await;
        let read = read.map_err(internal_error)?;
        read.map(Into::into).ok_or_else(|| {
            let about = Some(json!({ "uri": sizes::quoted(&request.uri) }));
            ErrorData::resource_not_found("no such resource in this tree", about)
        })
    }

    async fn list_prompts(
        &self,
        request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        refuse_cursor(request)?;
        let setup = Arc::clone(&self.setup);
        let all =
            self.runs.blocking(move |_| prompts::list(&setup)).await.map_err(internal_error)?;
        Ok(ListPromptsResult::with_all_items(all))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let setup = Arc::clone(&self.setup);
        let prompt = self.runs.blocking(move |_| prompts::get(&setup, &request)).await;
        prompt
            .map(Into::into)
            .map_err(|problem| ErrorData::invalid_params(sizes::shorten_error(&problem), None))
    }

    async fn on_cancelled(
        &self,
        notification: CancelledNotificationParam,
        _context: NotificationContext<RoleServer>,
    ) {
        if let Some(id) = notification.request_id {
            self.cancellable.cancel(&id, notification.reason);
        }
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        self.tasks.get(&request.task_id, &context).await
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.tasks.answer(&request.task_id, &request.input_responses, &context).await
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.tasks.cancel(&request.task_id).await
    }

    /// Answers requests that `rmcp` could not parse: an unknown method, or known parameters in a wrong form.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let method = request.method.as_str();
        Err(if METHODS.contains(&method) {
            let text = format!("{method}: invalid parameters");
            ErrorData::invalid_params(text, None)
        } else {
            let (named, all) = (sizes::quoted(method), METHODS.join(", "));
            let text = format!("unknown method `{named}`; expected one of {all}");
            ErrorData::new(ErrorCode::METHOD_NOT_FOUND, text, None)
        })
    }
}

/// All request methods that the server supports.
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

/// Rejects a cursor for a list that always fits on one page.
fn refuse_cursor(request: Option<PaginatedRequestParams>) -> Result<(), ErrorData> {
    let cursor = request.and_then(|it| it.cursor);
    cursor.map_or(Ok(()), |_| Err(no_such_page()))
}

/// Announces no list-change notifications and no subscriptions, because the server sends neither.
fn capabilities() -> ServerCapabilities {
    ServerCapabilities::builder()
        .enable_tools()
        .enable_tasks()
        .enable_resources()
        .enable_prompts()
        .build()
}

/// The error for a cursor that the server never handed out.
fn no_such_page() -> ErrorData {
    ErrorData::invalid_params("cursor: unknown; list again without a cursor", None)
}

fn internal_error(problem: String) -> ErrorData {
    ErrorData::internal_error(problem, None)
}

const INSTRUCTIONS: &str = "Adjutant runs subagents under hard limits on depth, number, tokens, money \
    and time, and records every step. Use Delegate for two to four independent questions about this tree \
        that can be worked on in parallel; reports are advice, so weigh them. If an answer has `done: \
        false`, the run continues by itself: call delegate_wait. delegate_write delegates changes: \
        subagents write in copies of this tree, and delegate_merge brings their work back. delegate_command delegates a slash \
        command of this project, delegate_story a story of a PRD. Only a person can start what waits for \
        approval, in their own terminal; tell them what the answer says.";
