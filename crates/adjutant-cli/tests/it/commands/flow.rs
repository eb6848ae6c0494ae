//! A task from `/task` to its code, in an empty folder: `/task`, `/research`, which the user
//! interrupts and resumes, `/plan`, `/implement`. The same play on the scripted model and on strict
//! fakes of two providers.

use std::fs;

use adjutant_testkit::fake::{Api, Script, Turn};
use rustix::process::Signal;
use serde_json::Value;

use crate::support::rig::{COMMANDS, Call, Output, Rig};
use crate::support::schema::assert_fits;
use crate::support::server::Server;

/// Who the agents of the play are, by what stands in the first message that each gets. What an agent
/// is asked comes before the command that asks it.
const FIRST_WORDS: [(&str, &str); 6] = [
    ("researcher", "Find out what it takes."),
    ("planner", "Lay out the steps;"),
    ("implementer", "Follow the plan in the specs folder."),
    ("research", "/research 1"),
    ("plan", "/plan 1"),
    ("implement", "/implement 1"),
];

/// The answer of the researcher that takes longer than any test waits.
const RETURNS: &str = "agent = \"researcher\"\ntext = ";

/// Before it, the researcher looks at what it wrote: once this is seen, the file was written and
/// nothing is lost with what is interrupted.
const LOOKS: &str = r#"agent = "researcher"
[[turn.call]]
tool = "Read"
args = { path = ".adjutant/specs/1_add_jwt/reports/research-001.md" }
[[turn]]
"#;

/// What answers: the script itself, or a fake that was told to say the same.
enum Model {
    Script,
    Fake(Server),
}

impl Model {
    /// Begins to play; `hangs` keeps the researcher's last answer back.
    fn play(api: Option<Api>, rig: &Rig, hangs: bool) -> Self {
        assert!(COMMANDS.contains(RETURNS));
        let wait = if hangs { "\ndelay_ms = 300000\n" } else { "\n" };
        let text = COMMANDS.replace(RETURNS, &format!("{LOOKS}{}", RETURNS.replace('\n', wait)));
        match api {
            None => {
                fs::write(rig.path().join("script.toml"), text).unwrap();
                Self::Script
            }
            Some(api) => Self::Fake(Server::start(api, told(&text))),
        }
    }

    fn call<'rig>(&self, rig: &'rig Rig, args: &[&str]) -> Call<'rig> {
        match self {
            Self::Script => rig.call(args).args(["--model", rig.model()]),
            Self::Fake(server) => server.call(rig, args).args(["--model", "fake/priced"]),
        }
    }
}

/// Tells a fake what the script says.
fn told(text: &str) -> Script {
    let play: toml::Table = toml::from_str(text).unwrap();
    let play: Value = serde_json::to_value(play).unwrap();
    let turns = play["turn"].as_array().unwrap();
    FIRST_WORDS.iter().fold(Script::new(), |script, (agent, when)| {
        let own = turns.iter().filter(|turn| turn["agent"] == *agent);
        script.on(when, own.map(turn))
    })
}

fn turn(turn: &Value) -> Turn {
    let said = match turn["text"].as_str() {
        Some(text) => Turn::says(text),
        None => {
            let call = &turn["call"][0];
            Turn::calls(call["tool"].as_str().unwrap(), &call["args"])
        }
    };
    said.delivered(|way| way.delay_ms = turn["delay_ms"].as_u64().unwrap_or_default())
}

fn todo(rig: &Rig) -> String {
    fs::read_to_string(rig.work().join(".adjutant/specs/TODO.md")).unwrap()
}

/// The stages that were seen, all of them of one delegation and without a fault.
fn stages(out: &Output) -> Vec<String> {
    assert_eq!(out.code, 0, "{out}");
    let events: Vec<Value> = out.lines().inspect(|event| assert_fits("events", event)).collect();
    let seen: Vec<&Value> = events.iter().filter(|it| it["event"] == "stage").collect();
    assert!(seen.iter().all(|it| it["ok"] == true), "{seen:?}");
    assert!(seen.iter().all(|it| it["session_id"] == seen[0]["session_id"]), "{seen:?}");
    seen.iter().map(|it| it["stage"].as_str().unwrap().to_owned()).collect()
}

const STAGES: [&str; 5] = ["prepare", "invoke", "receive", "validate", "process"];

/// Interrupts `/research 1` in the middle and returns the session in the recommended resume command.
fn interrupted(rig: &Rig, api: Option<Api>) -> String {
    let model = Model::play(api, rig, true);
    let mut run = model.call(rig, &["run", "/research 1"]).start();
    run.wait_for("[researcher] Read .adjutant/specs/1_add_jwt").signal(Signal::INT);
    let out = run.finish();
    assert_eq!(out.code, 130, "{out}");
    assert!(out.stdout.starts_with("Task: 1\n\nStatus: Partial\n"), "{out}");
    assert!(out.stdout.ends_with("Task 1 is [IN PROGRESS]\n"), "{out}");
    assert!(todo(rig).contains("- **Status**: [IN PROGRESS]\n"), "{}", todo(rig));
    let line = out.stdout.lines().find_map(|it| it.strip_prefix("Resume with: adjutant resume "));
    line.unwrap_or_else(|| panic!("{out}")).to_owned()
}

fn add_research_plan_and_implement(api: Option<Api>) {
    let rig = Rig::new();
    let out = rig.run(["run", "/task \"Add JWT\""]);
    assert_eq!(out.code, 0, "{out}");
    let session = interrupted(&rig, api);

    let model = Model::play(api, &rig, false);
    let out = model.call(&rig, &["resume", &session, "--events"]).run();
    assert_eq!(stages(&out), STAGES[1..], "it was prepared before: {out}");
    assert!(todo(&rig).contains("- **Status**: [RESEARCHED]\n"), "{}", todo(&rig));

    for (goal, status) in [("/plan 1", "PLANNED"), ("/implement 1 --in-place", "COMPLETED")] {
        let out = model.call(&rig, &["run", goal, "--events"]).run();
        assert_eq!(stages(&out), STAGES, "{goal}: {out}");
        assert!(todo(&rig).contains(&format!("- **Status**: [{status}]\n")), "{goal}: {out}");
    }

    let todo = todo(&rig);
    let specs = rig.work().join(".adjutant/specs");
    for (kind, said) in [
        ("Research", "Nothing signs sessions yet."),
        ("Plan", "# Plan for task 1"),
        ("Implementation", "sign(claims, key) -> token"),
    ] {
        let links: Vec<&str> =
            todo.lines().filter(|line| line.starts_with(&format!("- **{kind}**: ["))).collect();
        assert_eq!(links.len(), 1, "{kind}: {todo}");
        let target = links[0].rsplit_once("](").unwrap().1.strip_suffix(')').unwrap();
        let text = fs::read_to_string(specs.join(target)).unwrap();
        assert!(text.contains(said), "{kind}: {text}");
    }
    rig.assert_unharmed();
}

#[test]
fn a_task_is_added_researched_planned_and_implemented_on_the_scripted_model() {
    add_research_plan_and_implement(None);
}

#[test]
fn a_task_is_added_researched_planned_and_implemented_on_a_fake_of_anthropic() {
    add_research_plan_and_implement(Some(Api::Anthropic));
}

#[test]
fn a_task_is_added_researched_planned_and_implemented_on_a_fake_of_chat() {
    add_research_plan_and_implement(Some(Api::Chat));
}
