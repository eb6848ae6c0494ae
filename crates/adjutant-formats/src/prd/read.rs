//! Parsing a PRD: its stories, its project and its settings for delegation.

use std::collections::{BTreeMap, BTreeSet};

use super::config::PrdDelegationConfig;
use super::error::PrdError;
use super::finding::{FindingSubject, PrdFinding, PrdFindings, quoted};
use super::story::{self, Story};
use crate::document::{DocumentNode, SyntaxError, parse_json};
use crate::fields::{FieldFault, FieldReader, FieldValue};

/// The possible names of the list of stories.
const LISTS: [&str; 2] = ["userStories", "stories"];

/// The byte order mark that some editors write at the start of a file.
pub(super) const BYTE_ORDER_MARK: char = '\u{feff}';

/// A PRD: its text and the parsed stories.
#[derive(Clone, Debug)]
pub struct Prd {
    /// Whether the file started with a byte order mark.
    pub(super) has_mark: bool,
    /// The text after the byte order mark.
    pub(super) text: String,
    /// The list of stories; items have the same indices as in `stories`.
    pub(super) list: DocumentNode,
    stories: Vec<Story>,
    /// The indices of the stories by id.
    index: BTreeMap<String, usize>,
    project: Option<String>,
    config: PrdDelegationConfig,
    merge: Option<String>,
    warnings: Vec<PrdFinding>,
}

impl Prd {
    /// Parses a PRD.
    ///
    /// # Errors
    ///
    /// If the text is not a valid PRD; up to twenty faults are reported together.
    pub fn read(text: &str) -> Result<Self, PrdError> {
        let (has_mark, text) = match text.strip_prefix(BYTE_ORDER_MARK) {
            Some(text) => (true, text),
            None => (false, text),
        };
        let root = parse_json(text).map_err(|SyntaxError { line, column, reason }| {
            PrdError::NotJson { line, column, reason }
        })?;
        let fields =
            FieldReader::new(FieldValue::Text(&root, text), "").map_err(|_| PrdError::NotObject)?;
        let mut out = PrdFindings::new(text);
        named_once(text, &root, &mut out);
        let project = root.string(text, "project");
        let config = PrdDelegationConfig::read(&fields, &mut out);
        let merge = merge(&fields, &mut out);
        let list = list(text, &root, &mut out);
        let items = list.and_then(DocumentNode::items).unwrap_or_default();
        let read =
            items.iter().enumerate().map(|(nth, item)| story::read(text, item, nth, &mut out));
        let read: Vec<Option<Story>> = read.collect();
        let index = unique(items, &read, &mut out);
        known(text, items, &read, &mut out);
        let warnings = out.end().map_err(|(findings, more)| PrdError::Faults { findings, more })?;
        let list = list.cloned().ok_or(PrdError::NotObject)?;
        let stories = read.into_iter().flatten().collect();
        let text = text.to_owned();
        Ok(Self { has_mark, text, list, stories, index, project, config, merge, warnings })
    }

    /// Returns the stories in file order, children included.
    #[must_use]
    pub fn stories(&self) -> &[Story] {
        &self.stories
    }

    /// Returns the story with this id.
    #[must_use]
    pub fn story(&self, id: &str) -> Option<&Story> {
        self.stories.get(self.place(id)?)
    }

    /// Returns the source text of a story's entry.
    #[must_use]
    pub fn entry(&self, id: &str) -> Option<&str> {
        Some(self.node(self.place(id)?)?.raw(&self.text))
    }

    /// Returns the name of the project, if the PRD has one.
    #[must_use]
    pub fn project(&self) -> Option<&str> {
        self.project.as_deref()
    }

    /// Returns the delegation limits that the PRD requests.
    #[must_use]
    pub const fn config(&self) -> &PrdDelegationConfig {
        &self.config
    }

    /// Returns the requested merge mode as written; needs the user's consent.
    #[must_use]
    pub fn merge(&self) -> Option<&str> {
        self.merge.as_deref()
    }

    /// Returns the warnings, at most twenty.
    #[must_use]
    pub fn warnings(&self) -> &[PrdFinding] {
        &self.warnings
    }

    /// Returns the index of a story.
    pub(super) fn place(&self, id: &str) -> Option<usize> {
        self.index.get(id).copied()
    }

    /// Returns the entry at an index.
    pub(super) fn node(&self, place: usize) -> Option<&DocumentNode> {
        self.list.items()?.get(place)
    }
}

