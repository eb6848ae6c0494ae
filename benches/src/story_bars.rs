//! The bars of stories: what handing work down by markers costs beside the model, and what reading
//! markers and PRDs takes.
//!
//! A delegation is measured through the real binary, by the times in its own journal: from the answer
//! that holds the markers until the agent is told what came of them.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use adjutant_core::{Outcome, Usd};
use adjutant_engine::prd::PrdFile;
use adjutant_formats::marker::{self, MarkerContext};
use adjutant_formats::prd::PrdOutcome as Written;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::fixture::{StateLocation, has_memory_disk};
use crate::repos::{Repo, timed};
use crate::sample::{Plan, Spread, cpu_micros};
use crate::spawn::{Binary, target_dir};
use crate::table::{MILLIS, Row, TIMES};
use crate::{Failure, say};

/// Files of the repository.
const FILES: usize = 20;
/// Bytes of the answer that is searched for markers.
const ANSWER_BYTES: usize = 1 << 20;
/// Stories of the PRD.
const STORIES: usize = 1_000;

const WHOLE: &str = "from the answer with the markers until the agent is told the results, by the journal of the real \
binary: admission, workspace, two turns and a file, the commit, the merge; repository and state in memory, base warm";
const SLOWEST: &str = "of all children the time until the last one is through this phase, counted from the end of the \
phase before";
const PRD: &str = "PrdFile::open, one story's outcome, PrdFile::save with its syncs, on the disk of the target folder";

const CHAIN: &str = "`adjutant story --story` for the last of a chain against the second, processor time of adjutant and of all it started; each story depends on the one before";

/// What one call of markers took, in milliseconds, phase by phase.
#[derive(Clone, Copy, Debug, Default)]
struct DelegationPhases {
    admitted: f64,
    space_made: f64,
    worked: f64,
    kept: f64,
    merged: f64,
    told: f64,
    whole: f64,
}

/// One of them.
type Phase = fn(&DelegationPhases) -> f64;

/// Measures the group.
pub(crate) fn measure(plan: &Plan) -> Result<Vec<Row>, Failure> {
    let mut rows = measure_marker_searches(plan)?;
    rows.push(measure_prd_update(plan)?);
    let binary = Binary::build()?;
    rows.push(measure_chain(plan, &binary)?);
    if has_memory_disk() {
        let repo = Repo::make(FILES, StateLocation::Memory)?;
        rows.extend(measure_delegations(plan, &binary, &repo, 1, "in memory", Some(80.0))?);
        rows.extend(measure_delegations(plan, &binary, &repo, 10, "in memory", Some(400.0))?);
    } else {
        rows.push(Row::skipped("delegations of a story", "there is no /dev/shm"));
    }
    let repo = Repo::make(FILES, StateLocation::Disk)?;
    rows.extend(measure_delegations(plan, &binary, &repo, 1, "on disk", None)?);
    rows.extend(measure_delegations(plan, &binary, &repo, 10, "on disk", None)?);
    Ok(rows)
}

/// Searching answers of 1 MB for markers.
fn measure_marker_searches(plan: &Plan) -> Result<Vec<Row>, Failure> {
    let prose =
        "Some prose about [the matter], with `code`, [delegate: and brackets that lead nowhere.\n";
    let blocks =
        "- an item\n  - `one` below\n1. a number\n\n## A heading\n\n> quoted\n\n| a | table |\n";
    Ok(vec![
        measure_marker_search(plan, "find the markers of a 1 MB answer", prose)?,
        measure_marker_search(plan, "find the markers of 1 MB of short list items", "- an item\n")?,
        measure_marker_search(plan, "find the markers of 1 MB of short blocks", blocks)?,
    ])
}

/// Searching an answer that consists of `part`, with a marker before and one after.
fn measure_marker_search(plan: &Plan, what: &str, part: &str) -> Result<Row, Failure> {
    let mut text = "[delegate:Implement the first part:4]\n".to_owned();
    while text.len() < ANSWER_BYTES {
        text.push_str(part);
    }
    text.push_str("\n[delegate:Implement the last part:2]\n");
    let request = MarkerContext { parent: "US-001", depth: 0, start: 1, max: usize::MAX };
    let found = marker::parse(&text, &request).delegations.len();
    if found != 2 {
        return Err(format!("{found} markers were found in the answer").into());
    }
    let taken = plan.rounds(15, || -> Result<f64, Failure> {
        Ok(cpu_micros(|| marker::parse(&text, &request)) / 1e3)
    })?;
    Ok(Row::at_most(what, taken, 5.0, MILLIS))
}

