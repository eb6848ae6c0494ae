//! A root at or above the home directory: the user's configuration stays out of reach.

use std::fs;
use std::path::Path;

use serde_json::json;

use crate::support::repository::Repo;
use crate::support::rig::{Output, Rig};

const CONFIG: &str = "[policy]\nbudget_usd = 1.0\n";

/// A subagent that reads and writes the user's configuration by these paths, and one file beside it.
fn script(folder: &str) -> String {
    let write = |path: &str| json!({ "tool": "Write", "args": { "file_path": path, "content": "planted\n" } });
    let calls = [
        json!({ "tool": "Read", "args": { "file_path": format!("{folder}/config.toml") } }),
        write(&format!("{folder}/config.toml")),
        write(&format!("{folder}/agents/mine.md")),
        write(&format!("{folder}/commands/mine.md")),
        write("beside"),
    ];
    json!({ "turn": [{ "text": "I write.", "call": calls }, { "text": "done" }] }).to_string()
}

fn in_place(rig: &Rig, root: &Path) -> Output {
    let script = format!("script:{}", rig.path().join("script.json").display());
    let call = rig.call(["delegate", "--yes", "--preset", "command", "--set", "contract=report"]);
    call.args(["--in-place", "-t", "w=Write", "--model", &script, "--root"]).arg(root).run()
}

#[test]
fn agents_in_place_neither_read_nor_write_the_user_s_configuration() {
    for exists in [true, false] {
        let rig = Rig::new();
        for (root, folder) in [
            (rig.home(), ".config/adjutant"),
            (rig.path().to_owned(), "home/.config/adjutant"),
            (rig.home().join(".config"), "adjutant"),
        ] {
            let config = rig.home().join(".config/adjutant");
            fs::create_dir_all(rig.home().join(".config")).unwrap();
            if exists {
                fs::create_dir_all(&config).unwrap();
                fs::write(config.join("config.toml"), CONFIG).unwrap();
            }
            fs::write(rig.path().join("script.json"), script(folder)).unwrap();
            let out = in_place(&rig, &root);
            assert_eq!(out.code, 0, "{folder} {out}");
            assert_eq!(fs::read_to_string(root.join("beside")).unwrap(), "planted\n");
            let found = fs::read_to_string(config.join("config.toml")).ok();
            assert_eq!(found.as_deref(), exists.then_some(CONFIG), "{folder}");
            for file in ["agents/mine.md", "commands/mine.md"] {
                assert!(!config.join(file).exists(), "{folder}/{file}");
            }
            let transcript = rig.run(["transcript", "latest"]).to_string();
            assert!(!transcript.contains("budget_usd = 1.0"), "{transcript}");
            if exists {
                let refused = "is a record or a setting of adjutant itself";
                assert!(transcript.contains(refused), "{transcript}");
            }
        }
    }
}

#[test]
fn a_root_that_is_the_home_directory_is_warned_about() {
    let rig = Rig::new();
    fs::write(rig.path().join("script.json"), script("elsewhere")).unwrap();
    let out = in_place(&rig, &rig.home());
    let warning = out.stderr.lines().find(|line| line.contains("warning"));
    insta::assert_snapshot!(warning.unwrap_or_default(), @"adjutant: warning: agents work in your home directory, with all files in it; change to the folder of a project, or name it with --root");
    let out = in_place(&rig, &rig.work());
    assert!(!out.stderr.contains("warning: agents work in"), "{out}");
    let script = format!("script:{}", rig.path().join("script.json").display());
    let out =
        rig.call(["delegate", "--yes", "-t", "w=Look", "--root", "/", "--model", &script]).run();
    assert!(out.stderr.contains("agents work in the root of the file system"), "{out}");
}

