//! Runs and state directories of the last version, read and resumed by this one. The expected outcomes are those of the
//! last version: see `tests/fixtures/v0.1/README.md`.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use adjutant_core::content_hash;
use serde_json::{Value, json};

use crate::kills::book::Book;
use crate::records::index::assert_index_agrees;
use crate::support::journal::reseal;
use crate::support::mcp_client::Client;
use crate::support::project::Project;
use crate::support::repository::{Repo, fates};
use crate::support::rig::{Output, Rig};

/// Records that are counted: what was asked, done and paid for.
const COUNTED: [&str; 10] = [
    "granted",
    "replied",
    "tool_called",
    "tool_returned",
    "write_prepared",
    "attempt_failed",
    "ended",
    "space_made",
    "space_kept",
    "run_ended",
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/v0.1")
}

/// A state directory of the last version in a place of its own.
struct Left {
    project: Project,
    fixture: Value,
    run: String,
}

impl Left {
    fn new(name: &str) -> Self {
        let from = folder().join(name);
        let rig = Rig::new();
        let fixture = fs::read_to_string(from.join("fixture.json")).unwrap();
        let fixture: Value = serde_json::from_str(&fixture).unwrap();
        let names = names(&rig, &fixture);
        fs::copy(from.join("script.json"), rig.path().join("script.json")).unwrap();
        for (top, modes) in [("work", [0o755, 0o644]), ("state", [0o700, 0o600])] {
            copy(&from, Path::new(top), rig.path(), &names, modes);
        }
        for empty in fixture["folders"].as_array().unwrap() {
            let path = rig.path().join(written_out(empty.as_str().unwrap(), &names));
            fs::create_dir_all(&path).unwrap();
            set_mode(&path, if path.starts_with(rig.work()) { 0o755 } else { 0o700 });
        }
        for (path, mode) in fixture["modes"].as_object().unwrap() {
            let mode = u32::from_str_radix(mode.as_str().unwrap(), 8).unwrap();
            set_mode(&rig.path().join(written_out(path, &names)), mode);
        }
        for run in rig.runs() {
            reseal(&rig.run_folder(&run).join("journal.jsonl"), &run, str::to_owned);
        }
        let run = fixture["run"].as_str().unwrap().to_owned();
        Self { project: Project { repo: Repo { rig } }, fixture, run }
    }

    fn rig(&self) -> &Rig {
        self.project.rig()
    }

    fn journal(&self) -> Vec<u8> {
        fs::read(self.rig().run_folder(&self.run).join("journal.jsonl")).unwrap()
    }

    fn json(&self, args: &[&str]) -> Value {
        let out = self.project.call(args).arg("--json").run();
        assert_eq!(out.code, 0, "{out}");
        out.json()
    }

    /// Reads the run by every command that shows one, which changes nothing of it.
    fn outcome(&self) -> Value {
        let before = self.journal();
        for view in ["status", "tree", "log", "result", "cost"] {
            let out = self.project.call([view, &self.run]).run();
            assert!(out.code <= 3 && !out.stderr.contains("panicked"), "{view}: {out}");
            assert!(!out.stderr.contains("damaged"), "{view}: {out}");
        }
        let run = self.run.as_str();
        let events = self.rig().events(run);
        let count = |kind: &str| events.iter().filter(|event| event["type"] == kind).count();
        let counts =
            COUNTED.iter().map(|kind| (*kind, count(kind))).filter(|(_, count)| *count > 0);
        let result = self.project.call(["result", run, "--json"]).run();
        let results = if result.code == 0 { result.json()["results"].take() } else { json!([]) };
        let end = |one: &Value| json!([one["label"], one["outcome"], one["report"]]);
        let kept = events.iter().filter(|event| event["type"] == "space_kept");
        let kept = kept.map(|event| (event["session"].as_str().unwrap(), self.files_of(event)));
        let outcome = json!({
            "state": self.json(&["status", run])["runs"][0]["state"],
            "results": results.as_array().unwrap().iter().map(end).collect::<Vec<_>>(),
            "cost": self.json(&["cost", run])["total"],
            "kept": kept.collect::<BTreeMap<_, _>>(),
            "records": counts.collect::<BTreeMap<_, _>>(),
        });
        assert_eq!(self.journal(), before, "looking changed the journal");
        outcome
    }

