//! Misbehaving agents at any level of a tree: the run ends, every granted delegation ends once, every tool call has
//! one result, and every end gives a valid return.
#![expect(clippy::expect_used, reason = "the helpers of these tests are test code too")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use adjutant_core::{Event, Outcome, Preset, SessionId, ToolSpec};
use adjutant_engine::{CustomTool, ToolCallResult};
use adjutant_formats::contract::{ReturnContract, unchecked, validate};
use adjutant_testkit::{Rig, RunTrace};
use adjutant_view::results::standard;
use adjutant_view::{RunView, TimedEvent};
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

/// The number of random trees.
const TREES: u32 = 120;

/// The agents of the tree; each is called by the one before it.
const AGENTS: [&str; 4] = ["lead", "upper", "middle", "lower"];

/// The errors of a provider; most are retried with success.
const ERRORS: [&str; 9] = [
    "context_exhausted",
    "rate_limited",
    "overloaded",
    "authentication",
    "bad_request",
    "refused",
    "network",
    "truncated",
    "idle",
];

/// Invalid texts instead of a return.
const GARBAGE: [&str; 6] = [
    "",
    "All done!",
    "{\"status\": \"invalid_status\"}",
    "{\"status\": \"completed\", \"summ",
    "[1, 2]",
    "{\"status\": \"completed\", \"summary\": \"It works. Really.\", \"artifacts\": [{\"type\": \"plan\", \"path\": \"../x\"}]}",
];

