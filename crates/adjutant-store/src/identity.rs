//! Identifies processes across pid reuse, and reads a clock that is independent of the wall clock.
//!
//! The kernel reuses pids. A pid together with the boot id and the start time of the process identifies
//! one process for ever. Nothing here reads or writes a run's directory.
//!
//! A `ProcessIdentity` is that; a [`CurrentTime`] is one moment by the wall clock and, as a
//! [`BootInstant`], by the boot clock.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// An instant of the boot clock, which no user can set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootInstant {
    /// The kernel's boot id. Instants of different boots cannot be compared.
    pub boot: String,
    /// Milliseconds since that boot, including time in suspend.
    pub elapsed_ms: u64,
}

impl BootInstant {
    fn read() -> Option<Self> {
        let time = clock_gettime(ClockId::Boottime);
        let seconds = u64::try_from(time.tv_sec).ok()?;
        let millis = u64::try_from(time.tv_nsec / 1_000_000).ok()?;
        Some(Self { boot: boot_id()?, elapsed_ms: seconds * 1000 + millis })
    }

    /// Returns the milliseconds from `earlier` to `self`, or `None` if they belong to different boots.
    pub(crate) fn since(&self, earlier: &Self) -> Option<u64> {
        (self.boot == earlier.boot).then(|| self.elapsed_ms.saturating_sub(earlier.elapsed_ms))
    }
}

/// The current time, by the wall clock and by the boot clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CurrentTime {
    /// The wall clock in Unix milliseconds.
    pub wall_ms: u64,
    /// The boot clock; `None` if `/proc` has no boot id.
    pub boot: Option<BootInstant>,
}

impl CurrentTime {
    /// Reads both clocks. A wall clock before 1970 counts as 1970.
    #[must_use]
    pub fn read() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let wall_ms = u64::try_from(wall.as_millis()).unwrap_or(u64::MAX);
        Self { wall_ms, boot: BootInstant::read() }
    }
}

/// Identifies one process, also after its pid has been reused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProcessIdentity {
    pub(crate) pid: u32,
    boot: String,
    /// Clock ticks from boot to the start of the process.
    #[serde(rename = "start")]
    start_ticks: u64,
}

impl ProcessIdentity {
    /// Returns the identity of the calling process, or `None` if `/proc` cannot be read.
    pub(crate) fn current() -> Option<Self> {
        let pid = std::process::id();
        // Not `/proc/self`: if `/proc` belongs to another PID namespace, that is another pid.
        Some(Self { pid, boot: boot_id()?, start_ticks: start_ticks_of(pid)? })
    }

    /// Returns whether this process runs, is not a zombie and is visible from here.
    ///
    /// `false` proves nothing if the process is in another PID namespace, where its pid means another process.
    pub(crate) fn is_alive(&self) -> bool {
        boot_id().is_some_and(|boot| boot == self.boot)
            && start_ticks_of(self.pid) == Some(self.start_ticks)
    }
}

fn boot_id() -> Option<String> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(text.trim().to_owned())
}

/// Reads the start time of a process from `/proc/PID/stat`.
fn start_ticks_of(pid: u32) -> Option<u64> {
    parse_start_ticks(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Parses field 22 of a `stat` line, the start time. Returns `None` for zombies and dead processes.
fn parse_start_ticks(stat: &str) -> Option<u64> {
    // The second field is the process name in parentheses. It may contain any character, even parentheses.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_time_is_parsed_after_any_process_name() {
        let stat = "7 (a) R 1) S 1 7 7 0 -1 4194560 9 0 0 0 0 0 0 0 20 0 1 0 4242 16 2 3";
        assert_eq!(parse_start_ticks(stat), Some(4242));
        assert_eq!(parse_start_ticks(&stat.replace(") S 1", ") Z 1")), None);
        assert_eq!(parse_start_ticks("nonsense"), None);
    }

    #[test]
    fn this_process_is_alive_and_one_with_another_start_time_or_boot_is_not() {
        let this = ProcessIdentity::current().unwrap();
        assert!(this.is_alive());
        assert!(!ProcessIdentity { start_ticks: this.start_ticks + 1, ..this.clone() }.is_alive());
        assert!(!ProcessIdentity { boot: "another".to_owned(), ..this }.is_alive());
    }
}
