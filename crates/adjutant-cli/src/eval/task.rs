//! The tasks of an evaluation: reading them from folders and from the program itself.
//!
//! A task is a folder with `task.toml`, the files that agents get in `files/`, and in `check/` those that only its
//! check sees. Start at [`read_tasks`] and [`built_in_tasks`].

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use adjutant_core::{Label, content_hash};
use adjutant_view::eval::{EvalExpectation, EvalTaskTitle};
use serde::Deserialize;

use crate::exit::Failure;

/// The built-in tasks: names, and folders in the form that [`unpack`] reads.
const BUILT_IN: [(&str, &str); 16] = [
    ("find-default-port", include_str!("tasks/find-default-port.txt")),
    ("find-writer", include_str!("tasks/find-writer.txt")),
    ("count-unchecked-routes", include_str!("tasks/count-unchecked-routes.txt")),
    ("find-missing-flag", include_str!("tasks/find-missing-flag.txt")),
    ("find-retry-sum", include_str!("tasks/find-retry-sum.txt")),
    ("fix-rust-intervals", include_str!("tasks/fix-rust-intervals.txt")),
    ("fix-rust-csv", include_str!("tasks/fix-rust-csv.txt")),
    ("fix-rust-ring", include_str!("tasks/fix-rust-ring.txt")),
    ("fix-python-duration", include_str!("tasks/fix-python-duration.txt")),
    ("fix-python-cache", include_str!("tasks/fix-python-cache.txt")),
    ("fix-python-pages", include_str!("tasks/fix-python-pages.txt")),
    ("fix-js-query", include_str!("tasks/fix-js-query.txt")),
    ("fix-js-emitter", include_str!("tasks/fix-js-emitter.txt")),
    ("refactor-shared-money", include_str!("tasks/refactor-shared-money.txt")),
    ("split-six-converters", include_str!("tasks/split-six-converters.txt")),
    ("impossible-rounding", include_str!("tasks/impossible-rounding.txt")),
];

/// The most files of one task, and the most bytes of one file.
const MAX_FILES: usize = 2_000;
const MAX_BYTES: u64 = 1 << 20;

/// What an attempt is asked to end with, so that it can be compared with the exact answer.
const ANSWER_LINE: &str = "\n\nEnd your report with one line `answer: VALUE`, with nothing but the value after the colon.";

/// A file of a task, by its path in the folder that it belongs to.
pub(super) type TaskFile = (PathBuf, Vec<u8>);

/// A task with a known solution.
#[derive(Debug)]
pub(super) struct EvalTask {
    /// Its name, which is also the label of its agent.
    pub(super) name: String,
    /// What it says about itself.
    pub(super) settings: TaskSettings,
    /// The files that agents get.
    pub(super) files: Vec<TaskFile>,
    /// The files that are laid over the work before the check runs.
    pub(super) check_files: Vec<TaskFile>,
}

/// The content of `task.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TaskSettings {
    /// What kind of work it is.
    pub(super) kind: TaskKind,
    /// What the agent is asked.
    prompt: String,
    /// The exact answer to a question.
    answer: Option<String>,
    /// The command that judges the work.
    pub(super) check: Option<String>,
    /// The time limit of the check in seconds.
    #[serde(default = "default_check_s")]
    pub(super) check_s: u64,
    /// What its files are written in.
    #[serde(default)]
    pub(super) needs: Vec<NeededToolchain>,
}

const fn default_check_s() -> u64 {
    120
}

/// The kind of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum TaskKind {
    /// A question about the files, with an exact answer.
    Question,
    /// Something that does not work and has to.
    Fix,
    /// A change that keeps the behaviour.
    Refactor,
    /// Work whose parts do not depend on each other.
    Split,
    /// Something that cannot be done.
    Impossible,
}

impl TaskKind {
    const fn word(self) -> &'static str {
        match self {
            Self::Question => "question",
            Self::Fix => "fix",
            Self::Refactor => "refactor",
            Self::Split => "split",
            Self::Impossible => "impossible",
        }
    }
}

/// A toolchain that a task cannot do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum NeededToolchain {
    /// `cargo`, and a linker.
    Rust,
    /// `python3`.
    Python,
    /// `node`.
    Node,
}

