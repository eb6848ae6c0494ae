//! HTTP calls to a Restate server: its ingress, where handlers are called, and its admin address.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Method, Request, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::{Value, json};

use crate::wire::{
    BatchPage, BatchQuery, CLUSTER_KEY, CLUSTER_SERVICE, LiveClusterWorker, RUN_SERVICE,
    Submission, SubmissionResult,
};

/// How long one call may take before it is made again.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a node or its admin address may take to answer.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);
/// How long connecting may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// The pause before the first repetition of a call; it doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// The most bytes of an answer: the server's own limit for a message.
const MAX_ANSWER: usize = 40 << 20;

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// Nothing answers at the address.
    #[error("no Restate server answers at {address}: {reason}")]
    Unreachable {
        /// The address.
        address: String,
        /// Why.
        reason: String,
    },
    /// Nothing answers at an admin address.
    #[error("no Restate server answers at the admin address {address}: {reason}")]
    AdminUnreachable {
        /// The address.
        address: String,
        /// Why.
        reason: String,
    },
    /// The server does not know the service, because no worker is registered.
    #[error("the Restate server at {address} knows no live worker of Adjutant")]
    NoWorker {
        /// The address.
        address: String,
    },
    /// The server refused the call.
    #[error("the Restate server at {address} answered {status}: {text}")]
    Status {
        /// The address.
        address: String,
        /// The HTTP status.
        status: u16,
        /// The body, shortened.
        text: String,
    },
    /// The answer is not what this version expects.
    #[error("the answer of {address} cannot be read: {reason}")]
    Unreadable {
        /// The address.
        address: String,
        /// Why.
        reason: String,
    },
}

impl CallError {
    /// Returns whether the same call may succeed later.
    const fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::AdminUnreachable { .. } => true,
            Self::Status { status, .. } => *status >= 500 || *status == 429 || *status == 408,
            Self::NoWorker { .. } | Self::Unreadable { .. } => false,
        }
    }
}

/// The ingress of a cluster: one address, or several that are tried in turn.
#[derive(Clone)]
pub struct Ingress {
    http: Client<HttpConnector, Full<Bytes>>,
    addresses: Arc<[String]>,
    /// The address that answered last.
    current: Arc<AtomicUsize>,
}

impl Ingress {
    /// Prepares calls to these addresses, such as `http://127.0.0.1:8080`.
    #[must_use]
    pub fn new(addresses: Vec<String>) -> Self {
        Self { http: http_client(), addresses: addresses.into(), current: Arc::default() }
    }

    /// Returns the same addresses for use in another runtime: connections belong to the one that opened them.
    pub(crate) fn with_own_connections(&self) -> Self {
        Self { http: http_client(), ..self.clone() }
    }

    /// Returns the addresses, separated by commas.
    #[must_use]
    pub fn address(&self) -> String {
        self.addresses.join(",")
    }

    /// Checks that a Restate server answers at one of the addresses.
    pub async fn check(&self) -> Result<(), CallError> {
        let mut first_error = None;
        for _ in 0..self.addresses.len() {
            let Err(error) = self.check_current().await else { return Ok(()) };
            self.current.fetch_add(1, Ordering::Relaxed);
            first_error = first_error.or(Some(error));
        }
        first_error.map_or(Ok(()), Err)
    }

