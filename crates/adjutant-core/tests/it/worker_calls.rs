//! External workers in a simulated run: how one is defined, and the model calls that it makes.

use adjutant_core::{
    AgentName, Command, Event, ModelSpec, Policy, Preset, Rights, SessionId, ToolSet, Usage,
    WorkerCallEnd, WorkerCallRequest, WorkerPlace, WorkerTerms, WriteScope,
};

use crate::sim::{Sim, model, policy, priced};

/// The tools without which no worker is admitted.
pub(crate) const WORKER_TOOLS: [&str; 3] = ["Edit", "Run", "Write"];

/// Returns a policy under which agents write in workspaces of their own.
pub(crate) fn writing(settings: &[&str]) -> Policy {
    let tools = r#"tools=["Delegate","Edit","Read","Run","Task","Write"]"#;
    let settings: Vec<&str> =
        ["enabled=true", "contract=report", tools].iter().chain(settings).copied().collect();
    policy(Preset::Story, &settings)
}

/// Returns the terms of a worker that may call `acme/small`, which has a price, beside its own model.
pub(crate) fn terms(name: &str) -> WorkerTerms {
    WorkerTerms {
        name: name.into(),
        place: WorkerPlace::Workspace,
        further_models: vec![ModelSpec { name: "acme/small".into(), ..priced() }],
        problem: None,
    }
}

/// Defines an agent with these tools, whose work a worker does if there are `terms`.
pub(crate) fn define(sim: &mut Sim, agent: &str, tools: &[&str], terms: Option<WorkerTerms>) {
    let tools = ToolSet::new(tools.iter().copied());
    let define = Command::Define {
        agent: AgentName::new(agent),
        system: String::new(),
        tools: Vec::new(),
        rights: Rights { tools, network: false, writes: WriteScope::Own },
        max_turns: None,
        worker: terms.map(Box::new),
    };
    sim.submit(define).unwrap();
}

/// A call of the worker's own model without limits.
pub(crate) fn request() -> WorkerCallRequest {
    WorkerCallRequest {
        model: model().name,
        input_bound: 1_000,
        requested_output: None,
        removed: Vec::new(),
        problem: None,
    }
}

pub(crate) fn admit(sim: &mut Sim, session: SessionId, request: WorkerCallRequest) -> Vec<Event> {
    sim.submit(Command::AdmitCall { session, request }).unwrap()
}

/// Makes a model call, which must be admitted, and returns its number.
pub(crate) fn begin_call(sim: &mut Sim, session: SessionId) -> u32 {
    let events = admit(sim, session, request());
    match events[..] {
        [Event::WorkerCallReserved { call, .. }] => call,
        _ => panic!("{events:?}"),
    }
}

pub(crate) fn settle(
    sim: &mut Sim,
    session: SessionId,
    call: u32,
    end: WorkerCallEnd,
    usage: Option<Usage>,
) -> Vec<Event> {
    let settle = Command::SettleCall { session, call, end, usage, never_began: false };
    sim.submit(settle).unwrap()
}

pub(crate) fn failed() -> WorkerCallEnd {
    WorkerCallEnd::Failed { message: "HTTP 500".into() }
}
