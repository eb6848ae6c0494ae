//! `resume`: continues a run, or prints its result if nothing is left to do.
//!
//! Start at [`run_resume`]. `run --continue` uses [`resume_run`] too.

use adjutant_core::policy::{PolicyKey, WorkspaceSharing, parse_assignment};
use adjutant_core::schema::ReturnFormat;
use adjutant_core::workspace::MergeRequest;
use adjutant_core::{Policy, Preset, RunId, SessionId};
use adjutant_engine::slash::{SlashCommands, builtin_agents};
#[cfg(feature = "restate")]
use adjutant_engine::toolchains::toolchain_names;
use adjutant_engine::{
    Archive, ControlCommand, Engine, EngineSetup, Expiry, FinishedRun, LoadedJournal, ResumeInfo,
    ResumeRequest, RunFiles, RunLiveness, WorkspaceSetup,
};
#[cfg(feature = "restate")]
use adjutant_restate::RunCheckout;
use adjutant_view::{Delegation, RunView, sanitize};
use serde_json::{Value, json};

use crate::agent_consent::{ConsentMode, settle_verify_commands};
use crate::agents;
use crate::args::{MergeAfterRun, PolicyFlags, ResultFormat, ResumeRunArgs, WorkFlags};
use crate::ask::{Terminal, approver, may_ask};
use crate::commands;
use crate::delegate::{absolute, engine_failure, form, write_in_place};
use crate::demo;
use crate::execute::{
    DisplayOptions, ExecutedRun, RunRequest, conclude, execute_run, write_projections,
};
use crate::exit::{Exit, Failure};
use crate::hints::{advise, completed, quoted};
use crate::output::say;
use crate::records;
use crate::results::unkept_of;
use crate::run_lookup::{self, CommandVerb};
use crate::runtime;
use crate::settings::Settings;
use crate::story::ResumedStory;
use crate::wiring::ModelSetup;
use crate::workspace_flags::{WorkspaceSetupFlags, write_in_workspaces};

/// The flags of `resume`, or of `run --continue`, that change how a run is resumed.
pub(crate) struct ResumeFlags<'a> {
    model: Option<&'a str>,
    yes: bool,
    allow_network: bool,
    in_place: bool,
    merge: Option<MergeAfterRun>,
    terms: &'a WorkspaceSetupFlags,
    form: ResultFormat,
    events: bool,
}

impl<'a> ResumeFlags<'a> {
    /// Takes the flags of `run --continue`.
    pub(crate) fn of(flags: &'a WorkFlags, as_json: bool) -> Self {
        Self {
            model: flags.model.as_deref(),
            yes: flags.yes,
            allow_network: flags.allow_network,
            in_place: flags.in_place,
            merge: flags.merge,
            terms: &flags.spaces.terms,
            form: form(flags.return_form, ReturnFormat::Markdown, as_json),
            events: flags.events,
        }
    }
}

/// Runs the command.
pub(crate) fn run_resume(
    args: &ResumeRunArgs,
    as_json: bool,
    archive: &Archive,
) -> Result<Exit, Failure> {
    let (files, session) =
        run_lookup::find_to_change(archive, args.run.as_deref(), &args.root, RESUME, |_| true)?;
    let found = RunToResume::read(files)?;
    let RunToResume { files, past, .. } = &found;
    let is_remote = files.runtime().is_some();
    if is_remote && (!past.has_ended || files.is_continued()) {
        return follow_on_cluster(archive, found, args, as_json);
    }
    if is_remote && args.rebase {
        let text = format!("{} ran on a cluster, where its work cannot be rebased", files.id());
        return Err(Failure::usage(text).hint(
            "Leave --rebase out; `adjutant merge` names the command that resolves conflicts.",
        ));
    }
    // Without a parent agent, the root session means the whole run.
    let session = session.filter(|it| past.has_lead || *it != files.id().root_session());
    let on_this_model = args.model.is_some();
    let limits = limits(args, &past.policy)?;
    let say = args.say.as_deref().map(|text| message(&found, session, text)).transpose()?;
    let session = if args.rebase { Some(session_to_rebase(&found, session)?) } else { session };
    let wish = ResumeRequest {
        session,
        say,
        timeout_s: args.timeout,
        on_this_model,
        limits,
        rebase: args.rebase,
    };
    let flags = ResumeFlags {
        model: args.model.as_deref(),
        yes: args.yes,
        allow_network: args.allow_network,
        in_place: args.in_place,
        merge: args.merge,
        terms: &args.terms,
        form: form(args.return_form, ReturnFormat::Markdown, as_json),
        events: args.events,
    };
    let run = files.id();
    let changes = changes(args);
    // `--say` or a named session asks for more work than printing the result.
    let is_plain = wish.say.is_none() && wish.session.is_none();
    if let Some(nothing) = past.nothing.as_ref().filter(|_| is_plain && !changes.is_empty()) {
        return Err(flags_without_effect(run, past, nothing, &changes));
    }
    if past.nothing.is_some() && is_plain && files.expiry() == Expiry::Kept {
        return show_ended(archive, found, &flags);
    }
    resume_run(archive, found, wish, &flags).map_err(|failure| match unkept_of(archive, run) {
        Some(hint) if failure.exit == Exit::Usage => failure.hint(hint),
        Some(_) | None => failure,
    })
}

