//! Reads a tool call as a model wrote it: by the name and in the shape of another product, or ours.
//!
//! Models know the tools of the products they were trained with. [`translate`] turns such a call into a call of our tool, or
//! says what to do instead. It decides no right: the tree judges the result as if the model had written that. The result
//! is recorded beside the call, so that a later version with another table reads a journal the same way.

mod arguments;
mod names;
mod shapes;

use std::borrow::Cow;

use adjutant_formats::patch::{self, FilePatch};
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::arguments::{
    ArgumentNames, CanonicalArguments, ToolArguments, arguments_of, canonical,
};
pub use self::names::{ToolAlias, find_alias, tool_aliases};
use self::shapes::ReshapedCall;
use crate::message::ToolCall;
use crate::schema::{DELEGATE, RETURN, TASK};
use crate::write::{EDIT, WRITE, is_write};

/// The argument of Edit and Write that holds a patch of one or more files.
pub const PATCH: &str = "patch";

/// The translation of one call of an answer that the model wrote in another form.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallTranslation {
    /// The number of the call in its answer.
    pub call: u32,
    /// What it is run as.
    pub reading: TranslatedCall,
}

/// What a call in another form is run as, or why it is not run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TranslatedCall {
    /// A call of our tool.
    RunAs {
        /// Our tool.
        tool: String,
        /// Its arguments.
        arguments: Value,
        /// What the model is told beside the result.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        remarks: Vec<String>,
    },
    /// Something that cannot be done here.
    Refused {
        /// What to do instead, for the model.
        text: String,
    },
}

/// Reads one call. Returns `None` if it is to be taken as it was written.
///
/// `is_custom` says whether a name is a tool of the embedding program. Such a name, and the name of one of our tools,
/// is never an alias.
pub fn translate(call: &ToolCall, is_custom: impl Fn(&str) -> bool) -> Option<TranslatedCall> {
    let name = call.name.as_str();
    if is_custom(name) || [DELEGATE, TASK, RETURN].contains(&name) {
        return None;
    }
    let own = arguments_of(name);
    let alias = if own.is_some() { None } else { Some(find_alias(name)?) };
    let read = match (&call.arguments, alias) {
        // Refused as it was written.
        (Value::Object(_), _) if call.malformed => return None,
        (Value::Object(given), _) => shapes::reshape(name, alias, own, given.clone())?,
        // Some models send the patch itself instead of an object with it.
        (Value::String(text), Some(alias)) => shapes::bare_patch(alias, text)?,
        (Value::Null, Some(alias)) => {
            shapes::reshape(name, Some(alias), own, serde_json::Map::new())?
        }
        (
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_),
            _,
        ) => return None,
    };
    let reading = read.and_then(|reshaped| named_arguments(&call.name, reshaped));
    Some(match reading {
        Ok((tool, arguments, remarks)) => {
            if tool == name && remarks.is_empty() && arguments == call.arguments {
                return None;
            }
            TranslatedCall::RunAs { tool: tool.to_owned(), arguments, remarks }
        }
        Err(text) => TranslatedCall::Refused { text },
    })
}

/// Gives the arguments of a call the names of our tool.
fn named_arguments(
    called: &str,
    reshaped: ReshapedCall,
) -> Result<(&'static str, Value, Vec<String>), String> {
    let ReshapedCall { tool, given, mut remarks } = reshaped;
    let Some(known) = arguments_of(tool) else { return Err(format!("`{called}` is not a tool")) };
    let CanonicalArguments { arguments, ignored } = canonical(known, &given)?;
    if !ignored.is_empty() {
        let names: Vec<String> = ignored.iter().map(|name| format!("`{name}`")).collect();
        remarks.insert(0, format!("ignored: {}", names.join(", ")));
    }
    Ok((tool, Value::Object(arguments), remarks))
}

/// Returns the calls of an answer as they are run: translated where a translation is recorded.
pub fn calls_as_run<'a>(
    calls: &'a [ToolCall],
    translations: &'a [CallTranslation],
) -> impl Iterator<Item = Cow<'a, ToolCall>> {
    // Both are in the order of the calls.
    let mut translations = translations.iter().peekable();
    (0_u32..).zip(calls).map(move |(number, call)| {
        match translations.next_if(|it| it.call == number).map(|it| &it.reading) {
            Some(TranslatedCall::RunAs { tool, arguments, .. }) => Cow::Owned(ToolCall {
                id: call.id.clone(),
                name: tool.clone(),
                arguments: arguments.clone(),
                malformed: false,
            }),
            Some(TranslatedCall::Refused { .. }) | None => Cow::Borrowed(call),
        }
    })
}

/// Returns the tools that an agent needs for a call. A patch may change files and add files.
pub(crate) fn needed_tools(call: &ToolCall) -> Vec<&str> {
    let patch = call.arguments.get(PATCH).and_then(Value::as_str).filter(|_| is_write(&call.name));
    let tools = patch.and_then(|patch| patch_tools(patch).ok());
    tools.unwrap_or_else(|| vec![call.name.as_str()])
}

/// Returns the tools that a patch needs, or why it cannot be applied as a whole.
fn patch_tools(text: &str) -> Result<Vec<&'static str>, String> {
    let patch = patch::parse(text)?;
    let mut tools = Vec::new();
    for file in &patch.files {
        let tool = match file {
            FilePatch::Update { .. } => EDIT,
            FilePatch::Add { .. } => WRITE,
            FilePatch::Delete { path } => {
                return Err(format!(
                    "nothing was changed: the patch deletes `{path}`; leave that part out, and remove the file with `rm` \
                     in Run, or name it in your report"
                ));
            }
            FilePatch::Move { path, to } => {
                return Err(format!(
                    "nothing was changed: the patch moves `{path}` to `{to}`; leave that part out, and rename the file \
                     with `mv` in Run, or write the new one and name the old one in your report"
                ));
            }
        };
        if !tools.contains(&tool) {
            tools.push(tool);
        }
    }
    tools.sort_unstable();
    Ok(tools)
}
