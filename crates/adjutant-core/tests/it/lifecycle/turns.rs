//! Part of `lifecycle`: turns.

use super::*;

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
fn d18_forbidden_and_invalid_calls_are_answered_with_an_error() {
    let (mut sim, child) = one(&[]);
    let malformed = ToolCall { malformed: true, ..read("m", "a") };
    let twice = json!(r#"{"path": "a", "path": "b"}"#);
    let twice = ToolCall { malformed: true, ..tool("t", "Read", twice) };
    let calls = vec![
        read("1", "a"),
        tool("2", "Run", json!({"command": "rm -rf /"})),
        tool("3", "WebFetch", json!({"url": "https://example.org"})),
        tool("4", "Dance", json!({})),
        tool("5", "", json!({})),
        malformed,
        twice,
        read("1", "b"),
        tool("6", "Delegate", json!({})),
    ];
    sim.call(child, calls);
    assert_eq!(sim.tools_run(child), ["Read"]);
    insta::assert_snapshot!(sim.told(child).join("\n"), @r"
    Not run: `Run` needs a workspace of your own, which you do not have. Available: Glob, Grep, Note, Read.
    Not run: `WebFetch` is not available to you. Available: Glob, Grep, Note, Read.
    Not run: `Dance` is not available to you. Available: Glob, Grep, Note, Read.
    Not run: the call names no tool.
    Not run: the arguments are not valid JSON. Send one JSON object.
    Not run: the key `path` occurs twice in one object at line 1 column 20 of the arguments. Send each key once.
    Not run: the call id `1` was used twice.
    Not run: `Delegate` is not available to you. Available: Glob, Grep, Note, Read.
    ");
    // The one that runs decides when the next turn comes.
    assert_eq!(kinds(&sim.output(child, 0, "text")), "tool_returned reserved");
}

#[test]
fn a_turn_with_only_refused_calls_continues_at_once() {
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

#[test]
fn five_equal_calls_are_refused_and_eight_end_the_agent() {
    let (mut sim, child) = one(&[]);
    for n in 1..LOOP_TOLD {
        assert!(turn(&mut sim, child, read(&n.to_string(), "a")), "{n}");
    }
    for n in LOOP_TOLD..LOOP_END {
        assert!(!turn(&mut sim, child, read(&n.to_string(), "a")), "{n}");
        assert!(sim.node(child).is_live());
    }
    insta::assert_snapshot!(sim.told(child)[0], @"Not run: you have made this exact Read call 5 times and its result does not change. Do something else, or write your report; at 8 you will be stopped.");
    assert_eq!(sim.told(child).len(), LOOP_END - LOOP_TOLD);
    turn(&mut sim, child, read("8", "a"));
    insta::assert_snapshot!(sim.ended(child), @r#"
    partial LOOP_DETECTED: The agent made the same Read call 8 times.
    => Say what to do differently, with `adjutant resume sess_1700000001_bbbbbb --say`.
    "#);
    sim.check_over();
}

#[test]
fn two_alternating_calls_are_a_loop_too() {
    let (mut sim, child) = one(&[]);
    let mut made = 0;
    while sim.node(child).is_live() {
        turn(&mut sim, child, read(&made.to_string(), ["a", "b"][made % 2]));
        made += 1;
    }
    assert_eq!((made, sim.code(child)), (2 * LOOP_END - 1, Some(ErrorCode::LoopDetected)));
    assert_eq!(sim.tools_run(child).len(), 2 * (LOOP_TOLD - 1));
}

#[test]
fn eight_equal_calls_in_one_answer_are_a_loop_too() {
    let (mut sim, child) = one(&[]);
    sim.call(child, (0..LOOP_END).map(|n| read(&n.to_string(), "a")).collect());
    assert_eq!(sim.code(child), Some(ErrorCode::LoopDetected));
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
        for n in 0..28 {
            assert!(turn(&mut sim, child, read("x", &format!("{round}/{n}"))));
        }
    }
    assert!(sim.told(child).is_empty());
    // The last thirty-two calls are remembered: with twenty-seven others in between, the fifth equal call is refused.
    let (mut sim, child) = one(&[]);
    for n in 0..4 {
        assert!(turn(&mut sim, child, read(&n.to_string(), "a")));
    }
    for n in 0..27 {
        assert!(turn(&mut sim, child, read("x", &n.to_string())));
    }
    assert!(!turn(&mut sim, child, read("5", "a")));
}

#[test]
fn d22_a_late_result_is_recorded_and_changes_nothing() {
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
        error: error(ModelErrorKind::Network),
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
        Command::Conclude {
            session: child,
            call: None,
            text: "late".into(),
            artifacts: Vec::new(),
            changed: None,
        },
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
    let conclude = || Command::Conclude {
        session: child,
        call: None,
        text: "hm".into(),
        artifacts: vec![],
        changed: None,
    };
    assert_eq!(sim.submit(conclude()), Ok(vec![]));
    sim.call(child, vec![read("1", "a")]);
    assert_eq!(sim.submit(conclude()), Ok(vec![]));
    sim.output(child, 0, "text");
    assert_eq!(sim.submit(conclude()), Ok(vec![]));
    assert!(sim.node(child).is_live());
}
