//! Judges a Messages request: its fields, then the conversation as a whole.

use std::collections::BTreeSet;

use serde_json::Value;

use super::super::api::ValidRequest;
use super::super::json::{CheckResult, Node, is_name};
use super::blocks::{self, Block};

const FIELDS: [&str; 18] = [
    "model",
    "messages",
    "max_tokens",
    "system",
    "metadata",
    "stop_sequences",
    "stream",
    "temperature",
    "thinking",
    "tool_choice",
    "tools",
    "top_k",
    "top_p",
    "service_tier",
    "container",
    "cache_control",
    "inference_geo",
    "output_config",
];

/// The rules for the conversation that follow from the other fields of the request.
struct ConversationRules {
    /// Thinking with a budget: a tool loop must then keep its thoughts.
    thinks: bool,
    tools: bool,
}

/// Reads a request.
pub(super) fn read(value: &Value) -> CheckResult<ValidRequest> {
    let root = Node::root(value);
    root.object(&FIELDS)?;
    let model = root.required("model")?.non_empty_text()?.to_owned();
    let max_tokens = root.required("max_tokens")?.integer(1)?;
    if !matches!(root.get("stream").map(|stream| stream.boolean()).transpose()?, Some(true)) {
        return root.fail("stream: this fake only streams");
    }
    let mut markers = blocks::cache_control(&root)?;
    let system = system(&root, &mut markers)?;
    sampling(&root)?;
    let tools = tools(&root, &mut markers)?;
    let thinks = thinking(&root, max_tokens)?;
    tool_choice(&root, thinks)?;
    output_config(&root)?;
    let messages = root.required("messages")?;
    let (task, turns) =
        conversation(&messages, &ConversationRules { thinks, tools }, &mut markers)?;
    if markers > 4 {
        return root.fail(format!(
            "A maximum of 4 blocks with cache_control may be provided. Found {markers}."
        ));
    }
    Ok(ValidRequest { model, system, task, turns, usage: true, ..ValidRequest::default() })
}

fn system(root: &Node<'_, '_>, markers: &mut usize) -> CheckResult<String> {
    let Some(system) = root.get("system") else { return Ok(String::new()) };
    if let Some(text) = system.value.as_str() {
        return Ok(text.to_owned());
    }
    let mut whole = String::new();
    for block in system.items()? {
        block.object(&["type", "text", "cache_control", "citations"])?;
        block.required("type")?.choice(&["text"])?;
        let text = block.required("text")?.text()?;
        if text.is_empty() {
            return system.fail("text content blocks must be non-empty");
        }
        *markers += blocks::cache_control(&block)?;
        whole += text;
        whole.push('\n');
    }
    Ok(whole)
}

fn sampling(root: &Node<'_, '_>) -> CheckResult<()> {
    for name in ["temperature", "top_p"] {
        root.get(name).map(|node| node.number(0.0, 1.0)).transpose()?;
    }
    root.get("top_k").map(|node| node.integer(0)).transpose()?;
    root.get("service_tier").map(|node| node.choice(&["auto", "standard_only"])).transpose()?;
    root.non_null("container").map(|node| node.text().map(drop)).transpose()?;
    root.non_null("inference_geo").map(|node| node.text().map(drop)).transpose()?;
    if let Some(metadata) = root.get("metadata") {
        metadata.object(&["user_id"])?;
        metadata.non_null("user_id").map(|id| id.text().map(drop)).transpose()?;
    }
    if let Some(sequences) = root.get("stop_sequences") {
        for sequence in sequences.items()? {
            if sequence.text()?.trim().is_empty() {
                return sequences.fail("each stop sequence must contain non-whitespace");
            }
        }
    }
    Ok(())
}