/// Reports repeated keys, because it is unclear which value is meant.
fn named_once(text: &str, root: &DocumentNode, out: &mut PrdFindings<'_>) {
    for (first, second) in root.repeated_keys(text) {
        let name = text[second.clone()].trim_matches('"');
        let line = if out.is_full() { 0 } else { out.line(first.start) };
        let subject = FindingSubject { field: Some(name), at: second.start };
        let name = quoted(name);
        out.fault(subject, format!("{name} is there a second time, after the one at line {line}"));
    }
}

/// Finds the list of stories.
fn list<'a>(
    text: &str,
    root: &'a DocumentNode,
    out: &mut PrdFindings<'_>,
) -> Option<&'a DocumentNode> {
    let found = LISTS.map(|name| root.member(text, name).filter(|list| !list.is_null(text)));
    let (name, node) = match found {
        [Some(node), None] => (LISTS[0], node),
        [None, Some(node)] => (LISTS[1], node),
        [Some(_), Some(second)] => {
            let subject = FindingSubject { field: Some(LISTS[1]), at: second.range.start };
            out.fault(subject, "both `userStories` and `stories` are there; only one may be");
            return None;
        }
        [None, None] => {
            let subject = FindingSubject { field: Some(LISTS[0]), at: root.range.start };
            out.fault(subject, "there is neither a list `userStories` nor a list `stories`");
            return None;
        }
    };
    if node.items().is_none() {
        let problem = FieldValue::Text(node, text).mismatch("a list of stories");
        out.complain(&FieldFault { path: name.to_owned(), at: node.range.start, problem });
    }
    Some(node)
}

/// Reads the requested merge mode; `false` means none.
fn merge(root: &FieldReader<'_>, out: &mut PrdFindings<'_>) -> Option<String> {
    let value = root.non_null("merge")?;
    if let Ok(is_wanted) = value.boolean() {
        return is_wanted.then(|| "true".to_owned());
    }
    let how = value.string().map_err(|_| value.mismatch("a string, true or false"));
    let how = out.keep(how.map(Some).map_err(|problem| root.fault("merge", problem)))?;
    Some(how.into_owned()).filter(|how| !how.trim().is_empty())
}

/// Reports ids that are used twice.
fn unique(
    items: &[DocumentNode],
    stories: &[Option<Story>],
    out: &mut PrdFindings<'_>,
) -> BTreeMap<String, usize> {
    let mut index: BTreeMap<String, usize> = BTreeMap::new();
    for (place, (item, story)) in items.iter().zip(stories).enumerate() {
        let Some(story) = story else { continue };
        if let Some(&first) = index.get(&story.id) {
            out.of_story(&story.id);
            let subject = FindingSubject { field: Some("id"), at: item.range.start };
            let line = if out.is_full() { 0 } else { out.line(items[first].range.start) };
            out.fault(subject, format!("the id is already used by the story at line {line}"));
        } else {
            index.insert(story.id.clone(), place);
        }
    }
    index
}

/// Reports dependencies on missing stories as faults, and missing parents as warnings.
fn known(text: &str, items: &[DocumentNode], stories: &[Option<Story>], out: &mut PrdFindings<'_>) {
    // The id of a story with another fault is read from the text, so that one fault does not cause a second.
    let name = |(item, story): (&DocumentNode, &Option<Story>)| match story {
        Some(story) => Some(story.id.clone()),
        None => item.string(text, "id"),
    };
    let names: BTreeSet<String> = items.iter().zip(stories).filter_map(name).collect();
    for (item, story) in items.iter().zip(stories) {
        let Some(story) = story else { continue };
        let subject = |field: &'static str| {
            let at = item.member(text, field).unwrap_or(item).range.start;
            FindingSubject { field: Some(field), at }
        };
        for missing in story.dependencies.iter().filter(|id| !names.contains(*id)) {
            let what = format!("it depends on {}, which is not in the PRD", quoted(missing));
            out.of_story(&story.id);
            out.fault(subject("dependencies"), what);
        }
        if let Some(parent) = story.parent().filter(|id| !names.contains(*id)) {
            let what = format!(
                "its parent {} is not in the PRD, so it is never run; only its parent could run it",
                quoted(parent)
            );
            out.of_story(&story.id);
            out.warning(subject("delegationContext"), what);
        }
    }
}
