//! Performing effects: the one place where data turns into model calls, tool runs and questions.
//!
//! `perform` starts the task of an effect; the functions here, `writing`, `marking` and `questions` do the work.

pub(crate) mod marking;
pub(crate) mod perform;
pub(crate) mod question_queue;
pub(crate) mod writing;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use adjutant_core::budget::Amount;
use adjutant_core::schema::{CallLimits, DelegateCall, ReturnForm, TASK, TaskCall, TaskSpec};
use adjutant_core::{
    AgentName, Attempt, AttemptError, Brief, Command, Conversation, ErrorKind, Event, Label,
    ModelSpec, Origin, Policy, RunId, SessionId, ToolCall, ToolOutput, ToolSpec,
};
use adjutant_formats::contract::{ArtifactFact, Contract, validate};
use adjutant_model::{Model, Progress, TurnRequest};
use adjutant_tools::{Approved, Masker, Toolbox};
use adjutant_workspace::sandbox::CancelHandle;
use adjutant_workspace::{PathError, Root};
use tokio::sync::mpsc;

use crate::briefs::brief_builder::{BriefBuilder, TaskRequester};
use crate::runner::panics::{CatchPanic, CaughtPanic, catch_panic};
use crate::workspaces::ToolSite;

/// How long one tool call may run.
pub(crate) const TOOL_TIME: Duration = Duration::from_secs(30);

/// The largest answer that is taken; far beyond any model's output.
const MAX_REPLY_BYTES: usize = 32 << 20;

/// Bytes that must have arrived before another sign of life is worth recording.
const PROGRESS_BYTES: u64 = 4_096;

/// What a person is asked.
pub enum ApproverQuestion {
    /// May these tasks start?
    Call {
        /// The run it belongs to.
        run: RunId,
        /// The grants and refusals of the call, and the question itself.
        events: Vec<Event>,
        /// The limits in force.
        policy: Box<Policy>,
        /// The most the run can still consume.
        left: Amount,
    },
    /// May this host be asked, for the rest of the run?
    Domain {
        /// What the delegation is called that wants it.
        label: Label,
        /// The host.
        host: String,
        /// The URL as the agent wrote it.
        url: String,
    },
}

/// What a person said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApproverAnswer {
    /// Yes, to exactly this call.
    Yes,
    /// No, for this reason.
    No(String),
    /// Nothing yet: the question stays open, and whoever is asked answers through the run's socket.
    Later,
}

/// Someone who can be asked. Called on a thread of its own, so it may wait for a person.
pub type Approver = Arc<dyn Fn(&ApproverQuestion) -> ApproverAnswer + Send + Sync>;

/// What came of an effect.
#[derive(Debug)]
pub(crate) struct EffectResult {
    /// What the tree is told; nothing while a question stays open, or where there are briefs.
    pub(crate) command: Option<Command>,
    /// What an agent hands down by a call that was read; each task needs an id before the tree is told.
    pub(crate) briefs: Option<ParsedDelegation>,
    pub(crate) next: NextEffect,
}

/// What the runner begins once the result of an effect was taken.
#[derive(Debug)]
pub(crate) enum NextEffect {
    None,
    /// Reading the next of a session's `Delegate` calls.
    ReadCall(SessionId),
    /// Clearing the workspace of a delegation away, if that ended while it was made.
    DropUnusedSpace(SessionId),
    /// Putting the next question.
    PutQuestion,
}

impl From<Command> for EffectResult {
    fn from(command: Command) -> Self {
        Self { command: Some(command), briefs: None, next: NextEffect::None }
    }
}

/// What an answer is about.
#[derive(Clone, Debug)]
pub(crate) enum QuestionSubject {
    /// The call of this hash.
    Call(String),
    /// This host.
    Domain(String),
}

/// A call of the `Delegate` tool, read and ready to be judged.
#[derive(Debug)]
pub(crate) struct ParsedDelegation {
    pub(crate) parent: SessionId,
    pub(crate) origin: Origin,
    pub(crate) briefs: Vec<Brief>,
    pub(crate) concurrency: Option<u64>,
}

