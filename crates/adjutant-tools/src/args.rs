//! Arguments as models write them: checked strictly, read leniently.
//!
//! Numbers and booleans may come as strings, `null` means absent, and the spellings of other
//! well-known tools are understood. Everything else is an error that says what to write instead.

use adjutant_formats::excerpt::excerpt;
use adjutant_formats::fields::{FieldContent, FieldProblem, FieldReader, FieldValue};
use serde_json::Value;

use crate::ToolName;

/// Why arguments were not accepted, in words for the model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct ToolArgumentError(pub(crate) String);

/// One argument of a tool: its name, and other names it is known by.
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

/// The arguments of one call.
pub(crate) struct CallArguments<'call> {
    /// `None` for a call without arguments.
    reader: Option<FieldReader<'call>>,
    fields: &'static [ArgumentNames],
}

impl<'call> CallArguments<'call> {
    /// Takes the arguments of a call, refusing names that `fields` does not list.
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

    /// Returns a text that must be there and not be empty.
    pub(crate) fn required(&self, name: &'static str) -> Result<String, ToolArgumentError> {
        self.text(name)?
            .filter(|text| !text.is_empty())
            .ok_or_else(|| ToolArgumentError(format!("`{name}` {}", FieldProblem::Missing)))
    }

    /// Returns a text, if given.
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

    /// Returns a switch; absent means off.
    pub(crate) fn switch(&self, name: &'static str) -> Result<bool, ToolArgumentError> {
        let is_on = self.read(name, |value| {
            let word = value.string().ok().and_then(|word| word.parse().ok());
            let is_on = word.or_else(|| value.boolean().ok());
            is_on.ok_or_else(|| value.unfit_as_written("true or false"))
        });
        Ok(is_on?.unwrap_or(false))
    }

    /// Reads an argument under the first of its names that is given.
    fn read<T>(
        &self,
        name: &'static str,
        convert: impl FnOnce(FieldValue<'call>) -> Result<T, FieldProblem>,
    ) -> Result<Option<T>, ToolArgumentError> {
        let field = self.fields.iter().find(|field| field.name == name);
        let (Some(reader), Some(field)) = (&self.reader, field) else { return Ok(None) };
        let given = field.spellings().find(|spelling| reader.filled(spelling).is_some());
        let read = given.map(|spelling| reader.optional(spelling, convert)).transpose();
        Ok(read.map_err(|fault| ToolArgumentError(fault.to_string()))?.flatten())
    }
}

/// Shortens what a model wrote for use in a message.
pub(crate) fn brief(text: &str) -> String {
    // 200 characters and the `…`.
    excerpt(text, 201).into_owned()
}
