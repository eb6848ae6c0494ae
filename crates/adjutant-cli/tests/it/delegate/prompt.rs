//! The choices at the question, what to expect, and two terminals that answer it.

use std::fs;

use rustix::process::Signal;
use serde_json::Value;

use crate::delegate;
use crate::support::rig::Rig;
use crate::support::schema::assert_fits;
use crate::support::terminal::Terminal;

const TASK: &str = "echo=Say something about this tree";

/// A parent agent that delegates one task after the other.
const TWICE: &str = r#"
price = { input = 3.0, output = 15.0 }

[[turn]]
agent = "lead"
[[turn.call]]
tool = "Delegate"
args = { tasks = [{ label = "one", prompt = "Look at a" }] }

[[turn]]
agent = "lead"
[[turn.call]]
tool = "Delegate"
args = { tasks = [{ label = "two", prompt = "Look at b" }] }

[[turn]]
agent = "lead"
[[turn.call]]
tool = "Delegate"
args = { tasks = [{ label = "three", prompt = "Look at c" }] }

[[turn]]
agent = "lead"
text = "All are done."

[[turn]]
text = "seen"
"#;

fn asked(rig: &Rig, env: &[(&str, &str)], more: &[&str]) -> Terminal {
    let args = [&["delegate", "--model", rig.model(), "-t", TASK], more].concat();
    let mut terminal = Terminal::start(rig, 80, env, &args);
    terminal.wait_for("Start? [y]es");
    terminal
}

/// Runs the task `count` times, as history.
fn remember(rig: &Rig, count: usize) {
    for _ in 0..count {
        assert_eq!(rig.delegate(&["-t", TASK]).code, 0);
    }
}

