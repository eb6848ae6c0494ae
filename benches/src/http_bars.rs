//! The bars of a whole run against an HTTP model server: a parent and its children, with all limits
//! and the journal enabled, one connection each and streamed answers.

use crate::Failure;
use crate::fixture::{Fixture, Load, StateLocation, has_memory_disk};
use crate::launch::ProcessUsage;
use crate::sample::{Plan, Spread};
use crate::server::{FakeModelProgram, Server};
use crate::spawn::Binary;
use crate::table::{COUNT, FINE_MILLIS, KILOBYTES, MEGABYTES, MILLIS, Row, TIMES};

/// Rounds of what is short.
const ROUNDS: usize = 15;

/// Rounds of what is long.
const FEW_ROUNDS: usize = 5;

/// The load that every number of the design speaks of.
const USUAL: Load = Load { children: 8, turns: 5 };

const FIRST: &str = "from before the process is started until the server has read its first request, by one clock; state in memory";
const MEMORY: &str = "state in memory";
const DISK: &str = "state on disk, every sync paid";
const LITERAL: &str = "each child reports at once, one request each, and all of them may be open together; state in memory";
const SENT: &str = "an API without memory is sent the whole conversation each turn, so the kernel copies more the longer it gets; what we do for a turn follows its new bytes";

/// Measures the group.
pub(crate) fn measure(plan: &Plan) -> Result<Vec<Row>, Failure> {
    let bench = HttpBench { binary: Binary::build()?, program: FakeModelProgram::build()? };
    let mut rows = bench.measure_usual_load(plan)?;
    rows.extend(bench.measure_thousand_children(plan)?);
    rows.extend(bench.measure_turns(plan)?);
    Ok(rows)
}

struct HttpBench {
    binary: Binary,
    program: FakeModelProgram,
}

impl HttpBench {
    fn fixture(&self, place: StateLocation) -> Result<Fixture, Failure> {
        Fixture::new(&self.binary, place)
    }

    fn server(&self, fixture: &Fixture, load: Load, delay_ms: u64) -> Result<Server, Failure> {
        Server::start(&self.program, fixture.path(), load, delay_ms)
    }

    /// A parent and eight children.
    fn measure_usual_load(&self, plan: &Plan) -> Result<Vec<Row>, Failure> {
        if !has_memory_disk() {
            return Ok(vec![Row::skipped("wall time", "there is no /dev/shm for the state")]);
        }
        let (memory, disk) =
            (self.fixture(StateLocation::Memory)?, self.fixture(StateLocation::Disk)?);
        let prompt = self.server(&memory, USUAL, 0)?;
        let slow = self.server(&memory, USUAL, 20)?;
        let (mut first, mut wall, mut wall_slow) = (Vec::new(), Vec::new(), Vec::new());
        let (mut first_on_disk, mut wall_on_disk) = (Vec::new(), Vec::new());
        let (mut cpu, mut peak, mut used) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..plan.pick(ROUNDS, 2) {
            let (taken, arrivals) = memory.run_goal(&prompt)?;
            first.push(arrivals.first_ms);
            wall.push(taken.wall_ms);
            wall_slow.push(memory.run_goal(&slow)?.0.wall_ms);
            let (taken, arrivals) = disk.run_goal(&prompt)?;
            cpu.push(taken.cpu_ms);
            peak.push(taken.peak_kb / 1e3);
            wall_on_disk.push(taken.wall_ms);
            first_on_disk.push(arrivals.first_ms);
            used.push(arrivals.connections);
        }
        let what = |what: &str| format!("{what}, parent + 8 children × 5 read turns");
        let [first, first_on_disk] = [first, first_on_disk].map(Spread::of);
        let [wall, wall_slow, wall_on_disk] = [wall, wall_slow, wall_on_disk].map(Spread::of);
        Ok(vec![
            Row::at_most("start to first request", first, 10.0, MILLIS).note(FIRST),
            Row::info("start to first request, state on disk", first_on_disk, MILLIS),
            Row::at_most(what("CPU"), Spread::of(cpu), 25.0, MILLIS).note(DISK),
            Row::at_most(what("wall at 0 ms"), wall, 40.0, MILLIS).note(MEMORY),
            Row::at_most(what("wall at 20 ms"), wall_slow, 190.0, MILLIS)
                .note("eight answers one after the other take 160 ms; state in memory"),
            Row::info(what("wall at 0 ms, state on disk"), wall_on_disk, MILLIS),
            Row::at_most(what("peak memory"), Spread::of(peak), 15.0, MEGABYTES),
            Row::at_most(what("connections"), Spread::of(used), USUAL.children as f64, COUNT),
        ])
    }

