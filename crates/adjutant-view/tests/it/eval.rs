//! The report of an evaluation: its table and its numbers.

use adjutant_core::{Outcome, Usd};
use adjutant_view::eval::{
    EvalAttempt, EvalConfigurationTitle, EvalJudgement, EvalOutline, EvalReport, EvalTaskTitle,
};

fn outline(configurations: usize) -> EvalOutline {
    let task = |name: &str, kind| EvalTaskTitle { name: name.to_owned(), kind };
    let configuration = |number: usize| EvalConfigurationTitle {
        name: ["A", "B"][number].to_owned(),
        model: ["anthropic/large", "openai/small"][number].to_owned(),
        preset: "scout".to_owned(),
        mode: ["alone", "delegated"][number],
    };
    EvalOutline {
        id: "eval_1".to_owned(),
        runs: 3,
        tasks: vec![task("find-port", "question"), task("fix-slug", "fix")],
        configurations: (0..configurations).map(configuration).collect(),
        budget_usd: Usd::from_dollars(5.0),
        interrupted_usd: Usd::ZERO,
    }
}

fn attempt(task: &str, configuration: usize, number: u32) -> EvalAttempt {
    EvalAttempt {
        task: task.to_owned(),
        configuration,
        number,
        run: Some("run_1_aaaaaa".to_owned()),
        judgement: EvalJudgement::Solved,
        because: "check: exit 0".to_owned(),
        outcome: Some(Outcome::Completed),
        false_claim: None,
        usd: Usd::from_dollars(0.25),
        tokens: 12_000,
        elapsed_ms: 4_000 * u64::from(number),
        tool_errors: 1,
    }
}

fn skipped(task: &str, configuration: usize, number: u32) -> EvalAttempt {
    let judgement = EvalJudgement::Skipped;
    EvalAttempt {
        judgement,
        run: None,
        outcome: None,
        usd: None,
        ..attempt(task, configuration, number)
    }
}

#[test]
fn the_table_has_a_line_for_each_task_and_one_for_all() {
    let outline = outline(1);
    let mut attempts: Vec<EvalAttempt> = (1..=3).map(|it| attempt("find-port", 0, it)).collect();
    attempts[1].judgement = EvalJudgement::Unsolved;
    attempts[1].false_claim = Some("completed, but the check failed".to_owned());
    attempts.push(skipped("fix-slug", 0, 1));
    let report = EvalReport::of(&outline, &attempts);
    insta::assert_snapshot!(report.text(), @r"
    A: anthropic/large, preset scout, alone

    task        solved     95 %   cost  tokens     time (range)  errors  false
    find-port      2/3  21-94 %  $0.75     36k  8.0s (4.0s-12s)       3      1
    fix-slug   skipped
    all            2/3  21-94 %  $0.75     36k  8.0s (4.0s-12s)       3      1

    skipped: 1 (a toolchain is missing)
    spent: $0.75 of $5.00
    not attempted yet: 2
    ");
}

#[test]
fn two_configurations_are_side_by_side() {
    let outline = outline(2);
    let mut attempts: Vec<EvalAttempt> = Vec::new();
    for task in ["find-port", "fix-slug"] {
        for configuration in [0, 1] {
            attempts.extend((1..=3).map(|number| attempt(task, configuration, number)));
        }
    }
    for attempt in attempts.iter_mut().filter(|it| it.configuration == 1) {
        (attempt.usd, attempt.tokens) = (None, 900);
    }
    let report = EvalReport::of(&outline, &attempts);
    assert_eq!(report.left(), 0);
    insta::assert_snapshot!(report.text(), @r"
    A: anthropic/large, preset scout, alone
    B: openai/small, preset scout, delegated

                    A                                                                B
    task       solved      95 %   cost  tokens     time (range)  errors  false  solved      95 %      cost  tokens     time (range)  errors  false
    find-port     3/3  44-100 %  $0.75     36k  8.0s (4.0s-12s)       3      0     3/3  44-100 %  no price    2.7k  8.0s (4.0s-12s)       3      0
    fix-slug      3/3  44-100 %  $0.75     36k  8.0s (4.0s-12s)       3      0     3/3  44-100 %  no price    2.7k  8.0s (4.0s-12s)       3      0
    all           6/6  61-100 %  $1.50     72k  8.0s (4.0s-12s)       6      0     6/6  61-100 %  no price    5.4k  8.0s (4.0s-12s)       6      0

    spent: $1.50 of $5.00
    ");
}

#[test]
fn skipped_attempts_count_neither_for_nor_against() {
    let outline = outline(1);
    let attempts = [skipped("find-port", 0, 1), attempt("find-port", 0, 2)];
    let json = serde_json::to_value(EvalReport::of(&outline, &attempts).json()).unwrap();
    let task = &json["tasks"][0]["results"][0];
    assert_eq!(
        (&task["attempts"], &task["solved"], &task["skipped"]),
        (&1.into(), &1.into(), &1.into())
    );
    assert_eq!(json["left"], 4);
    assert_eq!(json["tasks"][1]["results"][0].get("interval"), None);
}
