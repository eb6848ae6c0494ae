//! The content blocks of a message, one by one and as a message.

use std::collections::BTreeSet;

use super::super::json::{CheckResult, Node, is_name};
use super::super::sse::{is_sealed, sign};

/// A valid content block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Block<'v> {
    Text(&'v str),
    Image,
    Call(&'v str),
    Result(&'v str),
    Thinking,
    Redacted,
}

impl<'v> Block<'v> {
    /// Returns the id of the call that this block answers.
    pub(super) const fn result_of(&self) -> Option<&'v str> {
        match *self {
            Self::Result(id) => Some(id),
            Self::Text(_) | Self::Image | Self::Call(_) | Self::Thinking | Self::Redacted => None,
        }
    }

    const fn word(self) -> &'static str {
        match self {
            Self::Text(_) => "text",
            Self::Image => "image",
            Self::Call(_) => "tool_use",
            Self::Result(_) => "tool_result",
            Self::Thinking => "thinking",
            Self::Redacted => "redacted_thinking",
        }
    }
}

/// Counts the cache marker of a block, if it has one.
pub(super) fn cache_control(block: &Node<'_, '_>) -> CheckResult<usize> {
    let Some(marker) = block.non_null("cache_control") else { return Ok(0) };
    marker.object(&["type", "ttl"])?;
    marker.required("type")?.choice(&["ephemeral"])?;
    marker.get("ttl").map(|ttl| ttl.choice(&["5m", "1h"]).map(drop)).transpose()?;
    Ok(1)
}

/// Reads the content of a message.
pub(super) fn content<'v>(
    message: &Node<'v, '_>,
    role: &str,
    markers: &mut usize,
) -> CheckResult<Vec<Block<'v>>> {
    let content = message.required("content")?;
    if let Some(text) = content.value.as_str() {
        return if text.is_empty() {
            message.fail(format!("{role} messages must have non-empty content"))
        } else {
            Ok(vec![Block::Text(text)])
        };
    }
    if content.array()?.is_empty() {
        return message.fail(format!("{role} messages must have non-empty content"));
    }
    content.items()?.map(|node| block(&node, role, markers)).collect()
}

fn block<'v>(node: &Node<'v, '_>, role: &str, markers: &mut usize) -> CheckResult<Block<'v>> {
    node.map()?;
    let kind = node.required("type")?.text()?;
    *markers += if kind.ends_with("thinking") { 0 } else { cache_control(node)? };
    match (role, kind) {
        (_, "text") => text_block(node),
        ("user", "image") => image(node),
        ("user", "tool_result") => tool_result(node, markers),
        ("assistant", "tool_use") => tool_use(node),
        ("assistant", "thinking") => thinking(node),
        ("assistant", "redacted_thinking") => redacted(node),
        _ => node.fail(format!(
            "Input tag '{kind}' found using 'type' does not match any of the expected tags"
        )),
    }
}

fn text_block<'v>(node: &Node<'v, '_>) -> CheckResult<Block<'v>> {
    node.object(&["type", "text", "cache_control", "citations"])?;
    let text = node.required("text")?.text()?;
    if text.is_empty() {
        return node.fail("text content blocks must be non-empty");
    }
    if text.trim().is_empty() {
        return node.fail("text content blocks must contain non-whitespace text");
    }
    Ok(Block::Text(text))
}

fn image<'v>(node: &Node<'v, '_>) -> CheckResult<Block<'v>> {
    node.object(&["type", "source", "cache_control"])?;
    node.required("source")?.map()?;
    Ok(Block::Image)
}

fn tool_use<'v>(node: &Node<'v, '_>) -> CheckResult<Block<'v>> {
    node.object(&["type", "id", "name", "input", "cache_control"])?;
    let id = node.required("id")?;
    if !is_name(id.text()?, usize::MAX, "_-") {
        return id.fail("String should match pattern '^[a-zA-Z0-9_-]+$'");
    }
    let name = node.required("name")?;
    if !is_name(name.text()?, 200, "_-") {
        return name.fail("String should match pattern '^[a-zA-Z0-9_-]{1,200}$'");
    }
    node.required("input")?.map()?;
    Ok(Block::Call(id.text()?))
}

fn tool_result<'v>(node: &Node<'v, '_>, markers: &mut usize) -> CheckResult<Block<'v>> {
    node.object(&["type", "tool_use_id", "content", "is_error", "cache_control"])?;
    node.get("is_error").map(|flag| flag.boolean()).transpose()?;
    if let Some(content) = node.get("content").filter(|content| !content.value.is_string()) {
        for item in content.items()? {
            item.map()?;
            *markers += cache_control(&item)?;
            match item.required("type")?.choice(&["text", "image"])? {
                "text" => text_block(&item)?,
                _ => image(&item)?,
            };
        }
    }
    let id = node.required("tool_use_id")?;
    if !is_name(id.text()?, usize::MAX, "_-") {
        return id.fail("String should match pattern '^[a-zA-Z0-9_-]+$'");
    }
    Ok(Block::Result(id.text()?))
}

fn thinking<'v>(node: &Node<'v, '_>) -> CheckResult<Block<'v>> {
    node.object(&["type", "thinking", "signature"])?;
    let thought = node.required("thinking")?.text()?;
    if node.required("signature")?.text()? != sign(thought) {
        return node.fail("Invalid `signature` in `thinking` block");
    }
    Ok(Block::Thinking)
}

fn redacted<'v>(node: &Node<'v, '_>) -> CheckResult<Block<'v>> {
    node.object(&["type", "data"])?;
    if !is_sealed(node.required("data")?.text()?) {
        return node.fail("Invalid `data` in `redacted_thinking` block");
    }
    Ok(Block::Redacted)
}

/// Returns the text of a message.
pub(super) fn text(content: &[Block<'_>]) -> String {
    let texts = content.iter().filter_map(|block| match block {
        Block::Text(text) => Some(*text),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// Returns whether a message contains tool calls or results.
pub(super) fn has_tools(content: &[Block<'_>]) -> bool {
    content.iter().any(|block| matches!(block, Block::Call(_) | Block::Result(_)))
}

/// Returns the ids of the calls in a message, which must be unique.
pub(super) fn calls<'v>(
    message: &Node<'_, '_>,
    content: &[Block<'v>],
) -> CheckResult<Vec<&'v str>> {
    let mut seen = BTreeSet::new();
    let mut ids = Vec::new();
    for block in content {
        let Block::Call(id) = *block else { continue };
        if !seen.insert(id) {
            return message.fail("`tool_use` ids must be unique");
        }
        ids.push(id);
    }
    Ok(ids)
}

/// Checks where the thoughts of a message are; `required` in the last one of a tool loop.
pub(super) fn thoughts(
    message: &Node<'_, '_>,
    content: &[Block<'_>],
    required: bool,
) -> CheckResult<()> {
    let is_thought = |block: &Block<'_>| matches!(block, Block::Thinking | Block::Redacted);
    if content.last().is_some_and(is_thought) {
        return message.fail("The final block in an assistant message cannot be `thinking`.");
    }
    let Some(first) = content.first().filter(|first| !is_thought(first)) else { return Ok(()) };
    if required && has_tools(content) {
        return message.fail(format!(
            "Expected `thinking` or `redacted_thinking`, but found `{}`. When `thinking` is \
             enabled, a final `assistant` message must start with a thinking block.",
            first.word()
        ));
    }
    Ok(())
}
