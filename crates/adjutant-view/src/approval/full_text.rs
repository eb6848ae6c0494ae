//! An approval question with everything that it cuts: whole prompts, context files and rights.

use std::fmt::Write;
use std::time::Duration;

use adjutant_core::{ContextFileStatus, Grant};

use super::{ApprovalQuestion, LABEL_COLUMNS};
use crate::layout::bracketed;
use crate::sanitize;
use crate::time_text::elapsed;

impl ApprovalQuestion {
    /// Returns the question and, below it, each task in full. Nothing is cut.
    #[must_use]
    pub fn full_text(&self, columns_wide: usize) -> String {
        let mut text = self.text(columns_wide);
        if let Some(tools) = self.tools_of_commands() {
            // Writing to a string cannot fail.
            let _ = write!(text, "\nCommands see: {}\n", sanitize::collapsed(tools));
        }
        for grant in &self.grants {
            let label = bracketed(grant.brief.label.as_str(), LABEL_COLUMNS);
            let _ = write!(text, "\n{label} in full\n{}", task_in_full(grant));
        }
        text
    }
}

fn state(found: &ContextFileStatus) -> &str {
    match found {
        ContextFileStatus::Loaded => "read",
        ContextFileStatus::Lossy => "read, not UTF-8",
        ContextFileStatus::Missing => "not found",
        ContextFileStatus::Unusable(reason) => reason,
    }
}

fn task_in_full(grant: &Grant) -> String {
    let brief = &grant.brief;
    let model = brief.model.as_ref().map_or("none", |model| model.name.as_str());
    let time = grant.timeout_s.map(|seconds| elapsed(Duration::from_secs(seconds)));
    let files = brief.context.iter().map(|file| format!("{} ({})", file.path, state(&file.found)));
    let files: Vec<String> = files.collect();
    let or_none = |list: String| if list.is_empty() { "none".to_owned() } else { list };
    let network = if grant.rights.network { "yes" } else { "no" };
    let mut text = String::new();
    for (name, value) in [
        ("Session", grant.session.to_string()),
        ("Agent", grant.path.join(" > ")),
        ("Model", model.to_owned()),
        ("Time limit", time.unwrap_or_else(|| "none".to_owned())),
        ("Tools", or_none(grant.rights.usable_tools().to_string())),
        ("Writes", grant.rights.writes.to_string()),
        ("Network", network.to_owned()),
        ("Context files", or_none(files.join(", "))),
    ] {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {name}: {}", sanitize::collapsed(&value));
    }
    text.push_str("  Prompt:\n");
    // Indented, so that no line of it can look like a line of the question.
    for line in sanitize::block(&brief.prompt).lines() {
        let _ = writeln!(text, "    {line}");
    }
    text
}
