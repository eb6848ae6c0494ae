//! Starting effects: each becomes a task whose result is an input of the run loop.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use adjutant_core::policy::Operation;
use adjutant_core::schema::{CallLimits, DELEGATE, RETURN, TASK};
use adjutant_core::tree::WHOLE_RUN;
use adjutant_core::workspace::{OwnWorkspace, WorkspaceFailure};
use adjutant_core::write::RUN;
use adjutant_core::{
    Command, DelegationOrigin, Effect, Event, SessionId, ToolCall, ToolOutput, ToolSet, ToolSpec,
    Tree,
};
use adjutant_tools::ApprovedHosts;
use adjutant_workspace::HeadRef;
use adjutant_workspace::sandbox::CancelHandle;

use crate::briefs::brief_builder::BriefBuilder;
use crate::briefs::environment::{block, project_facts};
use crate::engine::EngineError;
use crate::runner::effects::marking;
use crate::runner::effects::writing::{commit, prepare};
use crate::runner::effects::{
    ApproverQuestion, CommandPurpose, CommandResult, EffectResult, LiveSignal, ModelCallRequest,
    NextEffect, QuestionSubject, ask_person, output_command, perform_model_call, read_call,
    run_command, use_tool, verify,
};
use crate::runner::panics::{CaughtPanic, catch_panic};
use crate::runner::{AgentPreamble, Runner};
use crate::workspaces::ToolSite;

/// How long making a workspace may take before it is reported.
const SLOW_WORKSPACE: Duration = Duration::from_secs(1);

