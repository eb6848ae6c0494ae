//! The bars of the whole process: the real binary, journal and syncs on, a model without delay.

use crate::Failure;
use crate::command_bars;
use crate::fixture::{Fixture, Load, StateLocation};
use crate::launch::ProcessUsage;
use crate::sample::{Plan, Spread};
use crate::spawn::Binary;
use crate::table::{FINE_MILLIS, KILOBYTES, MEGABYTES, MILLIS, Row, TIMES};
use crate::task_bars;

/// Rounds of everything here.
const ROUNDS: usize = 11;

/// The load that every number of the design speaks of.
const USUAL: Load = Load { children: 8, turns: 5 };

const SYNCS: &str =
    "8 children, the load the design's numbers are taken under; they share their syncs";
const ALONE: &str = "no bar: a child alone shares its two syncs a turn with no other child and exceeds 0.15 ms where they are dear; twice the CPU of a \
bare write + fdatasync (see store) is the disk's, the rest is ours";

/// Measures the group.
pub(crate) fn measure(plan: &Plan) -> Result<Vec<Row>, Failure> {
    let binary = Binary::build()?;
    let fixture = Fixture::new(&binary, StateLocation::Disk)?;
    let mut rows = measure_usual_load(plan, &fixture)?;
    rows.extend(measure_turns(plan, &fixture)?);
    rows.extend(measure_thousand_children(plan, &fixture)?);
    rows.push(measure_resume(plan, &fixture)?);
    rows.push(command_bars::measure_three_levels(plan, &binary)?);
    rows.extend(task_bars::measure_task_set(plan, &binary)?);
    Ok(rows)
}

/// Eight children, and what another one adds.
fn measure_usual_load(plan: &Plan, fixture: &Fixture) -> Result<Vec<Row>, Failure> {
    let many = Load { children: plan.pick(40, 16), ..USUAL };
    let (mut cpu, mut peak, mut each) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..plan.pick(ROUNDS, 2) {
        let few = fixture.run(USUAL, &[])?;
        let more = fixture.run(many, &[])?;
        cpu.push(few.cpu_ms);
        peak.push(few.peak_kb / 1e3);
        each.push(slope(few, USUAL.children, more, many.children));
    }
    let what = format!("CPU per extra child, {} to {} children", USUAL.children, many.children);
    Ok(vec![
        Row::at_most("CPU, 8 children × 5 read turns", Spread::of(cpu), 15.0, MILLIS),
        Row::at_most("peak memory, 8 children × 5 read turns", Spread::of(peak), 15.0, MEGABYTES),
        Row::at_most(what, Spread::of(each), 1.0, FINE_MILLIS),
    ])
}

fn slope(few: ProcessUsage, fewer: usize, more: ProcessUsage, many: usize) -> f64 {
    (more.cpu_ms - few.cpu_ms) / (many - fewer) as f64
}

/// What a turn costs, and that the five-hundredth costs no more than the fiftieth.
fn measure_turns(plan: &Plan, fixture: &Fixture) -> Result<Vec<Row>, Failure> {
    let lengths = [5, plan.pick(50, 10), plan.pick(500, 20)];
    let children = USUAL.children;
    let (mut early, mut late, mut ratio, mut alone) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..plan.pick(ROUNDS, 2) {
        let mut taken = Vec::new();
        for turns in lengths {
            taken.push(fixture.run(Load { children, turns }, &[])?);
        }
        let [short, middle, long] = [taken[0], taken[1], taken[2]];
        early.push(slope(short, children * lengths[0], middle, children * lengths[1]));
        late.push(slope(middle, children * lengths[1], long, children * lengths[2]));
        ratio.push(late[late.len() - 1] / early[early.len() - 1]);
        let one = |turns| fixture.run(Load { children: 1, turns }, &[]);
        alone.push(slope(one(lengths[0])?, lengths[0], one(lengths[1])?, lengths[1]));
    }
    let what = |from: usize, to: usize| format!("CPU per tool turn, turns {from} to {to}");
    let [early, late, ratio, alone] = [early, late, ratio, alone].map(Spread::of);
    Ok(vec![
        Row::at_most(what(lengths[0], lengths[1]), early, 0.15, FINE_MILLIS).note(SYNCS),
        Row::at_most(what(lengths[1], lengths[2]), late, 0.15, FINE_MILLIS).note(SYNCS),
        Row::at_most("CPU per tool turn, late against early", ratio, 2.0, TIMES),
        Row::info("CPU per tool turn, a child alone", alone, FINE_MILLIS).note(ALONE),
    ])
}

/// Going on with a run that died in its last turn: all of it is read and folded again.
fn measure_resume(plan: &Plan, fixture: &Fixture) -> Result<Row, Failure> {
    let load = Load { children: 1, turns: plan.pick(1_000, 20) };
    let cpu = plan.rounds(5, || fixture.resume(load).map(|taken| taken.cpu_ms))?;
    let what = format!("CPU, resuming a run of {} turns", load.turns);
    Ok(Row::at_most(what, cpu, 300.0, MILLIS).note(RESUME))
}

const RESUME: &str = "the whole process: journal read and folded, the last turn made, results and transcript written";

/// A thousand children at once, against a run of one.
fn measure_thousand_children(plan: &Plan, fixture: &Fixture) -> Result<Vec<Row>, Failure> {
    let children = plan.pick(1_000, 50);
    let (mut cpu, mut each) = (Vec::new(), Vec::new());
    for _ in 0..plan.pick(5, 2) {
        let one = fixture.run(Load { children: 1, ..USUAL }, &[])?;
        let all = fixture.run(Load { children, ..USUAL }, &[])?;
        cpu.push(all.cpu_ms);
        each.push((all.peak_kb - one.peak_kb) / children as f64);
    }
    let what = format!("{children} children at once × 5 read turns");
    Ok(vec![
        Row::at_most(format!("CPU, {what}"), Spread::of(cpu), 1_000.0, MILLIS),
        Row::at_most(format!("memory of each, {what}"), Spread::of(each), 60.0, KILOBYTES),
    ])
}
