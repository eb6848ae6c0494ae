//! `--verify`: a command decides whether the work of an agent is done, and no change to the check goes unseen.

use std::fs;

use serde_json::{Value, json};

use crate::support::repository::Repo;
use crate::support::rig::{Output, Rig};
use crate::support::schema::assert_fits;
use crate::support::terminal::Terminal;

/// A check that runs every test; the work is done when `src.txt` says "fixed".
const CHECK: &str = "if grep -q skip conftest.py; then exit 0; fi\n\
    for test in tests/test_*.sh; do [ -e \"$test\" ] || continue; sh \"$test\" || exit 1; done\n";

/// Agents that want to pass without fixing anything, and the file of the check that each one changes.
const CHEATS: [(&str, &str, &str, &str); 5] = [
    ("delete", "rm tests/test_src.sh", "tests/test_src.sh", "test"),
    ("skip", "echo exit 0 > tests/test_src.sh", "tests/test_src.sh", "test"),
    ("weaken", "echo grep -q . src.txt > tests/test_src.sh", "tests/test_src.sh", "test"),
    ("configure", "echo skip >> conftest.py", "conftest.py", "configuration"),
    ("script", "echo exit 0 > check.sh", "check.sh", "script"),
];

/// A turn in which `label` runs a command, and one in which it says that it is done.
fn runs(label: &str, command: &str) -> String {
    format!(
        "[[turn]]\nlabel = \"{label}\"\n[[turn.call]]\ntool = \"Run\"\nargs = {{ command = {} }}\n\
         [[turn]]\nlabel = \"{label}\"\ntext = \"Fixed.\"\n",
        json!(command)
    )
}

fn repository(script: &str) -> Repo {
    let repo = Repo { rig: Rig::with_script(script) };
    repo.git(["init", "-q", "-b", "main", "."]);
    repo.rig.write("src.txt", "broken\n");
    repo.rig.write("conftest.py", "# strict\n");
    repo.rig.write("check.sh", CHECK);
    repo.rig.write("tests/test_src.sh", "grep -q fixed src.txt\n");
    repo.commit("first");
    repo
}

/// Delegates one task to `label`, whose work must pass `verify` at the first attempt.
fn delegate(repo: &Repo, label: &str, verify: &str, flags: &[&str]) -> Output {
    let task = format!("{label}=Fix it");
    let path = std::env::var_os("PATH").unwrap();
    let once = ["--write", "--set", "verify_attempts=1", "-t", &task, "--verify", verify];
    repo.rig.delegating(&once).args(flags).env("PATH", path).run()
}

fn result_of(out: &Output) -> Value {
    let json = out.json();
    assert_fits("result", &json);
    json["results"][0].clone()
}

#[test]
fn an_agent_that_changes_the_check_is_named_and_with_kept_files_does_not_pass() {
    let script: String = CHEATS.map(|(label, command, ..)| runs(label, command)).concat();
    let keep = ["--verify-keep", "tests/**", "--verify-keep", "conftest.py"];
    let keep = [keep.as_slice(), &["--verify-keep", "check.sh", "--return", "json"]].concat();
    for (label, _, path, kind) in CHEATS {
        let repo = repository(&script);
        let unkept = delegate(&repo, label, "sh check.sh", &["--return", "json"]);
        assert_eq!(unkept.code, 0, "{label}: {unkept}");
        let result = result_of(&unkept);
        assert_eq!(result["verification"], "passed", "{label}");
        let file = json!([{ "path": path, "kind": kind, "from_base": false }]);
        assert_eq!(result["receipt"]["check_files"], file, "{label}");

        let repo = repository(&script);
        let kept = delegate(&repo, label, "sh check.sh", &keep);
        assert_eq!(kept.code, 3, "{label}: {kept}");
        let result = result_of(&kept);
        assert_eq!(result["verification"], "failed", "{label}");
        assert_eq!(result["outcome"], "partial", "{label}");
        assert_eq!(result["reason"]["code"], "BUILD_ERROR", "{label}");
        let file = json!([{ "path": path, "kind": kind, "from_base": true }]);
        assert_eq!(result["receipt"]["check_files"], file, "{label}");
        repo.rig.assert_unharmed();
    }
}

