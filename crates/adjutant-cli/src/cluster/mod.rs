//! Work on a Restate cluster: `serve-worker`, `cluster dev`, `cluster workers` and `cluster resume-paused`.

mod dev;
pub(crate) mod serve_worker;

use std::path::PathBuf;

use adjutant_restate::{Admin, CallError, ClusterWorkerAbilities, Ingress, LiveClusterWorker};
use adjutant_view::sanitize;
use serde_json::json;

use crate::args::cluster::{ClusterArgs, ClusterCommand};
use crate::exit::{Exit, Failure};
use crate::output::{print, print_json};
use crate::runtime::addresses;

/// Runs `adjutant cluster`.
pub(crate) fn run_cluster(
    args: &ClusterArgs,
    as_json: bool,
    home: Option<PathBuf>,
) -> Result<Exit, Failure> {
    match &args.command {
        ClusterCommand::Dev(args) => dev::run_dev(args, home),
        ClusterCommand::Workers(place) => {
            let ingress = Ingress::new(addresses(&place.runtime)?);
            let workers = block_on(ingress.workers())?;
            if as_json {
                print_json(&json!({ "v": 1, "workers": workers }))?;
            } else if workers.is_empty() {
                print("No worker is live.\n")?;
            }
            for LiveClusterWorker { name, abilities } in workers.iter().filter(|_| !as_json) {
                print(&describe(name, abilities))?;
            }
            Ok(Exit::Completed)
        }
        ClusterCommand::ResumePaused(place) => {
            let addresses = addresses(&place.runtime)?;
            let admin = serve_worker::admin(&addresses, place.admin.as_deref())?;
            let count = block_on(Admin::new(admin).resume_paused())?;
            print(&format!("{count} paused calls resumed\n"))?;
            Ok(Exit::Completed)
        }
    }
}

/// Describes a worker and what it has, in lines for a terminal.
fn describe(name: &str, abilities: &ClusterWorkerAbilities) -> String {
    let ClusterWorkerAbilities {
        version, host, sandbox, toolchains, tools, providers, store, ..
    } = abilities;
    let list = |items: &[String]| {
        if items.is_empty() { "none".to_owned() } else { items.join(", ") }
    };
    let lines = [
        format!("{name}  on {host}, version {version}"),
        format!(
            "  sandbox     {}",
            sandbox.as_deref().unwrap_or("none: takes no agents that write")
        ),
        format!("  toolchains  {}", list(toolchains)),
        format!("  tools       {}", list(tools)),
        format!("  models of   {}", list(providers)),
        format!("  store       {}", store.as_deref().unwrap_or("none: shared directories")),
    ];
    lines.iter().map(|line| format!("{}\n", sanitize::line(line))).collect()
}

/// Runs one call.
fn block_on<T>(call: impl Future<Output = Result<T, CallError>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| {
        Failure::new(Exit::Failed, format!("cannot start the runtime: {error}"))
    })?;
    runtime.block_on(call).map_err(|error| serve_worker::call_failure(&error))
}
