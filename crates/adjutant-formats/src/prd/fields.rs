//! Reading the fields of an object, and saying which of them have another type than they must.
//!
//! `null` is the same as a field that is not there. What is wrong is recorded and read as absent, so
//! that several faults are told at once.

use super::finding::{Findings, Subject};
use crate::document::Node;
use crate::numbers::whole;

/// An object and what is being said about it.
pub(super) struct Fields<'a, 't> {
    pub(super) text: &'t str,
    pub(super) node: &'a Node,
    pub(super) story: Option<&'a str>,
    /// What stands before the names of the fields in messages, such as `delegationContext.`.
    pub(super) prefix: &'static str,
}

impl<'a> Fields<'a, '_> {
    /// Returns a field.
    pub(super) fn get(&self, field: &str) -> Option<&'a Node> {
        self.node.member(self.text, field).filter(|node| !node.is_null(self.text))
    }

    /// Reads a text.
    pub(super) fn string(&self, field: &str, out: &mut Findings<'_>) -> Option<String> {
        let node = self.get(field)?;
        let read = node.as_string(self.text);
        self.or_wrong(read, node, field, "a string", out)
    }

    /// Reads a text that says something.
    pub(super) fn words(&self, field: &str, out: &mut Findings<'_>) -> Option<String> {
        self.string(field, out).filter(|text| !text.trim().is_empty())
    }

    /// Reads a list of texts.
    pub(super) fn strings(&self, field: &str, out: &mut Findings<'_>) -> Vec<String> {
        let Some(node) = self.get(field) else { return Vec::new() };
        let wanted = "a list of strings";
        let Some(items) = self.or_wrong(node.items(), node, field, wanted, out) else {
            return Vec::new();
        };
        let read = |item: &Node| {
            let text = item.as_string(self.text);
            self.or_wrong(text, item, field, wanted, out)
        };
        items.iter().filter_map(read).collect()
    }

    /// Reads true or false.
    pub(super) fn boolean(&self, field: &str, out: &mut Findings<'_>) -> Option<bool> {
        let node = self.get(field)?;
        let read = node.raw(self.text).parse().ok();
        self.or_wrong(read, node, field, "true or false", out)
    }

    /// Reads a number that is not negative.
    pub(super) fn number(&self, field: &str, out: &mut Findings<'_>) -> Option<f64> {
        let node = self.get(field)?;
        self.or_wrong(number(node.raw(self.text)), node, field, "a number from 0 on", out)
    }

    /// Reads a whole number that is not negative.
    pub(super) fn whole(&self, field: &str, out: &mut Findings<'_>) -> Option<u64> {
        let node = self.get(field)?;
        let read = serde_json::from_str(node.raw(self.text)).ok().and_then(|it| whole(&it));
        self.or_wrong(read, node, field, "a whole number from 0 on", out)
    }

    /// Reads a word or a number as it is written.
    pub(super) fn word(&self, field: &str, out: &mut Findings<'_>) -> Option<String> {
        let node = self.get(field)?;
        let raw = node.raw(self.text);
        let read = node.as_string(self.text).or_else(|| number(raw).map(|_| raw.to_owned()));
        self.or_wrong(read, node, field, "a word or a number", out)
    }

    /// Returns an object within this one.
    pub(super) fn object(
        &self,
        field: &str,
        prefix: &'static str,
        out: &mut Findings<'_>,
    ) -> Option<Self> {
        let node = self.get(field)?;
        let read = node.is_object().then_some(node);
        let node = self.or_wrong(read, node, field, "an object", out)?;
        Some(Self { text: self.text, node, story: self.story, prefix })
    }

    /// Records a fault of a field.
    pub(super) fn fault(&self, field: &str, what: &str, out: &mut Findings<'_>) {
        self.fault_at(field, self.get(field).unwrap_or(self.node).range.start, what, out);
    }

    /// Records a fault of a field at a place of its own.
    pub(super) fn fault_at(&self, field: &str, at: usize, what: &str, out: &mut Findings<'_>) {
        let field = format!("{}{field}", self.prefix);
        let subject = Subject { story: self.story, field: Some(&field), at };
        out.fault(subject, format!("`{field}` {what}"));
    }

    /// Records a warning about a field.
    pub(super) fn warning(&self, field: &str, at: usize, what: &str, out: &mut Findings<'_>) {
        let field = format!("{}{field}", self.prefix);
        let subject = Subject { story: self.story, field: Some(&field), at };
        out.warning(subject, format!("`{field}` {what}"));
    }

    fn or_wrong<T>(
        &self,
        read: Option<T>,
        node: &Node,
        field: &str,
        wanted: &str,
        out: &mut Findings<'_>,
    ) -> Option<T> {
        if read.is_none() {
            let field = format!("{}{field}", self.prefix);
            let is_text =
                node.raw(self.text).starts_with('"') && node.as_string(self.text).is_none();
            let why = if is_text { ": its escapes do not make a text" } else { "" };
            let subject = Subject { story: self.story, field: Some(&field), at: node.range.start };
            out.fault(subject, format!("`{field}` is not {wanted}{why}"));
        }
        read
    }
}

/// Reads a number as JSON writes it; none where it is negative or too large for any use.
pub(super) fn number(raw: &str) -> Option<f64> {
    // `parse` takes words such as `inf` as well.
    let is_number = raw.starts_with(|first: char| first.is_ascii_digit() || first == '-');
    raw.parse().ok().filter(|number: &f64| is_number && number.is_finite() && *number >= 0.0)
}
