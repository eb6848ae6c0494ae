//! Reads a long journal on one thread while the caller's thread uses the records.

use std::sync::mpsc::sync_channel;
use std::thread;

use adjutant_core::Event;
use adjutant_store::{JournalReader, JournalRecord, ReadError};

/// The bytes from which on a thread of its own is worth its start.
const LONG_BYTES: u64 = 512 * 1024;

/// The bytes of the records that are handed over at once.
const BATCH_BYTES: u64 = 64 * 1024;

/// How many batches may wait: enough that neither side waits for the other, and little memory.
const WAITING_BATCHES: usize = 2;

/// Passes the remaining records of a journal, of about `bytes` bytes, to `visit`. The reader is at the end afterwards.
pub(crate) fn visit_records(
    reader: &mut JournalReader<Event>,
    bytes: u64,
    mut visit: impl FnMut(&JournalRecord<Event>),
) -> Result<(), ReadError> {
    if bytes < LONG_BYTES {
        return reader.try_for_each(|record| record.map(|record| visit(&record)));
    }
    thread::scope(|scope| {
        let (send, receive) = sync_channel(WAITING_BATCHES);
        scope.spawn(move || {
            loop {
                let batch = next_batch(reader);
                if batch.is_empty() || send.send(batch).is_err() {
                    break;
                }
            }
        });
        receive.into_iter().flatten().try_for_each(|record| record.map(|record| visit(&record)))
    })
}

fn next_batch(reader: &mut JournalReader<Event>) -> Vec<Result<JournalRecord<Event>, ReadError>> {
    let mut batch = Vec::new();
    let end = JournalReader::position(reader).offset + BATCH_BYTES;
    while JournalReader::position(reader).offset < end {
        match reader.next() {
            Some(record) => batch.push(record),
            None => break,
        }
    }
    batch
}
