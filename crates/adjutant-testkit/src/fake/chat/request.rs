//! Judges a Chat Completions request: its fields, then the conversation as a whole.

use std::collections::BTreeSet;

use serde_json::Value;

use super::super::api::ValidRequest;
use super::super::json::{CheckResult, Node};
use super::super::openai::{EFFORTS, common, format, function, streams};

const FIELDS: [&str; 33] = [
    "messages",
    "model",
    "frequency_penalty",
    "logit_bias",
    "logprobs",
    "max_completion_tokens",
    "max_tokens",
    "metadata",
    "modalities",
    "n",
    "parallel_tool_calls",
    "prediction",
    "presence_penalty",
    "prompt_cache_key",
    "prompt_cache_retention",
    "reasoning_effort",
    "response_format",
    "safety_identifier",
    "seed",
    "service_tier",
    "stop",
    "store",
    "stream",
    "stream_options",
    "temperature",
    "tool_choice",
    "tools",
    "top_logprobs",
    "top_p",
    "user",
    "verbosity",
    "web_search_options",
    "audio",
];

/// Reads a request.
pub(super) fn read(value: &Value) -> CheckResult<ValidRequest> {
    let root = Node::root(value);
    root.object(&FIELDS)?;
    let model = root.required("model")?.non_empty_text()?.to_owned();
    streams(&root)?;
    common(&root)?;
    limits(&root)?;
    let usage = stream_options(&root)?;
    tools(&root)?;
    response_format(&root)?;
    let messages = root.required("messages")?;
    let mut conversation = ConversationCheck::default();
    for message in messages.items()? {
        conversation.check_message(&messages, &message)?;
    }
    conversation.check_end(&messages)?;
    let ConversationCheck { system, task, turns, .. } = conversation;
    let task = task.unwrap_or_default();
    Ok(ValidRequest { model, system, task, turns, usage, ..ValidRequest::default() })
}

fn limits(root: &Node<'_, '_>) -> CheckResult<()> {
    for name in ["max_tokens", "max_completion_tokens", "n"] {
        root.non_null(name).map(|node| node.integer(1)).transpose()?;
    }
    if root.non_null("max_tokens").is_some() && root.non_null("max_completion_tokens").is_some() {
        return root.fail(
            "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.",
        );
    }
    root.non_null("reasoning_effort").map(|node| node.choice(&EFFORTS).map(drop)).transpose()?;
    root.non_null("verbosity")
        .map(|node| node.choice(&["low", "medium", "high"]).map(drop))
        .transpose()?;
    for name in ["frequency_penalty", "presence_penalty"] {
        root.non_null(name).map(|node| node.number(-2.0, 2.0)).transpose()?;
    }
    Ok(())
}

fn stream_options(root: &Node<'_, '_>) -> CheckResult<bool> {
    let Some(options) = root.non_null("stream_options") else { return Ok(false) };
    options.object(&["include_usage", "include_obfuscation"])?;
    options.non_null("include_obfuscation").map(|flag| flag.boolean()).transpose()?;
    Ok(options.non_null("include_usage").map(|flag| flag.boolean()).transpose()? == Some(true))
}

fn tools(root: &Node<'_, '_>) -> CheckResult<()> {
    let tools = root.non_null("tools");
    if let Some(tools) = tools {
        let list = tools.array()?;
        if list.is_empty() {
            return tools.fail(
                "Invalid 'tools': empty array. Expected an array with minimum length 1, \
                 but got an empty array instead.",
            );
        }
        for tool in tools.items()? {
            tool.object(&["type", "function"])?;
            tool.required("type")?.choice(&["function"])?;
            let offered = tool.required("function")?;
            offered.object(&["name", "description", "parameters", "strict"])?;
            function(&offered)?;
        }
    }
    for dependent in ["tool_choice", "parallel_tool_calls"] {
        if let Some(node) = root.non_null(dependent).filter(|_| tools.is_none()) {
            return node.fail(format!(
                "Invalid value for '{dependent}': '{dependent}' is only allowed when 'tools' are \
                 specified."
            ));
        }
    }
    let Some(choice) = root.non_null("tool_choice") else { return Ok(()) };
    if choice.value.is_string() {
        return choice.choice(&["none", "auto", "required"]).map(drop);
    }
    choice.object(&["type", "function"])?;
    choice.required("type")?.choice(&["function"])?;
    let function = choice.required("function")?;
    function.object(&["name"])?;
    function.required("name")?.non_empty_text().map(drop)
}

fn response_format(root: &Node<'_, '_>) -> CheckResult<()> {
    let Some(node) = root.non_null("response_format") else { return Ok(()) };
    node.object(&["type", "json_schema"])?;
    match node.required("type")?.choice(&["text", "json_object", "json_schema"])? {
        "json_schema" => {
            let schema = node.required("json_schema")?;
            schema.object(&["name", "description", "schema", "strict"])?;
            format(&schema)
        }
        _ => Ok(()),
    }
}

/// The conversation so far.
#[derive(Default)]
struct ConversationCheck<'v> {
    system: String,
    task: Option<String>,
    turns: usize,
    /// Calls that still need an answer, and those that have one.
    owed: Vec<&'v str>,
    paid: BTreeSet<&'v str>,
    /// Whether a tool message may come next.
    calling: bool,
    any: bool,
}

