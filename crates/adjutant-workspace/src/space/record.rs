//! What is written down of a workspace, so that it can be taken up again.
//!
//! Layers are named by what they hold, not by where they lie: a base may have moved since, and what
//! can be made again from commits is made again.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::WorkspaceError;
use crate::{ObjectId, ResultRef};

/// How a workspace is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkspaceBacking {
    /// Layers that are only read, and one that takes every change.
    Overlay,
    /// A work tree of git.
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

/// Everything needed to take up a workspace again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkspaceRecord {
    /// How it is made.
    pub kind: WorkspaceBacking,
    /// The path by which programs and models know it.
    pub path: String,
    /// The commit with the state it began from.
    pub base: String,
    /// The names of its layers, lowest first, the one that takes every change last; none for a work tree.
    pub layers: Vec<String>,
    /// What a person should know about it, one sentence each.
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

/// What a layer holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LayerName {
    /// The files of a tree.
    Base(ObjectId),
    /// What a commit has differently from a tree, and git's own folder.
    Delta(ObjectId, ObjectId),
    /// Ignored folders that came along, by what they looked like.
    Ignored(String),
    /// Git's own folder for a state above other layers.
    Meta(ObjectId, ObjectId),
    /// What was written in a workspace: its own, or that of one above.
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
    fn names_read_back_and_nothing_else_does() {
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
