//! Requirement 43, D21 and DESIGN §5 Approval: the question that a person is asked.

use adjutant_core::registry::{DelegationSample, SampleGroup, SampleKey};
use adjutant_core::{
    ContextFile, ContextFileStatus, ErrorCode, Event, Preset, Registry, RegistryEvent, Rights,
    ToolSet, Usd, WriteScope,
};
use adjutant_view::approval::{ApprovalQuestion, Risk, domain_question};

use crate::history::{HOSTILE, History, reason, root};

fn question(h: &History) -> ApprovalQuestion {
    ApprovalQuestion::of_call(&Preset::Scout.policy(), h.events(), root(), 1)
}

#[test]
fn requirement_43_one_line_lists_count_labels_goals_and_risk() {
    let mut h = History::new();
    h.call([
        ("security", "scan for vulnerabilities in src/auth.rs"),
        ("correctness", "check return values of every call"),
        ("refactor", "propose\nsimplifications"),
    ]);
    // D21: every goal is cut at 18 characters, including the ellipsis.
    insta::assert_snapshot!(question(&h).one_line(), @"Spawn 3 subagents (risk: medium): [security] scan for vulnerab…; [correctness] check return valu…; [refactor] propose simplific…");
}

#[test]
fn the_heading_counts_subagents_correctly() {
    let mut h = History::new();
    insta::assert_snapshot!(question(&h).one_line(), @"Spawn 0 subagents (risk: medium).");
    h.call([("a", "look")]);
    insta::assert_snapshot!(question(&h).one_line(), @"Spawn 1 subagent (risk: medium): [a] look");
}

