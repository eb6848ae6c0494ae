//! The return contract: what a delegate hands back, and when it is accepted.
//!
//! Owns the return as data, the judgement of what a model sent, and the words that tell a model
//! what is asked and what was wrong. It reads no file: whether an artifact exists is a fact the
//! caller supplies. Start at [`validate()`]. Invariant: a verdict is valid exactly when it has no
//! errors, and then it holds a [`Return`].

mod artifact;
mod extract;
mod instruction;
mod metadata;
mod migrate;
mod prose;
mod return_data;
mod return_errors;
mod validate;
mod verdict;

pub use artifact::{ArtifactFileState, unchecked};
pub use instruction::{json_format_instruction, repair_message};
pub use metadata::{MetadataSource, ORCHESTRATOR};
pub use return_data::{
    Artifact, ArtifactKind, ErrorType, OpenWord, Return, ReturnError, ReturnMetadata, ReturnStatus,
    WireWord,
};
pub use validate::{
    RequiredArtifacts, ReturnContract, ReturnSubmission, SUMMARY_MAX_CHARS, SUMMARY_WARN_CHARS,
    validate,
};
pub use verdict::{JudgedReturn, ReturnFinding, ReturnVerdict};
