//! Results of runs that have not ended, and arguments without effect: `diff` and `merge` do not say that nothing was
//! changed while results may follow.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use serde_json::json;

use crate::support::repository::Repo;
use crate::support::rig::{BINARY, Call, Output, Rig};
use crate::support::running::Running;

/// One subagent changes a file and is done, the other changes one and thinks for longer than any test waits.
const SCRIPT: &str = r#"
[[turn]]
label = "quick"
[[turn.call]]
tool = "Write"
args = { file_path = "quick", content = "quick\n" }

[[turn]]
label = "quick"
text = "done"

[[turn]]
label = "slow"
[[turn.call]]
tool = "Write"
args = { file_path = "slow", content = "slow\n" }

[[turn]]
label = "slow"
delay_ms = 300000
text = "too late"
"#;

/// A repository with one commit, and a model for a subagent `quick` that ends and one `slow` that does not.
pub(crate) fn repository() -> Repo {
    let repo = Repo { rig: Rig::with_script(SCRIPT) };
    repo.git(["init", "-q", "-b", "main", "."]);
    repo.rig.write("file", "file\n");
    repo.commit("first");
    repo
}

fn with_path(call: Call<'_>) -> Call<'_> {
    call.env("PATH", std::env::var_os("PATH").unwrap())
}

/// Starts a run that never ends by itself.
fn start<'rig>(repo: &'rig Repo, labels: &[&str]) -> Running<'rig> {
    let tasks = labels.iter().flat_map(|label| ["-t".to_owned(), format!("{label}=Do it")]);
    let mut running = with_path(repo.rig.delegating(&["--write"])).args(tasks).start();
    if labels.contains(&"quick") {
        running.wait_for("kept 1 file");
    }
    running.wait_for("[slow] Write slow");
    running
}

#[test]
fn diff_and_merge_report_an_unfinished_run_with_advice() {
    for labels in [&["slow"][..], &["quick", "slow"]] {
        let repo = repository();
        let mut running = start(&repo, labels);
        let run = repo.rig.only_run();
        let check = |word: &str, advice: &str| {
            let commands = [&["diff", &run][..], &["diff"], &["merge", &run, "--dry-run"]];
            for args in commands {
                let out = repo.rig.run(args);
                assert_eq!(out.code, 3, "{args:?} {out}");
                for words in [&format!("{run} {word}"), advice] {
                    assert!(out.stderr.contains(words), "{args:?} {words}\n{out}");
                }
                assert!(!out.stderr.contains("nothing was changed"), "{out}");
                assert!(!out.stderr.contains("nothing to merge"), "{out}");
                let is_shown = out.stdout.contains("quick");
                assert_eq!(is_shown, labels.contains(&"quick"), "{args:?} {out}");
            }
            if labels == ["slow"] {
                let out = repo.rig.run(["discard", &run, "--yes"]);
                assert_eq!(out.code, 3, "{out}");
                assert!(out.stderr.contains(advice), "{out}");
            }
        };
        check("is still running", &format!("`adjutant wait {run}`"));
        assert_eq!(repo.json(&["diff"], 3)["unfinished"], "running");

        running.signal(Signal::KILL);
        assert_eq!(running.finish().code, 128 + 9);
        check("was interrupted", &format!("`adjutant resume {run}`"));
        let json = repo.json(&["merge"], 3);
        assert_eq!(json["unfinished"], "interrupted");
        assert_eq!(repo.rig.work().join("quick").exists(), labels.contains(&"quick"));
        if let Some(session) = json["results"][0]["session"].as_str() {
            // An ended result is complete, whatever happened to the others.
            assert_eq!(repo.json(&["diff", session], 0)["unfinished"], json!(null));
        }
        assert_eq!(repo.json(&["discard", &run, "--yes"], 3)["unfinished"], "interrupted");
    }
}

#[test]
fn workspace_flags_are_refused_for_agents_without_workspaces() {
    let repo = repository();
    for flags in [
        ["--merge", "apply"],
        ["--merge", "report"],
        ["--workspace", "worktree"],
        ["--grant", "/usr"],
        ["--include-ignored", "target"],
        ["--sandbox", "off"],
        ["--sandbox", "on"],
    ] {
        for command in [&["delegate", "-t", "quick=Do it"][..], &["run", "Do it"]] {
            let call = repo.rig.call(command).args(flags).args(["--yes", "--model"]);
            let out = with_path(call.arg(repo.rig.model())).run();
            assert_eq!(out.code, 2, "{flags:?} {out}");
            let words = format!("{}: no agent has a workspace of its own here", flags[0]);
            assert!(out.stderr.contains(&words), "{out}");
            assert!(out.stderr.contains("Add --write"), "{out}");
        }
        let preset = ["--preset", "story", "--enable-delegation"];
        let out = with_path(repo.rig.delegating(&["-t", "quick=Do it"]).args(preset).args(flags));
        let out = out.run();
        assert!(!out.stderr.contains("--write"), "agents of this preset write anyway: {out}");
        assert!(out.stderr.contains("kept 1 file"), "{out}");
    }
}

