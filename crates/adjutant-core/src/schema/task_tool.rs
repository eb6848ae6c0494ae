//! The schema and the strict parser of the `Task` tool, which delegates one task to a named agent.
//!
//! A [`TaskCall`] is a valid call. An [`AgentCard`] is the name and description of one agent, as
//! the tool description lists it.

use serde_json::{Value, json};

use super::complaint::{ComplaintCollector, SchemaError};
use super::delegate_call::{arguments_of, context};
use super::delegate_tool::CallLimits;
use crate::message::ToolSpec;
use crate::policy::Operation;
use adjutant_formats::excerpt::excerpt;
use adjutant_formats::fields::{FieldProblem, FieldValue};

/// The name of the tool.
pub const TASK: &str = "Task";

/// The longest agent name in a call, in characters. Inclusive.
const NAME_CHARS: usize = 64;
/// Characters of an agent's description that the tool description includes.
const DESCRIPTION_CHARS: usize = 240;
/// Bytes of all descriptions together: they are part of every model call of an agent that may
/// delegate.
const DESCRIPTIONS_BYTES: usize = 12 << 10;

const KEYS: [&str; 6] = ["agent", "prompt", "context", "model", "operation", "timeout"];

/// The operations that a call may name.
const OPERATIONS: [&str; 6] = ["research", "plan", "implement", "revise", "review", "simple"];

/// An agent in the tool description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentCard {
    /// The agent's name.
    pub name: String,
    /// What the agent is for.
    pub description: String,
}

/// The arguments of a valid `Task` call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskCall {
    /// The agent's name; admission checks that it exists.
    pub agent: String,
    /// The prompt.
    pub prompt: String,
    /// Context files as the caller wrote them.
    pub context: Vec<String>,
    /// The requested model.
    pub model: Option<String>,
    /// The operation.
    pub operation: Option<Operation>,
    /// The requested timeout in seconds.
    pub timeout_s: Option<u64>,
}

/// Returns the declaration of the tool for a model, listing the agents.
#[must_use]
pub fn task_spec(agents: &[AgentCard], limits: &CallLimits) -> ToolSpec {
    ToolSpec {
        name: TASK.to_owned(),
        description: format!(
            "Hands one task to a named agent that works on its own and reports back. Each has a role, \
             tools and limits of its own. It sees only your prompt and the context files, so say what \
             it must know and what its report must contain. Reports are advice: weigh them.\n\n\
             Agents, as their files describe them:\n{}",
            list_agents(agents)
        ),
        schema: json!({
            "type": "object",
            "properties": {
                "agent": {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": NAME_CHARS,
                    "description": "The name of the agent.",
                },
                "prompt": { "type": "string", "minLength": 1 },
                "context": {
                    "type": "array",
                    "items": { "type": "string" },
                    "maxItems": limits.max_context,
                    "description": "Paths of files the agent should start from; their text is put \
                        before the prompt.",
                },
                "model": {
                    "type": "string",
                    "description": "Wish for another model, as provider/model; used only where the \
                        policy allows it.",
                },
                "operation": {
                    "type": "string",
                    "enum": OPERATIONS,
                    "description": "What kind of work it is, where the agent is not of one kind; it \
                        decides how long the task may take.",
                },
                "timeout": {
                    "type": "integer",
                    "minimum": 1,
                    "description": "Seconds it may take; more than allowed is cut.",
                },
            },
            "required": ["agent", "prompt"],
            "additionalProperties": false,
        }),
    }
}

/// Lists the agents, one per line. Agents beyond the size limit are listed without a description.
fn list_agents(agents: &[AgentCard]) -> String {
    let mut lines = Vec::with_capacity(agents.len());
    let mut left = DESCRIPTIONS_BYTES;
    for agent in agents {
        let words: Vec<&str> = agent.description.split_whitespace().collect();
        let description = excerpt(&words.join(" "), DESCRIPTION_CHARS).to_string();
        if description.is_empty() || description.len() > left {
            lines.push(format!("- {}", agent.name));
        } else {
            left -= description.len();
            lines.push(format!("- {}: {description}", agent.name));
        }
    }
    lines.join("\n")
}

