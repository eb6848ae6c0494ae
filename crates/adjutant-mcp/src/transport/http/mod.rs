//! Streamable HTTP on a loopback address.
//!
//! Stands in front of the library like the reader of standard input does: it judges who may speak,
//! bounds what is read and how many may speak at once, and hands whole requests on. One process serves
//! many clients; each has a server of its own, and all see the runs of the token they share.
//!
//! Start at [`HttpServer::bind`].

mod events;
mod gate;
mod sessions;
mod token;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper::header::{self, HeaderValue};
use hyper::http::request::Parts;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use rmcp::ServerHandler;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

use self::gate::{Closed, Gate, PATH};
use self::sessions::Sessions;
pub use self::token::{TOKEN_VARIABLE, Token, TokenError};
use crate::Setup;
use crate::server::{BLOCKING_THREADS, ServeError, Server};
use crate::transport::stdio;

/// The longest body that is taken. Inclusive.
const MAX_BODY_BYTES: usize = 4 << 20;

/// Connections at once: each call that waits holds one. Who comes later is told to come again.
const CONNECTIONS: usize = 256;

/// Connections at once that have not shown the token yet; a new one ends the oldest of them. They take no
/// places of clients.
const STRANGERS: usize = 64;

/// How long a connection may take until it has shown the token.
const UNKNOWN: Duration = Duration::from_secs(3);

/// How long a client may take to send the head of a request, and be silent between two.
const HEAD: Duration = Duration::from_secs(15);

/// How long a client may take to send a body.
const BODY: Duration = Duration::from_secs(30);

/// The most of a head that is held.
const HEAD_BYTES: usize = 64 << 10;

/// How long calls that wait are given to be answered when the server ends.
const FAREWELL: Duration = Duration::from_secs(3);

/// How long nobody is let in after that has failed, as it does when there are no more files to open.
const RECOVERS: Duration = Duration::from_millis(100);

/// What a person decided about the address.
#[derive(Clone, Debug)]
pub struct Http {
    /// Where to listen; port 0 lets the system choose.
    pub address: SocketAddr,
    /// What a client must show.
    pub token: Token,
    /// Pages in browsers that may ask, as scheme://host:port.
    pub origins: Vec<String>,
}

/// A server that listens.
#[derive(Debug)]
pub struct HttpServer {
    setup: Setup,
    http: Http,
    listener: TcpListener,
    address: SocketAddr,
}

impl HttpServer {
    /// Listens, without answering yet.
    pub fn bind(setup: Setup, http: Http) -> Result<Self, ServeError> {
        if !http.address.ip().is_loopback() {
            return Err(ServeError::NotLoopback(http.address));
        }
        let origins = http.origins.iter().map(|origin| parse_origin(origin));
        let http = Http { origins: origins.collect::<Result<_, _>>()?, ..http };
        let (listener, address) = listen(http.address)?;
        Ok(Self { setup, http, listener, address })
    }

    /// Returns where clients find it.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}{PATH}", self.address)
    }

    /// Serves clients until the process is told to end. Runs go on.
    pub fn serve(self) -> Result<(), ServeError> {
        let Self { setup, http, listener, address } = self;
        let owner = http.token.owner();
        let gate = Gate::new(address, http.origins, Some(http.token));
        let (closing, closed) = watch::channel(false);
        let runtime = runtime()?;
        runtime.block_on(async {
            let server = Server::new(setup, Some(owner), closed)?;
            let starter = server.starter().clone();
            let served = serve_all(listener, gate, move || server.another(), closing).await;
            starter.all_begun().await;
            served
        })?;
        // A thread that waits for another server's lock is of no account any more.
        runtime.shutdown_background();
        Ok(())
    }
}

/// Serves any handler over the same transport, without a token.
///
/// For the suites of others, which look for tools of theirs and have no token to show; `ready` is told
/// where it listens.
#[doc(hidden)]
pub fn serve_handler<H: ServerHandler>(
    handler: impl Fn() -> H + Send + Sync + 'static,
    ready: impl FnOnce(&str),
) -> Result<(), ServeError> {
    let (listener, address) = listen(SocketAddr::from(([127, 0, 0, 1], 0)))?;
    ready(&format!("http://{address}{PATH}"));
    let (closing, _) = watch::channel(false);
    let gate = Gate::new(address, Vec::new(), None);
    Ok(runtime()?.block_on(serve_all(listener, gate, handler, closing))?)
}

fn runtime() -> io::Result<tokio::runtime::Runtime> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().max_blocking_threads(BLOCKING_THREADS).build()
}

fn listen(address: SocketAddr) -> Result<(TcpListener, SocketAddr), ServeError> {
    let bind = || {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    };
    bind().map_err(|source| ServeError::Listen { address, source })
}

