//! The life of a delegation, from its first turn to its only end: one agent's turns by simulation.

use adjutant_core::budget::{Amount, Settlement};
use adjutant_core::contract::ArtifactFact;
use adjutant_core::policy::{Approval, ContractKind};
use adjutant_core::tree::{
    APPROVAL_EXPIRES_S, CALLS_PER_TURN, Deadline, LAST_CALL, LOOP_END, LOOP_TOLD, MAX_ATTEMPTS,
    MAX_REPAIRS, MIN_OUTPUT,
};
use adjutant_core::{
    AttemptError, Brief, Code, Command, Conversation, Effect, ErrorKind, Event, Message, ModelSpec,
    Nudge, Outcome, Policy, Preset, Reply, SessionId, State, StopReason, Timestamp, ToolCall,
    ToolOutput, Usd,
};
use serde_json::{Value, json};

use crate::sim::{
    Sim, about, asks, brief, error, granted, model, policy, priced, read, says, scout, tool, used,
};

/// What an agent near its end is told, in tokens at a byte each.
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

// ---- Turns ----

#[test]
fn a_report_ends_the_work_and_the_run() {
    let mut sim = Sim::new(scout(&[]));
    let root = sim.root();
    let events = sim.ask(root, vec![about("x")], None).unwrap();
    assert_eq!(kinds(&events), "granted started reserved");
    let child = granted(&events)[0];
    assert_eq!(sim.model_calls(child).len(), 1);
    let events = sim.say(child, "Found it.");
    assert_eq!(kinds(&events), "replied ended ended run_ended");
    assert_eq!(sim.ended(child), "completed");
    assert_eq!(sim.tree.outcome(), Some(Outcome::Completed));
    assert_eq!(sim.effects.last(), Some(&Effect::Close));
    sim.check_over();
}

#[test]
fn tools_are_run_and_the_next_turn_waits_for_all_of_them() {
    let (mut sim, child) = one(&[]);
    let events = sim.call(child, vec![read("1", "a"), read("2", "b")]);
    assert_eq!(kinds(&events), "replied tool_called tool_called");
    assert_eq!(sim.submit(Command::TakeTurn { session: child }), Ok(vec![]));
    assert_eq!(sim.tools_run(child), ["Read", "Read"]);
    assert_eq!(kinds(&sim.output(child, 1, "second")), "tool_returned");
    assert_eq!(kinds(&sim.output(child, 0, "first")), "tool_returned reserved");
    let turns: Vec<u32> = sim
        .model_calls(child)
        .iter()
        .filter_map(|effect| match effect {
            Effect::Model { turn, attempt: 1, with_tools: true, .. } => Some(*turn),
            _ => None,
        })
        .collect();
    assert_eq!(turns, [1, 2]);
}

