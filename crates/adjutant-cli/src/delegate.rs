//! `delegate`: runs tasks as subagents and prints their reports.
//!
//! Also has what all commands that start runs share: flags into settings, failures of the engine, paths and formats.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use adjutant_core::policy::PolicyKey;
use adjutant_core::schema::{CallLimits, DelegateCall, ReturnFormat, TASK};
use adjutant_core::{LayeredPolicy, Policy, Preset, Refusal, TellProblem};
use adjutant_engine::roster::AgentRoster;
use adjutant_engine::{Approver, Engine, EngineError, EngineSetup, RegistryHandle, RunPreview};
use adjutant_view::approval::ApprovalQuestion;
use serde_json::{Map, Value, json};

use crate::agent_consent::{ConsentMode, settle_verify_commands};
use crate::agents;
use crate::args::{DelegateTasksArgs, ResultFormat, WorkFlags};
use crate::ask::{CallObject, TaskEditor, Terminal, approver, may_ask, task_object};
use crate::checks::{read_capped, read_stdin};
use crate::detached::{self, CallApproverDecision, DetachedTerms, cents};
use crate::execute::{DisplayOptions, RunRequest, conclude, execute_run};
use crate::exit::{Exit, Failure};
use crate::live::columns;
use crate::output::{print, print_json, say};
use crate::runtime;
use crate::settings::{Settings, base_depth, home, open_archive};
use crate::wiring::ModelSetup;

/// Runs `adjutant delegate`: once, or again with the tasks that the person edited at the question.
pub(crate) fn run_delegate(
    args: &DelegateTasksArgs,
    as_json: bool,
    given_home: Option<PathBuf>,
) -> Result<Exit, Failure> {
    let mut edited = None;
    loop {
        match delegate_once(args, as_json, given_home.clone(), edited.take())? {
            DelegateEnd::Exit(exit) => return Ok(exit),
            DelegateEnd::Edited(call) => edited = Some(call),
        }
    }
}

/// How an attempt to run a call ended.
enum DelegateEnd {
    /// With this exit code.
    Exit(Exit),
    /// The person edited the tasks instead of approving them; this is the new call.
    Edited(CallObject),
}