/// Opening a PRD of a thousand stories and writing the outcome of one into it.
fn measure_prd_update(plan: &Plan) -> Result<Row, Failure> {
    let dir = TempDir::new_in(target_dir()?)?;
    let path = dir.path().join("prd.json");
    let story = |number: usize| {
        json!({
            "id": format!("US-{number:04}"),
            "title": format!("Story {number}"),
            "description": "As a person I want this to work, and here is at some length why. ".repeat(6),
            "acceptanceCriteria": ["It works", "It is tested", "It is described"],
            "priority": number,
            "passes": false,
        })
    };
    let all: Vec<Value> = (1..=STORIES).map(story).collect();
    let text = serde_json::to_string_pretty(&json!({ "project": "bench", "userStories": all }))?;
    let mut round = 0;
    let taken = plan.rounds(15, || -> Result<f64, Failure> {
        fs::write(&path, &text)?;
        round += 1;
        let outcome = story_outcome(round);
        let (taken, _) = timed(|| {
            let mut file = PrdFile::open(&path).map_err(|error| error.to_string())?;
            file.save("US-0500", &outcome).map_err(|error| error.to_string())
        })?;
        Ok(taken)
    })?;
    let name = format!("open and save a PRD of {STORIES} stories, {} kB", text.len() / 1000);
    Ok(Row::at_most(name, taken, 50.0, MILLIS).note(PRD))
}

fn story_outcome(round: usize) -> Written {
    Written {
        passes: true,
        run: format!("run_{round}"),
        status: Outcome::Completed,
        summary: "It works. It was tested.".into(),
        branch: None,
        reference: None,
        commit: None,
        estimated: false,
        cost: Usd::ZERO,
        tokens_in: 1_000,
        tokens_out: 100,
        finished_ms: 1_800_000_000_000,
        children: Vec::new(),
    }
}

/// The last story of a chain against the second: what one takes must not grow with those before it.
fn measure_chain(plan: &Plan, binary: &Binary) -> Result<Row, Failure> {
    let stories = plan.pick(60, 8);
    let place = if has_memory_disk() { StateLocation::Memory } else { StateLocation::Disk };
    let repo = Repo::make(FILES, place)?;
    let id = |number: usize| format!("S-{number:03}");
    let story = |number: usize| {
        let before: Vec<String> = (1..number).rev().take(1).map(id).collect();
        json!({ "id": id(number), "title": "A part", "dependencies": before, "passes": false })
    };
    let all: Vec<Value> = (1..=stories).map(story).collect();
    let (prd, script) = (repo.beside("chain.json"), repo.beside("chain-script.json"));
    fs::write(&prd, json!({ "userStories": all }).to_string())?;
    fs::write(&script, chain_script().to_string())?;
    let mut taken = Vec::new();
    for number in 1..=stories {
        taken.push(time_story(binary, &repo, &prd, &script, &id(number))?);
    }
    // The first makes the base.
    let median = |part: &[f64]| Spread::of(part.to_vec()).median;
    let (first, last) = (median(&taken[1..4]), median(&taken[stories - 3..]));
    let name = format!("the last of a chain of {stories} stories against the first");
    Ok(Row::at_most(name, Spread::exact(last / first), 3.0, TIMES).note(CHAIN))
}

fn chain_script() -> Value {
    let made = json!({ "tool": "Write", "args": { "file_path": "made/{{label}}.txt", "content": "made\n" } });
    json!({ "turn": [
        { "agent": "story", "call": [made] },
        { "agent": "story", "call": [return_call()] },
    ] })
}

/// Works on one story of a chain; returns the processor time it took.
fn time_story(
    binary: &Binary,
    repo: &Repo,
    prd: &Path,
    script: &Path,
    story: &str,
) -> Result<f64, Failure> {
    let mut args: Vec<OsString> = vec!["story".into(), prd.into(), "--story".into(), story.into()];
    args.extend(["--yes", "--events", "--model"].map(Into::into));
    args.push(format!("script:{}", script.display()).into());
    args.extend(["--home".into(), repo.beside("home").into(), "--root".into(), repo.tree().into()]);
    let (path, home) = (std::env::var_os("PATH").unwrap_or_default(), repo.beside("empty-home"));
    let vars = [("PATH", path.as_os_str()), ("HOME", home.as_os_str())];
    Ok(binary.run_in(&repo.tree(), &args, &vars)?.cpu_ms)
}

/// A story whose agent hands so many tasks down in one answer.
fn measure_delegations(
    plan: &Plan,
    binary: &Binary,
    repo: &Repo,
    children: usize,
    place: &str,
    bar: Option<f64>,
) -> Result<Vec<Row>, Failure> {
    let script = repo.beside("story.json");
    fs::write(&script, script_for(children).to_string())?;
    let mut taken = Vec::new();
    // The first makes the base.
    for round in 0..=plan.pick(11, 2) {
        let phases = time_delegation(binary, repo, &script, children, round)?;
        if round > 0 {
            taken.push(phases);
        }
    }
    let spread = |of: Phase| Spread::of(taken.iter().map(of).collect());
    let what = match children {
        1 => format!("a task by marker, {place}"),
        _ => format!("{children} tasks by markers, {place}"),
    };
    let whole = spread(|it| it.whole);
    let mut rows = vec![match bar {
        Some(bar) => Row::at_most(format!("{what}: whole"), whole, bar, MILLIS).note(WHOLE),
        None => Row::info(format!("{what}: whole"), whole, MILLIS),
    }];
    let phases: [(&str, Phase); 6] = [
        ("admit", |it| it.admitted),
        ("make space", |it| it.space_made),
        ("run", |it| it.worked),
        ("keep", |it| it.kept),
        ("merge in", |it| it.merged),
        ("tell", |it| it.told),
    ];
    for (name, of) in phases {
        rows.push(Row::info(format!("  {name}"), spread(of), MILLIS).note(SLOWEST));
    }
    rows.iter().for_each(|row| say(&format!("  {}: {}", row.what, row.measured)));
    Ok(rows)
}

