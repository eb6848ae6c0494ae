//! Who and when on this machine: boots, processes, and clocks that outlive a wrong wall clock.
//!
//! A process number alone names nobody, for numbers are used again; with the boot and the time at
//! which the process started it names one process for ever. Nothing here touches a run's folder.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// An instant by the machine's own clock, which no one can set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootInstant {
    /// The boot the instant belongs to; instants of different boots cannot be compared.
    pub boot: String,
    /// Milliseconds since that boot, suspended time included.
    pub elapsed_ms: u64,
}

impl BootInstant {
    fn read() -> Option<Self> {
        let time = clock_gettime(ClockId::Boottime);
        let seconds = u64::try_from(time.tv_sec).ok()?;
        let millis = u64::try_from(time.tv_nsec / 1_000_000).ok()?;
        Some(Self { boot: boot_id()?, elapsed_ms: seconds * 1000 + millis })
    }

    /// Returns the milliseconds from `earlier` to `self` when both belong to one boot.
    pub(crate) fn since(&self, earlier: &Self) -> Option<u64> {
        (self.boot == earlier.boot).then(|| self.elapsed_ms.saturating_sub(earlier.elapsed_ms))
    }
}

/// The present, by the clock people read and by the one nobody can set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CurrentTime {
    /// Unix milliseconds.
    pub wall_ms: u64,
    /// The same instant since the machine's boot, where the machine says.
    pub boot: Option<BootInstant>,
}

impl CurrentTime {
    /// Asks the machine; a wall clock before 1970 counts as 1970.
    #[must_use]
    pub fn read() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let wall_ms = u64::try_from(wall.as_millis()).unwrap_or(u64::MAX);
        Self { wall_ms, boot: BootInstant::read() }
    }
}

/// One process, for ever.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProcessIdentity {
    pub(crate) pid: u32,
    boot: String,
    /// Clock ticks from boot to the start of the process.
    #[serde(rename = "start")]
    start_ticks: u64,
}

impl ProcessIdentity {
    /// Returns ourselves; nothing where `/proc` is not there.
    pub(crate) fn current() -> Option<Self> {
        let pid = std::process::id();
        // Not `/proc/self`: in a PID namespace with a foreign `/proc` the two are not the same.
        Some(Self { pid, boot: boot_id()?, start_ticks: start_ticks_of(pid)? })
    }

    /// Says whether this very process is there and not a zombie, seen from here.
    ///
    /// A no from another PID namespace means nothing: the number is not ours to look up.
    pub(crate) fn is_alive(&self) -> bool {
        boot_id().is_some_and(|boot| boot == self.boot)
            && start_ticks_of(self.pid) == Some(self.start_ticks)
    }
}

fn boot_id() -> Option<String> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(text.trim().to_owned())
}

/// Reads when a live process started: field 22 of its `stat`.
fn start_ticks_of(pid: u32) -> Option<u64> {
    parse_start_ticks(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Finds the start in a line of `stat`, unless the process is a zombie or dead.
fn parse_start_ticks(stat: &str) -> Option<u64> {
    // The second field is the name in parentheses and may hold anything, parentheses too.
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
    fn the_start_is_found_behind_any_process_name() {
        let stat = "7 (a) R 1) S 1 7 7 0 -1 4194560 9 0 0 0 0 0 0 0 20 0 1 0 4242 16 2 3";
        assert_eq!(parse_start_ticks(stat), Some(4242));
        assert_eq!(parse_start_ticks(&stat.replace(") S 1", ") Z 1")), None);
        assert_eq!(parse_start_ticks("nonsense"), None);
    }

    #[test]
    fn this_process_is_alive_and_one_with_another_start_or_boot_is_not() {
        let this = ProcessIdentity::current().unwrap();
        assert!(this.is_alive());
        assert!(!ProcessIdentity { start_ticks: this.start_ticks + 1, ..this.clone() }.is_alive());
        assert!(!ProcessIdentity { boot: "another".to_owned(), ..this }.is_alive());
    }
}
