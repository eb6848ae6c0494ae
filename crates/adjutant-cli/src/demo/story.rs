//! The part of the demo about stories: two agents write in parallel in a temporary repository.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use adjutant_core::story::StoryAssignment;
use adjutant_core::{AgentName, Outcome, Preset, VerifyCommand};
use adjutant_engine::prd::PrdFile;
use adjutant_engine::results::probe_machine;
use adjutant_engine::{ApproverAnswer, Archive, Goal};
use adjutant_formats::prd::{Prd, story_digest, story_prompt};
use adjutant_view::RunView;
use adjutant_view::story::StoryReport;

use super::command::ScratchDir;
use super::{MODEL, engine};
use crate::args::{MergeAfterRun, ResultFormat};
use crate::execute::{DisplayOptions, RunRequest, execute_run};
use crate::exit::{Exit, Failure};
use crate::output::say;
use crate::results::search;
use crate::story;
use crate::wiring;
use crate::workspace_flags::default_setup;

const SCRIPT: &str = include_str!("story.toml");
const PRD: &str = include_str!("story.json");
const STORY: &str = "US-001";

/// The minimal files of a repository without commits. Git has defaults for everything else.
const REPOSITORY: [(&str, &str); 4] = [
    (".git/HEAD", "ref: refs/heads/main\n"),
    (".git/config", "[core]\n\trepositoryformatversion = 0\n\tbare = false\n"),
    (".git/objects/info/alternates", ""),
    (".git/refs/heads/.keep", ""),
];

/// Plays this part. The repository is deleted afterwards, the run stays.
pub(super) fn show(archive: &Archive) -> Result<Exit, Failure> {
    let folder = ScratchDir::create()?;
    if let Some(why) = missing_capabilities(&folder.0) {
        say(&format!("\nA story with two writers is left out: {why}."));
        return Ok(Exit::Completed);
    }
    let tree = folder.0.join("login");
    set_up(&tree).map_err(|error| {
        Failure::new(Exit::Failed, format!("cannot make a repository for the demo: {error}"))
    })?;
    say("\nNow a story of a PRD, in a scratch repository. Two agents write at once, each in a \
         workspace of its own.\n");
    say("$ adjutant story prd.json --enable-delegation --trust-prd");
    let view = work(&tree, &folder.0.join("state"), archive)?;
    report(archive, &view)?;
    if view.outcome() == Some(Outcome::Completed) && passes(&tree) {
        say("prd.json says so too: `passes` is true, and an entry for each of the two was added.");
        return Ok(Exit::Completed);
    }
    say("adjutant: the demo did not go as scripted; `adjutant log` shows every step");
    // The run may have completed although the PRD does not say so.
    let exit = view.outcome().map_or(Exit::Failed, Exit::of);
    Ok(if exit == Exit::Completed { Exit::Failed } else { exit })
}

/// Returns what this machine lacks for agents that write.
fn missing_capabilities(folder: &Path) -> Option<String> {
    let machine = probe_machine(&search(), folder);
    let git = machine.git.err();
    git.or_else(|| machine.sandbox.err().map(|why| format!("there is no sandbox here: {why}")))
}

fn set_up(tree: &Path) -> std::io::Result<()> {
    for (name, text) in REPOSITORY.iter().chain(&[("prd.json", PRD)]) {
        super::write_sample(&tree.join(name), text)?;
    }
    fs::remove_file(tree.join(".git/refs/heads/.keep"))?;
    fs::remove_file(tree.join(".git/objects/info/alternates"))
}

fn work(tree: &Path, state: &Path, archive: &Archive) -> Result<RunView, Failure> {
    let prd = Prd::read(PRD).map_err(|error| Failure::from_error(Exit::Failed, &error))?;
    let unknown = || Failure::new(Exit::Failed, format!("there is no story {STORY}"));
    let story = prd.story(STORY).ok_or_else(unknown)?;
    let mut policy = Preset::Story.policy();
    policy.enabled = true;
    let result_tokens = policy.result_tokens;
    let engine =
        engine(policy, wiring::script(SCRIPT, MODEL)?, tree)?.with_story(StoryAssignment {
            id: story.id.clone(),
            title: story.title.clone(),
            prd: Some(tree.join("prd.json").display().to_string()),
            verify: story.verify.clone().map(VerifyCommand::new),
            asked: story_digest(story, story.verify.as_deref()),
            ..StoryAssignment::default()
        });
    let goal =
        Goal { agent: AgentName::new("story"), system: String::new(), text: story_prompt(story) };
    // Workspaces are inside the temporary directory, so they are deleted with it.
    let engine = engine.with_spaces(default_setup(state));
    let showing = DisplayOptions { result_tokens, ..showing() };
    let yes = Arc::new(|_: &_| ApproverAnswer::Yes);
    Ok(execute_run(engine, archive, RunRequest::Goal(goal), yes, &showing)?.view)
}

const fn showing() -> DisplayOptions {
    let (form, merge) = (ResultFormat::Markdown, MergeAfterRun::Report);
    DisplayOptions { form, events: false, result_tokens: None, merge }
}

fn report(archive: &Archive, view: &RunView) -> Result<(), Failure> {
    story::record_outcome(archive, view, None);
    let Some(mut report) = StoryReport::of(view) else { return Ok(()) };
    // No merge command is recommended, because the repository is deleted.
    report.merge = None;
    say("");
    story::show(&report, &showing())
}

/// Returns whether the PRD says that the story passes.
fn passes(tree: &Path) -> bool {
    let file = PrdFile::open(tree.join("prd.json")).ok();
    file.is_some_and(|file| file.prd().story(STORY).is_some_and(|story| story.passes))
}
