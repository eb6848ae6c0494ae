//! Gives agents a tool of this program: a look into its own price list.
//!
//! `cargo run -p adjutant --example custom_tool`; no key, no network.
#![expect(clippy::print_stdout, reason = "an example shows what it has")]

use std::error::Error;

use adjutant::{Adjutant, CustomTool, ScriptedModel, Task, ToolCallResult, ToolSpec};
use serde_json::{Value, json};

struct PriceList;

impl CustomTool for PriceList {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "LookUpPrice".to_owned(),
            description: "Returns the price of an article.".to_owned(),
            schema: json!({
                "type": "object",
                "properties": { "article": { "type": "string" } },
                "required": ["article"]
            }),
        }
    }

    fn run(&self, arguments: &Value, _should_stop: &dyn Fn() -> bool) -> ToolCallResult {
        // Arguments come from a model, so nothing about them is certain.
        match arguments["article"].as_str() {
            Some("lamp") => ToolCallResult::ok("39 EUR"),
            Some(other) => ToolCallResult::error(format!("there is no article `{other}`")),
            None => ToolCallResult::error("give the name of an article"),
        }
    }
}

const SCRIPT: &str = "[[turn]]\n[[turn.call]]\ntool = 'LookUpPrice'\nargs = { article = 'lamp' }\n\
                      [[turn]]\ntext = 'The lamp costs {{result}}'\n";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let state = tempfile::tempdir()?;
    let adjutant = Adjutant::builder()
        .model(ScriptedModel::from_toml(SCRIPT)?)
        .state_dir(state.path().join("state"))
        .tool(PriceList)
        .build()?;
    let report = adjutant.delegate([Task::new("price", "What does the lamp cost?")]).await?;
    println!("{}", report.results[0].text);
    Ok(())
}
