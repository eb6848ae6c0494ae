//! Resuming a run: folds its journal, decides what continues, and runs that to its end.
//!
//! Start at [`Engine::resume`]; [`LoadedJournal::resume_info`] tells a front end how to set up the engine for it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use adjutant_core::story::StoryAssignment;
use adjutant_core::workspace::{RebaseProblem, RebasedWork, WorkspaceKind, WorkspaceTerms};
use adjutant_core::{
    AgentName, Command, Conversation, DelegationState, Event, Node, Outcome, Policy, ResumeOptions,
    Rights, RunId, SessionId, Timestamp, Tree,
};
use adjutant_store::{JournalRecord, RunDir, RunLock};

use crate::archive::LoadedJournal;
use crate::briefs::brief_builder::BriefBuilder;
use crate::control::ControlListener;
use crate::engine::storage::OpenRun;
use crate::engine::{Engine, EngineError, FinishedRun, RunHost};
use crate::remote::{FollowerRole, RemoteOpening, RemoteRun, RemoteRuntime, count_decided};
use crate::runner::clock::RunClock;
use crate::runner::effects::writing::check_interrupted_writes;
use crate::runner::{EffectContext, Runner};
use crate::workspaces::RunWorkspaces;

/// What a person asks for when they resume a run.
#[derive(Clone, Debug, Default)]
pub struct ResumeRequest {
    /// The delegation to resume; absent for all that can be resumed.
    pub session: Option<SessionId>,
    /// A message to that delegation, or to the root agent.
    pub say: Option<String>,
    /// A new timeout in seconds.
    pub timeout_s: Option<u64>,
    /// Whether the engine's model replaces the models that the run used.
    pub on_this_model: bool,
    /// The limits from now on: those of [`ResumeInfo::policy`], changed by [`Policy::set_on_resume`].
    pub limits: Option<Box<Policy>>,
    /// Whether the work of `session` is first moved onto the present files of the user.
    pub rebase: bool,
}

/// What a front end must know about a run to set up an engine that resumes it.
#[derive(Clone, Debug)]
pub struct ResumeInfo {
    /// The working tree of the run.
    pub workdir: PathBuf,
    /// The limits it started with, with those that a person changed since.
    pub policy: Policy,
    /// The model of its root agent, or of its first task.
    pub model: Option<String>,
    /// Whether it has a root agent.
    pub has_lead: bool,
    /// All agents that have worked in it, and the root agent.
    pub agents: BTreeSet<AgentName>,
    /// The number of questions that no person has answered.
    pub open_questions: usize,
    /// The last recorded workspace settings; absent if agents had no workspaces.
    pub terms: Option<WorkspaceTerms>,
    /// Whether an agent has an overlay workspace, which is visible only in a sandbox.
    pub has_overlays: bool,
    /// The story it works on.
    pub story: Option<StoryAssignment>,
    /// Whether it has ended.
    pub has_ended: bool,
    /// Why nothing can be resumed without a message to an agent; absent if something can.
    pub nothing: Option<String>,
}

impl LoadedJournal {
    /// Returns what is needed to resume the run; `None` if the journal has no `RunStarted`.
    #[must_use]
    pub fn resume_info(&self) -> Option<ResumeInfo> {
        ResumeInfo::of(self.records.iter().map(|record| (record.at, &record.event)))
    }
}

