//! The metering gateway: an HTTP server for the model calls of one worker.
//!
//! It listens where only the worker can connect, so the socket is the worker's identity; no header is trusted. Policy is
//! not decided here: each call is admitted by the core over the [`WorkerLink`]. `call` handles one model call.
//!
//! Start at [`Gateway::start`]. Invariant: a call is forwarded only after it was admitted, and every admitted call is
//! settled exactly once, also if the worker or the gateway ends first.

mod call;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use adjutant_core::ModelSpec;
use adjutant_engine::WorkerLink;
use adjutant_model::gateway::{
    Endpoint, ListedModel, Upstream, find_endpoint, model_body, model_list_body, refusal_body,
};
use adjutant_model::wire::Wire;
use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Empty, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

/// Connections of one worker at once. Agents use a few; the bound keeps a runaway one from using up descriptors.
const MAX_CONNECTIONS: usize = 128;

/// The body of an answer.
type AnswerBody = BoxBody<Bytes, Infallible>;

/// A model that a gateway serves, and where its calls are forwarded.
pub(crate) struct ServedModel {
    pub(crate) spec: ModelSpec,
    pub(crate) upstream: Upstream,
}

/// What the connections of one gateway share.
struct GatewayService {
    link: WorkerLink,
    models: Vec<ServedModel>,
    /// A secret that every path begins with; for gateways at an address that other programs can reach.
    secret: Option<String>,
    /// The number of calls that are not settled.
    open: watch::Sender<usize>,
    /// Becomes true when open calls must end.
    closed: watch::Sender<bool>,
}

/// The gateway of one worker. Dropping it closes its connections and ends its calls.
pub(crate) struct Gateway {
    service: Arc<GatewayService>,
    address: SocketAddr,
    accepts: tokio::task::AbortHandle,
}

impl Gateway {
    /// Starts to serve connections of `listener`.
    pub(crate) fn start(
        listener: std::net::TcpListener,
        link: WorkerLink,
        models: Vec<ServedModel>,
        secret: Option<String>,
    ) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let listener = TcpListener::from_std(listener)?;
        let (open, closed) = (watch::Sender::new(0), watch::Sender::new(false));
        let service = Arc::new(GatewayService { link, models, secret, open, closed });
        let accepts = tokio::spawn(accept(listener, Arc::clone(&service))).abort_handle();
        Ok(Self { service, address, accepts })
    }

    /// Returns the base URL for agents, without a slash at its end and without an API version.
    pub(crate) fn base_url(&self) -> String {
        base_url(self.address.port(), self.service.secret.as_deref())
    }

    /// Waits until no call is open. Calls that are still open after `patience` are ended and settled.
    pub(crate) async fn settle_open_calls(&self, patience: Duration) {
        let mut open = self.service.open.subscribe();
        if tokio::time::timeout(patience, open.wait_for(|count| *count == 0)).await.is_err() {
            self.service.closed.send_replace(true);
            // Ending a call only waits for the run loop.
            let _ = open.wait_for(|count| *count == 0).await;
            self.service.closed.send_replace(false);
        }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.accepts.abort();
        self.service.closed.send_replace(true);
    }
}

/// Returns the base URL of a gateway at this port.
pub(crate) fn base_url(port: u16, secret: Option<&str>) -> String {
    let path = secret.map(|secret| format!("/{secret}")).unwrap_or_default();
    format!("http://127.0.0.1:{port}{path}")
}

/// Waits until a flag is set, or its owner is gone.
pub(crate) async fn is_set(flag: &mut watch::Receiver<bool>) {
    let _ = flag.wait_for(|flag| *flag).await;
}

async fn accept(listener: TcpListener, service: Arc<GatewayService>) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        // Closed only if the semaphore were closed, which nothing does.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            // Out of descriptors, for example; connections that end free some.
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        let service = Arc::clone(&service);
        tokio::spawn(async move {
            serve_connection(stream, service).await;
            drop(place);
        });
    }
}

async fn serve_connection(stream: TcpStream, service: Arc<GatewayService>) {
    // Small chunks of a streamed answer must not wait for each other.
    let _ = stream.set_nodelay(true);
    let handle = service_fn(move |request| {
        let service = Arc::clone(&service);
        async move { Ok::<_, Infallible>(answer(&service, request).await) }
    });
    // An error means that the worker closed the connection or did not speak HTTP.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), handle).await;
}

async fn answer(service: &Arc<GatewayService>, request: Request<Incoming>) -> Response<AnswerBody> {
    let path = request.uri().path_and_query().map_or("/", |it| it.as_str());
    let path = match &service.secret {
        None => Some(path),
        Some(secret) => path.strip_prefix('/').and_then(|path| path.strip_prefix(secret.as_str())),
    };
    let endpoint = path.and_then(|path| find_endpoint(request.method().as_str(), path));
    match endpoint {
        None => json(
            StatusCode::NOT_FOUND,
            refusal_body(Wire::Chat, 404, "there is no such endpoint here"),
        ),
        Some(Endpoint::Probe) => Response::new(Empty::new().boxed()),
        Some(Endpoint::ListModels(wire)) => {
            json(StatusCode::OK, model_list_body(wire, &service.listed_models()))
        }
        Some(Endpoint::ShowModel { wire, model }) => {
            match service.listed_models().iter().find(|it| it.name == model) {
                Some(found) => json(StatusCode::OK, model_body(wire, found)),
                None => json(
                    StatusCode::NOT_FOUND,
                    refusal_body(wire, 404, &format!("model {model} is not allowed here")),
                ),
            }
        }
        Some(Endpoint::Generate(endpoint)) => call::answer_call(service, endpoint, request).await,
    }
}

impl GatewayService {
    fn listed_models(&self) -> Vec<ListedModel> {
        let listed = |model: &ServedModel| ListedModel {
            name: model.upstream.provider_model().to_owned(),
            context_window: model.spec.window,
            max_output: model.spec.max_output,
        };
        self.models.iter().map(listed).collect()
    }
}

fn json(status: StatusCode, body: Bytes) -> Response<AnswerBody> {
    let mut response = Response::new(Full::new(body).boxed());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
