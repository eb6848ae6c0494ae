//! Everything that is on the screen: [`WatchState`], changed by [`crate::update`] and drawn by [`crate::render`].

use adjutant_core::RunId;
use adjutant_core::registry::QuestionPointer;
use adjutant_view::Palette;

use crate::opened_run::OpenedRun;
use crate::run_list::{ListRowId, ListedRun};
use crate::text_pane::TextPane;
use crate::update::ChildCommand;

/// What fills the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchScreen {
    /// The list of runs.
    List,
    /// The tree of one run.
    Run,
    /// A text of the selected agent.
    Text,
}

/// What is drawn over the screen and takes the next keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WatchOverlay {
    /// The keys, from this row on.
    Help(usize),
    /// A command that runs after a yes.
    Confirm(ChildCommand),
    /// The filter is typed.
    Filter,
}

/// Everything that is on the screen.
#[derive(Clone, Debug)]
pub struct WatchState {
    /// The runs, the newest first.
    pub runs: Vec<ListedRun>,
    /// How many older runs are not listed.
    pub hidden_runs: usize,
    /// How many listed runs cannot be read.
    pub unreadable_runs: usize,
    /// Whether the runs are still being read for the first time.
    pub is_loading: bool,
    /// The questions in the registry, each with its id.
    pub questions: Vec<(String, QuestionPointer)>,
    /// The time in Unix milliseconds, for ages.
    pub wall_ms: u64,
    /// Whether the terminal may be coloured.
    pub palette: Palette,
    /// Whether the terminal shows UTF-8.
    pub is_utf8: bool,
    /// The size of the terminal in columns and rows.
    pub size: (u16, u16),
    pub(crate) screen: WatchScreen,
    pub(crate) overlay: Option<WatchOverlay>,
    pub(crate) selected: Option<ListRowId>,
    pub(crate) list_filter: String,
    pub(crate) run_filter: String,
    /// The run whose tree is shown.
    pub opened: Option<OpenedRun>,
    pub(crate) text: Option<TextPane>,
    /// Said once, instead of the keys at the bottom.
    pub(crate) message: Option<String>,
}

impl WatchState {
    /// Returns an empty list.
    #[must_use]
    pub const fn new(palette: Palette, is_utf8: bool, size: (u16, u16)) -> Self {
        Self {
            runs: Vec::new(),
            hidden_runs: 0,
            unreadable_runs: 0,
            is_loading: false,
            questions: Vec::new(),
            wall_ms: 0,
            palette,
            is_utf8,
            size,
            screen: WatchScreen::List,
            overlay: None,
            selected: None,
            list_filter: String::new(),
            run_filter: String::new(),
            opened: None,
            text: None,
            message: None,
        }
    }

    /// Returns what fills the screen.
    #[must_use]
    pub const fn screen(&self) -> WatchScreen {
        self.screen
    }

    /// Shows the tree of a run.
    pub fn open(&mut self, run: OpenedRun) {
        (self.selected, self.screen) = (Some(ListRowId::Run(run.id)), WatchScreen::Run);
        self.opened = Some(run);
        self.run_filter.clear();
    }

    /// Sets the size of the terminal.
    pub fn resize(&mut self, size: (u16, u16)) {
        self.size = size;
        if let Some(text) = &mut self.text {
            text.wrap(size.0.into());
        }
    }

    /// Takes the text that a command printed.
    pub fn take_text(&mut self, args: &[String], text: &str) {
        let columns = self.size.0.into();
        if let Some(pane) = self.text.as_mut().filter(|pane| pane.args == args) {
            pane.set_text(text, columns);
        }
    }

    /// Returns the run that commands are about.
    #[must_use]
    pub fn current_run(&self) -> Option<RunId> {
        match self.screen {
            WatchScreen::List => self.selected_id().map(|key| key.run()),
            WatchScreen::Run | WatchScreen::Text => self.opened.as_ref().map(|run| run.id),
        }
    }
}
