//! A scrollable text: the transcript or the diff of an agent, as another `adjutant` command printed it.

use adjutant_view::{layout, sanitize};

/// A scrollable text.
#[derive(Clone, Debug)]
pub struct TextPane {
    /// What it is.
    pub title: String,
    /// The arguments of the command that prints it.
    pub args: Vec<String>,
    /// The text; `None` until the command has printed it.
    text: Option<String>,
    rows: Vec<String>,
    /// The first visible row.
    pub(crate) top: usize,
}

impl TextPane {
    /// Returns a pane whose text is not there yet.
    #[must_use]
    pub const fn new(title: String, args: Vec<String>) -> Self {
        Self { title, args, text: None, rows: Vec::new(), top: 0 }
    }

    /// Sets the text, wrapped to a width.
    pub fn set_text(&mut self, text: &str, columns: usize) {
        // Tabs have no width in a cell.
        self.text = Some(sanitize::block(text).replace('\t', "    "));
        self.wrap(columns);
    }

    /// Wraps the text to a width.
    pub fn wrap(&mut self, columns: usize) {
        let lines = self.text.iter().flat_map(|text| text.lines());
        self.rows = lines.flat_map(|line| layout::wrap(line, columns.max(1))).collect();
        self.top = self.top.min(self.rows.len().saturating_sub(1));
    }

    /// Scrolls by rows, of which `visible` are on the screen.
    pub(crate) fn scroll(&mut self, by: isize, visible: usize) {
        let last = self.rows.len().saturating_sub(visible);
        self.top = self.top.saturating_add_signed(by).min(last);
    }

    /// Returns the wrapped rows, or `None` while the command runs.
    #[must_use]
    pub fn rows(&self) -> Option<&[String]> {
        self.text.is_some().then_some(&self.rows)
    }
}
