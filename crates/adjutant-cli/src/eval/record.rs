//! The record of an evaluation on disk: its plan, and one line for each attempt.
//!
//! `evals/EVAL/plan.json` below the state directory says what is attempted, and `attempts.jsonl` gets a line when an
//! attempt begins and one when it is judged. Start at [`EvalRecord::create`] and [`EvalRecord::reopen`]. Invariant: an
//! attempt without a judged line is made again, and what it cost counts.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use adjutant_core::{Event, SessionId, Usd};
use adjutant_engine::{Archive, wall_now};
use adjutant_view::eval::EvalAttempt;
use adjutant_view::{RunView, TimedEvent};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::configuration::ConfigurationChoice;
use super::scratch::remove_leftover;
use crate::exit::{Exit, Failure};

/// The directory of evaluations below the state directory.
const EVALS: &str = "evals";

/// The start of the ids of evaluations.
const PREFIX: &str = "eval_";

/// What an evaluation attempts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct EvalPlan {
    /// The version of this format.
    pub(super) v: u32,
    /// The directory of the tasks; `None` for the built-in ones.
    pub(super) tasks_dir: Option<PathBuf>,
    /// The tasks, each with the hash of its content.
    pub(super) tasks: Vec<(String, String)>,
    /// How often each task is attempted under each configuration.
    pub(super) runs: u32,
    /// The configurations.
    pub(super) configurations: Vec<ConfigurationChoice>,
    /// The values of `--set`.
    pub(super) set: Vec<String>,
    /// Whether `--enable-delegation` was typed.
    pub(super) enable_delegation: bool,
    /// The most dollars that all attempts together may spend.
    pub(super) budget_usd: Option<Usd>,
}

/// A line of the record.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RecordedLine {
    /// An attempt began.
    Begun {
        /// Its run.
        run: String,
        /// Its temporary directory.
        scratch: PathBuf,
    },
    /// An attempt was judged.
    Judged(Box<EvalAttempt>),
}

/// An evaluation on disk, locked for this process.
pub(super) struct EvalRecord {
    /// Its id.
    pub(super) id: String,
    /// What it attempts.
    pub(super) plan: EvalPlan,
    /// The attempts so far.
    pub(super) attempts: Vec<EvalAttempt>,
    /// What the runs of interrupted attempts cost.
    pub(super) interrupted_usd: Usd,
    lines: File,
    folder: PathBuf,
}

impl EvalRecord {
    /// Makes a new one.
    pub(super) fn create(archive: &Archive, plan: EvalPlan) -> Result<Self, Failure> {
        let evals = archive.path().join(EVALS);
        let failed = failed(&evals);
        let mut private = fs::DirBuilder::new();
        private.mode(0o700);
        private.recursive(true).create(&evals).map_err(&failed)?;
        private.recursive(false);
        let mut number = wall_now() / 1000;
        let folder = loop {
            let folder = evals.join(format!("{PREFIX}{number}"));
            match private.create(&folder) {
                Ok(()) => break folder,
                // Two evaluations may begin in the same second.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                Err(error) => return Err(failed(error)),
            }
        };
        write_plan(&folder, &plan).map_err(&failed)?;
        Self::open(folder, plan)
    }

    /// Opens an earlier one by its id or `latest`.
    pub(super) fn reopen(archive: &Archive, wanted: &str) -> Result<Self, Failure> {
        let evals = archive.path().join(EVALS);
        let names = fs::read_dir(&evals).into_iter().flatten().flatten();
        let names = names.filter_map(|entry| entry.file_name().into_string().ok());
        let mut ids: Vec<String> = names.filter(|name| name.starts_with(PREFIX)).collect();
        ids.sort_unstable_by_key(|id| (id.len(), id.clone()));
        let found = match wanted {
            "latest" => ids.pop(),
            _ => ids.into_iter().find(|id| id == wanted),
        };
        let id = found.ok_or_else(|| {
            let shown = adjutant_view::sanitize::line(wanted);
            Failure::usage(format!("there is no evaluation `{shown}`"))
                .hint("Start one with `adjutant eval`.")
        })?;
        let folder = evals.join(id);
        let failed = failed(&folder);
        let text = fs::read_to_string(folder.join("plan.json")).map_err(&failed)?;
        let plan: EvalPlan =
            serde_json::from_str(&text).map_err(|error| failed(io::Error::other(error)))?;
        let mut record = Self::open(folder, plan)?;
        record.read_lines(archive).map_err(&failed)?;
        Ok(record)
    }

