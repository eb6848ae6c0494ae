//! The supported search engines: their requests and responses.

use adjutant_core::Secret;
use hyper::header::{self, HeaderName, HeaderValue};
use serde_json::{Value, json};
use url::Url;

use crate::web::WebError;
use crate::web::exchange::WebRequest;
use crate::web::target::RequestTarget;

const BRAVE: &str = "https://api.search.brave.com/res/v1/web/search";
const TAVILY: &str = "https://api.tavily.com/search";

/// A search engine configured by the user.
///
/// Its address may be private, because the user chose it, so it must never come from project files or a
/// model. Also pass the key to the [`Masker`](crate::Masker).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SearchEndpoint {
    /// A SearXNG instance; its `search.formats` must include JSON.
    Searxng {
        /// Its base URL, such as `http://127.0.0.1:8888`.
        base_url: String,
    },
    /// Brave Search.
    Brave {
        /// The subscription token.
        key: Secret,
        /// A URL that replaces Brave's own.
        url: Option<String>,
    },
    /// Tavily.
    Tavily {
        /// The API key.
        key: Secret,
        /// A URL that replaces Tavily's own.
        url: Option<String>,
    },
}

/// A search result as returned by the search engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SearchResult {
    pub(crate) title: String,
    pub(crate) url: String,
    pub(crate) snippet: String,
}

/// The format of titles and snippets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SnippetFormat {
    Plain,
    Html,
}

impl SearchEndpoint {
    /// Returns the name for messages.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Searxng { .. } => "SearXNG",
            Self::Brave { .. } => "Brave",
            Self::Tavily { .. } => "Tavily",
        }
    }

    /// Returns the format of titles and snippets.
    pub(crate) fn form(&self) -> SnippetFormat {
        match self {
            Self::Brave { .. } => SnippetFormat::Html,
            Self::Searxng { .. } | Self::Tavily { .. } => SnippetFormat::Plain,
        }
    }

    /// Returns whether requests contain a key, which then needs an encrypted connection.
    pub(crate) fn sends_key(&self) -> bool {
        match self {
            Self::Searxng { .. } => false,
            Self::Brave { .. } | Self::Tavily { .. } => true,
        }
    }

    /// Makes the request for a query.
    pub(crate) fn request(
        &self,
        query: &str,
        count: usize,
    ) -> Result<(RequestTarget, WebRequest), WebError> {
        match self {
            Self::Searxng { base_url } => {
                let mut url = parsed(base_url)?;
                let path = format!("{}/search", url.path().trim_end_matches('/'));
                url.set_path(&path);
                url.query_pairs_mut().append_pair("q", query).append_pair("format", "json");
                Ok((RequestTarget::configured(url)?, WebRequest::json()))
            }
            Self::Brave { key, url } => {
                let mut url = parsed(url.as_deref().unwrap_or(BRAVE))?;
                let count = count.to_string();
                url.query_pairs_mut().append_pair("q", query).append_pair("count", &count);
                let name = HeaderName::from_static("x-subscription-token");
                let credential = Some((name, header_value(key.reveal())?));
                Ok((
                    RequestTarget::configured(url)?,
                    WebRequest { credential, ..WebRequest::json() },
                ))
            }
            Self::Tavily { key, url } => {
                let url = parsed(url.as_deref().unwrap_or(TAVILY))?;
                let value = header_value(&format!("Bearer {}", key.reveal()))?;
                let json = json!({"query": query, "max_results": count}).to_string();
                let credential = Some((header::AUTHORIZATION, value));
                let ask = WebRequest { json: Some(json), credential, ..WebRequest::json() };
                Ok((RequestTarget::configured(url)?, ask))
            }
        }
    }

    /// Returns a hint for the user about an error status.
    pub(crate) fn hint(&self, status: u16) -> &'static str {
        match (self, status) {
            (Self::Searxng { .. }, 403) => {
                "; its settings.yml must list `json` under `search.formats`"
            }
            (Self::Searxng { .. } | Self::Brave { .. } | Self::Tavily { .. }, 300..=399) => {
                "; it redirects, which is not followed: its final URL must be configured"
            }
            (Self::Brave { .. } | Self::Tavily { .. }, 401 | 403) => "; its key is not accepted",
            (Self::Searxng { .. } | Self::Brave { .. } | Self::Tavily { .. }, 429) => {
                "; its limit is reached, so go on without it for now"
            }
            (Self::Searxng { .. } | Self::Brave { .. } | Self::Tavily { .. }, _) => "",
        }
    }

    /// Reads the results from a response, skipping entries without a URL.
    pub(crate) fn hits(&self, answer: &Value) -> Option<Vec<SearchResult>> {
        let (results, snippet) = match self {
            Self::Searxng { .. } | Self::Tavily { .. } => (answer.get("results"), "content"),
            // Brave omits `web` if there are no results.
            Self::Brave { .. } if answer.is_object() && answer.get("web").is_none() => {
                return Some(Vec::new());
            }
            Self::Brave { .. } => (answer.pointer("/web/results"), "description"),
        };
        let text = |entry: &Value, name: &str| entry.get(name)?.as_str().map(str::to_owned);
        let hit = |entry: &Value| {
            Some(SearchResult {
                title: text(entry, "title").unwrap_or_default(),
                url: text(entry, "url")?,
                snippet: text(entry, snippet).unwrap_or_default(),
            })
        };
        Some(results?.as_array()?.iter().filter_map(hit).collect())
    }
}

fn parsed(url: &str) -> Result<Url, WebError> {
    Url::parse(url).map_err(|error| WebError::SearchSetup(format!("its URL is wrong: {error}")))
}

fn header_value(text: &str) -> Result<HeaderValue, WebError> {
    let mut value = HeaderValue::from_str(text).map_err(|_| {
        WebError::SearchSetup(
            "its key contains characters that are not allowed in a key".to_owned(),
        )
    })?;
    value.set_sensitive(true);
    Ok(value)
}
