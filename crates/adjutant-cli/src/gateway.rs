//! `gateway`: runs a program with a budget for its model calls, and prints the bill.
//!
//! The program is the only delegation of an ordinary run, so the bill, the log and the limits are those of every run.

use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::ExitCode;

use adjutant_core::policy::{PolicyKey, WRITER_OUTPUT_TOKENS};
use adjutant_core::schema::TaskSpec;
use adjutant_core::{Label, ModelSpec};
use adjutant_engine::{Engine, EngineSetup};
use adjutant_view::cost;
use adjutant_workers::TerminalResult;
use std::sync::Arc;

use crate::args::{GatewayArgs, MergeAfterRun, PolicyFlags, ResultFormat};
use crate::ask::approver;
use crate::delegate::{absolute, engine_failure};
use crate::execute::{DisplayOptions, RunRequest, execute_in_view};
use crate::exit::{Exit, Failure};
use crate::live::LiveView;
use crate::output::say;
use crate::records::table_columns;
use crate::settings::{Settings, base_depth, open_archive};
use crate::wiring::ModelSetup;

/// The name of the worker that stands for the person's program.
const PROGRAM: &str = "program";

/// Runs `adjutant gateway`. Returns the exit code of the program.
pub(crate) fn run_gateway(args: GatewayArgs, home: Option<PathBuf>) -> Result<ExitCode, Failure> {
    let root = absolute(std::path::Path::new("."))?;
    let mut settings = Settings::load(&PolicyFlags::default(), &root)?;
    limit(&mut settings, &args)?;
    let wiring = ModelSetup::new(&settings)?;
    let mut models = allowed_models(&wiring, &args.model)?.into_iter();
    let first = models.next().ok_or_else(no_model)?;
    let chosen = wiring.choose(Some(&first.name))?;
    let further: Vec<ModelSpec> = models.collect();
    let unpriced = std::iter::once(&first).chain(&further).find(|it| it.price.is_none());
    if let Some(model) = unpriced.filter(|_| args.budget_usd.is_some()) {
        let text = format!("the price of {} is unknown, so dollars cannot bound it", model.name);
        return Err(Failure::usage(text)
            .hint("Use --budget-tokens, leave the model out, or set its price in [models] of the user config."));
    }
    let words = args.command;
    let title: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let result = TerminalResult::default();
    let setup = EngineSetup {
        workers: Some(Arc::new(wiring.terminal_program(words, &result))),
        secrets: [settings.secrets.clone(), wiring.secrets()].concat(),
        ..EngineSetup::new(settings.policy.policy().clone(), chosen.model, &root)
    };
    let engine = Engine::new(setup)
        .map_err(|error| engine_failure(&error))?
        .with_worker(Some(PROGRAM.to_owned()))
        .with_further_models(further)
        .at_depth(base_depth()?);
    let task = TaskSpec {
        label: Label::new(PROGRAM).unwrap_or_else(|_| Label::unnamed()),
        prompt: title.join(" "),
        context: Vec::new(),
        model: None,
        max_output_tokens: None,
        operation: None,
        timeout_s: None,
    };
    let archive = open_archive(home)?;
    let showing = DisplayOptions {
        form: ResultFormat::Markdown,
        events: false,
        result_tokens: None,
        merge: MergeAfterRun::default(),
    };
    let work = RunRequest::Tasks { briefs: engine.briefs(&[task]), concurrency: None };
    let ran = execute_in_view(
        engine,
        &archive,
        work,
        approver(true, None, archive.registry(), None),
        (LiveView::silent(), &showing),
    )?;
    // A run that was cancelled or has used up its budget leaves the program running.
    let status = result.finish();
    say(cost::render(&ran.view, None, table_columns(io::stderr())).trim_end());
    archive.prune_daily();
    let problem = ran.view.delegations().next().and_then(|it| it.reason.clone());
    match status {
        Some(Ok(status)) => {
            let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
            Ok(ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
        }
        Some(Err(why)) => Err(Failure::usage(why)),
        None => {
            let why =
                problem.map_or_else(|| "the program was not started".to_owned(), |it| it.message);
            Err(Failure::new(Exit::Refused, why))
        }
    }
}

/// Sets the limits of the program: the budget that was typed, and none that would interrupt a person at work.
fn limit(settings: &mut Settings, args: &GatewayArgs) -> Result<(), Failure> {
    let flag = "adjutant gateway";
    if let Some(usd) = args.budget_usd {
        settings.set(PolicyKey::BudgetUsd, usd, "--budget-usd")?;
    }
    if let Some(tokens) = args.budget_tokens {
        settings.set(PolicyKey::BudgetTokensRun, tokens, "--budget-tokens")?;
    }
    let tokens = PolicyKey::BudgetTokensRun.get(settings.policy.policy());
    settings.set(PolicyKey::BudgetTokens, tokens, flag)?;
    settings.set(PolicyKey::MaxOutputTokens, WRITER_OUTPUT_TOKENS, flag)?;
    // A program may wait for a person as long as it likes.
    settings.set(PolicyKey::StallS, serde_json::Value::Null, flag)?;
    settings.set(PolicyKey::Enabled, true, flag)
}

/// Returns the models that the program may use: those that were typed, else all that can be used here.
fn allowed_models(wiring: &ModelSetup, typed: &[String]) -> Result<Vec<ModelSpec>, Failure> {
    if typed.is_empty() {
        let usable = wiring.list().into_iter().filter(|it| it.problem.is_none());
        let mut usable: Vec<_> = usable.filter(|it| it.spec.price.is_some()).collect();
        usable.sort_by_key(|it| !it.is_default);
        return Ok(usable.into_iter().map(|it| it.spec).collect());
    }
    typed.iter().map(|name| Ok(wiring.choose(Some(name))?.model.spec().clone())).collect()
}

fn no_model() -> Failure {
    Failure::usage("no model can be reached: no API key is set")
        .hint("Set a key (`adjutant doctor` says how), or name a local model with --model.")
}
