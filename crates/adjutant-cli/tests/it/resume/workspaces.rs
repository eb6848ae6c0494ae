//! The workspace flags of a run: `resume` applies them again, widens them only if that is typed, and views show them.

use std::fs;

use serde_json::{Value, json};

use crate::support::repository::Repo;
use crate::support::rig::{Call, Output, Rig};

/// A parent agent that hands one task down in each of `calls` turns, and then ends if it `ends`. Every subagent
/// looks at what it can see.
fn script(calls: usize, ends: bool, probe: &str) -> String {
    let labels = ["one", "two"];
    let call = |label: &&str| {
        format!(
            "[[turn]]\nagent = \"lead\"\n[[turn.call]]\ntool = \"Delegate\"\n\
             args = {{ tasks = [{{ label = \"{label}\", prompt = \"Look, {label}\" }}] }}\n"
        )
    };
    let look = |label: &str| {
        format!(
            "[[turn]]\nlabel = \"{label}\"\n[[turn.call]]\ntool = \"Run\"\nargs = {{ command = '''{probe}''' }}\n\
             [[turn]]\nlabel = \"{label}\"\ntext = \"looked\"\n"
        )
    };
    let end = if ends { "[[turn]]\nagent = \"lead\"\ntext = \"all done\"\n" } else { "" };
    labels.iter().take(calls).map(call).collect::<String>() + end + &labels.map(look).concat()
}

struct Stage {
    repo: Repo,
    probe: String,
}

impl Stage {
    fn new() -> Self {
        let rig = Rig::new();
        let top = rig.path().canonicalize().unwrap();
        for granted in ["kit", "other"] {
            fs::create_dir(top.join(granted)).unwrap();
            fs::write(top.join(granted).join("file"), format!("in {granted}\n")).unwrap();
        }
        fs::write(rig.home().join("secret"), "in home\n").unwrap();
        let top = top.display();
        let probe = format!(
            "cat {top}/kit/file {top}/other/file {top}/home/secret cache/entry 2>/dev/null; true"
        );
        let stage = Self { repo: Repo { rig }, probe };
        stage.repo.git(["init", "-q", "-b", "main", "."]);
        stage.repo.rig.write(".gitignore", "cache/\n");
        stage.repo.rig.write("cache/entry", "in cache\n");
        stage.repo.commit("first");
        stage
    }

    fn with_path<'a>(&self, call: Call<'a>) -> Call<'a> {
        call.env("PATH", std::env::var_os("PATH").unwrap())
    }

    /// Begins a run that breaks off after its first subagent, and returns what it said.
    fn begin(&self, flags: &[&str]) -> String {
        let rig = &self.repo.rig;
        fs::write(rig.path().join("script.toml"), script(1, false, &self.probe)).unwrap();
        let call = rig.call(["run", "Look", "--yes", "--write", "--model", rig.model()]);
        let out = self.with_path(call.args(flags)).run();
        assert_ne!(out.code, 0, "{out}");
        out.stderr
    }

    /// Goes on with it, so that it hands a second task down and ends.
    fn resume(&self, flags: &[&str]) -> Output {
        let rig = &self.repo.rig;
        fs::write(rig.path().join("script.toml"), script(2, true, &self.probe)).unwrap();
        self.with_path(rig.call(["resume", &rig.only_run(), "--yes"]).args(flags)).run()
    }

    /// What each subagent saw, in a word for each place, and what held it.
    fn seen(&self) -> Vec<(Vec<String>, String)> {
        let events = self.repo.rig.events(&self.repo.rig.only_run());
        let ran =
            events.iter().filter(|it| it["type"] == "tool_returned" && it["sandbox"].is_string());
        let seen = ran.map(|it| {
            let lines = it["content"].as_str().unwrap().lines();
            let seen = lines.filter_map(|line| line.strip_prefix("in ")).map(str::to_owned);
            (seen.collect(), it["sandbox"].as_str().unwrap().to_owned())
        });
        seen.collect()
    }
}

/// Flags at the start and at the resumption, and what is seen before and after.
type Case = (&'static [&'static str], &'static [&'static str], &'static str, &'static str);

const CASES: [Case; 7] = [
    (&[], &[], "", ""),
    (&["--grant", "../kit", "--include-ignored", "cache"], &[], "kit cache", "kit cache"),
    (&["--grant", "../kit"], &["--grant", "../other"], "kit", "kit other"),
    (&[], &["--include-ignored", "cache/"], "", "cache"),
    (&["--sandbox", "off"], &[], "kit other home off", "kit other home off"),
    (&["--sandbox", "off"], &["--sandbox", "on"], "kit other home off", ""),
    (&["--workspace", "worktree"], &["--sandbox", "off"], "", "kit other home off"),
];

#[test]
fn resume_keeps_the_workspace_flags_of_the_start_and_adds_none() {
    for (flags, again, before, after) in CASES {
        let stage = Stage::new();
        let began = stage.begin(flags);
        let resumed = stage.resume(again);
        assert_eq!(resumed.code, 0, "{flags:?} {again:?}\n{began}\n{resumed}");
        let seen: Vec<String> = stage
            .seen()
            .into_iter()
            .map(|(mut seen, held)| {
                seen.extend((held == "off").then_some(held));
                seen.join(" ")
            })
            .collect();
        assert_eq!(seen, [before, after], "{flags:?} {again:?}\n{resumed}");
        let is_off = after.ends_with("off");
        assert_eq!(resumed.stderr.contains("commands of agents run as you"), is_off, "{resumed}");
    }
}

