//! The scripts that are shipped and shown do what they say.

use std::path::PathBuf;

use adjutant_core::ModelErrorKind;
use adjutant_model::{Model, ScriptedModel};

use crate::rig::Child;

fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn example(name: &str) -> ScriptedModel {
    let path = root().join("examples/scripts").join(name);
    let model = ScriptedModel::load(&path).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(model.spec().name, format!("script:{}", path.display()));
    model
}

#[tokio::test(start_paused = true)]
async fn the_minimal_example_reports_what_it_read() {
    let model = example("minimal.toml");
    let mut child = Child::new("readme");
    assert_eq!(child.ask(&model).await.tool_calls[0].name, "Read");
    child.told("call_1_1", "[workspace]\nmembers = []");
    let report = "The manifest has 2 lines and begins with\n`[workspace]`.\n";
    assert_eq!(child.ask(&model).await.text, report);
}

#[tokio::test(start_paused = true)]
async fn the_faults_example_shows_each_kind_of_fault() {
    let model = example("faults.toml");
    let mut flaky = Child::new("flaky");
    for attempt in [1, 2] {
        flaky.attempt = attempt;
        assert_eq!(flaky.try_turn(&model).await.unwrap_err().kind, ModelErrorKind::RateLimited);
    }
    flaky.attempt = 3;
    assert!(flaky.ask(&model).await.text.ends_with("Look around."));

    let mut hungry = Child::new("hungry");
    let mut turns = 0;
    let error = loop {
        match hungry.try_turn(&model).await {
            Ok(_) => hungry.told("read", &"line\n".repeat(1000)),
            Err(error) => break error,
        }
        hungry.turn += 1;
        turns += 1;
    };
    assert_eq!((error.kind, turns), (ModelErrorKind::ContextExhausted, 5));

    let mut slow = Child::new("slow");
    slow.ask(&model).await;
    assert_eq!(slow.progress.len(), 5);

    let mut confused = Child::new("confused");
    assert!(confused.ask(&model).await.tool_calls[1].malformed);
    confused.told("call_1_1", "there is no tool `ReadMind`");
    confused.told("call_1_2", "the arguments are no JSON");
    assert!(confused.ask(&model).await.text.ends_with("there is no tool `ReadMind`"));

    let mut down = Child { attempt: 1000, ..Child::new("down") };
    assert_eq!(down.try_turn(&model).await.unwrap_err().kind, ModelErrorKind::Overloaded);

    let mut lost = Child::new("hungry");
    lost.told("read", "no such file: Cargo.lock");
    assert_eq!(lost.ask(&model).await.text, "I cannot go on: no such file: Cargo.lock");
}

#[test]
fn every_script_of_the_guide_loads() {
    let guide = std::fs::read_to_string(root().join("docs/scripted-model.md")).unwrap();
    let scripts: Vec<_> =
        guide.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(scripts.len(), 4);
    for toml in scripts {
        ScriptedModel::from_toml(toml).unwrap_or_else(|error| panic!("{error}\n{toml}"));
    }
}
