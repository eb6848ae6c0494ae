//! Writes Markdown: words, the gaps between them, and containers such as lists.
//!
//! Knows nothing about HTML. A gap is written only before the next word, so empty elements leave no trace.
//! Invariant: the output does not grow beyond its limit.

/// The maximum nesting of containers; deeper ones are shown at this depth.
const MAX_CONTAINERS: usize = 24;

/// The maximum number of columns in the separator row of a table.
const MAX_COLUMNS: usize = 64;

/// The gap between two words, from nothing to a blank line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum WordGap {
    Nothing,
    Space,
    Line,
    Paragraph,
}

/// A block that encloses lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LineContainer {
    /// A list, with the number of its next item if it is ordered.
    List { next: Option<u64> },
    /// A list item: its bullet until that is written, then as many spaces.
    Item { sign: Option<String>, width: usize },
    /// A quotation.
    Quote,
}

/// Builds the text.
pub(super) struct MarkdownWriter {
    out: String,
    max: usize,
    gap: WordGap,
    /// The number of quotations that a blank line before the next word belongs to.
    blank_quotes: usize,
    containers: Vec<LineContainer>,
    /// The text before the next word, such as the marks of a heading.
    lead: Option<&'static str>,
    /// The target of the current link, and whether any of its text was written.
    link: Option<(String, bool)>,
    is_code: bool,
    is_preformatted: bool,
    /// The number of cells in the current table row; `None` outside of a row.
    cells: Option<usize>,
    /// Whether the separator row of the table was written.
    has_rule: bool,
}

