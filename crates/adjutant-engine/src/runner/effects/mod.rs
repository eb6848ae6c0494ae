//! Performing effects: model calls, tool calls and questions to a person.
//!
//! `perform` starts a task for each effect; the functions here and in `handover`, `writing` and `marking` run in these
//! tasks.
//! They return a command for the core and never change the run's state themselves.

mod handover;
pub(crate) mod marking;
pub(crate) mod perform;
pub(crate) mod question_queue;
pub(crate) mod workers;
pub(crate) mod writing;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use adjutant_core::budget::BudgetAmount;
use adjutant_core::schema::{CallLimits, DelegateCall, ReturnFormat, TASK, TaskCall, TaskSpec};
use adjutant_core::{
    AgentName, AttemptError, AttemptResult, Brief, Command, Conversation, DelegationOrigin, Event,
    Label, ModelErrorKind, ModelSpec, Policy, ReasoningEffort, RunId, SessionId, ToolCall,
    ToolOutput, ToolSpec, Usd,
};
use adjutant_formats::contract::{
    ArtifactFileState, ReturnContract, claims_changed_files, validate,
};
use adjutant_model::{Model, TurnProgress, TurnRequest};
use adjutant_tools::{ApprovedHosts, Masker, Toolbox};
use adjutant_workspace::sandbox::CancelHandle;
use adjutant_workspace::{PathError, Root};
use tokio::sync::mpsc;

use crate::briefs::brief_builder::{BriefBuilder, TaskRequester};
use crate::runner::panics::{CatchPanic, CaughtPanic, catch_panic};
use crate::workspaces::ToolSite;

/// The timeout of a tool call other than Run.
pub(crate) const TOOL_TIME: Duration = Duration::from_secs(30);

/// The largest reply that is accepted, far beyond any model's output.
const MAX_REPLY_BYTES: usize = 16 << 20;

/// The bytes of a reply after which progress is recorded again.
const PROGRESS_BYTES: u64 = 4_096;

/// The time after which fewer bytes are recorded too: an agent whose answer arrives slowly has not stalled.
const PROGRESS_PAUSE: Duration = Duration::from_secs(5);

/// How much of the end of a streamed text is shown, in bytes.
const TEXT_END_BYTES: usize = 512;

/// The shortest time between two reports of a call's text: live views draw four times per second.
const TEXT_END_PAUSE: Duration = Duration::from_millis(200);

/// A question to the approver.
pub enum ApproverQuestion {
    /// Whether these tasks may start.
    Call {
        /// The run it belongs to.
        run: RunId,
        /// The grants and refusals of the call, and the event of the question.
        events: Vec<Event>,
        /// The limits in force.
        policy: Box<Policy>,
        /// What is left of the run's budget.
        left: BudgetAmount,
        /// The tools that commands of agents see, if agents have workspaces of their own.
        commands_see: Option<String>,
        /// The external workers behind the agents of the tasks.
        workers: BTreeMap<AgentName, String>,
    },
    /// Whether agents may fetch from this host for the rest of the run.
    Domain {
        /// The label of the delegation that asks.
        label: Label,
        /// The host.
        host: String,
        /// The URL as the agent wrote it.
        url: String,
    },
}

/// The approver's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApproverAnswer {
    /// Yes, to exactly this call.
    Yes,
    /// Yes to exactly this call, and to further calls of the run while their worst cases add up to at most this.
    YesUpTo(Usd),
    /// No, for this reason.
    No(String),
    /// No answer yet: the question stays open until an answer comes over the control socket.
    Later,
}

/// Asks a person. Called on a thread for tools, one question at a time, so it may block.
pub type Approver = Arc<dyn Fn(&ApproverQuestion) -> ApproverAnswer + Send + Sync>;

/// What an executed effect gives back to the loop: a command for the core, or a call whose tasks still need ids.
#[derive(Debug)]
pub(crate) struct EffectResult {
    /// The command to submit to the core; `None` if a question stays open or there are `briefs`.
    pub(crate) command: Option<Command>,
    /// A parsed delegate call, whose tasks get their ids before the command is submitted.
    pub(crate) briefs: Option<ParsedDelegation>,
    pub(crate) next: NextEffect,
}

/// What the runner starts after it has processed the result of an effect.
#[derive(Debug)]
pub(crate) enum NextEffect {
    None,
    /// Parsing the next delegate call of a session.
    ReadCall(SessionId),
    /// Removing the workspace of a delegation that ended while the workspace was made.
    DropUnusedSpace(SessionId),
    /// Asking the next question.
    PutQuestion,
}

