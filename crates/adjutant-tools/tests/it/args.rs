//! Names and arguments as models get them wrong.

use adjutant_core::message::ToolSpec;
use adjutant_tools::ToolName;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{Rig, shown};

#[test]
fn wrong_arguments_are_answered_with_the_correct_form() {
    let rig = Rig::new();
    let cases = [
        (ToolName::Read, json!({})),
        (ToolName::Read, json!(null)),
        (ToolName::Read, json!("a.txt")),
        (ToolName::Read, json!({"path": ""})),
        (ToolName::Read, json!({"path": ["a"]})),
        (ToolName::Read, json!({"path": "a", "line": 3})),
        (ToolName::Read, json!({"path": "a", "offset": 0})),
        (ToolName::Read, json!({"path": "a", "offset": "ten"})),
        (ToolName::Read, json!({"path": "a", "limit": 1.5})),
        (ToolName::Grep, json!({"pattern": "a", "ignore_case": "maybe"})),
        (ToolName::Grep, json!({"pattern": "a", "output": "lines"})),
        (ToolName::Grep, json!({"pattern": "a", "context": -1})),
    ];
    let answers: Vec<_> =
        cases.into_iter().map(|(tool, arguments)| rig.call(tool, arguments)).collect();
    insta::assert_snapshot!(answers.join("\n"), @r#"
    error: `file_path` is required
    error: `file_path` is required
    error: arguments must be an object, not a string
    error: `file_path` is required
    error: `file_path` must be a string, not an array
    error: unknown argument `line`; Read takes `file_path`, `offset`, `limit`
    error: `offset` must be a whole number of at least 1, not 0
    error: `offset` must be a whole number of at least 1, not "ten"
    error: `limit` must be a whole number of at least 1, not 1.5
    error: `ignore_case` must be true or false, not "maybe"
    error: `output` must be "content", "files" or "count", got "lines"
    error: `context` must be a whole number of at least 0, not -1
    "#);
}

#[test]
fn harmless_spellings_are_accepted() {
    let rig = Rig::with(&[("1", "a\nb\n")]);
    let arguments = json!({"path": 1, "offset": "2", "limit": 1.0});
    assert_eq!(rig.read(arguments), "2\tb\n[lines 2–2 of 2]");
    assert_eq!(rig.read(json!({"path": "1", "offset": null, "limit": null})), "1\ta\n2\tb\n");
}

#[test]
fn an_unavailable_tool_says_why_and_lists_the_available_ones() {
    let rig = Rig::new();
    let answer = |name: &str| shown(&rig.toolbox.call_by_name(name, &json!({}), &|| false));
    insta::assert_snapshot!(answer("WebFetch"), @"error: `WebFetch` is not available without network; available: Read, Grep, Glob, Note");
    insta::assert_snapshot!(answer("Write"), @"error: you may not write files");
    insta::assert_snapshot!(answer("Bash"), @"error: unknown tool `Bash`; available: Read, Grep, Glob, Note");
}

#[test]
fn every_tool_is_found_only_by_its_exact_name() {
    for tool in ToolName::ALL {
        assert_eq!(ToolName::parse(tool.as_str()), Some(tool));
        assert_eq!(ToolName::parse(&tool.as_str().to_lowercase()), None);
    }
}

#[test]
fn the_specs_are_the_implemented_tools_and_name_their_arguments() {
    let rig = Rig::new();
    let specs = rig.toolbox.specs();
    let names: Vec<_> = specs.iter().map(|spec| spec.name.as_str()).collect();
    assert_eq!(names, ["Read", "Grep", "Glob", "Note", "Edit", "Write", "Run"]);
    for spec in &specs {
        assert_eq!(refused_arguments(&rig, spec), Vec::<String>::new(), "{}", spec.name);
    }
}

/// Returns the arguments a spec offers that its tool does not know.
pub(crate) fn refused_arguments(rig: &Rig, spec: &ToolSpec) -> Vec<String> {
    let offered = spec.schema["properties"].as_object().unwrap().keys();
    offered
        .filter(|name| {
            let arguments = Value::Object([((*name).clone(), Value::Null)].into_iter().collect());
            let answer = rig.toolbox.call_by_name(&spec.name, &arguments, &|| false);
            answer.text.contains("unknown argument")
        })
        .cloned()
        .collect()
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,20}".prop_map(Value::from),
        "[a.*?{}\\[\\]()/!|+^$\\\\-]{0,30}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        let names = prop_oneof![
            Just("path".to_owned()),
            Just("pattern".to_owned()),
            Just("glob".to_owned()),
            Just("offset".to_owned()),
            Just("limit".to_owned()),
            Just("context".to_owned()),
            Just("output".to_owned()),
            Just("content".to_owned()),
            ".{0,8}"
        ];
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::vec((names, inner), 0..5)
                .prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
        ]
    })
}

fn shared_rig() -> &'static Rig {
    static RIG: std::sync::OnceLock<Rig> = std::sync::OnceLock::new();
    RIG.get_or_init(|| Rig::with(&[("a/a.a", "aaa\n(a)\n"), ("a.txt", "a\0"), (".gitignore", "b")]))
}

proptest! {
    #[test]
    fn no_arguments_make_a_tool_panic(arguments in any_json(), index in 0..ToolName::ALL.len()) {
        let output = shared_rig().output(ToolName::ALL[index], &arguments);
        prop_assert!(!output.text.is_empty());
        prop_assert!(!output.text.contains("outside\n"));
    }

    #[test]
    fn no_pattern_makes_a_search_panic(pattern in "[a*?{},\\[\\]!/.()|+^$\\\\-]{1,40}") {
        let rig = shared_rig();
        let _ = rig.glob(json!({"pattern": pattern}));
        let _ = rig.grep(json!({"pattern": "a", "glob": pattern}));
        let _ = rig.grep(json!({"pattern": pattern, "context": 2}));
    }
}
