//! Patches in the `*** Begin Patch` format, which name files and changed lines but no line numbers.
//!
//! [`parse`] reads a patch, [`apply`] computes the new text of one file. Trailing whitespace of the
//! lines that are looked for does not count; lines that a patch does not change keep their bytes.

use std::ops::Range;

/// The most places of a hunk that are looked for: enough to say that there are several.
const MAX_PLACES: usize = 10;

/// The most files of one patch, because all of them are held until the first is written.
const MAX_FILES: usize = 100;

/// The most hunks that one patch may have, because each is searched for in the whole file.
const MAX_HUNKS: usize = 500;

/// A patch: what happens to each file, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patch {
    /// The files.
    pub files: Vec<FilePatch>,
}

/// What a patch does to one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FilePatch {
    /// Creates it with this content.
    Add {
        /// The file.
        path: String,
        /// All of its text.
        content: String,
    },
    /// Changes lines of it.
    Update {
        /// The file.
        path: String,
        /// The changes, from top to bottom.
        hunks: Vec<Hunk>,
    },
    /// Removes it.
    Delete {
        /// The file.
        path: String,
    },
    /// Renames it, and maybe changes it.
    Move {
        /// The file.
        path: String,
        /// Its new name.
        to: String,
    },
}

/// One changed place in a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hunk {
    /// Lines above the place, each below the one before (`@@ fn main()`).
    anchors: Vec<String>,
    lines: Vec<HunkLine>,
    /// Whether the place is the end of the file.
    is_at_end: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum HunkLine {
    Kept(String),
    Removed(String),
    Added(String),
}

/// A text after a patch, with the changed places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatchedText {
    /// The new text.
    pub text: String,
    /// The line numbers in the old text at which hunks begin, from 1.
    pub lines: Vec<usize>,
}

/// Why a hunk cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HunkProblem {
    /// The number of the hunk, from 1.
    pub hunk: usize,
    /// What is wrong with it.
    pub kind: HunkProblemKind,
}

/// What is wrong with a hunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HunkProblemKind {
    /// The line after `@@` is not in the file, or not below the hunk before.
    NoAnchor(String),
    /// These lines are not in the file, or not below the hunk before.
    NotFound(String),
    /// The lines occur at several places, at these line numbers.
    Ambiguous(Vec<usize>),
    /// It changes nothing.
    Unchanged,
}

impl FilePatch {
    /// Returns the path of the file.
    #[must_use]
    pub fn path(&self) -> &str {
        match self {
            Self::Add { path, .. }
            | Self::Update { path, .. }
            | Self::Delete { path }
            | Self::Move { path, .. } => path,
        }
    }
}

/// Reads a patch.
///
/// # Errors
///
/// If the text is not a patch; the error names the line and the expected form.
pub fn parse(text: &str) -> Result<Patch, String> {
    let mut lines = text.trim().lines().enumerate().peekable();
    if lines.next().is_none_or(|(_, line)| line.trim() != "*** Begin Patch") {
        return Err("a patch begins with the line `*** Begin Patch`".to_owned());
    }
    let (mut files, mut hunks) = (Vec::new(), 0);
    loop {
        let Some((number, line)) = lines.next() else {
            return Err("the patch ends without the line `*** End Patch`".to_owned());
        };
        let line = line.trim_end();
        if line == "*** End Patch" {
            if let Some((number, _)) = lines.find(|(_, line)| !line.trim().is_empty()) {
                return Err(format!(
                    "line {} stands after `*** End Patch`; send one patch in a call and nothing else",
                    number + 1
                ));
            }
            break;
        }
        let mut body = Vec::new();
        let is_header = |line: &str| {
            ["*** Add File:", "*** Update File:", "*** Delete File:", "*** End Patch"]
                .iter()
                .any(|header| line.starts_with(header))
        };
        while let Some((number, line)) = lines.next_if(|(_, line)| !is_header(line)) {
            body.push((number + 1, line));
        }
        let file = read_file(number + 1, line, &body)?;
        if let FilePatch::Update { hunks: more, .. } = &file {
            hunks += more.len();
        }
        files.push(file);
    }
    if files.is_empty() {
        return Err("the patch names no file".to_owned());
    }
    if hunks > MAX_HUNKS {
        return Err(format!("the patch has {hunks} hunks; {MAX_HUNKS} are the most"));
    }
    if files.len() > MAX_FILES {
        return Err(format!("the patch has {} files; {MAX_FILES} are the most", files.len()));
    }
    Ok(Patch { files })
}