impl From<Command> for EffectResult {
    fn from(command: Command) -> Self {
        Self { command: Some(command), briefs: None, next: NextEffect::None }
    }
}

/// What a question is about.
#[derive(Clone, Debug)]
pub(crate) enum QuestionSubject {
    /// The call with this hash.
    Call(String),
    /// This host.
    Domain(String),
}

/// A parsed call of the `Delegate` or `Task` tool, whose tasks have no ids yet.
#[derive(Debug)]
pub(crate) struct ParsedDelegation {
    pub(crate) parent: SessionId,
    pub(crate) origin: DelegationOrigin,
    pub(crate) briefs: Vec<Brief>,
    pub(crate) concurrency: Option<u64>,
}

/// Parses a call of `Delegate` or `Task` and builds the briefs. Blocks, because it reads context files.
pub(crate) fn read_call(
    brief_builder: &BriefBuilder,
    root: &Root,
    limits: &CallLimits,
    caller: &ModelSpec,
    (parent, turn, index): (SessionId, u32, u32),
    request: &ToolCall,
) -> Result<ParsedDelegation, String> {
    let origin = |form| DelegationOrigin { turn, index: Some(index), form };
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
        let origin = origin(ReturnFormat::default());
        return Ok(ParsedDelegation { parent, origin, briefs: vec![brief], concurrency: None });
    }
    let call =
        DelegateCall::parse(&request.arguments, limits).map_err(|error| error.to_string())?;
    let brief = |task: &TaskSpec| brief_builder.brief(task, caller, TaskRequester::Model, root);
    let briefs = call.tasks.iter().map(brief).collect();
    let origin = origin(call.return_form);
    Ok(ParsedDelegation { parent, origin, briefs, concurrency: call.concurrency })
}

/// Converts a `Task` call to a task, with the agent's name as label.
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

/// Everything a model call needs, shared with the runner instead of copied.
pub(crate) struct ModelCallRequest {
    pub(crate) session: SessionId,
    pub(crate) turn: u32,
    pub(crate) attempt: u32,
    pub(crate) max_output: u64,
    pub(crate) effort: Option<ReasoningEffort>,
    pub(crate) context_tokens: u64,
    pub(crate) agent: AgentName,
    pub(crate) label: Label,
    pub(crate) system: Arc<str>,
    pub(crate) tools: Arc<[ToolSpec]>,
    pub(crate) may_call_tools: bool,
    pub(crate) conversation: Arc<Conversation>,
    pub(crate) model: Arc<dyn Model>,
}

/// A signal of a session's model call or command.
pub(crate) type SessionSignal = (SessionId, LiveSignal);

/// A sign of life of a model call or command that has not ended yet.
#[derive(Debug)]
pub(crate) enum LiveSignal {
    /// This many bytes of the reply arrived.
    Bytes(u64),
    /// The call waits for the provider's rate limit.
    Pause { provider: String, ms: u64 },
    /// The command printed this.
    Printed(String),
    /// The reply's text so far ends like this. Only shown, never recorded.
    TextEnd(String),
}

/// What was found at the paths that a return names.
pub(crate) type ArtifactFacts = Vec<(String, ArtifactFileState)>;

/// Asks the approver. Blocks. A panic of the approver counts as a no.
pub(crate) fn ask_person(
    approver: &Approver,
    question: &ApproverQuestion,
    subject: QuestionSubject,
) -> EffectResult {
    let answer = catch_panic(|| approver(question)).unwrap_or_else(|crash| {
        ApproverAnswer::No(format!("asking the question failed: {}", crash.message))
    });
    let command = match (subject, answer) {
        (QuestionSubject::Call(hash), ApproverAnswer::Yes) => Some(Command::Approve { hash }),
        (QuestionSubject::Call(hash), ApproverAnswer::YesUpTo(amount)) => {
            Some(Command::ApproveUpTo { hash, amount })
        }
        (QuestionSubject::Call(hash), ApproverAnswer::No(reason)) => {
            Some(Command::Deny { hash, reason })
        }
        (QuestionSubject::Domain(host), ApproverAnswer::Yes | ApproverAnswer::YesUpTo(_)) => {
            Some(Command::AllowDomain { host })
        }
        (QuestionSubject::Domain(host), ApproverAnswer::No(reason)) => {
            Some(Command::DenyDomain { host, reason })
        }
        (QuestionSubject::Call(_) | QuestionSubject::Domain(_), ApproverAnswer::Later) => None,
    };
    EffectResult { command, briefs: None, next: NextEffect::PutQuestion }
}

