//! The record of a workspace, from which it can be reopened.
//!
//! Layers are named by their content, not by their path: a base may have moved since, and layers that can be made
//! from commits are made again.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::WorkspaceError;
use crate::{ObjectId, ResultRef};

/// What the files of a workspace are stored in. The journal records it as `WorkspaceKind` of the core crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkspaceBacking {
    /// An overlay of read-only layers and one that receives every change.
    Overlay,
    /// A git work tree.
    Worktree,
}

impl fmt::Display for WorkspaceBacking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Overlay => "overlay",
            Self::Worktree => "worktree",
        })
    }
}

/// Everything that is needed to reopen a workspace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkspaceRecord {
    /// What its files are stored in.
    pub kind: WorkspaceBacking,
    /// The path under which programs and models see it.
    pub path: String,
    /// The commit of the state it started from.
    pub base: String,
    /// The names of its layers, lowest first, the upper layer last; empty for a work tree.
    pub layers: Vec<String>,
    /// Remarks for the user, one sentence each.
    pub remarks: Vec<String>,
}

impl WorkspaceRecord {
    pub(super) fn base(&self) -> Result<ObjectId, WorkspaceError> {
        ObjectId::parse(&self.base).ok_or_else(|| WorkspaceError::Record(self.base.clone()))
    }

    pub(super) fn layers(&self) -> Result<Vec<LayerName>, WorkspaceError> {
        self.layers.iter().map(|name| LayerName::parse(name)).collect()
    }
}

/// The name of a layer: what it contains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LayerName {
    /// The files of a git tree.
    Base(ObjectId),
    /// The differences between a tree and a commit, and a private git directory for the commit.
    Delta(ObjectId, ObjectId),
    /// Copied ignored files, by the key of their state.
    Ignored(String),
    /// HEAD and index of a private git directory, for a commit above other layers.
    Meta(ObjectId, ObjectId),
    /// A layer of changes of a workspace: this one or an ancestor.
    Upper(ResultRef, usize),
}

impl LayerName {
    fn parse(text: &str) -> Result<Self, WorkspaceError> {
        Self::read(text).ok_or_else(|| WorkspaceError::Record(text.chars().take(200).collect()))
    }

    fn read(text: &str) -> Option<Self> {
        let (kind, rest) = text.split_once(':')?;
        let pair = || {
            let (first, second) = rest.split_once(':')?;
            ObjectId::parse(first).zip(ObjectId::parse(second))
        };
        match kind {
            "base" => ObjectId::parse(rest).map(Self::Base),
            "delta" => pair().map(|(from, to)| Self::Delta(from, to)),
            "meta" => pair().map(|(from, to)| Self::Meta(from, to)),
            "ignored" if rest.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
                Some(Self::Ignored(rest.to_owned()))
            }
            "upper" => {
                let (name, number) = rest.rsplit_once('/')?;
                let (run, child) = name.split_once('/')?;
                let reference = ResultRef::new(run, child).ok()?;
                Some(Self::Upper(reference, number.parse().ok()?))
            }
            _ => None,
        }
    }
}

impl fmt::Display for LayerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Base(tree) => write!(f, "base:{tree}"),
            Self::Delta(from, to) => write!(f, "delta:{from}:{to}"),
            Self::Meta(from, to) => write!(f, "meta:{from}:{to}"),
            Self::Ignored(key) => write!(f, "ignored:{key}"),
            Self::Upper(of, number) => write!(f, "upper:{}/{}/{number}", of.run(), of.child()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layer_names_round_trip_and_invalid_ones_are_refused() {
        let (one, two) = ("a".repeat(40), "b".repeat(64));
        for text in [
            format!("base:{one}"),
            format!("delta:{one}:{two}"),
            format!("meta:{two}:{one}"),
            "ignored:0123abcd".to_owned(),
            "upper:run/child/17".to_owned(),
        ] {
            assert_eq!(LayerName::parse(&text).unwrap().to_string(), text);
        }
        for bad in [
            "",
            "base",
            "base:",
            "base:../x",
            "delta:a:b",
            "ignored:../x",
            "upper:run/../0",
            "upper:run/child/-1",
            "upper:run/a/b/0",
            "/etc",
        ] {
            assert!(LayerName::parse(bad).is_err(), "{bad}");
        }
    }
}
