//! External workers in every view: their model calls, what they do and say, and what they report themselves.

use adjutant_core::budget::{BudgetAmount, Reservation, Settlement};
use adjutant_core::{
    AgentName, CallRefusal, Event, Grant, ModelSpec, Outcome, Rights, SessionId, StopReason, Usage,
    Usd, WorkerAction, WorkerCallEnd, WorkerPlace, WorkerSessionStart, WorkerTerms,
    WorkerToolStatus, WorkerUsageReport,
};
use adjutant_view::results::{CallResults, ResultOptions};
use adjutant_view::status::{ContentRetention, ObservedRun, detail, list};
use adjutant_view::transcript::Transcript;
use adjutant_view::{Palette, ProcessLiveness, RunView, cost, log, progress, tree};

use crate::history::{HOSTILE, History, model, root, settled, tokens, wire_events};

/// Returns the terms of `codex`, which may call a second model that has no price.
fn terms() -> WorkerTerms {
    let free = ModelSpec { name: "acme/title".into(), price: None, ..model() };
    WorkerTerms {
        name: "codex".into(),
        place: WorkerPlace::Workspace,
        further_models: vec![free],
        problem: None,
    }
}

impl History {
    /// Delegates one task to the worker `codex` and gives it its first prompt.
    pub(crate) fn worker(&mut self, name: &str) -> SessionId {
        self.push(Event::AgentDefined {
            agent: AgentName::new("fixer"),
            system: String::new(),
            tools: vec![],
            rights: Rights::default(),
            max_turns: None,
            worker: Some(Box::new(terms())),
        });
        let mut grant = self.grant(root(), name, "Fix the test");
        grant.brief.agent = AgentName::new("fixer");
        let session = grant.session;
        self.push(Event::Granted(Box::new(Grant { call: 1, ..grant })));
        self.start(session);
        self.prompt(session, 1);
        session
    }

    fn prompt(&mut self, session: SessionId, turn: u32) {
        let amount = BudgetAmount::default();
        let reservation = Reservation { turn, attempt: 1, max_output: 0, amount, last_call: false };
        self.push(Event::Reserved { session, reservation });
    }

    pub(crate) fn open_call(&mut self, session: SessionId, call: u32, model: &str) {
        self.push(Event::WorkerCallReserved {
            session,
            call,
            model: model.into(),
            max_output: 1_000,
            amount: BudgetAmount { tokens: 9_000, usd: Usd::from_pico(45_000_000_000) },
            removed: vec!["web_search".into()],
        });
    }

    pub(crate) fn close_call(
        &mut self,
        session: SessionId,
        call: u32,
        end: WorkerCallEnd,
        settlement: Settlement,
    ) {
        self.push(Event::WorkerCallSettled { session, call, settlement, end });
    }

    pub(crate) fn act(&mut self, session: SessionId, action: WorkerAction) {
        self.push(Event::WorkerActed { session, action });
    }

    fn says(&mut self, session: SessionId, text: &str) {
        self.act(session, WorkerAction::Said { text: text.into() });
    }

    fn uses(&mut self, session: SessionId, id: &str, title: &str, status: WorkerToolStatus) {
        self.act(session, WorkerAction::Tool { id: id.into(), title: title.into(), status });
    }

    fn answers(&mut self, session: SessionId, text: &str) {
        let usage = Usage::default();
        self.push(Event::Replied {
            session,
            turn: 1,
            attempt: 1,
            text: text.into(),
            tool_calls: vec![],
            translations: vec![],
            stop: StopReason::EndTurn,
            opaque: None,
            settlement: Settlement { usage, usd: Usd::ZERO, estimated: true },
        });
    }
}

const fn unpriced(usage: Usage) -> Settlement {
    Settlement { usage, usd: Usd::ZERO, estimated: false }
}

