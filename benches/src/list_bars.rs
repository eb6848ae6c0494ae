//! The bars of lists: commands that look at many runs or at a long one, and the live view of many sessions.

use std::cell::RefCell;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Write;

use adjutant_core::ids::SUFFIX_LEN;
use adjutant_core::{Event, Policy, Preset, RunId, Timestamp};
use adjutant_store::{Durability, Journal, JournalPosition, MemoryDisk, RunLock, StateDir};
use adjutant_tui::{OpenedRun, WatchedRecord};
use adjutant_view::progress::ProgressFrame;
use adjutant_view::{Palette, RunView, TimedEvent};
use tempfile::TempDir;

use crate::Failure;
use crate::history::{BEGAN, TreeDriver, run_id, unlimited_policy};
use crate::launch::ProcessUsage;
use crate::sample::{Plan, Spread, cpu_micros};
use crate::spawn::{Binary, target_dir};
use crate::store_bars::write_run;
use crate::table::{FINE_MILLIS, MILLIS, Row, Unit};

/// Rounds of everything here.
const ROUNDS: usize = 11;

/// How often the live view is drawn at most.
const DRAWN_PER_SECOND: usize = 4;

/// The wall-clock time at which every run here begins.
const WALL_MS: u64 = 1_790_000_000_000;

const INDEXED: &str = "wall time; the index of ended runs is there";
const REBUILT: &str = "wall time; the index is missing and is written";
const FOLDED: &str =
    "wall time; this process has the runs locked, and no reader has left a checkpoint";

/// Measures the group.
pub(crate) fn measure(plan: &Plan) -> Result<Vec<Row>, Failure> {
    let binary = Binary::build()?;
    let mut rows = measure_live_runs(plan, &binary)?;
    rows.extend(measure_old_runs(plan, &binary)?);
    rows.push(measure_log(plan, &binary)?);
    rows.push(measure_step_back(plan)?);
    rows.extend(measure_live_view(plan)?);
    Ok(rows)
}

/// A state directory that is measured with commands in another directory.
struct ListFixture {
    dir: TempDir,
    home: StateDir,
}

impl ListFixture {
    fn new() -> Result<Self, Failure> {
        let dir = TempDir::new_in(target_dir()?)?;
        let home = StateDir::open(&dir.path().join("home"))?;
        Ok(Self { dir, home })
    }

    fn run(&self, binary: &Binary, command: &[&str]) -> Result<ProcessUsage, Failure> {
        let home = [OsString::from("--home"), self.home.path().into()];
        let args: Vec<OsString> = command.iter().map(OsString::from).chain(home).collect();
        binary.run(self.dir.path(), &args)
    }
}

/// `status` while many runs with many children are live.
fn measure_live_runs(plan: &Plan, binary: &Binary) -> Result<Vec<Row>, Failure> {
    let (runs, children) = (plan.pick(20, 3), plan.pick(200, 10));
    let fixture = ListFixture::new()?;
    let mut locks = Vec::new();
    let mut events = 0;
    for number in 1..=runs {
        let (lock, written) = write_live_run(&fixture.home, number, children)?;
        locks.push(lock);
        events += written;
    }
    let (mut folded, mut kept) = (Vec::new(), Vec::new());
    for _ in 0..plan.pick(ROUNDS, 2) {
        for number in 1..=runs {
            // A checkpoint may be deleted at any time.
            let _ = fs::remove_file(fixture.home.run(run_id(number)).checkpoint_path());
        }
        folded.push(fixture.run(binary, &["status"])?.wall_ms);
        kept.push(fixture.run(binary, &["status"])?.wall_ms);
    }
    let what = format!("status during {runs} runs of {children} children, {events} events");
    Ok(vec![
        Row::at_most(&what, Spread::of(folded), 500.0, MILLIS).note(FOLDED),
        Row::at_most(format!("{what}, again"), Spread::of(kept), 500.0, MILLIS),
    ])
}

