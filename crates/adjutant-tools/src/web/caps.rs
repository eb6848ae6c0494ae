//! How much of the web one call may take.

use std::time::Duration;

/// The largest amounts one call takes; what exceeds them is cut or refused, and said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebCaps {
    /// Bytes of a URL, and of a question to a search engine.
    pub url_bytes: usize,
    /// Redirects that are followed.
    pub redirects: usize,
    /// Bytes of an answer's head.
    pub head_bytes: usize,
    /// Bytes of an answer's body once decompressed.
    pub body_bytes: usize,
    /// Characters of a page that are shown when the call does not say.
    pub page_chars: usize,
    /// Characters of a page that are shown at most.
    pub page_chars_max: usize,
    /// Results of a search that are shown when the call does not say.
    pub results: usize,
    /// Results of a search that are shown at most.
    pub results_max: usize,
    /// How long one address may take to accept a connection.
    pub connect_time: Duration,
    /// How long the other side may be silent; its whole head must come within this.
    pub idle_time: Duration,
    /// How long a call may take with all its redirects.
    pub total_time: Duration,
}

impl Default for WebCaps {
    fn default() -> Self {
        Self {
            url_bytes: 2 * 1024,
            redirects: 5,
            head_bytes: 64 * 1024,
            body_bytes: 2 * 1024 * 1024,
            page_chars: 40_000,
            page_chars_max: 200_000,
            results: 5,
            results_max: 20,
            connect_time: Duration::from_secs(5),
            idle_time: Duration::from_secs(10),
            // Below the time the engine gives any tool, so that the call itself says what was slow.
            total_time: Duration::from_secs(20),
        }
    }
}