/// Follows a run of a cluster again until it ends, and prints its result.
fn follow_on_cluster(
    archive: &Archive,
    found: RunToResume,
    args: &ResumeRunArgs,
    as_json: bool,
) -> Result<Exit, Failure> {
    let run = found.files.id();
    let changes = changes(args);
    if args.say.is_some() || args.rebase || !changes.is_empty() {
        let text = format!("{run} is at work on a cluster; it can only be followed");
        return Err(Failure::usage(text).hint(format!(
            "Leave the flags out; `adjutant tell {run} TEXT` gives an agent a message meanwhile."
        )));
    }
    let showing = DisplayOptions {
        form: form(args.return_form, ReturnFormat::Markdown, as_json),
        events: args.events,
        result_tokens: found.past.policy.result_tokens,
        merge: MergeAfterRun::default(),
    };
    let has_lead = found.past.has_lead;
    let conducted = follow_again(archive, found, args.yes, None, &showing)?;
    conclude(conducted, archive, has_lead, &showing)
}

/// Cancels a run of a cluster that no process of this machine follows, or one of its delegations, and follows it until
/// it ends. Returns its state then.
pub(crate) fn cancel_on_cluster(
    archive: &Archive,
    files: RunFiles,
    session: Option<SessionId>,
) -> Result<RunView, Failure> {
    let found = RunToResume::read(files)?;
    let showing = DisplayOptions {
        form: ResultFormat::Markdown,
        events: false,
        result_tokens: found.past.policy.result_tokens,
        merge: MergeAfterRun::default(),
    };
    let order = session.map_or(ControlCommand::CancelRun, ControlCommand::Cancel);
    let followed = follow_again(archive, found, true, Some(order), &showing)?;
    followed.finished.map_err(|error| engine_failure(&error))?;
    Ok(followed.view)
}

fn follow_again(
    archive: &Archive,
    found: RunToResume,
    yes: bool,
    order: Option<ControlCommand>,
    showing: &DisplayOptions,
) -> Result<ExecutedRun, Failure> {
    refuse_live(&found, None)?;
    let RunToResume { files, journal, past } = found;
    let terminal = if yes { None } else { Terminal::open() };
    let approver = approver(yes, terminal, archive.registry(), None);
    let workdir =
        absolute(&past.workdir).map_err(|failure| failure.hint(moved_tree_hint(files.id())))?;
    // This process performs nothing, so any model will do.
    let model = demo::model()?;
    let engine = Engine::new(EngineSetup::new(past.policy, model, workdir))
        .map_err(|error| engine_failure(&error))?
        .with_runtime(runtime::open(files.runtime().as_deref(), archive.path())?);
    execute_run(engine, archive, RunRequest::Follow { files, journal, order }, approver, showing)
}

