//! Markers: `[delegate:description:hours]` in an agent's text, each a request to delegate.
//!
//! Owns the syntax and the rule that markers in code or quotations do not count. It does not decide whether a
//! delegation is allowed or what it costs. Start at [`parse()`]. Invariant: the spans of valid and invalid
//! markers are in order, do not overlap and lie on character boundaries, so together with the text between
//! them they make up the whole text.

mod code_span;
mod parse;
mod prose_blocks;
mod scan;

pub use parse::{
    InvalidMarker, InvalidMarkerCause, MAX_HOURS, Marker, MarkerContext, ParsedMarkers, parse,
};
