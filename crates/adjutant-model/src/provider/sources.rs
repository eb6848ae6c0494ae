//! The configuration that a front end passes in: providers, keys, addresses, and overrides of model
//! properties.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use adjutant_core::{AttemptError, Secret, nearest};
use reqwest::{Client, Url};

use super::open::is_openai;
use crate::catalogue::{ModelDescription, ModelOverride, catalogue};
use crate::errors::unreached_error;
use crate::http::{HttpClients, HttpTimeouts};
use crate::limiter::ProviderLimiter;
use crate::record::Recorder;
use crate::wire::Wire;

/// The configuration of a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderConfig {
    /// The name before the slash in `provider/model`.
    pub name: String,
    /// Its wire format.
    pub wire: Wire,
    /// Its base URL.
    pub base_url: String,
    /// The API key, if there is one.
    pub key: Option<Secret>,
    /// Whether it requires a key; local servers often do not.
    pub needs_key: bool,
}

/// The built-in providers, in the order in which a default model is chosen.
const BUILT_IN: [BuiltInProvider; 5] = [
    BuiltInProvider {
        name: "anthropic",
        wire: Wire::Anthropic,
        base_url: "https://api.anthropic.com",
        key_vars: &["ANTHROPIC_API_KEY"],
        url_vars: &["ANTHROPIC_BASE_URL"],
    },
    BuiltInProvider {
        name: "openai",
        wire: Wire::Responses,
        base_url: "https://api.openai.com/v1",
        key_vars: &["OPENAI_API_KEY"],
        url_vars: &["OPENAI_BASE_URL"],
    },
    BuiltInProvider {
        name: "gemini",
        wire: Wire::Gemini,
        base_url: "https://generativelanguage.googleapis.com",
        key_vars: &["GEMINI_API_KEY", "GOOGLE_API_KEY"],
        url_vars: &["GEMINI_BASE_URL", "GOOGLE_GEMINI_BASE_URL"],
    },
    BuiltInProvider {
        name: "openrouter",
        wire: Wire::Chat,
        base_url: "https://openrouter.ai/api/v1",
        key_vars: &["OPENROUTER_API_KEY"],
        url_vars: &["OPENROUTER_BASE_URL"],
    },
    BuiltInProvider {
        name: "ollama",
        wire: Wire::Chat,
        base_url: "http://127.0.0.1:11434/v1",
        key_vars: &[],
        url_vars: &["OLLAMA_BASE_URL"],
    },
];

struct BuiltInProvider {
    name: &'static str,
    wire: Wire,
    base_url: &'static str,
    key_vars: &'static [&'static str],
    url_vars: &'static [&'static str],
}

/// The maximum number of suggestions for a model name without a provider.
const SUGGESTED: usize = 4;

/// Everything needed to open models. Clones share connections and pauses.
#[derive(Clone, Debug)]
pub struct ModelSources {
    providers: Vec<ProviderConfig>,
    overrides: BTreeMap<String, ModelOverride>,
    pub(crate) shared: Arc<SharedConnections>,
    pub(super) recorder: Option<Recorder>,
}

/// Connections and pauses, shared by all models of a process.
#[derive(Debug, Default)]
pub(crate) struct SharedConnections {
    pub(crate) http: HttpClients,
    // A std mutex: held for a look-up, never across an await.
    limiters: Mutex<BTreeMap<String, Arc<ProviderLimiter>>>,
}

impl SharedConnections {
    /// Returns the HTTP client for requests to `url`.
    pub(crate) fn client(&self, url: &Url) -> Result<&Client, AttemptError> {
        self.http.client(url.scheme() == "https").ok_or_else(|| {
            unreached_error("no encrypted connection can be made: no certificates found")
        })
    }

    /// Returns the shared pause of a provider.
    pub(crate) fn limiter(&self, provider: &str) -> Arc<ProviderLimiter> {
        let mut limiters = self.limiters.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(limiters.entry(provider.to_owned()).or_default())
    }
}

impl Default for ModelSources {
    /// The built-in providers without keys.
    fn default() -> Self {
        Self::from_vars(|_| None)
    }
}

