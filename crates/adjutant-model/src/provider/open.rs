//! Opens a model by its name `provider/model`.

use std::sync::Arc;

use adjutant_core::nearest;
use reqwest::Url;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};

use super::client::ProviderClient;
use super::sources::{ModelSources, ProviderConfig};
use crate::model::Model;
use crate::settings::ModelSettings;
use crate::wire::{Wire, WireCodec};

/// Why a model cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenModelError {
    /// The name is not of the form `provider/model`.
    #[error("`{name}` is not provider/model; {}", name_advice(.suggestions))]
    Name {
        /// The given text.
        name: String,
        /// Similar models, as `provider/model`.
        suggestions: Vec<String>,
    },
    /// The model part of the name has invalid characters.
    #[error("the model name `{model}` contains characters that are not allowed in a model name")]
    ModelName {
        /// The given name, escaped.
        model: String,
    },
    /// There is no such provider.
    #[error("no provider `{provider}`{}; known are {}", suggestion_text(.nearest), .known.join(", "))]
    UnknownProvider {
        /// The given text.
        provider: String,
        /// The most similar provider.
        nearest: Option<String>,
        /// All known providers.
        known: Vec<String>,
    },
    /// The provider needs a key, and none is configured.
    #[error("Cannot spawn subagents: no API key for provider {provider}")]
    NoKey {
        /// The provider.
        provider: String,
    },
    /// The key has characters that cannot be sent in a header.
    #[error("the key of provider {provider} contains characters that are not allowed in a key")]
    Key {
        /// The provider.
        provider: String,
    },
    /// The base URL is not a valid HTTP address.
    #[error("the base URL of provider {provider} {problem}")]
    BaseUrl {
        /// The provider.
        provider: String,
        /// The problem. The URL itself may contain a password and is not shown.
        problem: &'static str,
    },
}

fn name_advice(suggestions: &[String]) -> String {
    match suggestions {
        [] => "write it as in anthropic/claude-sonnet-5-5".to_owned(),
        some => format!("did you mean {}?", some.join(" or ")),
    }
}

fn suggestion_text(nearest: &Option<String>) -> String {
    nearest.as_ref().map(|name| format!(", did you mean {name}")).unwrap_or_default()
}

/// Opens the model with this name.
///
/// Sends nothing and loads nothing before its first turn.
pub fn open_model(name: &str, sources: &ModelSources) -> Result<Arc<dyn Model>, OpenModelError> {
    open_model_with(name, sources, ModelSettings::default())
}

/// Like [`open_model`], with settings for every request.
pub fn open_model_with(
    name: &str,
    sources: &ModelSources,
    settings: ModelSettings,
) -> Result<Arc<dyn Model>, OpenModelError> {
    let (config, model) = find_provider(name, sources)?;
    let mut described = sources.describe(&config.name, model);
    described.spec.effort = settings.effort;
    let base = base_url(config)?;
    let codec = WireCodec {
        wire: config.wire,
        model: model.to_owned(),
        official: is_official(config.wire, &base),
        reasoning: described.reasoning,
        settings,
    };
    let mut url = endpoint(base, codec.wire, &codec.path());
    if codec.wire == Wire::Gemini {
        url.query_pairs_mut().append_pair("alt", "sse");
    }
    let headers = headers(config)?;
    Ok(Arc::new(ProviderClient::new(described.spec, codec, url, headers, config, sources)))
}

/// Finds the provider of the model `provider/model`, and the provider's name for the model.
///
/// Fails if the name is invalid or the provider lacks its key.
pub(crate) fn find_provider<'a>(
    name: &'a str,
    sources: &'a ModelSources,
) -> Result<(&'a ProviderConfig, &'a str), OpenModelError> {
    let (provider, model) = name
        .split_once('/')
        .filter(|(provider, model)| !provider.is_empty() && !model.is_empty())
        .ok_or_else(|| OpenModelError::Name {
            name: name.escape_debug().to_string(),
            suggestions: sources.models_like(name),
        })?;
    let config = sources.provider(provider).ok_or_else(|| unknown(provider, sources))?;
    check_model(model)?;
    if config.needs_key && config.key.is_none() {
        return Err(OpenModelError::NoKey { provider: config.name.clone() });
    }
    Ok((config, model))
}

