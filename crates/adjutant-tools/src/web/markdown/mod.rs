//! HTML to markdown in one pass over its tags.
//!
//! There is no tree. A tree of hostile HTML is where the trouble is: it recurses as deep as the
//! page likes, and the rules for misnested tags let two megabytes of input grow to thousands of
//! millions of nodes. Tags are read one by one (`html5gum`, which forbids unsafe code), the lists
//! and quotations they open are kept on a stack with a cap, and everything else is a gap between
//! words. Emphasis is dropped: a model does not need it.
//!
//! Start at [`markdown`]. Invariant: time is linear in the page, output stops at its cap.

mod writer;

use html5gum::{DefaultEmitter, EndTag, HtmlString, StartTag, Token, Tokenizer};
use url::Url;

use self::writer::{Container, Gap, Writer};

/// The longest link that is kept; longer ones are data, not addresses.
const MAX_LINK_BYTES: usize = 1024;

/// A page as markdown.
pub(crate) struct Markdown {
    pub(crate) text: String,
    /// Whether the output reached its cap.
    pub(crate) is_cut: bool,
}

/// Converts a page; at most about `max` bytes come out.
///
/// Links are made absolute with `base`; without one, only their words are kept.
pub(crate) fn markdown(html: &str, base: Option<&Url>, max: usize) -> Markdown {
    let mut emitter = DefaultEmitter::default();
    // Scripts, styles and titles end at their own end tag, whatever else is in them.
    emitter.naively_switch_states(true);
    let mut page = Page { base, writer: Writer::new(max), skipped: None };
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
    Markdown { text: page.writer.finish(), is_cut }
}

struct Page<'page> {
    base: Option<&'page Url>,
    writer: Writer,
    /// The element whose content is left out, and how many of its name are open.
    skipped: Option<(HtmlString, usize)>,
}

/// What a tag does to the text around it.
enum Effect {
    /// Its content is not for readers.
    Skip,
    /// It stands on lines of its own.
    Block(Gap),
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
    /// It only surrounds words.
    None,
}

fn effect(name: &[u8]) -> Effect {
    match name {
        b"script" | b"style" | b"template" | b"svg" | b"math" | b"iframe" | b"object"
        | b"canvas" | b"noembed" | b"noframes" => Effect::Skip,
        b"p" | b"dl" | b"figure" | b"details" | b"article" | b"section" => {
            Effect::Block(Gap::Paragraph)
        }
        b"div" | b"body" | b"header" | b"footer" | b"main" | b"nav" | b"aside" | b"figcaption"
        | b"form" | b"fieldset" | b"address" | b"dt" | b"dd" | b"summary" | b"option"
        | b"button" | b"label" | b"caption" | b"center" => Effect::Block(Gap::Line),
        b"title" => Effect::Heading("Title: "),
        b"h1" => Effect::Heading("# "),
        b"h2" => Effect::Heading("## "),
        b"h3" => Effect::Heading("### "),
        b"h4" => Effect::Heading("#### "),
        b"h5" => Effect::Heading("##### "),
        b"h6" => Effect::Heading("###### "),
        b"ul" | b"menu" => Effect::List { is_ordered: false },
        b"ol" => Effect::List { is_ordered: true },
        b"li" => Effect::Item,
        b"blockquote" => Effect::Quote,
        b"pre" | b"textarea" => Effect::Preformatted,
        b"code" | b"kbd" | b"samp" => Effect::Code,
        b"a" => Effect::Link,
        b"img" => Effect::Image,
        b"br" => Effect::Break,
        b"hr" => Effect::Rule,
        b"table" => Effect::Table,
        b"tr" => Effect::Row,
        b"td" | b"th" => Effect::Cell,
        _ => Effect::None,
    }
}

impl Page<'_> {
    fn start(&mut self, tag: &StartTag<()>) {
        if let Some((name, open)) = &mut self.skipped {
            *open += usize::from(*name == tag.name && !tag.self_closing);
            return;
        }
        let writer = &mut self.writer;
        match effect(&tag.name) {
            Effect::Skip if tag.self_closing => {}
            Effect::Skip => self.skipped = Some((tag.name.clone(), 1)),
            Effect::Block(gap) => writer.gap(gap),
            Effect::Heading(lead) => writer.heading(lead),
            Effect::List { is_ordered } => {
                writer.gap(Gap::Line);
                writer.open(Container::List { next: is_ordered.then_some(1) });
            }
            Effect::Item => writer.item(),
            Effect::Quote => {
                writer.gap(Gap::Paragraph);
                writer.open(Container::Quote);
            }
            Effect::Preformatted => writer.start_preformatted(),
            Effect::Code => writer.start_code(),
            Effect::Link => {
                writer.end_link();
                if let Some(href) = self.link(tag) {
                    self.writer.start_link(href);
                }
            }
            Effect::Image => {
                if let Some(words) = attribute(tag, b"alt").filter(|words| !words.trim().is_empty())
                {
                    writer.text(&format!("[image: {}]", words.trim()));
                }
            }
            Effect::Break => writer.gap(Gap::Line),
            Effect::Rule => {
                writer.gap(Gap::Paragraph);
                writer.text("---");
                writer.gap(Gap::Paragraph);
            }
            Effect::Table => writer.start_table(),
            Effect::Row => writer.start_row(),
            Effect::Cell => writer.start_cell(),
            Effect::None => {}
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
            Effect::Block(gap) => writer.gap(gap),
            Effect::Heading(_) => writer.end_heading(),
            Effect::List { .. } => writer.close_list(),
            Effect::Item => writer.close_item(),
            Effect::Quote => writer.close_quote(),
            Effect::Preformatted => writer.end_preformatted(),
            Effect::Code => writer.end_code(),
            Effect::Link => writer.end_link(),
            Effect::Row => writer.end_row(),
            Effect::Table => writer.end_table(),
            Effect::Skip
            | Effect::Image
            | Effect::Break
            | Effect::Rule
            | Effect::Cell
            | Effect::None => {}
        }
    }

    /// Returns where a link leads, absolute; none for scripts, data and jumps within the page.
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
