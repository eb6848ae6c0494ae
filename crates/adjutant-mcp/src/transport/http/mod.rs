//! Streamable HTTP on a loopback address.
//!
//! Like the reader of standard input, this layer in front of `rmcp` checks who sends a request, limits its
//! size and the number of connections, and passes on complete requests. One process serves many clients; each
//! has its own server, and all see the runs of the token they share.
//!
//! Start at [`HttpServer::bind`].

mod gate;
mod sessions;
mod sse_history;
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

use self::gate::{HttpRefusal, PATH, RequestGate};
use self::sessions::HttpSessions;
pub use self::token::{BearerToken, TOKEN_VARIABLE, TokenError};
use crate::ServerSetup;
use crate::server::{BLOCKING_THREADS, McpServer, ServeError};
use crate::transport::stdio;

/// The maximum length of a body. Inclusive.
const MAX_BODY_BYTES: usize = 4 << 20;

/// The maximum number of authenticated connections; each waiting call holds one. Later ones are told to
/// retry.
const MAX_CONNECTIONS: usize = 256;

/// The maximum number of unauthenticated connections; a new one closes the oldest. They do not count towards
/// `MAX_CONNECTIONS`.
const MAX_UNAUTHENTICATED: usize = 64;

/// How long a connection may take to send the token.
const TOKEN_TIMEOUT: Duration = Duration::from_secs(3);

/// How long a client may take to send the head of a request, and be idle between two requests.
const HEAD_TIMEOUT: Duration = Duration::from_secs(15);

/// How long a client may take to send a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// The maximum length of a request head.
const MAX_HEAD_BYTES: usize = 64 << 10;

/// How long waiting calls may take to be answered at shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(3);

/// The pause after accepting a connection failed, for example because there are too many open files.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// The HTTP settings a person chose.
#[derive(Clone, Debug)]
pub struct HttpOptions {
    /// The address to listen on; port 0 lets the system choose.
    pub address: SocketAddr,
    /// The token that clients must send.
    pub token: BearerToken,
    /// Web origins that may send requests, as scheme://host:port.
    pub origins: Vec<String>,
}

/// A server that is bound to its address.
#[derive(Debug)]
pub struct HttpServer {
    setup: ServerSetup,
    http: HttpOptions,
    listener: TcpListener,
    address: SocketAddr,
}

impl HttpServer {
    /// Binds the address without accepting connections yet.
    pub fn bind(setup: ServerSetup, http: HttpOptions) -> Result<Self, ServeError> {
        if !http.address.ip().is_loopback() {
            return Err(ServeError::NotLoopback(http.address));
        }
        let origins = http.origins.iter().map(|origin| parse_origin(origin));
        let http = HttpOptions { origins: origins.collect::<Result<_, _>>()?, ..http };
        let (listener, address) = listen(http.address)?;
        Ok(Self { setup, http, listener, address })
    }

    /// Returns the endpoint's address for clients.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}{PATH}", self.address)
    }

    /// Serves clients until the process gets a signal to end. Runs continue.
    pub fn serve(self) -> Result<(), ServeError> {
        let Self { setup, http, listener, address } = self;
        let owner = http.token.owner();
        let gate = RequestGate::new(address, http.origins, Some(http.token));
        let (closing, refusal) = watch::channel(false);
        let runtime = runtime()?;
        runtime.block_on(async {
            let server = McpServer::new(setup, Some(owner), refusal)?;
            let starter = server.starter().clone();
            let served =
                serve_all(listener, gate, move || server.for_another_client(), closing).await;
            starter.wait_for_launches().await;
            served
        })?;
        // Blocking threads may still wait for a lock of another server. Do not wait for them.
        runtime.shutdown_background();
        Ok(())
    }
}

