//! Bad input: calls that are refused before anything starts, each with its reason.

use serde_json::{Value, json};

use crate::support::rig::Rig;

/// Delegates each input and returns the errors; no files may be left behind.
fn said(inputs: &[Value]) -> String {
    let rig = Rig::with_script("[[turn]]\ntext = 'should not run'");
    let mut text = String::new();
    for input in inputs {
        let out = rig.delegating(&["-"]).stdin(input.to_string()).run();
        assert_eq!(out.stdout, "", "{input}");
        let shown: String = input.to_string().chars().take(60).collect();
        text += &format!("{shown}\n  {}\n", out.talk().replace('\n', "\n  "));
        assert!(rig.runs().is_empty(), "{input} left a run");
    }
    text
}

fn task() -> Value {
    json!({ "label": "a", "prompt": "x" })
}

#[test]
fn req_53_the_number_of_tasks_is_bounded() {
    let nine: Vec<Value> =
        (1..=9).map(|n| json!({ "label": "a", "prompt": n.to_string() })).collect();
    insta::assert_snapshot!(
        said(&[json!({ "tasks": [] }), json!({}), json!([]), json!({ "tasks": nine })]), @r#"
        {"tasks":[]}
          adjutant: tasks: 0 tasks, allowed are 1 to 8
            `adjutant delegate --help` shows the expected format.
          [exit 2]
        {}
          adjutant: tasks: 0 tasks, allowed are 1 to 8
            `adjutant delegate --help` shows the expected format.
          [exit 2]
        []
          adjutant: tasks: 0 tasks, allowed are 1 to 8
            `adjutant delegate --help` shows the expected format.
          [exit 2]
        {"tasks":[{"label":"a","prompt":"1"},{"label":"a","prompt":"
          adjutant: MAX_DELEGATIONS_EXCEEDED: Too many delegations (9). Maximum: 8
            Delegate fewer, larger tasks, or start the run again with --set tasks_per_call=9.
          [exit 4]
    "#);
}

#[test]
fn req_53_prompts_and_labels_are_bounded() {
    insta::assert_snapshot!(said(&[
        json!([{ "label": "a", "prompt": "" }]),
        json!([{ "label": "a", "prompt": " \n\t " }]),
        json!([{ "label": "a" }]),
        json!([{ "prompt": "x" }]),
        json!([{ "label": "", "prompt": "x" }]),
        json!([{ "label": "x".repeat(33), "prompt": "x" }]),
        json!([{ "label": 7, "prompt": "x" }]),
    ]), @r#"
        [{"label":"a","prompt":""}]
          adjutant: tasks[0].prompt: must not be blank
            `adjutant delegate --help` shows the expected format.
          [exit 2]
        [{"label":"a","prompt":" \n\t "}]
          adjutant: tasks[0].prompt: must not be blank
            `adjutant delegate --help` shows the expected format.
          [exit 2]
        [{"label":"a"}]
          adjutant: tasks[0].prompt: is required
            `adjutant delegate --help` shows the expected format.
          [exit 2]
        [{"prompt":"x"}]
          adjutant: tasks[0].label: is required
            `adjutant delegate --help` shows the expected format.
          [exit 2]
        [{"label":"","prompt":"x"}]
          adjutant: tasks[0].label: label has 0 characters, allowed are 1 to 32
            `adjutant delegate --help` shows the expected format.
          [exit 2]
        [{"label":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx","prompt":"x"}]
          adjutant: tasks[0].label: label has 33 characters, allowed are 1 to 32
            `adjutant delegate --help` shows the expected format.
          [exit 2]
        [{"label":7,"prompt":"x"}]
          adjutant: tasks[0].label: must be a string, not a number
            `adjutant delegate --help` shows the expected format.
          [exit 2]
    "#);
}

#[test]
fn labels_of_1_and_32_characters_are_accepted() {
    let rig = Rig::with_script("[[turn]]\ntext = 'ok'");
    let longest = "ü".repeat(32);
    for label in ["a", &longest] {
        let task = json!([{ "label": label, "prompt": "x" }]);
        assert_eq!(rig.delegating(&["-"]).stdin(task.to_string()).run().code, 0, "{label}");
    }
}

#[test]
fn req_42_properties_and_numbers_are_checked_by_the_schema() {
    insta::assert_snapshot!(said(&[
        json!({ "tasks": [task()], "priority": 1 }),
        json!([{ "label": "a", "prompt": "x", "timeout": 5 }]),
        json!({ "tasks": [task()], "concurrency": 0 }),
        json!({ "tasks": [task()], "concurrency": 5 }),
        json!({ "tasks": [task()], "concurrency": "2" }),
        json!([{ "label": "a", "prompt": "x", "max_output_tokens": 99 }]),
        json!([{ "label": "a", "prompt": "x", "max_output_tokens": 16385 }]),
        json!({ "tasks": [task()], "return": "xml" }),
        json!({ "tasks": 3 }),
        json!([1]),
        json!("tasks"),
    ]), @r#"
        {"tasks":[{"label":"a","prompt":"x"}],"priority":1}
          adjutant: arguments: unknown property `priority`
            `adjutant delegate --help` shows the expected format.
          [exit 2]
        [{"label":"a","prompt":"x","timeout":5}]
          adjutant: tasks[0]: unknown property `timeout`
            `adjutant delegate --help` shows the expected format.
          [exit 2]
        {"tasks":[{"label":"a","prompt":"x"}],"concurrency":0}
          adjutant: concurrency: must be a whole number from 1 to 4, not 0
            `adjutant delegate --help` shows the expected format.
          [exit 2]
        {"tasks":[{"label":"a","prompt":"x"}],"concurrency":5}
          adjutant: concurrency: must be a whole number from 1 to 4, not 5
            `adjutant delegate --help` shows the expected format.
          [exit 2]
        {"tasks":[{"label":"a","prompt":"x"}],"concurrency":"2"}
          adjutant: concurrency: must be a whole number from 1 to 4, not a string
            `adjutant delegate --help` shows the expected format.
          [exit 2]
        [{"label":"a","prompt":"x","max_output_tokens":99}]
          adjutant: tasks[0].max_output_tokens: must be a whole number from 100 to 16384, not 99
            `adjutant delegate --help` shows the expected format.
          [exit 2]
        [{"label":"a","prompt":"x","max_output_tokens":16385}]
          adjutant: tasks[0].max_output_tokens: must be a whole number from 100 to 16384, not 16385
            `adjutant delegate --help` shows the expected format.
          [exit 2]
        {"tasks":[{"label":"a","prompt":"x"}],"return":"xml"}
          adjutant: return: must be one of markdown, json, not `xml`
            `adjutant delegate --help` shows the expected format.
          [exit 2]
        {"tasks":3}
          adjutant: tasks: must be an array, not 3
          [exit 2]
        [1]
          adjutant: tasks[0]: must be an object, not a number
            `adjutant delegate --help` shows the expected format.
          [exit 2]
        "tasks"
          adjutant: standard input: must hold an object with `tasks`, or a list of tasks
          [exit 2]
    "#);
}

#[test]
fn invalid_json_is_reported_with_its_position() {
    let rig = Rig::with_script("[[turn]]\ntext = 'should not run'");
    for (input, said) in [
        ("", "adjutant: standard input: EOF while parsing a value at line 1 column 0\n"),
        (
            "{\n\"tasks\": [",
            "adjutant: standard input: EOF while parsing a list at line 2 column 10\n",
        ),
        ("[] []", "adjutant: standard input: trailing characters at line 1 column 4\n"),
    ] {
        let out = rig.delegating(&["-"]).stdin(input).run();
        assert_eq!((out.stderr.as_str(), out.code), (said, 2));
    }
    assert!(rig.runs().is_empty());
}

#[test]
fn invalid_or_missing_task_flags_are_refused() {
    let rig = Rig::with_script("[[turn]]\ntext = 'should not run'");
    insta::assert_snapshot!(rig.delegate(&[]).talk(), @"
        adjutant: no tasks given
          Give a task file, - for standard input, or -t LABEL=PROMPT; see `adjutant delegate --help`.
        [exit 2]
    ");
    insta::assert_snapshot!(rig.delegate(&["-t", "no equals sign"]).talk(), @"
        adjutant: -t `no equals sign` is not of the form LABEL=PROMPT
        [exit 2]
    ");
    insta::assert_snapshot!(rig.delegate(&["-t", "=prompt"]).talk(), @"
        adjutant: tasks[0].label: label has 0 characters, allowed are 1 to 32
          `adjutant delegate --help` shows the expected format.
        [exit 2]
    ");
    insta::assert_snapshot!(rig.delegate(&["nowhere.json"]).talk(), @"
        adjutant: cannot read nowhere.json: No such file or directory (os error 2)
        [exit 2]
    ");
    insta::assert_snapshot!(rig.delegate(&["."]).talk(), @"
        adjutant: cannot read .: Is a directory (os error 21)
        [exit 2]
    ");
    insta::assert_snapshot!(rig.delegate(&["-t", "a=x", "--root", "nowhere"]).talk(), @"
        adjutant: cannot open nowhere: No such file or directory (os error 2)
        [exit 2]
    ");
    let file = rig.write("file", "");
    insta::assert_snapshot!(rig.delegate(&["-t", "a=x", "--root", file.to_str().unwrap()]).talk(), @"
        adjutant: cannot open $WORK/file: Not a directory (os error 20)
        [exit 2]
    ");
    assert!(rig.runs().is_empty());
}

/// A device that never ends must not fill the memory.
#[test]
fn an_endless_task_file_is_refused() {
    let rig = Rig::with_script("[[turn]]\ntext = 'should not run'");
    insta::assert_snapshot!(rig.delegate(&["/dev/zero"]).talk(), @"
        adjutant: cannot read /dev/zero: it has more than 64 MiB
        [exit 2]
    ");
}

#[test]
fn a_task_that_names_a_model_runs_on_it() {
    let rig = Rig::with_script("[[turn]]\ntext = 'from the run'");
    let other = rig.write("other.toml", "[[turn]]\ntext = 'from the other'");
    let model = format!("script:{}", other.display());
    let tasks =
        json!([{ "label": "a", "prompt": "x", "model": model }, { "label": "b", "prompt": "y" }]);
    let out = rig.delegating(&["-"]).stdin(tasks.to_string()).run();
    assert_eq!(out.code, 0);
    let (first, second) = out.stdout.split_once("### [b]").unwrap();
    assert!(first.contains("> from the other"), "{first}");
    assert!(second.contains("> from the run"), "{second}");
}

#[test]
fn only_the_task_with_an_unavailable_model_is_refused() {
    let rig = Rig::with_script("[[turn]]\ntext = 'ok'");
    let tasks = json!([{ "label": "a", "prompt": "x", "model": "other/model" }, { "label": "b", "prompt": "y" }]);
    let out = rig.delegating(&["-"]).stdin(tasks.to_string()).run();
    assert_eq!(out.code, 3);
    assert!(out.stdout.contains("no provider `other`; known are anthropic"), "{}", out.stdout);
    assert!(out.stdout.contains("### [b] ✓"), "{}", out.stdout);
    let json = rig.run(["result", "--json"]).json();
    assert_eq!(json["results"][0].get("transcript"), None, "what said nothing has no transcript");
    assert!(json["results"][1].get("transcript").is_some());
}
