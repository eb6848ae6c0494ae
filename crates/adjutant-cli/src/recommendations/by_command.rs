//! Tests that each flag in advice is one of the command that the advice is for.
//!
//! Advice about a refused call names flags of the commands that start a run, after the words [`BEGIN_AGAIN`]. Other
//! advice is about a run that can be resumed, so `resume` must accept its flags.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use adjutant_core::policy::PolicyKey;
use adjutant_core::refusal::{BudgetScope, ContextRemedy, FanOutScope, TellProblem, TimeBound};
use adjutant_core::{AgentName, Preset, Refusal, RunId, SessionId, ToolSet, Usd};
use clap::CommandFactory;

use super::{VALUE, all_texts, complaint};
use crate::args::Cli;

/// The words before flags that only a new run takes.
const BEGIN_AGAIN: &str = "start the run again with ";

/// The commands that start a run.
const BEGIN: [&str; 3] = ["delegate -t a=b", "run goal", "story prd.json"];

/// Which commands the flags in a refusal's advice are for.
enum AdviceScope {
    /// The commands that start a run.
    BeginAgain,
    /// The command that was typed, whichever it was.
    AnyCommand,
    /// None: the advice needs no flag.
    NoCommand,
}

fn advice_for(refusal: &Refusal) -> AdviceScope {
    match refusal {
        Refusal::Disabled { .. }
        | Refusal::TooDeep { .. }
        | Refusal::StartsTooDeep { .. }
        | Refusal::TooMany { .. }
        | Refusal::ContextBudget { .. }
        | Refusal::Tokens { .. }
        | Refusal::Money { .. } => AdviceScope::BeginAgain,
        Refusal::ApprovalDenied { .. }
        | Refusal::MessageRejected {
            problem: TellProblem::Ended { .. } | TellProblem::Blocked { .. },
            ..
        } => AdviceScope::AnyCommand,
        Refusal::UnknownParent { .. }
        | Refusal::UnknownAgent { .. }
        | Refusal::Cycle { .. }
        | Refusal::OwnStory { .. }
        | Refusal::NoTasks
        | Refusal::Rights { .. }
        | Refusal::ContextFile { .. }
        | Refusal::Model { .. }
        | Refusal::Worker { .. }
        | Refusal::Time { .. }
        | Refusal::QueueFull { .. }
        | Refusal::MessageRejected { .. } => AdviceScope::NoCommand,
    }
}

/// Returns an example of every kind of refusal and of each advice it can give.
fn refusals() -> Vec<Refusal> {
    let text = || "x".to_owned();
    let agent = || AgentName::new("scout");
    let session: SessionId = "sess_1735460684_a1b2c3".parse().unwrap();
    let run: RunId = "run_1735460684_a1b2c3".parse().unwrap();
    let usd = Usd::from_pico;
    let mut all = vec![
        Refusal::Disabled { preset: Preset::Story },
        Refusal::UnknownParent { parent: text() },
        Refusal::UnknownAgent { agent: agent(), known: text() },
        Refusal::Cycle { target: text(), path: vec![text()], stories: false },
        Refusal::OwnStory { story: text() },
        Refusal::TooDeep { target: text(), depth: 1, max_depth: 1 },
        Refusal::TooDeep { target: text(), depth: 9, max_depth: 9 },
        Refusal::StartsTooDeep { base_depth: 2, max_depth: 1 },
        Refusal::StartsTooDeep { base_depth: 9, max_depth: 1 },
        Refusal::NoTasks,
        Refusal::Rights { beyond: ToolSet::new(["Write"]), network: false },
        Refusal::Rights { beyond: ToolSet::new(["Write"]), network: true },
        Refusal::ContextFile { path: text(), problem: text() },
        Refusal::Model { problem: text() },
        Refusal::Worker { worker: text(), problem: text() },
        Refusal::Money {
            scope: BudgetScope::Run,
            needed: usd(20_000_000_000),
            left: usd(1),
            max: usd(10_000_000_000),
        },
        Refusal::Time { bound: TimeBound::Total, seconds: Some(3) },
        Refusal::QueueFull { waiting: 9, max: 9 },
    ];
    for scope in [FanOutScope::Call, FanOutScope::Parent, FanOutScope::Run] {
        all.push(Refusal::TooMany { scope, count: 9, max: 8 });
    }
    for remedy in [
        ContextRemedy::RaiseLimit,
        ContextRemedy::LargerWindow,
        ContextRemedy::SmallerResults { result_tokens: 0 },
        ContextRemedy::SmallerResults { result_tokens: 3_999 },
    ] {
        all.push(Refusal::ContextBudget { current: 1, estimate: 2, max: 2, remedy });
    }
    for scope in [BudgetScope::Delegation, BudgetScope::Run] {
        all.push(Refusal::Tokens { scope, needed: 5_100, left: 10, max: 10 });
    }
    for problem in [
        TellProblem::NotLive,
        TellProblem::Ended { run },
        TellProblem::Blocked { run },
        TellProblem::NoAgent,
        TellProblem::Empty,
        TellProblem::TooLong { bytes: 9, max: 8 },
        TellProblem::Full { max: 8 },
    ] {
        all.push(Refusal::MessageRejected { session, problem });
    }
    for reason in ["the person said no", "nobody answered within 5 minutes", "no terminal"] {
        all.push(Refusal::ApprovalDenied { reason: reason.into() });
    }
    all
}

