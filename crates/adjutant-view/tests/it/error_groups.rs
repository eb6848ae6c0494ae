//! Errors that are alike are one row.

use adjutant_view::error_groups::{group, render};
use adjutant_view::errors::{ErrorJson, FixStatus, of_run};
use adjutant_view::layout::width;
use adjutant_view::{Palette, ProcessLiveness};

use crate::history::{HOSTILE, finished};

fn errors() -> Vec<ErrorJson> {
    of_run(&finished().0.view(), ProcessLiveness::Dead)
}

/// The errors of a run, one of them three more times.
fn repeated() -> Vec<ErrorJson> {
    let mut errors = errors();
    for (time, message) in [
        ("2025-02-01T08:00:00Z", "provider overloaded: try  later"),
        ("2025-02-03T08:00:00Z", "provider overloaded: try later"),
        ("2025-02-02T08:00:00Z", "provider overloaded: try later"),
    ] {
        let mut again = errors.iter().find(|it| it.code == "PROVIDER_ERROR").unwrap().clone();
        (again.timestamp, again.message) = (time.into(), message.into());
        errors.push(again);
    }
    errors
}

#[test]
fn a_row_has_the_count_the_last_time_an_example_and_what_to_do() {
    insta::assert_snapshot!(render(&group(&repeated()), 60, Palette::Plain), @"
    4×  2025-02-03T08:00:00Z  PROVIDER_ERROR · high · execut…
       what  provider overloaded: try later
       next  Try again later, or use another model.
       like  err_1738326967_qlwol3 in run_1738326896_aaaaaa
    1×  2025-01-31T12:36:06Z  CONTEXT_EXHAUSTED · medium · e…
       what  The context was exhausted: 199,000 of 200,000
             tokens.
       next  Split the task, or use a model with a larger
             window.
       like  err_1738326966_ygbxi8 in run_1738326896_aaaaaa
    1×  2025-01-31T12:36:06Z  MAX_DEPTH_EXCEEDED · low · val…
       what  ERROR: Delegation depth limit (1) reached.
             Cannot delegate further. Current depth: 1
             Attempted delegation: look deeper Suggestion: …
       next  Complete this task at the current level, or
             start the run again with --set max_depth=2.
       like  err_1738326966_mey4nk in run_1738326896_aaaaaa
    ");
    insta::assert_snapshot!(render(&group(&errors()[..1]), 160, Palette::Plain), @"
    1×  2025-01-31T12:36:06Z  CONTEXT_EXHAUSTED · medium · execution
       what  The context was exhausted: 199,000 of 200,000 tokens.
       next  Split the task, or use a model with a larger window.
       like  err_1738326966_ygbxi8 in run_1738326896_aaaaaa
    ");
}

#[test]
fn fixed_errors_are_counted_apart_from_open_ones() {
    let mut errors = repeated();
    errors.last_mut().unwrap().fix_status = FixStatus::Fixed;
    let all = group(&errors);
    let counts: Vec<_> = all.iter().map(|it| (it.count, it.latest.fix_status)).collect();
    assert!(counts.contains(&(3, FixStatus::Unfixed)) && counts.contains(&(1, FixStatus::Fixed)));
    assert_eq!(all.iter().map(|it| it.count).sum::<usize>(), errors.len());
}

#[test]
fn hostile_text_stays_within_its_line() {
    let mut errors = errors();
    for text in [HOSTILE.repeat(40), "字".repeat(300), "x".repeat(10_000), "\u{202e}".repeat(99)] {
        let one = &mut errors[0];
        (one.kind, one.code, one.message) = (text.clone(), text.clone(), text.clone());
        one.recovery.suggested_action = text.clone();
        one.context.task = text.clone();
        one.trajectory.delegation_path = vec![text; 9];
        for wide in [60, 80, 160] {
            let grouped = render(&group(&errors), wide, Palette::Plain);
            let each = adjutant_view::errors::render(&errors, wide, Palette::Plain);
            for line in grouped.lines().chain(each.lines()) {
                assert!(width(line) <= wide && !line.contains(['\u{1b}', '\u{202e}']), "{line}");
            }
        }
    }
}
