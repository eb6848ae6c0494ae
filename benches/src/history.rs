//! Simulates runs without an engine: models and tools answer at once.
//!
//! Every event comes from `Tree::decide`, so the measured journals look like those of real runs.

use std::collections::VecDeque;

use adjutant_core::ids::SUFFIX_LEN;
use adjutant_core::policy::WorkspaceSharing;
use adjutant_core::tree::EffectsInFlight;
use adjutant_core::{
    AgentName, Brief, Command, Effect, Event, Label, ModelReply, ModelSpec, Policy, Preset, Price,
    RequestedTask, Rights, RunId, SessionId, StopReason, Timestamp, ToolCall, ToolOutput, Tree,
    Usage, Usd,
};
use serde_json::json;

use crate::Failure;

/// Unix seconds at which every measured run begins.
pub(crate) const BEGAN: u64 = 1_790_000_000;

/// Tasks handed down in one call while a tree is built.
const BATCH: usize = 500;

/// Takes events as they arise.
type Sink<'a> = dyn FnMut(Timestamp, &Event) -> Result<(), Failure> + 'a;

/// A tree with its own clock, and what it still waits for.
pub(crate) struct TreeDriver<'a> {
    /// The state so far.
    pub(crate) tree: Tree,
    in_flight: EffectsInFlight,
    run: RunId,
    now: Timestamp,
    effects: VecDeque<Effect>,
    sink: &'a mut Sink<'a>,
}

/// Returns the run of a number.
pub(crate) fn run_id(number: usize) -> RunId {
    RunId::new(BEGAN, suffix(number))
}

/// Returns the session of a number; zero is no session of ours.
pub(crate) fn session(number: usize) -> SessionId {
    SessionId::new(BEGAN + 1, suffix(number))
}

fn suffix(mut number: usize) -> [u8; SUFFIX_LEN] {
    std::array::from_fn(|_| {
        let digit = u8::try_from(number % 36).unwrap_or_default();
        number /= 36;
        digit
    })
}

/// Returns a preset whose counts and budgets are out of the way, and nothing else.
pub(crate) fn unlimited_policy(preset: Preset) -> Policy {
    Policy {
        enabled: true,
        tasks_per_call: 1_000_000,
        children_per_parent: None,
        children_per_run: None,
        concurrency: 1_000_000,
        budget_tokens: None,
        budget_tokens_run: Some(u64::MAX / 2),
        budget_usd: Some(Usd::from_pico(u64::MAX / 2)),
        // Only the core is measured, and nothing here creates workspaces.
        workspace: WorkspaceSharing::Shared,
        ..preset.policy()
    }
}

/// Returns a task as a caller writes them: a label, a paragraph, a priced model.
pub(crate) fn task(policy: &Policy, number: usize) -> Result<RequestedTask, Failure> {
    let prompt = format!(
        "Look at module {number}: which of its functions take untrusted input, what do they check, \
         and what is missing? Cite files and lines. Say plainly what you could not find out."
    );
    let label = Label::new(&format!("module-{number}"))?;
    let mut brief = Brief::new(label, agent(policy.preset), &prompt);
    brief.model = Some(ModelSpec {
        name: "provider/model-5".into(),
        window: 1_000_000_000,
        max_output: 16_384,
        price: Some(Price { input: 3.0, output: 15.0, cache_read: 0.3, cache_write: 3.75 }),
        effort: None,
    });
    if policy.preset == Preset::Story {
        brief.story = Some(format!("US-001-DEL-{number:05}"));
    }
    Ok(RequestedTask { session: session(number), brief })
}

fn agent(preset: Preset) -> AgentName {
    AgentName::new(preset.name())
}

impl<'a> TreeDriver<'a> {
    /// Begins a run under `policy`.
    pub(crate) fn begin(
        run: RunId,
        policy: &Policy,
        sink: &'a mut Sink<'a>,
    ) -> Result<Self, Failure> {
        let mut driver = Self {
            tree: Tree::default(),
            in_flight: EffectsInFlight::default(),
            run,
            now: Timestamp::ZERO,
            effects: VecDeque::new(),
            sink,
        };
        driver.submit(Command::Begin {
            run,
            agent: AgentName::new("delegate"),
            goal: String::new(),
            workdir: "/work".into(),
            policy: Box::new(policy.clone()),
            version: "bench".into(),
            model: None,
            terms: None,
            base_depth: 0,
            environment: None,
        })?;
        driver.submit(Command::Define {
            agent: agent(policy.preset),
            system: "You are a capable engineer.".into(),
            tools: Vec::new(),
            rights: Rights::of(policy),
            max_turns: None,
            worker: None,
        })?;
        Ok(driver)
    }

