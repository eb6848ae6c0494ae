//! External workers: which tasks they may take, which model calls are admitted, and when their answer counts.

use adjutant_core::worker::FAILED_CALLS_IN_A_ROW;
use adjutant_core::{
    CallRefusal, ResumeOptions, Rights, WorkerAction, WorkerCallEnd, WorkerCallRequest,
    WorkerPlace, WorkerSessionStart, WorkerTerms, WorkerToolStatus, WorkerUsageReport,
};

use super::*;
use crate::worker_calls::{
    WORKER_TOOLS, admit, begin_call, define, failed, request, settle, terms, writing,
};

/// Returns a run with the worker `codex`, which has its first prompt.
fn working(settings: &[&str], task: Brief) -> (Sim, SessionId) {
    let mut sim = Sim::new(writing(settings));
    define(&mut sim, "codex", &WORKER_TOOLS, Some(terms("codex")));
    let child = sim.child(task);
    (sim, child)
}

fn task() -> Brief {
    Brief { estimate_tokens: Some(0), ..brief("x", "codex", "fix it") }
}

/// Answers the prompt; what the worker says is always the same.
fn answer(sim: &mut Sim, child: SessionId) -> String {
    sim.reply(child, ModelReply { usage: None, ..says("Done.") });
    sim.ended(child)
}

/// Plays the steps of one turn and returns how the worker ended.
///
/// `begin` makes a call, `complete 1` and the other ends settle it, and the other words are requests that are refused.
fn ending(steps: &[&str]) -> String {
    let (mut sim, child) = working(&["max_output_tokens=1000"], task());
    for step in steps {
        let (verb, number) = step.split_once(' ').unwrap_or((step, "0"));
        let call = number.parse().unwrap();
        let refused = |request| (request, "worker_call_refused");
        let (request, expected) = match verb {
            "begin" => (request(), "worker_call_reserved"),
            "other-model" => refused(WorkerCallRequest { model: "acme/huge".into(), ..request() }),
            "web-search" => refused(WorkerCallRequest {
                problem: Some("web search is not available".into()),
                ..request()
            }),
            "too-dear" => refused(WorkerCallRequest { input_bound: 50_000_000, ..request() }),
            end => {
                let end = match end {
                    "complete" => WorkerCallEnd::Complete,
                    "cut" => WorkerCallEnd::Cut,
                    "fail" => failed(),
                    "abandon" => WorkerCallEnd::Abandoned,
                    other => panic!("{other}"),
                };
                settle(&mut sim, child, call, end, used(100, 10));
                continue;
            }
        };
        assert_eq!(kinds(&admit(&mut sim, child, request)), expected, "{step}");
    }
    let end = answer(&mut sim, child);
    sim.check_over();
    end
}

