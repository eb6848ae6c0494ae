//! What a person is asked before a tool reaches a host for the first time.

use super::LABEL_COLUMNS;
use super::text::{LEAST_COLUMNS, head_and_tail};
use crate::layout::{bracketed, fit, wrapped};

/// Columns a host may take: a name has 253 bytes at most.
const HOST_COLUMNS: usize = 253;

/// Returns the question for a terminal of `columns_wide` columns, and the words before the answer.
///
/// The URL was written by an agent, so it is shown escaped, set in, and with its tail: what it would
/// give away may stand at the end.
#[must_use]
pub fn domain_question(
    label: &str,
    host: &str,
    url: &str,
    columns_wide: usize,
) -> (String, String) {
    let (label, host) = (bracketed(label, LABEL_COLUMNS), fit(host, HOST_COLUMNS));
    let room = columns_wide.saturating_sub(8).max(LEAST_COLUMNS);
    let url = wrapped(&head_and_tail(url), room).join("\n        ");
    let text = format!(
        "{label} wants to fetch from a host that nobody has allowed yet\n\n  Host  {host}\n  URL   {url}\n"
    );
    (text, format!("Allow {host} for this run? [y/N] "))
}
