//! Journals with truncated, changed, swapped or repeated records: the run can be resumed, or the damage is reported with
//! its position, and other runs are not affected.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::chance::{Chance, seed};
use super::tell;
use crate::support::journal::lines;
use crate::support::rig::{Output, Rig};

const PLACES: usize = 100;

const SCRIPT: &str = r#"
[[turn]]
label = "left"
text = "I look first."
[[turn.call]]
tool = "Read"
args = { path = "map.txt" }
[[turn.call]]
tool = "Note"
args = { content = "left is empty" }
[[turn]]
label = "left"
text = "nothing on the left"
[[turn]]
text = "nothing on the right"
"#;

/// A place with a finished run, and another beside it.
struct Place {
    rig: Rig,
    run: String,
    journal: PathBuf,
    whole: Vec<u8>,
    other: (PathBuf, Vec<u8>),
}

impl Place {
    fn new() -> Self {
        let rig = Rig::with_script(SCRIPT);
        rig.write("map.txt", "x marks the spot\n");
        assert_eq!(rig.delegate(&["-t", "left=Look left", "-t", "right=Look right"]).code, 0);
        let run = rig.only_run();
        assert_eq!(rig.delegate(&["-t", "other=Look away"]).code, 0);
        let other = rig.runs().into_iter().find(|other| *other != run).unwrap();
        let file = |run: &str| rig.run_folder(run).join("journal.jsonl");
        let (journal, other) = (file(&run), file(&other));
        let whole = fs::read(&journal).unwrap();
        let other = (other.clone(), fs::read(other).unwrap());
        Self { rig, run, journal, whole, other }
    }

    /// Replaces the journal of the run.
    fn harm(&self, journal: &[u8]) {
        fs::write(&self.journal, journal).unwrap();
    }

    fn resume(&self) -> Output {
        self.rig.run(["resume", &self.run, "--yes"])
    }

    /// Runs every view, then resumes the run and returns the output of resume.
    fn look(&self, harm: &str) -> Output {
        for view in [&["status"][..], &["status", &self.run], &["tree", &self.run]] {
            let before = fs::read(&self.journal).unwrap();
            let out = self.rig.run(view);
            assert!(out.code <= 2 && !out.stderr.contains("panicked"), "{harm}: {view:?}: {out}");
            assert_eq!(fs::read(&self.journal).unwrap(), before, "{harm}: looking changed it");
        }
        let out = self.resume();
        assert!(out.code <= 2 && !out.stderr.contains("panicked"), "{harm}: {out}");
        let (path, bytes) = &self.other;
        assert_eq!(fs::read(path).unwrap(), *bytes, "{harm}: another run was touched");
        out
    }

    /// Checks that a resumed run completed.
    fn is_completed(&self, out: &Output, harm: &str) {
        assert_eq!(out.code, 0, "{harm}: {out}");
        let reports = ["> nothing on the left", "> nothing on the right"];
        assert!(reports.iter().all(|report| out.stdout.contains(report)), "{harm}: {out}");
        let status = self.rig.run(["status", &self.run, "--json"]).json();
        assert_eq!(status["runs"][0]["state"], "completed", "{harm}: {status}");
    }
}

/// Distributes numbers to a few threads, each with its own directory.
fn on_places(count: usize, work: impl Fn(&Place, usize) + Sync) {
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let place = Place::new();
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        return;
                    }
                    work(&place, number);
                }
            });
        }
    });
}

#[test]
fn a_journal_cut_at_any_byte_is_resumed_or_has_nothing_to_resume() {
    let nothing = AtomicUsize::new(0);
    on_places(PLACES, |place, number| {
        let cut = place.whole.len() * number / (PLACES - 1);
        place.harm(&place.whole[..cut]);
        let out = place.look(&format!("cut at {cut}"));
        if out.stderr.contains("nothing to resume") {
            assert_eq!(out.code, 2, "{out}");
            nothing.fetch_add(1, Ordering::Relaxed);
        } else {
            place.is_completed(&out, &format!("cut at {cut}"));
        }
    });
    let nothing = nothing.into_inner();
    // The complete journal, and cuts before the first complete record.
    assert!(nothing < PLACES * 3 / 4, "{nothing} of {PLACES} had nothing to resume");
}

#[test]
fn a_flipped_bit_is_reported_with_its_position_or_is_in_a_torn_tail() {
    let seed = seed();
    tell(&format!("seed {seed}"));
    on_places(PLACES, |place, number| {
        let mut chance = Chance::new(seed).branch(number as u64);
        let step = place.whole.len() / PLACES;
        let at = number * step + usize::try_from(chance.below(step as u64)).unwrap();
        let mut journal = place.whole.clone();
        journal[at] ^= 1 << chance.below(8);
        place.harm(&journal);
        let harm = format!("bit flipped in byte {at}, seed {seed}");
        let out = place.look(&harm);
        let all = lines(&place.whole);
        let before = |count: usize| all[..count].iter().map(|line| line.len()).sum::<usize>();
        let line = (1..=all.len()).find(|count| before(*count) > at).unwrap();
        if line == all.len() {
            // The record of the end is lost, so the run is resumed and ends again.
            place.is_completed(&out, &harm);
        } else {
            assert_eq!(out.code, 1, "{harm}: {out}");
            if out.stderr.contains("is newer than this adjutant understands") {
                // A journal's first line starts with `{"v":1`, and the bit was in that digit.
                assert_eq!(at, 5, "{harm}: {out}");
                return;
            }
            let named = [line, line + 1].map(|line| format!("line {line}"));
            assert!(named.iter().any(|named| out.stderr.contains(named)), "{harm}: {out}");
        }
    });
}

#[test]
fn swapped_or_repeated_records_are_detected() {
    let place = Place::new();
    let count = lines(&place.whole).len();
    for at in 0..count {
        let mut twice = lines(&place.whole);
        twice.insert(at, twice[at]);
        let mut swapped = lines(&place.whole);
        if at + 1 < count {
            swapped.swap(at, at + 1);
        }
        for (harm, journal) in [("repeated", twice), ("swapped", swapped)] {
            let harm = format!("record {} {harm}", at + 1);
            place.harm(&journal.concat());
            let out = place.look(&harm);
            if out.code == 0 {
                // A last record that does not fit is a torn end.
                assert!(at + 2 >= count, "{harm}: {out}");
                place.is_completed(&out, &harm);
            } else {
                assert!(out.code == 1 && out.stderr.contains("damaged at line"), "{harm}: {out}");
            }
        }
    }
}