/// Serves any handler over the same transport without a token.
///
/// For conformance suites, which need their own tools and cannot send a token. `ready` receives the address.
#[doc(hidden)]
pub fn serve_handler<H: ServerHandler>(
    handler: impl Fn() -> H + Send + Sync + 'static,
    ready: impl FnOnce(&str),
) -> Result<(), ServeError> {
    let (listener, address) = listen(SocketAddr::from(([127, 0, 0, 1], 0)))?;
    ready(&format!("http://{address}{PATH}"));
    let (closing, _) = watch::channel(false);
    let gate = RequestGate::new(address, Vec::new(), None);
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

/// Normalizes an origin: scheme, host and optional port.
fn parse_origin(text: &str) -> Result<String, ServeError> {
    let origin = text.trim_end_matches('/').to_ascii_lowercase();
    let rest = ["http://", "https://"].iter().find_map(|scheme| origin.strip_prefix(scheme));
    let authority = rest.and_then(|rest| rest.parse::<hyper::http::uri::Authority>().ok());
    let is_plain = authority.is_some_and(|it| !it.as_str().contains('@') && !it.host().is_empty());
    if is_plain { Ok(origin) } else { Err(ServeError::Origin(text.to_owned())) }
}

impl RequestGate {
    fn new(address: SocketAddr, origins: Vec<String>, token: Option<BearerToken>) -> Self {
        let bound = match address {
            SocketAddr::V4(address) => address.ip().to_string(),
            SocketAddr::V6(address) => format!("[{}]", address.ip()),
        };
        let names = ["127.0.0.1", "localhost", "[::1]", &bound].map(str::to_owned).to_vec();
        Self { port: address.port(), names, origins, token }
    }
}

type HttpResponse = Response<BoxBody<Bytes, Infallible>>;

/// Handles the requests of all connections; their tasks share it.
struct HttpRequestHandler<H> {
    gate: RequestGate,
    service: StreamableHttpService<H, HttpSessions>,
    permits: Arc<Semaphore>,
}

/// A connection's permit, which it holds once it has sent the token.
#[derive(Default)]
struct ConnectionSlot {
    permit: watch::Sender<Option<OwnedSemaphorePermit>>,
}

impl ConnectionSlot {
    fn is_authenticated(&self) -> bool {
        self.permit.borrow().is_some()
    }

    /// Gives the connection a permit if it has none.
    fn authenticate(&self, permits: &Arc<Semaphore>) -> Result<(), HttpRefusal> {
        if !self.is_authenticated() {
            let permit = Arc::clone(permits).try_acquire_owned().map_err(|_| FULL)?;
            drop(self.permit.send_replace(Some(permit)));
        }
        Ok(())
    }

    /// Returns when the time to authenticate is over; never returns for an authenticated connection.
    async fn wait_for_token_timeout(&self) {
        let mut permit = self.permit.subscribe();
        if timeout(TOKEN_TIMEOUT, permit.wait_for(Option::is_some)).await.is_ok() {
            std::future::pending::<()>().await;
        }
    }
}

/// The connections that have not sent the token, oldest first.
#[derive(Default)]
struct UnauthenticatedConnections(VecDeque<(AbortHandle, Arc<ConnectionSlot>)>);

impl UnauthenticatedConnections {
    /// Makes room for another connection by closing the oldest ones.
    fn make_room(&mut self) {
        self.0.retain(|(task, slot)| !task.is_finished() && !slot.is_authenticated());
        while self.0.len() >= MAX_UNAUTHENTICATED {
            self.0.pop_front().into_iter().for_each(|(oldest, _)| oldest.abort());
        }
    }
}

const FULL: HttpRefusal = HttpRefusal {
    status: StatusCode::SERVICE_UNAVAILABLE,
    text: "too many connections; retry in a second",
};

async fn serve_all<H: ServerHandler>(
    listener: TcpListener,
    gate: RequestGate,
    handler: impl Fn() -> H + Send + Sync + 'static,
    closing: watch::Sender<bool>,
) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    // The gate checks host and origin including the port; `rmcp` would ignore the port.
    let config = StreamableHttpServerConfig::default();
    let cancel = config.cancellation_token.clone();
    let sessions = Arc::new(HttpSessions::new());
    let service = StreamableHttpService::new(move || Ok(handler()), sessions, config);
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let shared = Arc::new(HttpRequestHandler { gate, service, permits });
    let mut unauthenticated = UnauthenticatedConnections::default();
    let mut connections = JoinSet::new();
    let mut shutdown_signal = std::pin::pin!(shutdown_signal());
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    unauthenticated.make_room();
                    let (shared, closing) = (Arc::clone(&shared), closing.subscribe());
                    let slot = Arc::<ConnectionSlot>::default();
                    let own = Arc::clone(&slot);
                    let task =
                        connections.spawn(async move { serve_one(stream, &shared, &own, closing).await });
                    unauthenticated.0.push_back((task, slot));
                }
                Err(_) => tokio::time::sleep(ACCEPT_RETRY).await,
            },
            Some(_) = connections.join_next() => {}
            told = &mut shutdown_signal => break told?,
        }
    }
    closing.send_replace(true);
    let all = async { while connections.join_next().await.is_some() {} };
    // Streams that belong to no call never end by themselves.
    let _ = timeout(SHUTDOWN_TIMEOUT, all).await;
    cancel.cancel();
    Ok(())
}

