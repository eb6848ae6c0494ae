//! The schemas of the `Delegate`, `Task` and `Return` tools, and the strict parsers of their
//! arguments.
//!
//! Only the form of a call is checked here; `tree::admission` decides whether its tasks are
//! granted. Start at [`delegate_spec`] and [`DelegateCall::parse`]. Invariant: the parser refuses
//! what the schema forbids, and reports all errors at once.

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
