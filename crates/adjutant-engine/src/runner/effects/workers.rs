//! External agents: giving them prompts, and forwarding their model calls.
//!
//! The process of a worker lives as long as its delegation; each prompt is a task. Start at [`Runner::prompt_worker`].

use std::collections::BTreeMap;
use std::sync::Arc;

use adjutant_core::{
    AttemptError, CallRefusal, Command, Conversation, Event, Message, ModelErrorKind, ModelReply,
    SessionId, StopReason, Usage, WorkerAction, WorkerCallEnd, WorkerSessionStart,
};
use tokio::sync::{Mutex, mpsc, oneshot, watch};

use crate::engine::EngineError;
use crate::runner::Runner;
use crate::runner::effects::EffectResult;
use crate::runner::panics::CatchPanic;
use crate::workers::{
    AdmissionResult, AdmittedCall, RunningWorker, StartedWorker, WorkerHost, WorkerInput,
    WorkerLink, WorkerStart, WorkerWorkspace,
};

/// The message to a worker whose session was loaded, if there is nothing else to tell it.
const GO_ON: &str = "Go on with your task from where you stopped.";

/// The place of a delegation's worker. Dropping it ends the worker.
#[derive(Clone)]
pub(in crate::runner) struct WorkerSlot {
    /// The worker, once it was started. An async mutex: held while the worker works on a prompt.
    running: Arc<Mutex<Option<Box<dyn RunningWorker>>>>,
    _stop: Arc<StopOnDrop>,
    stop: watch::Receiver<bool>,
}

/// Tells a worker to end when it is dropped.
struct StopOnDrop(watch::Sender<bool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.send_replace(true);
    }
}

impl Default for WorkerSlot {
    fn default() -> Self {
        let (sender, stop) = watch::channel(false);
        Self { running: Arc::default(), _stop: Arc::new(StopOnDrop(sender)), stop }
    }
}

/// The admitted model calls of workers that wait until their reservation is durable.
#[derive(Default)]
pub(in crate::runner) struct AdmittedCalls(
    BTreeMap<(SessionId, u32), oneshot::Sender<AdmissionResult>>,
);

impl AdmittedCalls {
    /// Refuses the waiting calls of a delegation that has ended.
    pub(in crate::runner) fn forget(&mut self, session: SessionId) {
        self.0.retain(|(of, _), _| *of != session);
    }
}

impl Runner {
    /// Gives a worker its next prompt, and starts it first if it does not run.
    pub(super) fn prompt_worker(&mut self, session: SessionId, turn: u32, attempt: u32) {
        // The delegation may have ended before its prompt was durable.
        let Some(node) = self.tree.node(session).filter(|node| node.reservation().is_some()) else {
            return;
        };
        let (Some(terms), Some(model)) = (node.worker().cloned(), node.model.clone()) else {
            return;
        };
        let Some(host) = self.context.workers.clone() else {
            let message = "external workers are not available in this program".to_owned();
            let command = failed(session, turn, attempt, message);
            self.tasks.spawn(async move { command.into() });
            return;
        };
        let earlier_session = node.worker_session().map(str::to_owned);
        let has_workspace = node.space.is_some();
        let slot = self.running.entry(session).or_default().worker.get_or_insert_default().clone();
        let workspace = has_workspace.then(|| {
            WorkerWorkspace::new(self.tool_site(session), self.command_environment(session))
        });
        let link = WorkerLink::new(session, self.worker_inputs.0.clone(), self.signals.0.clone());
        let start = WorkerStart {
            worker: terms.name,
            session,
            model,
            further_models: terms.further_models,
            workspace,
            earlier_session,
            link,
            stop: slot.stop.clone(),
        };
        let system = self.system_text(session).unwrap_or_default();
        let conversation = self.conversations.get(&session).cloned().unwrap_or_default();
        let masker = self.context.brief_builder.masker.clone();
        let inputs = self.worker_inputs.0.clone();
        let prompt = async move {
            let texts = PromptTexts { system, conversation };
            give_prompt(host, start, &slot, &texts, &inputs).await
        };
        let handle = self.tasks.spawn(async move {
            let command = match CatchPanic(Box::pin(prompt)).await {
                Ok(Ok(reply)) => Command::Reply { session, turn, attempt, reply },
                Ok(Err(message)) => {
                    // The message is shown and recorded, and a worker may quote a key in it.
                    failed(session, turn, attempt, masker.mask(&message).into_owned())
                }
                Err(crash) => crash.command(session),
            };
            EffectResult::from(command)
        });
        self.running.entry(session).or_default().model = Some(handle);
    }

    /// Takes an input of a worker: a model call that it wants to make, the end of one, or a report.
    pub(in crate::runner) fn take_worker_input(
        &mut self,
        input: WorkerInput,
    ) -> Result<(), EngineError> {
        match input {
            WorkerInput::Admit { session, request, answer } => {
                // On a full disk no reservation can be recorded.
                if self.full.is_some() {
                    let _ = answer.send(Err(CallRefusal::NoPrompt));
                    return Ok(());
                }
                let now = self.now();
                let events = self
                    .tree
                    .decide(now, Command::AdmitCall { session, request })
                    .unwrap_or_default();
                match events.first() {
                    Some(Event::WorkerCallReserved { call, .. }) => {
                        self.admitted.0.insert((session, *call), answer);
                    }
                    Some(Event::WorkerCallRefused { refusal, .. }) => {
                        let _ = answer.send(Err(refusal.clone()));
                    }
                    Some(_) | None => {
                        let _ = answer.send(Err(CallRefusal::NoPrompt));
                    }
                }
                self.take_decided(now, events)
            }
            WorkerInput::Settle { session, call, end, usage, never_began, recorded } => {
                let command = Command::SettleCall { session, call, end, usage, never_began };
                let result = self.submit(command);
                drop(recorded);
                result
            }
            WorkerInput::Act { session, action } => {
                let action = self.masked(action);
                self.submit(Command::TakeWorkerAction { session, action })
            }
            WorkerInput::Opened { session, id, start } => {
                self.submit(Command::TakeWorkerSession { session, id, start })
            }
            WorkerInput::Report { session, report } => {
                self.submit(Command::TakeWorkerUsage { session, report })
            }
        }
    }

