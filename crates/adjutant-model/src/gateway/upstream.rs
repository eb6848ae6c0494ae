//! Forwards requests to the provider with the real key.
//!
//! Nothing of the agent's headers reaches the provider, except a closed list for Anthropic. Wires are not
//! translated: a request goes to a provider with the same wire format.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use adjutant_core::{AttemptError, ModelErrorKind, Secret};
use bytes::Bytes;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Response, Url};

use super::endpoint::{GeminiDelivery, GenerateEndpoint};
use super::served::{ChatCapField, ServedRequest};
use crate::errors::{body_without_key, error_of_kind, from_status, without_key};
use crate::limiter::ProviderLimiter;
use crate::provider::{
    ModelSources, OpenModelError, SharedConnections, base_url, connection_error, endpoint,
    find_provider, head, headers, is_official, requested_wait, send_error,
};
use crate::wire::Wire;

/// The betas of Anthropic that are not passed on, by the beginnings of their names: they enable tools, files and
/// servers at the provider, or change the price.
const REFUSED_BETAS: [&str; 16] = [
    "advisor",
    "code-execution",
    "compact",
    "context-1m",
    "extended-cache-ttl",
    "fallback",
    "fast-mode",
    "files-api",
    "managed-agents",
    "mcp",
    "message-batches",
    "oauth",
    "server-side",
    "skills",
    "web-fetch",
    "web-search",
];

/// A provider's model, to which requests are forwarded.
pub struct Upstream {
    wire: Wire,
    model: String,
    base: Url,
    headers: HeaderMap,
    key: Option<Secret>,
    shared: Arc<SharedConnections>,
    limiter: Arc<ProviderLimiter>,
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { wire, model, .. } = self;
        f.debug_struct("Upstream").field("wire", wire).field("model", model).finish_non_exhaustive()
    }
}

impl Upstream {
    /// Opens the model `provider/model`; sends nothing.
    pub fn open(name: &str, sources: &ModelSources) -> Result<Self, OpenModelError> {
        let (config, model) = find_provider(name, sources)?;
        Ok(Self {
            wire: config.wire,
            model: model.to_owned(),
            base: base_url(config)?,
            headers: headers(config)?,
            key: config.key.clone(),
            shared: Arc::clone(&sources.shared),
            limiter: sources.shared.limiter(&config.name),
        })
    }

    /// Returns the configured wire format.
    #[must_use]
    pub const fn wire(&self) -> Wire {
        self.wire
    }

    /// Returns the provider's name for the model.
    #[must_use]
    pub fn provider_model(&self) -> &str {
        &self.model
    }

    /// Returns whether requests in this wire format can be forwarded.
    ///
    /// Chat and Responses are two endpoints of one API with the same base URL and key, so a provider that is
    /// configured for one of them is asked on both. A server without the other endpoint answers with 404.
    #[must_use]
    pub const fn serves(&self, wire: Wire) -> bool {
        match (self.wire, wire) {
            (Wire::Chat | Wire::Responses, Wire::Chat | Wire::Responses)
            | (Wire::Anthropic, Wire::Anthropic)
            | (Wire::Gemini, Wire::Gemini) => true,
            (Wire::Anthropic | Wire::Chat | Wire::Responses | Wire::Gemini, _) => false,
        }
    }

    /// Returns the body of a request for this model, with at most `max_output` output tokens.
    #[must_use]
    pub fn body_of(&self, request: &ServedRequest, max_output: u64) -> Bytes {
        let field = if is_official(request.wire, &self.base) {
            ChatCapField::MaxCompletionTokens
        } else {
            ChatCapField::MaxTokens
        };
        request.rewritten_with(&self.model, max_output, field)
    }

    /// Sends a rewritten request and returns the beginning of its answer.
    ///
    /// Only `anthropic-version` and harmless betas are taken from `passed_headers`. An error means that there is
    /// no answer; an answer with an error status is an answer. Dropping the future or the answer closes the
    /// connection.
    pub async fn forward(
        &self,
        to: &GenerateEndpoint,
        body: Bytes,
        passed_headers: &[(String, String)],
    ) -> Result<UpstreamAnswer, AttemptError> {
        if !self.serves(to.wire()) {
            let message = format!(
                "a request in wire `{}` cannot be sent to a provider with wire `{}`",
                to.wire(),
                self.wire
            );
            let error = error_of_kind(ModelErrorKind::BadRequest, &message);
            return Err(AttemptError { never_began: true, ..error });
        }
        let url = self.url(to);
        let mut headers = self.headers.clone();
        if self.wire == Wire::Anthropic {
            pass_headers(&mut headers, passed_headers);
        }
        let client = self.shared.client(&url)?;
        let sent = client.post(url.clone()).headers(headers).body(body).send().await;
        let response =
            sent.map_err(|error| without_key(send_error(&url, &error), self.key.as_ref()))?;
        Ok(self.begin_answer(response).await)
    }