/// A home directory that is a git repository, with a subagent that reads and rewrites the configuration.
fn home_repository(is_tracked: bool) -> Repo {
    let repo = Repo { rig: Rig::new() };
    let rig = &repo.rig;
    let config = rig.home().join(".config/adjutant");
    fs::create_dir_all(&config).unwrap();
    fs::write(rig.home().join("file"), "file\n").unwrap();
    fs::write(config.join("config.toml"), CONFIG).unwrap();
    fs::write(rig.path().join("script.json"), script(".config/adjutant")).unwrap();
    let home = rig.home();
    repo.git(["-C", home.to_str().unwrap(), "init", "-q", "-b", "main", "."]);
    let what = if is_tracked { "." } else { "file" };
    repo.git(["-C", home.to_str().unwrap(), "add", what]);
    repo.git(["-C", home.to_str().unwrap(), "commit", "-q", "-m", "first"]);
    repo
}

fn in_workspaces(rig: &Rig, kind: &str) -> Output {
    let script = format!("script:{}", rig.path().join("script.json").display());
    let call = rig.call(["delegate", "--yes", "--write", "--workspace", kind, "--merge", "apply"]);
    let call = call.env("PATH", std::env::var_os("PATH").unwrap());
    call.args(["-t", "w=Write", "--model", &script, "--root"]).arg(rig.home()).run()
}

#[test]
fn the_user_s_configuration_is_never_part_of_a_workspace_or_merge() {
    for kind in ["overlay", "worktree"] {
        let repo = home_repository(false);
        let out = in_workspaces(&repo.rig, kind);
        assert_eq!(out.code, 0, "{kind} {out}");
        let home = repo.rig.home();
        assert_eq!(fs::read_to_string(home.join("beside")).unwrap(), "planted\n", "{kind} {out}");
        let config = home.join(".config/adjutant");
        assert_eq!(fs::read_to_string(config.join("config.toml")).unwrap(), CONFIG, "{kind}");
        assert!(!config.join("agents").exists() && !config.join("commands").exists(), "{kind}");
        let transcript = repo.rig.run(["transcript", "latest"]).to_string();
        assert!(!transcript.contains("budget_usd = 1.0"), "{kind} {transcript}");
    }
}

#[test]
fn no_workspace_is_created_from_a_repository_that_tracks_the_user_s_configuration() {
    let repo = home_repository(true);
    let out = in_workspaces(&repo.rig, "worktree");
    assert_ne!(out.code, 0, "{out}");
    assert!(out.stderr.contains("the repository tracks your configuration directory"), "{out}");
    assert!(out.stderr.contains("type `git rm -r --cached .config/adjutant` and commit"), "{out}");
    let advice = ["rm", "-r", "-q", "--cached", ".config/adjutant"];
    let home = repo.rig.home();
    repo.git([&["-C", home.to_str().unwrap()][..], &advice].concat());
    repo.git(["-C", home.to_str().unwrap(), "commit", "-q", "-m", "second"]);
    assert_eq!(in_workspaces(&repo.rig, "worktree").code, 0, "the advice works");
}

#[test]
fn agents_in_place_do_not_write_linked_configuration_or_the_user_s_agents() {
    let rig = Rig::new();
    let home = rig.home();
    let mine = [
        "dotfiles/config.toml",
        ".claude/agents/a.md",
        ".claude/commands/a.md",
        ".codex/agents/a.toml",
        ".gemini/agents/a.md",
        ".config/opencode/agent/a.md",
        ".config/opencode/commands/a.md",
    ];
    for path in mine {
        fs::create_dir_all(home.join(path).parent().unwrap()).unwrap();
        fs::write(home.join(path), "# mine\n").unwrap();
    }
    fs::create_dir_all(home.join(".config/adjutant")).unwrap();
    let link = home.join(".config/adjutant/config.toml");
    std::os::unix::fs::symlink("../../dotfiles/config.toml", link).unwrap();
    let call = |path: &&str| json!({ "tool": "Write", "args": { "file_path": path, "content": "planted\n" } });
    let calls: Vec<_> = mine.iter().chain(&["beside"]).map(call).collect();
    let script = json!({ "turn": [{ "text": "I write.", "call": calls }, { "text": "done" }] });
    fs::write(rig.path().join("script.json"), script.to_string()).unwrap();
    let out = in_place(&rig, &home);
    assert_eq!(fs::read_to_string(home.join("beside")).unwrap(), "planted\n", "{out}");
    for path in mine {
        assert_eq!(fs::read_to_string(home.join(path)).unwrap(), "# mine\n", "{path}");
    }
}
