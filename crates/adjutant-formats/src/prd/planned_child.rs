//! Children that a PRD plans in advance, in `delegationStrategy`.
//!
//! Accepts `{"subtasks": [...]}` and a plain list. An item is an object with a description, or a text such as
//! `Write the tests:2`. Anything else is a fault: running a story with only a part of its plan would cost
//! money for something the user did not plan.

use super::finding::PrdFindings;
use crate::fields::{FieldFault, FieldReader, FieldValue};
use crate::marker::MAX_HOURS;

const FIELD: &str = "delegationStrategy";

/// The hours of a subtask without an estimate.
const DEFAULT_HOURS: u32 = 1;

/// A child that the PRD plans in advance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedChild {
    /// The task.
    pub description: String,
    /// The estimate in hours, from 1 to 1,000; fractions are rounded up.
    pub hours: u32,
    /// The command that verifies the work; needs the user's consent.
    pub verify: Option<String>,
    /// Globs of files that are taken from the base instead of from the work before it runs.
    pub verify_keep: Vec<String>,
    /// The files it concerns.
    pub file_scope: Vec<String>,
}

impl PlannedChild {
    /// Returns the task text for its agent: the description and the files.
    #[must_use]
    pub fn task(&self) -> String {
        let scope = self.file_scope.iter().map(|path| path.trim()).filter(|path| !path.is_empty());
        let scope: Vec<&str> = scope.collect();
        if scope.is_empty() {
            return self.description.clone();
        }
        // On the same line, because the label of a task is the beginning of its text.
        format!("{} (files: {})", self.description, scope.join(", "))
    }
}

/// Reads the planned children of a story.
pub(super) fn read(fields: &FieldReader<'_>, out: &mut PrdFindings<'_>) -> Vec<PlannedChild> {
    let Some(value) = fields.non_null(FIELD) else { return Vec::new() };
    let within = FieldReader::new(value, FIELD).ok().and_then(|within| within.non_null("subtasks"));
    let Ok(items) = within.unwrap_or(value).items() else {
        let what = "is neither a list nor an object with a list `subtasks`";
        out.complain(&fields.fault(FIELD, what));
        return Vec::new();
    };
    let mut planned = Vec::new();
    for (nth, item) in items.into_iter().enumerate() {
        match read_child(item) {
            Ok(child) => planned.push(child),
            Err(why) => {
                let fault = fields.fault(FIELD, format!("number {}: {why}", nth + 1));
                out.complain(&FieldFault { at: item.offset(), ..fault });
            }
        }
    }
    planned
}

fn read_child(value: FieldValue<'_>) -> Result<PlannedChild, String> {
    if let Ok(marker) = value.string() {
        return from_marker(&marker);
    }
    let fields = FieldReader::new(value, "")
        .map_err(|_| "it is neither an object nor a text such as `Write the tests:2`")?;
    let description = fields.get("description").and_then(|value| value.string().ok());
    let description = description.unwrap_or_default().trim().to_owned();
    if description.is_empty() {
        return Err("it has no `description`".to_owned());
    }
    // Markers use the second spelling.
    let hours = fields.non_null("estimatedHours").or_else(|| fields.non_null("estimated_hours"));
    let hours = hours.map_or(Some(DEFAULT_HOURS), |hours| whole_hours(hours.number().ok()?));
    let said = |fault: FieldFault| format!("its {fault}");
    let verify = fields.optional("verify", FieldValue::string).map_err(said)?;
    let verify = verify.filter(|command| !command.trim().is_empty());
    let strings = |name| {
        let read = fields.read_items(name, |item| item.string().map(String::from));
        read.map_err(|faults| {
            let faults: Vec<String> = faults.into_iter().map(said).collect();
            faults.join(", ")
        })
    };
    let (file_scope, verify_keep) = (strings("fileScope")?, strings("verifyKeep")?);
    Ok(PlannedChild {
        description,
        hours: hours.ok_or_else(bad_hours)?,
        verify: verify.map(Into::into),
        verify_keep,
        file_scope,
    })
}

/// Parses `description:hours`, with or without the brackets of a marker.
fn from_marker(text: &str) -> Result<PlannedChild, String> {
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
            let (verify_keep, file_scope) = (Vec::new(), Vec::new());
            Ok(PlannedChild { description, hours, verify: None, verify_keep, file_scope })
        }
    }
}

fn whole_hours(hours: f64) -> Option<u32> {
    // Less than an hour counts as one hour.
    let rounded = hours.ceil();
    (hours >= 0.0 && rounded <= f64::from(MAX_HOURS)).then_some((rounded as u32).max(1))
}

fn bad_hours() -> String {
    format!("its hours are not a number from 0 to {MAX_HOURS}")
}