impl Runner {
    pub(in crate::runner) fn perform(&mut self, effect: Effect) -> Result<(), EngineError> {
        if self.full.is_some() && !is_done_on_full_disk(&effect) {
            return Ok(());
        }
        match effect {
            Effect::Model { session, turn, attempt, max_output, context_tokens, with_tools } => {
                self.start_model_call(
                    session,
                    turn,
                    attempt,
                    max_output,
                    context_tokens,
                    with_tools,
                );
            }
            Effect::Prompt { session, turn, attempt } => self.prompt_worker(session, turn, attempt),
            Effect::ForwardCall { session, call } => self.forward_call(session, call)?,
            Effect::Tool { session, turn, index, call } => {
                if call.name == RUN {
                    self.run_command(session, turn, index, call);
                    return Ok(());
                }
                let stop = Arc::clone(&self.running.entry(session).or_default().stop);
                let tool_site = self.tool_site(session);
                self.tasks.spawn_blocking(move || {
                    use_tool(&tool_site, session, turn, index, &call, None, &stop)
                });
            }
            Effect::PrepareWrite { session, turn, index, call, writes } => {
                let (tool_site, folder) = (self.tool_site(session), self.context.folder.clone());
                self.tasks.spawn_blocking(move || {
                    prepare(&tool_site, folder.as_ref(), session, turn, index, &call, &writes)
                });
            }
            Effect::Write { session, turn, index, call, writes, intent } => {
                let stop = Arc::clone(&self.running.entry(session).or_default().stop);
                let tool_site = self.tool_site(session);
                self.tasks.spawn_blocking(move || {
                    commit(&tool_site, session, turn, index, &call, &writes, &intent, &stop)
                });
            }
            Effect::Fetch { session, turn, index, call, host, hosts } => {
                let stop = Arc::clone(&self.running.entry(session).or_default().stop);
                let tool_site = self.tool_site(session);
                self.tasks.spawn_blocking(move || {
                    let approved = Some(ApprovedHosts { host: &host, hosts: &hosts });
                    use_tool(&tool_site, session, turn, index, &call, approved, &stop)
                });
            }
            Effect::Delegate { session, turn, index, call } => {
                let waiting = self.unread.entry(session).or_default();
                waiting.push_back((turn, index, call));
                if waiting.len() == 1 {
                    self.read_next(session);
                }
            }
            Effect::ReturnResults { session, call, origin } => {
                self.hand_up(session, call, origin)?
            }
            Effect::Verify { session, returned } => {
                let (number, text) = self.returned_text(session, returned);
                let tool_site = self.tool_site(session);
                let message = self.message(session);
                self.tasks
                    .spawn_blocking(move || verify(&tool_site, session, number, text, &message));
            }
            Effect::MakeWorkspace { session, above, takes_in } => {
                self.make_space(session, above, takes_in);
            }
            Effect::Markers { session, turn, markers } => {
                self.hand_down_markers(session, turn, markers)?;
            }
            Effect::Merge { session, into, commit } => self.merge(session, into, commit),
            Effect::Check { session, command, keep, timeout_s } => {
                self.check(session, &command, keep, timeout_s);
            }
            Effect::CommitWork { session, space } => self.keep_space(session, space),
            Effect::UpdateTaskList { session, mark } => {
                let (workdir, wall) =
                    (Arc::clone(&self.context.brief_builder.workdir), self.context.ids.wall);
                self.tasks.spawn_blocking(move || {
                    let made = catch_panic(|| marking::make(&workdir, wall, &mark));
                    let (mark, problem) = match made.unwrap_or_else(|crash| Err(crash.message)) {
                        Ok(made) => (made, None),
                        Err(problem) => (mark, Some(problem)),
                    };
                    Command::TakeListUpdate { session, mark, problem }.into()
                });
            }
            Effect::AskApproval { parent, call, hash } => {
                let mut events = self.asked.remove(&(parent, call)).unwrap_or_default();
                if call == WHOLE_RUN {
                    events.splice(0..0, self.opening.iter().cloned());
                }
                let mut policy = Box::new(self.tree.policy().clone());
                // What a person allowed at an earlier question is used up like the policy's own amount.
                policy.approve_below_usd = self.tree.auto_approval_limit();
                let worker = |event: &Event| {
                    let Event::Granted(grant) = event else { return None };
                    let agent = &grant.brief.agent;
                    Some((agent.clone(), self.tree.worker_name(agent)?.to_owned()))
                };
                let workers = events.iter().filter_map(worker).collect();
                let left = self.tree.spendable(parent);
                let commands_see = self.context.spaces.as_ref().and_then(|it| it.commands_see());
                if let Some(run) = self.tree.run() {
                    self.questions.add(
                        ApproverQuestion::Call { run, events, policy, left, commands_see, workers },
                        QuestionSubject::Call(hash),
                    );
                }
                self.ask_next_question();
            }
            Effect::AskDomain { session, host, url } => {
                if let Some(node) = self.tree.node(session) {
                    let (label, subject) =
                        (node.label.clone(), QuestionSubject::Domain(host.clone()));
                    self.questions.add(ApproverQuestion::Domain { label, host, url }, subject);
                    self.ask_next_question();
                }
            }
            Effect::CollectHandover { session, turn, has_note, max_bytes } => {
                self.collect_handover(session, turn, has_note, max_bytes);
            }
            Effect::StopModel { session } => {
                let work = self.running.get_mut(&session);
                if let Some(work) = work {
                    work.worker = None;
                    if let Some(model) = work.model.take() {
                        model.abort();
                    }
                }
            }
            Effect::Stop { session } => {
                self.context.brief_builder.models.forget(session);
                self.unread.remove(&session);
                self.signalled.remove(&session);
                self.admitted.forget(session);
                if let Some(work) = self.running.remove(&session) {
                    work.stop();
                }
            }
            Effect::Close => self.closed = true,
        }
        Ok(())
    }

    /// Returns where the tools of a delegation act: in the working tree or in a workspace.
    pub(crate) fn tool_site(&self, session: SessionId) -> ToolSite {
        let toolbox = Arc::clone(&self.context.brief_builder.toolbox);
        match (self.tree.space_of(session), &self.context.spaces) {
            (Some((owner, space)), Some(spaces)) => {
                let (spaces, space) = (Arc::clone(spaces), space.clone());
                let message = self.message(owner);
                ToolSite::Own { spaces, owner, space, toolbox, message }
            }
            // A delegation with a workspace must not fall back to the working tree.
            (Some(_), None) => ToolSite::Closed,
            (None, _) => ToolSite::Shared(toolbox),
        }
    }

    fn run_command(&mut self, session: SessionId, turn: u32, index: u32, call: ToolCall) {
        let to_command = move |result: Result<CommandResult, CaughtPanic>| {
            output_command(session, turn, index, result.map(|it| it.output))
        };
        self.begin_command(session, (CommandPurpose::Work, call), to_command);
    }

