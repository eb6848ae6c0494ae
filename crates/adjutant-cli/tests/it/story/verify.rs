//! A story passes only if its verify command succeeds in the sandbox, whatever the model claims. Who may set that
//! command.

use std::fs;

use serde_json::{Value, json};

use crate::support::project::{Project, done, one_story, runs, says, writes};
use crate::support::terminal::Terminal;

fn with_verify(verify: &str) -> Value {
    json!({ "userStories": [
        { "id": "US-001", "title": "Log in", "verify": verify, "passes": false },
    ] })
}

/// An agent that claims success as often as it is asked.
fn claims() -> [Value; 1] {
    let mut turn = done("US-001");
    turn["times"] = json!("forever");
    [turn]
}

#[test]
fn a_claim_does_not_pass_while_the_command_fails() {
    let project = Project::new(&with_verify("echo it is missing >&2; test -f jwt"), claims());
    let json = project.json(&["--trust-prd"], 3);
    let run = project.rig().only_run();
    let checks = project.events(&run, "checked");
    assert_eq!(checks.len(), 3, "{checks:#?}");
    assert!(checks.iter().all(|check| check["passed"] == false), "{checks:#?}");
    for told in project.told(&run, "US-001") {
        assert!(told.contains("it is missing") && told.contains("test -f jwt"), "{told}");
    }
    let ended = &project.events(&run, "ended")[0];
    assert_eq!(
        (&ended["outcome"], &ended["reason"]["code"]),
        (&json!("partial"), &json!("BUILD_ERROR"))
    );
    let entry = project.entry("US-001");
    assert_eq!(entry["passes"], false);
    assert_eq!(entry["adjutant"]["status"], "partial");
    let summary = entry["adjutant"]["summary"].as_str().unwrap();
    let (why, said) = summary.split_once("Its agent said: ").unwrap();
    assert!(!why.contains("is done") && said.contains("is done"), "{summary}");
    let story = &json["stories"][0];
    assert_eq!((&story["passes"], &story["verified"]), (&json!(false), &json!(false)));
    assert_eq!(story["resume"], format!("adjutant resume {run}"), "{json:#}");
}

#[test]
fn a_story_fixed_after_the_first_failure_passes() {
    let turns = [done("US-001"), writes("US-001", "jwt", "a token\n"), done("US-001")];
    let project = Project::new(&with_verify("test -f jwt"), turns);
    let out = project.story(&["--trust-prd"]);
    assert_eq!(out.code, 0, "{out}");
    let run = project.rig().only_run();
    let passed: Vec<Value> =
        project.events(&run, "checked").iter().map(|it| it["passed"].clone()).collect();
    assert_eq!(passed, [false, true]);
    assert_eq!(project.entry("US-001")["passes"], true);
    assert!(out.stdout.contains("passes, verified"), "{out}");
}

/// With `verifyKeep` the tests are those of the base, so a weakened test does not pass.
#[test]
fn a_story_that_weakens_its_tests_does_not_pass_with_verify_keep() {
    let weakens = || [runs("US-001", "echo exit 0 > check.sh"), claims()[0].clone()];
    for (keep, passes) in [(json!([]), true), (json!(["check.sh"]), false)] {
        let story = json!({
            "id": "US-001", "title": "Log in", "verify": "sh check.sh", "verifyKeep": keep,
            "passes": false,
        });
        let project = Project::new(&json!({ "userStories": [story] }), weakens());
        project.rig().write("check.sh", "exit 1\n");
        project.repo.commit("a check");
        let out = project.story(&["--trust-prd"]);
        assert_eq!(out.code, if passes { 0 } else { 3 }, "{keep}: {out}");
        assert_eq!(project.entry("US-001")["passes"], passes, "{keep}: {out}");
    }
}

#[test]
fn files_written_by_the_verify_command_are_not_part_of_the_work() {
    let verify = "echo formatted > jwt; echo x > snap; rm long; echo built > out.log; test -f seen";
    for kind in ["overlay", "worktree"] {
        let turns = [
            writes("US-001", "jwt", "a token\n"),
            done("US-001"),
            runs("US-001", "test ! -e snap && test -e long && test ! -e out.log && cat jwt > seen"),
            done("US-001"),
        ];
        let project = Project::new(&with_verify(verify), turns);
        project.rig().write(".gitignore", "*.log\n");
        let out = project.story(&["--trust-prd", "--workspace", kind]);
        assert_eq!(out.code, 0, "{out}");
        let run = project.rig().only_run();
        let files = project.files(&run, "US-001");
        assert!(files.contains(&"long".to_owned()), "{kind}: {files:?}");
        assert!(!files.contains(&"snap".to_owned()), "{kind}: {files:?}");
        assert_eq!(project.left(&run, "US-001", "jwt"), "a token", "{kind}");
        assert_eq!(project.left(&run, "US-001", "seen"), "a token", "{kind}");
    }
}

