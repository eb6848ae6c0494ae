//! Combines preset, configuration files, environment and flags into one policy that knows the origin of each value.
//!
//! A project's file may only tighten limits. Start at [`Settings::load_as`]. Also finds the user's directories.

use std::collections::BTreeMap;
use std::env;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use adjutant_core::policy::{PolicyError, PolicyKey, parse_assignment};
use adjutant_core::{LayeredPolicy, PolicySource, Preset, PriceOverride, ReasoningEffort};
use adjutant_engine::roster::UserFolders;
use adjutant_engine::slash::{self, ConfiguredRoutes};
use adjutant_engine::{AgentEfforts, Archive, SearchEndpoint, Secret, WebAccess};
use adjutant_mcp::ApprovalMode;
use adjutant_view::sanitize;
use rustix::fs::OFlags;
use serde_json::{Map, Value};

use crate::account;
use crate::args::{OnDisconnect, PolicyFlags};
use crate::exit::{Exit, Failure};
use crate::output::say;
use crate::toolchains::{ToolchainConfig, ToolchainSettings};
use crate::workspace_flags::WorkspaceSetupFlags;

/// Environment variables of the system whose limits the preset `story` adopts.
const STORY_ENVIRONMENT: [(&str, PolicyKey); 6] = [
    ("MAX_DELEGATION_DEPTH", PolicyKey::MaxDepth),
    ("MAX_CONTEXT_PER_AGENT", PolicyKey::ContextTokens),
    ("MAX_DELEGATIONS_PER_STORY", PolicyKey::ChildrenPerParent),
    ("ENABLE_DELEGATION", PolicyKey::Enabled),
    ("MAX_PARALLEL_DELEGATIONS", PolicyKey::Concurrency),
    ("DELEGATION_TIMEOUT_SECONDS", PolicyKey::TimeoutS),
];

/// The content of a configuration file.
#[derive(Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct ConfigFile {
    /// The preset to start from; allowed in the user's own configuration file only.
    preset: Option<String>,
    /// The model to use; allowed in the user's own configuration file only.
    model: Option<String>,
    /// Where runs are at work; allowed in the user's own configuration file only.
    runtime: Option<RuntimeSection>,
    /// Models that agent files of a project may choose; allowed in the user's own configuration file only.
    #[serde(default)]
    models_allowed: Vec<String>,
    /// The search engine behind WebSearch; allowed in the user's own configuration file only.
    search: Option<SearchConfig>,
    /// Model providers by name; allowed in the user's own configuration file only.
    #[serde(default)]
    providers: BTreeMap<String, ProviderSection>,
    /// Window, price and effort of models, by `provider/model`; allowed in the user's own configuration file only.
    #[serde(default)]
    models: BTreeMap<String, ModelSection>,
    /// The reasoning effort of agents, by name. A project's file can only lower it.
    #[serde(default)]
    effort: BTreeMap<String, ReasoningEffort>,
    /// The agent of a slash command, by command, then by language or `default`; allowed in the user's own
    /// configuration file only.
    #[serde(default)]
    routing: BTreeMap<String, BTreeMap<String, String>>,
    /// The command that has to succeed before a story passes; allowed in the user's own configuration file only.
    verify: Option<String>,
    /// The program and arguments started when a run waits for a person or ends; allowed in the user's own
    /// configuration file only.
    #[serde(default)]
    notify: Vec<String>,
    /// External agents by name; allowed in the user's own configuration file only.
    #[serde(default)]
    workers: BTreeMap<String, WorkerSection>,
    /// What MCP clients may do; allowed in the user's own configuration file only.
    mcp: Option<McpConfig>,
    /// Toolchains that commands do not see. A project's file can only switch them off.
    #[serde(default)]
    toolchains: ToolchainConfig,
    /// Keys of the policy.
    #[serde(default)]
    policy: toml::Table,
}

