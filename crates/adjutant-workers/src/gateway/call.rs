//! One model call of a worker: admit, forward, stream through, settle.
//!
//! An admitted call runs in a task of its own, so that it is settled even if the worker closes the connection. Start at
//! [`answer_call`].

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use adjutant_core::{AttemptError, Usage, WorkerCallEnd, WorkerCallRequest};
use adjutant_engine::AdmittedCall;
use adjutant_model::gateway::{
    AnswerEnd, GenerateEndpoint, MAX_REQUEST_BYTES, MeteredAnswer, RequestProblem, ServedRequest,
    UpstreamAnswer, UsageMeter, refusal_body,
};
use bytes::Bytes;
use http_body_util::channel::Channel;
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::{Request, Response, StatusCode};
use tokio::sync::{oneshot, watch};

use super::{AnswerBody, GatewayService, is_set, json};

/// Chunks of an answer that wait for the worker. More would only use memory: a slow worker slows the provider down.
const WAITING_CHUNKS: usize = 16;

/// How long the end of a body may come after the end of its answer.
const DRAIN_TIME: Duration = Duration::from_millis(20);

/// The bytes of an answer after which progress is reported again.
const PROGRESS_BYTES: u64 = 4_096;

/// Answers a request to generate text.
pub(super) async fn answer_call(
    service: &Arc<GatewayService>,
    endpoint: GenerateEndpoint,
    request: Request<Incoming>,
) -> Response<AnswerBody> {
    let headers = passed_headers(request.headers());
    let read = match Limited::new(request.into_body(), MAX_REQUEST_BYTES as usize).collect().await {
        Ok(body) => ServedRequest::parse(&endpoint, &body.to_bytes()),
        Err(_) => {
            // How much larger it is was not read.
            let limit = MAX_REQUEST_BYTES;
            Err(RequestProblem::TooLarge { bytes: limit + 1, limit })
        }
    };
    let (served, wanted) = match read {
        Ok(served) => {
            let wanted = WorkerCallRequest {
                model: served.model.clone(),
                input_bound: served.input_bound(),
                requested_output: served.requested_output,
                removed: served.removed.clone(),
                problem: None,
            };
            (Some(served), wanted)
        }
        Err(problem) => {
            let wanted = WorkerCallRequest {
                model: String::new(),
                input_bound: 0,
                requested_output: None,
                removed: Vec::new(),
                problem: Some(problem.to_string()),
            };
            (None, wanted)
        }
    };
    let wire = endpoint.wire();
    let refused = |reason: &str| {
        // 402 and never 429: agents wait and repeat a call after 429.
        json(StatusCode::PAYMENT_REQUIRED, refusal_body(wire, 402, reason))
    };
    let admitted = match service.link.admit(wanted).await {
        Ok(admitted) => admitted,
        Err(refusal) => return refused(&refusal.to_string()),
    };
    let Some(served) = served else { return refused("the request cannot be read") };
    let (answer, answered) = oneshot::channel();
    let task = ForwardedCall { service: Arc::clone(service), admitted, endpoint, served, headers };
    let guard = OpenCallGuard::new(&service.open);
    tokio::spawn(async move {
        task.run(answer).await;
        drop(guard);
    });
    answered.await.unwrap_or_else(|_gone| refused("the call was ended"))
}

/// Counts an open call while it exists.
struct OpenCallGuard(watch::Sender<usize>);

impl OpenCallGuard {
    fn new(open: &watch::Sender<usize>) -> Self {
        open.send_modify(|count| *count += 1);
        Self(open.clone())
    }
}

impl Drop for OpenCallGuard {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

/// An admitted call on its way to the provider.
struct ForwardedCall {
    service: Arc<GatewayService>,
    admitted: AdmittedCall,
    endpoint: GenerateEndpoint,
    served: ServedRequest,
    headers: Vec<(String, String)>,
}

/// What is known about the cost of a call.
struct CallResult {
    end: WorkerCallEnd,
    usage: Option<Usage>,
    never_began: bool,
}

impl CallResult {
    fn failed(error: &AttemptError) -> Self {
        let end = WorkerCallEnd::Failed { message: error.to_string() };
        Self { end, usage: None, never_began: error.never_began }
    }
}

impl ForwardedCall {
    async fn run(self, answer: oneshot::Sender<Response<AnswerBody>>) {
        let mut closed = self.service.closed.subscribe();
        let wire = self.endpoint.wire();
        let forwarded = tokio::select! {
            forwarded = self.forward() => forwarded,
            // The provider may have begun.
            () = is_set(&mut closed) => {
                self.settle(CallResult { end: WorkerCallEnd::Abandoned, usage: None, never_began: false }).await;
                return;
            }
        };
        match forwarded {
            Err(error) => {
                let reason = error.to_string();
                self.settle(CallResult::failed(&error)).await;
                let _ =
                    answer.send(json(StatusCode::BAD_GATEWAY, refusal_body(wire, 502, &reason)));
            }
            Ok(upstream) if upstream.error.is_some() => {
                self.pass_error(upstream, answer, &mut closed).await;
            }
            Ok(upstream) => self.pass_answer(upstream, answer, &mut closed).await,
        }
    }

    async fn forward(&self) -> Result<UpstreamAnswer, AttemptError> {
        let models = &self.service.models;
        let Some(model) = models.iter().find(|it| it.spec.name == self.admitted.model) else {
            return Err(AttemptError {
                kind: adjutant_core::ModelErrorKind::BadRequest,
                message: format!("model {} has no provider here", self.admitted.model),
                retry_after_ms: None,
                never_began: true,
            });
        };
        let body = model.upstream.body_of(&self.served, self.admitted.max_output);
        model.upstream.forward(&self.endpoint, body, &self.headers).await
    }

