//! The bars of what a person waits for. Wall time, so other load on the machine affects it. The state directory is
//! in memory, where a sync costs nothing, so that only adjutant's own time is measured.

use crate::Failure;
use crate::fixture::{Fixture, Load, StateLocation, has_memory_disk};
use crate::sample::{Plan, Spread};
use crate::spawn::Binary;
use crate::table::{MILLIS, Row};

/// Rounds of everything here.
const ROUNDS: usize = 21;

const FIRST: &str = "from before the process is started until its event stream says what the first answer came to: \
request, answer and the sync of its record included, so an upper bound of the first request";
const STARTED: &str = "until the event stream says that the child started: its first request follows in the same step";

/// Measures the group.
pub(crate) fn measure(plan: &Plan) -> Result<Vec<Row>, Failure> {
    let binary = Binary::build()?;
    if !has_memory_disk() {
        return Ok(vec![Row::skipped("wall time", "there is no /dev/shm to keep the state in")]);
    }
    let memory = Fixture::new(&binary, StateLocation::Memory)?;
    let disk = Fixture::new(&binary, StateLocation::Disk)?;
    let one = Load { children: 1, turns: 1 };
    let usual = Load { children: 8, turns: 5 };
    let (mut started, mut answered, mut on_disk) = (Vec::new(), Vec::new(), Vec::new());
    let (mut wall, mut wall_on_disk) = (Vec::new(), Vec::new());
    for _ in 0..plan.pick(ROUNDS, 2) {
        let first = memory.run(one, &["--events"])?;
        started.extend(first.started_ms);
        answered.extend(first.answered_ms);
        on_disk.extend(disk.run(one, &["--events"])?.answered_ms);
        wall.push(memory.run(usual, &[])?.wall_ms);
        wall_on_disk.push(disk.run(usual, &[])?.wall_ms);
    }
    let [started, answered, on_disk] = [started, answered, on_disk].map(Spread::of);
    let [wall, wall_on_disk] = [wall, wall_on_disk].map(Spread::of);
    Ok(vec![
        Row::at_most("start to first answer", answered, 10.0, MILLIS).note(FIRST),
        Row::info("start to first child started", started, MILLIS).note(STARTED),
        Row::info("start to first answer, state on disk", on_disk, MILLIS),
        Row::at_most("8 children × 5 read turns", wall, 40.0, MILLIS),
        Row::info("8 children × 5 read turns, state on disk", wall_on_disk, MILLIS),
    ])
}
