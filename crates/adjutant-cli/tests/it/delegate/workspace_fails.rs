//! One workspace of several cannot be created: its agent fails with the reason, the others continue.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::kills::book::Book;
use crate::support::repository::Repo;
use crate::support::rig::{Output, Rig};

const LABELS: [&str; 3] = ["one", "two", "three"];

/// How long anything here may take; it takes a fraction of a second.
const GUARD: Duration = Duration::from_secs(120);

/// Three writing agents, one after the other; the first waits until it is released.
fn script(gate: &str) -> String {
    let call = |label: &str, tool: &str, args: &str| {
        format!("[[turn]]\nlabel = \"{label}\"\n[[turn.call]]\ntool = \"{tool}\"\nargs = {args}\n")
    };
    let work = |label: &str| {
        let args = format!("{{ file_path = \"{label}\", content = \"by {label}\\n\" }}");
        call(label, "Write", &args) + &format!("[[turn]]\nlabel = \"{label}\"\ntext = \"done\"\n")
    };
    let wait = format!("{{ command = \"while [ ! -e {gate}/go ]; do sleep 0.05; done\" }}");
    call("one", "Run", &wait) + &LABELS.map(work).concat()
}

/// A root agent that delegates the three tasks and repeats the results.
const LEAD: &str = r#"
[[turn]]
agent = "lead"
[[turn.call]]
tool = "Delegate"
args = { concurrency = 1, tasks = [
  { label = "one", prompt = "Do it" }, { label = "two", prompt = "Do it" }, { label = "three", prompt = "Do it" } ] }
[[turn]]
agent = "lead"
text = "They say: {{result}}"
"#;

struct Scene {
    repo: Repo,
    gate: PathBuf,
    before: String,
}

impl Scene {
    fn new() -> Self {
        let rig = Rig::new();
        let gate = rig.path().join("gate");
        fs::create_dir(&gate).unwrap();
        let script = LEAD.to_owned() + &script(gate.to_str().unwrap());
        fs::write(rig.path().join("script.toml"), script).unwrap();
        let repo = Repo { rig };
        repo.git(["init", "-q", "-b", "main", "."]);
        repo.rig.write("list", "END\n");
        repo.commit("first");
        let before = repo.state();
        Self { repo, gate, before }
    }

    /// Runs with a file in place of the second workspace.
    fn run(&self, kind: &str, words: &[&str]) -> Output {
        let rig = &self.repo.rig;
        let running = rig
            .call(words)
            .args(["--yes", "--write", "--workspace", kind, "--model", rig.model()])
            .arg("--grant")
            .arg(&self.gate)
            .env("PATH", std::env::var_os("PATH").unwrap())
            .start();
        let (run, second) = self.wait_for_second();
        let at = self.place(kind, &run, &second);
        fs::write(at, "in the way").unwrap();
        fs::write(self.gate.join("go"), "").unwrap();
        running.finish()
    }

    /// Waits until the first works and the second is known; returns the run and the second.
    fn wait_for_second(&self) -> (String, String) {
        let until = Instant::now() + GUARD;
        loop {
            let found = self.repo.rig.runs().into_iter().next().and_then(|run| {
                let file = self.repo.rig.run_folder(&run).join("journal.jsonl");
                let book = file.exists().then(|| Book::read(&file))?;
                book.of("space_made").next()?;
                let second = book.of("granted").find(|it| it["brief"]["label"] == "two")?;
                Some((run, second["session"].as_str()?.to_owned()))
            });
            if let Some(found) = found {
                return found;
            }
            assert!(Instant::now() < until, "the first never began");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Where the workspace of a session would be.
    fn place(&self, kind: &str, run: &str, session: &str) -> PathBuf {
        let spaces = fs::read_dir(self.repo.rig.state().join("spaces")).unwrap();
        let repository = spaces.flatten().next().unwrap().path();
        let folder = match kind {
            "overlay" => repository,
            _ => repository.join(".private/worktrees"),
        };
        folder.join(run).join(session)
    }

    /// The text of requirement 61, with the values of this run.
    fn text(&self, kind: &str) -> String {
        let run = self.repo.rig.only_run();
        let book = Book::read(&self.repo.rig.run_folder(&run).join("journal.jsonl"));
        let second = book.of("granted").find(|it| it["brief"]["label"] == "two").unwrap();
        let at = self.place(kind, &run, second["session"].as_str().unwrap());
        let doing = if kind == "overlay" { "creating a workspace" } else { "creating a work tree" };
        format!(
            "ERROR: Failed to create child worktree for delegation.\n\n\
             Child: two\nWorktree path: {}\nGit error: {doing}: not a directory\n\n\
             Action: Cleanup old worktrees and retry\nCommand: adjutant prune",
            at.display()
        )
    }

    /// Two agents completed their tasks, and no files are left in place of the third workspace.
    fn check(&self) {
        let diff = self.repo.json(&["diff"], 0);
        let labels: Vec<&Value> =
            diff["results"].as_array().unwrap().iter().map(|it| &it["label"]).collect();
        assert_eq!(labels, ["one", "three"], "{diff}");
        assert_eq!(self.repo.state(), self.before);
        // The recommended command works while the obstacle still exists.
        let path = std::env::var_os("PATH").unwrap();
        let pruned = self.repo.rig.call(["prune"]).env("PATH", path).run();
        assert_eq!(pruned.code, 0, "{pruned}");
    }
}

#[test]
fn requirement_61_a_task_without_a_workspace_fails_and_the_others_continue() {
    for kind in ["overlay", "worktree"] {
        let scene = Scene::new();
        let tasks = ["-t", "one=Do it", "-t", "two=Do it", "-t", "three=Do it"];
        let words: Vec<&str> =
            ["delegate", "--concurrency", "1", "--json"].into_iter().chain(tasks).collect();
        let out = scene.run(kind, &words);
        assert_eq!(out.code, 3, "{kind}: {out}");
        let json = out.json();
        let of = |label: &str| {
            let results = json["results"].as_array().unwrap();
            results.iter().find(|it| it["label"] == label).unwrap().clone()
        };
        let two = of("two");
        assert_eq!(two["error"], scene.text(kind), "{kind}: {two}");
        assert_eq!(two["reason"]["code"], "TOOL_UNAVAILABLE", "{kind}: {two}");
        for label in ["one", "three"] {
            assert_eq!(of(label)["outcome"], "completed", "{kind}: {json}");
        }
        scene.check();
        let shown = scene.repo.rig.run(["result"]);
        for line in scene.text(kind).lines() {
            assert!(shown.stdout.contains(line), "{kind}: {line}\n{shown}");
        }
    }
}

#[test]
fn requirement_61_the_parent_agent_gets_the_workspace_error_as_tool_result() {
    for kind in ["overlay", "worktree"] {
        let scene = Scene::new();
        let out = scene.run(kind, &["run", "See to it"]);
        let run = scene.repo.rig.only_run();
        let book = Book::read(&scene.repo.rig.run_folder(&run).join("journal.jsonl"));
        let told: Vec<&Value> = book.of("tool_returned").map(|it| &it["content"]).collect();
        for line in scene.text(kind).lines() {
            assert!(told.iter().any(|it| it.as_str().unwrap().contains(line)), "{line}\n{told:?}");
            assert!(out.stdout.contains(line), "{kind}: {line}\n{out}");
        }
        scene.check();
    }
}
