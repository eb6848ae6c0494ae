//! Chooses and opens models: the only module of this crate that names a concrete model.
//!
//! Start at [`ModelSetup::choose`].

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use adjutant_core::ModelSpec;
use adjutant_engine::{ModelOpener, wall_now};
use adjutant_model::catalogue::{AS_OF, ModelOverride};
use adjutant_model::wire::Wire;
use adjutant_model::{
    HttpTimeouts, Model, ModelSettings as AskedFor, ModelSources, OpenModelError, ProviderConfig,
    ReasoningEffort, Recorder, ReplayModel, ScriptedModel, Secret, catalogue, open_model,
    open_model_with,
};

use adjutant_workers::{
    TerminalProgram, TerminalResult, WorkerDefinition, WorkerPaths, WorkerProtocol, Workers,
};

use crate::exit::{Exit, Failure};
use crate::output::say;
use crate::settings::{ProviderSection, Settings, WorkerSection};

/// The providers, keys and settings with which models are opened.
#[derive(Clone)]
pub(crate) struct ModelSetup {
    sources: ModelSources,
    /// The reasoning effort per model, from the user's configuration.
    efforts: BTreeMap<String, ReasoningEffort>,
    recorder: Option<Recorder>,
    /// The current Unix time in milliseconds, to judge how old the price table is.
    now_ms: u64,
    /// Whether the warning about old prices was printed; it is printed once.
    said_stale: Arc<AtomicBool>,
}

/// An opened model, and remarks about the choice.
#[derive(Clone)]
pub(crate) struct ChosenModel {
    /// The model.
    pub(crate) model: Arc<dyn Model>,
    /// Sentences for the person; none if they named a model with a known price.
    pub(crate) remarks: Vec<String>,
    /// The recording that it replays; tasks can name the other models of the recording.
    replay: Option<Arc<ReplayModel>>,
}

impl ChosenModel {
    /// Returns the function that opens models that tasks name.
    pub(crate) fn opener(&self, wiring: &ModelSetup) -> ModelOpener {
        match self.replay.clone() {
            Some(replay) => Arc::new(move |name| match replay.model_named(name) {
                Some(model) => Ok(Arc::new(model)),
                None => Err(format!("the recording has no model `{name}`")),
            }),
            None => wiring.opener(),
        }
    }
}

/// A model of the catalogue, for `adjutant models`.
pub(crate) struct ListedModel {
    /// Its window and price.
    pub(crate) spec: ModelSpec,
    /// Why it cannot be used, if so.
    pub(crate) problem: Option<String>,
    /// Whether it is used when no model is named.
    pub(crate) is_default: bool,
}

/// A model server on this machine that answered.
#[derive(Clone, Debug)]
pub(crate) struct LocalServer {
    /// The name of its provider.
    pub(crate) provider: String,
    /// Its address.
    pub(crate) base_url: String,
    /// The models that it lists.
    pub(crate) models: Vec<String>,
    /// Whether the provider is built in or configured.
    pub(crate) is_configured: bool,
}

/// The usual addresses of local servers that are not built-in providers.
const USUAL_SERVERS: [(&str, &str); 2] =
    [("llamacpp", "http://127.0.0.1:8080/v1"), ("vllm", "http://127.0.0.1:8000/v1")];

/// How long a local server may take to list its models.
const LOCAL_TIMEOUT: Duration = Duration::from_millis(800);

/// Returns whether an address is on this machine.
pub(crate) fn is_loopback(base_url: &str) -> bool {
    let host = base_url.split_once("://").map_or("", |(_, rest)| rest);
    let host = host.split('/').next().unwrap_or_default();
    let host =
        if host.starts_with('[') { host } else { host.split(':').next().unwrap_or_default() };
    host == "localhost" || host == "127.0.0.1" || host.starts_with("[::1]")
}

