//! What a hostile repository, model or disk may try.

use std::os::unix::fs::symlink;

use serde_json::json;

use crate::support::rig::Rig;

#[test]
fn a_project_config_that_is_an_outward_link_is_refused_and_not_read() {
    for target in ["/dev/zero", "/etc/passwd"] {
        let rig = Rig::new();
        let folder = rig.write(".adjutant/placeholder", "");
        symlink(target, folder.with_file_name("config.toml")).unwrap();
        let out = rig.run(["policy"]);
        assert_eq!(out.code, 2, "{out}");
        assert!(!out.stderr.contains("root:"), "{out}");
    }
}

#[test]
fn an_absurd_cost_is_read_back_unchanged() {
    let rig = Rig::with_script(
        "price = { input = 3.0, output = 15.0 }\n[[turn]]\ntext = 'x'\n\
         usage = { input = 1, output = 1300000000000000 }",
    );
    assert_eq!(rig.delegate(&["-t", "a=x"]).code, 0);
    assert_eq!(rig.run(["status", "latest"]).code, 0);
    assert_eq!(rig.run(["cost"]).code, 0);
}

#[test]
fn an_oversized_answer_of_one_child_does_not_affect_its_sibling() {
    // Each of these bytes takes six in the journal, which is more than one record holds.
    let rig = Rig::with_script(
        "[[turn]]\nlabel = 'loud'\ntext = \"\\u0001\"\ntext_bytes = 12000000\n\
         [[turn]]\nlabel = 'calm'\ntext = 'fine'",
    );
    let out = rig.delegate(&["-t", "loud=x", "-t", "calm=y"]);
    assert_eq!(out.code, 3, "{}", out.stderr);
    assert!(out.stdout.contains("> fine"), "{}", out.stdout);
    assert!(out.stdout.contains("cannot be recorded"), "{}", out.stdout);
}

#[test]
fn a_project_text_outside_the_tree_is_not_shown_to_the_model() {
    let rig = Rig::with_script("[[turn]]\nagent = 'lead'\ntext = 'red'");
    let secret = rig.write("../secret.txt", "the colour is mauve");
    symlink(&secret, rig.work().join("AGENTS.md")).unwrap();
    let ask = || {
        let out = rig.run(["run", "Which colour?", "--yes", "--model", rig.model()]);
        assert_eq!(out.code, 0, "{out}");
        rig.run(["transcript"])
    };
    let out = ask();
    assert!(out.stdout.contains("Which colour?") && !out.stdout.contains("mauve"), "{out}");
    std::fs::remove_file(rig.work().join("AGENTS.md")).unwrap();
    rig.write("AGENTS.md", "paint it green");
    let out = ask();
    assert!(out.stdout.contains("paint it green"), "{out}");
}

#[test]
fn a_model_cannot_delegate_to_a_script_file() {
    let task = json!({ "label": "a", "prompt": "x", "model": "script:/etc/passwd" });
    let script = format!(
        "[[turn]]\nagent = 'lead'\n[[turn.call]]\ntool = 'Delegate'\nraw_args = '{}'\n\
         [[turn]]\nagent = 'lead'\ntext = '{{{{result}}}}'",
        json!({ "tasks": [task] })
    );
    let rig = Rig::with_script(&script);
    let out = rig.run(["run", "Try", "--yes", "--model", rig.model()]);
    assert!(out.stdout.contains("cannot be used here"), "{out}");
    assert!(!out.stdout.contains(".toml"), "{out}");
}

#[test]
fn results_are_shown_after_their_folder_was_removed() {
    let rig = Rig::with_script("[[turn]]\ntext = 'here it is'\ndelay_ms = 300");
    let mut child = rig.delegating(&["-t", "a=x"]).start();
    child.wait_for("[a] started");
    std::fs::remove_dir_all(rig.state().join("runs")).unwrap();
    let out = child.finish();
    assert!(out.stdout.contains("> here it is"), "{out}");
}

#[test]
fn json_output_contains_no_terminal_control_sequences() {
    let rig = Rig::with_script("[[turn]]\ntext = \"a\\u202eb\\u009bc\"");
    let out = rig.delegate(&["-t", "a=x", "--return", "json"]);
    assert!(out.stdout.contains("a\\u202eb\\u009bc"), "{}", out.stdout);
    assert_eq!(out.json()["results"][0]["report"], "a\u{202e}b\u{9b}c");
}

#[test]
fn a_dry_run_works_without_a_model() {
    let out = Rig::new().run(["delegate", "-t", "a=x", "--dry-run"]);
    assert_eq!(out.code, 0, "{out}");
    assert!(out.stderr.contains("no model is chosen"), "{out}");
}

#[test]
fn a_set_flag_overrides_a_named_budget_flag() {
    let out = Rig::new().run([
        "delegate",
        "-t",
        "a=x",
        "--dry-run",
        "--budget-tokens",
        "10",
        "--set",
        "budget_tokens_run=9000",
        "--set",
        "budget_tokens=9000",
    ]);
    assert_eq!(out.code, 0, "{out}");
}

#[test]
fn a_dollar_budget_without_effect_is_reported() {
    let rig = Rig::with_script("[[turn]]\ntext = 'ok'");
    let out = rig.delegate(&["-t", "a=x", "--budget-usd", "0.01"]);
    assert_eq!(out.code, 0, "{out}");
    assert!(out.stderr.contains("--budget-usd has no effect"), "{out}");
}