fn read_file(number: usize, header: &str, body: &[(usize, &str)]) -> Result<FilePatch, String> {
    let path = |rest: &str| match rest.trim() {
        "" => Err(format!("line {number} of the patch names no file")),
        path => Ok(path.to_owned()),
    };
    if let Some(rest) = header.strip_prefix("*** Add File:") {
        return Ok(FilePatch::Add { path: path(rest)?, content: added(body)? });
    }
    if let Some(rest) = header.strip_prefix("*** Delete File:") {
        return Ok(FilePatch::Delete { path: path(rest)? });
    }
    let Some(rest) = header.strip_prefix("*** Update File:") else {
        return Err(format!(
            "line {number} of the patch must be `*** Update File: PATH`, `*** Add File: PATH` or `*** End Patch`"
        ));
    };
    let path = path(rest)?;
    let moved = body.first().and_then(|(_, line)| line.strip_prefix("*** Move to:"));
    if let Some(to) = moved {
        return Ok(FilePatch::Move { path, to: to.trim().to_owned() });
    }
    Ok(FilePatch::Update { path, hunks: read_hunks(number, body)? })
}

fn added(body: &[(usize, &str)]) -> Result<String, String> {
    let mut content = String::new();
    for (number, line) in body {
        let line = line.strip_prefix('+').ok_or_else(|| {
            format!("line {number} of the patch must begin with `+`, as all lines of an added file")
        })?;
        content.push_str(line);
        content.push('\n');
    }
    Ok(content)
}

fn read_hunks(header: usize, body: &[(usize, &str)]) -> Result<Vec<Hunk>, String> {
    let mut hunks: Vec<Hunk> = Vec::new();
    for (number, line) in body {
        if let Some(anchor) = line.strip_prefix("@@") {
            // A unified diff has line numbers here, which are not used.
            let anchor = anchor.rsplit_once("@@").map_or(anchor, |(_, after)| after).trim();
            if hunks.last().is_none_or(|hunk| !hunk.lines.is_empty()) {
                hunks.push(Hunk::default());
            }
            if let Some(hunk) = hunks.last_mut().filter(|_| !anchor.is_empty()) {
                hunk.anchors.push(anchor.to_owned());
            }
            continue;
        }
        if hunks.is_empty() {
            hunks.push(Hunk::default());
        }
        let Some(hunk) = hunks.last_mut() else { continue };
        if line.trim_end() == "*** End of File" {
            hunk.is_at_end = true;
            continue;
        }
        let mut letters = line.chars();
        hunk.lines.push(match letters.next() {
            None => HunkLine::Kept(String::new()),
            Some(' ') => HunkLine::Kept(letters.as_str().to_owned()),
            Some('-') => HunkLine::Removed(letters.as_str().to_owned()),
            Some('+') => HunkLine::Added(letters.as_str().to_owned()),
            Some(_) => {
                return Err(format!(
                    "line {number} of the patch must begin with a space, `-`, `+` or `@@`"
                ));
            }
        });
    }
    if hunks.is_empty() {
        return Err(format!("line {header} of the patch updates a file without saying how"));
    }
    Ok(hunks)
}

/// Applies the hunks of an update to the text of its file: all of them, or none.
///
/// # Errors
///
/// For the first hunk that does not fit.
pub fn apply(hunks: &[Hunk], text: &str) -> Result<PatchedText, HunkProblem> {
    let file = FileLines::new(text);
    let newline =
        if file.lines.first().is_some_and(|line| line.ends_with('\r')) { "\r" } else { "" };
    let (mut out, mut numbers): (Vec<String>, Vec<usize>) = (Vec::new(), Vec::new());
    let mut done = 0;
    for (index, hunk) in hunks.iter().enumerate() {
        let problem = |kind| HunkProblem { hunk: index + 1, kind };
        let place = file.find(hunk, done).map_err(problem)?;
        out.extend(file.lines[done..place.start].iter().map(|line| (*line).to_owned()));
        let mut at = place.start;
        for line in &hunk.lines {
            match line {
                HunkLine::Kept(_) => {
                    out.push(file.lines[at].to_owned());
                    at += 1;
                }
                HunkLine::Removed(_) => at += 1,
                HunkLine::Added(text) => out.push(format!("{text}{newline}")),
            }
        }
        if !hunk.lines.iter().any(|line| !matches!(line, HunkLine::Kept(_))) {
            return Err(problem(HunkProblemKind::Unchanged));
        }
        numbers.push(place.start + 1);
        done = place.end;
    }
    out.extend(file.lines[done..].iter().map(|line| (*line).to_owned()));
    let mut text = out.join("\n");
    if file.ends_in_newline && !out.is_empty() {
        text.push('\n');
    }
    Ok(PatchedText { text, lines: numbers })
}

