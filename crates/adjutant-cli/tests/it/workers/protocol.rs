//! Agents that break the protocol, or use corners of it: each run ends with a valid result, a clear message, in time.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::site::{WorkerRun, WorkerSite, call, done, prompts};

/// How long a run may take whose agent does something odd.
const BOUND: Duration = Duration::from_secs(20);

/// Runs an agent with these extra keys in its script, within the bound.
#[track_caller]
fn run(site: &WorkerSite, more: &Value, steps: Value, flags: &[&str]) -> WorkerRun {
    let mut script = prompts([steps]);
    let script_keys = script.as_object_mut().unwrap();
    script_keys.extend(more.as_object().unwrap().clone());
    let start = Instant::now();
    let run = site.run(&script, flags);
    assert!(start.elapsed() < BOUND, "{:?}", start.elapsed());
    site.assert_settled_once();
    site.rig().assert_unharmed();
    run
}

/// Returns how a run with an agent of this kind ends.
#[track_caller]
fn end(more: &Value, steps: Value, flags: &[&str]) -> String {
    run(&WorkerSite::new(), more, steps, flags).end()
}

/// Returns how a run ends whose agent does this before it finishes properly.
#[track_caller]
fn end_after(step: Value) -> String {
    end(&json!({}), json!([call(), step, done()]), &[])
}