/// Takes an origin as browsers write it: a scheme, a host and a port that is not the usual one.
fn parse_origin(text: &str) -> Result<String, ServeError> {
    let origin = text.trim_end_matches('/').to_ascii_lowercase();
    let rest = ["http://", "https://"].iter().find_map(|scheme| origin.strip_prefix(scheme));
    let authority = rest.and_then(|rest| rest.parse::<hyper::http::uri::Authority>().ok());
    let is_plain = authority.is_some_and(|it| !it.as_str().contains('@') && !it.host().is_empty());
    if is_plain { Ok(origin) } else { Err(ServeError::Origin(text.to_owned())) }
}

impl Gate {
    fn new(address: SocketAddr, origins: Vec<String>, token: Option<Token>) -> Self {
        let bound = match address {
            SocketAddr::V4(address) => address.ip().to_string(),
            SocketAddr::V6(address) => format!("[{}]", address.ip()),
        };
        let names = ["127.0.0.1", "localhost", "[::1]", &bound].map(str::to_owned).to_vec();
        Self { port: address.port(), names, origins, token }
    }
}

type Answer = Response<BoxBody<Bytes, Infallible>>;

/// What every connection has.
struct Front<H> {
    gate: Gate,
    service: StreamableHttpService<H, Sessions>,
    places: Arc<Semaphore>,
}

/// A connection: a stranger's until it has shown the token, then a client's.
#[derive(Default)]
struct Visitor {
    place: watch::Sender<Option<OwnedSemaphorePermit>>,
}

impl Visitor {
    fn is_known(&self) -> bool {
        self.place.borrow().is_some()
    }

    /// Gives it a place among the clients.
    fn enter(&self, places: &Arc<Semaphore>) -> Result<(), Closed> {
        if !self.is_known() {
            let place = Arc::clone(places).try_acquire_owned().map_err(|_| FULL)?;
            drop(self.place.send_replace(Some(place)));
        }
        Ok(())
    }

    /// Waits until a stranger has had its time; a client has all it wants.
    async fn stays_unknown(&self) {
        let mut place = self.place.subscribe();
        if timeout(UNKNOWN, place.wait_for(Option::is_some)).await.is_ok() {
            std::future::pending::<()>().await;
        }
    }
}

/// The connections that have not shown the token, the oldest first.
#[derive(Default)]
struct Strangers(VecDeque<(AbortHandle, Arc<Visitor>)>);

impl Strangers {
    /// Makes room for one more.
    fn make_room(&mut self) {
        self.0.retain(|(task, visitor)| !task.is_finished() && !visitor.is_known());
        while self.0.len() >= STRANGERS {
            self.0.pop_front().into_iter().for_each(|(oldest, _)| oldest.abort());
        }
    }
}

const FULL: Closed = Closed {
    status: StatusCode::SERVICE_UNAVAILABLE,
    text: "all places are taken; come again in a second",
};

async fn serve_all<H: ServerHandler>(
    listener: TcpListener,
    gate: Gate,
    handler: impl Fn() -> H + Send + Sync + 'static,
    closing: watch::Sender<bool>,
) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    // Hosts and origins are judged by us, with the port; the library's own list is wider.
    let config = StreamableHttpServerConfig::default();
    let cancel = config.cancellation_token.clone();
    let sessions = Arc::new(Sessions::new());
    let service = StreamableHttpService::new(move || Ok(handler()), sessions, config);
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let front = Arc::new(Front { gate, service, places });
    let mut strangers = Strangers::default();
    let mut connections = JoinSet::new();
    let mut told_to_end = std::pin::pin!(told_to_end());
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    strangers.make_room();
                    let (front, closing) = (Arc::clone(&front), closing.subscribe());
                    let visitor = Arc::<Visitor>::default();
                    let own = Arc::clone(&visitor);
                    let task =
                        connections.spawn(async move { serve_one(stream, &front, &own, closing).await });
                    strangers.0.push_back((task, visitor));
                }
                Err(_) => tokio::time::sleep(RECOVERS).await,
            },
            Some(_) = connections.join_next() => {}
            told = &mut told_to_end => break told?,
        }
    }
    closing.send_replace(true);
    let all = async { while connections.join_next().await.is_some() {} };
    // Streams of no call never end by themselves.
    let _ = timeout(FAREWELL, all).await;
    cancel.cancel();
    Ok(())
}

/// Waits for the signal by which people and supervisors end a server.
async fn told_to_end() -> io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    // What a closed terminal sends.
    let mut hangup = signal(SignalKind::hangup())?;
    tokio::select! {
        _ = hangup.recv() => {}
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}

async fn serve_one<H: ServerHandler>(
    stream: TcpStream,
    front: &Front<H>,
    visitor: &Visitor,
    mut closing: watch::Receiver<bool>,
) {
    let _ = stream.set_nodelay(true);
    let service =
        service_fn(|request| async { Ok::<_, Infallible>(front.answer(visitor, request).await) });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD).max_buf_size(HEAD_BYTES);
    let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
    // What a client breaks off is its own affair.
    tokio::select! {
        _ = connection.as_mut() => return,
        () = visitor.stays_unknown() => return,
        _ = closing.wait_for(|is_closing| *is_closing) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = connection.await;
}

