//! Advice in the words of this library.
//!
//! The recommendations of `adjutant-core` name flags and commands, because most of its users sit at a terminal. Here the
//! reader is the author of a program. Start at [`reworded`].

use adjutant_core::OutcomeReason;

/// The words before the flags for a new run. Without the first letter, because both `Start` and `start` occur.
const BEGIN_AGAIN: &str = "tart the run again with ";

/// The words before a command that resumes a run with more budget. A resumed run of this library keeps its policy.
const LARGER_BUDGET: &str = "go on with a larger budget: `adjutant resume ";

/// Returned if all advice was about commands.
const DEFAULT_ADVICE: &str =
    "The journal of the run has the details; Report::directory is where it is.";

/// Returns the reason with a recommendation for a program.
pub(crate) fn for_program(reason: &OutcomeReason) -> OutcomeReason {
    OutcomeReason { recommendation: reworded(&reason.recommendation), ..reason.clone() }
}

/// Returns a recommendation in which settings and methods stand for flags and commands. Parts about anything else that
/// only the command line has are left out.
pub(crate) fn reworded(recommendation: &str) -> String {
    if !names_a_command(recommendation) {
        return recommendation.to_owned();
    }
    if recommendation.starts_with("Run it in a terminal and approve it") {
        return "Approve it in the callback of AdjutantBuilder::on_approval.".to_owned();
    }
    let text = settings_for_flags(recommendation);
    let text = text.replace("`adjutant log`", "the journal (Report::directory)");
    let text = resume_calls(&text);
    // Sentences and alternatives; each makes sense alone.
    let mut kept = String::new();
    for part in text.trim_end_matches('.').split_inclusive("; ") {
        for part in part.split_inclusive(", or ") {
            if !names_a_command(part) {
                kept.push_str(part);
            }
        }
    }
    let kept = kept.trim_end_matches(", or ").trim_end_matches("; ");
    let mut letters = kept.chars();
    match letters.next() {
        Some(first) => format!("{}{}.", first.to_uppercase(), letters.as_str()),
        None => DEFAULT_ADVICE.to_owned(),
    }
}

/// Rewords the sentence of an error that only the command line can follow as it is.
pub(crate) fn reworded_problem(problem: &str) -> String {
    problem.replace("with --root DIR", "with AdjutantBuilder::root")
}

fn names_a_command(text: &str) -> bool {
    text.contains("--") || text.contains("`adjutant ") || text.contains("in a terminal")
}

/// Replaces `--set KEY=VALUE` and the like by fields of [`adjutant_core::Policy`].
fn settings_for_flags(text: &str) -> String {
    if let Some((before, command)) = text.split_once(LARGER_BUDGET) {
        let flags = command.trim_end_matches(['.', '`']);
        let settings = settings(flags).0;
        return match settings.is_empty() {
            true => text.to_owned(),
            false => format!("{before}start a new run with {}.", settings.join(" and ")),
        };
    }
    let Some((before, flags)) = text.split_once(BEGIN_AGAIN) else { return text.to_owned() };
    if flags.starts_with("--enable-delegation") {
        return format!("{before}tart a new run with Policy::enabled = true.");
    }
    let (settings, rest) = settings(flags);
    format!("{before}tart a new run with {}{rest}", settings.join(" and "))
}

/// Returns the policy fields that flags set, and the text after them.
fn settings(flags: &str) -> (Vec<String>, &str) {
    let mut settings = Vec::new();
    let mut rest = flags;
    while let Some((before, after)) = rest.split_once("--") {
        // A session id, or the blank between two flags.
        if !settings.is_empty() && !before.trim().is_empty() {
            break;
        }
        let words = after.trim_start();
        let (flag, value) = words.split_once(' ').unwrap_or((words, ""));
        let end = value
            .char_indices()
            .find(|(at, it)| {
                let ends_here = value[at + 1..].trim_start().len() < value[at + 1..].len();
                *it == ' ' || (",.;`".contains(*it) && (ends_here || at + 1 == value.len()))
            })
            .map_or(value.len(), |(at, _)| at);
        let (value, after) = value.split_at(end);
        settings.extend(match flag {
            "set" => value.split_once('=').map(|(key, value)| format!("Policy::{key} = {value}")),
            "budget-tokens" => Some(format!("Policy::budget_tokens_run = {value}")),
            "budget-usd" => Some(format!("Policy::budget_usd = {value} USD")),
            _ => None,
        });
        rest = if flag == "in-place" { words.trim_start_matches("in-place") } else { after };
    }
    (settings, rest)
}

