//! Agents that change files, and the invariants of these files: each reported change is present once, nothing is
//! half written, and `undo` restores everything.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use adjutant_core::content_hash;
use adjutant_testkit::fake::Turn;
use serde_json::{Value, json};

use super::book::Book;
use super::cast::LOOKS;
use crate::support::rig::Rig;

/// Three concurrent agents that may write anywhere.
pub(crate) const FLAGS: [&str; 7] =
    ["--preset", "command", "--in-place", "--set", "contract=report", "--set", "tasks_per_call=3"];

/// The file that all of them edit.
const SHARED: &str = "shared.txt";

/// The line before which every edit inserts its own.
const END: &str = "END";

/// The file that only this agent edits.
fn own(who: &str) -> String {
    format!("own/{}.txt", who.replace(' ', "-"))
}

/// The file that only this agent creates and then overwrites.
fn made(who: &str) -> String {
    format!("made/{}/new.txt", who.replace(' ', "-"))
}

/// Content and mode of every file before the run.
fn before() -> BTreeMap<String, (String, u32)> {
    let own_files = LOOKS.iter().zip([0o750, 0o600, 0o664]).map(|(who, mode)| {
        // Both kinds of line endings, and none at the end: bytes outside the edit must stay.
        (own(who), (format!("{who}\r\n{END}\nthe rest"), mode))
    });
    let shared = (SHARED.to_owned(), (format!("{END}\n"), 0o640));
    let map = ("map.txt".to_owned(), ("x marks the spot\n".to_owned(), 0o644));
    own_files.chain([shared, map]).collect()
}

/// Creates the files.
pub(crate) fn lay_out(rig: &Rig) {
    for (path, (content, mode)) in before() {
        let path = rig.write(&path, content);
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
}

/// The replies of one agent: consecutive edits of one file, within an answer and across answers.
pub(crate) fn turns(who: &str) -> [Turn; 4] {
    let edit = |turn: Turn, path: &str, mark: &str| {
        let new = format!("{who}, {mark}\n{END}");
        let arguments = json!({ "file_path": path, "old_string": END, "new_string": new });
        turn.and_calls("Edit", &arguments)
    };
    let write = |turn: Turn, content: &str| {
        turn.and_calls("Write", &json!({ "file_path": made(who), "content": content }))
    };
    let (own, says) = (own(who), Turn::says);
    let first = edit(edit(edit(says("Three."), &own, "1"), &own, "2"), &own, "3");
    let second = edit(edit(write(says("Two."), "one\n"), SHARED, "4"), &own, "5");
    let third = edit(edit(write(says("Again."), "two\n"), SHARED, "6"), &own, "7");
    [first, second, third, says(&format!("{who}: written."))]
}

/// The outcome of a call according to its tool result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Done,
    NotDone,
    Unknown,
}

fn fate(path: &str, answer: &str) -> Fate {
    let says = |words: &str| answer.starts_with(words);
    if says("Replaced") || says("Created") || says("Interrupted, but it was done") {
        Fate::Done
    } else if says("Interrupted before it was done") {
        Fate::NotDone
    } else if path == SHARED && says("Interrupted, outcome unknown") {
        Fate::Unknown
    } else {
        let lost = path == SHARED && answer.contains("was changed by someone else in the meantime");
        assert!(lost, "{path}: {answer}");
        Fate::NotDone
    }
}

/// Checks the files against the tool results, and undoes everything.
pub(crate) fn check(rig: &Rig, run: &str, book: &Book) {
    let calls = book.calls().into_iter().filter_map(|(name, arguments, answer)| {
        let path = arguments["file_path"].as_str()?.to_owned();
        let fate = fate(&path, &answer.unwrap());
        Some((name, path, arguments, fate))
    });
    let calls: Vec<(String, String, Value, Fate)> = calls.collect();
    assert_eq!(calls.len(), 9 * LOOKS.len(), "a call is missing");
    let mut expected = before();
    let mut doubtful = BTreeSet::new();
    for (name, path, arguments, fate) in &calls {
        let word = |name: &str| arguments[name].as_str().unwrap();
        if *fate == Fate::Unknown {
            doubtful.insert(word("new_string").lines().next().unwrap().to_owned());
        }
        if *fate != Fate::Done {
            continue;
        }
        if name == "Write" {
            expected.insert(path.clone(), (word("content").to_owned(), 0o644));
        } else {
            let content = &mut expected.get_mut(path).unwrap().0;
            *content = content.replace(word("old_string"), word("new_string"));
        }
    }
    let shared = expected.remove(SHARED).unwrap();
    let mut found = look(rig);
    shared_holds(&found.remove(SHARED).unwrap(), &shared, &doubtful);
    assert_eq!(found, expected, "the files are not what the agents were told: {calls:?}");
    images_are_kept(rig, run, book);
    taken_back(rig, run);
}

/// Every line whose edit was reported as done is in the file once, in any order.
fn shared_holds(found: &(String, u32), expected: &(String, u32), doubtful: &BTreeSet<String>) {
    let sorted = |text: &str| {
        let certain = text.lines().filter(|line| !doubtful.contains(*line));
        let mut lines: Vec<String> = certain.map(str::to_owned).collect();
        lines.sort_unstable();
        lines
    };
    assert_eq!(sorted(&found.0), sorted(&expected.0), "lost or doubled in the shared file");
    for line in doubtful {
        assert!(found.0.lines().filter(|it| it == line).count() <= 1, "{line} is there twice");
    }
    assert!(found.0.ends_with(&format!("{END}\n")), "{found:?}");
    assert_eq!(found.1, expected.1, "the mode of the shared file");
}

/// Reads every file of the work tree, whatever its name.
fn look(rig: &Rig) -> BTreeMap<String, (String, u32)> {
    let mut files = BTreeMap::new();
    let mut folders = vec![rig.work()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
                continue;
            }
            let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
            let path = entry.path().strip_prefix(rig.work()).unwrap().display().to_string();
            files.insert(path, (fs::read_to_string(entry.path()).unwrap(), mode));
        }
    }
    files
}

/// What every change replaced lies in the run's folder under the hash of its content.
fn images_are_kept(rig: &Rig, run: &str, book: &Book) {
    let folder = rig.run_folder(run).join("before");
    for prepared in book.of("write_prepared") {
        let Some(hash) = prepared["before"].as_str() else { continue };
        let kept = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
        let image = kept.into_iter().find(|path| file_name(path).starts_with(hash));
        let bytes = fs::read(image.unwrap_or_else(|| panic!("no image for {prepared}"))).unwrap();
        assert_eq!(content_hash(&bytes), hash, "an image is damaged");
    }
}

fn file_name(path: &Path) -> &str {
    path.file_name().unwrap().to_str().unwrap()
}

/// Undo restores every byte and removes created files.
fn taken_back(rig: &Rig, run: &str) {
    let out = rig.run(["undo", run, "--json"]);
    assert_eq!(out.code, 0, "{out}");
    assert_eq!(look(rig), before(), "it was not taken back: {out}");
    let again = rig.run(["undo", run, "--json"]).json();
    let files = again["files"].as_array().unwrap();
    assert!(files.iter().all(|file| file["fate"] == "unchanged"), "{again}");
}