/// What MCP clients may do.
#[derive(Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct McpConfig {
    /// What happens to a call that needs approval if the client cannot ask.
    pub(crate) approval: Option<String>,
    /// Whether questions are shown through clients that support it.
    pub(crate) ask_client: Option<bool>,
    /// What happens to runs when their server exits.
    pub(crate) on_disconnect: Option<OnDisconnect>,
    /// The most live runs of a tree.
    pub(crate) max_runs: Option<u32>,
    /// Whether agents that write may start without a question, within the daily amount of `approval`.
    #[serde(default)]
    pub(crate) write_unasked: bool,
    /// Whether a client may merge results into the files without a question.
    #[serde(default)]
    pub(crate) merge_unasked: bool,
    /// Whether the file has one of these two keys and is not below the home directory of the account.
    #[serde(skip)]
    pub(crate) is_unasked_ignored: bool,
    /// Git-ignored directories to include in the workspaces of `delegate_write`.
    #[serde(default)]
    include_ignored: Vec<PathBuf>,
    /// Directories that commands of `delegate_write` may read in addition to the system's.
    #[serde(default)]
    grant: Vec<PathBuf>,
}

impl McpConfig {
    /// Turns off what starts or merges unasked, unless the file is the one below the home directory of the account.
    ///
    /// Variables such as `XDG_CONFIG_HOME` choose the file, and a project's `.mcp.json` can set them for the server.
    fn ignore_unasked_outside_account(&mut self) {
        if (self.write_unasked || self.merge_unasked) && !is_account_config() {
            (self.write_unasked, self.merge_unasked) = (false, false);
            self.is_unasked_ignored = true;
        }
    }

    /// Returns the directories for workspaces, as if they were typed.
    pub(crate) fn workspace_flags(&self) -> WorkspaceSetupFlags {
        WorkspaceSetupFlags {
            include_ignored: self.include_ignored.clone(),
            grant: self.grant.clone(),
            ..WorkspaceSetupFlags::default()
        }
    }

    /// Returns the approval mode that the file sets.
    pub(crate) fn approval_mode(&self) -> Result<ApprovalMode, Failure> {
        self.approval.as_deref().map_or(Ok(ApprovalMode::default()), |text| {
            let parsed = text.parse::<ApprovalMode>();
            parsed.map_err(|it| Failure::usage(format!("user config: [mcp] approval: {it}")))
        })
    }
}

impl ConfigFile {
    /// Returns whether the file sets anything but limits.
    fn sets_more_than_limits(&self) -> bool {
        self.preset.is_some()
            || self.model.is_some()
            || self.runtime.is_some()
            || !self.models_allowed.is_empty()
            || self.search.is_some()
            || !self.providers.is_empty()
            || !self.models.is_empty()
            || !self.routing.is_empty()
            || self.verify.is_some()
            || !self.notify.is_empty()
            || self.mcp.is_some()
            || !self.workers.is_empty()
    }
}

/// The `[runtime]` section of the user's configuration.
#[derive(Clone, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct RuntimeSection {
    /// `local`, or restate://HOST:PORT of a cluster.
    url: String,
}

/// A `[providers.NAME]` section of the user's configuration.
#[derive(Clone, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProviderSection {
    /// Its address; optional for built-in providers.
    #[serde(default)]
    pub(crate) base_url: Option<String>,
    /// Its API: `chat`, `responses`, `anthropic` or `gemini`.
    #[serde(default)]
    pub(crate) wire: Option<String>,
    /// The environment variable with its key.
    #[serde(default)]
    pub(crate) key_env: Option<String>,
    /// The key itself.
    #[serde(default)]
    pub(crate) key: Option<String>,
}

/// A `[workers.NAME]` section of the user's configuration.
#[derive(Clone, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WorkerSection {
    /// The program and its arguments.
    pub(crate) command: Vec<String>,
    /// How it is told what to do: `acp`.
    #[serde(default)]
    pub(crate) protocol: Option<String>,
    /// The APIs that it speaks: `chat`, `responses`, `anthropic` or `gemini`.
    #[serde(default)]
    pub(crate) wires: Vec<String>,
    /// The variables that it gets.
    #[serde(default)]
    pub(crate) environment: BTreeMap<String, String>,
}

/// A `[models."PROVIDER/MODEL"]` section of the user's configuration, which overrides the catalogue.
#[derive(Clone, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ModelSection {
    /// The size of the context window in tokens.
    pub(crate) window: Option<u64>,
    /// The most output tokens of one call.
    pub(crate) max_output: Option<u64>,
    /// Dollars per million tokens; each price can be set alone.
    pub(crate) price: Option<PriceOverride>,
    /// The reasoning effort: `low`, `medium`, `high` or `max`.
    #[serde(default)]
    pub(crate) effort: Option<String>,
}