/// Reads a call of `Delegate` or `Task`; blocks, for it reads context files.
pub(crate) fn read_call(
    brief_builder: &BriefBuilder,
    root: &Root,
    limits: &CallLimits,
    caller: &ModelSpec,
    (parent, turn, index): (SessionId, u32, u32),
    request: &ToolCall,
) -> Result<ParsedDelegation, String> {
    let origin = |form| Origin { turn, index: Some(index), form };
    if request.name == TASK {
        let mut call =
            TaskCall::parse(&request.arguments, limits).map_err(|error| error.to_string())?;
        let expanded = brief_builder.commands.expand(&call.prompt, &brief_builder.masker);
        if let Some(prompt) = expanded.map_err(|error| format!("prompt: {error}"))? {
            call.prompt = prompt;
        }
        let agent = AgentName::new(&call.agent);
        let brief =
            brief_builder.brief_for(&agent, &named_task(call), caller, TaskRequester::Model, root);
        let origin = origin(ReturnForm::default());
        return Ok(ParsedDelegation { parent, origin, briefs: vec![brief], concurrency: None });
    }
    let call =
        DelegateCall::parse(&request.arguments, limits).map_err(|error| error.to_string())?;
    let brief = |task: &TaskSpec| brief_builder.brief(task, caller, TaskRequester::Model, root);
    let briefs = call.tasks.iter().map(brief).collect();
    let origin = origin(call.return_form);
    Ok(ParsedDelegation { parent, origin, briefs, concurrency: call.concurrency })
}

/// A task for a named agent is shown under the agent's name.
fn named_task(call: TaskCall) -> TaskSpec {
    let short: String = call.agent.chars().take(Label::MAX_CHARS).collect();
    TaskSpec {
        label: Label::new(&short).unwrap_or_else(|_| Label::unnamed()),
        prompt: call.prompt,
        context: call.context,
        model: call.model,
        max_output_tokens: None,
        operation: call.operation,
        timeout_s: call.timeout_s,
    }
}

/// A model call to be made: everything it needs, shared instead of copied.
pub(crate) struct ModelCallRequest {
    pub(crate) session: SessionId,
    pub(crate) turn: u32,
    pub(crate) attempt: u32,
    pub(crate) max_output: u64,
    pub(crate) context_tokens: u64,
    pub(crate) agent: AgentName,
    pub(crate) label: Label,
    pub(crate) system: Arc<str>,
    pub(crate) tools: Arc<[ToolSpec]>,
    pub(crate) conversation: Arc<Conversation>,
    pub(crate) model: Arc<dyn Model>,
}

/// A sign of life of a session's model call.
pub(crate) type SessionSignal = (SessionId, LiveSignal);

/// What a model call lets hear before it ends.
#[derive(Debug)]
pub(crate) enum LiveSignal {
    /// So many bytes arrived.
    Bytes(u64),
    /// It is held back.
    Pause { provider: String, ms: u64 },
    /// A command printed this.
    Printed(String),
}

/// What lies at the paths a return names.
pub(crate) type ArtifactFacts = Vec<(String, ArtifactFact)>;

/// Asks a person; blocks. A question that breaks is a no.
pub(crate) fn ask_person(
    approver: &Approver,
    question: &ApproverQuestion,
    subject: QuestionSubject,
) -> EffectResult {
    let answer = catch_panic(|| approver(question)).unwrap_or_else(|crash| {
        ApproverAnswer::No(format!("the question broke: {}", crash.message))
    });
    let command = match (subject, answer) {
        (QuestionSubject::Call(hash), ApproverAnswer::Yes) => Some(Command::Approve { hash }),
        (QuestionSubject::Call(hash), ApproverAnswer::No(reason)) => {
            Some(Command::Deny { hash, reason })
        }
        (QuestionSubject::Domain(host), ApproverAnswer::Yes) => Some(Command::AllowDomain { host }),
        (QuestionSubject::Domain(host), ApproverAnswer::No(reason)) => {
            Some(Command::DenyDomain { host, reason })
        }
        (QuestionSubject::Call(_) | QuestionSubject::Domain(_), ApproverAnswer::Later) => None,
    };
    EffectResult { command, briefs: None, next: NextEffect::PutQuestion }
}

