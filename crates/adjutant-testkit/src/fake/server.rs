//! The fake server: accepts connections, answers requests and records them.

use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use super::api::{Api, Door, Trouble};
use super::clock::Clock;
use super::delivery;
use super::http::{Broken, Head, Link, Reply};
use super::log::{Delivered, Log, Recorded, masked, now_ns};
use super::script::{Cue, Prompter, Script};
use super::turn::{Class, Delivery, Fault, Usage};

/// The key a fake asks for unless it is told otherwise.
pub const KEY: &str = "test-key";

/// A fake server that is not running yet.
pub struct Fake {
    api: Api,
    script: Script,
    door: Door,
    port: u16,
    keeps: bool,
    clock: Clock,
    file: Option<Box<dyn Write + Send>>,
    with_bodies: bool,
}

/// A fake server that listens on loopback until it is shut down or dropped.
#[derive(Debug)]
pub struct Running {
    /// Where it listens, as `http://127.0.0.1:PORT`, without a path.
    pub url: String,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    api: Api,
    door: Door,
    prompter: Prompter,
    clock: Clock,
    log: Log,
}

impl Fake {
    /// Makes a server of an API.
    #[must_use]
    pub fn new(api: Api, script: Script) -> Self {
        let door = Door { key: Some(KEY.to_owned()), models: Vec::new() };
        let clock = Clock::Simulated;
        Self { api, script, door, port: 0, keeps: true, clock, file: None, with_bodies: true }
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

    /// Asks for this key instead of [`KEY`].
    #[must_use]
    pub fn key(mut self, key: &str) -> Self {
        self.door.key = Some(key.to_owned());
        self
    }

    /// Asks for no key, as a local server does.
    #[must_use]
    pub fn without_key(mut self) -> Self {
        self.door.key = None;
        self
    }

    /// Knows this model, and no other than those that were named so.
    #[must_use]
    pub fn model(mut self, name: &str) -> Self {
        self.door.models.push(name.to_owned());
        self
    }

    /// Listens on this port; 0, the default, is any that is free.
    #[must_use]
    pub const fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// Forgets requests at once, for long benchmarks.
    #[must_use]
    pub const fn forgetful(mut self) -> Self {
        self.keeps = false;
        self
    }

    /// Waits exactly, by a clock that cannot be paused, for benchmarks.
    #[must_use]
    pub fn exact(mut self) -> Self {
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
    pub async fn start(self) -> Running {
        self.listen().await.expect("a free port on loopback")
    }

    /// Starts to listen, on the current runtime.
    ///
    /// # Errors
    ///
    /// If the port is taken.
    pub async fn listen(self) -> io::Result<Running> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        let listener = TcpListener::bind(address).await?;
        let url = format!("http://{}", listener.local_addr()?);
        let shared = Arc::new(Shared {
            api: self.api,
            door: self.door,
            prompter: Prompter::new(self.script),
            clock: self.clock,
            log: Log::new(self.keeps, self.file, self.with_bodies),
        });
        let task = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Ok(Running { url, shared, task })
    }
}

impl Running {
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
    pub fn requests(&self) -> Vec<Recorded> {
        self.shared.log.requests()
    }

    /// Returns the one request there was.
    ///
    /// # Panics
    ///
    /// If there was none, or more than one.
    #[must_use]
    pub fn single_request(&self) -> Recorded {
        let mut requests = self.requests();
        assert_eq!(requests.len(), 1, "expected one request");
        requests.remove(0)
    }

    /// Returns how many requests arrived.
    #[must_use]
    pub fn arrived(&self) -> usize {
        self.shared.log.arrived()
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

    /// Waits until so many requests have arrived.
    pub async fn wait_for_requests(&self, count: usize) {
        self.shared.log.until(|log| log.arrived() >= count).await;
    }

    /// Waits until every connection is closed.
    pub async fn wait_until_closed(&self) {
        self.shared.log.until(|log| log.open_connections() == 0).await;
    }

    /// Serves until the process ends.
    pub async fn serve(mut self) {
        // The task ends with the process or by a panic, which is then ours.
        (&mut self.task).await.expect("the accept loop does not end");
    }

    /// Stops to listen and closes every connection.
    pub async fn shutdown(mut self) {
        self.task.abort();
        // Aborted is what it should be; a panic was reported where it happened.
        let _aborted = (&mut self.task).await;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    // Dropped with this task, and every connection with it.
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.expect("a connection");
        connections.spawn(serve(stream, Arc::clone(&shared)));
        while connections.try_join_next().is_some() {}
    }
}

/// Closes a connection in the log however its task ends.
struct Open<'l>(&'l Log, u64);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.close(self.1);
    }
}

