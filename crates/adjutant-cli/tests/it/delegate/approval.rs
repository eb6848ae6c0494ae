//! The question before a run, on a real terminal.

use serde_json::json;

use crate::delegate;
use crate::support::rig::Rig;
use crate::support::schema::assert_fits;
use crate::support::terminal::Terminal;

fn asked(rig: &Rig, columns: u16, env: &[(&str, &str)]) -> Terminal {
    let args = ["delegate", "--model", rig.model(), "-t", "echo=Say something about this tree"];
    let mut terminal = Terminal::start(rig, columns, env, &args);
    terminal.wait_for("Start? [y]es");
    terminal
}

#[test]
fn req_43_the_approval_question_shows_tasks_limits_and_worst_case() {
    let rig = delegate::rig();
    let mut terminal = asked(&rig, 80, &[]);
    insta::assert_snapshot!(terminal.screen(), @"
    Spawn 1 subagent (risk: medium)

      [echo]  Say something about this tree

    Tools       Glob, Grep, Note, Read; no network
    Model       script:../script.toml
    Worst case  5,000,000 tokens, $5.00, no time limit
    Expected    no history yet
    Budget      5,000,000 tokens per subagent; 20,000,000 tokens and $5.00 for the
                whole run
    Parallel    2 at a time

    Start? [y]es [N]o [s]how [e]dit [u]p to [?]
    ");
    terminal.types("n\r");
    assert_eq!(terminal.finish(), 4);
}

#[test]
fn yes_starts_the_run() {
    for yes in ["y\r", "YES\r"] {
        let rig = delegate::rig();
        let mut terminal = asked(&rig, 80, &[]);
        assert_eq!(terminal.types(yes).finish(), 0);
        assert!(terminal.screen().contains("You said: Say something"), "{}", terminal.screen());
        rig.assert_unharmed();
    }
}

/// `^D` at the start of a line is the end of input.
#[test]
fn no_an_empty_line_and_end_of_input_refuse_with_exit_4() {
    for no in ["n\r", "No\r", "\r", "\u{4}"] {
        let rig = delegate::rig();
        let mut terminal = asked(&rig, 80, &[]);
        assert_eq!(terminal.types(no).finish(), 4, "{no:?}");
        assert!(terminal.screen().contains("APPROVAL_DENIED"), "{}", terminal.screen());
        rig.assert_unharmed();
        let events = rig.events(&rig.only_run());
        assert!(events.iter().any(|event| event["type"] == "denied"), "it is recorded");
        assert!(!events.iter().any(|event| event["type"] == "started"), "and nothing ran");
    }
}

#[test]
fn any_other_answer_prints_the_choices_and_asks_again() {
    let rig = delegate::rig();
    let mut terminal = asked(&rig, 80, &[]);
    terminal.types("maybe\r");
    terminal.wait_until("second question", |screen| screen.matches("Start? [y]es").count() == 2);
    let screen = terminal.screen();
    assert!(screen.contains("\ny yes  n no  s show all  e edit  u up to  ? help\n"), "{screen}");
    assert_eq!(terminal.types("y\r").finish(), 0);
}

#[test]
fn ctrl_c_at_the_question_cancels() {
    let rig = delegate::rig();
    let mut terminal = asked(&rig, 80, &[]);
    terminal.types("\u{3}");
    assert_eq!(terminal.finish(), 130, "{}", terminal.screen());
    rig.assert_unharmed();
    let events = rig.events(&rig.only_run());
    assert!(!events.iter().any(|event| event["type"] == "started"));
}

#[test]
fn the_question_fits_a_narrow_terminal() {
    let rig = delegate::rig();
    let mut terminal = asked(&rig, 40, &[]);
    insta::assert_snapshot!(terminal.screen(), @"
    Spawn 1 subagent (risk: medium)

      [echo]  Say something about this tree

    Tools       Glob, Grep, Note, Read; no
                network
    Model       script:../script.toml
    Worst case  5,000,000 tokens, $5.00, no
                time limit
    Expected    no history yet
    Budget      5,000,000 tokens per
                subagent; 20,000,000 tokens
                and $5.00 for the whole run
    Parallel    2 at a time

    Start? [y]es [N]o [s]how [e]dit [u]p to [?]
    ");
    terminal.types("n\r");
    assert_eq!(terminal.finish(), 4);
}

/// Tasks may come through a pipe while the person sits at the terminal.
#[test]
fn the_terminal_is_asked_even_when_standard_input_is_a_pipe() {
    let rig = delegate::rig();
    let tasks = json!([{ "label": "echo", "prompt": "piped" }]).to_string();
    rig.write("tasks.json", tasks);
    let line = format!(
        "cat tasks.json | {} delegate - --model {}",
        crate::support::rig::BINARY,
        rig.model()
    );
    let mut terminal = Terminal::shell(&rig, &line);
    terminal.wait_for("Start? [y]es").types("y\r");
    assert_eq!(terminal.finish(), 0);
    assert!(terminal.screen().contains("You said: piped"), "{}", terminal.screen());
}

#[test]
fn a_new_host_is_asked_about_on_the_terminal() {
    let rig = Rig::with_script(delegate::FETCHES);
    for (answer, said) in [("n\r", "the person at the terminal said no"), ("y\r", "not public")] {
        let mut args = vec!["delegate", "--model", rig.model(), "-t", "web=Look at the page"];
        args.extend(["--allow-network", "--set", "approval=none"]);
        let mut terminal = Terminal::start(&rig, 80, &[], &args);
        terminal.wait_for("Allow 127.0.0.1 for this run? [y/N]");
        let screen = terminal.screen();
        for shown in
            ["[web] wants to fetch from a host", "Host  127.0.0.1", "http://127.0.0.1/page"]
        {
            assert!(screen.contains(shown), "{screen}");
        }
        assert_eq!(terminal.types(answer).finish(), 0, "{}", terminal.screen());
        let words: String = terminal.screen().split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains(said), "{words}");
    }
}

#[test]
fn ctrl_c_at_the_question_about_a_host_ends_the_run() {
    let rig = Rig::with_script(delegate::FETCHES);
    let mut args = vec!["delegate", "--model", rig.model(), "-t", "web=Look at the page"];
    args.extend(["--allow-network", "--set", "approval=none"]);
    let mut terminal = Terminal::start(&rig, 80, &[], &args);
    terminal.wait_for("Allow 127.0.0.1").types("\u{3}");
    assert_eq!(terminal.finish(), 130, "{}", terminal.screen());
}

/// A terminal that is gone is not a no: the question stays open, and `resume` asks it again.
#[test]
fn a_terminal_that_closes_at_the_question_leaves_it_open() {
    let rig = delegate::rig();
    let mut terminal = asked(&rig, 80, &[]);
    terminal.hang_up();
    assert_eq!(terminal.finish(), 130);
    let events = rig.events(&rig.only_run());
    let last = events.last().unwrap();
    assert_eq!(last["type"], "approval_asked", "{last}");
    assert_eq!(rig.run(["resume", "--yes"]).code, 0);
    rig.assert_unharmed();
}

#[test]
fn approvals_lists_a_question_at_a_prompt_with_its_terminal_and_process() {
    let rig = delegate::rig();
    let mut terminal = asked(&rig, 80, &[]);
    let json = rig.run(["approvals", "--json"]).json();
    assert_fits("approvals", &json);
    let open = &json["at_prompts"][0];
    assert_eq!(open["run"], rig.only_run().as_str(), "{json}");
    let tty = open["terminal"].as_str().unwrap();
    assert!(tty.starts_with("/dev/pts/"), "{json}");
    let pid = open["pid"].as_u64().unwrap();
    let out = rig.run(["approvals"]);
    assert!(out.stdout.contains(&format!("at the prompt on {tty}, process {pid}")), "{out}");
    terminal.types("n\r");
    assert_eq!(terminal.finish(), 4);
    assert_eq!(rig.run(["approvals"]).stdout, "Nothing waits for your approval.\n");
}
