//! The limits of one WebFetch or WebSearch call.

use std::time::Duration;

/// The limits of one web call. What exceeds them is cut or refused, and the result says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebCaps {
    /// The maximum length of a URL or a search query, in bytes.
    pub url_bytes: usize,
    /// The maximum number of redirects.
    pub redirects: usize,
    /// The maximum size of the response headers, in bytes.
    pub head_bytes: usize,
    /// The maximum size of a decompressed body, in bytes.
    pub body_bytes: usize,
    /// The default number of characters shown of a page.
    pub page_chars: usize,
    /// The maximum number of characters shown of a page.
    pub page_chars_max: usize,
    /// The default number of search results.
    pub results: usize,
    /// The maximum number of search results.
    pub results_max: usize,
    /// The connection timeout per address.
    pub connect_time: Duration,
    /// The maximum silence of the server; all response headers must arrive within this time.
    pub idle_time: Duration,
    /// The timeout of a call including all redirects.
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
            // Less than the engine's timeout for tools, so that the call itself can report what was slow.
            total_time: Duration::from_secs(20),
        }
    }
}
