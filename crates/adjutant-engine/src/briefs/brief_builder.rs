//! Turning tasks into briefs: reads context files, chooses the agent's model and limits.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use adjutant_core::numbers::grouped;
use adjutant_core::policy::Operation;
use adjutant_core::schema::TaskSpec;
use adjutant_core::{
    AgentName, Brief, ContextFile, ContextFileStatus, ModelSpec, SlashCommandAssignment,
};
use adjutant_model::Model;
use adjutant_tools::{
    CONTEXT_CAP_BYTES, ContextFileError, ContextFileState, Masker, Toolbox, load_context,
    render_context,
};
use adjutant_workspace::Root;

use crate::briefs::effort::AgentEfforts;
use crate::briefs::instructions::instructions_for;
use crate::briefs::role::AgentRole;
use crate::slash::SlashCommands;

/// Opens a model by the name a task asks for, or returns why it is not available.
pub type ModelOpener = Arc<dyn Fn(&str) -> Result<Arc<dyn Model>, String> + Send + Sync>;

/// The models of a run, each opened once.
#[derive(Clone)]
pub(crate) struct ModelPool {
    default: Arc<dyn Model>,
    open: Option<ModelOpener>,
    // A std mutex: held for a map look-up and the opening of a client, never across an await.
    opened: Arc<Mutex<BTreeMap<String, Arc<dyn Model>>>>,
}

impl ModelPool {
    pub(crate) fn new(default: Arc<dyn Model>, open: Option<ModelOpener>) -> Self {
        Self { default, open, opened: Arc::default() }
    }

    pub(crate) fn default_spec(&self) -> &ModelSpec {
        self.default.spec()
    }

    /// Returns an opened model by its name, or the default model.
    pub(crate) fn get(&self, name: &str) -> Arc<dyn Model> {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        opened.get(name).unwrap_or(&self.default).clone()
    }

    /// Opens the model a task asks for and returns its specification.
    pub(crate) fn choose(&self, name: &str) -> Result<ModelSpec, String> {
        if name == self.default.spec().name {
            return Ok(self.default.spec().clone());
        }
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(model) = opened.get(name) {
            return Ok(model.spec().clone());
        }
        let open = self.open.as_ref().ok_or_else(|| {
            format!("no other model than {} is configured", self.default.spec().name)
        })?;
        let model = open(name)?;
        let spec = model.spec().clone();
        opened.insert(spec.name.clone(), model);
        Ok(spec)
    }

    /// Tells every model that a session has ended, so that it can drop the session's state.
    pub(crate) fn forget(&self, session: adjutant_core::SessionId) {
        self.default.forget(session);
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        opened.values().for_each(|model| model.forget(session));
    }
}

/// Who asked for a task. Decides how much an error about its model may reveal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TaskRequester {
    /// A person, by a file or a flag.
    Person,
    /// A model, by a tool call.
    Model,
}

fn not_yours(name: &str) -> String {
    format!("`{}` cannot be used here", name.escape_debug())
}

/// Turns tasks into briefs.
#[derive(Clone)]
pub(crate) struct BriefBuilder {
    pub(crate) toolbox: Arc<Toolbox>,
    pub(crate) masker: Masker,
    pub(crate) models: ModelPool,
    /// The reasoning effort of agents, from configuration files.
    pub(crate) efforts: AgentEfforts,
    /// The agent for tasks that name no agent.
    pub(crate) agent: AgentName,
    /// The agents that a file describes, by name.
    pub(crate) roles: Arc<BTreeMap<AgentName, AgentRole>>,
    /// The slash commands a task's prompt may begin with.
    pub(crate) commands: Arc<SlashCommands>,
    /// The kind of work of a task whose agent definition does not say.
    pub(crate) operation: Operation,
    /// The tree that agents work in.
    pub(crate) workdir: Arc<Path>,
    /// The timeout of a task whose agent definition has none.
    pub(crate) timeout_s: Option<u64>,
    /// Names of stories that have runs of their own. A task whose prompt is such a name is recognised.
    pub(crate) separate_work: Arc<BTreeSet<String>>,
    /// The agent that a slash command delegates to, and the context files of the command.
    pub(crate) command_context: Option<(AgentName, Arc<[String]>)>,
    /// Whether briefs quote the project's texts for agents; see [`crate::Engine::with_guidance`].
    pub(crate) quotes_instructions: bool,
}

impl BriefBuilder {
    /// Uses the operation, timeout and context files of a slash command for the tasks it delegates.
    pub(crate) fn take_assignment(&mut self, assignment: &SlashCommandAssignment) {
        self.operation = assignment.operation;
        self.timeout_s = assignment.timeout_s;
        let agent = assignment.agent.as_deref().map(AgentName::new);
        self.command_context = agent.map(|agent| (agent, assignment.context.as_slice().into()));
    }

    /// Sets the reasoning effort of an agent that runs on this model.
    pub(crate) fn with_effort(&self, agent: &AgentName, spec: ModelSpec) -> ModelSpec {
        let definition = self.roles.get(agent).map(|role| &role.definition);
        let of_model = self.models.get(&spec.name).spec().effort;
        let effort = self.efforts.of(agent.as_str(), definition, of_model);
        ModelSpec { effort, ..spec }
    }