/// Reads the tools and says whether there are any.
fn tools(root: &Node<'_, '_>, markers: &mut usize) -> CheckResult<bool> {
    let Some(tools) = root.get("tools") else { return Ok(false) };
    let mut names = BTreeSet::new();
    for tool in tools.items()? {
        tool.object(&[
            "name",
            "description",
            "input_schema",
            "cache_control",
            "type",
            "strict",
            "eager_input_streaming",
            "defer_loading",
            "allowed_callers",
            "input_examples",
        ])?;
        tool.non_null("type").map(|kind| kind.choice(&["custom"]).map(drop)).transpose()?;
        let name = tool.required("name")?;
        if !is_name(name.text()?, 128, "_-") {
            return name.fail("String should match pattern '^[a-zA-Z0-9_-]{1,128}$'");
        }
        if !names.insert(name.text()?) {
            return tools.fail("Tool names must be unique.");
        }
        tool.get("description").map(|text| text.text().map(drop)).transpose()?;
        for flag in ["strict", "eager_input_streaming", "defer_loading"] {
            tool.non_null(flag).map(|flag| flag.boolean()).transpose()?;
        }
        let schema = tool.required("input_schema")?;
        schema.map()?;
        schema.required("type")?.choice(&["object"])?;
        if tool.get("strict").is_some_and(|flag| flag.value == true) {
            strict_schema(&schema)?;
        }
        *markers += blocks::cache_control(&tool)?;
    }
    Ok(!names.is_empty())
}

/// Checks the rules of strict schemas: objects are closed, and lengths are not limited.
fn strict_schema(schema: &Node<'_, '_>) -> CheckResult<()> {
    for keyword in ["minLength", "maxLength"] {
        if schema.get(keyword).is_some() {
            return schema
                .fail(format!("For 'string' type, property '{keyword}' is not supported"));
        }
    }
    schema.get("items").map(|items| strict_schema(&items)).transpose()?;
    let Some(properties) = schema.get("properties") else { return Ok(()) };
    if schema.get("additionalProperties").is_none_or(|node| node.value != false) {
        return schema
            .fail("For 'object' type, 'additionalProperties' must be explicitly set to false");
    }
    for key in properties.map()?.keys() {
        strict_schema(&properties.required(key)?)?;
    }
    Ok(())
}

/// Reads the thinking configuration and says whether it has a budget.
fn thinking(root: &Node<'_, '_>, max_tokens: u64) -> CheckResult<bool> {
    let Some(thinking) = root.get("thinking") else { return Ok(false) };
    thinking.map()?;
    let kind = thinking.required("type")?.choice(&["enabled", "disabled", "adaptive"])?;
    thinking.object(match kind {
        "enabled" => &["type", "budget_tokens", "display"],
        "adaptive" => &["type", "display"],
        _ => &["type"],
    })?;
    thinking
        .non_null("display")
        .map(|display| display.choice(&["summarized", "omitted"]).map(drop))
        .transpose()?;
    if kind == "disabled" {
        return Ok(false);
    }
    if root.get("temperature").is_some_and(|node| node.value.as_f64() != Some(1.0)) {
        return root.fail("`temperature` may only be set to 1 when thinking is enabled.");
    }
    if root.get("top_k").is_some() {
        return root.fail("`top_k` must be unset when thinking is enabled.");
    }
    if kind == "adaptive" {
        return Ok(false);
    }
    if max_tokens <= thinking.required("budget_tokens")?.integer(1024)? {
        return root.fail("`max_tokens` must be greater than `thinking.budget_tokens`.");
    }
    Ok(true)
}

fn tool_choice(root: &Node<'_, '_>, thinks: bool) -> CheckResult<()> {
    let Some(choice) = root.get("tool_choice") else { return Ok(()) };
    choice.map()?;
    let kind = choice.required("type")?.choice(&["auto", "any", "tool", "none"])?;
    choice.object(match kind {
        "tool" => &["type", "name", "disable_parallel_tool_use"],
        "none" => &["type"],
        _ => &["type", "disable_parallel_tool_use"],
    })?;
    if root.get("tools").is_none() {
        return choice.fail("tool_choice may only be specified while providing tools");
    }
    choice.get("disable_parallel_tool_use").map(|flag| flag.boolean()).transpose()?;
    if kind == "tool" {
        choice.required("name")?.non_empty_text()?;
    }
    if thinks && matches!(kind, "any" | "tool") {
        return root.fail("Thinking may not be enabled when tool_choice forces tool use.");
    }
    Ok(())
}

