//! What a PRD may do to the policy: only tighten it.

use adjutant_core::{LayeredPolicy, Preset};
use adjutant_formats::prd::Prd;
use serde_json::json;

fn tightened(config: &str) -> (LayeredPolicy, Vec<String>) {
    let mut policy = LayeredPolicy::new(Preset::Story);
    policy
        .set(
            "enabled",
            &json!(true),
            &adjutant_core::PolicySource::Flag("--enable-delegation".into()),
        )
        .unwrap();
    let read = Prd::read(&format!(r#"{{"stories": [], "delegationConfig": {config}}}"#)).unwrap();
    let warnings = policy.tighten(read.config(), "prd.json");
    (policy, warnings)
}

#[test]
fn a_tightening_prd_setting_applies() {
    let (layered, warnings) = tightened(
        r#"{"enabled": true, "max_depth": 1, "max_context_per_agent": 50000,
            "max_delegations_per_story": 3, "allow_parallel_execution": false}"#,
    );
    assert_eq!(warnings, Vec::<String>::new());
    let policy = layered.policy();
    assert!(policy.enabled);
    assert_eq!(
        (policy.max_depth, policy.context_tokens, policy.children_per_parent, policy.concurrency),
        (1, Some(50_000), Some(3), 1)
    );
}

#[test]
fn a_limit_of_zero_in_a_prd_disables_delegation() {
    for config in
        [r#"{"enabled": false}"#, r#"{"max_depth": 0}"#, r#"{"max_delegations_per_story": 0}"#]
    {
        let (layered, warnings) = tightened(config);
        assert!(!layered.policy().enabled && warnings.is_empty(), "{config}: {warnings:?}");
    }
}

#[test]
fn a_loosening_prd_setting_is_a_warning_and_changes_nothing() {
    let (layered, warnings) = tightened(
        r#"{"max_depth": 3, "max_context_per_agent": 200000, "max_delegations_per_story": 9,
            "allow_parallel_execution": true}"#,
    );
    let mut expected = LayeredPolicy::new(Preset::Story).into_policy();
    (expected.enabled, expected.children_per_parent) = (true, Some(9));
    assert_eq!(*layered.policy(), expected);
    assert_eq!(
        warnings,
        [
            "max_depth: prd.json may not change 2 to 3, it may only be lowered",
            "context_tokens: prd.json may not change 100000 to 200000, it may only be lowered",
        ]
    );
    assert_eq!(tightened(r#"{"max_depth": 9}"#).1, ["max_depth: 9 exceeds the hard maximum 3"]);
}

#[test]
fn enabled_in_a_prd_does_not_enable_delegation() {
    let mut policy = LayeredPolicy::new(Preset::Story);
    let read = Prd::read(r#"{"stories": [], "delegationConfig": {"enabled": true}}"#).unwrap();
    assert!(read.wants_delegation());
    assert_eq!(policy.tighten(read.config(), "prd.json"), Vec::<String>::new());
    assert!(!policy.policy().enabled);
}
