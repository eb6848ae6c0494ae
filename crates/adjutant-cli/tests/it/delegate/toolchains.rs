//! The toolchains of this machine: what commands see is shown before a run, told to agents and listed by `doctor`.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::support::repository::Repo;
use crate::support::rig::{Output, Rig};

const SCRIPT: &str = "[[turn]]\ntext = \"done\"\n";

/// A repository, and a home directory with Node, in a version that no system has, and Maven.
fn machine(script: &str) -> Repo {
    let repo = Repo { rig: Rig::with_script(script) };
    repo.git(["init", "-q", "-b", "main", "."]);
    repo.rig.write("list", "END\n");
    repo.commit("first");
    let home = repo.rig.home();
    repo.rig.program(&home.join(".nvm/versions/node/v99.7.1/bin/node"));
    fs::create_dir_all(home.join(".m2/repository")).unwrap();
    repo
}

/// What a question before the run says that commands see.
fn seen(repo: &Repo, flags: &[&str]) -> String {
    let out = repo.rig.delegating(&["--write", "--dry-run", "--json", "-t", "one=Do it"]);
    let out = out.args(flags).run();
    assert_eq!(out.code, 0, "{out}");
    out.json()["commands_see"].as_str().unwrap_or("nothing").to_owned()
}

#[test]
fn the_question_before_a_run_that_writes_says_what_commands_see() {
    let repo = machine(SCRIPT);
    assert!(seen(&repo, &[]).contains("node 99.7"), "{}", seen(&repo, &[]));
    for flags in [
        &["--no-toolchains"][..],
        &["--no-toolchains=node (nvm)"],
        &["--no-toolchains=maven", "--no-toolchains=node"],
    ] {
        assert!(!seen(&repo, flags).contains("node 99.7"), "{flags:?}");
    }
    assert_eq!(seen(&repo, &["--sandbox=off", "--workspace=worktree"]), "nothing");
    let shown = repo.rig.delegating(&["--write", "--dry-run", "-t", "one=Do it"]).run();
    let line = shown.stdout.lines().find(|line| line.starts_with("Commands see  ")).unwrap();
    assert!(line.contains("node 99.7"), "{shown}");
    let reads = repo.rig.delegating(&["--dry-run", "-t", "one=Do it"]).run();
    assert!(!reads.stdout.contains("Commands see"), "{reads}");
}

#[test]
fn configuration_files_switch_toolchains_off_and_a_project_can_do_nothing_else() {
    let repo = machine(SCRIPT);
    let user = repo.rig.home().join(".config/adjutant/config.toml");
    fs::create_dir_all(user.parent().unwrap()).unwrap();
    let project = repo.rig.work().join(".adjutant/config.toml");
    fs::create_dir_all(project.parent().unwrap()).unwrap();
    let with = |user_text: &str, project_text: &str| {
        fs::write(&user, user_text).unwrap();
        fs::write(&project, project_text).unwrap();
        repo.rig.delegating(&["--write", "--dry-run", "--json", "-t", "one=Do it"]).run()
    };
    let sees_node = |out: &Output| {
        assert_eq!(out.code, 0, "{out}");
        out.json()["commands_see"].as_str().unwrap_or_default().contains("node 99.7")
    };
    let off = "[toolchains]\noff = [\"node (nvm)\"]\n";
    let none = "[toolchains]\nenabled = false\n";
    let all = "[toolchains]\nenabled = true\n";
    assert!(sees_node(&with("", "")));
    assert!(sees_node(&with(all, "")));
    for (user, project) in [(off, ""), (none, ""), ("", off), ("", none), (all, off)] {
        assert!(!sees_node(&with(user, project)), "{user} {project}");
    }
    let refused = with("", all);
    assert_eq!(refused.code, 2, "{refused}");
    assert!(refused.stderr.contains("a project file may only switch toolchains off"), "{refused}");
    let unknown = with("[toolchains]\noff = [\"nodee\"]\n", "");
    assert_eq!(unknown.code, 2, "{unknown}");
    insta::assert_snapshot!(unknown.stderr, @"
    adjutant: user config: [toolchains] off: `nodee` is not a toolchain
      The names are: rust, cargo, python (pyenv), uv, python (user packages), node (nvm), node (fnm), node (volta), node (directory), mise, asdf, npm cache, go, maven.
    ");
    let typed = repo.rig.delegating(&["--write", "--no-toolchains=x", "-t", "one=Do it"]).run();
    assert_eq!(typed.code, 2, "{typed}");
    let useless = repo.rig.delegating(&["--no-toolchains", "-t", "one=Do it"]).run();
    assert_eq!(useless.code, 2, "{useless}");
}

#[test]
fn agents_are_told_what_commands_see_and_why_a_tool_is_missing() {
    // Not in a system directory of most machines.
    let missing = ["pnpm", "gofmt", "uvx", "bundle"].into_iter().find(|program| {
        ["/usr/bin", "/usr/local/bin", "/bin"]
            .iter()
            .all(|it| !Path::new(it).join(program).exists())
    });
    let Some(missing) = missing else { return };
    let script = format!(
        "[[turn]]\n[[turn.call]]\ntool = \"Run\"\nargs = {{ command = \"{missing} --version\" }}\n\
         [[turn]]\ntext = \"done\"\n"
    );
    let repo = machine(&script);
    let run = repo.rig.delegating(&["--write", "--no-toolchains", "-t", "one=Do it"]);
    let out = run.env("PATH", std::env::var_os("PATH").unwrap()).run();
    assert_eq!(out.code, 0, "{out}");
    let events = repo.rig.events(&repo.rig.only_run());
    let started = events.iter().find(|it| it["type"] == "run_started").unwrap();
    assert_eq!(started["terms"]["no_toolchains"], true, "{started}");
    assert_eq!(started["terms"]["toolchains"], Value::Null, "{started}");
    if let Some(tools) = started["terms"]["commands_see"].as_str() {
        let told = &started["environment"]["commands"];
        assert_eq!(*told, format!("\nCommands see: {tools}"), "{started}");
    }
    let returned = events.iter().find(|it| it["type"] == "tool_returned").unwrap();
    let text = returned["content"].as_str().unwrap();
    let why = format!(
        "`{missing}` was not found in the sandbox: toolchains are switched off (--no-toolchains)"
    );
    assert!(text.contains(&why), "{text}");
}

#[test]
fn doctor_lists_what_commands_see_with_versions() {
    let repo = machine(SCRIPT);
    let findings = |out: Output| {
        let findings = out.json()["findings"].as_array().unwrap().clone();
        move |name: &str| {
            let found = findings.iter().find(|it| it["name"] == name);
            found.map(|it| it["says"].as_str().unwrap().to_owned())
        }
    };
    let says = findings(repo.rig.run(["doctor", "--json"]));
    assert!(says("commands see").unwrap().contains("node 99.7"));
    let node = says("toolchain node (nvm)").unwrap();
    assert!(node.starts_with("node 99.7.1 (") && node.contains(".nvm/versions/node"), "{node}");
    assert!(says("toolchain maven").unwrap().ends_with(".m2/repository"));
    let user = repo.rig.home().join(".config/adjutant/config.toml");
    fs::create_dir_all(user.parent().unwrap()).unwrap();
    fs::write(user, "[toolchains]\noff = [\"node\"]\n").unwrap();
    let says = findings(repo.rig.run(["doctor", "--json"]));
    assert_eq!(says("toolchain node (nvm)"), None);
    assert_eq!(says("toolchains").unwrap(), "switched off by [toolchains] in config.toml: node");
}
