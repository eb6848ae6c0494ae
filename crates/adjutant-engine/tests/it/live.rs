//! A small tool loop with a real provider, for developers who have an API key:
//!
//! ```text
//! ADJUTANT_LIVE=anthropic/claude-haiku-5-5 \
//!     cargo test -p adjutant-engine --test it live -- --ignored --nocapture
//! ```
//!
//! Keys and base URLs come from the usual environment variables. It costs some thousand tokens. The loop is also
//! tested with the strict fake servers, so a failure here is caused by the provider.

use std::io::Write;
use std::sync::Arc;

use adjutant_core::Event;
use adjutant_core::budget::Settlement;
use adjutant_model::{Model, ModelSources, open_model};
use adjutant_testkit::Rig;
use adjutant_testkit::fake::{Api, FakeServer, Script, Turn};
use serde_json::json;

const PROMPT: &str =
    "Read the file answer.txt with the Read tool. Your report is the number in it.";

/// Lets a model read a file and report its content. Returns the settlements.
async fn read_and_report(model: Arc<dyn Model>) -> Vec<Settlement> {
    let priced = model.spec().price.is_some();
    let rig = Rig::new().file("answer.txt", "The number is 7319.\n").model(model);
    let trace = rig.task("live", PROMPT).delegate().await;
    let errors = trace.events.iter().filter_map(|(_, event)| match event {
        Event::AttemptFailed { error, .. } => Some(error.to_string()),
        _ => None,
    });
    assert_eq!(trace.ends(), ["live: completed"], "{:?}", errors.collect::<Vec<_>>());
    let (mut report, mut settled, mut tools) = (String::new(), Vec::new(), 0);
    for (_, event) in &trace.events {
        match event {
            Event::Replied { text, settlement, .. } => {
                text.clone_into(&mut report);
                settled.push(*settlement);
            }
            Event::ToolReturned { output, .. } if output.content.contains("7319") => tools += 1,
            _ => {}
        }
    }
    assert!(report.contains("7319"), "{report}");
    assert!(tools >= 1, "the file was read");
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
async fn live_provider_reads_a_file_and_reports() {
    let Some(name) = std::env::var("ADJUTANT_LIVE").ok().filter(|name| !name.is_empty()) else {
        tell("NOT CHECKED: ADJUTANT_LIVE=provider/model is not set, so no real provider was asked");
        return;
    };
    let sources = ModelSources::from_vars(|variable| std::env::var(variable).ok());
    let model = open_model(&name, &sources).unwrap_or_else(|error| panic!("{name}: {error}"));
    let settled = read_and_report(model).await;
    for (turn, Settlement { usage, usd, .. }) in (1..).zip(settled) {
        tell(&format!("{name}, turn {turn}: {usage:?}, {usd:?}"));
    }
}

#[tokio::test]
async fn live_test_scenario_works_with_every_fake_server() {
    for api in Api::ALL {
        let read = Turn::calls("Read", &json!({ "path": "answer.txt" })).thinking("Hm.");
        let script = Script::always([read, Turn::says("It is 7319.")]);
        let fake = FakeServer::new(api, script).start().await;
        assert_eq!(read_and_report(fake.model()).await.len(), 2, "{api:?}");
    }
}
