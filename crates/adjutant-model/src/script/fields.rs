//! Typed reading of one table: known keys, right types, right ranges.
//!
//! Every complaint names the key, what was found and what is allowed. It does not know what the
//! keys are for.
//!
//! Start at [`Fields::new`], which refuses unknown keys before anything is read.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::error::Flaw;
use super::node::{Key, Kind, Node};

/// The longest wait a script may ask for: a day, in milliseconds. Inclusive.
const MAX_DELAY_MS: u64 = 86_400_000;

/// A table whose keys are all known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields<'n> {
    pub(crate) at: usize,
    pairs: &'n [(Key, Node)],
}

impl<'n> Fields<'n> {
    /// Takes `node` as a table of `allowed` keys; `what` is its name in complaints.
    pub(crate) fn new(node: &'n Node, what: &str, allowed: &[&str]) -> Result<Self, Flaw> {
        let Kind::Table(pairs) = &node.kind else {
            return Err(Flaw::new(
                node.span.start,
                format!("{what} must be a table, found {}", node.kind.noun()),
            ));
        };
        match pairs.iter().find(|(key, _)| !allowed.contains(&key.name.as_str())) {
            Some((key, _)) => Err(unknown_key(key, what, allowed)),
            None => Ok(Self { at: node.span.start, pairs }),
        }
    }

    /// Returns the value of `key`, whatever it is.
    pub(crate) fn get(&self, key: &str) -> Option<&'n Node> {
        self.pairs.iter().find(|(found, _)| found.name == key).map(|(_, node)| node)
    }

    /// Returns a complaint about `key`, placed at its value.
    pub(crate) fn flaw(&self, key: &str, message: impl Into<String>) -> Flaw {
        Flaw::new(self.get(key).map_or(self.at, |node| node.span.start), message)
    }

    pub(crate) fn text(&self, key: &str) -> Result<Option<&'n str>, Flaw> {
        let Some(node) = self.get(key) else { return Ok(None) };
        match &node.kind {
            Kind::Text(text) => Ok(Some(text)),
            found @ (Kind::Null
            | Kind::Bool(_)
            | Kind::Number(_)
            | Kind::List(_)
            | Kind::Table(_)) => Err(self.wrong(key, "text", found)),
        }
    }

    pub(crate) fn flag(&self, key: &str) -> Result<bool, Flaw> {
        let Some(node) = self.get(key) else { return Ok(false) };
        match &node.kind {
            Kind::Bool(flag) => Ok(*flag),
            found @ (Kind::Null
            | Kind::Text(_)
            | Kind::Number(_)
            | Kind::List(_)
            | Kind::Table(_)) => Err(self.wrong(key, "true or false", found)),
        }
    }

    pub(crate) fn list(&self, key: &str, expected: &str) -> Result<&'n [Node], Flaw> {
        let Some(node) = self.get(key) else { return Ok(&[]) };
        match &node.kind {
            Kind::List(items) => Ok(items),
            found @ (Kind::Null
            | Kind::Text(_)
            | Kind::Number(_)
            | Kind::Bool(_)
            | Kind::Table(_)) => Err(self.wrong(key, expected, found)),
        }
    }

    /// Returns a whole number within `range`, which the complaint quotes.
    pub(crate) fn count(&self, key: &str, range: RangeInclusive<u64>) -> Result<Option<u64>, Flaw> {
        let Some(node) = self.get(key) else { return Ok(None) };
        let Kind::Number(number) = &node.kind else {
            return Err(self.wrong(key, "a whole number", &node.kind));
        };
        match number.as_u64().filter(|count| range.contains(count)) {
            Some(count) => Ok(Some(count)),
            None => {
                let (min, max) = range.into_inner();
                let limit = if max == u64::MAX {
                    format!("of at least {min}")
                } else {
                    format!("from {min} to {max}")
                };
                let message = format!("`{key}` must be a whole number {limit}, found {number}");
                Err(self.flaw(key, message))
            }
        }
    }

    /// Returns a number that is neither negative nor infinite.
    pub(crate) fn amount(&self, key: &str) -> Result<Option<f64>, Flaw> {
        let Some(node) = self.get(key) else { return Ok(None) };
        let Kind::Number(number) = &node.kind else {
            return Err(self.wrong(key, "a number", &node.kind));
        };
        match number.as_f64().filter(|amount| amount.is_finite() && *amount >= 0.0) {
            Some(amount) => Ok(Some(amount)),
            None => Err(self.flaw(key, format!("`{key}` must not be negative, found {number}"))),
        }
    }

    pub(crate) fn millis(&self, key: &str) -> Result<Option<Duration>, Flaw> {
        Ok(self.count(key, 0..=MAX_DELAY_MS)?.map(Duration::from_millis))
    }

    /// Returns the value that `choices` gives the word under `key`.
    pub(crate) fn choice<T: Copy>(
        &self,
        key: &str,
        choices: &[(&str, T)],
    ) -> Result<Option<T>, Flaw> {
        let Some(word) = self.text(key)? else { return Ok(None) };
        match choices.iter().find(|(name, _)| *name == word) {
            Some((_, value)) => Ok(Some(*value)),
            None => {
                let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
                let hint = nearest(word, &names)
                    .map_or_else(String::new, |name| format!(", did you mean `{name}`?"));
                let message = format!("unknown {key} `{word}`{hint} (one of {})", listed(&names));
                Err(self.flaw(key, message))
            }
        }
    }

    fn wrong(&self, key: &str, expected: &str, found: &Kind) -> Flaw {
        self.flaw(key, format!("`{key}` must be {expected}, found {}", found.noun()))
    }
}

fn unknown_key(key: &Key, what: &str, allowed: &[&str]) -> Flaw {
    let hint = nearest(&key.name, allowed)
        .map_or_else(String::new, |name| format!(", did you mean `{name}`?"));
    let message =
        format!("unknown key `{}` in {what}{hint} (allowed: {})", key.name, listed(allowed));
    Flaw::new(key.at, message)
}

fn listed(names: &[&str]) -> String {
    names.join(", ")
}

/// Returns the name that `word` was probably meant to be, when one is close enough to say so.
pub(crate) fn nearest<'a>(word: &str, names: &[&'a str]) -> Option<&'a str> {
    let (steps, name) = names.iter().map(|name| (edits(word, name), *name)).min()?;
    // Two swapped letters are two edits, so half of a word may differ; half of a short one is noise.
    (steps <= 1 || steps * 2 < name.len()).then_some(name)
}

/// Counts the insertions, deletions and replacements between two words.
fn edits(from: &str, to: &str) -> usize {
    // A word far longer than any key is no misspelling, and the table below is its square.
    if from.len() > 64 {
        return from.len();
    }
    let mut row: Vec<usize> = (0..=to.chars().count()).collect();
    for (i, a) in from.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in to.chars().enumerate() {
            let replaced = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row.last().copied().unwrap_or(0)
}