/// A worker that has made calls of two models, one of them cut off by a crash and one refused, up to its answer.
pub(crate) fn fixed() -> (History, SessionId) {
    let mut h = History::new();
    let a = h.worker("fix");
    h.push(Event::WorkerSessionOpened {
        session: a,
        id: "th_1".into(),
        start: WorkerSessionStart::New,
    });
    h.open_call(a, 1, "acme/large");
    h.open_call(a, 2, "acme/title");
    h.close_call(a, 2, WorkerCallEnd::Complete, unpriced(tokens(300, 12)));
    h.wait(2_000);
    h.says(a, "I will run ");
    h.says(a, "the tests.\n");
    let cached = Usage { cache_read: 6_000, ..tokens(2_000, 400) };
    h.close_call(a, 1, WorkerCallEnd::Complete, settled(cached));
    h.uses(a, "t1", "shell", WorkerToolStatus::Begun);
    h.uses(a, "t1", "cargo test", WorkerToolStatus::Begun);
    h.wait(30_000);
    h.uses(a, "t1", "cargo test", WorkerToolStatus::Failed);
    h.act(a, WorkerAction::Permission { title: "curl example.org".into(), allowed: false });
    h.act(a, WorkerAction::Permission { title: "Edit src/lib.rs".into(), allowed: true });
    h.uses(a, "t2", "Edit src/lib.rs", WorkerToolStatus::Completed);
    let refusal = CallRefusal::Model { model: "gpt-9".into() };
    h.push(Event::WorkerCallRefused { session: a, refusal, needed: None });
    h.open_call(a, 3, "acme/large");
    let message = "HTTP 500".to_owned();
    h.close_call(a, 3, WorkerCallEnd::Failed { message }, Settlement::never_began());
    h.open_call(a, 4, "acme/large");
    h.wait(1_000);
    h.says(a, "The test passes now.");
    h.close_call(a, 4, WorkerCallEnd::Complete, settled(tokens(9_000, 600)));
    h.push(Event::Overran {
        session: a,
        amount: BudgetAmount { tokens: 600, usd: Usd::from_pico(1_000_000_000) },
    });
    let report =
        WorkerUsageReport { tokens: Some(18_000), usd: Some(Usd::from_pico(50_000_000_000)) };
    h.push(Event::WorkerReported { session: a, report });
    (h, a)
}

/// The same worker after its answer.
fn done() -> (History, SessionId) {
    let (mut h, a) = fixed();
    h.answers(a, "The test passes now.");
    h.end(a, Outcome::Completed, None);
    h.end_run(Outcome::Completed);
    (h, a)
}

fn look<'a>(view: &'a RunView, h: &History) -> ObservedRun<'a> {
    ObservedRun {
        view,
        liveness: ProcessLiveness::Alive,
        now: h.at(),
        content: ContentRetention::Kept,
        program: "adjutant",
    }
}

