//! One attempt at a provider: wait for its pause, send the request, read the response to its end.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use std::{fmt, io};

use adjutant_core::{AttemptError, AttemptResult, ModelErrorKind, ModelSpec, Secret, SessionId};
use bytes::Bytes;
use reqwest::header::{CONTENT_TYPE, HeaderMap};
use reqwest::{Response, Url};

use super::sources::{ModelSources, ProviderConfig, SharedConnections};
use crate::errors::{error_of_kind, from_status, truncated, unreached_error, without_key};
use crate::limiter::{ProviderLimiter, draw};
use crate::model::{BoxFuture, Model, TurnProgress, TurnRequest};
use crate::record::{NonStreamBody, Recorder, ResponseRecorder, non_stream_error};
use crate::retry_after::retry_after_ms;
use crate::wire::{SessionBodies, WireCodec};

/// The maximum number of bytes read of an error body.
const MAX_ERROR_BYTES: usize = 64 << 10;

/// A model that is served by a provider.
pub(super) struct ProviderClient {
    spec: ModelSpec,
    provider: String,
    codec: WireCodec,
    url: Url,
    headers: HeaderMap,
    key: Option<Secret>,
    shared: Arc<SharedConnections>,
    limiter: Arc<ProviderLimiter>,
    recorder: Option<Recorder>,
    bodies: SessionBodies,
}

impl fmt::Debug for ProviderClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("name", &self.spec.name).finish_non_exhaustive()
    }
}

impl ProviderClient {
    pub(super) fn new(
        spec: ModelSpec,
        codec: WireCodec,
        url: Url,
        headers: HeaderMap,
        config: &ProviderConfig,
        sources: &ModelSources,
    ) -> Self {
        let shared = &sources.shared;
        if let Some(recorder) = &sources.recorder {
            recorder.introduce(&spec, &codec);
        }
        Self {
            spec,
            provider: config.name.clone(),
            codec,
            url,
            headers,
            key: config.key.clone(),
            limiter: shared.limiter(&config.name),
            shared: Arc::clone(shared),
            recorder: sources.recorder.clone(),
            bodies: SessionBodies::default(),
        }
    }

