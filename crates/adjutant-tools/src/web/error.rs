//! Errors of the web tools, with messages for the model.

use std::io;
use std::time::Duration;

/// Why a page was not fetched or a search was not made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WebError {
    /// The URL is too long.
    #[error("the URL has {bytes} bytes, at most {max} are sent")]
    UrlTooLong {
        /// Its length.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// The search query is too long.
    #[error("the query has {bytes} bytes, at most {max} are sent")]
    QueryTooLong {
        /// Its length.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// The text is not a URL.
    #[error("`url` is not a full URL such as https://example.com/page: {0}")]
    NotAUrl(String),
    /// The scheme is not http or https.
    #[error("only http and https can be fetched, not `{0}`")]
    Scheme(String),
    /// The URL contains a user name or password.
    #[error("the URL contains a user name or password; leave it out")]
    Credentials,
    /// The port is not allowed.
    #[error("port {0} is not allowed; use 80, 443, 8080 or 8443")]
    Port(u16),
    /// The request would contain a secret.
    #[error("the {0} contains a secret, so it was not sent")]
    Secret(&'static str),
    /// The host has a non-public address.
    #[error("`{host}` resolves to an address that is not public ({kind}), so no request was sent")]
    NotPublic {
        /// The host as written in the URL.
        host: String,
        /// The kind of the address. The address itself is not revealed.
        kind: &'static str,
    },
    /// The host name cannot be resolved.
    #[error("no address is known for `{0}`; check the spelling of the host")]
    Unresolved(String),
    /// No address of the host accepts a connection.
    #[error("cannot connect to `{host}`: {reason}")]
    Connect {
        /// The host.
        host: String,
        /// The error of the last address.
        reason: String,
    },
    /// The TLS connection failed.
    #[error("no secure connection to `{host}`: {reason}")]
    Tls {
        /// The host.
        host: String,
        /// The message of rustls.
        reason: String,
    },
    /// The response is not valid HTTP or was truncated.
    #[error("`{host}` did not answer properly: {reason}")]
    Http {
        /// The host.
        host: String,
        /// The message of hyper.
        reason: String,
    },
    /// The body has an unsupported content encoding.
    #[error("the answer is encoded as `{0}`, which was not requested")]
    Encoding(String),
    /// The server was silent for too long.
    #[error("`{host}` sent nothing for {}", seconds(*.time))]
    Idle {
        /// The host.
        host: String,
        /// The waiting time.
        time: Duration,
    },
    /// The call exceeded its total timeout.
    #[error("it took longer than {}", seconds(*.0))]
    TooSlow(Duration),
    /// The caller stopped the call.
    #[error("stopped before the answer was complete")]
    Stopped,
    /// The redirect target is refused.
    #[error("the page redirects to `{to}`, which was not followed")]
    Redirect {
        /// The target, shortened.
        to: String,
        /// Why it is refused.
        source: Box<WebError>,
    },
    /// The host of the URL is not the approved one.
    #[error(
        "the URL names the host `{found}`, but `{approved}` was approved; write the URL plainly"
    )]
    OtherHost {
        /// The host of the URL.
        found: String,
        /// The approved host.
        approved: String,
    },
    /// The page redirects to a host that has not been approved.
    #[error(
        "the page redirects to `{host}`, which is not approved yet; to request approval, fetch {url}"
    )]
    NewHost {
        /// The host.
        host: String,
        /// The complete URL, so that the model can fetch it.
        url: String,
    },
    /// The page redirects from https to http.
    #[error("it leads from https to http")]
    Downgrade,
    /// There are too many redirects.
    #[error("the page redirects more than {0} times")]
    TooManyRedirects(usize),
    /// No search engine is configured.
    #[error(
        "no search engine is configured; a person can add `[search]` with `engine` = \"searxng\", \
         \"brave\" or \"tavily\", and `url` or `key`, to ~/.config/adjutant/config.toml"
    )]
    NoSearch,
    /// The configuration of the search engine is invalid.
    #[error(
        "the web search is not configured correctly: {0}; correct `[search]` in ~/.config/adjutant/config.toml"
    )]
    SearchSetup(String),
    /// The search engine returned an error status.
    #[error("{engine} answered with status {status}{hint}")]
    SearchStatus {
        /// The name of the search engine.
        engine: &'static str,
        /// The HTTP status.
        status: u16,
        /// What to do about it; may be empty.
        hint: &'static str,
    },
    /// The response of the search engine has an unexpected format.
    #[error("the answer of {engine} is not understood: {reason}")]
    SearchForm {
        /// The name of the search engine.
        engine: &'static str,
        /// The problem.
        reason: String,
    },
    /// A local system call failed.
    #[error("the network cannot be used")]
    System(#[from] io::Error),
}

fn seconds(time: Duration) -> String {
    format!("{} s", time.as_secs_f32())
}

/// Formats an error with all its causes, for the model.
pub(crate) fn explain(error: &WebError) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
