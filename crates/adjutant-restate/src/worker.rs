//! A worker process: serves the handlers, registers itself, and shows that it lives.
//!
//! Each worker serves two addresses. One has its own handler, which performs effects. The other has the handlers of the
//! runs and of the cluster, and is registered for only one worker: if that stops answering, another worker registers its
//! own address instead.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use adjutant_engine::wall_now;
use restate_sdk::endpoint::{ContextInternal, Endpoint};
use restate_sdk::prelude::*;
use restate_sdk::service::macro_support::{ServiceBoxFuture, service_definition};
use restate_sdk::service::{Discoverable, IntoServiceDefinition, Service, ServiceDefinition};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;

use crate::client::{Admin, CallError, Ingress};
use crate::cluster::ClusterObject;
use crate::fold::RunCache;
use crate::object::RunObject;
use crate::replica::{PerformerFactory, PerformerThread, PerformerThreadSetup};
use crate::request_signature;
use crate::store::ClusterStore;
use crate::wire::{
    CLUSTER_KEY, CLUSTER_SERVICE, ClusterWorkerAbilities, Heartbeat, PerformRequest, RUN_SERVICE,
    RetryableInput, worker_service,
};

/// The pause between two signs of life.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1);
/// How long the answer to a sign of life may take.
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(3);
/// How many unanswered signs of life make a worker take over the handlers of the runs.
const UNANSWERED_UNTIL_TAKEOVER: u32 = 5;
/// How long a cluster may take until it answers a worker's first sign of life.
const STARTING_TIME: Duration = Duration::from_secs(30);
/// How many connections may wait until they are accepted, as the standard library has it.
const BACKLOG: u32 = 128;
/// How long connecting to another worker may take.
const CONNECT: Duration = Duration::from_secs(1);
/// How many signs of life without an effect to perform end a worker that is leaving.
const IDLE_BEATS_UNTIL_END: u32 = 2;
/// After how long a worker that is leaving ends in any case.
const LONGEST_DRAIN: Duration = Duration::from_secs(600);
/// The version of the server that this version was tested with, up to its last number.
const SERVER_VERSION: &str = "1.7.";

/// The settings of a worker.
pub struct ClusterWorkerSetup {
    /// Its name, unique in the cluster and the same after a restart.
    pub name: String,
    /// Where it listens.
    pub listen: SocketAddr,
    /// Where it answers whether it lives, over HTTP.
    pub health: Option<SocketAddr>,
    /// The cluster.
    pub ingress: Ingress,
    /// Where it registers.
    pub admin: Admin,
    /// The key with which the server signs its calls; without one, every call is taken.
    pub identity_key: Option<String>,
    /// What it has.
    pub abilities: ClusterWorkerAbilities,
    /// Sets up what performs the effects of a run.
    pub factory: PerformerFactory,
    /// The store of the cluster; `None` if all machines share the directories of runs.
    pub store: Option<Arc<ClusterStore>>,
    /// Where copies of users' checkouts are made.
    pub checkouts: PathBuf,
    /// How long a run that has ended is kept.
    pub retention: Duration,
}

/// Why a worker cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum ClusterWorkerError {
    /// Its address cannot be used.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// The server cannot be reached, or refuses the registration.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The server is of another version.
    #[error("the Restate server has version {0}; this version of Adjutant needs {SERVER_VERSION}x")]
    Version(String),
    /// Another process uses the name.
    #[error("another worker named {name} is running at {uri}")]
    NameTaken {
        /// The name.
        name: String,
        /// Its address.
        uri: String,
    },
    /// The identity key cannot be parsed.
    #[error("the key of the server cannot be used: {0}")]
    IdentityKey(String),
    /// A thread cannot be started.
    #[error("cannot start a thread")]
    Thread(#[source] std::io::Error),
}