async fn serve(stream: TcpStream, shared: Arc<Shared>) {
    // Small writes must not wait for each other; a failure here only makes it slower.
    let _slower = stream.set_nodelay(true);
    let open = Open(&shared.log, shared.log.open());
    let mut link = Link::new(stream, shared.clock.clone());
    loop {
        match link.request().await {
            Ok((head, body)) => {
                if answer(&shared, open.1, &mut link, head, body).await != Delivered::Whole {
                    return;
                }
            }
            Err(Broken::Gone) => return,
            Err(broken) => {
                let reply = refusal(&shared, &broken);
                delivery::send(&mut link, &reply, &Delivery::default()).await;
                return;
            }
        }
    }
}

fn refusal(shared: &Shared, broken: &Broken) -> Reply {
    match broken {
        Broken::TooLarge(head) => shared.api.trouble(head, &Trouble::TooLarge),
        Broken::Malformed(why) => {
            Reply { status: 400, headers: Vec::new(), body: format!("{why}\n") }
        }
        Broken::Gone => Reply::default(),
    }
}

async fn answer(
    shared: &Shared,
    connection: u64,
    link: &mut Link,
    head: Head,
    body: Vec<u8>,
) -> Delivered {
    let at_ns = now_ns();
    let received = shared.api.receive(&head, &body, &shared.door);
    let turn = received.as_ref().ok().map(|exchange| exchange.turns);
    let cued = received.and_then(|exchange| match shared.prompter.cue(&exchange) {
        Ok(cue) => Ok((exchange, cue)),
        Err(message) => Err(shared.api.fault(&Fault {
            class: Class::BadRequest,
            message: Some(message),
            ..Fault::default()
        })),
    });
    let cue = cued.as_ref().ok().map(|(_, cue)| cue.clone());
    let ready = cued.map(|(exchange, cue)| prepare(shared, &exchange, &cue));
    let order = shared.log.arrive(Recorded {
        order: 0,
        at_ns,
        connection,
        headers: masked(&head),
        method: head.method,
        path: head.path,
        query: head.query,
        body,
        status: ready.as_ref().map_or_else(|reply| reply.status, Prepared::status),
        complaint: ready.as_ref().err().map(|reply| reply.body.clone()),
        when: cue.as_ref().map(|cue| cue.when.to_owned()),
        turn,
        attempt: cue.as_ref().map(|cue| cue.attempt),
        usage: cue.as_ref().and_then(reported),
        delivered: None,
    });
    let plain = Delivery::default();
    let travel = cue.as_ref().map_or(&plain, |cue| &cue.turn.delivery);
    let delay_ms = cue.as_ref().map_or(0, |cue| cue.delay_ms);
    let delivered = match delivery::wait(link, delay_ms).await {
        Err(left) => left,
        Ok(()) => match ready {
            Err(reply) | Ok(Prepared::Reply(reply)) => delivery::send(link, &reply, travel).await,
            Ok(Prepared::Stream(head, events)) => {
                delivery::stream(link, &head, &events, travel).await
            }
        },
    };
    shared.log.deliver(order, delivered);
    delivered
}

/// Returns the tokens that an answer reports.
fn reported(cue: &Cue<'_>) -> Option<Usage> {
    let turn = cue.turn;
    let answers = turn.error.is_none() && turn.answer.is_none() && !turn.no_usage;
    answers.then_some(cue.usage)
}

/// An answer that only waits to be sent.
enum Prepared {
    Reply(Reply),
    Stream(String, Vec<String>),
}

impl Prepared {
    const fn status(&self) -> u16 {
        match self {
            Self::Reply(reply) => reply.status,
            Self::Stream(..) => 200,
        }
    }
}

fn prepare(shared: &Shared, exchange: &super::api::Exchange, cue: &Cue<'_>) -> Prepared {
    let api = shared.api;
    if let Some(answer) = &cue.turn.answer {
        let (status, headers, body) = (answer.status, answer.headers.clone(), answer.body.clone());
        return Prepared::Reply(Reply { status, headers, body });
    }
    if let Some(fault) = cue.turn.error.as_ref().filter(|fault| fault.after_events.is_none()) {
        return Prepared::Reply(api.fault(fault));
    }
    let id = api.id_header().map(|name| format!("{name}: req_{:016x}\r\n", cue.key));
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: {}\r\ncache-control: no-cache\r\n\
         {}transfer-encoding: chunked\r\n\r\n",
        api.stream_type(),
        id.unwrap_or_default(),
    );
    Prepared::Stream(head, api.stream(exchange, cue))
}
