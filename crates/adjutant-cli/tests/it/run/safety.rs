//! The safety of nested delegation through the real binary: the four tests of the old guide (cycle,
//! depth, timeout, malformed return), and a failure at each level seen at the top.

use std::fmt::Write;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::rig::{Output, Rig};
use crate::support::schema::assert_fits;

/// Who works for whom below `/research`, the deepest last.
const BELOW: [&str; 3] = ["researcher", "specialist", "helper"];

/// The whole line of command, as paths name it.
const LINE: [&str; 5] = ["orchestrator", "research", "researcher", "specialist", "helper"];

/// A file of the researcher: research that is completed has something to show.
const REPORT: &str = ".adjutant/specs/report.md";

/// A script that is written turn by turn.
#[derive(Default)]
pub(crate) struct Play(String);

impl Play {
    /// Begins with a command that hands its work to `researcher` and repeats what comes back.
    pub(crate) fn research() -> Self {
        Self::default().asks("research", &["researcher"]).says("research", "I was told: {{result}}")
    }

    fn turn(mut self, agent: &str, rest: &str) -> Self {
        let _ = write!(self.0, "[[turn]]\nagent = \"{agent}\"\n{rest}\n");
        self
    }

    pub(crate) fn says(self, agent: &str, text: &str) -> Self {
        self.turn(agent, &format!("text = {}", json!(text)))
    }

    /// One answer that asks each of them in turn.
    fn asks(self, agent: &str, whom: &[&str]) -> Self {
        let call = |one: &&str| {
            format!(
                "[[turn.call]]\ntool = \"Task\"\nargs = {{ agent = \"{one}\", prompt = \"Go on.\" }}\n"
            )
        };
        self.turn(agent, &whom.iter().map(call).collect::<String>())
    }

    /// The report is written after all delegations have ended.
    pub(crate) fn writes(self, agent: &str) -> Self {
        let args = format!("args = {{ path = \"{REPORT}\", content = \"by {agent}\" }}");
        self.turn(agent, &format!("[[turn.call]]\ntool = \"Write\"\n{args}"))
    }

    pub(crate) fn completes(self, agent: &str) -> Self {
        self.says(agent, &completed().to_string())
    }

    /// Everyone down to `deepest`, exclusive, asks the one below, writes and completes.
    fn down_to(self, deepest: usize) -> Self {
        (0..deepest).fold(self, |play, at| {
            play.asks(BELOW[at], &[BELOW[at + 1]]).writes(BELOW[at]).completes(BELOW[at])
        })
    }

    pub(crate) fn rig(&self) -> Rig {
        let rig = Rig::with_script(&self.0);
        for (agent, operation) in BELOW.iter().zip(["research", "research", "simple"]) {
            define(&rig, agent, &format!("operation: {operation}"));
        }
        rig
    }
}

/// Defines an agent that may hand work down, so that only limits keep it from doing so.
fn define(rig: &Rig, agent: &str, limits: &str) {
    let text = format!("---\ndescription: Works.\nadjutant: {{ {limits} }}\n---\nWork.");
    rig.write(&format!(".claude/agents/{agent}.md"), text);
}

fn completed() -> Value {
    let artifact = json!({ "type": "research", "path": REPORT });
    json!({ "status": "completed", "summary": "It is done. It is here.", "artifacts": [artifact],
        "errors": [] })
}

fn failed(code: &str, message: &str) -> Value {
    let error = json!({ "type": "execution", "message": message, "code": code,
        "recoverable": true, "recommendation": "Mend it." });
    json!({ "status": "failed", "summary": "It was tried. It broke.", "artifacts": [],
        "errors": [error] })
}

/// What a run left, as the commands tell it.
pub(crate) struct Seen {
    pub(crate) rig: Rig,
    pub(crate) out: Output,
    events: Vec<Value>,
}

pub(crate) fn research(rig: Rig, flags: &[&str]) -> Seen {
    rig.tasks(".adjutant/specs", &[1]);
    let call = rig.call(["run", "/research 1 find it", "--model", rig.model()]);
    let out = call.args(flags).run();
    assert!(!out.stderr.contains("panicked"), "{out}");
    let events = rig.events(&rig.only_run());
    Seen { rig, out, events }
}

impl Seen {
    pub(crate) fn of(&self, kind: &str) -> Vec<&Value> {
        self.events.iter().filter(|event| event["type"] == kind).collect()
    }

    /// Who was let begin, the first first.
    fn granted(&self) -> Vec<&str> {
        let granted = self.of("granted").into_iter();
        granted.map(|it| it["path"].as_array().unwrap().last().unwrap().as_str().unwrap()).collect()
    }

    fn json(&self, command: &str) -> Value {
        let out = self.rig.run([command, "--json"]);
        // Each result has the code of its error.
        let expected = if command == "result" { self.out.code } else { 0 };
        assert_eq!(out.code, expected, "{out}");
        let json = out.json();
        assert_fits(command, &json);
        json
    }

    /// The only result of the command at the root.
    pub(crate) fn result(&self) -> Value {
        let json = self.json("result");
        assert_eq!(json["total"], 1, "{json}");
        json["results"][0].clone()
    }