#[test]
fn the_branch_has_the_files_that_were_verified_whatever_the_command_changed() {
    for kind in ["overlay", "worktree"] {
        for verify in [
            "echo '*' > .gitignore; echo junk > junk.txt; true",
            "truncate -s 600M big.bin; true",
            "rm -f jwt; mkdir jwt; echo x > jwt/x.o; rm long; mkfifo long",
        ] {
            let turns = [writes("US-001", "jwt", "a token\n"), done("US-001")];
            let project = Project::new(&with_verify(verify), turns);
            project.rig().write(".gitignore", "*.o\n");
            let out = project.story(&["--trust-prd", "--workspace", kind]);
            assert_eq!(out.code, 0, "{kind}, {verify}: {out}");
            assert_eq!(project.entry("US-001")["passes"], true, "{kind}, {verify}: {out}");
            let run = project.rig().only_run();
            assert_eq!(project.left(&run, "US-001", "jwt"), "a token", "{kind}, {verify}");
            let files = project.files(&run, "US-001");
            let others = ["junk.txt", "big.bin", "jwt/x.o"];
            assert!(!files.iter().any(|it| others.contains(&it.as_str())), "{verify}: {files:?}");
            assert!(files.contains(&"long".to_owned()), "{kind}, {verify}: {files:?}");
        }
    }
}

#[test]
fn an_agent_continues_with_its_own_work_after_a_destructive_verify_command() {
    let verify = "rm -f jwt; mkdir jwt; echo x > jwt/x.o; echo '*' > .gitignore; echo x > junk; \
                  test -e done";
    for kind in ["overlay", "worktree"] {
        let turns = [
            writes("US-001", "jwt", "a token\n"),
            done("US-001"),
            runs("US-001", "test ! -e junk && grep -q token jwt && touch done"),
            done("US-001"),
        ];
        let project = Project::new(&with_verify(verify), turns);
        project.rig().write(".gitignore", "*.o\n");
        let out = project.story(&["--trust-prd", "--workspace", kind]);
        assert_eq!(out.code, 0, "{kind}: {out}");
        let run = project.rig().only_run();
        assert_eq!(project.left(&run, "US-001", "jwt"), "a token", "{kind}");
        assert!(!project.files(&run, "US-001").contains(&"junk".to_owned()), "{kind}");
    }
}

#[test]
fn an_agent_that_stopped_before_the_verify_command_can_be_resumed() {
    let mut turns = vec![done("US-001"), done("US-001"), done("US-001")];
    turns.extend([writes("US-001", "jwt", "a token\n"), done("US-001")]);
    let project = Project::new(&with_verify("test -f jwt"), turns);
    assert_eq!(project.story(&["--trust-prd"]).code, 3);
    let run = project.rig().only_run();
    let out = project.call(["resume", &run, "--yes", "--say", "Write the file jwt."]).run();
    assert_eq!(out.code, 0, "{out}");
    assert_eq!(project.entry("US-001")["passes"], true, "{out}");
    assert_eq!(project.entry("US-001")["adjutant"]["status"], "completed");
}

#[test]
fn a_planned_child_has_a_command_of_its_own() {
    let prd = json!({ "userStories": [{
        "id": "US-001", "title": "Log in", "passes": false,
        "delegationStrategy": { "subtasks": [
            { "description": "Implement JWT", "estimatedHours": 2, "verify": "grep -q token jwt" },
        ] },
    }] });
    let turns = [
        done("US-001"),
        writes("Implement JWT", "jwt", "nothing\n"),
        done("Implement JWT"),
        writes("Implement JWT", "jwt", "a token\n"),
        done("Implement JWT"),
    ];
    let project = Project::new(&prd, turns);
    let out = project.story(&["--trust-prd"]);
    assert_eq!(out.code, 0, "{out}");
    let run = project.rig().only_run();
    assert_eq!(project.events(&run, "checked").len(), 2, "{out}");
    assert_eq!(project.left(&run, "US-001", "jwt"), "a token");
    assert_eq!(project.entry("US-001-DEL-001")["estimatedHours"], 2);
}

