//! The return contract: what a delegate hands back, and when it is accepted.
//!
//! Owns the return as data, the judgement of what a model sent, and the words that tell a model
//! what is asked and what was wrong. It reads no file: whether an artifact exists is a fact the
//! caller supplies. Start at [`validate()`]. Invariant: a verdict is valid exactly when it has no
//! errors, and then it holds a [`Return`].

mod artifact;
mod extract;
mod failure;
mod instruction;
mod metadata;
mod migrate;
mod prose;
mod returned;
mod validate;
mod verdict;

pub use artifact::{ArtifactFact, unchecked};
pub use instruction::{json_format_instruction, repair_message};
pub use metadata::{MetadataSource, ORCHESTRATOR};
pub use returned::{
    Artifact, ArtifactKind, ErrorType, Metadata, Open, Return, ReturnError, Status, Word,
};
pub use validate::{
    Contract, Required, SUMMARY_MAX_CHARS, SUMMARY_WARN_CHARS, Submission, validate,
};
pub use verdict::{Complaint, Returned, Verdict};