    /// What went wrong: the code, and how deep. A command that ends as its agent did adds nothing.
    pub(crate) fn errors(&self) -> Vec<(String, u64)> {
        let json = self.json("errors");
        let error = |it: &Value| {
            let depth = it["trajectory"]["failed_at_depth"].as_u64().unwrap();
            (it["code"].as_str().unwrap().to_owned(), depth)
        };
        let mut errors: Vec<_> = json["errors"].as_array().unwrap().iter().map(error).collect();
        errors.sort_by_key(|(_, depth)| *depth);
        errors
    }

    /// The nodes of the tree from the root down the first children.
    fn nodes(&self) -> Vec<Value> {
        let mut at = self.json("tree")["root"].clone();
        let mut nodes = Vec::new();
        while !at.is_null() {
            let below = at["children"][0].clone();
            nodes.push(at);
            at = below;
        }
        nodes
    }
}

#[test]
fn seed_000_test_1_a_cycle_is_refused_and_starts_no_agent() {
    // The deepest level cannot delegate; the second test covers it.
    for (at, agent) in BELOW[..2].iter().enumerate() {
        let play = Play::research().down_to(at);
        // The agent itself and all its ancestors, including the command.
        let again: Vec<&str> = LINE[1..=at + 2].iter().rev().copied().collect();
        let play = play.asks(agent, &again).says(agent, &failed("CYCLE_DETECTED", "x").to_string());
        let seen = research(play.rig(), &[]);
        // The agent whose delegation was refused failed; its parents decide whether the command fails.
        assert_eq!(seen.out.code, i32::from(at == 0), "{}", seen.out);
        assert_eq!(seen.granted(), BELOW[..=at], "somebody worked below");
        let refused = seen.of("refused");
        let messages: Vec<&str> =
            refused.iter().map(|it| it["reason"]["message"].as_str().unwrap()).collect();
        let path = LINE[..=at + 2].join(" → ");
        let expected: Vec<String> =
            again.iter().map(|one| format!("Cycle detected: {path} → {one}")).collect();
        assert_eq!(messages, expected);
        assert!(refused.iter().all(|it| it["reason"]["code"] == "CYCLE_DETECTED"), "{refused:?}");
        let told = seen.of("tool_returned");
        let mut told = told.iter().filter_map(|it| it["content"].as_str());
        assert!(told.any(|text| text.contains(&expected[0])), "nobody was told");
    }
}

#[test]
fn seed_000_test_2_at_the_deepest_level_a_task_is_refused_and_nothing_starts() {
    for deepest in 1..=3 {
        let mut play = Play::research();
        for (at, agent) in BELOW.iter().enumerate() {
            let below = BELOW.get(at + 1).unwrap_or(&"planner");
            play = play.asks(agent, &[below]).writes(agent).completes(agent);
        }
        let limit = format!("max_depth={deepest}");
        let seen = research(play.rig(), &["--set", &limit]);
        assert_eq!(seen.out.code, 0, "{}", seen.out);
        assert_eq!(seen.granted(), BELOW[..deepest], "{limit}");
        let refused = seen.of("tool_refused");
        assert_eq!(refused.len(), 1, "{refused:?}");
        let text = refused[0]["text"].as_str().unwrap();
        assert!(text.contains("`Task` is not available to you"), "{text}");
        assert_eq!(seen.nodes().len(), deepest + 1, "{limit}");
    }
}

/// An answer that takes two hours, as in the guide.
const TWO_HOURS: &str = "delay_ms = 7200000\ntext = \"too late\"";

#[test]
fn seed_000_test_3_a_timeout_returns_partial_results_and_how_to_resume() {
    let began = Instant::now();
    let note = "[[turn.call]]\ntool = \"Note\"\nargs = { content = \"half of it\" }";
    let play = Play::research().turn("researcher", note).turn("researcher", TWO_HOURS);
    let rig = play.rig();
    define(&rig, "researcher", "timeout_s: 2");
    let seen = research(rig, &[]);
    assert!(began.elapsed() < Duration::from_secs(30), "it hung");
    // The time of the agent was up, not that of the command.
    assert_eq!(seen.out.code, 3, "{}", seen.out);
    let result = seen.result();
    assert_eq!((&result["status"], &result["outcome"]), (&json!("partial"), &json!("partial")));
    assert_eq!(result["reason"]["code"], "TIMEOUT", "{result}");
    assert_eq!(result["reason"]["recoverable"], true);
    let advice = result["reason"]["recommendation"].as_str().unwrap();
    let again = format!("`adjutant resume {}`", result["session_id"].as_str().unwrap());
    assert!(advice.contains(&again), "{advice}");
    assert_eq!(result["scratchpad"], "half of it\n", "what was found comes back: {result}");
    assert_eq!(seen.errors(), [("TIMEOUT".to_owned(), 1)]);
    // The one above was told, and went on.
    assert!(seen.out.stdout.contains("I was told:") && seen.out.stdout.contains("TIMEOUT"));
    let resume = format!("Resume with: adjutant resume {}", result["session_id"].as_str().unwrap());
    assert!(seen.out.stdout.contains(&resume), "{}", seen.out);
    assert!(!seen.out.stdout.contains("too late"), "{}", seen.out);
}

