//! Validates the `artifacts` of a return: the fields of each entry, its path, and whether the file exists.

use std::collections::BTreeSet;

use super::return_data::{Artifact, ArtifactKind, WireWord};
use super::validate::optional_words;
use super::verdict::{ReturnFindings, SHOWN_CHARS, format_value};
use crate::code::ErrorCode;
use crate::excerpt::excerpt;
use serde::{Deserialize, Serialize};

use crate::fields::{FieldReader, FieldValue};

/// What the caller found on disk at the path of an artifact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ArtifactFileState {
    /// The path does not exist.
    Missing,
    /// The path is an empty file.
    Empty,
    /// The path exists but is not a regular file.
    NotAFile,
    /// The path leaves the root, for example through a symbolic link.
    Outside,
    /// The path is a non-empty file that git ignores, so it would be missing from the result commit.
    Ignored,
    /// The path is a non-empty regular file.
    Present,
    /// The caller did not look at the disk.
    Unchecked,
}

/// The message for a file that git ignores: the problem and what the agent can do about it.
const IGNORED: &str = "is ignored by git, so your result will not have it (write it to a path that no .gitignore \
                       matches, or do not name it as an artifact if nobody needs it)";

/// Returns [`ArtifactFileState::Unchecked`], for callers without access to the files.
#[must_use]
pub const fn unchecked(_path: &str) -> ArtifactFileState {
    ArtifactFileState::Unchecked
}

/// Reads and validates the field `artifacts`.
pub(super) fn judge(
    fields: &FieldReader<'_>,
    facts: &dyn Fn(&str) -> ArtifactFileState,
    findings: &mut ReturnFindings,
) -> Option<Vec<Artifact>> {
    let list = findings.keep(fields.read("artifacts", FieldValue::items))??;
    let artifact = |(nth, value)| {
        let fields = findings.keep(fields.item("artifacts", nth, value))?;
        read_artifact(&fields, facts, findings)
    };
    let artifacts: Vec<Option<Artifact>> = list.into_iter().enumerate().map(artifact).collect();
    let artifacts: Option<Vec<Artifact>> = artifacts.into_iter().collect();
    if let Some(artifacts) = &artifacts {
        warn_duplicates(artifacts, findings);
    }
    artifacts
}

fn read_artifact(
    fields: &FieldReader<'_>,
    facts: &dyn Fn(&str) -> ArtifactFileState,
    findings: &mut ReturnFindings,
) -> Option<Artifact> {
    let kind = read_kind(fields, findings);
    let path = findings.keep(fields.require("path", FieldValue::non_blank_string));
    if let Some(path) = &path {
        judge_path(&fields.path("path"), path, facts, findings);
    }
    let summary = optional_words(fields, "summary", findings);
    findings.warn_unknown(fields, &["type", "path", "summary"]);
    Some(Artifact { kind: kind?, path: path?.into_owned(), summary })
}

fn read_kind(fields: &FieldReader<'_>, findings: &mut ReturnFindings) -> Option<ArtifactKind> {
    let value = findings.keep(fields.require("type", Ok))?;
    let kind = value.string().ok().and_then(|word| ArtifactKind::from_word(&word));
    if kind.is_none() {
        let message = format!("Invalid artifact type: {}", format_value(value));
        findings.error(fields.path("type"), message);
    }
    kind
}

fn judge_path(
    field: &str,
    path: &str,
    facts: &dyn Fn(&str) -> ArtifactFileState,
    findings: &mut ReturnFindings,
) {
    let shown = excerpt(path, SHOWN_CHARS);
    if let Some(problem) = path_problem(path) {
        findings.error(field, format!("Artifact path {problem}: {shown}"));
        return;
    }
    let (code, problem) = match facts(path) {
        ArtifactFileState::Present | ArtifactFileState::Unchecked => return,
        ArtifactFileState::Missing => (ErrorCode::FileNotFound, "does not exist"),
        ArtifactFileState::Empty => (ErrorCode::ValidationFailed, "is empty"),
        ArtifactFileState::NotAFile => (ErrorCode::ValidationFailed, "is not a file"),
        ArtifactFileState::Outside => (ErrorCode::ValidationFailed, "leads out of the root"),
        ArtifactFileState::Ignored => (ErrorCode::ValidationFailed, IGNORED),
    };
    findings.error_with(code, field, format!("Artifact {problem}: {shown}"));
}

/// Returns what is wrong with the text of a path, without looking at the disk.
fn path_problem(path: &str) -> Option<&'static str> {
    let has_drive = matches!(path.as_bytes(),
        [letter, b':', b'/' | b'\\', ..] if letter.is_ascii_alphabetic());
    if path.contains('\0') {
        Some("contains a NUL byte")
    } else if path.starts_with(['/', '\\']) || path.starts_with("~/") || has_drive {
        Some("must be relative")
    } else {
        match depth_below_root(path) {
            None => Some("leads out of the root"),
            Some(0) => Some("names no file"),
            Some(_) => None,
        }
    }
}

/// Returns how many levels below the root a path ends, or `None` if it leaves the root on the way.
fn depth_below_root(path: &str) -> Option<usize> {
    path.split('/').try_fold(0_usize, |level, part| match part {
        "" | "." => Some(level),
        ".." => level.checked_sub(1),
        _ => Some(level + 1),
    })
}

