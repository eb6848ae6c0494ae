//! Reads the fields of objects, wherever they come from, and says by path and position what is wrong with them.
//!
//! One reader for calls of tools, returns, PRDs, scripts and definitions of agents. A [`FieldReader`] finds a field, a
//! function turns its [`FieldValue`] into what is wanted, and a [`FieldFault`] names the field if it cannot. Which
//! fields there are, and whether a fault ends the reading, is the business of those who read.

mod fault;
mod reader;
mod value;

pub use fault::{FieldFault, FieldProblem};
pub use reader::{FieldReader, NamedField, did_you_mean};
pub use value::{FieldContent, FieldValue};
