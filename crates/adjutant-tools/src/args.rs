//! Reads the arguments of a tool call: lenient about types, strict about names.
//!
//! Numbers and booleans may be strings, `null` means absent, and argument names of other well-known tools are
//! accepted ([`adjutant_core::tool_call`] has the table). Anything else is an error that tells the model what to write.

use adjutant_core::tool_call::{CanonicalArguments, PATCH, arguments_of, canonical};
use adjutant_formats::excerpt::excerpt;
use adjutant_formats::fields::{FieldContent, FieldProblem, FieldReader, FieldValue};
use serde_json::{Map, Value};

use crate::ToolName;

/// Why arguments were rejected, as text for the model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct ToolArgumentError(pub(crate) String);

/// The arguments of a tool call.
pub(crate) struct CallArguments {
    given: Map<String, Value>,
}

impl CallArguments {
    /// Reads the arguments of a call; rejects names that the tool does not know.
    pub(crate) fn new(tool: ToolName, value: &Value) -> Result<Self, ToolArgumentError> {
        let given = match value {
            Value::Null => return Ok(Self { given: Map::new() }),
            Value::Object(given) => given,
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                let problem = FieldReader::new(value.into(), "").err();
                let problem = problem.map(|problem| problem.to_string()).unwrap_or_default();
                return Err(ToolArgumentError(format!("arguments {problem}")));
            }
        };
        let Some(known) = arguments_of(tool.as_str()) else {
            return Ok(Self { given: given.clone() });
        };
        let CanonicalArguments { arguments, .. } =
            canonical(known, given).map_err(ToolArgumentError)?;
        let is_known = |name: &str| known.arguments.iter().any(|argument| argument.name == name);
        if let Some(unknown) = arguments.keys().find(|name| !is_known(name)) {
            // A patch is accepted, but not offered.
            let offered = known.arguments.iter().filter(|argument| argument.name != PATCH);
            let offered: Vec<_> = offered.map(|argument| format!("`{}`", argument.name)).collect();
            let (name, offered) = (brief(unknown), offered.join(", "));
            return Err(ToolArgumentError(format!(
                "unknown argument `{name}`; {tool} takes {offered}"
            )));
        }
        Ok(Self { given: arguments })
    }

    /// Returns a required, non-empty string.
    pub(crate) fn required(&self, name: &'static str) -> Result<String, ToolArgumentError> {
        self.text(name)?
            .filter(|text| !text.is_empty())
            .ok_or_else(|| ToolArgumentError(format!("`{name}` {}", FieldProblem::Missing)))
    }

    /// Returns a string, if given.
    pub(crate) fn text(&self, name: &'static str) -> Result<Option<String>, ToolArgumentError> {
        self.read(name, |value| {
            if let FieldContent::Number(number) = value.content() {
                return Ok(number.to_string());
            }
            value.string().map(String::from)
        })
    }

    /// Returns a whole number of at least `min`, if given.
    pub(crate) fn number(
        &self,
        name: &'static str,
        min: u64,
    ) -> Result<Option<u64>, ToolArgumentError> {
        self.read(name, |value| {
            let Ok(text) = value.string() else { return value.integer(min..=u64::MAX) };
            let number = text.trim().parse().ok().filter(|number| *number >= min);
            let wanted = format!("a whole number of at least {min}");
            number.ok_or_else(|| value.unfit_as_written(&wanted))
        })
    }

    /// Returns a boolean; `false` if absent.
    pub(crate) fn switch(&self, name: &'static str) -> Result<bool, ToolArgumentError> {
        let is_on = self.read(name, |value| {
            let word = value.string().ok().and_then(|word| word.parse().ok());
            let is_on = word.or_else(|| value.boolean().ok());
            is_on.ok_or_else(|| value.unfit_as_written("true or false"))
        });
        Ok(is_on?.unwrap_or(false))
    }

    /// Returns the items of a list, if given.
    pub(crate) fn list(&self, name: &'static str) -> Result<Option<&[Value]>, ToolArgumentError> {
        match self.given.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Array(items)) => Ok(Some(items)),
            Some(_) => Err(ToolArgumentError(format!("`{name}` must be a list"))),
        }
    }

    /// Says whether an argument was given.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.given.get(name).is_some_and(|value| !value.is_null())
    }

    fn read<T>(
        &self,
        name: &'static str,
        convert: impl FnOnce(FieldValue<'_>) -> Result<T, FieldProblem>,
    ) -> Result<Option<T>, ToolArgumentError> {
        let Some(value) = self.given.get(name).filter(|value| !value.is_null()) else {
            return Ok(None);
        };
        let read = convert(value.into());
        read.map(Some).map_err(|problem| ToolArgumentError(format!("`{name}` {problem}")))
    }
}

/// Shortens a model's text for a message.
pub(crate) fn brief(text: &str) -> String {
    // 200 characters and the `…`.
    excerpt(text, 201).into_owned()
}