impl ResumeInfo {
    /// Collects it from the events of a run; `None` without a `RunStarted`.
    pub fn of<'a>(events: impl IntoIterator<Item = (Timestamp, &'a Event)>) -> Option<Self> {
        let mut past: Option<Self> = None;
        let (mut tree, mut latest) = (Tree::default(), Timestamp::ZERO);
        for (at, event) in events {
            latest = at;
            // An illegal event is reported by `Engine::resume`.
            let _ = tree.evolve(at, event);
            match (event, &mut past) {
                (Event::RunStarted { workdir, policy, model, terms, agent, .. }, _) => {
                    past = Some(Self {
                        workdir: workdir.into(),
                        policy: Policy::clone(policy),
                        has_lead: model.is_some(),
                        model: model.as_ref().map(|model| model.name.clone()),
                        agents: BTreeSet::from([agent.clone()]),
                        open_questions: 0,
                        terms: terms.as_deref().cloned(),
                        has_overlays: false,
                        story: None,
                        has_ended: false,
                        nothing: None,
                    });
                }
                (Event::Granted(grant), Some(past)) => {
                    past.agents.insert(grant.brief.agent.clone());
                    let model = || grant.brief.model.as_ref().map(|model| model.name.clone());
                    past.model = past.model.take().or_else(model);
                }
                (Event::Resumed { terms, limits, .. }, Some(past)) => {
                    past.terms = terms.as_deref().cloned().or(past.terms.take());
                    for (name, value) in limits {
                        let _ = past.policy.set_on_resume(name, value);
                    }
                }
                (Event::StoryTaken { story, .. }, Some(past)) => {
                    past.story = Some(StoryAssignment::clone(story));
                }
                (Event::SpaceMade { space, .. }, Some(past)) => {
                    past.has_overlays |= space.kind == WorkspaceKind::Overlay;
                }
                _ => {}
            }
        }
        if let Some(past) = &mut past {
            past.open_questions = tree.open_questions();
            past.has_ended = tree.outcome().is_some();
            let resume = Command::Resume(Box::default());
            let goes_on = || tree.decide(latest, resume).is_ok_and(|events| !events.is_empty());
            let ended = tree.outcome().filter(|_| !goes_on());
            past.nothing = ended.map(|outcome| why_nothing_resumes(&tree, None, Some(outcome)));
        }
        past
    }
}

/// The opening and the notes of an agent, for a new start when its context is full.
#[derive(Default)]
struct SessionFindings {
    opening: String,
    notes: Vec<String>,
}

impl Engine {
    /// Resumes `run`: interrupted work continues after its last durable record, and delegations that ended
    /// early are reopened as `wish` says.
    ///
    /// Recorded results are not produced again. Rights are the intersection of the recorded ones and those of
    /// this engine's policy. Tokens and costs keep counting.
    pub async fn resume(
        mut self,
        run: RunId,
        wish: ResumeRequest,
        staff: RunHost,
    ) -> Result<FinishedRun, EngineError> {
        let RunHost { storage, approver, reporters, narrator, control } = staff;
        let runtime = self.runtime.take();
        // The workspaces of a run on another runtime are there.
        let spaces = if runtime.is_none() { self.open_spaces()? } else { None };
        let terms = self.terms();
        let mut records: Vec<JournalRecord<Event>> = Vec::new();
        let opened = storage.reopen(run, |record| records.push(record))?;
        let OpenRun { id, folder, journal, durable, lock } = opened;
        let (known, workdir) = (count_decided(&records), self.workdir.clone());
        let age = records.last().map_or(Timestamp::ZERO, |record| record.at);
        let rights = Rights::of(&self.policy);
        let agents =
            self.brief_builder.roles.iter().map(|(name, role)| (name.clone(), role.rights.clone()));
        let agents: BTreeMap<AgentName, Rights> = agents.collect();
        let model = wish.on_this_model.then(|| self.brief_builder.models.default_spec().clone());
        let mut brief_builder = self.brief_builder;
        let events: Vec<&Event> = records.iter().map(|record| &record.event).collect();
        let is_story = adopt(&mut brief_builder, &events);
        let (version, models) = (self.version, brief_builder.models.clone());
        let (ids, wall) = (self.ids, self.ids.wall);
        let spaces = spaces.map(|(all, setup)| Arc::new(RunWorkspaces::new(all, setup, id, wall)));
        let rebasing = spaces.clone();
        let context = EffectContext {
            brief_builder,
            approver,
            narrator,
            ids,
            folder: folder.clone(),
            spaces,
            has_limits_in_environment: is_story,
            workers: self.workers,
        };
        let clock = RunClock::start(self.ids.wall, age);
        let listener = ControlListener::new(lock.as_ref().map(RunLock::control_socket));
        let mut runner =
            Runner::new(clock, journal, durable, control, listener, context, reporters);
        let mut findings: BTreeMap<SessionId, SessionFindings> = BTreeMap::new();
        for record in records {
            collect_findings(&record.event, &mut findings);
            runner.replay(&record)?;
        }
        let before = runner.tree.outcome();
        let rebased = match wish.session.filter(|_| wish.rebase) {
            Some(session) => Some(rebase(&runner, rebasing.as_deref(), session)?),
            None => None,
        };
        let handovers = handovers(&runner, &findings);
        let write_findings = match runtime {
            // A run on another runtime has ended, so nothing in it was interrupted.
            Some(_) => BTreeMap::new(),
            None => check_interrupted_writes(&runner.tree, &|session| runner.tool_site(session)),
        };
        let resumption = ResumeOptions {
            version,
            rights,
            agents,
            model,
            session: wish.session,
            say: wish.say,
            timeout_s: wish.timeout_s,
            handovers,
            write_findings,
            terms,
            limits: wish.limits,
            rebased,
        };
        let command = Command::Resume(Box::new(resumption));
        for name in needed_models(&runner.tree, &command, runner.now()) {
            models.choose(&name).map_err(|problem| EngineError::Model { name, problem })?;
        }
        let nothing = why_nothing_resumes(&runner.tree, wish.session, before);
        let outcome = match runtime {
            None => runner.resume(command).await?,
            Some(runtime) => {
                let (at, commands) = (runner.now(), vec![command]);
                let opening = RemoteOpening { run: id, commands, at, wall_ms: wall(), workdir };
                resume_there(runner, (&*runtime, opening), folder.as_ref(), known).await?
            }
        };
        drop(lock);
        let outcome = outcome.ok_or(EngineError::NothingToResume(nothing))?;
        Ok(FinishedRun { run: id, outcome, folder: folder.map(|folder| folder.path().to_owned()) })
    }
}

