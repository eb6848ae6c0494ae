//! The fake server: accepts connections, answers requests and records them.

use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use super::api::{AccessRules, Api, RejectedRequest};
use super::clock::Clock;
use super::delivery;
use super::http::{Connection, Head, ReadRequestError, Reply};
use super::log::{DeliveryOutcome, Log, RecordedRequest, masked_headers, now_ns};
use super::script::{Script, SelectedTurn, TurnSelector};
use super::turn::{Delivery, Fault, FaultClass, Usage};

/// The key that a fake requires by default.
pub const KEY: &str = "test-key";

/// A fake server that is not running yet.
pub struct FakeServer {
    api: Api,
    script: Script,
    access: AccessRules,
    port: u16,
    keeps_requests: bool,
    clock: Clock,
    file: Option<Box<dyn Write + Send>>,
    with_bodies: bool,
}

/// A fake server that listens on loopback until it is shut down or dropped.
#[derive(Debug)]
pub struct RunningServer {
    /// Where it listens, as `http://127.0.0.1:PORT`, without a path.
    pub url: String,
    shared: Arc<ServerState>,
    task: JoinHandle<()>,
}

#[derive(Debug)]
struct ServerState {
    api: Api,
    access: AccessRules,
    selector: TurnSelector,
    clock: Clock,
    log: Log,
}

impl FakeServer {
    /// Makes a server of an API.
    #[must_use]
    pub fn new(api: Api, script: Script) -> Self {
        let access = AccessRules { key: Some(KEY.to_owned()), models: Vec::new() };
        let clock = Clock::Simulated;
        Self {
            api,
            script,
            access,
            port: 0,
            keeps_requests: true,
            clock,
            file: None,
            with_bodies: true,
        }
    }

    /// Makes an Anthropic Messages server.
    #[must_use]
    pub fn anthropic(script: Script) -> Self {
        Self::new(Api::Anthropic, script)
    }

    /// Makes an OpenAI Chat Completions server.
    #[must_use]
    pub fn chat(script: Script) -> Self {
        Self::new(Api::Chat, script)
    }

    /// Makes an OpenAI Responses server.
    #[must_use]
    pub fn responses(script: Script) -> Self {
        Self::new(Api::Responses, script)
    }

    /// Makes a Gemini server.
    #[must_use]
    pub fn gemini(script: Script) -> Self {
        Self::new(Api::Gemini, script)
    }

    /// Requires this key instead of [`KEY`].
    #[must_use]
    pub fn key(mut self, key: &str) -> Self {
        self.access.key = Some(key.to_owned());
        self
    }

    /// Requires no key, like a local server.
    #[must_use]
    pub fn without_key(mut self) -> Self {
        self.access.key = None;
        self
    }

    /// Adds a known model. Without any, every model name is accepted.
    #[must_use]
    pub fn model(mut self, name: &str) -> Self {
        self.access.models.push(name.to_owned());
        self
    }

    /// Listens on this port; 0, the default, chooses a free one.
    #[must_use]
    pub const fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// Does not record requests, for long benchmarks.
    #[must_use]
    pub const fn without_recording(mut self) -> Self {
        self.keeps_requests = false;
        self
    }

    /// Waits exactly, by a clock that cannot be paused, for benchmarks.
    #[must_use]
    pub fn with_exact_delays(mut self) -> Self {
        self.clock = Clock::exact();
        self
    }

    /// Writes every request as a line of JSON.
    #[must_use]
    pub fn log_to(mut self, file: impl Write + Send + 'static) -> Self {
        self.file = Some(Box::new(file));
        self
    }

    /// Leaves the bodies out of those lines, for long benchmarks.
    #[must_use]
    pub const fn without_bodies(mut self) -> Self {
        self.with_bodies = false;
        self
    }

    /// Starts to listen, on the current runtime.
    ///
    /// # Panics
    ///
    /// If the port is taken.
    pub async fn start(self) -> RunningServer {
        self.listen().await.expect("a free port on loopback")
    }

