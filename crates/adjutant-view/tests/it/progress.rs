//! Requirement 52: what each subagent is doing, as display and as lines.

use adjutant_core::{
    AddedMessageReason, ErrorCode, Event, Grant, ModelErrorKind, Outcome, Preset, Timestamp,
};
use adjutant_formats::contract::ReturnFinding;
use adjutant_view::layout::width;
use adjutant_view::progress::{ProgressFrame, line, total};
use adjutant_view::{Palette, ProcessLiveness, RunView};
use serde_json::json;

use crate::history::{HOSTILE, History, call, finished, root, three, tokens};

fn frame(h: &History, width: usize) -> String {
    ProgressFrame { width, height: None, now: h.at(), palette: Palette::Plain }.render(&h.view())
}

fn lines(h: &History) -> String {
    let mut view = RunView::default();
    let mut text = String::new();
    for entry in h.entries() {
        view.apply(entry);
        if let Some(said) = line(&view, &entry, Palette::Plain) {
            text.push_str(&said);
            text.push('\n');
        }
    }
    text
}

#[test]
fn requirement_52_a_frame_has_a_line_for_each_subagent() {
    let (h, _) = three();
    insta::assert_snapshot!(frame(&h, 100), @"
    Delegate [3 subagents]
      [security]     ✓ complete (in=45k out=2.1k) 1.5s $0.1665
      [correctness]  → Read src/lib.rs (in=23k out=890) 1m 10s $0.0824
      [refactor]     ⚠ partial: context exhausted (in=193k out=12k) 1m 10s $0.7612 4 % of 5.0M
      3 subagents: 1 running, 1 complete, 1 partial · $1.0101 · 1m 10s · 20 % of the $5.00 budget
    ");
}

#[test]
fn no_line_of_a_frame_is_wider_than_the_terminal() {
    let (mut h, _) = three();
    let [wide, hostile, long] = h.call([
        ("日本語のラベルはとても長いです", "x"),
        (HOSTILE, "x"),
        (&"long".repeat(2_560), "x"),
    ]);
    for session in [wide, hostile, long] {
        h.start(session);
        let path = "語/".repeat(5_000);
        h.reply(session, "", vec![call("Read", json!({ "path": path }))], tokens(1_000, 10));
        h.push(Event::ToolCalled { session, call: 0 });
    }
    for columns in 0..=120 {
        for line in frame(&h, columns).lines() {
            assert!(width(line) <= columns, "{columns}: {line}");
        }
    }
    insta::assert_snapshot!(frame(&h, 60), @r"
    Delegate [6 subagents]
      [security]            ✓ complete (in=45k out=2.1k)
      [correctness]         → Read src/lib.rs (in=23k out=890)
      [refactor]            ⚠ partial: contex… (in=193k out=12k)
      [日本語のラベルは…]   → Read 語/語/… (in=1.0k out=10) 0.0s
      [a)⟨U+001B⟩(2J⟨U+2…]  → Read 語/語/… (in=1.0k out=10) 0.0s
      [longlonglonglongl…]  → Read 語/語/… (in=1.0k out=10) 0.0s
      6 subagents: 4 running, 1 complete, 1 partial · $1.0195
    ");
}

#[test]
fn a_narrow_frame_drops_cost_then_time_then_tokens() {
    let (h, _) = three();
    insta::assert_snapshot!(frame(&h, 50), @r"
    Delegate [3 subagents]
      [security]     ✓ complete (in=45k out=2.1k)
      [correctness]  → Read src/lib.… (in=23k out=890)
      [refactor]     ⚠ partial: con… (in=193k out=12k)
      $1.0101 · 3 subagents: 1 running, 1 complete, 1…
    ");
    insta::assert_snapshot!(frame(&h, 24), @r"
    Delegate [3 subagents]
      [secur…]  ✓ complete
      [corre…]  → Read src/…
      [refac…]  ⚠ partial: …
      $1.0101 · 3 subagents…
    ");
}

#[test]
fn a_run_without_subagents_has_a_frame_too() {
    insta::assert_snapshot!(frame(&History::new(), 80), @r"
    Delegate [no subagents]
      0.0s
    ");
    let nothing =
        ProgressFrame { width: 80, height: None, now: Timestamp::ZERO, palette: Palette::Plain };
    insta::assert_snapshot!(nothing.render(&RunView::default()), @r"
    Delegate [no subagents]
      0.0s
    ");
}

#[test]
fn a_frame_shows_waiting_retrying_thinking_and_grandchildren() {
    let mut h = History::new();
    let [lead, slow, later] = h.call([("lead", "x"), ("slow", "x"), ("later", "x")]);
    h.start(lead);
    let calls = vec![
        call("Read", json!({ "path": "a.rs" })),
        call("Grep", json!({ "pattern": "TODO", "path": "src" })),
    ];
    h.reply(lead, "", calls, tokens(100, 10));
    h.push(Event::ToolCalled { session: lead, call: 0 });
    h.push(Event::ToolCalled { session: lead, call: 1 });
    let [below] = h.call_from(lead, [("below", "x")]);
    h.start(below);
    h.reserve(below, 1);
    h.start(slow);
    h.wait(12_000);
    h.fail(slow, ModelErrorKind::RateLimited, Some(2_500));
    let _ = later;
    insta::assert_snapshot!(frame(&h, 90), @"
    Delegate [4 subagents]
      [lead]     → Read a.rs (+1) (in=100 out=10) 12s $0.0004
        [below]  → thinking · 12s
      [slow]     → retrying in 2.5s: rate limited (in=4.0k out=1.0k) 12s ~$0.0270
      [later]    · waiting for a free slot
      4 subagents: 3 running, 1 waiting · in=4.1k out=1.0k · ~$0.0274 · 12s
    ");
}

#[test]
fn a_pause_of_the_provider_is_shown_until_the_next_byte() {
    let mut h = History::new();
    let [held] = h.call([("held", "x")]);
    h.start(held);
    h.reserve(held, 1);
    let until = Timestamp::from_millis(12_000);
    h.push(Event::Paused { session: held, provider: "anthropic\u{1b}[31m".into(), until });
    let row = |h: &History| frame(h, 90).lines().nth(1).unwrap().to_owned();
    insta::assert_snapshot!(row(&h), @"  [held]  → waiting 12s: anthropic⟨U+001B⟩[31m asked for a pause · 0.0s");
    h.push(Event::Progressed { session: held, bytes: 1 });
    insta::assert_snapshot!(row(&h), @"  [held]  → writing · 0.0s");
}

#[test]
fn a_row_has_the_share_of_the_agents_own_budget_that_is_spent() {
    let (mut h, _) = three();
    if let Event::RunStarted { policy, .. } = &mut h.records[0].1 {
        policy.budget_tokens = Some(400_000);
    }
    insta::assert_snapshot!(frame(&h, 100), @"
    Delegate [3 subagents]
      [security]     ✓ complete (in=45k out=2.1k) 1.5s $0.1665 11 % of 400k
      [correctness]  → Read src/lib.rs (in=23k out=890) 1m 10s $0.0824 5 % of 400k
      [refactor]     ⚠ partial: context exhausted (in=193k out=12k) 1m 10s $0.7612 51 % of 400k
      3 subagents: 1 running, 1 complete, 1 partial · $1.0101 · 1m 10s · 20 % of the $5.00 budget
    ");
    // On a narrow terminal it goes first.
    assert!(!frame(&h, 50).contains(" of 400k"), "{}", frame(&h, 50));
    assert!(frame(&h, 70).lines().all(|line| width(line) <= 70));
}

#[test]
fn a_question_about_a_host_is_shown_until_it_is_answered() {
    let mut h = History::new();
    let [reader] = h.call([("reader", "x")]);
    h.start(reader);
    h.reply(reader, "", vec![call("WebFetch", json!({ "url": "https://docs.rs/" }))], tokens(1, 1));
    let expires = Timestamp::from_millis(900_000);
    h.push(Event::DomainAsked { session: reader, call: 0, host: "docs.rs".into(), expires });
    let row = |h: &History| frame(h, 90).lines().nth(1).unwrap().to_owned();
    assert!(row(&h).contains("waiting for approval of docs.rs"), "{}", row(&h));
    h.push(Event::DomainAllowed { host: "docs.rs".into() });
    h.push(Event::ToolCalled { session: reader, call: 0 });
    assert!(row(&h).contains("WebFetch"), "{}", row(&h));
}

#[test]
fn a_low_terminal_shows_the_interesting_rows_and_counts_the_rest() {
    let mut h = History::new();
    for number in 0..20_u32 {
        let name = format!("task {number}");
        let [session] = h.call([(name.as_str(), "x")]);
        if number < 18 {
            h.start(session);
        }
        if number < 12 {
            let outcome = if number == 3 { Outcome::Failed } else { Outcome::Completed };
            h.end(session, outcome, None);
        }
    }
    let low = ProgressFrame { width: 60, height: Some(12), now: h.at(), palette: Palette::Plain };
    insta::assert_snapshot!(low.render(&h.view()), @r"
    Delegate [20 subagents]
      [task 3]   ✗ failed · 0.0s
      [task 12]  → thinking · 0.0s
      [task 13]  → thinking · 0.0s
      [task 14]  → thinking · 0.0s
      [task 15]  → thinking · 0.0s
      [task 16]  → thinking · 0.0s
      [task 17]  → thinking · 0.0s
      [task 18]  · waiting for a free slot
      [task 19]  · waiting for a free slot, place 2
      … 11 more: 11 complete
      20 subagents: 6 running, 2 waiting, 11 complete, 1 failed
    ");
}

#[test]
fn colour_never_replaces_words() {
    let (h, _) = three();
    let painted = ProgressFrame { width: 100, height: None, now: h.at(), palette: Palette::Ansi };
    let painted = painted.render(&h.view());
    assert!(painted.contains("\u{1b}[32m✓ complete\u{1b}[0m"), "{painted}");
    let mut plain = painted;
    for code in ["32", "33", "36", "2", "1", "0"] {
        plain = plain.replace(&format!("\u{1b}[{code}m"), "");
    }
    assert_eq!(plain, frame(&h, 100));
}

#[test]
fn requirement_52_a_pipe_gets_a_line_for_each_thing_worth_one() {
    let (h, _) = finished();
    insta::assert_snapshot!(lines(&h), @"
    run_1738326896_aaaaaa started
    [security] started (1/3)
    [correctness] started (2/3)
    [refactor] started (3/3)
    [security] ✓ complete (in=45k out=2.1k) 1.5s $0.1665
    [correctness] Read src/lib.rs
    [refactor] Read src/main.rs
    [refactor] note: main.rs repeats itself
    [refactor] note: two parsers⏎for one format
    [refactor] ⚠ partial: context exhausted (in=193k out=12k) 1m 10s $0.7612
    [deeper] ⊘ refused: max depth exceeded. Complete this task at the current level, or start the run again with --set max_depth=2.
    [correctness] provider overloaded: try later
    [correctness] ✗ failed: provider error (in=27k out=1.9k) 1m 11s ~$0.1094
    4 subagents: 1 complete, 1 partial, 1 failed, 1 refused · in=265k out=16k · $1.0101 measured + ~$0.0270 estimated · 1m 11s
    ");
}

#[test]
fn lines_report_retries_nudges_denials_crashes_and_late_results() {
    let mut h = History::new();
    let mut grant = h.grant(root(), "a", "x");
    grant.awaiting_approval = true;
    grant.clamped = true;
    grant.timeout_s = Some(60);
    let session = grant.session;
    h.push(Event::Granted(Box::new(grant)));
    let (hash, expires) = ("abcdef0123456789".to_owned(), Timestamp::from_millis(900_000));
    h.push(Event::ApprovalAsked { parent: root(), call: 1, hash: hash.clone(), expires });
    h.push(Event::Approved { hash: hash.clone(), parent: root(), up_to: None });
    h.start(session);
    h.fail(session, ModelErrorKind::Network, Some(500));
    h.push(Event::Told {
        session,
        nudge: AddedMessageReason::LastCall(ErrorCode::ContextExhausted),
        text: "now".into(),
    });
    h.reply(session, "", vec![call(HOSTILE, json!({}))], tokens(10, 1));
    h.push(Event::ToolRefused { session, call: 0, text: "Not run.".into() });
    h.push(Event::Crashed {
        session,
        message: "index out of bounds".into(),
        backtrace: "0: main".into(),
    });
    h.end(session, Outcome::Failed, None);
    h.push(Event::Late { session, what: "reply".into(), text: HOSTILE.into() });
    h.push(Event::Denied { hash, reason: "nobody answered".into() });
    insta::assert_snapshot!(lines(&h), @r"
    run_1738326896_aaaaaa started
    [a] ⚠ asked for more time than allowed, gets 60 s
    Waiting for approval of 1 subagent
    [a] started (1/1)
    [a] retrying in 0.5s: network error: try later
    [a] told to report now: context exhausted
    [a] a]⟨U+001B⟩[2J⟨U+202E⟩evil⟨U+200…: Not run.
    [a] crashed: index out of bounds
    [a] ✗ failed (in=4.0k out=1.0k) 0.0s ~$0.0270
    [a] ignored a late reply; `adjutant log` shows it
    Not approved: nobody answered
    ");
}

/// Each threshold is reported once; if one call passes several, only the highest.
#[test]
fn the_budget_warning_appears_once_per_threshold() {
    let mut h = History::new();
    if let Event::RunStarted { policy, .. } = &mut h.records[0].1 {
        policy.budget_usd = Some(adjutant_core::Usd::from_pico(1_000_000_000_000));
    }
    let [one] = h.call([("one", "x")]);
    h.start(one);
    // Three dollars for a million tokens.
    for input in [150_000, 20_000, 10_000, 100_000, 60_000, 10_000] {
        h.reply(one, "", vec![], tokens(input, 0));
    }
    insta::assert_snapshot!(lines(&h), @r"
    run_1738326896_aaaaaa started
    [one] started (1/1)
    ⚠ 50 % of the budget of $1.00 is spent: $0.51
    ⚠ 80 % of the budget of $1.00 is spent: $0.84
    ⚠ 100 % of the budget of $1.00 is spent: $1.02
    ");
    insta::assert_snapshot!(frame(&h, 100), @"
    Delegate [1 subagent]
      [one]  → thinking (in=350k out=0) 0.0s $1.05 7 % of 5.0M
      1 subagent: 1 running · in=350k out=0 · $1.05 · 0.0s · ⚠ 105 % of the $1.00 budget
    ");
    let mut h = History::new();
    let [one] = h.call([("one", "x")]);
    h.start(one);
    h.reply(one, "", vec![], tokens(1_700_000, 0));
    assert!(lines(&h).contains("100 % of the budget of $5.00 is spent: $5.10"), "{}", lines(&h));
    assert_eq!(lines(&h).matches("of the budget").count(), 1);
}

#[test]
fn a_rejected_return_is_one_line_with_the_reason() {
    let mut h = History::new();
    if let Event::RunStarted { policy, .. } = &mut h.records[0].1 {
        **policy = Preset::Command.policy();
    }
    let [session] = h.call([("a", "x")]);
    h.start(session);
    let complaint = |message: &str| ReturnFinding {
        code: ErrorCode::ValidationFailed,
        field: "status".into(),
        message: message.into(),
    };
    // A return in an answer is rejected by a message, one through the tool by its result.
    let mut judged = |call: Option<u32>, message: &str| {
        let (errors, warnings) = (vec![complaint(message)], Vec::new());
        h.push(Event::Judged { session, call, returned: None, errors, warnings });
        if call.is_none() {
            let text = "Your return was not accepted.".into();
            h.push(Event::Told { session, nudge: AddedMessageReason::Repair, text });
        }
    };
    judged(None, "Invalid status: done");
    judged(Some(0), "Invalid status: ok");
    let said = lines(&h);
    let said: Vec<&str> = said.lines().filter(|line| line.starts_with("[a]")).skip(1).collect();
    assert_eq!(
        said,
        [
            "[a] return rejected: status: Invalid status: done",
            "[a] return rejected: status: Invalid status: ok",
        ]
    );
}

#[test]
fn the_time_a_run_waits_for_a_person_is_shown_separately() {
    let mut h = History::new();
    let time = |h: &History, liveness| {
        let total = total(&h.view(), h.at(), liveness);
        total.rsplit_once(" · ").map_or(total.clone(), |(_, time)| time.to_owned())
    };
    let grant = Grant { awaiting_approval: true, ..h.grant(root(), "a", "x") };
    let child = grant.session;
    h.push(Event::Granted(Box::new(grant)));
    let (hash, expires) = ("0".repeat(64), Timestamp::from_millis(900_000));
    h.push(Event::ApprovalAsked { parent: root(), call: 1, hash: hash.clone(), expires });
    h.wait(100_000);
    assert_eq!(time(&h, ProcessLiveness::Alive), "0.0s at work, 1m 40s waiting for a person");
    // A run whose process is gone waits for no answer.
    assert_eq!(time(&h, ProcessLiveness::Dead), "0.0s");
    h.push(Event::Approved { hash, parent: root(), up_to: None });
    h.start(child);
    h.reserve(child, 1);
    h.wait(20_000);
    // While an agent works, an open question does not count as waiting.
    let open = Event::ApprovalAsked { parent: child, call: 1, hash: "1".repeat(64), expires };
    h.push(open);
    h.wait(5_000);
    assert_eq!(time(&h, ProcessLiveness::Alive), "25s at work, 1m 40s waiting for a person");
    h.end(child, Outcome::Completed, None);
    h.end_run(Outcome::Completed);
    h.wait(60_000);
    assert_eq!(time(&h, ProcessLiveness::Dead), "25s at work, 1m 40s waiting for a person");
}

#[test]
fn a_row_shows_the_end_of_what_an_agent_writes_but_not_its_json() {
    let mut h = History::new();
    let [child] = h.call([("a", "x")]);
    h.start(child);
    h.reserve(child, 1);
    h.wait(4_900);
    let row = |text: &str| {
        let mut view = h.view();
        view.show_text_end(h.at(), child, text);
        let frame =
            ProgressFrame { width: 100, height: None, now: h.at(), palette: Palette::Plain };
        frame.render(&view).lines().nth(1).unwrap().to_owned()
    };
    let rows = [
        "I will look at the",
        "{\"status\": \"completed\", \"",
        "\n```json\n{\"status\"",
        "{ status",
        "It returns {\"a\": 1}",
    ]
    .map(row);
    insta::assert_snapshot!(rows.join("\n"), @r#"
    [a]  → I will look at the · 4.9s
    [a]  → writing its result · 4.9s
    [a]  → writing its result · 4.9s
    [a]  → writing its result · 4.9s
    [a]  → It returns {"a": 1} · 4.9s
    "#);
}

#[test]
fn the_cost_stays_in_the_last_line_of_a_narrow_frame() {
    let (h, _) = three();
    for columns in 12..=140 {
        let frame = frame(&h, columns);
        assert!(frame.lines().last().unwrap().contains("$1.0101"), "{columns}: {frame}");
    }
}