fn script_for(children: usize) -> Value {
    let markers: String = (1..=children).map(|nth| format!("[delegate:part-{nth}:1]\n")).collect();
    let made =
        |path: &str| json!({ "tool": "Write", "args": { "file_path": path, "content": "made\n" } });
    let back = return_call();
    json!({ "turn": [
        { "agent": "story", "text": markers },
        { "agent": "story", "call": [back] },
        { "agent": "worker", "call": [made("made/{{label}}.txt")] },
        { "agent": "worker", "call": [back] },
    ] })
}

/// The call by which an agent hands back that all is done.
fn return_call() -> Value {
    json!({ "tool": "Return", "args": {
        "status": "completed",
        "summary": "All of it was made. It is in the files.",
        "artifacts": [],
        "errors": [],
    } })
}

fn time_delegation(
    binary: &Binary,
    repo: &Repo,
    script: &Path,
    children: usize,
    round: usize,
) -> Result<DelegationPhases, Failure> {
    // Another file each time: what an earlier run did for a story of the same one is not done twice.
    let prd = repo.beside(&format!("prd-{children}-{round}.json"));
    let story = json!({ "id": "US-001", "title": "Make the parts", "passes": false });
    fs::write(&prd, json!({ "userStories": [story] }).to_string())?;
    let home = repo.beside("home");
    let mut command = Command::new(binary.path());
    command.arg("story").arg(&prd).args(["--enable-delegation", "--events", "--merge", "report"]);
    command.arg("--model").arg(format!("script:{}", script.display()));
    command.arg("--home").arg(&home).arg("--root").arg(repo.tree());
    for key in ["tasks_per_call", "children_per_parent", "concurrency", "concurrency_max"] {
        command.args(["--set".to_owned(), format!("{key}={children}")]);
    }
    command.env_clear().envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
    command.env("HOME", repo.beside("empty-home"));
    let ended = command.stdin(Stdio::null()).output()?;
    if !ended.status.success() {
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        return Err(
            format!("the story of {children} tasks ended with {}: {said}", ended.status).into()
        );
    }
    let events = String::from_utf8_lossy(&ended.stdout).into_owned();
    let run = events.lines().find_map(run_of).ok_or("the events name no run")?;
    read_phases(&fs::read_to_string(home.join("runs").join(run).join("journal.jsonl"))?, children)
}

/// Returns the run that an event belongs to.
fn run_of(line: &str) -> Option<String> {
    let event: Value = serde_json::from_str(line).ok()?;
    event["run_id"].as_str().or_else(|| event["run"].as_str()).map(str::to_owned)
}

/// Reads the phases of the one call from a journal.
fn read_phases(journal: &str, children: usize) -> Result<DelegationPhases, Failure> {
    let mut records = Vec::new();
    for line in journal.lines() {
        let record: Value = serde_json::from_str(line)?;
        let at = record["at"].as_f64().ok_or("a record without a time")?;
        records.push((at, record["event"].clone()));
    }
    let root =
        records.iter().find(|(_, it)| it["type"] == "space_made").map(|(_, it)| &it["session"]);
    let root = root.ok_or("the story has no workspace")?;
    let last = |kind: &str| {
        let of = |(_, it): &&(f64, Value)| it["type"] == kind && it["session"] != *root;
        let (count, at) = records.iter().filter(of).fold((0, 0.0), |(n, _), (at, _)| (n + 1, *at));
        (count == children).then_some(at).ok_or_else(|| format!("{count} of {kind}"))
    };
    let own = |kind: &str| {
        let of = |(_, it): &&(f64, Value)| it["type"] == kind && it["session"] == *root;
        records.iter().find(of).map(|(at, _)| *at).ok_or_else(|| format!("no {kind}"))
    };
    let (asked, told) = (own("replied")?, own("told")?);
    let (started, made, kept, merged) =
        (last("started")?, last("space_made")?, last("space_kept")?, last("merged")?);
    let ended = last("ended")?;
    Ok(DelegationPhases {
        admitted: started - asked,
        space_made: made - started,
        worked: ended - made,
        kept: kept - ended,
        merged: merged - kept,
        told: told - merged,
        whole: told - asked,
    })
}
