//! `eval`: measures what agents achieve on tasks whose solutions are known.
//!
//! An evaluation attempts each task a number of times under one or two configurations. `task` has the tasks,
//! `configuration` what is compared, `attempt` makes and judges one attempt, and `record` keeps what was done, so that
//! an interrupted evaluation continues. Start at [`run_eval`]. Invariant: nothing is printed about an attempt that its
//! record does not have.

mod attempt;
mod configuration;
mod record;
mod scratch;
mod task;

use std::path::PathBuf;

use adjutant_core::Usd;
use adjutant_core::numbers::grouped;
use adjutant_engine::results::probe_machine;
use adjutant_engine::{Archive, WorkspaceSetup, new_run_id};
use adjutant_view::eval::{EvalAttempt, EvalJudgement, EvalOutline, EvalReport};
use adjutant_view::time_text::elapsed;
use serde_json::json;

use crate::args::{EvalArgs, PolicyFlags};
use crate::ask::Terminal;
use crate::delegate::absolute;
use crate::exit::{Exit, Failure};
use crate::output::{print, print_json, say};
use crate::results::search;
use crate::settings::{base_depth, open_archive};
use crate::workspace_flags::default_setup;

use attempt::{AttemptEnd, AttemptRequest};
use configuration::{ConfigurationChoice, PreparedConfiguration};
use record::{EvalPlan, EvalRecord};
use scratch::ScratchRepository;
use task::{EvalTask, built_in_tasks, read_tasks};

/// Runs `adjutant eval`.
pub(crate) fn run_eval(
    args: &EvalArgs,
    as_json: bool,
    given_home: Option<PathBuf>,
) -> Result<Exit, Failure> {
    if args.list {
        return list(&chosen_tasks(args)?, as_json);
    }
    let budget_usd = args.budget_usd.map(amount).transpose()?;
    let archive = open_archive(given_home)?;
    let scratch = ScratchRepository::create(&[])?;
    refuse_without_sandbox(&scratch)?;
    let mut record = None;
    let plan = match &args.resume {
        Some(wanted) => {
            let mut earlier = EvalRecord::reopen(&archive, wanted)?;
            if let Some(usd) = budget_usd {
                earlier.set_budget(usd)?;
            }
            record.insert(earlier).plan.clone()
        }
        None => new_plan(args, budget_usd)?,
    };
    let tasks = planned_tasks(&plan)?;
    let flags = PolicyFlags {
        preset: None,
        set: plan.set.clone(),
        enable_delegation: plan.enable_delegation,
    };
    let choices = plan.configurations.iter().enumerate();
    let prepared = choices
        .map(|(number, choice)| choice.prepare(number, &flags, &scratch.tree()))
        .collect::<Result<Vec<_>, _>>()?;
    let evaluation = Evaluation { tasks, prepared, base_depth: base_depth()? };
    let left = record
        .as_ref()
        .map_or_else(|| evaluation.planned(&plan).len(), |record| evaluation.left(record).len());
    if left > 0 {
        let spent = record.as_ref().map(EvalRecord::spent).unwrap_or_default();
        evaluation.approve(args, &plan, left, spent)?;
    }
    let mut record = match record {
        Some(record) => record,
        None => EvalRecord::create(&archive, plan)?,
    };
    let end = evaluation.attempt_all(&mut record, &archive)?;
    let outline = evaluation.outline(&record);
    let report = EvalReport::of(&outline, &record.attempts);
    if as_json {
        print_json(&report.json())?;
    } else {
        print(&report.text())?;
    }
    if report.left() > 0 {
        let id = &record.id;
        say(&format!("adjutant: `adjutant eval --resume {id}` makes the attempts that are left"));
    }
    Ok(end)
}

/// The tasks and configurations of an evaluation.
struct Evaluation {
    tasks: Vec<EvalTask>,
    prepared: Vec<PreparedConfiguration>,
    base_depth: u64,
}

/// An attempt by the numbers of its task, configuration and repetition.
type PlannedAttempt = (usize, usize, u32);

impl Evaluation {
    /// Returns all attempts. The configurations take turns, so that a budget that ends early ends both alike.
    fn planned(&self, plan: &EvalPlan) -> Vec<PlannedAttempt> {
        let (tasks, configurations) = (self.tasks.len(), self.prepared.len());
        let of_task =
            |number: u32, task: usize| (0..configurations).map(move |it| (task, it, number));
        (1..=plan.runs)
            .flat_map(|number| (0..tasks).flat_map(move |task| of_task(number, task)))
            .collect()
    }

    /// Returns the attempts that are not made yet.
    fn left(&self, record: &EvalRecord) -> Vec<PlannedAttempt> {
        let mut all = self.planned(&record.plan);
        all.retain(|(task, configuration, number)| {
            !record.has(&self.tasks[*task].name, *configuration, *number)
        });
        all
    }