impl ModelSetup {
    /// Reads the environment variables of the providers and the user's configuration.
    pub(crate) fn new(settings: &Settings) -> Result<Self, Failure> {
        let mut sources = ModelSources::from_vars(|name| env::var(name).ok());
        for (name, entry) in &settings.providers {
            let provider = provider(name, entry, sources.provider(name))?;
            sources = sources.with_provider(provider);
        }
        let mut efforts = BTreeMap::new();
        for (name, entry) in &settings.models {
            if let Some(word) = &entry.effort {
                let effort = ReasoningEffort::parse(word).map_err(|problem| {
                    Failure::usage(format!("user config: [models.\"{name}\"] effort: {problem}"))
                })?;
                efforts.insert(name.clone(), effort);
            }
            let (window, max_output, price) = (entry.window, entry.max_output, entry.price);
            sources = sources.with_override(name, ModelOverride { window, max_output, price });
        }
        let (now_ms, said_stale) = (wall_now(), Arc::default());
        Ok(Self { sources, efforts, recorder: None, now_ms, said_stale })
    }

    /// Records requests and responses of providers in a new file, with `secrets` and keys masked.
    pub(crate) fn record(mut self, file: &Path, secrets: &[String]) -> Result<Self, Failure> {
        let secrets = [secrets, &self.secrets()].concat();
        let recorder = Recorder::create(file, secrets)
            .map_err(|error| Failure::from_error(Exit::Usage, &error))?;
        self.sources = self.sources.with_recorder(recorder.clone());
        self.recorder = Some(recorder);
        Ok(self)
    }

    /// Returns the external agents, built-in and configured.
    pub(crate) fn workers(&self, settings: &Settings) -> Result<Arc<Workers>, Failure> {
        let configured = settings.workers.iter().map(|(name, section)| worker(name, section));
        let configured = configured.collect::<Result<Vec<_>, Failure>>()?;
        let path = env::var_os("PATH").unwrap_or_default();
        // A relative folder would let the project choose the program.
        let path = env::split_paths(&path).filter(|folder| folder.is_absolute()).collect();
        let workers = Workers::new(configured, WorkerPaths { path }, self.sources.clone());
        Ok(Arc::new(workers))
    }

    /// Returns a host that runs a command of the person, with the gateway as its model endpoint.
    pub(crate) fn terminal_program(
        &self,
        words: Vec<OsString>,
        result: &TerminalResult,
    ) -> TerminalProgram {
        TerminalProgram::new(words, self.sources.clone(), result.clone())
    }

    /// Prints the error of an incomplete recording.
    pub(crate) fn end_recording(&self) {
        if let Some(Err(error)) = self.recorder.as_ref().map(Recorder::finish) {
            say(&format!("adjutant: {}", Failure::from_error(Exit::Failed, &error)));
        }
    }

    /// Returns every API key, for masking.
    pub(crate) fn secrets(&self) -> Vec<String> {
        self.sources.secrets()
    }

    /// Opens the named model, or the default of the first provider with a key.
    pub(crate) fn choose(&self, named: Option<&str>) -> Result<ChosenModel, Failure> {
        if let Some(model) = named.map(|name| self.open_file_model(name)).transpose()?.flatten() {
            return Ok(model);
        }
        let default = || self.sources.default_model();
        let Some(name) = named.map(str::to_owned).or_else(default) else {
            let missing = OpenModelError::NoKey { provider: "anthropic".into() };
            return Err(Failure::usage(missing.to_string()).hint(WAYS_OUT));
        };
        let effort = self.efforts.get(&name).copied();
        let asked = AskedFor { effort, ..AskedFor::default() };
        let model = open_model_with(&name, &self.sources, asked).map_err(|error| {
            let hint = match &error {
                OpenModelError::NoKey { .. } => WAYS_OUT,
                OpenModelError::BaseUrl { .. } => {
                    "Write it whole, as in http://127.0.0.1:11434/v1, in …_BASE_URL or in \
                     [providers.NAME] of the user config."
                }
                OpenModelError::Key { .. } => {
                    "A key is one line of plain characters; look for quotes or line breaks in it."
                }
                OpenModelError::Name { .. }
                | OpenModelError::ModelName { .. }
                | OpenModelError::UnknownProvider { .. } => {
                    "`adjutant models` lists what can be used."
                }
            };
            Failure::from_error(Exit::Usage, &error).hint(hint)
        })?;
        let remarks = self
            .choice_remark(&name, named.is_some())
            .into_iter()
            .chain(self.stale_price_warning(&name));
        Ok(ChosenModel { model, remarks: remarks.collect(), replay: None })
    }

