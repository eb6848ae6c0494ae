//! The work of one node of a story, shared by the tree, the status and the report.
//!
//! A [`StoryNode`] is that work; [`ChildMerge`] is the result of merging it into the workspace of
//! its parent.

use adjutant_core::workspace::{ChangedFile, KeptWork};
use serde::Serialize;

use crate::layout::{bracketed, fit};
use crate::run::{Delegation, RunView};
use crate::state_words::count_with_noun;

/// The maximum width of a story's id, in columns.
const ID_COLUMNS: usize = 48;

/// The result of merging a node's work into its parent's workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ChildMerge {
    /// It is merged.
    Merged,
    /// It conflicts with the parent's files; nothing was merged.
    Conflict,
    /// The merge could not be tried.
    Failed,
}

impl ChildMerge {
    /// Returns it as text.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Merged => "merged",
            Self::Conflict => "in conflict",
            Self::Failed => "not merged",
        }
    }
}

/// What a story, or one delegation of it, changed and cost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StoryNode {
    /// The story: `US-007`, below it `US-007-DEL-001`.
    pub id: String,
    /// The title; only for the story itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The kind of its workspace; absent if it has none of its own.
    pub workspace: Option<&'static str>,
    /// The files it changed.
    pub files_changed: Vec<String>,
    /// Lines it added.
    pub added: u64,
    /// Lines it removed.
    pub removed: u64,
    /// Whether its verify command passed; absent if it was not run.
    pub verified: Option<bool>,
    /// The result of merging it into the parent's workspace; absent if that was not tried.
    pub merge: Option<ChildMerge>,
    /// The conflicting files.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<String>,
    /// The git reference that keeps its work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
}

impl StoryNode {
    /// Returns the work of a node, or `None` if it does not work on a story.
    #[must_use]
    pub fn of(view: &RunView, node: &Delegation) -> Option<Self> {
        let story = view.story()?;
        let id = node.story.clone()?;
        let kept = kept_work(node);
        let (added, removed) = kept.map(KeptWork::lines).unwrap_or_default();
        let clashes = node.merged.iter().flat_map(|it| &it.0.conflicts);
        Some(Self {
            id,
            title: node.parent.is_none().then(|| story.title.clone()),
            workspace: node.space.as_ref().map(|space| space.kind.word()),
            files_changed: files(node).iter().map(|file| file.path.clone()).collect(),
            added,
            removed,
            verified: node.checked.map(|(passed, _)| passed),
            merge: merge(node),
            conflicts: clashes.map(|clash| clash.path.clone()).collect(),
            reference: kept.and_then(|kept| kept.reference.clone()),
        })
    }

    /// Returns the parts of a line about it: files, workspace, verified, merged.
    pub(crate) fn words(&self) -> Vec<String> {
        let mut words = Vec::new();
        if !self.files_changed.is_empty() {
            let count = count_with_noun(self.files_changed.len(), "file");
            words.push(format!("{count} +{} -{}", self.added, self.removed));
        }
        words.extend(self.workspace.map(str::to_owned));
        words.extend(self.verified.map(|passed| verified_word(passed).to_owned()));
        words.extend(self.merge.map(|merge| merge.word().to_owned()));
        words
    }
}

/// Returns the word for the result of a verify command.
const fn verified_word(passed: bool) -> &'static str {
    if passed { "verified" } else { "verify failed" }
}

/// Returns the committed work of a node.
pub(crate) fn kept_work(node: &Delegation) -> Option<&KeptWork> {
    node.kept.as_deref().map(|(kept, _)| kept)
}

/// Returns the files that a node changed in its workspace.
pub(crate) fn files(node: &Delegation) -> &[ChangedFile] {
    kept_work(node).map_or(&[], |kept| &kept.files)
}

/// Returns the result of merging a node's work.
pub(crate) fn merge(node: &Delegation) -> Option<ChildMerge> {
    let (merged, problem) = node.merged.as_deref()?;
    Some(match problem {
        Some(_) => ChildMerge::Failed,
        None if merged.conflicts.is_empty() => ChildMerge::Merged,
        None => ChildMerge::Conflict,
    })
}

/// Returns the name of a node with the number that people can type: `#2 [label]`; see [`RunView::ordinal`].
pub(crate) fn numbered_name(view: &RunView, node: &Delegation, columns: usize) -> String {
    let name = name(view, node, columns);
    match view.ordinal(node.session) {
        Some(ordinal) => format!("#{ordinal} {name}"),
        None => name,
    }
}

/// Returns the name of a node: `US-007-DEL-001 [label]`, the title for the story itself, or only the label.
pub(crate) fn name(view: &RunView, node: &Delegation, columns: usize) -> String {
    let label = bracketed(node.label.as_str(), columns);
    match (view.story(), &node.story) {
        (Some(story), Some(id)) if node.parent.is_none() => {
            let title = if story.title.is_empty() { label } else { bracketed(&story.title, 60) };
            format!("{} {title}", fit(id, ID_COLUMNS))
        }
        (Some(_), Some(id)) => format!("{} {label}", fit(id, ID_COLUMNS)),
        _ => label,
    }
}
