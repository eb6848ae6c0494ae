//! A run on behalf of an MCP client: in a session of its own, with nobody at a terminal.
//!
//! What such a run may do without a person is decided here, once, before it begins: whether there is
//! a place for it, whether it starts unasked, and where a question about it goes otherwise. A client
//! has no say in any of it.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use adjutant_core::policy::{Approval as Asks, Key, Source};
use adjutant_core::{Event, Policy, Refusal, Usd};
use adjutant_engine::{
    Allowance, Answer, Approver, Engine, Inbox, Question as Put, Reservation, Slot, wall_now,
};
use adjutant_mcp::{Approval, Handed};
use adjutant_view::RunView;
use adjutant_view::approval::Question;
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use serde_json::Value;

use crate::args::DetachedFlags;
use crate::exit::{Exit, Failure};
use crate::output::say;
use crate::pure::read_stdin;
use crate::settings::{Settings, open_archive};

/// Leaves the session we were started in, so that a signal to it does not end us, and returns what the server
/// hands us. With `--leash` we end with the server instead, which must be our parent.
pub(crate) fn leave(flags: &DetachedFlags) -> Result<Option<Handed>, Failure> {
    // One that leads a session already has left.
    let _ = rustix::process::setsid();
    let handed = Handed::receive().map_err(|error| {
        Failure::new(Exit::Cancelled, format!("the server that began this run is gone: {error}"))
    })?;
    let Some(server) = flags.leash.and_then(Pid::from_raw) else { return Ok(handed) };
    let leashed = set_parent_process_death_signal(Some(Signal::TERM));
    // It may have died before it could be said that we end with it.
    if leashed.is_err() || getppid() != Some(server) {
        return Err(Failure::new(Exit::Cancelled, "the server that began this run is gone"));
    }
    Ok(handed)
}

/// Has the run noted where an equal call looks for it, and its place held while it is at work.
pub(crate) fn tie(engine: Engine, handed: Option<Handed>, terms: Option<&mut Terms>) -> Engine {
    let slot = terms.and_then(|terms| terms.slot.take());
    let engine = match slot {
        Some(slot) => engine.holding(slot),
        None => engine,
    };
    match handed {
        Some(handed) => engine.noted_by(move |run, folder| handed.keep(run, folder)),
        None => engine,
    }
}

/// Reads the slash command that a client sent.
///
/// On standard input, where nothing of it can be taken for a flag, and nobody who lists processes reads it.
pub(crate) fn command(handed: Option<&Handed>) -> Result<String, Failure> {
    let text = read_stdin()?;
    if handed.is_some_and(|handed| handed.bytes() != text.len()) {
        // Half a command would be another one.
        return Err(Failure::new(Exit::Cancelled, "the server that began this run is gone"));
    }
    if !text.starts_with('/') || text.contains('\0') {
        return Err(Failure::usage("a command is one line of text that begins with a slash")
            .hint("`adjutant commands` lists them."));
    }
    Ok(text)
}

/// Returns where a PRD is that a client named: in the tree, however it is reached.
pub(crate) fn prd(root: &Path, named: &Path) -> Result<PathBuf, Failure> {
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
    let what = format!("{} is not in the tree that this server works on", named.display());
    Err(Failure::usage(what).hint("Name it by its path from the root of that tree."))
}

/// Refuses models that are files of this machine: which of them is used is for a person to say.
pub(crate) fn judge_models<'a>(wishes: impl Iterator<Item = &'a str>) -> Result<(), Failure> {
    for wish in wishes {
        if ["script:", "replay:"].iter().any(|kind| wish.starts_with(kind)) {
            let what = format!("`{}` is a file, not a model", adjutant_view::sanitize::line(wish));
            return Err(Failure::usage(what).hint("A task names a model as provider/model."));
        }
    }
    Ok(())
}

/// What a run on behalf of a client goes by.
pub(crate) struct Terms {
    home: PathBuf,
    client: String,
    approval: Approval,
    /// What is left of today's amount; held until it is known what this call takes of it.
    allowance: Option<(Allowance, Usd)>,
    reserved: Option<Reservation>,
    /// A place among the live runs, until the engine has it.
    slot: Option<Slot>,
}

