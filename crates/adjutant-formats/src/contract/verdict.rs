//! The answer of validation: every complaint, and the return or what came instead of it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::return_data::Return;
use crate::code::Code;
use crate::excerpt::excerpt;
use crate::fields::{FieldFault, FieldProblem, FieldReader, FieldValue};

/// The most characters of foreign text that a complaint repeats.
pub(super) const SHOWN_CHARS: usize = 80;

/// Something that is wrong, or could be better, in one place of a return.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReturnFinding {
    /// The error code, for programs.
    pub code: Code,
    /// Where: `summary`, `artifacts[0].path`; `return` for the whole.
    pub field: String,
    /// What is wrong, for people and models.
    pub message: String,
}

/// Says whether a return satisfies its contract, and everything that speaks against it.
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

/// The return a verdict speaks about.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum JudgedReturn {
    /// The accepted return, with obsolete fields migrated and defaults filled in.
    Accepted(Box<Return>),
    /// It was not accepted and is kept as it came.
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

/// Complaints while they are being collected.
#[derive(Debug, Default)]
pub(super) struct ReturnFindings {
    errors: Vec<ReturnFinding>,
    warnings: Vec<ReturnFinding>,
}

impl ReturnFindings {
    /// Adds an error with the code `VALIDATION_FAILED`.
    pub(super) fn error(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.error_with(Code::ValidationFailed, field, message);
    }

    /// Notes an error with a code of its own.
    pub(super) fn error_with(
        &mut self,
        code: Code,
        field: impl Into<String>,
        message: impl Into<String>,
    ) {
        self.errors.push(ReturnFinding { code, field: field.into(), message: message.into() });
    }

    /// Passes on what was read; a fault is noted.
    pub(super) fn keep<T>(&mut self, read: Result<T, FieldFault>) -> Option<T> {
        let FieldFault { path, problem, .. } = match read {
            Ok(read) => return Some(read),
            Err(fault) => fault,
        };
        match &problem {
            FieldProblem::Missing => self.missing(path),
            FieldProblem::Blank => self.error(path.as_str(), format!("{path} cannot be empty")),
            FieldProblem::Unfit { .. } | FieldProblem::Other(_) => {
                self.error(path.as_str(), format!("{path} {problem}"));
            }
        }
        None
    }

    /// Warns of each field that nobody will read.
    pub(super) fn warn_unknown(&mut self, fields: &FieldReader<'_>, known: &[&str]) {
        for field in fields.unknown(known) {
            let path = fields.path(&excerpt(&field.name, SHOWN_CHARS));
            self.warn(path.as_str(), format!("Unknown field is ignored: {path}"));
        }
    }

    /// Notes that a field is not there.
    pub(super) fn missing(&mut self, field: impl Into<String>) {
        let field = field.into();
        let message = format!("Missing required field: {field}");
        self.error(field, message);
    }

    /// Notes something tolerated.
    pub(super) fn warn(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.warnings.push(ReturnFinding {
            code: Code::ValidationFailed,
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

/// Shows a foreign value in a complaint: a text as it is, anything else as JSON.
pub(super) fn shown(value: FieldValue<'_>) -> String {
    let text = value.string().unwrap_or_else(|_| value.to_json().to_string().into());
    excerpt(&text, SHOWN_CHARS).into_owned()
}
