//! The bars of the journal, measured in this process against the bare disk.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use adjutant_core::{Event, Timestamp};
use adjutant_store::{
    Disk, Durability, Journal, JournalError, JournalPosition, RecordNumber, StateDir,
};
use tempfile::TempDir;

use crate::Failure;
use crate::history::{TreeDriver, run_id, session, unlimited_policy};
use crate::registry_bars;
use crate::sample::{Plan, Spread, cpu_micros};
use crate::spawn::target_dir;
use crate::table::{COUNT, MICROS, MILLIS, Row, TIMES};

const LOAD: &str = "the journal alone, under 8 writers of two records each, like a turn's; each goes on 0 to 0.4 ms \
after its own are durable. The engine itself is not counted: only strace could";

/// Measures the group.
pub(crate) fn measure(plan: &Plan) -> Result<Vec<Row>, Failure> {
    let mut rows = measure_appends(plan)?;
    rows.push(measure_records_per_sync(plan)?);
    rows.extend(measure_reading(plan)?);
    rows.push(registry_bars::measure(plan)?);
    Ok(rows)
}

/// A line of a conversation, as long as the bar's record.
fn message_event(bytes: usize) -> Event {
    Event::Late { session: session(1), what: "line".into(), text: "x".repeat(bytes) }
}

/// A synced append and a bare write with its sync, in turns on the same disk.
fn measure_appends(plan: &Plan) -> Result<Vec<Row>, Failure> {
    let dir = TempDir::new_in(target_dir()?)?;
    let run = StateDir::open(&dir.path().join("home"))?.create_run(run_id(1))?;
    let lock = run.lock()?;
    let (send, reports) = mpsc::channel();
    let mut journal = lock.create_journal::<Event>(move |report| drop(send.send(report)))?;
    let mut bare = File::create(dir.path().join("bare"))?;
    let (event, line) = (message_event(1_930), vec![b'x'; 2_048]);
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let micros = |since: Instant| since.elapsed().as_secs_f64() * 1e6;
    for _ in 0..plan.pick(500, 20) {
        let start = Instant::now();
        bare.write_all(&line)?;
        bare.sync_data()?;
        theirs.push(micros(start));
        let start = Instant::now();
        // As the engine does before every record.
        journal.ensure_space(64 << 10)?;
        journal.append(Timestamp::ZERO, 0, &event, Durability::Sync)?;
        reports.recv()??;
        ours.push(micros(start));
    }
    journal.close()?;
    let rounds = plan.pick(500, 20);
    let cpu = cpu_micros(|| {
        (0..rounds)
            .filter(|_| bare.write_all(&line).and_then(|()| bare.sync_data()).is_ok())
            .count()
    });
    let (ours, theirs) = (Spread::of(ours), Spread::of(theirs));
    let ratio = Spread::exact(ours.median / theirs.median);
    Ok(vec![
        Row::info("synced append of 2 KiB", ours, MICROS),
        Row::info("bare write + fdatasync of 2 KiB", theirs, MICROS),
        Row::at_most("synced append against a bare one, p50", ratio, 1.5, TIMES),
        Row::info("CPU of a bare write + fdatasync", Spread::exact(cpu / rounds as f64), MICROS),
    ])
}

/// A file that counts its syncs.
struct SyncCountingFile {
    file: File,
    syncs: Arc<AtomicUsize>,
}

impl Disk for SyncCountingFile {
    fn write_all_at_end(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.syncs.fetch_add(1, Ordering::Relaxed);
        self.file.sync_data()
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }
}

/// How many records share a sync when eight children write on their own.
fn measure_records_per_sync(plan: &Plan) -> Result<Row, Failure> {
    let turns = plan.pick(2_000, 80);
    let file = tempfile::tempfile_in(target_dir()?)?;
    let syncs = Arc::new(AtomicUsize::new(0));
    let disk = SyncCountingFile { file, syncs: Arc::clone(&syncs) };
    let (send, reports) = mpsc::channel::<Result<RecordNumber, JournalError>>();
    let start = JournalPosition::start(run_id(1));
    let mut journal = Journal::start(disk, start, move |report| drop(send.send(report)))?;
    let event = message_event(400);
    let mut chance = 1_u32;
    // When children go on that think, and the records that the others wait for.
    let mut thinking = BinaryHeap::from([Reverse(Instant::now()); 8]);
    let mut waiting: Vec<RecordNumber> = Vec::new();
    let mut taken = 0;
    while taken < turns {
        while thinking.peek().is_some_and(|Reverse(at)| *at <= Instant::now()) {
            thinking.pop();
            journal.stage(Timestamp::ZERO, 0, &event, Durability::Sync)?;
            waiting.push(journal.stage(Timestamp::ZERO, 0, &event, Durability::Sync)?);
            taken += 1;
        }
        journal.submit()?;
        let next = thinking.peek().map(|Reverse(at)| at.saturating_duration_since(Instant::now()));
        match reports.recv_timeout(next.unwrap_or(Duration::from_secs(1))) {
            Ok(report) => {
                let through = report?;
                for _ in waiting.extract_if(.., |seq| *seq <= through) {
                    chance = chance.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    let rest = Duration::from_micros(u64::from(chance >> 16) % 400);
                    thinking.push(Reverse(Instant::now() + rest));
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err("the journal is gone".into()),
        }
    }
    journal.close()?;
    let each = taken as f64 * 2.0 / syncs.load(Ordering::Relaxed) as f64;
    Ok(Row::above("records per sync, 8 children", Spread::exact(each), 2.0, COUNT).note(LOAD))
}

/// Reading a journal back.
fn measure_reading(plan: &Plan) -> Result<Vec<Row>, Failure> {
    let dir = TempDir::new_in(target_dir()?)?;
    let home = StateDir::open(&dir.path().join("home"))?;
    let saved = write_run(&home, plan.pick(100_000, 2_000), 256)?;
    let run = home.run(run_id(1));
    let spread = plan.rounds(5, || -> Result<f64, Failure> {
        let mut read = 0;
        let micros = cpu_micros(|| {
            for record in run.read_journal::<Event>()? {
                read += usize::from(record.is_ok());
            }
            Ok::<_, Failure>(())
        });
        if read == saved {
            Ok(micros / 1e3)
        } else {
            Err(format!("read {read} of {saved} records").into())
        }
    })?;
    let bytes = std::fs::metadata(run.journal_path())?.len() as f64 / 1e6;
    Ok(vec![Row::at_most(format!("read {saved} records, {bytes:.0} MB"), spread, 300.0, MILLIS)])
}

/// Writes a whole run of about `events` records and returns how many they are.
pub(crate) fn write_run(
    home: &StateDir,
    events: usize,
    read_bytes: usize,
) -> Result<usize, Failure> {
    let run = home.create_run(run_id(1))?;
    let lock = run.lock()?;
    let mut journal = lock.create_journal::<Event>(drop)?;
    let mut written = 0;
    let mut sink = |at: Timestamp, event: &Event| {
        written += 1;
        journal.append(at, 1_790_000_000_000 + at.as_millis(), event, Durability::Lazy)?;
        Ok(())
    };
    // A turn leaves four records; a child some more for its beginning and its end.
    let (children, turns) = (events / 500, 124);
    let mut driver =
        TreeDriver::begin(run_id(1), &unlimited_policy(adjutant_core::Preset::Scout), &mut sink)?;
    driver.delegate(children)?;
    driver.finish(turns, read_bytes)?;
    if driver.tree.outcome().is_none() {
        return Err("the run did not end".into());
    }
    drop(driver);
    journal.close()?;
    Ok(written)
}