impl NeededToolchain {
    /// Returns the programs of it; of each group, one is enough.
    pub(super) const fn programs(self) -> &'static [&'static [&'static str]] {
        match self {
            Self::Rust => &[&["cargo"], &["gcc", "clang"]],
            Self::Python => &[&["python3", "python"]],
            Self::Node => &[&["node"]],
        }
    }
}

impl EvalTask {
    /// Returns its name and kind.
    pub(super) fn title(&self) -> EvalTaskTitle {
        EvalTaskTitle { name: self.name.clone(), kind: self.settings.kind.word() }
    }

    /// Returns what solves it.
    pub(super) fn expectation(&self) -> EvalExpectation<'_> {
        match (self.settings.kind, &self.settings.answer) {
            (TaskKind::Question, answer) => {
                EvalExpectation::Answer(answer.as_deref().unwrap_or_default())
            }
            (TaskKind::Impossible, _) => EvalExpectation::NoSolution,
            (TaskKind::Fix | TaskKind::Refactor | TaskKind::Split, _) => {
                EvalExpectation::PassingCheck
            }
        }
    }

    /// Returns what the agent is asked.
    pub(super) fn prompt(&self) -> String {
        let ending = if self.settings.kind == TaskKind::Question { ANSWER_LINE } else { "" };
        format!("{}{ending}", self.settings.prompt.trim())
    }

    /// Returns a hash of everything that decides about an attempt.
    pub(super) fn digest(&self) -> String {
        let mut all = format!("{:?}", self.settings).into_bytes();
        for (path, bytes) in self.files.iter().chain(&self.check_files) {
            all.extend_from_slice(path.as_os_str().as_encoded_bytes());
            all.extend_from_slice(content_hash(bytes).as_bytes());
        }
        content_hash(&all)
    }

    /// Puts together a task from the files of its folder.
    fn of(name: &str, files: Vec<TaskFile>) -> Result<Self, String> {
        Label::new(name).map_err(|error| format!("the name `{name}`: {error}"))?;
        let mut head = None;
        let (mut own, mut check_files) = (Vec::new(), Vec::new());
        for (path, bytes) in files {
            let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_));
            if !path.components().all(is_plain)
                || path.components().any(|it| it.as_os_str() == ".git")
            {
                return Err(format!("{}: not a path within the task", path.display()));
            }
            if path == Path::new("task.toml") {
                head = Some(bytes);
            } else if let Ok(path) = path.strip_prefix("files") {
                own.push((path.to_owned(), bytes));
            } else if let Ok(path) = path.strip_prefix("check") {
                check_files.push((path.to_owned(), bytes));
            } else {
                return Err(format!(
                    "{}: only task.toml, files/ and check/ are used",
                    path.display()
                ));
            }
        }
        let head = head.ok_or("task.toml is missing")?;
        let head = String::from_utf8(head).map_err(|_| "task.toml is not UTF-8")?;
        let settings: TaskSettings =
            toml::from_str(&head).map_err(|error| format!("task.toml: {error}"))?;
        match (settings.kind, &settings.answer, &settings.check) {
            (TaskKind::Question, None, _) => {
                return Err("task.toml: a question needs `answer`".into());
            }
            (TaskKind::Question, _, Some(_)) => {
                return Err("task.toml: a question has no `check`".into());
            }
            (TaskKind::Question, Some(_), None) => {}
            (_, Some(_), _) => return Err("task.toml: only a question has an `answer`".into()),
            (_, None, None) => return Err("task.toml: `check` is missing".into()),
            (_, None, Some(_)) => {}
        }
        Ok(Self { name: name.to_owned(), settings, files: own, check_files })
    }
}

/// Returns the built-in tasks.
pub(super) fn built_in_tasks() -> Result<Vec<EvalTask>, Failure> {
    let task = |(name, text): &(&str, &str)| {
        EvalTask::of(name, unpack(text)).map_err(|why| Failure::usage(format!("{name}: {why}")))
    };
    BUILT_IN.iter().map(task).collect()
}

/// Reads a folder that is written as one text: each file after a line `-- PATH --`.
fn unpack(text: &str) -> Vec<TaskFile> {
    let mut files: Vec<TaskFile> = Vec::new();
    for line in text.split_inclusive('\n') {
        let path = line.trim_end().strip_prefix("-- ").and_then(|rest| rest.strip_suffix(" --"));
        match (path, files.last_mut()) {
            (Some(path), _) => files.push((PathBuf::from(path), Vec::new())),
            (None, Some((_, bytes))) => bytes.extend_from_slice(line.as_bytes()),
            (None, None) => {}
        }
    }
    files
}

