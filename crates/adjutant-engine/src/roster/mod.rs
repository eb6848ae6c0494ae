//! Agent definitions: finding and parsing the files in which people describe agents.
//!
//! Knows the folders and keys of five products. What a definition may do in a run is decided by `briefs::role`.
//! A file cannot widen rights; keys that would are reported as ignored. Start at [`find_agents`]. Invariant: an
//! unreadable file becomes a [`FileProblem`] and does not affect the other files.

mod definition;
mod front_matter;
mod search;
mod tools;

pub(crate) use definition::{DefinitionFields, definition, qualified_model};
pub(crate) use front_matter::{FrontMatter, read as read_front, split};
pub(crate) use search::{DefinitionFile, SearchFinding, search_folders};
pub(crate) use tools::allow;

use std::fmt;
use std::path::{Path, PathBuf};

use adjutant_core::policy::Operation;
use adjutant_core::{AgentName, ReasoningEffort, VerifyCommand, nearest};

pub use search::{UserFolders, find_agents};
pub use tools::RequestedTools;

/// The largest file that is read as a definition, in bytes. Inclusive.
pub const FILE_BYTES: u64 = 256 << 10;
/// The most files that are read per scope. Inclusive.
pub const MAX_FILES: usize = 500;
/// The most bytes that are read per scope, over all its files. Inclusive.
pub const SCOPE_BYTES: u64 = 4 << 20;
/// The most keys of one file, with nested ones. Inclusive.
pub const MAX_KEYS: usize = 200;
/// The longest name of an agent, in characters. Inclusive.
pub const NAME_CHARS: usize = 64;

/// Names of Adjutant's own agents, which a file cannot take.
const OWN_NAMES: [&str; 6] = ["lead", "delegate", "scout", "general", "worker", "orchestrator"];

/// The built-in agents of opencode and our agents that do the same work. A file with that name takes precedence.
pub const OPENCODE_AGENTS: [(&str, &str); 4] = [
    ("build", "implementer"),
    ("plan", "planner"),
    ("general", "researcher"),
    ("explore", "helper"),
];

/// Whose a definition is, which decides how far it is trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefinitionScope {
    /// The project's. It may add prompts and tighten limits.
    Project,
    /// The person's own.
    User,
    /// Built into Adjutant.
    BuiltIn,
}

impl DefinitionScope {
    /// Returns the word for output.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Project => "project",
            Self::User => "user",
            Self::BuiltIn => "built-in",
        }
    }
}

/// The product whose format a file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceProduct {
    /// `.claude/agents/**/*.md`
    Claude,
    /// `.opencode/agent(s)/**/*.md`
    Opencode,
    /// `.codex/agents/*.toml`
    Codex,
    /// `.gemini/agents/*.md`
    Gemini,
    /// `.adjutant/agents/*.md`
    Adjutant,
}

/// An agent as a file describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentDefinition {
    /// The name.
    pub name: AgentName,
    /// When to use it, for a model that chooses an agent.
    pub description: String,
    /// Its system prompt.
    pub prompt: String,
    /// The tools it asks for.
    pub tools: RequestedTools,
    /// The model it asks for: `provider/model`, or `sonnet`, `opus` or `haiku`.
    pub model: Option<String>,
    /// Whether the person chose that model, in their own file or their list of allowed models.
    pub model_is_theirs: bool,
    /// The reasoning effort it asks for.
    pub effort: Option<ReasoningEffort>,
    /// Whether the person's own file asks for that effort or a higher one.
    pub effort_is_theirs: bool,
    /// Its limits.
    pub limits: DefinitionLimits,
    /// The command that must succeed before its work counts as done.
    pub verify: Option<DefinedVerify>,
    /// The external agent that does its work.
    pub worker: Option<String>,
    /// Whether other agents can give it tasks; false for an agent with `mode: primary`.
    pub takes_tasks: bool,
    /// The path; relative to the project's root for a file of the project.
    pub file: String,
    /// Whose file it is.
    pub scope: DefinitionScope,
    /// The product whose format it has.
    pub product: SourceProduct,
    /// The person's own file of the same name, which limits it.
    pub ceiling: Option<String>,
    /// What in the file is ignored, and why.
    pub ignored: Vec<String>,
}