impl Terms {
    /// Does the same for a run whose agents decide themselves what they delegate.
    ///
    /// Where a person types a command or names a story, that is their yes to all of it. Nobody has typed
    /// here, so the whole run is asked about and then each call of an agent, unless the person said otherwise.
    pub(crate) fn of_agents(
        flags: &DetachedFlags,
        given_home: Option<PathBuf>,
        root: &Path,
        settings: &mut Settings,
    ) -> Result<Option<Self>, Failure> {
        if !flags.detached {
            return Ok(None);
        }
        let is_theirs = match settings.policy.source(Key::Approval) {
            Source::UserConfig | Source::Environment(_) | Source::Flag(_) => true,
            Source::Preset(_) | Source::ProjectConfig | Source::Content(_) => false,
        };
        if !is_theirs {
            settings.set(Key::Approval, "batch", "--approval")?;
        }
        let asks = settings.policy.policy().approval == Asks::Batch;
        if asks && flags.approval.unwrap_or_default() == Approval::Deny {
            let refusal = Refusal::ApprovalDenied { reason: DENIED.to_owned() };
            return Err(Failure::new(Exit::Refused, refusal.message()).hint(ALLOW));
        }
        let archive = open_archive(given_home)?;
        let mut terms = Self::take(flags, archive.path(), root, settings)?;
        if let Some((_, left)) = terms.allowance.as_mut().filter(|(_, left)| *left > Usd::ZERO) {
            // Everything it does is paid from the amount, the agent at the root included.
            let own = settings.policy.policy().budget_usd;
            *left = own.map_or(*left, |own| own.min(*left));
            settings.set(Key::BudgetUsd, left.as_dollars(), "--approval")?;
        }
        Ok(Some(terms))
    }

    /// Lets nothing but what is free start unasked where nothing is left of the amount, or where no amount
    /// bounds what the agent at the root may cost.
    ///
    /// No person can set a policy to that; it says beside it that an amount was set.
    pub(crate) fn bound(&self, policy: &mut Policy, has_price: bool) {
        if let Some((_, left)) = &self.allowance
            && (*left == Usd::ZERO || !has_price)
        {
            policy.approve_below_usd = Some(Usd::ZERO);
        }
    }

    /// Sets aside what a run of agents may cost that begins unasked, as `events` foresee it.
    pub(crate) fn begin(&mut self, events: &[Event]) -> Result<Approver, Failure> {
        let is_asked = events.iter().any(|event| matches!(event, Event::ApprovalAsked { .. }));
        let held = self.allowance.take().filter(|(_, left)| !is_asked && *left > Usd::ZERO);
        self.reserved = held.map(|(held, left)| reserve(held, left)).transpose()?;
        Ok(self.asks_later())
    }

    /// Finds a place for the run and what it may cost unasked, which becomes a limit of its policy.
    pub(crate) fn take(
        flags: &DetachedFlags,
        home: &Path,
        root: &Path,
        settings: &mut Settings,
    ) -> Result<Self, Failure> {
        let slot = place(home, root, flags.max_runs.unwrap_or(u32::MAX))?;
        let client = flags.client.clone().unwrap_or_default();
        let approval = flags.approval.unwrap_or_default();
        let policy = settings.policy.policy();
        let allowance = match approval {
            Approval::AutoBelow(limit) if policy.approval == Asks::Batch => {
                let held = Allowance::of(home, EVERY_CLIENT, wall_now()).map_err(|error| {
                    let what = format!("it is not known what clients have spent today: {error}");
                    Failure::new(Exit::Failed, what)
                })?;
                let left = policy.unasked(limit, held.spent());
                Some((held, left))
            }
            Approval::AutoBelow(_) | Approval::Deny | Approval::Inbox => None,
        };
        // What a run may cost unasked is for people who start runs themselves; a client could start
        // one after the other.
        let unasked = allowance.as_ref().map(|(_, left)| *left).filter(|left| *left > Usd::ZERO);
        let unasked = unasked.map_or(Value::Null, |left| left.as_dollars().into());
        settings.set(Key::ApproveBelowUsd, unasked, "--approval")?;
        let home = home.to_owned();
        Ok(Self { home, client, approval, allowance, reserved: None, slot: Some(slot) })
    }