#[test]
fn status_and_tree_show_the_worker_and_its_model_calls() {
    let (h, a) = fixed();
    let view = h.view();
    insta::assert_snapshot!(detail(&look(&view, &h), Some(a), Palette::Plain), @"
    run_1738326896_aaaaaa → running
    goal    Review the tree
    in      work/tree
    preset  scout
    began   2025-01-31T12:34:56Z

    #1 [fix] → The test passes now.
      session  sess_1738326896_aaaaab
      agent    fixer (codex), acme/large, depth 1
      spent    in=17,300 out=1,012 · $0.0498+ · 1 turn, 4 model calls (1 refused), 2 tool calls
      report   codex itself reports 18,000 tokens, $0.05
      time     33s

    1 subagent: 1 running · in=17k out=1.0k · $0.0498+ · 33s
    ");
    insta::assert_snapshot!(tree::render(&view, h.at(), ProcessLiveness::Alive, Palette::Plain, 160), @"
    run_1738326896_aaaaaa
    [root] → running · delegate · depth 0 · in=17k out=1.0k · $0.0498+ · 33s
    └─ #1 [fix] → running · fixer (codex) · depth 1 · in=17k out=1.0k · $0.0498+ · 4 model calls (1 refused) · 33s · The test passes now.
    ");
    let (h, _) = done();
    insta::assert_snapshot!(tree::render(&h.view(), h.at(), ProcessLiveness::Alive, Palette::Plain, 160), @"
    run_1738326896_aaaaaa
    [root] ✓ complete · delegate · depth 0 · in=17k out=1.0k · $0.0498+ · 33s
    └─ #1 [fix] ✓ complete · fixer (codex) · depth 1 · in=17k out=1.0k · $0.0498+ · 4 model calls (1 refused) · 33s
    ");
}

#[test]
fn what_a_worker_does_now_is_shown() {
    let doing = |h: &History| {
        let view = h.view();
        let text = list(&[look(&view, h)]);
        text.lines().find(|line| line.contains("[fix]")).unwrap().trim().to_owned()
    };
    let mut h = History::new();
    let a = h.worker("fix");
    let mut lines = vec![doing(&h)];
    h.open_call(a, 1, "acme/large");
    lines.push(doing(&h));
    h.open_call(a, 2, "acme/title");
    lines.push(doing(&h));
    h.says(a, "I read the code.\nThen I ");
    h.says(a, "run it. \n");
    lines.push(doing(&h));
    h.says(a, &format!("It is a long sentence {HOSTILE} {}", "word ".repeat(60)));
    lines.push(doing(&h));
    h.uses(a, "1", "cargo test", WorkerToolStatus::Begun);
    h.uses(a, "2", "cargo clippy", WorkerToolStatus::Begun);
    lines.push(doing(&h));
    h.uses(a, "1", "cargo test", WorkerToolStatus::Completed);
    lines.push(doing(&h));
    h.uses(a, "2", "cargo clippy", WorkerToolStatus::Completed);
    h.close_call(a, 1, WorkerCallEnd::Abandoned, Settlement::never_began());
    h.close_call(a, 2, WorkerCallEnd::Abandoned, Settlement::never_began());
    h.open_call(a, 3, "acme/large");
    h.wait(50_000);
    lines.push(doing(&h));
    h.prompt(a, 2);
    h.close_call(a, 3, WorkerCallEnd::Abandoned, Settlement::never_began());
    lines.push(doing(&h));
    insta::assert_snapshot!(lines.join("\n"), @"
    [fix] thinking
    [fix] waiting for its model
    [fix] waiting for its model, 2 calls
    [fix] Then I run it.
    [fix] …word word word word word word word word word word word word word word word word
    [fix] cargo test (+1)
    [fix] cargo clippy
    [fix] stalled? no output for 50s · in=0 out=0 · $0.00
    [fix] thinking · in=0 out=0 · $0.00
    ");
}

#[test]
fn cost_counts_every_call_by_model_and_shows_what_the_worker_reports() {
    let (h, _) = done();
    insta::assert_snapshot!(cost::render(&h.view(), None, 160), @"
             calls      in  cache read  cache write    out       own  inclusive
    [root]       0       0           0            0      0     $0.00   $0.0498+
      [fix]      4  17,300       6,000            0  1,012  $0.0498+   $0.0498+

    agent  calls      in  cache read  cache write    out      cost
    fixer      4  17,300       6,000            0  1,012  $0.0498+

    model       calls      in  cache read  cache write    out      cost
    acme/large      3  17,000       6,000            0  1,000   $0.0498
    acme/title      1     300           0            0     12  no price

    Total: 18,312 tokens, $0.0498+
    + 312 tokens were used by models without a known price and are not in the cost.
    ! 600 tokens and $0.0010 more were billed than had been reserved for the calls.
    [fix] codex itself reports 18,000 tokens, $0.05; its 4 model calls (1 refused) took 18,312 tokens, $0.0498+
    ");
    insta::assert_snapshot!(h.turn_costs().render(&h.view(), None), @"
                           turn     in  cached  share  out      cost
    [fix]  call 2 of acme/title    300       0     0%   12  no price
                         call 1  8,000   6,000    75%  400   $0.0138
                         call 3      0       0      -    0     $0.00
                         call 4  9,000       0     0%  600   $0.0360

    Total: 35% of 17,300 reported input tokens came from the cache
    ");
    let json = h.turn_costs().json(&h.view(), None);
    let calls: Vec<(Option<u32>, Option<&str>)> =
        json.turns.iter().map(|it| (it.call, it.model.as_deref())).collect();
    let large = Some("acme/large");
    let title = (Some(2), Some("acme/title"));
    assert_eq!(calls, [title, (Some(1), large), (Some(3), large), (Some(4), large)]);
    assert_eq!(json.cost.nodes[1].worker.as_ref().unwrap().model_calls, 4);
}

#[test]
fn a_report_that_agrees_is_not_shown() {
    let mut h = History::new();
    let a = h.worker("fix");
    h.open_call(a, 1, "acme/large");
    let bill = settled(tokens(1_000, 100));
    h.close_call(a, 1, WorkerCallEnd::Complete, bill);
    let report = WorkerUsageReport { tokens: Some(1_100), usd: Some(bill.usd) };
    h.push(Event::WorkerReported { session: a, report });
    assert!(!cost::render(&h.view(), None, 160).contains("itself reports"));
    // A new session counts from zero, and what the earlier one reported stays.
    let start = WorkerSessionStart::Retold;
    h.push(Event::WorkerSessionOpened { session: a, id: "th_2".into(), start });
    assert!(!cost::render(&h.view(), None, 160).contains("itself reports"));
    let report = WorkerUsageReport { tokens: Some(100), usd: None };
    h.push(Event::WorkerReported { session: a, report });
    let text = cost::render(&h.view(), None, 160);
    assert!(text.contains("codex itself reports 1,200 tokens, $0.0045; "), "{text}");
}

#[test]
fn a_transcript_has_the_words_and_tools_between_prompt_and_answer() {
    let (h, a) = done();
    let transcript = Transcript::of(h.entries(), a, ProcessLiveness::Alive).unwrap();
    insta::assert_snapshot!(transcript.render(), @"
    [fix] sess_1738326896_aaaaab success
    fixer (codex), acme/large
    began 2025-01-31T12:34:56Z, ended 2025-01-31T12:35:29Z

    ── user ──
      Fix the test

    ── codex ──
      I will run the tests.
      → cargo test (failed)
      not allowed: curl example.org
      allowed: Edit src/lib.rs
      → Edit src/lib.rs

    ── assistant ──
      The test passes now.
    ");
    assert!(transcript.actions.iter().all(|it| it.before == 1));
    let (mut h, a) = fixed();
    h.uses(a, "t3", HOSTILE, WorkerToolStatus::Begun);
    let text = Transcript::of(h.entries(), a, ProcessLiveness::Alive).unwrap().render();
    assert!(text.contains("  The test passes now.\n  → a]"), "{text}");
    assert!(text.ends_with(" (did not end)\n"), "{text}");
}

#[test]
fn the_log_has_a_line_for_each_event_of_a_worker() {
    let (mut h, a) = done();
    let needed = Some(BudgetAmount { tokens: 1_100, usd: Usd::ZERO });
    for (refusal, needed) in [
        (CallRefusal::Budget, needed),
        (CallRefusal::Calls { max: 3 }, None),
        (CallRefusal::Request { problem: HOSTILE.into() }, None),
        (CallRefusal::NoPrompt, None),
    ] {
        h.push(Event::WorkerCallRefused { session: a, refusal, needed });
    }
    for start in [WorkerSessionStart::Loaded, WorkerSessionStart::Retold] {
        h.push(Event::WorkerSessionOpened { session: a, id: "th_2".into(), start });
    }
    h.push(Event::WorkerReported { session: a, report: WorkerUsageReport::default() });
    let text = log::render(h.entries());
    let text: Vec<&str> = text.lines().skip(1).map(|line| &line[26..]).collect();
    insta::assert_snapshot!(text.join("\n"), @"
    agent fixer defined, 0 tools, worker codex
    [fix] granted to fixer at depth 1, acme/large: Fix the test
    [fix] started without a deadline
    [fix] prompt 1 attempt 1 sent
    [fix] opened session th_1
    [fix] model call 1 reserved: 9,000 tokens, $0.0450, acme/large, without web_search
    [fix] model call 2 reserved: 9,000 tokens, $0.0450, acme/title, without web_search
    [fix] model call 2 answered (in=300 out=12 $0.00)
    [fix] says: I will run
    [fix] says: the tests.
    [fix] model call 1 answered (in=8,000 out=400 $0.0138)
    [fix] tool begun: shell
    [fix] tool begun: cargo test
    [fix] tool failed: cargo test
    [fix] not allowed: curl example.org
    [fix] allowed: Edit src/lib.rs
    [fix] tool completed: Edit src/lib.rs
    [fix] model call refused: model gpt-9 is not allowed here
    [fix] model call 3 reserved: 9,000 tokens, $0.0450, acme/large, without web_search
    [fix] model call 3 failed (in=0 out=0 $0.00): HTTP 500
    [fix] model call 4 reserved: 9,000 tokens, $0.0450, acme/large, without web_search
    [fix] says: The test passes now.
    [fix] model call 4 answered (in=9,000 out=600 $0.0360)
    [fix] the provider billed more than was reserved: 600 tokens and $0.0010 over
    [fix] codex itself reports 18,000 tokens, $0.05
    [fix] prompt 1 answered: The test passes now.
    [fix] ended completed
    [root] ended completed
    run ended: completed
    [fix] model call refused: budget exhausted, it needs at least 1,100 tokens, $0.00
    [fix] model call refused: all 3 model calls that the agent's definition allows were made
    [fix] model call refused: a]⟨U+001B⟩[2J⟨U+202E⟩evil⟨U+200B⟩⏎### [fake] ✓⟨U+0007⟩ ⟨U+009B⟩31m
    [fix] model call refused: no prompt is open
    [fix] loaded session th_2
    [fix] opened session th_2, which was told the earlier work
    [fix] codex itself reports no usage
    ");
}

#[test]
fn progress_lines_report_tools_and_refusals_but_not_every_word() {
    let (mut h, a) = fixed();
    let start = WorkerSessionStart::Loaded;
    h.push(Event::WorkerSessionOpened { session: a, id: "th_1".into(), start });
    h.open_call(a, 5, "acme/large");
    h.close_call(a, 5, WorkerCallEnd::Cut, settled(tokens(1, 1)));
    h.answers(a, "The test passes now.");
    h.end(a, Outcome::Completed, None);
    let mut view = RunView::default();
    let mut said = Vec::new();
    for entry in h.entries() {
        view.apply(entry);
        said.extend(progress::line(&view, &entry, Palette::Plain));
    }
    insta::assert_snapshot!(said.join("\n"), @"
    run_1738326896_aaaaaa started
    [fix] started (1/1)
    [fix] removed from its model calls: web_search
    [fix] shell
    [fix] cargo test failed
    [fix] not allowed: curl example.org
    [fix] model call refused: model gpt-9 is not allowed here
    [fix] model call failed: HTTP 500
    [fix] the provider billed more than was reserved: 600 tokens and $0.0010 over
    [fix] codex goes on: its session was loaded
    [fix] model call cut off at the output limit
    [fix] ✓ complete (in=17k out=1.0k) 33s $0.0498+
    ");
}

#[test]
fn wire_events_report_tools_tokens_and_refusals() {
    let (h, _) = done();
    let lines: Vec<String> = wire_events(h.entries())
        .iter()
        .map(|event| {
            let mut value = serde_json::to_value(&event.what).unwrap();
            let name = value["event"].as_str().unwrap().to_owned();
            value.as_object_mut().unwrap().retain(|key, _| key != "event" && key != "label");
            format!("{name} {value}")
        })
        .filter(|line| !line.starts_with("run_"))
        .collect();
    insta::assert_snapshot!(lines.join("\n"), @r#"
    queued {"index":0,"agent":"fixer"}
    started {"index":0,"total":1}
    tokens {"input":300,"output":12,"cost_usd":null,"estimated":false}
    tokens {"input":8300,"output":412,"cost_usd":0.0138,"estimated":false}
    tool_call {"tool":"shell","args":""}
    tool_refused {"tool":"curl example.org","args":"","message":"not allowed"}
    call_refused {"message":"model gpt-9 is not allowed here"}
    tokens {"input":8300,"output":412,"cost_usd":0.0138,"estimated":false}
    tokens {"input":17300,"output":1012,"cost_usd":0.0498,"estimated":false}
    tokens {"input":17300,"output":1012,"cost_usd":0.0498,"estimated":false}
    completed {"status":"ok","outcome":"completed"}
    "#);
}

#[test]
fn a_receipt_names_the_worker_and_how_it_was_resumed() {
    let receipt = |h: &History| CallResults::of_run(&h.view()).receipts().join("\n");
    let (h, _) = done();
    let mut lines = vec![receipt(&h)];
    for start in [WorkerSessionStart::Loaded, WorkerSessionStart::Retold] {
        let (mut h, a) = fixed();
        h.push(Event::WorkerSessionOpened { session: a, id: "th_2".into(), start });
        h.answers(a, "The test passes now.");
        h.end(a, Outcome::Completed, None);
        lines.push(receipt(&h));
    }
    let mut h = History::new();
    let a = h.worker("idle");
    h.end(a, Outcome::Failed, None);
    lines.push(receipt(&h));
    insta::assert_snapshot!(lines.join("\n"), @"
    [fix] completed · worker codex, 4 model calls (1 refused) · 2 tool calls, 1 failed, 1 refused
    [fix] completed · worker codex, 4 model calls (1 refused) · 2 tool calls, 1 failed, 1 refused · its session was loaded
    [fix] completed · worker codex, 4 model calls (1 refused) · 2 tool calls, 1 failed, 1 refused · a new session that was told the earlier work
    [idle] failed · worker codex, no model calls · no tool calls
    ");
    let (h, _) = done();
    let json = CallResults::of_run(&h.view()).json(&ResultOptions::default());
    let worker = json.results[0].receipt.as_ref().unwrap().worker.as_ref().unwrap();
    assert_eq!((worker.name.as_str(), worker.model_calls, worker.refused_calls), ("codex", 4, 1));
}

#[test]
fn what_a_worker_said_last_is_its_text_until_it_answers() {
    let (h, a) = fixed();
    let view = h.view();
    let delegation = view.delegation(a).unwrap();
    assert_eq!(delegation.last_text, "The test passes now.");
    assert_eq!(
        (delegation.tool_calls, delegation.failed_calls, delegation.refused_calls),
        (2, 1, 1)
    );
    let mut light = RunView::light();
    h.entries().for_each(|entry| light.apply(entry));
    assert_eq!(light.delegation(a).unwrap().last_text, "");
}

#[test]
fn calls_that_were_open_when_the_process_died_are_counted_at_their_reservation() {
    let (mut h, a) = fixed();
    h.open_call(a, 5, "acme/large");
    h.open_call(a, 6, "acme/title");
    let mut view = h.view();
    let before = view.delegation(a).unwrap().own;
    view.close_open_calls();
    view.close_open_calls();
    let after = view.delegation(a).unwrap().own;
    assert_eq!(after.minus(&before).calls, 2);
    assert_eq!(after.estimated.tokens, 18_000);
    assert_eq!(after, *view.total());
    let by_model = view.delegation(a).unwrap().by_model();
    let sum = by_model.iter().fold(adjutant_view::Spend::default(), |sum, (_, it)| sum.plus(it));
    assert_eq!(sum, after);
}
