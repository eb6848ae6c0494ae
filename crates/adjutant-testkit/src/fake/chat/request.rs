//! Judges a Chat Completions request: its fields, then the conversation as a whole.

use std::collections::BTreeSet;

use serde_json::Value;

use super::super::api::Exchange;
use super::super::json::{Checked, Node};
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
pub(super) fn read(value: &Value) -> Checked<Exchange> {
    let root = Node::root(value);
    root.object(&FIELDS)?;
    let model = root.need("model")?.filled()?.to_owned();
    streams(&root)?;
    common(&root)?;
    limits(&root)?;
    let usage = stream_options(&root)?;
    tools(&root)?;
    response_format(&root)?;
    let messages = root.need("messages")?;
    let mut talk = Talk::default();
    for message in messages.items()? {
        talk.hear(&messages, &message)?;
    }
    talk.end(&messages)?;
    let Talk { system, task, turns, .. } = talk;
    let task = task.unwrap_or_default();
    Ok(Exchange { model, system, task, turns, usage, ..Exchange::default() })
}

fn limits(root: &Node<'_, '_>) -> Checked<()> {
    for name in ["max_tokens", "max_completion_tokens", "n"] {
        root.some(name).map(|node| node.integer(1)).transpose()?;
    }
    if root.some("max_tokens").is_some() && root.some("max_completion_tokens").is_some() {
        return root.say(
            "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.",
        );
    }
    root.some("reasoning_effort").map(|node| node.choice(&EFFORTS).map(drop)).transpose()?;
    root.some("verbosity")
        .map(|node| node.choice(&["low", "medium", "high"]).map(drop))
        .transpose()?;
    for name in ["frequency_penalty", "presence_penalty"] {
        root.some(name).map(|node| node.number(-2.0, 2.0)).transpose()?;
    }
    Ok(())
}

fn stream_options(root: &Node<'_, '_>) -> Checked<bool> {
    let Some(options) = root.some("stream_options") else { return Ok(false) };
    options.object(&["include_usage", "include_obfuscation"])?;
    options.some("include_obfuscation").map(|flag| flag.boolean()).transpose()?;
    Ok(options.some("include_usage").map(|flag| flag.boolean()).transpose()? == Some(true))
}

fn tools(root: &Node<'_, '_>) -> Checked<()> {
    let tools = root.some("tools");
    if let Some(tools) = tools {
        let list = tools.array()?;
        if list.is_empty() {
            return tools.say(
                "Invalid 'tools': empty array. Expected an array with minimum length 1, \
                 but got an empty array instead.",
            );
        }
        for tool in tools.items()? {
            tool.object(&["type", "function"])?;
            tool.need("type")?.choice(&["function"])?;
            let offered = tool.need("function")?;
            offered.object(&["name", "description", "parameters", "strict"])?;
            function(&offered)?;
        }
    }
    for dependent in ["tool_choice", "parallel_tool_calls"] {
        if let Some(node) = root.some(dependent).filter(|_| tools.is_none()) {
            return node.say(format!(
                "Invalid value for '{dependent}': '{dependent}' is only allowed when 'tools' are \
                 specified."
            ));
        }
    }
    let Some(choice) = root.some("tool_choice") else { return Ok(()) };
    if choice.value.is_string() {
        return choice.choice(&["none", "auto", "required"]).map(drop);
    }
    choice.object(&["type", "function"])?;
    choice.need("type")?.choice(&["function"])?;
    let function = choice.need("function")?;
    function.object(&["name"])?;
    function.need("name")?.filled().map(drop)
}

fn response_format(root: &Node<'_, '_>) -> Checked<()> {
    let Some(node) = root.some("response_format") else { return Ok(()) };
    node.object(&["type", "json_schema"])?;
    match node.need("type")?.choice(&["text", "json_object", "json_schema"])? {
        "json_schema" => {
            let schema = node.need("json_schema")?;
            schema.object(&["name", "description", "schema", "strict"])?;
            format(&schema)
        }
        _ => Ok(()),
    }
}