/// Continues a run that has ended on the runtime that decided it. `known` is the number of its records here. Returns
/// `None` if there is nothing to resume.
async fn resume_there(
    runner: Runner,
    (runtime, opening): (&dyn RemoteRuntime, RemoteOpening),
    folder: Option<&RunDir>,
    known: u64,
) -> Result<Option<Outcome>, EngineError> {
    let mut events = Vec::new();
    for command in &opening.commands {
        events.extend(runner.tree.decide(opening.at, command.clone())?);
    }
    if events.is_empty() {
        return Ok(None);
    }
    let mark = |is_continued| folder.map_or(Ok(()), |folder| folder.mark_continued(is_continued));
    // If this process is lost now, `resume` follows the run again.
    mark(true)?;
    let link = match runtime.resume(opening, known).await {
        Ok(link) => link,
        Err(problem) => {
            mark(false)?;
            return Err(EngineError::Remote(problem));
        }
    };
    let followed = RemoteRun::new(link, FollowerRole::FrontEnd, known);
    let outcome = runner.follow_on(followed).await?;
    mark(false)?;
    Ok(Some(outcome))
}

/// Moves the work of an ended delegation onto the present files of the user.
fn rebase(
    runner: &Runner,
    spaces: Option<&RunWorkspaces>,
    session: SessionId,
) -> Result<RebasedWork, EngineError> {
    let refused = |problem: String| {
        EngineError::NothingToResume(format!("{session} cannot be rebased: {problem}"))
    };
    runner.tree.check_rebase(session).map_err(|problem| refused(problem.to_string()))?;
    let spaces = spaces.ok_or_else(|| refused(RebaseProblem::NoWorkspace.to_string()))?;
    spaces.rebase(session).map_err(refused)
}