/// Writes a run of which every child has taken some turns. It is live while the lock is held.
fn write_live_run(
    home: &StateDir,
    number: usize,
    children: usize,
) -> Result<(RunLock, usize), Failure> {
    let run = home.create_run(run_id(number))?;
    let lock = run.lock()?;
    let mut journal = lock.create_journal::<Event>(drop)?;
    let mut written = 0;
    let mut sink = |at: Timestamp, event: &Event| {
        written += 1;
        journal.append(at, WALL_MS + at.as_millis(), event, Durability::Lazy)?;
        Ok(())
    };
    let policy = unlimited_policy(Preset::Scout);
    let mut driver = TreeDriver::begin(run_id(number), &policy, &mut sink)?;
    driver.delegate(children)?;
    // A turn is the answer of a model and that of a tool.
    driver.advance(children * 2 * TURNS_TAKEN, TURNS_TAKEN as u32 * 2, 256)?;
    drop(driver);
    journal.close()?;
    Ok((lock, written))
}

/// The turns that each child of a live run has taken.
const TURNS_TAKEN: usize = 5;

/// `errors`, `tree` and `cost --since` with many ended runs, in a directory without any.
fn measure_old_runs(plan: &Plan, binary: &Binary) -> Result<Vec<Row>, Failure> {
    let runs = plan.pick(10_000, 50);
    let fixture = ListFixture::new()?;
    for number in 1..=runs {
        write_old_run(&fixture.home, number)?;
    }
    let index = fixture.home.run_index_path();
    let mut rows = Vec::new();
    for (command, bar) in [
        (&["errors"][..], 60.0),
        (&["tree"], 60.0),
        (&["cost", "--since", "2026-01-01"], 60.0),
        (&["status"], 60.0),
    ] {
        fixture.run(binary, command)?;
        let round = || Ok::<_, Failure>(fixture.run(binary, command)?.wall_ms);
        let what = format!("{} with {runs} runs", command[0]);
        let row = Row::at_most(what, plan.rounds(ROUNDS, round)?, bar, MILLIS);
        rows.push(row.note(INDEXED));
    }
    let rebuilt = plan.rounds(3, || {
        let _ = fs::remove_file(&index);
        Ok::<_, Failure>(fixture.run(binary, &["errors"])?.wall_ms)
    })?;
    rows.push(Row::info(format!("errors with {runs} runs"), rebuilt, MILLIS).note(REBUILT));
    Ok(rows)
}

/// Writes a run with one child that completed; every tenth run also has one that was refused.
fn write_old_run(home: &StateDir, number: usize) -> Result<(), Failure> {
    // Each run has a second of its own, as in the state directory of a person.
    let id = RunId::new(BEGAN + number as u64, [0; SUFFIX_LEN]);
    let (disk, policy) = (MemoryDisk::default(), unlimited_policy(Preset::Scout));
    let policy = Policy { children_per_parent: Some(1), ..policy };
    let mut journal = Journal::start(disk.clone(), JournalPosition::start(id), drop)?;
    let mut sink = |at: Timestamp, event: &Event| {
        journal.append(at, WALL_MS + at.as_millis(), event, Durability::Lazy)?;
        Ok(())
    };
    let mut driver = TreeDriver::begin(id, &policy, &mut sink)?;
    driver.delegate(if number.is_multiple_of(10) { 2 } else { 1 })?;
    driver.finish(1, 256)?;
    drop(driver);
    journal.close()?;
    let run = home.create_run(id)?;
    Ok(fs::write(run.journal_path(), disk.bytes())?)
}

/// `log` of a long run.
fn measure_log(plan: &Plan, binary: &Binary) -> Result<Row, Failure> {
    let fixture = ListFixture::new()?;
    let events = write_run(&fixture.home, plan.pick(93_000, 5_000), 256)?;
    let spread =
        plan.rounds(ROUNDS, || Ok::<_, Failure>(fixture.run(binary, &["log"])?.wall_ms))?;
    Ok(Row::at_most(format!("log of {events} events"), spread, 300.0, MILLIS)
        .note("wall time; the journal is in the page cache"))
}

