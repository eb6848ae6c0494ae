//! The search engines: how each is asked, and what its answer means.

use adjutant_core::Secret;
use hyper::header::{self, HeaderName, HeaderValue};
use serde_json::{Value, json};
use url::Url;

use crate::web::WebError;
use crate::web::exchange::WebRequest;
use crate::web::target::RequestTarget;

const BRAVE: &str = "https://api.search.brave.com/res/v1/web/search";
const TAVILY: &str = "https://api.tavily.com/search";

/// A search engine as a person configured it.
///
/// Its address may be private, because that person chose it; so this must never be filled from a
/// project's files or by a model. Hand the key to the [`Masker`](crate::Masker) too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SearchEndpoint {
    /// A SearXNG instance, which must have JSON among its `search.formats`.
    Searxng {
        /// Where it is, such as `http://127.0.0.1:8888`.
        base_url: String,
    },
    /// Brave Search.
    Brave {
        /// The subscription token.
        key: Secret,
        /// Another address than Brave's own.
        url: Option<String>,
    },
    /// Tavily.
    Tavily {
        /// The API key.
        key: Secret,
        /// Another address than Tavily's own.
        url: Option<String>,
    },
}

/// One result, as the engine gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SearchResult {
    pub(crate) title: String,
    pub(crate) url: String,
    pub(crate) snippet: String,
}

/// How an engine writes titles and snippets.
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

    /// Says how it writes titles and snippets.
    pub(crate) fn form(&self) -> SnippetFormat {
        match self {
            Self::Brave { .. } => SnippetFormat::Html,
            Self::Searxng { .. } | Self::Tavily { .. } => SnippetFormat::Plain,
        }
    }

    /// Says whether a key goes along, which then must not be readable on the way.
    pub(crate) fn sends_key(&self) -> bool {
        match self {
            Self::Searxng { .. } => false,
            Self::Brave { .. } | Self::Tavily { .. } => true,
        }
    }

    /// Returns the request for a question.
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

    /// Says what a status that is no success asks a person to do.
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

    /// Reads the results out of an answer; entries without a URL are left out.
    pub(crate) fn hits(&self, answer: &Value) -> Option<Vec<SearchResult>> {
        let (results, snippet) = match self {
            Self::Searxng { .. } | Self::Tavily { .. } => (answer.get("results"), "content"),
            // Brave leaves `web` out when it found nothing.
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
        WebError::SearchSetup("its key contains characters that no key has".to_owned())
    })?;
    value.set_sensitive(true);
    Ok(value)
}
