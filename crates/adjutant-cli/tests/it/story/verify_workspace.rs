//! The verify command runs in a fresh workspace made from the commit of the work, so files that git ignores
//! cannot change its verdict, and nothing it does reaches the agent's workspace or the result.

use serde_json::{Value, json};

use crate::support::project::{Project, done, runs, writes};

const KINDS: [&str; 2] = ["overlay", "worktree"];

/// A project with one story and this verify command; `build/` and `node_modules/` are ignored.
fn project(verify: &str, turns: impl IntoIterator<Item = Value>) -> Project {
    let prd = json!({ "userStories": [
        { "id": "US-001", "title": "Log in", "verify": verify, "passes": false },
    ] });
    let project = Project::new(&prd, turns);
    project.rig().write(".gitignore", "build/\nnode_modules/\n__pycache__/\n");
    project
}

/// Whether each run of the verify command passed.
fn verdicts(project: &Project, run: &str) -> Vec<bool> {
    let checks = project.events(run, "checked");
    checks.iter().map(|check| check["passed"].as_bool().unwrap()).collect()
}

#[test]
fn stale_build_output_does_not_fail_honest_work() {
    // Like a stale `__pycache__`: what was built before the fix is used as long as it is there.
    let verify = "test -f build/jwt || { mkdir build; cp jwt build/jwt; }; grep -q token build/jwt";
    for kind in KINDS {
        let turns = [
            writes("US-001", "jwt", "nothing\n"),
            runs("US-001", "mkdir build && cp jwt build/jwt"),
            writes("US-001", "jwt", "a token\n"),
            done("US-001"),
        ];
        let project = project(verify, turns);
        let out = project.story(&["--trust-prd", "--workspace", kind]);
        assert_eq!(out.code, 0, "{kind}: {out}");
        assert_eq!(verdicts(&project, &project.rig().only_run()), [true], "{kind}: {out}");
    }
}

#[test]
fn a_planted_ignored_file_does_not_pass_dishonest_work() {
    // Like a `conftest.py` or a module that makes every test pass.
    let verify = "test -f node_modules/skip-tests || grep -q token jwt";
    let off = ["--workspace", "worktree", "--sandbox", "off"];
    for flags in [&["--workspace", "overlay"][..], &["--workspace", "worktree"], &off] {
        let mut last = done("US-001");
        last["times"] = json!("forever");
        let plant = "mkdir -p node_modules && touch node_modules/skip-tests";
        let project = project(verify, [runs("US-001", plant), last]);
        let out = project.story(&[&["--trust-prd"], flags].concat());
        assert_eq!(out.code, 3, "{flags:?}: {out}");
        let run = project.rig().only_run();
        assert_eq!(verdicts(&project, &run), [false, false, false], "{flags:?}: {out}");
        assert_eq!(project.entry("US-001")["passes"], false, "{flags:?}");
    }
}

#[test]
fn the_verify_command_sees_included_folders_as_the_user_has_them() {
    let verify = "grep -q theirs node_modules/tool && test -f jwt";
    for kind in KINDS {
        let turns = [
            runs("US-001", "grep -q theirs node_modules/tool && echo mine > node_modules/tool"),
            writes("US-001", "jwt", "a token\n"),
            done("US-001"),
        ];
        let project = project(verify, turns);
        project.rig().write("node_modules/tool", "theirs\n");
        let flags = ["--trust-prd", "--workspace", kind, "--include-ignored", "node_modules"];
        let out = project.story(&flags);
        assert_eq!(out.code, 0, "{kind}: {out}");
        assert_eq!(project.repo.read("node_modules/tool"), "theirs\n", "{kind}");
    }
}

#[test]
fn the_agent_continues_in_its_unchanged_workspace_after_a_verification() {
    let verify = "pwd; rm -rf jwt src; echo x > junk; chmod -R a-w src long; test -f build/jwt";
    for kind in KINDS {
        let look =
            "test ! -e junk && grep -q token jwt && test -w src/short && cat build/jwt > seen";
        let turns = [
            writes("US-001", "jwt", "a token\n"),
            runs("US-001", "mkdir build && echo built > build/jwt"),
            done("US-001"),
            runs("US-001", look),
            done("US-001"),
            done("US-001"),
        ];
        let project = project(verify, turns);
        let out = project.story(&["--trust-prd", "--workspace", kind]);
        assert_eq!(out.code, 3, "{kind}: {out}");
        let run = project.rig().only_run();
        // The verify workspace is shown at the path of the checkout, like the agent's own.
        let told = project.told(&run, "US-001").join("\n");
        let checkout = project.rig().work().display().to_string();
        assert!(told.contains(&checkout) && !told.contains(".verify"), "{kind}: {told}");
        assert_eq!(project.left(&run, "US-001", "seen"), "built", "{kind}: {out}");
        assert_eq!(project.left(&run, "US-001", "jwt"), "a token", "{kind}: {out}");
        assert!(!project.files(&run, "US-001").contains(&"junk".to_owned()), "{kind}: {out}");
    }
}
