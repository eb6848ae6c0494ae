//! A repository with a PRD, and a script for the agents of its stories.

use std::ffi::OsStr;
use std::fs;

use serde_json::{Value, json};

use crate::support::repository::{Repo, lines};
use crate::support::rig::{Call, Output, Rig};
use crate::support::schema::assert_fits;

/// A turn in which an agent says something; the agent of a story is called by its id.
pub(crate) fn says(who: &str, text: &str) -> Value {
    json!({ "label": who, "text": text })
}

/// A turn in which an agent calls one tool.
pub(crate) fn calls(who: &str, tool: &str, args: &Value) -> Value {
    json!({ "label": who, "call": [{ "tool": tool, "args": args }] })
}

/// A turn in which an agent writes a file.
pub(crate) fn writes(who: &str, path: &str, content: &str) -> Value {
    calls(who, "Write", &json!({ "file_path": path, "content": content }))
}

/// A turn in which an agent runs a command.
pub(crate) fn runs(who: &str, command: &str) -> Value {
    calls(who, "Run", &json!({ "command": command }))
}

/// A turn in which an agent claims to be done.
pub(crate) fn done(who: &str) -> Value {
    let summary = format!("{who} is done. Nothing is left.");
    let result = json!({
        "status": "completed", "summary": summary, "artifacts": [], "errors": [],
    });
    calls(who, "Return", &result)
}

/// A turn in which an agent returns `partial`.
pub(crate) fn partial(who: &str) -> Value {
    let result = json!({
        "status": "partial", "summary": "Half of it is done. The rest needs a word.",
        "artifacts": [], "errors": [{ "type": "execution", "message": "a word is missing",
        "code": "EXECUTION_ERROR", "recoverable": true, "recommendation": "Say the word." }],
        "next_steps": "Say the word.",
    });
    calls(who, "Return", &result)
}

/// The one story of a PRD.
pub(crate) fn one_story() -> Value {
    json!({ "userStories": [{ "id": "US-001", "title": "Log in", "passes": false }] })
}

/// A repository of one test, with `prd.json` committed in it.
pub(crate) struct Project {
    pub(crate) repo: Repo,
}

impl Project {
    /// Makes a repository with this PRD, and a script of these turns.
    pub(crate) fn new(prd: &Value, turns: impl IntoIterator<Item = Value>) -> Self {
        let turns: Vec<Value> = turns.into_iter().collect();
        Self::with_script(prd, &json!({ "turn": turns }))
    }

    /// The same with all of the script.
    pub(crate) fn with_script(prd: &Value, script: &Value) -> Self {
        let project = Self { repo: Repo { rig: Rig::new() } };
        project.script(script);
        project.repo.git(["init", "-q", "-b", "main", "."]);
        project.rig().write("long", lines(&[]));
        project.rig().write("src/short", "short\n");
        project.rig().write("prd.json", serde_json::to_string_pretty(prd).unwrap());
        project.repo.commit("first");
        project
    }

    pub(crate) fn rig(&self) -> &Rig {
        &self.repo.rig
    }

    /// Replaces the script.
    pub(crate) fn script(&self, script: &Value) {
        fs::write(self.rig().path().join("script.json"), script.to_string()).unwrap();
    }

    /// Prepares any command; workspaces need git.
    pub(crate) fn call<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Call<'_> {
        self.rig().call(args).env("PATH", std::env::var_os("PATH").unwrap())
    }

    /// Prepares to work on the PRD without asking; whether to delegate is left open.
    pub(crate) fn working(&self, flags: &[&str]) -> Call<'_> {
        self.call(["story", "prd.json", "--yes", "--model", "script:../script.json"]).args(flags)
    }

    /// Works on the PRD with delegation.
    pub(crate) fn story(&self, flags: &[&str]) -> Output {
        self.working(flags).arg("--enable-delegation").run()
    }

    /// Works on the PRD with delegation, as JSON.
    #[track_caller]
    pub(crate) fn json(&self, flags: &[&str], code: i32) -> Value {
        let out = self.working(flags).args(["--enable-delegation", "--json"]).run();
        assert_eq!(out.code, code, "{out}");
        let json = out.json();
        assert_fits("story", &json);
        json
    }

    /// The PRD as it is now.
    pub(crate) fn prd(&self) -> Value {
        serde_json::from_str(&self.repo.read("prd.json")).unwrap()
    }

    /// The entry of a story, or null if there is none.
    pub(crate) fn entry(&self, id: &str) -> Value {
        let prd = self.prd();
        let stories = prd["userStories"].as_array().unwrap();
        stories.iter().find(|story| story["id"] == id).cloned().unwrap_or_default()
    }

    /// The session of an agent, by its label; that of the story itself by its id.
    #[track_caller]
    pub(crate) fn session(&self, run: &str, who: &str) -> String {
        let events = self.rig().events(run);
        let granted = |event: &&Value| event["type"] == "granted" && event["brief"]["label"] == who;
        if let Some(grant) = events.iter().find(granted) {
            return grant["session"].as_str().unwrap().to_owned();
        }
        let story = events.iter().find(|event| event["type"] == "story_taken").unwrap();
        assert_eq!(story["id"], who, "nobody is called that");
        run.replacen("run_", "sess_", 1)
    }

    /// The messages that an agent got between its turns, the newest last.
    #[track_caller]
    pub(crate) fn told(&self, run: &str, who: &str) -> Vec<String> {
        let session = self.session(run, who);
        let events = self.rig().events(run).into_iter();
        let told = events.filter(|it| it["type"] == "told" && it["session"] == session.as_str());
        told.map(|event| event["text"].as_str().unwrap().to_owned()).collect()
    }

    /// The commit that contains an agent's work, if there is one.
    #[track_caller]
    pub(crate) fn kept(&self, run: &str, who: &str) -> String {
        let session = self.session(run, who);
        self.repo.git([
            "for-each-ref",
            "--format=%(objectname)",
            &format!("refs/adjutant/{run}/{session}"),
        ])
    }

    /// A file as an agent left it.
    #[track_caller]
    pub(crate) fn left(&self, run: &str, who: &str, path: &str) -> String {
        self.repo.git(["show", &format!("{}:{path}", self.kept(run, who))])
    }

    /// The files that an agent left.
    #[track_caller]
    pub(crate) fn files(&self, run: &str, who: &str) -> Vec<String> {
        let names = self.repo.git(["ls-tree", "-r", "--name-only", &self.kept(run, who)]);
        names.lines().map(str::to_owned).collect()
    }

    /// The events of a kind.
    pub(crate) fn events(&self, run: &str, kind: &str) -> Vec<Value> {
        let mut events = self.rig().events(run);
        events.retain(|event| event["type"] == kind);
        events
    }

    /// The user's files beside the PRD, the index and the branch: what no story may touch.
    pub(crate) fn own(&self) -> String {
        let status = self.repo.git(["status", "--porcelain=v2", "--", ".", ":!prd.json"]);
        let diff = self.repo.git(["diff", "HEAD", "--", ".", ":!prd.json"]);
        format!("{status}\n{diff}\n{}", self.repo.git(["rev-parse", "main"]))
    }
}
