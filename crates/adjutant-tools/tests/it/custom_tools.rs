//! Tools of an embedding program: their output is masked and truncated like that of built-in tools.

use std::sync::Arc;

use adjutant_core::message::ToolSpec;
use adjutant_tools::{CustomTool, Masker, ToolCallResult, ToolCaps, Toolbox};
use adjutant_workspace::Root;
use serde_json::{Value, json};

/// Returns its argument as text, note and path.
struct Echo(&'static str);

impl CustomTool for Echo {
    fn spec(&self) -> ToolSpec {
        let (name, description) = (self.0.to_owned(), "Echoes.".to_owned());
        ToolSpec { name, description, schema: json!({ "type": "object" }) }
    }

    fn run(&self, arguments: &Value, _should_stop: &dyn Fn() -> bool) -> ToolCallResult {
        let text = arguments["say"].as_str().unwrap_or_default().to_owned();
        let (notes, touched) = (Some(text.clone()), vec![text.clone()]);
        ToolCallResult { text, notes, touched, ..ToolCallResult::default() }
    }
}

fn toolbox(tool: Echo) -> Toolbox {
    let root = Root::open(env!("CARGO_MANIFEST_DIR")).unwrap();
    let caps = ToolCaps { read_bytes: 40, ..ToolCaps::default() };
    let masker = Masker::new(["own-key-of-the-engine"]);
    Toolbox::new(root, caps).with_masker(masker).with_tool(Arc::new(tool))
}

fn say(toolbox: &Toolbox, text: &str) -> ToolCallResult {
    toolbox.call_by_name("Echo", &json!({ "say": text }), &|| false)
}

#[test]
fn a_custom_tool_is_in_the_specs_and_in_the_list_of_available_tools() {
    let toolbox = toolbox(Echo("Echo"));
    assert!(toolbox.specs().iter().any(|spec| spec.name == "Echo"));
    let unknown = toolbox.call_by_name("Ecco", &json!({}), &|| false);
    assert!(unknown.is_error && unknown.text.ends_with("Note, Echo"), "{}", unknown.text);
}

#[test]
fn the_output_of_a_custom_tool_is_masked_and_truncated_between_characters() {
    let toolbox = toolbox(Echo("Echo"));
    let secret = say(&toolbox, "it is own-key-of-the-engine");
    let said = [Some(secret.text), secret.notes, secret.touched.into_iter().next()];
    for text in said {
        assert!(!text.as_deref().unwrap().contains("of-the-engine"), "{text:?}");
    }
    let cut = say(&toolbox, &format!("{}own-key-of-the-engine", "a".repeat(30)));
    assert!(!cut.text.contains("own-key-of"), "{}", cut.text);
    let long = say(&toolbox, &format!("a{}", "ä".repeat(30)));
    assert_eq!(long.text, format!("a{}\n[cut after 40 bytes]", "ä".repeat(19)));
}

/// Panics with its argument.
struct Panics;

impl CustomTool for Panics {
    fn spec(&self) -> ToolSpec {
        let (name, description) = ("Panics".to_owned(), "Panics.".to_owned());
        ToolSpec { name, description, schema: json!({ "type": "object" }) }
    }

    fn run(&self, arguments: &Value, _should_stop: &dyn Fn() -> bool) -> ToolCallResult {
        let list = arguments["list"].as_array().unwrap();
        ToolCallResult::ok(format!("{} own-key-of-the-engine", list[7]))
    }
}

#[test]
fn a_panic_of_a_custom_tool_is_an_error_that_names_the_tool() {
    let root = Root::open(env!("CARGO_MANIFEST_DIR")).unwrap();
    let toolbox = Toolbox::new(root, ToolCaps::default()).with_tool(Arc::new(Panics));
    let result = toolbox.call_by_name("Panics", &json!({ "list": [] }), &|| false);
    assert!(result.is_error, "{result:?}");
    assert_eq!(
        result.text,
        "the tool `Panics` panicked: index out of bounds: the len is 0 but the index is 7"
    );
    let result = toolbox.call_by_name("Panics", &json!({}), &|| false);
    assert!(result.text.starts_with("the tool `Panics` panicked: called `Option"), "{result:?}");
}

#[test]
fn a_custom_tool_cannot_replace_a_built_in_tool() {
    let read = toolbox(Echo("Read")).call_by_name("Read", &json!({ "say": "hi" }), &|| false);
    assert!(read.is_error, "{}", read.text);
}
