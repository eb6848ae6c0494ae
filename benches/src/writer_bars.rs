//! The bars of agents that write: the cost of a sandboxed command, the memory of an idle workspace, and how fast
//! eight agents start.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Instant;

use adjutant_workspace::sandbox::{
    BoundedOutput, CancelHandle, ProgramEnd, ProgramSpec, SandboxHelper,
};
use adjutant_workspace::space::{BackingChoice, SandboxOptions};
use serde_json::{Value, json};

use crate::Failure;
use crate::fixture::task;
use crate::repos::{Repo, descendants, disk_bytes, timed};
use crate::sample::{Plan, Spread};
use crate::space_bars::{RUN, least, make, open};
use crate::spawn::Binary;
use crate::table::{FINE_MILLIS, KILOBYTES, MILLIS, Row, TIMES};

/// How many write at once.
const WRITERS: usize = 8;

const SPAWN: &str = "/bin/true, plain and sandboxed one after the other; the self-test of the sandbox, once in a process, \
is not in it";
const IDLE: &str = "eight idle workspaces: the processes that hold their namespaces, by what is theirs alone, \
and their folders; the base is shared";
const STARTS: &str = "the real binary, from before it is started until its event stream has the first answer of each of \
eight writers, whose workspaces are on record by then; the base is warm, capture and approval are in it";

/// What a sandboxed call costs beyond a plain one.
pub(crate) fn spawns(
    plan: &Plan,
    repo: &Repo,
    helper: &SandboxHelper,
) -> Result<Vec<Row>, Failure> {
    let all = open(repo, BackingChoice::Overlay, helper)?;
    let space = make(&all, "spawns")?;
    let (proof, sandbox) = timed(|| space.sandbox(SandboxOptions::default()))?;
    let (program, cancel) = (ProgramSpec::new(["/bin/true".into()]), CancelHandle::new()?);
    let (mut plain, mut inside) = (Vec::new(), Vec::new());
    for _ in 0..plan.pick(300, 30) {
        let mut command = Command::new("/bin/true");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        plain.push(timed(|| command.status())?.0);
        let (taken, ended) =
            timed(|| sandbox.run(&program, &cancel, &mut BoundedOutput::new(1024)))?;
        if ended.end != ProgramEnd::Exited(0) {
            return Err(format!("/bin/true ended as {:?}", ended.end).into());
        }
        inside.push(taken);
    }
    drop(sandbox);
    space.close()?;
    let [plain, inside] = [plain, inside].map(Spread::of);
    let more = Spread::exact(inside.min - plain.min);
    Ok(vec![
        Row::info("plain spawn", plain, MILLIS),
        Row::info("sandboxed spawn", inside, MILLIS),
        Row::at_most("sandboxed spawn beyond a plain one, least of all", more, 3.0, MILLIS)
            .note(SPAWN),
        Row::info("first sandbox of a process, self-test included", Spread::exact(proof), MILLIS),
    ])
}

/// What it takes to make a sandbox, which must not follow the size of the repository.
pub(crate) fn sandboxes(
    plan: &Plan,
    middle: &Repo,
    largest: &Repo,
    helper: &SandboxHelper,
) -> Result<Vec<Row>, Failure> {
    let mut taken = Vec::new();
    for repo in [middle, largest] {
        let all = open(repo, BackingChoice::Overlay, helper)?;
        let space = make(&all, "sandboxes")?;
        drop(space.sandbox(SandboxOptions::default())?);
        taken.push(plan.rounds(100, || -> Result<f64, Failure> {
            let (time, sandbox) = timed(|| space.sandbox(SandboxOptions::default()))?;
            drop(sandbox);
            Ok(time)
        })?);
        space.close()?;
    }
    let ([small, large], files) = (taken.as_slice(), largest.files) else {
        return Err("two repositories were to be measured".into());
    };
    let what = format!("sandbox made again, in {files} files against in {}", middle.files);
    Ok(vec![
        Row::info(format!("sandbox made again, {files} files"), *large, FINE_MILLIS),
        Row::at_most(what, least(*large, *small), 1.5, TIMES),
    ])
}

