//! The `Delegate` tool as a model sees it, and the strict reading of what a model sends.
//!
//! Owns the shape of one call and its bounds, which are numbers passed in: the policy decides
//! them. It does not know whether a task is granted. Start at [`delegate_spec`] and
//! [`DelegateCall::parse`]. Invariant: what the schema forbids, the parser refuses, naming every
//! place at once.

mod call;
mod reader;
mod spec;

pub use call::{DelegateCall, TaskSpec};
pub use reader::{SchemaComplaint, SchemaError};
pub use spec::{CallLimits, DELEGATE, ReturnForm, delegate_spec};