    /// Starts to listen, on the current runtime.
    ///
    /// # Errors
    ///
    /// If the port is taken.
    pub async fn listen(self) -> io::Result<RunningServer> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        let listener = TcpListener::bind(address).await?;
        let url = format!("http://{}", listener.local_addr()?);
        let shared = Arc::new(ServerState {
            api: self.api,
            access: self.access,
            selector: TurnSelector::new(self.script),
            clock: self.clock,
            log: Log::new(self.keeps_requests, self.file, self.with_bodies),
        });
        let task = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Ok(RunningServer { url, shared, task })
    }
}

impl RunningServer {
    /// Returns the API it speaks.
    #[must_use]
    pub fn api(&self) -> Api {
        self.shared.api
    }

    /// Returns the address that clients connect to.
    #[must_use]
    pub fn address(&self) -> &str {
        self.url.trim_start_matches("http://")
    }

    /// Returns every request so far, in order of arrival.
    #[must_use]
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.shared.log.requests()
    }

    /// Returns the one request there was.
    ///
    /// # Panics
    ///
    /// If there was none, or more than one.
    #[must_use]
    pub fn single_request(&self) -> RecordedRequest {
        let mut requests = self.requests();
        assert_eq!(requests.len(), 1, "expected one request");
        requests.remove(0)
    }

    /// Returns how many requests arrived.
    #[must_use]
    pub fn request_count(&self) -> usize {
        self.shared.log.request_count()
    }

    /// Returns how many connections were ever opened.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.shared.log.connections()
    }

    /// Returns how many connections are open.
    #[must_use]
    pub fn open_connections(&self) -> usize {
        self.shared.log.open_connections()
    }

    /// Waits until this many requests have arrived.
    pub async fn wait_for_requests(&self, count: usize) {
        self.shared.log.wait_until(|log| log.request_count() >= count).await;
    }

    /// Waits until every connection is closed.
    pub async fn wait_until_closed(&self) {
        self.shared.log.wait_until(|log| log.open_connections() == 0).await;
    }

    /// Serves until the process ends.
    pub async fn serve(mut self) {
        // The task ends with the process or by a panic, which is then ours.
        (&mut self.task).await.expect("the accept loop does not end");
    }

    /// Stops to listen and closes every connection.
    pub async fn shutdown(mut self) {
        self.task.abort();
        // An abort is expected here; a panic was reported where it happened.
        let _aborted = (&mut self.task).await;
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, shared: Arc<ServerState>) {
    // Dropped with this task, and every connection with it.
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.expect("a connection");
        connections.spawn(serve(stream, Arc::clone(&shared)));
        while connections.try_join_next().is_some() {}
    }
}

/// Closes a connection in the log however its task ends.
struct OpenConnection<'l>(&'l Log, u64);

impl Drop for OpenConnection<'_> {
    fn drop(&mut self) {
        self.0.close(self.1);
    }
}

async fn serve(stream: TcpStream, shared: Arc<ServerState>) {
    // Small writes must not wait for each other; a failure here only makes it slower.
    let _slower = stream.set_nodelay(true);
    let open = OpenConnection(&shared.log, shared.log.open());
    let mut client = Connection::new(stream, shared.clock.clone());
    loop {
        match client.request().await {
            Ok((head, body)) => {
                if answer(&shared, open.1, &mut client, head, body).await != DeliveryOutcome::Whole
                {
                    return;
                }
            }
            Err(ReadRequestError::Gone) => return,
            Err(broken) => {
                let reply = refusal(&shared, &broken);
                delivery::send(&mut client, &reply, &Delivery::default()).await;
                return;
            }
        }
    }
}