    async fn begin_answer(&self, response: Response) -> UpstreamAnswer {
        let status = response.status();
        let content_type = response.headers().get(CONTENT_TYPE);
        let content_type = content_type.and_then(|kind| kind.to_str().ok()).map(str::to_owned);
        let (error, body) = if status.is_success() {
            (None, AnswerBody::Response(response))
        } else {
            let wait = requested_wait(&response);
            let body = head(response).await;
            let error = from_status(status.as_u16(), &body, wait, self.key.as_ref());
            // Later calls of our own agents wait as well.
            self.limiter.note_failure(&error);
            let body = Bytes::from(body_without_key(&body, self.key.as_ref()));
            (Some(error), AnswerBody::Read(VecDeque::from([body])))
        };
        UpstreamAnswer { status: status.as_u16(), content_type, error, body, key: self.key.clone() }
    }

    fn url(&self, to: &GenerateEndpoint) -> Url {
        let base = self.base.clone();
        match to {
            GenerateEndpoint::Messages => endpoint(base, Wire::Anthropic, "/messages"),
            GenerateEndpoint::ChatCompletions => endpoint(base, Wire::Chat, "/chat/completions"),
            GenerateEndpoint::Responses => endpoint(base, Wire::Responses, "/responses"),
            GenerateEndpoint::Gemini { delivery, .. } => {
                let method = match delivery {
                    GeminiDelivery::Whole => "generateContent",
                    GeminiDelivery::List | GeminiDelivery::Events => "streamGenerateContent",
                };
                let path = format!("/models/{}:{method}", self.model);
                let mut url = endpoint(base, Wire::Gemini, &path);
                if *delivery == GeminiDelivery::Events {
                    url.query_pairs_mut().append_pair("alt", "sse");
                }
                url
            }
        }
    }
}

/// Adds the agent's headers that are passed on to Anthropic.
fn pass_headers(headers: &mut HeaderMap, passed: &[(String, String)]) {
    let mut betas: Vec<&str> = Vec::new();
    for (name, value) in passed {
        if name.eq_ignore_ascii_case("anthropic-version") {
            if let Ok(version) = HeaderValue::from_str(value) {
                headers.insert(HeaderName::from_static("anthropic-version"), version);
            }
        } else if name.eq_ignore_ascii_case("anthropic-beta") {
            betas.extend(value.split(',').map(str::trim).filter(|beta| is_passed_beta(beta)));
        }
    }
    if let Ok(value) = HeaderValue::from_str(&betas.join(","))
        && !betas.is_empty()
    {
        headers.insert(HeaderName::from_static("anthropic-beta"), value);
    }
}

fn is_passed_beta(beta: &str) -> bool {
    let name = beta.to_ascii_lowercase();
    !name.is_empty() && !REFUSED_BETAS.iter().any(|refused| name.starts_with(refused))
}

/// An answer of the provider, of which the body arrives in chunks.
pub struct UpstreamAnswer {
    /// The HTTP status.
    pub status: u16,
    /// The content type.
    pub content_type: Option<String>,
    /// The classified error if the status is not a success. Its `never_began` says whether the provider may bill
    /// for the call; the body still follows, without keys.
    pub error: Option<AttemptError>,
    body: AnswerBody,
    key: Option<Secret>,
}

enum AnswerBody {
    Response(Response),
    Read(VecDeque<Bytes>),
}

impl fmt::Debug for UpstreamAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpstreamAnswer").field("status", &self.status).finish_non_exhaustive()
    }
}

impl UpstreamAnswer {
    /// Returns the next piece of the body; `None` at its end.
    pub async fn next_chunk(&mut self) -> Result<Option<Bytes>, AttemptError> {
        match &mut self.body {
            AnswerBody::Read(chunks) => Ok(chunks.pop_front()),
            AnswerBody::Response(response) => response
                .chunk()
                .await
                .map_err(|error| without_key(connection_error(&error), self.key.as_ref())),
        }
    }
}
