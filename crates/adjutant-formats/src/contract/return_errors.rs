//! Validates the `errors` of a return: required unless the status is `completed`, each entry complete.

use super::return_data::{OpenWord, ReturnError, ReturnStatus};
use super::verdict::{ReturnFindings, SHOWN_CHARS};
use crate::code::ErrorCode;
use crate::excerpt::excerpt;
use crate::fields::{FieldReader, FieldValue};

/// Reads and validates the field `errors`; the status decides whether entries are required.
pub(super) fn judge(
    fields: &FieldReader<'_>,
    status: Option<ReturnStatus>,
    findings: &mut ReturnFindings,
) -> Option<Vec<ReturnError>> {
    let Some(list) = findings.keep(fields.optional("errors", FieldValue::items))? else {
        if status.is_some_and(needs_errors) {
            findings.add_missing("errors");
        }
        return Some(Vec::new());
    };
    judge_presence(list.len(), status, findings);
    let error = |(nth, value)| {
        let fields = findings.keep(fields.item("errors", nth, value))?;
        read_error(&fields, findings)
    };
    let errors: Vec<Option<ReturnError>> = list.into_iter().enumerate().map(error).collect();
    errors.into_iter().collect()
}

const fn needs_errors(status: ReturnStatus) -> bool {
    match status {
        ReturnStatus::Completed => false,
        ReturnStatus::Failed | ReturnStatus::Partial | ReturnStatus::Blocked => true,
    }
}

fn judge_presence(count: usize, status: Option<ReturnStatus>, findings: &mut ReturnFindings) {
    // An invalid status is reported by its own check.
    let Some(status) = status else { return };
    if needs_errors(status) && count == 0 {
        let message = format!("Errors cannot be empty when the status is {status}");
        findings.error("errors", message);
    } else if !needs_errors(status) && count > 0 {
        let message = format!("Errors should be empty when the status is {status}");
        findings.warn("errors", message);
    }
}

fn read_error(fields: &FieldReader<'_>, findings: &mut ReturnFindings) -> Option<ReturnError> {
    let kind = findings.keep(fields.require("type", FieldValue::non_blank_string));
    let kind = kind.map(|word| (OpenWord::new(&word), word));
    if let Some((OpenWord::Other(_), word)) = &kind {
        let shown = excerpt(word, SHOWN_CHARS);
        findings.warn(fields.path("type"), format!("Unknown error type: {shown}"));
    }
    let message = findings.keep(fields.require("message", FieldValue::non_blank_string));
    let code = read_code(fields, findings);
    let recoverable = findings.keep(fields.require("recoverable", FieldValue::boolean));
    let recommendation =
        findings.keep(fields.require("recommendation", FieldValue::non_blank_string));
    let known = ["type", "message", "code", "recoverable", "recommendation"];
    findings.warn_unknown(fields, &known);
    Some(ReturnError {
        kind: kind?.0,
        message: message?.into_owned(),
        code: code?,
        recoverable: recoverable?,
        recommendation: recommendation?.into_owned(),
    })
}

// A missing code is only a warning, because a sample return in one of the guides has none (requirement D24).
fn read_code(
    fields: &FieldReader<'_>,
    findings: &mut ReturnFindings,
) -> Option<OpenWord<ErrorCode>> {
    let Some(word) = findings.keep(fields.optional("code", FieldValue::string))? else {
        let message = format!("Missing code is taken as {}", ErrorCode::UnknownError);
        findings.warn(fields.path("code"), message);
        return Some(ErrorCode::UnknownError.into());
    };
    let code = OpenWord::new(&word);
    if let OpenWord::Other(_) = code {
        let shown = excerpt(&word, SHOWN_CHARS);
        findings.warn(fields.path("code"), format!("Unknown error code: {shown}"));
    }
    Some(code)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(object: Value, status: Option<ReturnStatus>) -> String {
        let mut findings = ReturnFindings::default();
        let read = judge(&FieldReader::new((&object).into(), "").unwrap(), status, &mut findings);
        let mut lines = findings.lines();
        lines.extend(read.map(|read| format!("read {}", serde_json::to_string(&read).unwrap())));
        lines.join("\n")
    }

    #[test]
    fn requirement_30_errors_are_required_unless_completed() {
        for status in [ReturnStatus::Failed, ReturnStatus::Partial, ReturnStatus::Blocked] {
            let absent = "error errors: Missing required field: errors\nread []";
            assert_eq!(check(json!({}), Some(status)), absent);
            assert_eq!(check(json!({"errors": null}), Some(status)), absent);
            assert_eq!(
                check(json!({"errors": []}), Some(status)),
                format!(
                    "error errors: Errors cannot be empty when the status is {status}\nread []"
                )
            );
        }
        for status in [Some(ReturnStatus::Completed), None] {
            assert_eq!(check(json!({}), status), "read []");
            assert_eq!(check(json!({"errors": []}), status), "read []");
        }
    }

    #[test]
    fn the_list_of_types_and_codes_is_open() {
        let errors = json!({"errors": [
            {"type": "build_error", "message": "m", "code": "BUILD_ERROR", "recoverable": true,
             "recommendation": "r"},
            {"type": "timeout", "message": "m", "code": "OUT_OF_COFFEE", "recoverable": false,
             "recommendation": "r"},
            {"type": "execution", "message": "m", "recoverable": true, "recommendation": "r"},
        ]});
        insta::assert_snapshot!(check(errors, Some(ReturnStatus::Failed)), @r#"
        warn errors[0].type: Unknown error type: build_error
        warn errors[1].code: Unknown error code: OUT_OF_COFFEE
        warn errors[2].code: Missing code is taken as UNKNOWN_ERROR
        read [{"type":"build_error","message":"m","code":"BUILD_ERROR","recoverable":true,"recommendation":"r"},{"type":"timeout","message":"m","code":"OUT_OF_COFFEE","recoverable":false,"recommendation":"r"},{"type":"execution","message":"m","code":"UNKNOWN_ERROR","recoverable":true,"recommendation":"r"}]
        "#);
    }

    #[test]
    fn every_fault_of_every_error_is_named() {
        let errors = json!({"errors": [
            {"code": 7, "recoverable": "yes", "recommendation": "", "stack": []},
            "it broke",
        ]});
        insta::assert_snapshot!(check(errors, Some(ReturnStatus::Completed)), @r"
        error errors[0].type: Missing required field: errors[0].type
        error errors[0].message: Missing required field: errors[0].message
        error errors[0].code: errors[0].code must be a string, not a number
        error errors[0].recoverable: errors[0].recoverable must be true or false, not a string
        error errors[0].recommendation: errors[0].recommendation cannot be empty
        error errors[1]: errors[1] must be an object, not a string
        warn errors: Errors should be empty when the status is completed
        warn errors[0].stack: Unknown field is ignored: errors[0].stack
        ");
        let text = check(json!({"errors": "none"}), Some(ReturnStatus::Failed));
        assert_eq!(text, "error errors: errors must be an array, not a string");
    }
}
