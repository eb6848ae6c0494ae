//! Writing to files: where it is permitted, and what is known of a write before it happens.
//!
//! A write is recorded twice: as an intent with the hashes of the file before and after, and as a
//! result. Where the second record is missing, the file itself says which of the two it is.

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

/// Says whether calls of the tool are made one after the other, in the order they were asked for: a
/// command must see the edit before it, and no two may change the same file at once.
pub(crate) fn is_in_turn(tool: &str) -> bool {
    is_write(tool) || tool == RUN
}

/// Says whether calls of the tool look at files: they are made at once, but never before a change that was asked
/// for ahead of them in the same answer.
pub(crate) fn is_look(tool: &str) -> bool {
    ["Read", "Grep", "Glob"].contains(&tool)
}

/// Says whether calls of the tool change files.
pub(crate) fn is_write(tool: &str) -> bool {
    tool == WRITE || tool == EDIT
}

/// Where files may be written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WriteScope {
    /// Nowhere.
    #[default]
    Nowhere,
    /// Below this folder, relative to the root of the working tree.
    Below(String),
    /// Anywhere in a workspace of its own.
    Own,
    /// Anywhere in the working tree.
    Anywhere,
}

impl WriteScope {
    /// Returns what both sides permit. Two folders that do not lie in each other have nothing in
    /// common.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::Nowhere, _) | (_, Self::Nowhere) => Self::Nowhere,
            (Self::Anywhere, narrower) | (narrower, Self::Anywhere) => narrower.clone(),
            (Self::Own, Self::Own) => Self::Own,
            // Two different trees have nothing in common.
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

/// Says whether `folder` can be one to write below: relative, without `.` and `..`, not empty.
#[must_use]
pub(crate) fn is_folder(folder: &str) -> bool {
    let path = Path::new(folder);
    let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_));
    // Comparing the parts drops a slash at the end and doubled ones; those are told to go.
    let parts: Vec<_> = path.components().collect();
    let rebuilt: std::path::PathBuf = parts.iter().collect();
    !parts.is_empty()
        && parts.into_iter().all(is_plain)
        && rebuilt.as_os_str() == folder
        && !folder.contains('\0')
}

/// One change of one file: what it was, and what it becomes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContentChange {
    /// The file, relative to the root of the working tree.
    pub path: String,
    /// The hash of its content before; absent where there was no file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// The hash of its content after; absent where the file is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// What a file looks like beside a change that was intended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteFinding {
    /// As it was to become: the change happened.
    Applied,
    /// As it was: the change did not happen.
    NotApplied,
    /// Neither, or nobody can tell.
    Unknown,
}

impl ContentChange {
    /// Decides whether the change happened, given the hash of what is there now.
    #[must_use]
    pub fn look(&self, now: Option<&str>) -> WriteFinding {
        // A change that changes nothing is never recorded, so the two cannot both fit.
        if now == self.after.as_deref() {
            WriteFinding::Applied
        } else if now == self.before.as_deref() {
            WriteFinding::NotApplied
        } else {
            WriteFinding::Unknown
        }
    }

    /// Returns what the agent is told that wanted the change, and never heard what came of it.
    #[must_use]
    pub(crate) fn told(&self, looked: WriteFinding) -> ToolOutput {
        let path = &self.path;
        let words = match looked {
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
        };
        let happened = looked == WriteFinding::Applied;
        let touched = if happened { vec![path.clone()] } else { Vec::new() };
        ToolOutput { content: words, is_error: !happened, touched, ..ToolOutput::default() }
    }
}

/// Returns the hash a file's content is known by: SHA-256 in hexadecimal digits.
#[must_use]
pub fn content_hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_sides_permit_is_the_lesser_of_both() {
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
    fn looking_decides() {
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
            assert_eq!(change(before, after).look(now), looked, "{before:?} {after:?} {now:?}");
        }
    }
}
