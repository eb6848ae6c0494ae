//! The input items of a Responses request: each alone, then as a conversation.
//!
//! Ids that `stream` invents end in `t` and two digits where the turn had thoughts; such an item
//! must come back behind its reasoning item. A run of items of the model is one turn.

use std::collections::BTreeSet;

use super::super::json::{CheckResult, Node, Problem};
use super::super::sse::is_sealed;

const STATUS: [&str; 3] = ["in_progress", "completed", "incomplete"];

/// The conversation so far.
#[derive(Debug)]
pub(super) struct ResponseItemsCheck<'v> {
    pub(super) system: String,
    pub(super) task: Option<String>,
    pub(super) turns: usize,
    /// Whether the server stores its items, so that an id may refer to one.
    stored: bool,
    /// Whether the previous item was the model's.
    speaking: bool,
    /// What the ids of the latest turn begin with.
    key: Option<&'v str>,
    calls: Vec<&'v str>,
    outputs: BTreeSet<&'v str>,
    thoughts: BTreeSet<&'v str>,
    /// A reasoning item that no other item has followed yet.
    pending: Option<&'v str>,
    any: bool,
}

impl<'v> ResponseItemsCheck<'v> {
    pub(super) const fn new(stored: bool) -> Self {
        Self {
            system: String::new(),
            task: None,
            turns: 0,
            stored,
            speaking: false,
            key: None,
            calls: Vec::new(),
            outputs: BTreeSet::new(),
            thoughts: BTreeSet::new(),
            pending: None,
            any: false,
        }
    }

    pub(super) fn check_item(&mut self, item: &Node<'v, '_>) -> CheckResult<()> {
        self.any = true;
        item.map()?;
        let kind = match item.get("type") {
            None => "message",
            Some(kind) => {
                kind.choice(&["message", "reasoning", "function_call", "function_call_output"])?
            }
        };
        match kind {
            "message" => self.message(item),
            "reasoning" => self.reasoning(item),
            "function_call" => self.call(item),
            _ => self.output(item),
        }
    }

    fn message(&mut self, item: &Node<'v, '_>) -> CheckResult<()> {
        item.object(&["type", "role", "content", "id", "status", "phase"])?;
        let role = item.required("role")?.choice(&["user", "assistant", "system", "developer"])?;
        item.non_null("status").map(|status| status.choice(&STATUS).map(drop)).transpose()?;
        let text = content(item, role == "assistant")?;
        if role == "assistant" {
            if let Some(id) = item.non_null("id") {
                self.check_item_id(&id, "msg")?;
            }
            self.continue_model_turn(None);
            return Ok(());
        }
        self.end_model_turn(item)?;
        if role == "user" {
            self.task.get_or_insert(text);
        } else {
            self.system += &text;
            self.system.push('\n');
        }
        Ok(())
    }

    fn reasoning(&mut self, item: &Node<'v, '_>) -> CheckResult<()> {
        item.object(&["type", "id", "summary", "content", "encrypted_content", "status"])?;
        let id = item.required("id")?;
        let text = prefixed(&id, "rs")?;
        for part in item.required("summary")?.items()? {
            part.object(&["type", "text"])?;
            part.required("type")?.choice(&["summary_text"])?;
            part.required("text")?.text()?;
        }
        match item.non_null("encrypted_content") {
            Some(seal) if !is_sealed(seal.text()?) => {
                return seal
                    .fail(format!("The encrypted content for item {text} could not be verified."));
            }
            None if !self.stored => {
                return item.fail(format!(
                    "Item with id '{text}' not found. Items are not persisted when `store` is set \
                     to false. Try again with `store` set to true, or remove this item from your \
                     input."
                ));
            }
            Some(_) | None => {}
        }
        self.continue_model_turn(None);
        self.thoughts.insert(text);
        self.pending = Some(text);
        Ok(())
    }

    fn call(&mut self, item: &Node<'v, '_>) -> CheckResult<()> {
        item.object(&["type", "id", "call_id", "name", "arguments", "status"])?;
        item.non_null("status").map(|status| status.choice(&STATUS).map(drop)).transpose()?;
        if let Some(id) = item.non_null("id") {
            self.check_item_id(&id, "fc")?;
        }
        let call_id = item.required("call_id")?.non_empty_text()?;
        item.required("name")?.non_empty_text()?;
        item.required("arguments")?.text()?;
        if self.calls.contains(&call_id) {
            return item.fail(format!("Duplicate function call with call_id {call_id}."));
        }
        self.calls.push(call_id);
        self.continue_model_turn(call_id.len().checked_sub(2).and_then(|end| call_id.get(..end)));
        Ok(())
    }