#[test]
fn a_story_whose_planned_task_has_an_unapproved_verify_command_is_skipped() {
    let prd = json!({ "userStories": [{
        "id": "US-001", "title": "Log in", "passes": false,
        "delegationStrategy": [{ "description": "Implement JWT", "verify": "false" }],
    }] });
    // A command for the story itself decides nothing about the task.
    for flags in [&[][..], &["--verify", "true"]] {
        let turns = [writes("Implement JWT", "jwt", "x\n"), done("Implement JWT"), done("US-001")];
        let project = Project::new(&prd, turns);
        let json = project.json(flags, 3);
        let why = json["not_begun"][0]["why"].as_str().unwrap();
        assert!(why.contains("of a task it plans needs your consent"), "{json:#}");
        assert!(project.rig().runs().is_empty(), "nothing was paid for");
        assert_eq!(project.prd(), prd);
        // Without delegation no planned task needs a verify command.
        let out = project.working(flags).run();
        assert_eq!(out.code, 0, "{out}");
        assert_eq!(project.entry("US-001-DEL-001"), Value::Null);
    }
}

#[test]
fn the_command_runs_in_the_sandbox() {
    let project = Project::new(&one_story(), claims());
    let outside = project.rig().home().join("outside");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    // What it writes elsewhere stays in the sandbox, whether the write is refused or not.
    let verify = format!(
        "touch {out}; touch {tree}/touched; \
         (exec 3<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null && exit 1; \
         bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port}' 2>/dev/null && exit 1; exit 0",
        out = outside.display(),
        tree = project.rig().work().display(),
    );
    let out = project.story(&["--verify", &verify]);
    let run = project.rig().only_run();
    let text = project.events(&run, "checked")[0]["text"].as_str().unwrap().to_owned();
    assert_eq!(out.code, 0, "{text}");
    assert!(text.contains("[sandbox: full]"), "{text}");
    assert!(!outside.exists() && !project.rig().work().join("touched").exists());
}

#[test]
fn remains_of_the_verify_command_do_not_reach_the_users_files() {
    let project =
        Project::new(&one_story(), [writes("US-001", "jwt", "a token\n"), done("US-001")]);
    let before = project.own();
    let out = project.story(&["--verify", "echo log > built; test -f jwt"]);
    assert_eq!(out.code, 0, "{out}");
    assert_eq!(project.own(), before);
}

/// A project whose PRD makes every kind of request, and a model chosen by the user's configuration.
fn with_wishes(verify: &str, merge: &Value) -> Project {
    let prd = json!({
        "merge": merge,
        "userStories": [{
            "id": "US-001", "title": "Log in", "passes": false,
            "verify": verify, "suggestedModel": "nobody/other",
        }],
    });
    let project = Project::new(&prd, [writes("US-001", "jwt", "a token\n"), done("US-001")]);
    configure(&project, "model = \"script:../script.json\"\n");
    project
}

fn configure(project: &Project, config: &str) {
    let folder = project.rig().home().join(".config/adjutant");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("config.toml"), config).unwrap();
}

#[test]
fn the_requests_of_a_prd_are_ignored_without_consent() {
    let project = with_wishes("false", &json!("apply"));
    let before = project.own();
    // The verify command that the user typed replaces that of the PRD, so the story can start.
    let out = project.call(["story", "prd.json", "--yes", "--verify", "test -f jwt"]).run();
    assert_eq!(out.code, 0, "{out}");
    for words in ["nobody/other", "merge results: apply", "--trust-prd"] {
        assert!(out.stderr.contains(words), "{words}: {out}");
    }
    assert!(!out.stderr.contains("run `false`"), "nobody needs to allow what is not run: {out}");
    let run = project.rig().only_run();
    assert_eq!(project.events(&run, "checked").len(), 1);
    assert_eq!(project.left(&run, "US-001", "jwt"), "a token");
    assert_eq!(project.own(), before, "nothing was merged");
}

#[test]
fn a_story_with_an_unapproved_verify_command_is_skipped() {
    let prd = json!({ "userStories": [
        { "id": "US-001", "title": "Log in", "verify": "test -f jwt", "passes": false },
        { "id": "US-002", "title": "Log out", "passes": false },
        { "id": "US-003", "title": "Stay", "dependencies": ["US-001"], "passes": false },
    ] });
    let project = Project::new(&prd, [done("US-002")]);
    for (passed, total) in [(1, 1), (0, 0)] {
        let json = project.json(&[], 3);
        let why = "its verify command needs your consent: --trust-prd allows it, --verify COMMAND replaces it";
        let expected =
            json!([{ "id": "US-001", "why": why }, { "id": "US-003", "why": "waits for US-001" }]);
        assert_eq!(json["not_begun"], expected, "{json:#}");
        assert_eq!((&json["passed"], &json["total"]), (&json!(passed), &json!(total)), "{json:#}");
    }
    assert_eq!(project.rig().runs().len(), 1, "only US-002 was worked on");
    assert_eq!(project.entry("US-001"), prd["userStories"][0]);
    assert_eq!(project.repo.git(["branch", "--list", "adjutant/*"]), "");
    let out = project.story(&[]);
    assert!(
        out.stdout.contains("US-001: not begun, its verify command needs your consent"),
        "{out}"
    );
}

