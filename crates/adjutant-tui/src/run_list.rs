//! The list of runs: what waits for a person, then the runs by folder, in an order that does not change.
//!
//! A [`ListedRun`] is one run, a `ListRow` one line of the list, and a [`ListRowId`] names a line that can be
//! selected, so that the selection stays on its run while others come and go.

use adjutant_core::{RunId, Timestamp};
use adjutant_view::status::{ContentRetention, ObservedRun};
use adjutant_view::{ProcessLiveness, RunView};

use crate::inbox::InboxRow;
use crate::state::WatchState;

/// A run of the list.
#[derive(Clone, Debug)]
pub struct ListedRun {
    /// Its id.
    pub id: RunId,
    /// Its folded state, without texts.
    pub view: RunView,
    /// Whether its process is alive.
    pub liveness: ProcessLiveness,
    /// The current time on its own clock.
    pub now: Timestamp,
    /// Whether its texts are still stored.
    pub content: ContentRetention,
    /// Whether it works in the folder where the program was started.
    pub is_here: bool,
}

impl ListedRun {
    /// Returns the run for the folds of the view.
    #[must_use]
    pub fn observed(&self) -> ObservedRun<'_> {
        ObservedRun {
            view: &self.view,
            liveness: self.liveness,
            now: self.now,
            content: self.content,
            program: "adjutant",
        }
    }

    fn fits(&self, filter: &str) -> bool {
        let look = self.observed();
        let texts =
            [self.id.to_string(), look.goal_or_labels(), look.state_text(), self.folder().into()];
        texts.iter().any(|text| text.to_lowercase().contains(&filter.to_lowercase()))
    }

    /// Returns the folder in which it works, unsanitized.
    #[must_use]
    pub fn folder(&self) -> &str {
        self.view.workdir()
    }
}

/// Names a line that can be selected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListRowId {
    /// A question, by its run and hash.
    Question(RunId, String),
    /// A run.
    Run(RunId),
}

impl ListRowId {
    /// Returns the run that the line is about.
    #[must_use]
    pub const fn run(&self) -> RunId {
        match self {
            Self::Question(run, _) | Self::Run(run) => *run,
        }
    }
}

/// A line of the list.
#[derive(Clone, Debug)]
pub(crate) enum ListRow<'a> {
    Heading(String),
    Question(InboxRow),
    Run(&'a ListedRun),
}

impl ListRow<'_> {
    /// Returns the name of a line that can be selected.
    pub(crate) fn key(&self) -> Option<ListRowId> {
        match self {
            Self::Heading(_) => None,
            Self::Question(row) => Some(ListRowId::Question(row.run, row.hash.clone())),
            Self::Run(run) => Some(ListRowId::Run(run.id)),
        }
    }
}

impl WatchState {
    /// Returns the lines of the list.
    pub(crate) fn list_rows(&self) -> Vec<ListRow<'_>> {
        let inbox = self.inbox();
        let mut rows = Vec::new();
        if !inbox.is_empty() {
            rows.push(ListRow::Heading("Waits for you".to_owned()));
            rows.extend(inbox.into_iter().map(ListRow::Question));
        }
        let mut runs: Vec<&ListedRun> =
            self.runs.iter().filter(|run| run.fits(&self.list_filter)).collect();
        // Stable, so that the newest run stays first in its folder.
        runs.sort_by(|a, b| (!a.is_here, a.folder()).cmp(&(!b.is_here, b.folder())));
        let mut folder = None;
        for run in runs {
            if folder != Some(run.folder()) {
                folder = Some(run.folder());
                let here = if run.is_here { " (here)" } else { "" };
                rows.push(ListRow::Heading(format!("{}{here}", run.folder())));
            }
            rows.push(ListRow::Run(run));
        }
        rows
    }

    /// Returns the selected line; the first run of this folder, or else the first line, before one was selected.
    pub(crate) fn selected_id(&self) -> Option<ListRowId> {
        let rows = self.list_rows();
        let keys = || rows.iter().filter_map(ListRow::key);
        if let Some(chosen) = self.selected.as_ref()
            && keys().any(|key| key == *chosen)
        {
            return Some(chosen.clone());
        }
        let is_here = |row: &&ListRow<'_>| matches!(row, ListRow::Run(run) if run.is_here);
        rows.iter().find(is_here).and_then(ListRow::key).or_else(|| keys().next())
    }

    /// Returns the run that is selected in the list.
    pub(crate) fn selected_run(&self) -> Option<&ListedRun> {
        let selected = self.selected_id()?.run();
        self.runs.iter().find(|run| run.id == selected)
    }
}