    /// The files of a commit that work was kept in.
    fn files_of(&self, kept: &Value) -> BTreeMap<String, String> {
        let commit = kept["commit"].as_str().unwrap();
        let names = self.project.repo.git(["ls-tree", "-r", "--name-only", commit]);
        let show = |path: &str| self.project.repo.git(["show", &format!("{commit}:{path}")]);
        names.lines().map(|path| (path.to_owned(), show(path) + "\n")).collect()
    }

    /// Resumes the run through the binary.
    fn resume(&self) -> Output {
        let flags = self.fixture["resume"].as_array().unwrap().iter();
        let call = self.project.call(["resume", &self.run, "--yes"]);
        call.args(flags.map(|flag| flag.as_str().unwrap())).run()
    }

    /// Resumes the run and holds it to what the last version made of it.
    fn check(&self, name: &str) {
        assert_eq!(self.outcome(), self.fixture["before"], "{name}, before");
        let before = self.journal();
        let out = self.resume();
        assert_eq!(self.fixture["code"], out.code, "{name}: {out}");
        assert!(self.journal().starts_with(&before), "{name}: what was recorded has changed");
        assert_eq!(self.outcome(), self.fixture["after"], "{name}, resumed: {out}");
        // Fails where a call was answered twice.
        let _ = Book::read(&self.rig().run_folder(&self.run).join("journal.jsonl")).calls();
        for (path, content) in self.fixture["files"].as_object().unwrap() {
            let (was, is) = (content.as_str().unwrap(), self.project.repo.read(path));
            if path == "prd.json" {
                assert_eq!(stories(&is), stories(was), "{name}");
            } else {
                assert_eq!(is, was, "{name}: {path}");
            }
        }
    }
}

/// What a PRD says of each story, without the time and the commit that holds it.
fn stories(prd: &str) -> Vec<Value> {
    let mut prd: Value = serde_json::from_str(prd).unwrap();
    let stories = prd["userStories"].as_array_mut().unwrap();
    for story in &mut *stories {
        if let Some(outcome) = story["adjutant"].as_object_mut() {
            outcome.retain(|key, _| !["finished", "commit"].contains(&key.as_str()));
        }
    }
    std::mem::take(stories)
}

/// The present values of the placeholders in a fixture.
fn names(rig: &Rig, fixture: &Value) -> Vec<(String, String)> {
    let (place, work) = (rig.path().display().to_string(), rig.work().display().to_string());
    let prd = format!("{work}/prd.json");
    let fnv = work.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let day = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() / 86_400;
    let mut names = vec![
        ("$TREE".to_owned(), format!("{fnv:016x}")),
        ("$MERGES".to_owned(), content_hash(work.as_bytes())[..16].to_owned()),
        ("$DAY".to_owned(), day.to_string()),
    ];
    for story in ["US-001", "US-002", "US-003"] {
        let claim = content_hash(format!("{prd}\0{story}").as_bytes());
        names.push((format!("$CLAIM_{story}"), claim));
    }
    if let Some(wishes) = fixture["hashed"]["$CONSENT"].as_str() {
        let parts = ["adjutant prd wishes at 1", wishes, &prd];
        let part = |text: &&str| [&(text.len() as u64).to_be_bytes()[..], text.as_bytes()].concat();
        let parts: Vec<u8> = parts.iter().flat_map(part).collect();
        names.push(("$CONSENT".to_owned(), content_hash(&parts)));
    }
    if let Some(call) = fixture["hashed"]["$CALL"].as_str() {
        let call = call.replace("$PLACE", &place);
        names.push(("$CALL".to_owned(), content_hash(call.as_bytes())));
    }
    names.push(("$PLACE".to_owned(), place));
    names
}

fn written_out(text: &str, names: &[(String, String)]) -> String {
    let text = names.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to));
    text.replace("/dot-git", "/.git")
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn copy(from: &Path, path: &Path, to: &Path, names: &[(String, String)], modes: [u32; 2]) {
    let target = to.join(written_out(path.to_str().unwrap(), names));
    fs::create_dir_all(&target).unwrap();
    for entry in fs::read_dir(from.join(path)).unwrap().map(Result::unwrap) {
        let path = path.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(from, &path, to, names, modes);
            continue;
        }
        let target = to.join(written_out(path.to_str().unwrap(), names));
        let bytes = fs::read(entry.path()).unwrap();
        // Git objects and indexes are binary and contain no path of the test directory.
        let bytes = match String::from_utf8(bytes) {
            Ok(text) => written_out(&text, names).into_bytes(),
            Err(error) => error.into_bytes(),
        };
        fs::write(&target, bytes).unwrap();
        set_mode(&target, modes[1]);
    }
    set_mode(&target, modes[0]);
}

