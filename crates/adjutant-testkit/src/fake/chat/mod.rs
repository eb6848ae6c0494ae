//! OpenAI Chat Completions: `POST /v1/chat/completions`.

mod request;
mod stream;

pub(super) use stream::stream;

use super::api::{AccessRules, Api, ValidRequest};
use super::http::{Head, Reply};
use super::openai;
use super::turn::Fault;

/// Accepts a request or refuses it.
pub(super) fn receive(
    head: &Head,
    body: &[u8],
    access: &AccessRules,
) -> Result<ValidRequest, Reply> {
    let value = openai::admit(head, body, access, "/v1/chat/completions")
        .map_err(|refusal| openai::refusal_reply(head, &refusal))?;
    let request = request::read(&value).map_err(|complaint| openai::refuse(&complaint))?;
    access.has(&request.model).map_err(|refusal| openai::refusal_reply(head, &refusal))?;
    Ok(request)
}

/// Renders a failure within a stream.
pub(super) fn fault_event(fault: &Fault) -> String {
    let failure = openai::failure(Api::Chat, fault.class);
    let message = fault.message.as_deref().unwrap_or(failure.message);
    super::sse::data(&openai::body(failure.kind, message, failure.param, failure.code))
}
