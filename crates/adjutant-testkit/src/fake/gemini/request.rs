//! Judges the fields of a Gemini request; its contents are judged in `contents`.

use serde_json::Value;

use super::super::api::ValidRequest;
use super::super::json::{CheckResult, Node};
use super::contents;

const FIELDS: [&str; 7] = [
    "contents",
    "systemInstruction",
    "tools",
    "toolConfig",
    "safetySettings",
    "generationConfig",
    "cachedContent",
];

const CONFIG: [&str; 19] = [
    "stopSequences",
    "responseMimeType",
    "responseSchema",
    "responseJsonSchema",
    "responseModalities",
    "candidateCount",
    "maxOutputTokens",
    "temperature",
    "topP",
    "topK",
    "seed",
    "presencePenalty",
    "frequencyPenalty",
    "responseLogprobs",
    "logprobs",
    "enableEnhancedCivicAnswers",
    "speechConfig",
    "thinkingConfig",
    "mediaResolution",
];

/// The keywords of the subset of OpenAPI that `parameters` and `responseSchema` are written in.
const SCHEMA: [&str; 22] = [
    "type",
    "format",
    "title",
    "description",
    "nullable",
    "enum",
    "maxItems",
    "minItems",
    "properties",
    "required",
    "minProperties",
    "maxProperties",
    "minLength",
    "maxLength",
    "pattern",
    "example",
    "anyOf",
    "propertyOrdering",
    "default",
    "items",
    "minimum",
    "maximum",
];

const TYPES: [&str; 7] = ["STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT", "NULL"];

/// Reads a request for a model.
pub(super) fn read(value: &Value, model: &str) -> CheckResult<ValidRequest> {
    let root = Node::root(value);
    root.object(&FIELDS)?;
    config(&root)?;
    tools(&root)?;
    tool_config(&root)?;
    if let Some(settings) = root.get("safetySettings") {
        for setting in settings.items()? {
            setting.object(&["category", "threshold"])?;
        }
    }
    let mut system = String::new();
    if let Some(instruction) = root.get("systemInstruction") {
        instruction.object(&["parts", "role"])?;
        let parts = instruction.required("parts")?;
        for part in parts.items()? {
            part.object(&["text"])?;
            system += part.required("text")?.text()?;
            system.push('\n');
        }
        if parts.array()?.is_empty() {
            return parts
                .fail("* GenerateContentRequest.system_instruction.parts: must not be empty.\n");
        }
    }
    // The families 1 and 2 do not ask for their signatures back.
    let signs = !model.starts_with("gemini-1") && !model.starts_with("gemini-2");
    let (task, turns) = contents::read(&root.required("contents")?, signs)?;
    let model = model.to_owned();
    Ok(ValidRequest { model, system, task, turns, usage: true, sealed: signs, bytes: 0 })
}

fn config(root: &Node<'_, '_>) -> CheckResult<()> {
    let Some(config) = root.get("generationConfig") else { return Ok(()) };
    config.object(&CONFIG)?;
    config.get("maxOutputTokens").map(|node| node.integer(1)).transpose()?;
    config.get("candidateCount").map(|node| node.integer(1)).transpose()?;
    config.get("temperature").map(|node| node.number(0.0, 2.0)).transpose()?;
    config.get("topP").map(|node| node.number(0.0, 1.0)).transpose()?;
    config.get("topK").map(|node| node.integer(1)).transpose()?;
    if let Some(sequences) = config.get("stopSequences") {
        for sequence in sequences.items()? {
            sequence.non_empty_text()?;
        }
    }
    thinking(&config)?;
    let mime = config.get("responseMimeType").map(|mime| mime.text()).transpose()?;
    for name in ["responseSchema", "responseJsonSchema"] {
        let Some(shape) = config.get(name) else { continue };
        shape.map()?;
        if mime != Some("application/json") {
            return shape.fail(format!(
                "{name} is only supported with a responseMimeType of application/json."
            ));
        }
        if name == "responseSchema" {
            schema(&shape)?;
        }
    }
    Ok(())
}