    /// Returns a task's context files: first those of the slash command it belongs to, then its own.
    fn context_paths(&self, agent: &AgentName, task: &TaskSpec) -> Vec<String> {
        let command = self.command_context.iter().filter(|(whose, _)| whose == agent);
        let mut paths: Vec<String> = command.flat_map(|(_, files)| files.iter().cloned()).collect();
        let own = task.context.iter().filter(|path| !paths.contains(path)).cloned();
        let own: Vec<String> = own.collect();
        paths.extend(own);
        paths
    }

    /// Quotes context files for the root agent, which has no brief.
    pub(crate) fn quote_context(&self, paths: &[String]) -> Result<String, ContextFileError> {
        if paths.is_empty() {
            return Ok(String::new());
        }
        let files = load_context(self.toolbox.root(), paths, CONTEXT_CAP_BYTES, &self.masker)?;
        Ok(format!("\n\nThe files that the command names, quoted:\n\n{}", render_context(&files)))
    }

    /// Builds the brief of a task that names no agent.
    pub(crate) fn brief(
        &self,
        task: &TaskSpec,
        caller: &ModelSpec,
        asker: TaskRequester,
        root: &Root,
    ) -> Brief {
        self.brief_for(&self.agent, task, caller, asker, root)
    }

    /// Builds the brief of a task for `agent`. Context files are read beneath `root`, the caller's tree. The model
    /// is the task's, else that of the agent's definition, else the caller's. The core checks that the agent exists.
    pub(crate) fn brief_for(
        &self,
        agent: &AgentName,
        task: &TaskSpec,
        caller: &ModelSpec,
        asker: TaskRequester,
        root: &Root,
    ) -> Brief {
        let mut brief = Brief::new(task.label.clone(), agent.clone(), &task.prompt);
        brief.max_output_tokens = task.max_output_tokens;
        // The core decides whether a story may be delegated.
        brief.story = self.separate_work.get(task.prompt.trim()).cloned();
        let role = self.roles.get(agent);
        if let Some(role) = role {
            role.apply_limits(&mut brief);
        }
        if role.is_none_or(|role| role.definition.limits.operation.is_none()) {
            brief.operation = task.operation.unwrap_or(self.operation);
        }
        // The command's timeout is meant for its own kind of work, not for a small helper task.
        if brief.operation == self.operation {
            brief.timeout_wish = brief.timeout_wish.or(self.timeout_s);
        }
        brief.timeout_wish = brief.timeout_wish.into_iter().chain(task.timeout_s).min();
        brief.is_timeout_requested = task.timeout_s.is_some();
        let chosen = match (task.model.as_deref(), asker) {
            (None, asker) if role.is_some_and(|role| role.model.is_some()) => {
                let name = role.and_then(|role| role.model.as_deref()).unwrap_or_default();
                self.models.choose(name).map_err(|problem| match asker {
                    TaskRequester::Person => problem,
                    TaskRequester::Model => not_yours(name),
                })
            }
            (None, _) => Ok(caller.clone()),
            (Some(name), TaskRequester::Person) => self.models.choose(name),
            // Error texts for a model are uniform: it must not find out which files and API keys exist.
            (Some(name), TaskRequester::Model) if name.contains(':') => Err(not_yours(name)),
            (Some(name), TaskRequester::Model) => {
                self.models.choose(name).map_err(|_| not_yours(name))
            }
        };
        match chosen {
            Ok(spec) => brief.model = Some(self.with_effort(agent, spec)),
            Err(problem) => brief.model_problem = Some(problem),
        }
        let mut loaded = Vec::new();
        for path in self.context_paths(agent, task) {
            // One at a time, so that one unusable file does not hide the others.
            let found = match load_context(root, &[&path], CONTEXT_CAP_BYTES, &self.masker) {
                Ok(files) => {
                    let found =
                        files.first().map_or(ContextFileStatus::Missing, context_file_status);
                    loaded.extend(files);
                    found
                }
                Err(error) => ContextFileStatus::Unusable(problem(&error)),
            };
            brief.context.push(ContextFile { path, found });
        }
        if !loaded.is_empty() {
            brief.opening = Some(format!("{}\n{}", render_context(&loaded), task.prompt));
        }
        if self.quotes_instructions && !brief.context.is_empty() {
            brief.instructions = instructions_for(root, &brief.context_paths(), &self.masker);
        }
        brief
    }
}

fn context_file_status(file: &adjutant_tools::ContextFileContent) -> ContextFileStatus {
    match file.state {
        ContextFileState::Missing => ContextFileStatus::Missing,
        ContextFileState::Loaded { lossy: true, .. } => ContextFileStatus::Lossy,
        ContextFileState::Loaded { lossy: false, .. } => ContextFileStatus::Loaded,
    }
}

/// Returns the error without the path, which the caller prints before it.
fn problem(error: &ContextFileError) -> String {
    match error {
        ContextFileError::Path { source, .. } => source.to_string(),
        ContextFileError::TooLarge { cap_bytes, .. } => {
            format!("larger than {} bytes", grouped(*cap_bytes))
        }
        ContextFileError::Io { source, .. } => format!("cannot be read: {source}"),
    }
}
