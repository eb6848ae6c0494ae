//! Regular expressions for matching messages.
//!
//! Classes are ASCII (`\d` is 0-9) independent of the features that other crates enable, `^` and `$` match at
//! line ends, and a pattern without special characters is a plain substring search.
//!
//! Start at [`ScriptPattern::new`]. Invariant: every accepted pattern compiles.

use std::borrow::Cow;
use std::sync::OnceLock;

use regex::bytes::{Regex, RegexBuilder};

/// The maximum length of a pattern, in bytes. Inclusive; keeps the compiled pattern within its size limit.
const MAX_BYTES: usize = 1000;

/// A checked pattern that is compiled on first use.
#[derive(Debug)]
pub(crate) struct ScriptPattern {
    engine: PatternMatcher,
}

// Most patterns in scripts are plain words. They need no regex, which would take longer to compile than the
// rest of the turn takes to run.
#[derive(Debug)]
enum PatternMatcher {
    Literal(String),
    Regex { source: String, built: OnceLock<Option<Box<Regex>>> },
}

impl ScriptPattern {
    /// Checks `source`; the error is a one-line message.
    pub(crate) fn new(source: &str) -> Result<Self, String> {
        if source.is_empty() || source.len() > MAX_BYTES {
            return Err(format!("a pattern has 1 to {MAX_BYTES} bytes, found {}", source.len()));
        }
        if regex::escape(source) == source {
            return Ok(Self { engine: PatternMatcher::Literal(source.to_owned()) });
        }
        let built = OnceLock::new();
        if source.contains('{') {
            // Only counted repetition lets a short pattern exceed the size limit, which shows only during
            // compilation.
            let regex = build(source).map_err(|error| complaint(source, &error.to_string()))?;
            let _ = built.set(Some(Box::new(regex)));
        } else {
            check_syntax(source).map_err(|error| complaint(source, &error.to_string()))?;
        }
        Ok(Self { engine: PatternMatcher::Regex { source: source.to_owned(), built } })
    }

    pub(crate) fn is_match(&self, text: &str) -> bool {
        match &self.engine {
            PatternMatcher::Literal(word) => text.contains(word),
            PatternMatcher::Regex { source, built } => {
                regex(source, built).is_some_and(|regex| regex.is_match(text.as_bytes()))
            }
        }
    }

    /// Counts the non-overlapping matches.
    pub(crate) fn count(&self, text: &str) -> usize {
        match &self.engine {
            PatternMatcher::Literal(word) => text.matches(word).count(),
            PatternMatcher::Regex { source, built } => {
                regex(source, built).map_or(0, |regex| regex.find_iter(text.as_bytes()).count())
            }
        }
    }

    /// Returns each match: its first capture group if the pattern has one, otherwise the whole match.
    pub(crate) fn matches<'t>(
        &'t self,
        text: &'t str,
    ) -> Box<dyn Iterator<Item = Cow<'t, str>> + 't> {
        match &self.engine {
            PatternMatcher::Literal(word) => Box::new(text.matches(word).map(Cow::Borrowed)),
            PatternMatcher::Regex { source, built } => {
                let found = regex(source, built)
                    .into_iter()
                    .flat_map(|regex| regex.captures_iter(text.as_bytes()));
                Box::new(found.map(|found| {
                    let part = found.get(1).or_else(|| found.get(0));
                    String::from_utf8_lossy(part.map_or(&[][..], |part| part.as_bytes()))
                }))
            }
        }
    }
}

/// Returns the compiled pattern. `None` would mean that the check in `new` was wrong; such a pattern matches
/// nothing.
fn regex<'p>(source: &str, built: &'p OnceLock<Option<Box<Regex>>>) -> Option<&'p Regex> {
    built.get_or_init(|| build(source).ok().map(Box::new)).as_deref()
}

fn build(source: &str) -> Result<Regex, regex::Error> {
    RegexBuilder::new(source).unicode(false).multi_line(true).build()
}

/// Checks the syntax of `source` with the settings of [`build`].
fn check_syntax(source: &str) -> Result<(), Box<regex_syntax::Error>> {
    let mut parser =
        regex_syntax::ParserBuilder::new().unicode(false).utf8(false).multi_line(true).build();
    parser.parse(source).map(drop).map_err(Box::new)
}

fn complaint(source: &str, error: &str) -> String {
    let reason = error.lines().last().unwrap_or_default();
    let reason = reason.strip_prefix("error: ").unwrap_or(reason);
    format!("`{source}` is not a pattern: {reason}")
}
