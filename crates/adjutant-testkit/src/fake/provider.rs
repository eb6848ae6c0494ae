//! Turns a fake server into the provider configuration of a client. Knows no wire format.

use std::sync::Arc;
use std::time::Duration;

use adjutant_core::Secret;
use adjutant_model::wire::Wire;
use adjutant_model::{HttpTimeouts, Model, ModelSources, ProviderConfig, open_model};

use super::api::Api;
use super::server::{KEY, RunningServer};

const DRAIN_TIME: Duration = Duration::from_secs(10);

impl Api {
    /// All APIs.
    pub const ALL: [Self; 4] = [Self::Anthropic, Self::Chat, Self::Responses, Self::Gemini];

    /// Returns a well-known model of this API, as `provider/model`.
    #[must_use]
    pub const fn model(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic/claude-sonnet-5-5",
            Self::Chat | Self::Responses => "openai/gpt-6.1-sol",
            Self::Gemini => "gemini/gemini-3.8-flash",
        }
    }

    /// Returns a server of this API at an address as a provider, with the key that fakes require.
    #[must_use]
    pub fn provider_at(self, url: &str) -> ProviderConfig {
        let name = self.model().split('/').next().unwrap_or_default();
        ProviderConfig {
            name: name.to_owned(),
            wire: self.wire(),
            base_url: url.to_owned(),
            key: Secret::new(KEY),
            needs_key: true,
        }
    }

    /// Returns the name of the wire in a client's configuration.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::Chat => "chat",
            Self::Responses => "responses",
            Self::Gemini => "gemini",
        }
    }

    const fn wire(self) -> Wire {
        match self {
            Self::Anthropic => Wire::Anthropic,
            Self::Chat => Wire::Chat,
            Self::Responses => Wire::Responses,
            Self::Gemini => Wire::Gemini,
        }
    }
}

impl RunningServer {
    /// Returns this server as a provider, with the key that fakes require.
    #[must_use]
    pub fn provider(&self) -> ProviderConfig {
        self.api().provider_at(&self.url)
    }

    /// Returns the sources with which a client opens models of this server. The client waits for the end of each
    /// body, so that the number of connections does not depend on how busy the machine is.
    #[must_use]
    pub fn sources(&self) -> ModelSources {
        let timeouts = HttpTimeouts { drain: DRAIN_TIME, ..HttpTimeouts::default() };
        ModelSources::default().with_provider(self.provider()).with_timeouts(timeouts)
    }

    /// Opens the API's well-known model at this server.
    ///
    /// # Panics
    ///
    /// If the client does not know the model.
    #[must_use]
    pub fn model(&self) -> Arc<dyn Model> {
        open_model(self.api().model(), &self.sources()).expect("a model of the fake")
    }
}