/// Returns the session whose work `--rebase` moves: the named one, or the only one of the run with a workspace.
fn session_to_rebase(found: &RunToResume, named: Option<SessionId>) -> Result<SessionId, Failure> {
    let run = found.files.id();
    let view = records::fold_read(run, &found.journal);
    let writers: Vec<_> = view.delegations().filter(|it| it.space.is_some()).collect();
    match (named, writers.as_slice()) {
        (Some(session), _) => Ok(session),
        (None, [only]) => Ok(only.session),
        (None, []) => {
            Err(Failure::usage(format!("no subagent of {run} wrote in its own workspace")))
        }
        (None, several) => {
            let name = |it: &&Delegation| {
                let label = sanitize::label(it.label.as_str());
                format!("\n  `adjutant resume {} --rebase`   [{label}]", it.session)
            };
            let names: String = several.iter().map(name).collect();
            let text = format!("{run} has {} subagents with workspaces", several.len());
            Err(Failure::usage(text).hint(format!("Name one:{names}")))
        }
    }
}

/// Returns the typed flags that change limits or model, spelled as the commands that start a run take them.
fn changes(args: &ResumeRunArgs) -> Vec<String> {
    let usd = args.budget_usd.map(|usd| format!("--budget-usd {usd}"));
    let tokens = args.budget_tokens.map(|tokens| format!("--budget-tokens {tokens}"));
    let timeout = args.timeout.map(|seconds| format!("--set timeout_s={seconds}"));
    let model = args.model.as_ref().map(|model| format!("--model {}", quoted(model)));
    let set = args.set.iter().map(|it| format!("--set {}", quoted(it)));
    [usd, tokens, timeout, model].into_iter().flatten().chain(set).collect()
}

/// Refuses flags for further work on a run that has nothing left to do.
fn flags_without_effect(
    run: RunId,
    past: &ResumeInfo,
    nothing: &str,
    changes: &[String],
) -> Failure {
    // A run without a model admitted no task.
    if past.model.is_none() {
        let flags = changes.join(" ");
        let text = format!("no task of {run} was started; repeat its command with {flags}");
        return Failure::usage(format!("nothing to resume: {text}"));
    }
    Failure::usage(format!("nothing to resume: {nothing}")).hint(completed(&format!(
        "`adjutant resume {run}` shows its result, `adjutant resume {run} --say` gives it more to do."
    )))
}

/// Returns the new limits if the flags change any.
fn limits(args: &ResumeRunArgs, recorded: &Policy) -> Result<Option<Box<Policy>>, Failure> {
    let mut policy = recorded.clone();
    let mut set = |flag: &str, name: &str, value: &Value| {
        let set = policy.set_on_resume(name, value);
        set.map_err(|error| Failure::usage(format!("{flag} {error}")))
    };
    if let Some(usd) = args.budget_usd {
        set("--budget-usd", PolicyKey::BudgetUsd.name(), &json!(usd))?;
    }
    if let Some(tokens) = args.budget_tokens {
        set("--budget-tokens", PolicyKey::BudgetTokensRun.name(), &json!(tokens))?;
        // When a run starts, this flag also limits each delegation.
        if recorded.budget_tokens == recorded.budget_tokens_run {
            set("--budget-tokens", PolicyKey::BudgetTokens.name(), &json!(tokens))?;
        }
    }
    for text in &args.set {
        let (name, value) =
            parse_assignment(text).map_err(|error| Failure::usage(format!("--set {error}")))?;
        set("--set", name, &value)?;
    }
    Ok((policy != *recorded).then(|| Box::new(policy)))
}

/// A run to resume, and its journal.
pub(crate) struct RunToResume {
    pub(crate) files: RunFiles,
    pub(crate) journal: LoadedJournal,
    pub(crate) past: ResumeInfo,
}

impl RunToResume {
    /// Reads the journal of a run.
    fn read(files: RunFiles) -> Result<Self, Failure> {
        let journal = files.read().map_err(records::archive_failure)?;
        let past = match (journal.resume_info(), files.runtime()) {
            (None, Some(named)) => {
                let decisions = runtime::decisions_of(&named, files.id())?;
                ResumeInfo::of(
                    decisions.iter().flat_map(|it| it.events.iter().map(|event| (it.at, event))),
                )
            }
            (past, _) => past,
        };
        let never_began =
            || Failure::usage(format!("nothing to resume: {} never began", files.id()));
        let past = past.ok_or_else(never_began)?;
        Ok(Self { files, journal, past })
    }

    /// Reads the journal again if another process has appended to it.
    fn latest(self) -> Result<Self, Failure> {
        if self.files.is_unchanged(&self.journal) { Ok(self) } else { Self::read(self.files) }
    }
}