/// Makes one attempt of a model call.
pub(crate) async fn perform_model_call(
    call: ModelCallRequest,
    masker: Masker,
    signals: mpsc::Sender<SessionSignal>,
) -> EffectResult {
    let ModelCallRequest { session, turn, attempt, .. } = call;
    let command = match CatchPanic(Box::pin(call_model(call, signals))).await {
        Ok(Ok(reply)) => Command::Reply { session, turn, attempt, reply },
        Ok(Err(mut error)) => {
            // The message is shown and recorded, and a provider may quote the request in it.
            error.message = masker.mask(&error.message).into_owned();
            Command::FailAttempt { session, turn, attempt, error }
        }
        Err(crash) => crash.command(session),
    };
    command.into()
}

async fn call_model(call: ModelCallRequest, signals: mpsc::Sender<SessionSignal>) -> AttemptResult {
    let request = TurnRequest {
        agent: call.agent.as_str(),
        label: call.label.as_str(),
        session: call.session,
        turn: call.turn,
        attempt: call.attempt,
        system: &call.system,
        messages: call.conversation.messages(),
        tools: &call.tools,
        may_call_tools: call.may_call_tools,
        max_output: call.max_output,
        effort: call.effort,
        context_tokens: call.context_tokens,
    };
    let (mut unsaid, mut waited) = (0, false);
    let mut said_at = Instant::now();
    let mut text_end = TextEnd::default();
    let mut progress = |progress: TurnProgress<'_>| {
        if let TurnProgress::Text(text) = progress {
            text_end.append(text);
            text_end.report(call.session, &signals);
        }
        unsaid += match progress {
            TurnProgress::Text(text) => text.len() as u64,
            TurnProgress::Bytes(bytes) => bytes,
            TurnProgress::Waiting { provider, ms } => {
                let pause = LiveSignal::Pause { provider: provider.to_owned(), ms };
                waited |= signals.try_send((call.session, pause)).is_ok();
                return;
            }
        };
        // If the queue is full, the bytes are reported with the next signal. The first byte after a wait is
        // reported at once, because it ends the wait.
        let is_due = unsaid > 0 && said_at.elapsed() >= PROGRESS_PAUSE;
        let is_news = unsaid >= PROGRESS_BYTES || is_due || waited;
        if is_news && signals.try_send((call.session, LiveSignal::Bytes(unsaid))).is_ok() {
            (unsaid, waited) = (0, false);
            said_at = Instant::now();
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
            kind: ModelErrorKind::BadRequest,
            message: format!("the answer has {bytes} bytes, limit {MAX_REPLY_BYTES}"),
            retry_after_ms: None,
            never_began: false,
        });
    }
    Ok(reply)
}

/// The end of the text that a model call has streamed so far.
#[derive(Default)]
struct TextEnd {
    text: String,
    reported: Option<Instant>,
}

impl TextEnd {
    fn append(&mut self, piece: &str) {
        self.text.push_str(piece);
        if self.text.len() > 2 * TEXT_END_BYTES {
            let start = self.text.ceil_char_boundary(self.text.len() - TEXT_END_BYTES);
            // A display does not show JSON, which it knows by its first character.
            let first = self.text.trim_start();
            let is_json = first.starts_with('{') || first.starts_with("```json");
            self.text.replace_range(..start, if is_json { "{" } else { "" });
        }
    }

    /// Sends the text if the last report is old enough. Half of the queue is left to signals that are recorded.
    fn report(&mut self, session: SessionId, signals: &mpsc::Sender<SessionSignal>) {
        let is_early = self.reported.is_some_and(|at| at.elapsed() < TEXT_END_PAUSE);
        if is_early || signals.capacity() * 2 < signals.max_capacity() {
            return;
        }
        if signals.try_send((session, LiveSignal::TextEnd(self.text.clone()))).is_ok() {
            self.reported = Some(Instant::now());
        }
    }
}

/// Runs one tool call. Blocks.
pub(crate) fn use_tool(
    tool_site: &ToolSite,
    session: SessionId,
    turn: u32,
    call: u32,
    request: &ToolCall,
    approved: Option<ApprovedHosts<'_>>,
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

/// Returns the command for a tool call that ended.
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

/// Why a shell command is run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CommandPurpose {
    /// An agent called Run, in its workspace.
    Work,
    /// To verify the agent's work, in a fresh workspace made from its commit with this `message`, with the files
    /// that match `keep` taken from the base.
    Verify { message: String, keep: Vec<String> },
}

/// The output of a shell command, and for a verification which files were taken from the base.
#[derive(Debug)]
pub(crate) struct CommandResult {
    pub(crate) output: ToolOutput,
    /// For a verification: the changed files that were taken from the base.
    pub(crate) from_base: Vec<String>,
}

