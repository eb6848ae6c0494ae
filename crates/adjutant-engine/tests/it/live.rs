//! Small tasks for a real provider, for developers who have an API key:
//!
//! ```text
//! ADJUTANT_LIVE=anthropic/claude-haiku-5-5 \
//!     cargo test -p adjutant-engine --test it live -- --ignored --nocapture
//! ```
//!
//! Keys and base URLs come from the usual environment variables. It costs some ten thousand tokens. The same cases run
//! with the strict fake servers, so a failure here is caused by the provider or the model. A new case is one more entry
//! of [`CASES`].

use std::io::Write;
use std::sync::Arc;

use adjutant_core::budget::Settlement;
use adjutant_core::policy::{ContractKind, OnFullContext};
use adjutant_core::schema::RETURN;
use adjutant_core::workspace::WorkspaceKind;
use adjutant_core::{Event, ToolCall};
use adjutant_model::{Model, ModelSources, open_model};
use adjutant_testkit::fake::{self, Api, FakeServer, Script, Turn};
use adjutant_testkit::{Rig, RunTrace};
use serde_json::json;

use crate::workspace_rig::UserRepository;

/// A task, the answers of a fake model, and what must be true of the run with any model.
struct LiveCase {
    name: &'static str,
    prompt: &'static str,
    /// Prepares the rig; the repository is the work tree of agents that write.
    rig: fn(Rig, &UserRepository) -> Rig,
    script: fn() -> Script,
    /// How many answers the fake model gives.
    answers: usize,
    check: fn(&RunTrace, &UserRepository),
}

const CASES: [LiveCase; 5] = [
    LiveCase {
        name: "a reader",
        prompt: "Read the file answer.txt with the Read tool. Your report is the number in it.",
        rig: |rig, _| rig.file("answer.txt", "The number is 7319.\n"),
        script: || {
            let read = Turn::calls("Read", &json!({ "path": "answer.txt" })).thinking("Hm.");
            Script::always(vec![read, Turn::says("It is 7319.")])
        },
        answers: 2,
        check: |trace, _| assert!(report(trace).contains("7319"), "{}", report(trace)),
    },
    LiveCase {
        name: "parallel tool calls",
        prompt: "Read the files one.txt and two.txt. Call the Read tool twice in your first answer, so that both \
                 files are read at the same time. Your report is the two numbers in them.",
        rig: |rig, _| rig.file("one.txt", "It is 4711.\n").file("two.txt", "It is 8128.\n"),
        script: || {
            let both = Turn::calls("Read", &json!({ "path": "one.txt" }))
                .and_calls("Read", &json!({ "path": "two.txt" }));
            Script::always(vec![both, Turn::says("4711 and 8128.")])
        },
        answers: 2,
        check: |trace, _| {
            let report = report(trace);
            assert!(report.contains("4711") && report.contains("8128"), "{report}");
            assert!(replies(trace).any(|calls| calls.len() > 1), "no answer has two calls");
        },
    },
    LiveCase {
        name: "a return",
        prompt: "Read the file answer.txt with the Read tool. Then hand back your result with the Return tool: say in \
                 the summary which number is in the file.",
        rig: |rig, _| {
            let rig = rig.file("answer.txt", "The number is 7319.\n");
            rig.policy(|policy| policy.contract = ContractKind::Standard)
        },
        script: || {
            let returned = json!({
                "status": "completed", "summary": "I read the file. The number is 7319.",
                "artifacts": [], "errors": [],
            });
            Script::always(vec![
                Turn::calls("Read", &json!({ "path": "answer.txt" })),
                Turn::calls("Return", &returned).thinking("Hm."),
            ])
        },
        answers: 2,
        check: |trace, _| {
            assert!(replies(trace).flatten().any(|call| call.name == RETURN), "Return is called");
            let returned = trace.events.iter().rev().find_map(|(_, event)| match event {
                Event::Judged { returned, .. } => returned.as_ref(),
                _ => None,
            });
            let summary = returned.map(|returned| returned.summary.as_str()).unwrap_or_default();
            assert!(summary.contains("7319"), "{summary}");
        },
    },
    LiveCase {
        name: "a writer with Run",
        prompt: "The command `sh check.sh` fails. Run it with the Run tool to see why. Then change the file list so \
                 that it succeeds, and run it again. Do not change check.sh.",
        rig: |rig, repository| {
            let check = "grep -q '^BEGIN$' list || { echo 'list needs a line BEGIN'; exit 1; }\n";
            let written = std::fs::write(repository.tree().join("check.sh"), check);
            assert!(written.is_ok(), "{written:?}");
            rig.in_folder(repository.tree()).spaces(repository.setup(WorkspaceKind::Overlay))
        },
        script: || {
            let run = || Turn::calls("Run", &json!({ "command": "sh check.sh" }));
            let edit = json!({
                "file_path": "list", "old_string": "END", "new_string": "BEGIN\nEND",
            });
            Script::always(vec![
                run(),
                Turn::calls("Edit", &edit).thinking("A line is missing."),
                run(),
                Turn::says("I added the line BEGIN to list; check.sh succeeds now."),
            ])
        },
        answers: 4,
        check: |trace, repository| {
            let runs = replies(trace).flatten().filter(|call| call.name == "Run").count();
            assert!(runs >= 2, "the command is run before and after the change");
            let files = repository.work(trace, "live");
            assert!(files["list"].lines().any(|line| line == "BEGIN"), "{files:?}");
            assert_eq!(repository.git(&["diff", "--stat"]), "", "the user's files are untouched");
        },
    },
    LiveCase {
        name: "a continuation",
        prompt: "Read the files part-1, part-2, part-3 and part-4 with the Read tool: one in each answer, never two at \
                 once. The last line of each has a number. Your report is the four numbers.",
        rig: |rig, _| {
            let rig = PART_NUMBERS.iter().zip(1..).fold(rig, |rig, (number, part)| {
                let text =
                    format!("{}The number is {number}.\n", "Nothing to see here.\n".repeat(800));
                rig.file(&format!("part-{part}"), &text)
            });
            rig.policy(|policy| {
                policy.on_full = OnFullContext::Continue;
                policy.context_tokens = Some(20_000);
                policy.max_output_tokens = 1_000;
            })
        },
        script: || {
            let used = |input| fake::Usage { input, output: 20, ..fake::Usage::default() };
            let read = |part: u32, input| {
                Turn::calls("Read", &json!({ "path": format!("part-{part}") })).using(used(input))
            };
            let numbers = "They are 4711, 8128, 7319 and 1729.";
            let report = || Turn::says(numbers).using(used(3_000));
            // Some fakes look for the text only in the first message, which both conversations share.
            Script::new().on("Your handover note", [report()]).on(
                "Read the files",
                [
                    report().first(read(1, 1_000)),
                    read(2, 5_500),
                    read(3, 10_000),
                    read(4, 14_400),
                    Turn::says(numbers).using(used(18_900)),
                ],
            )
        },
        answers: 6,
        check: |trace, _| {
            let report = report(trace);
            assert!(PART_NUMBERS.iter().all(|number| report.contains(number)), "{report}");
            let is_continuation = |event: &Event| matches!(event, Event::Continued { .. });
            assert!(
                trace.events.iter().any(|(_, event)| is_continuation(event)),
                "no continuation"
            );
        },
    },
];