    /// Finds out who answers, now that it is known what the call is.
    pub(crate) fn approver(
        &mut self,
        policy: &Policy,
        events: &[Event],
    ) -> Result<Approver, Failure> {
        let question = Question::of(policy, events);
        if let Some((held, left)) = self.allowance.take()
            && question.is_automatic()
        {
            // Those below may start unasked within the same amount, and nobody asks again for them.
            let goes_deeper = policy.max_depth > 1;
            let worst = events.iter().find_map(|event| {
                if let Event::AutoApproved { amount, .. } = event { Some(*amount) } else { None }
            });
            let amount = worst.filter(|_| !goes_deeper).unwrap_or(left);
            self.reserved = Some(reserve(held, amount)?);
        } else if question.is_asked() && self.approval == Approval::Deny {
            return Err(denied(&question));
        }
        Ok(self.asks_later())
    }

    /// Leaves every question where a person finds it.
    fn asks_later(&self) -> Approver {
        let (inbox, client, approval) = (Inbox::at(&self.home), self.client.clone(), self.approval);
        Arc::new(move |question| match question {
            Put::Call { .. } if approval == Approval::Deny => Answer::No(DENIED.into()),
            Put::Call { run, events, .. } => {
                let asked = events.iter().find_map(|event| {
                    if let Event::ApprovalAsked { hash, .. } = event { Some(hash) } else { None }
                });
                let kept = asked.map(|hash| inbox.put(*run, hash, &client));
                match kept {
                    Some(Ok(_)) => Answer::Later,
                    Some(Err(error)) => {
                        Answer::No(format!("the question could not be kept: {error}"))
                    }
                    None => Answer::No("nothing was asked".into()),
                }
            }
            Put::Domain { host, .. } => Answer::No(format!(
                "there is no terminal to ask on; a person allows it with `web_domains` in [policy] of \
                 their own config.toml, for {host}"
            )),
        })
    }

    /// Gives back what was not spent, and takes questions away that nobody waits for.
    pub(crate) fn end(self, view: &RunView, is_over: bool) {
        if let Some(reserved) = self.reserved.filter(|_| is_over)
            && let Err(error) = reserved.settle(view.total().usd)
        {
            say(&format!("adjutant: what the run cost is not noted, its worst case is: {error}"));
        }
        let inbox = Inbox::at(&self.home);
        let ours = inbox.all().unwrap_or_default();
        let ours = ours.iter().filter(|waiting| view.run() == Some(waiting.run));
        ours.for_each(|waiting| inbox.drop_one(&waiting.id));
    }
}

fn reserve(held: Allowance, amount: Usd) -> Result<Reservation, Failure> {
    held.reserve(amount).map_err(|error| {
        Failure::new(Exit::Failed, format!("the amount cannot be set aside: {error}"))
    })
}

/// Whose the amount is that starts unasked: everybody's. A client gives itself its name, so an amount
/// for each name would be as many amounts as it likes.
const EVERY_CLIENT: &str = "all";

const DENIED: &str =
    "the person who set this server up lets nothing start that needs their approval";

/// How a person lets such things wait for them.
const ALLOW: &str = "Only a person can allow it: with `approval = \"inbox\"` in [mcp] of their own config.toml, or by \
                     starting the server with --approval inbox.";

fn denied(question: &Question) -> Failure {
    let refusal = Refusal::ApprovalDenied { reason: DENIED.to_owned() };
    let what = format!("{}\n  {}", refusal.message(), question.distillate());
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

/// Returns an amount rounded up to a cent, so that it works as it stands.
pub(crate) fn cents(amount: Usd) -> String {
    format!("{:.2}", (amount.as_dollars() * 100.0).ceil() / 100.0)
}

/// Takes a place among the live runs of the tree.
fn place(home: &Path, root: &Path, places: u32) -> Result<Slot, Failure> {
    let slot = Slot::take(home, root, places).map_err(|error| {
        Failure::new(Exit::Failed, format!("it is not known how many runs are alive: {error}"))
    })?;
    slot.ok_or_else(|| {
        let what = format!(
            "QUEUE_FULL: {places} runs of this tree that clients began are alive, those that wait for \
             approval included, limit {places}"
        );
        Failure::new(Exit::Refused, what).hint(
            "Wait for one with delegate_wait or end one with delegate_cancel; delegate_status lists them. A \
             person raises the limit with `max_runs` in [mcp] of their own config.toml.",
        )
    })
}
