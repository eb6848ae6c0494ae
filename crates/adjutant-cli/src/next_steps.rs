//! `adjutant` without a command: prints what waits for a person in this directory, or how to begin.
//!
//! Reads a bounded number of the newest runs. A state directory that is missing or damaged is not an error: what cannot
//! be read is left out, so that the advice is printed all the same. Start at [`run_next_steps`].

use std::path::{Path, PathBuf};

use adjutant_engine::results::{KeptResults, ResultLocation};
use adjutant_engine::{Archive, RunFiles};
use adjutant_view::layout::wrap_lines;
use adjutant_view::results::resume_command;
use adjutant_view::status::{AgentQuestion, ObservedRun};
use adjutant_view::{ProcessLiveness, RunView, sanitize};

use crate::delegate::absolute;
use crate::execute::is_unfinished;
use crate::exit::{Exit, Failure};
use crate::hints::{command_list, program};
use crate::output::{print, say};
use crate::pager;
use crate::records::{count_with_noun, liveness, numbers, observe_run};
use crate::results::{MergedChildren, ResultSelection, open_work};
use crate::run_lookup::ProjectTree;
use crate::{approvals, settings};

/// How many of the newest runs are examined for where they worked: one small read each.
const EXAMINED_RUNS: usize = 200;

/// How many runs of this directory are read.
const READ_RUNS: usize = 20;

/// How many commands one section lists.
const LISTED: usize = 5;

/// A command to type, and what it is about.
type Suggestion = (String, String);

/// What waits for a person in one directory.
#[derive(Default)]
struct NextSteps {
    calls_to_approve: usize,
    asked: Vec<Suggestion>,
    interrupted: Vec<Suggestion>,
    /// The latest run, if it ended before its work was done.
    unfinished: Vec<Suggestion>,
    /// Conflicts that are being resolved.
    resolving: Vec<Suggestion>,
    unmerged: Vec<Suggestion>,
    running: Vec<Suggestion>,
    /// Whether there is a run of this directory.
    has_runs: bool,
}

/// Prints the next steps for the current directory.
pub(crate) fn run_next_steps(home: Option<PathBuf>) -> Result<Exit, Failure> {
    let steps = find(home).unwrap_or_else(|failure| {
        say(&format!("adjutant: {failure}"));
        NextSteps::default()
    });
    print(&steps.text())?;
    Ok(Exit::Completed)
}

/// Finds what waits; a state directory that does not exist is not created for it.
fn find(home: Option<PathBuf>) -> Result<NextSteps, Failure> {
    let home = settings::home(home)?;
    if !home.exists() {
        return Ok(NextSteps::default());
    }
    let archive = settings::open_archive(Some(home))?;
    let runs = archive.runs().map_err(crate::records::archive_failure)?;
    let mut steps = NextSteps::default();
    let newest = &runs[..runs.len().min(READ_RUNS)];
    steps.calls_to_approve = approvals::count_waiting(&archive, newest).unwrap_or_else(|failure| {
        say(&format!("adjutant: {failure}"));
        0
    });
    let tree = ProjectTree::around(&absolute(Path::new("."))?);
    let is_here = |files: &&RunFiles| files.workdir().is_some_and(|workdir| tree.has(&workdir));
    let mut ended = Vec::new();
    for files in runs.iter().take(EXAMINED_RUNS).filter(is_here).take(READ_RUNS) {
        // Asked first: a run that ends in between must not look interrupted.
        let Ok(liveness) = liveness(files) else { continue };
        let Ok((view, _)) = numbers(files) else { continue };
        let Some(run) = view.run() else { continue };
        let look = observe_run(&view, liveness, files);
        let title = title(&look);
        let is_latest = !std::mem::replace(&mut steps.has_runs, true);
        let about = |it: &AgentQuestion| format!("[{}] {}", it.label, it.question);
        let asked = look.agent_questions().into_iter().map(|it| (it.command.clone(), about(&it)));
        steps.asked.extend(asked);
        if let Some(command) = look.resume() {
            steps.interrupted.push((command, title));
        } else if is_latest && is_unfinished(&view, files) {
            steps.unfinished.push((resume_command(&view, run, program()), title));
            ended.push(view);
        } else if view.outcome().is_some() {
            ended.push(view);
        } else if liveness == ProcessLiveness::Alive {
            steps.running.push((format!("{} watch {run}", program()), title));
        }
    }
    (steps.unmerged, steps.resolving) = unmerged(&archive, &ended);
    Ok(steps)
}

/// Returns the goal of a run, or the labels of its tasks.
fn title(look: &ObservedRun<'_>) -> String {
    let goal = look.title();
    let labels = look.view.delegations().filter(|it| it.parent.is_some());
    let labels = labels.map(|it| sanitize::label(it.label.as_str()));
    if goal.is_empty() { labels.take(LISTED).collect::<Vec<_>>().join(", ") } else { goal }
}

/// Returns how to merge the results of ended runs that neither the files nor a branch have, and how to go on with
/// conflicts that are being resolved.
///
/// Without git or a repository there are no results, so errors mean that there is nothing to merge.
fn unmerged(archive: &Archive, ended: &[RunView]) -> (Vec<Suggestion>, Vec<Suggestion>) {
    let Ok(work) = open_work(Path::new("."), archive) else { return Default::default() };
    let with_results = work.runs().unwrap_or_default();
    let has_results = |view: &&RunView| view.run().is_some_and(|run| with_results.contains(&run));
    let mut resolving = Vec::new();
    let ended = ended.iter().filter(has_results);
    let unmerged = ended.filter_map(|view| unmerged_of(archive, &work, view, &mut resolving));
    (unmerged.collect(), resolving)
}

