//! The registry on disk: several processes, crashes, damage, growth, and files of earlier versions.
//!
//! Each handle stands for a process: it has its own lock file, which is unlocked when the handle is dropped.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::fs::{self, File};
use std::path::Path;

use adjutant_core::budget::{BudgetAmount, BudgetCap};
use adjutant_core::registry::{
    CallKey, DelegationSample, HolderId, SampleGroup, SampleKey, StoryEnd, StoryKey, TreeKey,
};
use adjutant_core::{Preset, Registry, RegistryCommand, RegistryEvent, RunId, Usd};
use adjutant_engine::{Archive, RegistryError, RegistryHandle};
use adjutant_store::SharedLog;
use tempfile::TempDir;

const DAY: u64 = 20_000;
const NOW: u64 = DAY * 24 * 60 * 60 * 1000;

fn now() -> u64 {
    NOW
}

fn process(home: &Path) -> RegistryHandle {
    RegistryHandle::with_clock(home, now)
}

fn run(number: usize) -> RunId {
    format!("run_1735460684_{number:06}").parse().unwrap()
}

fn usd(dollars: f64) -> Usd {
    Usd::from_dollars(dollars).unwrap()
}

fn sampled(model: &str, tokens: u64) -> SampleGroup {
    let key = SampleKey { preset: Preset::Scout, model: model.to_owned(), worker: None };
    SampleGroup { key, samples: vec![DelegationSample::new(tokens, Some(usd(0.012)), 95_000)] }
}

fn story() -> StoryKey {
    StoryKey { prd: "/work/prd.json".to_owned(), id: "S-1".to_owned() }
}

fn claim(by: &RegistryHandle) -> Result<Vec<RegistryEvent>, RegistryError> {
    let holder = by.holder()?;
    by.submit(RegistryCommand::ClaimStory { holder, story: story() })
}

fn admit(by: &RegistryHandle, number: usize) -> Result<Vec<RegistryEvent>, RegistryError> {
    let (holder, run) = (by.holder()?, run(number));
    let tree = TreeKey::new("/work");
    by.submit(RegistryCommand::AdmitRun { holder, run, tree, max_runs: 2, call: None })
}