#[test]
fn an_ignored_folder_that_cannot_be_included_is_reported() {
    let repo = repository();
    repo.rig.write(".gitignore", "target\n");
    repo.rig.write("target/made", "made\n");
    repo.rig.write("src/file", "file\n");
    fs::create_dir(repo.rig.path().join("out")).unwrap();
    let here = repo.rig.work().canonicalize().unwrap().join("target");
    for (typed, said) in [
        ("nosuch", Some("nosuch does not exist and is not included")),
        ("src", Some("src is not ignored, so it is included anyway")),
        ("../out", Some("../out is outside the repository ")),
        ("/usr/lib", Some("/usr/lib is outside the repository ")),
        ("target", None),
        ("./target/", None),
        (here.to_str().unwrap(), None),
    ] {
        let flags = ["--write", "--include-ignored", typed, "-t", "quick=Do it"];
        let out = with_path(repo.rig.delegating(&flags)).run();
        assert_eq!(out.code, 0, "{typed}: {out}");
        assert_eq!(out.stderr.contains("--include-ignored"), said.is_some(), "{typed}: {out}");
        assert!(out.stderr.contains(said.unwrap_or_default()), "{typed}: {out}");
    }
}

fn delegate(repo: &Repo, cwd: &Path) -> Output {
    with_path(repo.rig.delegating(&["--write", "-t", "quick=Do it"])).cwd(cwd).run()
}

#[test]
fn a_folder_unsuitable_for_writing_agents_is_refused_with_advice() {
    let repo = repository();
    let top = repo.rig.path().canonicalize().unwrap();
    // The script is named from beside the work tree.
    let folder = |name: &str| {
        fs::create_dir_all(top.join(name)).unwrap();
        top.join(name)
    };
    let (plain, bare, odd) = (folder("plain"), folder("bare"), folder("odd"));
    fs::copy(top.join("script.toml"), repo.rig.work().join("script.toml")).unwrap();
    repo.git(["init", "-q", "--bare", bare.to_str().unwrap()]);
    fs::create_dir(odd.join(".git")).unwrap();
    for (cwd, why) in [
        (&plain, format!("{} is not in a git repository; run `git init` there", plain.display())),
        (&bare, format!("{} is a bare repository without a work tree", bare.display())),
        (&odd, format!("{} is not a git directory; run `git init`", odd.join(".git").display())),
    ] {
        let out = delegate(&repo, cwd);
        assert_eq!(out.code, 2, "{out}");
        assert!(out.stderr.contains(&why), "{why}\n{out}");
        for args in [["diff"], ["merge"]] {
            let out = repo.rig.call(args).cwd(cwd).run();
            assert_eq!(out.code, 2, "{out}");
            assert!(out.stderr.contains(&why), "{why}\n{out}");
        }
    }
    let top = repo.rig.call(["merge"]).cwd(Path::new("/")).run();
    assert!(top.stderr.contains("change to the directory of your project"), "{top}");
    assert!(!top.stderr.contains("git init"), "{top}");
    assert_eq!(repo.rig.runs(), Vec::<String>::new(), "nothing began");
}

