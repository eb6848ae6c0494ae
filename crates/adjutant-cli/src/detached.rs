//! A run on behalf of an MCP client: in its own process session, without a terminal.
//!
//! Decides, once and before the run starts, what the run may do without a person: whether the registry admits it,
//! whether it starts without a question, and where its questions go. Only the person's configuration and flags count;
//! a client decides none of it. Start at [`DetachedTerms`].

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use adjutant_core::policy::{ApprovalRule as Asks, PolicyKey, PolicySource, WorkspaceSharing};
use adjutant_core::registry::TreeKey;
use adjutant_core::{Event, Policy, Refusal, RegistryCommand, RegistryRefusal, RunId, Usd};
use adjutant_engine::{
    Approver, ApproverAnswer, ApproverQuestion as Put, Archive, Engine, RegistryError,
    RegistryHandle, ReleaseOnDrop, wall_now,
};
use adjutant_mcp::{ApprovalMode, LaunchHandover};
use adjutant_view::RunView;
use adjutant_view::approval::ApprovalQuestion;
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use serde_json::Value;

use crate::args::DetachedFlags;
use crate::checks::read_stdin;
use crate::exit::{Exit, Failure};
use crate::output::say;
use crate::settings::{Settings, open_archive};
use crate::workspace_flags::{WorkspaceSetupFlags, WriteFlags};

/// Starts a new process session, so that signals to the server's session do not reach this process, and returns what
/// the server hands over.
///
/// With `--leash` this process gets SIGTERM when the server, which must be its parent, exits.
pub(crate) fn detach(flags: &DetachedFlags) -> Result<LaunchHandover, Failure> {
    // This fails only for a process that already leads a session.
    let _ = rustix::process::setsid();
    let handover = LaunchHandover::receive().map_err(|error| {
        Failure::new(
            Exit::Cancelled,
            format!("the MCP server that started this run is gone: {error}"),
        )
    })?;
    let Some(server) = flags.leash.and_then(Pid::from_raw) else { return Ok(handover) };
    let leashed = set_parent_process_death_signal(Some(Signal::TERM));
    // The server may have exited before the death signal was set.
    if leashed.is_err() || getppid() != Some(server) {
        return Err(Failure::new(Exit::Cancelled, "the MCP server that started this run is gone"));
    }
    Ok(handover)
}

/// Gives the engine the run id of the call, the slot in the registry and the owner mark.
pub(crate) fn hand_to_engine(engine: Engine, terms: Option<&mut DetachedTerms>) -> Engine {
    let placed = terms.and_then(|terms| Some((terms.handover.clone(), terms.place.take()?)));
    let Some((handover, place)) = placed else { return engine };
    let engine = engine.with_run_id(handover.run()).with_guard(place);
    engine.on_created(move |_, folder| handover.mark_owner(folder))
}

/// Reads the slash command that a client sent, from standard input.
///
/// As an argument it could be taken for a flag, and other users could read it in the process list.
pub(crate) fn read_command(handover: &LaunchHandover) -> Result<String, Failure> {
    let text = read_stdin()?;
    if handover.bytes() != text.len() {
        // A truncated command would be a different command.
        return Err(Failure::new(Exit::Cancelled, "the MCP server that started this run is gone"));
    }
    if !text.starts_with('/') || text.contains('\0') {
        return Err(Failure::usage("a command is one line of text that begins with a slash")
            .hint("`adjutant commands` lists them."));
    }
    Ok(text)
}

/// Resolves the path of a PRD that a client named. It must be inside the tree after symbolic links are resolved.
pub(crate) fn resolve_prd(root: &Path, named: &Path) -> Result<PathBuf, Failure> {
    let is_plain =
        named.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    let found = root.join(named).canonicalize();
    match found {
        _ if !is_plain => {}
        Ok(path) if path.starts_with(root) => return Ok(path),
        Ok(_) => {}
        Err(error) => {
            return Err(Failure::usage(format!("cannot read {}: {error}", named.display())));
        }
    }
    let what = format!("{} is not inside this server's tree", named.display());
    Err(Failure::usage(what).hint("Use a path relative to the root of that tree."))
}

/// Refuses `script:` and `replay:` models: only a person may choose files of this machine.
pub(crate) fn refuse_file_models<'a>(wishes: impl Iterator<Item = &'a str>) -> Result<(), Failure> {
    for wish in wishes {
        if ["script:", "replay:"].iter().any(|kind| wish.starts_with(kind)) {
            let what = format!("`{}` is a file, not a model", adjutant_view::sanitize::line(wish));
            return Err(Failure::usage(what).hint("A task names a model as provider/model."));
        }
    }
    Ok(())
}