fn fixtures() -> Vec<String> {
    let entries = fs::read_dir(folder()).unwrap().map(Result::unwrap);
    let fixtures = entries.filter(|entry| entry.path().is_dir());
    let mut names: Vec<String> =
        fixtures.map(|entry| entry.file_name().into_string().unwrap()).collect();
    names.sort_unstable();
    assert!(names.len() >= 17, "{names:?}");
    names
}

#[test]
fn every_run_of_the_last_version_is_read_and_resumes_to_the_same_end() {
    for name in fixtures() {
        Left::new(&name).check(&name);
    }
}

#[test]
fn lists_of_runs_of_the_last_version_are_the_same_with_and_without_an_index() {
    for name in fixtures() {
        let left = Left::new(&name);
        let rig = left.rig();
        assert_index_agrees(rig);
        if rig.runs().len() == 1 {
            let of_run = left.json(&["cost", &left.run]);
            assert_eq!(left.json(&["cost", "--by", "day"])["total"], of_run["total"], "{name}");
            let errors = left.json(&["errors", &left.run, "--all"]);
            assert_eq!(left.json(&["errors", "--all"]), errors, "{name}");
        }
    }
}

#[test]
fn an_open_question_of_the_last_version_stays_open_until_it_is_answered() {
    let left = Left::new("question-open");
    let before = left.journal();
    let out = left.project.call(["resume", &left.run]).run();
    assert_eq!(out.code, 4, "{out}");
    assert!(out.stderr.contains("waits for an answer"), "{out}");
    assert_eq!(left.journal(), before, "nothing was answered");
    assert_eq!(left.resume().code, 0);
}

#[test]
fn a_repeated_call_finds_its_run_and_todays_auto_approvals_still_count() {
    let left = Left::new("mcp-call");
    assert_eq!(left.resume().code, 0);
    let flags: Vec<&str> =
        left.fixture["made_by"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let mut client = Client::start_on(left.rig(), "script:../script.json", &flags, &[]);
    client.initialize("tester", "2025-11-25");
    let call = |prompt: &str| json!({ "tasks": [{ "label": "slow", "prompt": prompt }] });
    let again = client.data("delegate_start", call("Look around"));
    assert_eq!((&again["run"], &again["repeated"]), (&json!(left.run), &json!(true)), "{again}");
    // The process that was killed left its worst case of $1 of the $2.
    let second = client.data("delegate_start", call("Look up"));
    assert_ne!(second["state"], "awaiting_approval", "{second}");
    let third = client.data("delegate_start", call("Look down"));
    assert_eq!(third["state"], "awaiting_approval", "{third}");
}

#[test]
fn a_half_finished_story_of_the_last_version_is_not_started_again_and_the_others_run() {
    let left = Left::new("story-half-way");
    let out = left.project.story(&["--story", "US-002"]);
    assert!(out.stdout.contains(&format!("adjutant resume {}", left.run)), "{out}");
    assert_eq!(left.rig().runs().len(), 2, "{out}");
    assert_eq!(left.resume().code, 0);
    let out = left.project.story(&[]);
    assert_eq!(out.code, 0, "{out}");
    assert_eq!(left.rig().runs().len(), 3, "{out}");
    for story in ["US-001", "US-002", "US-003"] {
        assert_eq!(left.project.entry(story)["passes"], true, "{out}");
    }
}

#[test]
fn consent_given_to_the_last_version_still_counts() {
    let left = Left::new("verifying");
    let json = left.project.json(&["--again"], 0);
    assert_eq!(left.rig().runs().len(), 2, "{json:#}");
    assert_eq!(left.project.entry("US-001")["passes"], true, "{json:#}");
}

#[test]
fn a_result_merged_by_the_last_version_is_recognised_and_can_be_undone() {
    let left = Left::new("merged");
    let merge = |args: &[&str]| left.json(&[&["merge", &left.run], args].concat());
    assert_eq!(fates(&merge(&[])), ["already"]);
    assert_eq!(fates(&merge(&["--undo"])), ["taken_back"]);
    assert!(!left.rig().work().join("made").exists());
    assert_eq!(fates(&merge(&[])), ["merged"]);
    assert_eq!(left.project.repo.read("made"), "made\n");
}
