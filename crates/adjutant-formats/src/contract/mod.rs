//! The return contract: the data a delegation returns, and the rules for accepting it.
//!
//! Owns the [`Return`] type, the validation of what a model sent, and the instructions and repair messages
//! for models. It reads no file: the caller says whether an artifact exists. Start at [`validate()`].
//! Invariant: a verdict is valid exactly when it has no errors, and then it contains a [`Return`].

mod artifact;
mod claims;
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
pub use claims::{ObservedWork, claims_changed_files, is_about_claim};
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