/// What a run on behalf of a client may do: its slot, its approval mode and its allowance.
pub(crate) struct DetachedTerms {
    registry: RegistryHandle,
    /// The run id, and the call that the run belongs to.
    handover: LaunchHandover,
    client: String,
    approval: ApprovalMode,
    /// The auto-approval allowance; absent if no amount was set or the policy asks about nothing.
    unasked: Option<AutoApprovalAllowance>,
    /// The reservation for a `run` or `story`, released unless the run starts without a question.
    reserved: Option<ReleaseOnDrop>,
    /// Whether a reservation exists that [`DetachedTerms::settle`] must settle.
    settles: bool,
    /// The slot among the live runs, until the engine holds it.
    place: Option<ReleaseOnDrop>,
}

/// The amount that may be spent without asking a person.
#[derive(Clone, Copy)]
struct AutoApprovalAllowance {
    /// The limit per day.
    limit: Usd,
    /// What is left of it for this run; `None` once it is used up.
    left: Option<Usd>,
}

/// The approver of a call, or that the call must be judged again first.
pub(crate) enum CallApproverDecision {
    /// This approver answers the questions of the call.
    Chosen(Approver),
    /// Other runs have spent from the allowance in between. The call is judged again, with this amount (possibly zero)
    /// as `approve_below_usd`.
    AllowanceChanged(Usd),
}

impl DetachedTerms {
    /// Like [`DetachedTerms::for_tasks`], for `run` and `story`: asks about the whole run first.
    ///
    /// A person who types a command or names a story thereby approves it. A client's request is not typed by a person, so
    /// the whole run needs approval, and then each call of an agent, unless the person configured otherwise.
    pub(crate) fn for_agents(
        flags: &DetachedFlags,
        handover: Option<LaunchHandover>,
        given_home: Option<PathBuf>,
        root: &Path,
        settings: &mut Settings,
    ) -> Result<Option<Self>, Failure> {
        let Some(handover) = handover else { return Ok(None) };
        let is_theirs = match settings.policy.source(PolicyKey::Approval) {
            PolicySource::UserConfig | PolicySource::Environment(_) | PolicySource::Flag(_) => true,
            PolicySource::Preset(_) | PolicySource::ProjectConfig | PolicySource::Content(_) => {
                false
            }
        };
        if !is_theirs {
            settings.set(PolicyKey::Approval, "batch", "--approval")?;
        }
        let asks = settings.policy.policy().approval == Asks::Batch;
        if asks && flags.approval.unwrap_or_default() == ApprovalMode::Deny {
            let refusal = Refusal::ApprovalDenied { reason: DENIED.to_owned() };
            return Err(Failure::new(Exit::Refused, refusal.message()).hint(ALLOW));
        }
        let approval = flags.approval.unwrap_or_default();
        let archive = open_archive(given_home)?;
        let mut terms = Self::admit(flags, approval, handover, &archive, root, settings)?;
        terms.reserve_run_budget(settings)?;
        terms.apply_to_policy(settings)?;
        Ok(Some(terms))
    }

    /// Admits the run and sets what is left of the allowance as a limit of its policy.
    ///
    /// A run whose agents write is started unasked only if the user's own config.toml says so. A project's file for a
    /// client can contain flags of the server, so these only narrow that.
    pub(crate) fn for_tasks(
        flags: &DetachedFlags,
        spaces: &WriteFlags,
        handover: LaunchHandover,
        archive: &Archive,
        root: &Path,
        settings: &mut Settings,
    ) -> Result<Self, Failure> {
        if spaces.write {
            // After `--set`, which would otherwise take precedence.
            settings.set(PolicyKey::InPlace, false, "--write")?;
            settings.set(PolicyKey::Workspace, "own", "--write")?;
        }
        let mut approval = flags.approval.unwrap_or_default();
        let policy = settings.policy.policy();
        if policy.in_place || policy.workspace == WorkspaceSharing::Own {
            approval = writer_approval(approval, &spaces.terms, settings)?;
            settings.set(PolicyKey::Approval, "batch", "--approval")?;
        }
        let terms = Self::admit(flags, approval, handover, archive, root, settings)?;
        terms.apply_to_policy(settings)?;
        Ok(terms)
    }

    fn admit(
        flags: &DetachedFlags,
        approval: ApprovalMode,
        handover: LaunchHandover,
        archive: &Archive,
        root: &Path,
        settings: &Settings,
    ) -> Result<Self, Failure> {
        let registry = archive.registry().clone();
        let place = admit_run(&registry, &handover, root, flags.max_runs.unwrap_or(u32::MAX))?;
        let client = flags.client.clone().unwrap_or_default();
        let policy = settings.policy.policy();
        let unasked = match approval {
            ApprovalMode::AutoBelow(limit) if policy.approval == Asks::Batch => {
                let known = registry.read_unlocked().map_err(|error| {
                    Failure::from_error(Exit::Failed, &RegistryError::Unavailable(error))
                })?;
                let left = policy.auto_approval_left(limit, known.spent_unasked(wall_now()));
                Some(AutoApprovalAllowance { limit, left })
            }
            ApprovalMode::AutoBelow(_) | ApprovalMode::Deny | ApprovalMode::Inbox => None,
        };
        let (reserved, settles, place) = (None, false, Some(place));
        Ok(Self { registry, handover, client, approval, unasked, reserved, settles, place })
    }

