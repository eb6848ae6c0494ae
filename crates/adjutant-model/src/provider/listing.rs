//! Asks an OpenAI-compatible server which models it has.

use serde_json::Value;

use super::client::head;
use super::open::{base_url, check_model, endpoint, headers};
use super::sources::{ModelSources, ProviderConfig};

impl ModelSources {
    /// Returns the models that the server of a provider lists; `None` if no such server answers there.
    ///
    /// Only for servers of the Chat and Responses APIs, such as Ollama, llama.cpp and vLLM.
    pub async fn served_models(&self, provider: &ProviderConfig) -> Option<Vec<String>> {
        let url = endpoint(base_url(provider).ok()?, provider.wire, "/models");
        let client = self.shared.client(&url).ok()?;
        let response = client.get(url).headers(headers(provider).ok()?).send().await.ok()?;
        if !response.status().is_success() {
            return None;
        }
        let body: Value = serde_json::from_slice(&head(response).await).ok()?;
        let listed = body.get("data")?.as_array()?;
        let ids = listed.iter().filter_map(|model| model.get("id")?.as_str());
        Some(ids.filter(|id| check_model(id).is_ok()).map(str::to_owned).collect())
    }
}