impl TaskCall {
    /// Parses the arguments of a call as strictly as
    /// [`DelegateCall::parse`](super::DelegateCall::parse).
    pub fn parse(arguments: &Value, limits: &CallLimits) -> Result<Self, SchemaError> {
        let mut complaints = ComplaintCollector::default();
        let call = call(arguments.into(), limits, &mut complaints);
        complaints.finish(call)
    }
}

fn call(
    arguments: FieldValue<'_>,
    limits: &CallLimits,
    complaints: &mut ComplaintCollector,
) -> Option<TaskCall> {
    let fields = complaints.keep(arguments_of(arguments))?;
    complaints.refuse_unknown("arguments", &fields, &KEYS);
    let agent = complaints.keep(fields.require("agent", agent));
    let prompt = complaints.keep(fields.require("prompt", FieldValue::non_blank_string));
    let context = context(&fields, limits, complaints);
    let model = complaints.keep(fields.read("model", FieldValue::non_blank_string));
    let operations = OPERATIONS.map(|word| (word, word));
    let operation = complaints.keep(fields.read("operation", |value| value.choice(&operations)));
    let seconds = |value: FieldValue<'_>| value.integer(1..=u64::MAX);
    let timeout_s = complaints.keep(fields.read("timeout", seconds));
    Some(TaskCall {
        agent: agent?,
        prompt: prompt?.into_owned(),
        context: context?,
        model: model?.map(Into::into),
        operation: operation?.map(Operation::parse),
        timeout_s: timeout_s?,
    })
}

fn agent(value: FieldValue<'_>) -> Result<String, FieldProblem> {
    let name = value.non_blank_string()?;
    match name.chars().count() {
        0..=NAME_CHARS => Ok(name.trim().to_owned()),
        count => Err(format!("has {count} characters, allowed are 1 to {NAME_CHARS}").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(arguments: &Value) -> String {
        match TaskCall::parse(arguments, &CallLimits::default()) {
            Ok(call) => {
                format!("{}: {} {:?} {:?}", call.agent, call.prompt, call.context, call.model)
            }
            Err(error) => error.to_string(),
        }
    }

    fn card(name: &str, description: &str) -> AgentCard {
        AgentCard { name: name.to_owned(), description: description.to_owned() }
    }

    #[test]
    fn a_task_call_is_parsed_as_strictly_as_a_delegate_call() {
        for (arguments, expected) in [
            (json!({"agent": "reviewer", "prompt": "Look."}), "reviewer: Look. [] None"),
            (
                json!({"agent": " reviewer ", "prompt": "Look.", "context": ["a.rs"], "model": "a/b"}),
                r#"reviewer: Look. ["a.rs"] Some("a/b")"#,
            ),
            (json!({}), "agent: is required; prompt: is required"),
            (json!([]), "arguments: must be an object, not an array"),
            (
                json!({"agent": 1, "prompt": " ", "context": "a.rs", "model": null}),
                "agent: must be a string, not a number; prompt: must not be blank; \
                 context: must be an array, not a string; model: must be a string, not null",
            ),
            (
                json!({"agent": "a", "promt": "p", "subagent_type": "x", "prompt": "p"}),
                "arguments: unknown property `promt`, did you mean `prompt`?; \
                 arguments: unknown property `subagent_type`",
            ),
            (
                json!({"agent": "x".repeat(65), "prompt": "p"}),
                "agent: has 65 characters, allowed are 1 to 64",
            ),
            (
                json!({"agent": "a", "prompt": "p", "context": vec!["a"; 11]}),
                "context: 11 paths, allowed are 0 to 10",
            ),
        ] {
            assert_eq!(check(&arguments), expected, "{arguments}");
        }
    }

    #[test]
    fn the_list_of_agents_is_bounded() {
        let long = "word ".repeat(10_000);
        let agents: Vec<AgentCard> =
            (0..200).map(|nth| card(&format!("agent-{nth}"), &long)).collect();
        let spec = task_spec(&agents, &CallLimits::default());
        assert!(spec.description.len() < 20 << 10, "{}", spec.description.len());
        assert!(spec.description.ends_with("\n- agent-199"));
        let spec = task_spec(&[card("a", "Two\nlines.")], &CallLimits::default());
        assert!(spec.description.ends_with("\n- a: Two lines."));
    }
}
