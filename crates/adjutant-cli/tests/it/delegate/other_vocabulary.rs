//! An agent that knows only the tools of another product fixes a project.

use crate::support::repository::Repo;
use crate::support::rig::Rig;

/// Finds the bug, patches it, adds a file, and runs the tests before and after.
const SCRIPT: &str = r#"
[[turn]]
[[turn.call]]
tool = "list_dir"
args = { dir_path = "." }
[[turn.call]]
tool = "read_file"
args = { target_file = "add.sh", should_read_entire_file = true, explanation = "See the code" }
[[turn.call]]
tool = "shell"
args = { command = ["bash", "-lc", "sh test.sh"], timeout_ms = 60000 }

[[turn]]
[[turn.call]]
tool = "apply_patch"
[turn.call.args]
input = '''
*** Begin Patch
*** Update File: add.sh
@@
 # Adds two numbers.
-echo $(($1 - $2))
+echo $(($1 + $2))
*** Add File: notes/fix.md
+The sign was wrong.
*** End Patch
'''
[[turn.call]]
tool = "str_replace_editor"
args = { command = "str_replace", path = "README", old_str = "broken", new_str = "works" }
[[turn.call]]
tool = "Bash"
args = { command = "sh test.sh", timeout = 60000, description = "Run the tests" }

[[turn]]
text = "{{result | first_line}}: the tests pass."
"#;

#[test]
fn an_agent_with_the_tools_of_other_products_fixes_a_project() {
    let repo = Repo { rig: Rig::with_script(SCRIPT) };
    repo.git(["init", "-q", "-b", "main", "."]);
    repo.rig.write("add.sh", "# Adds two numbers.\necho $(($1 - $2))\n");
    repo.rig.write("test.sh", "test \"$(sh add.sh 2 3)\" = 5\n");
    repo.rig.write("README", "broken\n");
    repo.commit("first");
    let out = repo
        .rig
        .delegating(&["--write", "-t", "fix=Make the tests pass", "--merge", "apply"])
        .env("PATH", std::env::var_os("PATH").unwrap())
        .run();
    assert_eq!(out.code, 0, "{out}");
    let text = |path: &str| repo.read(path);
    assert_eq!(text("add.sh"), "# Adds two numbers.\necho $(($1 + $2))\n");
    assert_eq!(text("notes/fix.md"), "The sign was wrong.\n");
    assert_eq!(text("README"), "works\n");
    let log = repo.rig.run(["log", &repo.rig.only_run()]).data();
    for line in [
        "calls Glob",
        "calls Read add.sh",
        "calls Edit",
        "calls Run sh test.sh",
        "changes add.sh",
        "creates notes/fix.md",
    ] {
        assert!(log.contains(line), "{line}: {log}");
    }
}
