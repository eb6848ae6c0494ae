//! Admission: every refusal, its boundary value, its order among the checks, and its message.

mod automatic;
mod budgets;
mod context;
mod cycles;
mod depth;
mod fan_out;
mod order;
mod recommendations;
mod rights;
mod time;

use adjutant_core::budget::{BudgetAmount, Reservation};
use adjutant_core::check::{CheckAnswer, CheckError, CheckInput, check};
use adjutant_core::event::Grant;
use adjutant_core::policy::{ApprovalRule, CycleKey, DelegationTimeout, parse_assignment};
use adjutant_core::refusal::TimeBound;
use adjutant_core::rights::{Rights, ToolSet};
use adjutant_core::tree::{Admission, QUEUE_LIMIT, worst_case};
use adjutant_core::{
    AgentName, Brief, Command, ContextFile, ContextFileStatus, DelegationState, Effect, ErrorCode,
    Event, Label, LayeredPolicy, ModelReply, ModelSpec, Outcome, Policy, PolicySource, Preset,
    Refusal, RunId, SessionId, Timestamp, Tree, Usd,
};
use serde_json::{Value, json};

use crate::sim::{
    Sim, about, asks, brief, granted, model, policy, priced, read, refused, scout, used,
};

/// Asks `adjutant check` and shows its answer in full.
fn answer(preset: Preset, input: &Value) -> Result<CheckAnswer, CheckError> {
    let input: CheckInput = serde_json::from_value(input.clone()).unwrap();
    check(LayeredPolicy::new(preset), &input)
}

/// Shows an answer in one line: the code, or what was granted.
fn verdict(preset: Preset, input: &Value) -> String {
    match answer(preset, input).unwrap() {
        CheckAnswer::Refused { code, .. } => code,
        CheckAnswer::Granted { depth, path, timeout, clamped, .. } => {
            let timeout = timeout.map_or_else(|| "none".to_owned(), |seconds| seconds.to_string());
            let clamped = if clamped { " clamped" } else { "" };
            format!("granted: depth {depth}, timeout {timeout}{clamped}, {}", path.join(" → "))
        }
    }
}

/// Shows a refusal as a person reads it.
fn refusal(preset: Preset, input: &Value) -> String {
    match answer(preset, input).unwrap() {
        CheckAnswer::Refused { code, message, recommendation, recoverable, .. } => {
            let recoverable = if recoverable { "recoverable" } else { "final" };
            format!("{code} ({recoverable})\n{message}\n=> {recommendation}")
        }
        granted @ CheckAnswer::Granted { .. } => format!("{granted:?}"),
    }
}

fn shown(refusal: &Refusal) -> String {
    format!("{}: {}\n{refusal}\n=> {}", refusal.code(), refusal.message(), refusal.recommendation())
}

/// Returns nodes named `names`, each the child of the one before it.
fn chain(names: &[&str]) -> Vec<Value> {
    names
        .iter()
        .enumerate()
        .map(|(depth, name)| match depth {
            0 => json!({"id": name}),
            _ => json!({"id": name, "parent": names[depth - 1]}),
        })
        .collect()
}

