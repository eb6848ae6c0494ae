//! Agent definitions: the files in which people describe agents, found and read as ours.
//!
//! Knows where five products keep such files and what their keys mean. It does not know a run: what a
//! definition may do under a policy and which model it gets is decided by `role`. Nothing in a file
//! can widen rights: keys that would are named as ignored. Start at [`find_agents`]. Invariant: a file that
//! cannot be read is a [`FileProblem`] with a reason, and the others are not affected.

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
use adjutant_core::{AgentName, nearest};

pub use search::{UserFolders, find_agents};
pub use tools::RequestedTools;

/// The largest file that is read as a definition, in bytes. Inclusive.
pub const FILE_BYTES: u64 = 256 << 10;
/// The most files of one scope that are read. Inclusive.
pub const MAX_FILES: usize = 500;
/// The most bytes that are read of the files of one scope, together. Inclusive.
pub const SCOPE_BYTES: u64 = 4 << 20;
/// The most keys of one file, those within others counted. Inclusive.
pub const MAX_KEYS: usize = 200;
/// The longest name of an agent, in characters. Inclusive.
pub const NAME_CHARS: usize = 64;

/// Names that the program gives to agents of its own.
const OWN_NAMES: [&str; 6] = ["lead", "delegate", "scout", "general", "worker", "orchestrator"];

/// The agents that opencode has built in, and those of ours that do the same work. A file of that name comes first.
pub const OPENCODE_AGENTS: [(&str, &str); 4] = [
    ("build", "implementer"),
    ("plan", "planner"),
    ("general", "researcher"),
    ("explore", "helper"),
];

/// Whose word a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefinitionScope {
    /// The project's: it may add prompts and tighten limits.
    Project,
    /// The person's own.
    User,
    /// The program's.
    BuiltIn,
}

impl DefinitionScope {
    /// Returns the word it is shown as.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Project => "project",
            Self::User => "user",
            Self::BuiltIn => "built-in",
        }
    }
}

/// Whose format a file has.
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
    /// What it is called.
    pub name: AgentName,
    /// What it is for.
    pub description: String,
    /// What it is told.
    pub prompt: String,
    /// The tools it asks for.
    pub tools: RequestedTools,
    /// The model it asks for: `provider/model`, or one of the words of its product.
    pub model: Option<String>,
    /// Whether a person named that model: their own file, or their list.
    pub model_is_theirs: bool,
    /// Its bounds.
    pub limits: DefinitionLimits,
    /// Whether it can be given a task; an agent that is only for leading is not.
    pub takes_tasks: bool,
    /// The file, beneath the project where it is the project's.
    pub file: String,
    /// Whose word it is.
    pub scope: DefinitionScope,
    /// Whose format it has.
    pub product: SourceProduct,
    /// The person's own definition of that name, which bounds it.
    pub ceiling: Option<String>,
    /// What of the file counts for nothing, and why.
    pub ignored: Vec<String>,
}

/// What a definition bounds; each can only tighten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DefinitionLimits {
    /// Turns, the last one for the report. Inclusive.
    pub max_turns: Option<u32>,
    /// Seconds.
    pub timeout_s: Option<u64>,
    /// Output tokens of one answer.
    pub max_output_tokens: Option<u64>,
    /// What kind of work it does.
    pub operation: Option<Operation>,
    /// Whether it must name a file that holds the work when it claims to have completed it.
    pub artifacts_required: bool,
    /// Whether it is kept from the network.
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
    /// Bounds a project's definition by the person's own of the same name.
    pub(crate) fn bound_by(&mut self, theirs: &Self) {
        let missing = self.tools.missing_in(&theirs.tools);
        if !missing.is_empty() {
            self.ignored.push(format!("your own {} does not permit {missing}", theirs.file));
        }
        self.tools.narrow(&theirs.tools);
        self.limits.tighten(&theirs.limits);
        self.takes_tasks &= theirs.takes_tasks;
        self.model_is_theirs |= self.model.is_some() && self.model == theirs.model;
        self.ceiling = Some(theirs.file.clone());
    }
}

/// A file that is not used because another one has its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShadowedFile {
    /// The name both have.
    pub name: String,
    /// The file that is not used.
    pub file: String,
    /// Whose word it is.
    pub scope: DefinitionScope,
    /// The file that is used.
    pub by: String,
}

/// A file of which nothing could be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileProblem {
    /// The file or folder.
    pub file: String,
    /// Whose word it is.
    pub scope: DefinitionScope,
    /// Why, as a sentence about it.
    pub reason: String,
}

/// Everyone there is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AgentRoster {
    /// The agents, each name once, in the order of their folders.
    pub agents: Vec<AgentDefinition>,
    /// Files whose name was taken.
    pub shadowed: Vec<ShadowedFile>,
    /// Files that cannot be used.
    pub problems: Vec<FileProblem>,
}

impl AgentRoster {
    /// Returns the agent of that name; one that opencode has built in is ours that does the same.
    pub fn find(&self, name: &str) -> Result<&AgentDefinition, UnknownAgent> {
        let called = |name: &str| self.agents.iter().find(|agent| agent.name.as_str() == name);
        let same_work = || {
            let (_, ours) = OPENCODE_AGENTS.iter().find(|(theirs, _)| *theirs == name)?;
            called(ours)
        };
        called(name).or_else(same_work).ok_or_else(|| UnknownAgent::among(name, &self.agents))
    }

    /// Adds one more; the first of a name counts, and the person's own bounds a project's.
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
    /// Takes back a project's agent whose bounds stand in a file of the person's that cannot be read.
    fn withdraw(&mut self, name: &str, bounds: &str) {
        let bounded = |agent: &mut AgentDefinition| {
            agent.scope == DefinitionScope::Project && same_name(agent.name.as_str(), name)
        };
        let withdrawn = self.agents.extract_if(.., bounded).map(|agent| FileProblem {
            file: agent.file,
            scope: agent.scope,
            reason: format!("{bounds} would bound it and cannot be used"),
        });
        self.problems.extend(withdrawn.collect::<Vec<_>>());
    }
}

/// Says that nobody has that name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct UnknownAgent {
    /// The name.
    pub name: String,
    /// The name that was probably meant.
    pub meant: Option<String>,
    /// The names there are.
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

/// Says whether two names are one: nobody should have to tell agents apart by capitals.
fn same_name(one: &str, other: &str) -> bool {
    let small = |name: &str| name.trim().to_lowercase();
    small(one) == small(other)
}

/// Takes a name as a file gives it.
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
            "its name `{}` holds what a name must not: use letters, digits and -",
            text.escape_debug()
        ));
    }
    if OWN_NAMES.iter().any(|own| same_name(own, text)) {
        return Err(format!("its name `{text}` belongs to Adjutant; give it another with `name`"));
    }
    Ok(AgentName::new(text))
}

/// Returns a path as it is shown.
fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// Returns where each product keeps its agents in a project.
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
    /// Returns the usual folders below a person's home and configuration directories.
    #[must_use]
    pub fn usual(home: Option<&Path>, config: Option<&Path>) -> Self {
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