/// Returns the names of the variants of `Refusal`, from its source.
fn kinds() -> BTreeSet<String> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../adjutant-core/src/refusal.rs");
    let source = fs::read_to_string(file).unwrap();
    let (_, from) = source.split_once("pub enum Refusal {\n").unwrap();
    let (body, _) = from.split_once("\n}").unwrap();
    let lines = body.lines().filter_map(|line| line.strip_prefix("    "));
    lines
        .filter(|line| line.starts_with(|letter: char| letter.is_ascii_uppercase()))
        .map(|line| line.trim_end_matches([' ', '{', ',']).to_owned())
        .collect()
}

/// Returns the flags in a text, each with its value if it takes one.
fn flags(text: &str) -> Vec<String> {
    let trimmed = |word: &str| word.trim_matches(|it| "`,;:.()".contains(it)).to_owned();
    let words: Vec<String> = text.split_whitespace().map(trimmed).collect();
    let mut flags = Vec::new();
    for (place, word) in words.iter().enumerate().filter(|(_, word)| word.starts_with("--")) {
        let name = word.trim_start_matches('-');
        let takes_value = Cli::command()
            .get_subcommands()
            .flat_map(|it| it.get_arguments())
            .any(|arg| arg.get_long() == Some(name) && arg.get_action().takes_values());
        // A flag without a value in the text gets the placeholder.
        let value = words.get(place + 1).cloned().unwrap_or_else(|| VALUE.to_string());
        flags.push(if takes_value { format!("{word} {value}") } else { word.clone() });
    }
    flags
}

/// Returns what is wrong with the flags of an advice: those after [`BEGIN_AGAIN`] must be accepted by the commands that
/// start a run, the others by `resume`.
fn complaints(text: &str) -> Vec<String> {
    let lower = text.replacen('S', "s", usize::from(text.starts_with('S')));
    let (resume, begin) = lower.split_once(BEGIN_AGAIN).unwrap_or((&lower, ""));
    let mut wrong = Vec::new();
    for flag in flags(resume) {
        wrong.extend(complaint(&format!("adjutant resume sess_1735460684_a1b2c3 {flag}")));
        let key = flag.strip_prefix("--set ").and_then(|it| it.split_once('='));
        let is_fixed =
            |name: &str| !PolicyKey::parse(name).is_some_and(PolicyKey::is_set_on_resume);
        wrong.extend(key.filter(|(name, _)| is_fixed(name)).map(|_| format!("resume {flag}")));
    }
    for flag in flags(begin) {
        wrong.extend(BEGIN.iter().filter_map(|it| complaint(&format!("adjutant {it} {flag}"))));
        let key = flag.strip_prefix("--set ").and_then(|it| it.split_once('='));
        let is_known = |name: &str| PolicyKey::parse(name).is_some();
        wrong.extend(key.filter(|(name, _)| !is_known(name)).map(|_| flag.clone()));
    }
    wrong
}

#[test]
fn the_flags_in_the_advice_of_every_refusal_are_those_of_the_command_it_is_for() {
    let all = refusals();
    let named: BTreeSet<String> = all
        .iter()
        .map(|it| format!("{it:?}").split([' ', '{']).next().unwrap_or_default().to_owned())
        .collect();
    assert_eq!(named, kinds(), "every kind of refusal has an example");
    for refusal in all {
        let text = refusal.recommendation();
        assert_eq!(complaints(&text), Vec::<String>::new(), "{text}");
        let found = flags(&text).len();
        let begins = text.to_lowercase().contains(BEGIN_AGAIN);
        match advice_for(&refusal) {
            AdviceScope::BeginAgain => assert_eq!(begins, found > 0, "{text}"),
            AdviceScope::AnyCommand => assert!(!begins, "{text}"),
            AdviceScope::NoCommand => assert_eq!(found, 0, "{text}"),
        }
    }
}

#[test]
fn the_flags_in_the_advice_for_work_that_ended_are_those_of_resume() {
    let of_ends = |file: &str| {
        file.contains("adjutant-core/src/tree/") || file.ends_with("adjutant-cli/src/resume.rs")
    };
    let texts: Vec<(String, String)> =
        all_texts().into_iter().filter(|(file, _)| of_ends(file)).collect();
    let with_flags = texts.iter().filter(|(_, text)| !flags(text).is_empty());
    let mut wrong = Vec::new();
    let mut count = 0;
    for (file, text) in with_flags {
        count += 1;
        wrong.extend(complaints(text).into_iter().map(|said| format!("{file}: {text:?}\n{said}")));
    }
    assert!(count > 5, "only {count} texts with flags were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_limit_that_is_fixed_when_a_run_begins_is_no_advice_for_resume() {
    for text in ["Raise it with --set max_depth=2.", "Add --enable-delegation.", "Add --nonsense."]
    {
        assert_eq!(complaints(text).len(), 1, "{text}");
    }
    assert!(complaints("Or start the run again with --set max_depth=2.").is_empty());
    assert!(complaints("Go on with --set budget_tokens=2.").is_empty());
}
