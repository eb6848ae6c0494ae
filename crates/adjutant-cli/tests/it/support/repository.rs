//! A user's repository in a rig, with runs whose subagents left results in it.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::support::journal;
use crate::support::rig::{Output, Rig};
use crate::support::schema::assert_fits;

/// A line for each of twenty, so that changes far apart do not meet.
pub(crate) fn lines(changed: &[(usize, &str)]) -> String {
    let line = |n: usize| match changed.iter().find(|(number, _)| *number == n) {
        Some((_, text)) => format!("{text}\n"),
        None => format!("line {n}\n"),
    };
    (1..=20).map(line).collect()
}

/// A repository with one commit, and the place it lies in.
pub(crate) struct Repo {
    pub(crate) rig: Rig,
}

/// A run and its sessions, in the order of their labels.
pub(crate) struct Ran {
    pub(crate) run: String,
    pub(crate) sessions: Vec<String>,
}

impl Repo {
    pub(crate) fn new() -> Self {
        let script: String = ["one", "two", "three"]
            .map(|label| format!("[[turn]]\nlabel = \"{label}\"\ntext = \"done\"\n"))
            .concat();
        let repo = Self { rig: Rig::with_script(&script.repeat(2)) };
        repo.git(["init", "-q", "-b", "main", "."]);
        repo.rig.write("long", lines(&[]));
        repo.rig.write("src/short", "short\n");
        repo.commit("first");
        repo
    }

    /// Runs plain git as the user would; it must succeed.
    pub(crate) fn git<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> String {
        self.git_in(&self.rig.work(), args, 1_800_000_000)
    }

    fn git_in<A: AsRef<OsStr>>(
        &self,
        folder: &Path,
        args: impl IntoIterator<Item = A>,
        at: u64,
    ) -> String {
        let date = format!("@{at} +0000");
        let out = Command::new("git")
            .args(args)
            .current_dir(folder)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", self.rig.home())
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .envs([("GIT_AUTHOR_DATE", &date), ("GIT_COMMITTER_DATE", &date)])
            .envs([("GIT_AUTHOR_NAME", "U"), ("GIT_COMMITTER_NAME", "U")])
            .envs([("GIT_AUTHOR_EMAIL", "u@localhost"), ("GIT_COMMITTER_EMAIL", "u@localhost")])
            .output()
            .unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8_lossy(&out.stdout).trim_end().to_owned()
    }

    pub(crate) fn commit(&self, message: &str) {
        self.git(["add", "-A"]);
        self.git(["commit", "-q", "-m", message]);
    }

    pub(crate) fn read(&self, path: &str) -> String {
        fs::read_to_string(self.rig.work().join(path)).unwrap()
    }

    /// What is not committed, the index and the branches.
    pub(crate) fn state(&self) -> String {
        let status = self.git(["status", "--porcelain=v2", "--untracked-files=all"]);
        let diff = self.git(["diff", "HEAD"]);
        format!("{status}\n{diff}\n{}", self.git(["for-each-ref", "refs/heads"]))
    }

    /// A finished run of one subagent for each label, which so far left nothing.
    pub(crate) fn ran(&self, labels: &[&str]) -> Ran {
        let tasks: Vec<String> =
            labels.iter().flat_map(|label| ["-t".to_owned(), format!("{label}=Do it")]).collect();
        let tasks: Vec<&str> = tasks.iter().map(String::as_str).chain(["--json"]).collect();
        let out = self.rig.delegate(&tasks);
        assert_eq!(out.code, 0, "{out}");
        let json = out.json();
        let results = json["results"].as_array().unwrap();
        let session = |label: &&str| {
            let of = |it: &&Value| it["label"] == **label;
            results.iter().find(of).unwrap()["session_id"].as_str().unwrap().to_owned()
        };
        let newest = |run: &String| {
            let run = self.rig.run_folder(run).join("journal.jsonl");
            fs::metadata(run).unwrap().modified().unwrap()
        };
        let run = self.rig.runs().into_iter().max_by_key(newest).unwrap();
        Ran { run, sessions: labels.iter().map(session).collect() }
    }

    /// Keeps what `work` makes of the present commit as the result of a session.
    pub(crate) fn keep(&self, ran: &Ran, place: usize, work: impl FnOnce(&Path)) -> String {
        self.keep_at(ran, place, 1_800_000_000, work)
    }

    /// The same, at a time of its own.
    pub(crate) fn keep_at(
        &self,
        ran: &Ran,
        place: usize,
        at: u64,
        work: impl FnOnce(&Path),
    ) -> String {
        let tree: PathBuf = self.rig.path().join("child");
        let shown = tree.display().to_string();
        self.git(["worktree", "add", "-q", "--detach", &shown]);
        work(&tree);
        self.git_in(&tree, ["add", "-A"], at);
        self.git_in(&tree, ["commit", "-q", "-m", "work"], at);
        let commit = self.git_in(&tree, ["rev-parse", "HEAD"], at);
        let session = &ran.sessions[place];
        let reference = format!("refs/adjutant/{}/{session}", ran.run);
        self.git(["update-ref", &reference, &commit]);
        self.git(["worktree", "remove", "--force", &shown]);
        let event = json!({
            "type": "space_kept", "session": session, "commit": commit, "reference": reference,
        });
        journal::append(&self.rig.run_folder(&ran.run).join("journal.jsonl"), &ran.run, &event);
        commit
    }

    /// Keeps a result that changes lines of `long`.
    pub(crate) fn keep_lines(&self, ran: &Ran, place: usize, changed: &[(usize, &str)]) -> String {
        self.keep(ran, place, |tree| fs::write(tree.join("long"), lines(changed)).unwrap())
    }

    /// Runs a command with `--json` and checks its output against its schema.
    #[track_caller]
    pub(crate) fn json(&self, args: &[&str], code: i32) -> Value {
        let out: Output = self.rig.call(args).arg("--json").run();
        assert_eq!(out.code, code, "{out}");
        let json = out.json();
        assert_fits(args[0], &json);
        json
    }
}

/// The fate of each result.
pub(crate) fn fates(json: &Value) -> Vec<&str> {
    json["results"].as_array().unwrap().iter().map(|it| it["fate"].as_str().unwrap()).collect()
}
