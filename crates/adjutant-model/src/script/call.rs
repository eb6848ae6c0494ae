//! One `[[turn.call]]` of a script: a tool call as the model will make it.
//!
//! Arguments are templates wherever they are text, so that a call can follow what a tool said.
//! `raw_args` goes out as written, to show what a model does that cannot write JSON.

use adjutant_core::ToolCall;
use adjutant_formats::document::{PositionedKind, PositionedValue};
use adjutant_formats::fields::FieldValue;
use serde_json::{Map, Value};

use super::error::{Flaw, table};
use super::placeholder;
use super::template::Template;
use crate::model::TurnRequest;

/// The most equal calls one table may stand for. Inclusive.
const MAX_CALLS: u64 = 10_000;

/// A scripted tool call, or several equal ones.
#[derive(Debug)]
pub(crate) struct Call {
    id: Option<String>,
    tool: String,
    arguments: Arguments,
    times: u64,
}

#[derive(Debug)]
enum Arguments {
    Json(Tree),
    Raw(String),
}

/// A JSON value whose texts are templates.
#[derive(Debug)]
enum Tree {
    Plain(Value),
    Text(Template),
    List(Vec<Tree>),
    Table(Vec<(String, Tree)>),
}

impl Call {
    pub(crate) fn read(value: FieldValue<'_>, document: &str) -> Result<Self, Flaw> {
        let fields = table(value, "a call", &["tool", "args", "raw_args", "id", "times"])?;
        let text = |key| fields.read(key, |value| value.string().map(String::from));
        let missing = || Flaw::new(fields.at(), "a call needs its `tool`");
        let tool = text("tool")?.ok_or_else(missing)?;
        let arguments = match (fields.get("args"), text("raw_args")?) {
            (Some(_), Some(_)) => {
                let message = "give `args` or `raw_args`, not both";
                return Err(Flaw::new(fields.at_field("raw_args"), message));
            }
            (Some(FieldValue::Positioned(args)), None) => {
                Arguments::Json(Tree::read(args, document)?)
            }
            (_, Some(raw)) => Arguments::Raw(raw),
            (_, None) => Arguments::Json(Tree::Plain(Value::Object(Map::new()))),
        };
        let times = fields.read("times", |value| value.integer(1..=MAX_CALLS))?.unwrap_or(1);
        Ok(Self { id: text("id")?, tool, arguments, times })
    }

    /// Adds the calls this one stands for to `calls`, numbered on from those already there.
    pub(crate) fn render(
        &self,
        request: &TurnRequest<'_>,
        calls: &mut Vec<ToolCall>,
    ) -> Result<(), String> {
        let (arguments, malformed) = self.arguments.render(request)?;
        for _ in 0..self.times {
            let number = calls.len() + 1;
            let default_id = || format!("call_{}_{number}", request.turn);
            calls.push(ToolCall {
                id: self.id.clone().unwrap_or_else(default_id),
                name: self.tool.clone(),
                arguments: arguments.clone(),
                malformed,
            });
        }
        Ok(())
    }
}

impl Arguments {
    fn render(&self, request: &TurnRequest<'_>) -> Result<(Value, bool), String> {
        match self {
            Self::Json(tree) => Ok((tree.render(request)?, false)),
            Self::Raw(raw) => Ok(match adjutant_formats::json::from_str(raw) {
                Ok(value) => (value, false),
                Err(_) => (Value::String(raw.clone()), true),
            }),
        }
    }
}

impl Tree {
    fn read(value: &PositionedValue, document: &str) -> Result<Self, Flaw> {
        Ok(match &value.kind {
            PositionedKind::Scalar(Value::String(text)) => {
                Self::Text(placeholder::parse(text, value.range.clone(), document)?)
            }
            PositionedKind::Scalar(scalar) => Self::Plain(scalar.clone()),
            PositionedKind::List(items) => {
                let items = items.iter().map(|item| Self::read(item, document));
                Self::List(items.collect::<Result<_, _>>()?)
            }
            PositionedKind::Table(pairs) => {
                let pairs = pairs
                    .iter()
                    .map(|(key, value)| Ok((key.name.clone(), Self::read(value, document)?)));
                Self::Table(pairs.collect::<Result<_, Flaw>>()?)
            }
        })
    }

    fn render(&self, request: &TurnRequest<'_>) -> Result<Value, String> {
        Ok(match self {
            Self::Plain(value) => value.clone(),
            Self::Text(template) => Value::String(template.render(request)?),
            Self::List(items) => {
                let items = items.iter().map(|item| item.render(request));
                Value::Array(items.collect::<Result<_, _>>()?)
            }
            Self::Table(pairs) => {
                let pairs =
                    pairs.iter().map(|(key, tree)| Ok((key.clone(), tree.render(request)?)));
                Value::Object(pairs.collect::<Result<_, String>>()?)
            }
        })
    }
}