/// The search engine behind WebSearch.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct SearchConfig {
    engine: SearchEngine,
    /// The address; required for SearXNG, otherwise the public one by default.
    url: Option<String>,
    /// The key; not for SearXNG.
    key: Option<String>,
}

impl SearchConfig {
    fn endpoint(self) -> Result<SearchEndpoint, Failure> {
        let missing = |what: &str| Failure::usage(format!("user config: [search] needs `{what}`"));
        let key = self.key.as_deref().and_then(Secret::new);
        Ok(match self.engine {
            SearchEngine::Searxng => {
                SearchEndpoint::Searxng { base_url: self.url.ok_or_else(|| missing("url"))? }
            }
            SearchEngine::Brave => {
                SearchEndpoint::Brave { key: key.ok_or_else(|| missing("key"))?, url: self.url }
            }
            SearchEngine::Tavily => {
                SearchEndpoint::Tavily { key: key.ok_or_else(|| missing("key"))?, url: self.url }
            }
        })
    }
}

/// The supported search engines.
#[derive(Clone, Copy, Debug, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
enum SearchEngine {
    Searxng,
    Brave,
    Tavily,
}

/// The settings of a command, combined from all layers.
pub(crate) struct Settings {
    /// The limits, each with its origin.
    pub(crate) policy: LayeredPolicy,
    /// The model named by the user's configuration.
    pub(crate) model: Option<String>,
    /// Where runs are at work, as the user's configuration says.
    pub(crate) runtime: Option<String>,
    /// The models that agent files of a project may choose.
    pub(crate) models_allowed: Vec<String>,
    /// Secrets that are masked in all tool output.
    pub(crate) secrets: Vec<String>,
    /// Model providers from the user's configuration.
    pub(crate) providers: BTreeMap<String, ProviderSection>,
    /// Context window, output limit, prices and reasoning effort that the user configured, by model name.
    pub(crate) models: BTreeMap<String, ModelSection>,
    /// The reasoning effort of agents.
    pub(crate) efforts: AgentEfforts,
    /// Routes of slash commands that override those in the commands' files.
    pub(crate) routes: ConfiguredRoutes,
    /// The command that has to succeed before a story passes.
    pub(crate) verify: Option<String>,
    /// External agents from the user's configuration.
    pub(crate) workers: BTreeMap<String, WorkerSection>,
    /// What MCP clients may do.
    pub(crate) mcp: McpConfig,
    /// Which toolchains commands do not see.
    pub(crate) toolchains: ToolchainSettings,
    search: Option<SearchEndpoint>,
}

impl Settings {
    /// Reads all layers for a run in `root`.
    pub(crate) fn load(flags: &PolicyFlags, root: &Path) -> Result<Self, Failure> {
        Self::load_as(flags, root, None)
    }

    /// Like [`Settings::load`], with `usual` as the preset unless a flag chooses another.
    pub(crate) fn load_as(
        flags: &PolicyFlags,
        root: &Path,
        usual: Option<Preset>,
    ) -> Result<Self, Failure> {
        let user = user_config_path()
            .map_or_else(|| Ok(ConfigFile::default()), |path| read(&path, ConfigLinks::Followed))?;
        let project_path = root.join(".adjutant/config.toml");
        let project = read(&project_path, ConfigLinks::Refused)?;
        Self::of_files(flags, usual, user, (&project_path, project))
    }

    /// Returns the settings without configuration files, for a report about files that cannot be read.
    pub(crate) fn without_files() -> Result<Self, Failure> {
        let project = (Path::new(""), ConfigFile::default());
        Self::of_files(&PolicyFlags::default(), None, ConfigFile::default(), project)
    }