fn said(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[test]
fn holdings_are_released_by_command_or_by_the_end_of_the_process() {
    let home = TempDir::new().unwrap();
    let (one, other) = (process(home.path()), process(home.path()));
    claim(&one).unwrap();
    let pid = std::process::id();
    let refused = claim(&other).unwrap_err();
    assert_eq!(refused.to_string(), format!("process {pid} works on it"));
    let (holder, story) = (one.holder().unwrap(), story());
    drop(one.on_drop(RegistryCommand::ReleaseStory { holder, story }));
    claim(&other).unwrap();
    admit(&other, 1).unwrap();
    admit(&one, 2).unwrap();
    assert!(admit(&one, 3).unwrap_err().to_string().starts_with("QUEUE_FULL: 2 runs"));
    let dead = other.holder().unwrap();
    assert!(one.is_alive(&dead).unwrap());
    drop(other);
    assert!(!one.is_alive(&dead).unwrap());
    admit(&one, 3).unwrap();
    claim(&one).unwrap();
    let holders =
        one.read_unlocked().unwrap().holders().map(|(id, _)| id.clone()).collect::<Vec<_>>();
    assert_eq!(holders, [one.holder().unwrap()]);
    let files = fs::read_dir(home.path().join("holders")).unwrap();
    assert_eq!(files.count(), 1, "the file of the dead process is removed");
}

#[test]
fn concurrent_processes_stay_within_the_allowance() {
    let home = TempDir::new().unwrap();
    let reserve = |number| {
        let own = process(home.path());
        let (holder, run) = (own.holder().unwrap(), run(number));
        let (amount, limit) = (usd(0.2), usd(1.0));
        let command = RegistryCommand::ReserveAllowance { holder, run, amount, limit };
        usize::from(own.submit(command).is_ok())
    };
    let started: usize = std::thread::scope(|scope| {
        let all: Vec<_> = (0..16).map(|number| scope.spawn(move || reserve(number))).collect();
        all.into_iter().map(|it| it.join().unwrap()).sum()
    });
    assert_eq!(started, 5);
}

use ExpectedRegistry::{Cut, Refused};

/// The expected behaviour for a damaged registry.
enum ExpectedRegistry {
    /// An error that names the line; the file is not changed.
    Refused(u32),
    /// The incomplete last decision is cut; this many runs have a place.
    Cut { runs: usize },
}

/// Changes one letter of a line.
fn changed(text: &str, line: usize) -> String {
    let mut lines: Vec<String> = text.split_inclusive('\n').map(str::to_owned).collect();
    lines[line] = lines[line].replacen("\"event\"", "\"evenT\"", 1);
    lines.concat()
}

fn without_end(text: &str, bytes: usize) -> String {
    text[..text.len() - bytes].to_owned()
}

#[test]
fn only_an_incomplete_last_record_is_cut_and_other_damage_is_an_error() {
    let home = TempDir::new().unwrap();
    let one = process(home.path());
    let path = home.path().join("registry.jsonl");
    admit(&one, 1).unwrap();
    let first = fs::read_to_string(&path).unwrap();
    admit(&one, 2).unwrap();
    let intact = fs::read_to_string(&path).unwrap();
    assert_eq!(intact.lines().count(), 3, "a process and a run, and another run");
    let other = TempDir::new().unwrap();
    let log = SharedLog::new(other.path(), "registry");
    let checkpoint = one.read_unlocked().unwrap().checkpoint();
    log.lock::<RegistryEvent>(|_| ()).unwrap().replace(NOW, &checkpoint).unwrap();
    let checkpoint = fs::read_to_string(log.path()).unwrap();
    let shapes = [
        ("a last line without its end", without_end(&intact, 9), Cut { runs: 1 }),
        ("a last line without its break", without_end(&intact, 1), Cut { runs: 1 }),
        ("a changed last line", changed(&intact, 2), Cut { runs: 1 }),
        ("a beginning behind the last line", intact.clone() + "{\"v\":1,\"se", Cut { runs: 2 }),
        ("a changed first line", changed(&intact, 0), Refused(1)),
        ("a changed line in the middle", changed(&intact, 1), Refused(2)),
        ("two lines of something else behind", intact.clone() + "odd\nodd\n", Refused(4)),
        ("one line of something else", "odd\n".to_owned(), Refused(1)),
        ("two lines of something else", "odd\nodd\n".to_owned(), Refused(1)),
        ("something else without a break", "odd".to_owned(), Refused(1)),
        ("zeros", "\0".repeat(4096), Refused(1)),
        ("nothing", String::new(), Refused(1)),
        ("a changed checkpoint", changed(&checkpoint, 0), Refused(1)),
        ("half a checkpoint", without_end(&checkpoint, checkpoint.len() / 2), Refused(1)),
        ("half of the first decision", without_end(&first, 9), Refused(1)),
        ("a part of the first line", first[..20].to_owned(), Refused(1)),
    ];
    for (name, text, expected) in shapes {
        fs::write(&path, &text).unwrap();
        match expected {
            Refused(line) => {
                let place = format!("damaged at line {line} ");
                for error in
                    [said(&admit(&one, 3).unwrap_err()), said(&one.read_unlocked().unwrap_err())]
                {
                    assert!(error.contains("registry.jsonl cannot be read"), "{name}: {error}");
                    assert!(error.contains(&place), "{name}: {error}");
                }
                assert_eq!(fs::read_to_string(&path).unwrap(), text, "{name}");
            }
            Cut { runs } => {
                assert_eq!(one.read_unlocked().unwrap().live_runs().count(), runs, "{name}");
                one.submit(RegistryCommand::EndRun { run: run(1) }).unwrap();
                assert_eq!(one.read_unlocked().unwrap().live_runs().count(), runs - 1, "{name}");
            }
        }
    }
}

#[test]
fn registry_cut_at_any_byte_keeps_all_complete_decisions() {
    let home = TempDir::new().unwrap();
    let one = process(home.path());
    let path = home.path().join("registry.jsonl");
    // The state after each decision, with the length of the file then.
    let mut known = Vec::new();
    let mut note =
        || known.push((fs::metadata(&path).unwrap().len(), one.read_unlocked().unwrap()));
    admit(&one, 1).unwrap();
    note();
    claim(&one).unwrap();
    note();
    // A group of records: a dead process is released and another joins.
    let other = process(home.path());
    admit(&other, 2).unwrap();
    note();
    drop(other);
    one.submit(RegistryCommand::EndRun { run: run(1) }).unwrap();
    note();
    let whole = fs::read(&path).unwrap();
    let first = usize::try_from(known[0].0).unwrap();
    for cut in first..=whole.len() {
        fs::write(&path, &whole[..cut]).unwrap();
        let before = known.iter().rfind(|(bytes, _)| *bytes <= cut as u64);
        assert_eq!(one.read_unlocked().unwrap(), before.unwrap().1, "{cut}");
        let digest = "ab".repeat(32);
        one.submit(RegistryCommand::GiveConsent { digest: digest.clone() }).unwrap();
        assert!(one.read_unlocked().unwrap().has_consent(&digest), "{cut}");
    }
}

#[test]
fn reading_runs_creates_no_registry() {
    let home = TempDir::new().unwrap();
    let archive = Archive::open(home.path()).unwrap();
    assert!(archive.runs().unwrap().is_empty());
    assert_eq!(archive.registry().read_unlocked().unwrap(), Registry::default());
    assert!(!home.path().join("registry.jsonl").exists());
    assert!(!home.path().join("holders").exists());
}

#[test]
fn files_of_earlier_versions_are_imported_once() {
    let home = TempDir::new().unwrap();
    let digest = "ab".repeat(32);
    for folder in ["consents", "allowances", "mcp"] {
        fs::create_dir(home.path().join(folder)).unwrap();
    }
    File::create(home.path().join("consents").join(&digest)).unwrap();
    File::create(home.path().join("consents/odd")).unwrap();
    let lines = "{\"call\":\"a\",\"pico_usd\":300000000000}\n{\"call\":\"b\",\"pico_usd\":500000000000}\n\
                 {\"call\":\"a\",\"pico_usd\":100000000000}\n{\"call\":\"c\",\"pi";
    fs::write(home.path().join(format!("allowances/{DAY}-all")), lines).unwrap();
    fs::write(home.path().join("mcp/key"), format!("{}\n", run(1))).unwrap();
    let one = process(home.path());
    let check = |registry: &Registry| {
        assert!(registry.has_consent(&digest));
        assert_eq!(registry.spent_unasked(NOW), usd(0.6));
        assert_eq!(registry.call(&CallKey::new("key")).unwrap().run, run(1));
    };
    check(&one.read_unlocked().unwrap());
    one.submit(RegistryCommand::GiveConsent { digest: "cd".repeat(32) }).unwrap();
    fs::remove_dir_all(home.path().join("allowances")).unwrap();
    let registry = one.read_unlocked().unwrap();
    check(&registry);
    assert!(registry.has_consent(&"cd".repeat(32)));
}

#[test]
fn question_of_an_earlier_version_is_listed() {
    let home = TempDir::new().unwrap();
    let one = process(home.path());
    one.open_question(run(1), &"b".repeat(64), "new").unwrap();
    let folder = home.path().join("approvals");
    fs::create_dir(&folder).unwrap();
    let question = |hash: &str| {
        format!(
            r#"{{"v":1,"id":"aaaaaaaaaa","code":"RHXQ3A","run":"{}","hash":"{hash}","client":"old","asked_ms":7}}"#,
            run(2)
        )
    };
    fs::write(folder.join("aaaaaaaaaa.json"), question(&"a".repeat(64))).unwrap();
    fs::write(folder.join("cccccccccc.json"), question(&"d".repeat(64))).unwrap();
    fs::write(folder.join("seal"), "odd").unwrap();
    let all = one.open_questions().unwrap();
    let all: Vec<_> = all.iter().map(|(id, it)| (id.as_str(), it.client.as_str())).collect();
    assert_eq!(all, [("aaaaaaaaaa", "old"), ("bbbbbbbbbb", "new")]);
    assert!(one.has_question("aaaaaaaaaa") && !one.has_question("cccccccccc"));
}

/// A registry after ten thousand runs, each started by its own call, on a story, and merged.
fn long_history() -> (Registry, usize) {
    let mut registry = Registry::default();
    let mut events = 0;
    let mut submit = |command| {
        for event in registry.decide(NOW, command).unwrap() {
            registry.evolve(NOW, &event);
            events += 1;
        }
    };
    for number in 0..10_000 {
        let (holder, run) = (HolderId::new(format!("{number:016x}")), run(number));
        let (call, tree) = (CallKey::new(format!("{number:064x}")), TreeKey::new("/home/ada/work"));
        let key = StoryKey { prd: "/home/ada/work/prd.json".into(), id: format!("S-{number}") };
        submit(RegistryCommand::Join { holder: holder.clone(), pid: 4242 });
        let by = || holder.clone();
        submit(RegistryCommand::BeginCall {
            holder: by(),
            call: call.clone(),
            run,
            instead_of: None,
        });
        let (of, call) = (tree.clone(), Some(call));
        submit(RegistryCommand::AdmitRun { holder: by(), run, tree: of, max_runs: 4, call });
        let (amount, limit) = (usd(0.01), Usd::MAX);
        submit(RegistryCommand::ReserveAllowance { holder: by(), run, amount, limit });
        submit(RegistryCommand::ClaimStory { holder: by(), story: key.clone() });
        let (asked, budget) = ("ab".repeat(32), BudgetCap::default());
        submit(RegistryCommand::BeginStory { holder: by(), story: key, run, asked, budget });
        submit(RegistryCommand::EndStory {
            run,
            end: StoryEnd::Passed,
            spent: BudgetAmount::default(),
            commit: Some("ab".repeat(20)),
            last_child: 3,
        });
        submit(RegistryCommand::RecordMerge { tree, run, commit: "ab".repeat(20) });
        // Twenty models, so that as many samples as are kept are kept.
        let groups = vec![sampled(&format!("acme/model-{}", number % 20), 31_000 + number as u64)];
        submit(RegistryCommand::RecordSamples { groups });
        submit(RegistryCommand::EndRun { run });
        submit(RegistryCommand::SettleAllowance { run, spent: usd(0.005) });
        submit(RegistryCommand::HolderGone { holder });
    }
    (registry, events)
}

#[test]
fn registry_size_does_not_grow_with_history() {
    let home = TempDir::new().unwrap();
    let (registry, events) = long_history();
    assert!(events > 100_000);
    let log = SharedLog::new(home.path(), "registry");
    let mut locked = log.lock::<RegistryEvent>(|_| ()).unwrap();
    locked.replace(NOW, &registry.checkpoint()).unwrap();
    drop(locked);
    let one = process(home.path());
    let mut most = (0, 0);
    for number in 0..150 {
        admit(&one, 20_000 + number).unwrap();
        one.submit(RegistryCommand::EndRun { run: run(20_000 + number) }).unwrap();
        let text = fs::read(log.path()).unwrap();
        let records = text.iter().filter(|byte| **byte == b'\n').count();
        most = (most.0.max(records), most.1.max(text.len()));
    }
    // A checkpoint and the records after it; a decision may add a few at once.
    assert!(most.0 <= 260, "{} records", most.0);
    assert!(most.1 < 500_000, "{} bytes", most.1);
    let registry = one.read_unlocked().unwrap();
    assert_eq!(registry.call(&CallKey::new(format!("{:064x}", 9_999))).unwrap().run, run(9_999));
    assert_eq!(registry.spent_unasked(NOW), usd(50.0));
}

#[test]
fn samples_are_recorded_without_a_holder_and_survive_a_checkpoint() {
    let home = TempDir::new().unwrap();
    let one = process(home.path());
    one.record_samples(Vec::new()).unwrap();
    assert!(fs::read_dir(home.path()).unwrap().next().is_none(), "nothing to record, no file");
    for tokens in 0..300 {
        one.record_samples(vec![sampled("a", tokens)]).unwrap();
    }
    let registry = process(home.path()).read_unlocked().unwrap();
    let kept = registry.samples(&sampled("a", 0).key);
    assert_eq!((kept.len(), kept[0].tokens, kept[199].tokens), (200, 100, 299));
    assert_eq!(registry.holders().count(), 0);
}

#[test]
fn a_locked_registry_delays_the_samples_of_a_run_only_briefly() {
    let home = TempDir::new().unwrap();
    let one = process(home.path());
    one.record_samples(vec![sampled("a", 1)]).unwrap();
    let held = SharedLog::new(home.path(), "registry").lock::<RegistryEvent>(|_| ()).unwrap();
    let error = one.record_samples(vec![sampled("a", 2)]).unwrap_err();
    let error = std::error::Error::source(&error).unwrap().to_string();
    assert!(error.contains("for 1 s"), "{error}");
    drop(held);
    one.record_samples(vec![sampled("a", 3)]).unwrap();
}
