//! The virtual object that knows which workers live and which runs are under way.
//!
//! It compares no clocks: a worker counts as lost when another one has sent several heartbeats since its last. So clocks
//! that differ between machines change nothing, and if the whole cluster pauses, no worker is declared lost.

use std::collections::{BTreeMap, BTreeSet};

use restate_sdk::prelude::*;
use serde::{Deserialize, Serialize};

use crate::object::RunObjectClient;
use crate::wire::{
    ClusterWorkerAbilities, Heartbeat, LiveClusterWorker, RunInput, Submission, WorkerChange,
};

/// How many signs of life another worker sends until a silent one counts as gone. Fewer would take the agents from a
/// worker whose machine is busy for some seconds.
const MISSED_BEATS_UNTIL_LOST: u32 = 10;

/// How many signs of life another worker sends until one that is gone is forgotten.
const MISSED_BEATS_UNTIL_FORGOTTEN: u32 = 3600;

/// The workers by name.
type Members = BTreeMap<String, Member>;

/// What is known about a worker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Member {
    instance: String,
    abilities: ClusterWorkerAbilities,
    /// The signs of life of each other worker since its own last.
    missed: BTreeMap<String, u32>,
    is_live: bool,
    /// Whether it gets no further sessions.
    #[serde(default)]
    is_leaving: bool,
}

/// The handlers of the cluster.
pub(crate) struct ClusterObject;

#[object(
    name = "AdjutantCluster",
    journal_retention = "0s",
    idempotency_retention = "0s",
    invocation_retry_policy(
        initial_interval = "20ms",
        max_interval = "500ms",
        max_attempts = 200000
    )
)]
impl ClusterObject {
    /// Takes a sign of life. Runs are told which workers came or went.
    #[handler]
    async fn beat(
        &self,
        ctx: ObjectContext<'_>,
        Json(beat): Json<Heartbeat>,
    ) -> Result<(), HandlerError> {
        let mut members = members(ctx.get("members").await?);
        let changes = take_heartbeat(&mut members, beat);
        ctx.set("members", Json(members));
        tell_runs(&ctx, changes).await
    }

    /// Takes a worker out: it gets no further sessions, and those it has go to others.
    #[handler]
    async fn leave(
        &self,
        ctx: ObjectContext<'_>,
        Json(worker): Json<String>,
    ) -> Result<(), HandlerError> {
        let mut members = members(ctx.get("members").await?);
        let was_live = members.remove(&worker).is_some_and(|member| member.is_live);
        ctx.set("members", Json(members));
        let changes = if was_live { vec![WorkerChange::Lost(worker)] } else { Vec::new() };
        tell_runs(&ctx, changes).await
    }

    /// Returns the live workers that take sessions.
    #[handler(idempotency_retention = "0s")]
    async fn workers(
        &self,
        ctx: SharedObjectContext<'_>,
    ) -> Result<Json<Vec<LiveClusterWorker>>, HandlerError> {
        let members = members(ctx.get("members").await?).into_iter();
        let live = members.filter(|(_, member)| member.is_live && !member.is_leaving);
        Ok(Json(
            live.map(|(name, member)| LiveClusterWorker { name, abilities: member.abilities })
                .collect(),
        ))
    }

    /// Notes a run that has begun.
    #[handler(ingress_private = true)]
    async fn register_run(
        &self,
        ctx: ObjectContext<'_>,
        Json(run): Json<String>,
    ) -> Result<(), HandlerError> {
        let mut runs = runs(ctx.get("runs").await?);
        runs.insert(run);
        ctx.set("runs", Json(runs));
        Ok(())
    }

    /// Forgets a run that has ended.
    #[handler(ingress_private = true)]
    async fn unregister_run(
        &self,
        ctx: ObjectContext<'_>,
        Json(run): Json<String>,
    ) -> Result<(), HandlerError> {
        let mut runs = runs(ctx.get("runs").await?);
        runs.remove(&run);
        ctx.set("runs", Json(runs));
        Ok(())
    }
}

