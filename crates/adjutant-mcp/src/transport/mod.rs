//! The transports: standard input and output, and HTTP.

pub(crate) mod eras;
pub(crate) mod http;
pub(crate) mod requests;
pub(crate) mod stdio;
