//! File writes by tools: where they are permitted, and how an interrupted one is recognised.
//!
//! Each write is recorded twice: before it, with the hashes of the old and new content, and after
//! it, as the tool's result. If the second record is missing after a crash, the file's current hash
//! tells whether the write was applied.
//!
//! [`WriteScope`] says where an agent may write, [`ContentChange`] is one change of one file, and
//! [`WriteFinding`] the answer to whether an interrupted write was applied.

use std::fmt;
use std::path::{Component, Path};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::event::ToolOutput;

/// The tool that writes whole files.
pub const WRITE: &str = "Write";
/// The tool that replaces text in a file.
pub const EDIT: &str = "Edit";
/// The tool that runs commands.
pub const RUN: &str = "Run";

/// Says whether calls of the tool run one after the other, in the order of the answer: a command
/// must see the edit before it, and two calls must not change the same file at once.
pub(crate) fn is_in_turn(tool: &str) -> bool {
    is_write(tool) || tool == RUN
}

/// Says whether the tool reads files. Such calls run in parallel, but never before a change that
/// the same answer asked for earlier.
pub(crate) fn is_read(tool: &str) -> bool {
    ["Read", "Grep", "Glob"].contains(&tool)
}

/// Says whether the tool changes files.
pub(crate) fn is_write(tool: &str) -> bool {
    tool == WRITE || tool == EDIT
}

/// Where an agent may write files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WriteScope {
    /// Nowhere.
    #[default]
    Nowhere,
    /// Below this directory, relative to the root of the working tree.
    Below(String),
    /// Anywhere in its own workspace.
    Own,
    /// Anywhere in the working tree.
    Anywhere,
}

impl WriteScope {
    /// Returns the scope that both permit. Two directories of which neither contains the other have
    /// nothing in common.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::Nowhere, _) | (_, Self::Nowhere) => Self::Nowhere,
            (Self::Anywhere, narrower) | (narrower, Self::Anywhere) => narrower.clone(),
            (Self::Own, Self::Own) => Self::Own,
            // An own workspace and the shared tree have nothing in common.
            (Self::Own, Self::Below(_)) | (Self::Below(_), Self::Own) => Self::Nowhere,
            (Self::Below(one), Self::Below(two)) => {
                if Path::new(one).starts_with(two) {
                    self.clone()
                } else if Path::new(two).starts_with(one) {
                    other.clone()
                } else {
                    Self::Nowhere
                }
            }
        }
    }

    /// Says whether nothing may be written.
    #[must_use]
    pub fn is_nowhere(&self) -> bool {
        *self == Self::Nowhere
    }
}

impl fmt::Display for WriteScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nowhere => f.write_str("nowhere"),
            Self::Below(folder) => write!(f, "below {folder}"),
            Self::Own => f.write_str("anywhere in a workspace of its own"),
            Self::Anywhere => f.write_str("anywhere in the working tree"),
        }
    }
}

/// Says whether `folder` is a valid value for `write_below`: relative, not empty, without `.` and
/// `..`.
#[must_use]
pub(crate) fn is_folder(folder: &str) -> bool {
    let path = Path::new(folder);
    let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_));
    // `components` ignores trailing and doubled slashes; the comparison below rejects them.
    let parts: Vec<_> = path.components().collect();
    let rebuilt: std::path::PathBuf = parts.iter().collect();
    !parts.is_empty()
        && parts.into_iter().all(is_plain)
        && rebuilt.as_os_str() == folder
        && !folder.contains('\0')
}

/// A change of one file, as the hashes of its content before and after.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContentChange {
    /// The file, relative to the root of the working tree.
    pub path: String,
    /// The hash before; absent if the file did not exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// The hash after; absent if the file is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// What one call is about to write: one file, or all files of a patch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteIntent {
    /// The first change.
    #[serde(flatten)]
    pub change: ContentChange,
    /// The changes of other files, in the order in which they are written.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<ContentChange>,
}

/// Whether an interrupted write was applied, judged by the file's current content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WriteFinding {
    /// The file has the new content.
    Applied,
    /// The file has the old content.
    NotApplied,
    /// The file has neither content, or could not be read.
    Unknown,
}

impl ContentChange {
    /// Judges whether the change was applied, given the current hash of the file.
    #[must_use]
    pub fn judge(&self, now: Option<&str>) -> WriteFinding {
        // `before` and `after` always differ: a write without effect is never recorded.
        if now == self.after.as_deref() {
            WriteFinding::Applied
        } else if now == self.before.as_deref() {
            WriteFinding::NotApplied
        } else {
            WriteFinding::Unknown
        }
    }

