//! The flags of the commands for clusters.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use crate::args::records::span;

/// Where a cluster is.
#[derive(Debug, Args)]
pub(crate) struct ClusterPlace {
    /// The cluster: restate://HOST:PORT of its ingress; several nodes are separated by commas.
    #[arg(long, env = "ADJUTANT_RUNTIME", value_name = "URL", hide_env_values = true)]
    pub(crate) runtime: String,

    /// The admin addresses of the cluster, separated by commas [default: port 9070 of each node].
    #[arg(long, value_name = "URL")]
    pub(crate) admin: Option<String>,
}

/// The flags of `adjutant serve-worker`.
#[derive(Debug, Args)]
pub(crate) struct ServeWorkerArgs {
    #[command(flatten)]
    pub(crate) place: ClusterPlace,

    /// The name of this worker: unique in the cluster, and the same after a restart [default: the name of this machine].
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,

    /// The address at which the cluster reaches this worker, which also uses the next port; port 0 is any free one.
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:0")]
    pub(crate) listen: SocketAddr,

    /// Answer HTTP requests at this address with the worker's name and how many steps it performs.
    #[arg(long, value_name = "IP:PORT")]
    pub(crate) health: Option<SocketAddr>,

    /// Where all workers of the cluster keep the files and the work of runs: file:///DIRECTORY, which all machines share,
    /// or s3://BUCKET/PREFIX, with the keys in the usual AWS_ variables. Without it, the directories of runs must be there
    /// on every machine under the same path.
    #[arg(long, env = "ADJUTANT_STORE", value_name = "URL", hide_env_values = true)]
    pub(crate) store: Option<String>,

    /// How long the cluster keeps a run that has ended, which can be continued until then: 12h, 7d or 4w; the same for all
    /// workers.
    #[arg(long, value_name = "TIME", value_parser = span, default_value = "7d")]
    pub(crate) keep: Duration,

    /// The public key of the cluster: calls that it did not sign are refused.
    #[arg(long, value_name = "publickeyv1_…")]
    pub(crate) identity_key: Option<String>,
}

/// The flags of `adjutant cluster`.
#[derive(Debug, Args)]
pub(crate) struct ClusterArgs {
    #[command(subcommand)]
    pub(crate) command: ClusterCommand,
}

/// What to do with a cluster.
#[derive(Debug, Subcommand)]
pub(crate) enum ClusterCommand {
    /// Start a Restate server from npm and two workers on this machine, until ctrl+c.
    Dev(DevArgs),
    /// List the workers that are live and take work.
    Workers(ClusterPlace),
    /// Resume the calls that the server paused after an outage of more than a day.
    ResumePaused(ClusterPlace),
}

/// The flags of `adjutant cluster dev`.
#[derive(Debug, Args)]
pub(crate) struct DevArgs {
    /// The Restate server to start instead of the one from npm.
    #[arg(long, value_name = "FILE")]
    pub(crate) server: Option<PathBuf>,
}