/// A verify command that a definition asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefinedVerify {
    /// The command and the files that it takes from the base.
    pub verify: VerifyCommand,
    /// Whether the person allowed it: it is in their own file, or they consented to it.
    pub is_allowed: bool,
}

/// The limits of a definition. They can only tighten those of the policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DefinitionLimits {
    /// The most turns, including the last one for the report. Inclusive.
    pub max_turns: Option<u32>,
    /// The timeout in seconds.
    pub timeout_s: Option<u64>,
    /// The most output tokens of one reply.
    pub max_output_tokens: Option<u64>,
    /// The kind of work, which decides the default timeout.
    pub operation: Option<Operation>,
    /// Whether a completed return must name a file with the work.
    pub artifacts_required: bool,
    /// Whether it has no network access.
    pub offline: bool,
}

impl DefinitionLimits {
    fn tighten(&mut self, other: &Self) {
        self.max_turns = tighter(self.max_turns, other.max_turns);
        self.timeout_s = tighter(self.timeout_s, other.timeout_s);
        self.max_output_tokens = tighter(self.max_output_tokens, other.max_output_tokens);
        self.operation = other.operation.or(self.operation);
        self.artifacts_required |= other.artifacts_required;
        self.offline |= other.offline;
    }
}

fn tighter<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
    one.into_iter().chain(other).min()
}

impl AgentDefinition {
    /// Limits a project's definition by the person's own of the same name.
    pub(crate) fn bound_by(&mut self, theirs: &Self) {
        let missing = self.tools.missing_in(&theirs.tools);
        if !missing.is_empty() {
            self.ignored.push(format!("your own {} does not permit {missing}", theirs.file));
        }
        self.tools.narrow(&theirs.tools);
        self.limits.tighten(&theirs.limits);
        self.takes_tasks &= theirs.takes_tasks;
        self.model_is_theirs |= self.model.is_some() && self.model == theirs.model;
        self.effort = tighter(self.effort, theirs.effort);
        self.effort_is_theirs = theirs.effort.is_some();
        if theirs.verify.is_some() {
            self.verify.clone_from(&theirs.verify);
        }
        self.ceiling = Some(theirs.file.clone());
    }
}

/// A file that is not used because another one defines the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShadowedFile {
    /// The name both have.
    pub name: String,
    /// The file that is not used.
    pub file: String,
    /// Whose file it is.
    pub scope: DefinitionScope,
    /// The file that is used.
    pub by: String,
}

/// A file or folder that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileProblem {
    /// The file or folder.
    pub file: String,
    /// Whose file it is.
    pub scope: DefinitionScope,
    /// The reason, as a sentence about the file.
    pub reason: String,
}

/// All agents that files define.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AgentRoster {
    /// The agents, each name once, ordered by folder.
    pub agents: Vec<AgentDefinition>,
    /// Files that define a name that was taken.
    pub shadowed: Vec<ShadowedFile>,
    /// Files that cannot be used.
    pub problems: Vec<FileProblem>,
}

impl AgentRoster {
    /// Returns the agent of that name. The name of a built-in agent of opencode finds ours for the same work.
    pub fn find(&self, name: &str) -> Result<&AgentDefinition, UnknownAgent> {
        let called = |name: &str| self.agents.iter().find(|agent| agent.name.as_str() == name);
        let same_work = || {
            let (_, ours) = OPENCODE_AGENTS.iter().find(|(theirs, _)| *theirs == name)?;
            called(ours)
        };
        called(name).or_else(same_work).ok_or_else(|| UnknownAgent::among(name, &self.agents))
    }

    /// Adds a definition. The first of a name is used; the person's own limits a project's of the same name.
    fn add(&mut self, definition: AgentDefinition) {
        let same =
            |agent: &&mut AgentDefinition| same_name(agent.name.as_str(), definition.name.as_str());
        let Some(first) = self.agents.iter_mut().find(same) else {
            self.agents.push(definition);
            return;
        };
        if first.scope == DefinitionScope::Project
            && definition.scope == DefinitionScope::User
            && first.ceiling.is_none()
        {
            first.bound_by(&definition);
        }
        self.shadowed.push(ShadowedFile {
            name: definition.name.as_str().to_owned(),
            file: definition.file,
            scope: definition.scope,
            by: first.file.clone(),
        });
    }
}

