//! The outcome of a story as it is written down.

use adjutant_formats::Usd;
use adjutant_formats::outcome::Outcome;
use adjutant_formats::prd::Prd;

use super::{child, done, prd};

#[test]
fn an_outcome_is_written_in_the_layout_of_the_file() {
    let text = r#"{
  "project": "auth",
  "userStories": [
    {
      "id": "US-007",
      "title": "Log in",
      "passes": false,
      "priority": 1.0e0
    },
    {
      "id": "US-008", "title": "Log out"
    }
  ]
}
"#;
    let mut outcome = done();
    let nested = super::PrdChildOutcome {
        depth: 2,
        can_delegate: false,
        passes: false,
        status: Outcome::Failed,
        files_changed: Vec::new(),
        cost: Usd::ZERO,
        ..child("US-007-DEL-001-DEL-001", "US-007-DEL-001")
    };
    outcome.children =
        vec![child("US-007-DEL-001", "US-007"), child("US-007-DEL-002", "US-007"), nested];
    let after = prd(text).edit("US-007", &outcome).unwrap();
    insta::assert_snapshot!(after, @r#"
    {
      "project": "auth",
      "userStories": [
        {
          "id": "US-007",
          "title": "Log in",
          "passes": true,
          "priority": 1.0e0,
          "adjutant": {
            "run": "run_1768900000_abc123",
            "status": "completed",
            "summary": "All of it works.",
            "branch": "adjutant/US-007",
            "cost_usd": 0.45,
            "tokens_in": 12500,
            "tokens_out": 3200,
            "finished": "2026-01-20T10:35:22Z",
            "children": [
              {
                "id": "US-007-DEL-001",
                "status": "completed",
                "summary": "Tokens work.",
                "files_changed": [
                  "lib/jwt.py"
                ],
                "cost_usd": 0.12,
                "tokens_in": 500,
                "tokens_out": 40
              },
              {
                "id": "US-007-DEL-002",
                "status": "completed",
                "summary": "Tokens work.",
                "files_changed": [
                  "lib/jwt.py"
                ],
                "cost_usd": 0.12,
                "tokens_in": 500,
                "tokens_out": 40
              },
              {
                "id": "US-007-DEL-001-DEL-001",
                "status": "failed",
                "summary": "Tokens work.",
                "files_changed": [],
                "cost_usd": 0.0,
                "tokens_in": 500,
                "tokens_out": 40
              }
            ]
          }
        },
        {
          "id": "US-007-DEL-001",
          "title": "Implement JWT",
          "description": "Implement JWT \"tokens\"",
          "estimatedHours": 4,
          "passes": true,
          "dependencies": [],
          "delegationContext": {
            "parent_story_id": "US-007",
            "depth": 1,
            "can_delegate": true,
            "max_delegations": 10
          }
        },
        {
          "id": "US-007-DEL-001-DEL-001",
          "title": "Implement JWT",
          "description": "Implement JWT \"tokens\"",
          "estimatedHours": 4,
          "passes": false,
          "dependencies": [],
          "delegationContext": {
            "parent_story_id": "US-007-DEL-001",
            "depth": 2,
            "can_delegate": false,
            "max_delegations": 10
          }
        },
        {
          "id": "US-007-DEL-002",
          "title": "Implement JWT",
          "description": "Implement JWT \"tokens\"",
          "estimatedHours": 4,
          "passes": true,
          "dependencies": [],
          "delegationContext": {
            "parent_story_id": "US-007",
            "depth": 1,
            "can_delegate": true,
            "max_delegations": 10
          }
        },
        {
          "id": "US-008", "title": "Log out"
        }
      ]
    }
    "#);
    assert_eq!(prd(&after).edit("US-007", &outcome).unwrap(), after);
    let ids: Vec<String> = prd(&after).stories().iter().map(|story| story.id.clone()).collect();
    assert_eq!(
        ids,
        ["US-007", "US-007-DEL-001", "US-007-DEL-001-DEL-001", "US-007-DEL-002", "US-008"]
    );
}

#[test]
fn a_story_on_one_line_stays_on_one_line() {
    let outcome = |passes: bool| super::PrdOutcome {
        passes,
        branch: None,
        children: vec![child("A-DEL-001", "A")],
        ..done()
    };
    let record = r#"{"run":"run_1768900000_abc123","status":"completed","summary":"All of it works.","cost_usd":0.45,"tokens_in":12500,"tokens_out":3200,"finished":"2026-01-20T10:35:22Z","children":[{"id":"A-DEL-001","status":"completed","summary":"Tokens work.","files_changed":["lib/jwt.py"],"cost_usd":0.12,"tokens_in":500,"tokens_out":40}]}"#;
    let entry = r#"{"id":"A-DEL-001","title":"Implement JWT","description":"Implement JWT \"tokens\"","estimatedHours":4,"passes":true,"dependencies":[],"delegationContext":{"parent_story_id":"A","depth":1,"can_delegate":true,"max_delegations":10}}"#;
    for (text, expected) in [
        (
            r#"{"stories":[{"id":"A","title":"a"},{"id":"B","title":"b"}]}"#.to_owned(),
            format!(
                r#"{{"stories":[{{"id":"A","title":"a", "passes": true, "adjutant": {record}}},{entry},{{"id":"B","title":"b"}}]}}"#
            ),
        ),
        (
            "{\n\t\"stories\": [\n\t\t{ \"passes\" : false, \"id\": \"A\", \"title\": \"a\" }\n\t]\n}".to_owned(),
            format!(
                "{{\n\t\"stories\": [\n\t\t{{ \"passes\" : true, \"id\": \"A\", \"title\": \"a\", \"adjutant\": {record} }},\n\t\t{entry}\n\t]\n}}"
            ),
        ),
    ] {
        assert_eq!(prd(&text).edit("A", &outcome(true)).unwrap(), expected);
        let back = prd(&expected).edit("A", &outcome(false)).unwrap();
        assert_eq!(back, expected.replacen("\"passes\": true", "\"passes\": false", 1).replacen("\"passes\" : true", "\"passes\" : false", 1));
    }
}

