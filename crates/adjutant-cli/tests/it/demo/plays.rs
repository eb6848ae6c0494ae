//! `demo`: output, exit code and what it leaves behind.

use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use serde_json::Value;

use crate::support::rig::{Output, Rig};
use crate::support::schema::assert_fits;

/// One demo takes as long as a person needs to follow it, so the tests share this one.
static SAMPLE: LazyLock<(Rig, Output)> = LazyLock::new(|| {
    let rig = Rig::new();
    let out = rig.run(["demo"]);
    (rig, out)
});

#[test]
fn the_demo_exits_0_and_shows_a_complete_a_partial_and_a_failed_subagent() {
    let (_, out) = &*SAMPLE;
    assert_eq!(out.code, 0, "{out}");
    assert!(out.stdout.starts_with("## Subagents complete: 1/3 (1 partial, 1 failed)\n"), "{out}");
    for line in [
        "### [survey] ✓",
        "### [deep-read] ⚠ partial (context exhausted)",
        "**Findings before exhaustion:**",
        "### [second-opinion] ✗ failed (provider error)",
    ] {
        assert!(out.stdout.contains(line), "{line} in {out}");
    }
    insta::assert_snapshot!(out.talk().lines().take(23).collect::<Vec<_>>().join("\n"), @"
        Three read-only subagents on $PLACE/state/demo-tree. No key, no network: the model is a script.
        A person would be asked first:

          Spawn 3 subagents (risk: medium)

            [survey]          What is in this tree? Count its files and open TODOs, and
                              show how one file begins.
            [deep-read]       Read everything in this tree and summarise it.
            [second-opinion]  Say what the survey may have missed.

          Tools       Glob, Grep, Note, Read; no network
          Model       script:demo
          Worst case  15,000,000 tokens, $5.00, no time limit
          Budget      5,000,000 tokens per subagent; 20,000,000 tokens and $5.00 for the
                      whole run
          Parallel    2 at a time

        run_0000000000_aaaaaa started
        [survey] started (1/3)
        [deep-read] started (2/3)
        [survey] Glob **/*
        [survey] Grep TODO|FIXME
        [deep-read] Glob **/*.{rs,md,py,go,js,ts,java,c,h,txt}
    ");
    assert!(out.stderr.contains("as scripted"), "{out}");
    let (_, failed) = out.stdout.split_once("### [second-opinion]").unwrap();
    let usage = failed.lines().find(|line| line.starts_with("**Usage**")).unwrap();
    assert!(
        usage.contains("in=0 out=0 · $0.00 ·"),
        "an overloaded provider costs nothing: {usage}"
    );
}

#[test]
fn the_demo_leaves_no_unfixed_errors() {
    let (rig, out) = &*SAMPLE;
    assert_eq!(out.code, 0, "{out}");
    assert_eq!(rig.run(["errors", "--json"]).json()["errors"], serde_json::json!([]));
}

#[test]
fn the_demo_says_where_its_transcripts_are_and_they_hold_the_final_answers() {
    let (rig, out) = &*SAMPLE;
    let folder = out.stdout.split("transcripts in ").nth(1).unwrap().lines().next().unwrap();
    let mut outcomes = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let text = fs::read_to_string(entry.unwrap().path()).unwrap();
        let transcript: Value = serde_json::from_str(&text).unwrap();
        assert_fits("transcript", &transcript);
        if transcript["label"] == "survey" {
            let answer = transcript["messages"].as_array().unwrap().last().unwrap();
            let answer = answer["content"].as_str().unwrap().trim().lines().next().unwrap();
            assert!(out.stdout.contains(&format!("> {answer}")), "{answer}");
        }
        outcomes.push(transcript["outcome"].as_str().unwrap().to_owned());
    }
    outcomes.sort_unstable();
    assert_eq!(outcomes, ["context_exhausted", "error", "success"]);
    assert!(folder.starts_with(rig.state().to_str().unwrap()));
}

/// The events of the run that an agent began.
fn events_of(rig: &Rig, agent: &str) -> Vec<Value> {
    let mut all = rig.runs().into_iter().map(|run| rig.events(&run));
    all.find(|events| events[0]["agent"] == agent).unwrap()
}

#[test]
fn the_demo_ends_with_a_story_of_two_writers() {
    let (rig, out) = &*SAMPLE;
    let report = &out.stdout[out.stdout.find("✓ US-001 Log in").unwrap()..];
    for line in [
        "✓ US-001 Log in: passes, verified\n",
        "  summary  People can log in. Both parts were merged: login.html, token.sh.\n",
        "  child    ✓ US-001-DEL-001 [Sign tokens] complete · 1 file +1 -0 · merged",
        "  child    ✓ US-001-DEL-002 [Create the form] complete · 1 file +4 -0 · merged",
    ] {
        assert!(report.contains(line), "{line} in {out}");
    }
    assert!(!report.contains("adjutant merge"), "the repository is gone: {out}");
    assert!(out.stderr.contains("`passes` is true"), "{out}");
    let events = events_of(rig, "story");
    let workdir = events[0]["workdir"].as_str().unwrap();
    assert!(!Path::new(workdir).exists(), "the repository was temporary: {workdir}");
    assert!(!rig.state().join("spaces").exists(), "workspaces went with it");
}

