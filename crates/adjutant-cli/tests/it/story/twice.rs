//! Several processes on one PRD, under different paths to it: no story is started twice.

use std::os::unix::fs::symlink;

use adjutant_testkit::fake::{Api, Script, Turn};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::project::{Project, done, one_story, writes};
use crate::support::rig::Call;
use crate::support::running::Running;
use crate::support::server::Server;

const STORIES: [&str; 3] = ["US-001", "US-002", "US-003"];

/// A PRD in a repository that a link leads to as well.
fn linked(prd: &Value, turns: impl IntoIterator<Item = Value>) -> Project {
    let project = Project::new(prd, turns);
    symlink(project.rig().work(), project.rig().path().join("link")).unwrap();
    project
}

/// How the path of the PRD can be spelled from the folder of the repository.
fn spellings(project: &Project) -> [String; 5] {
    let [work, link] = [project.rig().work(), project.rig().path().join("link")];
    [
        "prd.json".to_owned(),
        "./prd.json".to_owned(),
        "src/../prd.json".to_owned(),
        work.join("prd.json").display().to_string(),
        link.join("prd.json").display().to_string(),
    ]
}

fn git_found(call: Call<'_>) -> Call<'_> {
    call.env("PATH", std::env::var_os("PATH").unwrap())
}

#[test]
fn processes_that_start_together_run_each_story_once() {
    let story = |id: &&str| json!({ "id": id, "title": "Log in", "passes": false });
    let prd = json!({ "userStories": STORIES.iter().map(story).collect::<Vec<_>>() });
    for round in 0..4 {
        let result = json!({
            "status": "completed", "summary": "It is done. It was tried.", "artifacts": [],
            "errors": [],
        });
        let turn = || Turn::calls("Return", &result);
        // A second request would also get an answer and be recorded.
        let on = |script: Script, id: &&str| script.on(&format!("Story {id}"), [turn(), turn()]);
        let server = Server::start(Api::Anthropic, STORIES.iter().fold(Script::new(), on));
        let project = linked(&prd, []);
        let call = |path: &String| {
            let args = ["story", path, "--yes", "--model", "fake/priced"];
            git_found(server.call(project.rig(), &args))
        };
        // Preparing one writes the configuration that those before it would be reading.
        let calls: Vec<_> = spellings(&project).iter().map(call).collect();
        let running: Vec<_> = calls.into_iter().map(Call::start).collect();
        let ended: Vec<_> = running.into_iter().map(Running::finish).collect();
        for out in &ended {
            assert_eq!(out.code, 0, "round {round}: {out}");
        }
        let ended: String = ended.iter().map(ToString::to_string).collect();
        for story in STORIES {
            assert_eq!(project.entry(story)["passes"], true, "round {round}: {story}: {ended}");
        }
        assert_eq!(project.rig().runs().len(), STORIES.len(), "round {round}: {ended}");
        assert_eq!(server.stop().len(), STORIES.len(), "round {round}: {ended}");
    }
}

fn slow() -> [Value; 3] {
    let wait = json!({ "label": "US-001", "delay_ms": 60_000, "text": "I wait." });
    [writes("US-001", "half", "x\n"), wait, done("US-001")]
}

/// Works on the PRD by one of the spellings of its path.
fn by<'p>(project: &'p Project, path: &str, flags: &[&str]) -> Call<'p> {
    project.call(["story", path, "--yes", "--model", "script:../script.json"]).args(flags)
}

