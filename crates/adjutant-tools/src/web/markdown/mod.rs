//! Converts HTML to Markdown in one pass over its tags.
//!
//! No tree is built, because hostile HTML could nest it arbitrarily deep, and the rules for misnested tags
//! could turn two megabytes into billions of nodes. Tags are read one by one (with `html5gum`, which forbids
//! unsafe code), open lists and quotations are kept on a limited stack, and all other tags only separate
//! words. Emphasis is dropped.
//!
//! Start at [`markdown`]. Invariant: time is linear in the size of the page, and the output is limited.

mod writer;

use html5gum::{DefaultEmitter, EndTag, HtmlString, StartTag, Token, Tokenizer};
use url::Url;

use self::writer::{LineContainer, MarkdownWriter, WordGap};

/// The maximum length of a link; longer ones are embedded data.
const MAX_LINK_BYTES: usize = 1024;

/// A page as markdown.
pub(crate) struct MarkdownText {
    pub(crate) text: String,
    /// Whether the output reached its limit.
    pub(crate) is_cut: bool,
}

/// Converts a page to at most about `max` bytes of Markdown.
///
/// Links are resolved against `base`; without one, only their text is kept.
pub(crate) fn markdown(html: &str, base: Option<&Url>, max: usize) -> MarkdownText {
    let mut emitter = DefaultEmitter::default();
    // Lets scripts, styles and titles end only at their own end tag.
    emitter.naively_switch_states(true);
    let mut page = PageConverter { base, writer: MarkdownWriter::new(max), skipped: None };
    for token in Tokenizer::new_with_emitter(html, emitter) {
        let Ok(token) = token;
        if page.writer.is_full() {
            break;
        }
        match token {
            Token::StartTag(tag) => page.start(&tag),
            Token::EndTag(tag) => page.end(&tag),
            Token::String(text) if page.skipped.is_none() => {
                page.writer.text(&String::from_utf8_lossy(&text));
            }
            Token::String(_) | Token::Comment(_) | Token::Doctype(_) | Token::Error(_) => {}
        }
    }
    let is_cut = page.writer.is_full();
    MarkdownText { text: page.writer.finish(), is_cut }
}

struct PageConverter<'page> {
    base: Option<&'page Url>,
    writer: MarkdownWriter,
    /// The element whose content is skipped, and how many elements of that name are open.
    skipped: Option<(HtmlString, usize)>,
}