    /// Lets the gateway forward a model call whose reservation is durable.
    pub(super) fn forward_call(
        &mut self,
        session: SessionId,
        call: u32,
    ) -> Result<(), EngineError> {
        let Some(answer) = self.admitted.0.remove(&(session, call)) else { return Ok(()) };
        let open = self.tree.node(session).and_then(|node| node.worker_call(call));
        let admitted = open.map(|(model, max_output)| AdmittedCall {
            call,
            model: model.to_owned(),
            max_output,
        });
        match answer.send(admitted.ok_or(CallRefusal::NoPrompt)) {
            Ok(()) => Ok(()),
            // The worker closed its connection while the reservation was written.
            Err(_unsent) => self.submit(Command::SettleCall {
                session,
                call,
                end: WorkerCallEnd::Abandoned,
                usage: None,
                never_began: true,
            }),
        }
    }
}

impl Runner {
    /// Removes secrets from what a worker reports.
    fn masked(&self, action: WorkerAction) -> WorkerAction {
        let mask = |text: String| self.context.brief_builder.masker.mask(&text).into_owned();
        match action {
            WorkerAction::Said { text } => WorkerAction::Said { text: mask(text) },
            WorkerAction::Tool { id, title, status } => {
                WorkerAction::Tool { id, title: mask(title), status }
            }
            WorkerAction::Permission { title, allowed } => {
                WorkerAction::Permission { title: mask(title), allowed }
            }
        }
    }
}

/// What the prompts of a worker are made of.
struct PromptTexts {
    system: Arc<str>,
    conversation: Arc<Conversation>,
}

impl PromptTexts {
    /// Returns the messages that were added since the worker's last answer.
    fn unanswered(&self) -> Vec<&str> {
        let messages = self.conversation.messages();
        let is_answer = |message: &Message| matches!(message, Message::Assistant { .. });
        let from = messages.iter().rposition(is_answer).map_or(0, |last| last + 1);
        messages[from..].iter().map(Message::text).collect()
    }

    /// Returns the prompt for a session that knows everything up to the worker's last answer.
    fn further(&self) -> String {
        let added = self.unanswered();
        if added.is_empty() { GO_ON.to_owned() } else { added.join("\n\n") }
    }

    /// Returns the prompt for a new session: rules, task, and what an earlier session of the delegation said last.
    fn whole(&self) -> String {
        let mut text = self.system.to_string();
        let messages = self.conversation.messages();
        let told = messages.iter().filter_map(|message| match message {
            Message::User { content } => Some(content.as_str()),
            Message::Assistant { .. } | Message::Tool { .. } => None,
        });
        for message in told {
            text += "\n\n";
            text += message;
        }
        if let Some(last) = self.conversation.last_words() {
            text += "\n\nAn earlier session worked on this task and cannot be continued. The files are as it left \
                     them. Its last message, quoted:\n";
            for line in last.lines() {
                text += "\n> ";
                text += line;
            }
            text += "\n\nLook at the files first, then go on with the task.";
        }
        text
    }
}

/// Gives a worker its next prompt and waits for the answer. Starts the worker if it does not run.
async fn give_prompt(
    host: Arc<dyn WorkerHost>,
    start: WorkerStart,
    slot: &WorkerSlot,
    texts: &PromptTexts,
    inputs: &mpsc::Sender<WorkerInput>,
) -> Result<ModelReply, String> {
    let session = start.session;
    let mut running = slot.running.lock().await;
    let (worker, text) = match running.as_mut() {
        Some(worker) => (worker, texts.further()),
        None => {
            let is_known = start.earlier_session.is_some();
            let StartedWorker { worker, session_id, start } = host.start(start).await?;
            let start = match start {
                WorkerSessionStart::New if is_known => WorkerSessionStart::Retold,
                start @ (WorkerSessionStart::New
                | WorkerSessionStart::Loaded
                | WorkerSessionStart::Retold) => start,
            };
            let opened = WorkerInput::Opened { session, id: session_id, start };
            // The run has ended if nothing receives it, and then this task is aborted.
            let _ = inputs.send(opened).await;
            let text = match start {
                WorkerSessionStart::Loaded => texts.further(),
                WorkerSessionStart::New | WorkerSessionStart::Retold => texts.whole(),
            };
            (running.insert(worker), text)
        }
    };
    let answered = worker.prompt(text).await;
    let answer = match answered {
        Ok(answer) => answer,
        Err(problem) => {
            *running = None;
            return Err(problem);
        }
    };
    if let Some(report) = answer.report {
        let _ = inputs.send(WorkerInput::Report { session, report }).await;
    }
    // The model calls were settled one by one; the answer itself costs nothing.
    Ok(ModelReply {
        text: answer.text,
        tool_calls: Vec::new(),
        stop: StopReason::EndTurn,
        opaque: None,
        usage: Some(Usage::default()),
    })
}

fn failed(session: SessionId, turn: u32, attempt: u32, message: String) -> Command {
    let error = AttemptError {
        kind: ModelErrorKind::WorkerFailed,
        message,
        retry_after_ms: None,
        never_began: true,
    };
    Command::FailAttempt { session, turn, attempt, error }
}
