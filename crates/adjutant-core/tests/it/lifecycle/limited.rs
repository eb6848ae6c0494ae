//! Part of `lifecycle`: the turns an agent's definition allows.

use super::*;

fn limited(max_turns: u32) -> (Sim, SessionId) {
    begun(&[], Brief { max_turns: Some(max_turns), ..about("x") })
}

#[test]
fn the_last_turn_a_definition_allows_is_for_the_report() {
    let (mut sim, child) = limited(3);
    sim.call(child, vec![read("1", "a")]);
    sim.output(child, 0, "a");
    assert!(last_model_call(&sim, child).1, "the second of three turns has tools");
    sim.call(child, vec![read("2", "b")]);
    let events = sim.output(child, 0, "b");
    assert_eq!(kinds(&events), "tool_returned told reserved");
    assert!(!last_model_call(&sim, child).1, "the third has none");
    assert_eq!(kinds(&sim.say(child, "what I have")), "replied ended ended run_ended");
    assert_eq!(sim.model_calls(child).len(), 3);
    insta::assert_snapshot!(sim.ended(child), @"
    partial BUDGET_EXCEEDED: The definition of the agent allows 3 turns, and all were taken.
    => Split the task, or allow the agent more turns in its file.
    ");
    sim.check_over();
}

#[test]
fn an_answer_in_time_is_complete() {
    let (mut sim, child) = limited(3);
    sim.call(child, vec![read("1", "a")]);
    sim.output(child, 0, "a");
    sim.say(child, "Found it.");
    assert_eq!(sim.ended(child), "completed");
}

#[test]
fn a_turn_that_is_tried_again_is_still_the_same_turn() {
    let (mut sim, child) = limited(2);
    sim.fail(child, error(ModelErrorKind::Overloaded));
    sim.tick_at(1);
    assert!(last_model_call(&sim, child).1, "the first turn, tried again, is not the last");
    sim.call(child, vec![read("1", "a")]);
    assert_eq!(kinds(&sim.output(child, 0, "a")), "tool_returned told reserved");
    sim.fail(child, error(ModelErrorKind::Overloaded));
    assert_eq!(kinds(&sim.tick_at(2)), "reserved", "and it is told once");
}

#[test]
fn a_budget_that_ends_first_is_the_one_that_is_named() {
    let brief = Brief { max_turns: Some(50), ..small(90_000) };
    let (mut sim, child) = begun(&["budget_tokens=9000"], brief);
    sim.reply(child, ModelReply { usage: used(3_000, 20), ..asks(vec![read("1", "a")]) });
    sim.output(child, 0, "a");
    sim.say(child, "what I have");
    assert!(sim.ended(child).contains("The budget was exhausted"), "{}", sim.ended(child));
}
