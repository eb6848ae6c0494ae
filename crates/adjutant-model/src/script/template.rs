//! Text with placeholders that are filled from the conversation.
//!
//! A scripted answer can quote what a tool really returned, so a scripted run shows the real state of the
//! files. `placeholder` parses the syntax.
//!
//! Start at [`Template::render`]. Invariant: a placeholder that cannot be filled is an error.

use std::borrow::Cow;

use adjutant_core::Message;

use super::pattern::ScriptPattern;
use crate::model::TurnRequest;

/// A text split into fixed parts and placeholders.
#[derive(Debug, Default)]
pub(crate) struct Template {
    pub(crate) parts: Vec<TemplatePart>,
}

/// A piece of a scripted text: fixed text or a `{{…}}` placeholder.
#[derive(Debug)]
pub(crate) enum TemplatePart {
    Fixed(String),
    Hole(Placeholder),
}

/// A parsed `{{…}}`: where its text comes from, and the filters applied to it.
#[derive(Debug)]
pub(crate) struct Placeholder {
    pub(crate) source: PlaceholderSource,
    pub(crate) filters: Vec<PlaceholderFilter>,
}

/// The source of a placeholder's text.
#[derive(Debug)]
pub(crate) enum PlaceholderSource {
    /// The first user message.
    Prompt,
    /// The last message of any role.
    Last,
    /// The latest tool result.
    LastResult,
    /// The tool result with this number, from 1.
    NthResult(usize),
    /// The latest result of the call with this id.
    ResultOf(String),
    Agent,
    Label,
    Turn,
    Quoted(String),
}

/// A transformation of a placeholder's text.
#[derive(Debug)]
pub(crate) enum PlaceholderFilter {
    Lines,
    Bytes,
    FirstLine,
    LastLine,
    Head(usize),
    Tail(usize),
    Count(ScriptPattern),
    Match(ScriptPattern),
    Matches(ScriptPattern),
    Grep(ScriptPattern),
    Or(String),
}

impl Template {
    /// Fills the placeholders from `request`; the error names what is missing in the conversation.
    pub(crate) fn render(&self, request: &TurnRequest<'_>) -> Result<String, String> {
        let mut text = String::new();
        for part in &self.parts {
            match part {
                TemplatePart::Fixed(fixed) => text.push_str(fixed),
                TemplatePart::Hole(hole) => text.push_str(&hole.fill(request)?),
            }
        }
        Ok(text)
    }
}

impl Placeholder {
    fn fill<'a>(&'a self, request: &TurnRequest<'a>) -> Result<Cow<'a, str>, String> {
        let mut text = self.source.find(request)?;
        for filter in &self.filters {
            text = filter.apply(text);
        }
        Ok(text)
    }
}

impl PlaceholderSource {
    fn find<'a>(&'a self, request: &TurnRequest<'a>) -> Result<Cow<'a, str>, String> {
        let messages = request.messages;
        let borrowed = match self {
            Self::Turn => return Ok(Cow::Owned(request.turn.to_string())),
            Self::Agent => Some(request.agent),
            Self::Label => Some(request.label),
            Self::Quoted(text) => Some(text.as_str()),
            Self::Last => messages.last().map(Message::text),
            // The texts of the project may come before it.
            Self::Prompt => messages.iter().map_while(as_prompt).last(),
            Self::LastResult => messages.iter().rev().filter_map(as_result).next().map(second),
            Self::NthResult(number) => {
                messages.iter().filter_map(as_result).nth(number.saturating_sub(1)).map(second)
            }
            Self::ResultOf(id) => {
                messages.iter().rev().filter_map(as_result).find(|(of, _)| of == id).map(second)
            }
        };
        borrowed.map(Cow::Borrowed).ok_or_else(|| self.missing_value_text(messages))
    }

    fn missing_value_text(&self, messages: &[Message]) -> String {
        let results = messages.iter().filter_map(as_result).count();
        match self {
            Self::NthResult(number) => {
                let noun = if results == 1 { "result" } else { "results" };
                format!(
                    "uses `{{{{result {number}}}}}`, but the conversation has only {results} tool {noun}"
                )
            }
            Self::ResultOf(id) => format!(
                "uses `{{{{result {id}}}}}`, but the conversation has no result of a tool call `{id}` yet"
            ),
            Self::LastResult => {
                "uses `{{result}}`, but the conversation has no tool result yet".to_owned()
            }
            Self::Prompt => {
                "uses `{{prompt}}`, but the conversation has no user message".to_owned()
            }
            Self::Last | Self::Agent | Self::Label | Self::Turn | Self::Quoted(_) => {
                "uses `{{last}}`, but the conversation has no messages".to_owned()
            }
        }
    }
}

impl PlaceholderFilter {
    fn apply<'a>(&self, text: Cow<'a, str>) -> Cow<'a, str> {
        match self {
            Self::Lines => Cow::Owned(text.lines().count().to_string()),
            Self::Bytes => Cow::Owned(text.len().to_string()),
            Self::FirstLine => map_text(text, |text| text.lines().next()),
            Self::LastLine => map_text(text, |text| text.lines().next_back()),
            Self::Head(count) => Cow::Owned(join_lines(text.lines().take(*count))),
            Self::Tail(count) => {
                let skipped = text.lines().count().saturating_sub(*count);
                Cow::Owned(join_lines(text.lines().skip(skipped)))
            }
            Self::Count(pattern) => Cow::Owned(pattern.count(&text).to_string()),
            Self::Match(pattern) => {
                Cow::Owned(pattern.matches(&text).next().unwrap_or_default().into_owned())
            }
            Self::Matches(pattern) => {
                let found: Vec<_> = pattern.matches(&text).collect();
                Cow::Owned(found.join(", "))
            }
            Self::Grep(pattern) => {
                Cow::Owned(join_lines(text.lines().filter(|line| pattern.is_match(line))))
            }
            Self::Or(other) if text.is_empty() => Cow::Owned(other.clone()),
            Self::Or(_) => text,
        }
    }
}

/// Takes a part of a text without copying a borrowed one.
fn map_text<'a>(text: Cow<'a, str>, part: impl Fn(&str) -> Option<&str>) -> Cow<'a, str> {
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(part(text).unwrap_or_default()),
        Cow::Owned(text) => Cow::Owned(part(&text).unwrap_or_default().to_owned()),
    }
}

fn join_lines<'a>(lines: impl Iterator<Item = &'a str>) -> String {
    let mut text = String::new();
    for (index, line) in lines.enumerate() {
        if index > 0 {
            text.push('\n');
        }
        text.push_str(line);
    }
    text
}

fn as_prompt(message: &Message) -> Option<&str> {
    match message {
        Message::User { content } => Some(content),
        Message::Assistant { .. } | Message::Tool { .. } => None,
    }
}

fn as_result(message: &Message) -> Option<(&str, &str)> {
    match message {
        Message::Tool { tool_call_id, content, .. } => Some((tool_call_id, content)),
        Message::User { .. } | Message::Assistant { .. } => None,
    }
}

fn second<'a>((_, text): (&'a str, &'a str)) -> &'a str {
    text
}