/// The conversation so far.
#[derive(Default)]
struct Talk<'v> {
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

impl<'v> Talk<'v> {
    fn hear(&mut self, messages: &Node<'_, '_>, message: &Node<'v, '_>) -> Checked<()> {
        self.any = true;
        message.map()?;
        let role =
            message.need("role")?.choice(&["system", "developer", "user", "assistant", "tool"])?;
        if role == "tool" {
            return self.result(message);
        }
        self.settled(messages)?;
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

    fn reply(&mut self, message: &Node<'v, '_>) -> Checked<()> {
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
        message.some("reasoning_content").map(|text| text.text().map(drop)).transpose()?;
        self.turns += 1;
        message.some("refusal").map(|text| text.text().map(drop)).transpose()?;
        let silent = message.some("content").is_none() && message.some("refusal").is_none();
        if message.some("content").is_some() {
            content(message)?;
        }
        let Some(calls) = message.some("tool_calls") else {
            return if silent {
                let content = message.get("content").unwrap_or(*message);
                content.say("Invalid value for 'content': expected a string, got null.")
            } else {
                Ok(())
            };
        };
        if calls.array()?.is_empty() {
            return calls.say(
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

    fn call(&mut self, call: &Node<'v, '_>) -> Checked<()> {
        call.object(&["id", "type", "function"])?;
        let id = call.need("id")?.filled()?;
        call.need("type")?.choice(&["function"])?;
        let function = call.need("function")?;
        function.object(&["name", "arguments"])?;
        function.need("name")?.filled()?;
        function.need("arguments")?.text()?;
        if self.owed.contains(&id) {
            return call.say(format!("Duplicate tool call id '{id}'."));
        }
        self.owed.push(id);
        Ok(())
    }

    fn result(&mut self, message: &Node<'v, '_>) -> Checked<()> {
        message.object(&["role", "content", "tool_call_id"])?;
        let id = message.need("tool_call_id")?.text()?;
        content(message)?;
        if !self.calling {
            return message.need("role")?.say(
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
        message.say(format!(
            "Invalid parameter: 'tool_call_id' of '{id}' {known} in 'tool_calls' of previous \
             message."
        ))
    }

    fn settled(&self, messages: &Node<'_, '_>) -> Checked<()> {
        if self.owed.is_empty() {
            return Ok(());
        }
        messages.say(format!(
            "An assistant message with 'tool_calls' must be followed by tool messages responding \
             to each 'tool_call_id'. The following tool_call_ids did not have response messages: \
             {}",
            self.owed.join(", ")
        ))
    }

    fn end(&self, messages: &Node<'_, '_>) -> Checked<()> {
        if !self.any {
            return messages.say(
                "Invalid 'messages': empty array. Expected an array with minimum length 1, \
                 but got an empty array instead.",
            );
        }
        self.settled(messages)
    }
}

/// Reads the content of a message: a text, or parts of one.
fn content(message: &Node<'_, '_>) -> Checked<String> {
    let content = message.need("content")?;
    if !content.value.is_array() {
        return content.text().map(str::to_owned);
    }
    let mut whole = String::new();
    for part in content.items()? {
        part.map()?;
        match part.need("type")?.choice(&["text", "image_url", "refusal"])? {
            "text" => {
                part.object(&["type", "text"])?;
                whole += part.need("text")?.text()?;
                whole.push('\n');
            }
            "refusal" => {
                part.object(&["type", "refusal"])?;
                part.need("refusal")?.text()?;
            }
            _ => {
                part.object(&["type", "image_url"])?;
                part.need("image_url")?.object(&["url", "detail"])?;
            }
        }
    }
    if content.array()?.is_empty() {
        return content.say("Invalid 'content': empty array.");
    }
    Ok(whole)
}
