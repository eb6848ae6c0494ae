//! One attempt at a provider: wait for its pause, send, read to the end.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use adjutant_core::{Attempt, AttemptError, ErrorKind, ModelSpec, Secret, SessionId};
use bytes::Bytes;
use reqwest::header::{CONTENT_TYPE, HeaderMap};
use reqwest::{Response, Url};

use super::sources::{ProviderConfig, Shared};
use crate::errors::{from_status, plain, truncated, without_key};
use crate::limiter::{Limiter, draw};
use crate::model::{BoxFuture, Model, Progress, TurnRequest};
use crate::retry_after::retry_after_ms;
use crate::wire::{Codec, Kept};

/// The most bytes of an error's body that are looked at.
const MAX_ERROR_BYTES: usize = 64 << 10;

/// How long the connection's own end is waited for after the answer's: long enough to reuse it.
const DRAIN_TIME: Duration = Duration::from_millis(20);

/// A model at a provider.
pub(super) struct Client {
    spec: ModelSpec,
    codec: Codec,
    url: Url,
    headers: HeaderMap,
    key: Option<Secret>,
    shared: Arc<Shared>,
    limiter: Arc<Limiter>,
    // A std mutex: held while a body is written, never across an await.
    kept: Mutex<BTreeMap<SessionId, Kept>>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("name", &self.spec.name).finish_non_exhaustive()
    }
}

impl Client {
    pub(super) fn new(
        spec: ModelSpec,
        codec: Codec,
        url: Url,
        headers: HeaderMap,
        config: &ProviderConfig,
        shared: &Arc<Shared>,
    ) -> Self {
        Self {
            spec,
            codec,
            url,
            headers,
            key: config.key.clone(),
            limiter: shared.limiter(&config.name),
            shared: Arc::clone(shared),
            kept: Mutex::default(),
        }
    }

    async fn ask(
        &self,
        request: TurnRequest<'_>,
        progress: &mut (dyn FnMut(Progress<'_>) + Send),
    ) -> Attempt {
        self.limiter.pass(draw(request.session, request.turn, request.attempt)).await;
        let attempt = self.exchange(self.body(&request), request.turn, progress).await;
        attempt.map_err(|error| {
            self.limiter.hear(&error);
            without_key(error, self.key.as_ref())
        })
    }

    /// Writes the request; only what is new since the session's latest one is written.
    fn body(&self, request: &TurnRequest<'_>) -> Bytes {
        let taken = self.kept().remove(&request.session);
        let mut kept = taken.unwrap_or_default();
        self.codec.encode(&mut kept, request);
        let body = kept.body();
        self.kept().insert(request.session, kept);
        body
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, BTreeMap<SessionId, Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn exchange(
        &self,
        body: Bytes,
        turn: u32,
        progress: &mut (dyn FnMut(Progress<'_>) + Send),
    ) -> Attempt {
        let encrypted = self.url.scheme() == "https";
        let client = self.shared.http.client(encrypted).ok_or_else(|| {
            plain(ErrorKind::Network, "no encrypted connection can be made: no certificates found")
        })?;
        let request = client.post(self.url.clone()).headers(self.headers.clone()).body(body);
        let response = request.send().await.map_err(|error| self.unsent(&error))?;
        if !response.status().is_success() {
            return Err(self.rejected(response).await);
        }
        if let Some(kind) = foreign(&response) {
            return Err(self.misplaced(response, kind).await);
        }
        self.read(response, turn, progress).await
    }

    async fn read(
        &self,
        mut response: Response,
        turn: u32,
        progress: &mut (dyn FnMut(Progress<'_>) + Send),
    ) -> Attempt {
        let mut reader = self.codec.reader(turn);
        while let Some(chunk) = response.chunk().await.map_err(|error| broken(&error))? {
            if reader.feed(&chunk, progress)? {
                drain(response).await;
                break;
            }
        }
        reader.finish()
    }

    fn unsent(&self, error: &reqwest::Error) -> AttemptError {
        let place = self.url.host_str().unwrap_or_default();
        if error.is_connect() {
            return plain(ErrorKind::Network, &format!("cannot connect to {place}"));
        }
        if error.is_timeout() {
            return plain(ErrorKind::Idle, &format!("{place} did not begin to answer in time"));
        }
        plain(ErrorKind::Network, &format!("the connection to {place} broke"))
    }

    async fn rejected(&self, response: Response) -> AttemptError {
        let status = response.status().as_u16();
        let wish = retry_after_ms(response.headers(), SystemTime::now());
        let body = head(response).await;
        from_status(status, &body, wish, self.key.as_ref())
    }

    /// Judges an answer that is no stream: an error in disguise, or another kind of server.
    async fn misplaced(&self, response: Response, kind: &'static str) -> AttemptError {
        let body = head(response).await;
        let value: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
        if value.get("error").is_some_and(|error| !error.is_null()) {
            return from_status(400, &body, None, self.key.as_ref());
        }
        let wire = self.codec.wire;
        let message = format!(
            "the server answered with {kind}, not as wire `{wire}` does; is the base URL right?"
        );
        plain(ErrorKind::BadRequest, &message)
    }
}

impl Model for Client {
    fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    fn turn<'a>(
        &'a self,
        request: TurnRequest<'a>,
        progress: &'a mut (dyn FnMut(Progress<'_>) + Send),
    ) -> BoxFuture<'a, Attempt> {
        Box::pin(self.ask(request, progress))
    }

    fn forget(&self, session: SessionId) {
        self.kept().remove(&session);
    }
}

/// Names what an answer is when it cannot be a stream of events.
fn foreign(response: &Response) -> Option<&'static str> {
    let kind = response.headers().get(CONTENT_TYPE)?.to_str().ok()?;
    if kind.starts_with("application/json") {
        Some("JSON")
    } else if kind.starts_with("text/html") {
        Some("a web page")
    } else {
        None
    }
}

/// Reads the beginning of a body; an error inside it changes nothing any more.
async fn head(mut response: Response) -> Vec<u8> {
    let mut body = Vec::new();
    while let Ok(Some(chunk)) = response.chunk().await {
        body.extend_from_slice(&chunk);
        if body.len() > MAX_ERROR_BYTES {
            body.truncate(MAX_ERROR_BYTES);
            break;
        }
    }
    body
}

/// Reads the end of a finished answer, so that the connection serves the next request.
async fn drain(mut response: Response) {
    let rest = async { while let Ok(Some(_)) = response.chunk().await {} };
    let _ = tokio::time::timeout(DRAIN_TIME, rest).await;
}

fn broken(error: &reqwest::Error) -> AttemptError {
    if error.is_timeout() {
        return plain(ErrorKind::Idle, "nothing came for too long");
    }
    truncated("the connection broke before the answer's end")
}
