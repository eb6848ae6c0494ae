//! Checks a model with one small request: a run with a budget of its own, recorded like any other.

use std::path::{Path, PathBuf};

use adjutant_core::policy::DelegationTimeout;
use adjutant_core::schema::TaskSpec;
use adjutant_core::{Outcome, Policy, Preset, ToolSet};
use adjutant_engine::{Engine, EngineSetup};
use adjutant_view::approval::ApprovalQuestion;
use adjutant_view::{ProcessLiveness, time_text};

use super::model_choice::ConfiguredModel;
use super::questions::SetupDialog;
use crate::args::{MergeAfterRun, ResultFormat};
use crate::ask::approver;
use crate::delegate::{absolute, engine_failure};
use crate::execute::{DisplayOptions, ExecutedRun, RunRequest, execute_run, interrupted_failure};
use crate::exit::{Exit, Failure};
use crate::hints::program;
use crate::settings::open_archive;

/// The most tokens of the check, input and output and all attempts together.
const CHECK_TOKENS: u64 = 2_000;

/// The most output tokens of one attempt. Enough for a model that reasons before it answers a word.
const OUTPUT_TOKENS: u64 = 400;

/// How long the check may take. A local server may have to load the model first.
const CHECK_SECONDS: u64 = 120;

const SYSTEM: &str = "Answer with the one word: ready";

/// What became of the check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CheckEnd {
    /// The model answered.
    Answered,
    /// The person did not want it.
    Skipped,
    /// There was no answer. The person was told why.
    Failed,
}

/// Asks whether to check the model, and checks it.
pub(super) fn check(
    questions: &SetupDialog,
    choice: &ConfiguredModel,
    home: Option<PathBuf>,
) -> Result<CheckEnd, Failure> {
    let chosen = choice.setup.choose(Some(&choice.model))?;
    chosen.remarks.iter().for_each(|remark| questions.say(remark));
    let policy = policy();
    let setup = EngineSetup {
        policy: policy.clone(),
        model: chosen.model,
        workdir: absolute(Path::new("."))?,
        system: Some(SYSTEM.to_owned()),
        opener: None,
        web: None,
        tools: Vec::new(),
        secrets: choice.setup.secrets(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        workers: None,
    };
    let engine = Engine::new(setup).map_err(|error| engine_failure(&error))?;
    let task = TaskSpec::new("check", "Are you ready?")
        .map_err(|error| Failure::from_error(Exit::Failed, &error))?;
    let mut briefs = engine.briefs(&[task]);
    briefs.iter_mut().for_each(|brief| brief.estimate_tokens = Some(CHECK_TOKENS / 2));
    let preview = engine.preview(briefs.clone(), None).map_err(|error| engine_failure(&error))?;
    let worst = ApprovalQuestion::of(&policy, &preview.events).worst_usd();
    let tokens = adjutant_core::numbers::grouped(CHECK_TOKENS);
    let cost = match worst {
        Some(usd) => format!("at most {tokens} tokens, {usd}"),
        None => format!("at most {tokens} tokens; its price is not known"),
    };
    if !questions.confirm(&format!("Check it with one small request ({cost})?"))? {
        return Ok(CheckEnd::Skipped);
    }
    let showing = DisplayOptions {
        form: ResultFormat::Markdown,
        events: false,
        result_tokens: None,
        merge: MergeAfterRun::Report,
    };
    let work = RunRequest::Tasks { briefs, concurrency: None };
    let archive = open_archive(home)?;
    let approver = approver(true, None, archive.registry(), None);
    let conducted = execute_run(engine, &archive, work, approver, &showing)?;
    tell_end(questions, &choice.model, &conducted)
}

/// Returns the limits of the check: no tools, one answer, few tokens.
fn policy() -> Policy {
    Policy {
        tools: ToolSet::new([]),
        budget_tokens: Some(CHECK_TOKENS),
        budget_tokens_run: Some(CHECK_TOKENS),
        max_output_tokens: OUTPUT_TOKENS,
        timeout_s: DelegationTimeout::Seconds(CHECK_SECONDS),
        timeout_max_s: DelegationTimeout::Seconds(CHECK_SECONDS),
        ..Preset::Scout.policy()
    }
}

fn tell_end(
    questions: &SetupDialog,
    model: &str,
    conducted: &ExecutedRun,
) -> Result<CheckEnd, Failure> {
    let view = &conducted.view;
    let outcome = match &conducted.finished {
        Ok(finished) => finished.outcome,
        Err(error) => return Err(interrupted_failure(error, view)),
    };
    if outcome == Outcome::Cancelled {
        return Err(Failure::new(Exit::Cancelled, "cancelled"));
    }
    let Some(check) = view.delegations().next() else { return Ok(CheckEnd::Failed) };
    let spend = &check.inclusive;
    // If there was any answer, also one that was cut off, then the key, the address and the name are right.
    if outcome == Outcome::Completed || spend.usage.total() > spend.estimated.tokens {
        let took = time_text::elapsed(view.elapsed(view.latest().at, ProcessLiveness::Dead));
        let cost =
            if spend.unpriced_tokens > 0 { String::new() } else { format!(", for {}", spend.usd) };
        questions.say(&format!("✓ {model} answered in {took}{cost}.\n"));
        return Ok(CheckEnd::Answered);
    }
    let why = check.reason.as_ref();
    let message = why.map_or("there was no answer", |why| why.message.as_str());
    questions.say(&format!("✗ {model} did not answer: {message}"));
    if let Some(why) = why {
        questions.say(&format!("  {}", why.recommendation));
    }
    if let Some(run) = view.run() {
        questions.say(&format!("  Every step: {} log {run}", program()));
    }
    Ok(CheckEnd::Failed)
}
