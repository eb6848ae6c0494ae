//! Arguments as models write them: checked strictly, read leniently.
//!
//! Numbers and booleans may come as strings, `null` means absent, and the spellings of other
//! well-known tools are understood. Everything else is an error that says what to write instead.

use adjutant_core::numbers::whole;
use serde_json::{Map, Value};

use crate::ToolName;

/// Why arguments were not accepted, in words for the model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct ArgError(pub(crate) String);

/// One argument of a tool: its name, and other names it is known by.
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) aliases: &'static [&'static str],
}

impl Field {
    pub(crate) const fn new(name: &'static str, aliases: &'static [&'static str]) -> Self {
        Self { name, aliases }
    }

    fn is_called(&self, name: &str) -> bool {
        self.name == name || self.aliases.contains(&name)
    }
}

/// The arguments of one call.
pub(crate) struct Args<'call> {
    map: Option<&'call Map<String, Value>>,
    fields: &'static [Field],
}

impl<'call> Args<'call> {
    /// Takes the arguments of a call, refusing names that `fields` does not list.
    pub(crate) fn new(
        tool: ToolName,
        value: &'call Value,
        fields: &'static [Field],
    ) -> Result<Self, ArgError> {
        let map = match value {
            Value::Null => None,
            Value::Object(map) => Some(map),
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                let got = kind(value);
                return Err(ArgError(format!("arguments must be a JSON object, got {got}")));
            }
        };
        let mut names = map.into_iter().flat_map(Map::keys);
        let unknown = names.find(|name| !fields.iter().any(|field| field.is_called(name)));
        if let Some(name) = unknown {
            let known: Vec<_> = fields.iter().map(|field| format!("`{}`", field.name)).collect();
            let (name, known) = (brief(name), known.join(", "));
            return Err(ArgError(format!("unknown argument `{name}`; {tool} takes {known}")));
        }
        Ok(Self { map, fields })
    }

    /// Returns a text that must be there and not be empty.
    pub(crate) fn required(&self, name: &'static str) -> Result<String, ArgError> {
        self.text(name)?
            .filter(|text| !text.is_empty())
            .ok_or_else(|| ArgError(format!("`{name}` is required")))
    }

    /// Returns a text, if given.
    pub(crate) fn text(&self, name: &'static str) -> Result<Option<String>, ArgError> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(Value::Number(number)) => Ok(Some(number.to_string())),
            Some(other) => Err(wrong(name, "a string", other)),
        }
    }

    /// Returns a whole number of at least `min`, if given.
    pub(crate) fn number(&self, name: &'static str, min: u64) -> Result<Option<u64>, ArgError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let number = match value {
            Value::Number(number) => whole(number),
            Value::String(text) => text.trim().parse().ok(),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        };
        match number {
            Some(number) if number >= min => Ok(Some(number)),
            Some(_) | None => Err(wrong(name, &format!("a whole number, {min} or more"), value)),
        }
    }

    /// Returns a switch; absent means off.
    pub(crate) fn switch(&self, name: &'static str) -> Result<bool, ArgError> {
        match self.get(name) {
            None => Ok(false),
            Some(Value::Bool(on)) => Ok(*on),
            Some(Value::String(text)) if text == "true" => Ok(true),
            Some(Value::String(text)) if text == "false" => Ok(false),
            Some(other) => Err(wrong(name, "true or false", other)),
        }
    }

    fn get(&self, name: &'static str) -> Option<&'call Value> {
        let map = self.map?;
        let field = self.fields.iter().find(|field| field.name == name)?;
        std::iter::once(&field.name)
            .chain(field.aliases)
            .filter_map(|spelling| map.get(*spelling))
            .find(|value| !value.is_null())
    }
}

fn wrong(name: &str, wanted: &str, got: &Value) -> ArgError {
    let got = match got {
        Value::Number(number) => number.to_string(),
        Value::String(text) => format!("{:?}", brief(text)),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => kind(got).to_owned(),
    };
    ArgError(format!("`{name}` must be {wanted}, got {got}"))
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(true) => "true",
        Value::Bool(false) => "false",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// Shortens what a model wrote for use in a message.
pub(crate) fn brief(text: &str) -> String {
    const MAX_CHARS: usize = 200;
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
