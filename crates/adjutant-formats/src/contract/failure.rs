//! Judges the errors of a return: there when something went wrong, and complete.

use serde_json::Value;

use super::fields::{Fields, shown};
use super::returned::{Open, ReturnError, Status};
use super::verdict::Findings;
use crate::code::Code;

/// Reads and judges the field `errors`, as the status demands.
pub(super) fn judge(
    fields: &Fields<'_>,
    status: Option<Status>,
    findings: &mut Findings,
) -> Option<Vec<ReturnError>> {
    let Some(value) = fields.optional("errors") else {
        if status.is_some_and(needs_errors) {
            findings.missing("errors");
        }
        return Some(Vec::new());
    };
    let list = fields.expect("errors", "an array", value.as_array(), findings)?;
    judge_presence(list.len(), status, findings);
    let errors: Vec<Option<ReturnError>> =
        list.iter().enumerate().map(|(nth, value)| one(nth, value, findings)).collect();
    errors.into_iter().collect()
}

const fn needs_errors(status: Status) -> bool {
    match status {
        Status::Completed => false,
        Status::Failed | Status::Partial | Status::Blocked => true,
    }
}

fn judge_presence(count: usize, status: Option<Status>, findings: &mut Findings) {
    // A status that is no status has its own complaint.
    let Some(status) = status else { return };
    if needs_errors(status) && count == 0 {
        let message = format!("Errors cannot be empty when the status is {status}");
        findings.error("errors", message);
    } else if !needs_errors(status) && count > 0 {
        let message = format!("Errors should be empty when the status is {status}");
        findings.warn("errors", message);
    }
}

fn one(nth: usize, value: &Value, findings: &mut Findings) -> Option<ReturnError> {
    let fields = Fields::at(format!("errors[{nth}]"), value, findings)?;
    let kind = fields.text("type", findings).map(Open::new);
    if let Some(Open::Other(text)) = &kind {
        let message = format!("Unknown error type: {}", shown(&Value::from(text.as_str())));
        findings.warn(fields.path("type"), message);
    }
    let message = fields.text("message", findings);
    let code = code(&fields, findings);
    let recoverable = fields
        .required("recoverable", findings)
        .and_then(|value| fields.expect("recoverable", "true or false", value.as_bool(), findings));
    let recommendation = fields.text("recommendation", findings);
    let known = ["type", "message", "code", "recoverable", "recommendation"];
    fields.warn_unknown(&known, findings);
    Some(ReturnError {
        kind: kind?,
        message: message?.to_owned(),
        code: code?,
        recoverable: recoverable?,
        recommendation: recommendation?.to_owned(),
    })
}

// D24: one of the guides leaves the code out of its own sample.
fn code(fields: &Fields<'_>, findings: &mut Findings) -> Option<Open<Code>> {
    let Some(value) = fields.optional("code") else {
        let message = format!("Missing code is taken as {}", Code::UnknownError);
        findings.warn(fields.path("code"), message);
        return Some(Code::UnknownError.into());
    };
    let code = Open::new(fields.expect("code", "a string", value.as_str(), findings)?);
    if let Open::Other(_) = code {
        findings.warn(fields.path("code"), format!("Unknown error code: {}", shown(value)));
    }
    Some(code)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(object: Value, status: Option<Status>) -> String {
        let mut findings = Findings::default();
        let read = judge(&Fields::root(object.as_object().unwrap()), status, &mut findings);
        let mut lines = findings.lines();
        lines.extend(read.map(|read| format!("read {}", serde_json::to_string(&read).unwrap())));
        lines.join("\n")
    }

    #[test]
    fn requirement_30_errors_are_required_unless_completed() {
        for status in [Status::Failed, Status::Partial, Status::Blocked] {
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
        for status in [Some(Status::Completed), None] {
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
        insta::assert_snapshot!(check(errors, Some(Status::Failed)), @r#"
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
        insta::assert_snapshot!(check(errors, Some(Status::Completed)), @r"
        error errors[0].type: Missing required field: errors[0].type
        error errors[0].message: Missing required field: errors[0].message
        error errors[0].code: errors[0].code must be a string
        error errors[0].recoverable: errors[0].recoverable must be true or false
        error errors[0].recommendation: errors[0].recommendation cannot be empty
        error errors[1]: errors[1] must be an object
        warn errors: Errors should be empty when the status is completed
        warn errors[0].stack: Unknown field is ignored: errors[0].stack
        ");
        let text = check(json!({"errors": "none"}), Some(Status::Failed));
        assert_eq!(text, "error errors: errors must be an array");
    }
}