    /// Says what is known about this change after an interruption.
    fn interrupted_text(&self, looked: WriteFinding) -> String {
        let path = &self.path;
        match looked {
            WriteFinding::Applied => {
                format!("Interrupted, but it was done: `{path}` has the content you wanted.")
            }
            WriteFinding::NotApplied => format!(
                "Interrupted before it was done: `{path}` is unchanged, and the call was not repeated. \
                 Make it again if you still want it."
            ),
            WriteFinding::Unknown => format!(
                "Interrupted, outcome unknown: `{path}` is neither as it was nor as you wanted it, and \
                 the call was not repeated. Read it before you write it again."
            ),
        }
    }
}

impl From<ContentChange> for WriteIntent {
    fn from(change: ContentChange) -> Self {
        Self { change, others: Vec::new() }
    }
}

impl WriteIntent {
    /// Makes an intent of several changes; `None` if there are none.
    #[must_use]
    pub fn of(changes: Vec<ContentChange>) -> Option<Self> {
        let mut changes = changes.into_iter();
        let change = changes.next()?;
        Some(Self { change, others: changes.collect() })
    }

    /// Returns all changes, in the order in which they are made.
    pub fn changes(&self) -> impl Iterator<Item = &ContentChange> {
        std::iter::once(&self.change).chain(&self.others)
    }

    /// Returns the tool result that the agent gets for an interrupted write, given what was found for each file.
    #[must_use]
    pub fn interrupted_result(&self, looked: &[WriteFinding]) -> ToolOutput {
        let looked = looked.iter().copied().chain(std::iter::repeat(WriteFinding::Unknown));
        let (mut words, mut touched, mut is_error) = (Vec::new(), Vec::new(), false);
        for (change, found) in self.changes().zip(looked) {
            words.push(change.interrupted_text(found));
            if found == WriteFinding::Applied {
                touched.push(change.path.clone());
            } else {
                is_error = true;
            }
        }
        ToolOutput { content: words.join("\n"), is_error, touched, ..ToolOutput::default() }
    }
}

/// Returns the SHA-256 hash of a file's content in hexadecimal.
#[must_use]
pub fn content_hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_intersection_of_write_scopes_is_the_narrower_one() {
        let below = |folder: &str| WriteScope::Below(folder.to_owned());
        let (none, all) = (WriteScope::Nowhere, WriteScope::Anywhere);
        for (one, two, both) in [
            (&none, &all, &none),
            (&all, &all, &all),
            (&below("a"), &all, &below("a")),
            (&below("a/b"), &below("a"), &below("a/b")),
            (&below("a"), &below("a"), &below("a")),
            (&below("a"), &below("ab"), &none),
            (&below("a"), &none, &none),
        ] {
            assert_eq!(&one.intersection(two), both, "{one} and {two}");
            assert_eq!(&two.intersection(one), both, "{two} and {one}");
        }
    }

    #[test]
    fn a_folder_to_write_below_is_plain_and_relative() {
        for (folder, fits) in [
            (".adjutant/specs", true),
            ("docs", true),
            ("", false),
            (".", false),
            ("./docs", false),
            ("docs/", false),
            ("a//b", false),
            ("a/../b", false),
            ("..", false),
            ("/etc", false),
        ] {
            assert_eq!(is_folder(folder), fits, "{folder:?}");
        }
    }

    #[test]
    fn the_current_content_decides_whether_a_write_was_applied() {
        let change = |before: Option<&str>, after: Option<&str>| ContentChange {
            path: "a".into(),
            before: before.map(str::to_owned),
            after: after.map(str::to_owned),
        };
        for (before, after, now, looked) in [
            (Some("x"), Some("y"), Some("y"), WriteFinding::Applied),
            (Some("x"), Some("y"), Some("x"), WriteFinding::NotApplied),
            (Some("x"), Some("y"), Some("z"), WriteFinding::Unknown),
            (Some("x"), Some("y"), None, WriteFinding::Unknown),
            (None, Some("y"), None, WriteFinding::NotApplied),
            (None, Some("y"), Some("y"), WriteFinding::Applied),
            (Some("x"), None, None, WriteFinding::Applied),
        ] {
            assert_eq!(change(before, after).judge(now), looked, "{before:?} {after:?} {now:?}");
        }
    }
}
