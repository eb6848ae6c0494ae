//! Part of `admission`: recommendations.

use super::*;

#[test]
fn a_recommended_flag_works_when_pasted() {
    let ten: Vec<Value> = std::iter::once(json!({"id": "p"}))
        .chain((0..10).map(|n| json!({"id": format!("c{n}"), "parent": "p"})))
        .collect();
    let fifty: Vec<Value> = std::iter::once(json!({"id": "p"}))
        .chain((0..50).map(|n| json!({"id": format!("c{n}"), "parent": "p"})))
        .collect();
    for (preset, input) in [
        (Preset::Story, json!({"tree": [{"id": "p"}], "request": {"agent": "x"}})),
        (
            Preset::Scout,
            json!({"tree": chain(&["a", "b"]), "request": {"parent": "b", "agent": "x"}}),
        ),
        (
            Preset::Story,
            json!({"policy": {"enabled": true}, "tree": chain(&["a", "b", "c"]),
            "request": {"parent": "c", "agent": "x"}}),
        ),
        (
            Preset::Story,
            json!({"policy": {"enabled": true}, "tree": ten, "request": {"agent": "x"}}),
        ),
        (Preset::Scout, json!({"tree": fifty, "request": {"agent": "x"}})),
        (Preset::Story, story_context(85_000, json!({"child": "X", "estimate_tokens": 35_000}))),
        (
            Preset::Scout,
            json!({"policy": {"context_tokens": 4_000}, "tree": [{"id": "p"}],
            "request": {"agent": "x"}}),
        ),
        (
            Preset::Scout,
            json!({"policy": {"budget_tokens": 5_000}, "tree": [{"id": "p"}],
            "request": {"agent": "x"}}),
        ),
        (
            Preset::Scout,
            json!({"policy": {"budget_tokens_run": 9}, "tree": [{"id": "p"}],
            "request": {"agent": "x"}}),
        ),
    ] {
        let CheckAnswer::Refused { recommendation, code, .. } = answer(preset, &input).unwrap()
        else {
            panic!("{input} is granted already")
        };
        let settings = flags(&recommendation);
        assert!(!settings.is_empty(), "{code}: {recommendation}");
        let mut mended = input.clone();
        for (key, value) in settings {
            mended["policy"][key] = value;
        }
        let found = verdict(preset, &mended);
        assert!(found.starts_with("granted"), "{code}: {recommendation} gives {found}");
    }
}

#[test]
fn a_recommended_flag_outside_check_works_when_pasted() {
    // Money needs a price, and a whole call needs a call.
    let mended = |settings: &[&str], refusal: &Refusal| {
        let mut layered = LayeredPolicy::new(Preset::Scout);
        for setting in settings {
            let (key, value) = parse_assignment(setting).unwrap();
            layered.set(key, &value, &PolicySource::Flag("--set".into())).unwrap();
        }
        for (key, value) in flags(&refusal.recommendation()) {
            layered.set(&key, &value, &PolicySource::Flag("--set".into())).unwrap();
        }
        Sim::new(layered.into_policy())
    };
    let task = || Brief { model: Some(priced()), ..about("x") };
    for dollars in ["budget_usd=0.01", "budget_usd=0.0000001", "budget_usd=0.02"] {
        let sim = Sim::new(scout(&[dollars]));
        let refusal = sim.tree.judge_one(sim.now, sim.root(), &task()).unwrap_err();
        let again = mended(&[dollars], &refusal);
        assert!(again.tree.judge_one(sim.now, sim.root(), &task()).is_ok(), "{refusal}");
    }
    let mut sim = Sim::new(scout(&[]));
    let root = sim.root();
    let refusal = sim.ask(root, many(9), None).unwrap_err();
    let mut again = mended(&[], &refusal);
    assert_eq!(granted(&again.ask(root, many(9), None).unwrap()).len(), 9);
}

#[test]
fn a_refusal_is_recoverable_exactly_when_its_recommendation_helps() {
    let recoverable: Vec<String> = (0..14)
        .map(|mended| broken_from(mended).unwrap_err())
        .filter(Refusal::recoverable)
        .map(|refusal| refusal.code().to_string())
        .collect();
    assert_eq!(
        recoverable.join(" "),
        "DELEGATION_DISABLED UNKNOWN_AGENT MAX_DEPTH_EXCEEDED MAX_DELEGATIONS_EXCEEDED \
         MAX_DELEGATIONS_EXCEEDED VALIDATION_FAILED CONTEXT_BUDGET_EXCEEDED BUDGET_EXCEEDED \
         BUDGET_EXCEEDED QUEUE_FULL"
    );
}

