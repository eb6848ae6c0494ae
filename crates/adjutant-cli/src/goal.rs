//! `run`: gives a goal, or a slash command, to a parent agent that may delegate.

use std::io::{self, IsTerminal};
use std::path::PathBuf;

use adjutant_core::policy::ApprovalRule;
use adjutant_core::schema::ReturnFormat;
use adjutant_core::{AgentName, Policy};
use adjutant_engine::{
    Approver, Engine, EngineSetup, Goal, RegistryHandle, ResumeRequest, guided_lead_prompt,
    lead_prompt,
};
use adjutant_mcp::LaunchHandover;

use crate::agent_consent::{ConsentMode, settle_verify_commands};
use crate::agents;
use crate::args::{RunGoalArgs, WorkFlags};
use crate::ask::{Terminal, approver, may_ask};
use crate::checks::read_stdin;
use crate::commands::{self, TypedSlashCommand};
use crate::delegate::{absolute, apply_flags, engine_failure, form, read_text};
use crate::detached::{self, DetachedTerms};
use crate::execute::{DisplayOptions, RunRequest, conclude, execute_run};
use crate::exit::{Exit, Failure};
use crate::output::say;
use crate::resume::{ResumeFlags, RunToResume, resume_run};
use crate::run_lookup::ProjectTree;
use crate::runtime;
use crate::settings::{Settings, base_depth, home, open_archive};
use crate::wiring::ModelSetup;

