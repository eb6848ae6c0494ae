//! From preset, files, environment and flags to one policy, each value with its origin.

use std::env;
use std::path::{Path, PathBuf};

use adjutant_core::policy::{Key, PolicyError, parse_assignment};
use adjutant_core::{Layered, Preset, Source};
use adjutant_engine::{Archive, SearchEndpoint, Secret, Web};
use serde_json::{Map, Value};

use crate::args::PolicyFlags;
use crate::exit::{Exit, Failure};

/// The environment names of the system preset `story` comes from.
const STORY_ENVIRONMENT: [(&str, Key); 6] = [
    ("MAX_DELEGATION_DEPTH", Key::MaxDepth),
    ("MAX_CONTEXT_PER_AGENT", Key::ContextTokens),
    ("MAX_DELEGATIONS_PER_STORY", Key::ChildrenPerParent),
    ("ENABLE_DELEGATION", Key::Enabled),
    ("MAX_PARALLEL_DELEGATIONS", Key::Concurrency),
    ("DELEGATION_TIMEOUT_SECONDS", Key::TimeoutS),
];

/// What a configuration file may hold.
#[derive(Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct ConfigFile {
    /// The preset to start from; for the user's own file only.
    preset: Option<String>,
    /// The model to use; for the user's own file only.
    model: Option<String>,
    /// Who answers WebSearch; for the user's own file only.
    search: Option<SearchConfig>,
    /// Keys of the policy.
    #[serde(default)]
    policy: Map<String, Value>,
}

/// Who answers WebSearch.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct SearchConfig {
    engine: Engine,
    /// The address; needed for SearXNG, the public one elsewhere.
    url: Option<String>,
    /// The key; not for SearXNG.
    key: Option<String>,
}

impl SearchConfig {
    fn endpoint(self) -> Result<SearchEndpoint, Failure> {
        let missing = |what: &str| Failure::usage(format!("user config: [search] needs `{what}`"));
        let key = self.key.as_deref().and_then(Secret::new);
        Ok(match self.engine {
            Engine::Searxng => {
                SearchEndpoint::Searxng { base_url: self.url.ok_or_else(|| missing("url"))? }
            }
            Engine::Brave => {
                SearchEndpoint::Brave { key: key.ok_or_else(|| missing("key"))?, url: self.url }
            }
            Engine::Tavily => {
                SearchEndpoint::Tavily { key: key.ok_or_else(|| missing("key"))?, url: self.url }
            }
        })
    }
}

/// The search engines there are.
#[derive(Clone, Copy, Debug, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
enum Engine {
    Searxng,
    Brave,
    Tavily,
}

/// The choices of a person, before any run.
#[derive(Debug)]
pub(crate) struct Settings {
    /// The limits, each with its origin.
    pub(crate) policy: Layered,
    /// The model named by the user's configuration.
    pub(crate) model: Option<String>,
    /// Keys that are masked wherever a tool shows them.
    pub(crate) secrets: Vec<String>,
    search: Option<SearchEndpoint>,
}

impl Settings {
    /// Reads every layer for work in `root`.
    pub(crate) fn load(flags: &PolicyFlags, root: &Path) -> Result<Self, Failure> {
        let user =
            user_config_path().map_or_else(|| Ok(ConfigFile::default()), |path| read(&path))?;
        let project_path = root.join(".adjutant/config.toml");
        let project = read(&project_path)?;
        if project.preset.is_some() || project.model.is_some() || project.search.is_some() {
            return Err(Failure::usage(format!(
                "{}: a project file may only tighten [policy], not choose a preset, a model or a search engine",
                project_path.display()
            )));
        }
        let name = flags.preset.as_deref().or(user.preset.as_deref()).unwrap_or("scout");
        let preset = Preset::parse(name)
            .ok_or_else(|| refused(&PolicyError::UnknownPreset { name: name.to_owned() }, None))?;
        let mut policy = Layered::new(preset);
        policy
            .apply(&user.policy, &Source::UserConfig)
            .map_err(|error| refused(&error, Some(Source::UserConfig)))?;
        policy
            .apply(&project.policy, &Source::ProjectConfig)
            .map_err(|error| refused(&error, Some(Source::ProjectConfig)))?;
        from_environment(&mut policy)?;
        from_flags(&mut policy, flags)?;
        let secrets = user.search.iter().filter_map(|search| search.key.as_deref());
        let secrets = secrets.filter_map(Secret::new).map(|key| key.reveal().to_owned()).collect();
        let search = user.search.map(SearchConfig::endpoint).transpose()?;
        Ok(Self { policy, model: user.model, secrets, search })
    }

