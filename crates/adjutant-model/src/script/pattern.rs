//! Regular expressions over messages, the same in every build.
//!
//! Classes are ASCII (`\d` is 0-9) whatever features other crates switch on, `^` and `$` stand at
//! the ends of lines, and text without special characters is searched for as it is.
//!
//! Start at [`ScriptPattern::new`]. Invariant: a pattern that was accepted can be built.

use std::borrow::Cow;
use std::sync::OnceLock;

use regex::bytes::{Regex, RegexBuilder};

/// The longest pattern, in bytes. Inclusive; it keeps what is built later within its size limit.
const MAX_BYTES: usize = 1000;

/// A checked pattern, compiled when it is first used.
#[derive(Debug)]
pub(crate) struct ScriptPattern {
    engine: PatternMatcher,
}

// Most patterns in scripts are plain words. They need no automaton, which takes longer to build
// than the rest of a turn takes to run.
#[derive(Debug)]
enum PatternMatcher {
    Literal(String),
    Regex { source: String, built: OnceLock<Option<Box<Regex>>> },
}

impl ScriptPattern {
    /// Checks `source`, or says in one line why it is no pattern.
    pub(crate) fn new(source: &str) -> Result<Self, String> {
        if source.is_empty() || source.len() > MAX_BYTES {
            return Err(format!("a pattern has 1 to {MAX_BYTES} bytes, found {}", source.len()));
        }
        if regex::escape(source) == source {
            return Ok(Self { engine: PatternMatcher::Literal(source.to_owned()) });
        }
        let built = OnceLock::new();
        if source.contains('{') {
            // Counted repetition is the one way for a short pattern to outgrow the size limit, and
            // only building it tells.
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

    /// Counts the matches that do not overlap.
    pub(crate) fn count(&self, text: &str) -> usize {
        match &self.engine {
            PatternMatcher::Literal(word) => text.matches(word).count(),
            PatternMatcher::Regex { source, built } => {
                regex(source, built).map_or(0, |regex| regex.find_iter(text.as_bytes()).count())
            }
        }
    }

    /// Returns each match: its first group when the pattern has one, else the whole.
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

/// Returns the compiled pattern; `None` only if the check at load was wrong, and then it never fits.
fn regex<'p>(source: &str, built: &'p OnceLock<Option<Box<Regex>>>) -> Option<&'p Regex> {
    built.get_or_init(|| build(source).ok().map(Box::new)).as_deref()
}

fn build(source: &str) -> Result<Regex, regex::Error> {
    RegexBuilder::new(source).unicode(false).multi_line(true).build()
}

/// Parses `source` with the settings of [`build`].
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