    /// Hands down `count` tasks and gets them started.
    pub(crate) fn delegate(&mut self, count: usize) -> Result<(), Failure> {
        let policy = self.tree.policy().clone();
        for first in (0..count).step_by(BATCH) {
            let tasks = (first..count.min(first + BATCH))
                .map(|number| task(&policy, number + 1))
                .collect::<Result<Vec<_>, _>>()?;
            let parent = self.run.root_session();
            self.submit(Command::Delegate { parent, tasks, concurrency: None, origin: None })?;
        }
        Ok(())
    }

    /// Answers models and tools until the run has ended: `turns` reads of `bytes` each, a report.
    pub(crate) fn finish(&mut self, turns: u32, bytes: usize) -> Result<(), Failure> {
        self.advance(usize::MAX, turns, bytes)
    }

    /// Does the same, but stops after `steps` effects.
    pub(crate) fn advance(
        &mut self,
        steps: usize,
        turns: u32,
        bytes: usize,
    ) -> Result<(), Failure> {
        let content = "let total = parts.iter().sum();\n".repeat(bytes / 32);
        for _ in 0..steps {
            let Some(effect) = self.effects.pop_front() else { return Ok(()) };
            self.now = self.now.plus_millis(1);
            match effect {
                Effect::Model { session, turn, attempt, .. } => {
                    let reply = reply(turn, turns, &content);
                    self.submit(Command::Reply { session, turn, attempt, reply })?;
                }
                Effect::Tool { session, turn, index, .. } => {
                    let touched = vec![format!("src/part_{turn}.rs")];
                    let output =
                        ToolOutput { content: content.clone(), touched, ..ToolOutput::default() };
                    self.submit(Command::TakeOutput { session, turn, call: index, output })?;
                }
                Effect::AskApproval { .. }
                | Effect::Prompt { .. }
                | Effect::ForwardCall { .. }
                | Effect::PrepareWrite { .. }
                | Effect::Write { .. }
                | Effect::Fetch { .. }
                | Effect::AskDomain { .. }
                | Effect::Delegate { .. }
                | Effect::ReturnResults { .. }
                | Effect::Verify { .. }
                | Effect::UpdateTaskList { .. }
                | Effect::MakeWorkspace { .. }
                | Effect::CommitWork { .. }
                | Effect::Markers { .. }
                | Effect::Merge { .. }
                | Effect::Check { .. }
                | Effect::CollectHandover { .. }
                | Effect::Stop { .. }
                | Effect::StopModel { .. }
                | Effect::Close => {}
            }
        }
        Ok(())
    }

    /// Decides a command and all that follows; questions are answered with yes.
    fn submit(&mut self, command: Command) -> Result<(), Failure> {
        let mut queue = VecDeque::from([command]);
        while let Some(command) = queue.pop_front() {
            let events = self.tree.decide(self.now, command).map_err(|no| no.message())?;
            for event in &events {
                (self.sink)(self.now, event)?;
                self.tree.evolve(self.now, event)?;
            }
            let reaction = self.tree.react(&events, &mut self.in_flight);
            queue.extend(reaction.commands);
            for effect in reaction.effects {
                if let Effect::AskApproval { hash, .. } = effect {
                    queue.push_back(Command::Approve { hash });
                } else {
                    self.effects.push_back(effect);
                }
            }
        }
        Ok(())
    }
}

/// Returns one read, or a report that quotes as much as a read returns.
fn reply(turn: u32, turns: u32, content: &str) -> ModelReply {
    let usage = Some(Usage { input: 2_000, output: 60, ..Usage::default() });
    if turn > turns {
        let text = format!("Every function checks its input; nothing is missing.\n{content}");
        return ModelReply {
            text,
            tool_calls: Vec::new(),
            stop: StopReason::EndTurn,
            usage,
            opaque: None,
        };
    }
    let call = ToolCall {
        id: format!("call_{turn}"),
        name: "Read".into(),
        arguments: json!({ "path": format!("src/part_{turn}.rs") }),
        malformed: false,
    };
    let text = format!("Reading part {turn}.");
    ModelReply { text, tool_calls: vec![call], stop: StopReason::ToolUse, usage, opaque: None }
}