/// Prints the result of a run that has nothing left to do, and completes a requested merge.
///
/// Needs no model. The exit code is that of the run.
fn show_ended(
    archive: &Archive,
    found: RunToResume,
    flags: &ResumeFlags<'_>,
) -> Result<Exit, Failure> {
    refuse_live(&found, None)?;
    let story = ResumedStory::claim(archive, found.files.id(), &found.past)?;
    let RunToResume { files, journal, past } = &found.latest()?;
    story.iter().try_for_each(ResumedStory::refuse_unwritable)?;
    let is_merged = flags.merge.is_some();
    // No command runs, so no toolchains are needed.
    let spaces = flags.terms.setup_resumed(archive.path(), files.id(), past, None, is_merged)?;
    let view = records::fold_read(files.id(), journal);
    let Some(outcome) = view.outcome() else {
        return Err(Failure::usage(format!("another process has resumed {}", files.id())));
    };
    let showing = DisplayOptions {
        form: flags.form,
        events: flags.events,
        result_tokens: past.policy.result_tokens,
        merge: merge_of(story.as_ref(), flags, spaces.merge),
    };
    let folder = Some(files.path().to_owned());
    let finished = Ok(FinishedRun { run: files.id(), outcome, folder });
    write_projections(archive, &view);
    if !past.workdir.is_dir() {
        advise(&moved_tree_hint(files.id()));
    }
    let conducted = ExecutedRun { view, finished };
    match story {
        Some(story) => story.conclude(conducted, &showing),
        None => conclude(conducted, archive, past.has_lead, &showing),
    }
}

/// Returns what happens to completed work: `--merge`, otherwise what the journal records.
fn merge_of(
    story: Option<&ResumedStory<'_>>,
    flags: &ResumeFlags<'_>,
    recorded: Option<MergeRequest>,
) -> MergeAfterRun {
    let usual = story.map(|_| ResumedStory::USUAL_MERGE).unwrap_or_default();
    flags.merge.or(recorded.map(MergeAfterRun::from_request)).unwrap_or(usual)
}

/// Refuses a run that a live process works on. `session` is the subagent that shall go on, if one was named.
fn refuse_live(found: &RunToResume, session: Option<SessionId>) -> Result<(), Failure> {
    let (run, liveness) = (found.files.id(), found.files.liveness());
    // A lock without a pid was taken a moment ago. Locking the run waits until its holder has written the pid.
    let Ok(RunLiveness::Live { pid: Some(pid) }) = liveness else { return Ok(()) };
    let view = records::fold_read(run, &found.journal);
    let named = session.and_then(|session| view.delegation(session));
    let hint = match named {
        Some(it) if it.open_question().is_some() => format!(
            "Its question can be answered when its run has ended: `adjutant wait {run}` waits for that, then `adjutant \
             resume {} --say` answers it.",
            it.session
        ),
        Some(it) if !it.state.is_live() => format!(
            "It can go on when its run has ended: `adjutant wait {run}` waits for that, then `adjutant resume {} --say` \
             gives it more to do.",
            it.session
        ),
        Some(_) | None => {
            format!("`adjutant status {run}` shows it, `adjutant cancel {run}` ends it.")
        }
    };
    Err(Failure::usage(format!("{run} is being worked on by process {pid}")).hint(hint))
}

/// The word that stands for a message in help and documentation.
const PLACEHOLDER: &str = "TEXT";

/// Returns the message to an agent. If none was typed, the person is asked for it.
fn message(
    found: &RunToResume,
    session: Option<SessionId>,
    typed: &str,
) -> Result<String, Failure> {
    let run = found.files.id();
    let name = session.map_or_else(|| run.to_string(), |session| session.to_string());
    if typed.trim() == PLACEHOLDER {
        let text = format!("`{PLACEHOLDER}` only stands for the message");
        let hint = format!("`adjutant resume {name} --say` asks for it.");
        return Err(Failure::usage(text).hint(completed(&hint)));
    }
    if !typed.is_empty() {
        return Ok(typed.to_owned());
    }
    refuse_live(found, session)?;
    let Some(terminal) = Terminal::open() else {
        return Err(Failure::usage("--say has no text, and there is no terminal to ask for it"));
    };
    let view = records::fold_read(run, &found.journal);
    let agent = view.delegation(session.unwrap_or_else(|| run.root_session()));
    let question = agent.and_then(|it| {
        let label = sanitize::label(it.label.as_str());
        Some(format!("[{label}] asks: {}\n", sanitize::block(it.open_question()?)))
    });
    let asked = format!(
        "{}{} (an empty line sends nothing): ",
        question.as_deref().unwrap_or_default(),
        if question.is_some() { "Answer" } else { "Message" }
    );
    let typed = terminal.show(&asked).ok().and_then(|()| terminal.read_line());
    typed.filter(|text| !text.trim().is_empty()).ok_or_else(|| Failure::usage("nothing was sent"))
}