    fn output(&mut self, item: &Node<'v, '_>) -> CheckResult<()> {
        item.object(&["type", "id", "call_id", "output", "status"])?;
        item.non_null("status").map(|status| status.choice(&STATUS).map(drop)).transpose()?;
        let call_id = item.required("call_id")?.text()?;
        let output = item.required("output")?;
        if !output.value.is_string() {
            for part in output.items()? {
                part.object(&["type", "text"])?;
                part.required("type")?.choice(&["input_text"])?;
                part.required("text")?.text()?;
            }
        }
        self.end_model_turn(item)?;
        if !self.calls.contains(&call_id) {
            let why =
                format!("No tool call found for function call output with call_id {call_id}.");
            let mut complaint = item.complaint(Problem::ApiMessage(why));
            // The API blames the input as a whole.
            complaint.path.truncate(1);
            return Err(complaint);
        }
        if !self.outputs.insert(call_id) {
            return item.fail(format!("Duplicate function call output for call_id {call_id}."));
        }
        Ok(())
    }

    /// Checks the id of an item of the model: its reasoning item must come before it.
    fn check_item_id(&self, id: &Node<'v, '_>, prefix: &str) -> CheckResult<()> {
        let text = prefixed(id, prefix)?;
        let bare = &text[prefix.len() + 1..];
        let Some((key, _)) = bare.split_once('t').filter(|(key, _)| key.len() == 16) else {
            return Ok(());
        };
        let needed = format!("rs_{key}");
        if self.thoughts.contains(needed.as_str()) {
            return Ok(());
        }
        id.fail(format!(
            "Item '{text}' was provided without its required 'reasoning' item: '{needed}'."
        ))
    }

    /// Counts an item of the model: it starts a new turn unless it continues the previous one.
    fn continue_model_turn(&mut self, key: Option<&'v str>) {
        let goes_on = self.speaking || (key.is_some() && key == self.key);
        self.turns += usize::from(!goes_on);
        self.speaking = true;
        self.pending = None;
        if key.is_some() {
            self.key = key;
        }
    }

    /// Ends the turn of the model, whose last item must not be a reasoning item.
    fn end_model_turn(&mut self, item: &Node<'_, '_>) -> CheckResult<()> {
        self.speaking = false;
        self.check_no_pending_thought(item)
    }

    fn check_no_pending_thought(&self, node: &Node<'_, '_>) -> CheckResult<()> {
        let Some(id) = self.pending else { return Ok(()) };
        node.fail(format!(
            "Item '{id}' of type 'reasoning' was provided without its required following item."
        ))
    }

    pub(super) fn check_end(&self, input: &Node<'_, '_>) -> CheckResult<()> {
        if !self.any && input.value.as_str().is_none_or(str::is_empty) {
            return input.fail("Missing required parameter: 'input'.");
        }
        self.check_no_pending_thought(input)?;
        if let Some(open) = self.calls.iter().find(|call| !self.outputs.contains(**call)) {
            return input.fail(format!("No tool output found for function call {open}."));
        }
        Ok(())
    }
}

/// Reads an id, which must begin with the prefix of its kind.
fn prefixed<'v>(id: &Node<'v, '_>, prefix: &str) -> CheckResult<&'v str> {
    let text = id.text()?;
    if text.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('_')) {
        return Ok(text);
    }
    id.fail(format!("Invalid 'id': '{text}'. Expected an ID that begins with '{prefix}'."))
}

/// Reads the content of a message: a text, or parts that fit the role.
fn content(item: &Node<'_, '_>, model: bool) -> CheckResult<String> {
    let content = item.required("content")?;
    if let Some(text) = content.value.as_str() {
        return Ok(text.to_owned());
    }
    let kinds: &[&str] =
        if model { &["output_text", "refusal"] } else { &["input_text", "input_image"] };
    let mut whole = String::new();
    for part in content.items()? {
        part.map()?;
        match part.required("type")?.choice(kinds)? {
            "refusal" => {
                part.object(&["type", "refusal"])?;
                part.required("refusal")?.text()?;
            }
            "input_image" => {
                part.object(&["type", "image_url", "file_id", "detail"])?;
            }
            _ => {
                part.object(&["type", "text", "annotations", "logprobs"])?;
                whole += part.required("text")?.text()?;
                whole.push('\n');
            }
        }
    }
    Ok(whole)
}