    fn of_files(
        flags: &PolicyFlags,
        usual: Option<Preset>,
        user: ConfigFile,
        (project_path, project): (&Path, ConfigFile),
    ) -> Result<Self, Failure> {
        if project.sets_more_than_limits() {
            return Err(Failure::usage(format!(
                "{}: a project file may only tighten [policy], not choose a preset, a model, a server, an agent, a verify or notify command or what MCP clients may do",
                project_path.display()
            )));
        }
        if project.toolchains.switches_on() {
            return Err(Failure::usage(format!(
                "{}: a project file may only switch toolchains off",
                project_path.display()
            )));
        }
        let name = flags.preset.as_deref().or(usual.map(Preset::name));
        let name = name.or(user.preset.as_deref()).unwrap_or("scout");
        let preset = Preset::parse(name).ok_or_else(|| {
            policy_failure(&PolicyError::UnknownPreset { name: name.to_owned() }, None)
        })?;
        let mut policy = LayeredPolicy::new(preset);
        policy
            .apply(&table(&user.policy, "user config")?, &PolicySource::UserConfig)
            .map_err(|error| policy_failure(&error, Some(PolicySource::UserConfig)))?;
        policy
            .apply(&table(&project.policy, "project config")?, &PolicySource::ProjectConfig)
            .map_err(|error| policy_failure(&error, Some(PolicySource::ProjectConfig)))?;
        from_environment(&mut policy)?;
        from_flags(&mut policy, flags)?;
        let mut toolchains = ToolchainSettings::default();
        toolchains.add(&user.toolchains, "user config")?;
        toolchains.add(&project.toolchains, "project config")?;
        let mut mcp = user.mcp.unwrap_or_default();
        mcp.ignore_unasked_outside_account();
        let secrets = user.search.iter().filter_map(|search| search.key.as_deref());
        let secrets = secrets.filter_map(Secret::new).map(|key| key.reveal().to_owned()).collect();
        let search = user.search.map(SearchConfig::endpoint).transpose()?;
        Ok(Self {
            policy,
            model: user.model,
            runtime: user.runtime.map(|runtime| runtime.url),
            models_allowed: user.models_allowed,
            secrets,
            providers: user.providers,
            models: user.models,
            efforts: AgentEfforts { user: user.effort, project: project.effort },
            routes: ConfiguredRoutes(user.routing),
            verify: user.verify,
            workers: user.workers,
            mcp,
            toolchains,
            search,
        })
    }

    /// Returns web access, if the policy allows the network.
    pub(crate) fn web(&self) -> Option<WebAccess> {
        let web = || {
            self.search
                .clone()
                .map_or_else(WebAccess::new, |search| WebAccess::new().with_search(search))
        };
        self.policy.policy().network.then(web)
    }

    /// Applies `--set` again, after the named flags, because it takes precedence over them.
    pub(crate) fn set_again(&mut self, flags: &PolicyFlags) -> Result<(), Failure> {
        from_flags(&mut self.policy, flags)
    }

    /// Sets one key from a named flag.
    pub(crate) fn set(
        &mut self,
        key: PolicyKey,
        value: impl Into<Value>,
        flag: &str,
    ) -> Result<(), Failure> {
        let source = PolicySource::Flag(flag.to_owned());
        self.policy
            .set(key.name(), &value.into(), &source)
            .map_err(|error| policy_failure(&error, Some(source)))
    }
}

fn from_environment(policy: &mut LayeredPolicy) -> Result<(), Failure> {
    let own =
        PolicyKey::ALL.iter().map(|key| (format!("ADJUTANT_{}", key.name().to_uppercase()), *key));
    let names = STORY_ENVIRONMENT.iter().map(|(name, key)| ((*name).to_owned(), *key));
    for (name, key) in names.chain(own) {
        let Some(text) = env::var_os(&name).filter(|text| !text.is_empty()) else { continue };
        // An unreadable limit must not become no limit.
        let text = text
            .into_string()
            .map_err(|_| Failure::usage(format!("environment {name}: it is not UTF-8")))?;
        let value = match text.as_str() {
            // 1 and 0 are common values of switches.
            "1" if name == "ENABLE_DELEGATION" => Value::Bool(true),
            "0" if name == "ENABLE_DELEGATION" => Value::Bool(false),
            json => serde_json::from_str(json).unwrap_or(Value::String(text)),
        };
        let source = PolicySource::Environment(name);
        policy
            .set(key.name(), &value, &source)
            .map_err(|error| policy_failure(&error, Some(source)))?;
    }
    warn_of_unknown_variables();
    Ok(())
}

/// The environment variable with the delegation depth of a process.
const DELEGATION_DEPTH: &str = "DELEGATION_DEPTH";

