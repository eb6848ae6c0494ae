//! An agent that writes and was started in a folder within a repository: it begins there, works in all of the
//! repository, and its paths are relative to that folder.

use std::fs;

use serde_json::{Value, json};

use crate::support::repository::Repo;
use crate::support::rig::{Call, Rig};

const KINDS: [&str; 2] = ["overlay", "worktree"];

/// An agent that reads and edits with relative and absolute paths, and runs a command that also changes a file outside
/// the folder.
fn script(folder: &str) -> String {
    let turn = |tool: &str, args: &Value| {
        let args = args.as_object().unwrap().iter().map(|(key, value)| format!("{key} = {value}"));
        let args = args.collect::<Vec<_>>().join(", ");
        format!("[[turn]]\n[[turn.call]]\ntool = \"{tool}\"\nargs = {{ {args} }}\n")
    };
    let edit = json!({ "file_path": "src.txt", "old_string": "broken", "new_string": "better" });
    let absolute = json!({
        "file_path": format!("{folder}/src.txt"), "old_string": "better", "new_string": "fixed",
    });
    let command = "pwd; git status --short; git log --format=%s; git blame -s src.txt; \
                   echo changed > ../../top.txt; echo exit 0 > tests/check.sh";
    turn("Read", &json!({ "path": "src.txt" }))
        + &turn("Edit", &edit)
        + &turn("Edit", &absolute)
        + &turn("Run", &json!({ "command": command }))
        + &turn("Run", &json!({ "command": "pwd", "cwd": "tests" }))
        + "[[turn]]\ntext = \"Fixed.\"\n"
}

fn repository() -> Repo {
    let rig = Rig::new();
    let folder = rig.work().join("packages/a b");
    fs::write(rig.path().join("script.toml"), script(folder.to_str().unwrap())).unwrap();
    let repo = Repo { rig };
    repo.git(["init", "-q", "-b", "main", "."]);
    repo.rig.write("top.txt", "top\n");
    repo.rig.write("tests/check.sh", "exit 1\n");
    repo.rig.write("packages/a b/src.txt", "broken\n");
    repo.rig.write("packages/a b/tests/check.sh", "grep -q fixed src.txt\n");
    repo.rig.write(".gitignore", "ignored/\n");
    repo.commit("first");
    repo.rig.write("packages/ignored/x", "x\n");
    repo
}

fn delegating<'a>(repo: &'a Repo, kind: &str, folder: &str) -> Call<'a> {
    let script = format!("script:{}", repo.rig.path().join("script.toml").display());
    let call = repo.rig.call(["delegate", "--yes", "--model", &script, "-t", "one=Fix it"]);
    let path = std::env::var_os("PATH").unwrap();
    call.args(["--write", "--workspace", kind]).env("PATH", path).cwd(&repo.rig.work().join(folder))
}

fn tool_results(repo: &Repo) -> Vec<String> {
    let events = repo.rig.events(&repo.rig.only_run());
    let returned = events.iter().filter(|event| event["type"] == "tool_returned");
    returned.map(|event| event["content"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_writer_starts_in_the_folder_and_its_whole_work_is_verified_and_merged() {
    for kind in KINDS {
        let repo = repository();
        let folder = repo.rig.work().join("packages/a b");
        let verify = ["--verify", "sh tests/check.sh", "--verify-keep", "tests/*"];
        let out =
            delegating(&repo, kind, "packages/a b").args(verify).args(["--return", "json"]).run();
        assert_eq!(out.code, 0, "{kind}: {out}\n{:?}", tool_results(&repo));
        let told = tool_results(&repo);
        let shown = folder.canonicalize().unwrap().display().to_string();
        let command = &told[3];
        assert!(command.contains(&format!("{shown}\n M src.txt\nfirst\n")), "{kind}: {command}");
        assert!(command.contains(") fixed"), "{kind}: blame: {command}");
        assert!(told[4].contains(&format!("{shown}/tests")), "{kind}: {}", told[4]);
        let result = &out.json()["results"][0];
        assert_eq!(result["verification"], "passed", "{kind}: {result:#}");
        let events = repo.rig.events(&repo.rig.only_run());
        let kept = events.iter().find(|event| event["type"] == "space_kept").unwrap();
        let files = kept["files"].as_array().unwrap().iter();
        let files: Vec<&str> = files.map(|file| file["path"].as_str().unwrap()).collect();
        assert_eq!(files, ["src.txt", "tests/check.sh", "../../top.txt"], "{kind}: {kept:#}");
        let check = json!([{ "path": "tests/check.sh", "kind": "script", "from_base": true }]);
        assert_eq!(result["receipt"]["check_files"], check, "{kind}");

        let merged = repo.rig.call(["merge"]).cwd(&folder).run();
        assert_eq!(merged.code, 0, "{kind}: {merged}");
        assert_eq!(repo.read("packages/a b/src.txt"), "fixed\n", "{kind}");
        assert_eq!(repo.read("top.txt"), "changed\n", "{kind}");
        assert_eq!(repo.read("tests/check.sh"), "exit 1\n", "{kind}");
    }
}

#[test]
fn a_folder_that_git_ignores_is_refused_with_a_reason() {
    for kind in KINDS {
        let repo = repository();
        let out = delegating(&repo, kind, "packages/ignored").run();
        assert_ne!(out.code, 0, "{kind}: {out}");
        let said = out.to_string();
        assert!(
            said.contains("packages/ignored is not in the workspace: git ignores it"),
            "{said}"
        );
    }
}