/// Resumes a run and prints its result.
pub(crate) fn resume_run(
    archive: &Archive,
    found: RunToResume,
    wish: ResumeRequest,
    flags: &ResumeFlags<'_>,
) -> Result<Exit, Failure> {
    // A run without a model admitted no task that could be resumed.
    if let Some(nothing) = found.past.nothing.as_ref().filter(|_| found.past.model.is_none()) {
        return Err(Failure::usage(format!("nothing to resume: {nothing}")));
    }
    refuse_live(&found, wish.session)?;
    let mut story = ResumedStory::claim(archive, found.files.id(), &found.past)?;
    // Another process may have resumed this run in between.
    let RunToResume { files, journal, past } = found.latest()?;
    // With `--say` the person wants an answer, even if the outcome cannot be written into the PRD.
    if wish.say.is_none() {
        story.iter().try_for_each(ResumedStory::refuse_unwritable)?;
    }
    let asks = !flags.yes && (past.open_questions > 0 || may_ask(&past.policy));
    let terminal = if asks { Terminal::open() } else { None };
    if past.open_questions > 0 && !flags.yes && terminal.is_none() {
        return Err(Failure::new(
            Exit::Refused,
            format!("{} waits for an answer and there is no terminal to ask on", files.id()),
        )
        .hint("Add --yes to answer with yes, or resume it in a terminal."));
    }
    let workdir =
        absolute(&past.workdir).map_err(|failure| failure.hint(moved_tree_hint(files.id())))?;
    let preset = Some(past.policy.preset.name().to_owned());
    let mut settings = Settings::load(&PolicyFlags { preset, ..PolicyFlags::default() }, &workdir)?;
    if flags.allow_network {
        settings.set(PolicyKey::Network, true, "--allow-network")?;
    }
    if flags.in_place {
        write_in_place(&mut settings)?;
    } else if past.policy.workspace == WorkspaceSharing::Own && !past.policy.in_place {
        write_in_workspaces(&mut settings)?;
    }
    let is_merged = flags.merge.is_some();
    let toolchains = Some(&settings.toolchains);
    let mut spaces =
        flags.terms.setup_resumed(archive.path(), files.id(), &past, toolchains, is_merged)?;
    let merge = merge_of(story.as_ref(), flags, spaces.merge);
    let runtime = runtime::open(files.runtime().as_deref(), archive.path())?;
    spaces.merge = merge.request();
    story.iter().for_each(|story| story.reserve(&mut spaces));
    let wiring = ModelSetup::new(&settings)?;
    let recorded = past.model.as_deref();
    let (model, opener) = if flags.model.is_none() && recorded == Some(demo::MODEL) {
        (demo::model()?, None)
    } else {
        let chosen = wiring.choose(flags.model.or(recorded)).map_err(|failure| {
            if flags.model.is_some() { failure } else { failure.hint(ANOTHER_MODEL) }
        })?;
        chosen.remarks.iter().for_each(|remark| say(&format!("adjutant: {remark}")));
        let opener = chosen.opener(&wiring);
        (chosen.model, Some(opener))
    };
    let (form, result_tokens) = (flags.form, past.policy.result_tokens);
    let approver = approver(flags.yes, terminal, archive.registry(), None);
    let setup = EngineSetup {
        policy: settings.policy.policy().clone(),
        model,
        opener,
        workdir,
        system: None,
        web: settings.web(),
        tools: Vec::new(),
        secrets: [settings.secrets.clone(), wiring.secrets()].concat(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        workers: Some(wiring.workers(&settings)?),
    };
    let engine = engine_of(setup, spaces, &past, &settings, archive)?.with_runtime(runtime);
    let engine = story.iter_mut().fold(engine, |engine, story| story.configure(engine));
    let showing = DisplayOptions { form, events: flags.events, result_tokens, merge };
    let work = RunRequest::Resume { files, journal, wish };
    let conducted = execute_run(engine, archive, work, approver, &showing)?;
    match story {
        Some(story) => story.conclude(conducted, &showing),
        None => conclude(conducted, archive, past.has_lead, &showing),
    }
}

/// Returns an engine with the agents and slash commands of a run that began elsewhere or before.
fn engine_of(
    setup: EngineSetup,
    spaces: WorkspaceSetup,
    past: &ResumeInfo,
    settings: &Settings,
    archive: &Archive,
) -> Result<Engine, Failure> {
    let mut roster = agents::find(&setup.workdir)?;
    let mut commands = SlashCommands::default();
    if past.policy.preset == Preset::Command {
        commands = commands::find(&setup.workdir)?;
        roster.agents.extend(builtin_agents(&roster.agents));
    } else {
        // A built-in agent that the run used must exist again.
        let is_used = |name: &str| past.agents.iter().any(|agent| agent.as_str() == name);
        agents::append_built_in(&mut roster, is_used);
    }
    let under = (setup.workdir.as_path(), settings.policy.policy());
    settle_verify_commands(&mut roster.agents, under, ConsentMode::Recorded, || {
        Ok(archive.registry().clone())
    })?;
    let engine = Engine::new(setup).map_err(|error| engine_failure(&error))?;
    let engine = engine.with_spaces(spaces).with_efforts(settings.efforts.clone());
    Ok(engine.with_agents(roster.agents, &settings.models_allowed).with_commands(commands))
}

/// Returns the engine of a worker that performs the effects of a run.
///
/// The limits are those of the run: they were set where it was started, and its core judges them.
#[cfg(feature = "restate")]
pub(crate) fn worker_engine(
    home: &std::path::Path,
    run: RunId,
    mut past: ResumeInfo,
    checkout: Option<RunCheckout>,
) -> Result<Engine, Failure> {
    let archive = crate::settings::open_archive(Some(home.to_owned()))?;
    let asked_for = past.workdir.clone();
    if let Some(checkout) = &checkout {
        past.workdir = checkout.tree.join(&checkout.state.folder);
    }
    let workdir = absolute(&past.workdir)?;
    let preset = Some(past.policy.preset.name().to_owned());
    let settings = Settings::load(&PolicyFlags { preset, ..PolicyFlags::default() }, &workdir)?;
    let flags = WorkspaceSetupFlags::default();
    let toolchains = Some(&settings.toolchains);
    if let Some(terms) = &mut past.terms {
        // This machine's toolchains, except those that the person disabled.
        terms.toolchains = toolchain_names().map(str::to_owned).collect();
    }
    let mut spaces = flags.setup_resumed(archive.path(), run, &past, toolchains, false)?;
    if let Some(checkout) = &checkout {
        // The copy lies in the state directory, which agents must not see otherwise.
        spaces.hidden.push(archive.path().to_owned());
        spaces.state = checkout.place.join("state");
        spaces.copy_of = Some(checkout.state.checkout.clone());
    }
    let wiring = ModelSetup::new(&settings)?;
    let chosen = wiring.choose(past.model.as_deref())?;
    let setup = EngineSetup {
        policy: past.policy.clone(),
        opener: Some(chosen.opener(&wiring)),
        web: settings.web(),
        secrets: [settings.secrets.clone(), wiring.secrets()].concat(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..EngineSetup::new(past.policy.clone(), chosen.model, workdir)
    };
    let engine = engine_of(setup, spaces, &past, &settings, &archive)?.with_guidance();
    match checkout {
        Some(checkout) => {
            let copy = engine.as_copy_of(&asked_for, checkout.work);
            copy.map_err(|error| engine_failure(&error))
        }
        None => Ok(engine),
    }
}

/// Describes what can be done about a run whose directory is gone.
fn moved_tree_hint(run: RunId) -> String {
    format!(
        "{run} can continue only there; `adjutant diff {run}` shows what it kept, also in a \
         repository that was moved."
    )
}

const RESUME: CommandVerb =
    CommandVerb { typed: "resume", noun: "run", has_anywhere: false, otherwise: "" };

const ANOTHER_MODEL: &str = "Choose an available one with --model.";
