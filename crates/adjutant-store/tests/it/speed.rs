//! Measurements, run by hand:
//! `cargo test --release -p adjutant-store -- --ignored --nocapture speed`.

use std::fs::File;
use std::io::Write;
use std::time::{Duration, Instant};

use adjutant_core::Timestamp;
use adjutant_store::{Durability, MemoryDisk};
use rustix::time::{ClockId, clock_gettime};

use crate::fixture::{
    StoreFixture, TestEvent, WALL, bytes_of, facts, journal_on, read, run_id, said,
};

fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap(), u32::try_from(time.tv_nsec).unwrap())
}

#[test]
#[ignore = "a measurement"]
fn speed_of_forty_turns_of_four_records() {
    let fact = said(&"x".repeat(2000));
    for round in 0..5 {
        let fixture = StoreFixture::new();
        let run = fixture.home.create_run(run_id(0)).unwrap();
        let lock = run.lock().unwrap();
        let (send, reports) = std::sync::mpsc::channel();
        let report = move |report| drop(send.send(report));
        let mut journal = lock.create_journal::<TestEvent>(report).unwrap();
        let (wall, before) = (Instant::now(), cpu());
        for turn in 0..40 {
            for nth in 0..4 {
                let durability = if nth == 3 { Durability::Sync } else { Durability::Lazy };
                journal.stage(Timestamp::from_millis(turn), WALL, &fact, durability).unwrap();
            }
            journal.submit().unwrap();
            reports.recv().unwrap().unwrap();
        }
        journal.close().unwrap();
        let (ours, wall) = (cpu() - before, wall.elapsed());
        let bare = bare_cpu(&fixture, 40, 8 << 10);
        println!(
            "round {round}: 160 records, 40 syncs: {ours:?} CPU (bare {bare:?}), {wall:?} wall"
        );
    }
}

/// Returns the CPU time of `count` plain writes of `bytes` bytes, each with a sync.
fn bare_cpu(fixture: &StoreFixture, count: usize, bytes: usize) -> Duration {
    let mut bare = File::create(fixture.dir.path().join("bare")).unwrap();
    let block = vec![b'x'; bytes];
    let before = cpu();
    for _ in 0..count {
        bare.write_all(&block).unwrap();
        bare.sync_data().unwrap();
    }
    cpu() - before
}

#[test]
#[ignore = "a measurement"]
fn speed_of_a_hundred_thousand_lazy_appends() {
    let disk = MemoryDisk::default();
    let (mut journal, _reports) = journal_on(disk.clone());
    let fact = said(&"x".repeat(200));
    let (wall, before) = (Instant::now(), cpu());
    for nth in 0..100_000 {
        journal.append(Timestamp::from_millis(nth), WALL, &fact, Durability::Lazy).unwrap();
    }
    journal.close().unwrap();
    let (cpu, wall) = (cpu() - before, wall.elapsed());
    println!("100,000 appends in {} writes: {cpu:?} CPU, {wall:?} wall", disk.writes());
}

#[test]
#[ignore = "a measurement"]
fn speed_of_reading_a_hundred_thousand_records() {
    let (bytes, _) = bytes_of(&facts(100_000));
    for _ in 0..3 {
        let wall = Instant::now();
        let (records, _) = read(&bytes);
        let (count, mb) = (records.len(), bytes.len() >> 20);
        println!("{count} records, {mb} MiB: {:?}, bar 300 ms", wall.elapsed());
    }
}

#[test]
#[ignore = "a measurement"]
fn speed_of_a_synced_append_against_a_bare_one() {
    let fixture = StoreFixture::new();
    let run = fixture.home.create_run(run_id(0)).unwrap();
    let lock = run.lock().unwrap();
    let (send, reports) = std::sync::mpsc::channel();
    let report = move |report| drop(send.send(report));
    let mut journal = lock.create_journal::<TestEvent>(report).unwrap();
    let mut bare = File::create(fixture.dir.path().join("bare")).unwrap();
    let (fact, line) = (said(&"x".repeat(2000)), "x".repeat(2048));
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..300 {
        let start = Instant::now();
        bare.write_all(line.as_bytes()).unwrap();
        bare.sync_data().unwrap();
        theirs.push(start.elapsed());
        let start = Instant::now();
        journal.append(Timestamp::ZERO, WALL, &fact, Durability::Sync).unwrap();
        reports.recv().unwrap().unwrap();
        ours.push(start.elapsed());
    }
    ours.sort();
    theirs.sort();
    println!("synced append of 2 KiB: p50 {:?}, bare {:?}", ours[150], theirs[150]);
}
