//! The wire side of the metering gateway, which serves the four APIs to external agents.
//!
//! Owns what a request of an agent may contain, how it is rewritten, how it is forwarded with the real key, and
//! how the usage is read from the response. It opens no socket, decides about no budget and keeps no journal:
//! the HTTP server in `adjutant-workers` does.
//!
//! Start at [`find_endpoint`] and [`ServedRequest::parse`]. Invariants: a forwarded body asks for no more output
//! than was granted, contains no tool that the provider runs, and refers to nothing outside of itself.

mod answers;
mod endpoint;
mod meter;
mod problem;
mod rules;
mod served;
mod upstream;

pub use answers::{ListedModel, model_body, model_list_body, refusal_body};
pub use endpoint::{Endpoint, GeminiDelivery, GenerateEndpoint, find_endpoint};
pub use meter::{AnswerEnd, MeteredAnswer, UsageMeter};
pub use problem::RequestProblem;
pub use served::{ChatCapField, MAX_REQUEST_BYTES, ServedRequest};
pub use upstream::{Upstream, UpstreamAnswer};
