//! Delegates two tasks and prints what came back.
//!
//! `cargo run -p adjutant --example delegate` needs no key and no network. `cargo run -p adjutant --example delegate
//! anthropic/claude-haiku-5-5` asks a real model, with its key in the environment.
#![expect(clippy::print_stdout, reason = "an example shows what it has")]

use std::error::Error;

use adjutant::{Adjutant, ModelChoice, ScriptedModel, Task};

const SCRIPT: &str = "[[turn]]\n[[turn.call]]\ntool = 'Glob'\nargs = { pattern = '*.md' }\n\
                      [[turn]]\ntext = '{{label}}: {{result | lines}} documents'\n";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let model: ModelChoice = match std::env::args().nth(1) {
        Some(name) => name.into(),
        None => ScriptedModel::from_toml(SCRIPT)?.into(),
    };
    let state = tempfile::tempdir()?;
    let adjutant =
        Adjutant::builder().model(model).root(".").state_dir(state.path().join("state")).build()?;
    let tasks = [Task::new("one", "Count the documents"), Task::new("two", "Count them again")];
    let report = adjutant.delegate(tasks).await?;
    for result in &report.results {
        println!("{} {}: {}", result.label, result.outcome.word(), result.text);
    }
    println!("{} tokens, {}", report.spent.usage.total(), report.spent.usd);
    Ok(())
}
