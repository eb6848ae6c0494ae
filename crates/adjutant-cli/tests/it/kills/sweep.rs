//! Kills a run with strace at the Nth write, fsync or rename, for every N until the run completes. The engine's tests do
//! the same in memory, with failing disks and power loss too.

use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use adjutant_testkit::fake::Api;
use serde_json::Value;
use tokio::runtime::Handle;

use super::cast::{Inject, Part, Stage};
use super::check::check;
use super::play::{Plan, play};
use super::{servers, tell, undisturbed};

/// The system calls that change what is on disk; the first is also that of pipes and sockets.
pub(super) const CALLS: [&str; 4] = ["write", "fdatasync", "fsync", "/^rename"];

/// The calls that are killed, unless all of them are requested.
pub(super) const SHORT: [u64; 12] = [1, 2, 3, 4, 5, 6, 8, 10, 13, 17, 23, 31];

pub(crate) fn has_strace() -> bool {
    let tried = Command::new("strace").args(["-qq", "-o", "/dev/null", "true"]).status();
    tried.is_ok_and(|status| status.success())
}

#[test]
fn a_kill_at_any_write_sync_or_rename_is_survived() {
    if !has_strace() {
        tell("NOT CHECKED: there is no strace here, so no kill was aimed at a system call");
        return;
    }
    let runtime = servers();
    let ends = undisturbed(&runtime);
    let long = std::env::var_os("ADJUTANT_KILLS").is_some();
    for call in CALLS {
        for resumes in [false, true] {
            let kills = AtomicU64::new(0);
            thread::scope(|scope| {
                for (place, part) in (0..).zip(Part::ALL) {
                    let (kills, ends, runtime) = (&kills, &ends[&part], &runtime);
                    scope.spawn(move || {
                        let short = SHORT.into_iter().filter(|nth| takes(part, place, call, *nth));
                        let nths: Box<dyn Iterator<Item = u64>> =
                            if long { Box::new(1..) } else { Box::new(short) };
                        for nth in nths {
                            let stage = Stage::new(part, Api::Anthropic, runtime);
                            let hit = aim(&stage, Inject { call, nth }, resumes, runtime, ends);
                            kills.fetch_add(u64::from(hit), Ordering::Relaxed);
                            if !hit {
                                // It got through: so many calls are not made.
                                return;
                            }
                        }
                    });
                }
            });
            let when = if resumes { "going on" } else { "the first time" };
            tell(&format!("{call}, {when}: {} kills", kills.into_inner()));
        }
    }
}

/// Shares the places of the short version out among the programs. Who changes files syncs and
/// renames them by other threads than the journal's, and is aimed at there.
fn takes(part: Part, place: u64, call: &str, nth: u64) -> bool {
    if part == Part::Writers {
        (call == "fsync" || call == "/^rename") && [1, 3, 5].contains(&nth)
    } else {
        nth % 3 == place
    }
}

/// Kills at one system call, and says whether it came to that.
fn aim(stage: &Stage, aimed: Inject, resumes: bool, runtime: &Handle, ends: &[Value]) -> bool {
    // Only an interrupted run can be resumed, so a first kill interrupts it.
    let before = Inject { call: "fdatasync", nth: 3 + aimed.nth % 5 };
    let plan = if resumes { vec![before, aimed] } else { vec![aimed] };
    let wanted = plan.len() as u64;
    let played = play(stage, Plan::Traced(plan.into()), runtime);
    check(stage, &played, ends);
    played.tally.kills == wanted
}