    /// A thousand children at once, against a run of one.
    fn measure_thousand_children(&self, plan: &Plan) -> Result<Vec<Row>, Failure> {
        let children = plan.pick(1_000, 50);
        let place = if has_memory_disk() { StateLocation::Memory } else { StateLocation::Disk };
        let fixture = self.fixture(place)?;
        let at_once = |turns: usize| -> Result<[Spread; 4], Failure> {
            let few = self.server(&fixture, Load { children: 1, turns }, 20)?;
            let many = self.server(&fixture, Load { children, turns }, 20)?;
            let (mut wall, mut cpu) = (Vec::new(), Vec::new());
            let (mut each, mut used) = (Vec::new(), Vec::new());
            for _ in 0..plan.pick(FEW_ROUNDS, 2) {
                let one = fixture.run_goal(&few)?.0;
                let (all, arrivals) = fixture.run_goal(&many)?;
                used.push(arrivals.connections);
                wall.push(all.wall_ms);
                cpu.push(all.cpu_ms);
                each.push((all.peak_kb - one.peak_kb) / children as f64);
            }
            Ok([wall, cpu, each, used].map(Spread::of))
        };
        let [wall, cpu, each, used] = at_once(0)?;
        let what = |what: &str| format!("{what}, {children} children at once × 1 turn at 20 ms");
        let mut rows = vec![
            Row::at_most(what("wall"), wall, 1_500.0, MILLIS).note(LITERAL),
            Row::at_most(what("CPU"), cpu, 1_000.0, MILLIS).note(LITERAL),
            Row::at_most(what("memory of each"), each, 60.0, KILOBYTES).note(LITERAL),
            Row::info(what("connections"), used, COUNT),
        ];
        let [wall, cpu, each, _] = at_once(1)?;
        let what = |what: &str| format!("{what}, the same after a read turn");
        rows.push(Row::info(what("wall"), wall, MILLIS));
        rows.push(Row::info(what("CPU"), cpu, MILLIS));
        rows.push(Row::info(what("memory of each"), each, KILOBYTES));
        Ok(rows)
    }

    /// What a turn costs as the conversation grows.
    fn measure_turns(&self, plan: &Plan) -> Result<Vec<Row>, Failure> {
        let children = USUAL.children;
        let lengths = [5, plan.pick(50, 25), plan.pick(500, 100)];
        let fixture = self.fixture(StateLocation::Disk)?;
        let mut servers = Vec::new();
        for turns in lengths {
            servers.push(self.server(&fixture, Load { children, turns }, 0)?);
        }
        let (mut early, mut late, mut ratio) = (Vec::new(), Vec::new(), Vec::new());
        let mut own_late = Vec::new();
        for _ in 0..plan.pick(FEW_ROUNDS, 2) {
            let mut taken = Vec::new();
            for server in &servers {
                taken.push(fixture.run_goal(server)?.0);
            }
            let per_turn = |cost: fn(&ProcessUsage) -> f64, from: usize| {
                let turns = children * (lengths[from + 1] - lengths[from]);
                (cost(&taken[from + 1]) - cost(&taken[from])) / turns as f64
            };
            let costs = [per_turn(|taken| taken.cpu_ms, 0), per_turn(|taken| taken.cpu_ms, 1)];
            if costs.iter().any(|cost| *cost <= 0.0) {
                return Err("more turns cost less: this machine is too busy to measure on".into());
            }
            early.push(costs[0]);
            late.push(costs[1]);
            ratio.push(costs[1] / costs[0]);
            own_late.push(per_turn(|taken| taken.user_ms, 1));
        }
        let [early, late, ratio, own_late] = [early, late, ratio, own_late].map(Spread::of);
        let what = |from: usize, to: usize| format!("CPU per turn, turns {from} to {to}");
        let own = format!("{}, outside the kernel", what(lengths[1], lengths[2]));
        Ok(vec![
            Row::info(what(lengths[0], lengths[1]), early, FINE_MILLIS).note(DISK),
            Row::info(what(lengths[1], lengths[2]), late, FINE_MILLIS).note(SENT),
            Row::info(own, own_late, FINE_MILLIS).note(SENT),
            Row::at_most("CPU per turn, late against early", ratio, 2.0, TIMES).note(SENT),
        ])
    }
}