#[test]
fn d18_what_is_not_allowed_or_makes_no_sense_is_answered_and_not_run() {
    let (mut sim, child) = one(&[]);
    let malformed = ToolCall { malformed: true, ..read("m", "a") };
    let calls = vec![
        read("1", "a"),
        tool("2", "Run", json!({"command": "rm -rf /"})),
        tool("3", "WebFetch", json!({"url": "https://example.org"})),
        tool("4", "Dance", json!({})),
        tool("5", "", json!({})),
        malformed,
        read("1", "b"),
        tool("6", "Delegate", json!({})),
    ];
    sim.call(child, calls);
    assert_eq!(sim.tools_run(child), ["Read"]);
    insta::assert_snapshot!(sim.told(child).join("\n"), @r"
    Not run: `Run` is not available to you. Available: Glob, Grep, Note, Read.
    Not run: `WebFetch` is not available to you. Available: Glob, Grep, Note, Read.
    Not run: `Dance` is not available to you. Available: Glob, Grep, Note, Read.
    Not run: the call names no tool.
    Not run: the arguments are not valid JSON. Send one JSON object.
    Not run: the call id `1` was used twice.
    Not run: `Delegate` is not available to you. Available: Glob, Grep, Note, Read.
    ");
    // The one that runs decides when the next turn comes.
    assert_eq!(kinds(&sim.output(child, 0, "text")), "tool_returned reserved");
}

#[test]
fn a_turn_of_nothing_but_refused_calls_goes_on_at_once() {
    let (mut sim, child) = one(&[]);
    let events = sim.call(child, vec![tool("1", "Dance", json!({})), tool("2", "Run", json!({}))]);
    assert_eq!(kinds(&events), "replied tool_refused tool_refused reserved");
}

#[test]
fn one_turn_may_make_sixty_four_calls() {
    let (mut sim, child) = one(&[]);
    let calls = |count: usize| (0..count).map(|n| read(&n.to_string(), &n.to_string())).collect();
    sim.call(child, calls(CALLS_PER_TURN + 2));
    assert_eq!(sim.tools_run(child).len(), CALLS_PER_TURN);
    assert_eq!(sim.told(child), ["Not run: one turn may make 64 calls."; 2]);
    let (mut sim, child) = one(&[]);
    sim.call(child, calls(CALLS_PER_TURN));
    assert!(sim.told(child).is_empty());
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

#[test]
fn five_equal_calls_are_told_and_eight_end_the_work() {
    let (mut sim, child) = one(&[]);
    for n in 1..LOOP_TOLD {
        assert!(turn(&mut sim, child, read(&n.to_string(), "a")), "{n}");
    }
    for n in LOOP_TOLD..LOOP_END {
        assert!(!turn(&mut sim, child, read(&n.to_string(), "a")), "{n}");
        assert!(sim.node(child).state.is_live());
    }
    insta::assert_snapshot!(sim.told(child)[0], @"Not run: you have made this exact Read call 5 times and its result does not change. Do something else, or write your report; at 8 you will be stopped.");
    assert_eq!(sim.told(child).len(), LOOP_END - LOOP_TOLD);
    turn(&mut sim, child, read("8", "a"));
    insta::assert_snapshot!(sim.ended(child), @r"
    partial LOOP_DETECTED: The agent made the same Read call 8 times.
    => Delegate the task again with a clearer prompt.
    ");
    sim.check_over();
}

#[test]
fn two_calls_made_in_turn_are_a_loop_as_much_as_one() {
    let (mut sim, child) = one(&[]);
    let mut made = 0;
    while sim.node(child).state.is_live() {
        turn(&mut sim, child, read(&made.to_string(), ["a", "b"][made % 2]));
        made += 1;
    }
    assert_eq!((made, sim.code(child)), (2 * LOOP_END - 1, Some(Code::LoopDetected)));
    assert_eq!(sim.tools_run(child).len(), 2 * (LOOP_TOLD - 1));
}

#[test]
fn eight_equal_calls_in_one_answer_are_a_loop_too() {
    let (mut sim, child) = one(&[]);
    sim.call(child, (0..LOOP_END).map(|n| read(&n.to_string(), "a")).collect());
    assert_eq!(sim.code(child), Some(Code::LoopDetected));
    // The work is over before the first of them would have run.
    assert!(sim.tools_run(child).is_empty());
}

#[test]
fn calls_of_long_ago_are_forgotten() {
    let (mut sim, child) = one(&[]);
    for round in 0..3 {
        for n in 0..4 {
            assert!(turn(&mut sim, child, read(&n.to_string(), "a")));
        }
        for n in 0..12 {
            assert!(turn(&mut sim, child, read("x", &format!("{round}/{n}"))));
        }
    }
    assert!(sim.told(child).is_empty());
    // Sixteen are remembered: with eleven others between, the fifth of them is told.
    let (mut sim, child) = one(&[]);
    for n in 0..4 {
        assert!(turn(&mut sim, child, read(&n.to_string(), "a")));
    }
    for n in 0..11 {
        assert!(turn(&mut sim, child, read("x", &n.to_string())));
    }
    assert!(!turn(&mut sim, child, read("5", "a")));
}

// ---- Late ----

#[test]
fn d22_what_comes_late_is_kept_and_changes_nothing() {
    let (mut sim, child) = one(&[]);
    let other = sim.child(about("y"));
    let result = |turn: u32, call: u32| Command::TakeOutput {
        session: child,
        turn,
        call,
        output: ToolOutput { content: "late".into(), ..ToolOutput::default() },
    };
    let reply = |turn: u32, attempt: u32| Command::Reply {
        session: child,
        turn,
        attempt,
        reply: says("late"),
    };
    let failure = |turn: u32, attempt: u32| Command::FailAttempt {
        session: child,
        turn,
        attempt,
        error: error(ErrorKind::Network),
    };
    for (turn, attempt) in [(1, 2), (2, 1), (0, 0)] {
        is_late(&mut sim, reply(turn, attempt));
        is_late(&mut sim, failure(turn, attempt));
    }
    sim.call(child, vec![read("1", "a")]);
    is_late(&mut sim, reply(1, 1));
    is_late(&mut sim, failure(1, 1));
    is_late(&mut sim, result(1, 1));
    is_late(&mut sim, result(2, 0));
    sim.output(child, 0, "in time");
    is_late(&mut sim, result(1, 0));
    is_late(&mut sim, result(2, 0));
    sim.cancel(child);
    is_late(&mut sim, reply(2, 1));
    is_late(&mut sim, failure(2, 1));
    is_late(&mut sim, result(2, 0));
    let crash = Command::Crash { session: child, message: "boom".into(), backtrace: "at".into() };
    is_late(&mut sim, crash);
    for command in [
        Command::Conclude { session: child, text: "late".into(), artifacts: Vec::new() },
        Command::TakeTurn { session: child },
        Command::UseTools { session: child },
        Command::CutOff { session: child },
        Command::Decline { session: child },
        Command::Progress { session: child, bytes: 1 },
        Command::StartQueued { parent: child },
    ] {
        assert_eq!(sim.submit(command.clone()), Ok(vec![]), "{command:?}");
    }
    assert!(sim.submit(Command::Cancel { session: child }).is_err());
    sim.say(other, "done");
    sim.check_over();
}

#[test]
fn a_conclusion_counts_only_after_a_final_answer() {
    let (mut sim, child) = one(&[]);
    let conclude = || Command::Conclude { session: child, text: "hm".into(), artifacts: vec![] };
    assert_eq!(sim.submit(conclude()), Ok(vec![]));
    sim.call(child, vec![read("1", "a")]);
    assert_eq!(sim.submit(conclude()), Ok(vec![]));
    sim.output(child, 0, "text");
    assert_eq!(sim.submit(conclude()), Ok(vec![]));
    assert!(sim.node(child).state.is_live());
}

// ---- Answers ----

fn cut_off(text: &str) -> Reply {
    Reply { stop: StopReason::MaxOutput, tool_calls: vec![read("1", "a")], ..says(text) }
}

#[test]
fn an_answer_cut_off_is_asked_for_once_more_and_then_partial() {
    let (mut sim, child) = one(&[]);
    assert_eq!(kinds(&sim.reply(child, cut_off("a long"))), "replied told reserved");
    insta::assert_snapshot!(sim.told(child)[0], @"Your answer was cut off at the output limit. Say it again, shorter, in one message.");
    sim.reply(child, cut_off("still long"));
    insta::assert_snapshot!(sim.ended(child), @r"
    partial BUDGET_EXCEEDED: The answer was cut off at 4,096 output tokens.
    => Ask for a shorter answer, or raise the limit with --set max_output_tokens=8192.
    ");
    // Calls of an answer that was cut off are not run.
    assert!(sim.tools_run(child).is_empty());
    let (mut sim, child) = one(&[]);
    sim.reply(child, cut_off("a long"));
    sim.say(child, "short");
    assert_eq!(sim.ended(child), "completed");
}

#[test]
fn the_limit_an_answer_was_cut_at_can_be_raised_as_recommended() {
    let flag = |sim: &Sim, child: SessionId| sim.end(child).1.unwrap().recommendation;
    let (mut sim, child) = one(&["max_output_tokens=500"]);
    sim.reply(child, cut_off("a"));
    sim.reply(child, cut_off("b"));
    let text = flag(&sim, child);
    assert!(text.contains("--set max_output_tokens=1000"), "{text}");
    // What the model or the task bounds is not mended by a setting.
    for brief in [
        Brief { model: Some(ModelSpec { max_output: 300, ..model() }), ..about("x") },
        Brief { max_output_tokens: Some(200), ..about("x") },
    ] {
        let mut sim = Sim::new(scout(&[]));
        let child = sim.child(brief);
        sim.reply(child, cut_off("a"));
        sim.reply(child, cut_off("b"));
        let text = flag(&sim, child);
        assert!(!text.contains("--set"), "{text}");
    }
}

#[test]
fn an_empty_report_is_asked_for_twice_and_then_failed() {
    let (mut sim, child) = one(&[]);
    for _ in 0..MAX_REPAIRS {
        assert_eq!(kinds(&sim.say(child, " \n")), "replied told reserved");
    }
    sim.say(child, "");
    insta::assert_snapshot!(sim.ended(child), @r"
    failed VALIDATION_FAILED: The return was still invalid after 2 repairs. Your answer was empty. Write your report as text.
    => Read the original answer in the transcript, or delegate the task again.
    ");
    let (mut sim, child) = one(&[]);
    sim.say(child, "");
    sim.say(child, "");
    sim.say(child, "here it is");
    assert_eq!(sim.ended(child), "completed");
}

#[test]
fn a_model_that_declines_is_a_provider_error_and_keeps_what_was_found() {
    let declines = || Reply { stop: StopReason::Refused, ..says("") };
    let (mut sim, child) = one(&[]);
    sim.reply(child, declines());
    insta::assert_snapshot!(sim.ended(child), @r"
    failed PROVIDER_ERROR: refused by the provider: the model declined to answer
    => Change the task, or use another model.
    ");
    let (mut sim, child) = one(&[]);
    sim.reply(child, Reply { text: "So far: x.".into(), ..asks(vec![read("1", "a")]) });
    sim.output(child, 0, "text");
    sim.reply(child, declines());
    assert_eq!(sim.end(child).0, Outcome::Partial);
}

// ---- The standard contract ----

fn standard() -> (Sim, SessionId) {
    let mut sim = Sim::new(Policy { contract: ContractKind::Standard, ..scout(&[]) });
    let child = sim.child(about("x"));
    (sim, child)
}

fn returns(
    sim: &mut Sim,
    child: SessionId,
    value: &Value,
    facts: &[(&str, ArtifactFact)],
) -> String {
    let text = value.to_string();
    assert_eq!(kinds(&sim.say(child, &text)), "replied");
    assert_eq!(sim.effects.last(), Some(&Effect::Verify { session: child }));
    let artifacts = facts.iter().map(|(path, fact)| ((*path).to_owned(), *fact)).collect();
    kinds(&sim.submit(Command::Conclude { session: child, text, artifacts }).unwrap())
}

fn returned(status: &str, errors: Value) -> Value {
    json!({"status": status, "summary": "The work is over. This is how it went.", "artifacts": [],
        "errors": errors})
}

#[test]
fn requirement_26_a_return_ends_the_work_as_its_status_says() {
    let errors = json!([{"type": "execution", "message": "Which branch?", "code": "BUILD_ERROR",
        "recoverable": true, "recommendation": "Say which."}]);
    for (status, errors, outcome, code) in [
        ("completed", json!([]), Outcome::Completed, None),
        ("partial", errors.clone(), Outcome::Partial, Some(Code::BuildError)),
        ("failed", errors.clone(), Outcome::Failed, Some(Code::BuildError)),
        ("blocked", errors, Outcome::Blocked, Some(Code::BuildError)),
    ] {
        let (mut sim, child) = standard();
        returns(&mut sim, child, &returned(status, errors), &[]);
        assert_eq!((sim.end(child).0, sim.code(child)), (outcome, code), "{status}");
        assert_eq!(sim.tree.outcome(), Some(outcome));
    }
}

#[test]
fn requirement_35_an_invalid_return_is_repaired_twice_at_most() {
    let (mut sim, child) = standard();
    let bad = returned("done", json!([]));
    for _ in 0..MAX_REPAIRS {
        assert_eq!(returns(&mut sim, child, &bad, &[]), "told reserved");
    }
    assert_eq!(
        sim.log
            .iter()
            .filter(|(_, event)| matches!(event, Event::Told { nudge: Nudge::Repair, .. }))
            .count(),
        2
    );
    assert!(sim.told(child)[0].contains("status: Invalid status: done"));
    // An answer is judged once, whoever looks at its artifacts twice.
    let again = Command::Conclude { session: child, text: bad.to_string(), artifacts: vec![] };
    assert_eq!(sim.submit(again), Ok(vec![]));
    returns(&mut sim, child, &returned("completed", json!([])), &[]);
    assert_eq!(sim.ended(child), "completed");
    let (mut sim, child) = standard();
    for _ in 0..=MAX_REPAIRS {
        returns(&mut sim, child, &bad, &[]);
    }
    insta::assert_snapshot!(sim.ended(child), @r"
    failed VALIDATION_FAILED: The return was still invalid after 2 repairs. Your return was not accepted. What is wrong with it:
    - status: Invalid status: done
    The status is one of completed|failed|partial|blocked.
    Do not repeat the work. Call the `Return` tool again with the whole return, corrected; without that tool, answer with the JSON object alone.
    => Read the original answer in the transcript, or delegate the task again.
    ");
}

#[test]
fn requirement_28_what_the_disk_says_of_an_artifact_counts() {
    let mut value = returned("completed", json!([]));
    value["artifacts"] = json!([{"type": "research", "path": "report.md"}]);
    let (mut sim, child) = standard();
    let missing = returns(&mut sim, child, &value, &[("report.md", ArtifactFact::Missing)]);
    assert_eq!(missing, "told reserved");
    returns(&mut sim, child, &value, &[("report.md", ArtifactFact::Present)]);
    assert_eq!(sim.ended(child), "completed");
}

#[test]
fn requirement_29_the_engine_knows_who_worked_and_compares_what_is_claimed() {
    let (mut sim, child) = standard();
    let mut value = returned("completed", json!([]));
    value["metadata"] = json!({"session_id": "sess_1735460684_a1b2c3"});
    assert_eq!(returns(&mut sim, child, &value, &[]), "told reserved");
    assert!(sim.told(child)[0].contains("Session ID mismatch"), "{:?}", sim.told(child));
}

// ---- The window and the budgets ----

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

#[test]
fn an_agent_is_told_while_its_window_still_holds_a_report() {
    // A full answer, a quarter of one, and the words themselves.
    let fits = OPENING + 1_000 + 250 + TOLD;
    let set = ["max_output_tokens=1000"];
    let (sim, child) = begun(&set, small(fits));
    assert_eq!(last_model_call(&sim, child), (1_000, true));
    let (mut sim, child) = begun(&set, small(fits - 1));
    assert_eq!(last_model_call(&sim, child), (1_000, false));
    assert_eq!(sim.told(child), [LAST_CALL]);
    // Whatever it answers, tools are over and the work is partial.
    sim.reply(child, Reply { text: "What I have.".into(), ..asks(vec![read("1", "a")]) });
    assert!(sim.tools_run(child).is_empty());
    insta::assert_snapshot!(sim.ended(child), @r"
    partial CONTEXT_EXHAUSTED: The context was exhausted: 107 of 1,498 tokens.
    => Split the task, or use a model with a larger window.
    ");
    sim.check_over();
}

#[test]
fn a_last_call_is_tried_again_without_being_told_again() {
    let (mut sim, child) = begun(&["max_output_tokens=1000"], small(1_300));
    sim.fail(child, error(ErrorKind::Overloaded));
    sim.tick_next();
    assert_eq!(sim.told(child), [LAST_CALL]);
    assert_eq!((sim.model_calls(child).len(), last_model_call(&sim, child).1), (2, false));
    // Nor is it asked to be shorter: there is no turn left for that.
    sim.reply(child, cut_off("What I"));
    assert_eq!(sim.told(child), [LAST_CALL]);
    assert_eq!(sim.code(child), Some(Code::ContextExhausted));
    sim.check_over();
}

#[test]
fn what_holds_an_agent_back_the_most_is_named() {
    // Neither leaves room for another turn; the budget leaves less for this one.
    let (sim, child) = begun(&["max_output_tokens=1000", "budget_tokens=900"], small(1_300));
    let told = |sim: &Sim| {
        sim.log.iter().find_map(|(_, event)| match event {
            Event::Told { nudge: Nudge::LastCall(code), .. } => Some(*code),
            _ => None,
        })
    };
    assert_eq!(told(&sim), Some(Code::BudgetExceeded));
    assert!(sim.node(child).state.is_live());
    let (sim, _) = begun(&["max_output_tokens=1000", "budget_tokens=1200"], small(600));
    assert_eq!(told(&sim), Some(Code::ContextExhausted));
}

#[test]
fn an_answer_is_cut_to_what_the_window_has_left_and_not_asked_for_below_the_floor() {
    let set = ["max_output_tokens=1000"];
    let floor = OPENING + TOLD.div_ceil(4) + MIN_OUTPUT;
    let (sim, child) = begun(&set, small(floor + 50));
    assert_eq!(last_model_call(&sim, child), (150, false));
    let (sim, child) = begun(&set, small(floor));
    assert_eq!(last_model_call(&sim, child), (MIN_OUTPUT, false));
    let (sim, child) = begun(&set, small(floor - 1));
    assert!(sim.model_calls(child).is_empty());
    assert_eq!(
        (sim.end(child).0, sim.code(child)),
        (Outcome::Partial, Some(Code::ContextExhausted))
    );
}

#[test]
fn the_context_of_a_long_conversation_runs_out_with_a_last_word() {
    let (mut sim, child) = begun(&["max_output_tokens=1000"], small(10_000));
    sim.reply(child, Reply { usage: used(8_000, 20), ..asks(vec![read("1", "a")]) });
    // 8,000 and a few fit one more full answer beside the grace; 3,000 bytes more do not.
    sim.output(child, 0, &"y".repeat(3_000));
    assert_eq!(sim.told(child), [LAST_CALL]);
    sim.say(child, "The end.");
    assert_eq!(sim.code(child), Some(Code::ContextExhausted));
}

#[test]
fn the_policys_context_is_the_window_that_counts_and_is_named() {
    let (mut sim, child) = begun(&["context_tokens=1400", "max_output_tokens=1000"], small(90_000));
    assert_eq!(sim.told(child), [LAST_CALL]);
    sim.say(child, "The end.");
    insta::assert_snapshot!(sim.ended(child), @r"
    partial CONTEXT_EXHAUSTED: The context was exhausted: 102 of 1,400 tokens.
    => Split the task, or use a model with a larger window.
    ");
}

#[test]
fn an_agent_is_told_while_its_budget_still_holds_a_report() {
    // The conversation is paid for twice when there is a turn after this one.
    for key in ["budget_tokens", "budget_tokens_run"] {
        let fits = 2 * BILLED + 1_000;
        let set = |tokens: u64| format!("{key}={tokens}");
        let (sim, child) = begun(&["max_output_tokens=1000", &set(fits)], small(90_000));
        assert_eq!(last_model_call(&sim, child), (1_000, true), "{key}");
        let (mut sim, child) = begun(&["max_output_tokens=1000", &set(fits - 1)], small(90_000));
        assert!(!last_model_call(&sim, child).1, "{key}");
        sim.say(child, "What I have.");
        let raised = format!("{key}={}", 2 * (fits - 1));
        assert_eq!(
            sim.ended(child),
            format!(
                "partial BUDGET_EXCEEDED: The budget was exhausted after 110 tokens.\n\
                 => Split the task, or raise the budget with --set {raised}."
            )
        );
        // It works when pasted.
        let (sim, child) = begun(&["max_output_tokens=1000", &raised], small(90_000));
        assert_eq!(last_model_call(&sim, child), (1_000, true));
    }
}

#[test]
fn an_answer_is_cut_to_what_the_budget_has_left_to_the_last_token() {
    let least = BILLED + TOLD + MIN_OUTPUT;
    for (cap, output) in [(least + 50, Some(150)), (least, Some(MIN_OUTPUT)), (least - 1, None)] {
        let set = format!("budget_tokens_run={cap}");
        let (sim, child) = begun(&["max_output_tokens=1000", &set], small(90_000));
        match output {
            Some(output) => {
                assert_eq!(last_model_call(&sim, child), (output, false));
                assert_eq!(sim.node(sim.root()).ledger.left().tokens, 0);
            }
            None => {
                assert!(sim.model_calls(child).is_empty());
                assert_eq!(sim.code(child), Some(Code::BudgetExceeded));
                assert_eq!(sim.end(child).0, Outcome::Partial);
            }
        }
    }
}

#[test]
fn money_bounds_an_answer_where_the_model_has_a_price() {
    // Input at $3.75 a million at the dearest, output at $15: pico-dollars per token.
    let (dear_in, dear_out) = (3_750_000, 15_000_000);
    let enough = 2 * BILLED * dear_in + 1_000 * dear_out;
    let run = |pico: u64, model: ModelSpec| {
        let mut policy = scout(&["max_output_tokens=1000"]);
        policy.budget_usd = Some(Usd::from_pico(pico));
        let mut sim = Sim::new(policy);
        let child = sim.child(Brief { model: Some(model), ..small(90_000) });
        last_model_call(&sim, child)
    };
    let model = ModelSpec { window: 90_000, ..priced() };
    assert_eq!(run(enough, model.clone()), (1_000, true));
    assert_eq!(run(enough - 1, model.clone()), (1_000, false));
    let for_half = (BILLED + TOLD) * dear_in + 500 * dear_out;
    assert_eq!(run(for_half, model.clone()), (500, false));
    assert_eq!(run(for_half - 1, model.clone()), (499, false));
    assert_eq!(run(1, ModelSpec { price: None, ..model }), (1_000, true));
}

#[test]
fn the_budget_that_ran_out_is_the_one_to_raise() {
    let recommended = |settings: &[&str]| {
        let (mut sim, child) = begun(settings, small(90_000));
        sim.say(child, "What I have.");
        sim.end(child).1.unwrap().recommendation
    };
    let lines = [
        recommended(&["budget_tokens=4400", "budget_tokens_run=5000"]),
        recommended(&["budget_tokens=5000", "budget_tokens_run=4400"]),
        recommended(&["budget_tokens=5000000", "budget_usd=0.03"]),
        recommended(&["budget_tokens=4400", "budget_usd=5"]),
    ];
    insta::assert_snapshot!(lines.join("\n"), @r"
    Split the task, or raise the budget with --set budget_tokens=8800.
    Split the task, or raise the budget with --set budget_tokens_run=8800.
    Split the task, or raise the budget with --budget-usd 0.06.
    Split the task, or raise the budget with --set budget_tokens=8800.
    ");
}

#[test]
fn what_one_child_holds_and_spent_is_gone_for_its_sibling() {
    // Room for one full call and a bit: the second child gets what is left.
    let cap = 2 * BILLED + 1_000;
    let set = format!("budget_tokens_run={cap}");
    let mut sim = Sim::new(scout(&["max_output_tokens=1000", &set, "concurrency=2"]));
    let children =
        sim.children(vec![small(90_000), Brief { prompt: "y".repeat(400), ..small(90_000) }]);
    assert_eq!(last_model_call(&sim, children[0]), (1_000, true));
    assert!(sim.model_calls(children[1]).is_empty(), "198 are left, and they are the input alone");
    assert_eq!(sim.code(children[1]), Some(Code::BudgetExceeded));
    sim.reply(children[0], Reply { usage: used(BILLED, 1_000), ..says("done") });
    assert_eq!(sim.node(sim.root()).ledger.settled.tokens, BILLED + 1_000);
    sim.check_over();
}

#[test]
fn output_tokens_are_the_smallest_of_task_policy_and_model() {
    let asked = |settings: &[&str], wish: Option<u64>, most: u64| {
        let model = ModelSpec { max_output: most, ..model() };
        let brief = Brief { max_output_tokens: wish, model: Some(model), ..about("x") };
        let (sim, child) = begun(settings, brief);
        last_model_call(&sim, child).0
    };
    assert_eq!(asked(&[], None, 8_192), 4_096);
    assert_eq!(asked(&[], Some(500), 8_192), 500);
    assert_eq!(asked(&["max_output_tokens=9000"], None, 8_192), 8_192);
    assert_eq!(asked(&[], Some(16_384), 8_192), 8_192);
    // A wish below the floor is still worth a call.
    assert_eq!(asked(&["max_output_tokens=50"], None, 8_192), 50);
}

#[test]
fn what_a_provider_bills_beyond_a_reservation_is_said_and_stops_the_scope() {
    let (mut sim, child) = begun(&["budget_tokens=5000"], small(90_000));
    let events = sim.reply(child, Reply { usage: used(5_000, 700), ..asks(vec![read("1", "a")]) });
    let held = BILLED + 4_096;
    let overran = |event: &Event| match event {
        Event::Overran { amount, .. } => Some(amount.tokens),
        _ => None,
    };
    assert_eq!(events.iter().find_map(overran), Some(5_700 - held));
    assert!(sim.node(child).ledger.holds());
    sim.output(child, 0, "text");
    assert_eq!(sim.model_calls(child).len(), 1, "no further call");
    assert_eq!((sim.end(child).0, sim.code(child)), (Outcome::Partial, Some(Code::BudgetExceeded)));
    sim.check_over();
}

#[test]
fn a_call_without_a_usage_record_counts_at_its_full_reservation() {
    let settlement = |events: &[Event]| -> Option<Settlement> {
        events.iter().find_map(|event| match event {
            Event::Replied { settlement, .. }
            | Event::AttemptFailed { settlement, .. }
            | Event::Settled { settlement, .. } => Some(*settlement),
            _ => None,
        })
    };
    let held = Amount {
        tokens: BILLED + 4_096,
        usd: Usd::from_pico(BILLED * 3_750_000 + 4_096 * 15_000_000),
    };
    for close in [
        |sim: &mut Sim, child| sim.reply(child, Reply { usage: None, ..says("x") }),
        |sim: &mut Sim, child| sim.fail(child, error(ErrorKind::Truncated)),
        |sim: &mut Sim, child| sim.cancel(child),
    ] {
        let (mut sim, child) = begun(&[], small(90_000));
        assert_eq!(sim.node(child).ledger.reserved, held);
        let events = close(&mut sim, child);
        let settlement = settlement(&events).unwrap();
        assert!(settlement.estimated);
        assert_eq!(settlement.amount(), held);
        assert_eq!(sim.node(sim.root()).ledger.settled, held);
        assert!(sim.node(sim.root()).ledger.reserved.is_zero());
    }
    let (mut sim, child) = begun(&[], small(90_000));
    let settlement = settlement(&sim.say(child, "x")).unwrap();
    assert_eq!((settlement.estimated, settlement.usage.total()), (false, 110));
}

#[test]
fn a_reservation_is_the_last_bill_and_a_token_for_every_byte_since() {
    let (mut sim, child) = begun(&["max_output_tokens=1000"], small(90_000));
    sim.reply(
        child,
        Reply { text: "thinking".into(), usage: used(300, 20), ..asks(vec![read("1", "abc")]) },
    );
    sim.output(child, 0, &"z".repeat(500));
    let call = json!({"path": "abc"}).to_string().len() as u64 + 4;
    let open = sim.node(child).reservation.unwrap();
    assert_eq!(open.amount.tokens, 300 + 8 + call + 500 + 1_000);
}

// ---- Provider errors ----

#[test]
fn a_passing_failure_is_tried_three_times_each_with_its_own_reservation() {
    let (mut sim, child) = begun(&[], small(90_000));
    for (attempt, wait) in [(1, 500), (2, 1_000)] {
        let now = sim.now.as_millis();
        let events = sim.fail(child, error(ErrorKind::Overloaded));
        assert_eq!(kinds(&events), "attempt_failed");
        assert_eq!(
            sim.tree.next_deadline(),
            Some((Timestamp::from_millis(now + wait), Deadline::Retry)),
            "attempt {attempt}"
        );
        assert_eq!(sim.tick_at_ms(now + wait - 1), []);
        assert_eq!(kinds(&sim.tick_at_ms(now + wait)), "reserved");
        let open = sim.node(child).reservation.unwrap();
        assert_eq!((open.turn, open.attempt), (1, attempt + 1));
    }
    sim.fail(child, error(ErrorKind::Overloaded));
    insta::assert_snapshot!(sim.ended(child), @r"
    failed PROVIDER_ERROR: provider overloaded: the provider said so
    => Try again later, or use another model.
    ");
    assert_eq!(sim.model_calls(child).len(), MAX_ATTEMPTS as usize);
    assert_eq!(sim.node(child).usage.total(), 3 * (BILLED + 4_096));
    sim.check_over();
}

#[test]
fn a_new_turn_has_all_its_attempts() {
    let (mut sim, child) = one(&[]);
    for turn in 1..=3 {
        for _ in 1..MAX_ATTEMPTS {
            sim.fail(child, error(ErrorKind::RateLimited));
            sim.tick_next();
        }
        let open = sim.node(child).reservation.unwrap();
        assert_eq!((open.turn, open.attempt), (turn, MAX_ATTEMPTS));
        sim.call(child, vec![read("1", &turn.to_string())]);
        sim.output(child, 0, "text");
    }
}

#[test]
fn a_provider_says_how_long_to_wait() {
    let (mut sim, child) = one(&[]);
    sim.fail(child, AttemptError { retry_after_ms: Some(7_000), ..error(ErrorKind::RateLimited) });
    assert_eq!(sim.tree.next_deadline(), Some((Timestamp::from_millis(7_000), Deadline::Retry)));
    // Nobody calls earlier.
    assert_eq!(sim.submit(Command::TakeTurn { session: child }), Ok(vec![]));
}

#[test]
fn every_class_of_error_ends_as_it_should() {
    let lines: Vec<String> = [
        ErrorKind::RateLimited,
        ErrorKind::Overloaded,
        ErrorKind::Network,
        ErrorKind::Truncated,
        ErrorKind::ContextExhausted,
        ErrorKind::Authentication,
        ErrorKind::BadRequest,
        ErrorKind::Refused,
        ErrorKind::ScriptEnded,
    ]
    .into_iter()
    .map(|kind| {
        let (mut sim, child) = one(&[]);
        sim.fail(child, error(kind));
        let retried = sim.node(child).state.is_live();
        while sim.node(child).state.is_live() {
            sim.tick_next();
            sim.fail(child, error(kind));
        }
        assert_eq!(kind.is_transient(), retried);
        format!("{} calls, {}", sim.model_calls(child).len(), sim.ended(child))
    })
    .collect();
    insta::assert_snapshot!(lines.join("\n"), @r"
    3 calls, failed PROVIDER_ERROR: rate limited: the provider said so
    => Try again later, or use another model.
    3 calls, failed PROVIDER_ERROR: provider overloaded: the provider said so
    => Try again later, or use another model.
    3 calls, failed PROVIDER_ERROR: network error: the provider said so
    => Try again later, or use another model.
    3 calls, failed PROVIDER_ERROR: incomplete answer: the provider said so
    => Try again later, or use another model.
    1 calls, partial CONTEXT_EXHAUSTED: The context was exhausted: 3 of 200,000 tokens.
    => Split the task, or use a model with a larger window.
    1 calls, failed PROVIDER_ERROR: authentication failed: the provider said so
    => Check the key of this provider.
    1 calls, failed PROVIDER_ERROR: request rejected: the provider said so
    => Use another model, or change the task.
    1 calls, failed PROVIDER_ERROR: refused by the provider: the provider said so
    => Change the task, or use another model.
    1 calls, failed PROVIDER_ERROR: script ended: the provider said so
    => Add the missing turn to the script.
    ");
}

#[test]
fn what_was_found_before_a_failure_makes_it_partial() {
    let fails = |sim: &mut Sim, child| {
        sim.fail(child, error(ErrorKind::Authentication));
        sim.end(child).0
    };
    // A tool result alone is nothing found; a note and a word are.
    let (mut sim, child) = one(&[]);
    sim.call(child, vec![read("1", "a")]);
    sim.output(child, 0, "text");
    assert_eq!(fails(&mut sim, child), Outcome::Failed);
    let (mut sim, child) = one(&[]);
    sim.call(child, vec![tool("1", "Note", json!({"text": "x"}))]);
    let note =
        ToolOutput { content: "Noted.".into(), note: Some("x".into()), ..ToolOutput::default() };
    sim.submit(Command::TakeOutput { session: child, turn: 1, call: 0, output: note }).unwrap();
    assert_eq!(fails(&mut sim, child), Outcome::Partial);
    let (mut sim, child) = one(&[]);
    sim.reply(child, Reply { text: "So far: x.".into(), ..asks(vec![read("1", "a")]) });
    sim.output(child, 0, "text");
    assert_eq!(fails(&mut sim, child), Outcome::Partial);
}

#[test]
fn retries_due_at_once_share_what_is_left() {
    // Failures count in full: after two of them only one call is left for two children.
    let each = BILLED + 1_000;
    let set = format!("budget_tokens_run={}", 3 * each + 100);
    let mut sim = Sim::new(scout(&["max_output_tokens=1000", &set]));
    let children =
        sim.children(vec![small(90_000), Brief { prompt: "y".repeat(400), ..small(90_000) }]);
    for child in &children {
        sim.fail(*child, error(ErrorKind::Network));
    }
    sim.tick_at(10);
    assert_eq!(sim.model_calls(children[0]).len(), 2);
    assert_eq!(sim.code(children[1]), Some(Code::BudgetExceeded));
    sim.say(children[0], "done");
    sim.check_over();
}

#[test]
fn a_retry_that_is_due_with_the_deadline_is_not_made() {
    let (mut sim, child) = begun(&[], Brief { timeout_wish: Some(5), ..small(90_000) });
    sim.fail(child, error(ErrorKind::Network));
    sim.tick_at(5);
    assert_eq!((sim.code(child), sim.model_calls(child).len()), (Some(Code::Timeout), 1));
    sim.check_over();
}

#[test]
fn a_retry_that_is_not_made_holds_nothing() {
    // Both retries are due with the first one's deadline, and one call is left.
    let each = BILLED + 1_000;
    let set = format!("budget_tokens_run={}", 3 * each + BILLED);
    let mut sim = Sim::new(scout(&["max_output_tokens=1000", &set]));
    let briefs = vec![
        Brief { timeout_wish: Some(5), ..small(90_000) },
        Brief { prompt: "y".repeat(400), ..small(90_000) },
    ];
    let children = sim.children(briefs);
    for child in &children {
        sim.fail(*child, error(ErrorKind::Network));
    }
    sim.tick_at(5);
    assert_eq!(sim.code(children[0]), Some(Code::Timeout));
    assert_eq!(last_model_call(&sim, children[1]), (1_000, true));
    sim.say(children[1], "done");
    sim.check_over();
}

#[test]
fn a_retry_that_the_budget_cannot_pay_is_not_made() {
    let set = format!("budget_tokens={}", BILLED + 4_096 + BILLED + 50);
    let (mut sim, child) = begun(&[&set], small(90_000));
    sim.fail(child, error(ErrorKind::Network));
    sim.tick_next();
    assert_eq!((sim.code(child), sim.model_calls(child).len()), (Some(Code::BudgetExceeded), 1));
}

// ---- Time ----

#[test]
fn requirement_20_a_timeout_is_partial_and_recoverable_and_says_whose_time_it_was() {
    let mut sim = Sim::new(policy(Preset::Command, &[]));
    let parent = sim.child(Brief { timeout_wish: Some(100), ..brief("p", "parent", "") });
    let short = sim.child_of(parent, Brief { timeout_wish: Some(30), ..brief("s", "short", "") });
    assert_eq!(sim.tick_at_ms(29_999), []);
    sim.tick_at(30);
    insta::assert_snapshot!(sim.ended(short), @r"
    partial TIMEOUT: Timed out after 30 s, its own timeout.
    => Delegate what is left with a longer timeout; what was found so far is in the result.
    ");
    assert!(sim.end(short).1.unwrap().recoverable);
    let long = sim.child_of(parent, brief("l", "long", ""));
    let events = sim.tick_at(100);
    insta::assert_snapshot!(sim.ended(parent), @r"
    partial TIMEOUT: Timed out after 100 s, its own timeout.
    => Delegate what is left with a longer timeout; what was found so far is in the result.
    ");
    // The child goes first, and both once.
    let order: Vec<SessionId> = events
        .iter()
        .filter_map(|event| match event {
            Event::Ended { session, .. } => Some(*session),
            _ => None,
        })
        .collect();
    assert_eq!(order, [long, parent, sim.root()]);
    assert_eq!(sim.code(long), Some(Code::Timeout));
    sim.check_over();
}

#[test]
fn a_child_bound_by_its_parent_says_so() {
    let mut sim = Sim::new(policy(Preset::Command, &[]));
    let parent = sim.child(Brief { timeout_wish: Some(100), ..brief("p", "parent", "") });
    sim.now = Timestamp::from_millis(40_000);
    let child = sim.child_of(parent, Brief { timeout_wish: Some(80), ..brief("c", "child", "") });
    assert_eq!(sim.node(child).deadline, sim.node(parent).deadline);
    sim.tick_at(100);
    insta::assert_snapshot!(sim.ended(child), @r"
    partial TIMEOUT: Timed out with the one it worked for.
    => Delegate what is left with a longer timeout; what was found so far is in the result.
    ");
}

#[test]
fn d6_the_total_ends_those_who_run_and_those_who_wait() {
    let set = ["enabled=true", "timeout_s=60", "timeout_max_s=60", "total_s=100", "concurrency=1"];
    let mut sim =
        Sim::new(Policy { contract: ContractKind::Report, ..policy(Preset::Story, &set) });
    let children = sim.children(["a", "b", "c", "d"].map(about).into());
    sim.tick_at(60);
    assert_eq!(sim.code(children[0]), Some(Code::Timeout));
    assert_eq!(*sim.state(children[1]), State::Running);
    let events = sim.tick_at(100);
    // Nobody is started, and paid for, to be cut off at once.
    assert!(!kinds(&events).contains("started"), "{}", kinds(&events));
    insta::assert_snapshot!(sim.ended(children[1]), @r"
    partial TIMEOUT: Timed out after 40 s, its parent's total for delegating.
    => Delegate what is left with a longer timeout; what was found so far is in the result.
    ");
    insta::assert_snapshot!(sim.ended(children[2]), @r"
    partial TIMEOUT: Timed out before it found a place, its parent's total for delegating.
    => Delegate it again, with more time or fewer tasks beside it.
    ");
    assert!(sim.model_calls(children[2]).is_empty() && sim.model_calls(children[3]).is_empty());
    assert_eq!(sim.tree.outcome(), Some(Outcome::Partial));
    sim.check_over();
}

#[test]
fn a_model_that_is_silent_for_too_long_has_stalled() {
    let (mut sim, child) = one(&["stall_s=600"]);
    assert_eq!(sim.tree.next_deadline(), Some((Timestamp::from_millis(600_000), Deadline::Stall)));
    sim.now = Timestamp::from_millis(599_999);
    sim.submit(Command::Progress { session: child, bytes: 1 }).unwrap();
    assert_eq!(sim.tick_at(600), []);
    assert_eq!(sim.tick_at_ms(1_199_998), []);
    sim.tick_at_ms(1_199_999);
    insta::assert_snapshot!(sim.ended(child), @r"
    partial STALLED: No byte came from the model for 600 s.
    => Try again, or use another model.
    ");
    sim.check_over();
}

#[test]
fn only_an_open_model_call_can_stall() {
    let (mut sim, child) = one(&["stall_s=10"]);
    // A tool has its own clock.
    sim.call(child, vec![read("1", "a")]);
    assert_eq!(sim.tree.next_deadline(), None);
    assert_eq!(sim.tick_at(1_000), []);
    assert_eq!(sim.submit(Command::Progress { session: child, bytes: 1 }), Ok(vec![]));
    sim.output(child, 0, "text");
    assert_eq!(
        sim.tree.next_deadline(),
        Some((Timestamp::from_millis(1_010_000), Deadline::Stall))
    );
    // So has a provider that asked us to wait.
    sim.fail(child, AttemptError { retry_after_ms: Some(60_000), ..error(ErrorKind::RateLimited) });
    assert_eq!(
        sim.tree.next_deadline(),
        Some((Timestamp::from_millis(1_060_000), Deadline::Retry))
    );
    sim.tick_next();
    assert_eq!(
        sim.tree.next_deadline(),
        Some((Timestamp::from_millis(1_070_000), Deadline::Stall))
    );
    sim.cancel(child);
    assert_eq!(sim.tree.next_deadline(), None);
}

#[test]
fn a_policy_without_a_stall_waits_for_ever() {
    let (mut sim, _) = one(&["stall_s=none"]);
    assert_eq!(sim.tree.next_deadline(), None);
    assert_eq!(sim.tick_at(1_000_000), []);
}

// ---- Cancel, crash ----

#[test]
fn cancelling_ends_a_subtree_the_deepest_first_and_nothing_beside_it() {
    let mut sim = Sim::new(scout(&["max_depth=3", "concurrency=4"]));
    let [a, b] = sim.children(["a", "b"].map(about).into())[..] else { panic!() };
    let inner = granted(&sim.ask(a, ["c", "d"].map(about).into(), None).unwrap());
    let deepest = sim.child_of(inner[0], about("e"));
    let events = sim.cancel(a);
    let ended: Vec<SessionId> = events
        .iter()
        .filter_map(|event| match event {
            Event::Ended { session, outcome: Outcome::Cancelled, .. } => Some(*session),
            _ => None,
        })
        .collect();
    assert_eq!(ended, [deepest, inner[1], inner[0], a]);
    insta::assert_snapshot!(sim.ended(deepest), @r"
    cancelled CANCELLED: Cancelled before it was done.
    => Delegate the task again; what was found so far is in the result.
    ");
    assert_eq!(*sim.state(b), State::Running);
    assert!(sim.tree.outcome().is_none());
    let stopped = sim.effects.iter().filter(|effect| matches!(effect, Effect::Stop { .. })).count();
    assert_eq!(stopped, 4);
    sim.say(b, "done");
    assert_eq!(sim.tree.outcome(), Some(Outcome::Partial));
    sim.check_over();
}

#[test]
fn an_end_takes_everyone_below_along() {
    let mut sim = Sim::new(scout(&["max_depth=2"]));
    let parent = sim.child(about("p"));
    let child = sim.child_of(parent, about("c"));
    sim.say(parent, "I am done without you.");
    assert_eq!(sim.end(parent).0, Outcome::Completed);
    assert_eq!(sim.code(child), Some(Code::Cancelled));
    sim.check_over();
}

#[test]
fn a_crash_in_one_child_leaves_the_others_alone() {
    let mut sim = Sim::new(scout(&["max_depth=2"]));
    let [a, b] = sim.children(["a", "b"].map(about).into())[..] else { panic!() };
    let below = sim.child_of(a, about("c"));
    let (message, backtrace) = ("index out of bounds".to_owned(), "at turn.rs:1".to_owned());
    let events = sim.submit(Command::Crash { session: a, message, backtrace }).unwrap();
    assert_eq!(kinds(&events), "crashed settled ended settled ended");
    insta::assert_snapshot!(sim.ended(a), @r"
    failed INTERNAL: Adjutant broke while working on this: index out of bounds
    => This is a defect of Adjutant; `adjutant log` holds the backtrace.
    ");
    assert!(!sim.end(a).1.unwrap().recoverable);
    assert_eq!(sim.code(below), Some(Code::Cancelled));
    sim.say(b, "done");
    assert_eq!(sim.ended(b), "completed");
    assert_eq!(sim.tree.outcome(), Some(Outcome::Partial));
    sim.check_over();
}

// ---- Approval ----

fn asking(settings: &[&str]) -> Sim {
    Sim::new(Policy { approval: Approval::Batch, ..scout(settings) })
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

#[test]
fn requirement_43_a_batch_waits_for_one_yes() {
    let mut sim = asking(&[]);
    let root = sim.root();
    let events = sim.ask(root, ["a", "b", "c"].map(about).into(), None).unwrap();
    assert_eq!(kinds(&events), "granted granted granted approval_asked");
    let children = granted(&events);
    assert!(children.iter().all(|child| *sim.state(*child) == State::AwaitingApproval));
    let hash = question(&events);
    assert_eq!(sim.effects, [Effect::AskApproval { parent: root, call: 1, hash: hash.clone() }]);
    assert_eq!(hash.len(), 64);
    let events = sim.submit(yes(&hash)).unwrap();
    assert_eq!(kinds(&events), "approved started started reserved reserved");
    assert_eq!(*sim.state(children[2]), State::Queued);
    assert_eq!(sim.tree.next_deadline().map(|(_, why)| why), Some(Deadline::Stall));
}

#[test]
fn an_approval_is_bound_to_the_exact_call_and_used_once() {
    let mut sim = asking(&[]);
    let root = sim.root();
    let first = question(&sim.ask(root, vec![about("a")], None).unwrap());
    let refusal = |sim: &mut Sim, hash: &str| sim.submit(yes(hash)).unwrap_err();
    let foreign = first.replace(|letter: char| letter.is_ascii_digit(), "0");
    insta::assert_snapshot!(refusal(&mut sim, &foreign).message(), @"Not approved: no such call is waiting.");
    sim.submit(yes(&first)).unwrap();
    assert_eq!(refusal(&mut sim, &first).code(), Code::ApprovalDenied);
    // Also across a crash: a yes that is on disk is spent.
    let mut again = Sim::replay(&sim.log);
    assert_eq!(refusal(&mut again, &first).code(), Code::ApprovalDenied);
    // Another prompt is another call.
    let hash = |prompt: &str| {
        let mut sim = asking(&[]);
        let root = sim.root();
        question(&sim.ask(root, vec![brief("a", "scout", prompt)], None).unwrap())
    };
    assert_eq!(hash("one"), hash("one"));
    assert_ne!(hash("one"), hash("One"));
}

#[test]
fn a_yes_to_one_call_starts_no_task_of_another() {
    let mut sim = asking(&["concurrency=4"]);
    let root = sim.root();
    let first = sim.ask(root, ["a", "b"].map(about).into(), None).unwrap();
    let second = sim.ask(root, vec![about("c")], None).unwrap();
    sim.submit(yes(&question(&second))).unwrap();
    let states = |sim: &Sim, events: &[Event]| -> Vec<&'static str> {
        granted(events).iter().map(|child| sim.state(*child).word()).collect()
    };
    assert_eq!(states(&sim, &second), ["running"]);
    assert_eq!(states(&sim, &first), ["awaiting approval"; 2]);
    // Both questions were asked in the same millisecond; the open one still goes stale.
    assert_eq!(
        sim.tree.next_deadline(),
        Some((Timestamp::ZERO.plus_seconds(600), Deadline::Stall))
    );
    sim.say(granted(&second)[0], "done");
    assert_eq!(
        sim.tree.next_deadline(),
        Some((Timestamp::ZERO.plus_seconds(APPROVAL_EXPIRES_S), Deadline::Approval))
    );
    sim.submit(yes(&question(&first))).unwrap();
    assert_eq!(states(&sim, &first), ["running"; 2]);
    sim.cancel(root);
    sim.check_over();
}

#[test]
fn a_no_refuses_every_task_of_the_call() {
    let mut sim = asking(&[]);
    let root = sim.root();
    let events = sim.ask(root, ["a", "b"].map(about).into(), None).unwrap();
    let deny = Command::Deny { hash: question(&events), reason: "too dear".into() };
    assert_eq!(kinds(&sim.submit(deny.clone()).unwrap()), "denied ended ended ended run_ended");
    insta::assert_snapshot!(sim.ended(granted(&events)[0]), @r"
    refused APPROVAL_DENIED: Not approved: too dear.
    => Run it in a terminal and approve it, or add --yes.
    ");
    assert_eq!(sim.end(granted(&events)[1]).0, Outcome::Refused);
    assert_eq!(sim.tree.outcome(), Some(Outcome::Refused));
    assert_eq!(sim.submit(deny), Ok(vec![]));
    sim.check_over();
}

#[test]
fn a_question_that_nobody_answers_is_a_no_after_fifteen_minutes() {
    let expires = APPROVAL_EXPIRES_S * 1_000;
    let mut sim = asking(&[]);
    let root = sim.root();
    let events = sim.ask(root, vec![about("a")], None).unwrap();
    assert_eq!(
        sim.tree.next_deadline(),
        Some((Timestamp::from_millis(900_000), Deadline::Approval))
    );
    let mut in_time = Sim::replay(&sim.log);
    in_time.now = Timestamp::from_millis(expires - 1);
    assert!(in_time.submit(yes(&question(&events))).is_ok());
    let mut too_late = Sim::replay(&sim.log);
    too_late.now = Timestamp::from_millis(expires);
    let refusal = too_late.submit(yes(&question(&events))).unwrap_err();
    insta::assert_snapshot!(refusal.message(), @"Not approved: the question has expired.");
    assert_eq!(sim.tick_at_ms(expires - 1), []);
    sim.tick_at_ms(expires);
    insta::assert_snapshot!(sim.ended(granted(&events)[0]), @r"
    refused APPROVAL_DENIED: Not approved: nobody answered within 15 minutes.
    => Run it in a terminal and approve it, or add --yes.
    ");
    sim.check_over();
}

#[test]
fn a_question_goes_with_those_it_is_about() {
    let mut sim = asking(&[]);
    let root = sim.root();
    let events = sim.ask(root, ["a", "b"].map(about).into(), None).unwrap();
    sim.cancel(granted(&events)[0]);
    assert!(sim.tree.next_deadline().is_some());
    sim.cancel(granted(&events)[1]);
    assert_eq!(sim.tree.next_deadline(), None);
    assert!(sim.submit(yes(&question(&events))).is_err());
    sim.check_over();
}

#[test]
fn a_yes_starts_only_those_who_still_wait() {
    let mut sim = asking(&[]);
    let root = sim.root();
    let events = sim.ask(root, ["a", "b"].map(about).into(), None).unwrap();
    sim.cancel(granted(&events)[0]);
    sim.submit(yes(&question(&events))).unwrap();
    assert_eq!(*sim.state(granted(&events)[1]), State::Running);
    assert_eq!(sim.end(granted(&events)[0]).0, Outcome::Cancelled);
    sim.say(granted(&events)[1], "done");
    sim.check_over();
}

#[test]
fn a_parent_and_its_question_that_run_out_together_end_their_children_once() {
    let mut sim = asking(&["max_depth=2", "stall_s=none"]);
    let root = sim.root();
    let wish = Brief { timeout_wish: Some(APPROVAL_EXPIRES_S), ..about("p") };
    let events = sim.ask(root, vec![wish], None).unwrap();
    sim.submit(yes(&question(&events))).unwrap();
    let parent = granted(&events)[0];
    let child = granted(&sim.ask(parent, vec![about("c")], None).unwrap())[0];
    sim.tick_at(APPROVAL_EXPIRES_S);
    assert_eq!(sim.code(child), Some(Code::ApprovalDenied));
    assert_eq!(sim.code(parent), Some(Code::Timeout));
    sim.check_over();
}

#[test]
fn who_still_waits_for_a_yes_delegates_nothing() {
    let mut sim = asking(&["max_depth=2"]);
    let root = sim.root();
    let events = sim.ask(root, vec![about("p")], None).unwrap();
    let waiting = granted(&events)[0];
    let refusal = sim.ask(waiting, vec![about("c")], None).unwrap_err();
    assert_eq!(refusal.code(), Code::UnknownParent);
    assert_eq!(sim.tree.judge_one(sim.now, waiting, &about("c")).unwrap_err(), refusal);
    assert_eq!(sim.submit(Command::TakeTurn { session: waiting }), Ok(vec![]));
}

// ---- The queue ----

#[test]
fn places_are_given_first_come_first_served() {
    let mut sim = Sim::new(scout(&["concurrency=2"]));
    let children = sim.children(["a", "b", "c", "d", "e"].map(about).into());
    let running = |sim: &Sim| -> Vec<usize> {
        (0..5).filter(|n| *sim.state(children[*n]) == State::Running).collect()
    };
    assert_eq!(running(&sim), [0, 1]);
    sim.say(children[1], "done");
    assert_eq!(running(&sim), [0, 2]);
    // Whoever is cancelled while waiting is passed over.
    sim.cancel(children[3]);
    assert_eq!(running(&sim), [0, 2]);
    sim.say(children[0], "done");
    assert_eq!(running(&sim), [2, 4]);
    sim.say(children[2], "done");
    sim.say(children[4], "done");
    assert_eq!(sim.tree.outcome(), Some(Outcome::Partial));
    sim.check_over();
}

#[test]
fn a_later_call_waits_behind_an_earlier_one() {
    let mut sim = Sim::new(scout(&["concurrency=1"]));
    let first = sim.children(["a", "b"].map(about).into());
    let second = sim.child(about("c"));
    sim.say(first[0], "done");
    assert_eq!((sim.state(first[1]), sim.state(second)), (&State::Running, &State::Queued));
    sim.say(first[1], "done");
    assert_eq!(*sim.state(second), State::Running);
}

// ---- How a run ends ----

#[test]
fn a_run_ends_as_all_its_parts_did_or_partial() {
    use Outcome::{Blocked, Cancelled, Completed, Failed, Partial, Refused};
    for (parts, whole) in [
        (vec![], Failed),
        (vec![Completed], Completed),
        (vec![Completed, Completed], Completed),
        (vec![Failed, Failed], Failed),
        (vec![Refused, Refused], Refused),
        (vec![Blocked], Blocked),
        (vec![Cancelled, Cancelled], Cancelled),
        (vec![Completed, Partial], Partial),
        (vec![Completed, Failed], Partial),
        (vec![Completed, Refused], Partial),
        (vec![Failed, Cancelled], Partial),
    ] {
        assert_eq!(Outcome::of_all(parts.clone()), whole, "{parts:?}");
    }
    for (outcome, result, status) in [
        (Completed, "ok", "completed"),
        (Partial, "partial", "partial"),
        (Failed, "error", "failed"),
        (Blocked, "error", "blocked"),
        (Cancelled, "partial", "partial"),
        (Refused, "error", "failed"),
    ] {
        assert_eq!((outcome.result_word(), outcome.return_status()), (result, status));
    }
}

#[test]
fn a_refusal_counts_towards_the_end_of_the_run() {
    // A depth the policy does not have: nothing starts, and the run is refused.
    let mut sim = Sim::of(scout(&[]), "lead", "do it");
    let root = sim.root();
    let events = sim.ask(root, vec![brief("x", "lead", "do it")], None).unwrap();
    assert_eq!(kinds(&events), "refused ended run_ended");
    assert_eq!(sim.tree.outcome(), Some(Outcome::Refused));
    let mut sim = Sim::of(scout(&[]), "lead", "do it");
    let events = sim.ask(root, vec![brief("x", "lead", "do it"), about("y")], None).unwrap();
    assert!(sim.tree.outcome().is_none());
    sim.say(granted(&events)[0], "done");
    assert_eq!(sim.tree.outcome(), Some(Outcome::Partial));
}

#[test]
fn a_run_that_met_a_limit_made_no_call_or_met_an_error_is_never_completed() {
    // DESIGN §5, States. Each child does its best to look completed.
    type Ending = fn() -> (Sim, SessionId);
    let ends: [(&str, Ending); 7] = [
        ("the window", || {
            let (mut sim, child) = begun(&["max_output_tokens=1000"], small(1_300));
            sim.say(child, "All done!");
            (sim, child)
        }),
        ("the budget", || {
            let (mut sim, child) =
                begun(&["max_output_tokens=1000", "budget_tokens=1300"], small(90_000));
            sim.say(child, "All done!");
            (sim, child)
        }),
        ("no call at all", || begun(&[], small(150))),
        ("an API error", || {
            let (mut sim, child) = one(&[]);
            sim.reply(child, Reply { text: "All done!".into(), ..asks(vec![read("1", "a")]) });
            sim.output(child, 0, "text");
            sim.fail(child, error(ErrorKind::BadRequest));
            (sim, child)
        }),
        ("a cut answer", || {
            let (mut sim, child) = one(&[]);
            sim.reply(child, cut_off("All done!"));
            sim.reply(child, cut_off("All done!"));
            (sim, child)
        }),
        ("a loop", || {
            let (mut sim, child) = one(&[]);
            sim.call(child, (0..8).map(|n| read(&n.to_string(), "a")).collect());
            (sim, child)
        }),
        ("the clock", || {
            let (mut sim, child) = one(&[]);
            sim.tick_at(600);
            (sim, child)
        }),
    ];
    for (what, end) in ends {
        let (sim, child) = end();
        assert_ne!(sim.end(child).0, Outcome::Completed, "{what}");
        assert_ne!(sim.tree.outcome(), Some(Outcome::Completed), "{what}");
        assert!(sim.end(child).1.is_some(), "{what} has no reason");
        sim.check_over();
    }
    // A standard return that claims to be complete does not help either.
    let mut policy = scout(&["max_output_tokens=1000", "budget_tokens=1300"]);
    policy.contract = ContractKind::Standard;
    let mut sim = Sim::new(policy);
    let child = sim.child(small(90_000));
    returns(&mut sim, child, &returned("completed", json!([])), &[]);
    assert_eq!(sim.code(child), Some(Code::BudgetExceeded));
}

#[test]
fn a_run_ends_only_when_nobody_is_left() {
    let mut sim = Sim::new(scout(&[]));
    let children = sim.children(["a", "b"].map(about).into());
    sim.say(children[0], "done");
    assert_eq!(sim.submit(Command::EndRun), Ok(vec![]));
    sim.say(children[1], "done");
    assert_eq!(sim.submit(Command::EndRun), Ok(vec![]), "it ended already");
    sim.check_over();
}

// ---- What the model reads ----

#[test]
fn a_conversation_shows_calls_with_their_results_in_order_and_hides_what_was_not_run() {
    let (mut sim, child) = one(&[]);
    sim.call(child, vec![read("1", "a"), tool("2", "Dance", json!({})), read("3", "b")]);
    sim.output(child, 2, "third");
    sim.output(child, 0, "first");
    sim.reply(child, cut_off("too lo"));
    sim.say(child, "short");
    let mut conversation = Conversation::default();
    for (_, event) in sim.log.iter().filter(|(_, event)| event.session() == Some(child)) {
        conversation.apply(event);
    }
    let lines: Vec<String> = conversation
        .messages()
        .iter()
        .map(|message| match message {
            Message::User { content } => format!("user: {content}"),
            Message::Assistant { content, tool_calls } => {
                let calls: Vec<&str> = tool_calls.iter().map(|call| call.id.as_str()).collect();
                format!("assistant: {content} {calls:?}")
            }
            Message::Tool { tool_call_id, content, is_error } => {
                format!("tool {tool_call_id}{}: {content}", if *is_error { " failed" } else { "" })
            }
        })
        .collect();
    insta::assert_snapshot!(lines.join("\n"), @r#"
    user: look at x
    assistant:  ["1", "2", "3"]
    tool 1: first
    tool 2 failed: Not run: `Dance` is not available to you. Available: Glob, Grep, Note, Read.
    tool 3: third
    assistant: too lo []
    user: Your answer was cut off at the output limit. Say it again, shorter, in one message.
    assistant: short []
    "#);
    assert_eq!(conversation.last_text(), Some("short"));
}

// ---- Facts that do not fit ----

#[test]
fn a_fact_that_does_not_fit_is_refused_and_named() {
    let (mut sim, child) = one(&["concurrency=1"]);
    let queued = sim.child(about("y"));
    let last = sim.child(about("z"));
    let nobody = SessionId::new(1_600_000_000, [9; 6]);
    let started = |session| Event::Started {
        session,
        deadline: None,
        bound: adjutant_core::refusal::TimeBound::Own,
    };
    let ended = |session| Event::Ended { session, outcome: Outcome::Completed, reason: None };
    let settlement = Settlement { usage: used(1, 1).unwrap(), usd: Usd::ZERO, estimated: false };
    let settled = |session| Event::Settled { session, turn: 1, attempt: 1, settlement };
    let returned =
        |session, call| Event::ToolReturned { session, call, output: ToolOutput::default() };
    sim.call(child, vec![read("1", "a")]);
    let again = sim.log[0].1.clone();
    let granted_again =
        sim.log.iter().find(|(_, event)| matches!(event, Event::Granted(_))).unwrap().1.clone();
    let lines: Vec<String> = [
        again,
        granted_again,
        started(nobody),
        started(sim.root()),
        started(last),
        ended(nobody),
        settled(child),
        settled(queued),
        returned(child, 7),
        Event::Approved { hash: "00".into(), parent: sim.root() },
        Event::Denied { hash: "00".into(), reason: String::new() },
    ]
    .iter()
    .map(|event| sim.tree.clone().evolve(sim.now, event).unwrap_err().to_string())
    .collect();
    insta::assert_snapshot!(lines.join("\n"), @r"
    run_started does not fit: the run had begun already
    granted does not fit: sess_1700000001_bbbbbb exists already
    started does not fit: sess_1600000000_jjjjjj is unknown
    started does not fit: the root runs already
    started does not fit: sess_1700000003_bbbbbb was not next in the queue
    ended does not fit: sess_1600000000_jjjjjj is unknown
    settled does not fit: no call is under way
    settled does not fit: sess_1700000002_bbbbbb is queued
    tool result does not fit: call 7 is not open
    approved does not fit: no such question is open
    denied does not fit: no such question is open
    ");
    // Bytes of a call that is over start no clock.
    let mut tree = sim.tree.clone();
    tree.evolve(sim.now, &Event::Progressed { session: child, bytes: 1 }).unwrap();
    assert_eq!(tree.next_deadline(), None);
    tree.evolve(sim.now, &ended(child)).unwrap();
    assert!(tree.evolve(sim.now, &ended(child)).is_err(), "one end is enough");
}

#[test]
fn everything_but_progress_must_be_on_disk_before_it_has_effects() {
    let (mut sim, child) = one(&[]);
    sim.submit(Command::Progress { session: child, bytes: 9 }).unwrap();
    sim.say(child, "done");
    for (_, event) in &sim.log {
        let is_progress = matches!(event, Event::Progressed { .. });
        assert_eq!(event.must_be_durable(), !is_progress, "{event:?}");
    }
}