    /// Starts a shell command in the workspace of a delegation. `to_command` converts its result to a core command.
    pub(in crate::runner) fn begin_command(
        &mut self,
        session: SessionId,
        (purpose, call): (CommandPurpose, ToolCall),
        to_command: impl FnOnce(Result<CommandResult, CaughtPanic>) -> Command + Send + 'static,
    ) {
        let (tool_site, signals) = (self.tool_site(session), self.signals.0.clone());
        let environment = self.command_environment(session);
        // A command may take minutes, so it gets its own thread instead of one of the pool for tools. An agent
        // runs one command at a time, which bounds the number of threads.
        let (done, waits) = tokio::sync::oneshot::channel();
        let begun = CancelHandle::new().and_then(|cancel| {
            let cancel = Arc::new(cancel);
            let held = Arc::clone(&cancel);
            std::thread::Builder::new().name("adjutant-run".to_owned()).spawn(move || {
                let ended = run_command(
                    &tool_site,
                    session,
                    (&purpose, &call),
                    &environment,
                    &held,
                    &signals,
                );
                // The receiver is gone if the run has ended.
                let _ = done.send(ended);
            })?;
            Ok(cancel)
        });
        let problem = match begun {
            Ok(cancel) => {
                self.running.entry(session).or_default().command = Some(cancel);
                "its thread is gone".to_owned()
            }
            Err(error) => error.to_string(),
        };
        self.tasks.spawn(async move {
            let not_run = ToolOutput::error(format!("the command could not be run: {problem}"));
            to_command(waits.await.unwrap_or(Ok(not_run.into()))).into()
        });
    }

    /// Returns the environment variables of a delegation's commands.
    pub(in crate::runner) fn command_environment(
        &self,
        session: SessionId,
    ) -> Vec<(String, String)> {
        let depth = self.tree.node(session).map_or(0, |node| node.depth);
        let mut all = vec![("DELEGATION_DEPTH", Some(depth.to_string()))];
        if self.context.has_limits_in_environment {
            let policy = self.tree.policy();
            let number = |value: Option<u64>| value.map(|value| value.to_string());
            all.extend([
                ("ENABLE_DELEGATION", Some(policy.enabled.to_string())),
                ("MAX_DELEGATION_DEPTH", number(Some(policy.max_depth))),
                ("MAX_CONTEXT_PER_AGENT", number(policy.context_tokens)),
                ("MAX_DELEGATIONS_PER_STORY", number(policy.children_per_parent)),
                ("MAX_PARALLEL_DELEGATIONS", number(Some(policy.concurrency))),
                ("DELEGATION_TIMEOUT_SECONDS", number(policy.longest(Operation::Unknown))),
            ]);
        }
        all.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
    }

    fn make_space(&mut self, session: SessionId, above: Option<SessionId>, takes_in: Vec<String>) {
        let Some(spaces) = self.context.spaces.clone() else {
            let problem = "no directory for workspaces is set".to_owned();
            let made = Err(WorkspaceFailure { path: None, problem, clash: false });
            let command = Command::TakeWorkspace { session, made, project: None };
            self.tasks.spawn(async move { command.into() });
            return;
        };
        let above = above.and_then(|above| self.tree.space_of(above));
        let above = above.map(|(owner, space)| (owner, space.clone()));
        let batch = self.tree.batch_of(session);
        // A workspace made from another has its branch.
        let head = above.as_ref().and_then(|(owner, _)| self.tree.project_facts(*owner));
        let head = head.and_then(|facts| HeadRef::parse(facts.head.as_ref()?));
        let is_described = self.tree.needs_project_facts(session);
        let BriefBuilder { workdir, masker, .. } = &self.context.brief_builder;
        let (workdir, masker) = (Arc::clone(workdir), masker.clone());
        let signals = self.signals.0.clone();
        let slow_report = tokio::spawn(async move {
            tokio::time::sleep(SLOW_WORKSPACE).await;
            let text = "making its workspace; the first one for a commit checks out all files";
            let _ = signals.send((session, LiveSignal::Printed(text.to_owned()))).await;
        });
        self.tasks.spawn_blocking(move || {
            let made = catch_panic(|| {
                let space = spaces.make(session, &batch, above, &takes_in)?;
                let root = is_described.then(|| spaces.root(session, &space)).flatten();
                let head = head.or_else(|| spaces.captured_head(&batch));
                let project = root.map(|root| project_facts(&root, &workdir, head, &masker));
                Ok((space, project))
            });
            slow_report.abort();
            let none = |crash: CaughtPanic| {
                Err(WorkspaceFailure { path: None, problem: crash.message, clash: false })
            };
            let (made, project) = match made.unwrap_or_else(none) {
                Ok((space, project)) => (Ok(space), project),
                Err(failure) => (Err(failure), None),
            };
            let command = Command::TakeWorkspace { session, made, project };
            let next = NextEffect::DropUnusedSpace(session);
            EffectResult { command: Some(command), briefs: None, next }
        });
    }