fn refusal(shared: &ServerState, broken: &ReadRequestError) -> Reply {
    match broken {
        ReadRequestError::TooLarge(head) => {
            shared.api.refusal_reply(head, &RejectedRequest::TooLarge)
        }
        ReadRequestError::Malformed(why) => {
            Reply { status: 400, headers: Vec::new(), body: format!("{why}\n") }
        }
        ReadRequestError::Gone => Reply::default(),
    }
}

async fn answer(
    shared: &ServerState,
    connection: u64,
    client: &mut Connection,
    head: Head,
    body: Vec<u8>,
) -> DeliveryOutcome {
    let at_ns = now_ns();
    let received = shared.api.receive(&head, &body, &shared.access);
    let turn = received.as_ref().ok().map(|request| request.turns);
    let selection = received.and_then(|request| match shared.selector.select(&request) {
        Ok(selected) => Ok((request, selected)),
        Err(message) => Err(shared.api.fault_reply(&Fault {
            class: FaultClass::BadRequest,
            message: Some(message),
            ..Fault::default()
        })),
    });
    let selected = selection.as_ref().ok().map(|(_, selected)| selected.clone());
    let ready = selection.map(|(request, selected)| prepare(shared, &request, &selected));
    let order = shared.log.record_request(RecordedRequest {
        order: 0,
        at_ns,
        connection,
        headers: masked_headers(&head),
        method: head.method,
        path: head.path,
        query: head.query,
        body,
        status: ready.as_ref().map_or_else(|reply| reply.status, PreparedReply::status),
        complaint: ready.as_ref().err().map(|reply| reply.body.clone()),
        when: selected.as_ref().map(|selected| selected.when.to_owned()),
        turn,
        attempt: selected.as_ref().map(|selected| selected.attempt),
        usage: selected.as_ref().and_then(reported_usage),
        delivered: None,
    });
    let plain = Delivery::default();
    let travel = selected.as_ref().map_or(&plain, |selected| &selected.turn.delivery);
    let delay_ms = selected.as_ref().map_or(0, |selected| selected.delay_ms);
    let delivered = match delivery::wait(client, delay_ms).await {
        Err(left) => left,
        Ok(()) => match ready {
            Err(reply) | Ok(PreparedReply::Reply(reply)) => {
                delivery::send(client, &reply, travel).await
            }
            Ok(PreparedReply::Stream(head, events)) => {
                delivery::stream(client, &head, &events, travel).await
            }
        },
    };
    shared.log.record_delivery(order, delivered);
    delivered
}

/// Returns the tokens that an answer reports.
fn reported_usage(selected: &SelectedTurn<'_>) -> Option<Usage> {
    let turn = selected.turn;
    let answers = turn.error.is_none() && turn.answer.is_none() && !turn.no_usage;
    answers.then_some(selected.usage)
}

/// An answer that is ready to be sent.
enum PreparedReply {
    Reply(Reply),
    Stream(String, Vec<String>),
}

impl PreparedReply {
    const fn status(&self) -> u16 {
        match self {
            Self::Reply(reply) => reply.status,
            Self::Stream(..) => 200,
        }
    }
}

fn prepare(
    shared: &ServerState,
    request: &super::api::ValidRequest,
    selected: &SelectedTurn<'_>,
) -> PreparedReply {
    let api = shared.api;
    if let Some(answer) = &selected.turn.answer {
        let (status, headers, body) = (answer.status, answer.headers.clone(), answer.body.clone());
        return PreparedReply::Reply(Reply { status, headers, body });
    }
    if let Some(fault) = selected.turn.error.as_ref().filter(|fault| fault.after_events.is_none()) {
        return PreparedReply::Reply(api.fault_reply(fault));
    }
    let id = api.id_header().map(|name| format!("{name}: req_{:016x}\r\n", selected.key));
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: {}\r\ncache-control: no-cache\r\n\
         {}transfer-encoding: chunked\r\n\r\n",
        api.stream_type(),
        id.unwrap_or_default(),
    );
    PreparedReply::Stream(head, api.stream(request, selected))
}