/// A worker that is registered and serves its handlers.
pub struct ClusterWorker {
    name: String,
    ingress: Ingress,
    admin: Admin,
    beat: Heartbeat,
    runs_uri: String,
    performing: watch::Receiver<usize>,
    stop: watch::Sender<bool>,
}

impl ClusterWorker {
    /// Starts to serve and registers.
    pub async fn start(setup: ClusterWorkerSetup) -> Result<Self, ClusterWorkerError> {
        let ClusterWorkerSetup {
            name,
            listen,
            health,
            ingress,
            admin,
            identity_key,
            abilities,
            ..
        } = setup;
        let ClusterWorkerSetup { factory, store, checkouts, retention, .. } = setup;
        let version = admin.version().await?;
        if !version.starts_with(SERVER_VERSION) {
            return Err(ClusterWorkerError::Version(version));
        }
        ingress.check().await?;
        let of_worker = admin.service(&worker_service(&name)).await?;
        if let Some(known) = &of_worker
            && answers(&known.uri).await
        {
            return Err(ClusterWorkerError::NameTaken { name, uri: known.uri.clone() });
        }
        let instance = format!("{name}-{}-{}", wall_now(), std::process::id());
        remove_old_checkouts(&checkouts, retention);
        let setup = PerformerThreadSetup { factory, store, checkouts };
        let performers =
            PerformerThread::start(ingress.clone(), name.clone(), instance.clone(), setup);
        let performers = performers.map_err(ClusterWorkerError::Thread)?;
        let performing = performers.performing();
        let (stop, stopped) = watch::channel(false);
        if let Some(address) = health {
            serve_health(address, &name, performing.clone()).await?;
        }
        let service =
            NamedWorkerService { name: name.clone(), instance: instance.clone(), performers };
        request_signature::install_verifier();
        let endpoint = || match &identity_key {
            Some(key) => Endpoint::builder()
                .identity_key(key)
                .map_err(|error| ClusterWorkerError::IdentityKey(error.to_string())),
            None => Ok(Endpoint::builder()),
        };
        let worker_uri = serve(endpoint()?.bind(service).build(), listen, &stopped).await?;
        let cache = Arc::new(RunCache::default());
        let runs = RunObject { ingress: ingress.clone(), cache, retention };
        let runs = endpoint()?.bind(runs).bind(ClusterObject).build();
        // An address of its own: another worker's handlers may be the registered ones.
        let port = if listen.port() == 0 { 0 } else { listen.port().saturating_add(1) };
        let runs_uri = serve(runs, SocketAddr::new(listen.ip(), port), &stopped).await?;
        match of_worker {
            Some(known) => admin.move_to(&known.deployment, &worker_uri).await?,
            None => admin.register(&worker_uri).await?,
        }
        let beat = Heartbeat { worker: name.clone(), instance, abilities, is_leaving: false };
        let worker = Self { name, ingress, admin, beat, runs_uri, performing, stop };
        worker.take_over_runs(false).await?;
        let began = tokio::time::Instant::now();
        // A cluster that was started just now answers its admin address before its handlers can be called.
        while let Err(error) = worker.show_life().await {
            if began.elapsed() > STARTING_TIME {
                return Err(error.into());
            }
            tokio::time::sleep(HEARTBEAT_INTERVAL).await;
        }
        Ok(worker)
    }