    /// Reserves the whole budget of a `run` or `story` from the allowance, because the root agent is paid from it too.
    fn reserve_run_budget(&mut self, settings: &mut Settings) -> Result<(), Failure> {
        while let Some(left) = self.unasked.and_then(|unasked| unasked.left) {
            let amount = settings.policy.policy().unasked_budget(left);
            if self.reserve(amount)? {
                let nothing =
                    RegistryCommand::SettleAllowance { run: self.handover.run(), spent: Usd::ZERO };
                self.reserved = Some(self.registry.on_drop(nothing));
                return settings.set(PolicyKey::BudgetUsd, amount.as_dollars(), "--approval");
            }
        }
        Ok(())
    }

    /// Reserves an amount for the run. Returns `false`, and updates what is left, if other runs have spent too much.
    fn reserve(&mut self, amount: Usd) -> Result<bool, Failure> {
        let Some(unasked) = &mut self.unasked else { return Ok(false) };
        let (run, limit) = (self.handover.run(), unasked.limit);
        let reserved = self.registry.holder().map_err(RegistryError::from).and_then(|holder| {
            let command = RegistryCommand::ReserveAllowance { holder, run, amount, limit };
            self.registry.submit(command)
        });
        match reserved {
            Ok(_) => Ok(true),
            Err(RegistryError::Refused(RegistryRefusal::AllowanceExceeded { left, .. })) => {
                unasked.left = Some(left);
                Ok(false)
            }
            Err(RegistryError::Refused(RegistryRefusal::AllowanceUsedUp { .. })) => {
                unasked.left = None;
                Ok(false)
            }
            Err(error) => Err(Failure::from_error(Exit::Failed, &error)),
        }
    }

    /// Sets what is left as `approve_below_usd` of the policy.
    fn apply_to_policy(&self, settings: &mut Settings) -> Result<(), Failure> {
        // The person's own approve_below_usd is for runs they start themselves. A client could start run after run.
        let left = self.unasked.and_then(|unasked| unasked.left);
        let left = left.map_or(Value::Null, |left| left.as_dollars().into());
        settings.set(PolicyKey::ApproveBelowUsd, left, "--approval")
    }

    /// Returns the run that was admitted.
    pub(crate) fn run(&self) -> RunId {
        self.handover.run()
    }

    /// Sets `approve_below_usd` to zero if the allowance is used up or the root model has no price.
    ///
    /// Then only what is free starts without a question. A person cannot set zero, so the value also says that an
    /// allowance was configured.
    pub(crate) fn bound_policy(&self, policy: &mut Policy, has_price: bool) {
        if let Some(unasked) = &self.unasked
            && (unasked.left.is_none() || !has_price)
        {
            policy.approve_below_usd = Some(Usd::ZERO);
        }
    }

    /// Returns the approver of a `run` or `story`. Keeps the reservation if `events`, the preview, contain no question.
    pub(crate) fn approver_of_run(&mut self, events: &[Event]) -> Approver {
        let is_asked = events.iter().any(|event| matches!(event, Event::ApprovalAsked { .. }));
        if let Some(reserved) = self.reserved.take()
            && !is_asked
        {
            reserved.keep();
            self.settles = true;
        }
        self.inbox_approver()
    }

    /// Returns the approver of a call of `delegate`, whose preview is `events`.
    pub(crate) fn approver_of_call(
        &mut self,
        policy: &Policy,
        events: &[Event],
    ) -> Result<CallApproverDecision, Failure> {
        let question = ApprovalQuestion::of(policy, events);
        if let Some(unasked) = self.unasked
            && question.is_automatic()
        {
            let worst = events.iter().find_map(|event| {
                if let Event::AutoApproved { amount, .. } = event { Some(*amount) } else { None }
            });
            let amount = policy.unasked_reservation(worst, unasked.left);
            self.settles = self.reserve(amount)?;
            if let Some(unasked) = self.unasked.filter(|_| !self.settles) {
                return Ok(CallApproverDecision::AllowanceChanged(
                    unasked.left.unwrap_or_default(),
                ));
            }
        } else if question.is_asked() && self.approval == ApprovalMode::Deny {
            return Err(denied_failure(&question));
        }
        Ok(CallApproverDecision::Chosen(self.inbox_approver()))
    }