/// Sets what the events of a run say about how its briefs are built. Returns whether it works on a story.
pub(super) fn adopt(brief_builder: &mut BriefBuilder, events: &[&Event]) -> bool {
    if let Some(usual) = usual_agent(events, &brief_builder.agent) {
        brief_builder.agent = usual;
    }
    for event in events {
        if let Event::RunStarted { environment, .. } = event {
            brief_builder.quotes_instructions = environment.is_some();
        }
        if let Event::Assigned(assignment) = event {
            brief_builder.take_assignment(assignment);
        }
    }
    events.iter().any(|event| matches!(event, Event::StoryTaken { .. }))
}

/// Returns the recorded agent for tasks that name no agent, if it is not the preset's.
fn usual_agent(events: &[&Event], preset: &AgentName) -> Option<AgentName> {
    let mut defined = events.iter().filter_map(|event| {
        if let Event::AgentDefined { agent, .. } = event { Some(agent) } else { None }
    });
    let has_lead =
        events.iter().any(|event| matches!(event, Event::RunStarted { model: Some(_), .. }));
    let first = defined.clone().next().filter(|_| !has_lead)?;
    (!defined.any(|agent| agent == preset)).then(|| first.clone())
}

/// Returns the models of all delegations that will be live, each of which must be available.
fn needed_models(tree: &Tree, command: &Command, now: Timestamp) -> Vec<String> {
    let mut after = tree.clone();
    for event in tree.decide(now, command.clone()).unwrap_or_default() {
        // An illegal event is reported when the command is submitted.
        let _ = after.evolve(now, &event);
    }
    let live = after.nodes().filter(|node| node.is_live());
    let mut names: Vec<String> =
        live.filter_map(|node| node.model.as_ref()).map(|model| model.name.clone()).collect();
    names.sort();
    names.dedup();
    names
}

fn collect_findings(event: &Event, findings: &mut BTreeMap<SessionId, SessionFindings>) {
    let Some(session) = event.conversation() else { return };
    if let Event::RunStarted { goal, .. } = event {
        findings.entry(session).or_default().opening.clone_from(goal);
    } else if let Event::Granted(grant) = event {
        findings.entry(session).or_default().opening = grant.opening().into_owned();
    } else if let Event::ToolReturned { output, .. } = event {
        findings.entry(session).or_default().notes.extend(output.note.clone());
    }
}

/// Returns a new opening for each agent whose conversation exceeds its context.
fn handovers(
    runner: &Runner,
    findings: &BTreeMap<SessionId, SessionFindings>,
) -> BTreeMap<SessionId, String> {
    let full = findings.iter().filter(|(session, _)| runner.tree.needs_handover(**session));
    full.map(|(session, found)| {
        let last = runner.conversation(*session).and_then(Conversation::last_text);
        (*session, handover(found, last.unwrap_or_default()))
    })
    .collect()
}

fn handover(found: &SessionFindings, last: &str) -> String {
    let SessionFindings { opening, notes } = found;
    let mut text = format!(
        "{opening}\n\nYou have worked on this before, until your context was full. Go on from what you found; \
         do not begin again."
    );
    if !notes.is_empty() {
        text += &format!("\n\nYour notes:\n{}", notes.join("\n"));
    }
    if !last.trim().is_empty() {
        text += &format!("\n\nWhat you said last:\n{last}");
    }
    text
}

/// Returns the reason to show if nothing can be resumed.
fn why_nothing_resumes(
    tree: &Tree,
    session: Option<SessionId>,
    outcome: Option<Outcome>,
) -> String {
    let Some(session) = session else {
        return outcome.map_or_else(
            || "the run never began".to_owned(),
            |outcome| format!("the run ended {} and has nothing left to do", outcome.word()),
        );
    };
    match tree.node(session).map(Node::state) {
        None => format!("{session} is not part of the run"),
        Some(DelegationState::Ended(Outcome::Blocked)) => {
            format!("{session} is blocked by a question; answer it with --say")
        }
        Some(DelegationState::Ended(Outcome::Completed)) => {
            format!("{session} is completed; say what is left to do with --say")
        }
        Some(state) => format!("{session} is {} and cannot be resumed", state.word()),
    }
}