#[test]
fn the_question_says_what_ended_delegations_consumed() {
    let rig = delegate::rig();
    remember(&rig, 2);
    let mut terminal = asked(&rig, &[], &["-t", "second=Look around"]);
    let screen = terminal.screen();
    let from = screen.find("Worst case").unwrap();
    let times = regex::Regex::new(r"\d\.\ds").unwrap();
    insta::assert_snapshot!(times.replace_all(screen[from..].trim_end(), "0.0s"), @"
    Worst case  10,000,000 tokens, $5.00, no time limit
    Expected    each usually $0.0018, 520 tokens, 0.0s; 9 of 10 at most $0.0018, 520
                tokens, 0.0s
                2 times that is $0.0036, 1,040 tokens; from only 2 earlier
                delegations
    Budget      5,000,000 tokens per subagent; 20,000,000 tokens and $5.00 for the
                whole run
    Parallel    2 at a time

    Start? [y]es [N]o [s]how [e]dit [u]p to [?]
    ");
    terminal.types("n\r");
    assert_eq!(terminal.finish(), 4);
    // A refused call is no sample, and six are not few.
    remember(&rig, 4);
    let json = rig.delegate(&["--dry-run", "--json", "-t", TASK]).json();
    assert_fits("question", &json);
    let expected = &json["tasks"][0]["expected"];
    assert_eq!(expected["samples"], 6, "{json}");
    assert_eq!(expected["median"]["tokens"], 520, "{json}");
    assert_eq!(expected["p90"]["cost_usd"], 0.0018, "{json}");
}

#[test]
fn without_history_the_question_says_so() {
    let rig = delegate::rig();
    let mut terminal = asked(&rig, &[], &[]);
    assert!(terminal.screen().contains("Expected    no history yet"), "{}", terminal.screen());
    terminal.types("\r");
    assert_eq!(terminal.finish(), 4);
    let json = rig.delegate(&["--dry-run", "--json", "-t", TASK]).json();
    assert_eq!(json["tasks"][0]["expected"], serde_json::json!({ "samples": 0 }));
}

#[test]
fn a_run_whose_samples_cannot_be_recorded_ends_as_usual() {
    let rig = delegate::rig();
    remember(&rig, 1);
    let registry = rig.state().join("registry.jsonl");
    let usual = rig.delegate(&["-t", TASK]);
    let damaged = b"damaged\n".to_vec();
    fs::write(&registry, &damaged).unwrap();
    let out = rig.delegate(&["-t", TASK]);
    assert_eq!((out.code, out.data()), (0, usual.data()), "{out}");
    assert_eq!(out.stderr.matches("later estimates do not include it").count(), 1, "{out}");
    assert_eq!(fs::read(&registry).unwrap(), damaged);
    // The question needs no registry either.
    let mut terminal = asked(&rig, &[], &[]);
    assert!(!terminal.screen().contains("Expected"), "{}", terminal.screen());
    assert_eq!(terminal.types("y\r").finish(), 0);
    // A registry that nothing can be written to.
    fs::remove_file(&registry).unwrap();
    fs::create_dir(&registry).unwrap();
    let out = rig.delegate(&["-t", TASK]);
    assert_eq!((out.code, out.data()), (0, usual.data()), "{out}");
}

#[test]
fn help_explains_every_choice() {
    let rig = delegate::rig();
    let args = ["delegate", "--model", rig.model(), "-t", TASK];
    let mut terminal = Terminal::start_sized(&rig, (8, 50), &[], &args);
    terminal.wait_for("Start? [y]es");
    // The question is longer than the screen, and its end stays visible.
    insta::assert_snapshot!(terminal.screen().trim_end(), @"
    Worst case  5,000,000 tokens, $5.00, no time limit
    Expected    no history yet
    Budget      5,000,000 tokens per subagent;
                20,000,000 tokens and $5.00 for the
                whole run
    Parallel    2 at a time

    Start? [y]es [N]o [s]how [e]dit [u]p to [?]
    ");
    terminal.types("?\r").wait_for("u 2.00");
    terminal.wait_until("prompt", |screen| screen.trim_end().ends_with("[?]"));
    insta::assert_snapshot!(terminal.screen().trim_end(), @"
    y  start it
    n  start nothing; so does Enter
    s  show prompts, files and rights in full
    e  edit the tasks in $EDITOR, then ask again
    u  start it; later calls of this run start
       without asking until their worst cases
       add up to an amount: u 2.00
    Start? [y]es [N]o [s]how [e]dit [u]p to [?]
    ");
    terminal.types("n\r");
    assert_eq!(terminal.finish(), 4);
}

#[test]
fn colour_is_used_only_where_the_terminal_has_it() {
    let rig = delegate::rig();
    for (env, is_coloured) in
        [(vec![], true), (vec![("NO_COLOR", "1")], false), (vec![("TERM", "dumb")], false)]
    {
        let mut terminal = asked(&rig, &env, &[]);
        let question = terminal.raw.split("Start?").next().unwrap().to_owned();
        assert_eq!(question.contains("\x1b[1m"), is_coloured, "{env:?} {question:?}");
        terminal.types("n\r");
        assert_eq!(terminal.finish(), 4);
    }
}

#[test]
fn in_a_locale_without_utf_8_the_question_is_ascii() {
    let rig = delegate::rig();
    let args = ["delegate", "--model", rig.model(), "-t", "a=Prüfe – das"];
    let mut terminal = Terminal::start(&rig, 80, &[("LC_ALL", "C")], &args);
    terminal.wait_for("Start? [y]es");
    let question = terminal.raw.split("Start?").next().unwrap().to_owned();
    assert!(question.is_ascii() && question.contains("Pr?fe - das"), "{question}");
    terminal.types("n\r");
    assert_eq!(terminal.finish(), 4);
}

#[test]
fn show_all_shows_whole_prompts_in_the_pager_without_control_sequences() {
    let rig = delegate::rig();
    let long = format!("long={}\x1b[2J{}", "start ".repeat(100), "end ".repeat(100));
    let args = ["delegate", "--model", rig.model(), "-t", &long];
    let env = [("PAGER", "sed 's/^/| /'"), ("PATH", "/usr/bin:/bin")];
    let mut terminal = Terminal::start(&rig, 200, &env, &args);
    terminal.wait_for("Start? [y]es");
    terminal.types("s\r").wait_until("shown", |screen| screen.matches("Start? [y]es").count() == 2);
    let all = terminal.raw.split_once("| Spawn").unwrap().1;
    for shown in ["|   Tools: Glob", "|   Prompt:", "|     start start", "|   Context files: none"]
    {
        assert!(all.contains(shown), "{shown} in {all}");
    }
    assert!(all.contains(&"end ".repeat(100)), "nothing is left out: {all}");
    assert!(!all.contains("\x1b[2J"), "{all}");
    terminal.types("n\r");
    assert_eq!(terminal.finish(), 4);
}

#[test]
fn yes_up_to_an_amount_starts_further_calls_of_the_run_without_asking() {
    let rig = Rig::with_script(TWICE);
    let mut args = vec!["run", "Look at everything", "--model", rig.model()];
    args.extend(["--set", "budget_tokens=10000"]);
    let mut terminal = Terminal::start(&rig, 80, &[], &args);
    // A model made the call, so its tasks cannot be edited.
    terminal.wait_for("Start? [y]es [N]o [s]how [u]p to [?]");
    terminal.types("e\r").wait_for("y yes  n no  s show all  u up to  ? help");
    terminal.types("u\r").wait_for("how many dollars?").types("-3\r").wait_for("above zero");
    // Two more calls of 15 cents each do not fit, one does.
    terminal.types("yes up to 0.20\r").wait_for("[three]");
    terminal.wait_until("the second question", |screen| {
        let (_, after) = screen.split_once("[three]").unwrap_or_default();
        after.contains("exceeds the $0.20 for automatic approval") && after.contains("Start? [y]es")
    });
    assert_eq!(terminal.types("y\r").finish(), 0, "{}", terminal.screen());
    let events = rig.events(&rig.only_run());
    let of = |kind: &str| events.iter().filter(|event| event["type"] == kind).collect::<Vec<_>>();
    assert_eq!(of("approval_asked").len(), 2);
    assert_eq!(of("auto_approved").len(), 1);
    assert_eq!(of("approved")[0]["up_to"], 0.2);
    assert_eq!(of("approved")[1]["up_to"], Value::Null);
    assert_fits("log", &rig.run(["log", "--json"]).lines().next().unwrap());
}

#[test]
fn an_amount_that_covers_no_such_call_is_accepted_with_a_note() {
    let rig = delegate::rig();
    let mut terminal = asked(&rig, &[], &[]);
    assert_eq!(terminal.types("u 2\r").finish(), 0);
    assert!(terminal.raw.contains("worst case of this call is $5.00"), "{}", terminal.raw);
}

/// The id and the code of the only question, as `adjutant approvals` shows them in a terminal.
fn id_and_code(rig: &Rig) -> (String, String) {
    let mut list = Terminal::start(rig, 200, &[], &["approvals"]);
    assert_eq!(list.finish(), 0);
    let screen = list.screen();
    let words = screen.split_once(" approve ").unwrap_or_else(|| panic!("{screen}")).1;
    let mut words = words.split_whitespace();
    let id = words.next().unwrap().to_owned();
    (id, words.next().unwrap().trim_end_matches('.').to_owned())
}

fn approve(rig: &Rig, args: &[&str]) -> (String, u32) {
    let mut terminal = Terminal::start(rig, 200, &[], &[&["approve"], args].concat());
    let code = terminal.finish();
    (terminal.screen(), code)
}

#[test]
fn another_terminal_can_answer_and_the_prompt_says_who_did() {
    let rig = delegate::rig();
    let mut terminal = asked(&rig, &[], &[]);
    let json = rig.run(["approvals", "--json"]).json();
    assert_fits("approvals", &json);
    assert_eq!(json["approvals"], serde_json::json!([]));
    let (id, code) = id_and_code(&rig);
    assert_eq!(json["at_prompts"][0]["id"], id.as_str());
    assert!(!rig.run(["approvals"]).stdout.contains(&code), "a pipe shows no code");
    let (said, exit) = approve(&rig, &[&id, "WRONG2"]);
    assert_eq!(exit, 4, "{said}");
    let (said, exit) = approve(&rig, &[&id, &code]);
    assert_eq!(exit, 0, "{said}");
    assert_eq!(terminal.finish(), 0, "{}", terminal.screen());
    assert!(
        terminal.screen().contains("Answered in another terminal: yes"),
        "{}",
        terminal.screen()
    );
    let (said, exit) = approve(&rig, &[&id, &code]);
    assert_eq!(exit, 4);
    assert!(said.contains("is open: it was approved (run_"), "{said}");
    assert_eq!(rig.run(["approvals"]).stdout, "Nothing waits for your approval.\n");
}

#[test]
fn a_denial_in_another_terminal_closes_the_prompt() {
    let rig = delegate::rig();
    let mut terminal = asked(&rig, &[], &[]);
    let (id, _) = id_and_code(&rig);
    assert_eq!(approve(&rig, &["--deny", &id]).1, 0);
    assert_eq!(terminal.finish(), 4);
    let screen = terminal.screen();
    assert!(screen.contains("This question is closed: a person said no"), "{screen}");
}

#[test]
fn an_answer_at_the_prompt_comes_first_and_approve_says_so() {
    let rig = delegate::rig();
    let mut terminal = asked(&rig, &[], &[]);
    let (id, code) = id_and_code(&rig);
    terminal.types("n\r");
    assert_eq!(terminal.finish(), 4);
    let (said, exit) = approve(&rig, &[&id, &code]);
    assert_eq!(exit, 4);
    assert!(said.contains("it was refused: the person at the terminal said no"), "{said}");
}

#[test]
fn approve_says_that_the_process_of_a_question_is_gone() {
    let rig = delegate::rig();
    let mut terminal = asked(&rig, &[], &[]);
    let (id, code) = id_and_code(&rig);
    terminal.signal(Signal::KILL);
    terminal.finish();
    let (said, exit) = approve(&rig, &[&id, &code]);
    assert_eq!(exit, 4);
    assert!(said.contains("is gone; `adjutant resume run_"), "{said}");
    // The question is asked again, and answered once.
    assert_eq!(rig.run(["resume", "--yes"]).code, 0);
    let (said, _) = approve(&rig, &[&id, &code]);
    assert!(said.contains("it was approved"), "{said}");
}