    fn open(folder: PathBuf, plan: EvalPlan) -> Result<Self, Failure> {
        let failed = failed(&folder);
        let path = folder.join("attempts.jsonl");
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let lines = options.open(path).map_err(&failed)?;
        let id = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if flock(&lines, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(Failure::usage(format!("another process works on {id}")));
        }
        let (attempts, interrupted_usd) = (Vec::new(), Usd::ZERO);
        Ok(Self { id, plan, attempts, interrupted_usd, lines, folder })
    }

    /// Reads the lines. An incomplete one at the end, which a crash left, is cut off.
    fn read_lines(&mut self, archive: &Archive) -> io::Result<()> {
        let mut text = String::new();
        self.lines.read_to_string(&mut text)?;
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        self.lines.set_len(whole as u64)?;
        self.lines.seek(SeekFrom::End(0))?;
        let mut begun: Vec<(String, PathBuf)> = Vec::new();
        for line in text[..whole].lines() {
            match serde_json::from_str(line).map_err(io::Error::other)? {
                RecordedLine::Begun { run, scratch } => begun.push((run, scratch)),
                RecordedLine::Judged(attempt) => {
                    begun.retain(|(run, _)| attempt.run.as_ref() != Some(run));
                    self.attempts.push(*attempt);
                }
            }
        }
        for (run, scratch) in begun {
            self.interrupted_usd += cost_of(archive, &run);
            remove_leftover(&scratch);
        }
        Ok(())
    }

    /// Replaces the budget.
    pub(super) fn set_budget(&mut self, usd: Usd) -> Result<(), Failure> {
        self.plan.budget_usd = Some(usd);
        write_plan(&self.folder, &self.plan).map_err(failed(&self.folder))
    }

    /// Returns whether an attempt was judged.
    pub(super) fn has(&self, task: &str, configuration: usize, number: u32) -> bool {
        self.attempts
            .iter()
            .any(|it| it.task == task && it.configuration == configuration && it.number == number)
    }

    /// Returns what all runs cost so far.
    pub(super) fn spent(&self) -> Usd {
        self.attempts.iter().filter_map(|it| it.usd).sum::<Usd>() + self.interrupted_usd
    }

    /// Records that an attempt begins.
    pub(super) fn begin(&mut self, run: &str, scratch: &Path) -> Result<(), Failure> {
        self.append(&RecordedLine::Begun { run: run.to_owned(), scratch: scratch.to_owned() })
    }

    /// Records what an attempt came to.
    pub(super) fn judged(&mut self, attempt: EvalAttempt) -> Result<(), Failure> {
        self.append(&RecordedLine::Judged(Box::new(attempt.clone())))?;
        self.attempts.push(attempt);
        Ok(())
    }

    /// Counts what a run cost that is not judged.
    pub(super) fn interrupted(&mut self, usd: Option<Usd>) {
        self.interrupted_usd += usd.unwrap_or_default();
    }

    fn append(&mut self, line: &RecordedLine) -> Result<(), Failure> {
        let mut written = || -> io::Result<()> {
            let text = format!("{}\n", serde_json::to_string(line)?);
            self.lines.write_all(text.as_bytes())?;
            self.lines.sync_data()
        };
        written().map_err(failed(&self.folder))
    }
}

fn write_plan(folder: &Path, plan: &EvalPlan) -> io::Result<()> {
    let temp = folder.join("plan.json.new");
    let mut file =
        File::options().write(true).create(true).truncate(true).mode(0o600).open(&temp)?;
    file.write_all(serde_json::to_string_pretty(plan)?.as_bytes())?;
    file.sync_data()?;
    fs::rename(temp, folder.join("plan.json"))
}

fn failed(path: &Path) -> impl Fn(io::Error) -> Failure + use<> {
    let path = path.display().to_string();
    move |error| Failure::new(Exit::Failed, format!("{path}: {error}"))
}

/// Returns what a run cost, as far as its journal can be read. A request that was running counts as spent, as it does
/// when a run is resumed.
fn cost_of(archive: &Archive, run: &str) -> Usd {
    let mut view = RunView::light();
    let mut open: BTreeMap<SessionId, Usd> = BTreeMap::new();
    let records = archive.find(run).ok().and_then(|(files, _)| files.records().ok());
    for record in records.into_iter().flatten().map_while(Result::ok) {
        if let Event::Reserved { session, reservation } = &record.event {
            open.insert(*session, reservation.amount.usd);
        } else if let Event::Replied { session, .. }
        | Event::AttemptFailed { session, .. }
        | Event::Settled { session, .. } = &record.event
        {
            open.remove(session);
        }
        view.apply(TimedEvent::new(record.at, record.wall_ms, &record.event));
    }
    let settled = view.root().map(|root| root.inclusive.usd).unwrap_or_default();
    open.into_values().fold(settled, |sum, usd| sum + usd)
}
