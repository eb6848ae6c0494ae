//! Judges the fields of a Responses request; its input items are judged in `items`.

use serde_json::Value;

use super::super::api::ValidRequest;
use super::super::json::{CheckResult, Node};
use super::super::openai::{EFFORTS, common, format, function, streams};
use super::items::ResponseItemsCheck;

const FIELDS: [&str; 28] = [
    "background",
    "conversation",
    "include",
    "input",
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "metadata",
    "model",
    "parallel_tool_calls",
    "previous_response_id",
    "prompt",
    "prompt_cache_key",
    "prompt_cache_retention",
    "reasoning",
    "safety_identifier",
    "service_tier",
    "store",
    "stream",
    "stream_options",
    "temperature",
    "text",
    "tool_choice",
    "tools",
    "top_logprobs",
    "top_p",
    "truncation",
    "user",
];

const INCLUDABLE: [&str; 8] = [
    "reasoning.encrypted_content",
    "message.output_text.logprobs",
    "message.input_image.image_url",
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
];

/// Reads a request.
pub(super) fn read(value: &Value) -> CheckResult<ValidRequest> {
    let root = Node::root(value);
    root.object(&FIELDS)?;
    let model = root.required("model")?.non_empty_text()?.to_owned();
    streams(&root)?;
    common(&root)?;
    options(&root)?;
    reasoning(&root)?;
    text(&root)?;
    tools(&root)?;
    let sealed = include(&root)?;
    let instructions = root.non_null("instructions").map(|node| node.text()).transpose()?;
    let input = root.required("input")?;
    let mut conversation =
        ResponseItemsCheck::new(root.non_null("store").is_none_or(|node| node.value != false));
    if let Some(text) = input.value.as_str() {
        conversation.task = Some(text.to_owned());
    } else {
        for item in input.items()? {
            conversation.check_item(&item)?;
        }
    }
    conversation.check_end(&input)?;
    let system = format!("{}\n{}", instructions.unwrap_or_default(), conversation.system);
    let task = conversation.task.unwrap_or_default();
    Ok(ValidRequest {
        model,
        system,
        task,
        turns: conversation.turns,
        usage: true,
        sealed,
        bytes: 0,
    })
}

fn options(root: &Node<'_, '_>) -> CheckResult<()> {
    root.non_null("max_output_tokens").map(|node| node.integer(16)).transpose()?;
    root.non_null("max_tool_calls").map(|node| node.integer(1)).transpose()?;
    root.non_null("top_logprobs").map(|node| node.integer(0)).transpose()?;
    root.non_null("truncation")
        .map(|node| node.choice(&["auto", "disabled"]).map(drop))
        .transpose()?;
    if let Some(options) = root.non_null("stream_options") {
        options.object(&["include_obfuscation"])?;
        options.non_null("include_obfuscation").map(|flag| flag.boolean()).transpose()?;
    }
    if let Some(id) = root.non_null("previous_response_id") {
        let text = id.text()?;
        return id.fail(format!("Previous response with id '{text}' not found."));
    }
    for unknown in ["conversation", "prompt", "background"] {
        if let Some(node) = root.non_null(unknown).filter(|node| node.value != false) {
            return node.fail(format!("This fake keeps no '{unknown}'."));
        }
    }
    Ok(())
}

fn reasoning(root: &Node<'_, '_>) -> CheckResult<()> {
    let Some(reasoning) = root.non_null("reasoning") else { return Ok(()) };
    reasoning.object(&["effort", "summary", "generate_summary"])?;
    reasoning.non_null("effort").map(|effort| effort.choice(&EFFORTS).map(drop)).transpose()?;
    for name in ["summary", "generate_summary"] {
        reasoning
            .non_null(name)
            .map(|node| node.choice(&["auto", "concise", "detailed"]).map(drop))
            .transpose()?;
    }
    Ok(())
}

fn text(root: &Node<'_, '_>) -> CheckResult<()> {
    let Some(text) = root.non_null("text") else { return Ok(()) };
    text.object(&["format", "verbosity"])?;
    text.non_null("verbosity")
        .map(|node| node.choice(&["low", "medium", "high"]).map(drop))
        .transpose()?;
    let Some(shape) = text.non_null("format") else { return Ok(()) };
    shape.map()?;
    match shape.required("type")?.choice(&["text", "json_object", "json_schema"])? {
        "json_schema" => {
            shape.object(&["type", "name", "description", "schema", "strict"])?;
            format(&shape)
        }
        _ => shape.object(&["type"]).map(drop),
    }
}

fn tools(root: &Node<'_, '_>) -> CheckResult<()> {
    if let Some(tools) = root.non_null("tools") {
        for tool in tools.items()? {
            tool.object(&["type", "name", "description", "parameters", "strict"])?;
            tool.required("type")?.choice(&["function"])?;
            function(&tool)?;
        }
    }
    let Some(choice) = root.non_null("tool_choice") else { return Ok(()) };
    if choice.value.is_string() {
        return choice.choice(&["none", "auto", "required"]).map(drop);
    }
    choice.map()?;
    match choice.required("type")?.choice(&["function", "allowed_tools"])? {
        "function" => {
            choice.object(&["type", "name"])?;
            choice.required("name")?.non_empty_text().map(drop)
        }
        _ => {
            choice.object(&["type", "mode", "tools"])?;
            choice.required("mode")?.choice(&["auto", "required"])?;
            choice.required("tools")?.array().map(drop)
        }
    }
}

/// Reads `include` and returns whether it requests encrypted thoughts.
fn include(root: &Node<'_, '_>) -> CheckResult<bool> {
    let Some(include) = root.non_null("include") else { return Ok(false) };
    let mut sealed = false;
    for item in include.items()? {
        sealed |= item.choice(&INCLUDABLE)? == INCLUDABLE[0];
    }
    Ok(sealed)
}
