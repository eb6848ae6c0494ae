//! The result of validating a return: all findings, and the return or the rejected JSON.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::return_data::Return;
use crate::code::ErrorCode;
use crate::excerpt::excerpt;
use crate::fields::{FieldFault, FieldProblem, FieldReader, FieldValue};

/// The maximum number of characters of model text quoted in a finding.
pub(super) const SHOWN_CHARS: usize = 80;

/// An error or a warning about one field of a return.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReturnFinding {
    /// The error code, for programs.
    pub code: ErrorCode,
    /// The field: `summary`, `artifacts[0].path`, or `return` for the whole.
    pub field: String,
    /// The problem, as text for people and models.
    pub message: String,
}

/// Whether a return satisfies its contract, with all findings about it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReturnVerdict {
    /// Whether the return is accepted: true exactly when there are no errors.
    pub valid: bool,
    /// The problems because of which it is rejected.
    pub errors: Vec<ReturnFinding>,
    /// Problems that do not lead to rejection.
    pub warnings: Vec<ReturnFinding>,
    /// The validated return; `None` if no JSON was found.
    #[serde(rename = "return")]
    pub returned: Option<JudgedReturn>,
}

/// A return after its check: the accepted one, or the rejected JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum JudgedReturn {
    /// The accepted return, with obsolete fields migrated and defaults filled in.
    Accepted(Box<Return>),
    /// The rejected JSON as the agent sent it.
    Original(Value),
}

impl ReturnVerdict {
    /// Returns the accepted return.
    #[must_use]
    pub fn accepted(&self) -> Option<&Return> {
        match &self.returned {
            Some(JudgedReturn::Accepted(returned)) => Some(returned),
            Some(JudgedReturn::Original(_)) | None => None,
        }
    }
}

/// Collects findings during validation.
#[derive(Debug, Default)]
pub(super) struct ReturnFindings {
    errors: Vec<ReturnFinding>,
    warnings: Vec<ReturnFinding>,
}

impl ReturnFindings {
    /// Adds an error with the code `VALIDATION_FAILED`.
    pub(super) fn error(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.error_with(ErrorCode::ValidationFailed, field, message);
    }

    /// Adds an error with the given code.
    pub(super) fn error_with(
        &mut self,
        code: ErrorCode,
        field: impl Into<String>,
        message: impl Into<String>,
    ) {
        self.errors.push(ReturnFinding { code, field: field.into(), message: message.into() });
    }

    /// Returns the value that was read, or adds its fault as an error.
    pub(super) fn keep<T>(&mut self, read: Result<T, FieldFault>) -> Option<T> {
        let FieldFault { path, problem, .. } = match read {
            Ok(read) => return Some(read),
            Err(fault) => fault,
        };
        match &problem {
            FieldProblem::Missing => self.add_missing(path),
            FieldProblem::Blank => self.error(path.as_str(), format!("{path} cannot be empty")),
            FieldProblem::Unfit { .. } | FieldProblem::Other(_) => {
                self.error(path.as_str(), format!("{path} {problem}"));
            }
        }
        None
    }

    /// Adds a warning for each field that is not in `known`.
    pub(super) fn warn_unknown(&mut self, fields: &FieldReader<'_>, known: &[&str]) {
        for field in fields.unknown(known) {
            let path = fields.path(&excerpt(&field.name, SHOWN_CHARS));
            self.warn(path.as_str(), format!("Unknown field is ignored: {path}"));
        }
    }

    /// Adds an error for a missing field.
    pub(super) fn add_missing(&mut self, field: impl Into<String>) {
        let field = field.into();
        let message = format!("Missing required field: {field}");
        self.error(field, message);
    }

    /// Adds a warning.
    pub(super) fn warn(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.warnings.push(ReturnFinding {
            code: ErrorCode::ValidationFailed,
            field: field.into(),
            message: message.into(),
        });
    }

    /// Builds the verdict; `accepted` is used only if there are no errors.
    pub(super) fn verdict(
        self,
        accepted: Option<Return>,
        original: Option<Value>,
    ) -> ReturnVerdict {
        let accepted = accepted.filter(|_| self.errors.is_empty());
        ReturnVerdict {
            valid: accepted.is_some(),
            returned: accepted
                .map(|returned| JudgedReturn::Accepted(Box::new(returned)))
                .or(original.map(JudgedReturn::Original)),
            errors: self.errors,
            warnings: self.warnings,
        }
    }

    #[cfg(test)]
    pub(super) fn lines(&self) -> Vec<String> {
        let errors = self.errors.iter().map(|it| format!("error {}: {}", it.field, it.message));
        let warnings = self.warnings.iter().map(|it| format!("warn {}: {}", it.field, it.message));
        errors.chain(warnings).collect()
    }
}

/// Formats a value for a finding: strings as they are, other values as JSON.
pub(super) fn format_value(value: FieldValue<'_>) -> String {
    let text = value.string().unwrap_or_else(|_| value.to_json().to_string().into());
    excerpt(&text, SHOWN_CHARS).into_owned()
}
