//! Reads and edits the server's entry in the text of a client configuration, in JSON or TOML.

use adjutant_formats::document::{jsonc, toml};
use adjutant_mcp::{KnownClient, SERVER};
use serde_json::Value;

/// The text of a client configuration, and its entry for this server.
pub(crate) struct ClientConfigText {
    client: KnownClient,
    text: String,
    path: Vec<&'static str>,
    entry: Option<Value>,
}

impl ClientConfigText {
    /// Parses a configuration. The error describes what is wrong with it.
    pub(crate) fn read(client: KnownClient, text: String) -> Result<Self, String> {
        let whole = if client == KnownClient::Codex {
            toml::read(&text).map_err(|error| error.to_string())?
        } else {
            jsonc::read(&text).map_err(|error| error.to_string())?
        };
        let mut path = vec![client.config_section()];
        // Version 2 of opencode nests entries below `servers`. In version 1, `servers` may be the name of a server.
        let inner = &whole["mcp"]["servers"];
        if client == KnownClient::Opencode
            && inner.is_object()
            && client.command_of(inner).is_none()
        {
            path.push("servers");
        }
        path.push(SERVER);
        let entry = path.iter().try_fold(&whole, |value, key| value.get(key)).cloned();
        Ok(Self { client, text, path, entry })
    }

    /// Returns the entry for this server.
    pub(crate) fn entry(&self) -> Option<&Value> {
        self.entry.as_ref()
    }

    /// Returns the text with an entry that starts `command`. Other members of the entry stay.
    pub(crate) fn with_entry(&self, command: &[String]) -> Result<String, String> {
        let mut members = self.client.required_members(command);
        // Version 2 of opencode does not know the default members.
        if self.path.len() == 2 {
            let is_missing =
                |key: &str| self.entry.as_ref().is_none_or(|entry| entry.get(key).is_none());
            members.extend(
                self.client.default_members().into_iter().filter(|(key, _)| is_missing(key)),
            );
        }
        if self.client == KnownClient::Codex {
            return toml::merge(&self.text, &self.path, &members)
                .map_err(|error| error.to_string());
        }
        jsonc::merge(&self.text, &self.path, &members).map_err(|error| error.to_string())
    }

    /// Returns the text without the entry.
    pub(crate) fn without_entry(&self) -> Result<String, String> {
        if self.entry.is_none() {
            return Ok(self.text.clone());
        }
        if self.client == KnownClient::Codex {
            return toml::remove(&self.text, &self.path).map_err(|error| error.to_string());
        }
        jsonc::remove(&self.text, &self.path).map_err(|error| error.to_string())
    }
}
