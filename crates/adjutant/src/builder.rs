//! Setting up delegation: the model, the limits, the project, and what a program adds.

use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use adjutant_core::policy::WorkspaceSharing;
use adjutant_core::{Policy, Preset, Rights, ToolSet, VerifyCommand};
use adjutant_engine::toolchains::{ToolchainLookup, find_toolchains};
use adjutant_engine::{
    Approver, ApproverAnswer, Archive, CustomTool, Engine, EngineSetup, ModelOpener, WorkspaceSetup,
};
use adjutant_model::{Model, ModelSources, ScriptedModel, open_model};

use crate::approval::{ApprovalDecision, ApprovalRequest};
use crate::{Adjutant, Error};

/// Whether [`run_sandbox_helper_if_asked`] was called.
static HAS_HELPER: AtomicBool = AtomicBool::new(false);

/// Runs as the helper of the sandbox if this process was started for that, and then does not return.
///
/// Must be the first call of `main` in a program whose agents write: the sandbox starts this same program again as its
/// helper, and namespaces can only be entered while a process has a single thread.
pub fn run_sandbox_helper_if_asked() {
    adjutant_engine::sandbox_helper_if_asked();
    HAS_HELPER.store(true, Ordering::Relaxed);
}

/// The default model of agents: a name, or a model that the program has opened itself.
pub enum ModelChoice {
    /// `provider/model`, such as `anthropic/claude-haiku-5-5`.
    Named(String),
    /// An open model.
    Opened(Arc<dyn Model>),
}

impl From<&str> for ModelChoice {
    fn from(name: &str) -> Self {
        Self::Named(name.to_owned())
    }
}

impl From<String> for ModelChoice {
    fn from(name: String) -> Self {
        Self::Named(name)
    }
}

impl From<ScriptedModel> for ModelChoice {
    fn from(model: ScriptedModel) -> Self {
        Self::Opened(Arc::new(model))
    }
}

impl From<Arc<dyn Model>> for ModelChoice {
    fn from(model: Arc<dyn Model>) -> Self {
        Self::Opened(model)
    }
}

/// Everything that the runs of one [`Adjutant`] share.
pub(crate) struct DelegationSetup {
    pub(crate) archive: Archive,
    pub(crate) policy: Policy,
    pub(crate) approver: Approver,
    model: Arc<dyn Model>,
    opener: ModelOpener,
    root: PathBuf,
    tools: Vec<Arc<dyn CustomTool>>,
    secrets: Vec<String>,
    workspaces: Option<WorkspaceSetup>,
}

impl DelegationSetup {
    /// Makes an engine for one run in `root`, or in the project if that is `None`.
    pub(crate) fn engine(&self, root: Option<&Path>) -> Result<Engine, Error> {
        let root = root.unwrap_or(&self.root);
        let setup = EngineSetup {
            opener: Some(Arc::clone(&self.opener)),
            tools: self.tools.clone(),
            secrets: self.secrets.clone(),
            ..EngineSetup::new(self.policy.clone(), Arc::clone(&self.model), root)
        };
        let engine = Engine::new(setup)?.protecting(self.archive.path()).with_guidance();
        Ok(match &self.workspaces {
            Some(workspaces) => engine.with_spaces(workspaces.clone()),
            None => engine,
        })
    }
}

/// Sets up delegation. Make one with [`Adjutant::builder`].
#[derive(Default)]
pub struct AdjutantBuilder {
    model: Option<ModelChoice>,
    sources: Option<ModelSources>,
    policy: Option<Policy>,
    root: Option<PathBuf>,
    state_dir: Option<PathBuf>,
    tools: Vec<Arc<dyn CustomTool>>,
    approver: Option<Approver>,
    allows_writing: bool,
    verify: Option<VerifyCommand>,
}

impl AdjutantBuilder {
    /// Sets the model of agents: `provider/model`, or an open [`Model`].
    #[must_use]
    pub fn model(mut self, model: impl Into<ModelChoice>) -> Self {
        self.model = Some(model.into());
        self
    }

    /// Sets the providers, keys and addresses. By default they come from the usual environment variables, such as
    /// `ANTHROPIC_API_KEY`.
    #[must_use]
    pub fn model_sources(mut self, sources: ModelSources) -> Self {
        self.sources = Some(sources);
        self
    }

