//! Where runs are decided and recorded: in this process, or on a cluster that `--runtime` names.

use std::path::Path;
use std::rc::Rc;

use adjutant_core::RunId;
use adjutant_engine::{RecordedDecision, RemoteRuntime};

use crate::args::WorkFlags;
#[cfg(feature = "restate")]
use crate::exit::Exit;
use crate::exit::Failure;
use crate::settings::Settings;

/// The scheme of a cluster's address.
const SCHEME: &str = "restate://";

/// Returns where a run of these flags is at work: as typed, else as the user's configuration says.
pub(crate) fn of_flags(
    flags: &WorkFlags,
    settings: &Settings,
    home: &Path,
) -> Result<Option<Rc<dyn RemoteRuntime>>, Failure> {
    let runtime = open(flags.runtime.as_deref().or(settings.runtime.as_deref()), home)?;
    let needs_local = |flag: &str, why: &str| {
        Failure::usage(format!("{flag} works only with --runtime local: {why}"))
    };
    match (&runtime, flags) {
        (None, _) => Ok(None),
        (Some(_), WorkFlags { record: Some(_), .. }) => {
            Err(needs_local("--record", "the workers call the provider"))
        }
        (Some(_), WorkFlags { in_place: true, .. }) => {
            Err(needs_local("--in-place", "workers write in workspaces; use --write"))
        }
        (Some(_), flags) if flags.spaces.worker.is_some() => {
            Err(needs_local("--worker", "the workers of a cluster do not run other agent programs"))
        }
        (Some(_), _) => Ok(runtime),
    }
}

/// Opens the named runtime; `None` for this process.
pub(crate) fn open(
    named: Option<&str>,
    home: &Path,
) -> Result<Option<Rc<dyn RemoteRuntime>>, Failure> {
    let Some(named) = named.filter(|it| !it.is_empty() && *it != "local") else { return Ok(None) };
    addresses(named).and_then(|addresses| connect(addresses, home)).map(Some)
}

/// Returns the addresses of a cluster's ingress, such as `http://127.0.0.1:8080`.
pub(crate) fn addresses(named: &str) -> Result<Vec<String>, Failure> {
    let wrong = || {
        Failure::usage(format!("--runtime: `{named}` is not local or {SCHEME}HOST:PORT"))
            .hint("Several nodes are separated by commas: restate://10.0.0.1:8080,10.0.0.2:8080.")
    };
    let hosts = named.strip_prefix(SCHEME).ok_or_else(wrong)?;
    let parse_address = |host: &str| {
        let (name, port) = host.rsplit_once(':')?;
        let port = port.trim_end_matches('/');
        (!name.is_empty() && !name.contains(['/', '@'])).then_some(())?;
        port.parse::<u16>().ok().map(|port| format!("http://{name}:{port}"))
    };
    hosts.split(',').map(|host| parse_address(host).ok_or_else(wrong)).collect()
}

/// Returns the decisions of a run at this runtime, which has them also if the process that started the run was lost
/// before it wrote any of them down.
#[cfg(feature = "restate")]
pub(crate) fn decisions_of(named: &str, run: RunId) -> Result<Vec<RecordedDecision>, Failure> {
    use crate::cluster::serve_worker::call_failure;
    let ingress = adjutant_restate::Ingress::new(addresses(named)?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| {
        Failure::new(Exit::Failed, format!("cannot start the runtime: {error}"))
    })?;
    let asked = async {
        ingress.check().await?;
        adjutant_restate::decisions_of(&ingress, run).await
    };
    runtime.block_on(asked).map_err(|error| call_failure(&error))
}

#[cfg(not(feature = "restate"))]
pub(crate) fn decisions_of(named: &str, _run: RunId) -> Result<Vec<RecordedDecision>, Failure> {
    addresses(named).and_then(|addresses| connect(addresses, Path::new(""))).map(|_| Vec::new())
}

#[cfg(feature = "restate")]
#[expect(clippy::unnecessary_wraps, reason = "without the feature it fails")]
fn connect(addresses: Vec<String>, home: &Path) -> Result<Rc<dyn RemoteRuntime>, Failure> {
    let ingress = adjutant_restate::Ingress::new(addresses);
    // Git's private files, and bundles on their way to and from the cluster's store.
    let state = home.join("cluster").join("user");
    Ok(Rc::new(adjutant_restate::ClusterRuntime::new(ingress, state)))
}

#[cfg(not(feature = "restate"))]
fn connect(_addresses: Vec<String>, _home: &Path) -> Result<Rc<dyn RemoteRuntime>, Failure> {
    Err(Failure::usage("--runtime restate://… needs the cargo feature `restate`, and this program was built without it")
        .hint("docs/cluster.md has the command that builds it from the sources."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_one_node_or_several() {
        let all = addresses("restate://a:8080,[::1]:1").unwrap_or_default();
        assert_eq!(all, ["http://a:8080", "http://[::1]:1"]);
        for wrong in [
            "restate://",
            "restate://a",
            "http://a:1",
            "restate://a:b",
            "restate://u@a:1",
            "restate://a:1,",
        ] {
            assert!(addresses(wrong).is_err(), "{wrong}");
        }
    }
}
