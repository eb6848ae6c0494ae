//! Validates JSON strictly and reports where and why it is wrong.
//!
//! A [`Node`] is a value with its path. Its methods refuse unknown fields and wrong types with a
//! [`Complaint`], which each API renders in its own error format. Paths are built only for errors.

use serde_json::{Map, Value};

/// Why a request body is refused.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Complaint {
    /// Where; the field itself comes last.
    pub(super) path: Vec<PathStep>,
    pub(super) why: Problem,
}

/// What is wrong at that place.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Problem {
    Unknown,
    Missing,
    Type {
        expected: JsonKind,
        got: Value,
    },
    Choice {
        got: String,
        allowed: Vec<String>,
    },
    Range {
        expected: String,
        got: Value,
    },
    Empty,
    /// The API has its own message for it.
    ApiMessage(String),
}

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PathStep {
    Key(String),
    Index(usize),
}

/// A kind of JSON value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JsonKind {
    Object,
    Array,
    Text,
    Integer,
    Number,
    Boolean,
}

/// A JSON value with its path in the document.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node<'v, 'p> {
    pub(super) value: &'v Value,
    step: NodePosition<'p>,
    parent: Option<&'p Node<'p, 'p>>,
}

#[derive(Clone, Copy, Debug)]
enum NodePosition<'p> {
    Root,
    Key(&'p str),
    Index(usize),
}

pub(super) type CheckResult<T> = Result<T, Complaint>;

impl<'v, 'p> Node<'v, 'p> {
    pub(super) const fn root(value: &'v Value) -> Self {
        Self { value, step: NodePosition::Root, parent: None }
    }

    /// Returns an error about this value.
    pub(super) fn complaint(&self, why: Problem) -> Complaint {
        let mut path = Vec::new();
        let mut node = Some(self);
        while let Some(here) = node {
            match here.step {
                NodePosition::Root => {}
                NodePosition::Key(key) => path.push(PathStep::Key(key.to_owned())),
                NodePosition::Index(index) => path.push(PathStep::Index(index)),
            }
            node = here.parent;
        }
        path.reverse();
        Complaint { path, why }
    }

    pub(super) fn fail<T>(&self, text: impl Into<String>) -> CheckResult<T> {
        Err(self.complaint(Problem::ApiMessage(text.into())))
    }

    fn wrong_type<T>(&self, expected: JsonKind) -> CheckResult<T> {
        Err(self.complaint(Problem::Type { expected, got: self.value.clone() }))
    }

    /// Reads an object that has no other fields than these.
    pub(super) fn object(&self, known: &[&str]) -> CheckResult<&'v Map<String, Value>> {
        let map = self.map()?;
        for key in map.keys() {
            if !known.contains(&key.as_str()) {
                let mut complaint = self.complaint(Problem::Unknown);
                complaint.path.push(PathStep::Key(key.clone()));
                return Err(complaint);
            }
        }
        Ok(map)
    }

    /// Reads an object without checking its fields.
    pub(super) fn map(&self) -> CheckResult<&'v Map<String, Value>> {
        self.value.as_object().map_or_else(|| self.wrong_type(JsonKind::Object), Ok)
    }

    pub(super) fn array(&self) -> CheckResult<&'v [Value]> {
        self.value
            .as_array()
            .map_or_else(|| self.wrong_type(JsonKind::Array), |list| Ok(list.as_slice()))
    }

    pub(super) fn text(&self) -> CheckResult<&'v str> {
        self.value.as_str().map_or_else(|| self.wrong_type(JsonKind::Text), Ok)
    }

    /// Reads a text that is not empty.
    pub(super) fn non_empty_text(&self) -> CheckResult<&'v str> {
        let text = self.text()?;
        if text.is_empty() { Err(self.complaint(Problem::Empty)) } else { Ok(text) }
    }

    pub(super) fn boolean(&self) -> CheckResult<bool> {
        self.value.as_bool().map_or_else(|| self.wrong_type(JsonKind::Boolean), Ok)
    }

    /// Reads a whole number of at least `least`.
    pub(super) fn integer(&self, least: u64) -> CheckResult<u64> {
        let Some(number) = self.value.as_u64() else { return self.wrong_type(JsonKind::Integer) };
        if number < least {
            let expected = format!("greater than or equal to {least}");
            return Err(self.complaint(Problem::Range { expected, got: self.value.clone() }));
        }
        Ok(number)
    }

    /// Reads a number between the two, both included.
    pub(super) fn number(&self, least: f64, most: f64) -> CheckResult<f64> {
        let Some(number) = self.value.as_f64() else { return self.wrong_type(JsonKind::Number) };
        if number < least || number > most {
            let expected = format!("between {least} and {most}");
            return Err(self.complaint(Problem::Range { expected, got: self.value.clone() }));
        }
        Ok(number)
    }

    /// Reads one of these words.
    pub(super) fn choice(&self, allowed: &[&str]) -> CheckResult<&'v str> {
        let text = self.text()?;
        if allowed.contains(&text) {
            return Ok(text);
        }
        let allowed = allowed.iter().map(|word| (*word).to_owned()).collect();
        Err(self.complaint(Problem::Choice { got: text.to_owned(), allowed }))
    }

    /// Returns the field, which must be there.
    pub(super) fn required<'s>(&'s self, key: &'s str) -> CheckResult<Node<'v, 's>> {
        if let Some(node) = self.get(key) {
            return Ok(node);
        }
        let mut complaint = self.complaint(Problem::Missing);
        complaint.path.push(PathStep::Key(key.to_owned()));
        Err(complaint)
    }

    /// Returns the field if it is there.
    pub(super) fn get<'s>(&'s self, key: &'s str) -> Option<Node<'v, 's>> {
        let value = self.value.get(key)?;
        Some(Node { value, step: NodePosition::Key(key), parent: Some(self) })
    }

    /// Returns the field if it is there and not null, for APIs where null means absent.
    pub(super) fn non_null<'s>(&'s self, key: &'s str) -> Option<Node<'v, 's>> {
        self.get(key).filter(|node| !node.value.is_null())
    }

    /// Returns the items of an array.
    pub(super) fn items<'s>(&'s self) -> CheckResult<impl Iterator<Item = Node<'v, 's>>> {
        let list = self.array()?.iter().enumerate();
        Ok(list.map(move |(index, value)| self.at(index, value)))
    }

    /// Returns an item of an array.
    pub(super) fn item<'s>(&'s self, index: usize) -> Option<Node<'v, 's>> {
        Some(self.at(index, self.value.get(index)?))
    }

    const fn at<'s>(&'s self, index: usize, value: &'v Value) -> Node<'v, 's> {
        Node { value, step: NodePosition::Index(index), parent: Some(self) }
    }
}

impl JsonKind {
    /// Returns what a value is.
    pub(super) const fn word(value: &Value) -> &'static str {
        match value {
            Value::Null => "null",
            Value::Bool(_) => "a boolean",
            Value::Number(_) => "a number",
            Value::String(_) => "a string",
            Value::Array(_) => "an array",
            Value::Object(_) => "an object",
        }
    }
}

/// Says whether a text is made of these characters only and is of a length that is allowed.
pub(super) fn is_name(text: &str, longest: usize, extra: &str) -> bool {
    let fine = |c: char| c.is_ascii_alphanumeric() || extra.contains(c);
    !text.is_empty() && text.len() <= longest && text.chars().all(fine)
}