impl MarkdownWriter {
    pub(super) fn new(max: usize) -> Self {
        Self {
            out: String::new(),
            max,
            gap: WordGap::Nothing,
            blank_quotes: 0,
            containers: Vec::new(),
            lead: None,
            link: None,
            is_code: false,
            is_preformatted: false,
            cells: None,
            has_rule: false,
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.out.len() >= self.max
    }

    pub(super) fn finish(mut self) -> String {
        self.end_preformatted();
        self.end_link();
        self.end_row();
        self.out.truncate(self.out.trim_end().len());
        self.out
    }

    /// Requests a gap before the next word; the widest of several wins.
    pub(super) fn gap(&mut self, gap: WordGap) {
        let is_cell = self.cells.is_some_and(|cells| cells > 0);
        if is_cell && self.out.ends_with("| ") {
            return;
        }
        let gap = if is_cell { gap.min(WordGap::Space) } else { gap };
        if gap == WordGap::Paragraph {
            let quotes = self.containers.iter().filter(|one| **one == LineContainer::Quote).count();
            let is_first = self.gap < WordGap::Paragraph;
            self.blank_quotes = if is_first { quotes } else { quotes.min(self.blank_quotes) };
        }
        self.gap = self.gap.max(gap);
    }

    pub(super) fn text(&mut self, text: &str) {
        if self.is_preformatted {
            return self.raw(text);
        }
        for (index, word) in text.split(|c: char| c.is_ascii_whitespace()).enumerate() {
            if index > 0 {
                self.gap(WordGap::Space);
            }
            if !word.is_empty() {
                self.begin();
                self.put(word);
            }
        }
    }

    /// Writes preformatted lines.
    fn raw(&mut self, text: &str) {
        for (index, line) in text.split('\n').enumerate() {
            if index > 0 {
                self.new_line();
            }
            self.put(line);
        }
    }

    /// Writes the pending gap and the start of the line.
    fn begin(&mut self) {
        match std::mem::replace(&mut self.gap, WordGap::Nothing) {
            _ if self.out.is_empty() => self.prefix(),
            WordGap::Nothing => {}
            WordGap::Space => self.put(" "),
            WordGap::Line => self.new_line(),
            WordGap::Paragraph => {
                self.put("\n");
                self.put(">".repeat(self.blank_quotes).as_str());
                self.new_line();
            }
        }
        if let Some(lead) = self.lead.take() {
            self.put(lead);
        }
        if let Some((_, has_text)) = &mut self.link
            && !std::mem::replace(has_text, true)
        {
            self.put("[");
        }
    }

    fn new_line(&mut self) {
        self.put("\n");
        self.prefix();
    }

    /// Writes the prefix of a line for all containers.
    fn prefix(&mut self) {
        let mut prefix = String::new();
        for container in &mut self.containers {
            match container {
                LineContainer::List { .. } => {}
                LineContainer::Quote => prefix.push_str("> "),
                LineContainer::Item { sign, width } => match sign.take() {
                    Some(sign) => prefix.push_str(&sign),
                    None => prefix.extend(std::iter::repeat_n(' ', *width)),
                },
            }
        }
        self.put(&prefix);
    }

    /// Appends to the output. All writing goes through this function.
    fn put(&mut self, text: &str) {
        if !self.is_full() {
            self.out.push_str(text);
        }
    }

    pub(super) fn heading(&mut self, lead: &'static str) {
        self.gap(WordGap::Paragraph);
        self.lead = self.cells.is_none().then_some(lead);
    }

    pub(super) fn end_heading(&mut self) {
        self.lead = None;
        self.gap(WordGap::Paragraph);
    }

    pub(super) fn open(&mut self, container: LineContainer) {
        if self.containers.len() < MAX_CONTAINERS {
            self.containers.push(container);
        }
    }

    pub(super) fn item(&mut self) {
        self.close_item();
        let list = self.containers.iter_mut().rev().find_map(|one| match one {
            LineContainer::List { next } => Some(next),
            LineContainer::Item { .. } | LineContainer::Quote => None,
        });
        let sign = match list.and_then(Option::as_mut) {
            Some(number) => {
                *number += 1;
                format!("{}. ", *number - 1)
            }
            None => "- ".to_owned(),
        };
        self.gap(WordGap::Line);
        self.open(LineContainer::Item { width: sign.len(), sign: Some(sign) });
    }

    /// Closes the item of the innermost list, if one is open.
    pub(super) fn close_item(&mut self) {
        let inner =
            self.containers.iter().rposition(|one| matches!(one, LineContainer::List { .. }));
        let item =
            self.containers.iter().rposition(|one| matches!(one, LineContainer::Item { .. }));
        if let Some(item) = item.filter(|item| inner.is_none_or(|list| list < *item)) {
            self.containers.truncate(item);
            self.gap(WordGap::Line);
        }
    }

    pub(super) fn close_list(&mut self) {
        self.close(|one| matches!(one, LineContainer::List { .. }));
        let is_outermost = self.containers.is_empty();
        self.gap(if is_outermost { WordGap::Paragraph } else { WordGap::Line });
    }

    pub(super) fn close_quote(&mut self) {
        self.close(|one| *one == LineContainer::Quote);
        self.gap(WordGap::Paragraph);
    }

    fn close(&mut self, is_meant: impl Fn(&LineContainer) -> bool) {
        if let Some(at) = self.containers.iter().rposition(is_meant) {
            self.containers.truncate(at);
        }
    }

    pub(super) fn start_preformatted(&mut self) {
        // A table row cannot contain line breaks.
        if self.is_preformatted || self.cells.is_some() {
            return;
        }
        self.end_link();
        self.gap(WordGap::Paragraph);
        self.begin();
        self.put("```");
        self.new_line();
        self.is_preformatted = true;
    }

    pub(super) fn end_preformatted(&mut self) {
        if std::mem::take(&mut self.is_preformatted) {
            if !self.out.ends_with('\n') {
                self.new_line();
            }
            self.put("```");
            self.gap(WordGap::Paragraph);
        }
    }

    pub(super) fn start_code(&mut self) {
        if !self.is_preformatted && !self.is_code {
            self.begin();
            self.put("`");
            self.is_code = true;
        }
    }

    pub(super) fn end_code(&mut self) {
        if std::mem::take(&mut self.is_code) {
            self.put("`");
        }
    }

    pub(super) fn start_link(&mut self, href: String) {
        if !self.is_preformatted {
            self.link = Some((href, false));
        }
    }

    pub(super) fn end_link(&mut self) {
        if let Some((href, true)) = self.link.take() {
            self.put("](");
            self.put(&href);
            self.put(")");
        }
    }

    pub(super) fn start_table(&mut self) {
        self.end_row();
        self.gap(WordGap::Paragraph);
        self.has_rule = false;
    }

    pub(super) fn end_table(&mut self) {
        self.end_row();
        self.gap(WordGap::Paragraph);
    }

    pub(super) fn start_row(&mut self) {
        self.end_row();
        self.gap(WordGap::Line);
        self.cells = Some(0);
    }

    pub(super) fn start_cell(&mut self) {
        if self.is_preformatted {
            return;
        }
        self.end_link();
        match self.cells {
            None => {
                self.start_row();
                self.start_cell();
            }
            Some(0) => {
                self.begin();
                self.put("| ");
                self.cells = Some(1);
            }
            Some(cells) => {
                self.put(" | ");
                self.gap = WordGap::Nothing;
                self.cells = Some(cells.saturating_add(1));
            }
        }
    }

    pub(super) fn end_row(&mut self) {
        let cells = self.cells.take().unwrap_or(0);
        if cells == 0 {
            return;
        }
        self.end_link();
        self.put(" |");
        if !std::mem::replace(&mut self.has_rule, true) {
            self.new_line();
            self.put("|");
            self.put("---|".repeat(cells.min(MAX_COLUMNS)).as_str());
        }
        self.gap = WordGap::Line;
    }
}
