//! Parses templates with placeholders: `{{source | filter | filter}}`.
//!
//! Runs when a script is loaded, so that a misspelt placeholder is found before the first turn. `template`
//! fills the placeholders.
//!
//! Start at [`parse`].

use std::ops::Range;

use adjutant_formats::fields::did_you_mean;

use super::error::ScriptFault;
use super::pattern::ScriptPattern;
use super::template::{Placeholder, PlaceholderFilter, PlaceholderSource, Template, TemplatePart};

const OPEN: &str = "{{";
const CLOSE: &str = "}}";
const SOURCES: [&str; 6] = ["prompt", "last", "result", "agent", "label", "turn"];
const FILTERS: [&str; 11] = [
    "lines",
    "bytes",
    "first_line",
    "last_line",
    "head",
    "tail",
    "count",
    "match",
    "matches",
    "grep",
    "or",
];

/// Parses `text`, the value at this byte range of `document`, as a template.
pub(crate) fn parse(
    text: &str,
    range: Range<usize>,
    document: &str,
) -> Result<Template, ScriptFault> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find(OPEN) {
        push_fixed(&mut parts, &rest[..start]);
        let mut reader = PlaceholderReader { rest: &rest[start + OPEN.len()..] };
        match reader.read_placeholder() {
            Ok(hole) => parts.push(TemplatePart::Hole(hole)),
            Err(message) => {
                let opened_at = text.len() - rest.len() + start;
                return Err(ScriptFault::new(place(text, opened_at, range, document), message));
            }
        }
        rest = reader.rest;
    }
    push_fixed(&mut parts, rest);
    Ok(Template { parts })
}

fn push_fixed(parts: &mut Vec<TemplatePart>, text: &str) {
    if !text.is_empty() {
        parts.push(TemplatePart::Fixed(text.to_owned()));
    }
}

/// Returns the byte offset in `document` of the placeholder at `opened_at` of `text`.
///
/// Because of escapes the value may differ from its source, but braces are hardly ever escaped, so the n-th
/// opening in the value is the n-th in the source. Otherwise the start of the value is close enough.
fn place(text: &str, opened_at: usize, range: Range<usize>, document: &str) -> usize {
    let earlier = text[..opened_at].matches(OPEN).count();
    let source = document.get(range.clone()).unwrap_or_default();
    let found = source.match_indices(OPEN).nth(earlier);
    range.start + found.map_or(0, |(within, _)| within)
}

/// Parses a placeholder from the text after its opening braces.
struct PlaceholderReader<'t> {
    rest: &'t str,
}

impl<'t> PlaceholderReader<'t> {
    fn read_placeholder(&mut self) -> Result<Placeholder, String> {
        let source = self.source()?;
        let mut filters = Vec::new();
        loop {
            self.skip_blanks();
            if self.take(CLOSE) {
                return Ok(Placeholder { source, filters });
            }
            if !self.take("|") {
                return Err(self.unexpected("`}}` or `|`"));
            }
            filters.push(self.filter()?);
        }
    }

    fn source(&mut self) -> Result<PlaceholderSource, String> {
        self.skip_blanks();
        if self.rest.starts_with('"') {
            return Ok(PlaceholderSource::Quoted(self.quoted('"')?));
        }
        match self.word() {
            "prompt" => Ok(PlaceholderSource::Prompt),
            "last" => Ok(PlaceholderSource::Last),
            "agent" => Ok(PlaceholderSource::Agent),
            "label" => Ok(PlaceholderSource::Label),
            "turn" => Ok(PlaceholderSource::Turn),
            "result" => self.result(),
            "" => Err(self.unexpected(&format!("one of {}", SOURCES.join(", ")))),
            other => Err(unknown("placeholder", other, &SOURCES)),
        }
    }

