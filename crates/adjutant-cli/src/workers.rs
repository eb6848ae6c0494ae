//! `workers`: lists other agents that can work for a person, and what each needs.

use std::path::Path;

use adjutant_workers::WorkerState;
use serde_json::{Value, json};

use crate::args::PolicyFlags;
use crate::exit::{Exit, Failure};
use crate::output::{print_json, print_list};
use crate::settings::Settings;
use crate::wiring::ModelSetup;

/// The class of all workers so far: their model calls go through the gateway.
const METERED: &str = "metered";

/// Runs `adjutant workers`.
pub(crate) fn run_workers(as_json: bool) -> Result<Exit, Failure> {
    let workers = list()?;
    if as_json {
        let listed: Vec<Value> = workers.iter().map(as_object).collect();
        print_json(&json!({ "v": 1, "workers": listed }))?;
    } else {
        print_list(&workers.iter().map(as_line).collect::<String>())?;
        print_list(
            "\nA metered worker has no key and no network of its own: its\n\
             model calls go through Adjutant, which holds the key and the\n\
             budget. To use one:\n  adjutant delegate --write --worker NAME -t fix=\"…\"\n",
        )?;
    }
    Ok(Exit::Completed)
}

/// Returns the lines of `adjutant doctor` about workers: those that are installed.
pub(crate) fn findings() -> Result<Vec<(String, bool, String)>, Failure> {
    let installed = list()?.into_iter().filter(|it| it.found.is_ok());
    let line = |it: WorkerState| (format!("worker {}", it.definition.name), true, description(&it));
    Ok(installed.map(line).collect())
}

fn list() -> Result<Vec<WorkerState>, Failure> {
    let settings = Settings::load(&PolicyFlags::default(), Path::new("."))?;
    Ok(ModelSetup::new(&settings)?.workers(&settings)?.list())
}

fn as_object(worker: &WorkerState) -> Value {
    let found = worker.found.as_ref().ok();
    let wires: Vec<&str> = worker.definition.wires.iter().map(|wire| wire.as_str()).collect();
    json!({
        "name": worker.definition.name,
        "class": METERED,
        "protocol": worker.definition.protocol.as_str(),
        "wires": wires,
        "usable": found.is_some(),
        "version": found.and_then(|found| found.version.clone()),
        "problem": worker.found.as_ref().err(),
    })
}

fn as_line(worker: &WorkerState) -> String {
    let mark = if worker.found.is_ok() { "✓" } else { "·" };
    format!("{mark} {:<10} {}\n", worker.definition.name, description(worker))
}

fn description(worker: &WorkerState) -> String {
    let wires: Vec<&str> = worker.definition.wires.iter().map(|wire| wire.as_str()).collect();
    let kind =
        format!("{METERED}, {} over {}", wires.join(" or "), worker.definition.protocol.as_str());
    match &worker.found {
        Ok(found) => {
            let version = found.version.as_ref().map_or("version unknown", String::as_str);
            format!("{version}, {kind}")
        }
        Err(problem) => format!("{kind}: {problem}"),
    }
}
