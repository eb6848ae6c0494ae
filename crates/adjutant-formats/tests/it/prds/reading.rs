//! Valid PRDs, and the messages about invalid ones.

use adjutant_formats::prd::{Prd, PrdError, story_prompt};
use proptest::prelude::*;

use super::{prd, refused};

const WHOLE: &str = r#"{
  "project": "auth",
  "branchName": "feature/auth",
  "userStories": [
    {
      "id": "US-007",
      "title": "Log in",
      "description": "As a person I log in.\nWith a token.",
      "acceptanceCriteria": ["A token is made", "A wrong password\nis refused"],
      "priority": "high",
      "estimatedHours": 2.5,
      "estimatedComplexity": "complex",
      "suggestedModel": "opus",
      "fileScope": ["lib/auth.py", "tests/"],
      "dependencies": ["US-001"],
      "passes": false,
      "notes": "Mind the clock.",
      "verify": "make test",
      "delegationStrategy": {"subtasks": [
        {"description": "Tokens", "estimatedHours": 1.5, "verify": "make jwt", "fileScope": ["jwt"]},
        "[delegate:Write: the tests:2]"
      ]},
      "delegationContext": null,
      "theirs": {"x": 1e999}
    },
    {"id": "US-001", "title": "Base", "passes": true},
    {"id": "US-001-DEL-001", "title": "Part", "delegationContext":
      {"parent_story_id": "US-001", "depth": 1, "can_delegate": true, "max_delegations": 10}}
  ]
}"#;