fn delegate_once(
    args: &DelegateTasksArgs,
    as_json: bool,
    given_home: Option<PathBuf>,
    edited: Option<CallObject>,
) -> Result<DelegateEnd, Failure> {
    let root = absolute(&args.work.root)?;
    let base_depth = base_depth()?;
    let mut settings = Settings::load(&args.work.policy, &root)?;
    apply_flags(&mut settings, &args.work, args.work.in_place)?;
    let mut terms = None;
    if args.detached.detached {
        let handover = detached::detach(&args.detached)?;
        let archive = open_archive(given_home.clone())?;
        terms = Some(DetachedTerms::for_tasks(
            &args.detached,
            &args.work.spaces,
            handover,
            &archive,
            &root,
            &mut settings,
        )?);
    }
    let mut policy = settings.policy.policy().clone();
    if let Some(terms) = &terms {
        terms.bound_policy(&mut policy, true);
    }
    let is_edited = edited.is_some();
    let typed = match edited {
        Some(typed) => typed,
        None => read_tasks(args)?,
    };
    let call = read_call(args, typed.clone(), &settings.policy)?;
    if terms.is_some() {
        detached::refuse_file_models(call.tasks.iter().filter_map(|task| task.model.as_deref()))?;
    }
    let mut wiring = ModelSetup::new(&settings)?;
    // A dry run calls no provider, so there is nothing to record.
    if let Some(file) = args.work.record.as_deref().filter(|_| !args.dry_run) {
        wiring = wiring.record(file, &settings.secrets)?;
    }
    // Agent files are read only if an agent is named or agents may delegate further.
    let wanted = args.work.agent.as_deref();
    let is_needed = wanted.is_some() || policy.tools.contains(TASK);
    let mut roster =
        if is_needed { agents::find_with(&root, wanted)? } else { AgentRoster::default() };
    let verify = args.work.spaces.typed_verify()?;
    let consent = if verify.is_some() || args.dry_run || terms.is_some() {
        ConsentMode::Recorded
    } else {
        ConsentMode::Ask
    };
    settle_verify_commands(&mut roster.agents, (&root, &policy), consent, || {
        Ok(open_archive(given_home.clone())?.registry().clone())
    })?;
    let agent = wanted.map(|name| agents::find_agent(&roster, name)).transpose()?;
    let chosen = agents::choose(&settings, &args.work, agent, |name| {
        if args.dry_run { wiring.choose_or_none(name) } else { wiring.choose(name) }
    })?;
    chosen.remarks.iter().for_each(|remark| say(&format!("adjutant: {remark}")));
    if args.work.budget_usd.is_some() && chosen.model.spec().price.is_none() {
        say(
            "adjutant: the price of this model is unknown, so --budget-usd has no effect; use --budget-tokens",
        );
    }
    let system = args.work.system.as_deref().map(read_text).transpose()?;
    let setup = EngineSetup {
        policy: policy.clone(),
        opener: Some(chosen.opener(&wiring)),
        model: chosen.model,
        workdir: root.clone(),
        system,
        web: settings.web(),
        tools: Vec::new(),
        secrets: [settings.secrets.clone(), wiring.secrets()].concat(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        workers: Some(wiring.workers(&settings)?),
    };
    let engine = Engine::new(setup).map_err(|error| engine_failure(&error))?.with_guidance();
    let engine = engine.with_efforts(settings.efforts.clone());
    // Before the tasks, because it protects files that tasks could name.
    let mut spaces = args.work.spaces.setup(&home(given_home.clone())?, &root, &settings)?;
    if terms.is_some() && args.work.spaces.write {
        settings.mcp.workspace_flags().add_to(&mut spaces, &root)?;
    }
    spaces.merge = args.work.merge.unwrap_or_default().request();
    spaces.verify = verify;
    let engine = engine.with_worker(args.work.spaces.worker.clone());
    let engine =
        engine.with_runtime(runtime::of_flags(&args.work, &settings, &home(given_home.clone())?)?);
    let mut engine = engine.with_spaces(spaces).at_depth(base_depth);
    // An agent file with the name of the default agent does not replace it.
    let default = agent.map_or_else(|| engine.default_agent().clone(), |it| it.name.clone());
    let others = roster.agents.iter().filter(|it| it.name != default).chain(agent).cloned();
    engine = engine.with_agents(others.collect::<Vec<_>>(), &settings.models_allowed);
    if let Some(agent) = agent {
        engine = engine.with_default_agent(agent.name.clone());
        agents::introduce(&engine, &agent.name, &AgentRoster::default());
    }
    let briefs = engine.briefs(&call.tasks);
    let preview = |engine: &Engine| {
        engine.preview(briefs.clone(), call.concurrency).map_err(|error| engine_failure(&error))
    };
    if args.dry_run {
        let registry = RegistryHandle::at(&home(given_home)?);
        let worker = args.work.spaces.worker.as_deref();
        return dry_run(&policy, &preview(&engine)?, (&registry, worker), as_json)
            .map(DelegateEnd::Exit);
    }
    // A recording would begin anew with the edited tasks.
    let can_edit = args.work.record.is_none();
    let editor = Arc::new(TaskEditor::new(typed, CallLimits::of(settings.policy.policy())));
    if is_edited
        && let Err(refused) = preview(&engine)
        && let Some(terminal) = Terminal::open()
    {
        let again = editor.edit_refused(&terminal, &refused.to_string());
        return again.map(DelegateEnd::Edited).ok_or(refused);
    }
    let approver = match &mut terms {
        Some(terms) => loop {
            match terms.approver_of_call(&policy, &preview(&engine)?.events)? {
                CallApproverDecision::Chosen(approver) => break approver,
                CallApproverDecision::AllowanceChanged(left) => {
                    policy.approve_below_usd = Some(left);
                    engine = engine.approving_below(left);
                }
            }
        },
        None => {
            let registry = RegistryHandle::at(&home(given_home.clone())?);
            let editor = can_edit.then(|| Arc::clone(&editor));
            approver_of(args, &policy, (&registry, editor), || preview(&engine))?
        }
    };
    let archive = open_archive(given_home)?;
    let showing = DisplayOptions {
        form: form(args.work.return_form, call.return_form, as_json),
        events: args.work.events,
        result_tokens: policy.result_tokens,
        merge: args.work.merge.unwrap_or_default(),
    };
    let work = RunRequest::Tasks { briefs, concurrency: call.concurrency };
    let engine = detached::hand_to_engine(engine, terms.as_mut());
    let conducted = execute_run(engine, &archive, work, approver, &showing);
    wiring.end_recording();
    let conducted = conducted?;
    if let Some(terms) = terms {
        terms.settle(&conducted.view, conducted.finished.is_ok());
    }
    if let Some(call) = editor.take_edited() {
        if conducted.view.delegations().all(|it| it.started.is_none()) {
            return Ok(DelegateEnd::Edited(call));
        }
        say(
            "adjutant: the tasks were approved in another terminal; your edited tasks are not used",
        );
    }
    conclude(conducted, &archive, false, &showing).map(DelegateEnd::Exit)
}

/// Applies the typed flags. `in_place` says whether `--in-place` was typed, as a flag or in a slash command.
pub(crate) fn apply_flags(
    settings: &mut Settings,
    flags: &WorkFlags,
    in_place: bool,
) -> Result<(), Failure> {
    if let Some(concurrency) = flags.concurrency {
        settings.set(PolicyKey::Concurrency, concurrency, "--concurrency")?;
    }
    if flags.allow_network {
        settings.set(PolicyKey::Network, true, "--allow-network")?;
    }
    if in_place {
        write_in_place(settings)?;
    }
    flags.spaces.apply(settings)?;
    if let Some(usd) = flags.budget_usd {
        settings.set(PolicyKey::BudgetUsd, usd, "--budget-usd")?;
    }
    if !flags.allow_domain.is_empty() {
        let held = PolicyKey::WebDomains.get(settings.policy.policy());
        let held = held.as_array().cloned().unwrap_or_default();
        let all = held.into_iter().chain(flags.allow_domain.iter().cloned().map(Value::String));
        settings.set(PolicyKey::WebDomains, all.collect::<Vec<_>>(), "--allow-domain")?;
    }
    if let Some(usd) = flags.approve_below {
        settings.set(PolicyKey::ApproveBelowUsd, usd, "--approve-below")?;
    }
    if let Some(tokens) = flags.budget_tokens {
        settings.set(PolicyKey::BudgetTokensRun, tokens, "--budget-tokens")?;
        let each = settings.policy.policy().budget_tokens_within_run();
        settings.set(PolicyKey::BudgetTokens, each, "--budget-tokens")?;
    }
    settings.set_again(&flags.policy)?;
    flags.spaces.refuse_unused(settings.policy.policy(), flags.merge.is_some())?;
    if !flags.allow_domain.is_empty() && !settings.policy.policy().network {
        say("adjutant: --allow-domain has no effect without --allow-network");
    }
    Ok(())
}

/// Applies `--in-place`. Refuses it for a preset whose agents only read.
pub(crate) fn write_in_place(settings: &mut Settings) -> Result<(), Failure> {
    if settings.policy.policy().preset == Preset::Scout {
        return Err(Failure::usage("--in-place: agents of the preset scout only read")
            .hint("Add --preset command to let agents write."));
    }
    settings.set(PolicyKey::InPlace, true, "--in-place")
}

/// Combines the tasks from a file or standard input and from `-t`.
fn read_tasks(args: &DelegateTasksArgs) -> Result<CallObject, Failure> {
    let mut call = match &args.tasks {
        None => Map::new(),
        Some(path) if path == Path::new("-") => object(&read_stdin()?, "standard input")?,
        Some(path) => object(&read_text(path)?, &path.display().to_string())?,
    };
    let mut tasks = match call.remove("tasks") {
        None => Vec::new(),
        Some(Value::Array(tasks)) => tasks,
        Some(other) => {
            return Err(Failure::usage(format!("tasks: must be an array, not {other}")));
        }
    };
    for flag in &args.task {
        let (label, prompt) = flag.split_once('=').ok_or_else(|| {
            Failure::usage(format!("-t `{flag}` is not of the form LABEL=PROMPT"))
        })?;
        tasks.push(json!({ "label": label, "prompt": prompt }));
    }
    if args.tasks.is_none() && tasks.is_empty() {
        return Err(Failure::usage("no tasks given")
            .hint("Give a task file, - for standard input, or -t LABEL=PROMPT; see `adjutant delegate --help`."));
    }
    call.insert("tasks".into(), Value::Array(tasks));
    Ok(call)
}

/// Reads the call, and sets how many of its tasks run at once.
fn read_call(
    args: &DelegateTasksArgs,
    typed: CallObject,
    policy: &LayeredPolicy,
) -> Result<DelegateCall, Failure> {
    let limits = CallLimits::of(policy.policy());
    let mut call = DelegateCall::parse(&Value::Object(typed), &limits).map_err(|error| {
        Failure::usage(error.to_string())
            .hint("`adjutant delegate --help` shows the expected format.")
    })?;
    if args.work.concurrency.is_some() {
        // The flag takes precedence over the file, and the policy has it already.
        call.concurrency = None;
    }
    // Only for a person: the call of an MCP client was written by a model.
    if call.concurrency.is_none() && !args.detached.detached {
        call.concurrency = policy.typed_concurrency(call.tasks.len() as u64);
    }
    Ok(call)
}

fn object(text: &str, origin: &str) -> Result<CallObject, Failure> {
    task_object(text).map_err(|problem| Failure::usage(format!("{origin}: {problem}")))
}

fn dry_run(
    policy: &Policy,
    preview: &RunPreview,
    (registry, worker): (&RegistryHandle, Option<&str>),
    as_json: bool,
) -> Result<Exit, Failure> {
    let question = ApprovalQuestion::of(policy, &preview.events);
    let mut question = question.with_commands_see(preview.commands_see.as_deref());
    if let Ok(known) = registry.read_unlocked() {
        question = question.with_history(&known, |_| worker.map(str::to_owned));
    }
    if as_json {
        print_json(&question.json())?;
    } else {
        print(&question.text(columns(io::stdout())))?;
    }
    Ok(if question.grants().is_empty() { Exit::Refused } else { Exit::Completed })
}

/// Returns the approver. Fails before anything starts if approval is needed and there is no terminal.
fn approver_of(
    args: &DelegateTasksArgs,
    policy: &Policy,
    (registry, editor): (&RegistryHandle, Option<Arc<TaskEditor>>),
    preview: impl FnOnce() -> Result<RunPreview, Failure>,
) -> Result<Approver, Failure> {
    if args.work.yes || !may_ask(policy) {
        return Ok(approver(args.work.yes, None, registry, None));
    }
    let terminal = Terminal::open();
    let question = ApprovalQuestion::of(policy, &preview()?.events);
    if question.is_asked() && terminal.is_none() {
        let reason = "there is no terminal to ask on".to_owned();
        let refusal = Refusal::ApprovalDenied { reason };
        let what = format!("{}\n  {}", refusal.message(), question.one_line());
        return Err(Failure::new(Exit::Refused, what).hint(how_to_start(policy, &question)));
    }
    Ok(approver(false, terminal, registry, editor))
}

/// Names the flag that starts the call without asking.
fn how_to_start(policy: &Policy, question: &ApprovalQuestion) -> String {
    let Some(limit) = policy.approve_below_usd else {
        return "Add --yes to start without asking.".into();
    };
    match question.worst_usd() {
        Some(worst) => {
            let cents = cents(worst);
            format!(
                "Its worst case is {worst}, beyond --approve-below {limit}: lower the budget with \
                 --budget-usd or --budget-tokens, or add --approve-below {cents} or --yes."
            )
        }
        None => {
            "Its model has no known price, so --approve-below cannot cover it; add --yes.".into()
        }
    }
}

/// Turns an error of the engine into a failure. Refusals by policy have their own exit code.
pub(crate) fn engine_failure(error: &EngineError) -> Failure {
    match error {
        EngineError::Refused(refusal) => {
            Failure::new(exit_of(refusal), format!("{}: {}", refusal.code(), refusal.message()))
                .hint(refusal.recommendation())
        }
        EngineError::Workdir { .. } | EngineError::NothingToResume(_) => {
            Failure::from_error(Exit::Usage, error)
        }
        EngineError::Lock(_) if error.is_in_use() => {
            Failure::from_error(Exit::Usage, error).hint("`adjutant status` shows its state.")
        }
        EngineError::Workspaces(_) => Failure::from_error(Exit::Usage, error).hint(
            "`adjutant doctor` says what this machine allows; without --write, agents only read and need no workspaces.",
        ),
        EngineError::MissingTool(_) => Failure::from_error(Exit::Usage, error)
            .hint("`adjutant doctor` lists the tools that commands see; --needs takes their names."),
        EngineError::Model { .. } => Failure::from_error(Exit::Usage, error)
            .hint("Choose an available model with --model, or set the key of this one."),
        EngineError::Context(_) => Failure::from_error(Exit::Refused, error)
            .hint("Name regular files below the root in `context_loading` of the command's file."),
        EngineError::Home(_)
        | EngineError::Lock(_)
        | EngineError::Open(_)
        | EngineError::File(_)
        | EngineError::Journal(_)
        | EngineError::JournalGone
        | EngineError::Thread(_)
        | EngineError::Random(_)
        | EngineError::ToolName(_)
        | EngineError::OnCreated(_)
        | EngineError::Remote(_)
        | EngineError::Illegal(_) => Failure::from_error(Exit::Failed, error),
    }
}

/// Returns `Usage` for an invalid message to an agent, `Refused` for every other refusal.
fn exit_of(refusal: &Refusal) -> Exit {
    let is_bad = matches!(
        refusal,
        Refusal::MessageRejected { problem: TellProblem::Empty | TellProblem::TooLong { .. }, .. }
    );
    if is_bad { Exit::Usage } else { Exit::Refused }
}

/// Returns the result format: the flag, otherwise JSON with `--json`, otherwise what the file says.
pub(crate) fn form(flag: Option<ResultFormat>, file: ReturnFormat, as_json: bool) -> ResultFormat {
    let file = match file {
        ReturnFormat::Json => ResultFormat::Json,
        ReturnFormat::Markdown => ResultFormat::Markdown,
    };
    flag.unwrap_or(if as_json { ResultFormat::Json } else { file })
}

/// Returns the canonical path of a readable directory.
pub(crate) fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::fs::canonicalize(path)
        .and_then(|path| std::fs::read_dir(&path).map(|_| path))
        .map_err(|error| Failure::usage(format!("cannot open {}: {error}", path.display())))
}

pub(crate) fn read_text(path: &Path) -> Result<String, Failure> {
    let bytes = File::open(path)
        .and_then(read_capped)
        .map_err(|error| Failure::usage(format!("cannot read {}: {error}", path.display())))?;
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Failure::usage(format!("{} is not UTF-8: invalid at byte {at}", path.display()))
    })
}
