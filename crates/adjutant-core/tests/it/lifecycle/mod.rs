//! The life of a delegation, from its first turn to its end, in a simulated run.

mod answers;
mod approval;
mod budgets;
mod codes;
mod commands;
mod continuation;
mod domains;
mod ends;
mod errors;
mod limited;
mod mail;
mod other_shapes;
mod resume;
mod resume_time;
mod spaces;
mod stories;
mod time;
mod turns;
mod verification;
mod whole_run;
mod workers;
mod writes;

use adjutant_core::budget::{BudgetAmount, Settlement};
use adjutant_core::policy::{ApprovalRule, ContractKind};
use adjutant_core::tree::{
    ANSWER_MIN_MS, APPROVAL_EXPIRES_S, CALLS_PER_TURN, DeadlineKind, LAST_CALL, LOOP_END,
    LOOP_TOLD, MAX_ATTEMPTS, MAX_REPAIRS, MIN_OUTPUT,
};
use adjutant_core::{
    AddedMessageReason, AttemptError, Brief, Command, Conversation, DelegationState, Effect,
    ErrorCode, Event, Message, ModelErrorKind, ModelReply, ModelSpec, Outcome, Policy, Preset,
    SessionId, StopReason, Timestamp, ToolCall, ToolOutput, Usd,
};
use adjutant_formats::contract::ArtifactFileState;
use serde_json::{Value, json};

use crate::sim::{
    Sim, about, asks, brief, error, granted, model, policy, priced, read, says, scout, tool, used,
};

/// The size of the last-turn warning, in tokens at a byte each.
const TOLD: u64 = LAST_CALL.len() as u64;

/// Shows the kinds of events in order.
fn kinds(events: &[Event]) -> String {
    let kind = |event: &Event| serde_json::to_value(event).unwrap()["type"].clone();
    events
        .iter()
        .map(|event| kind(event).as_str().unwrap().to_owned())
        .collect::<Vec<_>>()
        .join(" ")
}

fn one(settings: &[&str]) -> (Sim, SessionId) {
    let mut sim = Sim::new(scout(settings));
    let child = sim.child(about("x"));
    (sim, child)
}

/// Asserts that a command is recorded as late and changes nothing.
fn is_late(sim: &mut Sim, command: Command) {
    let before = format!("{:?}", sim.tree);
    let events = sim.submit(command).unwrap();
    assert!(matches!(events[..], [Event::Late { .. }]), "{events:?}");
    assert_eq!(format!("{:?}", sim.tree), before);
}

/// Makes one call per turn, answers it when it runs, and returns whether it ran.
fn turn(sim: &mut Sim, child: SessionId, call: ToolCall) -> bool {
    let before = sim.tools_run(child).len();
    sim.call(child, vec![call]);
    let ran = sim.tools_run(child).len() > before;
    if ran {
        sim.output(child, 0, "the same");
    }
    ran
}

fn cut_off(text: &str) -> ModelReply {
    ModelReply { stop: StopReason::MaxOutput, tool_calls: vec![read("1", "a")], ..says(text) }
}

fn standard() -> (Sim, SessionId) {
    let mut sim = Sim::new(Policy { contract: ContractKind::Standard, ..scout(&[]) });
    let child = sim.child(about("x"));
    (sim, child)
}

fn returns(
    sim: &mut Sim,
    child: SessionId,
    value: &Value,
    facts: &[(&str, ArtifactFileState)],
) -> String {
    let text = value.to_string();
    assert_eq!(kinds(&sim.say(child, &text)), "replied");
    assert_eq!(sim.effects.last(), Some(&Effect::Verify { session: child, returned: None }));
    let artifacts = facts.iter().map(|(path, fact)| ((*path).to_owned(), *fact)).collect();
    kinds(
        &sim.submit(Command::Conclude {
            session: child,
            call: None,
            text,
            artifacts,
            changed: None,
        })
        .unwrap(),
    )
}

fn returned(status: &str, errors: Value) -> Value {
    json!({"status": status, "summary": "The work is over. This is how it went.", "artifacts": [],
        "errors": errors})
}

/// A task of 400 bytes, which is an opening of 100 tokens in the window and 198 in the budget.
fn small(window: u64) -> Brief {
    Brief {
        model: Some(ModelSpec { window, ..priced() }),
        estimate_tokens: Some(0),
        ..brief("x", "scout", &"x".repeat(400))
    }
}

const OPENING: u64 = 100;

const BILLED: u64 = 400_u64.div_ceil(3) + 64;

/// Returns what the last model call of `child` was given: output tokens, and whether tools.
fn last_model_call(sim: &Sim, child: SessionId) -> (u64, bool) {
    match sim.model_calls(child).last() {
        Some(Effect::Model { max_output, with_tools, .. }) => (*max_output, *with_tools),
        other => panic!("{other:?}"),
    }
}

fn begun(settings: &[&str], brief: Brief) -> (Sim, SessionId) {
    let mut sim = Sim::new(scout(settings));
    let child = sim.child(brief);
    (sim, child)
}

fn asking(settings: &[&str]) -> Sim {
    Sim::new(Policy { approval: ApprovalRule::Batch, ..scout(settings) })
}

fn question(events: &[Event]) -> String {
    events
        .iter()
        .find_map(|event| match event {
            Event::ApprovalAsked { hash, .. } => Some(hash.clone()),
            _ => None,
        })
        .unwrap()
}

fn yes(hash: &str) -> Command {
    Command::Approve { hash: hash.into() }
}