    async fn check_current(&self) -> Result<(), CallError> {
        let address = self.current_address();
        let answer = request(&self.http, Method::GET, &address, "/restate/health", None, None);
        match tokio::time::timeout(CHECK_TIMEOUT, answer).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(CallError::Status { .. })) => Err(CallError::Unreachable {
                address,
                reason: "something else answers there; give the address of the ingress".to_owned(),
            }),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(CallError::Unreachable { address, reason: "no answer".to_owned() }),
        }
    }

    /// Calls a handler of a virtual object once.
    pub(crate) async fn call<T: DeserializeOwned>(
        &self,
        target: (&str, &str, &str),
        body: &(impl Serialize + Sync),
        idempotency_key: Option<&str>,
    ) -> Result<T, CallError> {
        self.call_within(CALL_TIMEOUT, target, body, idempotency_key).await
    }

    /// The same with a time limit of its own. The next call goes to the next node if this one fails.
    pub(crate) async fn call_within<T: DeserializeOwned>(
        &self,
        limit: Duration,
        (service, key, handler): (&str, &str, &str),
        body: &(impl Serialize + Sync),
        idempotency_key: Option<&str>,
    ) -> Result<T, CallError> {
        let address = self.current_address();
        let unreadable = |reason: serde_json::Error| CallError::Unreadable {
            address: address.clone(),
            reason: reason.to_string(),
        };
        let body = serde_json::to_vec(body).map_err(unreadable)?;
        let path = format!("/{service}/{key}/{handler}");
        // A handler without an argument takes no body.
        let body = Some(body).filter(|body| body != b"null");
        let answer = request(&self.http, Method::POST, &address, &path, body, idempotency_key);
        let answer = match tokio::time::timeout(limit, answer).await {
            Ok(answer) => answer,
            Err(_) => Err(CallError::Unreachable {
                address: address.clone(),
                reason: format!("no answer within {} seconds", limit.as_secs()),
            }),
        };
        if answer.is_err() {
            self.current.fetch_add(1, Ordering::Relaxed);
        }
        serde_json::from_slice(&answer?).map_err(unreadable)
    }

    /// Calls a handler until the call succeeds or cannot succeed.
    pub(crate) async fn call_until_done<T: DeserializeOwned>(
        &self,
        target: (&str, &str, &str),
        body: &(impl Serialize + Sync),
        idempotency_key: Option<&str>,
    ) -> Result<T, CallError> {
        let mut pause = FIRST_PAUSE;
        loop {
            match self.call(target, body, idempotency_key).await {
                Err(error) if error.is_transient() => {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                result => return result,
            }
        }
    }

    /// Returns the live workers that take sessions; none if no worker has ever registered.
    pub async fn workers(&self) -> Result<Vec<LiveClusterWorker>, CallError> {
        let target = (CLUSTER_SERVICE, CLUSTER_KEY, "workers");
        match self.call(target, &(), None).await {
            Err(CallError::NoWorker { .. }) => Ok(Vec::new()),
            result => result,
        }
    }

    /// Submits an input to a run. With the same key it takes effect once.
    pub(crate) async fn submit(
        &self,
        run: &str,
        submission: &Submission,
        idempotency_key: &str,
    ) -> Result<SubmissionResult, CallError> {
        self.call_until_done((RUN_SERVICE, run, "submit"), submission, Some(idempotency_key)).await
    }

    /// Submits an input to a run after a delay, which the server measures. With the same key it takes effect once.
    pub(crate) async fn submit_later(
        &self,
        run: &str,
        submission: &Submission,
        delay: Duration,
        idempotency_key: &str,
    ) -> Result<(), CallError> {
        let handler = format!("submit/send?delay={}ms", delay.as_millis());
        let target = (RUN_SERVICE, run, handler.as_str());
        self.call_until_done::<IgnoredAny>(target, submission, Some(idempotency_key))
            .await
            .map(drop)
    }

    /// Returns the batches of a run from a number on, at most one page of them.
    pub(crate) async fn batches(
        &self,
        run: &str,
        from: u64,
        wait: Duration,
    ) -> Result<BatchPage, CallError> {
        let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        let query = BatchQuery { from, wait_ms };
        self.call_until_done((RUN_SERVICE, run, "batches"), &query, None).await
    }

    fn current_address(&self) -> String {
        let current = self.current.load(Ordering::Relaxed) % self.addresses.len().max(1);
        self.addresses.get(current).cloned().unwrap_or_default()
    }
}

/// The admin addresses of a cluster, where workers register. They are tried in turn.
#[derive(Clone)]
pub struct Admin {
    http: Client<HttpConnector, Full<Bytes>>,
    addresses: Arc<[String]>,
    /// The address that answered last.
    current: Arc<AtomicUsize>,
}

/// Where a registered service is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RegisteredService {
    pub(crate) deployment: String,
    pub(crate) uri: String,
}

impl Admin {
    /// Prepares calls to these addresses, such as `http://127.0.0.1:9070`.
    #[must_use]
    pub fn new(addresses: Vec<String>) -> Self {
        Self { http: http_client(), addresses: addresses.into(), current: Arc::default() }
    }

    /// Returns the version of the server.
    pub async fn version(&self) -> Result<String, CallError> {
        let answer = self.get("/version").await?;
        answer["version"].as_str().map(str::to_owned).ok_or_else(|| CallError::Unreadable {
            address: self.addresses.join(","),
            reason: "it names no version".to_owned(),
        })
    }