/// A runner that was planted outside the commit of the work decides nothing: the command runs with the user's ignored
/// files and cache and with a home directory and `/tmp` of its own.
#[test]
fn a_runner_planted_outside_the_work_is_not_used() {
    let plants = [
        ("home", "echo exit 0 > \"$HOME/runner\""),
        ("tmp", "echo exit 0 > /tmp/runner"),
        ("cache", "echo exit 0 > \"$HOME/.m2/repository/runner\""),
        ("venv", "echo exit 0 > .venv/bin/runner"),
    ];
    let verify = "for at in \"$HOME\" /tmp \"$HOME/.m2/repository\" .venv/bin; do \
                  if [ -e \"$at/runner\" ]; then sh \"$at/runner\"; exit; fi; done; exit 9";
    for kind in ["overlay", "worktree"] {
        for (label, command) in plants {
            // The second command shows that the runner is where the agent put it.
            let script = runs(label, command).replace("text = \"Fixed.\"\n", &format!(
                "[[turn.call]]\ntool = \"Run\"\nargs = {{ command = {} }}\n[[turn]]\nlabel = \"{label}\"\ntext = \"Fixed.\"\n",
                json!(verify)
            ));
            let repo = repository(&script);
            fs::create_dir_all(repo.rig.home().join(".m2/repository")).unwrap();
            repo.rig.write(".gitignore", ".venv/\n");
            repo.commit("ignore");
            repo.rig.write(".venv/bin/runner", "grep -q fixed src.txt\n");
            let flags = ["--include-ignored", ".venv", "--workspace", kind, "--return", "json"];
            let out = delegate(&repo, label, verify, &flags);
            assert_eq!(out.code, 3, "{kind} {label}: {out}");
            let result = result_of(&out);
            assert_eq!(result["verification"], "failed", "{kind} {label}");
            assert_eq!(
                result["receipt"]["last_command"]["exit_status"], 0,
                "{kind} {label}: {result:#}"
            );
            // Neither the cache nor the ignored files of the user were changed.
            assert!(!repo.rig.home().join(".m2/repository/runner").exists(), "{kind} {label}");
            assert_eq!(repo.read(".venv/bin/runner"), "grep -q fixed src.txt\n", "{kind} {label}");
        }
    }
}

#[test]
fn kept_files_that_the_base_reaches_through_links_are_kept_too() {
    // `suite` leads to a directory and `gate` through another link to a script.
    for (label, command, keep, path) in [
        ("directory", "echo exit 0 > tests/test_src.sh", "suite/**", "tests/test_src.sh"),
        ("file", "echo exit 0 > check.sh", "gate", "check.sh"),
    ] {
        for kind in ["overlay", "worktree"] {
            let repo = repository(&runs(label, command));
            let link = |target: &str, name: &str| {
                std::os::unix::fs::symlink(target, repo.rig.work().join(name)).unwrap();
            };
            link("tests", "suite");
            fs::create_dir(repo.rig.work().join("bin")).unwrap();
            link("../check.sh", "bin/gate");
            link("bin/gate", "gate");
            repo.commit("links");
            let verify = if label == "file" { "sh gate" } else { "sh suite/test_src.sh" };
            let flags = ["--verify-keep", keep, "--workspace", kind, "--return", "json"];
            let out = delegate(&repo, label, verify, &flags);
            assert_eq!(out.code, 3, "{kind} {label}: {out}");
            let result = result_of(&out);
            assert_eq!(result["verification"], "failed", "{kind} {label}");
            let files = &result["receipt"]["check_files"];
            assert_eq!(
                (&files[0]["path"], &files[0]["from_base"]),
                (&json!(path), &json!(true)),
                "{files}"
            );
        }
    }
}

#[test]
fn work_that_passes_is_verified_and_work_without_a_command_is_not() {
    let script = runs("fix", "echo fixed > src.txt").repeat(2);
    for kind in ["overlay", "worktree"] {
        let repo = repository(&script);
        let flags = ["--verify-keep", "tests/", "--workspace", kind];
        let out = delegate(&repo, "fix", "sh check.sh", &flags);
        assert_eq!(out.code, 0, "{kind}: {out}");
        assert!(out.stdout.contains("### [fix] ✓ completed, verified\n"), "{kind}: {out}");
        let receipt = "**Receipt**: 1 tool call · last command: echo fixed > src.txt (exit 0) · 1 file changed\n";
        assert!(out.stdout.contains(receipt), "{kind}: {out}");
        assert!(!out.stdout.contains("Changed files of the check"), "{kind}: {out}");
        assert_eq!(repo.rig.run(["merge"]).code, 0);
        assert_eq!(repo.read("src.txt"), "fixed\n");
    }
    let repo = repository(&script);
    let path = std::env::var_os("PATH").unwrap();
    let out = repo.rig.delegating(&["--write", "-t", "fix=Fix it"]).env("PATH", path).run();
    assert_eq!(out.code, 0, "{out}");
    assert!(out.stdout.contains("### [fix] ✓ completed, unverified\n"), "{out}");
    let json = repo.rig.run(["result", "--json"]).json();
    assert_eq!(json["results"][0]["verification"], "none");
}