#[test]
fn the_requests_of_a_prd_apply_with_consent() {
    for merge in [json!("apply"), json!(true)] {
        let project = with_wishes("test -f jwt", &merge);
        let out = project.call(["story", "prd.json", "--yes", "--trust-prd"]).run();
        assert_eq!(out.code, 0, "{out}");
        assert_eq!(project.events(&project.rig().only_run(), "checked").len(), 1);
        assert_eq!(project.repo.read("jwt"), "a token\n", "{merge}: {out}");
        assert!(out.stderr.contains("the PRD suggests the model nobody/other"), "{out}");
    }
    // An unknown value is reported, not ignored.
    let project = with_wishes("true", &json!("sideways"));
    let before = project.own();
    let out = project.call(["story", "prd.json", "--yes", "--trust-prd"]).run();
    assert_eq!(out.code, 0, "{out}");
    assert!(out.stderr.contains("sideways` is not report, apply or branch"), "{out}");
    assert_eq!(project.own(), before);
}

#[test]
fn consent_is_remembered_for_exactly_these_requests() {
    let project = Project::new(&with_verify("test -f jwt"), claims());
    let checks = |project: &Project| {
        let runs = project.rig().runs();
        runs.iter().map(|run| project.events(run, "checked").len()).sum::<usize>()
    };
    assert_eq!(project.story(&["--trust-prd"]).code, 3);
    assert_eq!(checks(&project), 3);
    // The same requests are not asked about again.
    let out = project.story(&["--again"]);
    assert_eq!((out.code, checks(&project)), (3, 6), "{out}");
    assert!(!out.stderr.contains("--trust-prd"), "{out}");
    // A different command is a different request.
    let text = project.repo.read("prd.json").replace("test -f jwt", "test -f jwt -a -f ui");
    project.rig().write("prd.json", text);
    let out = project.story(&["--again"]);
    assert_eq!(checks(&project), 6, "{out}");
    assert!(out.stderr.contains("--trust-prd"), "{out}");
    assert_eq!(out.code, 3, "{out}");
}

#[test]
fn the_terminal_asks_for_consent_once() {
    let project = Project::new(&with_verify("test -f jwt"), claims());
    let path = std::env::var("PATH").unwrap();
    let args = ["story", "prd.json", "--model", "script:../script.json", "--yes", "--again"];
    let asked = "Allow it, from now on? [y/N]";
    let start = || Terminal::start(project.rig(), 120, &[("PATH", &path)], &args);
    let mut terminal = start();
    terminal.wait_for(asked).types("y\r");
    assert_eq!(terminal.finish(), 3, "{}", terminal.raw);
    let mut again = start();
    assert_eq!(again.finish(), 3, "{}", again.raw);
    assert!(!again.raw.contains(asked), "{}", again.raw);
    // After a no the question is asked again, and until a yes the agent's claim is not enough.
    let text = project.repo.read("prd.json").replace("test -f jwt", "test -f ui");
    project.rig().write("prd.json", text);
    let mut terminal = start();
    terminal.wait_for(asked).types("n\r");
    assert_eq!(terminal.finish(), 3, "{}", terminal.raw);
    assert_eq!(project.entry("US-001")["passes"], false);
}

#[test]
fn a_story_that_starts_again_names_its_earlier_run_with_a_different_request() {
    let project = Project::new(&one_story(), claims());
    assert_eq!(project.story(&["--verify", "false"]).code, 3);
    let run = project.rig().only_run();
    let out = project.story(&["--verify", "true"]);
    assert_eq!(out.code, 0, "{out}");
    let remark = format!("{run} did not finish and had a different request");
    assert!(out.stdout.contains(&remark) && out.stderr.contains(&remark), "{out}");
    let shown = project.rig().run(["diff", &run]);
    assert_eq!(shown.code, 0, "the advice can be typed: {shown}");
}

