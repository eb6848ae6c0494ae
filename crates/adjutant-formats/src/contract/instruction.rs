//! The texts sent to a model: how to write its return, and what was wrong with the return it sent.
//!
//! Lists and numbers come from the types and limits of the validation, so the two cannot drift apart.

use std::fmt::Write as _;

use super::return_data::{ArtifactKind, ErrorType, ReturnStatus, WireWord};
use super::validate::{
    NEXT_STEPS_SENTENCES, SUMMARY_MAX_CHARS, SUMMARY_SENTENCES, SUMMARY_WARN_CHARS,
};
use super::verdict::{ReturnFinding, ReturnVerdict};

/// The maximum number of findings sent back to a model. More do not help it.
const SHOWN_COMPLAINTS: usize = 20;

/// Returns the text appended to the prompt of every agent that must deliver a standard return.
#[must_use]
pub fn json_format_instruction() -> String {
    let (min, max) = SUMMARY_SENTENCES.into_inner();
    format!(
        "\
How to hand back your result

End by calling the `Return` tool once. If you have no such tool, let your last message be one
JSON object and nothing else: no prose before or after it.

{{
  \"status\": \"{statuses}\",
  \"summary\": \"{min} to {max} plain sentences about the outcome\",
  \"artifacts\": [{{\"type\": \"{kinds}\", \"path\": \"relative/to/the/root\", \"summary\": \"optional\"}}],
  \"errors\": [{{\"type\": \"{types}\", \"message\": \"what happened\", \"code\": \"ERROR_CODE\", \"recoverable\": true, \"recommendation\": \"what to do\"}}],
  \"next_steps\": \"optional, at most {NEXT_STEPS_SENTENCES} sentences\"
}}

- status: completed when all is done; partial when some of it can be used; failed when none can;
  blocked when someone must decide or provide something first, and then say in errors what.
- summary: at most {SUMMARY_WARN_CHARS} characters, never above {SUMMARY_MAX_CHARS}; no emoji, no markup.
- artifacts: files that exist, have content and lie below the root; an empty list if there are none.
- errors: at least one unless the status is completed; then leave it empty.
- metadata (session, duration, agent, depth, path) is filled in for you; leave it out.

What you hand back is checked. Plain text instead of the object is refused: Return is not valid JSON.",
        statuses = alternatives(ReturnStatus::ALL),
        kinds = alternatives(ArtifactKind::ALL),
        types = alternatives(ErrorType::ALL),
    )
}

/// Returns the message sent to a model whose return was rejected.
#[must_use]
pub fn repair_message(verdict: &ReturnVerdict) -> String {
    let mut text = String::from("Your return was not accepted. What is wrong with it:\n");
    list(&verdict.errors, &mut text);
    if verdict.errors.iter().any(|complaint| complaint.field == "status") {
        let _ = writeln!(text, "The status is one of {}.", alternatives(ReturnStatus::ALL));
    }
    if !verdict.warnings.is_empty() {
        text.push_str("Tolerated, but better put right as well:\n");
        list(&verdict.warnings, &mut text);
    }
    text.push_str(
        "Do not repeat the work. Call the `Return` tool again with the whole return, corrected; \
         without that tool, answer with the JSON object alone.",
    );
    text
}

fn list(complaints: &[ReturnFinding], text: &mut String) {
    for complaint in complaints.iter().take(SHOWN_COMPLAINTS) {
        let _ = writeln!(text, "- {}: {}", complaint.field, complaint.message);
    }
    let left = complaints.len().saturating_sub(SHOWN_COMPLAINTS);
    if left > 0 {
        let _ = writeln!(text, "- and {left} more");
    }
}

fn alternatives<T: WireWord>(all: &[T]) -> String {
    all.iter().map(|word| word.word()).collect::<Vec<_>>().join("|")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::artifact::unchecked;
    use super::super::validate::{ReturnContract, validate};
    use super::*;

    #[test]
    fn requirement_13_the_instruction_names_the_tool_the_fields_and_the_limits() {
        insta::assert_snapshot!(json_format_instruction(), @r#"
        How to hand back your result

        End by calling the `Return` tool once. If you have no such tool, let your last message be one
        JSON object and nothing else: no prose before or after it.

        {
          "status": "completed|failed|partial|blocked",
          "summary": "2 to 5 plain sentences about the outcome",
          "artifacts": [{"type": "research|plan|implementation|summary|documentation", "path": "relative/to/the/root", "summary": "optional"}],
          "errors": [{"type": "timeout|validation|execution|tool_unavailable", "message": "what happened", "code": "ERROR_CODE", "recoverable": true, "recommendation": "what to do"}],
          "next_steps": "optional, at most 2 sentences"
        }

        - status: completed when all is done; partial when some of it can be used; failed when none can;
          blocked when someone must decide or provide something first, and then say in errors what.
        - summary: at most 400 characters, never above 500; no emoji, no markup.
        - artifacts: files that exist, have content and lie below the root; an empty list if there are none.
        - errors: at least one unless the status is completed; then leave it empty.
        - metadata (session, duration, agent, depth, path) is filled in for you; leave it out.

        What you hand back is checked. Plain text instead of the object is refused: Return is not valid JSON.
        "#);
    }

    #[test]
    fn a_repair_message_repeats_every_complaint() {
        let sent = json!({"status": "done", "summary": "", "artifacts": [], "mood": 1});
        let verdict = validate(&sent, &ReturnContract::default(), &unchecked);
        insta::assert_snapshot!(repair_message(&verdict), @r"
        Your return was not accepted. What is wrong with it:
        - metadata: Missing required field: metadata
        - status: Invalid status: done
        - summary: Summary cannot be empty
        The status is one of completed|failed|partial|blocked.
        Tolerated, but better put right as well:
        - mood: Unknown field is ignored: mood
        Do not repeat the work. Call the `Return` tool again with the whole return, corrected; without that tool, answer with the JSON object alone.
        ");
    }

    #[test]
    fn a_repair_message_has_an_end_whatever_was_sent() {
        let sent = json!({"status": "completed", "summary": "A b. C d.",
            "artifacts": vec![0; 1000], "metadata": {}});
        let verdict = validate(&sent, &ReturnContract::default(), &unchecked);
        let text = repair_message(&verdict);
        assert!(text.contains("\n- and 985 more\n"), "{text}");
        assert_eq!(text.matches("\n- ").count(), SHOWN_COMPLAINTS + 1);
    }
}