/// One step back in a long run, in `watch`.
fn measure_step_back(plan: &Plan) -> Result<Row, Failure> {
    let events = plan.pick(93_000, 5_000);
    let mut records = Vec::new();
    let mut sink = |at: Timestamp, event: &Event| {
        records.push(WatchedRecord::lean(at, WALL_MS + at.as_millis(), event));
        Ok(())
    };
    let mut driver = TreeDriver::begin(run_id(1), &unlimited_policy(Preset::Scout), &mut sink)?;
    driver.delegate(events / 500)?;
    driver.finish(124, 256)?;
    drop(driver);
    let count = records.len();
    let mut run = OpenedRun::new(run_id(1), None);
    run.extend(records);
    // A step takes longest just before an earlier state that was kept, so many places are measured.
    let places = plan.pick(40, 4);
    let mut place = count;
    let mut steps = Vec::new();
    for _ in 0..places {
        place -= count / places / 2;
        run.show_event(place);
        steps.push(cpu_micros(|| run.step(-1)) / 1e3);
    }
    Ok(Row::at_most(format!("one step back in {count} events"), Spread::of(steps), 50.0, MILLIS)
        .note("CPU of `watch` without drawing; at places in the second half"))
}

/// One redraw of the live view, and one second of it with all events of that second.
fn measure_live_view(plan: &Plan) -> Result<Vec<Row>, Failure> {
    let sessions = plan.pick(1_000, 50);
    let records = RefCell::new(Vec::new());
    let mut sink = |at: Timestamp, event: &Event| {
        records.borrow_mut().push((at, event.clone()));
        Ok(())
    };
    let mut driver = TreeDriver::begin(run_id(1), &unlimited_policy(Preset::Scout), &mut sink)?;
    driver.delegate(sessions)?;
    driver.advance(sessions * 3, 100, 256)?;
    let before = records.borrow().len();
    // In the measured second, one agent in ten ends a turn or a tool call.
    driver.advance(sessions / 10, 100, 256)?;
    drop(driver);
    let records = records.into_inner();
    let (earlier, second) = records.split_at(before);
    let apply = |view: &mut RunView, records: &[(Timestamp, Event)]| {
        for (at, event) in records {
            view.apply(TimedEvent::new(*at, WALL_MS + at.as_millis(), event));
        }
    };
    let mut view = RunView::default();
    apply(&mut view, earlier);
    let latest = view.latest().at;
    let frame = ProgressFrame { width: 120, height: Some(50), now: latest, palette: Palette::Ansi };
    let redraw =
        plan.rounds(ROUNDS * 10, || Ok::<_, Failure>(cpu_micros(|| frame.render(&view)) / 1e3))?;
    let mut terminal = File::options().write(true).open("/dev/null")?;
    let share = plan.rounds(ROUNDS, || {
        let mut live = view.clone();
        let mut written = Ok(());
        let micros = cpu_micros(|| {
            for quarter in second.chunks(second.len().div_ceil(DRAWN_PER_SECOND).max(1)) {
                apply(&mut live, quarter);
                let text = frame.render(&live);
                written = terminal.write_all(text.as_bytes());
            }
        });
        written?;
        // Of a million microseconds, in percent.
        Ok::<_, Failure>(micros / 1e4)
    })?;
    let what = format!("a second of live view: {} events, 4 drawings, of one core", second.len());
    Ok(vec![
        Row::at_most(format!("redraw of {sessions} sessions, CPU"), redraw, 10.0, FINE_MILLIS),
        Row::at_most(what, share, 1.0, PERCENT)
            .note("events applied, frames rendered and written to /dev/null"),
    ])
}

/// Percent.
const PERCENT: Unit = Unit(" %", 2);
