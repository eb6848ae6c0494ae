//! The `Delegate`, `Task` and `Return` tools as a model sees them, and the strict reading of what it sends.
//!
//! Owns the shape of one call and its bounds, which are numbers passed in: the policy decides
//! them. It does not know whether a task is granted. Start at [`delegate_spec`] and
//! [`DelegateCall::parse`]; `Task` hands exactly one task to an agent it names. Invariant: what the schema forbids, the parser refuses, naming every
//! place at once.

mod complaint;
mod delegate_call;
mod delegate_tool;
mod return_tool;
mod task_tool;

pub use complaint::{SchemaComplaint, SchemaError};
pub use delegate_call::{DelegateCall, TaskSpec};
pub use delegate_tool::{CallLimits, DELEGATE, ReturnFormat, delegate_spec};
pub use return_tool::{RETURN, return_spec};
pub use task_tool::{AgentCard, TASK, TaskCall, task_spec};
