//! `diff`, `merge` and `discard`.

mod ends;
mod killed;
mod messages;
pub(crate) mod open;
mod results;
