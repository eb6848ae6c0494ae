//! Why a key can do nothing about the selected agent or run, as far as the shown state tells.
//!
//! Start at [`obstacle`]. The bottom line leaves these keys out, and [`crate::update`] says why.

use adjutant_core::{DelegationState, Outcome};
use adjutant_view::{Delegation, ProcessLiveness, RunView};

use crate::key_bindings::KeyCommand;
use crate::state::{WatchScreen, WatchState};

/// The selected agent, or the run with its root.
pub(crate) struct SelectedWork<'a> {
    pub(crate) view: &'a RunView,
    pub(crate) liveness: ProcessLiveness,
    /// The agent below the root; `None` for the whole run.
    pub(crate) agent: Option<&'a Delegation>,
}

impl<'a> SelectedWork<'a> {
    /// Returns what is selected; `None` if nothing is, or its run is not read yet.
    pub(crate) fn of(state: &'a WatchState) -> Option<Self> {
        let opened = state.opened.as_ref().filter(|_| state.screen != WatchScreen::List);
        if let Some(run) = opened {
            let node = run.selected_agent(&state.run_filter)?;
            let agent = Some(node).filter(|node| node.parent.is_some());
            return Some(Self { view: run.view(), liveness: run.liveness, agent });
        }
        let id = state.current_run()?;
        let listed = state.runs.iter().find(|listed| listed.id == id)?;
        Some(Self { view: &listed.view, liveness: listed.liveness, agent: None })
    }

    fn is_live(&self) -> bool {
        match self.agent {
            Some(agent) => agent.state.is_live(),
            None => self.view.outcome().is_none(),
        }
    }

    /// Returns the agents that a command about it reaches.
    fn agents(&self) -> Vec<&'a Delegation> {
        self.agent.map_or_else(|| self.view.preorder(), |agent| vec![agent])
    }

    /// Returns the first agent with an open question, that which is selected before all others.
    pub(crate) fn asking(&self) -> Option<&'a Delegation> {
        let all = self.agent.into_iter().chain(self.view.delegations());
        all.into_iter().find(|agent| agent.open_question().is_some())
    }

    fn has_results(&self) -> bool {
        let is_kept = |it: &&Delegation| {
            it.kept.as_ref().is_some_and(|kept| kept.0.commit.is_some() || kept.1.is_some())
        };
        self.agents().iter().any(is_kept)
    }
}

/// Returns why a command can do nothing about what is selected; `None` if it may.
pub(crate) fn obstacle(work: &SelectedWork<'_>, command: KeyCommand) -> Option<&'static str> {
    if command == KeyCommand::Tell {
        tell_obstacle(work)
    } else if command == KeyCommand::Cancel {
        (!work.is_live()).then_some("It has ended.")
    } else if command == KeyCommand::Resume {
        resume_obstacle(work)
    } else {
        None
    }
}

/// Returns whether the bottom line offers a command about `work`, which is what is selected.
pub(crate) fn is_offered(
    state: &WatchState,
    work: Option<&SelectedWork<'_>>,
    command: KeyCommand,
) -> bool {
    if command == KeyCommand::Approve {
        let run = state.current_run();
        let is_asked = state.inbox().iter().any(|row| Some(row.run) == run);
        let is_over = |it: &SelectedWork<'_>| it.liveness == ProcessLiveness::Dead;
        is_asked || work.is_some_and(|it| is_over(it) && it.asking().is_some())
    } else if [KeyCommand::Diff, KeyCommand::Merge, KeyCommand::Discard].contains(&command) {
        work.is_some_and(SelectedWork::has_results)
    } else if [KeyCommand::Open, KeyCommand::Tell, KeyCommand::Cancel, KeyCommand::Resume]
        .contains(&command)
    {
        work.is_some_and(|it| obstacle(it, command).is_none())
    } else {
        true
    }
}

fn tell_obstacle(work: &SelectedWork<'_>) -> Option<&'static str> {
    let agent = work.agent.or_else(|| work.view.root());
    let is_dead = work.liveness == ProcessLiveness::Dead;
    match agent.map(|agent| &agent.state) {
        Some(DelegationState::Ended(Outcome::Blocked)) if is_dead => {
            Some("It has ended with a question; press a to answer it.")
        }
        Some(DelegationState::Ended(Outcome::Blocked)) => {
            Some("It has ended with a question, which can be answered once the run has ended.")
        }
        Some(DelegationState::Ended(_)) => Some("It has ended and gets no messages."),
        _ if is_dead => Some("Its process is gone; press r to resume the run."),
        _ if work.agent.is_none() && agent.is_some_and(|root| root.model.is_none()) => {
            Some("The run has no agent of its own; select one of its subagents.")
        }
        _ => None,
    }
}

fn resume_obstacle(work: &SelectedWork<'_>) -> Option<&'static str> {
    if work.liveness == ProcessLiveness::Alive && work.view.outcome().is_none() {
        return Some("The run is in progress; it can be resumed once it has ended.");
    }
    let is_unfinished = |agent: &&Delegation| match agent.state {
        DelegationState::AwaitingApproval | DelegationState::Queued | DelegationState::Running => {
            true
        }
        DelegationState::Ended(outcome) => {
            matches!(outcome, Outcome::Partial | Outcome::Failed | Outcome::Cancelled)
        }
    };
    if work.agents().iter().any(is_unfinished) {
        return None;
    }
    if work.asking().is_some() {
        return Some("It has ended with a question; press a to answer it.");
    }
    Some("There is nothing to resume: it has nothing left to do.")
}