#[test]
fn the_process_that_claims_a_story_is_named_until_it_is_killed() {
    let project = linked(&one_story(), slow());
    for killed in 0..2 {
        let again: &[&str] = if killed == 0 { &[] } else { &["--again"] };
        let paths = spellings(&project);
        let mut running = by(&project, &paths[4 * killed], again).start();
        running.wait_for("[US-001] Write half");
        let (pid, runs) = (running.pid(), project.rig().runs());
        assert_eq!(runs.len(), killed + 1);
        for path in &paths {
            for flags in [&[][..], &["--again"]] {
                let mut waiting = by(&project, path, flags).start();
                waiting.wait_for("waiting until it ends");
                waiting.signal(Signal::KILL);
                let out = waiting.finish();
                assert!(out.stderr.contains(&format!("(process {pid})")), "{path}: {out}");
                let named = |run: &&String| out.stderr.contains(&format!("adjutant watch {run}"));
                assert_eq!(runs.iter().filter(named).count(), 1, "{path}: {out}");
            }
        }
        assert_eq!(project.rig().runs(), runs, "nothing was begun");
        running.signal(Signal::KILL);
        assert_eq!(running.finish().code, 128 + 9);
        for path in &paths {
            let out = by(&project, path, &[]).run();
            assert!(out.stdout.contains("adjutant resume run_"), "{path}: {out}");
        }
    }
}

#[test]
fn resume_refuses_a_story_that_another_run_has_started_again() {
    let project = linked(&one_story(), slow());
    let mut first = project.working(&[]).start();
    first.wait_for("[US-001] Write half");
    let run = project.rig().only_run();
    first.signal(Signal::KILL);
    assert_eq!(first.finish().code, 128 + 9);
    let mut second = project.working(&["--again"]).start();
    second.wait_for("[US-001] Write half");
    let out = project.call(["resume", &run, "--yes"]).run();
    assert_eq!(out.code, 2, "{out}");
    assert!(out.stderr.contains(&format!("process {} works on it", second.pid())), "{out}");
    second.signal(Signal::KILL);
    assert_eq!(second.finish().code, 128 + 9);
    project.script(&json!({ "turn": [writes("US-001", "half", "x\n"), done("US-001")] }));
    let out = project.call(["resume", &run, "--yes"]).run();
    assert_eq!(out.code, 0, "{out}");
    assert_eq!(project.entry("US-001")["adjutant"]["run"], run.as_str());
}

#[test]
fn a_story_can_run_in_two_work_trees_at_once() {
    let project = linked(&one_story(), slow());
    project.repo.git(["worktree", "add", "-q", "../second"]);
    let mut first = project.working(&[]).start();
    first.wait_for("[US-001] Write half");
    project.script(&json!({ "turn": [done("US-001")] }));
    let second = project.rig().path().join("second");
    let out = project.working(&[]).cwd(&second).run();
    assert_eq!(out.code, 0, "{out}");
    assert_eq!(project.rig().runs().len(), 2, "{out}");
    assert_eq!(project.entry("US-001"), one_story()["userStories"][0]);
    first.signal(Signal::KILL);
    assert_eq!(first.finish().code, 128 + 9);
}

#[test]
fn a_signal_ends_the_wait_for_another_process_after_a_story_of_its_own() {
    let story = |id: &&str| json!({ "id": id, "title": "Log in", "passes": false });
    let prd = json!({ "userStories": STORIES[..2].iter().map(story).collect::<Vec<_>>() });
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let wait = json!({ "label": "US-002", "delay_ms": 60_000, "text": "I wait." });
        let turns = [done("US-001"), writes("US-002", "half", "x\n"), wait, done("US-002")];
        let project = linked(&prd, turns);
        let mut holder = project.working(&["--story", "US-002"]).start();
        holder.wait_for("[US-002] Write half");
        let mut waiting = project.working(&[]).start();
        waiting.wait_for("waiting until it ends (ctrl+c stops waiting)").signal(signal);
        let out = waiting.finish();
        assert_eq!(out.code, 130, "{signal:?}: {out}");
        assert_eq!(project.entry("US-001")["passes"], true, "{out}");
        assert!(out.stdout.contains("US-001 Log in: passes"), "{out}");
        assert!(out.stdout.contains("US-002: not begun"), "{out}");
        assert!(!holder.has_ended(), "the signal is for the process that waits");
        holder.signal(Signal::KILL);
        assert_eq!(holder.finish().code, 128 + 9);
    }
}
