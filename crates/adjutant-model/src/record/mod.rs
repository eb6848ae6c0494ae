//! Recordings: what providers were asked and answered, kept in a file and played again.
//!
//! Owns the file's format, its writing and its reading. It never holds a header or a key. Start at
//! [`Recorder::create`] and [`ReplayModel::load`]. Invariant: a recorded answer is played through
//! the reader that read it first, so the same bytes give the same reply and the same usage.

mod difference;
mod format;
mod load;
mod recorder;
mod replay;
mod response;

pub use load::ReplayError;
pub use recorder::{RecordError, Recorder};
pub use replay::ReplayModel;
pub(crate) use response::{NonStreamBody, ResponseRecorder, misplaced};
