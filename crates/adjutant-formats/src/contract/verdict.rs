//! The answer of validation: every complaint, and the return or what came instead of it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::returned::Return;
use crate::code::Code;
use crate::excerpt::excerpt;
use crate::fields::{FieldFault, FieldProblem, FieldReader, FieldValue};

/// The most characters of foreign text that a complaint repeats.
pub(super) const SHOWN_CHARS: usize = 80;

/// Something that is wrong, or could be better, in one place of a return.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Complaint {
    /// What kind of wrong, for programs.
    pub code: Code,
    /// Where: `summary`, `artifacts[0].path`; `return` for the whole.
    pub field: String,
    /// What is wrong, for people and models.
    pub message: String,
}

/// Says whether a return satisfies its contract, and everything that speaks against it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// Whether the return is accepted: true exactly when there are no errors.
    pub valid: bool,
    /// What makes it unacceptable.
    pub errors: Vec<Complaint>,
    /// What is tolerated, but said.
    pub warnings: Vec<Complaint>,
    /// The return; `None` when no JSON was found.
    #[serde(rename = "return")]
    pub returned: Option<Returned>,
}

/// The return a verdict speaks about.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Returned {
    /// It was accepted; old fields are migrated and defaults filled in.
    Accepted(Box<Return>),
    /// It was not accepted and is kept as it came.
    Original(Value),
}

impl Verdict {
    /// Returns the accepted return.
    #[must_use]
    pub fn accepted(&self) -> Option<&Return> {
        match &self.returned {
            Some(Returned::Accepted(returned)) => Some(returned),
            Some(Returned::Original(_)) | None => None,
        }
    }
}

/// Complaints while they are being collected.
#[derive(Debug, Default)]
pub(super) struct Findings {
    errors: Vec<Complaint>,
    warnings: Vec<Complaint>,
}

impl Findings {
    /// Notes an error that is a violation of the format.
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
        self.errors.push(Complaint { code, field: field.into(), message: message.into() });
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
        self.warnings.push(Complaint {
            code: Code::ValidationFailed,
            field: field.into(),
            message: message.into(),
        });
    }

    /// Closes the case: `accepted` counts only when nothing was wrong.
    pub(super) fn verdict(self, accepted: Option<Return>, original: Option<Value>) -> Verdict {
        let accepted = accepted.filter(|_| self.errors.is_empty());
        Verdict {
            valid: accepted.is_some(),
            returned: accepted
                .map(|returned| Returned::Accepted(Box::new(returned)))
                .or(original.map(Returned::Original)),
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