#[test]
fn a_read_only_repository_is_refused_before_anything_starts() {
    let repo = repository();
    let closed = repo.rig.work().join(".git/refs");
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o555)).unwrap();
    // Root can write anywhere unless it drops that capability.
    let mut command = if rustix::process::geteuid().is_root() {
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set", "-dac_override", BINARY]);
        command
    } else {
        Command::new(BINARY)
    };
    command.args([
        "delegate",
        "--yes",
        "--write",
        "-t",
        "quick=Do it",
        "--model",
        repo.rig.model(),
    ]);
    command.env_clear().envs(repo.rig.environment()).env("PATH", std::env::var_os("PATH").unwrap());
    let out = command.current_dir(repo.rig.work()).output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(2), "{said}");
    assert!(said.contains(".git/refs is not writable for you"), "{said}");
    assert!(said.contains("work in your own clone"), "{said}");
    assert_eq!(repo.rig.runs(), Vec::<String>::new());
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn work_is_found_in_a_repository_that_was_moved() {
    let repo = repository();
    assert_eq!(delegate(&repo, &repo.rig.work()).code, 0);
    let run = repo.rig.only_run();
    let moved = repo.rig.path().join("moved");
    fs::rename(repo.rig.work(), &moved).unwrap();
    // The work tree of the rig was moved, so the commands run in another directory.
    fs::create_dir(repo.rig.path().join("elsewhere")).unwrap();
    let call = |args: &[&str], cwd: &Path| repo.rig.call(args).cwd(cwd).run();
    for args in [&["diff", &run][..], &["merge", &run], &["discard", &run, "--yes"]] {
        let out = call(args, &repo.rig.path().join("elsewhere"));
        assert_eq!(out.code, 1, "{out}");
        assert!(out.stderr.contains("which is not there any more"), "{out}");
        assert!(
            out.stderr.contains("If the repository was moved, change to its directory"),
            "{out}"
        );
    }
    let out = call(&["resume", &run], &moved);
    assert_eq!(out.code, 0, "{out}");
    assert!(out.stderr.contains(&format!("`adjutant diff {run}` shows what it kept")), "{out}");
    for args in [&["diff", &run, "--stat"][..], &["diff", "--stat"], &["merge", "--dry-run"]] {
        let out = call(args, &moved);
        assert_eq!(out.code, 0, "{args:?} {out}");
        assert!(out.stdout.contains("quick"), "{args:?} {out}");
        assert!(out.stderr.contains("; its work is in "), "{args:?} {out}");
    }
    assert_eq!(call(&["merge", &run], &moved).code, 0);
    assert_eq!(fs::read_to_string(moved.join("quick")).unwrap(), "quick\n");
    assert_eq!(call(&["merge", "--undo", &run], &moved).code, 0);
    assert!(!moved.join("quick").exists());
}

#[test]
fn reads_after_a_command_in_the_same_answer_see_its_files() {
    let script = r#"
[[turn]]
label = "quick"
[[turn.call]]
tool = "Run"
args = { command = "sleep 0.3; echo made > made" }
[[turn.call]]
tool = "Read"
args = { path = "made" }
[[turn.call]]
tool = "Glob"
args = { pattern = "ma*" }

[[turn]]
label = "quick"
text = "done"
"#;
    let repo = repository();
    fs::write(repo.rig.path().join("script.toml"), script).unwrap();
    assert_eq!(delegate(&repo, &repo.rig.work()).code, 0);
    let events = repo.rig.events(&repo.rig.only_run());
    let returned: Vec<&str> = events
        .iter()
        .filter(|it| it["type"] == "tool_returned")
        .map(|it| it["content"].as_str().unwrap())
        .collect();
    assert_eq!(returned.len(), 3, "{returned:?}");
    assert!(returned[0].starts_with("exit 0"), "{returned:?}");
    assert!(returned[1..].iter().all(|it| it.contains("made")), "{returned:?}");
}

#[test]
fn the_parent_agent_gets_a_list_of_files_that_several_subagents_changed() {
    let write = |label: &str| {
        format!(
            "[[turn]]\nlabel = \"{label}\"\n[[turn.call]]\ntool = \"Write\"\n\
             args = {{ file_path = \"same\", content = \"by {label}\\n\" }}\n\
             [[turn]]\nlabel = \"{label}\"\ntext = \"done\"\n"
        )
    };
    let lead = "[[turn]]\nagent = \"lead\"\n[[turn.call]]\ntool = \"Delegate\"\n\
                args = { tasks = [{ label = \"one\", prompt = \"a\" }, { label = \"two\", prompt = \"b\" }] }\n\
                [[turn]]\nagent = \"lead\"\ntext = \"all done\"\n";
    let repo = repository();
    let script = lead.to_owned() + &write("one") + &write("two");
    fs::write(repo.rig.path().join("script.toml"), script).unwrap();
    let call = repo.rig.call(["run", "Do it", "--yes", "--write", "--model", repo.rig.model()]);
    let out = with_path(call).run();
    assert_eq!(out.code, 0, "{out}");
    let events = repo.rig.events(&repo.rig.only_run());
    let told = events.iter().filter_map(|it| it["content"].as_str());
    let told: Vec<&str> =
        told.filter(|it| it.contains("**Changed by several subagents**")).collect();
    assert_eq!(told.len(), 1, "{events:?}");
    assert!(told[0].contains("- `same` by [one] and [two]"), "{}", told[0]);
}
