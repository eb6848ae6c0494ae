//! Journals as bytes, for tests that damage them. The format is that of `docs/journal.md`.

use std::fs::{self, FileTimes};
use std::path::Path;
use std::time::{Duration, SystemTime};

/// The length of `,"crc":"…"}` and the line break.
const SEAL: usize = 19;

/// Returns the records of a journal as they lie on disk, line breaks included.
pub(crate) fn lines(journal: &[u8]) -> Vec<&[u8]> {
    journal.split_inclusive(|byte| *byte == b'\n').collect()
}

/// Changes one bit in the middle of a line, counted from 1.
pub(crate) fn damage(path: &Path, line: usize) {
    let mut bytes = fs::read(path).unwrap();
    let all = lines(&bytes);
    let before: usize = all[..line - 1].iter().map(|line| line.len()).sum();
    let middle = before + all[line - 1].len() / 2;
    bytes[middle] ^= 1;
    fs::write(path, bytes).unwrap();
}

/// Rewrites a journal as one of format 2, correctly sealed.
pub(crate) fn from_the_future(path: &Path, run: &str) {
    reseal(path, run, |body| body.replacen("{\"v\":1,", "{\"v\":2,", 1));
}

/// Makes a run one of 90 days and one boot ago.
pub(crate) fn age(folder: &Path, run: &str) {
    let journal = folder.join("journal.jsonl");
    reseal(&journal, run, |body| {
        let (before, rest) = body.split_once("\"wall\":").unwrap();
        let (wall, after) = rest.split_once(',').unwrap();
        let wall = wall.parse::<u64>().unwrap() - AGE.as_secs() * 1000;
        format!("{before}\"wall\":{wall},{after}")
    });
    let file = fs::File::options().append(true).open(journal).unwrap();
    file.set_times(FileTimes::new().set_modified(SystemTime::now() - AGE)).unwrap();
    let lock = fs::read_to_string(folder.join("lock")).unwrap();
    let mut lock: serde_json::Value = serde_json::from_str(&lock).unwrap();
    for boot in ["/boot", "/since/boot"] {
        *lock.pointer_mut(boot).unwrap() = "00000000-0000-0000-0000-000000000000".into();
    }
    fs::write(folder.join("lock"), lock.to_string()).unwrap();
}

/// Adds an event to the end of a journal, correctly sealed.
pub(crate) fn append(path: &Path, run: &str, event: &serde_json::Value) {
    let bytes = fs::read(path).unwrap();
    let mut last: serde_json::Value =
        serde_json::from_slice(lines(&bytes).last().unwrap()).unwrap();
    let seq = last["seq"].as_u64().unwrap() + 1;
    let (at, wall) = (last["at"].take(), last["wall"].take());
    let body = format!(r#"{{"v":1,"seq":{seq},"at":{at},"wall":{wall},"event":{event}"#);
    let mut journal = bytes;
    journal.extend(format!("{body},\"crc\":\"00000000\"}}\n").bytes());
    fs::write(path, journal).unwrap();
    reseal(path, run, str::to_owned);
}

const AGE: Duration = Duration::from_secs(90 * 86_400);

/// Changes every record and seals it again.
pub(crate) fn reseal(path: &Path, run: &str, change: impl Fn(&str) -> String) {
    let mut chain = crc32c(0, run.as_bytes());
    let mut changed = String::new();
    for line in lines(&fs::read(path).unwrap()) {
        let body = change(std::str::from_utf8(&line[..line.len() - SEAL]).unwrap());
        chain = crc32c(chain, body.as_bytes());
        changed += &format!("{body},\"crc\":\"{chain:08x}\"}}\n");
    }
    fs::write(path, changed).unwrap();
}

/// CRC32C, bit by bit: slow, and plainly what the document says.
fn crc32c(start: u32, bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!start, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 }
        })
    })
}

#[test]
fn the_checksum_matches_the_documented_algorithm() {
    assert_eq!(crc32c(0, b"123456789"), 0xe306_9283);
}
