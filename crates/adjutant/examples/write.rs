//! Lets two agents write in parallel, each in its own workspace, and shows the commits that they made.
//!
//! `cargo run -p adjutant --example write`; no key, no network. Needs git and Linux with user namespaces.
#![expect(clippy::print_stdout, reason = "an example shows what it has")]

use std::error::Error;
use std::path::Path;
use std::process::Command;

use adjutant::{Adjutant, ScriptedModel, Task};

const SCRIPT: &str = "[[turn]]\n[[turn.call]]\ntool = 'Write'\nargs = { path = '{{label}}.txt', content = 'hello' }\n\
     [[turn]]\ntext = 'wrote {{label}}.txt'\n";

fn git(directory: &Path, arguments: &[&str]) -> Result<(), Box<dyn Error>> {
    let person = ["-c", "user.name=You", "-c", "user.email=you@localhost"];
    let status =
        Command::new("git").args(person).args(arguments).current_dir(directory).status()?;
    if status.success() { Ok(()) } else { Err(format!("git {arguments:?}: {status}").into()) }
}

fn main() -> Result<(), Box<dyn Error>> {
    // The sandbox starts this program again as its helper.
    adjutant::run_sandbox_helper_if_asked();
    let directory = tempfile::tempdir()?;
    let project = directory.path().join("project");
    std::fs::create_dir(&project)?;
    git(&project, &["init", "-q"])?;
    git(&project, &["commit", "-q", "--allow-empty", "-m", "first"])?;
    let adjutant = Adjutant::builder()
        .model(ScriptedModel::from_toml(SCRIPT)?)
        .root(&project)
        .state_dir(directory.path().join("state"))
        .allow_writing()
        .verify("test -s left.txt || test -s right.txt")
        .build()?;
    let tasks = [Task::new("left", "Write left.txt"), Task::new("right", "Write right.txt")];
    let report = tokio::runtime::Runtime::new()?.block_on(adjutant.delegate(tasks))?;
    for result in &report.results {
        let files = result.work.as_ref().map(|work| &work.files[..]).unwrap_or_default();
        let files: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
        println!("{} {}: {}", result.label, result.outcome.word(), files.join(" "));
    }
    Ok(())
}