    /// Returns an approver that puts every question into the inbox of `adjutant approvals`.
    fn inbox_approver(&self) -> Approver {
        let (client, approval) = (self.client.clone(), self.approval);
        let registry = self.registry.clone();
        Arc::new(move |question| match question {
            Put::Call { .. } if approval == ApprovalMode::Deny => ApproverAnswer::No(DENIED.into()),
            Put::Call { run, events, .. } => {
                let asked = events.iter().find_map(|event| {
                    if let Event::ApprovalAsked { hash, .. } = event { Some(hash) } else { None }
                });
                let kept = asked.map(|hash| registry.open_question(*run, hash, &client));
                match kept {
                    Some(Ok(())) => ApproverAnswer::Later,
                    Some(Err(error)) => {
                        let failure = Failure::from_error(Exit::Failed, &error);
                        ApproverAnswer::No(format!("the question could not be saved: {failure}"))
                    }
                    None => ApproverAnswer::No("nothing was asked".into()),
                }
            }
            Put::Domain { host, .. } => ApproverAnswer::No(format!(
                "there is no terminal to ask on; a person allows it with `web_domains` in [policy] of \
                 their own config.toml, for {host}"
            )),
        })
    }

    /// Returns the unspent part of the reservation to the allowance.
    pub(crate) fn settle(self, view: &RunView, is_over: bool) {
        if self.settles && is_over {
            let (run, spent) = (self.handover.run(), view.total().usd);
            if let Err(error) =
                self.registry.submit(RegistryCommand::SettleAllowance { run, spent })
            {
                let failure = Failure::from_error(Exit::Failed, &error);
                say(&format!(
                    "adjutant: cannot record what the run cost, so its worst case counts: {failure}"
                ));
            }
        }
    }
}

/// Returns what happens to a call whose agents write: what the user's own config.toml allows, narrowed by the server.
///
/// Network access and directories that a flag or a variable of the server adds are always asked about.
fn writer_approval(
    server: ApprovalMode,
    typed: &WorkspaceSetupFlags,
    settings: &Settings,
) -> Result<ApprovalMode, Failure> {
    let is_network_theirs = match settings.policy.source(PolicyKey::Network) {
        PolicySource::Environment(_) | PolicySource::Flag(_) | PolicySource::Content(_) => false,
        PolicySource::Preset(_) | PolicySource::UserConfig | PolicySource::ProjectConfig => true,
    };
    let has_network_of_server = settings.policy.policy().network && !is_network_theirs;
    let is_unasked_allowed =
        settings.mcp.write_unasked && !has_network_of_server && typed.first_typed_flag().is_none();
    Ok(server.for_writers(settings.mcp.approval_mode()?, is_unasked_allowed))
}

const DENIED: &str =
    "the person who set this server up lets nothing start that needs their approval";

/// How a person sends such questions to their inbox.
const ALLOW: &str = "Only a person can allow it: with `approval = \"inbox\"` in [mcp] of their own config.toml, or by \
                     starting the server with --approval inbox.";

fn denied_failure(question: &ApprovalQuestion) -> Failure {
    let refusal = Refusal::ApprovalDenied { reason: DENIED.to_owned() };
    let what = format!("{}\n  {}", refusal.message(), question.one_line());
    let hint = match question.worst_usd() {
        Some(worst) => format!(
            "Only a person can allow it: with `approval = \"inbox\"` or `approval = \"auto-below {}\"` in [mcp] \
             of their own config.toml, or by starting the server with --approval.",
            cents(worst)
        ),
        None => ALLOW.into(),
    };
    Failure::new(Exit::Refused, what).hint(hint)
}

/// Formats an amount in dollars, rounded up to a cent, so that it is large enough as a limit.
pub(crate) fn cents(amount: Usd) -> String {
    format!("{:.2}", (amount.as_dollars() * 100.0).ceil() / 100.0)
}

/// Takes a slot among the live runs of the tree.
fn admit_run(
    registry: &RegistryHandle,
    handover: &LaunchHandover,
    root: &Path,
    max_runs: u32,
) -> Result<ReleaseOnDrop, Failure> {
    let (run, call) = (handover.run(), Some(handover.call().clone()));
    let tree = TreeKey::new(root.to_string_lossy());
    let admitted = registry.holder().map_err(RegistryError::from).and_then(|holder| {
        registry.submit(RegistryCommand::AdmitRun { holder, run, tree, max_runs, call })
    });
    match admitted {
        Ok(_) => Ok(registry.on_drop(RegistryCommand::EndRun { run })),
        Err(error) => Err(registry_failure(&error)),
    }
}

/// Turns a refusal of the registry into a failure with its recommendation.
fn registry_failure(error: &RegistryError) -> Failure {
    let RegistryError::Refused(refusal) = error else {
        return Failure::from_error(Exit::Failed, error);
    };
    let failure = Failure::new(Exit::Refused, refusal.to_string());
    match refusal.recommendation() {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}