#[test]
fn without_git_the_demo_skips_the_story_and_says_why() {
    let rig = Rig::new();
    let nothing = rig.path().join("nothing");
    fs::create_dir(&nothing).unwrap();
    let out = rig.call(["demo"]).env("PATH", nothing).run();
    assert_eq!(out.code, 0, "{out}");
    assert!(out.stderr.contains("A story with two writers is left out: no git program"), "{out}");
    assert!(out.stderr.contains("Look again with"), "{out}");
}

#[test]
fn the_demo_shows_a_slash_command() {
    let (rig, out) = &*SAMPLE;
    // Results of the three, then what both commands print, then the entry as it is by then.
    let commands = &out.stdout[out.stdout.find("Task: 1\n").unwrap()..];
    let (added, rest) = commands.split_at(commands[1..].find("Task: 1\n").unwrap() + 1);
    insta::assert_snapshot!(added, @r#"
    Task: 1

    Sign sessions with JWT
    [NOT STARTED] in .adjutant/specs/TODO.md

    Next: adjutant run "/research 1"
    "#);
    let (concluded, entry) = rest.split_once("### 1. Sign sessions with JWT\n").unwrap();
    assert!(concluded.contains("Task 1 is researched."), "{concluded}");
    assert!(
        entry.contains("- **Status**: [") && entry.contains("- **Language**: general"),
        "{entry}"
    );
    let events = events_of(rig, "research");
    let workdir = events[0]["workdir"].as_str().unwrap();
    assert!(!Path::new(workdir).exists(), "the folder was temporary: {workdir}");
    let write = events.iter().find(|it| it["type"] == "write_prepared").unwrap();
    assert!(write.to_string().contains("reports/research-001.md"), "{write}");
    let last = events.iter().rfind(|it| it["type"] == "run_ended").unwrap();
    assert_eq!(last["outcome"], "completed", "{last}");
}

#[test]
fn in_an_empty_folder_the_demo_reads_a_sample_project() {
    let (rig, out) = &*SAMPLE;
    let sample = rig.state().join("demo-tree");
    assert!(out.stderr.contains(&format!("subagents on {}.", sample.display())), "{out}");
    assert!(sample.join("README.md").is_file());
    assert!(fs::read_dir(rig.work()).unwrap().next().is_none(), "the folder itself stays empty");
}

#[test]
fn every_command_that_the_demo_recommends_works() {
    let (rig, out) = &*SAMPLE;
    rig.assert_unharmed();
    let runs = rig.runs();
    assert_eq!(runs.len(), 3, "{runs:?}");
    assert_eq!(rig.run(["status"]).code, 0);
    for run in &runs {
        for view in ["tree", "cost", "log"] {
            assert_eq!(rig.run([view, run]).code, 0, "{view} {run}");
        }
    }
    let scouts = runs.iter().find(|run| out.stdout.contains(&format!("\nRun {run}"))).unwrap();
    let again = rig.run(["result", scouts]);
    // The demo hands over what a parent model would get; `result` shows all of it.
    assert_eq!(again.stdout.lines().next(), out.stdout.lines().next());
    assert_eq!(again.code, 3);
}

/// The sentences come from a script, but the numbers in them come from the files.
#[test]
fn the_findings_of_the_demo_depend_on_the_files() {
    let rig = Rig::new();
    for number in 0..30 {
        rig.write(&format!("src/part{number:02}.rs"), "fn work() {} // TODO\n".repeat(250));
    }
    let survey = |out: Output| {
        assert_eq!(out.code, 0, "{out}");
        let result = out.json();
        assert_fits("result", &result);
        result["results"][0]["report"].as_str().unwrap().lines().next().unwrap().to_owned()
    };
    let run = || rig.call(["demo", "--json"]).start();
    let before = survey(run().finish());
    rig.write("src/another.rs", "fn more() {}\n");
    rig.write("README.md", "# TODO\n");
    let after = survey(run().finish());
    insta::assert_snapshot!(format!("{before}\n{after}"), @"
        The first 150 paths of the tree hold 30 files. 20 files mention TODO or FIXME.
        The first 150 paths of the tree hold 32 files. 20 files mention TODO or FIXME.
    ");
}

#[test]
fn the_demo_streams_events() {
    let rig = Rig::new();
    let out = rig.run(["demo", "--events"]);
    assert_eq!(out.code, 0, "{out}");
    let mut completed: Vec<String> = out
        .lines()
        .inspect(|event| assert_fits("events", event))
        .filter(|event| event["event"] == "completed")
        .map(|event| format!("{} {}", event["label"].as_str().unwrap(), event["status"]))
        .collect();
    completed.sort_unstable();
    insta::assert_snapshot!(completed.join("\n"), @r#"
        deep-read "partial"
        second-opinion "error"
        survey "ok"
    "#);
}

#[test]
fn the_demo_reports_a_missing_folder() {
    insta::assert_snapshot!(Rig::new().run(["demo", "nowhere"]), @"
        --- stderr ---
        adjutant: cannot open nowhere: No such file or directory (os error 2)
        [exit 2]
    ");
}
