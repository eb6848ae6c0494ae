//! Encloses untrusted text in tags that it cannot close.

use std::collections::BTreeSet;

/// Returns a tag name whose closing tag does not occur in `text`: `file`, `file-2`, `file-3`, …
pub(crate) fn tag(name: &str, text: &str) -> String {
    let lower = text.to_ascii_lowercase();
    let closing = format!("</{name}");
    let mut taken = BTreeSet::new();
    for (at, found) in lower.match_indices(&closing) {
        let rest = &lower[at + found.len()..];
        let digits = rest.strip_prefix('-').unwrap_or_default();
        let len = digits.bytes().take_while(u8::is_ascii_digit).count();
        taken.insert(digits[..len].parse::<usize>().unwrap_or(1));
    }
    match (1..).find(|number| !taken.contains(number)) {
        Some(1) | None => name.to_owned(),
        Some(number) => format!("{name}-{number}"),
    }
}

/// Escapes a text for a tag attribute.
pub(crate) fn attribute(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '"' => out.push_str("&quot;"),
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            c if c.is_control() => out.extend(c.escape_default()),
            c => out.push(c),
        }
    }
    out
}