    /// Returns where a service is registered; `None` if it is not.
    pub(crate) async fn service(&self, name: &str) -> Result<Option<RegisteredService>, CallError> {
        let found = match self.get(&format!("/services/{name}")).await {
            Ok(found) => found,
            Err(CallError::Status { status: 404, .. } | CallError::NoWorker { .. }) => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let Some(deployment) = found["deployment_id"].as_str() else { return Ok(None) };
        let found = self.get(&format!("/deployments/{deployment}")).await?;
        let uri = found["uri"].as_str().unwrap_or_default().trim_end_matches('/').to_owned();
        Ok(Some(RegisteredService { deployment: deployment.to_owned(), uri }))
    }

    /// Registers the services at `uri`.
    pub(crate) async fn register(&self, uri: &str) -> Result<(), CallError> {
        let body = json!({ "uri": uri, "force": true });
        self.send(Method::POST, "/deployments", &body).await.map(drop)
    }

    /// Moves registered services to `uri`, with the calls that are under way.
    pub(crate) async fn move_to(&self, deployment: &str, uri: &str) -> Result<(), CallError> {
        let path = format!("/deployments/{deployment}");
        let body = json!({ "uri": uri, "overwrite": true });
        self.send(Method::PATCH, &path, &body).await.map(drop)
    }

    /// Resumes every paused invocation. Returns how many were resumed.
    pub async fn resume_paused(&self) -> Result<usize, CallError> {
        let query = "SELECT id FROM sys_invocation WHERE status = 'paused' \
                     AND target_service_name LIKE 'Adjutant%'";
        let rows = self.send(Method::POST, "/query", &json!({ "query": query })).await?;
        let rows = self.read(&rows)?;
        let ids = rows["rows"].as_array().into_iter().flatten();
        let mut resumed = 0;
        for id in ids.filter_map(|row| row["id"].as_str()) {
            let path = format!("/invocations/{id}/resume");
            match self.send(Method::PATCH, &path, &Value::Null).await {
                Ok(_) => resumed += 1,
                // It has gone on or ended meanwhile.
                Err(CallError::Status { .. } | CallError::NoWorker { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(resumed)
    }

    async fn get(&self, path: &str) -> Result<Value, CallError> {
        let answer = self.send(Method::GET, path, &Value::Null).await?;
        self.read(&answer)
    }

    fn read(&self, answer: &Bytes) -> Result<Value, CallError> {
        serde_json::from_slice(answer).map_err(|error| CallError::Unreadable {
            address: self.addresses.join(","),
            reason: error.to_string(),
        })
    }

    /// Sends a request to the first address that can be reached.
    async fn send(&self, method: Method, path: &str, body: &Value) -> Result<Bytes, CallError> {
        let body = (!body.is_null()).then(|| body.to_string().into_bytes());
        let mut first_error = None;
        for _ in 0..self.addresses.len().max(1) {
            let current = self.current.load(Ordering::Relaxed) % self.addresses.len().max(1);
            let address = self.addresses.get(current).cloned().unwrap_or_default();
            let (method, body) = (method.clone(), body.clone());
            let answer = request(&self.http, method, &address, path, body, None);
            let reason = match tokio::time::timeout(CHECK_TIMEOUT, answer).await {
                Ok(Err(CallError::Unreachable { reason, .. })) => reason,
                Ok(answer) => return answer,
                Err(_) => "no answer".to_owned(),
            };
            first_error = first_error.or(Some((address, reason)));
            self.current.fetch_add(1, Ordering::Relaxed);
        }
        let (address, reason) = first_error.unwrap_or_default();
        Err(CallError::AdminUnreachable { address, reason })
    }
}

fn http_client() -> Client<HttpConnector, Full<Bytes>> {
    let mut connector = HttpConnector::new();
    connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
    connector.set_nodelay(true);
    Client::builder(TokioExecutor::new()).build(connector)
}

async fn request(
    http: &Client<HttpConnector, Full<Bytes>>,
    method: Method,
    address: &str,
    path: &str,
    body: Option<Vec<u8>>,
    idempotency_key: Option<&str>,
) -> Result<Bytes, CallError> {
    let unreachable =
        |reason: String| CallError::Unreachable { address: address.to_owned(), reason };
    let mut request = Request::builder().method(method).uri(format!("{address}{path}"));
    request = request.header("accept", "application/json");
    if body.is_some() {
        request = request.header("content-type", "application/json");
    }
    if let Some(key) = idempotency_key {
        request = request.header("idempotency-key", key);
    }
    let request = request
        .body(Full::new(Bytes::from(body.unwrap_or_default())))
        .map_err(|error| unreachable(error.to_string()))?;
    let answer = http.request(request).await.map_err(|error| unreachable(error_chain(&error)))?;
    let status = answer.status();
    let body = http_body_util::Limited::new(answer.into_body(), MAX_ANSWER).collect().await;
    let body = body.map_err(|error| unreachable(error.to_string()))?.to_bytes();
    if status.is_success() {
        return Ok(body);
    }
    let address = address.to_owned();
    if status == StatusCode::NOT_FOUND {
        return Err(CallError::NoWorker { address });
    }
    let text = String::from_utf8_lossy(&body).chars().take(500).collect();
    Err(CallError::Status { address, status: status.as_u16(), text })
}

/// Returns the text of an error with those of its causes.
pub(crate) fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    text
}
