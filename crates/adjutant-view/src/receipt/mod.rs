//! What the engine saw of a delegation's work, next to what its agent says about it.
//!
//! A [`Receipt`] counts tool calls and failures and names the last command, the changed files and those of them that
//! belong to the check, and the external worker ([`WorkerReceipt`]). Every report shows it, so that a false "fixed" is visible. [`Verification`] says whether the
//! verify command passed. Start at [`Receipt::of`]; `check_files` has the list of files that judge work.

mod check_files;

use adjutant_core::{CommandExit, DelegationState, Outcome, VerifyCommand};
use serde::Serialize;

use crate::layout::fit;
use crate::run::Delegation;
use crate::state_words::count_with_noun;
use crate::story::files;
use crate::worker_text::{WorkerJson, calls_text, name_text, resumed_text};

pub use check_files::{CheckFile, CheckFileKind};

/// The maximum width of a command in a line, in columns.
const COMMAND_COLUMNS: usize = 80;
/// The maximum width of a path in a line, in columns.
const PATH_COLUMNS: usize = 100;
/// The most files of the check that a line names.
const FILES_NAMED: usize = 10;

/// Whether the work of a delegation was verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verification {
    /// The verify command succeeded with exactly this work.
    Passed,
    /// The verify command failed when it last ran.
    Failed,
    /// No verify command ran, or the agent worked on after the last one.
    None,
}

impl Verification {
    /// Returns whether the work of a delegation was verified.
    #[must_use]
    pub fn of(item: &Delegation) -> Self {
        match item.checked {
            Some((true, _)) if item.state == DelegationState::Ended(Outcome::Completed) => {
                Self::Passed
            }
            Some((false, _)) => Self::Failed,
            Some((true, _)) | None => Self::None,
        }
    }

    /// Returns the word that follows an outcome: `completed, verified`.
    const fn word(self) -> &'static str {
        match self {
            Self::Passed => "verified",
            Self::Failed => "verification failed",
            Self::None => "unverified",
        }
    }
}

/// Returns the outcome of work that changes files, with its verification: `completed, unverified`. Returns `None` for
/// work that cannot be verified, because its agent only reads or has not ended.
#[must_use]
pub fn verified_outcome(item: &Delegation, outcome: Outcome) -> Option<String> {
    let verification = Verification::of(item);
    let is_told = match (outcome, verification) {
        (Outcome::Completed, _) => writes(item),
        (_, Verification::Failed) => true,
        (_, Verification::Passed | Verification::None) => false,
    };
    is_told.then(|| format!("{}, {}", outcome.word(), verification.word()))
}

/// Returns whether a delegation changes files: it has a workspace of its own, or changed files in place.
fn writes(item: &Delegation) -> bool {
    item.space.is_some() || !item.changed.is_empty()
}

/// A command that an agent ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, serde::Deserialize)]
pub struct LastCommand {
    /// The command, unsanitized and cut.
    pub command: String,
    /// How it ended; absent in journals of earlier versions.
    #[serde(default)]
    pub exit: Option<CommandExit>,
    /// Whether it failed.
    pub failed: bool,
}

/// The external worker of a delegation, as a receipt names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerReceipt {
    /// Its name and its model calls: `worker codex, 12 model calls (2 refused)`.
    pub calls: String,
    /// How it went on after it was resumed.
    pub resumed: Option<&'static str>,
    /// The same as JSON.
    pub json: WorkerJson,
}

/// What the engine saw of the work of one delegation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// The external worker that did the work: its name and model calls, and how it was resumed.
    pub worker: Option<WorkerReceipt>,
    /// The tool calls that were executed.
    pub tool_calls: u32,
    /// How many of them failed.
    pub failed: u32,
    /// The tool calls that were refused.
    pub refused: u32,
    /// The last command it ran.
    pub last_command: Option<LastCommand>,
    /// How many files it changed; `None` if it cannot change any.
    pub changed_files: Option<usize>,
    /// The command that verifies the work.
    pub verify: Option<VerifyCommand>,
    /// The changed files that belong to the check.
    pub check_files: Vec<CheckFile>,
}

impl Receipt {
    /// Returns the receipt of a delegation.
    #[must_use]
    pub fn of(item: &Delegation) -> Self {
        let count = if item.space.is_some() { files(item).len() } else { item.changed.len() };
        let is_over = item.kept.is_some() || item.space.is_none();
        let check_files = item
            .verify
            .as_ref()
            .map(|verify| check_files::among(files(item), &verify.command, &item.from_base));
        Self {
            worker: item.worker.as_ref().zip(WorkerJson::of(item)).map(|(worker, json)| {
                let calls = format!("worker {}, {}", name_text(worker), calls_text(worker));
                WorkerReceipt { calls, resumed: resumed_text(worker.session_start), json }
            }),
            tool_calls: item.tool_calls,
            failed: item.failed_calls,
            refused: item.refused_calls,
            last_command: item.last_command.clone(),
            changed_files: (writes(item) && is_over).then_some(count),
            verify: item.verify.clone(),
            check_files: check_files.unwrap_or_default(),
        }
    }