    fn result(&mut self) -> Result<PlaceholderSource, String> {
        self.skip_blanks();
        let which = self.word();
        match which.parse::<usize>() {
            Ok(0) => Err("results are counted from 1, found `result 0`".to_owned()),
            Ok(number) => Ok(PlaceholderSource::NthResult(number)),
            Err(_) if which.is_empty() => Ok(PlaceholderSource::LastResult),
            Err(_) => Ok(PlaceholderSource::ResultOf(which.to_owned())),
        }
    }

    fn filter(&mut self) -> Result<PlaceholderFilter, String> {
        self.skip_blanks();
        match self.word() {
            "lines" => Ok(PlaceholderFilter::Lines),
            "bytes" => Ok(PlaceholderFilter::Bytes),
            "first_line" => Ok(PlaceholderFilter::FirstLine),
            "last_line" => Ok(PlaceholderFilter::LastLine),
            "head" => Ok(PlaceholderFilter::Head(self.number("head")?)),
            "tail" => Ok(PlaceholderFilter::Tail(self.number("tail")?)),
            "count" => Ok(PlaceholderFilter::Count(self.pattern("count")?)),
            "match" => Ok(PlaceholderFilter::Match(self.pattern("match")?)),
            "matches" => Ok(PlaceholderFilter::Matches(self.pattern("matches")?)),
            "grep" => Ok(PlaceholderFilter::Grep(self.pattern("grep")?)),
            "or" => {
                self.skip_blanks();
                Ok(PlaceholderFilter::Or(
                    self.quoted('"')
                        .map_err(|_| missing_argument_text("or", "text in quotes", "\"none\""))?,
                ))
            }
            "" => Err(self.unexpected(&format!("one of {}", FILTERS.join(", ")))),
            other => Err(unknown("filter", other, &FILTERS)),
        }
    }

    fn number(&mut self, filter: &str) -> Result<usize, String> {
        self.skip_blanks();
        self.word().parse().map_err(|_| missing_argument_text(filter, "a number of lines", "3"))
    }

    fn pattern(&mut self, filter: &str) -> Result<ScriptPattern, String> {
        self.skip_blanks();
        let source = self
            .quoted('/')
            .map_err(|_| missing_argument_text(filter, "a pattern between slashes", "/fn /"))?;
        ScriptPattern::new(&source)
    }

    /// Parses the text between two `mark`s; a backslash escapes a mark.
    fn quoted(&mut self, mark: char) -> Result<String, String> {
        let mut content = String::new();
        let mut chars = self.rest.char_indices().skip(1).peekable();
        if !self.rest.starts_with(mark) {
            return Err(self.unexpected(&format!("`{mark}`")));
        }
        while let Some((at, found)) = chars.next() {
            if found == mark {
                self.rest = &self.rest[at + mark.len_utf8()..];
                return Ok(content);
            }
            match chars.peek() {
                Some((_, next)) if found == '\\' && *next == mark => {
                    content.push(mark);
                    chars.next();
                }
                Some((_, next)) if found == '\\' => {
                    content.extend([found, *next]);
                    chars.next();
                }
                Some(_) | None => content.push(found),
            }
        }
        Err(format!("`{mark}` is not closed"))
    }

    fn word(&mut self) -> &'t str {
        let is_word = |byte: char| byte.is_ascii_alphanumeric() || matches!(byte, '_' | '-');
        let end = self.rest.find(|c| !is_word(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word
    }

    fn take(&mut self, token: &str) -> bool {
        let rest = self.rest.strip_prefix(token);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn skip_blanks(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn unexpected(&self, expected: &str) -> String {
        let found = match self.rest.chars().next() {
            Some(found) => format!("`{found}`"),
            None => "the end of the text".to_owned(),
        };
        format!("expected {expected} in the placeholder, found {found}")
    }
}

fn missing_argument_text(filter: &str, argument: &str, example: &str) -> String {
    format!("`{filter}` needs {argument}, for example {{{{result | {filter} {example}}}}}")
}

fn unknown(what: &str, word: &str, names: &[&str]) -> String {
    let meant = did_you_mean(word, names);
    format!("unknown {what} `{word}`{meant} (one of {})", names.join(", "))
}
