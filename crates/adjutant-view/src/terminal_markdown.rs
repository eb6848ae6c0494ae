//! Markdown as text for a terminal: wrapped, indented, with headings and code set off.
//!
//! Line breaks of the source stay, because agents and Adjutant itself write one fact per line. All text passes
//! [`sanitize`], also after entities such as `&#27;` were decoded. Start at [`render`].

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};
use unicode_width::UnicodeWidthChar;

use crate::layout;
use crate::palette::{Palette, TextStyle};
use crate::sanitize;

/// The narrowest column of text; in narrower terminals lines wrap at the edge of the screen.
const MIN_COLUMNS: usize = 10;

/// The widest column of text: longer lines are tiring to read.
const MAX_COLUMNS: usize = 100;

/// The most indents that are drawn. A document may nest thousands of quotations, and each line repeats them.
const MAX_INDENTS: usize = 16;

/// The columns between the places that a tab reaches in code.
const TAB_COLUMNS: usize = 4;

/// Returns Markdown as lines for a terminal of `width` columns.
#[must_use]
pub fn render(markdown: &str, width: usize, palette: Palette) -> String {
    let mut page = MarkdownPage {
        columns: width.min(MAX_COLUMNS),
        palette,
        output: String::new(),
        indents: Vec::new(),
        lists: Vec::new(),
        line: Vec::new(),
        strong: 0,
        links: Vec::new(),
        table: None,
        code: None,
        needs_gap: false,
    };
    let options = Options::ENABLE_TABLES | Options::ENABLE_TASKLISTS;
    for event in Parser::new_ext(markdown, options) {
        page.add(event);
    }
    page.end_line();
    page.output
}

/// The page so far, and where in the document it is.
struct MarkdownPage {
    columns: usize,
    palette: Palette,
    output: String,
    /// What stands before each line, outermost first.
    indents: Vec<LineIndent>,
    /// The next number of each open list; `None` for lists with bullets.
    lists: Vec<Option<u64>>,
    /// The characters of the current line.
    line: Vec<(char, Option<TextStyle>)>,
    /// How many open elements make the text strong.
    strong: usize,
    /// The addresses of the open links, and where their texts begin in the line. An image may be within a link.
    links: Vec<(String, usize)>,
    /// The rows of the open table.
    table: Option<Vec<Vec<String>>>,
    /// The text of the open code block.
    code: Option<String>,
    /// Whether a blank line comes before the next block.
    needs_gap: bool,
}

/// What stands before each line of a quotation or list item.
struct LineIndent {
    /// Before the first line, until it was used.
    first: Option<String>,
    /// Before all other lines.
    other: String,
}

const QUOTE: &str = "│ ";
const CODE: &str = "    ";

