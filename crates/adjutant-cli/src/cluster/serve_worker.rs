//! `serve-worker`: performs the effects of runs on a cluster with the engine of local runs.

use std::cell::RefCell;
use std::env;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use adjutant_core::schema::ReturnFormat;
use adjutant_core::{Event, SessionId, Timestamp};
use adjutant_engine::results::probe_machine;
use adjutant_engine::{Narrator, Reporter, ResumeInfo};
use adjutant_restate::{
    Admin, CallError, ClusterStore, ClusterWorker, ClusterWorkerAbilities, ClusterWorkerError,
    ClusterWorkerSetup, Ingress, PerformerInput, RunPerformer,
};
use adjutant_view::{RunView, TimedEvent};
use tokio::signal::unix::{SignalKind, signal};

use crate::args::PolicyFlags;
use crate::args::cluster::ServeWorkerArgs;
use crate::execute::results_for_agent;
use crate::exit::{Exit, Failure};
use crate::output::say;
use crate::resume::worker_engine;
use crate::runtime::addresses;
use crate::settings::{self, Settings};
use crate::wiring::ModelSetup;
use crate::workspace_flags::default_setup;

/// The port of a node's admin address.
const ADMIN_PORT: u16 = 9070;

/// The longest name of a worker.
const NAME_CHARS: usize = 40;

/// Runs the command until a signal ends it.
pub(crate) fn run_serve_worker(
    args: &ServeWorkerArgs,
    given_home: Option<PathBuf>,
) -> Result<Exit, Failure> {
    let addresses = addresses(&args.place.runtime)?;
    check_listen(args)?;
    let name = worker_name(args.name.as_deref())?;
    let home = settings::home(given_home)?;
    let admin = admin(&addresses, args.place.admin.as_deref())?;
    let failed = |what: &str, error: std::io::Error| {
        Failure::new(Exit::Failed, format!("cannot {what}: {error}"))
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| failed("start the runtime", error))?;
    let store = args.store.as_deref().map(ClusterStore::open).transpose();
    let store = store.map_err(|error| Failure::usage(format!("--store: {error}")))?;
    // Two workers may have the same state directory, as those of `cluster dev`.
    let checkouts = home.join("cluster").join("checkouts").join(&name);
    let setup = ClusterWorkerSetup {
        name,
        listen: args.listen,
        health: args.health,
        ingress: Ingress::new(addresses),
        admin: Admin::new(admin),
        identity_key: args.identity_key.clone(),
        abilities: abilities(&home, store.as_ref())?,
        factory: Arc::new(move |beginning| {
            performer(&home, beginning).map_err(|failure| failure.to_string())
        }),
        store: store.map(Arc::new),
        checkouts,
        retention: args.keep,
    };
    runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt()).map_err(|it| failed("catch signals", it))?;
        let mut terminate = signal(SignalKind::terminate()).map_err(|it| failed("catch signals", it))?;
        let worker = ClusterWorker::start(setup).await.map_err(|error| explain(&error))?;
        say(&format!("adjutant: worker `{}` takes work; ctrl+c ends it at once, SIGTERM when its agents have ended", worker.name()));
        let (drain, drained) = tokio::sync::oneshot::channel();
        let end = async {
            let mut drain = Some(drain);
            loop {
                tokio::select! {
                    _ = interrupt.recv() => return,
                    _ = terminate.recv() => match drain.take() {
                        Some(drain) => {
                            say("adjutant: no further work is taken; the worker ends when its agents have ended");
                            let _ = drain.send(());
                        }
                        None => return,
                    },
                }
            }
        };
        let drain = async {
            if drained.await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        worker.serve_until(drain, end).await;
        Ok::<(), Failure>(())
    })?;
    // A tool call may still run on its thread.
    runtime.shutdown_background();
    Ok(Exit::Completed)
}

/// Returns the admin addresses: the given ones, or those of the nodes.
pub(crate) fn admin(ingress: &[String], given: Option<&str>) -> Result<Vec<String>, Failure> {
    let Some(given) = given else {
        let hosts = ingress.iter().filter_map(|node| node.rsplit_once(':'));
        return Ok(hosts.map(|(host, _)| format!("{host}:{ADMIN_PORT}")).collect());
    };
    let is_address = |one: &&str| one.starts_with("http://") && one.len() > "http://".len();
    let wrong = |one: &str| Failure::usage(format!("--admin: `{one}` is not http://HOST:PORT"));
    let address = |one: &str| {
        let address = one.trim_end_matches('/').to_owned();
        Some(one).filter(is_address).map(|_| address).ok_or_else(|| wrong(one))
    };
    given.split(',').map(address).collect()
}

/// Refuses an address that other machines cannot use, and warns of one without protection.
fn check_listen(args: &ServeWorkerArgs) -> Result<(), Failure> {
    let ip = args.listen.ip();
    if ip.is_unspecified() {
        let text = format!("--listen: the cluster cannot reach the worker at {ip}");
        return Err(Failure::usage(text)
            .hint("Give the address of this machine in the network of the cluster."));
    }
    if !ip.is_loopback() && args.identity_key.is_none() {
        say(&format!(
            "adjutant: without --identity-key, everyone who can reach {} can give this worker work",
            args.listen
        ));
    }
    Ok(())
}