/// The lines of a file, prepared for searching.
struct FileLines<'text> {
    lines: Vec<&'text str>,
    ends_in_newline: bool,
    /// The lines without trailing whitespace, each after a line break, and one at the end.
    plain: String,
    /// Where each line begins in `plain`, at its line break.
    starts: Vec<usize>,
}

impl<'text> FileLines<'text> {
    fn new(text: &'text str) -> Self {
        let ends_in_newline = text.is_empty() || text.ends_with('\n');
        let mut lines: Vec<&str> = text.split('\n').collect();
        if ends_in_newline {
            lines.pop();
        }
        let (mut plain, mut starts) = (String::with_capacity(text.len() + 2), Vec::new());
        for line in &lines {
            starts.push(plain.len());
            plain.push('\n');
            plain.push_str(line.trim_end());
        }
        plain.push('\n');
        Self { lines, ends_in_newline, plain, starts }
    }

    /// Returns the lines that a hunk replaces, at or after line `from`.
    fn find(&self, hunk: &Hunk, from: usize) -> Result<Range<usize>, HunkProblemKind> {
        let mut from = from;
        for anchor in &hunk.anchors {
            let is_anchor = |line: &&str| line.trim() == anchor;
            let at = self.lines[from..].iter().position(is_anchor);
            let at = at.or_else(|| {
                self.lines[from..].iter().position(|line| line.trim().starts_with(anchor.as_str()))
            });
            from += 1 + at.ok_or_else(|| HunkProblemKind::NoAnchor(anchor.clone()))?;
        }
        let old: Vec<&str> = hunk.old_lines().collect();
        if old.is_empty() {
            let is_below_anchor = !hunk.anchors.is_empty() && !hunk.is_at_end;
            let at = if is_below_anchor { from } else { self.lines.len() };
            return Ok(at..at);
        }
        let mut wanted = String::new();
        for line in &old {
            wanted.push('\n');
            wanted.push_str(line.trim_end());
        }
        wanted.push('\n');
        // An anchor may itself be the first line of the hunk.
        let starts = if hunk.anchors.is_empty() { from } else { from - 1 };
        let places = if hunk.is_at_end {
            let at = self.lines.len().checked_sub(old.len()).filter(|at| *at >= starts);
            at.filter(|at| self.plain[self.starts[*at]..] == *wanted).into_iter().collect()
        } else {
            self.places(&wanted, starts)
        };
        match places[..] {
            [] => Err(HunkProblemKind::NotFound(old.join("\n"))),
            // Below its anchor the first place is meant.
            [first, ..] if places.len() == 1 || !hunk.anchors.is_empty() => {
                Ok(first..first + old.len())
            }
            _ => Err(HunkProblemKind::Ambiguous(places.iter().map(|at| at + 1).collect())),
        }
    }

    /// Returns the line indexes at or after `from` at which `wanted` stands, [`MAX_PLACES`] at most.
    fn places(&self, wanted: &str, from: usize) -> Vec<usize> {
        let Some(&start) = self.starts.get(from) else { return Vec::new() };
        let (mut places, mut at) = (Vec::new(), start);
        while places.len() < MAX_PLACES
            && let Some(found) = self.plain.get(at..).and_then(|rest| rest.find(wanted))
        {
            if let Ok(index) = self.starts.binary_search(&(at + found)) {
                places.push(index);
            }
            // Places may overlap.
            at += found + 1;
        }
        places
    }
}

