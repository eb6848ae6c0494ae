//! Reads the arguments of a tool call: lenient about types, strict about names.
//!
//! Numbers and booleans may be strings, `null` means absent, and argument names of other well-known tools are
//! accepted. Anything else is an error that tells the model what to write.
//! Each tool lists its arguments as [`ArgumentNames`]: the name of one argument and its aliases.

use adjutant_formats::excerpt::excerpt;
use adjutant_formats::fields::{FieldContent, FieldProblem, FieldReader, FieldValue};
use serde_json::Value;

use crate::ToolName;

/// Why arguments were rejected, as text for the model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct ToolArgumentError(pub(crate) String);

/// The name and the aliases of one argument of a tool.
pub(crate) struct ArgumentNames {
    pub(crate) name: &'static str,
    pub(crate) aliases: &'static [&'static str],
}

impl ArgumentNames {
    pub(crate) const fn new(name: &'static str, aliases: &'static [&'static str]) -> Self {
        Self { name, aliases }
    }

    fn spellings(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.name).chain(self.aliases.iter().copied())
    }
}

/// The arguments of a tool call.
pub(crate) struct CallArguments<'call> {
    /// `None` for a call without arguments.
    reader: Option<FieldReader<'call>>,
    fields: &'static [ArgumentNames],
}

impl<'call> CallArguments<'call> {
    /// Wraps the arguments of a call; rejects names that are not in `fields`.
    pub(crate) fn new(
        tool: ToolName,
        value: &'call Value,
        fields: &'static [ArgumentNames],
    ) -> Result<Self, ToolArgumentError> {
        if value.is_null() {
            return Ok(Self { reader: None, fields });
        }
        let reader = FieldReader::new(value.into(), "")
            .map_err(|problem| ToolArgumentError(format!("arguments {problem}")))?;
        let spellings: Vec<&str> = fields.iter().flat_map(ArgumentNames::spellings).collect();
        if let Some(unknown) = reader.unknown(&spellings).first() {
            let known: Vec<_> = fields.iter().map(|field| format!("`{}`", field.name)).collect();
            let (name, known) = (brief(&unknown.name), known.join(", "));
            return Err(ToolArgumentError(format!(
                "unknown argument `{name}`; {tool} takes {known}"
            )));
        }
        Ok(Self { reader: Some(reader), fields })
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

    /// Reads an argument by the first of its names that is given.
    fn read<T>(
        &self,
        name: &'static str,
        convert: impl FnOnce(FieldValue<'call>) -> Result<T, FieldProblem>,
    ) -> Result<Option<T>, ToolArgumentError> {
        let field = self.fields.iter().find(|field| field.name == name);
        let (Some(reader), Some(field)) = (&self.reader, field) else { return Ok(None) };
        let given = field.spellings().find(|spelling| reader.non_null(spelling).is_some());
        let read = given.map(|spelling| reader.optional(spelling, convert)).transpose();
        Ok(read.map_err(|fault| ToolArgumentError(fault.to_string()))?.flatten())
    }
}

/// Shortens a model's text for a message.
pub(crate) fn brief(text: &str) -> String {
    // 200 characters and the `…`.
    excerpt(text, 201).into_owned()
}