    /// Asks the person for approval of the worst case of all attempts that are left.
    fn approve(
        &self,
        args: &EvalArgs,
        plan: &EvalPlan,
        left: usize,
        spent: Usd,
    ) -> Result<(), Failure> {
        if plan.budget_usd.is_some() && self.prepared.iter().any(|it| !it.is_priced()) {
            say("adjutant: the price of a model is unknown, so --budget-usd does not bound it");
        }
        if args.yes {
            return Ok(());
        }
        let share = left.div_ceil(self.prepared.len()) as u64;
        let worst: Vec<(u64, Option<Usd>)> =
            self.prepared.iter().map(PreparedConfiguration::worst_case).collect();
        let tokens =
            worst.iter().fold(0_u64, |sum, (it, _)| sum.saturating_add(it.saturating_mul(share)));
        let rest = plan.budget_usd.map(|budget| budget.saturating_sub(spent));
        let usd = worst.iter().map(|(_, usd)| *usd).sum::<Option<Usd>>();
        let usd = usd.map(|one| Usd::from_pico(one.as_pico().saturating_mul(share)));
        let usd = usd.map(|all| rest.map_or(all, |rest| all.min(rest)));
        let limits = self.prepared.iter().filter_map(PreparedConfiguration::approve_below).min();
        let limit = args.approve_below.map(amount).transpose()?.or(limits);
        if let (Some(usd), Some(limit)) = (usd, limit)
            && usd <= limit
        {
            return Ok(());
        }
        let cost = usd.map_or_else(|| "cost unknown".to_owned(), |usd| usd.to_string());
        let text = format!(
            "Evaluate {} under {}: {} of agents that write and run commands, each in a workspace of its own.\n\
             Worst case of all runs: {cost}, {} tokens.\n",
            counted(self.tasks.len(), "task"),
            counted(self.prepared.len(), "configuration"),
            counted(left, "run"),
            grouped(tokens),
        );
        let refused = |why: &str| {
            let hint =
                "Add --yes to start without asking, and --budget-usd to bound what all runs spend.";
            Failure::new(Exit::Refused, format!("{why}\n  {}", text.replace('\n', " ").trim_end()))
                .hint(hint)
        };
        match Terminal::open() {
            None => Err(refused("APPROVAL_DENIED: there is no terminal to ask on")),
            Some(terminal) if terminal.confirm(&text, "Start? [y/N] ") => Ok(()),
            Some(_) => Err(Failure::new(Exit::Refused, "the person at the terminal said no")),
        }
    }

    /// Makes the attempts that are left. Returns the exit code.
    fn attempt_all(&self, record: &mut EvalRecord, archive: &Archive) -> Result<Exit, Failure> {
        let spaces: Vec<WorkspaceSetup> =
            self.prepared.iter().map(|it| spaces_for(it, archive, &record.plan)).collect();
        let left = self.left(record);
        let count = left.len();
        for (made, (task, configuration, number)) in (1..).zip(left) {
            let rest = record.plan.budget_usd.map(|budget| budget.saturating_sub(record.spent()));
            let prepared = &self.prepared[configuration];
            let request = AttemptRequest {
                task: &self.tasks[task],
                configuration,
                prepared,
                number,
                run: new_run_id().map_err(|error| Failure::from_error(Exit::Failed, &error))?,
                spaces: &spaces[configuration],
                left: rest.filter(|_| prepared.is_priced()),
                base_depth: self.base_depth,
            };
            let attempt = if let Some(skipped) = request.skipped() {
                skipped
            } else {
                if request.left == Some(Usd::ZERO) {
                    return Ok(out_of_budget(record));
                }
                let scratch = ScratchRepository::create(&request.task.files)?;
                record.begin(&request.run.to_string(), scratch.path())?;
                match request.make(&scratch, archive)? {
                    AttemptEnd::Judged(attempt) => *attempt,
                    AttemptEnd::Cancelled(usd) => {
                        record.interrupted(usd);
                        return Ok(Exit::Cancelled);
                    }
                    AttemptEnd::OutOfBudget(usd) => {
                        record.interrupted(usd);
                        return Ok(out_of_budget(record));
                    }
                }
            };
            let line = progress_line(&attempt, &prepared.title.name, (made, count));
            record.judged(attempt)?;
            say(&line);
        }
        Ok(Exit::Completed)
    }

    fn outline(&self, record: &EvalRecord) -> EvalOutline {
        EvalOutline {
            id: record.id.clone(),
            runs: record.plan.runs,
            tasks: self.tasks.iter().map(EvalTask::title).collect(),
            configurations: self.prepared.iter().map(|it| it.title.clone()).collect(),
            budget_usd: record.plan.budget_usd,
            interrupted_usd: record.interrupted_usd,
        }
    }
}

fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

fn out_of_budget(record: &EvalRecord) -> Exit {
    let spent = record.spent();
    say(&format!(
        "adjutant: the budget is used up, {spent} spent; --resume with a larger --budget-usd continues"
    ));
    Exit::Partial
}

