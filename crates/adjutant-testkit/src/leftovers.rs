//! Runs a command and fails when a process that the command started is still running after its end.
//!
//! The program becomes the *subreaper* of everything below it: a process whose parent has ended becomes its
//! child, whatever its session, group or environment. Other test suites on the same machine are not below it
//! and are never looked at. Start at [`main`].

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::process::{Command, ExitCode};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, wait};

/// How long processes may take to end after the command has: signalled processes need a moment.
const GRACE: Duration = Duration::from_secs(5);

/// How often the remaining processes are looked at meanwhile.
const POLL: Duration = Duration::from_millis(20);

/// Runs the command that the words name: its exit code, or 1 when it succeeded and left processes behind.
#[expect(clippy::print_stderr, reason = "stderr is where a command line tool complains")]
#[must_use]
pub fn main(mut words: impl Iterator<Item = String>) -> ExitCode {
    let Some(program) = words.next() else {
        eprintln!("usage: no-leftovers COMMAND [ARGUMENT]...");
        return ExitCode::from(2);
    };
    let mut command = Command::new(&program);
    command.args(words);
    match run(command) {
        Ok((code, left)) if left.is_empty() => ExitCode::from(code),
        Ok((code, left)) => {
            eprintln!("no-leftovers: {} still running after `{program}`, killed now:", left.len());
            left.iter().for_each(|process| eprintln!("  {process}"));
            ExitCode::from(if code == 0 { 1 } else { code })
        }
        Err(error) => {
            eprintln!("no-leftovers: cannot run `{program}`: {error}");
            ExitCode::from(2)
        }
    }
}

/// Runs the command to its end; returns its exit code and the processes it left, which are killed.
fn run(mut command: Command) -> io::Result<(u8, Vec<String>)> {
    set_child_subreaper(Some(getpid()))?;
    let started = Pid::from_child(&command.spawn()?);
    let code = loop {
        // Orphans are collected on the way.
        if let Some((pid, status)) = wait(WaitOptions::empty())?
            && pid == started
        {
            let signal = status.terminating_signal().map(|signal| 128 + signal);
            let code = status.exit_status().or(signal).unwrap_or(1);
            break u8::try_from(code).unwrap_or(1);
        }
    };
    let until = Instant::now() + GRACE;
    while has_children()? && Instant::now() < until {
        thread::sleep(POLL);
    }
    let mut left = Vec::new();
    // A process may start another one while it is looked for.
    while has_children()? {
        for pid in descendants()? {
            left.extend(describe(pid));
            // It may have ended by itself.
            let _ = kill_process(pid, Signal::KILL);
        }
        thread::sleep(POLL);
    }
    left.sort();
    left.dedup();
    Ok((code, left))
}

/// Collects the children that have ended and says whether there are others.
fn has_children() -> io::Result<bool> {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) => return Ok(true),
            Err(Errno::CHILD) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Returns every process below this one.
fn descendants() -> io::Result<Vec<Pid>> {
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        if let Some(parent) = parent_of(pid) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let (mut found, mut parents) = (Vec::new(), vec![getpid().as_raw_nonzero().get()]);
    while let Some(parent) = parents.pop() {
        let below = children.remove(&parent).unwrap_or_default();
        found.extend(below.iter().filter_map(|pid| Pid::from_raw(*pid)));
        parents.extend(below);
    }
    Ok(found)
}

fn parent_of(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything; state and parent follow the last one.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(1)?.parse().ok()
}

/// Returns the pid and command line of a process, or `None` if it has ended.
fn describe(pid: Pid) -> Option<String> {
    let number = pid.as_raw_nonzero();
    let line = fs::read(format!("/proc/{number}/cmdline")).ok().filter(|line| !line.is_empty())?;
    let words = line.split(|byte| *byte == 0).map(String::from_utf8_lossy);
    Some(format!("{number} {}", words.collect::<Vec<_>>().join(" ").trim_end()))
}