#[test]
fn an_agent_gets_the_output_of_a_failed_command_and_continues() {
    let script = runs("fix", "true") + &runs("fix", "echo fixed > src.txt");
    let repo = repository(&script);
    let flags = ["--set", "verify_attempts=2", "--return", "json"];
    let out = delegate(&repo, "fix", "echo the check says no; sh check.sh", &flags);
    assert_eq!(out.code, 0, "{out}");
    assert_eq!(result_of(&out)["verification"], "passed");
    let said = repo.rig.run(["transcript"]).stdout;
    assert!(said.contains("must succeed in a fresh"), "{said}");
    assert!(said.contains("the check says no"), "{said}");
}

#[test]
fn a_receipt_shows_what_the_agent_does_not_say() {
    let turn = "[[turn]]\nlabel = \"fix\"\n[[turn.call]]\ntool = \"Read\"\nargs = { file_path = \"none\" }\n";
    let repo = repository(&(turn.to_owned() + &runs("fix", "exit 3")));
    let path = std::env::var_os("PATH").unwrap();
    let out = repo.rig.delegating(&["--write", "-t", "fix=Fix it"]).env("PATH", path).run();
    assert_eq!(out.code, 0, "{out}");
    let line =
        "**Receipt**: 2 tool calls, 2 failed · last command: exit 3 (exit 3) · no files changed\n";
    assert!(out.stdout.contains(line), "{out}");
    let json = repo.rig.run(["result", "--json"]).json();
    assert_fits("result", &json);
    let expected = json!({
        "tool_calls": 2, "failed_tool_calls": 2, "refused_tool_calls": 0, "changed_files": 0,
        "last_command": { "command": "exit 3", "exit_status": 3, "ended": "exit 3", "failed": true },
    });
    assert_eq!(json["results"][0]["receipt"], expected);
}

#[test]
fn a_command_that_hangs_floods_changes_files_or_does_not_exist_has_a_clear_outcome() {
    let script = runs("fix", "echo fixed > src.txt");
    for (verify, flags, words) in [
        (
            "sleep 600",
            &["--set", "verify_s=1"][..],
            "`sleep 600` failed once; the last time: timed out after 1 s (policy key `verify_s`).",
        ),
        (
            "no-such-program --now",
            &[],
            "`no-such-program --now` failed once; the last time: exit 127, a program of the command does not exist.",
        ),
        ("yes no | head -c 60000000; exit 7", &[], "failed once; the last time: exit 7."),
    ] {
        let repo = repository(&script);
        let out = delegate(&repo, "fix", verify, &[flags, &["--return", "json"]].concat());
        assert_eq!(out.code, 3, "{verify}: {out}");
        let result = result_of(&out);
        assert_eq!(result["verification"], "failed", "{verify}");
        let message = result["reason"]["message"].as_str().unwrap();
        assert!(message.ends_with(words), "{message}");
        // The work is kept all the same, and the output is cut.
        assert_eq!(result["kept"]["files"][0]["path"], "src.txt", "{verify}");
        let journal = repo.rig.run_folder(&repo.rig.only_run()).join("journal.jsonl");
        assert!(fs::metadata(journal).unwrap().len() < 1_000_000, "{verify}");
    }
    let repo = repository(&script);
    let verify = "rm -r tests; echo junk > new; echo junk > src.txt; rm check.sh; true";
    let out = delegate(&repo, "fix", verify, &["--return", "json"]);
    assert_eq!(out.code, 0, "{out}");
    let result = result_of(&out);
    assert_eq!(result["verification"], "passed");
    assert_eq!(result["receipt"]["changed_files"], 1);
    assert_eq!(repo.rig.run(["merge"]).code, 0);
    assert_eq!(repo.read("src.txt"), "fixed\n");
}

#[test]
fn verify_needs_workspaces_a_command_and_sound_globs() {
    let repo = repository(&runs("fix", "true"));
    for (flags, words) in [
        (&["--verify", "true"][..], "--verify: no agent has a workspace of its own here"),
        (
            &["--verify", "true", "--preset", "command", "--in-place"],
            "--verify: no agent has a workspace",
        ),
        (&["--verify-keep", "a", "--write"], "--verify-keep has no effect without --verify"),
        (&["--verify", " ", "--write"], "--verify: the command is empty"),
        (&["--verify", "true", "--verify-keep", "a[", "--write"], "--verify-keep `a[`: "),
        (
            &["--verify", "true", "--verify-keep", "../a", "--write"],
            "it leads out of the repository",
        ),
    ] {
        let out = repo.rig.delegating(&["-t", "fix=Fix it"]).args(flags).run();
        assert_eq!(out.code, 2, "{flags:?}: {out}");
        assert!(out.stderr.contains(words), "{flags:?}: {out}");
    }
    assert_eq!(repo.rig.runs(), Vec::<String>::new());
}

