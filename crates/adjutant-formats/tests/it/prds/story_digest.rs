//! When a story asks for something else, and when it does not.

use adjutant_formats::prd::story_digest;

use super::{child, done, prd};

const STORY: &str = r#"{"project": "p", "stories": [
    {"id": "A", "title": "t", "description": "d", "acceptanceCriteria": ["c"], "fileScope": ["f"],
     "notes": "n", "verify": "v", "priority": 1,
     "delegationStrategy": [{"description": "x", "verify": "w", "fileScope": ["g"]}]},
    {"id": "B", "title": "b"}
]}"#;

fn digest(text: &str, verify: Option<&str>) -> String {
    story_digest(prd(text).story("A").unwrap(), verify)
}

#[test]
fn the_digest_covers_everything_that_a_story_requests() {
    let before = digest(STORY, Some("v"));
    assert_eq!(before.len(), 64);
    for (from, to) in [
        ("\"t\"", "\"tt\""),
        ("\"d\"", "\"dd\""),
        ("\"c\"", "\"cc\""),
        ("\"f\"", "\"ff\""),
        ("\"n\"", "\"nn\""),
        ("\"v\"", "\"vv\""),
        ("\"x\"", "\"xx\""),
        ("\"w\"", "\"ww\""),
        ("\"g\"", "\"gg\""),
    ] {
        let changed = STORY.replacen(from, to, 1);
        assert_ne!(changed, STORY);
        assert_ne!(digest(&changed, Some("v")), before, "{from}");
    }
    for verify in [None, Some(""), Some("another")] {
        assert_ne!(digest(STORY, verify), before, "{verify:?}");
    }
}

#[test]
fn the_digest_ignores_fields_that_request_nothing() {
    let before = digest(STORY, None);
    for (from, to) in [
        ("\"project\": \"p\"", "\"project\": \"q\""),
        ("\"priority\": 1", "\"priority\": 2,  \"owner\": \"me\", \"dependencies\": [\"B\"]"),
        ("\"b\"", "\"bb\""),
    ] {
        let changed = STORY.replacen(from, to, 1);
        assert_ne!(changed, STORY);
        assert_eq!(digest(&changed, None), before, "{from}");
    }
    let mut outcome = done();
    outcome.children = vec![child("A-DEL-001", "A")];
    assert_eq!(digest(&prd(STORY).edit("A", &outcome).unwrap(), None), before);
}

#[test]
fn the_task_of_a_planned_child_names_its_files() {
    let read = prd(STORY);
    let task = read.story("A").unwrap().planned[0].task();
    assert_eq!(task, "x (files: g)");
}
