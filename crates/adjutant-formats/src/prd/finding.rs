//! Faults and warnings about a PRD, with their positions.

use std::fmt;

use crate::document::position;
use crate::excerpt::excerpt;
use crate::fields::FieldFault;

/// The maximum number of faults, and of warnings, that are kept.
///
/// A user fixes a few at a time; beyond twenty only the count is reported.
pub(super) const MAX_FINDINGS: usize = 20;

/// The maximum number of characters quoted in a message.
const SHOWN_CHARS: usize = 64;

/// A fault or a warning about a PRD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrdFinding {
    /// The id of the story, or its position such as `#3` if the id itself is invalid.
    pub story: Option<String>,
    /// The field.
    pub field: Option<String>,
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// The problem.
    pub what: String,
}

impl fmt::Display for PrdFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {} column {}: ", self.line, self.column)?;
        if let Some(story) = &self.story {
            write!(f, "story {story}: ")?;
        }
        f.write_str(&self.what)
    }
}

/// The field that a finding is about, within its story.
#[derive(Clone, Copy, Debug)]
pub(super) struct FindingSubject<'a> {
    pub(super) field: Option<&'a str>,
    /// Its byte offset.
    pub(super) at: usize,
}

/// Collects findings while a PRD is read.
#[derive(Debug)]
pub(super) struct PrdFindings<'t> {
    text: &'t str,
    /// The story that the next findings are about.
    story: Option<String>,
    faults: Vec<PrdFinding>,
    more_faults: usize,
    warnings: Vec<PrdFinding>,
}

impl<'t> PrdFindings<'t> {
    pub(super) const fn new(text: &'t str) -> Self {
        Self { text, story: None, faults: Vec::new(), more_faults: 0, warnings: Vec::new() }
    }

    /// Sets the story that the next findings are about.
    pub(super) fn of_story(&mut self, story: &str) {
        self.story = Some(story.to_owned());
    }

    /// Returns the value that was read. A fault is recorded and the value treated as absent, so that several
    /// faults are reported at once.
    pub(super) fn keep<T>(&mut self, read: Result<Option<T>, FieldFault>) -> Option<T> {
        read.unwrap_or_else(|fault| {
            self.complain(&fault);
            None
        })
    }

    /// Records a fault of a field.
    pub(super) fn complain(&mut self, fault: &FieldFault) {
        let subject = FindingSubject { field: Some(&fault.path), at: fault.at };
        self.fault(subject, fault.to_string());
    }

    /// Records a fault, which makes the PRD invalid.
    pub(super) fn fault(&mut self, subject: FindingSubject<'_>, what: impl Into<String>) {
        // Positions are computed only for faults that are kept, so thousands of faults stay cheap.
        if !self.is_full() {
            self.faults.push(self.finding(subject, what.into()));
        } else {
            self.more_faults += 1;
        }
    }

    /// Records a warning.
    pub(super) fn warning(&mut self, subject: FindingSubject<'_>, what: impl Into<String>) {
        if self.warnings.len() < MAX_FINDINGS {
            self.warnings.push(self.finding(subject, what.into()));
        }
    }

    /// Returns the warnings, or the faults and the number of faults that were not kept.
    pub(super) fn end(self) -> Result<Vec<PrdFinding>, (Vec<PrdFinding>, usize)> {
        if self.faults.is_empty() {
            Ok(self.warnings)
        } else {
            Err((self.faults, self.more_faults))
        }
    }

    /// Returns whether further faults are only counted.
    pub(super) const fn is_full(&self) -> bool {
        self.faults.len() >= MAX_FINDINGS
    }

    /// Returns the line of a byte offset, from 1.
    pub(super) fn line(&self, at: usize) -> usize {
        position(self.text, at).0
    }

    fn finding(&self, subject: FindingSubject<'_>, what: String) -> PrdFinding {
        let (line, column) = position(self.text, subject.at);
        let (story, field) = (self.story.clone(), subject.field.map(str::to_owned));
        PrdFinding { story, field, line, column, what }
    }
}

/// Quotes text for a message: shortened, on one line, without control characters.
pub(super) fn quoted(text: &str) -> String {
    let shown: String = excerpt(text, SHOWN_CHARS).chars().flat_map(shown).collect();
    format!("`{shown}`")
}

fn shown(letter: char) -> impl Iterator<Item = char> {
    let (plain, escaped) = if letter.is_control() {
        (None, Some(letter.escape_default()))
    } else {
        (Some(letter), None)
    };
    plain.into_iter().chain(escaped.into_iter().flatten())
}
