//! Asks which model to use: of a provider with a key, of a server on this machine, or of a provider whose key is typed.
//!
//! Start at [`ask_model`]. Keys are found and named by their variable, never shown.

use std::env;

use crate::exit::Failure;
use crate::settings::ProviderSection;
use crate::wiring::{LocalServer, ModelSetup};

use super::questions::SetupDialog;

/// A model that a person chose.
pub(super) struct ConfiguredModel {
    /// Its name, as `provider/model`.
    pub(super) model: String,
    /// What the configuration must say about its provider, if anything.
    pub(super) section: Option<(String, ProviderSection)>,
    /// The setup that can open it.
    pub(super) setup: ModelSetup,
}

/// A line of the menu.
enum ModelOffer {
    /// A provider with a key, and where the key is.
    Keyed { provider: String, origin: String },
    /// A server on this machine.
    Local(LocalServer),
    /// A provider whose key the person types.
    TypedKey,
    /// No model.
    Later,
}

impl ModelOffer {
    /// Returns what the menu says: a line, and a line below it.
    fn lines(&self) -> (String, String) {
        match self {
            Self::Keyed { provider, origin } => {
                let model = ModelSetup::default_model_of(provider);
                (model.unwrap_or_else(|| provider.clone()), format!("the key is in {origin}"))
            }
            Self::Local(server) => {
                let models = match server.models.as_slice() {
                    [] => "no model loaded".to_owned(),
                    [only] => only.clone(),
                    [first, more @ ..] => format!("{first} and {} more", more.len()),
                };
                let here = format!("a server on this machine, {}", server.base_url);
                (format!("{}: {models}", server.provider), here)
            }
            Self::TypedKey => {
                ("another provider".to_owned(), "you type its key, or export it".to_owned())
            }
            Self::Later => {
                ("no model now".to_owned(), "run `adjutant init` again later".to_owned())
            }
        }
    }
}

/// Asks for a model until one is chosen; `None` if the person wants none now. `can_store` says whether a typed key can be
/// written to the configuration.
pub(super) fn ask_model(
    questions: &SetupDialog,
    setup: &ModelSetup,
    can_store: bool,
) -> Result<Option<ConfiguredModel>, Failure> {
    let offers = offers(questions, setup);
    // A server on this machine is used only if the person asks for it.
    let usual = matches!(offers.first(), Some(ModelOffer::Keyed { .. })).then_some("1");
    loop {
        questions.say("Which model should subagents use?\n");
        for (nth, offer) in offers.iter().enumerate() {
            let (title, detail) = offer.lines();
            questions.say(&format!("  {}  {title}", nth + 1));
            questions.say(&format!("     {detail}"));
        }
        questions.say("");
        let answer = questions.ask("Number", usual)?;
        let number = answer.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
        let Some(offer) = number.and_then(|nth| offers.get(nth)) else {
            questions.say(&format!("`{answer}` is not a number from 1 to {}.\n", offers.len()));
            continue;
        };
        let chosen = match offer {
            ModelOffer::Keyed { provider, .. } => {
                let usual = ModelSetup::default_model_of(provider);
                Some(choose_model(questions, setup, provider, usual, None)?)
            }
            ModelOffer::Local(server) => choose_local(questions, setup, server)?,
            ModelOffer::TypedKey => choose_with_key(questions, setup, can_store)?,
            ModelOffer::Later => return Ok(None),
        };
        if chosen.is_some() {
            return Ok(chosen);
        }
    }
}

fn offers(questions: &SetupDialog, setup: &ModelSetup) -> Vec<ModelOffer> {
    let keyed = setup.providers().into_iter().filter(|(_, _, key)| *key == Some(true));
    let mut offers: Vec<ModelOffer> = keyed
        .map(|(provider, _, _)| ModelOffer::Keyed { origin: key_origin(&provider), provider })
        .collect();
    let servers = questions.wait(setup.local_servers());
    offers.extend(servers.into_iter().map(ModelOffer::Local));
    offers.push(ModelOffer::TypedKey);
    offers.push(ModelOffer::Later);
    offers
}

