//! The contents of a Gemini request: each part alone, then as a conversation.

use super::super::json::{CheckResult, Node, is_name};
use super::super::sse::sign;

const PART: [&str; 6] =
    ["text", "thought", "thoughtSignature", "functionCall", "functionResponse", "inlineData"];

/// What the documentation offers for calls that no Gemini model made.
const UNCHECKED: &str = "skip_thought_signature_validator";

/// What a content was found to hold.
#[derive(Debug, Default)]
struct Content<'v> {
    text: String,
    calls: Vec<Function<'v>>,
    results: Vec<Function<'v>>,
    /// Whether the first call is signed.
    signed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Function<'v> {
    id: Option<&'v str>,
    name: &'v str,
}

/// Says whether a function may have this name.
pub(super) fn is_function_name(name: &str) -> bool {
    let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    starts && is_name(name, 64, "_.:-")
}

/// Judges the conversation; returns the first user message and the number of turns.
pub(super) fn read(contents: &Node<'_, '_>, signs: bool) -> CheckResult<(String, usize)> {
    if contents.array()?.is_empty() {
        return contents.fail("* GenerateContentRequest.contents: contents is not specified\n");
    }
    let mut task = None;
    let mut turns = 0;
    let mut owed: Vec<Function<'_>> = Vec::new();
    // Calls whose signature is missing; forgiven when the user starts another turn.
    let mut unsigned: Option<String> = None;
    let mut model_spoke = false;
    for (index, node) in contents.items()?.enumerate() {
        node.object(&["role", "parts"])?;
        let role = match node.get("role") {
            None => "user",
            Some(role) if matches!(role.text()?, "user" | "model") => role.text()?,
            Some(_) => return node.fail("Please use a valid role: user, model."),
        };
        let content = parts(&node, role)?;
        check_results_match_calls(contents, &owed, &content)?;
        owed.clear();
        if role == "model" {
            turns += 1;
            if !content.calls.is_empty() && model_spoke {
                return contents.fail(
                    "Please ensure that function call turn comes immediately after a user turn or \
                     after a function response turn.",
                );
            }
            if let Some(first) = content.calls.first().filter(|_| signs && !content.signed) {
                unsigned.get_or_insert(missing_signature_message(first.name, index));
            }
            owed = content.calls;
        } else if content.results.is_empty() {
            unsigned = None;
            task.get_or_insert(content.text);
        }
        model_spoke = role == "model";
    }
    if model_spoke {
        return contents.fail(
            "Please ensure that multiturn requests end with a user role or a function response.",
        );
    }
    unsigned.map_or_else(|| Ok((task.unwrap_or_default(), turns)), |text| contents.fail(text))
}

fn missing_signature_message(name: &str, index: usize) -> String {
    format!(
        "Function call is missing a thought_signature in functionCall parts. This is required for \
         tools to work correctly, and missing thought_signature may lead to degraded model \
         performance. Additional data, function call `default_api:{name}` , position {}.",
        index + 1
    )
}

/// Checks that a content answers every call of the one before it, and nothing else.
fn check_results_match_calls(
    contents: &Node<'_, '_>,
    owed: &[Function<'_>],
    next: &Content<'_>,
) -> CheckResult<()> {
    if owed.is_empty() && !next.results.is_empty() {
        return contents.fail(
            "Please ensure that function response turn comes immediately after a function call \
             turn.",
        );
    }
    if owed.len() != next.results.len() {
        return contents.fail(
            "Please ensure that the number of function response parts is equal to the number of \
             function call parts of the function call turn.",
        );
    }
    let mut open = owed.to_vec();
    for result in &next.results {
        let Some(at) = open.iter().position(|call| call == result) else {
            return contents.fail(format!(
                "Function response `{}` does not match a function call of the turn before.",
                result.name
            ));
        };
        open.remove(at);
    }
    Ok(())
}

fn parts<'v>(node: &Node<'v, '_>, role: &str) -> CheckResult<Content<'v>> {
    let parts = node.required("parts")?;
    if parts.array()?.is_empty() {
        return parts
            .fail("* GenerateContentRequest.contents.parts: contents.parts must not be empty.\n");
    }
    let mut content = Content::default();
    for part in parts.items()? {
        part.object(&PART)?;
        let held = ["text", "functionCall", "functionResponse", "inlineData"];
        if held.iter().filter(|name| part.get(name).is_some()).count() != 1 {
            return part.fail(
                "* GenerateContentRequest.contents.parts.data: required oneof field 'data' must \
                 have one initialized field\n",
            );
        }
        part.get("thought").map(|flag| flag.boolean()).transpose()?;
        let signature = part.get("thoughtSignature").map(|node| node.text()).transpose()?;
        let signs = held_part(&part, role, &mut content)?;
        if let Some(signature) = signature
            && signature != sign(signs)
            && signature != UNCHECKED
        {
            return part.fail("Corrupted thought signature.");
        }
        if content.calls.len() == 1 && part.get("functionCall").is_some() {
            content.signed = signature.is_some();
        }
    }
    Ok(content)
}

/// Reads what a part holds; returns what its signature would have to sign.
fn held_part<'v>(
    part: &Node<'v, '_>,
    role: &str,
    content: &mut Content<'v>,
) -> CheckResult<&'v str> {
    if let Some(text) = part.get("text") {
        let said = text.text()?;
        if said.is_empty() && part.get("thoughtSignature").is_none() {
            return part.fail(
                "* GenerateContentRequest.contents.parts.data: required oneof field 'data' must \
                 have one initialized field\n",
            );
        }
        content.text += said;
        return Ok("");
    }
    if let Some(call) = part.get("functionCall") {
        call.object(&["id", "name", "args"])?;
        call.get("args").map(|args| args.map().map(drop)).transpose()?;
        if role != "model" {
            return call.fail("Function calls are only valid in contents with role model.");
        }
        let function = function(&call)?;
        content.calls.push(function);
        return Ok(function.name);
    }
    if let Some(result) = part.get("functionResponse") {
        result.object(&["id", "name", "response", "willContinue", "scheduling", "parts"])?;
        result.required("response")?.map()?;
        if role != "user" {
            return result.fail("Function responses are only valid in contents with role user.");
        }
        content.results.push(function(&result)?);
        return Ok("");
    }
    let data = part.required("inlineData")?;
    data.object(&["mimeType", "data"])?;
    data.required("mimeType")?.non_empty_text()?;
    data.required("data")?.non_empty_text().map(|_| "")
}

fn function<'v>(node: &Node<'v, '_>) -> CheckResult<Function<'v>> {
    let id = node.get("id").map(|id| id.non_empty_text()).transpose()?;
    let name = node.required("name")?;
    if name.text()?.is_empty() {
        return name.fail("Name cannot be empty.");
    }
    Ok(Function { id, name: name.text()? })
}