#[test]
fn invalid_input_of_check_is_reported() {
    let problem = |input: Value| answer(Preset::Scout, &input).unwrap_err().to_string();
    let request = json!({"agent": "x"});
    for (input, expected) in [
        (json!({"request": request}), "tree: at least the root is needed"),
        (json!({"tree": [{"id": "a"}], "request": {}}), "request: `agent` or `child` is needed"),
        (
            json!({"tree": [{"id": "a"}, {"id": "a", "parent": "a"}], "request": request}),
            "tree: `a` appears twice",
        ),
        (
            json!({"tree": [{"id": "a"}, {"id": "b", "parent": "c"}], "request": request}),
            "tree: `b` does not lead to the root; its parent is `c`",
        ),
        (
            json!({"tree": [{"id": "a"}, {"id": "b"}], "request": request}),
            "tree: `b` does not lead to the root; its parent is missing",
        ),
        (
            json!({"tree": [{"id": "a"}, {"id": "b", "parent": "c"}, {"id": "c", "parent": "b"}],
                "request": request}),
            "tree: `c` does not lead to the root; its parent is `b`",
        ),
        (
            json!({"policy": {"max_depth": 4}, "tree": [{"id": "a"}], "request": request}),
            "policy: max_depth: 4 exceeds the hard maximum 3",
        ),
        (
            json!({"policy": {"max_dept": 2}, "tree": [{"id": "a"}], "request": request}),
            "policy: unknown policy key `max_dept`; did you mean `max_depth`?",
        ),
    ] {
        assert_eq!(problem(input.clone()), expected, "{input}");
    }
    let unknown: Result<CheckInput, _> =
        serde_json::from_value(json!({"tree": [], "request": request, "extra": 1}));
    assert!(unknown.is_err());
}

#[test]
fn nodes_may_be_written_in_any_order_after_the_root() {
    let input = json!({"tree": [{"id": "a"}, {"id": "c", "parent": "b"}, {"id": "b", "parent": "a"}],
        "request": {"parent": "c", "agent": "d"}});
    let expected = "granted: depth 3, timeout 3600, orchestrator → a → b → c → d";
    assert_eq!(verdict(Preset::Command, &input), expected);
}

#[test]
fn the_output_of_check_has_the_documented_keys() {
    let input = json!({"tree": [{"id": "lead"}], "request": {"agent": "scout", "prompt": "look"}});
    let text = serde_json::to_string(&answer(Preset::Scout, &input).unwrap()).unwrap();
    insta::assert_snapshot!(text, @r#"{"granted":true,"depth":1,"path":["lead","scout"],"timeout":null,"clamped":false,"estimate_tokens":5001,"tools":["Glob","Grep","Note","Read"]}"#);
    let input = json!({"tree": [{"id": "lead"}], "request": {"parent": "x", "agent": "scout"}});
    let text = serde_json::to_string(&answer(Preset::Scout, &input).unwrap()).unwrap();
    insta::assert_snapshot!(text, @r#"{"granted":false,"code":"UNKNOWN_PARENT","message":"Unknown parent: x is not a live delegation.","recommendation":"Name a running delegation; `adjutant tree` lists them.","recoverable":false}"#);
}

#[test]
fn the_worst_case_is_the_sum_of_what_every_task_may_take() {
    let mut sim = Sim::new(policy(Preset::Story, &["enabled=true"]));
    let root = sim.root();
    let briefs = (0..4).map(|n| Brief { model: Some(priced()), ..about(&n.to_string()) }).collect();
    let events = sim.ask(root, briefs, Some(1)).unwrap();
    let grants: Vec<Grant> = events
        .iter()
        .filter_map(|event| match event {
            Event::Granted(grant) => Some(grant.as_ref().clone()),
            _ => None,
        })
        .collect();
    let (amount, seconds) = worst_case(sim.tree.policy(), &grants);
    assert_eq!(amount.tokens, 20_000_000);
    assert_eq!(amount.usd, Usd::from_dollars(5.0).unwrap());
    // One after the other, because the call asked for one place.
    assert_eq!(seconds, Some(4 * 1_800));
    let (one, _) = worst_case(&scout(&["budget_usd=none"]), &grants[..1]);
    assert_eq!((one.tokens, one.usd), (5_000_000, Usd::from_dollars(75.0).unwrap()));
    let unbounded = Grant { timeout_s: None, ..grants[0].clone() };
    assert_eq!(worst_case(sim.tree.policy(), &[grants[1].clone(), unbounded]).1, None);
}