impl MarkdownPage {
    fn add(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) | Event::Html(text) | Event::InlineHtml(text) => {
                match &mut self.code {
                    Some(code) => code.push_str(&text),
                    None => self.push(&text, None),
                }
            }
            // The marks stay: colour alone would not set code off.
            Event::Code(text) => self.push(&format!("`{text}`"), Some(TextStyle::Active)),
            Event::SoftBreak | Event::HardBreak => self.end_line(),
            Event::Rule => {
                self.begin_block();
                self.push(&"─".repeat(self.room().min(40)), Some(TextStyle::Quiet));
                self.end_block();
            }
            Event::TaskListMarker(is_done) => {
                self.push(if is_done { "[x] " } else { "[ ] " }, None);
            }
            Event::InlineMath(text) | Event::DisplayMath(text) | Event::FootnoteReference(text) => {
                self.push(&text, None);
            }
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Heading { .. } => {
                self.begin_block();
                self.strong += 1;
            }
            Tag::BlockQuote(_) => {
                self.begin_block();
                self.indents.push(LineIndent { first: None, other: QUOTE.to_owned() });
            }
            Tag::CodeBlock(_) => {
                self.begin_block();
                self.code = Some(String::new());
            }
            Tag::List(first) => {
                // A list within an item follows its text at once.
                if self.lists.is_empty() {
                    self.begin_block();
                } else {
                    self.end_line();
                }
                self.lists.push(first);
            }
            Tag::Item => self.start_item(),
            Tag::Table(_) => {
                self.begin_block();
                self.table = Some(Vec::new());
            }
            Tag::TableHead | Tag::TableRow => {
                self.table.iter_mut().for_each(|it| it.push(Vec::new()))
            }
            Tag::Emphasis | Tag::Strong => self.strong += 1,
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => {
                self.links.push((dest_url.into_string(), self.line.len()));
            }
            Tag::Paragraph => self.begin_block(),
            Tag::TableCell
            | Tag::HtmlBlock
            | Tag::FootnoteDefinition(_)
            | Tag::DefinitionList
            | Tag::DefinitionListTitle
            | Tag::DefinitionListDefinition
            | Tag::Strikethrough
            | Tag::Superscript
            | Tag::Subscript
            | Tag::MetadataBlock(_) => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Heading(_) => {
                self.strong = self.strong.saturating_sub(1);
                self.end_block();
            }
            TagEnd::BlockQuote(_) => {
                self.end_line();
                self.indents.pop();
                self.needs_gap = true;
            }
            TagEnd::CodeBlock => self.end_code(),
            TagEnd::List(_) => {
                self.end_line();
                self.lists.pop();
                self.needs_gap = self.lists.is_empty();
            }
            TagEnd::Item => {
                self.end_line();
                self.indents.pop();
                self.needs_gap = false;
            }
            TagEnd::Table => self.end_table(),
            TagEnd::TableCell => {
                let cell: String = self.line.drain(..).map(|(character, _)| character).collect();
                if let Some(row) = self.table.as_mut().and_then(|table| table.last_mut()) {
                    row.push(cell);
                }
            }
            TagEnd::Emphasis | TagEnd::Strong => self.strong = self.strong.saturating_sub(1),
            TagEnd::Link | TagEnd::Image => self.end_link(),
            TagEnd::Paragraph | TagEnd::HtmlBlock => self.end_block(),
            TagEnd::TableHead
            | TagEnd::TableRow
            | TagEnd::FootnoteDefinition
            | TagEnd::DefinitionList
            | TagEnd::DefinitionListTitle
            | TagEnd::DefinitionListDefinition
            | TagEnd::Strikethrough
            | TagEnd::Superscript
            | TagEnd::Subscript
            | TagEnd::MetadataBlock(_) => {}
        }
    }

    fn start_item(&mut self) {
        self.end_line();
        let bullet = match self.lists.last_mut() {
            Some(Some(number)) => {
                let bullet = format!("{number}. ");
                *number = number.saturating_add(1);
                bullet
            }
            Some(None) | None => "• ".to_owned(),
        };
        let other = " ".repeat(layout::width(&bullet));
        self.indents.push(LineIndent { first: Some(bullet), other });
        self.needs_gap = false;
    }

    /// Adds text to the current line, safe for a terminal.
    fn push(&mut self, text: &str, style: Option<TextStyle>) {
        let style = style.or((self.strong > 0).then_some(TextStyle::Strong));
        let safe = sanitize::block(text);
        for (index, part) in safe.split('\n').enumerate() {
            if index > 0 {
                self.end_line();
            }
            self.line.extend(part.chars().map(|character| (character, style)));
        }
    }

    /// Adds the address of a link after its text, unless the text is the address.
    fn end_link(&mut self) {
        let Some((address, begin)) = self.links.pop() else { return };
        let text = self.line.iter().skip(begin).map(|(character, _)| *character);
        if !address.is_empty() && !address.starts_with('#') && !text.eq(address.chars()) {
            self.push(&format!(" ({address})"), Some(TextStyle::Quiet));
        }
    }

    fn end_code(&mut self) {
        let Some(code) = self.code.take() else { return };
        for line in code.lines() {
            // Code is not wrapped: a copied line must stay one.
            let line = format!("{CODE}{}", sanitize::line(&without_tabs(line)));
            self.write_line(&line.chars().map(|it| (it, None)).collect::<Vec<_>>());
        }
        self.needs_gap = true;
    }

    fn end_table(&mut self) {
        let Some(rows) = self.table.take() else { return };
        // Padding every row to a column that does not fit would cost its width per row and align nothing.
        let text = if layout::columns_width(&rows) <= self.room() {
            layout::columns(&rows, &[])
        } else {
            rows.iter().map(|row| format!("{}\n", row.join(" | "))).collect()
        };
        for (index, line) in text.lines().enumerate() {
            let style = (index == 0).then_some(TextStyle::Strong);
            let line: Vec<_> = line.chars().map(|character| (character, style)).collect();
            self.write_wrapped(&line);
        }
        self.needs_gap = true;
    }

    fn begin_block(&mut self) {
        self.end_line();
        if std::mem::take(&mut self.needs_gap) && !self.output.is_empty() {
            self.write_line(&[]);
        }
    }

    fn end_block(&mut self) {
        self.end_line();
        self.needs_gap = true;
    }

    /// Writes the current line, if it has text.
    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        if !line.is_empty() {
            self.write_wrapped(&line);
        }
    }

    /// Returns the columns that are left for text.
    fn room(&self) -> usize {
        let drawn = self.indents.iter().take(MAX_INDENTS);
        let used: usize = drawn.map(|it| layout::width(&it.other)).sum();
        self.columns.saturating_sub(used).max(MIN_COLUMNS)
    }

    fn write_wrapped(&mut self, line: &[(char, Option<TextStyle>)]) {
        let mut rest = line;
        while !rest.is_empty() {
            let (now, later) = rest.split_at(end_of_line(rest, self.room()));
            self.write_line(now);
            let spaces = later.iter().take_while(|(character, _)| *character == ' ').count();
            rest = later.get(spaces..).unwrap_or_default();
        }
    }

    /// Writes one line behind its indents, with one colour sequence per run of equal style.
    fn write_line(&mut self, line: &[(char, Option<TextStyle>)]) {
        let mut text = String::new();
        // Neighbours share one colour sequence.
        let mut quiet = String::new();
        for indent in self.indents.iter_mut().take(MAX_INDENTS) {
            // A blank line comes before the bullet, not behind it.
            let first = if line.is_empty() { None } else { indent.first.take() };
            if let Some(bullet) = first {
                text.push_str(&quietly(self.palette, &std::mem::take(&mut quiet)));
                text.push_str(&bullet);
            } else {
                quiet.push_str(&indent.other);
            }
        }
        text.push_str(&quietly(self.palette, &quiet));
        for run in line.chunk_by(|(_, one), (_, next)| one == next) {
            let plain: String = run.iter().map(|(character, _)| *character).collect();
            match run.first().and_then(|(_, style)| *style) {
                Some(style) => text.push_str(&self.palette.paint(style, &plain)),
                None => text.push_str(&plain),
            }
        }
        self.output.push_str(text.trim_end());
        self.output.push('\n');
    }
}

fn quietly(palette: Palette, text: &str) -> String {
    if text.is_empty() { String::new() } else { palette.paint(TextStyle::Quiet, text) }
}

/// Returns a line of code with spaces for its tabs.
fn without_tabs(line: &str) -> String {
    let mut text = String::with_capacity(line.len());
    let mut column = 0;
    for character in line.chars() {
        if character == '\t' {
            let spaces = TAB_COLUMNS - column % TAB_COLUMNS;
            text.extend(std::iter::repeat_n(' ', spaces));
            column += spaces;
        } else {
            text.push(character);
            column += character.width().unwrap_or(0);
        }
    }
    text
}

/// Returns how many characters fit a line of `max` columns, preferably up to a space.
fn end_of_line(line: &[(char, Option<TextStyle>)], max: usize) -> usize {
    let (mut taken, mut space) = (0, None);
    for (index, (character, _)) in line.iter().enumerate() {
        taken += character.width().unwrap_or(0);
        if *character == ' ' && index > 0 {
            space = Some(index);
        }
        if taken > max && *character != ' ' {
            return space.unwrap_or(index.max(1));
        }
    }
    line.len()
}