#[test]
fn resume_shows_no_toolchain_that_the_start_did_not_show() {
    // Flags at the start and at the resumption, and the toolchains before and after.
    let cases: [Case; 3] = [
        (&[], &[], "node (nvm), npm cache", "node (nvm), npm cache"),
        (&["--no-toolchains"], &[], "", ""),
        (&["--no-toolchains=npm cache"], &["--no-toolchains=node"], "node (nvm)", ""),
    ];
    for (flags, again, before, after) in cases {
        let stage = Stage::new();
        let home = stage.repo.rig.home();
        fs::create_dir_all(home.join(".npm/_cacache")).unwrap();
        stage.repo.rig.program(&home.join(".nvm/versions/node/v20.20.0/bin/node"));
        stage.begin(flags);
        let resumed = stage.resume(again);
        assert_eq!(resumed.code, 0, "{resumed}");
        let events = stage.repo.rig.events(&stage.repo.rig.only_run());
        let terms = |kind: &str| {
            let event = events.iter().find(|it| it["type"] == kind).unwrap();
            let names = event["terms"]["toolchains"].as_array().cloned().unwrap_or_default();
            // The machine may have toolchains in system directories, too.
            let names = names.iter().filter_map(|it| it.as_str()).filter(|it| it.starts_with('n'));
            names.collect::<Vec<_>>().join(", ")
        };
        assert_eq!(terms("run_started"), before, "{flags:?}");
        assert_eq!(terms("resumed"), after, "{flags:?} {again:?}");
    }
}

#[test]
fn resume_warns_about_workspace_flags_that_no_longer_apply() {
    let stage = Stage::new();
    stage.begin(&["--grant", "../kit"]);
    let kit = stage.repo.rig.path().join("kit");
    fs::rename(&kit, stage.repo.rig.path().join("away")).unwrap();
    std::os::unix::fs::symlink("home", &kit).unwrap();
    let resumed = stage.resume(&[]);
    assert_eq!(resumed.code, 0, "{resumed}");
    assert!(resumed.stderr.contains("kit was granted and no longer exists"), "{resumed}");
    assert_eq!(stage.seen()[1].0, Vec::<String>::new());
}

#[test]
fn resume_refuses_to_turn_the_sandbox_off_for_overlays() {
    let stage = Stage::new();
    stage.begin(&["--workspace", "overlay"]);
    let resumed = stage.resume(&["--sandbox", "off", "--workspace", "worktree"]);
    assert_eq!(resumed.code, 2, "{resumed}");
    assert!(
        resumed.stderr.contains("uses overlay workspaces, which exist only inside"),
        "{resumed}"
    );
}

#[test]
fn resume_refuses_workspace_flags_for_agents_that_only_read() {
    let stage = Stage::new();
    let rig = &stage.repo.rig;
    fs::write(rig.path().join("script.toml"), "[[turn]]\nlabel = \"other\"\ntext = \"x\"\n")
        .unwrap();
    assert_ne!(rig.delegate(&["-t", "one=Look"]).code, 0);
    for flags in [["--grant", "../kit"], ["--sandbox", "off"], ["--merge", "apply"]] {
        let resumed = rig.call(["resume", &rig.only_run()]).args(flags).run();
        assert_eq!(resumed.code, 2, "{resumed}");
        let words = format!("{}: no agent of run_", flags[0]);
        assert!(resumed.stderr.contains(&words), "{resumed}");
    }
}

#[test]
fn every_view_of_a_run_shows_its_sandbox() {
    let one = |json: &Value, of: &str| json[of].as_array().unwrap()[0].clone();
    for (flags, word) in [(&["--sandbox", "off"][..], "off"), (&[], "on")] {
        let stage = Stage::new();
        let (repo, rig) = (&stage.repo, &stage.repo.rig);
        let began = stage.begin(flags);
        let is_off = word == "off";
        assert_eq!(began.contains(" started, sandbox off"), is_off, "{began}");
        let (run, status) = (rig.only_run(), repo.json(&["status", "latest"], 0));
        let (status, tree) = (one(&status, "runs"), repo.json(&["tree"], 0));
        assert_eq!([&status["sandbox"], &tree["sandbox"]], [word, word]);
        let level = one(&status, "delegations")["sandbox"].clone();
        let result = one(&rig.run(["result", "--json"]).json(), "results");
        assert_eq!(result["sandbox"], level);
        assert_eq!(level == json!("off"), is_off, "{level}");
        assert_ne!(level, json!("on"), "a command was run, so its level is known");
        for args in [&["status"][..], &["status", &run], &["tree"]] {
            let shown = rig.run(args);
            assert_eq!(
                shown.stdout.contains("sandbox off") || shown.stdout.contains("sandbox  off"),
                is_off,
                "{shown}"
            );
        }
        let shown = rig.run(["result"]);
        assert!(
            shown.stdout.contains(&format!("**Sandbox**: {}", level.as_str().unwrap())),
            "{shown}"
        );
        let transcript = rig.run(["transcript", result["session_id"].as_str().unwrap()]);
        assert!(
            transcript.stdout.contains(&format!("[sandbox: {}]", level.as_str().unwrap())),
            "{transcript}"
        );
        let told = rig.events(&run);
        let told = told.iter().filter_map(|it| it["system"].as_str());
        let told: Vec<&str> = told.filter(|it| it.contains("Run runs a command")).collect();
        assert!(!told.is_empty());
        assert!(told.iter().all(|it| it.contains("in a sandbox") != is_off), "{told:?}");
    }
}
