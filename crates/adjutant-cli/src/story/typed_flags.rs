//! The typed flags of `story`: refuses flags that make no sense, and repeats the others in recommended commands.

use std::path::Path;

use adjutant_core::refusal::raising_flags;
use adjutant_core::{ErrorCode, Preset};
use adjutant_view::RunView;
use adjutant_view::story::StoryReport;
use clap::parser::ValueSource;
use clap::{ArgAction, ArgMatches, Command};

use crate::args::{PolicyFlags, StoryArgs, WorkFlags};
use crate::exit::Failure;
use crate::hints::{quoted, root};

/// Arguments that a recommended command does not repeat: they are added elsewhere, or concern only this invocation.
const OF_THIS_TIME: [&str; 9] =
    ["story", "again", "root", "home", "json", "events", "return_form", "record", "prd"];

/// Returns the typed flags of a command that a recommended command must repeat, each with its value.
pub(crate) fn flags(command: &Command, matches: &ArgMatches) -> Vec<String> {
    let mut typed = Vec::new();
    for arg in command.get_arguments() {
        let id = arg.get_id().as_str();
        let is_typed = matches.value_source(id) == Some(ValueSource::CommandLine);
        let counts = is_typed && !OF_THIS_TIME.contains(&id) && !arg.is_hide_set();
        let Some(long) = arg.get_long().filter(|_| counts) else { continue };
        if matches!(arg.get_action(), ArgAction::SetTrue) {
            typed.push(format!("--{long}"));
            continue;
        }
        for value in matches.get_raw(id).into_iter().flatten() {
            typed.push(format!("--{long} {}", quoted(&value.to_string_lossy())));
        }
    }
    typed
}

/// Returns what to type to give a flag of `story`: the flag itself, or, for a run on behalf of an MCP client, the whole
/// command, because the server does not take these flags.
pub(super) fn command_with_flag(
    args: &StoryArgs,
    prd: &Path,
    id: Option<&str>,
    flag: &str,
) -> String {
    if !args.detached.detached {
        return flag.to_owned();
    }
    let (prd, id) = (quoted(&prd.display().to_string()), id.map(quoted));
    let story = id.map(|id| format!(" --story {id}")).unwrap_or_default();
    format!("`adjutant story {prd}{story} {flag}` in a terminal")
}

/// Returns the policy flags for stories. Refuses flags that only other commands support.
pub(super) fn of_stories(flags: &WorkFlags) -> Result<PolicyFlags, Failure> {
    let elsewhere = [
        (flags.agent.is_some(), "--agent: a story is worked on by an agent of its own"),
        (flags.system.is_some(), "--system: the agents of stories have a base prompt of their own"),
        (
            flags.in_place,
            "--in-place: the agents of stories write in workspaces of their own; --merge apply brings their work \
             into your files",
        ),
        (
            flags.spaces.write,
            "--write: the agents of stories always write, each in a workspace of its own",
        ),
    ];
    if let Some((_, why)) = elsewhere.into_iter().find(|(is_typed, _)| *is_typed) {
        return Err(Failure::usage(why).hint("Leave it out."));
    }
    let mut chosen = flags.policy.clone();
    let other = chosen.preset.take_if(|name| Preset::parse(name) != Some(Preset::Story));
    match other.filter(|_| is_preset_typed()) {
        // A preset from the environment is the person's default for other commands.
        None => Ok(chosen),
        Some(name) => {
            let text =
                format!("--preset {name} cannot be used here: stories always use the preset story");
            Err(Failure::usage(text).hint("Leave it out; --set KEY=VALUE changes a limit."))
        }
    }
}

/// Returns whether `--preset` was typed, rather than set in the environment.
fn is_preset_typed() -> bool {
    std::env::args().any(|word| word == "--preset" || word.starts_with("--preset="))
}

/// Completes the recommended command that begins a story again: adds the flags that were typed for its run, raised
/// budgets, and `--root` if the run worked in another directory.
pub(super) fn completed(mut report: StoryReport, view: &RunView) -> StoryReport {
    let Some(again) = report.again.take() else { return report };
    let typed = view.story().map(|story| story.typed.as_slice()).unwrap_or_default();
    let advice = report.reason.as_ref().map(|reason| reason.recommendation.as_str());
    let raised = advice.and_then(raising_flags);
    let code = report.reason.as_ref().map(|reason| reason.code);
    // How much larger the context must be is unknown, but the same size would fail again.
    let raised_too =
        (code == Some(ErrorCode::ContextExhausted.as_str())).then_some("--set context_tokens");
    let is_raised = |flag: &&String| raised.into_iter().chain(raised_too).any(|it| sets(it, flag));
    let kept = typed.iter().filter(|flag| !is_raised(flag));
    let is_here = std::env::current_dir().is_ok_and(|here| here == Path::new(view.workdir()));
    let tree = format!("--root {}", quoted(view.workdir()));
    // `hints` already adds a `--root` that was typed.
    let tree = Some(tree.as_str()).filter(|_| root().is_empty() && !is_here);
    let all = kept.map(String::as_str).chain(raised).chain(tree);
    report.again = Some(all.fold(again, |command, flag| format!("{command} {flag}")));
    report
}

/// Returns whether one of the flags in `raised` sets the same key as `flag`.
fn sets(raised: &str, flag: &str) -> bool {
    let key = |text: &str| {
        let text = text.strip_prefix("--set ").unwrap_or(text);
        let key = text.split(['=', ' ']).next().unwrap_or_default().replace('-', "_");
        // `--budget-tokens` and `--set budget_tokens_run` are the same key.
        if key == "budget_tokens_run" { "__budget_tokens".to_owned() } else { key }
    };
    let places: Vec<usize> = raised.match_indices("--").map(|(place, _)| place).collect();
    let ends = places.iter().skip(1).copied().chain([raised.len()]);
    places.iter().zip(ends).any(|(start, end)| key(&raised[*start..end]) == key(flag))
}

#[cfg(test)]
mod tests {
    use super::sets;

    #[test]
    fn a_raised_budget_takes_the_place_of_the_typed_one_however_that_was_spelled() {
        let raised = "--set budget_tokens=9 --budget-tokens 10";
        for flag in ["--budget-tokens 5", "--set budget_tokens_run=5", "--set budget_tokens=5"] {
            assert!(sets(raised, flag), "{flag}");
        }
        for flag in ["--budget-usd 5", "--model a/b", "--set max_depth=2", "--trust-prd"] {
            assert!(!sets(raised, flag), "{flag}");
        }
        assert!(!sets("--budget-tokens 10", "--set budget_tokens=5"), "that of one delegation");
    }
}