/// Says what can be done about a server that refuses a call or does not answer.
pub(crate) fn call_failure(error: &CallError) -> Failure {
    let failure = Failure::from_error(Exit::Failed, error);
    match error {
        CallError::Unreachable { .. } => {
            failure.hint("Start a server first; 'cluster dev' starts one on this machine.")
        }
        CallError::AdminUnreachable { .. } => failure.hint(format!(
            "--admin http://HOST:PORT names the admin address; without it, port {ADMIN_PORT} of each node is used."
        )),
        CallError::NoWorker { .. } | CallError::Status { .. } | CallError::Unreadable { .. } => {
            failure
        }
    }
}

fn explain(error: &ClusterWorkerError) -> Failure {
    let failure = Failure::from_error(Exit::Failed, error);
    match error {
        ClusterWorkerError::Call(error) => call_failure(error),
        ClusterWorkerError::NameTaken { .. } => failure.hint("Choose another name with --name."),
        ClusterWorkerError::Listen { .. }
        | ClusterWorkerError::Version(_)
        | ClusterWorkerError::Thread(_) => failure,
        ClusterWorkerError::IdentityKey(_) => Failure::from_error(Exit::Usage, error)
            .hint("The server prints its key when it starts; it begins with publickeyv1_."),
    }
}

/// Returns the name of the worker, which becomes part of a service's name.
fn worker_name(given: Option<&str>) -> Result<String, Failure> {
    let name = given.map_or_else(host_name, str::to_owned);
    let is_plain = |it: char| it.is_ascii_alphanumeric() || it == '-' || it == '_';
    if name.is_empty() || name.len() > NAME_CHARS || !name.chars().all(is_plain) {
        let text = format!("--name: `{name}` is not 1 to {NAME_CHARS} letters, digits, - or _");
        return Err(Failure::usage(text));
    }
    Ok(name)
}

fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let plain = |it: char| if it.is_ascii_alphanumeric() || it == '-' { it } else { '-' };
    name.trim().chars().map(plain).take(NAME_CHARS).collect()
}

/// Finds out what this machine offers to agents.
fn abilities(home: &Path, store: Option<&ClusterStore>) -> Result<ClusterWorkerAbilities, Failure> {
    let settings = Settings::load(&PolicyFlags::default(), home)?;
    let mut setup = default_setup(home);
    settings.toolchains.find(&mut setup);
    let machine = probe_machine(&env::var_os("PATH").unwrap_or_default(), home);
    let has_key =
        |(name, _, key): (String, String, Option<bool>)| key.unwrap_or(true).then_some(name);
    let mut providers: Vec<String> =
        ModelSetup::new(&settings)?.providers().into_iter().filter_map(has_key).collect();
    // A script is a file of the run, and needs no key.
    providers.push("script".to_owned());
    Ok(ClusterWorkerAbilities {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        host: host_name(),
        sandbox: machine.sandbox.ok().map(|(level, _)| level),
        toolchains: setup.toolchains.iter().map(|it| it.name.to_owned()).collect(),
        tools: setup.tool_names(),
        commands_see: setup.commands_see(),
        providers,
        store: store.map(|store| store.address().to_owned()),
    })
}

/// Sets up what performs the effects of a run.
fn performer(home: &Path, beginning: PerformerInput<'_>) -> Result<RunPerformer, Failure> {
    let PerformerInput { run, decisions, checkout } = beginning;
    let events = decisions.iter().flat_map(|it| it.events.iter().map(|event| (it.at, event)));
    let past = ResumeInfo::of(events)
        .ok_or_else(|| Failure::new(Exit::Failed, "the run has no beginning"))?;
    let view = Rc::new(RefCell::new(RunView::default()));
    let result_tokens = past.policy.result_tokens;
    let engine = worker_engine(home, run, past, checkout)?;
    Ok(RunPerformer {
        engine,
        narrator: Rc::new(ViewNarrator { view: Rc::clone(&view), result_tokens }),
        reporters: vec![Box::new(ViewReporter(view))],
    })
}

/// Puts results into words from the state of the run.
struct ViewNarrator {
    view: Rc<RefCell<RunView>>,
    result_tokens: Option<u64>,
}

impl Narrator for ViewNarrator {
    fn results(&self, parent: SessionId, call: u32, form: ReturnFormat) -> String {
        results_for_agent(&self.view.borrow(), (parent, call), form, self.result_tokens)
    }
}

/// Keeps the state of the run.
struct ViewReporter(Rc<RefCell<RunView>>);

impl Reporter for ViewReporter {
    fn report(&mut self, at: Timestamp, wall_ms: u64, event: &Event) {
        self.0.borrow_mut().apply(TimedEvent::new(at, wall_ms, event));
    }
}
