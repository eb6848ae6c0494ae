//! The bars of the gateway: what `adjutant gateway` adds to a model call, and what a stream costs it.
//!
//! A client of our own (`gateway_client`) is the program behind the gateway. It calls a small provider in this process
//! (`stream_provider`) directly and through the gateway, in turns, and reads the gateway's processor time and memory
//! from `/proc`.

use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use crate::Failure;
use crate::args::GATEWAY_CLIENT;
use crate::fixture::{MEMORY, has_memory_disk};
use crate::sample::{Plan, Spread};
use crate::spawn::Binary;
use crate::stream_provider::StreamProvider;
use crate::table::{COUNT, FINE_MILLIS, KILOBYTES, MILLIS, Row};

/// Streams that are open at the same time.
const STREAMS: usize = 64;

const PAIRS: &str = "pairs of a call without and a call through the gateway, one after the other, with a request of 40 kB on a kept connection; state in memory";
const CPU: &str = "of the whole process, batches of 100 calls";
const GROWTH: &str = "how much higher the peak of the gateway is after a longer answer";
const TOGETHER: &str = "the provider sends the rest of each answer only when all have begun";

/// What the client is told to do.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ClientPlan {
    /// The provider's base URL.
    pub(crate) direct: String,
    pub(crate) pairs: usize,
    pub(crate) batches: usize,
    /// The size of the long answer.
    pub(crate) long_bytes: usize,
    pub(crate) streams: usize,
}

/// What the client measured.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ClientReport {
    /// Milliseconds to the first byte without the gateway, and through it.
    pub(crate) first_bytes: Vec<(f64, f64)>,
    /// Milliseconds of processor time of each call, by batch.
    pub(crate) cpu_ms: Vec<f64>,
    /// How much the peak memory grew from an answer of 1 MB to the long one, in kilobytes.
    pub(crate) long_growth_kb: f64,
    /// How much the peak memory grew by many streams at once, for each of them, in kilobytes.
    pub(crate) stream_kb: f64,
    /// How long all of them took, in milliseconds.
    pub(crate) streams_ms: f64,
}

/// Measures the group.
pub(crate) fn measure(plan: &Plan) -> Result<Vec<Row>, Failure> {
    if !has_memory_disk() {
        return Ok(vec![Row::skipped("gateway", "there is no /dev/shm for the state")]);
    }
    let binary = Binary::build()?;
    let provider = StreamProvider::start()?;
    let long_bytes = plan.pick(50, 4) << 20;
    let asked = ClientPlan {
        direct: provider.base_url(),
        pairs: plan.pick(300, 10),
        batches: plan.pick(7, 1),
        long_bytes,
        streams: STREAMS,
    };
    let report = run_client(&binary, &asked)?;
    let direct = report.first_bytes.iter().map(|(direct, _)| *direct).collect();
    let through = report.first_bytes.iter().map(|(_, through)| *through).collect();
    let added = report.first_bytes.iter().map(|(direct, through)| through - direct).collect();
    let [direct, through, added] = [direct, through, added].map(Spread::of);
    #[expect(clippy::cast_precision_loss, reason = "64 at the most")]
    let together = Spread::exact(provider.most_open() as f64);
    let long = format!("memory, an answer of {} MB against 1 MB", long_bytes >> 20);
    let what = |what: &str| format!("{what}, {STREAMS} streams at once");
    Ok(vec![
        Row::info("first byte without the gateway", direct, FINE_MILLIS).note(PAIRS),
        Row::info("first byte through the gateway", through, FINE_MILLIS).note(PAIRS),
        Row::at_most("added to the first byte", added, 2.0, FINE_MILLIS).note(PAIRS),
        Row::at_most("CPU of a call", Spread::of(report.cpu_ms), 1.0, FINE_MILLIS).note(CPU),
        Row::at_most(long, Spread::exact(report.long_growth_kb), 1_024.0, KILOBYTES).note(GROWTH),
        Row::above(what("open together"), together, 63.0, COUNT).note(TOGETHER),
        Row::at_most(what("memory of each"), Spread::exact(report.stream_kb), 256.0, KILOBYTES),
        Row::info(what("wall"), Spread::exact(report.streams_ms), MILLIS),
    ])
}

/// Runs the client behind `adjutant gateway` and reads its report.
fn run_client(binary: &Binary, asked: &ClientPlan) -> Result<ClientReport, Failure> {
    let dir = TempDir::new_in(MEMORY)?;
    let config = dir.path().join("config/adjutant");
    std::fs::create_dir_all(&config)?;
    let text = format!(
        "[providers.fake]\nbase_url = \"{}\"\nwire = \"chat\"\nkey_env = \"FAKE_KEY\"\n\
         [models.\"fake/stream\"]\nwindow = 1000000\nmax_output = 4000\nprice = {{ input = 0.1, output = 0.1 }}\n",
        asked.direct
    );
    std::fs::write(config.join("config.toml"), text)?;
    let output = Command::new(binary.path())
        .args(["gateway", "--model", "fake/stream", "--budget-tokens", "1000000000000", "--home"])
        .arg(dir.path().join("state"))
        .arg("--")
        .arg(std::env::current_exe()?)
        .arg(GATEWAY_CLIENT)
        .arg(serde_json::to_string(asked)?)
        .current_dir(dir.path())
        .env_clear()
        .env("FAKE_KEY", "test-key")
        .env("XDG_CONFIG_HOME", dir.path().join("config"))
        .stdin(Stdio::null())
        .output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(format!("the client behind the gateway failed: {said}").into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}
