//! Why nothing came back from the web, in words a model can act on.

use std::io;
use std::time::Duration;

/// Says why a page was not fetched or a search not made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WebError {
    /// The URL is longer than one may be.
    #[error("the URL has {bytes} bytes, at most {max} are sent")]
    UrlTooLong {
        /// Its length.
        bytes: usize,
        /// The cap.
        max: usize,
    },
    /// The question is longer than one may be.
    #[error("the query has {bytes} bytes, at most {max} are sent")]
    QueryTooLong {
        /// Its length.
        bytes: usize,
        /// The cap.
        max: usize,
    },
    /// The text is not a URL.
    #[error("`url` is not a full URL such as https://example.com/page: {0}")]
    NotAUrl(String),
    /// The URL is of another kind.
    #[error("only http and https can be fetched, not `{0}`")]
    Scheme(String),
    /// The URL has a name or password in it.
    #[error("the URL contains a user name or password; leave it out")]
    Credentials,
    /// The port is none that web servers use.
    #[error("port {0} is not fetched from; the ports are 80, 443, 8080 and 8443")]
    Port(u16),
    /// What would be sent contains a secret.
    #[error("the {0} contains a secret, so it was not sent")]
    Secret(&'static str),
    /// A name leads somewhere else than the public internet.
    #[error("`{host}` leads to an address that is not public ({kind}), so it is not asked")]
    NotPublic {
        /// The host as written in the URL.
        host: String,
        /// What kind of address it is; the address itself is nobody's business.
        kind: &'static str,
    },
    /// The name has no address.
    #[error("no address is known for `{0}`; check the spelling of the host")]
    Unresolved(String),
    /// No address of the host accepts a connection.
    #[error("cannot connect to `{host}`: {reason}")]
    Connect {
        /// The host.
        host: String,
        /// Why the last address failed.
        reason: String,
    },
    /// The other side cannot prove who it is.
    #[error("no secure connection to `{host}`: {reason}")]
    Tls {
        /// The host.
        host: String,
        /// What rustls said.
        reason: String,
    },
    /// The answer is not proper HTTP, or broke off.
    #[error("`{host}` did not answer properly: {reason}")]
    Http {
        /// The host.
        host: String,
        /// What hyper said.
        reason: String,
    },
    /// The body is compressed in a way that was not asked for.
    #[error("the answer is encoded as `{0}`, which was not asked for")]
    Encoding(String),
    /// The other side fell silent.
    #[error("`{host}` was silent for {}", seconds(*.time))]
    Idle {
        /// The host.
        host: String,
        /// How long it was waited for.
        time: Duration,
    },
    /// The call took too long as a whole.
    #[error("it took longer than {}", seconds(*.0))]
    TooSlow(Duration),
    /// The call was stopped from outside.
    #[error("stopped before the answer was complete")]
    Stopped,
    /// The page leads somewhere that may not be asked.
    #[error("the page redirects to `{to}`, which was not followed")]
    Redirect {
        /// Where it leads, shortened.
        to: String,
        /// Why not.
        source: Box<WebError>,
    },
    /// The URL asks another host than was approved.
    #[error("the URL asks `{found}`, but `{approved}` was approved; write the URL plainly")]
    OtherHost {
        /// Whom the URL asks.
        found: String,
        /// Whom it was approved for.
        approved: String,
    },
    /// The page leads to a host that nobody approved yet.
    #[error(
        "the page redirects to `{host}`, which nobody has allowed yet; to ask for it, fetch {url}"
    )]
    NewHost {
        /// The host.
        host: String,
        /// The URL in full, so that it can be asked for.
        url: String,
    },
    /// An https page leads to an unprotected one.
    #[error("it leads from https to http")]
    Downgrade,
    /// The page leads on and on.
    #[error("the page redirects more than {0} times")]
    TooManyRedirects(usize),
    /// No search engine is configured.
    #[error(
        "no search engine is configured; a person can add `[search]` with `engine` = \"searxng\", \
         \"brave\" or \"tavily\", and `url` or `key`, to ~/.config/adjutant/config.toml"
    )]
    NoSearch,
    /// The configured search engine cannot be used as configured.
    #[error("the search engine cannot be used: {0}")]
    SearchSetup(String),
    /// The search engine said no.
    #[error("{engine} answered with status {status}{hint}")]
    SearchStatus {
        /// Which one.
        engine: &'static str,
        /// The HTTP status.
        status: u16,
        /// What to do about it, or nothing.
        hint: &'static str,
    },
    /// The search engine's answer is of another form.
    #[error("{engine} answered in a form that is not understood: {reason}")]
    SearchForm {
        /// Which one.
        engine: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// Something of this machine failed.
    #[error("the network cannot be used")]
    System(#[from] io::Error),
}

fn seconds(time: Duration) -> String {
    format!("{} s", time.as_secs_f32())
}

/// Says an error with all its causes, which is what a model needs.
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
