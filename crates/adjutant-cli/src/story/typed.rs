//! The flags that were typed for `story`, for the command that begins one of them anew.

use adjutant_core::Code;
use adjutant_core::refusal::raising_flags;
use adjutant_view::story::StoryReport;
use clap::parser::ValueSource;
use clap::{ArgAction, ArgMatches, Command};

use crate::hints::{quoted, typed};

/// What says which story it is, where its files are, or how it is shown: that is added elsewhere or of this time only.
const OF_THIS_TIME: [&str; 9] =
    ["story", "again", "root", "home", "json", "events", "return_form", "record", "prd"];

/// Returns the flags of a command that were typed and count for the next time too, each with its value.
pub(crate) fn flags(command: &Command, matches: &ArgMatches) -> Vec<String> {
    let mut typed = Vec::new();
    for arg in command.get_arguments() {
        let id = arg.get_id().as_str();
        let is_typed = matches.value_source(id) == Some(ValueSource::CommandLine);
        let Some(long) = arg.get_long().filter(|_| is_typed && !OF_THIS_TIME.contains(&id)) else {
            continue;
        };
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

/// Completes the command that begins a story anew: with what was typed, and with the budgets that were too small raised.
pub(super) fn completed(mut report: StoryReport) -> StoryReport {
    let Some(again) = report.again.take() else { return report };
    let advice = report.reason.as_ref().map(|reason| reason.recommendation.as_str());
    let raised = advice.and_then(raising_flags);
    let code = report.reason.as_ref().map(|reason| reason.code);
    // How much larger it must be nobody knows; as small as it was is not worth trying.
    let raised_too =
        (code == Some(Code::ContextExhausted.as_str())).then_some("--set context_tokens");
    let is_raised = |flag: &&String| raised.into_iter().chain(raised_too).any(|it| sets(it, flag));
    let kept = typed().iter().filter(|flag| !is_raised(flag));
    let all = kept.map(String::as_str).chain(raised);
    report.again = Some(all.fold(again, |command, flag| format!("{command} {flag}")));
    report
}

/// Says whether one of the flags takes the place of the typed one.
fn sets(raised: &str, flag: &str) -> bool {
    let key = |text: &str| {
        let text = text.strip_prefix("--set ").unwrap_or(text);
        let key = text.split(['=', ' ']).next().unwrap_or_default().replace('-', "_");
        // Both words for the budget of a run.
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
