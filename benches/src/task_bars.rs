//! The bars of tasks: one of a thousand moves on, in memory and through the real binary.

use std::ffi::OsString;
use std::fs;

use adjutant_formats::task::{NewTask, TaskChange, TaskFiles, TaskNumber, TaskStatus};
use tempfile::TempDir;

use crate::Failure;
use crate::sample::{Plan, Spread, cpu_micros};
use crate::spawn::{Binary, target_dir};
use crate::table::{MILLIS, Row};

/// Rounds of everything here.
const ROUNDS: usize = 15;

/// The most an update may take.
const BAR_MS: f64 = 20.0;

/// 31 January 2025.
const NOW: u64 = 1_738_326_896_000;

const FOLDER: &str = ".adjutant/specs";

/// Two statuses that may follow each other for ever.
const STEPS: [TaskStatus; 2] = [TaskStatus::InProgress, TaskStatus::Researching];

const SYNCED: &str = "the whole process: start, lock, read, write, sync and replace both files on the disk of the target directory";

/// Measures what the core takes to read both files, judge a step and make both anew.
pub(crate) fn measure_update(plan: &Plan) -> Result<Row, Failure> {
    let count = plan.pick(1_000, 50);
    let (mut todo, mut state) = task_files(count)?;
    let mut taken = Vec::new();
    for round in 0..plan.pick(ROUNDS, 2) {
        let change = TaskChange::SetStatus {
            number: middle_task(count)?,
            to: STEPS[round % 2],
            reason: None,
        };
        let mut changed = None;
        taken.push(
            cpu_micros(|| {
                let book = TaskFiles::read(Some(&todo), Some(&state)).ok();
                changed = book.and_then(|book| book.change(&change, NOW, FOLDER).ok());
            }) / 1e3,
        );
        let changed = changed.ok_or("the task did not move")?;
        (todo, state) = (changed.todo, changed.state);
    }
    let what = format!("update a TODO.md of {count} tasks");
    Ok(Row::at_most(what, Spread::of(taken), BAR_MS, MILLIS))
}

/// Measures `adjutant task set` on a disk.
pub(crate) fn measure_task_set(plan: &Plan, binary: &Binary) -> Result<Vec<Row>, Failure> {
    let count = plan.pick(1_000, 50);
    let (todo, state) = task_files(count)?;
    let dir = TempDir::new_in(target_dir()?)?;
    let folder = dir.path().join(FOLDER);
    fs::create_dir_all(&folder)?;
    fs::write(folder.join("TODO.md"), todo)?;
    fs::write(folder.join("state.json"), state)?;
    let (mut cpu, mut wall) = (Vec::new(), Vec::new());
    for round in 0..plan.pick(ROUNDS, 2) {
        let number = middle_task(count)?.to_string();
        let args = ["task", "set", &number, STEPS[round % 2].as_str()].map(OsString::from);
        let taken = binary.run(dir.path(), &args)?;
        cpu.push(taken.cpu_ms);
        wall.push(taken.wall_ms);
    }
    let what = format!("`task set` among {count} tasks");
    let [cpu, wall] = [cpu, wall].map(Spread::of);
    Ok(vec![
        Row::at_most(format!("{what}, CPU"), cpu, BAR_MS, MILLIS).note(SYNCED),
        Row::at_most(format!("{what}, wall"), wall, BAR_MS, MILLIS).note(SYNCED),
    ])
}

fn middle_task(count: usize) -> Result<TaskNumber, Failure> {
    let number = u64::try_from(count / 2)?;
    Ok(TaskNumber::new(number).ok_or("no task in the middle")?)
}

/// Makes both files, each entry with a description as people write them.
fn task_files(count: usize) -> Result<(String, String), Failure> {
    let mut todo = "# TODO\n\n## Tasks\n".to_owned();
    for number in 1..=count {
        todo += &format!(
            "\n### {number}. Task number {number} of many\n- **Effort**: 2 hours\n- **Status**: [NOT STARTED]\n\
             - **Priority**: Medium\n- **Language**: rust\n- **Dependencies**: None\n\n\
             **Description**: {}\n\n---\n",
            "What is to be done, and why, in some words. ".repeat(12)
        );
    }
    // A task more, so that both files are as the program writes them.
    let book = TaskFiles::read(Some(&todo), None)?;
    let last = NewTask { title: "The last".into(), ..NewTask::default() };
    let made = book.change(&TaskChange::Add(last), NOW, FOLDER)?;
    Ok((made.todo, made.state))
}
