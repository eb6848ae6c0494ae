//! One `[[turn.call]]` of a script: a tool call that the scripted model makes.
//!
//! All strings in the arguments are templates, so that a call can depend on earlier tool results. `raw_args`
//! is sent as written, to simulate a model that writes invalid JSON.

use adjutant_core::ToolCall;
use adjutant_formats::fields::{FieldContent, FieldValue, NamedField};
use serde_json::{Map, Value};

use super::error::{ScriptFault, table};
use super::placeholder;
use super::template::Template;
use crate::model::TurnRequest;

/// The maximum number of equal calls that one table may produce. Inclusive.
const MAX_CALLS: u64 = 10_000;

/// How deep arguments may nest. Inclusive; deeper is an accident, and no journal could be read back.
const MAX_DEPTH: usize = 64;

/// One or more equal scripted tool calls.
#[derive(Debug)]
pub(crate) struct ScriptedCall {
    id: Option<String>,
    tool: String,
    arguments: ScriptedArguments,
    times: u64,
}

#[derive(Debug)]
enum ScriptedArguments {
    Json(TemplateValue),
    Raw(String),
}

/// A JSON value whose strings are templates.
#[derive(Debug)]
enum TemplateValue {
    Plain(Value),
    Text(Template),
    List(Vec<TemplateValue>),
    Table(Vec<(String, TemplateValue)>),
}

impl ScriptedCall {
    pub(crate) fn read(value: FieldValue<'_>, document: &str) -> Result<Self, ScriptFault> {
        let fields = table(value, "a call", &["tool", "args", "raw_args", "id", "times"])?;
        let text = |key| fields.read(key, |value| value.string().map(String::from));
        let missing = || ScriptFault::new(fields.offset(), "a call needs its `tool`");
        let tool = text("tool")?.ok_or_else(missing)?;
        let arguments = match (fields.get("args"), text("raw_args")?) {
            (Some(_), Some(_)) => {
                let message = "give `args` or `raw_args`, not both";
                return Err(ScriptFault::new(fields.at_field("raw_args"), message));
            }
            (Some(args), None) => ScriptedArguments::Json(TemplateValue::read(args, document, 0)?),
            (None, Some(raw)) => ScriptedArguments::Raw(raw),
            (None, None) => {
                ScriptedArguments::Json(TemplateValue::Plain(Value::Object(Map::new())))
            }
        };
        let times = fields.read("times", |value| value.integer(1..=MAX_CALLS))?.unwrap_or(1);
        Ok(Self { id: text("id")?, tool, arguments, times })
    }

    /// Adds the calls to `calls`; their numbers continue those already there.
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

impl ScriptedArguments {
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

impl TemplateValue {
    fn read(value: FieldValue<'_>, document: &str, depth: usize) -> Result<Self, ScriptFault> {
        if depth > MAX_DEPTH {
            let message = format!("values nest deeper than {MAX_DEPTH} levels");
            return Err(ScriptFault::new(value.offset(), message));
        }
        Ok(match value.content() {
            FieldContent::Null | FieldContent::Boolean(_) | FieldContent::Number(_) => {
                Self::Plain(value.to_json())
            }
            FieldContent::String(text) => {
                Self::Text(placeholder::parse(&text, value.range(), document)?)
            }
            FieldContent::Array => {
                let items = value.items().into_iter().flatten();
                let items = items.map(|item| Self::read(item, document, depth + 1));
                Self::List(items.collect::<Result<_, _>>()?)
            }
            FieldContent::Object => {
                let pair = |field: NamedField<'_>| {
                    Ok((field.name.into(), Self::read(field.value, document, depth + 1)?))
                };
                let fields = value.members().into_iter().map(pair);
                Self::Table(fields.collect::<Result<_, ScriptFault>>()?)
            }
            FieldContent::Unreadable(what) => {
                return Err(ScriptFault::new(value.offset(), format!("this is {what}")));
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
