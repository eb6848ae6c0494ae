//! An independent reader of journals, written after `docs/journal.md` without code of the product.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::Value;

use super::cast::GOAL;

/// The words that identify a conversation, and the number of a turn from 0.
pub(crate) type Turn = (String, u64);

/// The events of a journal that count.
#[derive(Debug, Default)]
pub(crate) struct Book {
    pub(crate) events: Vec<Value>,
}

impl Book {
    /// Reads a journal: a last line without its end, and records that wait for more, do not count.
    pub(crate) fn read(journal: &Path) -> Self {
        let bytes = fs::read(journal).unwrap_or_default();
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let mut events = Vec::new();
        let mut group = Vec::new();
        for line in bytes[..whole].split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let mut record: Value = serde_json::from_slice(line).unwrap();
            group.push(record["event"].take());
            if record["more"] != true {
                events.append(&mut group);
            }
        }
        Self { events }
    }

    pub(crate) fn of(&self, kind: &str) -> impl Iterator<Item = &Value> {
        self.events.iter().filter(move |event| event["type"] == kind)
    }

    pub(crate) fn began(&self) -> bool {
        !self.events.is_empty()
    }

    /// Returns whether the run ended and was not resumed.
    pub(crate) fn is_over(&self) -> bool {
        // What was merged is recorded after the end.
        let mut events = self.events.iter().filter(|event| event["type"] != "result_merged");
        events.next_back().is_some_and(|event| event["type"] == "run_ended")
    }

    /// Names every session by the first words it was given.
    fn names(&self) -> BTreeMap<&str, String> {
        let mut names = BTreeMap::new();
        for event in &self.events {
            match event["type"].as_str() {
                Some("run_started") => {
                    let root = event["run"].as_str().unwrap().strip_prefix("run_").unwrap();
                    names.insert(root, GOAL.to_owned());
                }
                Some("granted") => {
                    let session = event["session"].as_str().unwrap();
                    let prompt = event["brief"]["prompt"].as_str().unwrap();
                    names.insert(session.strip_prefix("sess_").unwrap(), prompt.to_owned());
                }
                _ => {}
            }
        }
        names
    }

    /// Returns the turns that are answered.
    pub(crate) fn answered(&self) -> BTreeSet<Turn> {
        let names = self.names();
        let turn = |event: &Value| {
            let session = event["session"].as_str().unwrap().strip_prefix("sess_").unwrap();
            (names[session].clone(), event["turn"].as_u64().unwrap() - 1)
        };
        self.of("replied").map(turn).collect()
    }

    /// Returns each tool call with its name, arguments and result; `None` while it runs.
    pub(crate) fn calls(&self) -> Vec<(String, Value, Option<String>)> {
        let mut latest: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        let mut calls: Vec<(String, Value, Option<String>)> = Vec::new();
        let mut begun = BTreeSet::new();
        for event in &self.events {
            let session = event["session"].as_str().unwrap_or_default();
            let number = || usize::try_from(event["call"].as_u64().unwrap()).unwrap();
            match event["type"].as_str() {
                Some("replied") => {
                    let made = event["tool_calls"].as_array().into_iter().flatten();
                    let places = made.map(|call| {
                        let name = call["name"].as_str().unwrap().to_owned();
                        calls.push((name, call["arguments"].clone(), None));
                        calls.len() - 1
                    });
                    latest.insert(session, places.collect());
                }
                Some("tool_called") => drop(begun.insert(latest[session][number()])),
                Some("tool_returned") => {
                    let answer = &mut calls[latest[session][number()]].2;
                    assert_eq!(*answer, None, "answered twice: {event}");
                    *answer = Some(event["content"].as_str().unwrap().to_owned());
                }
                _ => {}
            }
        }
        let begun = |(place, call)| begun.contains(&place).then_some(call);
        calls.into_iter().enumerate().filter_map(begun).collect()
    }

    /// Returns whether a tool was running; delegating does not count as a tool.
    pub(crate) fn is_in_tool(&self) -> bool {
        self.calls().iter().any(|(name, _, answer)| name != "Delegate" && answer.is_none())
    }

    /// Returns the tokens that were settled.
    pub(crate) fn settled(&self) -> u64 {
        let usage = self.events.iter().filter_map(|event| event.pointer("/settlement/usage"));
        usage.map(|usage| tokens(usage, &["input", "output"])).sum()
    }
}

/// Sums fields; an absent field counts as zero.
pub(crate) fn tokens(usage: &Value, fields: &[&str]) -> u64 {
    fields.iter().map(|field| usage[*field].as_u64().unwrap_or(0)).sum()
}
