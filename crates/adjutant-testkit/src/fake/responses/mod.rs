//! OpenAI Responses: `POST /v1/responses`. Keeps no state: `previous_response_id` finds nothing.

mod items;
mod request;
mod stream;

pub(super) use stream::{fault_event, stream};

use super::api::{AccessRules, ValidRequest};
use super::http::{Head, Reply};
use super::openai;

/// Accepts a request or refuses it.
pub(super) fn receive(
    head: &Head,
    body: &[u8],
    access: &AccessRules,
) -> Result<ValidRequest, Reply> {
    let value = openai::admit(head, body, access, "/v1/responses")
        .map_err(|refusal| openai::refusal_reply(head, &refusal))?;
    let request = request::read(&value).map_err(|complaint| openai::refuse(&complaint))?;
    access.has(&request.model).map_err(|refusal| openai::refusal_reply(head, &refusal))?;
    Ok(request)
}