    /// Sets the limits. The default is [`Preset::Scout`]: agents that only read, one level deep, 5 USD per run.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = Some(policy);
        self
    }

    /// Sets the directory that agents work on. The default is the current directory.
    #[must_use]
    pub fn root(mut self, root: impl Into<PathBuf>) -> Self {
        self.root = Some(root.into());
        self
    }

    /// Sets where runs are recorded. The default is that of the `adjutant` command, which then lists these runs too.
    #[must_use]
    pub fn state_dir(mut self, directory: impl Into<PathBuf>) -> Self {
        self.state_dir = Some(directory.into());
        self
    }

    /// Gives agents a tool of the program. Its name is added to the tools of the policy.
    #[must_use]
    pub fn tool(mut self, tool: impl CustomTool + 'static) -> Self {
        self.tools.push(Arc::new(tool));
        self
    }

    /// Asks `decide` wherever the policy demands a person's approval. Without it the answer is always yes, and only the
    /// limits bound a run. `decide` may block; it is called on one of the threads for tools, one question at a time.
    #[must_use]
    pub fn on_approval(
        mut self,
        decide: impl Fn(&ApprovalRequest) -> ApprovalDecision + Send + Sync + 'static,
    ) -> Self {
        self.approver =
            Some(Arc::new(move |question| match decide(&ApprovalRequest::of(question)) {
                ApprovalDecision::Approve => ApproverAnswer::Yes,
                ApprovalDecision::Deny(reason) => ApproverAnswer::No(reason),
            }));
        self
    }

    /// Lets agents write, each in a workspace of its own, and run commands in a sandbox. The root must be in a git
    /// repository, and `main` must begin with [`run_sandbox_helper_if_asked`].
    #[must_use]
    pub const fn allow_writing(mut self) -> Self {
        self.allows_writing = true;
        self
    }

    /// Sets a command that must succeed before the work of an agent that writes counts as completed. It runs on a fresh
    /// copy of the work.
    #[must_use]
    pub fn verify(mut self, command: impl Into<String>) -> Self {
        self.verify = Some(VerifyCommand { command: command.into(), keep: Vec::new() });
        self
    }

    /// Opens the model and the state directory.
    ///
    /// # Errors
    ///
    /// If no model is set or it cannot be used, if there is no state directory, or if agents may write and the program
    /// does not start the sandbox helper.
    pub fn build(self) -> Result<Adjutant, Error> {
        let sources =
            self.sources.unwrap_or_else(|| ModelSources::from_vars(|name| env::var(name).ok()));
        let model = match self.model.ok_or(Error::NoModel)? {
            ModelChoice::Named(name) => open_model(&name, &sources)?,
            ModelChoice::Opened(model) => model,
        };
        let state_dir = self.state_dir.or_else(default_state_dir).ok_or(Error::NoStateDir)?;
        // Relative to the current directory of now; the program may change it before a run starts.
        let root = absolute(self.root.unwrap_or_else(|| PathBuf::from(".")))?;
        let archive = Archive::open(&absolute(state_dir)?)?;
        let mut policy = self.policy.unwrap_or_else(|| Preset::Scout.policy());
        let workspaces = match self.allows_writing {
            true => Some(write_in_workspaces(&mut policy, &archive, self.verify)?),
            false => None,
        };
        add_tools(&mut policy, self.tools.iter().map(|tool| tool.spec().name));
        let secrets = sources.secrets();
        let opener: ModelOpener =
            Arc::new(move |name| open_model(name, &sources).map_err(|error| error.to_string()));
        let setup = DelegationSetup {
            archive,
            policy,
            approver: self.approver.unwrap_or_else(|| Arc::new(|_| ApproverAnswer::Yes)),
            model,
            opener,
            root,
            tools: self.tools,
            secrets,
            workspaces,
        };
        // An unusable root or a tool with a taken name shows now, not at the first task.
        setup.engine(None)?;
        Ok(Adjutant { setup: Arc::new(setup) })
    }
}

fn absolute(path: PathBuf) -> Result<PathBuf, Error> {
    std::path::absolute(&path).map_err(|source| Error::UnresolvedPath { path, source })
}

/// Returns the state directory of the `adjutant` command.
fn default_state_dir() -> Option<PathBuf> {
    let directory = |name: &str| env::var_os(name).map(PathBuf::from).filter(|it| it.is_absolute());
    let state = || {
        let below_home = || directory("HOME").map(|home| home.join(".local/state"));
        directory("XDG_STATE_HOME").or_else(below_home).map(|state| state.join("adjutant"))
    };
    env::var_os("ADJUTANT_HOME").map(PathBuf::from).or_else(state)
}

fn add_tools(policy: &mut Policy, names: impl Iterator<Item = String>) {
    let names: Vec<String> = policy.tools.iter().map(str::to_owned).chain(names).collect();
    policy.tools = ToolSet::new(names.iter().map(String::as_str));
}

fn write_in_workspaces(
    policy: &mut Policy,
    archive: &Archive,
    verify: Option<VerifyCommand>,
) -> Result<WorkspaceSetup, Error> {
    if !HAS_HELPER.load(Ordering::Relaxed) {
        return Err(Error::NoSandboxHelper);
    }
    policy.workspace = WorkspaceSharing::Own;
    policy.tools = Rights::of(policy).tools;
    add_tools(policy, ["Edit", "Write", "Run"].into_iter().map(str::to_owned));
    let home = env::var_os("HOME").map(PathBuf::from);
    let variables: BTreeMap<_, _> = env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
        .collect();
    let lookup = ToolchainLookup { home: home.clone(), variables, system_root: PathBuf::from("/") };
    Ok(WorkspaceSetup {
        home,
        verify,
        toolchains: find_toolchains(&lookup),
        ..WorkspaceSetup::new(archive.path().to_owned())
    })
}
