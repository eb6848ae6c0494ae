//! The part of the demo about slash commands: adds a task and researches it, in an empty directory.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use adjutant_core::Preset;
use adjutant_engine::roster::AgentRoster;
use adjutant_engine::slash::ConfiguredRoutes;
use adjutant_engine::specs::Specs;
use adjutant_engine::{ApproverAnswer, Archive};
use adjutant_formats::task::TaskNumber;
use adjutant_view::sanitize;

use super::{engine, model};
use crate::args::{MergeAfterRun, ResultFormat, TaskAddArgs};
use crate::commands;
use crate::delegate::absolute;
use crate::execute::{DisplayOptions, RunRequest, conclude, execute_run};
use crate::exit::{Exit, Failure};
use crate::output::{print, say};
use crate::tasks;

const TITLE: &str = "Sign sessions with JWT";
const RESEARCH: &str = "/research 1";

/// How many directory names are tried; an earlier process with the same pid may have left some.
const NAMES: u32 = 100;

/// Plays this part. The directory is deleted afterwards, the run stays.
pub(super) fn show(archive: &Archive) -> Result<Exit, Failure> {
    let folder = ScratchDir::create()?;
    say("\nNow a slash command, in an empty folder. Adjutant adds the task, agents research it.\n");
    say(&format!("$ adjutant run '/task \"{TITLE}\"'"));
    let wish = TaskAddArgs {
        title: TITLE.to_owned(),
        language: None,
        priority: None,
        effort: None,
        description: None,
    };
    tasks::add(&folder.0, &wish, false, tasks::added)?;
    say(&format!("\n$ adjutant run '{RESEARCH}'"));
    let exit = research(&folder.0, archive)?;
    if exit == Exit::Completed {
        entry(&folder.0)?;
    } else {
        say("adjutant: the demo did not go as scripted; `adjutant log` shows every step");
    }
    Ok(exit)
}

fn research(root: &Path, archive: &Archive) -> Result<Exit, Failure> {
    let policy = Preset::Command.policy();
    let unknown = || Failure::new(Exit::Failed, "there is no command `/research`");
    let slash = commands::built_in(root, RESEARCH).ok_or_else(unknown)?;
    let mut roster = AgentRoster::default();
    let prepared = slash.prepare(&ConfiguredRoutes::default(), None, &mut roster)?;
    let engine = engine(policy.clone(), model()?, root)?;
    let known = roster.agents.iter().cloned().chain([prepared.definition.clone()]);
    let engine = slash.configure(engine.with_agents(known, &[]), &prepared, &policy, &roster);
    let showing = DisplayOptions {
        form: ResultFormat::Markdown,
        events: false,
        result_tokens: policy.result_tokens,
        merge: MergeAfterRun::Report,
    };
    let work = RunRequest::Goal(prepared.goal(&policy, None, ""));
    let conducted =
        execute_run(engine, archive, work, Arc::new(|_| ApproverAnswer::Yes), &showing)?;
    conclude(conducted, archive, true, &showing)
}

/// Prints the entry of the task in the task list.
fn entry(root: &Path) -> Result<(), Failure> {
    let failed = |error| Failure::from_error(Exit::Failed, &error);
    let specs = Specs::open(root).map_err(failed)?;
    let (book, folder) = (specs.read().map_err(failed)?, specs.folder().map_err(failed)?);
    let text = TaskNumber::new(1).and_then(|first| book.entry_text(first)).unwrap_or_default();
    say(&format!("\nIts entry in {folder}/TODO.md:\n"));
    print(&format!("{}\n", sanitize::block(text.trim_end())))
}

/// A new temporary directory, deleted on drop.
pub(super) struct ScratchDir(pub(super) PathBuf);

impl ScratchDir {
    pub(super) fn create() -> Result<Self, Failure> {
        let place = std::env::temp_dir();
        let wrong = |error| {
            let text = format!("cannot make a folder in {}: {error}", place.display());
            Failure::new(Exit::Failed, text)
        };
        // `create` fails if the name exists, so another process's directory is never used.
        let made = |nth: u32| {
            let path = place.join(format!("adjutant-demo-{}-{nth}", std::process::id()));
            fs::DirBuilder::new().mode(0o700).create(&path).map(|()| path)
        };
        let free = (1..NAMES).find_map(|nth| made(nth).ok());
        let path = free.map_or_else(|| made(NAMES), Ok).map_err(wrong)?;
        Ok(Self(absolute(&path)?))
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        // Best effort: at worst a small temporary directory stays.
        let _ = fs::remove_dir_all(&self.0);
    }
}
