//! Journals as bytes, for tests that harm them. The format is that of `docs/journal.md`.

use std::fs;
use std::path::Path;

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
    let mut chain = crc32c(0, run.as_bytes());
    let mut future = Vec::new();
    for line in lines(&fs::read(path).unwrap()) {
        let body = [br#"{"v":2"#, &line[6..line.len() - SEAL]].concat();
        chain = crc32c(chain, &body);
        future.extend(body);
        future.extend(format!(",\"crc\":\"{chain:08x}\"}}\n").bytes());
    }
    fs::write(path, future).unwrap();
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
fn the_checksum_here_is_that_of_the_document() {
    assert_eq!(crc32c(0, b"123456789"), 0xe306_9283);
}
