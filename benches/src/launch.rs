//! Starts one program and prints its time and memory, in a separate process for each measurement.
//!
//! The kernel counts the peak memory of the process that calls `exec` as the child's. So the measured
//! program is started by this small process and not by a bench that uses hundreds of megabytes. It
//! has one child, so the resource usage of its children is that child's.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Instant;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use serde::{Deserialize, Serialize};

use crate::sample::monotonic_ns;
use crate::{Failure, print};

/// The time and memory that one process used.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct ProcessUsage {
    /// Its exit code; absent when a signal ended it.
    pub(crate) code: Option<i32>,
    /// Processor time of all its threads, in the kernel and outside.
    pub(crate) cpu_ms: f64,
    /// The part of it that was spent outside the kernel.
    pub(crate) user_ms: f64,
    /// The most memory it held.
    pub(crate) peak_kb: f64,
    /// From before it was started until it had ended.
    pub(crate) wall_ms: f64,
    /// When it was started, in nanoseconds of the clock that every process reads alike.
    pub(crate) began_ns: u64,
    /// From before it was started until it said that a child had started.
    pub(crate) started_ms: Option<f64>,
    /// From before it was started until it said what a model's first answer came to.
    pub(crate) answered_ms: Option<f64>,
}

/// Runs `command` with its standard error closed and prints a [`ProcessUsage`].
pub(crate) fn run(command: &[OsString]) -> Result<(), Failure> {
    let [program, args @ ..] = command else { return Err("launch needs a program".into()) };
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let (began, began_ns) = (Instant::now(), monotonic_ns());
    let since = || began.elapsed().as_secs_f64() * 1e3;
    let mut child = command.spawn()?;
    let (mut started_ms, mut answered_ms) = (None, None);
    // Always read, because a full pipe would block the program that writes to it.
    let mut lines = BufReader::new(child.stdout.take().ok_or("no standard output")?);
    let mut line = Vec::new();
    while lines.read_until(b'\n', &mut line)? > 0 {
        if started_ms.is_none() && contains(&line, br#""event":"started""#) {
            started_ms = Some(since());
        }
        if answered_ms.is_none() && contains(&line, br#""event":"tokens""#) {
            answered_ms = Some(since());
        }
        line.clear();
    }
    let code = child.wait()?.code();
    let wall_ms = since();
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let user = usage.user_time().num_microseconds();
    let micros = user + usage.system_time().num_microseconds();
    let taken = ProcessUsage {
        code,
        cpu_ms: micros as f64 / 1e3,
        user_ms: user as f64 / 1e3,
        peak_kb: usage.max_rss() as f64,
        wall_ms,
        began_ns,
        started_ms,
        answered_ms,
    };
    print(&serde_json::to_string(&taken)?)
}

fn contains(line: &[u8], part: &[u8]) -> bool {
    line.windows(part.len()).any(|window| window == part)
}
