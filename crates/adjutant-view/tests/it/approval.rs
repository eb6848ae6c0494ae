//! Requirement 43, D21 and DESIGN §5 Approval: the question that a person is asked.

use adjutant_core::{
    ContextFile, ContextFileStatus, ErrorCode, Event, Preset, Rights, ToolSet, WriteScope,
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
    insta::assert_snapshot!(question(&h).text(40), @r"
    Spawn 1 subagent (risk: medium)

      [a]  look around Tools none at all

    Tools       Glob, Grep, Note, Read; no network
    Model       acme/large
    Worst case  5,000,000 tokens, $5.00, no time limit
    Budget      5,000,000 tokens per subagent; 20,000,000 tokens and $5.00 for the whole run
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
