//! Tools of the embedding program, which are offered, permitted and run like built-in tools.

use std::fs;

use adjutant_core::{Preset, ToolSet};
use adjutant_engine::{CustomTool, Engine, EngineError, EngineSetup, ToolCallResult};
use adjutant_model::ScriptedModel;
use adjutant_testkit::{AppendTool, Rig};
use serde_json::Value;

const SCRIPT: &str = r#"
    [[turn]]
    [[turn.call]]
    tool = "Append"
    args = { line = "once" }
    [[turn]]
    text = "It said: {{result}}"
"#;

#[tokio::test(start_paused = true)]
async fn embedded_tool_is_offered_and_run() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = folder.path().join("ledger");
    let rig = Rig::new().script(SCRIPT).task("a", "Append").tool(AppendTool::to(&ledger));
    let trace = rig.delegate().await;
    assert_eq!(trace.ends(), ["a: completed"]);
    assert!(trace.requests[0].tools.contains(&"Append".to_owned()));
    assert!(trace.requests[1].messages.last().unwrap().text().contains("appended once"));
    assert_eq!(fs::read_to_string(ledger).unwrap(), "once\n");
}

#[tokio::test(start_paused = true)]
async fn embedded_tool_outside_the_policy_is_not_offered_or_run() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = folder.path().join("ledger");
    let rig = Rig::new().script(SCRIPT).task("a", "Append").tool(AppendTool::to(&ledger));
    let trace = rig.policy(|policy| policy.tools = ToolSet::read_only()).delegate().await;
    assert!(!trace.requests[0].tools.contains(&"Append".to_owned()));
    assert!(!ledger.exists(), "it was performed all the same");
}

/// A tool with very long output.
struct LongOutputTool(&'static str);

impl CustomTool for LongOutputTool {
    fn spec(&self) -> adjutant_core::ToolSpec {
        let (name, description) = (self.0.to_owned(), "Floods.".to_owned());
        adjutant_core::ToolSpec { name, description, schema: Value::Null }
    }

    fn run(&self, _arguments: &Value, _should_stop: &dyn Fn() -> bool) -> ToolCallResult {
        ToolCallResult::ok("ä".repeat(1 << 20))
    }
}

#[test]
fn duplicate_tool_name_is_an_error_of_engine_new() {
    for taken in [&["Read"][..], &["Run"], &["Delegate"], &["LongOutputTool", "LongOutputTool"]] {
        let model = std::sync::Arc::new(ScriptedModel::from_toml(SCRIPT).unwrap());
        let mut setup = EngineSetup::new(Preset::Scout.policy(), model, ".");
        setup.tools =
            taken.iter().map(|name| std::sync::Arc::new(LongOutputTool(name)) as _).collect();
        let error = Engine::new(setup).map(|_| ()).unwrap_err();
        assert!(matches!(error, EngineError::ToolName(name) if name == taken[0]), "{taken:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn output_of_an_embedded_tool_is_truncated() {
    let script =
        "[[turn]]\n[[turn.call]]\ntool = 'LongOutputTool'\nargs = {}\n[[turn]]\ntext = 'done'\n";
    let trace = Rig::new()
        .script(script)
        .task("a", "LongOutputTool")
        .tool(LongOutputTool("LongOutputTool"))
        .delegate()
        .await;
    let said = trace.requests[1].messages.last().unwrap().text().to_owned();
    assert!(said.len() < 300_000 && said.ends_with("[cut after 262144 bytes]"), "{}", said.len());
}
