//! A script file as a tree of values that remember where they stood.
//!
//! TOML and JSON become the same [`Node`]s, so that everything after this reads one shape and can
//! name the line of any flaw. What the keys mean is the business of `entry`.
//!
//! Start at [`from_toml`] and [`from_json`]. Invariant: a table's keys are in file order and
//! unique.

use std::ops::Range;

use serde::Deserialize;
use serde::de::{MapAccess, Visitor};
use serde_json::value::RawValue;
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
    let document: &RawValue = parse_json(text, text)?;
    json_node(text, document, 0)
}

/// Reads one value; `raw` is a slice of `text`, and that is how it knows its place.
fn json_node(text: &str, raw: &RawValue, depth: usize) -> Result<Node, Flaw> {
    let source = raw.get();
    let at = offset(text, source);
    check_depth(at, depth)?;
    let kind = match source.as_bytes().first() {
        Some(b'{') => Kind::Table(json_table(text, source, depth)?),
        Some(b'[') => Kind::List(
            parse_json::<Vec<&RawValue>>(text, source)?
                .into_iter()
                .map(|item| json_node(text, item, depth + 1))
                .collect::<Result<_, _>>()?,
        ),
        _ => match parse_json(text, source)? {
            Value::Bool(flag) => Kind::Bool(flag),
            Value::Number(number) => Kind::Number(number),
            Value::String(text) => Kind::Text(text),
            Value::Null | Value::Array(_) | Value::Object(_) => Kind::Null,
        },
    };
    Ok(Node { span: at..at + source.len(), kind })
}

fn json_table(text: &str, source: &str, depth: usize) -> Result<Vec<(Key, Node)>, Flaw> {
    let Pairs(raw_pairs) = parse_json(text, source)?;
    let mut pairs: Vec<(Key, Node)> = Vec::with_capacity(raw_pairs.len());
    let mut names = std::collections::BTreeSet::new();
    for (raw_name, raw) in raw_pairs {
        let at = offset(text, raw_name.get());
        let name: String = parse_json(text, raw_name.get())?;
        if !names.insert(name.clone()) {
            return Err(Flaw::new(at, format!("`{name}` is given twice")));
        }
        pairs.push((Key { at, name }, json_node(text, raw, depth + 1)?));
    }
    Ok(pairs)
}

/// Parses `source`, a slice of `text`, and places an error in the whole.
fn parse_json<'t, T: Deserialize<'t>>(text: &str, source: &'t str) -> Result<T, Flaw> {
    serde_json::from_str(source).map_err(|error| {
        let lines_before = error.line().saturating_sub(1);
        let line_start: usize = source.split_inclusive('\n').take(lines_before).map(str::len).sum();
        let within = usize::min(line_start + error.column().saturating_sub(1), source.len());
        let message = error.to_string();
        // The place is ours to give; serde_json's own counts from the start of the slice.
        let message = message.split(" at line ").next().unwrap_or_default().to_owned();
        Flaw::new(floor_boundary(text, offset(text, source) + within), message)
    })
}

fn offset(text: &str, slice: &str) -> usize {
    (slice.as_ptr() as usize).saturating_sub(text.as_ptr() as usize)
}

fn floor_boundary(text: &str, at: usize) -> usize {
    (0..=at).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
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

/// The pairs of a JSON object in file order, duplicates included.
struct Pairs<'t>(Vec<(&'t RawValue, &'t RawValue)>);

impl<'de> Deserialize<'de> for Pairs<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PairsVisitor;
        impl<'de> Visitor<'de> for PairsVisitor {
            type Value = Pairs<'de>;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs<'de>, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_map(PairsVisitor)
    }
}
