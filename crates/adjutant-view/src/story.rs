//! What came of the stories of a PRD.

use adjutant_core::Outcome;
use serde::Serialize;

use crate::run::RunView;

/// What came of one story.
#[derive(Clone, Debug, Serialize)]
pub struct StoryReport {
    /// Its id.
    pub id: String,
    /// How it ended.
    pub outcome: Option<Outcome>,
}

impl StoryReport {
    /// Returns what came of the story of a run.
    #[must_use]
    pub fn of(view: &RunView) -> Option<Self> {
        Some(Self { id: view.story()?.id.clone(), outcome: view.outcome() })
    }
}

/// Says what came of stories.
#[must_use]
pub fn render(reports: &[StoryReport]) -> String {
    reports.iter().map(|it| format!("{} {:?}\n", it.id, it.outcome)).collect()
}