/// Returns the depth of the root of runs that this process starts: the depth of the agent whose command started this
/// process, otherwise 0.
pub(crate) fn base_depth() -> Result<u64, Failure> {
    let Some(value) = env::var_os(DELEGATION_DEPTH).filter(|value| !value.is_empty()) else {
        return Ok(0);
    };
    let digits = value.to_str().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    digits.and_then(|digits| digits.parse().ok()).ok_or_else(|| {
        let value = value.to_string_lossy();
        let value = adjutant_view::sanitize::line(&value);
        Failure::usage(format!("environment {DELEGATION_DEPTH}: `{value}` is not a depth"))
            .hint("Set it to a whole number from 0 to 3, or unset it.")
    })
}

/// Warns about `ADJUTANT_` variables that are unknown, for example misspelled.
fn warn_of_unknown_variables() {
    let known = |name: &str| {
        OTHER_VARIABLES.contains(&name)
            || PolicyKey::ALL.iter().any(|key| key.name().to_uppercase() == name)
    };
    for (name, _) in env::vars_os() {
        let Some(rest) = name.to_str().and_then(|name| name.strip_prefix("ADJUTANT_")) else {
            continue;
        };
        if rest == "CONTEXT" {
            say(
                "adjutant: ADJUTANT_CONTEXT is reserved; while it is set, `adjutant mcp` delegates nothing",
            );
        } else if !known(rest) {
            say(&format!("adjutant: ADJUTANT_{rest} is unknown and has no effect"));
        }
    }
}

/// The known `ADJUTANT_` variables that are not keys of the policy.
/// The last four are what a `notify` program gets; it may call Adjutant.
const OTHER_VARIABLES: [&str; 10] =
    ["HOME", "MODEL", "PRESET", "LIVE", "MCP_TOKEN", "PAGER", "RUN", "EVENT", "OUTCOME", "MESSAGE"];

fn from_flags(policy: &mut LayeredPolicy, flags: &PolicyFlags) -> Result<(), Failure> {
    if flags.enable_delegation {
        let source = PolicySource::Flag("--enable-delegation".into());
        policy
            .set(PolicyKey::Enabled.name(), &Value::Bool(true), &source)
            .map_err(|error| policy_failure(&error, None))?;
    }
    for assignment in &flags.set {
        let (key, value) =
            parse_assignment(assignment).map_err(|error| policy_failure(&error, None))?;
        let source = PolicySource::Flag("--set".into());
        policy.set(key, &value, &source).map_err(|error| policy_failure(&error, Some(source)))?;
    }
    Ok(())
}

/// Adds the layer that a bad setting came from, unless the error names it already.
fn policy_failure(error: &PolicyError, source: Option<PolicySource>) -> Failure {
    let hint = "`adjutant policy explain` lists the keys and their values.";
    let text = match (error, source) {
        (PolicyError::Loosens { .. }, _) | (_, None) => error.to_string(),
        (_, Some(source)) => format!("{source}: {error}"),
    };
    Failure::usage(text).hint(hint)
}

/// Reads a configuration file. A missing file is empty.
fn read(path: &Path, links: ConfigLinks) -> Result<ConfigFile, Failure> {
    let text = match read_small(path, links) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(ConfigFile::default()),
        Err(error) => {
            return Err(Failure::usage(format!("cannot read {}: {error}", path.display())));
        }
    };
    toml::from_str(&text).map_err(|error| {
        let said: String = error.to_string().trim_end().chars().take(MAX_ERROR_CHARS).collect();
        Failure::usage(format!("{}: {said}", path.display()))
    })
}

/// Whether a configuration file may be a symbolic link.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ConfigLinks {
    /// The user's file may, as dotfiles often are.
    Followed,
    /// A project's file may not: it could point anywhere.
    Refused,
}

/// The largest configuration file that is read.
const CONFIG_BYTES: u64 = 1 << 20;

/// Characters after which a parse error is cut, because it quotes a line of any length.
const MAX_ERROR_CHARS: usize = 2_000;