    /// Removes a workspace whose delegation ended while the workspace was made.
    pub(in crate::runner) fn drop_unused_space(&mut self, session: SessionId) {
        let is_used = self.tree.node(session).is_some_and(|node| node.space.is_some());
        if let Some(spaces) = self.context.spaces.clone().filter(|_| !is_used) {
            // Not awaited: no event depends on it.
            drop(tokio::task::spawn_blocking(move || spaces.drop_unused(session)));
        }
    }

    fn keep_space(&mut self, session: SessionId, space: OwnWorkspace) {
        let message = self.message(session);
        let changed = changed_by(&self.tree, session);
        let spaces = self.context.spaces.clone();
        self.tasks.spawn_blocking(move || {
            let result = catch_panic(|| match spaces {
                Some(spaces) => spaces.keep(session, &space, &message, changed),
                None => Err("no directory for workspaces is set".to_owned()),
            });
            let kept = result.unwrap_or_else(|crash| Err(crash.message));
            Command::TakeKeptWork { session, kept }.into()
        });
    }

    /// Returns the commit message for a delegation's work.
    pub(in crate::runner) fn message(&self, session: SessionId) -> String {
        let label = self.tree.node(session).map(|node| node.label.to_string()).unwrap_or_default();
        message(&label, session)
    }

    /// Returns the text of a delegation's return, and the index of the Return call if there is one.
    fn returned_text(
        &self,
        session: SessionId,
        returned: Option<(u32, ToolCall)>,
    ) -> (Option<u32>, String) {
        let Some((number, call)) = returned else {
            let text = self.conversations.get(&session).and_then(|talk| talk.last_text());
            return (None, text.unwrap_or_default().to_owned());
        };
        // Arguments that are not valid JSON were kept as a string.
        let text = call.arguments.as_str().map(str::to_owned);
        (Some(number), text.unwrap_or_else(|| call.arguments.to_string()))
    }

    /// Asks the next question, unless one is being asked.
    pub(in crate::runner) fn ask_next_question(&mut self) {
        let tree = &self.tree;
        let is_open = |subject: &QuestionSubject| match subject {
            QuestionSubject::Call(hash) => tree.awaits_approval(hash),
            QuestionSubject::Domain(host) => tree.awaits_domain(host),
        };
        if let Some((question, subject)) = self.questions.next(is_open) {
            let approver = Arc::clone(&self.context.approver);
            self.tasks.spawn_blocking(move || ask_person(&approver, &question, subject));
        }
    }

    /// Parses the first waiting delegate call of an agent. An agent's calls are parsed one after the other, so
    /// that they are admitted in order.
    pub(in crate::runner) fn read_next(&mut self, session: SessionId) {
        let Some((turn, index, call)) =
            self.unread.get(&session).and_then(|waiting| waiting.front().cloned())
        else {
            return;
        };
        let node = self.tree.node(session).filter(|node| node.is_live());
        let Some(caller) = node.and_then(|node| node.model.clone()) else { return };
        let limits = CallLimits::of(self.tree.policy());
        let (brief_builder, tool_site) =
            (self.context.brief_builder.clone(), self.tool_site(session));
        self.tasks.spawn_blocking(move || {
            let place = (session, turn, index);
            let read = catch_panic(|| {
                tool_site.with_toolbox(|it| {
                    read_call(&brief_builder, it.root(), &limits, &caller, place, &call)
                })
            });
            let (command, briefs) = match read {
                Ok(Ok(briefs)) => (None, Some(briefs)),
                Ok(Err(complaint)) => {
                    let output = ToolOutput::error(complaint);
                    (Some(Command::TakeOutput { session, turn, call: index, output }), None)
                }
                Err(crash) => (Some(crash.command(session)), None),
            };
            EffectResult { command, briefs, next: NextEffect::ReadCall(session) }
        });
    }