    /// Returns what reaches the network, where the policy lets anyone.
    pub(crate) fn web(&self) -> Option<Web> {
        let web =
            || self.search.clone().map_or_else(Web::new, |search| Web::new().with_search(search));
        self.policy.policy().network.then(web)
    }

    /// Sets one key by a flag of its own.
    pub(crate) fn set(
        &mut self,
        key: Key,
        value: impl Into<Value>,
        flag: &str,
    ) -> Result<(), Failure> {
        let source = Source::Flag(flag.to_owned());
        self.policy
            .set(key.name(), &value.into(), &source)
            .map_err(|error| refused(&error, Some(source)))
    }
}

fn from_environment(policy: &mut Layered) -> Result<(), Failure> {
    let own = Key::ALL.iter().map(|key| (format!("ADJUTANT_{}", key.name().to_uppercase()), *key));
    let names = STORY_ENVIRONMENT.iter().map(|(name, key)| ((*name).to_owned(), *key));
    for (name, key) in names.chain(own) {
        let Ok(text) = env::var(&name) else { continue };
        let value = serde_json::from_str(&text).unwrap_or(Value::String(text));
        let source = Source::Environment(name);
        policy.set(key.name(), &value, &source).map_err(|error| refused(&error, Some(source)))?;
    }
    Ok(())
}

fn from_flags(policy: &mut Layered, flags: &PolicyFlags) -> Result<(), Failure> {
    if flags.enable_delegation {
        let source = Source::Flag("--enable-delegation".into());
        policy
            .set(Key::Enabled.name(), &Value::Bool(true), &source)
            .map_err(|error| refused(&error, None))?;
    }
    for assignment in &flags.set {
        let (key, value) = parse_assignment(assignment).map_err(|error| refused(&error, None))?;
        let source = Source::Flag("--set".into());
        policy.set(key, &value, &source).map_err(|error| refused(&error, Some(source)))?;
    }
    Ok(())
}

/// Says which layer a bad setting came from, unless the error does already.
fn refused(error: &PolicyError, source: Option<Source>) -> Failure {
    let hint = "`adjutant policy explain` lists the keys and their values.";
    let text = match (error, source) {
        (PolicyError::Loosens { .. }, _) | (_, None) => error.to_string(),
        (_, Some(source)) => format!("{source}: {error}"),
    };
    Failure::usage(text).hint(hint)
}

fn read(path: &Path) -> Result<ConfigFile, Failure> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Ok(ConfigFile::default());
        }
        Err(error) => {
            return Err(Failure::usage(format!("cannot read {}: {error}", path.display())));
        }
    };
    toml::from_str(&text).map_err(|error| {
        Failure::usage(format!("{}: {}", path.display(), error.to_string().trim_end()))
    })
}

fn user_config_path() -> Option<PathBuf> {
    directory("XDG_CONFIG_HOME", ".config").map(|config| config.join("adjutant/config.toml"))
}

/// Returns the state directory: as given, or where the system keeps such things.
fn home(given: Option<PathBuf>) -> Result<PathBuf, Failure> {
    given
        .or_else(|| directory("XDG_STATE_HOME", ".local/state").map(|state| state.join("adjutant")))
        .ok_or_else(|| {
            Failure::new(Exit::Usage, "no state directory: HOME is not set")
                .hint("Set ADJUTANT_HOME, or use --home DIR.")
        })
}

/// Opens the state directory; whoever cannot is told how to use another.
pub(crate) fn open_archive(given: Option<PathBuf>) -> Result<Archive, Failure> {
    Archive::open(&home(given)?).map_err(|error| {
        Failure::caused(Exit::Failed, &error)
            .hint("Set ADJUTANT_HOME, or use --home DIR, to keep runs elsewhere.")
    })
}

fn directory(variable: &str, below_home: &str) -> Option<PathBuf> {
    let absolute = |path: &PathBuf| path.is_absolute();
    let named = env::var_os(variable).map(PathBuf::from).filter(absolute);
    named.or_else(|| {
        env::var_os("HOME").map(|home| PathBuf::from(home).join(below_home)).filter(absolute)
    })
}
