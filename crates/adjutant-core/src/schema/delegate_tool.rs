//! The schema of the `Delegate` tool, and the bounds that it states.
//!
//! [`CallLimits`] are these bounds; [`ReturnFormat`] says whether the caller gets the results as
//! Markdown or JSON.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::ids::Label;
use crate::message::ToolSpec;
use crate::policy::Policy;

/// The name of the tool.
pub const DELEGATE: &str = "Delegate";

/// The bounds of the arguments of one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallLimits {
    /// The most tasks of one call. Inclusive. The schema states it; `Tree::decide` enforces it.
    pub max_tasks: u64,
    /// The most tasks a call may ask to run at once. Inclusive.
    pub max_concurrency: u64,
    /// How many run at once by default.
    pub default_concurrency: u64,
    /// The most context files of one task. Inclusive.
    pub max_context: usize,
    /// The range of output tokens that a task may ask for.
    pub output_tokens: RangeInclusive<u64>,
    /// The default output tokens of a task.
    pub default_output_tokens: u64,
}

impl Default for CallLimits {
    /// The bounds of the scout preset.
    fn default() -> Self {
        Self {
            max_tasks: 8,
            max_concurrency: 4,
            default_concurrency: 2,
            max_context: 10,
            output_tokens: 100..=16_384,
            default_output_tokens: 4096,
        }
    }
}

impl CallLimits {
    /// Returns the bounds under a policy.
    #[must_use]
    pub fn of(policy: &Policy) -> Self {
        Self {
            max_tasks: policy.tasks_per_call,
            max_concurrency: policy.concurrency_max,
            default_concurrency: policy.concurrency,
            ..Self::default()
        }
    }
}

/// Returns the declaration of the tool for a model.
#[must_use]
pub fn delegate_spec(limits: &CallLimits) -> ToolSpec {
    ToolSpec {
        name: DELEGATE.to_owned(),
        description: "Hands independent tasks to subagents that work side by side and report \
            back. Worth it for parallel exploration, a second opinion or a special point of view; \
            two to four tasks with goals that do not overlap serve best. A subagent sees only its \
            prompt and context files, so say in the prompt what it must know and what its report \
            must contain. Reports are advice: weigh them, and resolve where they disagree."
            .to_owned(),
        schema: json!({
            "type": "object",
            "properties": {
                "tasks": {
                    "type": "array",
                    "minItems": 1,
                    "maxItems": limits.max_tasks,
                    "items": task_schema(limits),
                },
                "concurrency": {
                    "type": "integer",
                    "minimum": 1,
                    "maximum": limits.max_concurrency,
                    "default": limits.default_concurrency,
                },
                "return": {
                    "type": "string",
                    "enum": ReturnFormat::ALL.map(ReturnFormat::as_str),
                    "default": ReturnFormat::default().as_str(),
                },
            },
            "required": ["tasks"],
            "additionalProperties": false,
        }),
    }
}

fn task_schema(limits: &CallLimits) -> Value {
    json!({
        "type": "object",
        "properties": {
            "label": {
                "type": "string",
                "minLength": 1,
                "maxLength": Label::MAX_CHARS,
                "description": "Short name under which progress and result are shown.",
            },
            "prompt": { "type": "string", "minLength": 1 },
            "context": {
                "type": "array",
                "items": { "type": "string" },
                "maxItems": limits.max_context,
                "description": "Paths of files the subagent should start from; their text is put \
                    before the prompt.",
            },
            "model": {
                "type": "string",
                "description": "Wish for another model, as provider/model; used only where the \
                    policy allows it.",
            },
            "max_output_tokens": {
                "type": "integer",
                "minimum": limits.output_tokens.start(),
                "maximum": limits.output_tokens.end(),
                "default": limits.default_output_tokens,
            },
        },
        "required": ["label", "prompt"],
        "additionalProperties": false,
    })
}

/// The format in which the caller gets results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReturnFormat {
    /// Markdown sections for a model.
    #[default]
    Markdown,
    /// One JSON object for a program.
    Json,
}

impl ReturnFormat {
    /// Every format, the default first.
    pub const ALL: [Self; 2] = [Self::Markdown, Self::Json];

    /// Returns the format's name in calls.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Markdown => "markdown",
            Self::Json => "json",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The schema of the design, without its descriptions.
    fn designed() -> Value {
        json!({
            "type": "object",
            "properties": {
                "tasks": {
                    "type": "array",
                    "minItems": 1,
                    "maxItems": 8,
                    "items": {
                        "type": "object",
                        "properties": {
                            "label": { "type": "string", "minLength": 1, "maxLength": 32 },
                            "prompt": { "type": "string", "minLength": 1 },
                            "context": {
                                "type": "array", "items": { "type": "string" }, "maxItems": 10,
                            },
                            "model": { "type": "string" },
                            "max_output_tokens": {
                                "type": "integer", "minimum": 100, "maximum": 16384,
                                "default": 4096,
                            },
                        },
                        "required": ["label", "prompt"],
                        "additionalProperties": false,
                    },
                },
                "concurrency": { "type": "integer", "minimum": 1, "maximum": 4, "default": 2 },
                "return": {
                    "type": "string", "enum": ["markdown", "json"], "default": "markdown",
                },
            },
            "required": ["tasks"],
            "additionalProperties": false,
        })
    }

    fn without_descriptions(value: &Value) -> Value {
        match value {
            Value::Object(map) => map
                .iter()
                .filter(|(key, value)| *key != "description" || !value.is_string())
                .map(|(key, value)| (key.clone(), without_descriptions(value)))
                .collect(),
            Value::Array(list) => list.iter().map(without_descriptions).collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
        }
    }

    #[test]
    fn requirement_42_the_schema_is_that_of_the_design() {
        let spec = delegate_spec(&CallLimits::default());
        assert_eq!(spec.name, "Delegate");
        assert_eq!(without_descriptions(&spec.schema), designed());
    }

    #[test]
    fn the_bounds_are_those_of_the_limits() {
        let limits = CallLimits {
            max_tasks: 20,
            max_concurrency: 16,
            default_concurrency: 3,
            max_context: 5,
            output_tokens: 200..=8192,
            default_output_tokens: 8192,
        };
        let properties = &delegate_spec(&limits).schema["properties"];
        let task = &properties["tasks"]["items"]["properties"];
        assert_eq!(properties["tasks"]["maxItems"], 20);
        assert_eq!(properties["concurrency"]["maximum"], 16);
        assert_eq!(properties["concurrency"]["default"], 3);
        assert_eq!(task["context"]["maxItems"], 5);
        assert_eq!(task["max_output_tokens"]["minimum"], 200);
        assert_eq!(task["max_output_tokens"]["maximum"], 8192);
        assert_eq!(task["max_output_tokens"]["default"], 8192);
    }
}