/// Returns the line about an attempt: `[3/48] A fix-js-query: solved (check: exit 0), 4.1s, $0.02`.
fn progress_line(it: &EvalAttempt, name: &str, (made, count): (usize, usize)) -> String {
    let word = match it.judgement {
        EvalJudgement::Solved => "solved",
        EvalJudgement::Unsolved => "not solved",
        EvalJudgement::Skipped => {
            return format!("[{made}/{count}] {name} {}: skipped, {}", it.task, it.because);
        }
    };
    let time = elapsed(std::time::Duration::from_millis(it.elapsed_ms));
    let cost = it.usd.map(|usd| format!(", {usd}")).unwrap_or_default();
    let claim = if it.false_claim.is_some() { ", false claim" } else { "" };
    format!("[{made}/{count}] {name} {}: {word} ({}){claim}, {time}{cost}", it.task, it.because)
}

/// Returns the workspace settings of a configuration, in which commands see neither earlier runs nor the tasks.
fn spaces_for(
    prepared: &PreparedConfiguration,
    archive: &Archive,
    plan: &EvalPlan,
) -> WorkspaceSetup {
    let mut setup = default_setup(archive.path());
    setup.hidden.push(archive.path().to_owned());
    setup.hidden.extend(plan.tasks_dir.clone());
    // The built-in tasks are in the program as text.
    setup.hidden.extend(std::env::current_exe().ok());
    prepared.find_toolchains(&mut setup);
    setup
}

/// Fails if this machine cannot run the checks in a sandbox.
fn refuse_without_sandbox(scratch: &ScratchRepository) -> Result<(), Failure> {
    let machine = probe_machine(&search(), &scratch.state());
    let why = machine.git.err().or_else(|| {
        machine
            .sandbox
            .err()
            .map(|why| format!("checks run only in the sandbox, which is not available: {why}"))
    });
    match why {
        None => Ok(()),
        Some(why) => Err(Failure::new(Exit::Refused, why)
            .hint("`adjutant doctor` says what this machine allows.")),
    }
}

fn amount(usd: f64) -> Result<Usd, Failure> {
    let usd = Some(usd).filter(|usd| *usd >= 0.0).and_then(Usd::from_dollars);
    usd.ok_or_else(|| Failure::usage("an amount of dollars must not be negative"))
}

fn new_plan(args: &EvalArgs, budget_usd: Option<Usd>) -> Result<EvalPlan, Failure> {
    let tasks = chosen_tasks(args)?;
    Ok(EvalPlan {
        v: 1,
        tasks_dir: args.tasks.as_deref().map(absolute).transpose()?,
        tasks: tasks.iter().map(|task| (task.name.clone(), task.digest())).collect(),
        runs: args.runs,
        configurations: ConfigurationChoice::parse_all(args)?,
        set: args.policy.set.clone(),
        enable_delegation: args.policy.enable_delegation,
        budget_usd,
    })
}

/// Returns the tasks that were typed, or all.
fn chosen_tasks(args: &EvalArgs) -> Result<Vec<EvalTask>, Failure> {
    let mut tasks = match &args.tasks {
        Some(dir) => read_tasks(&absolute(dir)?)?,
        None => built_in_tasks()?,
    };
    if let Some(unknown) = args.task.iter().find(|name| !tasks.iter().any(|it| it.name == **name)) {
        let shown = adjutant_view::sanitize::line(unknown);
        return Err(Failure::usage(format!("there is no task `{shown}`"))
            .hint("`adjutant eval --list` lists the tasks."));
    }
    tasks.retain(|it| args.task.is_empty() || args.task.contains(&it.name));
    Ok(tasks)
}

/// Returns the tasks of a plan, which must not have changed since.
fn planned_tasks(plan: &EvalPlan) -> Result<Vec<EvalTask>, Failure> {
    let mut tasks = match &plan.tasks_dir {
        Some(dir) => read_tasks(dir)?,
        None => built_in_tasks()?,
    };
    for (name, digest) in &plan.tasks {
        if !tasks.iter().any(|task| task.name == *name && task.digest() == *digest) {
            let text = format!("the task {name} has changed since the evaluation began");
            return Err(Failure::usage(text).hint(
                "Attempts at different tasks cannot be counted together: start a new evaluation.",
            ));
        }
    }
    tasks.retain(|task| plan.tasks.iter().any(|(name, _)| *name == task.name));
    Ok(tasks)
}

/// Prints the tasks.
fn list(tasks: &[EvalTask], as_json: bool) -> Result<Exit, Failure> {
    let titles: Vec<_> = tasks.iter().map(EvalTask::title).collect();
    if as_json {
        print_json(&json!({ "v": 1, "tasks": titles }))?;
    } else {
        let lines = titles.iter().map(|it| format!("{:24} {}\n", it.name, it.kind));
        print(&lines.collect::<String>())?;
    }
    Ok(Exit::Completed)
}