impl<'v> ConversationCheck<'v> {
    fn check_message(
        &mut self,
        messages: &Node<'_, '_>,
        message: &Node<'v, '_>,
    ) -> CheckResult<()> {
        self.any = true;
        message.map()?;
        let role = message.required("role")?.choice(&[
            "system",
            "developer",
            "user",
            "assistant",
            "tool",
        ])?;
        if role == "tool" {
            return self.result(message);
        }
        self.check_calls_answered(messages)?;
        self.calling = false;
        match role {
            "assistant" => self.reply(message),
            "user" => {
                message.object(&["role", "content", "name"])?;
                let text = content(message)?;
                self.task.get_or_insert(text);
                Ok(())
            }
            _ => {
                message.object(&["role", "content", "name"])?;
                self.system += &content(message)?;
                self.system.push('\n');
                Ok(())
            }
        }
    }

    fn reply(&mut self, message: &Node<'v, '_>) -> CheckResult<()> {
        // The last is no field of OpenAI's own; servers that send it want it back (DeepSeek's
        // documentation: a tool loop without it is refused), and this fake sends it.
        message.object(&[
            "role",
            "content",
            "name",
            "refusal",
            "tool_calls",
            "audio",
            "reasoning_content",
        ])?;
        message.non_null("reasoning_content").map(|text| text.text().map(drop)).transpose()?;
        self.turns += 1;
        message.non_null("refusal").map(|text| text.text().map(drop)).transpose()?;
        let silent = message.non_null("content").is_none() && message.non_null("refusal").is_none();
        if message.non_null("content").is_some() {
            content(message)?;
        }
        let Some(calls) = message.non_null("tool_calls") else {
            return if silent {
                let content = message.get("content").unwrap_or(*message);
                content.fail("Invalid value for 'content': expected a string, got null.")
            } else {
                Ok(())
            };
        };
        if calls.array()?.is_empty() {
            return calls.fail(
                "Invalid 'tool_calls': empty array. Expected an array with minimum length 1, \
                 but got an empty array instead.",
            );
        }
        self.paid.clear();
        self.calling = true;
        for call in calls.items()? {
            self.call(&call)?;
        }
        Ok(())
    }

    fn call(&mut self, call: &Node<'v, '_>) -> CheckResult<()> {
        call.object(&["id", "type", "function"])?;
        let id = call.required("id")?.non_empty_text()?;
        call.required("type")?.choice(&["function"])?;
        let function = call.required("function")?;
        function.object(&["name", "arguments"])?;
        function.required("name")?.non_empty_text()?;
        function.required("arguments")?.text()?;
        if self.owed.contains(&id) {
            return call.fail(format!("Duplicate tool call id '{id}'."));
        }
        self.owed.push(id);
        Ok(())
    }

    fn result(&mut self, message: &Node<'v, '_>) -> CheckResult<()> {
        message.object(&["role", "content", "tool_call_id"])?;
        let id = message.required("tool_call_id")?.text()?;
        content(message)?;
        if !self.calling {
            return message.required("role")?.fail(
                "Invalid parameter: messages with role 'tool' must be a response to a preceeding \
                 message with 'tool_calls'.",
            );
        }
        if let Some(at) = self.owed.iter().position(|owed| *owed == id) {
            self.owed.remove(at);
            self.paid.insert(id);
            return Ok(());
        }
        let known = if self.paid.contains(id) { "already answered" } else { "not found" };
        message.fail(format!(
            "Invalid parameter: 'tool_call_id' of '{id}' {known} in 'tool_calls' of previous \
             message."
        ))
    }

    fn check_calls_answered(&self, messages: &Node<'_, '_>) -> CheckResult<()> {
        if self.owed.is_empty() {
            return Ok(());
        }
        messages.fail(format!(
            "An assistant message with 'tool_calls' must be followed by tool messages responding \
             to each 'tool_call_id'. The following tool_call_ids did not have response messages: \
             {}",
            self.owed.join(", ")
        ))
    }

    fn check_end(&self, messages: &Node<'_, '_>) -> CheckResult<()> {
        if !self.any {
            return messages.fail(
                "Invalid 'messages': empty array. Expected an array with minimum length 1, \
                 but got an empty array instead.",
            );
        }
        self.check_calls_answered(messages)
    }
}

/// Reads the content of a message: a text, or parts of one.
fn content(message: &Node<'_, '_>) -> CheckResult<String> {
    let content = message.required("content")?;
    if !content.value.is_array() {
        return content.text().map(str::to_owned);
    }
    let mut whole = String::new();
    for part in content.items()? {
        part.map()?;
        match part.required("type")?.choice(&["text", "image_url", "refusal"])? {
            "text" => {
                part.object(&["type", "text"])?;
                whole += part.required("text")?.text()?;
                whole.push('\n');
            }
            "refusal" => {
                part.object(&["type", "refusal"])?;
                part.required("refusal")?.text()?;
            }
            _ => {
                part.object(&["type", "image_url"])?;
                part.required("image_url")?.object(&["url", "detail"])?;
            }
        }
    }
    if content.array()?.is_empty() {
        return content.fail("Invalid 'content': empty array.");
    }
    Ok(whole)
}