/// Runs one model call to its end.
pub(crate) async fn perform_model_call(
    call: ModelCallRequest,
    masker: Masker,
    signals: mpsc::Sender<SessionSignal>,
) -> EffectResult {
    let ModelCallRequest { session, turn, attempt, .. } = call;
    let command = match CatchPanic(Box::pin(call_model(call, signals))).await {
        Ok(Ok(reply)) => Command::Reply { session, turn, attempt, reply },
        Ok(Err(mut error)) => {
            // Shown, kept and written into the project; a provider may repeat what it was sent.
            error.message = masker.mask(&error.message).into_owned();
            Command::FailAttempt { session, turn, attempt, error }
        }
        Err(crash) => crash.command(session),
    };
    command.into()
}

async fn call_model(call: ModelCallRequest, signals: mpsc::Sender<SessionSignal>) -> Attempt {
    let request = TurnRequest {
        agent: call.agent.as_str(),
        label: call.label.as_str(),
        session: call.session,
        turn: call.turn,
        attempt: call.attempt,
        system: &call.system,
        messages: call.conversation.messages(),
        tools: &call.tools,
        max_output: call.max_output,
        context_tokens: call.context_tokens,
    };
    let (mut unsaid, mut waited) = (0, false);
    let mut progress = |progress: Progress<'_>| {
        unsaid += match progress {
            Progress::Text(text) => text.len() as u64,
            Progress::Bytes(bytes) => bytes,
            Progress::Waiting { provider, ms } => {
                let pause = LiveSignal::Pause { provider: provider.to_owned(), ms };
                waited |= signals.try_send((call.session, pause)).is_ok();
                return;
            }
        };
        // A full queue means the engine has signs of life enough; the bytes are told with the next.
        // The first byte after a pause says that it is over.
        let is_news = unsaid >= PROGRESS_BYTES || waited;
        if is_news && signals.try_send((call.session, LiveSignal::Bytes(unsaid))).is_ok() {
            (unsaid, waited) = (0, false);
        }
    };
    let reply = call.model.turn(request, &mut progress).await?;
    let calls: usize = reply
        .tool_calls
        .iter()
        .map(|call| call.name.len() + call.arguments.to_string().len())
        .sum();
    let bytes = reply.text.len() + calls;
    if bytes > MAX_REPLY_BYTES {
        return Err(AttemptError {
            kind: ErrorKind::BadRequest,
            message: format!("the answer has {bytes} bytes, at most {MAX_REPLY_BYTES} are taken"),
            retry_after_ms: None,
            never_began: false,
        });
    }
    Ok(reply)
}

/// Runs one tool call; blocks.
pub(crate) fn use_tool(
    tool_site: &ToolSite,
    session: SessionId,
    turn: u32,
    call: u32,
    request: &ToolCall,
    approved: Option<Approved<'_>>,
    stop: &AtomicBool,
) -> EffectResult {
    let began = Instant::now();
    let should_stop = || stop.load(Ordering::Relaxed) || began.elapsed() > TOOL_TIME;
    let result = catch_panic(|| {
        let used = tool_site.with_toolbox(|toolbox| {
            Ok(as_output(match approved {
                Some(approved) => toolbox.fetch(&request.arguments, approved, &should_stop),
                None => toolbox.call_by_name(&request.name, &request.arguments, &should_stop),
            }))
        });
        used.unwrap_or_else(ToolOutput::error)
    });
    output_command(session, turn, call, result).into()
}

/// Returns what the tree is told of a tool call that ended.
pub(crate) fn output_command(
    session: SessionId,
    turn: u32,
    call: u32,
    result: Result<ToolOutput, CaughtPanic>,
) -> Command {
    match result {
        Ok(output) => Command::TakeOutput { session, turn, call, output },
        Err(crash) => crash.command(session),
    }
}

/// What a command is run for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CommandPurpose {
    /// An agent's work, in its workspace.
    Work,
    /// Verifying that work, in a fresh workspace made from its commit, which says `message`.
    Verify { message: String },
}

