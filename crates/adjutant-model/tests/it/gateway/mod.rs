//! The wire side of the metering gateway: what agents may ask for, what is forwarded, and what it costs.

mod endpoints;
mod metering;
mod random_requests;
mod refused;
mod rewritten;
mod upstream;

use adjutant_model::gateway::{
    Endpoint, GenerateEndpoint, RequestProblem, ServedRequest, find_endpoint,
};
use adjutant_model::wire::Wire;
use serde_json::Value;

/// Returns the endpoint that agents use for a wire, with a stream if the path decides about it.
fn endpoint(wire: Wire) -> GenerateEndpoint {
    let path = match wire {
        Wire::Anthropic => "/v1/messages?beta=true",
        Wire::Chat => "/v1/chat/completions",
        Wire::Responses => "/v1/responses",
        Wire::Gemini => "/v1beta/models/small-model:streamGenerateContent?alt=sse",
    };
    match find_endpoint("POST", path) {
        Some(Endpoint::Generate(endpoint)) => endpoint,
        other => panic!("{path}: {other:?}"),
    }
}

fn parse(wire: Wire, body: &Value) -> Result<ServedRequest, RequestProblem> {
    ServedRequest::parse(&endpoint(wire), body.to_string().as_bytes())
}

fn served(wire: Wire, body: &Value) -> ServedRequest {
    parse(wire, body).unwrap_or_else(|problem| panic!("{wire}: {problem}: {body}"))
}
