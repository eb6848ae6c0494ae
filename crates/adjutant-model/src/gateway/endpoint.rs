//! The endpoints that the gateway serves.
//!
//! Everything else is answered with 404: token counting, batches, files, stored conversations, compaction and
//! websockets cannot be bounded, or are not needed by any agent.

use crate::wire::Wire;

/// One endpoint that the gateway serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// Generates an answer; costs money.
    Generate(GenerateEndpoint),
    /// Lists the models. `/v1/models` belongs to Anthropic and OpenAI and is reported as [`Wire::Chat`]; its
    /// body satisfies both.
    ListModels(Wire),
    /// Describes one model.
    ShowModel {
        /// The wire format, as for [`Endpoint::ListModels`].
        wire: Wire,
        /// The model's name.
        model: String,
    },
    /// A `HEAD` request of any path, with which agents test the connection.
    Probe,
}

/// An endpoint that generates an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GenerateEndpoint {
    /// Anthropic Messages.
    Messages,
    /// OpenAI Chat Completions.
    ChatCompletions,
    /// OpenAI Responses.
    Responses,
    /// Gemini, which has the model and the form of the answer in its path.
    Gemini {
        /// The model's name.
        model: String,
        /// The form of the answer.
        delivery: GeminiDelivery,
    },
}

/// The form in which Gemini delivers an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GeminiDelivery {
    /// One response: `generateContent`.
    Whole,
    /// A JSON list of responses that grows: `streamGenerateContent`.
    List,
    /// Server-sent events: `streamGenerateContent?alt=sse`.
    Events,
}

impl GenerateEndpoint {
    /// Returns the wire format.
    #[must_use]
    pub const fn wire(&self) -> Wire {
        match self {
            Self::Messages => Wire::Anthropic,
            Self::ChatCompletions => Wire::Chat,
            Self::Responses => Wire::Responses,
            Self::Gemini { .. } => Wire::Gemini,
        }
    }
}

/// Finds the endpoint of a method and path; `None` means 404.
///
/// The query is ignored, except for Gemini's `alt=sse`.
#[must_use]
pub fn find_endpoint(method: &str, path_and_query: &str) -> Option<Endpoint> {
    let (path, query) = path_and_query.split_once('?').unwrap_or((path_and_query, ""));
    match method {
        "HEAD" => Some(Endpoint::Probe),
        "GET" => model_endpoint(path),
        "POST" => generate_endpoint(path, query).map(Endpoint::Generate),
        _ => None,
    }
}

fn model_endpoint(path: &str) -> Option<Endpoint> {
    let (wire, rest) = if let Some(rest) = path.strip_prefix("/v1beta/models") {
        (Wire::Gemini, rest)
    } else {
        let path = path.strip_prefix("/v1").unwrap_or(path);
        (Wire::Chat, path.strip_prefix("/models")?)
    };
    if rest.is_empty() {
        return Some(Endpoint::ListModels(wire));
    }
    // Names of models may contain slashes, for example on OpenRouter.
    let model = rest.strip_prefix('/').filter(|model| !model.is_empty())?;
    Some(Endpoint::ShowModel { wire, model: model.to_owned() })
}

fn generate_endpoint(path: &str, query: &str) -> Option<GenerateEndpoint> {
    match path {
        "/v1/messages" | "/messages" => return Some(GenerateEndpoint::Messages),
        "/v1/chat/completions" | "/chat/completions" => {
            return Some(GenerateEndpoint::ChatCompletions);
        }
        "/v1/responses" | "/responses" => return Some(GenerateEndpoint::Responses),
        _ => {}
    }
    let rest = path.strip_prefix("/v1beta/models/").or(path.strip_prefix("/v1/models/"))?;
    let (model, method) = rest.rsplit_once(':')?;
    if model.is_empty() || model.contains('/') {
        return None;
    }
    let delivery = match method {
        "generateContent" => GeminiDelivery::Whole,
        "streamGenerateContent" if query.split('&').any(|pair| pair == "alt=sse") => {
            GeminiDelivery::Events
        }
        "streamGenerateContent" => GeminiDelivery::List,
        _ => return None,
    };
    Some(GenerateEndpoint::Gemini { model: model.to_owned(), delivery })
}
