//! `run`: a goal for a parent agent that may delegate.

use std::io::{self, IsTerminal};
use std::path::PathBuf;

use adjutant_core::policy::Approval;
use adjutant_core::schema::ReturnForm;
use adjutant_core::{AgentName, Policy};
use adjutant_engine::{Approver, Engine, Goal, Resume, Setup, lead_prompt};

use crate::agents;
use crate::args::{GoalArgs, WorkFlags};
use crate::ask::{Terminal, approver, may_ask};
use crate::delegate::{absolute, apply_flags, failed, form, read_text};
use crate::exit::{Exit, Failure};
use crate::output::say;
use crate::pure::read_stdin;
use crate::resume::{Again, go_on};
use crate::run::{Showing, Work, carry_out};
use crate::settings::{Settings, open_archive};
use crate::wiring::Wiring;

/// Runs the command.
pub(crate) fn run_goal(
    args: &GoalArgs,
    as_json: bool,
    given_home: Option<PathBuf>,
) -> Result<Exit, Failure> {
    let flags = &args.work;
    if args.goes_on {
        return run_again(args, as_json, given_home);
    }
    let workdir = absolute(&flags.root)?;
    let mut settings = Settings::load(&flags.policy, &workdir)?;
    apply_flags(&mut settings, flags)?;
    let policy = settings.policy.policy().clone();
    let goal = goal_text(args.goal.as_deref())?;
    let mut wiring = Wiring::new(&settings)?;
    if let Some(file) = flags.record.as_deref() {
        wiring = wiring.record(file, &settings.secrets)?;
    }
    let roster = agents::find(&workdir)?;
    let lead = flags.agent.as_deref().map(|name| agents::named(&roster, name)).transpose()?;
    let chosen = agents::choose(&settings, flags, lead, |name| wiring.choose(name))?;
    chosen.remark.iter().for_each(|remark| say(&format!("adjutant: {remark}")));
    let base = flags.system.as_deref().map(read_text).transpose()?;
    let setup = Setup {
        policy: policy.clone(),
        opener: Some(chosen.opener(&wiring)),
        model: chosen.model,
        web: settings.web(),
        tools: Vec::new(),
        workdir,
        system: None,
        secrets: [settings.secrets.clone(), wiring.secrets()].concat(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let engine = Engine::new(setup).map_err(|error| failed(&error))?;
    let engine = engine.with_agents(roster.agents.iter().cloned(), &settings.models_allowed);
    let system = base.unwrap_or_else(|| lead_prompt(&policy));
    let agent = lead.map_or_else(|| AgentName::new("lead"), |lead| lead.name.clone());
    agents::introduce(&engine, &agent, &roster);
    let goal = Goal { agent, system, text: goal };
    let archive = open_archive(given_home)?;
    let showing = Showing {
        form: form(flags.return_form, ReturnForm::Markdown, as_json),
        events: flags.events,
        result_tokens: policy.result_tokens,
    };
    let approver = approver_of(flags, &policy);
    let exit = carry_out(engine, &archive, Work::Goal(goal), approver, &showing);
    wiring.end_recording();
    exit
}

/// Goes on with the latest run that has a parent agent: the goal is the person's next word to it.
fn run_again(args: &GoalArgs, as_json: bool, given_home: Option<PathBuf>) -> Result<Exit, Failure> {
    let say = goal_text(args.goal.as_deref())?;
    let archive = open_archive(given_home)?;
    let failed = |error| Failure::caused(Exit::Failed, &error);
    for files in archive.runs().map_err(failed)? {
        // One that cannot be read is passed over here; naming it says why.
        let Ok(Some(past)) = files.past() else { continue };
        if past.has_lead {
            let wish = Resume { say: Some(say), ..Resume::default() };
            let flags = Again::of(&args.work, as_json);
            return go_on(&archive, files, past, wish, &flags);
        }
    }
    Err(Failure::usage("there is no run of a parent agent to go on with")
        .hint("Begin one with `adjutant run \"GOAL\"`."))
}

/// Joins what was typed and what was piped in.
fn goal_text(typed: Option<&str>) -> Result<String, Failure> {
    let piped = if io::stdin().is_terminal() { String::new() } else { read_stdin()? };
    let parts: Vec<&str> = [typed.unwrap_or_default().trim(), piped.trim()]
        .into_iter()
        .filter(|part| !part.is_empty())
        .collect();
    let goal = parts.join("\n\n");
    if goal.is_empty() {
        return Err(Failure::usage("no goal given").hint("adjutant run \"GOAL\", or pipe one in."));
    }
    if goal.starts_with('/') {
        return Err(Failure::usage("slash commands are not available in this version"));
    }
    Ok(goal)
}

/// Finds out who answers when the agent wants to delegate: nobody to ask is a no.
fn approver_of(flags: &WorkFlags, policy: &Policy) -> Approver {
    let terminal = if flags.yes || !may_ask(policy) { None } else { Terminal::open() };
    if terminal.is_none() && !flags.yes && policy.approval == Approval::Batch {
        let refused = match policy.approve_below_usd {
            Some(limit) => format!("every delegation beyond {limit} will be refused"),
            None => "every delegation will be refused".into(),
        };
        say(&format!("adjutant: there is no terminal to ask on, so {refused}; add --yes"));
    }
    approver(flags.yes, terminal)
}
