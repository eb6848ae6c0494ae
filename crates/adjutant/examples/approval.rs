//! Decides by a rule of this program which batches of tasks may start.
//!
//! `cargo run -p adjutant --example approval`; no key, no network.
#![expect(clippy::print_stdout, reason = "an example shows what it has")]

use std::error::Error;

use adjutant::{Adjutant, ApprovalDecision, ApprovalRequest, ScriptedModel, Task};

const SCRIPT: &str = "[[turn]]\ntext = '{{label}} is done'\n";

/// At most this many tasks start at once in this program.
const MOST_TASKS: usize = 2;

fn decide(request: &ApprovalRequest) -> ApprovalDecision {
    let ApprovalRequest::Tasks { tasks, .. } = request else {
        return ApprovalDecision::Deny("only tasks are approved here".to_owned());
    };
    if tasks.len() > MOST_TASKS {
        return ApprovalDecision::Deny(format!("{} tasks, at most {MOST_TASKS}", tasks.len()));
    }
    ApprovalDecision::Approve
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let state = tempfile::tempdir()?;
    let adjutant = Adjutant::builder()
        .model(ScriptedModel::from_toml(SCRIPT)?)
        .state_dir(state.path().join("state"))
        .on_approval(decide)
        .build()?;
    for count in [2, 3] {
        let tasks = (1..=count).map(|it| Task::new(format!("task {it}"), "Look around"));
        let report = adjutant.delegate(tasks).await?;
        let reason = report.results[0].reason.as_ref().map_or("", |it| it.message.as_str());
        println!("{count} tasks: {} {reason}", report.outcome.word());
    }
    Ok(())
}