/// Takes a heartbeat. Returns which workers were lost or joined.
fn take_heartbeat(members: &mut Members, beat: Heartbeat) -> Vec<WorkerChange> {
    let mut changes = Vec::new();
    for (name, other) in members.iter_mut().filter(|(name, _)| **name != beat.worker) {
        let missed = other.missed.entry(beat.worker.clone()).or_default();
        *missed += 1;
        if *missed >= MISSED_BEATS_UNTIL_LOST && other.is_live {
            other.is_live = false;
            changes.push(WorkerChange::Lost(name.clone()));
        }
    }
    let is_forgotten = |member: &Member| {
        !member.is_live
            && member
                .missed
                .get(&beat.worker)
                .is_some_and(|missed| *missed >= MISSED_BEATS_UNTIL_FORGOTTEN)
    };
    members.retain(|_, member| !is_forgotten(member));
    let Heartbeat { worker, instance, abilities, is_leaving } = beat;
    let member = members.entry(worker).or_default();
    // A process that was started again may have tools or keys that the earlier one had not.
    if !member.is_live || member.instance != instance {
        changes.push(WorkerChange::Joined);
    }
    *member = Member { instance, abilities, missed: BTreeMap::new(), is_live: true, is_leaving };
    changes
}

fn members(kept: Option<Json<Members>>) -> Members {
    kept.map(Json::into_inner).unwrap_or_default()
}

fn runs(kept: Option<Json<BTreeSet<String>>>) -> BTreeSet<String> {
    kept.map(Json::into_inner).unwrap_or_default()
}

async fn tell_runs(
    ctx: &ObjectContext<'_>,
    changes: Vec<WorkerChange>,
) -> Result<(), HandlerError> {
    if changes.is_empty() {
        return Ok(());
    }
    let runs = runs(ctx.get("runs").await?);
    for change in changes {
        for run in &runs {
            let input = RunInput::WorkersChanged(change.clone());
            let submission = Submission { wall_ms: 0, known: 0, worker: None, input };
            ctx.object_client::<RunObjectClient>(run.clone()).submit(submission.into()).send();
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beat(members: &mut Members, worker: &str) -> Vec<WorkerChange> {
        let beat = Heartbeat {
            worker: worker.to_owned(),
            instance: "1".to_owned(),
            abilities: ClusterWorkerAbilities::default(),
            is_leaving: false,
        };
        take_heartbeat(members, beat)
    }

    #[test]
    fn a_worker_is_lost_when_another_beats_ten_times_without_it() {
        let mut members = Members::new();
        assert_eq!(beat(&mut members, "one"), [WorkerChange::Joined]);
        assert_eq!(beat(&mut members, "two"), [WorkerChange::Joined]);
        for _ in 0..20 {
            assert_eq!(beat(&mut members, "one"), []);
            assert_eq!(beat(&mut members, "two"), []);
        }
        for _ in 0..9 {
            assert_eq!(beat(&mut members, "one"), []);
        }
        assert_eq!(beat(&mut members, "one"), [WorkerChange::Lost("two".to_owned())]);
        assert_eq!(beat(&mut members, "one"), [], "it is lost once");
        assert_eq!(beat(&mut members, "two"), [WorkerChange::Joined], "it is back");
    }

    #[test]
    fn a_worker_that_is_gone_for_long_is_forgotten() {
        let mut members = Members::new();
        beat(&mut members, "one");
        beat(&mut members, "two");
        for _ in 0..MISSED_BEATS_UNTIL_FORGOTTEN {
            beat(&mut members, "one");
        }
        assert_eq!(members.keys().collect::<Vec<_>>(), ["one"]);
    }

    #[test]
    fn many_workers_together_do_not_make_one_lost() {
        let mut members = Members::new();
        let names: Vec<String> = (0..50).map(|number| number.to_string()).collect();
        for _ in 0..3 {
            for name in &names {
                let changes = beat(&mut members, name);
                assert!(changes.iter().all(|it| *it == WorkerChange::Joined), "{changes:?}");
            }
        }
    }
}