#[test]
fn another_protocol_version_is_named() {
    insta::assert_snapshot!(end(&json!({"protocol_version": 2}), json!([]), &[]), @"
    failed
    TOOL_UNAVAILABLE: worker failed: scripted: it speaks version 2 of ACP, and only version 1 is supported
    `adjutant workers` says what each worker needs; `adjutant log` shows what it did.
    ");
}

#[test]
fn an_agent_that_exits_at_its_start_is_quoted() {
    insta::assert_snapshot!(end(&json!({"start": {"exit": 7}}), json!([]), &[]), @"
    failed
    TOOL_UNAVAILABLE: worker failed: scripted: it exited with status 7: acp-agent: the script ends it at the start
    `adjutant workers` says what each worker needs; `adjutant log` shows what it did.
    ");
}

#[test]
fn an_agent_that_needs_a_login_is_named() {
    insta::assert_snapshot!(end(&json!({"auth_required": true}), json!([]), &[]), @"
    failed
    TOOL_UNAVAILABLE: worker failed: scripted: authentication required
    `adjutant workers` says what each worker needs; `adjutant log` shows what it did.
    ");
}

#[test]
fn an_agent_that_never_answers_ends_at_the_deadline() {
    let flags = ["--set", "timeout_s=1"];
    for start in ["silent", "silent_after_initialize"] {
        let end = end(&json!({"start": start}), json!([]), &flags);
        assert!(
            end.starts_with("partial\nTIMEOUT") || end.starts_with("failed\nTIMEOUT"),
            "{start}: {end}"
        );
    }
    insta::assert_snapshot!(end(&json!({}), json!([call(), "silent"]), &flags), @"
    partial
    TIMEOUT: Timed out after 1 s, its own timeout.
    `adjutant resume sess_0000000000_aaaaaa` gives it as much time again; what was found so far is in the result.
    ");
}

#[test]
fn an_agent_that_goes_silent_stalls() {
    let flags = ["--set", "stall_s=1"];
    insta::assert_snapshot!(end(&json!({}), json!([call(), "silent"]), &flags), @"
    partial
    STALLED: The worker scripted was silent for 1 s: no message and no model call.
    `adjutant log` shows what it did last; resume it, with a larger stall_s if its commands are slow.
    ");
}

#[test]
fn an_agent_that_exits_in_its_turn_is_reported() {
    insta::assert_snapshot!(end_after(json!({"exit": 3})), @"
    failed
    TOOL_UNAVAILABLE: worker failed: scripted: it exited with status 3
    `adjutant workers` says what each worker needs; `adjutant log` shows what it did.
    ");
    insta::assert_snapshot!(end_after(json!("kill_self")), @"
    failed
    TOOL_UNAVAILABLE: worker failed: scripted: it was killed by signal 9
    `adjutant workers` says what each worker needs; `adjutant log` shows what it did.
    ");
}

#[test]
fn an_error_instead_of_an_answer_is_reported() {
    let step = json!({"fail": {"code": -32603, "message": "the flux is out"}});
    insta::assert_snapshot!(end_after(step), @"
    failed
    TOOL_UNAVAILABLE: worker failed: scripted: the flux is out
    `adjutant workers` says what each worker needs; `adjutant log` shows what it did.
    ");
}

#[test]
fn stray_lines_are_ignored_and_too_many_end_the_agent() {
    let site = WorkerSite::new();
    let garbage = json!({"start": "garbage"});
    assert_eq!(run(&site, &garbage, json!([call(), "garbage", done()]), &[]).end(), "completed");
    let steps: Vec<Value> =
        std::iter::once(call()).chain((0..40).map(|_| json!("garbage"))).collect();
    insta::assert_snapshot!(end(&json!({}), Value::from(steps), &[]), @r#"
    failed
    TOOL_UNAVAILABLE: worker failed: scripted: it does not speak ACP: it wrote "Starting up..."
    `adjutant workers` says what each worker needs; `adjutant log` shows what it did.
    "#);
}

#[test]
fn a_line_that_is_too_long_ends_the_agent() {
    insta::assert_snapshot!(end_after(json!({"huge_line": 17 << 20})), @"
    failed
    TOOL_UNAVAILABLE: worker failed: scripted: it broke the protocol: a line is longer than 16 MiB
    `adjutant workers` says what each worker needs; `adjutant log` shows what it did.
    ");
    // No end of the line ever comes.
    let steps = json!([call(), {"endless_line": 40 << 20}, "sleep_until_cancelled"]);
    insta::assert_snapshot!(end(&json!({}), steps, &[]), @"
    failed
    TOOL_UNAVAILABLE: worker failed: scripted: it broke the protocol: a line is longer than 16 MiB
    `adjutant workers` says what each worker needs; `adjutant log` shows what it did.
    ");
}

#[test]
fn a_long_line_within_the_limit_is_read() {
    let site = WorkerSite::new();
    let steps = json!([call(), {"huge_line": 3 << 20}, {"run": "true"}, done()]);
    assert_eq!(run(&site, &json!({}), steps, &[]).end(), "completed");
}

#[test]
fn a_flood_of_updates_is_bounded() {
    let site = WorkerSite::new();
    let script = prompts([json!([call(), {"flood": 100_000}, {"run": "true"}, done()])]);
    let run = site.run(&script, &[]);
    assert_eq!(run.end(), "completed");
    let size = fs::metadata(site.journal()).unwrap().len();
    assert!(size < 4 << 20, "the journal has {size} bytes");
    let acted = site.events("worker_acted").len();
    assert!(acted < 5_100, "{acted}");
}

#[test]
fn permission_requests_are_answered_once_each() {
    let site = WorkerSite::new();
    let question = json!({"ask_permission": {"run": "echo yes >> allowed", "times": 3}});
    let odd = json!({"ask_permission": {"run": "echo no > refused", "options": ["allow_always", "reject_once"]}});
    let steps = json!([call(), question, odd, {"say": "Answers: {answers} {violations}"}]);
    let run = run(&site, &json!({}), steps, &[]);
    assert_eq!(run.end(), "completed");
    assert_eq!(site.kept("allowed"), "yes\nyes\nyes");
    let said = site.events("worker_acted").pop().unwrap()["text"].clone();
    let said = said.as_str().unwrap();
    assert_eq!(said.matches("option-allow_once").count(), 3, "{said}");
    assert!(said.ends_with("[]"), "{said}");
    let events = site.events("worker_acted");
    let asked = events.iter().filter(|event| event["action"] == "permission");
    let allowed: Vec<&Value> = asked.map(|event| &event["allowed"]).collect();
    assert_eq!(allowed, [true, true, true, false], "{events:?}");
}

#[test]
fn updates_of_another_session_are_not_the_answer() {
    let site = WorkerSite::new();
    let steps = json!([call(), {"say": "Mine. "}, "second_session", {"say": "Done."}]);
    let run = run(&site, &json!({}), steps, &[]);
    assert_eq!(run.status(), "completed", "{}", run.out);
    assert!(!run.out.stdout.contains("from another session"), "{}", run.out);
}

#[test]
fn unknown_notifications_bad_messages_and_late_or_double_answers_do_no_harm() {
    for step in [
        json!("unknown_notification"),
        json!("bad_json_rpc"),
        json!({"late_reply": {"ms": 300}}),
        json!("double_reply"),
        json!({"plan": ["one", "two"]}),
        json!({"offer_commands": ["review"]}),
        json!({"change_mode": "free"}),
        json!({"report_usage": {"input": 5, "output": 6, "cost_usd": 0.5}}),
    ] {
        let end = end_after(step.clone());
        assert_eq!(end, "completed", "{step}");
    }
}

#[test]
fn the_client_refuses_methods_that_it_did_not_offer() {
    let site = WorkerSite::new();
    let ask =
        |method: &str| json!({"ask_client": {"method": method, "params": {"path": "/etc/passwd"}}});
    let steps = json!([
        call(), ask("fs/read_text_file"), ask("terminal/create"), {"say": "Answers: {answers}"},
    ]);
    let run = run(&site, &json!({}), steps, &[]);
    assert_eq!(run.status(), "completed", "{}", run.out);
    let said = site.events("worker_acted").pop().unwrap()["text"].clone();
    assert_eq!(said.as_str().unwrap().matches("-32601").count(), 2, "{said}");
}

#[test]
fn a_call_after_the_end_of_the_turn_is_refused_or_in_the_books() {
    let site = WorkerSite::new();
    let steps = json!([call(), {"call_after_end": {"max_tokens": 200}}, done()]);
    let run = run(&site, &json!({}), steps, &[]);
    assert_eq!(run.status(), "completed", "{}", run.out);
    // The call races with the end of the turn. If it was admitted, it is settled, also if it was ended on its way.
    site.assert_settled_once();
    let reserved = site.events("worker_call_reserved").len();
    assert!((1..=reserved).contains(&site.provider.requests().len()), "{reserved} reserved");
}

#[test]
fn what_the_agent_says_it_used_is_shown_and_never_counted() {
    let site = WorkerSite::new();
    let report = json!({"report_usage": {"input": 7_000, "output": 77, "cost_usd": 3.25}});
    let run = run(&site, &json!({}), json!([call(), report, done()]), &[]);
    assert_eq!(run.status(), "completed", "{}", run.out);
    let reports = site.events("worker_reported");
    assert_eq!(reports.len(), 1, "{reports:?}");
    assert!(reports[0].to_string().contains("7077"), "{reports:?}");
    let cost = site.call(&["cost", "--json"]).run().json();
    assert!(cost["total"]["cost_usd"].as_f64().unwrap() < 0.001, "{cost}");
}
