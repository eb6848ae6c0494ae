//! The question that a person is asked before a tool contacts a host for the first time.

use super::LABEL_COLUMNS;
use super::text::{LEAST_COLUMNS, head_and_tail};
use crate::layout::{bracketed, fit, wrap};

/// The maximum width of a host, in columns. A host name has at most 253 bytes.
const HOST_COLUMNS: usize = 253;

/// Returns the question for a terminal of `columns_wide` columns, and the prompt for the answer.
///
/// An agent wrote the URL, so it is shown escaped, indented, and with its end: data that it would leak may be
/// there.
#[must_use]
pub fn domain_question(
    label: &str,
    host: &str,
    url: &str,
    columns_wide: usize,
) -> (String, String) {
    let (label, host) = (bracketed(label, LABEL_COLUMNS), fit(host, HOST_COLUMNS));
    let room = columns_wide.saturating_sub(8).max(LEAST_COLUMNS);
    let url = wrap(&head_and_tail(url), room).join("\n        ");
    let text = format!(
        "{label} wants to fetch from a host that is not allowed yet\n\n  Host  {host}\n  URL   {url}\n"
    );
    (text, format!("Allow {host} for this run? [y/N] "))
}