    /// Opens a `script:` or `replay:` file; `None` if the name is a provider's model.
    fn open_file_model(&self, name: &str) -> Result<Option<ChosenModel>, Failure> {
        let (script, replay) = (name.strip_prefix("script:"), name.strip_prefix("replay:"));
        let Some(path) = script.or(replay).map(Path::new) else { return Ok(None) };
        if self.recorder.is_some() {
            return Err(Failure::usage(format!(
                "--record needs a provider; {name} does not call one"
            ))
            .hint("Record with --model provider/model, or leave --record out."));
        }
        if script.is_some() {
            let script = ScriptedModel::load(path)
                .map_err(|error| Failure::from_error(Exit::Usage, &error))?;
            return Ok(Some(ChosenModel {
                model: Arc::new(script),
                remarks: Vec::new(),
                replay: None,
            }));
        }
        let model = ReplayModel::load(path)
            .map_err(|error| Failure::from_error(Exit::Usage, &error))
            .map(Arc::new)?;
        let recorded = &model.spec().name;
        let remark = format!("replaying {recorded}: nothing is sent, and costs are those recorded");
        Ok(Some(ChosenModel { model: model.clone(), remarks: vec![remark], replay: Some(model) }))
    }

    /// Like [`ModelSetup::choose`], but returns a model without output if none is available: enough for a dry run.
    pub(crate) fn choose_or_none(&self, named: Option<&str>) -> Result<ChosenModel, Failure> {
        if named.is_some() || self.sources.default_model().is_some() {
            return self.choose(named);
        }
        let remark = "no model is chosen; limits are judged without a price".to_owned();
        Ok(ChosenModel {
            model: script("[[turn]]\ntext = \"\"\n", "none chosen")?,
            remarks: vec![remark],
            replay: None,
        })
    }

    /// Returns a remark about a default that was not chosen, or about an unknown window or price.
    fn choice_remark(&self, name: &str, was_named: bool) -> Option<String> {
        let (provider, model) = name.split_once('/')?;
        let known = self.sources.describe(provider, model);
        match (was_named, known.assumed, known.spec.price) {
            (_, true, _) => Some(format!(
                "{name} is not in the catalogue: a window of {} tokens is assumed and only the token budget bounds it",
                adjutant_core::numbers::grouped(known.spec.window)
            )),
            (false, false, _) => {
                Some(format!("using {name}, the default of the first provider with a key"))
            }
            (true, false, None) => {
                Some(format!("{name} has no known price; only the token budget bounds it"))
            }
            (true, false, Some(_)) => None,
        }
    }

    /// Warns once if the price of a model comes from a table that is too old.
    fn stale_price_warning(&self, name: &str) -> Option<String> {
        let days = catalogue().stale_days(self.now_ms)?;
        let (provider, model) = name.split_once('/')?;
        let price = self.sources.describe(provider, model).spec.price?;
        let listed = catalogue().find(provider, model)?.price;
        // A price that the person has set completely does not depend on the table.
        let is_listed =
            listed.is_some_and(|it| it.input == price.input || it.output == price.output);
        if !is_listed || self.said_stale.swap(true, Ordering::Relaxed) {
            return None;
        }
        Some(format!(
            "prices are as of {AS_OF}, {days} days ago; `adjutant models` shows them and how to set your own"
        ))
    }

    fn opener(&self) -> ModelOpener {
        let wiring = self.clone();
        Arc::new(move |name| {
            wiring
                .choose(Some(name))
                .map(|chosen| chosen.model)
                .map_err(|failure| failure.to_string())
        })
    }

    /// Lists the models of the catalogue, and whether each can be used.
    pub(crate) fn list(&self) -> Vec<ListedModel> {
        let default = self.sources.default_model();
        let listed = |entry: &adjutant_model::catalogue::CatalogueEntry| {
            let name = entry.name();
            let problem = open_model(&name, &self.sources).err().map(|error| error.to_string());
            let spec = self.sources.describe(entry.provider, entry.model).spec;
            ListedModel { spec, problem, is_default: default.as_deref() == Some(name.as_str()) }
        };
        catalogue().iter().map(listed).collect()
    }

