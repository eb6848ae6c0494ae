//! What the holes of a template are filled with.

use adjutant_core::{Message, ModelErrorKind};
use serde_json::json;

use crate::rig::{Child, script};

const LISTING: &str =
    "src/lib.rs:3: fn main() {}\nsrc/a.rs:10: // TODO: first\n\nsrc/b.rs:7: // FIXME: é";

fn listener() -> Child {
    let mut child = Child::new("docs");
    child.told("one", "alpha\nbeta");
    child.told("two", LISTING);
    child.told("three", "");
    child.told("two", LISTING);
    child
}

async fn fill(template: &str) -> String {
    let model = script(&format!("[[turn]]\ntext = '''{template}'''"));
    listener().try_turn(&model).await.unwrap().text
}

#[tokio::test(start_paused = true)]
async fn each_source_and_filter_works_as_documented() {
    let cases = [
        ("plain", "plain"),
        ("{{prompt | first_line}}", "Look around."),
        ("{{ prompt|last_line }}", "Then report."),
        ("{{agent}}/{{label}}/{{turn}}", "scout/docs/1"),
        ("{{result 1}}", "alpha\nbeta"),
        ("{{result one | lines}}", "2"),
        ("{{result three | bytes}}", "0"),
        ("{{result 3 | first_line | or \"empty\"}}", "empty"),
        ("{{result | lines}}", "4"),
        ("{{last | lines}}", "4"),
        ("{{result | head 1}}", "src/lib.rs:3: fn main() {}"),
        ("{{result | tail 2}}", "\nsrc/b.rs:7: // FIXME: é"),
        ("{{result | head 99 | bytes}}", "80"),
        ("{{result | count /TODO|FIXME/}}", "2"),
        ("{{result | count /nothing/}}", "0"),
        ("{{result | count /^src\\//}}", "3"),
        ("{{result | match /:(\\d+):/}}", "3"),
        ("{{result | match /nothing/ | or \"none\"}}", "none"),
        ("{{result | matches /^[^:\\n]+/}}", "src/lib.rs, src/a.rs, src/b.rs"),
        ("{{result | grep /FIXME/}}", "src/b.rs:7: // FIXME: é"),
        ("{{result | grep /\\{\\}/ | match /fn (\\w+)/}}", "main"),
        ("{{result | matches /FIXME: (.*)/}}", "é"),
        ("{{\"{{\"}}x}}", "{{x}}"),
        ("{single} }} {", "{single} }} {"),
    ];
    for (template, expected) in cases {
        assert_eq!(fill(template).await, expected, "{template}");
    }
}

#[tokio::test(start_paused = true)]
async fn placeholders_in_nested_arguments_are_filled_too() {
    let model = script(
        r#"
        [[turn]]
        [[turn.call]]
        tool = "Read"
        args = { zeta = "{{result 1 | first_line}}", deep = [{ n = 3, on = true, at = "{{turn}}" }] }
        "#,
    );
    let reply = listener().try_turn(&model).await.unwrap();
    let arguments = &reply.tool_calls[0].arguments;
    assert_eq!(arguments, &json!({ "zeta": "alpha", "deep": [{ "n": 3, "on": true, "at": "1" }] }));
    assert!(arguments.to_string().starts_with(r#"{"zeta""#), "file order is kept: {arguments}");
}

#[tokio::test(start_paused = true)]
async fn a_missing_result_is_an_error_with_its_line() {
    for (template, complaint) in [
        (
            "{{result 2}}",
            "script:inline:2 uses `{{result 2}}`, but the conversation has only 1 tool result",
        ),
        (
            "{{result nine}}",
            "script:inline:2 uses `{{result nine}}`, but the conversation has no result of a tool call `nine` yet",
        ),
    ] {
        let model = script(&format!("\n[[turn]]\ntext = '{template}'"));
        let mut child = Child::new("any");
        child.told("one", "x");
        let error = child.try_turn(&model).await.unwrap_err();
        assert_eq!((error.kind, error.message.as_str()), (ModelErrorKind::BadRequest, complaint));
    }
    let model = script("[[turn]]\ntext = '{{result}}'");
    let error = Child::new("any").try_turn(&model).await.unwrap_err();
    assert_eq!(
        error.message,
        "script:inline:1 uses `{{result}}`, but the conversation has no tool result yet"
    );
    let empty = Child { messages: Vec::<Message>::new(), ..Child::new("any") };
    for template in ["{{prompt}}", "{{last}}"] {
        let model = script(&format!("[[turn]]\ntext = '{template}'"));
        assert!(empty.clone().try_turn(&model).await.is_err(), "{template}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_changed_result_changes_the_answer() {
    let model = script("[[turn]]\ntext = 'It has {{result | lines}} lines.'");
    for (content, expected) in [("a\nb", "It has 2 lines."), ("a\nb\nc", "It has 3 lines.")] {
        let mut child = Child::new("any");
        child.told("read", content);
        assert_eq!(child.try_turn(&model).await.unwrap().text, expected);
    }
}