#[test]
fn every_field_of_a_story_is_read() {
    insta::assert_debug_snapshot!(prd(WHOLE).stories()[0], @r#"
    Story {
        id: "US-007",
        title: "Log in",
        description: "As a person I log in.\nWith a token.",
        acceptance_criteria: [
            "A token is made",
            "A wrong password\nis refused",
        ],
        priority: StoryPriority(
            1.0,
        ),
        estimated_hours: Some(
            2.5,
        ),
        estimated_complexity: Some(
            "complex",
        ),
        suggested_model: Some(
            "opus",
        ),
        file_scope: [
            "lib/auth.py",
            "tests/",
        ],
        dependencies: [
            "US-001",
        ],
        passes: false,
        notes: Some(
            "Mind the clock.",
        ),
        verify: Some(
            "make test",
        ),
        verify_keep: [],
        planned: [
            PlannedChild {
                description: "Tokens",
                hours: 2,
                verify: Some(
                    "make jwt",
                ),
                verify_keep: [],
                file_scope: [
                    "jwt",
                ],
            },
            PlannedChild {
                description: "Write: the tests",
                hours: 2,
                verify: None,
                verify_keep: [],
                file_scope: [],
            },
        ],
        context: None,
    }
    "#);
    let part = prd(WHOLE).story("US-001-DEL-001").unwrap().clone();
    assert_eq!(part.parent(), Some("US-001"));
    assert_eq!(prd(WHOLE).project(), Some("auth"));
    assert_eq!(prd(WHOLE).warnings(), []);
    assert_eq!(prd(WHOLE).to_text(), WHOLE);
    assert!(prd(WHOLE).entry("US-001").unwrap().starts_with(r#"{"id": "US-001""#));
}

#[test]
fn the_prompt_of_a_story_contains_its_text_verbatim() {
    insta::assert_snapshot!(story_prompt(&prd(WHOLE).stories()[0]), @r#"
    Story US-007: Log in

    As a person I log in.
    With a token.

    Acceptance criteria:
    - A token is made
    - A wrong password
      is refused

    Files this story is about:
    - lib/auth.py
    - tests/

    Notes:
    Mind the clock.
    "#);
    let bare = prd(r#"{"stories": [{"id": "A", "description": " Only this. "}]}"#);
    assert_eq!(story_prompt(&bare.stories()[0]), "Story A: Only this.\n");
}

#[test]
fn a_prd_may_name_its_list_user_stories_or_stories_but_not_both() {
    for name in ["userStories", "stories"] {
        let text = format!(r#"{{"{name}": [{{"id": "A", "title": "a"}}]}}"#);
        assert_eq!(prd(&text).stories().len(), 1, "{name}");
    }
    for (text, said) in [
        (
            r#"{"userStories": [], "stories": []}"#,
            "line 1 column 32: both `userStories` and `stories` are there; only one may be",
        ),
        (
            r#"{"project": "x"}"#,
            "line 1 column 1: there is neither a list `userStories` nor a list `stories`",
        ),
        (
            r#"{"stories": {}}"#,
            "line 1 column 13: `stories` must be a list of stories, not an object",
        ),
        ("[]", "not a PRD: a PRD is a JSON object with a list `userStories` or `stories`"),
        ("", "not JSON, line 1 column 0: EOF while parsing a value"),
        ("{\n  \"stories\": [,]\n}", "not JSON, line 2 column 15: expected value"),
    ] {
        assert_eq!(refused(text), said, "{text}");
    }
}

#[test]
fn each_fault_of_a_story_is_reported_with_its_position() {
    let check = |fields: &str| refused(&format!("{{\"stories\": [\n{{{fields}}}\n]}}"));
    for (fields, said) in [
        ("", "line 2 column 1: story #1: `id` is required"),
        (r#""id": 7"#, "line 2 column 8: story #1: `id` must be a string, not a number"),
        (r#""id": """#, "line 2 column 8: story #1: `id` `` is empty"),
        (
            r#""id": "a b""#,
            "line 2 column 8: story #1: `id` `a b` contains a space, which is not allowed in a name",
        ),
        (
            r#""id": "a\nb""#,
            "line 2 column 8: story #1: `id` `a\\nb` contains \\u{a}, which is not allowed in a name",
        ),
        (
            r#""id": "A""#,
            "line 2 column 1: story A: `title` is missing, and there is no description either",
        ),
        (
            r#""id": "A", "title": 3"#,
            "line 2 column 22: story A: `title` must be a string, not a number",
        ),
        (
            r#""id": "A", "title": "\ud800""#,
            "line 2 column 22: story A: `title` must be a string, not a string with broken escapes",
        ),
        (
            r#""id": "A", "title": "é", "passes": "yes""#,
            "line 2 column 37: story A: `passes` must be true or false, not a string",
        ),
        (
            r#""id": "A", "title": "a", "priority": []"#,
            "line 2 column 39: story A: `priority` must be a number or a word, not an array",
        ),
        (
            r#""id": "A", "title": "a", "estimatedHours": -1"#,
            "line 2 column 45: story A: `estimatedHours` must be a number of at least 0, not -1",
        ),
        (
            r#""id": "A", "title": "a", "fileScope": ["x", 1]"#,
            "line 2 column 46: story A: `fileScope[1]` must be a string, not a number",
        ),
        (
            r#""id": "A", "title": "a", "verify": ["make"]"#,
            "line 2 column 37: story A: `verify` must be a string, not an array",
        ),
        (
            r#""id": "A", "title": "a", "dependencies": ["B"]"#,
            "line 2 column 43: story A: it depends on `B`, which is not in the PRD",
        ),
        (
            r#""id": "A", "title": "a", "delegationContext": {"depth": 1.5}"#,
            "line 2 column 58: story A: `delegationContext.depth` must be a whole number of at least 0, not 1.5",
        ),
        (
            r#""id": "A", "title": "a"}, {"id": "A", "title": "b""#,
            "line 2 column 28: story A: the id is already used by the story at line 2",
        ),
    ] {
        assert_eq!(check(fields), said, "{fields}");
    }
    assert_eq!(refused(r#"{"stories": [3]}"#), "line 1 column 14: story #1: it is not an object");
    assert_eq!(
        refused(r#"{"stories": [], "merge": 3, "delegationConfig": {"enabled": "yes"}}"#),
        "2 faults:\n  line 1 column 61: `delegationConfig.enabled` must be true or false, not a string\n  \
         line 1 column 26: `merge` must be a string, true or false, not a number"
    );
}

#[test]
fn up_to_twenty_faults_are_reported_together() {
    let stories: Vec<String> =
        (0..25).map(|n| format!(r#"{{"id": "S{n}", "title": "t", "passes": {n}}}"#)).collect();
    let text = format!(r#"{{"stories": [{}]}}"#, stories.join(",\n"));
    let Err(PrdError::Faults { findings, more }) = Prd::read(&text) else {
        panic!("a number is not true or false");
    };
    assert_eq!((findings.len(), more), (20, 5));
    assert_eq!(findings[19].story.as_deref(), Some("S19"));
    assert_eq!((findings[19].field.as_deref(), findings[19].line), (Some("passes"), 20));
    let said = refused(&text);
    assert!(said.starts_with("25 faults:\n  line 1 "), "{said}");
    assert!(said.ends_with("\n  and 5 more"), "{said}");
}

#[test]
fn harmless_oddities_are_warnings() {
    let text = r#"{"stories": [{"id": "A", "title": "a", "priority": "soon",
        "delegationContext": {"parent_story_id": "GONE"}}]}"#;
    let read = prd(text);
    let said: Vec<String> = read.warnings().iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(said.join("\n"), @r#"
    line 1 column 52: story A: `priority` `soon` is not critical, high, medium, low or a number; the story comes last
    line 2 column 30: story A: its parent `GONE` is not in the PRD, so it is never run; only its parent could run it
    "#);
}

#[test]
fn an_invalid_delegation_plan_is_a_fault_with_its_line() {
    let text = r#"{"stories": [{"id": "A", "title": "a",
        "delegationStrategy": ["x", {"description": "y", "estimatedHours": -1}, {"verify": "z"},
            {"description": "v", "verify": 1}, 5, "ok:1", {"description": "d"}, "late:1001"]},
        {"id": "B", "title": "b",
         "delegationStrategy": "x:2"}]}"#;
    insta::assert_snapshot!(refused(text), @r#"
    7 faults:
      line 2 column 32: story A: `delegationStrategy` number 1: it is not of the form `description:hours`
      line 2 column 37: story A: `delegationStrategy` number 2: its hours are not a number from 0 to 1000
      line 2 column 81: story A: `delegationStrategy` number 3: it has no `description`
      line 3 column 13: story A: `delegationStrategy` number 4: its `verify` must be a string, not a number
      line 3 column 48: story A: `delegationStrategy` number 5: it is neither an object nor a text such as `Write the tests:2`
      line 3 column 81: story A: `delegationStrategy` number 8: its hours are not a number from 0 to 1000
      line 5 column 32: story B: `delegationStrategy` is neither a list nor an object with a list `subtasks`
    "#);
}

#[test]
fn hours_of_planned_children_may_be_written_as_in_markers() {
    let read = Prd::read(
        r#"{"stories": [{"id": "A", "title": "a", "delegationStrategy": {"subtasks": [
            {"description": "b", "estimated_hours": 4},
            {"description": "c", "estimatedHours": 2, "estimated_hours": null}, "ok:1",
            {"description": "d"}, {"description": "e", "estimatedHours": 0}, "f: 0 "]}}]}"#,
    )
    .unwrap();
    let planned = read.stories()[0].planned.iter().map(|it| (it.description.as_str(), it.hours));
    let expected = [("b", 4), ("c", 2), ("ok", 1), ("d", 1), ("e", 1), ("f", 1)];
    assert_eq!(planned.collect::<Vec<_>>(), expected);
    let said = refused(
        r#"{"stories": [{"id": "A", "title": "a", "delegationStrategy": {"subtasks": [
            {"description": "d", "estimated_hours": "many"}]}}]}"#,
    );
    assert!(said.contains("number 1: its hours are not a number from 0 to 1000"), "{said}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn reading_any_text_does_not_panic(text in any::<String>()) {
        let _ = Prd::read(&text);
    }

    #[test]
    fn reading_any_json_does_not_panic(
        fields in prop::collection::vec((field(), value()), 0..8),
        config in value(),
    ) {
        let fields: Vec<String> =
            fields.iter().map(|(key, value)| format!("\"{key}\": {value}")).collect();
        let story = fields.join(", ");
        let text = format!(
            "{{\"stories\": [{{{story}}}, {{\"id\": \"B\", {story}}}], \"delegationConfig\": {config}}}"
        );
        if let Ok(read) = Prd::read(&text.replace(", }", "}")) {
            let _ = (read.order(), read.consent_requests().digest());
        }
    }
}

