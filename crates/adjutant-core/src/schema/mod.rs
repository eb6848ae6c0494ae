//! The `Delegate`, `Task` and `Return` tools as a model sees them, and the strict reading of what it sends.
//!
//! Owns the shape of one call and its bounds, which are numbers passed in: the policy decides
//! them. It does not know whether a task is granted. Start at [`delegate_spec`] and
//! [`DelegateCall::parse`]; `Task` hands exactly one task to an agent it names. Invariant: what the schema forbids, the parser refuses, naming every
//! place at once.

mod call;
mod complaint;
mod returning;
mod spec;
mod task;

pub use call::{DelegateCall, TaskSpec};
pub use complaint::{SchemaComplaint, SchemaError};
pub use returning::{RETURN, return_spec};
pub use spec::{CallLimits, DELEGATE, ReturnForm, delegate_spec};
pub use task::{AgentCard, TASK, TaskCall, task_spec};
