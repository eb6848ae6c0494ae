//! Which entry answers: the rule of `docs/scripted-model.md`, case by case and as a property.

use adjutant_core::ModelErrorKind;
use proptest::prelude::*;

use crate::rig::{Child, replies, script};

async fn check(toml: &str, label: &str, turns: u32) -> String {
    replies(&script(toml), &mut Child::new(label), turns).await
}

#[tokio::test(start_paused = true)]
async fn turns_are_used_in_file_order_until_the_script_ends() {
    let toml = r#"
        turn = [{ text = "one" }, { text = "two", times = 2 }, { text = "three" }]
    "#;
    insta::assert_snapshot!(check(toml, "any", 5).await, @r#"
    1: one
    2: two
    3: two
    4: three
    5: script ended: script has no turn 5 for label `any` (agent `scout`); add one, or repeat the last one with times = "forever"
    "#);
}

#[tokio::test(start_paused = true)]
async fn the_last_entry_may_repeat_for_ever() {
    let toml = r#"turn = [{ text = "one" }, { text = "again", times = "forever" }]"#;
    let model = script(toml);
    let mut child = Child::new("any");
    child.turn = u32::MAX;
    assert_eq!(child.try_turn(&model).await.unwrap().text, "again");
}

#[tokio::test(start_paused = true)]
async fn a_pinned_turn_is_left_out_of_the_sequence() {
    let toml = r#"
        turn = [{ text = "first" }, { turn = 2, text = "pinned" }, { text = "second" }]
    "#;
    insta::assert_snapshot!(check(toml, "any", 3).await, @r"
    1: first
    2: pinned
    3: second
    ");
}

#[tokio::test(start_paused = true)]
async fn labels_and_agents_select_the_turns_of_each_child() {
    let toml = r#"
        [[turn]]
        label = "security"
        text = "for security"
        [[turn]]
        agent = "planner"
        text = "for the planner"
        [[turn]]
        text = "for all"
    "#;
    insta::assert_snapshot!(check(toml, "security", 2).await, @r"
    1: for security
    2: for all
    ");
    insta::assert_snapshot!(check(toml, "docs", 1).await, @"1: for all");
    let mut planner = Child { agent: "planner", ..Child::new("docs") };
    insta::assert_snapshot!(replies(&script(toml), &mut planner, 2).await, @r"
    1: for the planner
    2: for all
    ");
}

#[tokio::test(start_paused = true)]
async fn an_unknown_label_is_an_error_that_lists_the_known_ones() {
    let toml = r#"turn = [{ label = "docs", text = "a" }, { label = "api", text = "b" }]"#;
    insta::assert_snapshot!(check(toml, "security", 1).await, @"1: script ended: script has no turn 1 for label `security` (agent `scout`); it has turns for the labels `api`, `docs`");
}

#[tokio::test(start_paused = true)]
async fn a_pattern_answers_whenever_the_last_message_matches() {
    let model = script(
        r#"
        [[turn]]
        text = "reading"
        times = 3
        [[turn]]
        last = '(?i)^no such file\b'
        text = "giving up"
        "#,
    );
    let mut child = Child::new("any");
    assert_eq!(child.ask(&model).await.text, "reading");
    child.told("a", "read:\nNo such file: x");
    assert_eq!(child.ask(&model).await.text, "giving up");
    child.told("a", "content");
    assert_eq!(child.ask(&model).await.text, "reading");
    // The pattern took the second place of the sequence, so only three turns were ever there.
    child.told("a", "content");
    assert_eq!(child.try_turn(&model).await.unwrap_err().kind, ModelErrorKind::ScriptEnded);
}

#[tokio::test(start_paused = true)]
async fn a_pinned_pattern_that_does_not_match_leaves_the_turn_to_the_sequence() {
    let toml = r#"turn = [{ turn = 1, last = "nothing like it", text = "no" }, { text = "yes" }]"#;
    assert_eq!(check(toml, "any", 1).await, "1: yes");
}

#[tokio::test(start_paused = true)]
async fn transient_errors_answer_attempts_and_use_up_no_turn() {
    let model = script(
        r#"
        [[turn]]
        error = "rate_limited"
        times = 2
        [[turn]]
        error = "network"
        [[turn]]
        text = "through"
        times = 2
        "#,
    );
    let mut child = Child::new("any");
    let mut kinds = Vec::new();
    for attempt in 1..=3 {
        child.attempt = attempt;
        kinds.push(child.try_turn(&model).await.unwrap_err().kind);
    }
    assert_eq!(
        kinds,
        [ModelErrorKind::RateLimited, ModelErrorKind::RateLimited, ModelErrorKind::Network]
    );
    child.attempt = 4;
    assert_eq!(child.ask(&model).await.text, "through");
    assert_eq!(child.ask(&model).await.text, "through");
    assert_eq!(child.try_turn(&model).await.unwrap_err().kind, ModelErrorKind::ScriptEnded);
}

#[tokio::test(start_paused = true)]
async fn an_error_without_a_next_turn_repeats() {
    let model = script(r#"turn = [{ error = "overloaded" }]"#);
    for attempt in [1, 2, 99] {
        let mut child = Child { attempt, ..Child::new("any") };
        assert_eq!(child.try_turn(&model).await.unwrap_err().kind, ModelErrorKind::Overloaded);
    }
}

#[tokio::test(start_paused = true)]
async fn a_long_script_is_answered_in_order_by_its_last_turn_too() {
    let turns: Vec<_> = (1..=500).map(|n| format!("{{ text = \"{n}\" }}")).collect();
    let model = script(&format!("turn = [{}]", turns.join(", ")));
    let mut child = Child::new("any");
    for turn in [500, 1, 250] {
        child.turn = turn;
        assert_eq!(child.try_turn(&model).await.unwrap().text, turn.to_string());
    }
}

const MIXED: &str = r#"
    [[turn]]
    label = "a"
    text = "a1 {{turn}}"
    times = 2
    [[turn]]
    text = "any {{label}} {{turn}}"
    [[turn]]
    label = "b"
    turn = 2
    text = "b2"
    [[turn]]
    last = "odd"
    text = "odd {{last}}"
    [[turn]]
    label = "c"
    error = "network"
    [[turn]]
    text = "tail {{turn}}"
    times = "forever"
"#;

proptest! {
    /// Every session gets what it would have got alone, in the same or in a new process.
    #[test]
    fn any_interleaving_of_sessions_gives_the_same_replies(order in prop::collection::vec(0..4_usize, 1..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let shared = script(MIXED);
            let mut children = ["a", "b", "c", "a"].map(Child::new);
            for who in order {
                let child = &mut children[who];
                let together = child.try_turn(&shared).await;
                // A fresh model stands for a process that resumed this session at this turn.
                let alone = child.try_turn(&script(MIXED)).await;
                prop_assert_eq!(&together, &alone);
                match together {
                    Ok(reply) => {
                        child.turn += 1;
                        child.attempt = 1;
                        let content = if child.turn % 3 == 0 { "odd" } else { "even" };
                        child.told(&reply.text, content);
                    }
                    Err(_) => child.attempt += 1,
                }
            }
            Ok(())
        })?;
    }
}