    /// Returns the day of the prices in the catalogue, such as 2026-11-15.
    pub(crate) const fn prices_as_of() -> &'static str {
        AS_OF
    }

    /// Adds a provider that is not in the configuration.
    pub(crate) fn with_provider(
        mut self,
        name: &str,
        section: &ProviderSection,
    ) -> Result<Self, Failure> {
        let provider = provider(name, section, self.sources.provider(name))?;
        self.sources = self.sources.with_provider(provider);
        Ok(self)
    }

    /// Returns the model that is used if none is named.
    pub(crate) fn default_model(&self) -> Option<String> {
        self.sources.default_model()
    }

    /// Returns the default model of a provider, as `provider/model`.
    pub(crate) fn default_model_of(provider: &str) -> Option<String> {
        catalogue().default_of(provider).map(adjutant_model::catalogue::CatalogueEntry::name)
    }

    /// Returns the environment variables that may have the key of a provider.
    pub(crate) fn key_variables(provider: &str) -> &'static [&'static str] {
        ModelSources::key_variables(provider)
    }

    /// Asks the model servers on this machine that need no key which models they have: the configured ones, and the
    /// usual addresses of others.
    pub(crate) async fn local_servers(&self) -> Vec<LocalServer> {
        let timeouts =
            HttpTimeouts { connect: LOCAL_TIMEOUT, idle: LOCAL_TIMEOUT, ..Default::default() };
        let asking = self.sources.clone().with_timeouts(timeouts);
        let own = self.sources.providers().filter(|it| !it.needs_key && is_loopback(&it.base_url));
        let mut candidates: Vec<ProviderConfig> = own.cloned().collect();
        for (name, base_url) in USUAL_SERVERS {
            let is_known = |it: &ProviderConfig| {
                it.name == name || it.base_url.trim_end_matches('/') == base_url
            };
            if !self.sources.providers().any(is_known) {
                candidates.push(ProviderConfig {
                    name: name.to_owned(),
                    wire: Wire::Chat,
                    base_url: base_url.to_owned(),
                    key: None,
                    needs_key: false,
                });
            }
        }
        let mut found = Vec::new();
        for provider in candidates {
            if let Some(models) = asking.served_models(&provider).await {
                let is_configured = self.sources.provider(&provider.name).is_some();
                let (provider, base_url) = (provider.name, provider.base_url);
                found.push(LocalServer { provider, base_url, models, is_configured });
            }
        }
        found
    }

    /// Lists the providers: name, address, and whether a key was found where one is needed.
    pub(crate) fn providers(&self) -> Vec<(String, String, Option<bool>)> {
        let listed = |provider: &ProviderConfig| {
            let key = provider.needs_key.then_some(provider.key.is_some());
            (provider.name.clone(), provider.base_url.clone(), key)
        };
        self.sources.providers().map(listed).collect()
    }
}

/// Reads a provider from the user's configuration. A section without `base_url` completes the built-in provider of
/// that name, so that `key` is enough.
fn provider(
    name: &str,
    entry: &ProviderSection,
    known: Option<&ProviderConfig>,
) -> Result<ProviderConfig, Failure> {
    let known = known.filter(|_| entry.base_url.is_none());
    let base_url = entry.base_url.clone().or_else(|| known.map(|known| known.base_url.clone()));
    let base_url = base_url.ok_or_else(|| {
        Failure::usage(format!("user config: [providers.{name}] needs `base_url`")).hint(
            "It is optional for anthropic, openai, gemini, openrouter and ollama only; an example: \
             base_url = \"http://127.0.0.1:8000/v1\"",
        )
    })?;
    let wire = match (&entry.wire, known) {
        (None, Some(known)) => known.wire,
        (wire, _) => wire.as_deref().unwrap_or("chat").parse().map_err(|error| {
            Failure::usage(format!("user config: [providers.{name}] wire: {error}"))
        })?,
    };
    let in_variable = entry.key_env.as_deref().and_then(|variable| env::var(variable).ok());
    let key = entry.key.clone().or(in_variable).as_deref().and_then(Secret::new);
    Ok(ProviderConfig {
        name: known.map_or(name, |known| &known.name).to_owned(),
        wire,
        base_url,
        key: key.or_else(|| known.and_then(|known| known.key.clone())),
        needs_key: entry.key_env.is_some() || known.is_some_and(|known| known.needs_key),
    })
}