fn output_config(root: &Node<'_, '_>) -> CheckResult<()> {
    let Some(config) = root.get("output_config") else { return Ok(()) };
    config.object(&["effort", "format"])?;
    config
        .non_null("effort")
        .map(|effort| effort.choice(&["low", "medium", "high", "xhigh", "max"]).map(drop))
        .transpose()?;
    if let Some(format) = config.non_null("format") {
        format.object(&["type", "schema"])?;
        format.required("type")?.choice(&["json_schema"])?;
        format.required("schema")?.map()?;
    }
    Ok(())
}

/// Judges the conversation; returns the first user message and the number of turns.
fn conversation(
    messages: &Node<'_, '_>,
    mode: &ConversationRules,
    markers: &mut usize,
) -> CheckResult<(String, usize)> {
    let list = messages.array()?;
    if list.is_empty() {
        return messages.fail("at least one message is required");
    }
    let mut task = String::new();
    let mut turns = 0;
    let mut owed: Vec<&str> = Vec::new();
    for (index, message) in messages.items()?.enumerate() {
        message.object(&["role", "content"])?;
        let role = message.required("role")?.choice(&["user", "assistant"])?;
        if role != ["user", "assistant"][index % 2] {
            let found = if index == 0 {
                "first message must use the \"user\" role".to_owned()
            } else {
                format!(
                    "roles must alternate between \"user\" and \"assistant\", \
                     but found multiple \"{role}\" roles in a row"
                )
            };
            return messages.fail(found);
        }
        let content = blocks::content(&message, role, markers)?;
        if role == "assistant" {
            owed = blocks::calls(&message, &content)?;
            turns += 1;
            let last = index + 2 >= list.len();
            blocks::thoughts(&message, &content, mode.thinks && last)?;
        } else {
            check_results_match_calls(messages, &message, index, &content, &owed)?;
            owed.clear();
        }
        if index == 0 {
            task = blocks::text(&content);
        }
        if !mode.tools && blocks::has_tools(&content) {
            return messages.fail(
                "Requests which include `tool_use` or `tool_result` blocks must define tools",
            );
        }
    }
    if list.len() % 2 == 0 {
        return messages.fail(
            "This model does not support assistant message prefill. \
             The conversation must end with a user message.",
        );
    }
    Ok((task, turns))
}

/// Checks that a user message answers every call of the turn before it, and nothing else.
fn check_results_match_calls(
    messages: &Node<'_, '_>,
    message: &Node<'_, '_>,
    index: usize,
    content: &[Block<'_>],
    owed: &[&str],
) -> CheckResult<()> {
    let results = content.iter().take_while(|block| matches!(block, Block::Result(_)));
    let answered: Vec<&str> = results.filter_map(Block::result_of).collect();
    let open: Vec<&str> = owed.iter().copied().filter(|id| !answered.contains(id)).collect();
    if !open.is_empty() {
        let calling = index.checked_sub(1).and_then(|before| messages.item(before));
        return calling.unwrap_or(*message).fail(format!(
            "`tool_use` ids were found without `tool_result` blocks immediately after: {}. Each \
             `tool_use` block must have a corresponding `tool_result` block in the next message.",
            open.join(", ")
        ));
    }
    let mut seen = BTreeSet::new();
    for id in content.iter().filter_map(Block::result_of) {
        if !owed.contains(&id) {
            return message.fail(format!(
                "unexpected `tool_use_id` found in `tool_result` blocks: {id}. Each `tool_result` \
                 block must have a corresponding `tool_use` block in the previous message."
            ));
        }
        if !seen.insert(id) {
            return message.fail(format!(
                "each tool_use must have a single result. Found multiple `tool_result` blocks \
                 with id: {id}"
            ));
        }
    }
    Ok(())
}