fn unmerged_of(
    archive: &Archive,
    work: &KeptResults,
    view: &RunView,
    resolving: &mut Vec<Suggestion>,
) -> Option<Suggestion> {
    let chosen = ResultSelection::of(
        work.clone(),
        view,
        ProcessLiveness::Dead,
        None,
        MergedChildren::Exclude,
    )
    .ok()?;
    let open: Vec<_> = chosen.picked.iter().filter(|it| !it.kept.merged).collect();
    for picked in &open {
        if work.resolution_in_progress(&picked.kept).is_some() {
            let name = picked.name(archive, chosen.run);
            let command = format!("{} merge --resolve {name} --continue", program());
            let label = sanitize::label(&picked.label);
            resolving.push((command, format!("[{label}], when no conflict markers are left")));
        }
    }
    let commits: Vec<String> = open.iter().map(|it| it.kept.commit.clone()).collect();
    let places = work.locate_commits(&commits).ok()?;
    let open = open.iter().zip(places).filter(|(_, place)| *place == ResultLocation::Kept);
    let labels: Vec<_> = open.map(|(it, _)| sanitize::label(&it.label)).collect();
    let more = if labels.len() > LISTED { ", …" } else { "" };
    let shown = labels[..labels.len().min(LISTED)].join(", ");
    let text = format!("{}: {shown}{more}", count_with_noun(labels.len(), "result"));
    (!labels.is_empty()).then(|| (format!("{} merge {}", program(), chosen.run), text))
}

impl NextSteps {
    fn text(&self) -> String {
        let program = program();
        let mut text = String::new();
        if self.calls_to_approve > 0 {
            let heading = match self.calls_to_approve {
                1 => "1 call waits for your approval".to_owned(),
                count => format!("{count} calls wait for your approval"),
            };
            let about = "show what is asked and how to answer".to_owned();
            text += &section(&heading, &[(format!("{program} approvals"), about)]);
        }
        if !self.asked.is_empty() {
            let heading = match self.asked.len() {
                1 => "1 subagent asks you something".to_owned(),
                count => format!("{count} subagents ask you something"),
            };
            text += &section(&heading, &self.asked);
        }
        if !self.interrupted.is_empty() {
            let heading = match self.interrupted.len() {
                1 => "1 run was interrupted".to_owned(),
                count => format!("{count} runs were interrupted"),
            };
            text += &section(&heading, &self.interrupted);
        }
        if !self.unfinished.is_empty() {
            text += &section("The latest run ended before its work was done", &self.unfinished);
        }
        if !self.resolving.is_empty() {
            text += &section("A conflict is being resolved", &self.resolving);
        }
        if !self.unmerged.is_empty() {
            let heading = format!("Results that are not merged; `{program} diff RUN` shows them");
            text += &section(&heading, &self.unmerged);
        }
        if !self.running.is_empty() {
            let heading = match self.running.len() {
                1 => "1 run is in progress".to_owned(),
                count => format!("{count} runs are in progress"),
            };
            text += &section(&heading, &self.running);
        }
        if text.is_empty() {
            let (heading, commands) = match self.has_runs {
                true => ("Nothing waits for you here. To go on", GO_ON),
                false => ("Nothing waits for you here. To begin", BEGIN),
            };
            let typed = commands.map(|(typed, about)| (format!("{program} {typed}"), about.into()));
            text += &section(heading, &typed);
        }
        text + &wrapped(&format!(
            "`{program} doctor` checks your setup. `{program} --help` lists all commands.\n"
        ))
    }
}

/// Wraps a sentence between words on a terminal that is too narrow for it.
fn wrapped(text: &str) -> String {
    if pager::is_terminal() { wrap_lines(text, pager::columns()) } else { text.to_owned() }
}

/// How to begin, the way that needs nothing first.
const BEGIN: [(&str, &str); 4] = [
    ("demo", "three subagents read this directory, without an API key"),
    ("init", "choose a model, check it, and write your configuration"),
    ("run \"Why is the build slow?\"", "an agent works toward a goal and can delegate"),
    ("mcp install claude", "let Claude Code delegate; other clients work too"),
];

/// What to do next in a directory that has had runs.
const GO_ON: [(&str, &str); 4] = [
    (
        "delegate -t NAME=\"TASK\" -t …",
        "subagents read and report; with --write they change copies",
    ),
    ("run \"GOAL\"", "an agent works toward a goal and can delegate"),
    ("watch", "show all runs full-screen"),
    ("cost --since 7d", "what the runs of the last week have cost"),
];

/// Returns a heading with its commands below, the explanations in one column.
fn section(heading: &str, all: &[Suggestion]) -> String {
    let listed = &all[..all.len().min(LISTED)];
    let columns = pager::is_terminal().then(pager::columns);
    let mut text = wrapped(&format!("{heading}:\n"));
    text += &command_list(listed, columns);
    if all.len() > LISTED {
        text += &format!("  … {} more; `{} status` lists them\n", all.len() - LISTED, program());
    }
    text + "\n"
}
