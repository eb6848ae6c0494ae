//! The value of a field, and what it can be read as.

use std::borrow::Cow;
use std::ops::{Range, RangeInclusive};

use serde_json::{Number, Value};

use super::fault::FieldProblem;
use super::reader::{NamedField, did_you_mean};
use crate::document::{DocumentMember, DocumentNode};
use crate::excerpt::excerpt;
use crate::numbers::whole;

/// The most characters of foreign text that a message repeats.
const SHOWN_CHARS: usize = 40;

/// A value that is to be read.
#[derive(Clone, Copy, Debug)]
pub enum FieldValue<'a> {
    /// A value without a position, such as the arguments of a call.
    Json(&'a Value),
    /// A part of a document and the text of that document.
    Text(&'a DocumentNode, &'a str),
}

/// What a value is; the parts of an array or an object are asked for by themselves.
#[derive(Clone, Debug, PartialEq)]
pub enum FieldContent<'a> {
    /// `null`.
    Null,
    /// `true` or `false`.
    Boolean(bool),
    /// A number that a machine type holds.
    Number(Number),
    /// A string.
    String(Cow<'a, str>),
    /// A list.
    Array,
    /// An object, or a table.
    Object,
    /// JSON that no type holds, and what to call it.
    Unreadable(&'static str),
}

impl<'a> From<&'a Value> for FieldValue<'a> {
    fn from(value: &'a Value) -> Self {
        Self::Json(value)
    }
}

