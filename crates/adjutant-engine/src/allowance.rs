//! What was spent today of an amount that starts without asking.
//!
//! A file for each amount and day, a line for each call: first its worst case, which is on disk before
//! the call begins, then what it came to. Whoever looks holds the file's lock until they have added
//! their own, so two processes at once cannot both take the last dollar. A process that dies leaves
//! its worst case behind; one that is stopped while it looks holds up nobody for longer than [`PATIENCE`].

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use adjutant_core::Usd;
use adjutant_store::{open_private, open_private_existing};
use serde::{Deserialize, Serialize};

const FOLDER: &str = "allowances";

/// Milliseconds of a day. Days are those of UTC: one that follows a clock set by hand could come twice.
const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// Bytes of a client's name that tell it from others.
const NAME_BYTES: usize = 60;

/// Days after which nobody asks any more.
const KEPT_DAYS: u64 = 31;

/// How long others may hold the file; they do so for as long as a call is judged, not while it runs.
const PATIENCE: Duration = Duration::from_secs(10);

/// Between two looks at who holds it.
const PAUSE: Duration = Duration::from_millis(5);

/// One line: what a call may cost, or what it did cost.
#[derive(Serialize, Deserialize)]
struct Line {
    call: String,
    pico_usd: u64,
}

/// What a client has spent today; nobody else may spend for it while this is held.
#[derive(Debug)]
pub struct Allowance {
    file: File,
    path: PathBuf,
    spent: Usd,
    is_new: bool,
    is_torn: bool,
}

impl Allowance {
    /// Waits until nobody else spends for this client, and reads what is spent.
    ///
    /// # Errors
    ///
    /// Why that is not known, also where somebody else did not let go of it in time; nothing may start
    /// without asking then.
    pub fn of(home: &Path, client: &str, wall_ms: u64) -> io::Result<Self> {
        Self::within(PATIENCE, home, client, wall_ms)
    }

    fn within(patience: Duration, home: &Path, client: &str, wall_ms: u64) -> io::Result<Self> {
        let folder = home.join(FOLDER);
        DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        let day = wall_ms / DAY_MS;
        sweep(&folder, day);
        let path = folder.join(format!("{day}-{}", file_name(client)));
        let mut file = open_private(&path)?;
        lock(&file, &path, patience)?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        let mut calls: BTreeMap<String, u64> = BTreeMap::new();
        // A line that was torn belongs to a call that never began.
        for line in text.lines().filter_map(|line| serde_json::from_str::<Line>(line).ok()) {
            calls.insert(line.call, line.pico_usd);
        }
        let spent = calls.values().fold(0_u64, |sum, pico| sum.saturating_add(*pico));
        let is_torn = !text.is_empty() && !text.ends_with('\n');
        Ok(Self { file, path, spent: Usd::from_pico(spent), is_new: text.is_empty(), is_torn })
    }

    /// Returns what is spent or set aside.
    #[must_use]
    pub const fn spent(&self) -> Usd {
        self.spent
    }

    /// Sets an amount aside for a call that is about to begin; returns once that is on disk.
    ///
    /// # Errors
    ///
    /// Why it could not be written; the call must not begin.
    pub fn reserve(mut self, amount: Usd) -> io::Result<Reservation> {
        let mut bytes = [0; 8];
        getrandom::fill(&mut bytes).map_err(io::Error::other)?;
        let call = bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        append(&mut self.file, &call, amount, self.is_torn)?;
        if self.is_new {
            // Neither the file nor its folder need be in what a crash leaves before their own folders are synced.
            for folder in self.path.ancestors().skip(1).take(2) {
                File::open(folder)?.sync_all()?;
            }
        }
        Ok(Reservation { path: self.path.clone(), call })
    }
}

/// An amount that was set aside.
#[derive(Debug)]
pub struct Reservation {
    path: PathBuf,
    call: String,
}

impl Reservation {
    /// Gives back what was not spent.
    ///
    /// # Errors
    ///
    /// Why it could not be written; the whole amount counts as spent then.
    pub fn settle(self, spent: Usd) -> io::Result<()> {
        let mut file = open_private_existing(&self.path)?;
        lock(&file, &self.path, PATIENCE)?;
        let length = file.seek(SeekFrom::End(0))?;
        let mut last = [b'\n'];
        if length > 0 {
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
        }
        append(&mut file, &self.call, spent, last != *b"\n")
    }
}

