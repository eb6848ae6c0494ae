//! One `[[turn.call]]` of a script: a tool call as the model will make it.
//!
//! Arguments are templates wherever they are text, so that a call can follow what a tool said.
//! `raw_args` goes out as written, to show what a model does that cannot write JSON.

use adjutant_core::ToolCall;
use serde_json::{Map, Value};

use super::error::Flaw;
use super::fields::Fields;
use super::node::{Kind, Node};
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
    pub(crate) fn read(node: &Node, document: &str) -> Result<Self, Flaw> {
        let fields = Fields::new(node, "a call", &["tool", "args", "raw_args", "id", "times"])?;
        let missing = || Flaw::new(fields.at, "a call needs its `tool`");
        let tool = fields.text("tool")?.ok_or_else(missing)?.to_owned();
        let arguments = match (fields.get("args"), fields.text("raw_args")?) {
            (Some(_), Some(_)) => {
                return Err(fields.flaw("raw_args", "give `args` or `raw_args`, not both"));
            }
            (None, Some(raw)) => Arguments::Raw(raw.to_owned()),
            (Some(args), None) => Arguments::Json(Tree::read(args, document)?),
            (None, None) => Arguments::Json(Tree::Plain(Value::Object(Map::new()))),
        };
        let times = fields.count("times", 1..=MAX_CALLS)?.unwrap_or(1);
        Ok(Self { id: fields.text("id")?.map(str::to_owned), tool, arguments, times })
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
    fn read(node: &Node, document: &str) -> Result<Self, Flaw> {
        Ok(match &node.kind {
            Kind::Null => Self::Plain(Value::Null),
            Kind::Bool(flag) => Self::Plain(Value::Bool(*flag)),
            Kind::Number(number) => Self::Plain(Value::Number(number.clone())),
            Kind::Text(text) => Self::Text(placeholder::parse(text, node, document)?),
            Kind::List(items) => {
                let items = items.iter().map(|item| Self::read(item, document));
                Self::List(items.collect::<Result<_, _>>()?)
            }
            Kind::Table(pairs) => {
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