#[test]
fn the_model_calls_of_a_turn_decide_whether_its_answer_counts() {
    let cases: [&[&str]; 14] = [
        &["begin", "complete 1"],
        &["begin", "complete 1", "other-model"],
        &["begin", "complete 1", "too-dear"],
        &["too-dear", "begin", "complete 1"],
        &["begin", "complete 1", "web-search"],
        &["web-search", "begin", "complete 1"],
        &["begin", "cut 1"],
        &["begin", "complete 1", "begin", "fail 2"],
        &["begin", "fail 1", "begin", "complete 2"],
        // The second call ran when the first one failed, so it proves nothing.
        &["begin", "begin", "fail 1", "complete 2"],
        &["begin", "begin", "fail 1", "complete 2", "begin", "complete 3"],
        &["begin", "abandon 1"],
        &["begin", "complete 1", "begin", "abandon 2"],
        &[],
    ];
    let shown = cases.map(|steps| {
        let end = ending(steps);
        format!("{}\n  {}", steps.join(", "), end.replace('\n', "\n  "))
    });
    insta::assert_snapshot!(shown.join("\n"), @"
    begin, complete 1
      completed
    begin, complete 1, other-model
      completed
    begin, complete 1, too-dear
      partial BUDGET_EXCEEDED: The budget was exhausted after 110 tokens.
      => Split the task, or go on with a larger budget: `adjutant resume sess_1700000001_bbbbbb --set budget_tokens=100000310 --budget-tokens 100000310`.
    too-dear, begin, complete 1
      partial BUDGET_EXCEEDED: The budget was exhausted after 110 tokens.
      => Split the task, or go on with a larger budget: `adjutant resume sess_1700000001_bbbbbb --set budget_tokens=100000310 --budget-tokens 100000310`.
    begin, complete 1, web-search
      partial TOOL_UNAVAILABLE: The last model call of the worker was refused: web search is not available.
      => Switch off what the worker asked for in its own settings, or change the task.
    web-search, begin, complete 1
      completed
    begin, cut 1
      partial BUDGET_EXCEEDED: The last answer was cut off at 1,000 output tokens.
      => Ask for less at once, or start the run again with a larger max_output_tokens.
    begin, complete 1, begin, fail 2
      failed PROVIDER_ERROR: The last model call of the worker failed: HTTP 500.
      => Try again later, or use another model.
    begin, fail 1, begin, complete 2
      completed
    begin, begin, fail 1, complete 2
      failed PROVIDER_ERROR: The last model call of the worker failed: HTTP 500.
      => Try again later, or use another model.
    begin, begin, fail 1, complete 2, begin, complete 3
      completed
    begin, abandon 1
      failed TOOL_UNAVAILABLE: The worker ended its turn without an answer from its model.
      => `adjutant log` shows what it did; `adjutant workers` says what each worker needs.
    begin, complete 1, begin, abandon 2
      completed

      failed TOOL_UNAVAILABLE: The worker ended its turn without an answer from its model.
      => `adjutant log` shows what it did; `adjutant workers` says what each worker needs.
    ");
}

#[test]
fn a_worker_that_fails_after_it_has_said_something_is_partial() {
    let (mut sim, child) = working(&[], task());
    let action = WorkerAction::Said { text: "I found it.".into() };
    sim.submit(Command::TakeWorkerAction { session: child, action }).unwrap();
    let call = begin_call(&mut sim, child);
    settle(&mut sim, child, call, failed(), None);
    answer(&mut sim, child);
    assert_eq!(sim.end(child).0, Outcome::Partial);
}

#[test]
fn refused_or_failed_calls_in_a_row_end_the_worker() {
    let refusals = [
        ("model", WorkerCallRequest { model: "acme/huge".into(), ..request() }),
        ("request", WorkerCallRequest { problem: Some("batch".into()), ..request() }),
        ("budget", WorkerCallRequest { input_bound: 50_000_000, ..request() }),
    ];
    let mut ends = Vec::new();
    for (name, refused) in refusals {
        let (mut sim, child) = working(&["budget_tokens=9000"], task());
        for _ in 1..FAILED_CALLS_IN_A_ROW {
            admit(&mut sim, child, refused.clone());
        }
        assert!(sim.node(child).is_live(), "{name}");
        admit(&mut sim, child, refused.clone());
        ends.push(format!("{name}: {}", sim.ended(child)));
        sim.check_over();
    }
    let (mut sim, child) = working(&[], task());
    // It runs when the worker is ended, and is settled with it.
    begin_call(&mut sim, child);
    for _ in 0..FAILED_CALLS_IN_A_ROW {
        let call = begin_call(&mut sim, child);
        settle(&mut sim, child, call, failed(), used(1, 1));
    }
    ends.push(format!("failed: {}", sim.ended(child)));
    sim.check_over();
    insta::assert_snapshot!(ends.join("\n"), @"
    model: partial PROVIDER_ERROR: 20 model calls of the worker in a row were refused or failed; the last one: model acme/huge is not allowed here.
    => `adjutant log` lists the calls; correct what the last one names, then resume.
    request: partial PROVIDER_ERROR: 20 model calls of the worker in a row were refused or failed; the last one: batch.
    => `adjutant log` lists the calls; correct what the last one names, then resume.
    budget: partial BUDGET_EXCEEDED: The next call does not fit into the budget: it needs at least 50,000,100 tokens.
    => Split the task, or go on with a larger budget: `adjutant resume sess_1700000001_bbbbbb --set budget_tokens=100000200 --budget-tokens 100000200`.
    failed: partial PROVIDER_ERROR: 20 model calls of the worker in a row were refused or failed; the last one: HTTP 500.
    => `adjutant log` lists the calls; correct what the last one names, then resume.
    ");
}

#[test]
fn a_successful_call_starts_the_count_of_failures_again() {
    let (mut sim, child) = working(&[], task());
    for _ in 0..3 {
        for _ in 1..FAILED_CALLS_IN_A_ROW {
            let call = begin_call(&mut sim, child);
            settle(&mut sim, child, call, failed(), used(1, 1));
        }
        let call = begin_call(&mut sim, child);
        settle(&mut sim, child, call, WorkerCallEnd::Complete, used(1, 1));
    }
    assert_eq!(answer(&mut sim, child), "completed");
}

#[test]
fn the_turns_of_a_definition_are_model_calls_of_its_worker() {
    let limited = Brief { max_turns: Some(2), ..task() };
    let (mut sim, child) = working(&[], limited.clone());
    for _ in 0..2 {
        let call = begin_call(&mut sim, child);
        settle(&mut sim, child, call, WorkerCallEnd::Complete, used(1, 1));
    }
    // It has used what it may, and nothing was refused.
    assert_eq!(answer(&mut sim, child), "completed");
    let (mut sim, child) = working(&[], limited);
    for _ in 0..2 {
        let call = begin_call(&mut sim, child);
        settle(&mut sim, child, call, WorkerCallEnd::Complete, used(1, 1));
    }
    let events = admit(&mut sim, child, request());
    let refused = |event: &Event| match event {
        Event::WorkerCallRefused { refusal, .. } => Some(refusal.to_string()),
        _ => None,
    };
    insta::assert_snapshot!(events.iter().find_map(refused).unwrap(), @"all 2 model calls that the agent's definition allows were made");
    insta::assert_snapshot!(answer(&mut sim, child), @"
    partial BUDGET_EXCEEDED: The definition of the agent allows 2 model calls, and all were made.
    => Split the task, or allow the agent more turns in its file.
    ");
    // A budget that is gone is not reported as a limit on turns.
    let (mut sim, child) = working(&["budget_tokens=3000"], Brief { max_turns: Some(1), ..task() });
    admit(&mut sim, child, WorkerCallRequest { input_bound: 9_999, ..request() });
    insta::assert_snapshot!(answer(&mut sim, child), @"
    partial BUDGET_EXCEEDED: The next call does not fit into the budget: it needs at least 10,099 tokens.
    => Split the task, or go on with a larger budget: `adjutant resume sess_1700000001_bbbbbb --set budget_tokens=20198`.
    ");
}

#[test]
fn a_worker_without_calls_left_gets_no_further_prompt() {
    let mut sim = Sim::new(writing(&["contract=standard"]));
    define(&mut sim, "codex", &WORKER_TOOLS, Some(terms("codex")));
    let child = sim.child(Brief { max_turns: Some(1), ..task() });
    let call = begin_call(&mut sim, child);
    settle(&mut sim, child, call, WorkerCallEnd::Complete, used(1, 1));
    sim.reply(child, ModelReply { usage: None, ..says("Not the format.") });
    let (text, artifacts) = ("Not the format.".to_owned(), Vec::new());
    let judged = Command::Conclude { session: child, call: None, text, artifacts, changed: None };
    sim.submit(judged).unwrap();
    insta::assert_snapshot!(sim.ended(child), @"
    partial BUDGET_EXCEEDED: The definition of the agent allows 1 model call, and all were made.
    => Split the task, or allow the agent more turns in its file.
    ");
    sim.check_over();
}

#[test]
fn a_task_that_cannot_be_bound_to_its_rights_is_refused() {
    let refusal = |settings: &[&str], tools: &[&str], terms: WorkerTerms| {
        let mut sim = Sim::new(writing(settings));
        define(&mut sim, "codex", tools, Some(terms));
        let root = sim.root();
        let events = sim.ask(root, vec![task()], None).unwrap();
        let reason = |event: &Event| match event {
            Event::Refused { reason, .. } => {
                Some(format!("{}: {}\n=> {}", reason.code, reason.message, reason.recommendation))
            }
            _ => None,
        };
        events.iter().find_map(reason).unwrap_or_else(|| "granted".to_owned())
    };
    let broken =
        WorkerTerms { problem: Some("codex 0.1 is older than 0.50".into()), ..terms("codex") };
    let elsewhere = WorkerTerms { place: WorkerPlace::Terminal, ..terms("codex") };
    let lines = [
        refusal(&[], &WORKER_TOOLS, terms("codex")),
        refusal(&[], &["Edit", "Write", "Read"], terms("codex")),
        refusal(&[], &["Run"], terms("codex")),
        refusal(&["workspace=shared"], &WORKER_TOOLS, terms("codex")),
        refusal(&[], &WORKER_TOOLS, broken),
        refusal(&["workspace=shared"], &["Read"], elsewhere),
    ];
    insta::assert_snapshot!(lines.join("\n"), @"
    granted
    TOOL_UNAVAILABLE: Worker codex: `codex` may not use Run, and this worker cannot be kept from it; leave `worker` out, or allow Edit, Write and Run.
    => `adjutant workers` says which workers there are and what each needs.
    TOOL_UNAVAILABLE: Worker codex: `codex` may not use Edit, and this worker cannot be kept from it; leave `worker` out, or allow Edit, Write and Run.
    => `adjutant workers` says which workers there are and what each needs.
    TOOL_UNAVAILABLE: Worker codex: it works only in a workspace of its own, and this run gives agents none.
    => `adjutant workers` says which workers there are and what each needs.
    TOOL_UNAVAILABLE: Worker codex: codex 0.1 is older than 0.50.
    => `adjutant workers` says which workers there are and what each needs.
    granted
    ");
}

#[test]
fn a_call_without_an_open_prompt_gets_no_event() {
    let mut sim = Sim::new(writing(&[]));
    define(&mut sim, "codex", &WORKER_TOOLS, Some(terms("codex")));
    define(&mut sim, "own", &WORKER_TOOLS, None);
    sim.spaces_at_once = false;
    let waiting = sim.child(task());
    assert_eq!(admit(&mut sim, waiting, request()), [], "its workspace is not made");
    let own = sim.child(brief("y", "own", "y"));
    assert_eq!(admit(&mut sim, own, request()), [], "it has no worker");
    let unknown = SessionId::new(1_700_000_000, [9; 6]);
    assert_eq!(admit(&mut sim, unknown, request()), []);
    sim.cancel(waiting);
    assert_eq!(admit(&mut sim, waiting, request()), [], "it has ended");
    let said = WorkerAction::Said { text: "late".into() };
    let late = Command::TakeWorkerAction { session: waiting, action: said };
    assert_eq!(sim.submit(late).unwrap(), []);
    let end = WorkerCallEnd::Complete;
    let settle =
        Command::SettleCall { session: waiting, call: 1, end, usage: None, never_began: false };
    is_late(&mut sim, settle);
}

#[test]
fn a_call_gets_the_output_that_request_model_policy_and_budget_allow() {
    let asked = |settings: &[&str], request: WorkerCallRequest| {
        let (mut sim, child) = working(settings, task());
        match &admit(&mut sim, child, request)[..] {
            [Event::WorkerCallReserved { model, max_output, amount, .. }] => {
                format!("{model} {max_output} of {} {}", amount.tokens, amount.usd)
            }
            [Event::WorkerCallRefused { refusal, .. }] => refusal.to_string(),
            other => panic!("{other:?}"),
        }
    };
    let small =
        |output| WorkerCallRequest { model: "small".into(), requested_output: output, ..request() };
    let lines = [
        asked(&[], request()),
        asked(&[], WorkerCallRequest { requested_output: Some(50), ..request() }),
        asked(&["max_output_tokens=90000"], request()),
        asked(&["budget_tokens=1500"], request()),
        asked(&["budget_tokens_run=1100"], request()),
        asked(&["budget_tokens_run=1099"], request()),
        asked(&[], small(None)),
        asked(&["budget_usd=0.01"], small(None)),
        asked(&["budget_usd=0.004"], small(Some(500))),
        // A model without a price is not bounded by money.
        asked(&["budget_usd=0.004"], request()),
    ];
    insta::assert_snapshot!(lines.join("\n"), @"
    script:test 8192 of 9192 $0.00
    script:test 50 of 1050 $0.00
    script:test 8192 of 9192 $0.00
    script:test 500 of 1500 $0.00
    script:test 100 of 1100 $0.00
    budget exhausted
    acme/small 8192 of 9192 $0.1266
    acme/small 416 of 1416 $0.0100
    budget exhausted
    script:test 8192 of 9192 $0.00
    ");
}

#[test]
fn calls_that_run_at_the_same_time_share_what_is_left() {
    let (mut sim, child) = working(&["budget_tokens=6000", "max_output_tokens=2000"], task());
    let outputs: Vec<String> = (0..3)
        .map(|_| match &admit(&mut sim, child, request())[..] {
            [Event::WorkerCallReserved { max_output, .. }] => max_output.to_string(),
            [Event::WorkerCallRefused { refusal, .. }] => refusal.to_string(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(outputs, ["2000", "2000", "budget exhausted"]);
    settle(&mut sim, child, 2, WorkerCallEnd::Complete, used(100, 10));
    assert_eq!(begin_call(&mut sim, child), 3);
    assert!(sim.node(sim.root()).ledger.is_within_cap());
}

#[test]
fn a_call_is_settled_by_usage_or_at_its_full_reservation() {
    let settled = |end: WorkerCallEnd, usage, never_began| {
        let (mut sim, child) = working(&["max_output_tokens=500"], task());
        let call = begin_call(&mut sim, child);
        let settle = Command::SettleCall { session: child, call, end, usage, never_began };
        let events = sim.submit(settle).unwrap();
        (kinds(&events), sim.node(child).ledger.settled.tokens)
    };
    let one = "worker_call_settled".to_owned();
    assert_eq!(settled(WorkerCallEnd::Complete, used(100, 10), false), (one.clone(), 110));
    assert_eq!(settled(WorkerCallEnd::Complete, None, false), (one.clone(), 1_500));
    assert_eq!(settled(failed(), None, true), (one.clone(), 0));
    assert_eq!(settled(failed(), used(7, 1), true), (one, 8), "the provider knows better");
    let over = ("worker_call_settled overran".to_owned(), 2_000);
    assert_eq!(settled(WorkerCallEnd::Complete, used(1_400, 600), false), over);
}

#[test]
fn an_answer_settles_the_calls_that_still_run() {
    let (mut sim, child) = working(&["max_output_tokens=500"], task());
    let call = begin_call(&mut sim, child);
    settle(&mut sim, child, call, WorkerCallEnd::Complete, used(1, 1));
    begin_call(&mut sim, child);
    let events = sim.reply(child, ModelReply { usage: None, ..says("Done.") });
    assert!(kinds(&events).starts_with("worker_call_settled replied"), "{}", kinds(&events));
    assert_eq!(sim.node(child).ledger.settled.tokens, 2 + 1_500);
    assert_eq!(sim.end(child).0, Outcome::Completed);
    // So do a prompt that fails and a worker that is cancelled.
    for end in [
        |sim: &mut Sim, child| sim.fail(child, error(ModelErrorKind::WorkerFailed)),
        |sim: &mut Sim, child| sim.fail(child, error(ModelErrorKind::ContextExhausted)),
        |sim: &mut Sim, child| sim.cancel(child),
    ] {
        let (mut sim, child) = working(&["max_output_tokens=500"], task());
        begin_call(&mut sim, child);
        begin_call(&mut sim, child);
        end(&mut sim, child);
        assert_eq!(sim.node(child).ledger.settled.tokens, 2 * 1_500);
        sim.check_over();
    }
}

#[test]
fn a_resume_settles_the_open_calls_and_prompts_the_worker_again() {
    let (mut sim, child) = working(&["max_output_tokens=500"], task());
    let opened = |start| Command::TakeWorkerSession { session: child, id: "abc".into(), start };
    sim.submit(opened(WorkerSessionStart::New)).unwrap();
    begin_call(&mut sim, child);
    begin_call(&mut sim, child);
    let rights = Rights::of(&writing(&[]));
    let events = sim.restart(ResumeOptions { rights, ..ResumeOptions::default() });
    let ends: Vec<&WorkerCallEnd> = events
        .iter()
        .filter_map(|event| match event {
            Event::WorkerCallSettled { end, settlement, .. } => {
                assert!(settlement.estimated);
                Some(end)
            }
            _ => None,
        })
        .collect();
    assert_eq!(ends, [&WorkerCallEnd::Abandoned; 2]);
    assert_eq!(sim.node(child).ledger.settled.tokens, 3_000);
    let prompt = Effect::Prompt { session: child, turn: 1, attempt: 2 };
    assert_eq!(sim.effects.last(), Some(&prompt));
    assert_eq!(sim.node(child).worker_session(), Some("abc"));
    assert_eq!(begin_call(&mut sim, child), 3, "numbers go on");
}

#[test]
fn a_worker_that_acts_does_not_stall() {
    let (mut sim, child) = working(&["stall_s=60"], task());
    let act = |sim: &mut Sim| {
        let (id, title) = ("1".to_owned(), "cargo test".to_owned());
        let action = WorkerAction::Tool { id, title, status: WorkerToolStatus::Begun };
        sim.submit(Command::TakeWorkerAction { session: child, action }).unwrap();
    };
    for minute in 1..5 {
        sim.tick_at(minute * 50);
        act(&mut sim);
    }
    assert!(sim.node(child).is_live());
    sim.tick_at(300);
    assert_eq!(sim.code(child), Some(ErrorCode::Stalled));
    assert_eq!(sim.end(child).0, Outcome::Partial);
}

#[test]
fn what_was_silent_is_named() {
    let stalled = |has_call: bool| {
        let (mut sim, child) = working(&["stall_s=60"], task());
        if has_call {
            admit(&mut sim, child, request());
        }
        sim.tick_at(61);
        sim.ended(child)
    };
    insta::assert_snapshot!(stalled(false), @"
    partial STALLED: The worker codex was silent for 60 s: no message and no model call.
    => `adjutant log` shows what it did last; resume it, with a larger stall_s if its commands are slow.
    ");
    insta::assert_snapshot!(stalled(true), @"
    partial STALLED: The worker codex waits for its model, which sent no byte for 60 s.
    => `adjutant log` shows what it did last; resume it, with a larger stall_s if its commands are slow.
    ");
}

#[test]
fn what_workers_wrote_expires() {
    let session = SessionId::new(1_700_000_000, [1; 6]);
    let secret = "the secret";
    let said = |action| Event::WorkerActed { session, action };
    let zero = Settlement::never_began();
    let message = secret.to_owned();
    let events = [
        said(WorkerAction::Said { text: secret.into() }),
        said(WorkerAction::Permission { title: secret.into(), allowed: true }),
        said(WorkerAction::Tool {
            id: "1".into(),
            title: secret.into(),
            status: WorkerToolStatus::Failed,
        }),
        Event::WorkerCallSettled {
            session,
            call: 1,
            settlement: zero,
            end: WorkerCallEnd::Failed { message },
        },
        Event::WorkerCallRefused {
            session,
            refusal: CallRefusal::Request { problem: secret.into() },
            needed: None,
        },
    ];
    for event in events {
        let bare = event.without_content();
        let text = serde_json::to_string(&bare).unwrap();
        assert!(!text.contains(secret), "{text}");
        assert_eq!(serde_json::from_str::<Event>(&text).unwrap(), bare);
        assert_eq!(bare.session(), Some(session));
    }
    let report = WorkerUsageReport { tokens: Some(7), usd: Some(Usd::from_pico(5)) };
    let kept = Event::WorkerReported { session, report };
    assert_eq!(kept.without_content(), kept);
}

#[test]
fn the_events_of_workers_read_back_as_they_were_written() {
    let session = SessionId::new(1_700_000_000, [1; 6]);
    let report = WorkerUsageReport { tokens: Some(7), usd: None };
    let needed = Some(BudgetAmount { tokens: 1_100, usd: Usd::ZERO });
    let events = [
        Event::WorkerCallReserved {
            session,
            call: 1,
            model: "acme/small".into(),
            max_output: 5,
            amount: BudgetAmount { tokens: 9, usd: Usd::from_pico(3) },
            removed: vec!["web_search".into()],
        },
        Event::WorkerCallRefused { session, refusal: CallRefusal::Calls { max: 3 }, needed: None },
        Event::WorkerCallRefused { session, refusal: CallRefusal::Budget, needed },
        Event::WorkerSessionOpened { session, id: "abc".into(), start: WorkerSessionStart::Retold },
        Event::WorkerReported { session, report },
    ];
    let lines: Vec<String> = events
        .iter()
        .map(|event| {
            let text = serde_json::to_string(event).unwrap();
            assert_eq!(serde_json::from_str::<Event>(&text).unwrap(), *event);
            text
        })
        .collect();
    insta::assert_snapshot!(lines.join("\n"), @r#"
    {"type":"worker_call_reserved","session":"sess_1700000000_bbbbbb","call":1,"model":"acme/small","max_output":5,"amount":{"tokens":9,"usd":3e-12},"removed":["web_search"]}
    {"type":"worker_call_refused","session":"sess_1700000000_bbbbbb","why":"calls","max":3}
    {"type":"worker_call_refused","session":"sess_1700000000_bbbbbb","why":"budget","needed":{"tokens":1100,"usd":0.0}}
    {"type":"worker_session_opened","session":"sess_1700000000_bbbbbb","id":"abc","start":"retold"}
    {"type":"worker_reported","session":"sess_1700000000_bbbbbb","tokens":7}
    "#);
}
