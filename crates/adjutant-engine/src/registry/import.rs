//! Importing the files of versions that had no registry, when there is no registry yet.
//!
//! Imported are consents, the automatic approvals of each day, and which call started which run. Places and claims
//! were locks of live processes and end with them. Old questions are read on every query, because a process of an
//! earlier version may still ask some. The old files are not removed.

use std::collections::BTreeMap;
use std::fs::{self, DirEntry};
use std::path::Path;
use std::time::UNIX_EPOCH;

use adjutant_core::registry::{CallKey, ImportedCall, ImportedDay, QuestionPointer};
use adjutant_core::{RegistryCommand, RunId, Usd};
use serde::Deserialize;

use super::question_id;

/// The largest file that is imported.
const FILE_BYTES: u64 = 16 << 20;

/// A line of a day's allowance file. A later line of the same call replaces the earlier one.
#[derive(Deserialize)]
struct AllowanceLine {
    call: String,
    pico_usd: u64,
}

/// Returns the import command for a state directory. Unreadable files are left out.
pub(super) fn command(home: &Path) -> RegistryCommand {
    let consents = entries(&home.join("consents")).into_iter().filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let is_digest =
            name.len() == 64 && name.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        (is_digest && entry.file_type().is_ok_and(|kind| kind.is_file())).then_some(name)
    });
    let days = entries(&home.join("allowances")).into_iter().filter_map(|entry| day(&entry));
    let calls = entries(&home.join("mcp")).into_iter().filter_map(|entry| call(&entry));
    RegistryCommand::Import {
        consents: consents.collect(),
        days: days.collect(),
        calls: calls.collect(),
    }
}

/// Returns the questions that processes of earlier versions registered, with their ids.
pub(super) fn questions(home: &Path) -> impl Iterator<Item = (String, QuestionPointer)> {
    entries(&home.join("approvals")).into_iter().filter_map(|entry| {
        let question: QuestionPointer = serde_json::from_str(&text(&entry)?).ok()?;
        let id = question_id(&question.hash);
        (entry.file_name().to_str() == Some(&format!("{id}.json"))).then_some((id, question))
    })
}

fn entries(folder: &Path) -> Vec<DirEntry> {
    let mut entries: Vec<_> = fs::read_dir(folder).into_iter().flatten().flatten().collect();
    entries.sort_by_key(DirEntry::file_name);
    entries
}

fn text(entry: &DirEntry) -> Option<String> {
    // Metadata of the entry itself: symbolic links are not followed.
    let is_small = entry.metadata().is_ok_and(|it| it.is_file() && it.len() <= FILE_BYTES);
    if is_small { fs::read_to_string(entry.path()).ok() } else { None }
}

fn day(entry: &DirEntry) -> Option<ImportedDay> {
    let name = entry.file_name().into_string().ok()?;
    let day = name.strip_suffix("-all")?.parse().ok()?;
    let text = text(entry)?;
    let lines = text.lines().filter_map(|line| serde_json::from_str::<AllowanceLine>(line).ok());
    let calls: BTreeMap<String, u64> = lines.map(|line| (line.call, line.pico_usd)).collect();
    let spent = calls.values().map(|pico| Usd::from_pico(*pico)).sum();
    Some(ImportedDay { day, spent })
}

fn call(entry: &DirEntry) -> Option<ImportedCall> {
    let call = CallKey::new(entry.file_name().into_string().ok()?);
    let run: RunId = text(entry)?.lines().next()?.parse().ok()?;
    let modified = entry.metadata().ok()?.modified().ok()?;
    let since = modified.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    Some(ImportedCall { call, run, since_ms: u64::try_from(since).unwrap_or(u64::MAX) })
}
