//! `run --write --verify`: the work of each agent that the parent agent gives a task is verified.

use serde_json::json;

use crate::support::repository::Repo;
use crate::support::rig::Rig;
use crate::support::schema::assert_fits;

const SCRIPT: &str = r#"
[[turn]]
agent = "lead"
[[turn.call]]
tool = "Delegate"
args = { tasks = [{ label = "good", prompt = "Fix it" }, { label = "bad", prompt = "Fix it too" }] }

[[turn]]
agent = "lead"
text = "Both are done."

[[turn]]
label = "good"
[[turn.call]]
tool = "Write"
args = { file_path = "src.txt", content = "fixed\n" }

[[turn]]
label = "good"
text = "Fixed."

[[turn]]
label = "bad"
text = "Fixed."
"#;

#[test]
fn the_work_of_every_writer_below_the_parent_agent_is_verified() {
    let repo = Repo { rig: Rig::with_script(SCRIPT) };
    repo.git(["init", "-q", "-b", "main", "."]);
    repo.rig.write("src.txt", "broken\n");
    repo.commit("first");
    let path = std::env::var_os("PATH").unwrap();
    let call = |flags: &[&str]| {
        let args = ["run", "Fix it", "--yes", "--write", "--model", repo.rig.model()];
        let verify = ["--verify", "cat *.txt | grep -q fixed", "--set", "verify_attempts=1"];
        repo.rig.call(args).args(verify).args(flags).env("PATH", &path).run()
    };
    let out = call(&["--json"]);
    // The parent agent was told and completed; the results say what was verified.
    assert_eq!(out.code, 0, "{out}");
    let json = out.json();
    assert_fits("run", &json);
    let results = json["results"].as_array().unwrap();
    let told: Vec<_> = results.iter().map(|it| &it["verification"]).collect();
    assert_eq!(told, [&json!("passed"), &json!("failed")], "{json}");

    let out = call(&[]);
    let good = "[good] completed, verified · 1 tool call · 1 file changed\n";
    assert!(out.stderr.contains(good), "{out}");
    let bad = "[bad] partial, verification failed · no tool calls · no files changed\n";
    assert!(out.stderr.contains(bad), "{out}");
}

#[test]
fn verify_without_write_is_refused() {
    let repo = Repo { rig: Rig::with_script(SCRIPT) };
    let args = ["run", "Fix it", "--yes", "--model", repo.rig.model(), "--verify", "true"];
    let out = repo.rig.call(args).run();
    assert_eq!(out.code, 2, "{out}");
    assert!(out.stderr.contains("--verify: no agent has a workspace of its own here"), "{out}");
}