impl AgentRoster {
    /// Removes a project's agent if the person's file of the same name, which would limit it, cannot be read.
    fn withdraw(&mut self, name: &str, bounds: &str) {
        let bounded = |agent: &mut AgentDefinition| {
            agent.scope == DefinitionScope::Project && same_name(agent.name.as_str(), name)
        };
        let withdrawn = self.agents.extract_if(.., bounded).map(|agent| FileProblem {
            file: agent.file,
            scope: agent.scope,
            reason: format!("{bounds} would limit it and cannot be used"),
        });
        self.problems.extend(withdrawn.collect::<Vec<_>>());
    }
}

/// No agent has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct UnknownAgent {
    /// The name.
    pub name: String,
    /// The most similar name.
    pub meant: Option<String>,
    /// All names.
    pub known: Vec<String>,
}

impl UnknownAgent {
    fn among(name: &str, agents: &[AgentDefinition]) -> Self {
        let known: Vec<String> = agents.iter().map(|agent| agent.name.to_string()).collect();
        let meant = nearest(name, known.iter().map(String::as_str)).map(str::to_owned);
        Self { name: name.to_owned(), meant, known }
    }
}

impl fmt::Display for UnknownAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no agent `{}`", self.name)?;
        if let Some(meant) = &self.meant {
            write!(f, ", did you mean `{meant}`?")?;
        }
        if self.known.is_empty() {
            return f.write_str("; no agent is defined");
        }
        write!(f, "; known are {}", self.known.join(", "))
    }
}

/// Compares names without regard to case, because people would confuse such agents.
fn same_name(one: &str, other: &str) -> bool {
    let small = |name: &str| name.trim().to_lowercase();
    small(one) == small(other)
}

/// Checks the name of an agent in a file.
pub(crate) fn agent_name(text: &str) -> Result<AgentName, String> {
    let text = text.trim();
    let fits = |letter: char| {
        letter.is_alphanumeric() || matches!(letter, '-' | '_' | '.' | '/' | ':' | ' ')
    };
    let count = text.chars().count();
    if count == 0 || count > NAME_CHARS {
        return Err(format!("its name has {count} characters, allowed are 1 to {NAME_CHARS}"));
    }
    if !text.chars().all(fits) || !text.starts_with(char::is_alphanumeric) {
        return Err(format!(
            "its name `{}` has characters that are not allowed; use letters, digits and -, beginning with a \
             letter or digit",
            text.escape_debug()
        ));
    }
    if OWN_NAMES.iter().any(|own| same_name(own, text)) {
        return Err(format!("its name `{text}` belongs to Adjutant; give it another with `name`"));
    }
    Ok(AgentName::new(text))
}

/// Returns a path for output.
fn display_path(path: &Path) -> String {
    path.display().to_string()
}

/// Returns the folders of agents in a project, by product.
const fn project_folders() -> [(SourceProduct, &'static str); 6] {
    [
        (SourceProduct::Claude, ".claude/agents"),
        (SourceProduct::Opencode, ".opencode/agent"),
        (SourceProduct::Opencode, ".opencode/agents"),
        (SourceProduct::Codex, ".codex/agents"),
        (SourceProduct::Gemini, ".gemini/agents"),
        (SourceProduct::Adjutant, ".adjutant/agents"),
    ]
}

impl UserFolders {
    /// Returns the default folders below a person's home and configuration directories.
    #[must_use]
    pub fn default_folders(home: Option<&Path>, config: Option<&Path>) -> Self {
        let below = |base: Option<&Path>, path: &str| base.map(|base| base.join(path));
        let folders: [(SourceProduct, Option<PathBuf>); 6] = [
            (SourceProduct::Claude, below(home, ".claude/agents")),
            (SourceProduct::Opencode, below(config, "opencode/agent")),
            (SourceProduct::Opencode, below(config, "opencode/agents")),
            (SourceProduct::Codex, below(home, ".codex/agents")),
            (SourceProduct::Gemini, below(home, ".gemini/agents")),
            (SourceProduct::Adjutant, below(config, "adjutant/agents")),
        ];
        Self(folders.into_iter().filter_map(|(product, path)| Some((product, path?))).collect())
    }
}
