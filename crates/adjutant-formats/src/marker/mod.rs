//! Markers: `[delegate:description:hours]` in what an agent writes.
//!
//! Owns the syntax and what counts as code, where no marker counts. It does not know whether a
//! delegation is allowed (see the tree) or what it costs. Start at [`parse()`]. Invariant: the spans
//! of markers and rejects are in order, do not overlap and lie on character boundaries, so that
//! they and what lies between them make up the text.

mod code_span;
mod parse;
mod prose_blocks;
mod scan;

pub use parse::{
    InvalidMarker, InvalidMarkerCause, MAX_HOURS, Marker, MarkerContext, ParsedMarkers, parse,
};
