//! The schema of the `Return` tool, with which an agent under the standard contract reports its
//! result.

use serde_json::json;

use crate::message::ToolSpec;
use adjutant_formats::contract::{
    ArtifactKind, ErrorType, ReturnStatus, SUMMARY_MAX_CHARS, WireWord,
};

/// The name of the tool.
pub const RETURN: &str = "Return";

/// Returns the declaration of the tool for a model.
///
/// The schema only guides the model. The arguments are validated by the contract, whose error
/// messages say more.
#[must_use]
pub fn return_spec() -> ToolSpec {
    let text = |about: &str| json!({ "type": "string", "description": about });
    ToolSpec {
        name: RETURN.to_owned(),
        description:
            "Hands back your result and ends your work. Call it once, as your last call. If \
            something is wrong with it, you are told what, and call it again."
                .to_owned(),
        schema: json!({
            "type": "object",
            "properties": {
                "status": { "type": "string", "enum": words(ReturnStatus::ALL) },
                "summary": {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": SUMMARY_MAX_CHARS,
                    "description": "2 to 5 plain sentences about the outcome.",
                },
                "artifacts": {
                    "type": "array",
                    "description": "The files that hold the work; empty if there are none.",
                    "items": {
                        "type": "object",
                        "properties": {
                            "type": { "type": "string", "enum": words(ArtifactKind::ALL) },
                            "path": text("Relative to the root."),
                            "summary": text("What the file says, in one sentence."),
                        },
                        "required": ["type", "path"],
                    },
                },
                "errors": {
                    "type": "array",
                    "description": "At least one unless the status is completed; then empty.",
                    "items": {
                        "type": "object",
                        "properties": {
                            "type": text(&format!("One of {}.", words(ErrorType::ALL).join(", "))),
                            "message": text("What happened; for blocked, the question."),
                            "code": text("Such as BUILD_ERROR."),
                            "recoverable": { "type": "boolean" },
                            "recommendation": text("What to do about it."),
                        },
                        "required": ["type", "message", "code", "recoverable", "recommendation"],
                    },
                },
                "next_steps": text("At most 2 sentences."),
            },
            "required": ["status", "summary", "artifacts"],
        }),
    }
}

fn words<T: WireWord>(all: &[T]) -> Vec<&'static str> {
    all.iter().map(|word| word.word()).collect()
}
