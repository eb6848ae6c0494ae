//! Reads the fields of JSON and TOML objects and reports faults with path and position.
//!
//! The one reader for tool calls, returns, PRDs, scripts and agent definitions. A [`FieldReader`] looks up a
//! field, a function converts its [`FieldValue`], and a [`FieldFault`] names the field if that fails. The
//! caller decides which fields exist and whether a fault is fatal.

mod fault;
mod reader;
mod value;

pub use fault::{FieldFault, FieldProblem};
pub use reader::{FieldReader, NamedField, did_you_mean};
pub use value::{FieldContent, FieldValue};