fn thinking(config: &Node<'_, '_>) -> CheckResult<()> {
    let Some(thinking) = config.get("thinkingConfig") else { return Ok(()) };
    thinking.object(&["includeThoughts", "thinkingBudget", "thinkingLevel"])?;
    thinking.get("includeThoughts").map(|flag| flag.boolean()).transpose()?;
    if let Some(budget) = thinking.get("thinkingBudget") {
        budget.number(-1.0, 65_536.0)?;
        if thinking.get("thinkingLevel").is_some() {
            return thinking
                .fail("You can only set only one of thinking budget and thinking level.");
        }
    }
    if let Some(level) = thinking.get("thinkingLevel") {
        let levels = ["minimal", "low", "medium", "high", "MINIMAL", "LOW", "MEDIUM", "HIGH"];
        level.choice(&levels)?;
    }
    Ok(())
}

fn tools(root: &Node<'_, '_>) -> CheckResult<()> {
    let Some(tools) = root.get("tools") else { return Ok(()) };
    for tool in tools.items()? {
        tool.object(&["functionDeclarations"])?;
        for declaration in tool.required("functionDeclarations")?.items()? {
            declare(&declaration)?;
        }
    }
    Ok(())
}

fn declare(declaration: &Node<'_, '_>) -> CheckResult<()> {
    declaration.object(&[
        "name",
        "description",
        "behavior",
        "parameters",
        "parametersJsonSchema",
        "response",
        "responseJsonSchema",
    ])?;
    let name = declaration.required("name")?;
    if !contents::is_function_name(name.text()?) {
        return name.fail(
            "Invalid function name. Must start with a letter or an underscore. Must be \
             alphanumeric (a-z, A-Z, 0-9), underscores (_), dots (.), colons (:), or dashes (-), \
             with a maximum length of 64.",
        );
    }
    declaration.required("description")?.text()?;
    if let Some(parameters) = declaration.get("parameters") {
        if declaration.get("parametersJsonSchema").is_some() {
            return declaration.fail("Only one of parameters and parametersJsonSchema may be set.");
        }
        schema(&parameters)?;
    }
    declaration.get("parametersJsonSchema").map(|node| node.map().map(drop)).transpose()?;
    Ok(())
}

/// Checks a schema in the subset of OpenAPI: a JSON schema is not one.
fn schema(node: &Node<'_, '_>) -> CheckResult<()> {
    node.object(&SCHEMA)?;
    let kind = match node.get("type") {
        Some(kind) => {
            let upper = kind.text()?.to_ascii_uppercase();
            if !TYPES.contains(&upper.as_str()) {
                kind.choice(&TYPES)?;
            }
            upper
        }
        None if node.get("anyOf").is_some() => String::new(),
        None => return node.required("type").map(drop),
    };
    node.get("items").map(|items| schema(&items)).transpose()?;
    if let Some(choices) = node.get("anyOf") {
        for choice in choices.items()? {
            schema(&choice)?;
        }
    }
    if let Some(properties) = node.get("properties") {
        let names = properties.map()?;
        if kind == "OBJECT" && names.is_empty() {
            return properties.fail("properties: should be non-empty for OBJECT type");
        }
        for name in names.keys() {
            schema(&properties.required(name)?)?;
        }
    }
    if kind == "ARRAY" {
        node.required("items")?;
    }
    Ok(())
}

fn tool_config(root: &Node<'_, '_>) -> CheckResult<()> {
    let Some(config) = root.get("toolConfig") else { return Ok(()) };
    config.object(&["functionCallingConfig"])?;
    let Some(calling) = config.get("functionCallingConfig") else { return Ok(()) };
    calling.object(&["mode", "allowedFunctionNames"])?;
    let modes = ["MODE_UNSPECIFIED", "AUTO", "ANY", "NONE", "VALIDATED"];
    let mode = calling.get("mode").map(|mode| mode.choice(&modes)).transpose()?;
    let Some(names) = calling.get("allowedFunctionNames") else { return Ok(()) };
    if !matches!(mode, Some("ANY" | "VALIDATED")) {
        return names.fail("Allowed function names should only be set when the mode is ANY.");
    }
    names.array().map(drop)
}
