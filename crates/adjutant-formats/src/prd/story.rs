//! A story of a PRD (product requirements document) and its fields.
//!
//! A story that another one delegated is a child story; its [`ChildStoryContext`] names the parent and the limits.

use super::finding::{FindingSubject, PrdFindings, quoted};
use super::outcome::{RECORD, is_taken};
use super::planned_child::{self, PlannedChild};
use super::priority::StoryPriority;
use super::story_id::{self, StoryIdKind};
use crate::document::DocumentNode;
use crate::excerpt::excerpt;
use crate::fields::{FieldContent, FieldProblem, FieldReader, FieldValue};

/// The maximum number of characters of a description that become the title of a story without one.
const TITLE_CHARS: usize = 80;

/// A user story of a PRD.
#[derive(Clone, Debug, PartialEq)]
pub struct Story {
    /// Its id; valid in branch and file names.
    pub id: String,
    /// Its title, or the beginning of the description.
    pub title: String,
    /// The task; may be empty.
    pub description: String,
    /// The criteria that must hold when it is done.
    pub acceptance_criteria: Vec<String>,
    /// Its priority.
    pub priority: StoryPriority,
    /// The estimate in hours.
    pub estimated_hours: Option<f64>,
    /// The estimated complexity, as written.
    pub estimated_complexity: Option<String>,
    /// The model that the PRD requests; needs the user's consent.
    pub suggested_model: Option<String>,
    /// The files it concerns.
    pub file_scope: Vec<String>,
    /// The ids of the stories that must pass first.
    pub dependencies: Vec<String>,
    /// Whether it passes.
    pub passes: bool,
    /// Additional notes.
    pub notes: Option<String>,
    /// The command that verifies the work; needs the user's consent.
    pub verify: Option<String>,
    /// Globs of files that are taken from the base instead of from the work before it runs.
    pub verify_keep: Vec<String>,
    /// The children that the PRD plans in advance.
    pub planned: Vec<PlannedChild>,
    /// For a child of another story: its parent and its limits.
    pub context: Option<ChildStoryContext>,
}

/// The `delegationContext` of a child story: the parent that delegated it, and its limits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChildStoryContext {
    /// The id of its parent.
    pub parent_story_id: Option<String>,
    /// Its depth; a story of the PRD has depth 0.
    pub depth: Option<u64>,
    /// Whether it may delegate.
    pub can_delegate: Option<bool>,
    /// The maximum number of its own children.
    pub max_delegations: Option<u64>,
}

impl Story {
    /// Returns the id of its parent; a story with a parent is never run on its own.
    #[must_use]
    pub fn parent(&self) -> Option<&str> {
        self.context.as_ref()?.parent_story_id.as_deref()
    }
}

/// Reads the entry with index `place`.
pub(super) fn read(
    text: &str,
    node: &DocumentNode,
    place: usize,
    out: &mut PrdFindings<'_>,
) -> Option<Story> {
    out.of_story(&format!("#{}", place + 1));
    let Ok(fields) = FieldReader::new(FieldValue::Text(node, text), "") else {
        out.fault(FindingSubject { field: None, at: node.range.start }, "it is not an object");
        return None;
    };
    let id = out.keep(fields.require("id", FieldValue::string).map(Some))?.into_owned();
    let parent = node.member(text, "delegationContext");
    let parent = parent.and_then(|context| context.string(text, "parent_story_id"));
    let whose = if parent.is_some() { StoryIdKind::Child } else { StoryIdKind::Story };
    if let Some(fault) = story_id::fault(&id, whose) {
        out.complain(&fields.fault("id", format!("{} {fault}", quoted(&id))));
        return None;
    }
    out.of_story(&id);
    let story = read_story(&fields, id, out);
    // Reported before any work starts: work whose outcome cannot be recorded would be wasted.
    if whose == StoryIdKind::Story && !story.passes && is_taken(text, node) {
        let what =
            "is the field in which adjutant writes the outcome of a story; rename your own field";
        out.complain(&fields.fault(RECORD, what));
    }
    Some(story)
}