#[test]
fn a_typed_verify_command_needs_no_consent_and_a_project_file_cannot_set_one() {
    let project = Project::new(&one_story(), claims());
    let out = project.story(&["--verify", "false"]);
    assert_eq!(out.code, 3, "{out}");
    assert!(!out.stderr.contains("--trust-prd"), "{out}");

    let project = Project::new(&one_story(), claims());
    configure(&project, "verify = \"echo by the user; false\"\n");
    let out = project.story(&[]);
    assert_eq!(out.code, 3, "{out}");
    let run = project.rig().only_run();
    assert!(project.events(&run, "checked")[0]["text"].as_str().unwrap().contains("by the user"));
    // The flag outweighs the file.
    assert_eq!(project.story(&["--verify", "true", "--again"]).code, 0);

    let project = Project::new(&one_story(), claims());
    project.rig().write(".adjutant/config.toml", "verify = \"echo by the project; false\"\n");
    let out = project.story(&[]);
    assert!(out.stderr.contains("verify"), "it is said: {out}");
    let ran =
        project.rig().runs().iter().map(|run| project.events(run, "checked").len()).sum::<usize>();
    assert_eq!(ran, 0, "{out}");
}

#[test]
fn a_missing_verify_command_fails() {
    let project = Project::new(&one_story(), claims());
    let out = project.story(&["--verify", "no-such-program-at-all"]);
    assert_eq!(out.code, 3, "{out}");
    let run = project.rig().only_run();
    let text = project.events(&run, "checked")[0]["text"].to_string();
    assert!(text.contains("exit 127"), "{text}");
}

#[test]
fn the_agent_cannot_make_the_verify_command_pass_by_changing_it() {
    // A program of that name in the workspace is not found before that of the system.
    let turns = [
        runs("US-001", "printf '#!/bin/sh\\nexit 0\\n' > grep; chmod +x grep"),
        says("US-001", "The tests pass, I saw it myself."),
        done("US-001"),
        done("US-001"),
        done("US-001"),
    ];
    let project = Project::new(&one_story(), turns);
    let out = project.story(&["--verify", "grep -q token jwt"]);
    assert_ne!(out.code, 0, "{out}");
    assert_eq!(project.entry("US-001")["passes"], false);
}

/// A turn in which an agent claims to be done and names a file.
fn done_with(path: &str) -> Value {
    let mut turn = done("US-001");
    turn["call"][0]["args"]["artifacts"] = json!([{ "type": "implementation", "path": path }]);
    turn
}

#[test]
fn an_agent_that_claims_an_ignored_file_as_artifact_gets_an_error() {
    for kind in ["overlay", "worktree"] {
        let turns = [
            writes("US-001", "build/x.py", "print()\n"),
            writes("US-001", "y", "y\n"),
            done_with("build/x.py"),
            writes("US-001", "x.py", "print()\n"),
            done_with("x.py"),
        ];
        let project =
            Project::new(&with_verify("test ! -e build && test -f x.py && test -f y"), turns);
        project.rig().write(".gitignore", "build/\n");
        let json = project.json(&["--trust-prd", "--workspace", kind], 0);
        let run = project.rig().only_run();
        let files = project.files(&run, "US-001");
        assert!(files.contains(&"x.py".to_owned()), "{kind}: {files:?}");
        assert!(!files.contains(&"build/x.py".to_owned()), "{kind}: {files:?}");
        assert_eq!(
            project.events(&run, "checked").len(),
            1,
            "{kind}: only what can be kept is judged"
        );
        let said = serde_json::to_string(&project.rig().events(&run)).unwrap();
        assert!(said.contains("Artifact is ignored by git"), "{kind}: {said}");
        // The report says that the branch does not contain everything the agent wrote.
        let left = &json["stories"][0]["left_out"];
        assert_eq!(left, &json!(["build/x.py (ignored)"]), "{kind}: {json:#}");
    }
}

#[test]
fn only_ignored_files_that_the_agent_wrote_are_named() {
    for (kind, verify) in
        [("overlay", "true"), ("worktree", "true"), ("overlay", ""), ("worktree", "")]
    {
        let turns = [
            runs("US-001", "mkdir -p build && echo x > build/made && echo x > build/more"),
            writes("US-001", "build/kept", "kept\n"),
            writes("US-001", "build/gone", "gone\n"),
            runs("US-001", "rm build/gone"),
            writes("US-001", "y", "y\n"),
            done_with("y"),
        ];
        let prd = if verify.is_empty() { one_story() } else { with_verify(verify) };
        let project = Project::new(&prd, turns);
        project.rig().write(".gitignore", "build/\n");
        let json = project.json(&["--trust-prd", "--workspace", kind], 0);
        let left = &json["stories"][0]["left_out"];
        assert_eq!(left, &json!(["build/kept (ignored)"]), "{kind}, {verify}: {json:#}");
    }
}