    /// Returns the receipt in one line:
    /// `12 tool calls, 1 failed · last command: cargo test (exit 101) · 3 files changed`.
    #[must_use]
    pub fn line(&self) -> String {
        let mut calls = match self.tool_calls {
            0 => "no tool calls".to_owned(),
            some => count_with_noun(some as usize, "tool call"),
        };
        for (count, word) in [(self.failed, "failed"), (self.refused, "refused")] {
            if count > 0 {
                calls += &format!(", {count} {word}");
            }
        }
        let command = self.last_command.as_ref().map(|last| {
            let ended = match (last.exit, last.failed) {
                (Some(exit), _) => exit.to_string(),
                (None, true) => "failed".to_owned(),
                (None, false) => "exit 0".to_owned(),
            };
            format!("last command: {} ({ended})", fit(&last.command, COMMAND_COLUMNS))
        });
        let changed = self.changed_files.map(|count| match count {
            0 => "no files changed".to_owned(),
            some => format!("{} changed", count_with_noun(some, "file")),
        });
        let worker = self.worker.as_ref().map(|it| it.calls.clone());
        let resumed = self.worker.as_ref().and_then(|it| it.resumed).map(str::to_owned);
        [worker, Some(calls), command, changed, resumed]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join(" · ")
    }

    /// Returns the verification in one line, if there is a verify command: `passed (cargo test)`.
    #[must_use]
    pub fn verification_line(&self, verification: Verification) -> Option<String> {
        let command = fit(&self.verify.as_ref()?.command, COMMAND_COLUMNS);
        Some(match verification {
            Verification::Passed => format!("passed ({command})"),
            Verification::Failed => format!("failed ({command})"),
            Verification::None => format!("none ({command} did not run on the final work)"),
        })
    }

    /// Returns the changed files that belong to the check in one line, if there are any.
    #[must_use]
    pub fn check_line(&self) -> Option<String> {
        let name = |file: &CheckFile| {
            let from = if file.from_base { ", taken from the base" } else { "" };
            format!("{} ({}{from})", fit(&file.path, PATH_COLUMNS), file.kind.words())
        };
        let named: Vec<String> = self.check_files.iter().take(FILES_NAMED).map(name).collect();
        let more = self.check_files.len().saturating_sub(FILES_NAMED);
        let more = (more > 0).then(|| format!("and {more} more"));
        let line = named.into_iter().chain(more).collect::<Vec<_>>().join(", ");
        (!line.is_empty()).then_some(line)
    }

    /// Returns the receipt as JSON.
    #[must_use]
    pub fn json(&self) -> ReceiptJson {
        ReceiptJson {
            worker: self.worker.as_ref().map(|it| it.json.clone()),
            tool_calls: self.tool_calls,
            failed_tool_calls: self.failed,
            refused_tool_calls: self.refused,
            last_command: self.last_command.as_ref().map(LastCommandJson::of),
            changed_files: self.changed_files,
            verify: self.verify.as_ref().map(|it| it.command.clone()),
            verify_keep: self.verify.iter().flat_map(|it| it.keep.clone()).collect(),
            check_files: self.check_files.clone(),
        }
    }
}

/// A receipt as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReceiptJson {
    /// The external worker that did the work, if one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<WorkerJson>,
    /// The tool calls that were executed.
    pub tool_calls: u32,
    /// How many of them failed.
    pub failed_tool_calls: u32,
    /// The tool calls that were refused.
    pub refused_tool_calls: u32,
    /// The last command that the agent ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_command: Option<LastCommandJson>,
    /// How many files the work changed; absent if it cannot change any or is not committed yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changed_files: Option<usize>,
    /// The verify command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verify: Option<String>,
    /// The globs of files that it takes from the base.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub verify_keep: Vec<String>,
    /// The changed files that belong to the check.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub check_files: Vec<CheckFile>,
}

/// The last command of an agent as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LastCommandJson {
    /// The command, cut if it is long.
    pub command: String,
    /// Its exit status; absent if it did not exit by itself.
    pub exit_status: Option<i32>,
    /// How it ended: `exit 101`, `signal 9`, `timed out after 120 s` or `stopped`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    /// Whether it failed.
    pub failed: bool,
}

impl LastCommandJson {
    fn of(last: &LastCommand) -> Self {
        Self {
            command: last.command.clone(),
            exit_status: last.exit.and_then(CommandExit::status),
            ended: last.exit.map(|exit| exit.to_string()),
            failed: last.failed,
        }
    }
}