/// The effect of a tag on the output.
enum TagEffect {
    /// Its content is skipped.
    Skip,
    /// It starts and ends a block.
    Block(WordGap),
    Heading(&'static str),
    List {
        is_ordered: bool,
    },
    Item,
    Quote,
    Preformatted,
    Code,
    Link,
    Image,
    Break,
    Rule,
    Table,
    Row,
    Cell,
    /// It has no effect.
    None,
}

fn effect(name: &[u8]) -> TagEffect {
    match name {
        b"script" | b"style" | b"template" | b"svg" | b"math" | b"iframe" | b"object"
        | b"canvas" | b"noembed" | b"noframes" => TagEffect::Skip,
        b"p" | b"dl" | b"figure" | b"details" | b"article" | b"section" => {
            TagEffect::Block(WordGap::Paragraph)
        }
        b"div" | b"body" | b"header" | b"footer" | b"main" | b"nav" | b"aside" | b"figcaption"
        | b"form" | b"fieldset" | b"address" | b"dt" | b"dd" | b"summary" | b"option"
        | b"button" | b"label" | b"caption" | b"center" => TagEffect::Block(WordGap::Line),
        b"title" => TagEffect::Heading("Title: "),
        b"h1" => TagEffect::Heading("# "),
        b"h2" => TagEffect::Heading("## "),
        b"h3" => TagEffect::Heading("### "),
        b"h4" => TagEffect::Heading("#### "),
        b"h5" => TagEffect::Heading("##### "),
        b"h6" => TagEffect::Heading("###### "),
        b"ul" | b"menu" => TagEffect::List { is_ordered: false },
        b"ol" => TagEffect::List { is_ordered: true },
        b"li" => TagEffect::Item,
        b"blockquote" => TagEffect::Quote,
        b"pre" | b"textarea" => TagEffect::Preformatted,
        b"code" | b"kbd" | b"samp" => TagEffect::Code,
        b"a" => TagEffect::Link,
        b"img" => TagEffect::Image,
        b"br" => TagEffect::Break,
        b"hr" => TagEffect::Rule,
        b"table" => TagEffect::Table,
        b"tr" => TagEffect::Row,
        b"td" | b"th" => TagEffect::Cell,
        _ => TagEffect::None,
    }
}

impl PageConverter<'_> {
    fn start(&mut self, tag: &StartTag<()>) {
        if let Some((name, open)) = &mut self.skipped {
            *open += usize::from(*name == tag.name && !tag.self_closing);
            return;
        }
        let writer = &mut self.writer;
        match effect(&tag.name) {
            TagEffect::Skip if tag.self_closing => {}
            TagEffect::Skip => self.skipped = Some((tag.name.clone(), 1)),
            TagEffect::Block(gap) => writer.gap(gap),
            TagEffect::Heading(lead) => writer.heading(lead),
            TagEffect::List { is_ordered } => {
                writer.gap(WordGap::Line);
                writer.open(LineContainer::List { next: is_ordered.then_some(1) });
            }
            TagEffect::Item => writer.item(),
            TagEffect::Quote => {
                writer.gap(WordGap::Paragraph);
                writer.open(LineContainer::Quote);
            }
            TagEffect::Preformatted => writer.start_preformatted(),
            TagEffect::Code => writer.start_code(),
            TagEffect::Link => {
                writer.end_link();
                if let Some(href) = self.link(tag) {
                    self.writer.start_link(href);
                }
            }
            TagEffect::Image => {
                if let Some(words) = attribute(tag, b"alt").filter(|words| !words.trim().is_empty())
                {
                    writer.text(&format!("[image: {}]", words.trim()));
                }
            }
            TagEffect::Break => writer.gap(WordGap::Line),
            TagEffect::Rule => {
                writer.gap(WordGap::Paragraph);
                writer.text("---");
                writer.gap(WordGap::Paragraph);
            }
            TagEffect::Table => writer.start_table(),
            TagEffect::Row => writer.start_row(),
            TagEffect::Cell => writer.start_cell(),
            TagEffect::None => {}
        }
    }

    fn end(&mut self, tag: &EndTag<()>) {
        if let Some((name, open)) = &mut self.skipped {
            *open -= usize::from(*name == tag.name);
            if *open == 0 {
                self.skipped = None;
            }
            return;
        }
        let writer = &mut self.writer;
        match effect(&tag.name) {
            TagEffect::Block(gap) => writer.gap(gap),
            TagEffect::Heading(_) => writer.end_heading(),
            TagEffect::List { .. } => writer.close_list(),
            TagEffect::Item => writer.close_item(),
            TagEffect::Quote => writer.close_quote(),
            TagEffect::Preformatted => writer.end_preformatted(),
            TagEffect::Code => writer.end_code(),
            TagEffect::Link => writer.end_link(),
            TagEffect::Row => writer.end_row(),
            TagEffect::Table => writer.end_table(),
            TagEffect::Skip
            | TagEffect::Image
            | TagEffect::Break
            | TagEffect::Rule
            | TagEffect::Cell
            | TagEffect::None => {}
        }
    }

    /// Returns the absolute target of a link; `None` for scripts, data and fragments of the same page.
    fn link(&self, tag: &StartTag<()>) -> Option<String> {
        let written = attribute(tag, b"href")?;
        if written.starts_with('#') || written.len() > MAX_LINK_BYTES {
            return None;
        }
        let url = self.base?.join(&written).ok()?;
        matches!(url.scheme(), "http" | "https" | "mailto").then(|| url.into())
    }
}

fn attribute(tag: &StartTag<()>, name: &[u8]) -> Option<String> {
    tag.attributes.get(name).map(|value| String::from_utf8_lossy(value).into_owned())
}