/// One action of an agent, valid or not.
#[derive(Clone, Debug)]
enum AgentAction {
    Says(&'static str),
    Huge,
    Cut,
    Refuses,
    Fails {
        error: &'static str,
        times: u8,
    },
    Panics,
    NeverEnds,
    Calls {
        tool: &'static str,
        times: u8,
    },
    BadArguments(&'static str),
    /// Calls an agent by name, which may not be allowed.
    Asks(&'static str),
    Returns {
        status: &'static str,
        by_call: bool,
    },
}

fn act() -> impl Strategy<Value = AgentAction> {
    let somebody = ["lead", "upper", "middle", "lower", "nobody", "", "scout", "../upper"];
    let tools =
        ["Read", "Frobnicate", "PanickingTool", "Run", "Write", "Return", "Task", "Delegate"];
    prop_oneof![
        select(&GARBAGE[..]).prop_map(AgentAction::Says),
        Just(AgentAction::Huge),
        Just(AgentAction::Cut),
        Just(AgentAction::Refuses),
        (select(&ERRORS[..]), 1..5_u8)
            .prop_map(|(error, times)| AgentAction::Fails { error, times }),
        Just(AgentAction::Panics),
        Just(AgentAction::NeverEnds),
        (select(tools.to_vec()), 1..14_u8)
            .prop_map(|(tool, times)| AgentAction::Calls { tool, times }),
        select(vec!["{", "[]", "null", "{\"path\": 7}", "\u{0}"])
            .prop_map(AgentAction::BadArguments),
        select(somebody.to_vec()).prop_map(AgentAction::Asks),
        (select(vec!["completed", "partial", "failed", "blocked"]), any::<bool>())
            .prop_map(|(status, by_call)| AgentAction::Returns { status, by_call }),
    ]
}

fn returned(status: &str) -> Value {
    let errors = match status {
        "completed" => json!([]),
        _ => json!([{ "type": "execution", "message": "It broke.", "code": "BUILD_ERROR",
            "recoverable": true, "recommendation": "Mend it." }]),
    };
    json!({ "status": status, "summary": "It was tried. This came of it.", "artifacts": [],
        "errors": errors })
}

impl AgentAction {
    /// Writes the turns of a script for `agent`.
    fn script(&self, agent: &str, script: &mut String) {
        let text = |text: &str| format!("text = {}\n", json!(text));
        let call = |tool: &str, arguments: &Value| {
            format!(
                "[[turn.call]]\ntool = \"{tool}\"\nraw_args = {}\n",
                json!(arguments.to_string())
            )
        };
        let turn = match self {
            Self::Says(words) => text(words),
            Self::Huge => "text_bytes = 300000\n".to_owned(),
            Self::Cut => format!("stop = \"max_output\"\n{}", text("So far I have")),
            Self::Refuses => format!("stop = \"refused\"\n{}", text("")),
            Self::Fails { error, times } => {
                let passes = ["rate_limited", "overloaded", "network", "truncated", "idle"];
                let times = if passes.contains(error) { *times } else { 1 };
                format!("error = \"{error}\"\ntimes = {times}\n")
            }
            Self::Panics => "panic = true\n".to_owned(),
            Self::NeverEnds => format!("delay_ms = 86400000\n{}", text("too late")),
            Self::Calls { tool, times } => {
                format!("times = {times}\n{}", call(tool, &json!({ "path": "map.txt" })))
            }
            Self::BadArguments(raw) => {
                format!("[[turn.call]]\ntool = \"Read\"\nraw_args = {}\n", json!(raw))
            }
            Self::Asks(who) => call("Task", &json!({ "agent": who, "prompt": "Go on." })),
            Self::Returns { status, by_call: true } => call("Return", &returned(status)),
            Self::Returns { status, by_call: false } => text(&returned(status).to_string()),
        };
        // JSON escapes are valid in TOML.
        let _ = write!(script, "[[turn]]\nagent = \"{agent}\"\n{turn}");
    }
}

/// A tool that panics.
struct PanickingTool;

impl CustomTool for PanickingTool {
    fn spec(&self) -> ToolSpec {
        let (name, description) = ("PanickingTool".to_owned(), "Breaks.".to_owned());
        ToolSpec { name, description, schema: json!({ "type": "object" }) }
    }

    fn run(&self, _arguments: &Value, _should_stop: &dyn Fn() -> bool) -> ToolCallResult {
        panic!("boom")
    }
}

/// The actions of each level before and after it delegates.
type LevelActions = [(Vec<AgentAction>, Vec<AgentAction>); 4];

fn script(acts: &LevelActions) -> String {
    let mut script = String::new();
    for (level, (agent, (before, after))) in AGENTS.iter().zip(acts).enumerate() {
        for act in before {
            act.script(agent, &mut script);
        }
        if let Some(below) = AGENTS.get(level + 1) {
            AgentAction::Asks(below).script(agent, &mut script);
        }
        for act in after {
            act.script(agent, &mut script);
        }
        AgentAction::Returns { status: "completed", by_call: false }.script(agent, &mut script);
    }
    script
}

/// Runs a tree on a paused clock.
fn play(acts: &LevelActions) -> RunTrace {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .expect("a runtime");
    let mut rig = Rig::new().preset(Preset::Command).file("map.txt", "x").tool(PanickingTool);
    for agent in &AGENTS[1..] {
        let definition = format!("---\nname: {agent}\ndescription: Works.\n---\nWork.");
        rig = rig.file(&format!(".claude/agents/{agent}.md"), &definition);
    }
    runtime.block_on(rig.script(&script(acts)).goal("Go on.").delegate())
}

/// Checks that every end, including refusals, gives a return that is valid under its contract.
fn every_end_is_a_valid_return(trace: &RunTrace) {
    let entries = trace.events.iter().map(|(at, event)| TimedEvent {
        at: *at,
        wall_ms: at.as_millis(),
        event,
    });
    let view = RunView::of(entries);
    for delegation in view.delegations() {
        let returned = standard(&view, delegation).expect("it has ended");
        let contract = ReturnContract {
            expected_session: Some(delegation.session),
            ..ReturnContract::default()
        };
        let told = serde_json::to_value(&returned).expect("a return is JSON");
        let verdict = validate(&told, &contract, &unchecked);
        assert!(verdict.valid, "{told}: {:?}", verdict.errors);
    }
}

/// Checks that every granted delegation ends once, with a reason unless it is completed.
fn everyone_ends_once(trace: &RunTrace) {
    let mut grants = BTreeSet::new();
    let mut ended = BTreeSet::new();
    for (_, event) in &trace.events {
        match event {
            Event::Granted(grant) => {
                assert!(grant.depth <= 3, "too deep: {grant:?}");
                let path: BTreeSet<_> = grant.path.iter().collect();
                assert_eq!(path.len(), grant.path.len(), "a cycle: {:?}", grant.path);
                grants.insert(grant.session);
            }
            Event::Ended { session, outcome, reason } => {
                assert!(ended.insert(*session), "{session} ended twice");
                let is_told = *outcome == Outcome::Completed || reason.is_some();
                assert!(is_told, "{session} ended {} without a reason", outcome.word());
            }
            Event::Refused { reason, .. } => {
                assert!(!reason.message.is_empty() && !reason.recommendation.is_empty());
            }
            _ => {}
        }
    }
    let left: Vec<_> = grants.difference(&ended).collect();
    assert!(left.is_empty(), "never ended: {left:?}");
    let ends = trace.kinds().iter().filter(|kind| *kind == "run_ended").count();
    assert_eq!(ends, 1, "the run ends once");
    assert_eq!(trace.kinds().last().map(String::as_str), Some("run_ended"));
}

/// Checks that every tool call has exactly one result before the next turn of its agent.
fn every_call_is_answered_once(trace: &RunTrace) {
    let mut open: BTreeMap<SessionId, (usize, BTreeSet<u32>)> = BTreeMap::new();
    for (_, event) in &trace.events {
        match event {
            Event::Replied { session, tool_calls, .. } => {
                open.insert(*session, (tool_calls.len(), BTreeSet::new()));
            }
            Event::ToolReturned { session, call, .. }
            | Event::ToolRefused { session, call, .. } => {
                let answers = &mut open.get_mut(session).expect("a call before its answer").1;
                assert!(answers.insert(*call), "call {call} of {session} was answered twice");
            }
            Event::Reserved { session, .. } => {
                // The tool calls of a truncated or last reply are not run.
                let Some((calls, answers)) = open.get(session) else { continue };
                assert!(
                    answers.is_empty() || answers.len() == *calls,
                    "{session} went on with {} of {calls} answers",
                    answers.len()
                );
            }
            _ => {}
        }
    }
}

fn holds(acts: &LevelActions) {
    let trace = play(acts);
    assert!(trace.result.is_ok(), "{:?}", trace.result);
    everyone_ends_once(&trace);
    every_end_is_a_valid_return(&trace);
    every_call_is_answered_once(&trace);
}

fn level() -> impl Strategy<Value = (Vec<AgentAction>, Vec<AgentAction>)> {
    (prop::collection::vec(act(), 0..3), prop::collection::vec(act(), 0..4))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: TREES, ..ProptestConfig::default() })]