/// Takes the lock of a file as soon as nobody else has it.
fn lock(file: &File, path: &Path, patience: Duration) -> io::Result<()> {
    let begun = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if begun.elapsed() < patience => thread::sleep(PAUSE),
            Err(TryLockError::WouldBlock) => {
                let what = format!(
                    "another process has held {} for {} s",
                    path.display(),
                    patience.as_secs_f32()
                );
                return Err(io::Error::new(io::ErrorKind::TimedOut, what));
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
}

fn append(file: &mut File, call: &str, amount: Usd, is_torn: bool) -> io::Result<()> {
    let line = Line { call: call.to_owned(), pico_usd: amount.as_pico() };
    let start = if is_torn { "\n" } else { "" };
    let text = format!("{start}{}\n", serde_json::to_string(&line)?);
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// Names a file after a client; what no file may be called is spelled out.
fn file_name(client: &str) -> String {
    let mut name = String::new();
    for byte in client.bytes().take(NAME_BYTES) {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => name.push(char::from(byte)),
            other => name.push_str(&format!("%{other:02x}")),
        }
    }
    name
}

fn sweep(folder: &Path, today: u64) {
    let Ok(entries) = folder.read_dir() else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let day = name.to_str().and_then(|name| name.split_once('-')?.0.parse::<u64>().ok());
        if day.is_some_and(|day| day.saturating_add(KEPT_DAYS) < today) {
            // One that stays is removed another time.
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_700_000_000_000;

    fn usd(dollars: f64) -> Usd {
        Usd::from_dollars(dollars).unwrap()
    }

    #[test]
    fn worst_cases_add_up_until_they_are_settled() {
        let home = tempfile::tempdir().unwrap();
        let of = |client: &str, now| Allowance::of(home.path(), client, now).unwrap();
        let one = of("a", NOW).reserve(usd(0.3)).unwrap();
        assert_eq!(of("a", NOW).spent(), usd(0.3));
        let lost = of("a", NOW).reserve(usd(0.1)).unwrap();
        drop(lost);
        assert_eq!(of("a", NOW).spent(), usd(0.4));
        one.settle(usd(0.05)).unwrap();
        assert_eq!(of("a", NOW).spent(), usd(0.15), "a lost process leaves its worst case");
        assert_eq!(of("b", NOW).spent(), Usd::ZERO, "another client");
        assert_eq!(of("a", NOW + DAY_MS).spent(), Usd::ZERO, "another day");
    }

    #[test]
    fn a_torn_line_costs_nothing_and_hides_nothing() {
        let home = tempfile::tempdir().unwrap();
        let of = || Allowance::of(home.path(), "a/../b", NOW).unwrap();
        let one = of().reserve(usd(0.3)).unwrap();
        let mut file = File::options().append(true).open(&one.path).unwrap();
        file.write_all(b"{\"call\":\"00\",\"pico").unwrap();
        let two = of().reserve(usd(0.2)).unwrap();
        assert_eq!(of().spent(), usd(0.5));
        file.write_all(b"{\"call\":\"00\"").unwrap();
        two.settle(usd(0.1)).unwrap();
        assert_eq!(of().spent(), usd(0.4));
    }

    #[test]
    fn who_holds_it_for_too_long_is_named_by_the_file() {
        let home = tempfile::tempdir().unwrap();
        let held = Allowance::of(home.path(), "a", NOW).unwrap();
        let patience = Duration::from_millis(20);
        let error = Allowance::within(patience, home.path(), "a", NOW).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(error.to_string().contains(held.path.to_str().unwrap()), "{error}");
        assert!(Allowance::within(patience, home.path(), "b", NOW).is_ok(), "another client");
        drop(held);
        assert!(Allowance::within(patience, home.path(), "a", NOW).is_ok());
    }

    #[test]
    fn of_many_at_once_no_more_start_than_the_amount_allows() {
        let home = tempfile::tempdir().unwrap();
        let started: usize = std::thread::scope(|scope| {
            let all: Vec<_> = (0..16)
                .map(|_| {
                    scope.spawn(|| {
                        let held = Allowance::of(home.path(), "a", NOW).unwrap();
                        let fits = held.spent() + usd(0.2) <= usd(1.0);
                        usize::from(fits && held.reserve(usd(0.2)).is_ok())
                    })
                })
                .collect();
            all.into_iter().map(|it| it.join().unwrap()).sum()
        });
        assert_eq!(started, 5);
    }
}