#[test]
fn children_of_a_later_run_follow_those_of_an_earlier_run() {
    let text = "{\"stories\": [\n {\"id\": \"A\", \"title\": \"a\"},\n {\"id\": \"B\", \"title\": \"b\"}\n]}";
    let first = super::PrdOutcome { children: vec![child("A-DEL-001", "A")], ..done() };
    let second = super::PrdOutcome { children: vec![child("A-DEL-002", "A")], ..done() };
    let after = prd(text).edit("A", &first).unwrap();
    let after = prd(&after).edit("A", &second).unwrap();
    let ids: Vec<String> = prd(&after).stories().iter().map(|story| story.id.clone()).collect();
    assert_eq!(ids, ["A", "A-DEL-001", "A-DEL-002", "B"]);
}

#[test]
fn an_entry_that_adjutant_did_not_write_is_left_unchanged() {
    let text = r#"{"stories": [{"id": "A", "title": "a"}, {"id": "A-DEL-001", "title": "mine"}]}"#;
    let outcome = super::PrdOutcome { children: vec![child("A-DEL-001", "A")], ..done() };
    let after = prd(text).edit("A", &outcome).unwrap();
    assert!(after.ends_with(r#", {"id": "A-DEL-001", "title": "mine"}]}"#), "{after}");
    assert_eq!(prd(&after).stories().len(), 2);
}

#[test]
fn a_changed_child_is_updated_and_keeps_unknown_fields() {
    let text = r#"{"stories": [{"id": "A", "title": "a", "passes": true},
        {"mine": 1.0e3, "id": "A-DEL-001", "title": "old", "passes": false, "dependencies": ["A"],
         "delegationContext": {"depth": 9, "why": [1], "parent_story_id": "A"}}]}"#;
    let outcome = super::PrdOutcome { children: vec![child("A-DEL-001", "A")], ..done() };
    let after = prd(text).edit("A", &outcome).unwrap();
    let story = prd(&after).story("A-DEL-001").unwrap().clone();
    assert_eq!((story.title.as_str(), story.passes), ("Implement JWT", true));
    assert_eq!(story.dependencies, ["A"]);
    assert!(after.contains(r#"{"mine": 1.0e3, "id": "A-DEL-001""#), "{after}");
    assert!(
        after.contains(
            r#"{"depth": 1, "why": [1], "parent_story_id": "A", "can_delegate": true, "max_delegations": 10}"#
        ),
        "{after}"
    );
}

#[test]
fn an_outcome_that_would_not_read_back_is_refused() {
    let text = r#"{"stories": [{"id": "A", "title": "a"}]}"#;
    assert_eq!(prd(text).edit("B", &done()).unwrap_err().to_string(), "there is no story `B`");
    let bad = super::PrdOutcome { children: vec![child("no name", "A")], ..done() };
    assert_eq!(
        prd(text).edit("A", &bad).unwrap_err().to_string(),
        "the outcome of story `A` cannot be written into the PRD because of its layout; nothing was written"
    );
}

#[test]
fn two_hundred_stories_each_get_their_outcome() {
    let stories: Vec<String> = (0..200)
        .map(|n| format!("    {{\n      \"id\": \"S{n}\",\n      \"title\": \"t\"\n    }}"))
        .collect();
    let mut text = format!("{{\n  \"stories\": [\n{}\n  ]\n}}\n", stories.join(",\n"));
    for n in 0..200 {
        let id = format!("S{n}");
        let outcome =
            super::PrdOutcome { children: vec![child(&format!("{id}-DEL-001"), &id)], ..done() };
        text = prd(&text).edit(&id, &outcome).unwrap();
    }
    let read = Prd::read(&text).unwrap();
    assert_eq!(read.stories().len(), 400);
    assert!(read.stories().iter().all(|story| story.passes));
    assert_eq!(read.order(), Ok(Vec::new()));
}

#[test]
fn fields_that_the_user_added_to_an_outcome_are_kept() {
    let text = prd(r#"{"stories":[{"id":"A","title":"a"}]}"#).edit("A", &done()).unwrap();
    let added = text.replacen(r#""adjutant": {"#, r#""adjutant": {"seen": ["by me", 7], "#, 1);
    assert_ne!(added, text);
    let again =
        prd(&added).edit("A", &super::PrdOutcome { run: "another".into(), ..done() }).unwrap();
    let value: serde_json::Value = serde_json::from_str(&again).unwrap();
    let record = &value["stories"][0]["adjutant"];
    assert_eq!(record["run"], "another");
    assert_eq!(record["seen"], serde_json::json!(["by me", 7]));
}