/// Waits for a signal that ends the server.
async fn shutdown_signal() -> io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    // Sent when the terminal is closed.
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
    shared: &HttpRequestHandler<H>,
    slot: &ConnectionSlot,
    mut closing: watch::Receiver<bool>,
) {
    let _ = stream.set_nodelay(true);
    let service =
        service_fn(|request| async { Ok::<_, Infallible>(shared.handle(slot, request).await) });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(MAX_HEAD_BYTES);
    let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
    // Errors of a connection concern only its client.
    tokio::select! {
        _ = connection.as_mut() => return,
        () = slot.wait_for_token_timeout() => return,
        _ = closing.wait_for(|is_closing| *is_closing) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = connection.await;
}

impl<H: ServerHandler> HttpRequestHandler<H> {
    async fn handle(&self, slot: &ConnectionSlot, request: Request<Incoming>) -> HttpResponse {
        let (head, body) = request.into_parts();
        if let Err(refusal) = self.gate.check_address(&head.uri, &head.headers) {
            return refusal_response(refusal);
        }
        let origin = head.headers.get(header::ORIGIN).cloned();
        let mut answer = if head.method == Method::OPTIONS {
            preflight_response()
        } else if let Err(refusal) =
            self.gate.check_token(&head.headers).and_then(|()| slot.authenticate(&self.permits))
        {
            refusal_response(refusal)
        } else if head.method == Method::POST {
            match read_body(body).await {
                Ok(whole) => self.post(head, whole).await,
                Err(refusal) => refusal_response(refusal),
            }
        } else {
            self.service.handle(Request::from_parts(head, Full::<Bytes>::default())).await
        };
        // The origin was checked above, so the page may read the response.
        if let Some(origin) = origin {
            let headers = answer.headers_mut();
            headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
            headers.insert(header::VARY, HeaderValue::from_static("Origin"));
            let exposed = HeaderValue::from_static("Mcp-Session-Id");
            headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, exposed);
        }
        answer
    }

    /// Passes on a message. An invalid one is answered with a JSON-RPC error, as on standard input.
    async fn post(&self, head: Parts, body: Bytes) -> HttpResponse {
        let broken = |complaint: stdio::MessageError| {
            json_response(StatusCode::BAD_REQUEST, complaint.to_json())
        };
        if let Err(complaint) = stdio::read_json(&body) {
            return broken(complaint);
        }
        let is_json = head.headers.get(header::CONTENT_TYPE).is_some_and(|value| {
            value.as_bytes().to_ascii_lowercase().starts_with(b"application/json")
        });
        let answer = self.service.handle(Request::from_parts(head, Full::new(body.clone()))).await;
        // `rmcp` answers JSON that is not a message with "unsupported media type".
        let is_refused = answer.status() == StatusCode::UNSUPPORTED_MEDIA_TYPE && is_json;
        if is_refused && let Err(complaint) = stdio::parse(&body) {
            return broken(complaint);
        }
        answer
    }
}

/// Returns a response with a JSON body.
fn json_response(status: StatusCode, body: Vec<u8>) -> HttpResponse {
    let mut answer = Response::new(Full::new(Bytes::from(body)).boxed());
    *answer.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    answer.headers_mut().insert(header::CONTENT_TYPE, json);
    answer
}

/// Answers a browser's CORS preflight request.
fn preflight_response() -> HttpResponse {
    let mut answer = text_response(StatusCode::NO_CONTENT, "");
    let headers = answer.headers_mut();
    let methods = HeaderValue::from_static("GET, POST, DELETE");
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, methods);
    let names = "Authorization, Content-Type, Accept, Last-Event-ID, Mcp-Session-Id, \
                 Mcp-Protocol-Version, Mcp-Method, Mcp-Name";
    headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(names));
    answer
}

/// Reads a body. Discards the content of one that is too long.
async fn read_body(mut body: Incoming) -> Result<Bytes, HttpRefusal> {
    let too_long = HttpRefusal {
        status: StatusCode::PAYLOAD_TOO_LARGE,
        text: "the message is longer than 4 MiB",
    };
    let late =
        HttpRefusal { status: StatusCode::REQUEST_TIMEOUT, text: "the request body took too long" };
    let broken =
        HttpRefusal { status: StatusCode::BAD_REQUEST, text: "the request body is incomplete" };
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
            // Keep reading for a while: a client that is still sending does not read the response.
            if length > 4 * MAX_BODY_BYTES {
                break;
            }
        }
        if length > MAX_BODY_BYTES || declared { Err(too_long) } else { Ok(Bytes::from(whole)) }
    };
    timeout(BODY_TIMEOUT, whole).await.unwrap_or(Err(late))
}

fn refusal_response(refusal: HttpRefusal) -> HttpResponse {
    let mut answer = text_response(refusal.status, refusal.text);
    if refusal.status == StatusCode::UNAUTHORIZED {
        let how = HeaderValue::from_static("Bearer");
        answer.headers_mut().insert(header::WWW_AUTHENTICATE, how);
    }
    if refusal.status == StatusCode::SERVICE_UNAVAILABLE {
        let headers = answer.headers_mut();
        headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    answer
}

fn text_response(status: StatusCode, text: &'static str) -> HttpResponse {
    let mut answer = Response::new(Full::new(Bytes::from_static(text.as_bytes())).boxed());
    *answer.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    answer.headers_mut().insert(header::CONTENT_TYPE, plain);
    answer
}
