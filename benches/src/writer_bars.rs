//! The bars of agents that write: the cost of a sandboxed command, the memory of an idle workspace, and how fast
//! eight agents start.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use adjutant_workspace::sandbox::{
    BoundedOutput, CancelHandle, ProgramEnd, ProgramSpec, SandboxHelper,
};
use adjutant_workspace::space::{
    SandboxOptions, WorkspaceBackingChoice, WorkspaceOptions, Workspaces,
};
use adjutant_workspace::toolchains::{FoundToolchain, ToolchainLookup, find_toolchains};
use serde_json::{Value, json};

use crate::Failure;
use crate::fixture::task;
use crate::repos::{Repo, descendants, disk_bytes, timed};
use crate::sample::{Plan, Spread};
use crate::space_bars::{RUN, add_git_worktree, make_workspace, open_workspaces, ratio_of_minima};
use crate::spawn::Binary;
use crate::table::{FINE_MILLIS, KILOBYTES, MILLIS, Row, TIMES};

/// How many write at once.
const WRITERS: usize = 8;

const SPAWN: &str = "/bin/true, plain and sandboxed one after the other, with a private loopback, home and the toolchains and \
caches of this machine; the self-test of the sandbox, once in a process, is not in it";
const FIRST_USE: &str = "`delegate --write` with a scripted model, from start to end, in a state directory without a base, in turn with \
`git worktree add` of the same commit";
const WARM_USE: &str = "the same, when the base is there and the files are committed";
const IDLE: &str = "eight idle workspaces: the processes that hold their namespaces, by what is theirs alone, \
and their folders; the base is shared";
const STARTS: &str = "the real binary, from before it is started until its event stream has the first answer of each of \
eight writers, whose workspaces are on record by then; the base is warm, capture and approval are in it";

/// What a sandboxed call costs beyond a plain one.
pub(crate) fn measure_sandboxed_calls(
    plan: &Plan,
    repo: &Repo,
    helper: &SandboxHelper,
) -> Result<Vec<Row>, Failure> {
    let home = std::env::var_os("HOME").map_or_else(|| repo.beside("empty-home"), PathBuf::from);
    let toolchains = toolchains_of_this_machine(&home);
    let wish = WorkspaceOptions {
        home: Some(home.clone()),
        caches: toolchains.iter().flat_map(|it| it.caches.iter().cloned()).collect(),
        ..WorkspaceOptions::new(helper.clone())
    };
    let all = Workspaces::open(&repo.tree(), &repo.beside("spawn-state"), wish)?;
    let space = make_workspace(&all, "spawns")?;
    let (proof, sandbox) = timed(|| space.sandbox(showing(&toolchains, home)))?;
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
        Row::at_most("sandboxed spawn beyond a plain one, least of all", more, 6.0, MILLIS)
            .note(SPAWN),
        Row::info("first sandbox of a process, self-test included", Spread::exact(proof), MILLIS),
    ])
}

fn toolchains_of_this_machine(home: &Path) -> Vec<FoundToolchain> {
    find_toolchains(&ToolchainLookup {
        home: Some(home.to_owned()),
        variables: std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
            .collect(),
        system_root: PathBuf::from("/"),
    })
}

/// Returns what a sandbox shows with these toolchains.
fn showing(toolchains: &[FoundToolchain], home: PathBuf) -> SandboxOptions {
    let each = |of: fn(&FoundToolchain) -> &Vec<PathBuf>| {
        toolchains.iter().flat_map(of).cloned().collect()
    };
    let variables = toolchains.iter().flat_map(|it| it.environment(false));
    SandboxOptions {
        toolchains: each(|it| &it.granted),
        filtered: each(|it| &it.filtered),
        path: each(|it| &it.path),
        variables: variables.map(|(name, value)| (name.into(), value.clone())).collect(),
        hidden: vec![home],
        ..SandboxOptions::default()
    }
}

/// Returns the command that delegates to agents that write in a repository, without an environment of its own.
fn delegate_command(binary: &Binary, repo: &Repo, state: &str, script: &Path) -> Command {
    let mut command = Command::new(binary.path());
    command.args(["delegate", "--write", "--yes"]);
    command.arg("--model").arg(format!("script:{}", script.display()));
    command.arg("--home").arg(repo.beside(state)).arg("--root").arg(repo.tree());
    command.env_clear().envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
    command.env("HOME", repo.beside("empty-home"));
    command.stdin(Stdio::null()).stderr(Stdio::null());
    command
}