#[test]
fn tools_are_shown_if_a_task_may_run_commands() {
    let mut h = History::new();
    let mut grant = h.grant(root(), "fix", "make the tests pass");
    h.push(Event::Granted(Box::new(grant.clone())));
    let tools = Some("cargo 1.95, python 3.11");
    let reads = question(&h).with_commands_see(tools);
    assert!(!reads.text(100).contains("Commands see"));
    assert!(reads.json() == question(&h).json());
    let mut h = History::new();
    grant.rights.tools = ToolSet::new(["Read", "Run"]);
    grant.rights.writes = WriteScope::Own;
    h.push(Event::Granted(Box::new(grant)));
    let writes = question(&h).with_commands_see(tools);
    insta::assert_snapshot!(writes.text(100), @"
    Spawn 1 subagent (risk: high)

      [fix]  make the tests pass

    Tools         Read, Run; no network; writes anywhere in a workspace of its own
    Commands see  cargo 1.95, python 3.11
    Model         acme/large
    Worst case    5,000,000 tokens, $5.00, no time limit
    Budget        5,000,000 tokens per subagent; 20,000,000 tokens and $5.00 for the whole run
    Parallel      2 at a time
    ");
    let json = serde_json::to_value(writes.json()).unwrap();
    assert_eq!(json["commands_see"], "cargo 1.95, python 3.11");
}

#[test]
fn the_full_question_shows_everything_at_stake() {
    let mut h = History::new();
    let mut first = h.grant(root(), "security", "scan for vulnerabilities in src/auth.rs");
    first.brief.context = vec![
        ContextFile { path: "src/auth.rs".into(), found: ContextFileStatus::Loaded },
        ContextFile { path: "src/gone.rs".into(), found: ContextFileStatus::Missing },
    ];
    let mut second = h.grant(root(), "日本語", &format!("read {} and stop", "x".repeat(1_000)));
    second.index = 1;
    second.clamped = true;
    second.timeout_s = Some(600);
    h.push(Event::Granted(Box::new(first)));
    h.push(Event::Granted(Box::new(second)));
    h.refuse(
        1,
        2,
        "deeper",
        reason(
            ErrorCode::MaxDepthExceeded,
            "ERROR: Delegation depth limit (1) reached.\n\nMore.",
            "Do it here.",
        ),
    );
    insta::assert_snapshot!(question(&h).text(100), @r"
    Spawn 2 subagents (risk: medium)

      [security]  scan for vulnerabilities in src/auth.rs
      [日本語]    read
                  xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx
                  xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx
                  xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx … 654 characters left
                  out …
                  xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx
                  xxxxxxxxxxxxxxxxxxxxxxxxx and stop

    Tools       Glob, Grep, Note, Read; no network
    Model       acme/large
    Worst case  10,000,000 tokens, $5.00, no time limit
    Budget      5,000,000 tokens per subagent; 20,000,000 tokens and $5.00 for the whole run
    Parallel    2 at a time

    Warnings
      [security] context file not found: src/gone.rs
      [日本語] asked for more time than allowed, gets 600 s

    Refused
      [deeper] MAX_DEPTH_EXCEEDED: ERROR: Delegation depth limit (1) reached. More.
        Do it here.
    ");
}

#[test]
fn different_tasks_are_listed_separately_and_a_missing_price_is_shown() {
    let mut h = History::new();
    let mut reader = h.grant(root(), "reader", "read");
    reader.brief.model.as_mut().unwrap().price = None;
    reader.timeout_s = Some(300);
    let mut writer = h.grant(root(), "writer", "write");
    writer.rights = Rights {
        tools: ToolSet::new(["Read", "Write", "WebFetch"]),
        network: true,
        writes: WriteScope::Below("docs".into()),
    };
    writer.brief.model.as_mut().unwrap().name = "acme/small".into();
    writer.timeout_s = Some(600);
    h.push(Event::Granted(Box::new(reader)));
    h.push(Event::Granted(Box::new(writer)));
    assert_eq!(question(&h).risk(), Risk::High);
    insta::assert_snapshot!(question(&h).text(100), @r"
    Spawn 2 subagents (risk: high)

      [reader]  read
      [writer]  write

    Tools       [reader] Glob, Grep, Note, Read; no network
                [writer] Read, WebFetch, Write; network; writes below docs
    Model       [reader] acme/large
                [writer] acme/small
    Worst case  10,000,000 tokens, $5.00 plus 1 subagent without a known price, 10m 00s
    Budget      5,000,000 tokens per subagent; 20,000,000 tokens and $5.00 for the whole run
    Parallel    2 at a time
    ");
}

#[test]
fn hostile_labels_and_goals_are_escaped() {
    let mut h = History::new();
    h.call([(HOSTILE, HOSTILE), (&"long".repeat(2_560), "look")]);
    let question = question(&h);
    insta::assert_snapshot!(question.one_line(), @"Spawn 2 subagents (risk: medium): [a)⟨U+001B⟩(2J⟨U+202E⟩evil⟨U+200…] a]⟨U+001B⟩[2J⟨U+2…; [longlonglonglonglonglonglonglon…] look");
    assert!(!question.text(100).contains('\u{1b}') && !question.text(100).contains('\u{202e}'));
}

#[test]
fn a_goal_padded_with_spaces_cannot_start_a_line() {
    let mut h = History::new();
    h.call([("a", &format!("look around{}Tools       none at all", " ".repeat(66)))]);
    insta::assert_snapshot!(question(&h).text(40), @"
    Spawn 1 subagent (risk: medium)

      [a]  look around Tools none at all

    Tools       Glob, Grep, Note, Read; no
                network
    Model       acme/large
    Worst case  5,000,000 tokens, $5.00, no
                time limit
    Budget      5,000,000 tokens per
                subagent; 20,000,000 tokens
                and $5.00 for the whole run
    Parallel    2 at a time
    ");
}

#[test]
fn only_the_call_asked_about_is_shown() {
    let mut h = History::new();
    h.call([("first", "one")]);
    h.call([("second", "two")]);
    let policy = Preset::Scout.policy();
    let second = ApprovalQuestion::of_call(&policy, h.events(), root(), 2);
    insta::assert_snapshot!(second.one_line(), @"Spawn 1 subagent (risk: medium): [second] two");
}

#[test]
fn a_question_about_a_host_cannot_be_disguised() {
    let url = format!("https://docs.rs/\u{1b}[2J\u{202e}{}?tail=secret", "a".repeat(600));
    let (text, prompt) = domain_question("rea]der\n[x", "docs.rs", &url, 60);
    assert_eq!(prompt, "Allow docs.rs for this run? [y/N] ");
    assert!(text.starts_with("[rea)der"), "{text}");
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("characters left out"), "{text}");
    assert!(text.replace("\n        ", "").contains("?tail=secret"), "{text}");
    assert!(!text.contains(['\u{1b}', '\u{202e}']), "{text}");
    let set_in = |line: &&str| line.starts_with("  ") || line.is_empty();
    assert!(text.lines().skip(1).all(|line| set_in(&line)), "{text}");
}

/// A registry with samples of `acme/large`: so many tokens each, at a hundred tokens a cent, a second per ten.
fn history(worker: Option<&str>, tokens: impl IntoIterator<Item = u64>) -> Registry {
    let sample = |tokens: u64| {
        DelegationSample::new(tokens, Usd::from_dollars(tokens as f64 / 10_000.0), tokens * 100)
    };
    let samples = tokens.into_iter().map(sample).collect();
    let worker = worker.map(str::to_owned);
    let key = SampleKey { preset: Preset::Scout, model: "acme/large".into(), worker };
    let groups = vec![SampleGroup { key, samples }];
    let mut registry = Registry::default();
    registry.evolve(0, &RegistryEvent::DelegationsSampled { groups });
    registry
}

/// The rows about what is expected.
fn expected_rows(question: &ApprovalQuestion, columns: usize) -> String {
    let text = question.text(columns);
    let from = text.find("Expected").unwrap_or_else(|| panic!("{text}"));
    text[from..text.find("Budget").unwrap()].to_owned()
}

#[test]
fn the_question_says_what_tasks_like_these_consumed() {
    let mut h = History::new();
    h.call([("a", "look"), ("b", "look there")]);
    let told = |registry: &Registry| question(&h).with_history(registry, |_| None);
    assert!(!question(&h).text(100).contains("Expected"), "nothing was looked up");
    insta::assert_snapshot!(expected_rows(&told(&Registry::default()), 100), @"Expected    no history yet");
    insta::assert_snapshot!(expected_rows(&told(&history(None, [200])), 100), @"
    Expected    each usually $0.02, 200 tokens, 20s; 9 of 10 at most $0.02, 200 tokens, 20s
                2 times that is $0.04, 400 tokens; from only 1 earlier delegation
    ");
    let many = history(None, (1..=200).map(|n| n * 10));
    insta::assert_snapshot!(expected_rows(&told(&many), 100), @"
    Expected    each usually $0.10, 1,000 tokens, 1m 40s; 9 of 10 at most $0.18, 1,800 tokens, 3m 00s
                2 times that is $0.20, 2,000 tokens; from 200 earlier delegations
    ");
    insta::assert_snapshot!(expected_rows(&told(&many), 50), @"
    Expected    each usually $0.10, 1,000 tokens, 1m
                40s; 9 of 10 at most $0.18, 1,800
                tokens, 3m 00s
                2 times that is $0.20, 2,000 tokens;
                from 200 earlier delegations
    ");
    // Another worker is another history.
    let others = history(Some("codex"), [200]);
    assert!(expected_rows(&told(&others), 100).contains("no history yet"));
    let worker = question(&h).with_history(&others, |_| Some("codex".to_owned()));
    assert!(expected_rows(&worker, 100).contains("only 1 earlier delegation"));
}

#[test]
fn tasks_with_different_models_are_expected_to_consume_different_amounts() {
    let mut h = History::new();
    let known = h.grant(root(), "known", "read");
    let mut new = h.grant(root(), "new", "read");
    new.brief.model.as_mut().unwrap().name = "acme/small".into();
    h.push(Event::Granted(Box::new(known)));
    h.push(Event::Granted(Box::new(new)));
    let told = question(&h).with_history(&history(None, 100..=109), |_| None);
    insta::assert_snapshot!(expected_rows(&told, 120), @"
    Expected    [known] usually $0.0104, 104 tokens, 10s; 9 of 10 at most $0.0108, 108 tokens, 10s, from 10 earlier
                delegations
                [new] no history yet
    ");
    let json = serde_json::to_value(told.json()).unwrap();
    insta::assert_snapshot!(json["tasks"][0]["expected"], @r#"{"samples":10,"median":{"tokens":104,"cost_usd":0.0104,"elapsed_ms":10400},"p90":{"tokens":108,"cost_usd":0.0108,"elapsed_ms":10800}}"#);
    insta::assert_snapshot!(json["tasks"][1]["expected"], @r#"{"samples":0}"#);
}

#[test]
fn the_full_form_cuts_nothing_and_escapes_everything() {
    let mut h = History::new();
    let prompt = format!("{}\nTools       none at all\u{1b}[2J", "word ".repeat(300));
    let mut grant = h.grant(root(), "a", &prompt);
    grant.brief.context =
        vec![ContextFile { path: "src/\u{202e}gone.rs".into(), found: ContextFileStatus::Missing }];
    h.push(Event::Granted(Box::new(grant)));
    let full = question(&h).full_text(80);
    assert!(full.contains(&"word ".repeat(299)), "{full}");
    assert!(
        full.contains("(not found)") && full.contains("\n    Tools       none at all"),
        "{full}"
    );
    assert!(!full.contains(['\u{1b}', '\u{202e}']), "{full}");
}

#[test]
fn a_note_says_that_an_amount_covers_no_such_call() {
    let mut h = History::new();
    h.call([("a", "look")]);
    let usd = |dollars| Usd::from_dollars(dollars).unwrap();
    assert_eq!(question(&h).amount_note(usd(5.0)), None);
    insta::assert_snapshot!(question(&h).amount_note(usd(2.0)).unwrap(), @"
    Note: the worst case of this call is $5.00.
    Another like it exceeds $2.00 and is asked about;
    --budget-usd lowers the worst case.
    ");
}
