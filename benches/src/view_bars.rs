//! Looking at a large run through the real binary: rebuilt from its journal, and from a checkpoint.

use std::ffi::OsString;
use std::fs;

use adjutant_core::{Event, Preset};
use adjutant_store::StateDir;
use adjutant_tui::{OpenedRun, WatchState, WatchedRecord, render};
use adjutant_view::Palette;
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use tempfile::TempDir;

use crate::Failure;
use crate::history::{TreeDriver, run_id, unlimited_policy};
use crate::sample::{Plan, Spread, cpu_now};
use crate::spawn::{Binary, target_dir};
use crate::store_bars::write_run;
use crate::table::{MEGABYTES, MILLIS, Row, TIMES};

/// Rounds of everything here.
const ROUNDS: usize = 5;

/// What each read of the run returned.
const READ_BYTES: [usize; 2] = [256, 2_048];

const CACHED: &str = "CPU of the whole process; the journal is in the page cache";

/// Measures the group.
pub(crate) fn measure(plan: &Plan) -> Result<Vec<Row>, Failure> {
    let binary = Binary::build()?;
    let mut rows = Vec::new();
    for bytes in READ_BYTES {
        rows.extend(measure_views(plan, &binary, bytes)?);
    }
    rows.extend(measure_memory(plan, &binary)?);
    rows.push(measure_frame(plan)?);
    Ok(rows)
}

/// The size of the terminal whose frames are measured.
const FRAME: (u16, u16) = (160, 50);

/// A frame of `adjutant watch` for a run of a thousand agents, all with a timeline.
fn measure_frame(plan: &Plan) -> Result<Row, Failure> {
    let agents = plan.pick(1_000, 100);
    let mut records = Vec::new();
    let mut keep = |at, event: &Event| -> Result<(), Failure> {
        records.push(WatchedRecord::lean(at, 0, event));
        Ok(())
    };
    let mut driver = TreeDriver::begin(run_id(1), &unlimited_policy(Preset::Scout), &mut keep)?;
    driver.delegate(agents)?;
    driver.finish(10, 32)?;
    drop(driver);
    let mut run = OpenedRun::new(run_id(1), None);
    run.extend(records);
    let mut state = WatchState::new(Palette::Ansi, true, FRAME);
    state.open(run);
    let area = Rect::new(0, 0, FRAME.0, FRAME.1);
    let mut buffer = Buffer::empty(area);
    let frames = 20;
    let spread = plan.rounds(ROUNDS, || -> Result<f64, Failure> {
        let before = cpu_now();
        for _ in 0..frames {
            buffer.reset();
            render(&state, area, &mut buffer);
        }
        Ok((cpu_now() - before).as_secs_f64() * 1e3 / f64::from(frames))
    })?;
    let what = format!("frame of watch, {agents} agents, {}x{}", FRAME.0, FRAME.1);
    Ok(Row::at_most(what, spread, 10.0, MILLIS).note("CPU of drawing all cells; in this process"))
}

/// What each read and each report holds in the runs whose memory is compared.
const SAID_BYTES: [usize; 2] = [256, 32 << 10];

const PEAK: &str = "peak memory with reads and reports of 32 KiB against 256 B, both rebuilt";

/// Memory must follow the tree, not what was said in it.
fn measure_memory(plan: &Plan, binary: &Binary) -> Result<Vec<Row>, Failure> {
    let mut peaks = Vec::new();
    let mut sizes = Vec::new();
    for bytes in SAID_BYTES {
        let dir = TempDir::new_in(target_dir()?)?;
        let path = dir.path().join("home");
        let home = StateDir::open(&path)?;
        write_run(&home, plan.pick(20_000, 5_000), bytes)?;
        let run = home.run(run_id(1));
        sizes.push(fs::metadata(run.journal_path())?.len() as f64 / 1e6);
        let mut of_command = Vec::new();
        for command in ["status", "tree", "cost"] {
            let run_name = run_id(1).to_string();
            let args: Vec<OsString> =
                vec![command.into(), run_name.into(), "--home".into(), path.clone().into()];
            of_command.push(plan.rounds(ROUNDS, || -> Result<f64, Failure> {
                let _ = fs::remove_file(run.checkpoint_path());
                Ok(binary.run(dir.path(), &args)?.peak_kb / 1e3)
            })?);
        }
        peaks.push(of_command);
    }
    let (short, long) = (&peaks[0], &peaks[1]);
    let rows = ["status", "tree", "cost"].into_iter().zip(short.iter().zip(long));
    Ok(rows
        .map(|(command, (short, long))| {
            let what = format!("{command} of {:.0} against {:.0} MB", sizes[1], sizes[0]);
            let (from, to) = (short.median, long.median);
            let ratio = Spread::exact(to / from);
            Row::at_most(format!("{what}, peak memory"), ratio, 1.1, TIMES)
                .note(format!("{PEAK}; {command} {from:.1} and {to:.1} MB"))
        })
        .collect())
}

fn measure_views(plan: &Plan, binary: &Binary, read_bytes: usize) -> Result<Vec<Row>, Failure> {
    let dir = TempDir::new_in(target_dir()?)?;
    let path = dir.path().join("home");
    let home = StateDir::open(&path)?;
    let events = write_run(&home, plan.pick(100_000, 5_000), read_bytes)?;
    let run = home.run(run_id(1));
    let megabytes = fs::metadata(run.journal_path())?.len() as f64 / 1e6;
    let mut rows = Vec::new();
    for command in ["status", "tree"] {
        let args: Vec<OsString> = vec![
            command.into(),
            run_id(1).to_string().into(),
            "--home".into(),
            path.clone().into(),
        ];
        let (mut rebuilt, mut kept, mut peak) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..plan.pick(ROUNDS, 2) {
            // A checkpoint may be deleted at any time; then the fold begins at the beginning.
            let _ = fs::remove_file(run.checkpoint_path());
            let first = binary.run(dir.path(), &args)?;
            rebuilt.push(first.cpu_ms);
            peak.push(first.peak_kb / 1e3);
            kept.push(binary.run(dir.path(), &args)?.cpu_ms);
        }
        let what = format!("{command} of {events} events, {megabytes:.0} MB");
        rows.push(
            Row::at_most(format!("{what}, rebuilt"), Spread::of(rebuilt), 500.0, MILLIS)
                .note(CACHED),
        );
        rows.push(
            Row::at_most(format!("{what}, checkpoint"), Spread::of(kept), 50.0, MILLIS)
                .note(CACHED),
        );
        rows.push(Row::info(format!("{what}, peak memory"), Spread::of(peak), MEGABYTES));
    }
    Ok(rows)
}
