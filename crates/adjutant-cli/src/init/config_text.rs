//! The text of the configuration file that `init` writes.

use crate::settings::ProviderSection;

/// The file with every setting commented out.
pub(super) const TEMPLATE: &str = include_str!("config.toml");

/// How the line of the template about the model starts.
const MODEL_LINE: &str = "# model = ";

/// Returns the template with a model, and with a section for its provider if it needs one.
pub(super) fn with_model(model: &str, section: Option<&(String, ProviderSection)>) -> String {
    let mut text = String::new();
    for line in TEMPLATE.lines() {
        if line.starts_with(MODEL_LINE) {
            text += &model_line(model);
        } else {
            text += line;
            text.push('\n');
        }
    }
    if let Some((name, section)) = section {
        text += &format!("\n{}", provider_lines(name, section));
    }
    text
}

/// Returns the line that makes `model` the model of every run.
pub(super) fn model_line(model: &str) -> String {
    format!("model = {}\n", quoted(model))
}

/// Returns the section of a provider.
pub(super) fn provider_lines(name: &str, section: &ProviderSection) -> String {
    let fields = [("base_url", &section.base_url), ("wire", &section.wire), ("key", &section.key)];
    let line = |(field, value): (&str, &Option<String>)| {
        value.as_ref().map(|value| format!("{field} = {}\n", quoted(value)))
    };
    format!("[providers.{name}]\n{}", fields.into_iter().filter_map(line).collect::<String>())
}

fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

#[cfg(test)]
mod tests {
    use super::{TEMPLATE, with_model};
    use crate::settings::ProviderSection;

    #[test]
    fn the_template_sets_nothing() {
        assert!(toml::from_str::<toml::Table>(TEMPLATE).unwrap().is_empty());
    }

    #[test]
    fn a_chosen_model_and_its_provider_are_all_that_is_set() {
        let section = ProviderSection {
            base_url: Some("http://127.0.0.1:8000/v1".into()),
            wire: Some("chat".into()),
            key_env: None,
            key: Some("a \"quoted\"\\key".into()),
        };
        let text = with_model("vllm/qwen", Some(&("vllm".into(), section)));
        let set: toml::Table = toml::from_str(&text).unwrap();
        assert_eq!(set["model"].as_str(), Some("vllm/qwen"));
        let provider = set["providers"]["vllm"].as_table().unwrap();
        assert_eq!(provider["key"].as_str(), Some("a \"quoted\"\\key"));
        assert_eq!((set.len(), provider.len()), (2, 3), "{text}");
    }
}