/// What an idle workspace takes.
pub(crate) fn idle(repo: &Repo, helper: &SandboxHelper) -> Result<Vec<Row>, Failure> {
    let all = open(repo, BackingChoice::Overlay, helper)?;
    let before = descendants();
    let mut spaces = Vec::new();
    for number in 0..WRITERS {
        spaces.push(make(&all, &format!("idle-{number}"))?);
    }
    let holders = descendants();
    let memory: u64 = holders.difference(&before).map(|process| own_kilobytes(*process)).sum();
    let folder =
        spaces.first().and_then(|space| space.path().ancestors().find(|it| it.ends_with(RUN)));
    let disk = disk_bytes(folder.ok_or("a workspace without a folder")?);
    for space in spaces {
        space.close()?;
    }
    let each = |sum: f64| Spread::exact(sum / WRITERS as f64);
    let files = repo.files;
    Ok(vec![
        Row::info(
            format!("memory of an idle child, {files} files"),
            each(memory as f64),
            KILOBYTES,
        )
        .note(IDLE),
        Row::info(
            format!("disk of an idle child, {files} files"),
            each(disk as f64 / 1e3),
            KILOBYTES,
        )
        .note(IDLE),
    ])
}

/// Memory that goes when the process goes.
fn own_kilobytes(process: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{process}/smaps_rollup")).unwrap_or_default();
    let lines = text.lines().filter(|line| line.starts_with("Private_"));
    lines.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).sum()
}

/// Eight writers on a large repository, through the real binary.
pub(crate) fn eight(plan: &Plan, repo: &Repo) -> Result<Vec<Row>, Failure> {
    let binary = Binary::build()?;
    let tasks: Vec<Value> = (1..=WRITERS).map(task).collect();
    let tasks_file = repo.beside("tasks.json");
    fs::write(&tasks_file, json!({ "tasks": tasks }).to_string())?;
    let write =
        json!({ "tool": "Write", "args": { "file_path": "made.txt", "content": "made\n" } });
    let script =
        json!({ "turn": [{ "call": [write] }, { "text": "One file was written. It is new." }] });
    let script_file = repo.beside("script.json");
    fs::write(&script_file, script.to_string())?;
    let delegate = || {
        let mut command = Command::new(binary.path());
        command.arg("delegate").arg(&tasks_file).args(["--write", "--yes", "--events"]);
        command.arg("--model").arg(format!("script:{}", script_file.display()));
        command.arg("--home").arg(repo.beside("home")).arg("--root").arg(repo.tree());
        for key in ["tasks_per_call", "children_per_run", "concurrency"] {
            command.args(["--set".to_owned(), format!("{key}={WRITERS}")]);
        }
        command.env_clear().envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
        command.env("HOME", repo.beside("empty-home"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        command
    };
    // Makes the base.
    begun(delegate())?;
    let (mut starts, mut walls) = (Vec::new(), Vec::new());
    for round in 0..plan.pick(5, 2) {
        repo.dirty(1_000 + round)?;
        let (start, wall) = begun(delegate())?;
        starts.push(start);
        walls.push(wall);
    }
    let files = repo.files;
    Ok(vec![
        Row::at_most(
            format!("{WRITERS} writers begin, {files} files"),
            Spread::of(starts),
            500.0,
            MILLIS,
        )
        .note(STARTS),
        Row::info(
            format!("{WRITERS} writers write a file each, whole run"),
            Spread::of(walls),
            MILLIS,
        ),
    ])
}

/// Returns when the last of the writers had its first answer, and when the run was over.
fn begun(mut command: Command) -> Result<(f64, f64), Failure> {
    let begun = Instant::now();
    let since = || begun.elapsed().as_secs_f64() * 1e3;
    let mut child = command.spawn()?;
    let (mut answered, mut all) = (BTreeSet::new(), None);
    for line in BufReader::new(child.stdout.take().ok_or("no standard output")?).lines() {
        let event: Value = serde_json::from_str(&line?)?;
        if event["event"] == "tokens" {
            answered.insert(event["label"].as_str().unwrap_or_default().to_owned());
            if answered.len() == WRITERS {
                all.get_or_insert_with(since);
            }
        }
    }
    let status = child.wait()?;
    match all {
        Some(all) if status.success() => Ok((all, since())),
        _ => Err(format!("the run of {WRITERS} writers ended with {status}").into()),
    }
}