/// A task that breaks every rule but the first `mended`, judged.
///
/// Each rule is broken independently, so fixing one reveals only the next.
fn broken_from(mended: usize) -> Result<Admission, Refusal> {
    let breaks = |rule: usize| rule >= mended;
    let at = Timestamp::ZERO;
    let read_only = Rights { tools: ToolSet::read_only(), network: false, ..Rights::default() };
    let policy = Policy {
        enabled: !breaks(0),
        cycle_key: CycleKey::Agent,
        max_depth: if breaks(4) { 1 } else { 2 },
        children_per_parent: breaks(5).then_some(1),
        children_per_run: breaks(6).then_some(1),
        context_tokens: breaks(9).then_some(1_000),
        budget_tokens: None,
        budget_tokens_run: Some(if breaks(10) { 1_000 } else { 1_000_000 }),
        budget_usd: Usd::from_dollars(if breaks(11) { 0.001 } else { 5.0 }),
        concurrency: 1,
        approval: ApprovalRule::None,
        ..Preset::Scout.policy()
    };
    let mut tree = Tree::default();
    let run = RunId::new(1_700_000_000, [0; 6]);
    let parent = SessionId::new(1_700_000_001, [0; 6]);
    let mut made = 1_u64;
    let mut grant = |above: SessionId, agent: &str, depth: u64| {
        made += 1;
        Grant {
            session: SessionId::new(1_700_000_000 + made, [0; 6]),
            parent: above,
            call: 1,
            index: 0,
            places: 1,
            brief: Brief::new(Label::unnamed(), AgentName::new(agent), ""),
            depth,
            path: Vec::new(),
            rights: read_only.clone(),
            timeout_s: None,
            clamped: false,
            preface: None,
            task: None,
            opening_bytes: 0,
            awaiting_approval: false,
        }
    };
    let mut events = vec![Event::RunStarted {
        run,
        agent: AgentName::new("lead"),
        goal: String::new(),
        workdir: String::new(),
        policy: Box::new(policy),
        version: String::new(),
        model: None,
        terms: None,
        base_depth: 0,
        environment: None,
    }];
    let target = if breaks(3) { "planner" } else { "worker" };
    let known = if breaks(2) { &["planner"][..0] } else { &["planner", "worker"] };
    for agent in known.iter().chain(&["stranger"]) {
        events.push(Event::AgentDefined {
            agent: AgentName::new(agent),
            system: String::new(),
            tools: Vec::new(),
            rights: read_only.clone(),
            max_turns: None,
            worker: None,
        });
    }
    let deadline = breaks(12).then(|| at.plus_seconds(10));
    events.push(Event::Granted(Box::new(Grant {
        session: parent,
        ..grant(run.root_session(), "planner", 1)
    })));
    events.push(Event::Started { session: parent, deadline, bound: TimeBound::Own });
    let earlier = grant(parent, "worker", 2);
    let earlier_session = earlier.session;
    events.push(Event::Granted(Box::new(earlier)));
    let ended = |session| Event::Ended { session, outcome: Outcome::Completed, reason: None };
    events.push(ended(earlier_session));
    for _ in 0..if breaks(13) { QUEUE_LIMIT } else { QUEUE_LIMIT - 1 } {
        events.push(Event::Granted(Box::new(grant(parent, "worker", 2))));
    }
    if breaks(1) {
        events.push(ended(parent));
    }
    for event in &events {
        tree.evolve(at, event).unwrap();
    }
    let mut task = brief("task", target, "do it");
    task.model = Some(priced());
    task.rights_wish = breaks(7).then(|| Rights {
        tools: ToolSet::new(["Read", "Write"]),
        network: false,
        ..Rights::default()
    });
    let found = if breaks(8) {
        ContextFileStatus::Unusable("is a FIFO".into())
    } else {
        ContextFileStatus::Loaded
    };
    task.context = vec![ContextFile { path: "notes.md".into(), found }];
    tree.judge_one(at.plus_seconds(10), parent, &task)
}

fn many(count: usize) -> Vec<Brief> {
    (0..count).map(|n| about(&format!("t{n}"))).collect()
}

fn rights_of(sim: &Sim, session: SessionId) -> String {
    let rights = &sim.node(session).rights;
    format!("{}{}", rights.tools, if rights.network { " +network" } else { "" })
}

fn story_context(parent: u64, request: Value) -> Value {
    let mut request = request;
    request["parent"] = json!("US-007");
    json!({"policy": {"enabled": true}, "tree": [{"id": "US-007", "context_tokens": parent}],
        "request": request})
}

/// Returns the policy settings in a recommendation.
fn flags(recommendation: &str) -> Vec<(String, Value)> {
    let words: Vec<&str> =
        recommendation.split_whitespace().map(|word| word.trim_end_matches([',', '.'])).collect();
    let mut settings = Vec::new();
    for pair in words.windows(2) {
        match pair[0] {
            "--set" => {
                let (key, value) = parse_assignment(pair[1]).unwrap();
                settings.push((key.to_owned(), value));
            }
            "--budget-usd" => {
                settings.push(("budget_usd".into(), serde_json::from_str(pair[1]).unwrap()));
            }
            "--budget-tokens" => {
                settings.push(("budget_tokens_run".into(), serde_json::from_str(pair[1]).unwrap()));
            }
            "--enable-delegation" => settings.push(("enabled".into(), json!(true))),
            word => assert!(!word.starts_with("--"), "what does {word} do?"),
        }
    }
    settings
}
