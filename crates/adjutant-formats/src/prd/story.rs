//! One story of a PRD and its fields.

use super::fields::{Fields, number};
use super::finding::{Findings, Subject, quoted};
use super::id::{self, Whose};
use super::outcome::{RECORD, is_taken};
use super::planned::{self, Planned};
use super::priority::Priority;
use crate::document::Node;
use crate::excerpt::excerpt;

/// The most characters of a description that serve as the title of a story that has none.
const TITLE_CHARS: usize = 80;

/// A story.
#[derive(Clone, Debug, PartialEq)]
pub struct Story {
    /// Its id; it may stand in the names of branches and files.
    pub id: String,
    /// Its title; the beginning of the description where there is none.
    pub title: String,
    /// What is to be done; may be empty.
    pub description: String,
    /// What must hold when it is done.
    pub acceptance_criteria: Vec<String>,
    /// How much it matters.
    pub priority: Priority,
    /// How much work it may be.
    pub estimated_hours: Option<f64>,
    /// How hard it may be, as it is written.
    pub estimated_complexity: Option<String>,
    /// The model the PRD would like; needs a person's consent.
    pub suggested_model: Option<String>,
    /// The files it is about.
    pub file_scope: Vec<String>,
    /// The stories that must pass before it.
    pub dependencies: Vec<String>,
    /// Whether it is done.
    pub passes: bool,
    /// What else there is to say.
    pub notes: Option<String>,
    /// The command that says whether it is done; needs a person's consent.
    pub verify: Option<String>,
    /// The children that are planned already.
    pub planned: Vec<Planned>,
    /// Where it stands among others, for a child of another story.
    pub context: Option<Context>,
}

/// Where a child story stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Context {
    /// The story it is a part of.
    pub parent_story_id: Option<String>,
    /// Its depth; a story of the PRD has 0.
    pub depth: Option<u64>,
    /// Whether it may delegate.
    pub can_delegate: Option<bool>,
    /// The most children it may have.
    pub max_delegations: Option<u64>,
}

impl Story {
    /// Returns the story it is a part of; such a story is never run by itself.
    #[must_use]
    pub fn parent(&self) -> Option<&str> {
        self.context.as_ref()?.parent_story_id.as_deref()
    }
}

/// Reads the entry at `place`, counted from 0.
pub(super) fn read(text: &str, node: &Node, place: usize, out: &mut Findings<'_>) -> Option<Story> {
    let label = format!("#{}", place + 1);
    let at = node.range.start;
    if !node.is_object() {
        let subject = Subject { story: Some(&label), field: None, at };
        out.fault(subject, "it is not an object");
        return None;
    }
    let nameless = Fields { text, node, story: Some(&label), prefix: "" };
    let Some(id) = nameless.get("id") else {
        nameless.fault("id", "is missing", out);
        return None;
    };
    let Some(id) = id.as_string(text) else {
        nameless.fault("id", "is not a string", out);
        return None;
    };
    let parent = node.member(text, "delegationContext");
    let parent = parent.and_then(|context| context.string(text, "parent_story_id"));
    let whose = if parent.is_some() { Whose::Child } else { Whose::Story };
    if let Some(fault) = id::fault(&id, whose) {
        nameless.fault("id", &format!("{} {fault}", quoted(&id)), out);
        return None;
    }
    let fields = Fields { text, node, story: Some(&id), prefix: "" };
    let story = named(&fields, id.clone(), out);
    // Told before anything is done: what cannot be written down would be done in vain.
    if whose == Whose::Story && !story.passes && is_taken(text, node) {
        let what = "is where the outcome of a story is written, and yours is none of ours; give it another name";
        fields.fault(RECORD, what, out);
    }
    Some(story)
}

fn named(fields: &Fields<'_, '_>, id: String, out: &mut Findings<'_>) -> Story {
    let description = fields.string("description", out).unwrap_or_default();
    let title = title(fields, &description, out);
    Story {
        id,
        title,
        acceptance_criteria: fields.strings("acceptanceCriteria", out),
        priority: priority(fields, out),
        estimated_hours: fields.number("estimatedHours", out),
        estimated_complexity: fields.word("estimatedComplexity", out),
        suggested_model: fields.words("suggestedModel", out),
        file_scope: fields.strings("fileScope", out),
        dependencies: fields.strings("dependencies", out),
        passes: fields.boolean("passes", out).unwrap_or(false),
        notes: fields.words("notes", out),
        verify: fields.words("verify", out),
        planned: planned::read(fields, out),
        context: context(fields, out),
        description,
    }
}

fn title(fields: &Fields<'_, '_>, description: &str, out: &mut Findings<'_>) -> String {
    let has_title = fields.get("title").is_some();
    let title = fields.words("title", out);
    let first = description.lines().map(str::trim).find(|line| !line.is_empty());
    match (title, first) {
        (Some(title), _) => title,
        (None, Some(first)) => excerpt(first, TITLE_CHARS).into_owned(),
        (None, None) => {
            // A title of another type is a fault already.
            if !has_title || fields.node.string(fields.text, "title").is_some() {
                fields.fault("title", "is missing, and there is no description either", out);
            }
            String::new()
        }
    }
}

fn priority(fields: &Fields<'_, '_>, out: &mut Findings<'_>) -> Priority {
    let Some(node) = fields.get("priority") else { return Priority::NONE };
    let raw = node.raw(fields.text);
    if let Some(word) = node.as_string(fields.text) {
        return Priority::word(&word).unwrap_or_else(|| {
            let what = format!(
                "{} is none of critical, high, medium and low, nor a number; the story comes last",
                quoted(&word)
            );
            fields.warning("priority", node.range.start, &what, out);
            Priority::NONE
        });
    }
    let negative = raw.strip_prefix('-').and_then(number).map(|number| -number);
    match number(raw).or(negative) {
        Some(number) => Priority::new(number),
        None => {
            fields.fault("priority", "is not a number or a word", out);
            Priority::NONE
        }
    }
}

fn context(fields: &Fields<'_, '_>, out: &mut Findings<'_>) -> Option<Context> {
    let within = fields.object("delegationContext", "delegationContext.", out)?;
    Some(Context {
        parent_story_id: within.words("parent_story_id", out),
        depth: within.whole("depth", out),
        can_delegate: within.boolean("can_delegate", out),
        max_delegations: within.whole("max_delegations", out),
    })
}