impl From<ToolOutput> for CommandResult {
    fn from(output: ToolOutput) -> Self {
        Self { output, from_base: Vec::new() }
    }
}

/// Runs a shell command of a delegation, or one that verifies its work. Blocks.
pub(crate) fn run_command(
    tool_site: &ToolSite,
    session: SessionId,
    (purpose, request): (&CommandPurpose, &ToolCall),
    environment: &[(String, String)],
    cancel: &CancelHandle,
    signals: &mpsc::Sender<SessionSignal>,
) -> Result<CommandResult, CaughtPanic> {
    let mut printed = |text: &str| {
        // If the queue is full, this output is not shown live; the result has all of it.
        let _ = signals.try_send((session, LiveSignal::Printed(text.to_owned())));
    };
    catch_panic(|| {
        let arguments = &request.arguments;
        let ran = match purpose {
            CommandPurpose::Work => tool_site
                .with_toolbox(|toolbox| {
                    let inside = tool_site.confinement()?;
                    let output = toolbox.run(arguments, &inside, environment, cancel, &mut printed);
                    Ok(as_output(output))
                })
                .map(|output| CommandResult::from(tool_site.store_work(output))),
            CommandPurpose::Verify { message, keep } => {
                let verified = tool_site.verify(session, (message, keep), |toolbox, inside| {
                    as_output(toolbox.run_check(
                        arguments,
                        inside,
                        environment,
                        cancel,
                        &mut printed,
                    ))
                });
                verified.map(|(output, from_base)| CommandResult { output, from_base })
            }
        };
        ran.unwrap_or_else(|problem| {
            let why = format!("not run: {problem}. A person can look with `adjutant doctor`.");
            ToolOutput::error(why).into()
        })
    })
}

/// Converts the output of a tool to the form that is recorded.
pub(crate) fn as_output(output: adjutant_tools::ToolCallResult) -> ToolOutput {
    ToolOutput {
        content: output.text,
        is_error: output.is_error,
        note: output.notes,
        touched: output.touched,
        sandbox: output.sandbox,
        exit: output.exit,
    }
}

/// Checks the artifacts that a return names, and which files were changed if it names those. Blocks.
///
/// The validation of the contract calls back for each path, so the return is not parsed separately.
pub(crate) fn verify(
    tool_site: &ToolSite,
    session: SessionId,
    call: Option<u32>,
    text: String,
    message: &str,
) -> EffectResult {
    let look = || {
        tool_site.with_toolbox(|toolbox| {
            let facts = look_at(toolbox, &text);
            Ok(without_ignored(tool_site, session, toolbox.root(), facts))
        })
    };
    let compare = || {
        let claims = claims_changed_files(&text);
        claims.then(|| tool_site.changed_files(session, message)).flatten()
    };
    let command = match catch_panic(|| (look().unwrap_or_default(), compare())) {
        Ok((artifacts, changed)) => Command::Conclude { session, call, text, artifacts, changed },
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
    let _verdict = validate(text, &ReturnContract::default(), &look);
    facts.take()
}

/// Marks the present files that git ignores, because the kept result will not contain them.
fn without_ignored(
    tool_site: &ToolSite,
    session: SessionId,
    root: &Root,
    mut facts: ArtifactFacts,
) -> ArtifactFacts {
    let named = |path: &str| root.relative(path).ok().map(|path| path.as_path().to_owned());
    let there = facts.iter().filter(|(_, fact)| *fact == ArtifactFileState::Present);
    let there: BTreeSet<PathBuf> = there.filter_map(|(path, _)| named(path)).collect();
    let ignored = tool_site.ignored(session, &there);
    for (path, fact) in &mut facts {
        if *fact == ArtifactFileState::Present
            && named(path).is_some_and(|it| ignored.contains(&it))
        {
            *fact = ArtifactFileState::Ignored;
        }
    }
    facts
}

/// Returns a function that checks an artifact's path below `root`, for validating a contract.
pub fn artifact_facts(
    root: &Path,
) -> Result<impl Fn(&str) -> ArtifactFileState + use<>, PathError> {
    let root = Root::open(root)?;
    Ok(move |path: &str| artifact_fact(&root, path))
}

fn artifact_fact(root: &Root, path: &str) -> ArtifactFileState {
    match root.relative(path).and_then(|path| root.open_file(&path)) {
        Ok(file) if file.len == 0 => ArtifactFileState::Empty,
        Ok(_) => ArtifactFileState::Present,
        Err(PathError::Outside) => ArtifactFileState::Outside,
        Err(PathError::NotRegular(_)) => ArtifactFileState::NotAFile,
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
        ) => ArtifactFileState::Missing,
    }
}