/// Runs `adjutant run`.
pub(crate) fn run_goal(
    args: &RunGoalArgs,
    as_json: bool,
    given_home: Option<PathBuf>,
) -> Result<Exit, Failure> {
    let flags = &args.work;
    if args.goes_on {
        return continue_latest(args, as_json, given_home);
    }
    let is_detached = args.detached.detached;
    let workdir = absolute(&flags.root)?;
    let (sent, handover) = is_detached.then(|| read_sent_command(args)).transpose()?.unzip();
    let typed = sent.as_deref().or(args.goal.as_deref());
    let slash = commands::read_slash_command(&workdir, typed)?;
    if is_detached {
        commands::check_sent(slash.as_ref())?;
    }
    if let Some(slash) = &slash
        && let Some(exit) = slash.run_without_agent(flags, as_json, || goal_text(None, true))?
    {
        return Ok(exit);
    }
    let base_depth = base_depth()?;
    let usual = slash.as_ref().map(|_| TypedSlashCommand::PRESET);
    let mut settings = Settings::load_as(&flags.policy, &workdir, usual)?;
    let in_place = flags.in_place || slash.as_ref().is_some_and(TypedSlashCommand::is_in_place);
    apply_flags(&mut settings, flags, in_place)?;
    let mut terms = DetachedTerms::for_agents(
        &args.detached,
        handover,
        given_home.clone(),
        &workdir,
        &mut settings,
    )?;
    let mut policy = settings.policy.policy().clone();
    let agent = flags.agent.as_deref();
    let mut roster = agents::find_with(&workdir, agent.filter(|_| slash.is_none()))?;
    let verify = flags.spaces.typed_verify()?;
    let consent =
        if verify.is_some() || is_detached { ConsentMode::Recorded } else { ConsentMode::Ask };
    settle_verify_commands(&mut roster.agents, (&workdir, &policy), consent, || {
        Ok(open_archive(given_home.clone())?.registry().clone())
    })?;
    let prepare = |slash: &TypedSlashCommand| slash.prepare(&settings.routes, agent, &mut roster);
    let mut prepared = slash.as_ref().map(prepare).transpose()?;
    if let Some(prepared) = &mut prepared {
        prepared.base_depth = base_depth;
    }
    let goal = goal_text(typed.filter(|_| prepared.is_none()), prepared.is_some())?;
    let mut wiring = ModelSetup::new(&settings)?;
    if let Some(file) = flags.record.as_deref() {
        wiring = wiring.record(file, &settings.secrets)?;
    }
    let named = flags.agent.as_deref().filter(|_| prepared.is_none());
    let lead = named.map(|name| agents::find_agent(&roster, name)).transpose()?;
    let who = prepared.as_ref().map(|prepared| &prepared.definition).or(lead);
    let chosen = agents::choose(&settings, flags, who, |name| wiring.choose(name))?;
    chosen.remarks.iter().for_each(|remark| say(&format!("adjutant: {remark}")));
    let base = flags.system.as_deref().map(read_text).transpose()?;
    if let Some(terms) = &terms {
        terms.bound_policy(&mut policy, chosen.model.spec().price.is_some());
    }
    let setup = EngineSetup {
        policy: policy.clone(),
        opener: Some(chosen.opener(&wiring)),
        model: chosen.model,
        web: settings.web(),
        tools: Vec::new(),
        workdir: workdir.clone(),
        system: None,
        secrets: [settings.secrets.clone(), wiring.secrets()].concat(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        workers: Some(wiring.workers(&settings)?),
    };
    let engine = Engine::new(setup).map_err(|error| engine_failure(&error))?.with_guidance();
    let engine = engine.with_efforts(settings.efforts.clone());
    let itself = prepared.as_ref().map(|prepared| prepared.definition.clone());
    let known = roster.agents.iter().cloned().chain(itself);
    let mut engine = engine
        .with_agents(known, &settings.models_allowed)
        .with_worker(flags.spaces.worker.clone())
        .with_runtime(runtime::of_flags(flags, &settings, &home(given_home.clone())?)?)
        .at_depth(base_depth);
    let goal = match (&slash, &prepared) {
        (Some(slash), Some(prepared)) => {
            engine = slash.configure(engine, prepared, &policy, &roster);
            prepared.goal(&policy, base.as_deref(), &goal)
        }
        _ => {
            let agent = lead.map_or_else(|| AgentName::new("lead"), |lead| lead.name.clone());
            agents::introduce(&engine, &agent, &roster);
            let prompt = if lead.is_some() { lead_prompt } else { guided_lead_prompt };
            Goal { agent, system: base.unwrap_or_else(|| prompt(&policy, base_depth)), text: goal }
        }
    };
    let archive = open_archive(given_home)?;
    if let (Some(slash), Some(prepared)) = (&slash, &prepared) {
        slash.say_in_progress(&archive, prepared);
    }
    let showing = DisplayOptions {
        form: form(flags.return_form, ReturnFormat::Markdown, as_json),
        events: flags.events,
        result_tokens: policy.result_tokens,
        merge: flags.merge.unwrap_or_default(),
    };
    let mut spaces = flags.spaces.setup(archive.path(), &workdir, &settings)?;
    spaces.merge = showing.merge.request();
    spaces.verify = verify;
    let mut engine = engine.with_spaces(spaces);
    let approver = match &mut terms {
        Some(terms) => {
            engine = engine.with_approval_first(typed);
            let preview =
                engine.preview_run(goal.clone()).map_err(|error| engine_failure(&error))?;
            terms.approver_of_run(&preview.events)
        }
        None => approver_of(flags, &policy, archive.registry()),
    };
    let engine = detached::hand_to_engine(engine, terms.as_mut());
    let conducted = execute_run(engine, &archive, RunRequest::Goal(goal), approver, &showing);
    wiring.end_recording();
    let conducted = conducted?;
    if let Some(terms) = terms {
        terms.settle(&conducted.view, conducted.finished.is_ok());
    }
    conclude(conducted, &archive, true, &showing)
}

/// Detaches from the MCP server and reads the command that its client sent.
fn read_sent_command(args: &RunGoalArgs) -> Result<(String, LaunchHandover), Failure> {
    let handover = detached::detach(&args.detached)?;
    Ok((detached::read_command(&handover)?, handover))
}

/// Runs `run --continue`: sends the goal as the next message to the latest parent agent in this tree.
fn continue_latest(
    args: &RunGoalArgs,
    as_json: bool,
    given_home: Option<PathBuf>,
) -> Result<Exit, Failure> {
    let say = goal_text(args.goal.as_deref(), false)?;
    let workdir = absolute(&args.work.root)?;
    let archive = open_archive(given_home)?;
    let tree = ProjectTree::around(&workdir);
    let failed = |error| Failure::from_error(Exit::Failed, &error);
    for files in archive.runs().map_err(failed)? {
        // An unreadable run is skipped here. Naming it with `resume` prints the error.
        if !files.workdir().is_some_and(|workdir| tree.has(&workdir)) {
            continue;
        }
        let Ok(journal) = files.read() else { continue };
        let Some(past) = journal.resume_info() else { continue };
        if past.has_lead {
            let on_this_model = args.work.model.is_some();
            let wish = ResumeRequest { say: Some(say), on_this_model, ..ResumeRequest::default() };
            let flags = ResumeFlags::of(&args.work, as_json);
            return resume_run(&archive, RunToResume { files, journal, past }, wish, &flags);
        }
    }
    Err(Failure::usage("no run of `adjutant run` in this project can be continued")
        .hint("Start one with `adjutant run \"GOAL\"`."))
}

/// Joins the typed goal and standard input. Only a slash command may have neither.
fn goal_text(typed: Option<&str>, may_be_empty: bool) -> Result<String, Failure> {
    let piped = if io::stdin().is_terminal() { String::new() } else { read_stdin()? };
    let parts: Vec<&str> = [typed.unwrap_or_default().trim(), piped.trim()]
        .into_iter()
        .filter(|part| !part.is_empty())
        .collect();
    let goal = parts.join("\n\n");
    if goal.is_empty() && !may_be_empty {
        return Err(Failure::usage("no goal given")
            .hint("Type `adjutant run \"GOAL\"`, or pipe the goal to standard input."));
    }
    Ok(goal)
}

/// Returns the approver. Warns if approval is needed and there is no terminal: then every delegation is refused.
fn approver_of(flags: &WorkFlags, policy: &Policy, registry: &RegistryHandle) -> Approver {
    let terminal = if flags.yes || !may_ask(policy) { None } else { Terminal::open() };
    if terminal.is_none() && !flags.yes && policy.approval == ApprovalRule::Batch {
        let refused = match policy.approve_below_usd {
            Some(limit) => format!("every delegation beyond {limit} will be refused"),
            None => "every delegation will be refused".into(),
        };
        say(&format!("adjutant: there is no terminal to ask on, so {refused}; add --yes"));
    }
    approver(flags.yes, terminal, registry, None)
}
