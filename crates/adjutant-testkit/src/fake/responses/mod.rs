//! OpenAI Responses: `POST /v1/responses`. Keeps no state: `previous_response_id` finds nothing.

mod items;
mod request;
mod stream;

pub(super) use stream::{fault_event, stream};

use super::api::{Door, Exchange};
use super::http::{Head, Reply};
use super::openai;

/// Accepts a request or refuses it.
pub(super) fn receive(head: &Head, body: &[u8], door: &Door) -> Result<Exchange, Reply> {
    let value = openai::admit(head, body, door, "/v1/responses")
        .map_err(|trouble| openai::trouble(head, &trouble))?;
    let exchange = request::read(&value).map_err(|complaint| openai::refuse(&complaint))?;
    door.has(&exchange.model).map_err(|trouble| openai::trouble(head, &trouble))?;
    Ok(exchange)
}