fn read_story(fields: &FieldReader<'_>, id: String, out: &mut PrdFindings<'_>) -> Story {
    let description = string(fields, "description", out).unwrap_or_default();
    let title = title(fields, &description, out);
    Story {
        id,
        title,
        acceptance_criteria: strings(fields, "acceptanceCriteria", out),
        priority: priority(fields, out),
        estimated_hours: out.keep(fields.optional("estimatedHours", FieldValue::number)),
        estimated_complexity: out.keep(fields.optional("estimatedComplexity", word_or_number)),
        suggested_model: words(fields, "suggestedModel", out),
        file_scope: strings(fields, "fileScope", out),
        dependencies: strings(fields, "dependencies", out),
        passes: out.keep(fields.optional("passes", FieldValue::boolean)).unwrap_or(false),
        notes: words(fields, "notes", out),
        verify: words(fields, "verify", out),
        verify_keep: strings(fields, "verifyKeep", out),
        planned: planned_child::read(fields, out),
        context: context(fields, out),
        description,
    }
}

fn string(fields: &FieldReader<'_>, name: &str, out: &mut PrdFindings<'_>) -> Option<String> {
    out.keep(fields.optional(name, FieldValue::string)).map(Into::into)
}

/// Reads a string; a blank one counts as absent.
fn words(fields: &FieldReader<'_>, name: &str, out: &mut PrdFindings<'_>) -> Option<String> {
    string(fields, name, out).filter(|text| !text.trim().is_empty())
}

fn strings(fields: &FieldReader<'_>, name: &str, out: &mut PrdFindings<'_>) -> Vec<String> {
    let read = fields.read_items(name, |item| item.string().map(String::from));
    read.unwrap_or_else(|faults| {
        faults.iter().for_each(|fault| out.complain(fault));
        Vec::new()
    })
}

/// Reads a word, or a number as text.
fn word_or_number(value: FieldValue<'_>) -> Result<String, FieldProblem> {
    match (value.string(), value) {
        (Ok(word), _) => Ok(word.into_owned()),
        (Err(_), FieldValue::Text(node, text)) if value.number().is_ok() => {
            Ok(node.raw(text).to_owned())
        }
        (Err(_), _) => Err(value.mismatch("a word or a number")),
    }
}

fn title(fields: &FieldReader<'_>, description: &str, out: &mut PrdFindings<'_>) -> String {
    // A title of the wrong type has been reported already.
    let is_sound = fields.non_null("title").is_none_or(|title| title.string().is_ok());
    let title = words(fields, "title", out);
    let first = description.lines().map(str::trim).find(|line| !line.is_empty());
    match (title, first) {
        (Some(title), _) => title,
        (None, Some(first)) => excerpt(first, TITLE_CHARS).into_owned(),
        (None, None) => {
            if is_sound {
                let what = "is missing, and there is no description either";
                out.complain(&fields.fault("title", what));
            }
            String::new()
        }
    }
}

fn priority(fields: &FieldReader<'_>, out: &mut PrdFindings<'_>) -> StoryPriority {
    let Some(value) = fields.non_null("priority") else { return StoryPriority::NONE };
    if let FieldContent::Number(number) = value.content() {
        return number.as_f64().map_or(StoryPriority::NONE, StoryPriority::new);
    }
    let Ok(word) = value.string() else {
        out.complain(&fields.fault("priority", value.mismatch("a number or a word")));
        return StoryPriority::NONE;
    };
    StoryPriority::word(&word).unwrap_or_else(|| {
        let what = format!(
            "`priority` {} is not critical, high, medium, low or a number; the story comes last",
            quoted(&word)
        );
        out.warning(FindingSubject { field: Some("priority"), at: value.offset() }, what);
        StoryPriority::NONE
    })
}

fn context(fields: &FieldReader<'_>, out: &mut PrdFindings<'_>) -> Option<ChildStoryContext> {
    let name = "delegationContext";
    let within = out.keep(fields.optional(name, |value| FieldReader::new(value, name)))?;
    Some(ChildStoryContext {
        parent_story_id: words(&within, "parent_story_id", out),
        depth: out.keep(within.optional("depth", FieldValue::any_integer)),
        can_delegate: out.keep(within.optional("can_delegate", FieldValue::boolean)),
        max_delegations: out.keep(within.optional("max_delegations", FieldValue::any_integer)),
    })
}
