//! Converts a response body to text: media type, character encoding and Markdown.

use encoding_rs::{Encoding, UTF_8};
use url::Url;

use crate::web::body::ResponseBody;
use crate::web::markdown::markdown;

/// How many bytes at the start of a page are searched for its declared encoding.
const META_BYTES: usize = 1024;

/// How a media type is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageKind {
    Html,
    Text,
    /// Not text.
    Other,
}

/// A fetched page converted to text, with remarks about what was left out.
pub(crate) struct PageText {
    pub(crate) text: String,
    /// Remarks about what was left out or replaced.
    pub(crate) remarks: Vec<String>,
}

/// Returns the media type of a `Content-Type` header, in lower case and without parameters.
pub(crate) fn media_type(header: Option<&str>) -> String {
    let essence = header.unwrap_or_default().split(';').next().unwrap_or_default();
    essence.trim().to_ascii_lowercase()
}

/// Returns how a media type is shown.
pub(crate) fn kind(media_type: &str) -> PageKind {
    match media_type {
        "text/html" | "application/xhtml+xml" => PageKind::Html,
        // Without a media type, the bytes themselves show whether they are text.
        "" => PageKind::Text,
        "application/json"
        | "application/xml"
        | "application/javascript"
        | "application/yaml"
        | "application/x-yaml"
        | "application/toml"
        | "application/x-ndjson" => PageKind::Text,
        other if other.starts_with("text/") => PageKind::Text,
        other if other.ends_with("+json") || other.ends_with("+xml") => PageKind::Text,
        _ => PageKind::Other,
    }
}

/// Converts a body to text; `None` if its bytes are not text, whatever the media type says.
pub(crate) fn read(
    body: &ResponseBody,
    content_type: Option<&str>,
    kind: PageKind,
    base: &Url,
) -> Option<PageText> {
    let mut remarks = Vec::new();
    let encoding = charset(content_type, kind, &body.bytes);
    let bytes = if body.is_cut && encoding == UTF_8 {
        without_partial_char(&body.bytes)
    } else {
        &body.bytes
    };
    let (text, encoding, has_errors) = encoding.decode(bytes);
    if has_errors {
        remarks.push(format!("bytes that are not valid {} were replaced", encoding.name()));
    }
    // Without a media type, bytes that are not UTF-8 do not count as text.
    let is_doubtful = has_errors && media_type(content_type).is_empty();
    if is_doubtful || text.contains('\0') {
        return None;
    }
    if body.is_cut {
        remarks.push(format!("only the first {} bytes were read", body.bytes.len()));
    }
    let text = match kind {
        PageKind::Html => {
            let page =
                markdown(&text, Some(base), body.bytes.len().max(META_BYTES).saturating_mul(2));
            if page.is_cut {
                remarks.push("the rest of the page is too tangled to be shown".to_owned());
            }
            visible(&page.text)
        }
        PageKind::Text | PageKind::Other => visible(&text),
    };
    Some(PageText { text, remarks })
}

/// Returns the encoding from the header, otherwise from the HTML page itself, otherwise UTF-8.
fn charset(content_type: Option<&str>, kind: PageKind, bytes: &[u8]) -> &'static Encoding {
    let in_header = || {
        content_type?.split(';').skip(1).find_map(|parameter| {
            let (name, value) = parameter.split_once('=')?;
            name.trim().eq_ignore_ascii_case("charset").then(|| value.trim().trim_matches('"'))
        })
    };
    let label = |name: &str| Encoding::for_label(name.as_bytes());
    in_header()
        .and_then(label)
        .or_else(|| if kind == PageKind::Html { in_page(bytes) } else { None })
        .unwrap_or(UTF_8)
}

/// Finds `<meta charset=…>` or `<meta … content="…; charset=…">` near the start of a page.
fn in_page(bytes: &[u8]) -> Option<&'static Encoding> {
    let head = bytes[..bytes.len().min(META_BYTES)].to_ascii_lowercase();
    let at = memchr::memmem::find(&head, b"charset=")?;
    let rest = head[at + b"charset=".len()..].trim_ascii_start();
    let rest = rest.strip_prefix(b"\"").or_else(|| rest.strip_prefix(b"'")).unwrap_or(rest);
    let is_label = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_:.".contains(byte);
    let length = rest.iter().position(|byte| !is_label(byte)).unwrap_or(rest.len());
    Encoding::for_label(&rest[..length])
}

/// Removes an incomplete character at the end of a cut body.
fn without_partial_char(bytes: &[u8]) -> &[u8] {
    let tail = &bytes[bytes.len().saturating_sub(4)..];
    let begun = (0..tail.len()).rev().find(|at| tail[*at] & 0xc0 != 0x80);
    let is_cut = |at: usize| {
        std::str::from_utf8(&tail[at..]).is_err_and(|error| error.error_len().is_none())
    };
    match begun {
        Some(at) if is_cut(at) => &bytes[..bytes.len() - (tail.len() - at)],
        Some(_) | None => bytes,
    }
}

/// Removes invisible characters that could deceive: control characters, changes of the text direction, and
/// Unicode tag characters, which a model can read but a person cannot see.
pub(crate) fn visible(text: &str) -> String {
    let is_seen = |c: &char| match c {
        '\n' | '\t' => true,
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{e0000}'..='\u{e007f}' => false,
        c => !c.is_control(),
    };
    text.chars().filter(is_seen).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_character_is_not_cut_in_two() {
        assert_eq!(without_partial_char("aé".as_bytes()), "aé".as_bytes());
        assert_eq!(without_partial_char(&"aé".as_bytes()[..2]), b"a");
        assert_eq!(without_partial_char(&"a𝄞".as_bytes()[..4]), b"a");
        assert_eq!(without_partial_char(b"a\x80\x80"), b"a\x80\x80");
        assert_eq!(without_partial_char(b""), b"");
    }

    #[test]
    fn types_are_text_or_they_are_not() {
        for (header, expected) in [
            (Some("text/html; charset=utf-8"), PageKind::Html),
            (Some("Application/XHTML+XML"), PageKind::Html),
            (Some("text/x-rust"), PageKind::Text),
            (Some("application/vnd.api+json"), PageKind::Text),
            (Some("image/svg+xml"), PageKind::Text),
            (None, PageKind::Text),
            (Some("application/pdf"), PageKind::Other),
            (Some("application/octet-stream"), PageKind::Other),
            (Some("image/png"), PageKind::Other),
        ] {
            assert_eq!(kind(&media_type(header)), expected, "{header:?}");
        }
    }
}