    /// Passes an error of the provider on.
    async fn pass_error(
        &self,
        mut upstream: UpstreamAnswer,
        answer: oneshot::Sender<Response<AnswerBody>>,
        closed: &mut watch::Receiver<bool>,
    ) {
        let mut body = Vec::new();
        let read = async {
            while let Ok(Some(chunk)) = upstream.next_chunk().await {
                body.extend_from_slice(&chunk);
            }
        };
        tokio::select! {
            () = read => {}
            () = is_set(closed) => {}
        }
        if let Some(error) = &upstream.error {
            self.settle(CallResult::failed(error)).await;
        }
        let status = match StatusCode::from_u16(upstream.status) {
            // Agents repeat a call without end after 429.
            Ok(StatusCode::TOO_MANY_REQUESTS) | Err(_) => StatusCode::SERVICE_UNAVAILABLE,
            Ok(status) => status,
        };
        let mut response = json(status, body.into());
        set_content_type(&mut response, upstream.content_type.as_deref());
        let _ = answer.send(response);
    }

    /// Streams an answer through, and settles the call before its last bytes.
    async fn pass_answer(
        &self,
        mut upstream: UpstreamAnswer,
        answer: oneshot::Sender<Response<AnswerBody>>,
        closed: &mut watch::Receiver<bool>,
    ) {
        let mut meter = UsageMeter::new(self.endpoint.wire(), self.served.is_streaming);
        let (mut sender, body) = Channel::<Bytes, Infallible>::new(WAITING_CHUNKS);
        let mut response = Response::new(body.boxed());
        if let Ok(status) = StatusCode::from_u16(upstream.status) {
            *response.status_mut() = status;
        }
        set_content_type(&mut response, upstream.content_type.as_deref());
        let mut is_listening = answer.send(response).is_ok();
        let mut unreported = 0;
        // The bytes that the worker gets only after the call was settled, so that its next call finds the budget
        // up to date.
        let mut held = Vec::new();
        let failure = loop {
            let chunk = tokio::select! {
                chunk = upstream.next_chunk() => chunk,
                () = is_set(closed) => {
                    is_listening = false;
                    break None;
                }
            };
            let chunk = match chunk {
                Ok(Some(chunk)) => chunk,
                Ok(None) => break None,
                Err(error) => break Some(error),
            };
            meter.push_bytes(&chunk);
            unreported += chunk.len() as u64;
            if unreported >= PROGRESS_BYTES {
                self.service.link.report_bytes(unreported);
                unreported = 0;
            }
            if meter.has_ended() {
                held.push(chunk);
                // The end of the body comes at once, and only then the connection can be used again.
                let rest = async { while let Ok(Some(_)) = upstream.next_chunk().await {} };
                let _ = tokio::time::timeout(DRAIN_TIME, rest).await;
                break None;
            } else if !self.served.is_streaming {
                held.push(chunk);
            } else {
                // A worker that does not read holds the call up until the gateway is closed.
                let is_sent = tokio::select! {
                    sent = sender.send_data(chunk) => sent.is_ok(),
                    () = is_set(closed) => false,
                };
                if !is_sent {
                    is_listening = false;
                    break None;
                }
            }
        };
        self.settle(call_result(meter.finish(), failure, is_listening)).await;
        for chunk in held.into_iter().filter(|_| is_listening) {
            let is_sent = tokio::select! {
                sent = sender.send_data(chunk) => sent.is_ok(),
                () = is_set(closed) => false,
            };
            if !is_sent {
                break;
            }
        }
    }

    async fn settle(&self, result: CallResult) {
        let CallResult { end, usage, never_began } = result;
        self.service.link.settle(self.admitted.call, end, usage, never_began).await;
    }
}

/// Says how a call ended whose answer had begun.
fn call_result(
    metered: MeteredAnswer,
    failure: Option<AttemptError>,
    is_listening: bool,
) -> CallResult {
    let MeteredAnswer { usage, end } = metered;
    let failed = |message: String| WorkerCallEnd::Failed { message };
    let (end, usage) = match (end, failure) {
        (AnswerEnd::Complete | AnswerEnd::Refused, _) => (WorkerCallEnd::Complete, usage),
        (AnswerEnd::Cut, _) => (WorkerCallEnd::Cut, usage),
        // The usage of an answer without an end is only a part of it.
        (AnswerEnd::Broken | AnswerEnd::Failed { .. }, _) if !is_listening => {
            (WorkerCallEnd::Abandoned, None)
        }
        (AnswerEnd::Failed { message }, _) => (failed(message), None),
        (AnswerEnd::Broken, Some(error)) => (failed(error.to_string()), None),
        (AnswerEnd::Broken, None) => (failed("the answer broke off".to_owned()), None),
    };
    CallResult { end, usage, never_began: false }
}

fn set_content_type(response: &mut Response<AnswerBody>, content_type: Option<&str>) {
    if let Some(Ok(value)) = content_type.map(HeaderValue::from_str) {
        response.headers_mut().insert(CONTENT_TYPE, value);
    }
}

/// Returns the headers that a provider may need. The upstream passes only a closed list of them on.
fn passed_headers(headers: &HeaderMap) -> Vec<(String, String)> {
    let is_passed = |name: &str| name.starts_with("anthropic-");
    headers
        .iter()
        .filter(|(name, _)| is_passed(name.as_str()))
        .filter_map(|(name, value)| Some((name.to_string(), value.to_str().ok()?.to_owned())))
        .collect()
}