    fn hand_up(
        &mut self,
        session: SessionId,
        call: u32,
        origin: DelegationOrigin,
    ) -> Result<(), EngineError> {
        // The delegation may have ended before this event was durable.
        let turn = origin.turn;
        let awaits = origin.index.map_or_else(
            || self.tree.awaits_results(session, call),
            |index| self.tree.awaits_output(session, turn, index),
        );
        if !awaits {
            return Ok(());
        }
        let content = self.context.narrator.results(session, call, origin.form);
        self.submit(match origin.index {
            None => Command::TellResults { session, turn, text: content },
            Some(call) => {
                let output = ToolOutput { content, ..ToolOutput::default() };
                Command::TakeOutput { session, turn, call, output }
            }
        })
    }

    fn start_model_call(
        &mut self,
        session: SessionId,
        turn: u32,
        attempt: u32,
        max_output: u64,
        context_tokens: u64,
        with_tools: bool,
    ) {
        // The delegation may have ended before its reservation was durable.
        let Some(node) = self.tree.node(session).filter(|node| node.reservation().is_some()) else {
            return;
        };
        let Some(preamble) = self.preambles.get(&node.agent) else { return };
        let Some(spec) = &node.model else { return };
        let brief_builder = &self.context.brief_builder;
        let Some(system) = self.system_text(session) else { return };
        let request = ModelCallRequest {
            session,
            turn,
            attempt,
            max_output,
            effort: spec.effort,
            context_tokens,
            agent: node.agent.clone(),
            label: node.label.clone(),
            system,
            tools: preamble.offered_tools(&node.rights.usable_tools()),
            may_call_tools: with_tools,
            conversation: self.conversations.get(&session).cloned().unwrap_or_default(),
            model: brief_builder.models.get(&spec.name),
        };
        let masker = self.context.brief_builder.masker.clone();
        let handle = self.tasks.spawn(perform_model_call(request, masker, self.signals.0.clone()));
        self.running.entry(session).or_default().model = Some(handle);
    }
}

impl Runner {
    /// Returns the system prompt of a delegation, with the facts of its environment at the end.
    pub(in crate::runner) fn system_text(&self, session: SessionId) -> Option<Arc<str>> {
        let node = self.tree.node(session)?;
        let preamble = self.preambles.get(&node.agent)?;
        let Some(environment) = self.tree.environment() else {
            return Some(Arc::clone(&preamble.system));
        };
        let space = self.tree.space_of(session).map(|(_, space)| space);
        let BriefBuilder { workdir, masker, .. } = &self.context.brief_builder;
        let project = self.tree.project_facts(session).unwrap_or(&environment.project);
        let block = block(environment, project, node, space, workdir, masker);
        Some(format!("{}{block}", preamble.system).into())
    }
}

/// Returns whether an effect is still performed on a full disk: those that end delegations, and recorded model
/// calls, for whose replies space is reserved. The result of any other effect could not be recorded.
const fn is_done_on_full_disk(effect: &Effect) -> bool {
    matches!(
        effect,
        Effect::Model { .. }
            | Effect::Prompt { .. }
            | Effect::StopModel { .. }
            | Effect::Stop { .. }
            | Effect::CommitWork { .. }
            | Effect::UpdateTaskList { .. }
            | Effect::Close
    )
}

/// Returns the commit message for a delegation's work.
pub(crate) fn message(label: &str, session: SessionId) -> String {
    format!("{label}\n\nThe work of {session}, kept by Adjutant.\n")
}

impl AgentPreamble {
    /// Returns the tools to offer: those of the definition that are granted.
    fn offered_tools(&self, usable: &ToolSet) -> Arc<[ToolSpec]> {
        let delegates = usable.contains(DELEGATE) || usable.contains(TASK);
        let tools = if delegates { &self.tools } else { &self.tools_to_work };
        // The Return tool needs no right.
        let is_offered = |tool: &ToolSpec| tool.name == RETURN || usable.contains(&tool.name);
        if tools.iter().all(is_offered) {
            return Arc::clone(tools);
        }
        tools.iter().filter(|tool| is_offered(tool)).cloned().collect()
    }
}

/// Returns the files that a delegation's tools changed.
pub(crate) fn changed_by(tree: &Tree, session: SessionId) -> BTreeSet<PathBuf> {
    let changed = tree.node(session).into_iter().flat_map(|node| node.changed());
    changed.map(PathBuf::from).collect()
}
