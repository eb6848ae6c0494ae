//! The bars of looking at a project before a run: what the overview for agents adds to a start.

use std::fs::{self, File};

use adjutant_core::numbers::grouped;
use adjutant_engine::{Masker, ProjectOverview};
use adjutant_workspace::{Root, head_around};

use crate::Failure;
use crate::sample::{Plan, Spread, monotonic_ns};
use crate::table::{FINE_MILLIS, Row};

/// Rounds of everything here: each is short.
const ROUNDS: usize = 51;

/// Measures the overview of a small project and of one with very many files in its root.
pub(crate) fn measure(plan: &Plan) -> Result<Vec<Row>, Failure> {
    [100, plan.pick(100_000, 3_000)].into_iter().map(|files| measure_one(plan, files)).collect()
}

fn measure_one(plan: &Plan, files: usize) -> Result<Row, Failure> {
    let project = tempfile::tempdir()?;
    fs::create_dir(project.path().join(".git"))?;
    fs::write(project.path().join(".git/HEAD"), "ref: refs/heads/main\n")?;
    fs::write(project.path().join(".gitignore"), "/target\n*.log\n")?;
    fs::write(project.path().join("package.json"), r#"{"scripts":{"test":"vitest"}}"#)?;
    for number in 0..files {
        File::create(project.path().join(format!("file-{number}.rs")))?;
    }
    let root = Root::open(project.path())?;
    let masker = Masker::default();
    let mut taken = Vec::new();
    for _ in 0..plan.pick(ROUNDS, 2) {
        let start = monotonic_ns();
        let head = head_around(project.path());
        let overview = ProjectOverview::of(&root, head.as_ref(), &masker);
        taken.push((monotonic_ns() - start) as f64 / 1e6);
        if overview.text.is_empty() {
            return Err("the overview is empty".into());
        }
    }
    let what = format!("overview of a project with {} files", grouped(files as u64));
    Ok(Row::at_most(what, Spread::of(taken), 1.0, FINE_MILLIS)
        .note("what it adds to the start of a run"))
}