/// The whole command of one writer beside `git worktree add`: the first in a repository, and a later one.
pub(crate) fn measure_first_use(plan: &Plan, repo: &Repo) -> Result<Vec<Row>, Failure> {
    let binary = Binary::build()?;
    let script_file = repo.beside("one-file.toml");
    let script = "[[turn]]\n[[turn.call]]\ntool = \"Write\"\nargs = { file_path = \"made.txt\", content = \"made\" }\n\
                  [[turn]]\ntext = \"One file was written. It is new.\"\n";
    fs::write(&script_file, script)?;
    let delegate = |state: &str| -> Result<f64, Failure> {
        let mut command = delegate_command(&binary, repo, state, &script_file);
        command.args(["-t", "one=Write a file"]).stdout(Stdio::null());
        let (taken, status) = timed(|| command.status())?;
        if status.success() {
            Ok(taken)
        } else {
            Err(format!("delegate ended with {status}").into())
        }
    };
    repo.clean()?;
    let (mut git, mut first, mut warm) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..plan.pick(9, 2) {
        let place = repo.beside(&format!("first-git-{round}"));
        git.push(timed(|| add_git_worktree(repo, &place))?.0);
        let state = format!("first-{round}");
        first.push(delegate(&state)?);
        for _ in 0..plan.pick(4, 1) {
            warm.push(delegate(&state)?);
        }
    }
    let [git, first, warm] = [git, first, warm].map(Spread::of);
    let files = repo.files;
    Ok(vec![
        Row::info(format!("first writer, {files} files"), first, MILLIS),
        Row::info(format!("later writer, {files} files"), warm, MILLIS),
        Row::at_most(
            format!("first writer against git worktree add, {files} files"),
            ratio_of_minima(first, git),
            2.5,
            TIMES,
        )
        .note(FIRST_USE),
        Row::at_most(
            format!("later writer against git worktree add, {files} files"),
            ratio_of_minima(warm, git),
            0.25,
            TIMES,
        )
        .note(WARM_USE),
    ])
}

/// What it takes to make a sandbox, which must not follow the size of the repository.
pub(crate) fn measure_sandboxes(
    plan: &Plan,
    middle: &Repo,
    largest: &Repo,
    helper: &SandboxHelper,
) -> Result<Vec<Row>, Failure> {
    let mut taken = Vec::new();
    for repo in [middle, largest] {
        let all = open_workspaces(repo, WorkspaceBackingChoice::Overlay, helper)?;
        let space = make_workspace(&all, "sandboxes")?;
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
        Row::at_most(what, ratio_of_minima(*large, *small), 1.5, TIMES),
    ])
}

/// What an idle workspace takes.
pub(crate) fn measure_idle_workspace(
    repo: &Repo,
    helper: &SandboxHelper,
) -> Result<Vec<Row>, Failure> {
    let all = open_workspaces(repo, WorkspaceBackingChoice::Overlay, helper)?;
    let before = descendants();
    let mut spaces = Vec::new();
    for number in 0..WRITERS {
        spaces.push(make_workspace(&all, &format!("idle-{number}"))?);
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
pub(crate) fn measure_eight_writers(plan: &Plan, repo: &Repo) -> Result<Vec<Row>, Failure> {
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
        let mut command = delegate_command(&binary, repo, "home", &script_file);
        command.arg(&tasks_file).arg("--events").stdout(Stdio::piped());
        for key in ["tasks_per_call", "children_per_run", "concurrency"] {
            command.args(["--set".to_owned(), format!("{key}={WRITERS}")]);
        }
        command
    };
    // Makes the base.
    time_first_answers(delegate())?;
    let (mut starts, mut walls) = (Vec::new(), Vec::new());
    for round in 0..plan.pick(5, 2) {
        repo.dirty(1_000 + round)?;
        let (start, wall) = time_first_answers(delegate())?;
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
fn time_first_answers(mut command: Command) -> Result<(f64, f64), Failure> {
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