impl<'a> FieldValue<'a> {
    /// Returns what it is.
    #[must_use]
    pub fn content(self) -> FieldContent<'a> {
        match self {
            Self::Json(Value::Null) => FieldContent::Null,
            Self::Json(Value::Bool(is)) => FieldContent::Boolean(*is),
            Self::Json(Value::Number(number)) => FieldContent::Number(number.clone()),
            Self::Json(Value::String(text)) => FieldContent::String(Cow::Borrowed(text)),
            Self::Json(Value::Array(_)) => FieldContent::Array,
            Self::Json(Value::Object(_)) => FieldContent::Object,
            Self::Text(node, text) => node.content(text),
        }
    }

    /// Reads a string.
    pub fn string(self) -> Result<Cow<'a, str>, FieldProblem> {
        if let FieldContent::String(text) = self.content() {
            Ok(text)
        } else {
            Err(self.unfit("a string"))
        }
    }

    /// Reads a string that has words.
    pub fn words(self) -> Result<Cow<'a, str>, FieldProblem> {
        self.string().and_then(|text| {
            if text.trim().is_empty() { Err(FieldProblem::Blank) } else { Ok(text) }
        })
    }

    /// Reads true or false.
    pub fn boolean(self) -> Result<bool, FieldProblem> {
        if let FieldContent::Boolean(is) = self.content() {
            Ok(is)
        } else {
            Err(self.unfit("true or false"))
        }
    }

    /// Reads a whole number within `range`, also one that is written as `2.0`.
    pub fn integer(self, range: RangeInclusive<u64>) -> Result<u64, FieldProblem> {
        let FieldContent::Number(number) = self.content() else {
            return Err(self.unfit(&integer_noun(&range)));
        };
        let read = whole(&number).filter(|whole| range.contains(whole));
        read.ok_or_else(|| unfit(&integer_noun(&range), number.to_string()))
    }

    /// Reads a whole number that is not negative.
    pub fn any_integer(self) -> Result<u64, FieldProblem> {
        self.integer(0..=u64::MAX)
    }

    /// Reads a number that is not negative.
    pub fn number(self) -> Result<f64, FieldProblem> {
        let wanted = "a number of at least 0";
        let FieldContent::Number(number) = self.content() else { return Err(self.unfit(wanted)) };
        let read = number.as_f64().filter(|amount| amount.is_finite() && *amount >= 0.0);
        read.ok_or_else(|| unfit(wanted, number.to_string()))
    }

    /// Reads the value that `choices` gives a word.
    pub fn choice<T: Copy>(self, choices: &[(&str, T)]) -> Result<T, FieldProblem> {
        let word = self.string()?;
        let chosen = choices.iter().find(|(name, _)| *name == word).map(|(_, value)| *value);
        chosen.ok_or_else(|| {
            let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
            let (shown, meant) = (excerpt(&word, SHOWN_CHARS), did_you_mean(&word, &names));
            unfit(&format!("one of {}", names.join(", ")), format!("`{shown}`{meant}"))
        })
    }

    /// Reads a list.
    pub fn items(self) -> Result<Vec<Self>, FieldProblem> {
        let items: Option<Vec<Self>> = match self {
            Self::Json(value) => {
                value.as_array().map(|items| items.iter().map(Self::Json).collect())
            }
            Self::Text(node, text) => {
                node.items().map(|items| items.iter().map(|item| Self::Text(item, text)).collect())
            }
        };
        items.ok_or_else(|| self.unfit("an array"))
    }

    /// Says that the value is not `wanted`.
    #[must_use]
    pub fn unfit(self, wanted: &str) -> FieldProblem {
        unfit(wanted, self.noun().to_owned())
    }

    /// Says that the value is not `wanted`, and what it says where it is a number or a string.
    #[must_use]
    pub fn unfit_as_written(self, wanted: &str) -> FieldProblem {
        let content = self.content();
        if let FieldContent::Number(number) = content {
            unfit(wanted, number.to_string())
        } else if let FieldContent::String(text) = content {
            unfit(wanted, format!("{:?}", excerpt(&text, SHOWN_CHARS)))
        } else {
            self.unfit(wanted)
        }
    }

    fn noun(self) -> &'static str {
        match self.content() {
            FieldContent::Null => "null",
            FieldContent::Boolean(true) => "true",
            FieldContent::Boolean(false) => "false",
            FieldContent::Number(_) => "a number",
            FieldContent::String(_) => "a string",
            FieldContent::Array => "an array",
            FieldContent::Object => "an object",
            FieldContent::Unreadable(noun) => noun,
        }
    }

    /// Says whether it is `null`.
    #[must_use]
    pub fn is_null(self) -> bool {
        match self {
            Self::Json(value) => value.is_null(),
            Self::Text(node, text) => node.is_null(text),
        }
    }

    /// Returns a copy without positions; what no type holds is `null`.
    #[must_use]
    pub fn to_json(self) -> Value {
        match self {
            Self::Json(value) => value.clone(),
            Self::Text(node, text) => node.read(text),
        }
    }

    /// Returns the byte of its document where it begins; 0 for a value without a document.
    #[must_use]
    pub fn at(self) -> usize {
        self.range().start
    }

    /// Returns the bytes of its document; none for a value without a document.
    #[must_use]
    pub fn range(self) -> Range<usize> {
        match self {
            Self::Json(_) => 0..0,
            Self::Text(node, _) => node.range.clone(),
        }
    }

    /// Returns the member of an object.
    pub(super) fn member(self, name: &str) -> Option<Self> {
        match self {
            Self::Json(value) => value.get(name).map(Self::Json),
            Self::Text(node, text) => node.member(text, name).map(|value| Self::Text(value, text)),
        }
    }

    /// Returns the members of an object in their order.
    #[must_use]
    pub fn members(self) -> Vec<NamedField<'a>> {
        match self {
            Self::Json(value) => {
                let members = value.as_object().into_iter().flatten();
                let field = |(name, value): (&'a String, _)| NamedField {
                    name: name.into(),
                    at: 0,
                    value: Self::Json(value),
                };
                members.map(field).collect()
            }
            Self::Text(node, text) => {
                let field = |member: &'a DocumentMember| {
                    let (name, at) = (member.name(text)?, member.key.start);
                    Some(NamedField { name, at, value: Self::Text(&member.value, text) })
                };
                node.members().iter().filter_map(field).collect()
            }
        }
    }
}

fn unfit(wanted: &str, found: String) -> FieldProblem {
    FieldProblem::Unfit { wanted: wanted.to_owned(), found }
}

fn integer_noun(range: &RangeInclusive<u64>) -> String {
    match (range.start(), range.end()) {
        (min, &u64::MAX) => format!("a whole number of at least {min}"),
        (min, max) => format!("a whole number from {min} to {max}"),
    }
}