    async fn ask(
        &self,
        request: TurnRequest<'_>,
        progress: &mut (dyn FnMut(TurnProgress<'_>) + Send),
    ) -> AttemptResult {
        let draw = draw(request.session, request.turn, request.attempt);
        let tell = |wait: Duration| {
            let ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
            progress(TurnProgress::Waiting { provider: &self.provider, ms });
        };
        self.limiter.pass(draw, tell).await;
        let body = self.bodies.write(&self.codec, &request);
        let mut tape = ResponseRecorder::new(self.recorder.is_some());
        let attempt = self.exchange(body.clone(), request.turn, &mut tape, progress).await;
        if let Some(recorder) = &self.recorder {
            recorder.keep(&self.spec.name, &request, &body, tape);
        }
        attempt.map_err(|error| {
            self.limiter.note_failure(&error);
            without_key(error, self.key.as_ref())
        })
    }

    async fn exchange(
        &self,
        body: Bytes,
        turn: u32,
        tape: &mut ResponseRecorder,
        progress: &mut (dyn FnMut(TurnProgress<'_>) + Send),
    ) -> AttemptResult {
        let client =
            self.shared.client(&self.url).map_err(|error| tape.record_connection_error(error))?;
        let request = client.post(self.url.clone()).headers(self.headers.clone()).body(body);
        let sent = request.send().await;
        let response =
            sent.map_err(|error| tape.record_connection_error(send_error(&self.url, &error)))?;
        let kind = foreign(&response);
        let (status, wish) = (response.status(), requested_wait(&response));
        tape.begin(status.as_u16(), kind, wish);
        if status.is_success() && kind.is_none() {
            return self.read(response, turn, tape, progress).await;
        }
        let body = head(response).await;
        tape.record_chunk(&body);
        Err(match kind {
            Some(kind) if status.is_success() => {
                non_stream_error(self.codec.wire, kind, &body, self.key.as_ref())
            }
            Some(_) | None => from_status(status.as_u16(), &body, wish, self.key.as_ref()),
        })
    }

    async fn read(
        &self,
        mut response: Response,
        turn: u32,
        tape: &mut ResponseRecorder,
        progress: &mut (dyn FnMut(TurnProgress<'_>) + Send),
    ) -> AttemptResult {
        let mut reader = self.codec.reader(turn);
        while let Some(chunk) = response
            .chunk()
            .await
            .map_err(|error| tape.record_connection_error(connection_error(&error)))?
        {
            tape.record_chunk(&chunk);
            if reader.push_bytes(&chunk, progress)? {
                drain(response, self.shared.http.drain_time()).await;
                break;
            }
        }
        reader.finish()
    }
}

impl Model for ProviderClient {
    fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    fn turn<'a>(
        &'a self,
        request: TurnRequest<'a>,
        progress: &'a mut (dyn FnMut(TurnProgress<'_>) + Send),
    ) -> BoxFuture<'a, AttemptResult> {
        Box::pin(self.ask(request, progress))
    }

    fn forget(&self, session: SessionId) {
        self.bodies.forget(session);
    }
}

/// Classifies the failure of a request to `url` that got no response.
pub(crate) fn send_error(url: &Url, error: &reqwest::Error) -> AttemptError {
    let host = url.host_str().unwrap_or_default();
    let place = url.port().map_or_else(|| host.into(), |port| format!("{host}:{port}"));
    if let Some(refused) = tls_error(error) {
        return unreached_error(&format!("no encrypted connection to {place}: {refused}"));
    }
    if error.is_connect() {
        // A plain HTTP server is the user's own and may not be running.
        let running = if url.scheme() == "http" { "; is the server running?" } else { "" };
        return unreached_error(&format!("cannot connect to {place}{running}"));
    }
    if error.is_timeout() {
        return error_of_kind(
            ModelErrorKind::Idle,
            &format!("{place} did not start to answer in time"),
        );
    }
    error_of_kind(ModelErrorKind::Network, &format!("the connection to {place} broke"))
}

/// Returns why TLS refused the server, such as a certificate of an unknown issuer.
fn tls_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    if let Some(refused) = error.downcast_ref() {
        return Some(refused);
    }
    // The source of an `io::Error` is that of the error inside it, which would be passed over.
    let inside = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    tls_error(inside.map(|it| it as &(dyn Error + 'static)).or_else(|| error.source())?)
}

/// Returns the kind of a response body that is not an event stream.
fn foreign(response: &Response) -> Option<NonStreamBody> {
    let kind = response.headers().get(CONTENT_TYPE)?.to_str().ok()?;
    if kind.starts_with("application/json") {
        Some(NonStreamBody::Json)
    } else if kind.starts_with("text/html") {
        Some(NonStreamBody::WebPage)
    } else {
        None
    }
}

/// Returns the wait that the provider asks for; only error responses are considered.
pub(crate) fn requested_wait(response: &Response) -> Option<u64> {
    let failed = !response.status().is_success();
    failed.then(|| retry_after_ms(response.headers(), SystemTime::now())).flatten()
}

/// Reads the beginning of a body; a read error is ignored, because the response is an error anyway.
pub(crate) async fn head(mut response: Response) -> Vec<u8> {
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

/// Reads the rest of a finished response, so that the connection can be reused.
async fn drain(mut response: Response, limit: Duration) {
    let rest = async { while let Ok(Some(_)) = response.chunk().await {} };
    let _ = tokio::time::timeout(limit, rest).await;
}

/// Classifies a failure while a response is read.
pub(crate) fn connection_error(error: &reqwest::Error) -> AttemptError {
    if error.is_timeout() {
        return error_of_kind(ModelErrorKind::Idle, "nothing came for too long");
    }
    truncated("the connection broke before the answer's end")
}
