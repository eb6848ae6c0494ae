//! What opening the registry costs after ten thousand runs, each begun by a call, on a story and merged.

use adjutant_core::budget::{BudgetAmount, BudgetCap};
use adjutant_core::registry::{
    CallKey, DelegationSample, HolderId, SampleGroup, SampleKey, StoryEnd, StoryKey, TreeKey,
};
use adjutant_core::{Preset, Registry, RegistryCommand, RegistryEvent, RunId, Usd};
use adjutant_engine::{RegistryError, RegistryHandle, wall_now};
use adjutant_store::SharedLog;
use tempfile::TempDir;

use crate::Failure;
use crate::history::run_id;
use crate::repos::timed;
use crate::sample::{Plan, Spread};
use crate::spawn::target_dir;
use crate::table::{MILLIS, Row};

const RUNS: usize = 10_000;

/// The decisions after the last checkpoint; with one more pair the file would be replaced.
const TAIL: usize = 120;

/// Measures the row.
pub(crate) fn measure(plan: &Plan) -> Result<Row, Failure> {
    let dir = TempDir::new_in(target_dir()?)?;
    let log = SharedLog::new(dir.path(), "registry");
    let mut locked = log.lock::<RegistryEvent>(|_| ())?;
    locked.replace(wall_now(), &long_history()?.checkpoint())?;
    drop(locked);
    let registry = RegistryHandle::at(dir.path());
    for number in 0..TAIL {
        let (holder, run) = (registry.holder()?, run_id(RUNS + number));
        registry.submit(admit(holder, run, None))?;
        registry.submit(RegistryCommand::EndRun { run })?;
    }
    let mut all = Vec::new();
    for _ in 0..plan.pick(200, 10) {
        // Locks, folds and judges; a refusal writes nothing, so that no sync of the disk is measured.
        let (millis, refused) = timed(|| {
            let refused = registry.submit(RegistryCommand::EndRun { run: run_id(1) });
            Ok::<_, Failure>(matches!(refused, Err(RegistryError::Refused(_))))
        })?;
        if !refused {
            return Err("the registry took the end of a run that had ended".into());
        }
        all.push(millis);
    }
    let bytes = std::fs::metadata(log.path())?.len();
    let row = Row::at_most("open the registry after 10,000 runs", Spread::of(all), 2.0, MILLIS);
    Ok(row.note(format!("{bytes} bytes, {} records after the checkpoint", 2 * TAIL + 1)))
}

fn admit(holder: HolderId, run: RunId, call: Option<CallKey>) -> RegistryCommand {
    let tree = TreeKey::new("/project");
    RegistryCommand::AdmitRun { holder, run, tree, max_runs: 4, call }
}

/// One sample per run, of twenty models: as many samples as are kept.
fn samples(number: usize) -> SampleGroup {
    let model = format!("acme/model-{}", number % 20);
    let sample =
        DelegationSample::new(31_000 + number as u64, Some(Usd::from_pico(1_234_567)), 95_000);
    let key = SampleKey { preset: Preset::Scout, model, worker: None };
    SampleGroup { key, samples: vec![sample] }
}

fn long_history() -> Result<Registry, Failure> {
    let mut registry = Registry::default();
    let wall_ms = wall_now();
    for number in 0..RUNS {
        let (holder, run) = (HolderId::new(format!("{number:016x}")), run_id(number));
        let call = CallKey::new(format!("{number:064x}"));
        let story = StoryKey { prd: "/project/prd.json".into(), id: format!("S-{number}") };
        let (tree, commit) = (TreeKey::new("/project"), "ab".repeat(20));
        let by = || holder.clone();
        let (end, spent, kept) = (StoryEnd::Passed, BudgetAmount::default(), Some(commit.clone()));
        let (asked, budget) = ("ab".repeat(32), BudgetCap::default());
        for command in [
            RegistryCommand::Join { holder: by(), pid: 4242 },
            RegistryCommand::BeginCall { holder: by(), call: call.clone(), run, instead_of: None },
            admit(by(), run, Some(call)),
            RegistryCommand::ReserveAllowance {
                holder: by(),
                run,
                amount: Usd::from_pico(1),
                limit: Usd::MAX,
            },
            RegistryCommand::ClaimStory { holder: by(), story: story.clone() },
            RegistryCommand::BeginStory { holder: by(), story, run, asked, budget },
            RegistryCommand::EndStory { run, end, spent, commit: kept, last_child: 3 },
            RegistryCommand::RecordMerge { tree, run, commit },
            RegistryCommand::RecordSamples { groups: vec![samples(number)] },
            RegistryCommand::EndRun { run },
            RegistryCommand::SettleAllowance { run, spent: Usd::ZERO },
            RegistryCommand::HolderGone { holder: by() },
        ] {
            let events = registry.decide(wall_ms, command)?;
            events.iter().for_each(|event| registry.evolve(wall_ms, event));
        }
    }
    Ok(registry)
}
