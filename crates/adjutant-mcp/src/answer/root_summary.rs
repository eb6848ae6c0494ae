//! What the agent at the root of a run came to: that of a slash command, or of a story.

use std::path::Path;

use adjutant_engine::work::Work;
use adjutant_view::results::{command_end, command_head, ends, root_end, synthesis};
use adjutant_view::sanitize;
use adjutant_view::story::{StoryReport, render};
use serde_json::{Value, json};

use crate::ServerSetup;
use crate::runs::RunSnapshot;

/// What there is to say of it; nothing of a run that has no agent at its root.
#[derive(Debug, Default)]
pub(crate) struct RootSummary {
    /// In words, before what it handed down.
    pub(crate) text: String,
    synthesis: Option<String>,
    story: Option<Value>,
}

impl RootSummary {
    /// Looks at the root of a run.
    pub(crate) fn of(seen: &RunSnapshot, setup: &ServerSetup) -> Self {
        let view = &seen.view;
        if view.root().is_none_or(|root| root.model.is_none()) {
            return Self::default();
        }
        if view.story().is_some() {
            return Self::of_story(seen, setup);
        }
        let said = synthesis(view);
        let parts = if seen.is_over() {
            let said = Some(sanitize::block(&said).into_owned()).filter(|said| !said.is_empty());
            let end = root_end(view).map(|text| text.trim_end().to_owned());
            let came = command_end(view, &setup.program_name);
            command_head(view).into_iter().chain(said).chain(end).chain(came).collect()
        } else {
            Vec::new()
        };
        let text = if parts.is_empty() { String::new() } else { parts.join("\n\n") + "\n\n" };
        Self { text, synthesis: Some(said.into_owned()), story: None }
    }

    fn of_story(seen: &RunSnapshot, setup: &ServerSetup) -> Self {
        let Some(report) = StoryReport::of(&seen.view) else { return Self::default() };
        let branch = branch_of(seen, &report, setup);
        let mut data = json!(report);
        data["branch"] = json!(branch);
        let mut text = String::new();
        if seen.is_over() {
            text = format!("{}\n", render(std::slice::from_ref(&report)));
            if let Some(branch) = &branch {
                text += &format!("Its work is on the branch {}.\n", sanitize::line(branch));
            }
        }
        let wishes = missing_consents(seen, setup);
        if !wishes.is_empty() {
            text += "Its PRD asks for what only a person can allow, and nobody has; they look at it and agree \
                     with `adjutant story` in a terminal:\n";
            text.extend(wishes.iter().map(|wish| format!("  {}\n", sanitize::line(wish))));
        }
        data["unallowed_wishes"] = json!(wishes);
        Self { text, synthesis: None, story: Some(data) }
    }

    /// Returns the bytes of what was said.
    pub(crate) fn len(&self) -> usize {
        self.text.len().max(self.synthesis.as_ref().map_or(0, String::len))
    }

    /// Adds it to what an answer holds as data, each text in at most so many bytes.
    pub(crate) fn add_to(&self, data: &mut Value, room: usize) {
        if let Some(synthesis) = &self.synthesis {
            data["synthesis"] = json!(ends(synthesis, room));
        }
        if let Some(story) = &self.story {
            let mut story = story.clone();
            if story.to_string().len() > room {
                // What is sure stays; lists are in the whole result.
                for list in ["files", "children", "unread_markers"] {
                    story[list] = json!([]);
                }
            }
            data["story"] = story;
        }
    }
}

/// Returns the branch that was made of a story's work, where there is one.
fn branch_of(seen: &RunSnapshot, report: &StoryReport, setup: &ServerSetup) -> Option<String> {
    let commit = report.commit.as_deref()?;
    let tree = Path::new(seen.view.workdir());
    let work = Work::open(&setup.search, tree, setup.archive.path()).ok()?;
    let mut kept = work.results(seen.files.id()).ok()?;
    let kept = kept.iter_mut().find(|kept| kept.commit == commit)?;
    work.name_branch(kept, &report.id);
    work.has_branch(kept).then(|| kept.branch.clone())
}

/// Returns what the PRD of a run asks for that no person has agreed to.
fn missing_consents(seen: &RunSnapshot, setup: &ServerSetup) -> Vec<String> {
    let path = seen.view.story().and_then(|story| story.prd.as_deref()).map(Path::new);
    path.map(|path| setup.archive.registry().lacking_consents(path)).unwrap_or_default()
}