fn unknown(provider: &str, sources: &ModelSources) -> OpenModelError {
    let known: Vec<String> = sources.providers().map(|known| known.name.clone()).collect();
    let nearest = nearest(provider, known.iter().map(String::as_str)).map(str::to_owned);
    OpenModelError::UnknownProvider {
        provider: provider.escape_debug().to_string(),
        nearest,
        known,
    }
}

/// A model name may become part of a URL, so it must not be able to change the address.
pub(super) fn check_model(model: &str) -> Result<(), OpenModelError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/@+".contains(&byte);
    let is_name = model.bytes().all(plain) && !model.contains("..") && model.len() <= 200;
    if is_name {
        return Ok(());
    }
    let shown: String = model.chars().take(80).collect();
    Err(OpenModelError::ModelName { model: shown.escape_debug().to_string() })
}

/// Parses the base URL of a provider.
pub(crate) fn base_url(config: &ProviderConfig) -> Result<Url, OpenModelError> {
    let wrong = |problem| OpenModelError::BaseUrl { provider: config.name.clone(), problem };
    let url = Url::parse(config.base_url.trim()).map_err(|_| wrong("is no address"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(wrong("is neither http nor https"));
    }
    if !url.has_host() {
        return Err(wrong("has no host"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(wrong("holds a user name or password; keys go elsewhere"));
    }
    Ok(url)
}

/// Returns whether a base URL belongs to the provider that defines the API, where fields differ for others.
pub(crate) fn is_official(wire: Wire, base: &Url) -> bool {
    match wire {
        Wire::Anthropic => base.host_str() == Some("api.anthropic.com"),
        Wire::Chat | Wire::Responses => is_openai(base),
        Wire::Gemini => false,
    }
}

/// Returns whether a base URL is OpenAI's own; compatible servers lack some of its features.
pub(super) fn is_openai(base: &Url) -> bool {
    base.host_str().is_some_and(|host| host.ends_with(".openai.com"))
}

/// Builds the URL of `endpoint_path` from a base URL with or without the API version.
pub(crate) fn endpoint(mut base: Url, wire: Wire, endpoint_path: &str) -> Url {
    let path = base.path().trim_end_matches('/').to_owned();
    let last = path.rsplit('/').next().unwrap_or_default();
    let has_version = last.strip_prefix('v').is_some_and(|rest| rest.starts_with(char::is_numeric));
    let version = match wire {
        Wire::Anthropic if !has_version => "/v1",
        Wire::Gemini if !has_version => "/v1beta",
        Wire::Chat | Wire::Responses if path.is_empty() => "/v1",
        Wire::Anthropic | Wire::Gemini | Wire::Chat | Wire::Responses => "",
    };
    base.set_path(&format!("{path}{version}{endpoint_path}"));
    base
}

/// Returns the headers of every request to a provider, with its key.
pub(crate) fn headers(config: &ProviderConfig) -> Result<HeaderMap, OpenModelError> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if config.wire == Wire::Anthropic {
        let version = HeaderName::from_static("anthropic-version");
        headers.insert(version, HeaderValue::from_static("2023-06-01"));
    }
    let Some(key) = &config.key else { return Ok(headers) };
    let (name, value) = match config.wire {
        Wire::Anthropic => (HeaderName::from_static("x-api-key"), key.reveal().to_owned()),
        Wire::Gemini => (HeaderName::from_static("x-goog-api-key"), key.reveal().to_owned()),
        Wire::Chat | Wire::Responses => (AUTHORIZATION, format!("Bearer {}", key.reveal())),
    };
    let mut value = HeaderValue::from_str(&value)
        .map_err(|_| OpenModelError::Key { provider: config.name.clone() })?;
    value.set_sensitive(true);
    headers.insert(name, value);
    Ok(headers)
}
