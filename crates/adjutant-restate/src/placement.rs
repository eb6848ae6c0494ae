//! Which worker gets which session.
//!
//! Start at [`place`]. Invariant: an agent is at the worker of the agents from whose workspaces its own is made.

use std::collections::{BTreeMap, BTreeSet};

use adjutant_core::policy::WorkspaceSharing;
use adjutant_core::{SessionId, Tree};

use crate::fold::RunFold;
use crate::wire::{AgentNeeds, LiveClusterWorker, provider_of};

/// Gives each session to a live worker.
///
/// The workspace of a child is made from that of its parent, and its work may be merged into it, so both are with the same
/// worker, also a parent that only waits. Other agents that write need a store to be spread. Of the workers that have what the agent needs, the one with the fewest sessions of the run gets
/// it. If none has its model, any worker gets it, and says so; if none has the tools, it waits.
pub(crate) fn place(
    fold: &RunFold,
    sessions: &BTreeSet<SessionId>,
    workers: &[LiveClusterWorker],
    lost: Option<&str>,
) -> Vec<(SessionId, Option<String>)> {
    let tree = &fold.tree;
    let is_work_bound_to_worker = fold.is_work_bound_to_worker();
    let is_live = |session: &SessionId| tree.node(*session).is_some_and(|node| node.is_live());
    let mut loads: BTreeMap<&str, usize> = BTreeMap::new();
    let mut placed = fold.placed.clone();
    for worker in
        placed.iter().filter(|(session, _)| is_live(session)).filter_map(|it| it.1.as_deref())
    {
        if let Some(worker) = workers.iter().find(|it| it.name == worker) {
            *loads.entry(&worker.name).or_default() += 1;
        }
    }
    // Otherwise the first agent of every run would be with the same worker.
    let turn = tree.run().map_or(0, |run| run.to_string().bytes().map(usize::from).sum::<usize>());
    let mut result = BTreeMap::new();
    for session in sessions {
        if result.contains_key(session) {
            continue;
        }
        let above: Vec<SessionId> = tree.ancestors_with_spaces(*session).collect();
        // Also if it is leaving: the agent above has its workspace there.
        let worker_of = |session: &SessionId| {
            placed.get(session)?.as_ref().filter(|worker| Some(worker.as_str()) != lost)
        };
        let of_family = above.iter().rev().find_map(worker_of).cloned();
        let beside =
            || placed.values().flatten().next().filter(|_| is_work_bound_to_worker).cloned();
        let least = || {
            let able = able_workers(fold, *session, workers);
            let start = turn % able.len().max(1);
            let in_turn = able.iter().cycle().skip(start).take(able.len());
            let least = in_turn.min_by_key(|worker| loads.get(worker.name.as_str()).copied());
            least.map(|worker| worker.name.clone())
        };
        let worker = of_family.or_else(beside).or_else(least);
        if let Some(worker) = workers.iter().find(|it| Some(&it.name) == worker.as_ref()) {
            *loads.entry(&worker.name).or_default() += 1;
        }
        let waiting = above.iter().filter(|it| worker_of(it).is_none()).copied();
        let members: Vec<SessionId> = waiting.chain([*session]).collect();
        for member in members {
            placed.insert(member, worker.clone());
            result.insert(member, worker.clone());
        }
    }
    result.into_iter().collect()
}

/// Returns the workers that have what an agent and its family need, else those that have what it needs, else those that
/// have the tools of the run.
fn able_workers<'a>(
    fold: &RunFold,
    session: SessionId,
    workers: &'a [LiveClusterWorker],
) -> Vec<&'a LiveClusterWorker> {
    let policy = fold.tree.policy();
    let sandbox = policy.workspace == WorkspaceSharing::Own && !policy.in_place;
    let needs = |session: &SessionId| {
        let model = fold.tree.node(*session).and_then(|node| node.model.as_ref());
        let provider = model.and_then(|model| provider_of(&model.name));
        AgentNeeds { provider, tools: fold.needed_tools.clone(), sandbox }
    };
    for sessions in [family_of(&fold.tree, session), vec![session]] {
        let needs: Vec<AgentNeeds> = sessions.iter().map(needs).collect();
        let lacks_nothing = |worker: &&LiveClusterWorker| {
            needs.iter().all(|needs| worker.abilities.lacking(needs).is_none())
        };
        let able: Vec<_> = workers.iter().filter(lacks_nothing).collect();
        if !able.is_empty() {
            return able;
        }
    }
    let has_tools = |worker: &&LiveClusterWorker| {
        fold.needed_tools.iter().all(|tool| worker.abilities.tools.contains(tool))
    };
    workers.iter().filter(has_tools).collect()
}

/// Returns the live agents that must be at the same worker as this one, itself included: those whose workspaces are made
/// from that of the same topmost agent.
fn family_of(tree: &Tree, session: SessionId) -> Vec<SessionId> {
    let top = |session| tree.ancestors_with_spaces(session).last().unwrap_or(session);
    let head = top(session);
    let live = tree.nodes().filter(|node| node.is_live()).map(|node| node.session);
    live.filter(|other| *other != session && top(*other) == head).chain([session]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::ClusterWorkerAbilities;

    fn workers(names: &[&str]) -> Vec<LiveClusterWorker> {
        let worker = |name: &&str| LiveClusterWorker {
            name: (*name).to_owned(),
            abilities: ClusterWorkerAbilities::default(),
        };
        names.iter().map(worker).collect()
    }

    fn sessions(count: u8) -> BTreeSet<SessionId> {
        (0..count).map(|number| SessionId::new(1_700_000_000, [number; 6])).collect()
    }

    #[test]
    fn sessions_are_spread_over_the_workers() {
        let placed = place(&RunFold::default(), &sessions(4), &workers(&["one", "two"]), None);
        let on = |name: &str| placed.iter().filter(|(_, it)| it.as_deref() == Some(name)).count();
        assert_eq!((on("one"), on("two")), (2, 2));
    }

    #[test]
    fn without_a_worker_a_session_waits() {
        let placed = place(&RunFold::default(), &sessions(1), &[], None);
        assert_eq!(placed.iter().filter(|(_, worker)| worker.is_none()).count(), 1);
    }

    #[test]
    fn a_session_goes_only_to_a_worker_that_has_the_tools() {
        let mut two = workers(&["one", "two"]);
        two[1].abilities.tools = vec!["cargo".to_owned()];
        let mut fold = RunFold { needed_tools: vec!["cargo".to_owned()], ..RunFold::default() };
        let names = |fold: &RunFold| -> BTreeSet<Option<String>> {
            place(fold, &sessions(4), &two, None).into_iter().map(|(_, worker)| worker).collect()
        };
        assert_eq!(names(&fold), BTreeSet::from([Some("two".to_owned())]));
        fold.needed_tools.push("go".to_owned());
        assert_eq!(names(&fold), BTreeSet::from([None]), "no worker has both");
    }
}
