//! Children that a PRD plans ahead, in `delegationStrategy`.
//!
//! Accepted are `{"subtasks": [...]}` and a plain list; an item is an object with a description, or
//! a text such as `Write the tests:2`. What cannot be understood is a fault: a story without a part of its
//! plan would be paid for and would not be the one that was planned.

use super::fields::{Fields, number};
use super::finding::Findings;
use crate::document::Node;
use crate::marker::MAX_HOURS;

const FIELD: &str = "delegationStrategy";

/// The hours of a subtask that names none.
const DEFAULT_HOURS: u32 = 1;

/// A child that is planned already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// What is to be done.
    pub description: String,
    /// How much work it may be, from 1 to 1,000; fractions are rounded up.
    pub hours: u32,
    /// The command that says whether it is done; needs a person's consent.
    pub verify: Option<String>,
    /// The files it is about.
    pub file_scope: Vec<String>,
}

impl Planned {
    /// Returns what whoever works on it is told: what is to be done, and the files it is about.
    #[must_use]
    pub fn task(&self) -> String {
        let scope = self.file_scope.iter().map(|path| path.trim()).filter(|path| !path.is_empty());
        let scope: Vec<&str> = scope.collect();
        if scope.is_empty() {
            return self.description.clone();
        }
        // On the same line: what a task is called is the beginning of what it is told.
        format!("{} (files: {})", self.description, scope.join(", "))
    }
}

/// Reads the children that a story plans.
pub(super) fn read(fields: &Fields<'_, '_>, out: &mut Findings<'_>) -> Vec<Planned> {
    let Some(node) = fields.get(FIELD) else { return Vec::new() };
    let within = node.member(fields.text, "subtasks").filter(|list| !list.is_null(fields.text));
    let Some(items) = within.unwrap_or(node).items() else {
        let what = "is neither a list nor an object with a list `subtasks`";
        fields.fault_at(FIELD, node.range.start, what, out);
        return Vec::new();
    };
    let mut planned = Vec::new();
    for (nth, item) in items.iter().enumerate() {
        match one(fields.text, item) {
            Ok(child) => planned.push(child),
            Err(why) => {
                let what = format!("number {}: {why}", nth + 1);
                fields.fault_at(FIELD, item.range.start, &what, out);
            }
        }
    }
    planned
}

fn one(text: &str, node: &Node) -> Result<Planned, String> {
    if let Some(marker) = node.as_string(text) {
        return from_marker(&marker);
    }
    if !node.is_object() {
        return Err("it is neither an object nor a text such as `Write the tests:2`".to_owned());
    }
    let get = |field: &str| node.member(text, field).filter(|value| !value.is_null(text));
    let description = node.string(text, "description").unwrap_or_default().trim().to_owned();
    if description.is_empty() {
        return Err("it has no `description`".to_owned());
    }
    // Markers spell it the second way.
    let hours = match get("estimatedHours").or_else(|| get("estimated_hours")) {
        None => DEFAULT_HOURS,
        Some(hours) => number(hours.raw(text)).and_then(whole_hours).ok_or_else(bad_hours)?,
    };
    let verify = match get("verify") {
        None => None,
        Some(verify) => Some(verify.as_string(text).ok_or("its `verify` is not a string")?),
    };
    let file_scope = match get("fileScope") {
        None => Some(Vec::new()),
        Some(scope) => scope.items().and_then(|items| {
            items.iter().map(|item| item.as_string(text)).collect::<Option<Vec<_>>>()
        }),
    };
    let file_scope = file_scope.ok_or("its `fileScope` is not a list of strings")?;
    let verify = verify.filter(|command| !command.trim().is_empty());
    Ok(Planned { description, hours, verify, file_scope })
}

/// Reads `description:hours`, also with the brackets of a marker around it.
fn from_marker(text: &str) -> Result<Planned, String> {
    let text = text.trim();
    let inner = text.strip_prefix("[delegate:").and_then(|inner| inner.strip_suffix(']'));
    let (description, hours) = inner
        .unwrap_or(text)
        .rsplit_once(':')
        .ok_or("it is not of the form `description:hours`")?;
    let (description, hours) = (description.trim().to_owned(), hours.trim());
    let is_plain = !hours.is_empty() && hours.bytes().all(|byte| byte.is_ascii_digit());
    let hours: Option<u32> = hours.parse().ok().filter(|it| is_plain && *it <= MAX_HOURS);
    let hours = hours.map(|hours| hours.max(1));
    match (description.is_empty(), hours) {
        (_, None) => Err(bad_hours()),
        (true, Some(_)) => Err("its description is empty".to_owned()),
        (false, Some(hours)) => {
            Ok(Planned { description, hours, verify: None, file_scope: Vec::new() })
        }
    }
}

fn whole_hours(hours: f64) -> Option<u32> {
    // Less than an hour counts as one.
    let rounded = hours.ceil();
    (hours >= 0.0 && rounded <= f64::from(MAX_HOURS)).then_some((rounded as u32).max(1))
}

fn bad_hours() -> String {
    format!("its hours are not a number from 0 to {MAX_HOURS}")
}