impl Hunk {
    fn old_lines(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().filter_map(|line| match line {
            HunkLine::Kept(text) | HunkLine::Removed(text) => Some(text.as_str()),
            HunkLine::Added(_) => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patched(body: &str, text: &str) -> Result<String, String> {
        let patch = parse(&format!("*** Begin Patch\n*** Update File: a\n{body}\n*** End Patch"))?;
        let [FilePatch::Update { hunks, .. }] = &patch.files[..] else {
            return Err("not an update".to_owned());
        };
        apply(hunks, text).map(|it| it.text).map_err(|problem| format!("{problem:?}"))
    }

    #[test]
    fn hunks_change_their_lines_and_nothing_else() {
        for (body, before, after) in [
            ("@@\n a\n-b\n+B\n c", "a\nb\nc\n", "a\nB\nc\n"),
            ("-b\n+B", "a\nb\nc", "a\nB\nc"),
            ("@@\n-b\n+B\n@@\n-d\n+D\n+E", "a\nb\nc\nd\n", "a\nB\nc\nD\nE\n"),
            // Trailing spaces and carriage returns are not compared, and stay.
            ("@@\n a\n-b\n+B", "a  \r\nb\r\nc\r\n", "a  \r\nB\r\nc\r\n"),
            ("@@ fn two\n-x\n+y", "fn one\nx\nfn two\nx\nx\n", "fn one\nx\nfn two\ny\nx\n"),
            (
                "@@ class A\n@@ fn f\n-x\n+y",
                "fn f\nx\nclass A\nfn f\nx\n",
                "fn f\nx\nclass A\nfn f\ny\n",
            ),
            ("@@ fn two\n fn two\n-x\n+y", "fn two\nx\n", "fn two\ny\n"),
            ("@@ -1,2 +1,2 @@\n-a\n+b", "a\n", "b\n"),
            ("@@\n+end", "a\n", "a\nend\n"),
            ("@@ a\n+after", "a\nb\n", "a\nafter\nb\n"),
            ("@@\n+first", "", "first\n"),
            ("@@\n-x\n+y\n*** End of File", "x\nx\n", "x\ny\n"),
            ("@@\n-a\n\n+b", "a\n\n", "\nb\n"),
            ("@@\n-only", "only\n", ""),
        ] {
            assert_eq!(patched(body, before).as_deref(), Ok(after), "{body:?}");
        }
    }

    #[test]
    fn a_hunk_that_does_not_fit_says_why() {
        for (body, text, why) in [
            ("@@\n-x\n+y", "a\n", "NotFound"),
            ("@@\n-x\n+y", "x\nx\n", "Ambiguous([1, 2])"),
            ("@@ fn none\n-x\n+y", "x\n", "NoAnchor"),
            ("@@\n x", "x\n", "Unchanged"),
            ("@@\n-b\n+B\n@@\n-a\n+A", "a\nb\n", "hunk: 2"),
            ("@@\n*a", "a\n", "must begin with a space"),
        ] {
            let told = patched(body, text).unwrap_err();
            assert!(told.contains(why), "{body:?}: {told}");
        }
    }

    #[test]
    fn a_patch_is_read_with_all_its_files() {
        let text = "*** Begin Patch\n*** Add File: n.txt\n+one\n+\n*** Delete File: old\n*** Update File: a\n*** Move to: b\n@@\n-x\n+y\n*** End Patch\n";
        let files = parse(text).unwrap().files;
        assert_eq!(files[0], FilePatch::Add { path: "n.txt".into(), content: "one\n\n".into() });
        assert_eq!(files[1], FilePatch::Delete { path: "old".into() });
        assert_eq!(files[2], FilePatch::Move { path: "a".into(), to: "b".into() });
        assert_eq!(files.iter().map(FilePatch::path).collect::<Vec<_>>(), ["n.txt", "old", "a"]);
        let many = "@@\n-x\n+y\n".repeat(MAX_HUNKS + 1);
        for (text, why) in [
            ("", "begins with"),
            ("--- a\n+++ b\n", "begins with"),
            ("*** Begin Patch\n*** End Patch", "names no file"),
            ("*** Begin Patch\n*** Update File: a\n-x", "without the line `*** End Patch`"),
            ("*** Begin Patch\n*** Update File:\n-x\n*** End Patch", "names no file"),
            ("*** Begin Patch\n*** Update File: a\n*** End Patch", "without saying how"),
            ("*** Begin Patch\nx\n*** End Patch", "must be `*** Update File: PATH`"),
            ("*** Begin Patch\n*** Add File: a\nx\n*** End Patch", "must begin with `+`"),
            (&format!("*** Begin Patch\n*** Update File: a\n{many}*** End Patch"), "501 hunks"),
        ] {
            let told = parse(text).unwrap_err();
            assert!(told.contains(why), "{text:?}: {told}");
        }
    }

    #[test]
    fn a_long_file_of_equal_lines_is_searched_in_one_pass() {
        let text = "\n".repeat(400_000);
        let body = format!("@@\n{}-x\n+y", " \n".repeat(100_000));
        assert!(patched(&body, &text).unwrap_err().contains("NotFound"));
    }
}
