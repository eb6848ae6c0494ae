//! Glob patterns for paths, used by Glob and by the `glob` argument of Grep.
//!
//! A pattern without a slash matches names at any depth, as in `.gitignore`; one with a slash matches whole
//! paths relative to the start of the search or to the root.

use std::path::Path;

use adjutant_workspace::Root;
use globset::{GlobBuilder, GlobSet};

use crate::args::{ToolArgumentError, brief};
use crate::walk::WalkEntry;

/// The maximum length and number of brace groups; the parser of `globset` recurses into them.
const MAX_BYTES: usize = 1024;
const MAX_BRACES: usize = 16;

/// A compiled glob pattern.
pub(crate) struct GlobPattern {
    set: GlobSet,
    /// Whether it matches only directories, because it ends in a slash.
    pub(crate) directories_only: bool,
    /// Whether it excludes matches, because it starts with `!`.
    is_negated: bool,
    /// Whether it names hidden files, which are skipped otherwise.
    pub(crate) names_hidden: bool,
}

impl GlobPattern {
    /// Compiles the pattern `written`, the value of the argument `name`.
    pub(crate) fn new(name: &str, written: &str, root: &Root) -> Result<Self, ToolArgumentError> {
        let fail = |why: &str| {
            ToolArgumentError(format!(
                "`{name}` is not a valid glob pattern: {why}: {}",
                brief(written)
            ))
        };
        if written.len() > MAX_BYTES || written.matches('{').count() > MAX_BRACES {
            return Err(fail("too long or too many braces"));
        }
        let (is_negated, text) = match written.strip_prefix('!') {
            Some(rest) => (true, rest),
            None => (false, written),
        };
        let text = below_root(text, root);
        let (directories_only, text) = match text.strip_suffix('/') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let anchored = anchor(text);
        let glob = GlobBuilder::new(&anchored)
            .literal_separator(true)
            .empty_alternates(true)
            .build()
            .map_err(|error| fail(&error.kind().to_string()))?;
        // A set of one pattern, because it reports a failure where a single matcher would panic.
        let set = GlobSet::builder().add(glob).build();
        Ok(Self {
            set: set.map_err(|error| fail(&error.kind().to_string()))?,
            directories_only,
            is_negated,
            names_hidden: names_hidden(text),
        })
    }

    /// Returns whether the pattern matches an entry of a walk.
    pub(crate) fn selects(&self, found: &WalkEntry<'_>) -> bool {
        let matched = self.set.is_match(found.below)
            || (found.path != found.below && self.set.is_match(found.path));
        matched != self.is_negated
    }
}

/// Makes an absolute pattern below the root relative to it.
fn below_root<'text>(text: &'text str, root: &Root) -> &'text str {
    let own = root.path().to_str().filter(|own| own.len() > 1);
    let below = own.and_then(|own| text.strip_prefix(own)).filter(|rest| rest.starts_with('/'));
    below.unwrap_or(text)
}

fn anchor(text: &str) -> String {
    let text = text.strip_prefix("./").unwrap_or(text);
    match text.strip_prefix('/') {
        Some(rest) => rest.to_owned(),
        None if text.contains('/') => text.to_owned(),
        None => format!("**/{text}"),
    }
}

fn names_hidden(text: &str) -> bool {
    let names = text.split(['/', '{', ',']);
    names.into_iter().any(|name| name.len() > 1 && name.starts_with('.') && name != "..")
}

/// Returns whether a path or one of its parents is hidden.
pub(crate) fn is_hidden(path: &Path) -> bool {
    path.iter().any(|name| name.as_encoded_bytes().starts_with(b".") && name != "..")
}