impl ModelSources {
    /// Reads the usual environment variables with `get`, which the front end supplies.
    #[must_use]
    pub fn from_vars(get: impl Fn(&str) -> Option<String>) -> Self {
        let first = |names: &[&str]| {
            let mut values = names.iter().filter_map(|name| get(name));
            values.find(|value| !value.trim().is_empty())
        };
        let provider = |known: &BuiltInProvider| {
            let url = first(known.url_vars).map(|url| url.trim().to_owned());
            // OpenAI-compatible servers support the Chat wire; only OpenAI itself surely supports Responses.
            let own = |url: &String| Url::parse(url).is_ok_and(|url| is_openai(&url));
            let elsewhere = known.wire == Wire::Responses && !url.as_ref().is_none_or(own);
            ProviderConfig {
                name: known.name.to_owned(),
                wire: if elsewhere { Wire::Chat } else { known.wire },
                base_url: url.unwrap_or_else(|| known.base_url.to_owned()),
                key: first(known.key_vars).and_then(|key| Secret::new(&key)),
                needs_key: !known.key_vars.is_empty(),
            }
        };
        Self {
            providers: BUILT_IN.iter().map(provider).collect(),
            overrides: BTreeMap::new(),
            shared: Arc::default(),
            recorder: None,
        }
    }

    /// Adds a provider, or replaces the one with the same name.
    #[must_use]
    pub fn with_provider(mut self, provider: ProviderConfig) -> Self {
        match self.providers.iter_mut().find(|known| known.name == provider.name) {
            Some(known) => *known = provider,
            None => self.providers.push(provider),
        }
        self
    }

    /// Returns the `provider/model` names that a name without a provider may mean, from the catalogue and the
    /// overrides: exact matches, else the most similar spelling, else names that contain it.
    pub(super) fn models_like(&self, bare: &str) -> Vec<String> {
        let own = self.overrides.keys().filter_map(|name| name.split_once('/'));
        let listed = catalogue().iter().map(|entry| (entry.provider, entry.model));
        let mut known: Vec<(&str, &str)> = Vec::new();
        for pair in listed.chain(own) {
            if !known.contains(&pair) {
                known.push(pair);
            }
        }
        let bare = bare.trim_matches('/').to_lowercase();
        if bare.is_empty() {
            return Vec::new();
        }
        let names = |is_meant: &dyn Fn(&str, &str) -> bool| -> Vec<String> {
            let meant = known.iter().filter(|(provider, model)| is_meant(provider, model));
            meant.take(SUGGESTED).map(|(provider, model)| format!("{provider}/{model}")).collect()
        };
        let exact = names(&|provider, model| {
            let found = catalogue().find(provider, &bare);
            model == bare || found.is_some_and(|entry| entry.model == model)
        });
        if !exact.is_empty() {
            return exact;
        }
        match nearest(&bare, known.iter().map(|(_, model)| *model)) {
            Some(near) => names(&|_, model| model == near),
            None => names(&|provider, model| provider == bare || model.contains(&bare)),
        }
    }

    /// Sets an override for `provider/model`.
    #[must_use]
    pub fn with_override(mut self, model: impl Into<String>, figures: ModelOverride) -> Self {
        self.overrides.insert(model.into(), figures);
        self
    }

    /// Records the requests and responses of models opened from now on.
    #[must_use]
    pub fn with_recorder(mut self, recorder: Recorder) -> Self {
        self.recorder = Some(recorder);
        self
    }

    /// Replaces the timeouts; existing connections are no longer shared.
    #[must_use]
    pub fn with_timeouts(mut self, timeouts: HttpTimeouts) -> Self {
        self.shared = Arc::new(SharedConnections {
            http: HttpClients::new(timeouts),
            limiters: Mutex::default(),
        });
        self
    }

    /// Iterates over the providers, built-in ones first.
    pub fn providers(&self) -> impl Iterator<Item = &ProviderConfig> {
        self.providers.iter()
    }

    /// Finds a provider by name; `google` means `gemini`.
    #[must_use]
    pub fn provider(&self, name: &str) -> Option<&ProviderConfig> {
        let exact = self.providers.iter().find(|provider| provider.name == name);
        exact.or_else(|| (name == "google").then(|| self.provider("gemini")).flatten())
    }

    /// Returns the environment variables that may have the key of a built-in provider.
    #[must_use]
    pub fn key_variables(provider: &str) -> &'static [&'static str] {
        BUILT_IN.iter().find(|known| known.name == provider).map_or(&[], |known| known.key_vars)
    }

    /// Returns all keys, for masking.
    #[must_use]
    pub fn secrets(&self) -> Vec<String> {
        let keys = self.providers.iter().filter_map(|provider| provider.key.as_ref());
        keys.map(|key| key.reveal().to_owned()).collect()
    }

    /// Returns the default model of the first provider that has a key, as `provider/model`.
    #[must_use]
    pub fn default_model(&self) -> Option<String> {
        let mut usable = self.providers.iter().filter(|provider| provider.key.is_some());
        usable.find_map(|provider| Some(catalogue().default_of(&provider.name)?.name()))
    }

    /// Returns the properties of a model, overrides first.
    #[must_use]
    pub fn describe(&self, provider: &str, model: &str) -> ModelDescription {
        let own = self.overrides.get(&format!("{provider}/{model}"));
        ModelDescription::new(provider, model, own)
    }
}