/// Replaces `adjutant resume ID` by the method. With flags it stays a command.
fn resume_calls(text: &str) -> String {
    const COMMAND: &str = "`adjutant resume ";
    let Some((before, after)) = text.split_once(COMMAND) else { return text.to_owned() };
    match after.split_once('`') {
        Some((id, rest)) if !id.contains(' ') => {
            format!("{before}Adjutant::resume(\"{id}\"){}", resume_calls(rest))
        }
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{DEFAULT_ADVICE, names_a_command, reworded};

    #[test]
    fn advice_names_fields_and_methods_instead_of_flags_and_commands() {
        for (from, to) in [
            ("Use one of the known agents.", "Use one of the known agents."),
            (
                "Delegate fewer, larger tasks, or start the run again with --set children_per_run=3.",
                "Delegate fewer, larger tasks, or start a new run with Policy::children_per_run = 3.",
            ),
            (
                "Start the run again with --set budget_tokens=5100, or delegate less.",
                "Start a new run with Policy::budget_tokens = 5100, or delegate less.",
            ),
            (
                "Start the run again with --budget-usd 12.50, or delegate less.",
                "Start a new run with Policy::budget_usd = 12.50 USD, or delegate less.",
            ),
            (
                "Start the run again with --enable-delegation, or with ENABLE_DELEGATION=true, or enabled = true in the user config.",
                "Start a new run with Policy::enabled = true.",
            ),
            (
                "Delegate fewer tasks in one call, or let each hand back less: start the run again with --set result_tokens=900.",
                "Delegate fewer tasks in one call, or let each hand back less: start a new run with Policy::result_tokens = 900.",
            ),
            (
                "Split the task, or go on with a larger budget: `adjutant resume sess_1_a --set budget_tokens=8824 --budget-tokens 10000`.",
                "Split the task, or start a new run with Policy::budget_tokens = 8824 and Policy::budget_tokens_run = 10000.",
            ),
            (
                "Split the task, or go on with a larger budget: `adjutant resume sess_1_a --in-place --budget-usd 0.25`.",
                "Split the task, or start a new run with Policy::budget_usd = 0.25 USD.",
            ),
            (
                "`adjutant resume sess_1_a` takes it up again; what was found so far is in the result.",
                "Adjutant::resume(\"sess_1_a\") takes it up again; what was found so far is in the result.",
            ),
            (
                "`adjutant resume sess_1_a --in-place` gives it as much time again; what was found so far is in the result.",
                "What was found so far is in the result.",
            ),
            (
                "Ask for a shorter answer with `adjutant resume sess_1_a --say`, or start the run again with --set max_output_tokens=8192.",
                "Start a new run with Policy::max_output_tokens = 8192.",
            ),
            (
                "Run it in a terminal and approve it, or add --yes.",
                "Approve it in the callback of AdjutantBuilder::on_approval.",
            ),
            ("Leave `model` out, or name one that `adjutant models` lists.", "Leave `model` out."),
            (
                "This is a defect of Adjutant; `adjutant log` holds the backtrace.",
                "This is a defect of Adjutant; the journal (Report::directory) holds the backtrace.",
            ),
            ("Say what to do differently, with `adjutant resume sess_1_a --say`.", DEFAULT_ADVICE),
        ] {
            assert_eq!(reworded(from), to);
            assert!(!names_a_command(to), "{to}");
        }
    }
}