#[test]
fn a_duplicate_key_is_reported_with_both_lines() {
    let text = r#"{
      "project": "x",
      "stories": [
        {"id": "A", "title": "a", "verify": "true",
         "verif\u0079": "false"},
        {"id": "B", "title": "b", "theirs": {"deep": [{"x": 1, "y": 2, "x": 3}]}},
        {"id": "C", "title": "c", "theirs": {"x": 1, "more": {"x": 1}}}
      ],
      "project": "y"
    }"#;
    insta::assert_snapshot!(refused(text), @r"
    3 faults:
      line 5 column 10: `verif\u0079` is there a second time, after the one at line 4
      line 6 column 72: `x` is there a second time, after the one at line 6
      line 9 column 7: `project` is there a second time, after the one at line 2
    ");
}

#[test]
fn a_foreign_value_in_the_outcome_field_is_refused_on_reading() {
    for theirs in
        ["\"mine\"", "7", "[]", "{\"note\": 1}", "{\"run\": 7}", "{\"run\": \"r\"}", "false"]
    {
        let text = |passes| {
            format!(
                r#"{{"stories":[{{"id":"A","title":"a","passes":{passes},"adjutant":{theirs}}}]}}"#
            )
        };
        let said = refused(&text(false)).to_string();
        assert!(
            said.contains("story A: `adjutant` is the field in which adjutant writes the outcome"),
            "{theirs}: {said}"
        );
        // Nothing is written into what passes.
        let done = prd(&text(true));
        let written = done.edit("A", &super::done());
        assert_eq!(written, Err(PrdError::Taken { id: "A".into() }), "{theirs}");
    }
}

fn field() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "id",
        "title",
        "description",
        "acceptanceCriteria",
        "priority",
        "estimatedHours",
        "fileScope",
        "dependencies",
        "passes",
        "verify",
        "delegationStrategy",
        "delegationContext",
        "parent_story_id",
        "adjutant",
    ])
}

fn value() -> impl Strategy<Value = String> {
    let leaf = prop::sample::select(vec![
        "null",
        "true",
        "0",
        "-1",
        "1.5",
        "1e999",
        "18446744073709551616",
        "\"\"",
        "\"A\"",
        "\"B\"",
        "\"\\ud800\"",
        "\"x:2\"",
        "\"\u{202e}é\"",
        "[]",
        "{}",
    ]);
    leaf.prop_map(str::to_owned).prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(|it| format!("[{}]", it.join(","))),
            (field(), inner).prop_map(|(key, value)| format!("{{\"{key}\":{value}}}")),
        ]
    })
}