impl<H: ServerHandler> Front<H> {
    async fn answer(&self, visitor: &Visitor, request: Request<Incoming>) -> Answer {
        let (head, body) = request.into_parts();
        if let Err(closed) = self.gate.judge_place(&head.uri, &head.headers) {
            return refused(closed);
        }
        let origin = head.headers.get(header::ORIGIN).cloned();
        let mut answer = if head.method == Method::OPTIONS {
            preflight()
        } else if let Err(closed) =
            self.gate.judge_token(&head.headers).and_then(|()| visitor.enter(&self.places))
        {
            refused(closed)
        } else if head.method == Method::POST {
            match read(body).await {
                Ok(whole) => self.post(head, whole).await,
                Err(closed) => refused(closed),
            }
        } else {
            self.service.handle(Request::from_parts(head, Full::<Bytes>::default())).await
        };
        // Judged above: only a page that may ask is told that it may listen.
        if let Some(origin) = origin {
            let headers = answer.headers_mut();
            headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
            headers.insert(header::VARY, HeaderValue::from_static("Origin"));
            let exposed = HeaderValue::from_static("Mcp-Session-Id");
            headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, exposed);
        }
        answer
    }

    /// Hands a message on; what is not one is answered with an error of JSON-RPC, as over standard input.
    async fn post(&self, head: Parts, body: Bytes) -> Answer {
        let broken =
            |complaint: stdio::Complaint| json_answer(StatusCode::BAD_REQUEST, complaint.to_json());
        if let Err(complaint) = stdio::read_json(&body) {
            return broken(complaint);
        }
        let is_json = head.headers.get(header::CONTENT_TYPE).is_some_and(|value| {
            value.as_bytes().to_ascii_lowercase().starts_with(b"application/json")
        });
        let answer = self.service.handle(Request::from_parts(head, Full::new(body.clone()))).await;
        // The library takes JSON that is not a message for a wrong media type.
        let is_refused = answer.status() == StatusCode::UNSUPPORTED_MEDIA_TYPE && is_json;
        if is_refused && let Err(complaint) = stdio::parse(&body) {
            return broken(complaint);
        }
        answer
    }
}

/// Answers with JSON.
fn json_answer(status: StatusCode, body: Vec<u8>) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from(body)).boxed());
    *answer.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    answer.headers_mut().insert(header::CONTENT_TYPE, json);
    answer
}

/// Answers a browser that asks whether a page may ask.
fn preflight() -> Answer {
    let mut answer = said(StatusCode::NO_CONTENT, "");
    let headers = answer.headers_mut();
    let methods = HeaderValue::from_static("GET, POST, DELETE");
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, methods);
    let names = "Authorization, Content-Type, Accept, Last-Event-ID, Mcp-Session-Id, \
                 Mcp-Protocol-Version, Mcp-Method, Mcp-Name";
    headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(names));
    answer
}

/// Reads a body; of one that is too long nothing is kept.
async fn read(mut body: Incoming) -> Result<Bytes, Closed> {
    let too_long =
        Closed { status: StatusCode::PAYLOAD_TOO_LARGE, text: "a message may have at most 4 MiB" };
    let late =
        Closed { status: StatusCode::REQUEST_TIMEOUT, text: "the body did not come in time" };
    let broken = Closed { status: StatusCode::BAD_REQUEST, text: "the body broke off" };
    let declared = body.size_hint().lower() > MAX_BODY_BYTES as u64;
    let whole = async {
        let (mut whole, mut length) = (Vec::new(), 0_usize);
        while let Some(frame) = body.frame().await {
            let Ok(part) = frame.map_err(|_| broken)?.into_data() else { continue };
            length += part.len();
            if length > MAX_BODY_BYTES || declared {
                whole = Vec::new();
            } else {
                whole.extend_from_slice(&part);
            }
            // Read on for a while: who is still writing does not hear an answer.
            if length > 4 * MAX_BODY_BYTES {
                break;
            }
        }
        if length > MAX_BODY_BYTES || declared { Err(too_long) } else { Ok(Bytes::from(whole)) }
    };
    timeout(BODY, whole).await.unwrap_or(Err(late))
}

fn refused(closed: Closed) -> Answer {
    let mut answer = said(closed.status, closed.text);
    if closed.status == StatusCode::UNAUTHORIZED {
        let how = HeaderValue::from_static("Bearer");
        answer.headers_mut().insert(header::WWW_AUTHENTICATE, how);
    }
    if closed.status == StatusCode::SERVICE_UNAVAILABLE {
        let headers = answer.headers_mut();
        headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    answer
}

fn said(status: StatusCode, text: &'static str) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from_static(text.as_bytes())).boxed());
    *answer.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    answer.headers_mut().insert(header::CONTENT_TYPE, plain);
    answer
}