#[test]
fn seed_000_test_3_a_parent_has_time_left_to_report_the_timeout_of_its_child() {
    let play = Play::research().down_to(1).turn("specialist", TWO_HOURS);
    let rig = play.rig();
    // The child gets the remaining whole seconds, which is less.
    define(&rig, "researcher", "timeout_s: 3");
    let seen = research(rig, &[]);
    assert_eq!(seen.out.code, 0, "{}", seen.out);
    let [_, above, below] = &seen.nodes()[..] else { panic!("{:?}", seen.nodes()) };
    assert_eq!((&above["state"], &below["state"]), (&json!("completed"), &json!("partial")));
    assert_eq!(below["reason"]["code"], "TIMEOUT", "{below}");
    assert_eq!(seen.errors(), [("TIMEOUT".to_owned(), 2)]);
}

#[test]
fn seed_000_test_4_a_malformed_return_is_refused_with_its_errors() {
    let play = Play::research();
    let bad = "times = \"forever\"\ntext = '{\"status\": \"invalid_status\"}'";
    let seen = research(play.turn("researcher", bad).rig(), &[]);
    assert_eq!(seen.out.code, 1, "{}", seen.out);
    let result = seen.result();
    assert_eq!((&result["status"], &result["outcome"]), (&json!("error"), &json!("failed")));
    assert_eq!(result["reason"]["code"], "VALIDATION_FAILED");
    let message = result["reason"]["message"].as_str().unwrap();
    for part in ["Missing required field: summary", "Invalid status: invalid_status"] {
        assert!(message.contains(part), "{message}");
    }
    assert_eq!(seen.errors(), [("VALIDATION_FAILED".to_owned(), 1)]);
    assert_eq!(seen.granted(), ["researcher"]);
    assert!(seen.out.stdout.contains("VALIDATION_FAILED"), "the one above was told: {}", seen.out);
}

#[test]
fn a_failure_at_any_of_three_levels_reaches_the_top_with_its_code() {
    for broken in 0..BELOW.len() {
        let mut play = Play::research();
        for agent in &BELOW[..broken] {
            let below = BELOW[BELOW.iter().position(|one| one == agent).unwrap() + 1];
            // The agent takes the code from the result of its child.
            let code = "{{result | match /BUILD_ERROR/}}";
            play = play.asks(agent, &[below]);
            play = play.says(agent, &failed(code, &format!("{below} could not")).to_string());
        }
        let why = "3 type errors in `a.lean`";
        let seen =
            research(play.says(BELOW[broken], &failed("BUILD_ERROR", why).to_string()).rig(), &[]);
        assert_eq!(seen.out.code, 1, "{}", seen.out);
        let said = if broken == 0 { why } else { "specialist could not" };
        let result = seen.result();
        let session = result["session_id"].as_str().unwrap();
        let end = format!(
            "Status: Failed\nTask failed but is recoverable. Mend it.\n{said}\n\
             Look with: adjutant transcript {session}\nResume with: adjutant resume {session}\n\
             Task 1 is [IN PROGRESS]\n"
        );
        assert!(seen.out.stdout.ends_with(&end), "{}", seen.out);
        assert_eq!((&result["status"], &result["error"]), (&json!("error"), &json!(said)));
        assert_eq!(result["reason"]["code"], "BUILD_ERROR");
        assert_eq!(result["reason"]["recommendation"], "Mend it.");
        let nodes = seen.nodes();
        assert_eq!(nodes.len(), broken + 2);
        for node in &nodes[1..] {
            assert_eq!(node["state"], "failed", "{node}");
            assert_eq!(node["reason"]["code"], "BUILD_ERROR", "{node}");
        }
        assert_eq!(nodes.last().unwrap()["reason"]["message"], why);
        let expected: Vec<(String, u64)> =
            (1..=broken as u64 + 1).map(|depth| ("BUILD_ERROR".to_owned(), depth)).collect();
        assert_eq!(seen.errors(), expected);
        assert!(seen.out.stdout.contains("Error** (BUILD_ERROR)"), "{}", seen.out);
    }
}

#[test]
fn a_provider_error_at_any_level_fails_that_agent_and_at_the_first_level_the_command() {
    for (broken, agent) in BELOW.iter().enumerate() {
        let play = Play::research().down_to(broken);
        let error = "error = \"bad_request\"\nmessage = \"no such model\"";
        let seen = research(play.turn(agent, error).rig(), &[]);
        assert_eq!(seen.out.code, i32::from(broken == 0), "{}", seen.out);
        let states: Vec<String> = seen.nodes()[1..]
            .iter()
            .map(|node| node["state"].as_str().unwrap().to_owned())
            .collect();
        let mut expected = vec!["completed"; broken];
        expected.push("failed");
        assert_eq!(states, expected);
        assert_eq!(seen.errors(), [("PROVIDER_ERROR".to_owned(), broken as u64 + 1)]);
        let ends = seen.of("ended");
        assert_eq!(ends.len(), broken + 2, "everyone ends once: {ends:?}");
    }
}