    /// Returns the worker's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Shows that the worker lives, until `end` is ready. Then its sessions go to other workers.
    ///
    /// Once `drain` is ready it gets no further sessions, and ends when it has had no effect to perform for a while, or
    /// after ten minutes.
    pub async fn serve_until(
        mut self,
        drain: impl Future<Output = ()>,
        end: impl Future<Output = ()>,
    ) {
        let (mut drain, mut end) = (std::pin::pin!(drain), std::pin::pin!(end));
        let mut beats = tokio::time::interval(HEARTBEAT_INTERVAL);
        beats.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let (mut unanswered, mut idle_beats) = (0, 0);
        let mut drain_end = None;
        loop {
            tokio::select! {
                () = &mut end => break,
                () = &mut drain, if !self.beat.is_leaving => {
                    self.beat.is_leaving = true;
                    drain_end = Some(tokio::time::Instant::now() + LONGEST_DRAIN);
                }
                _ = beats.tick() => {}
            }
            match self.show_life().await {
                Ok(()) => unanswered = 0,
                Err(_) => {
                    unanswered += 1;
                    // Tried again with the next sign of life.
                    let taken = self.take_over_runs(unanswered >= UNANSWERED_UNTIL_TAKEOVER).await;
                    if taken.is_ok() && unanswered >= UNANSWERED_UNTIL_TAKEOVER {
                        // The calls that wait now need time; another worker must not take the handlers back at once.
                        unanswered = 0;
                    }
                }
            }
            if self.beat.is_leaving {
                idle_beats = if *self.performing.borrow() == 0 { idle_beats + 1 } else { 0 };
                if idle_beats > IDLE_BEATS_UNTIL_END
                    || drain_end.is_some_and(|end| end <= tokio::time::Instant::now())
                {
                    break;
                }
            }
        }
        let target = (CLUSTER_SERVICE, CLUSTER_KEY, "leave");
        let left = self.ingress.call::<IgnoredAnswer>(target, &self.name, None);
        let _ = tokio::time::timeout(HEARTBEAT_TIMEOUT, left).await;
        self.stop.send_replace(true);
    }

