//! Kills a process in the middle of a run and continues the run: the finished step is not repeated.
//!
//! `cargo run -p adjutant --example resume_after_crash`; no key, no network. The example starts itself again as the
//! process that is killed.
#![expect(clippy::print_stdout, reason = "an example shows what it has")]

use std::error::Error;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use adjutant::{Adjutant, ProgressKind, ScriptedModel, Task};

/// The second turn takes a minute, which the killed process does not have; the resumed one is told that it is over.
const SLOW: &str = "[[turn]]\n[[turn.call]]\ntool = 'Note'\nargs = { text = 'step one is done' }\n\
                    [[turn]]\ndelay_ms = 60000\ntext = 'never said'\n";
const QUICK: &str = "[[turn]]\n[[turn.call]]\ntool = 'Note'\nargs = { text = 'step one is done' }\n\
                     [[turn]]\ntext = 'step two is done'\n";

fn open(script: &str, state: &Path) -> Result<Adjutant, Box<dyn Error>> {
    let model = ScriptedModel::from_toml(script)?;
    Ok(Adjutant::builder().model(model).state_dir(state).build()?)
}

/// Starts the run, prints its id when the first step is recorded, and waits to be killed.
async fn work(state: &Path) -> Result<(), Box<dyn Error>> {
    let mut run = open(SLOW, state)?.start([Task::new("steps", "Do both steps")])?;
    while let Some(event) = run.next_event().await {
        if matches!(event.what, ProgressKind::Note { .. }) {
            println!("{}", run.id());
        }
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    if let Some(state) = std::env::args_os().nth(1) {
        return work(Path::new(&state)).await;
    }
    let directory = tempfile::tempdir()?;
    let state = directory.path().join("state");
    let this_program = std::env::current_exe()?;
    let mut child = Command::new(this_program).arg(&state).stdout(Stdio::piped()).spawn()?;
    let output = child.stdout.take().ok_or("no output")?;
    let mut id = String::new();
    BufReader::new(output).read_line(&mut id)?;
    child.kill()?;
    child.wait()?;
    println!("killed in the second step of {}", id.trim());

    let report = open(QUICK, &state)?.resume(id.trim()).await?;
    println!("{}: {}", report.results[0].outcome.word(), report.results[0].text);
    Ok(())
}