    #[test]
    fn every_delegation_ends_once_with_a_valid_return(
        acts in [level(), level(), level(), level()],
    ) {
        holds(&acts);
    }
}

#[test]
fn misbehaviour_at_one_level_does_not_fail_the_levels_above() {
    let alone = [
        (1, AgentAction::Says("")),
        (2, AgentAction::Says("All done!")),
        (3, AgentAction::Says("[1, 2]")),
        (1, AgentAction::Huge),
        (1, AgentAction::Cut),
        (1, AgentAction::Refuses),
        (1, AgentAction::Panics),
        (1, AgentAction::NeverEnds),
        (1, AgentAction::Calls { tool: "PanickingTool", times: 1 }),
        (1, AgentAction::Calls { tool: "Frobnicate", times: 13 }),
        (1, AgentAction::Calls { tool: "Read", times: 13 }),
        (1, AgentAction::BadArguments("{")),
        (1, AgentAction::Asks("nobody")),
        (1, AgentAction::Asks("lead")),
        (1, AgentAction::Asks("upper")),
        (1, AgentAction::Asks("lower")),
    ];
    let well = play(&std::array::from_fn(|_| (Vec::new(), Vec::new())));
    assert_eq!(well.ends(), ["lower: completed", "middle: completed", "upper: completed"]);
    let mut met = BTreeSet::new();
    for at in 1..AGENTS.len() {
        for (times, act) in &alone {
            let mut acts: LevelActions = std::array::from_fn(|_| (Vec::new(), Vec::new()));
            acts[at].0.extend(vec![act.clone(); *times]);
            let trace = play(&acts);
            everyone_ends_once(&trace);
            every_end_is_a_valid_return(&trace);
            every_call_is_answered_once(&trace);
            let ends = trace.ends();
            // The levels above complete, because a failed child is a normal result for them.
            for above in &AGENTS[1..at] {
                assert!(ends.contains(&format!("{above}: completed")), "{act:?} at {at}: {ends:?}");
            }
            assert_eq!(trace.outcome(), Outcome::Completed, "{act:?} at {at}: {ends:?}");
            met.extend(
                ends.iter()
                    .filter_map(|end| end.split_once(": ")?.1.split_once(' '))
                    .map(|(outcome, code)| format!("{outcome} {code}")),
            );
        }
    }
    insta::assert_snapshot!(met.into_iter().collect::<Vec<_>>().join(", "), @"failed INTERNAL, failed PROVIDER_ERROR, failed VALIDATION_FAILED, partial LOOP_DETECTED, partial STALLED, refused CYCLE_DETECTED, refused UNKNOWN_AGENT");
}