    async fn show_life(&self) -> Result<(), CallError> {
        let target = (CLUSTER_SERVICE, CLUSTER_KEY, "beat");
        match self
            .ingress
            .call_within::<IgnoredAnswer>(HEARTBEAT_TIMEOUT, target, &self.beat, None)
            .await
        {
            Err(CallError::Unreadable { .. }) | Ok(_) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Registers this worker's handlers of the runs if none are registered, or those that are do not answer.
    async fn take_over_runs(&self, is_silent: bool) -> Result<(), CallError> {
        match self.admin.service(RUN_SERVICE).await? {
            None => self.admin.register(&self.runs_uri).await,
            Some(known) if known.uri == self.runs_uri => Ok(()),
            Some(known) if is_silent || !answers(&known.uri).await => {
                self.admin.move_to(&known.deployment, &self.runs_uri).await
            }
            Some(_) => Ok(()),
        }
    }
}

/// Removes the checkouts of runs that the server no longer keeps.
fn remove_old_checkouts(checkouts: &Path, retention: Duration) {
    for entry in std::fs::read_dir(checkouts).into_iter().flatten().flatten() {
        let age = entry.metadata().and_then(|found| found.modified()).ok();
        let age = age.and_then(|time| time.elapsed().ok());
        if age.is_some_and(|age| age > retention) {
            // Best effort: what is left only takes up space.
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// An answer without content.
#[derive(Debug)]
struct IgnoredAnswer;

impl<'de> serde::Deserialize<'de> for IgnoredAnswer {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        serde::de::IgnoredAny::deserialize(deserializer).map(|_| Self)
    }
}

/// Returns whether something accepts connections at `uri`.
async fn answers(uri: &str) -> bool {
    let Some(address) = uri.split_once("://").map(|(_, rest)| rest) else { return false };
    let address = address.split('/').next().unwrap_or_default().to_owned();
    let connected = tokio::time::timeout(CONNECT, TcpStream::connect(address)).await;
    connected.is_ok_and(|connected| connected.is_ok())
}

/// Serves handlers and returns their address.
async fn serve(
    endpoint: Endpoint,
    listen: SocketAddr,
    stopped: &watch::Receiver<bool>,
) -> Result<String, ClusterWorkerError> {
    let failed = |source| ClusterWorkerError::Listen { address: listen, source };
    let listener = listen_without_delay(listen).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let mut stopped = stopped.clone();
    tokio::spawn(async move {
        let end = async move {
            let _ = stopped.wait_for(|is_stopped| *is_stopped).await;
        };
        HttpServer::new(endpoint).serve_with_cancel(listener, end).await;
    });
    Ok(format!("http://{address}"))
}

/// Listens for connections that send small writes at once, which they inherit from the listener.
///
/// The SDK does not set this. Without it, every second of two small answers waits until the server acknowledges the first,
/// which it delays by 40 ms.
fn listen_without_delay(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.set_nodelay(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Answers every HTTP request with the worker's name and how many effects it performs.
async fn serve_health(
    address: SocketAddr,
    name: &str,
    performing: watch::Receiver<usize>,
) -> Result<(), ClusterWorkerError> {
    let failed = |source| ClusterWorkerError::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let name = name.to_owned();
    tokio::spawn(async move {
        loop {
            let Ok((mut stream, _)) = listener.accept().await else { continue };
            let body =
                format!("{{\"worker\":\"{name}\",\"performing\":{}}}\n", *performing.borrow());
            let answer = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                body.len()
            );
            tokio::spawn(async move {
                let mut request = [0; 1024];
                // Whatever is asked, the answer is the same; a client that sends nothing is not waited for.
                let read = tokio::time::timeout(CONNECT, stream.read(&mut request)).await;
                if matches!(read, Ok(Ok(bytes)) if bytes > 0) {
                    let _ = stream.write_all(answer.as_bytes()).await;
                }
            });
        }
    });
    Ok(())
}

/// Performs effects. Registered under a name of its own for each worker.
struct WorkerService {
    performers: PerformerThread,
    instance: String,
}

#[service(
    inactivity_timeout = "2h",
    abort_timeout = "2h",
    journal_retention = "0s",
    idempotency_retention = "0s",
    invocation_retry_policy(initial_interval = "50ms", max_interval = "2s", max_attempts = 100000)
)]
impl WorkerService {
    /// Performs an effect, and returns when it is no longer due.
    #[handler(ingress_private = true)]
    async fn perform(
        &self,
        ctx: Context<'_>,
        request: RetryableInput<PerformRequest>,
    ) -> Result<(), HandlerError> {
        let mut request = request.read()?;
        if request.must_not_repeat() {
            // The journal remembers which process began it.
            let instance = self.instance.clone();
            let begun = ctx.run(|| async move { Ok(instance) }).name("begin").await?;
            request.is_repeated |= begun != self.instance;
        }
        Ok(self.performers.perform(request).await.map_err(FollowFailed)?)
    }
}

/// The run could not be followed; the server calls the handler again.
#[derive(Debug, thiserror::Error)]
#[error("the run could not be followed: {0}")]
struct FollowFailed(String);

/// [`WorkerService`] under the name of one worker. The SDK has no public way to choose a name at run time.
struct NamedWorkerService {
    name: String,
    instance: String,
    performers: PerformerThread,
}

impl IntoServiceDefinition for NamedWorkerService {
    fn into_service_definition(self) -> ServiceDefinition {
        let mut found = <WorkerService as Discoverable>::discover();
        if let Ok(name) = worker_service(&self.name).try_into() {
            found.name = name;
        }
        let Self { instance, performers, .. } = self;
        service_definition(
            WorkerServiceHandler(Arc::new(WorkerService { performers, instance })),
            found,
        )
    }
}

/// Calls the handler of a [`WorkerService`].
struct WorkerServiceHandler(Arc<WorkerService>);

impl Service for WorkerServiceHandler {
    type Future = ServiceBoxFuture;

    fn handle(&self, ctx: ContextInternal) -> Self::Future {
        let service = Arc::clone(&self.0);
        Box::pin(async move {
            let (input, metadata) = ctx.input::<RetryableInput<PerformRequest>>().await;
            let result = service.perform((&ctx, metadata).into(), input).await;
            ctx.handle_handler_result(result);
            ctx.end();
            Ok(())
        })
    }
}
