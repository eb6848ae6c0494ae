//! A script file as a tree of values that remember where they stood.
//!
//! TOML and JSON become the same [`Node`]s, so that everything after this reads one shape and can
//! name the line of any flaw. What the keys mean is the business of `entry`.
//!
//! Start at [`from_toml`] and [`from_json`]. Invariant: a table's keys are in file order and
//! unique.

use std::collections::BTreeSet;
use std::ops::Range;

use adjutant_formats::document::{self, Member, SyntaxError, parse_json};
use serde::de::DeserializeOwned;
use serde_json::{Number, Value};
use toml::de::{DeTable, DeValue};

use super::error::Flaw;

/// How deep values may nest; deeper is an accident or an attack on the stack.
const MAX_DEPTH: usize = 64;

/// One value of the file and the bytes it was read from.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) span: Range<usize>,
    pub(crate) kind: Kind,
}

/// What a value is.
#[derive(Debug)]
pub(crate) enum Kind {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Node>),
    Table(Vec<(Key, Node)>),
}

/// A key of a table and the byte it starts at.
#[derive(Debug)]
pub(crate) struct Key {
    pub(crate) at: usize,
    pub(crate) name: String,
}

impl Kind {
    /// Returns what a person calls a value of this kind.
    pub(crate) const fn noun(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "true or false",
            Self::Number(_) => "a number",
            Self::Text(_) => "text",
            Self::List(_) => "a list",
            Self::Table(_) => "a table",
        }
    }
}

/// Reads a TOML document.
pub(crate) fn from_toml(text: &str) -> Result<Node, Flaw> {
    let document = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        Flaw::new(at, error.message().trim_end().replace('\n', ", "))
    })?;
    let span = document.span();
    Ok(Node { span, kind: Kind::Table(toml_table(document.into_inner(), 0)?) })
}

fn toml_node(value: DeValue<'_>, span: Range<usize>, depth: usize) -> Result<Node, Flaw> {
    check_depth(span.start, depth)?;
    let kind = match value {
        DeValue::String(text) => Kind::Text(text.into_owned()),
        DeValue::Boolean(flag) => Kind::Bool(flag),
        DeValue::Datetime(moment) => Kind::Text(moment.to_string()),
        DeValue::Integer(digits) => {
            let number = i64::from_str_radix(digits.as_str(), digits.radix());
            Kind::Number(number.map(Number::from).map_err(|_| no_number(span.start))?)
        }
        DeValue::Float(digits) => {
            let number = digits.as_str().parse().ok().and_then(Number::from_f64);
            Kind::Number(number.ok_or_else(|| no_number(span.start))?)
        }
        DeValue::Array(items) => Kind::List(
            items
                .into_iter()
                .map(|item| {
                    let span = item.span();
                    toml_node(item.into_inner(), span, depth + 1)
                })
                .collect::<Result<_, _>>()?,
        ),
        DeValue::Table(table) => Kind::Table(toml_table(table, depth)?),
    };
    Ok(Node { span, kind })
}

fn toml_table(table: DeTable<'_>, depth: usize) -> Result<Vec<(Key, Node)>, Flaw> {
    let mut pairs = Vec::with_capacity(table.len());
    for (name, value) in table {
        let key = Key { at: name.span().start, name: name.into_inner().into_owned() };
        let span = value.span();
        pairs.push((key, toml_node(value.into_inner(), span, depth + 1)?));
    }
    // The parser sorts or hashes by name; a person reads, and a model is sent, the file's order.
    pairs.sort_by_key(|(key, _)| key.at);
    Ok(pairs)
}

/// Reads a JSON document.
pub(crate) fn from_json(text: &str) -> Result<Node, Flaw> {
    let root = parse_json(text).map_err(|error| flaw(text, 0, error))?;
    json_node(text, &root, 0)
}

fn json_node(text: &str, node: &document::Node, depth: usize) -> Result<Node, Flaw> {
    let span = node.range.clone();
    check_depth(span.start, depth)?;
    let kind = match &node.kind {
        document::Kind::Object(members) => Kind::Table(json_table(text, members, depth)?),
        document::Kind::Array(items) => {
            let items = items.iter().map(|item| json_node(text, item, depth + 1));
            Kind::List(items.collect::<Result<_, _>>()?)
        }
        document::Kind::Scalar => match scalar(text, span.clone())? {
            Value::Bool(flag) => Kind::Bool(flag),
            Value::Number(number) => Kind::Number(number),
            Value::String(text) => Kind::Text(text),
            Value::Null | Value::Array(_) | Value::Object(_) => Kind::Null,
        },
    };
    Ok(Node { span, kind })
}

fn json_table(text: &str, members: &[Member], depth: usize) -> Result<Vec<(Key, Node)>, Flaw> {
    let mut pairs: Vec<(Key, Node)> = Vec::with_capacity(members.len());
    let mut names = BTreeSet::new();
    for Member { key, value } in members {
        let name: String = scalar(text, key.clone())?;
        if !names.insert(name.clone()) {
            return Err(Flaw::new(key.start, format!("`{name}` is given twice")));
        }
        pairs.push((Key { at: key.start, name }, json_node(text, value, depth + 1)?));
    }
    Ok(pairs)
}

fn scalar<T: DeserializeOwned>(text: &str, span: Range<usize>) -> Result<T, Flaw> {
    serde_json::from_str(&text[span.clone()]).map_err(|error| flaw(text, span.start, error.into()))
}

/// Places the error of a parser that read `text` from byte `start` on.
fn flaw(text: &str, start: usize, error: SyntaxError) -> Flaw {
    let before = text[start..].split_inclusive('\n').take(error.line.saturating_sub(1));
    let line = start + before.map(str::len).sum::<usize>();
    let at = text.floor_char_boundary(line + error.column.saturating_sub(1));
    Flaw::new(at, error.reason)
}

fn check_depth(at: usize, depth: usize) -> Result<(), Flaw> {
    if depth < MAX_DEPTH {
        return Ok(());
    }
    Err(Flaw::new(at, format!("values nest deeper than {MAX_DEPTH} levels")))
}

fn no_number(at: usize) -> Flaw {
    Flaw::new(at, "this number is too large or not a number")
}