#[test]
fn the_question_shows_the_whole_command() {
    let repo = repository(&runs("fix", "true"));
    let long = format!("true {}", "x".repeat(400));
    let flags = [
        "--write",
        "--dry-run",
        "-t",
        "fix=Fix it",
        "--verify",
        &long,
        "--verify-keep",
        "tests/**",
    ];
    let out = repo.rig.delegating(&flags).run();
    assert_eq!(out.code, 0, "{out}");
    let words = format!("passes only if `{long}` succeeds, with tests/** from the base");
    // Wrapped, and never cut.
    let without_spaces = |text: &str| text.split_whitespace().collect::<String>();
    assert!(without_spaces(&out.stdout).contains(&without_spaces(&words)), "{out}");
    let json = repo.rig.delegating(&flags).arg("--json").run().json();
    assert_fits("question", &json);
    assert_eq!(json["tasks"][0]["verify"], long.as_str());
    assert_eq!(json["tasks"][0]["verify_keep"], json!(["tests/**"]));
}

#[test]
fn claims_that_differ_from_what_was_seen_are_sent_back_and_shown() {
    let returns = |claims: &str| {
        format!(
            "[[turn]]\nlabel = \"fix\"\n[[turn.call]]\ntool = \"Return\"\n\
             args = {{ status = \"completed\", summary = \"It is fixed. All tests pass.\", artifacts = []{claims} }}\n"
        )
    };
    let wrong = ", files_changed = [\"src.txt\", \"other.txt\"], verification = \"passed\"";
    let edit = "[[turn]]\nlabel = \"fix\"\n[[turn.call]]\ntool = \"Run\"\nargs = { command = \"echo fixed > src.txt\" }\n";
    let repo = repository(
        &(edit.to_owned() + &returns(wrong) + &returns(", files_changed = [\"src.txt\"]")),
    );
    let path = std::env::var_os("PATH").unwrap();
    let flags = ["--write", "--set", "contract=standard", "-t", "fix=Fix it", "--return", "json"];
    let out = repo.rig.delegating(&flags).env("PATH", path).run();
    assert_eq!(out.code, 0, "{out}");
    let result = result_of(&out);
    assert_eq!(result["verification"], "none");
    let warnings: Vec<&str> =
        result["warnings"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(
        warnings[0].contains("files_changed[1]: This file was not changed: other.txt"),
        "{warnings:?}"
    );
    assert!(warnings[1].contains("verification: No verify command is set"), "{warnings:?}");
}

const FIXER: &str = "---\nname: fixer\ndescription: Fixes things.\nadjutant:\n  verify: sh check.sh\n  \
    verify_keep: [\"tests/**\", check.sh]\n---\nYou fix things.\n";

fn as_fixer(repo: &Repo) -> Output {
    let path = std::env::var_os("PATH").unwrap();
    let flags = ["--write", "--agent", "fixer", "-t", "skip=Fix it", "--set", "verify_attempts=1"];
    repo.rig.delegating(&flags).args(["--return", "json"]).env("PATH", path).run()
}

#[test]
fn the_verify_command_of_your_own_agent_file_decides() {
    let repo = repository(&runs("skip", "echo exit 0 > tests/test_src.sh"));
    let folder = repo.rig.home().join(".config/adjutant/agents");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("fixer.md"), FIXER).unwrap();
    let out = as_fixer(&repo);
    assert_eq!(out.code, 3, "{out}");
    assert_eq!(result_of(&out)["verification"], "failed");
}

#[test]
fn the_verify_command_of_a_projects_agent_file_needs_consent_once() {
    let repo = repository(&runs("skip", "echo exit 0 > tests/test_src.sh"));
    repo.rig.write(".adjutant/agents/fixer.md", FIXER);
    let out = as_fixer(&repo);
    assert_eq!(out.code, 0, "{out}");
    assert_eq!(result_of(&out)["verification"], "none");
    let words = "fixer (.adjutant/agents/fixer.md): run `sh check.sh`, with tests/**, check.sh from the base";
    assert!(out.stderr.contains(words), "{out}");
    assert!(out.stderr.contains("They are ignored without your consent"), "{out}");

    let path = std::env::var("PATH").unwrap();
    let args = ["delegate", "--yes", "--model", repo.rig.model(), "--write", "--agent", "fixer"];
    let args = [args.as_slice(), &["-t", "skip=Fix it", "--set", "verify_attempts=1"]].concat();
    let mut terminal = Terminal::start(&repo.rig, 160, &[("PATH", &path)], &args);
    terminal.wait_for("Allow them, from now on?").types("y\n");
    assert_eq!(terminal.finish(), 3, "{}", terminal.raw);

    let out = as_fixer(&repo);
    assert_eq!(result_of(&out)["verification"], "failed", "{out}");
    repo.rig.write(".adjutant/agents/fixer.md", FIXER.replace("sh check.sh", "true"));
    let out = as_fixer(&repo);
    assert_eq!(
        result_of(&out)["verification"],
        "none",
        "another command needs another consent: {out}"
    );
}
