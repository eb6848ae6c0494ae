//! Judges the fields of a Responses request; its input items are judged in `items`.

use serde_json::Value;

use super::super::api::Exchange;
use super::super::json::{Checked, Node};
use super::super::openai::{EFFORTS, common, format, function, streams};
use super::items::Talk;

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
pub(super) fn read(value: &Value) -> Checked<Exchange> {
    let root = Node::root(value);
    root.object(&FIELDS)?;
    let model = root.need("model")?.filled()?.to_owned();
    streams(&root)?;
    common(&root)?;
    options(&root)?;
    reasoning(&root)?;
    text(&root)?;
    tools(&root)?;
    let sealed = include(&root)?;
    let instructions = root.some("instructions").map(|node| node.text()).transpose()?;
    let input = root.need("input")?;
    let mut talk = Talk::new(root.some("store").is_none_or(|node| node.value != false));
    if let Some(text) = input.value.as_str() {
        talk.task = Some(text.to_owned());
    } else {
        for item in input.items()? {
            talk.hear(&item)?;
        }
    }
    talk.end(&input)?;
    let system = format!("{}\n{}", instructions.unwrap_or_default(), talk.system);
    let task = talk.task.unwrap_or_default();
    Ok(Exchange { model, system, task, turns: talk.turns, usage: true, sealed, bytes: 0 })
}

fn options(root: &Node<'_, '_>) -> Checked<()> {
    root.some("max_output_tokens").map(|node| node.integer(16)).transpose()?;
    root.some("max_tool_calls").map(|node| node.integer(1)).transpose()?;
    root.some("top_logprobs").map(|node| node.integer(0)).transpose()?;
    root.some("truncation").map(|node| node.choice(&["auto", "disabled"]).map(drop)).transpose()?;
    if let Some(options) = root.some("stream_options") {
        options.object(&["include_obfuscation"])?;
        options.some("include_obfuscation").map(|flag| flag.boolean()).transpose()?;
    }
    if let Some(id) = root.some("previous_response_id") {
        let text = id.text()?;
        return id.say(format!("Previous response with id '{text}' not found."));
    }
    for unknown in ["conversation", "prompt", "background"] {
        if let Some(node) = root.some(unknown).filter(|node| node.value != false) {
            return node.say(format!("This fake keeps no '{unknown}'."));
        }
    }
    Ok(())
}

fn reasoning(root: &Node<'_, '_>) -> Checked<()> {
    let Some(reasoning) = root.some("reasoning") else { return Ok(()) };
    reasoning.object(&["effort", "summary", "generate_summary"])?;
    reasoning.some("effort").map(|effort| effort.choice(&EFFORTS).map(drop)).transpose()?;
    for name in ["summary", "generate_summary"] {
        reasoning
            .some(name)
            .map(|node| node.choice(&["auto", "concise", "detailed"]).map(drop))
            .transpose()?;
    }
    Ok(())
}

fn text(root: &Node<'_, '_>) -> Checked<()> {
    let Some(text) = root.some("text") else { return Ok(()) };
    text.object(&["format", "verbosity"])?;
    text.some("verbosity")
        .map(|node| node.choice(&["low", "medium", "high"]).map(drop))
        .transpose()?;
    let Some(shape) = text.some("format") else { return Ok(()) };
    shape.map()?;
    match shape.need("type")?.choice(&["text", "json_object", "json_schema"])? {
        "json_schema" => {
            shape.object(&["type", "name", "description", "schema", "strict"])?;
            format(&shape)
        }
        _ => shape.object(&["type"]).map(drop),
    }
}

fn tools(root: &Node<'_, '_>) -> Checked<()> {
    if let Some(tools) = root.some("tools") {
        for tool in tools.items()? {
            tool.object(&["type", "name", "description", "parameters", "strict"])?;
            tool.need("type")?.choice(&["function"])?;
            function(&tool)?;
        }
    }
    let Some(choice) = root.some("tool_choice") else { return Ok(()) };
    if choice.value.is_string() {
        return choice.choice(&["none", "auto", "required"]).map(drop);
    }
    choice.map()?;
    match choice.need("type")?.choice(&["function", "allowed_tools"])? {
        "function" => {
            choice.object(&["type", "name"])?;
            choice.need("name")?.filled().map(drop)
        }
        _ => {
            choice.object(&["type", "mode", "tools"])?;
            choice.need("mode")?.choice(&["auto", "required"])?;
            choice.need("tools")?.array().map(drop)
        }
    }
}

/// Reads what else is asked for, and says whether sealed thoughts are.
fn include(root: &Node<'_, '_>) -> Checked<bool> {
    let Some(include) = root.some("include") else { return Ok(false) };
    let mut sealed = false;
    for item in include.items()? {
        sealed |= item.choice(&INCLUDABLE)? == INCLUDABLE[0];
    }
    Ok(sealed)
}
