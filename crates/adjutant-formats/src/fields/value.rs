//! Converting the value of a JSON field to a string, a boolean or an integer in a range.

use std::borrow::Cow;
use std::ops::{Range, RangeInclusive};

use serde_json::{Number, Value};

use super::fault::FieldProblem;
use super::reader::{NamedField, did_you_mean};
use crate::document::{DocumentMember, DocumentNode};
use crate::excerpt::excerpt;
use crate::numbers::as_whole_number;

/// The maximum number of characters quoted in a message.
const SHOWN_CHARS: usize = 40;

/// A value to be converted, with or without a position in a document.
#[derive(Clone, Copy, Debug)]
pub enum FieldValue<'a> {
    /// A value without a position, such as the arguments of a tool call.
    Json(&'a Value),
    /// A node of a document, and the text of that document.
    Text(&'a DocumentNode, &'a str),
}

/// The content of a value; the parts of arrays and objects are read separately.
#[derive(Clone, Debug, PartialEq)]
pub enum FieldContent<'a> {
    /// `null`.
    Null,
    /// `true` or `false`.
    Boolean(bool),
    /// A number that a machine type can represent.
    Number(Number),
    /// A string.
    String(Cow<'a, str>),
    /// A list.
    Array,
    /// An object, or a table.
    Object,
    /// JSON that no Rust type can represent, and its description for messages.
    Unreadable(&'static str),
}

impl<'a> From<&'a Value> for FieldValue<'a> {
    fn from(value: &'a Value) -> Self {
        Self::Json(value)
    }
}

impl<'a> FieldValue<'a> {
    /// Returns the content.
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
            Err(self.mismatch("a string"))
        }
    }

    /// Reads a string that is not blank.
    pub fn non_blank_string(self) -> Result<Cow<'a, str>, FieldProblem> {
        self.string().and_then(|text| {
            if text.trim().is_empty() { Err(FieldProblem::Blank) } else { Ok(text) }
        })
    }

    /// Reads true or false.
    pub fn boolean(self) -> Result<bool, FieldProblem> {
        if let FieldContent::Boolean(is) = self.content() {
            Ok(is)
        } else {
            Err(self.mismatch("true or false"))
        }
    }

    /// Reads a whole number in `range`; `2.0` counts as whole.
    pub fn integer(self, range: RangeInclusive<u64>) -> Result<u64, FieldProblem> {
        let FieldContent::Number(number) = self.content() else {
            return Err(self.mismatch(&integer_noun(&range)));
        };
        let read = as_whole_number(&number).filter(|whole| range.contains(whole));
        read.ok_or_else(|| mismatch_problem(&integer_noun(&range), number.to_string()))
    }

    /// Reads a non-negative whole number.
    pub fn any_integer(self) -> Result<u64, FieldProblem> {
        self.integer(0..=u64::MAX)
    }

    /// Reads a non-negative number.
    pub fn number(self) -> Result<f64, FieldProblem> {
        let wanted = "a number of at least 0";
        let FieldContent::Number(number) = self.content() else {
            return Err(self.mismatch(wanted));
        };
        let read = number.as_f64().filter(|amount| amount.is_finite() && *amount >= 0.0);
        read.ok_or_else(|| mismatch_problem(wanted, number.to_string()))
    }

    /// Reads one of the words in `choices` and returns its value.
    pub fn choice<T: Copy>(self, choices: &[(&str, T)]) -> Result<T, FieldProblem> {
        let word = self.string()?;
        let chosen = choices.iter().find(|(name, _)| *name == word).map(|(_, value)| *value);
        chosen.ok_or_else(|| {
            let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
            let (shown, meant) = (excerpt(&word, SHOWN_CHARS), did_you_mean(&word, &names));
            mismatch_problem(&format!("one of {}", names.join(", ")), format!("`{shown}`{meant}"))
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
        items.ok_or_else(|| self.mismatch("an array"))
    }

    /// Makes the problem "must be `wanted`", naming the type that was found.
    #[must_use]
    pub fn mismatch(self, wanted: &str) -> FieldProblem {
        mismatch_problem(wanted, self.type_name().to_owned())
    }

    /// Like [`FieldValue::mismatch`], but quotes the value if it is a number or a string.
    #[must_use]
    pub fn unfit_as_written(self, wanted: &str) -> FieldProblem {
        let content = self.content();
        if let FieldContent::Number(number) = content {
            mismatch_problem(wanted, number.to_string())
        } else if let FieldContent::String(text) = content {
            mismatch_problem(wanted, format!("{:?}", excerpt(&text, SHOWN_CHARS)))
        } else {
            self.mismatch(wanted)
        }
    }

    fn type_name(self) -> &'static str {
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

    /// Returns whether it is `null`.
    #[must_use]
    pub fn is_null(self) -> bool {
        match self {
            Self::Json(value) => value.is_null(),
            Self::Text(node, text) => node.is_null(text),
        }
    }

    /// Returns a copy without positions; what no Rust type can represent becomes `null`.
    #[must_use]
    pub fn to_json(self) -> Value {
        match self {
            Self::Json(value) => value.clone(),
            Self::Text(node, text) => node.read(text),
        }
    }

    /// Returns its byte offset in the document; 0 for a value without a document.
    #[must_use]
    pub fn offset(self) -> usize {
        self.range().start
    }

    /// Returns its byte range in the document; empty for a value without a document.
    #[must_use]
    pub fn range(self) -> Range<usize> {
        match self {
            Self::Json(_) => 0..0,
            Self::Text(node, _) => node.range.clone(),
        }
    }

    /// Returns the member of an object with this name.
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

fn mismatch_problem(wanted: &str, found: String) -> FieldProblem {
    FieldProblem::Unfit { wanted: wanted.to_owned(), found }
}

fn integer_noun(range: &RangeInclusive<u64>) -> String {
    match (range.start(), range.end()) {
        (min, &u64::MAX) => format!("a whole number of at least {min}"),
        (min, max) => format!("a whole number from {min} to {max}"),
    }
}