fn warn_duplicates(artifacts: &[Artifact], findings: &mut ReturnFindings) {
    let mut seen = BTreeSet::new();
    for (nth, artifact) in artifacts.iter().enumerate() {
        if !seen.insert(artifact.path.as_str()) {
            let message = format!("Artifact is listed twice: {}", artifact.path);
            findings.warn(format!("artifacts[{nth}].path"), message);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn check(artifacts: Value, facts: &dyn Fn(&str) -> ArtifactFileState) -> String {
        let object = json!({ "artifacts": artifacts });
        let mut findings = ReturnFindings::default();
        let read = judge(&FieldReader::new((&object).into(), "").unwrap(), facts, &mut findings);
        let mut lines = findings.lines();
        lines.extend(read.map(|read| format!("read {}", read.len())));
        lines.join("\n")
    }

    #[test]
    fn requirement_28_every_kind_is_read_with_and_without_a_summary() {
        for kind in ArtifactKind::ALL {
            let with = json!([{"type": kind, "path": "a/b.md", "summary": "What it says."}]);
            assert_eq!(check(with, &unchecked), "read 1");
            let without = json!([{"type": kind, "path": "./b.md", "summary": null}]);
            assert_eq!(check(without, &unchecked), "read 1");
        }
        assert_eq!(check(json!([]), &unchecked), "read 0");
    }

    #[test]
    fn every_fault_of_every_artifact_is_named() {
        let artifacts = json!([
            {"type": "Plan", "path": "a.md"},
            {"path": 7, "extra": 1},
            "a.md",
            {"type": "plan", "path": " "},
            {"type": null, "path": "b.md", "summary": 1},
        ]);
        insta::assert_snapshot!(check(artifacts, &unchecked), @r"
        error artifacts[0].type: Invalid artifact type: Plan
        error artifacts[1].type: Missing required field: artifacts[1].type
        error artifacts[1].path: artifacts[1].path must be a string, not a number
        error artifacts[2]: artifacts[2] must be an object, not a string
        error artifacts[3].path: artifacts[3].path cannot be empty
        error artifacts[4].type: Invalid artifact type: null
        error artifacts[4].summary: artifacts[4].summary must be a string, not a number
        warn artifacts[1].extra: Unknown field is ignored: artifacts[1].extra
        ");
        assert_eq!(
            check(json!({}), &unchecked),
            "error artifacts: artifacts must be an array, not an object"
        );
    }

    #[test]
    fn a_path_stays_below_the_root() {
        for (path, expected) in [
            ("a.md", None),
            ("a/b/c.md", None),
            ("./a.md", None),
            ("a/../b.md", None),
            (".opencode/specs/1_x/plan.md", None),
            ("..a/b..", None),
            ("a:b.md", None),
            ("/etc/passwd", Some("must be relative")),
            ("~/notes.md", Some("must be relative")),
            ("C:\\x.md", Some("must be relative")),
            ("\\\\host\\x", Some("must be relative")),
            ("../x.md", Some("leads out of the root")),
            ("a/../../x.md", Some("leads out of the root")),
            ("a/../../a/x.md", Some("leads out of the root")),
            (".", Some("names no file")),
            ("a/..", Some("names no file")),
            ("a\0.md", Some("contains a NUL byte")),
        ] {
            assert_eq!(path_problem(path), expected, "{path}");
        }
    }

    #[test]
    fn requirement_35_an_artifact_exists_and_is_not_empty() {
        let facts = |path: &str| match path {
            "gone.md" => ArtifactFileState::Missing,
            "blank.md" => ArtifactFileState::Empty,
            "folder" => ArtifactFileState::NotAFile,
            "link.md" => ArtifactFileState::Outside,
            "build/x.py" => ArtifactFileState::Ignored,
            _ => ArtifactFileState::Present,
        };
        let paths =
            ["gone.md", "blank.md", "folder", "link.md", "there.md", "/etc/passwd", "build/x.py"];
        let artifacts: Vec<Value> =
            paths.iter().map(|path| json!({"type": "plan", "path": path})).collect();
        insta::assert_snapshot!(check(artifacts.into(), &facts), @r"
        error artifacts[0].path: Artifact does not exist: gone.md
        error artifacts[1].path: Artifact is empty: blank.md
        error artifacts[2].path: Artifact is not a file: folder
        error artifacts[3].path: Artifact leads out of the root: link.md
        error artifacts[5].path: Artifact path must be relative: /etc/passwd
        error artifacts[6].path: Artifact is ignored by git, so your result will not have it (write it to a path that no .gitignore matches, or do not name it as an artifact if nobody needs it): build/x.py
        read 7
        ");
    }

    #[test]
    fn the_disk_is_not_asked_about_a_path_that_leaves_the_root() {
        let facts = |path: &str| panic!("asked about {path}");
        check(json!([{"type": "plan", "path": "../../etc/passwd"}]), &facts);
    }

    #[test]
    fn a_file_listed_twice_is_a_warning() {
        let twin = json!({"type": "plan", "path": "a.md"});
        insta::assert_snapshot!(check(json!([twin, twin]), &unchecked), @r"
        warn artifacts[1].path: Artifact is listed twice: a.md
        read 2
        ");
    }

    proptest! {
        #[test]
        fn an_accepted_path_never_climbs_above_the_root(
            parts in prop::collection::vec("\\.\\.|\\.|[a-c]|", 0..8),
        ) {
            let path = parts.join("/");
            if path_problem(&path).is_none() {
                let mut depth = 0_i32;
                for part in &parts {
                    depth += match part.as_str() { ".." => -1, "" | "." => 0, _ => 1 };
                    prop_assert!(depth >= 0);
                }
            }
        }
    }
}