/// Runs a command of or for a delegation; blocks.
pub(crate) fn run_command(
    tool_site: &ToolSite,
    session: SessionId,
    (purpose, request): (&CommandPurpose, &ToolCall),
    environment: &[(String, String)],
    cancel: &CancelHandle,
    signals: &mpsc::Sender<SessionSignal>,
) -> Result<ToolOutput, CaughtPanic> {
    let mut printed = |text: &str| {
        // A full queue means that people have enough to read; the next words come with the rest.
        let _ = signals.try_send((session, LiveSignal::Printed(text.to_owned())));
    };
    catch_panic(|| {
        let arguments = &request.arguments;
        let ran = match purpose {
            CommandPurpose::Work => tool_site.with_toolbox(|toolbox| {
                let inside = tool_site.confinement()?;
                let output = toolbox.run(arguments, &inside, environment, cancel, &mut printed);
                Ok(as_output(output))
            }),
            CommandPurpose::Verify { message } => {
                tool_site.verify(session, message, |toolbox, inside| {
                    as_output(toolbox.run_check(
                        arguments,
                        inside,
                        environment,
                        cancel,
                        &mut printed,
                    ))
                })
            }
        };
        ran.unwrap_or_else(|problem| {
            ToolOutput::error(format!(
                "not run: {problem}. A person can look with `adjutant doctor`."
            ))
        })
    })
}

/// Takes what a tool gave back as what is recorded of it.
pub(crate) fn as_output(output: adjutant_tools::ToolOutput) -> ToolOutput {
    ToolOutput {
        content: output.text,
        is_error: output.is_error,
        note: output.notes,
        touched: output.touched,
        sandbox: output.sandbox,
    }
}

/// Looks at the artifacts a return names; blocks.
///
/// The contract itself says which paths it wants to know about, so nothing is parsed twice.
pub(crate) fn verify(
    tool_site: &ToolSite,
    session: SessionId,
    call: Option<u32>,
    text: String,
) -> EffectResult {
    let look = || {
        tool_site.with_toolbox(|toolbox| {
            let facts = look_at(toolbox, &text);
            Ok(without_ignored(tool_site, session, toolbox.root(), facts))
        })
    };
    let command = match catch_panic(|| look().unwrap_or_default()) {
        Ok(artifacts) => Command::Conclude { session, call, text, artifacts },
        Err(crash) => crash.command(session),
    };
    command.into()
}

fn look_at(toolbox: &Toolbox, text: &str) -> ArtifactFacts {
    let facts = std::cell::RefCell::new(Vec::new());
    let look = |path: &str| {
        let fact = artifact_fact(toolbox.root(), path);
        facts.borrow_mut().push((path.to_owned(), fact));
        fact
    };
    let _verdict = validate(text, &Contract::default(), &look);
    facts.take()
}

/// Says of files that are there which of them no result will have.
fn without_ignored(
    tool_site: &ToolSite,
    session: SessionId,
    root: &Root,
    mut facts: ArtifactFacts,
) -> ArtifactFacts {
    let named = |path: &str| root.relative(path).ok().map(|path| path.as_path().to_owned());
    let there = facts.iter().filter(|(_, fact)| *fact == ArtifactFact::Present);
    let there: BTreeSet<PathBuf> = there.filter_map(|(path, _)| named(path)).collect();
    let ignored = tool_site.ignored(session, &there);
    for (path, fact) in &mut facts {
        if *fact == ArtifactFact::Present && named(path).is_some_and(|it| ignored.contains(&it)) {
            *fact = ArtifactFact::Ignored;
        }
    }
    facts
}

/// Returns what tells a contract about the artifacts below `root`.
pub fn artifact_facts(root: &Path) -> Result<impl Fn(&str) -> ArtifactFact + use<>, PathError> {
    let root = Root::open(root)?;
    Ok(move |path: &str| artifact_fact(&root, path))
}

fn artifact_fact(root: &Root, path: &str) -> ArtifactFact {
    match root.relative(path).and_then(|path| root.open_file(&path)) {
        Ok(file) if file.len == 0 => ArtifactFact::Empty,
        Ok(_) => ArtifactFact::Present,
        Err(PathError::Outside) => ArtifactFact::Outside,
        Err(PathError::NotRegular(_)) => ArtifactFact::NotAFile,
        Err(
            PathError::NotFound
            | PathError::NotDirectory
            | PathError::Loop
            | PathError::PermissionDenied
            | PathError::NameTooLong
            | PathError::Invalid
            | PathError::SymbolicLink
            | PathError::InGitDir
            | PathError::GitDirUnknown
            | PathError::Protected
            | PathError::Exists
            | PathError::ReadOnly
            | PathError::TooLarge { .. }
            | PathError::DiskFull
            | PathError::Unsupported
            | PathError::Io(_),
        ) => ArtifactFact::Missing,
    }
}
