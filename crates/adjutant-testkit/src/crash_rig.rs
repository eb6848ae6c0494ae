//! A program around the engine for crash tests: a journal on disk, an HTTP model, and a tool whose
//! executions can be counted.
//!
//! It has no hooks for crashing: the tests kill the process. Start at [`main`].

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use adjutant_core::schema::TaskSpec;
use adjutant_core::{Outcome, Preset, ToolSet};
use adjutant_engine::{
    Archive, Engine, EngineError, EngineSetup, FinishedRun, ResumeRequest, RunHost,
};
use adjutant_model::{ModelSources, open_model};

use crate::append::AppendTool;
use crate::fake::Api;

const USAGE: &str = "usage: crash-rig start|resume --home DIR --workdir DIR --api API --url URL
                 --ledger FILE [--stay-ms N] [--task LABEL=PROMPT]... [--run RUN]";

/// The parsed command line.
#[derive(Default)]
struct CrashRigArgs {
    resumes: bool,
    run: Option<String>,
    home: PathBuf,
    workdir: PathBuf,
    api: Option<Api>,
    url: String,
    ledger: PathBuf,
    stay_ms: u64,
    tasks: Vec<TaskSpec>,
}

/// Runs the program. Exits with 0 if the run completed, 1 if it ended otherwise, 2 if it did not start.
#[expect(clippy::print_stderr, reason = "stderr is where a command line tool complains")]
#[must_use]
pub fn main(words: impl Iterator<Item = String>) -> u8 {
    match parse(words).and_then(|args| run(&args)) {
        Ok(FinishedRun { outcome: Outcome::Completed, .. }) => 0,
        Ok(finished) => {
            eprintln!("crash-rig: {} ended {}", finished.run, finished.outcome.word());
            1
        }
        Err(why) => {
            eprintln!("crash-rig: {why}\n{USAGE}");
            2
        }
    }
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<CrashRigArgs, String> {
    let resumes = match words.next().as_deref() {
        Some("start") => false,
        Some("resume") => true,
        _ => return Err("`start` or `resume`?".to_owned()),
    };
    let mut args = CrashRigArgs { resumes, ..CrashRigArgs::default() };
    while let Some(flag) = words.next() {
        let value = words.next().ok_or_else(|| format!("`{flag}` needs a value"))?;
        match flag.as_str() {
            "--run" => args.run = Some(value),
            "--home" => args.home = value.into(),
            "--workdir" => args.workdir = value.into(),
            "--api" => args.api = Some(value.parse()?),
            "--url" => args.url = value,
            "--ledger" => args.ledger = value.into(),
            "--stay-ms" => {
                args.stay_ms = value.parse().map_err(|_| "`--stay-ms` needs a number")?;
            }
            "--task" => {
                let (label, prompt) = value.split_once('=').ok_or("a task is LABEL=PROMPT")?;
                let task = TaskSpec::new(label, prompt).map_err(|error| error.to_string())?;
                args.tasks.push(task);
            }
            other => return Err(format!("`{other}` is unknown")),
        }
    }
    Ok(args)
}

fn run(args: &CrashRigArgs) -> Result<FinishedRun, String> {
    let api = args.api.ok_or("`--api` is missing")?;
    let sources = ModelSources::default().with_provider(api.provider_at(&args.url));
    let model = open_model(api.model(), &sources).map_err(|error| error.to_string())?;
    let append = AppendTool::to(&args.ledger).with_delay(Duration::from_millis(args.stay_ms));
    let mut policy = Preset::Scout.policy();
    policy.tools = ToolSet::new(policy.tools.iter().chain(["Append"]));
    // Each crash charges the calls in progress in full, so a budget limit would end the run.
    (policy.budget_tokens_run, policy.budget_usd) = (None, None);
    let tools = vec![Arc::new(append) as _];
    let setup = EngineSetup { tools, ..EngineSetup::new(policy, model, &args.workdir) };
    let archive = Archive::open(&args.home).map_err(|error| error.to_string())?;
    let ran = || -> Result<FinishedRun, Box<dyn std::error::Error>> {
        let engine = Engine::new(setup)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let ran: Result<FinishedRun, EngineError> = if args.resumes {
            let (files, _) = archive.find(args.run.as_deref().unwrap_or("latest"))?;
            let host = RunHost::unattended(files.storage());
            runtime.block_on(engine.resume(files.id(), ResumeRequest::default(), host))
        } else {
            let briefs = engine.briefs(&args.tasks);
            let host = RunHost::unattended(archive.storage());
            runtime.block_on(engine.delegate(briefs, None, host))
        };
        Ok(ran?)
    };
    ran().map_err(|error| error.to_string())
}