/// Reads a small regular file. Refuses pipes, which could block, and devices, which could be endless.
fn read_small(path: &Path, links: ConfigLinks) -> io::Result<String> {
    let mut flags = OFlags::NONBLOCK;
    if links == ConfigLinks::Refused {
        flags |= OFlags::NOFOLLOW;
    }
    let flags = i32::try_from(flags.bits()).map_err(io::Error::other)?;
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    if metadata.len() > CONFIG_BYTES {
        return Err(io::Error::other("it has more than 1 MiB"));
    }
    let mut text = String::new();
    file.take(CONFIG_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

fn table(table: &toml::Table, origin: &str) -> Result<Map<String, Value>, Failure> {
    json_table(table).map_err(|problem| Failure::usage(format!("{origin}: {problem}")))
}

/// Converts a TOML table to JSON. Refuses infinite numbers, which would become `null` and so remove a limit.
fn json_table(table: &toml::Table) -> Result<Map<String, Value>, String> {
    table.iter().map(|(key, value)| Ok((key.clone(), json_value(key, value)?))).collect()
}

fn json_value(key: &str, value: &toml::Value) -> Result<Value, String> {
    if let toml::Value::Float(number) = value {
        return serde_json::Number::from_f64(*number)
            .map(Value::Number)
            .ok_or_else(|| format!("{key}: {number} is not a number"));
    }
    serde_json::to_value(value).map_err(|error| format!("{key}: {error}"))
}

pub(crate) fn user_config_path() -> Option<PathBuf> {
    user_config_dir().map(|folder| folder.join("config.toml"))
}

/// Returns the directory with the user's configuration, agents and commands.
pub(crate) fn user_config_dir() -> Option<PathBuf> {
    directory("XDG_CONFIG_HOME", ".config").map(|config| config.join("adjutant"))
}

/// Returns whether the user's configuration is the file below the home directory of the account.
fn is_account_config() -> bool {
    let Some(home) = account::home() else { return false };
    let file = home.join(".config/adjutant/config.toml").canonicalize();
    let used = user_config_path().and_then(|path| path.canonicalize().ok());
    file.is_ok_and(|file| used == Some(file))
}

/// Returns the user's directories with agent definitions.
pub(crate) fn user_folders() -> UserFolders {
    let (home, config) = homes();
    UserFolders::default_folders(home.as_deref(), config.as_deref())
}

/// Returns the user's directories with slash commands.
pub(crate) fn command_folders() -> UserFolders {
    let (home, config) = homes();
    slash::user_folders(home.as_deref(), config.as_deref())
}

fn homes() -> (Option<PathBuf>, Option<PathBuf>) {
    let home = env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    (home, directory("XDG_CONFIG_HOME", ".config"))
}

/// Returns the state directory: as given, or the XDG default.
pub(crate) fn home(given: Option<PathBuf>) -> Result<PathBuf, Failure> {
    given
        .or_else(|| directory("XDG_STATE_HOME", ".local/state").map(|state| state.join("adjutant")))
        .ok_or_else(|| {
            Failure::new(Exit::Usage, "no state directory: HOME is not set")
                .hint("Set ADJUTANT_HOME, or use --home DIR.")
        })
}

/// Opens the state directory. The error says how to use another one.
pub(crate) fn open_archive(given: Option<PathBuf>) -> Result<Archive, Failure> {
    let archive = Archive::open(&home(given)?).map_err(|error| {
        Failure::from_error(Exit::Failed, &error)
            .hint("Set ADJUTANT_HOME, or use --home DIR, to keep runs elsewhere.")
    })?;
    if let Some(mode) = archive.open_before() {
        let path = archive.path().display().to_string();
        let could = if mode & 0o022 == 0 { "read" } else { "write to" };
        say(&format!(
            "adjutant: other users could {could} the state directory {} (mode {mode:04o}); it is 0700 now",
            sanitize::line(&path)
        ));
    }
    Ok(archive)
}

fn directory(variable: &str, below_home: &str) -> Option<PathBuf> {
    let absolute = |path: &PathBuf| path.is_absolute();
    let named = env::var_os(variable).map(PathBuf::from).filter(absolute);
    named.or_else(|| {
        env::var_os("HOME").map(|home| PathBuf::from(home).join(below_home)).filter(absolute)
    })
}

/// Returns the program and arguments of `notify` in the user's configuration. A project's file cannot set it.
pub(crate) fn notify_command() -> Vec<String> {
    let read = user_config_path().map(|path| read(&path, ConfigLinks::Followed));
    read.and_then(Result::ok).map(|config| config.notify).unwrap_or_default()
}
