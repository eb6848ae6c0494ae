//! Recordings: provider requests and responses, written to a file and replayed.
//!
//! Owns the file format, recording and replay. A recording never contains a header or a key. Start at
//! [`Recorder::create`] and [`ReplayModel::load`]. Invariant: a recorded response goes through the same
//! reader as a live one, so the same bytes give the same reply and usage.

mod difference;
mod format;
mod load;
mod recorder;
mod replay;
mod response;

pub use load::ReplayError;
pub use recorder::{RecordError, Recorder};
pub use replay::ReplayModel;
pub(crate) use response::{NonStreamBody, ResponseRecorder, non_stream_error};
