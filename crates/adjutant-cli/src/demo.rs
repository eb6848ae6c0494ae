//! `demo`: shows delegation with the real engine, tools, limits and journal; only the model is a script.

mod command;
mod story;

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use adjutant_core::schema::{ReturnFormat, TaskSpec};
use adjutant_core::{Policy, Preset};
use adjutant_engine::{ApproverAnswer, Archive, Engine, EngineSetup};
use adjutant_view::approval::ApprovalQuestion;

use crate::args::{DemoArgs, MergeAfterRun, ResultFormat};
use crate::delegate::{absolute, engine_failure, form};
use crate::errors;
use crate::execute::{DisplayOptions, RunRequest, conclude, execute_run};
use crate::exit::{Exit, Failure};
use crate::live::columns;
use crate::output::say;
use crate::wiring;

const SCRIPT: &str = include_str!("demo.toml");

const TASKS: [(&str, &str); 3] = [
    (
        "survey",
        "What is in this tree? Count its files and open TODOs, and show how one file begins.",
    ),
    ("deep-read", "Read everything in this tree and summarise it."),
    ("second-opinion", "Say what the survey may have missed."),
];

/// The expected exit: one task completes, one is partial, one fails.
const AS_SCRIPTED: Exit = Exit::Partial;

/// Bytes of text that exceed the context window of the task that is meant to run out of it.
const ENOUGH_BYTES: u64 = 100_000;

/// The most directory entries that are examined.
const LOOKED_AT: usize = 2_000;

/// A sample tree for small directories: parts of Adjutant's own source. `demo/sample` has links to them, which become
/// files in a package of this crate.
const SAMPLE: [(&str, &str); 8] = [
    ("README.md", include_str!("demo/sample/README.md")),
    ("ARCHITECTURE.md", include_str!("demo/sample/ARCHITECTURE.md")),
    ("docs/scripted-model.md", include_str!("demo/sample/docs/scripted-model.md")),
    ("src/admission.rs", include_str!("demo/sample/src/admission.rs")),
    ("src/evolve.rs", include_str!("demo/sample/src/evolve.rs")),
    ("src/turn.rs", include_str!("demo/sample/src/turn.rs")),
    ("src/refusal.rs", include_str!("demo/sample/src/refusal.rs")),
    ("src/policy.rs", include_str!("demo/sample/src/policy.rs")),
];

/// Runs `adjutant demo`.
pub(crate) fn run_demo(args: &DemoArgs, as_json: bool, archive: &Archive) -> Result<Exit, Failure> {
    let policy = Preset::Scout.policy();
    let tree = tree(args.dir.as_deref(), archive)?;
    let engine = engine(policy.clone(), model()?, &tree)?;
    let briefs = engine.briefs(&tasks()?);
    let preview = engine.preview(briefs.clone(), None).map_err(|error| engine_failure(&error))?;
    say(&format!(
        "Three read-only subagents on {}. No key, no network: the model is a script.",
        tree.display()
    ));
    say(&format!(
        "A person would be asked first:\n\n{}",
        indent_lines(
            &ApprovalQuestion::of(&policy, &preview.events)
                .text(columns(io::stderr()).saturating_sub(2))
        )
    ));
    let showing = DisplayOptions {
        form: form(args.return_form, ReturnFormat::Markdown, as_json),
        events: args.events,
        result_tokens: policy.result_tokens,
        merge: MergeAfterRun::Report,
    };
    let work = RunRequest::Tasks { briefs, concurrency: None };
    let conducted =
        execute_run(engine, archive, work, Arc::new(|_| ApproverAnswer::Yes), &showing)?;
    let run = conducted.view.run();
    let exit = conclude(conducted, archive, false, &showing)?;
    if exit != AS_SCRIPTED {
        say("adjutant: the demo did not go as scripted; `adjutant log` shows every step");
        return Ok(exit);
    }
    say("\nOne completed, one ran out of context and gave its notes, one failed: as scripted.");
    if let Some(run) = run {
        errors::mark_all_fixed(archive, run)?;
    }
    // JSON documents and event streams describe a single run, so the other parts are skipped.
    if showing.form == ResultFormat::Markdown && !showing.events {
        for show in [command::show, story::show] {
            let exit = show(archive)?;
            if exit != Exit::Completed {
                return Ok(exit);
            }
        }
    }
    say("\nLook again with\n  \
         adjutant status | tree RUN | cost RUN | log RUN | transcript SESSION");
    Ok(Exit::Completed)
}

/// The name of the demo's model.
pub(crate) const MODEL: &str = "script:demo";

/// Returns an engine with a scripted model, without keys, network or user settings.
fn engine(policy: Policy, model: wiring::SharedModel, tree: &Path) -> Result<Engine, Failure> {
    let setup = EngineSetup {
        policy,
        model,
        workdir: tree.to_owned(),
        system: None,
        opener: None,
        web: None,
        tools: Vec::new(),
        secrets: Vec::new(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        workers: None,
    };
    Engine::new(setup).map_err(|error| engine_failure(&error))
}

/// Returns the scripted model.
pub(crate) fn model() -> Result<wiring::SharedModel, Failure> {
    wiring::script(SCRIPT, MODEL)
}

fn tasks() -> Result<Vec<TaskSpec>, Failure> {
    let task = |(label, prompt): &(&str, &str)| TaskSpec::new(label, prompt);
    let tasks = TASKS.iter().map(task).collect::<Result<_, _>>();
    tasks.map_err(|error| Failure::from_error(Exit::Failed, &error))
}

/// Returns the tree to read: the named one, the current directory, or the sample if that is too small.
fn tree(named: Option<&Path>, archive: &Archive) -> Result<PathBuf, Failure> {
    if let Some(named) = named {
        return absolute(named);
    }
    let here = absolute(Path::new("."))?;
    if is_large_enough(&here) {
        return Ok(here);
    }
    let sample = archive.path().join("demo-tree");
    for (name, text) in SAMPLE {
        write_sample(&sample.join(name), text).map_err(|error| {
            Failure::new(Exit::Failed, format!("cannot write {}: {error}", sample.display()))
        })?;
    }
    Ok(sample)
}

fn write_sample(path: &Path, text: &str) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    let mut private = fs::File::options();
    private
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)?
        .write_all(text.as_bytes())
}

/// Returns whether the files of a tree, without hidden ones, have enough text.
fn is_large_enough(root: &Path) -> bool {
    let mut open = vec![root.to_owned()];
    let (mut bytes, mut seen) = (0, 0);
    while let Some(folder) = open.pop() {
        let Ok(entries) = fs::read_dir(folder) else { continue };
        for entry in entries.flatten() {
            seen += 1;
            let hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
            let Ok(kind) = entry.file_type() else { continue };
            if hidden || seen > LOOKED_AT {
                continue;
            }
            if kind.is_dir() && entry.file_name() != "target" && entry.file_name() != "node_modules"
            {
                open.push(entry.path());
            } else if kind.is_file() {
                bytes += entry.metadata().map_or(0, |metadata| metadata.len());
            }
        }
        if bytes >= ENOUGH_BYTES {
            return true;
        }
    }
    false
}

fn indent_lines(text: &str) -> String {
    text.lines().map(|line| format!("  {line}").trim_end().to_owned() + "\n").collect()
}