/// An opened model, shared between tasks.
pub(crate) type SharedModel = Arc<dyn Model>;

/// Parses a script that is compiled into the program.
pub(crate) fn script(toml: &str, name: &str) -> Result<SharedModel, Failure> {
    let script = ScriptedModel::from_toml(toml)
        .map_err(|error| Failure::from_error(Exit::Failed, &error))?;
    Ok(Arc::new(script.with_name(name)))
}

const WAYS_OUT: &str = "Set ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY; or name a server at home with \
--model ollama/MODEL; or prove a policy offline with --model script:FILE (docs/scripted-model.md). \
`adjutant demo` needs nothing, `adjutant doctor` says what is missing.";

/// Reads a `[workers.NAME]` section. A built-in worker keeps what the section does not set.
fn worker(name: &str, section: &WorkerSection) -> Result<WorkerDefinition, Failure> {
    let wrong = |what: String| Failure::usage(format!("user config: [workers.{name}] {what}"));
    let known = WorkerDefinition::built_in(name);
    let wires =
        section.wires.iter().map(|word| word.parse().map_err(|it| wrong(format!("wires: {it}"))));
    let wires = wires.collect::<Result<Vec<Wire>, Failure>>()?;
    let mut definition = match known {
        Some(known) => known,
        None if wires.is_empty() => {
            return Err(wrong(
                "wires: name at least one of chat, responses, anthropic, gemini".to_owned(),
            ));
        }
        None => WorkerDefinition::new(name, Vec::new()),
    };
    if let Some(protocol) =
        section.protocol.as_deref().filter(|it| *it != WorkerProtocol::Acp.as_str())
    {
        return Err(wrong(format!("protocol: `{protocol}` is not acp")));
    }
    let Some((program, arguments)) = section.command.split_first() else {
        return Err(wrong("command: give the program and its arguments".to_owned()));
    };
    definition.programs = vec![program.clone()];
    if !arguments.is_empty() {
        definition.arguments = arguments.to_vec();
    }
    if !wires.is_empty() {
        definition.wires = wires;
    }
    definition.environment.extend(section.environment.clone());
    Ok(definition)
}

#[cfg(test)]
mod tests {
    use adjutant_core::PriceOverride;
    use adjutant_model::catalogue::AS_OF_DAY;
    use adjutant_view::time_text::rfc3339;

    use super::*;

    const DAY_MS: u64 = 24 * 60 * 60 * 1000;

    fn wiring(sources: ModelSources, days: u64) -> ModelSetup {
        let now_ms = (AS_OF_DAY + days) * DAY_MS;
        ModelSetup {
            sources,
            efforts: BTreeMap::new(),
            recorder: None,
            now_ms,
            said_stale: Arc::default(),
        }
    }

    #[test]
    fn the_day_of_the_prices_is_the_same_in_words_and_in_days() {
        assert_eq!(rfc3339(AS_OF_DAY * DAY_MS).get(..10), Some(AS_OF));
    }

    #[test]
    fn a_run_warns_once_when_the_prices_it_uses_are_older_than_ninety_days() {
        let own = PriceOverride { input: Some(7.0), output: Some(9.0), ..PriceOverride::default() };
        let own = ModelOverride { price: Some(own), ..ModelOverride::default() };
        let key = |name: &str| (name == "OPENAI_API_KEY").then(|| "fake-key".to_owned());
        let sources = ModelSources::from_vars(key).with_override("openai/gpt-5-mini", own);
        for (days, model, expected) in [
            (90, "openai/gpt-5", 0),
            (91, "openai/gpt-5", 1),
            (91, "openai/gpt-5-mini", 0),
            (91, "ollama/qwen3", 0),
        ] {
            let wiring = wiring(sources.clone(), days);
            let remarks = |()| match wiring.choose(Some(model)) {
                Ok(chosen) => chosen.remarks,
                Err(failure) => vec![failure.to_string()],
            };
            let said: Vec<String> = [(), ()].map(remarks).concat();
            let warnings: Vec<&String> =
                said.iter().filter(|it| it.starts_with("prices are as of")).collect();
            assert_eq!(warnings.len(), expected, "{model} after {days} days: {said:?}");
        }
    }
}
