//! The outcome of a run's root agent, which works on a slash command or a story.

use std::path::Path;

use adjutant_engine::results::KeptResults;
use adjutant_view::results::{command_end, command_head, root_end, start_and_end, synthesis};
use adjutant_view::sanitize;
use adjutant_view::story::{StoryReport, render};
use serde_json::{Value, json};

use crate::ServerSetup;
use crate::runs::RunSnapshot;

/// The outcome of the root agent; empty for a run without one.
#[derive(Debug, Default)]
pub(crate) struct RootSummary {
    /// The text shown before the results of the delegations.
    pub(crate) text: String,
    synthesis: Option<String>,
    story: Option<Value>,
}

impl RootSummary {
    /// Summarizes the root agent of a run.
    pub(crate) fn of(snapshot: &RunSnapshot, setup: &ServerSetup) -> Self {
        let view = &snapshot.view;
        if view.root().is_none_or(|root| root.model.is_none()) {
            return Self::default();
        }
        if view.story().is_some() {
            return Self::of_story(snapshot, setup);
        }
        let said = synthesis(view);
        let parts = if snapshot.is_over() {
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

    fn of_story(snapshot: &RunSnapshot, setup: &ServerSetup) -> Self {
        let Some(report) = StoryReport::of(&snapshot.view) else { return Self::default() };
        let branch = branch_of(snapshot, &report, setup);
        let mut data = json!(report);
        data["branch"] = json!(branch);
        let mut text = String::new();
        if snapshot.is_over() {
            text = format!("{}\n", render(std::slice::from_ref(&report)));
            if let Some(branch) = &branch {
                text += &format!("Its work is on branch {}.\n", sanitize::line(branch));
            }
        }
        let wishes = missing_consents(snapshot, setup);
        if !wishes.is_empty() {
            text += "Its PRD requests what only a person can allow, and no one has yet. A person can \
                review and allow it with `adjutant story` in a terminal:\n";
            text.extend(wishes.iter().map(|wish| format!("  {}\n", sanitize::line(wish))));
        }
        data["unallowed_wishes"] = json!(wishes);
        Self { text, synthesis: None, story: Some(data) }
    }

    /// Returns the length of the longest text.
    pub(crate) fn len(&self) -> usize {
        self.text.len().max(self.synthesis.as_ref().map_or(0, String::len))
    }

    /// Adds the summary to an answer's data, each text cut to `room` bytes.
    pub(crate) fn add_to(&self, data: &mut Value, room: usize) {
        if let Some(synthesis) = &self.synthesis {
            data["synthesis"] = json!(start_and_end(synthesis, room));
        }
        if let Some(story) = &self.story {
            let mut story = story.clone();
            if story.to_string().len() > room {
                // The scalar fields stay. The lists are in the complete result.
                for list in ["files", "children", "unread_markers"] {
                    story[list] = json!([]);
                }
            }
            data["story"] = story;
        }
    }
}

/// Returns the branch that holds the story's work, if there is one.
fn branch_of(snapshot: &RunSnapshot, report: &StoryReport, setup: &ServerSetup) -> Option<String> {
    let commit = report.commit.as_deref()?;
    let tree = Path::new(snapshot.view.workdir());
    let work = KeptResults::open(&setup.search, tree, setup.archive.path()).ok()?;
    let mut kept = work.results(snapshot.files.id()).ok()?;
    let kept = kept.iter_mut().find(|kept| kept.commit == commit)?;
    work.name_branch(kept, &report.id);
    work.has_branch(kept).then(|| kept.branch.clone())
}

/// Returns what the run's PRD requests that no person has agreed to.
fn missing_consents(snapshot: &RunSnapshot, setup: &ServerSetup) -> Vec<String> {
    let path = snapshot.view.story().and_then(|story| story.prd.as_deref()).map(Path::new);
    path.map(|path| setup.archive.registry().lacking_consents(path)).unwrap_or_default()
}