/// Reads the tasks in the folders of a directory, in the order of their names.
pub(super) fn read_tasks(dir: &Path) -> Result<Vec<EvalTask>, Failure> {
    let failed = |path: &Path, why: String| {
        Failure::usage(format!("{}: {why}", path.display()))
            .hint("docs/eval.md describes the folder of a task.")
    };
    let entries = fs::read_dir(dir).map_err(|error| failed(dir, error.to_string()))?;
    let mut folders: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    folders.retain(|path| path.join("task.toml").is_file());
    folders.sort_unstable();
    let mut tasks = Vec::new();
    for folder in folders {
        let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let mut files = Vec::new();
        read_folder(&folder, Path::new(""), &mut files)
            .map_err(|error| failed(&folder, error.to_string()))?;
        files.sort_unstable();
        tasks.push(EvalTask::of(name, files).map_err(|why| failed(&folder, why))?);
    }
    if tasks.is_empty() {
        return Err(failed(dir, "no folder in it has a task.toml".to_owned()));
    }
    Ok(tasks)
}

/// Adds the files below a folder. Links are not followed, because they could lead out of the task.
fn read_folder(top: &Path, below: &Path, files: &mut Vec<TaskFile>) -> io::Result<()> {
    for entry in fs::read_dir(top.join(below))? {
        let entry = entry?;
        let (path, kind) = (below.join(entry.file_name()), entry.file_type()?);
        if kind.is_dir() {
            read_folder(top, &path, files)?;
            continue;
        }
        let refused = |why: &str| Err(io::Error::other(format!("{}: {why}", path.display())));
        if !kind.is_file() {
            return refused("not a file or directory");
        }
        if entry.metadata()?.len() > MAX_BYTES {
            return refused("larger than 1 MiB");
        }
        if files.len() >= MAX_FILES {
            return refused("more than 2,000 files");
        }
        let bytes = fs::read(entry.path())?;
        files.push((path, bytes));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_tasks_are_complete() {
        let tasks = built_in_tasks().map_err(|failure| failure.to_string()).unwrap();
        let count = |kind: TaskKind| tasks.iter().filter(|it| it.settings.kind == kind).count();
        let kinds = [
            TaskKind::Question,
            TaskKind::Fix,
            TaskKind::Refactor,
            TaskKind::Split,
            TaskKind::Impossible,
        ];
        assert_eq!(kinds.map(count), [5, 8, 1, 1, 1]);
        for task in &tasks {
            assert!(!task.files.is_empty(), "{}", task.name);
            let answers = task.settings.answer.iter();
            for (path, bytes) in &task.files {
                let text = String::from_utf8_lossy(bytes);
                assert!(text.ends_with('\n'), "{} {}", task.name, path.display());
            }
            assert!(answers.clone().all(|it| it.trim() == it), "{}", task.name);
            let is_seen = |it: &&TaskFile| task.files.contains(it);
            let hidden = task.check_files.iter().filter(|it| !is_seen(it)).count();
            let has_check = task.settings.kind != TaskKind::Question;
            assert_eq!(hidden > 0, has_check, "{}: the agent sees all of the check", task.name);
        }
    }

    #[test]
    fn a_task_that_lacks_something_says_what() {
        let of = |head: &str, more: &[&str]| {
            let head = ("task.toml".into(), head.as_bytes().to_vec());
            let more = more.iter().map(|path| (PathBuf::from(path), Vec::new()));
            EvalTask::of("name", [head].into_iter().chain(more).collect()).unwrap_err()
        };
        let cases = [
            of("kind = \"fix\"\nprompt = \"x\"", &[]),
            of("kind = \"question\"\nprompt = \"x\"", &[]),
            of("kind = \"fix\"\nprompt = \"x\"\ncheck = \"true\"", &["files/../../x"]),
            of("kind = \"fix\"\nprompt = \"x\"\ncheck = \"true\"", &["files/.git/config"]),
            of("kind = \"fix\"\nprompt = \"x\"\ncheck = \"true\"", &["notes.txt"]),
        ];
        insta::assert_snapshot!(cases.join("\n"), @r"
        task.toml: `check` is missing
        task.toml: a question needs `answer`
        files/../../x: not a path within the task
        files/.git/config: not a path within the task
        notes.txt: only task.toml, files/ and check/ are used
        ");
    }
}