/// Names the variable with the key of a provider.
fn key_origin(provider: &str) -> String {
    let is_set = |name: &&&str| env::var(name).is_ok_and(|value| !value.trim().is_empty());
    let variable = ModelSetup::key_variables(provider).iter().find(is_set);
    variable.map_or_else(|| "your configuration".to_owned(), |name| (*name).to_owned())
}

/// Asks for the model of a provider until its name can be used.
fn choose_model(
    questions: &SetupDialog,
    setup: &ModelSetup,
    provider: &str,
    usual: Option<String>,
    section: Option<ProviderSection>,
) -> Result<ConfiguredModel, Failure> {
    let prefix = format!("{provider}/");
    let usual = usual.map(|model| model.trim_start_matches(&prefix).to_owned());
    loop {
        let answer = questions.ask("Model", usual.as_deref())?;
        if answer.is_empty() {
            continue;
        }
        let model = format!("{prefix}{}", answer.trim_start_matches(&prefix));
        match setup.choose(Some(&model)) {
            Ok(_) => {
                let section = section.map(|section| (provider.to_owned(), section));
                return Ok(ConfiguredModel { model, section, setup: setup.clone() });
            }
            Err(failure) => questions.say(&failure.to_string()),
        }
    }
}

/// Asks whether to use a server on this machine, and for its model.
fn choose_local(
    questions: &SetupDialog,
    setup: &ModelSetup,
    server: &LocalServer,
) -> Result<Option<ConfiguredModel>, Failure> {
    let LocalServer { provider, base_url, models, is_configured } = server;
    let question = format!("Send the work of subagents to the program at {base_url}?");
    if !questions.confirm(&question)? {
        return Ok(None);
    }
    if models.len() > 1 {
        questions.say(&format!("It has {}.", models.join(", ")));
    }
    let section = (!is_configured).then(|| ProviderSection {
        base_url: Some(base_url.clone()),
        wire: Some("chat".to_owned()),
        key_env: None,
        key: None,
    });
    let setup = match &section {
        Some(section) => setup.clone().with_provider(provider, section)?,
        None => setup.clone(),
    };
    let usual = models.first().cloned();
    choose_model(questions, &setup, provider, usual, section).map(Some)
}

/// Asks for a provider and its key. An empty key leads back to the menu, as does a key that cannot be stored because the
/// configuration file is the person's own.
fn choose_with_key(
    questions: &SetupDialog,
    setup: &ModelSetup,
    can_store: bool,
) -> Result<Option<ConfiguredModel>, Failure> {
    let mut names = setup.providers();
    names.retain(|(name, _, _)| !ModelSetup::key_variables(name).is_empty());
    let names: Vec<String> = names.into_iter().map(|(name, _, _)| name).collect();
    let provider = questions.ask(&format!("Provider ({})", names.join(", ")), None)?;
    if !names.contains(&provider) {
        questions.say(&format!("There is no provider `{provider}`.\n"));
        return Ok(None);
    }
    let variable = ModelSetup::key_variables(&provider).first().copied().unwrap_or_default();
    if !can_store {
        questions.say(&format!(
            "Your configuration file is not changed. Export {variable}, or put this into the file, then run \
             `adjutant init` again:\n\n  [providers.{provider}]\n  key = \"…\"\n",
        ));
        return Ok(None);
    }
    questions.say(&format!(
        "The safest place for a key is the environment: leave the next line empty, export {variable} and run this \
         again. A key that you type is not shown and is written to the configuration file, which only you can read.",
    ));
    let key = questions.ask_secret("Key")?;
    if key.is_empty() {
        return Ok(None);
    }
    let section = ProviderSection { base_url: None, wire: None, key_env: None, key: Some(key) };
    let setup = setup.clone().with_provider(&provider, &section)?;
    let usual = ModelSetup::default_model_of(&provider);
    choose_model(questions, &setup, &provider, usual, Some(section)).map(Some)
}