/// The numbers in the files of the case with a continuation.
const PART_NUMBERS: [&str; 4] = ["4711", "8128", "7319", "1729"];

fn report(trace: &RunTrace) -> &str {
    let replied = trace.events.iter().rev().find_map(|(_, event)| match event {
        Event::Replied { text, .. } => Some(text.as_str()),
        _ => None,
    });
    replied.unwrap_or_default()
}

/// Returns the tool calls of each reply.
fn replies(trace: &RunTrace) -> impl Iterator<Item = &Vec<ToolCall>> {
    trace.events.iter().filter_map(|(_, event)| match event {
        Event::Replied { tool_calls, .. } => Some(tool_calls),
        _ => None,
    })
}

/// Runs a case and returns the settlements of its model calls.
async fn run_case(case: &LiveCase, model: Arc<dyn Model>) -> Vec<Settlement> {
    let (priced, repository) = (model.spec().price.is_some(), UserRepository::new());
    let rig = (case.rig)(Rig::new().model(model), &repository);
    let trace = rig.task("live", case.prompt).delegate().await;
    let errors = trace.events.iter().filter_map(|(_, event)| match event {
        Event::AttemptFailed { error, .. } => Some(error.to_string()),
        _ => None,
    });
    let errors: Vec<String> = errors.collect();
    assert_eq!(trace.ends(), ["live: completed"], "{}: {errors:?}", case.name);
    (case.check)(&trace, &repository);
    let settled = trace.events.iter().filter_map(|(_, event)| match event {
        Event::Replied { settlement, .. } => Some(*settlement),
        _ => None,
    });
    let settled: Vec<Settlement> = settled.collect();
    assert!(settled.len() >= 2, "a turn that calls and a turn that reports");
    for settlement in &settled {
        assert!(!settlement.estimated, "the provider said what it used");
        assert!(settlement.usage.total() > settlement.usage.output, "{settlement:?}");
        assert!(settlement.usage.output > 0, "{settlement:?}");
        assert_eq!(settlement.usd > adjutant_core::Usd::ZERO, priced, "{settlement:?}");
    }
    settled
}

/// Prints a line that the test runner does not capture.
fn tell(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

#[tokio::test]
#[ignore = "needs a real provider: set ADJUTANT_LIVE=provider/model and its key"]
async fn live_provider_passes_every_case() {
    let Some(name) = std::env::var("ADJUTANT_LIVE").ok().filter(|name| !name.is_empty()) else {
        tell("NOT CHECKED: ADJUTANT_LIVE=provider/model is not set, so no real provider was asked");
        return;
    };
    let sources = ModelSources::from_vars(|variable| std::env::var(variable).ok());
    for case in &CASES {
        let model = open_model(&name, &sources).unwrap_or_else(|error| panic!("{name}: {error}"));
        let settled = run_case(case, model).await;
        for (turn, Settlement { usage, usd, .. }) in (1..).zip(settled) {
            tell(&format!("{name}, {}, turn {turn}: {usage:?}, {usd:?}", case.name));
        }
    }
}

#[tokio::test]
async fn live_cases_pass_with_every_fake_server() {
    for case in &CASES {
        for api in Api::ALL {
            let fake = FakeServer::new(api, (case.script)()).start().await;
            let settled = run_case(case, fake.model()).await;
            assert_eq!(settled.len(), case.answers, "{}, {api:?}", case.name);
            let complaint = fake.requests().into_iter().find_map(|request| request.complaint);
            assert_eq!(complaint, None, "{}, {api:?}", case.name);
        }
    }
}
