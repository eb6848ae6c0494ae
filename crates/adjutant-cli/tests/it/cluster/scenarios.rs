//! The same work on this machine and on a cluster: the same reports, exit codes, files and kinds of events.

use std::collections::BTreeMap;
use std::fs;

use serde_json::{Value, json};

use crate::cluster::node::{Cluster, server};
use crate::support::project::{Project, done, one_story, runs, says, writes};
use crate::support::rig::{COMMANDS, Output, Rig};
use crate::support::terminal::Terminal;

/// One piece of work.
struct Scenario {
    name: &'static str,
    project: fn() -> Project,
    args: &'static [&'static str],
    /// A command to call while the first agent works.
    meanwhile: &'static [&'static str],
    /// Commands to call afterwards. `RUN` is the run, and an agent's label in `<>` its session.
    then: &'static [&'static [&'static str]],
    /// The exit code of the first command.
    exit: i32,
}

impl Scenario {
    /// Work that is over when its command is.
    const fn new(
        name: &'static str,
        args: &'static [&'static str],
        exit: i32,
        project: fn() -> Project,
    ) -> Self {
        Self { name, project, args, meanwhile: &[], then: &[], exit }
    }

    const fn meanwhile(self, meanwhile: &'static [&'static str]) -> Self {
        Self { meanwhile, ..self }
    }

    const fn then(self, then: &'static [&'static [&'static str]]) -> Self {
        Self { then, ..self }
    }
}

/// What became of a scenario.
#[derive(Debug, PartialEq)]
struct Ending {
    /// The exit code and the output of each command.
    outputs: Vec<(i32, String)>,
    /// All results of the run.
    report: Value,
    /// How often each kind of event is in its journal.
    kinds: BTreeMap<String, usize>,
    /// The user's files that are not as they were.
    changes: String,
}

fn script(turns: &str) -> Project {
    let project = Project::new(&one_story(), []);
    fs::write(project.rig().path().join("script.toml"), turns).unwrap();
    project
}

const GLOB: &str = "
[[turn]]
text = \"Looking.\"
[[turn.call]]
tool = \"Glob\"
args = { pattern = \"*\" }
";

const TWO_CHILDREN: &str = "
[[turn]]
text = \"\"
[[turn.call]]
tool = \"Delegate\"
args = { tasks = [{ label = \"a\", prompt = \"Look\" }, { label = \"b\", prompt = \"Look\" }] }
[[turn]]
text = \"{{result | first_line}}\"
";

const THREE_DEEP: &str = "
[[turn]]
label = \"one\"
text = \"\"
[[turn.call]]
tool = \"Delegate\"
args = { tasks = [{ label = \"two\", prompt = \"Look\" }, { label = \"other\", prompt = \"Look\" }] }
[[turn]]
label = \"one\"
text = \"All is seen.\"
[[turn]]
label = \"two\"
text = \"\"
[[turn.call]]
tool = \"Delegate\"
args = { tasks = [{ label = \"three\", prompt = \"Look\" }] }
[[turn]]
label = \"two\"
text = \"{{result | first_line}}\"
[[turn]]
text = \"Seen.\"
";

const LATE: &str = "[[turn]]\ndelay_ms = 60000\ntext = \"Late.\"\n";

const SCENARIOS: [Scenario; 13] = [
    Scenario::new(
        "readers",
        &["delegate", "--yes", "-t", "a=Look", "-t", "b=Look again"],
        0,
        || script(&(GLOB.to_owned() + "[[turn]]\ntext = \"Found {{result | first_line}}\"\n")),
    )
    .then(&[&["tree", "RUN"], &["result", "RUN"], &["errors", "RUN"]]),
    Scenario::new(
        "a parent and children three deep",
        &["delegate", "--yes", "--set", "max_depth=3", "-t", "one=Go"],
        0,
        || script(THREE_DEEP),
    ),
    Scenario::new(
        "a delegation that the limits refuse",
        &[
            "delegate",
            "--yes",
            "--set",
            "max_depth=2",
            "--set",
            "children_per_parent=1",
            "-t",
            "x=Go",
        ],
        0,
        || script(TWO_CHILDREN),
    ),
    Scenario::new(
        "writers with a command and a verify command",
        &["delegate", "--yes", "--write", "--verify", "grep -q by a.txt", "-t", "a=Write"],
        0,
        || {
            let turns =
                [writes("a", "a.txt", "by a\n"), runs("a", "cat a.txt"), says("a", "Done.")];
            Project::new(&one_story(), turns)
        },
    )
    .then(&[&["merge", "RUN"], &["diff", "RUN"], &["merge", "--undo"]]),
    Scenario::new(
        "a verify command that fails",
        &["delegate", "--yes", "--write", "--verify", "false", "-t", "a=Write"],
        3,
        || {
            let turns = [
                writes("a", "a.txt", "by a\n"),
                says("a", "Done."),
                says("a", "Really."),
                says("a", "Again."),
                says("a", "So."),
            ];
            Project::new(&one_story(), turns)
        },
    ),
    Scenario::new("a slash command", &["run", "--yes", "/research 1"], 0, || {
        let project = script(COMMANDS);
        project.rig().tasks(".adjutant/specs", &[1]);
        project.repo.commit("tasks");
        project
    }),
    Scenario::new(
        "a story with markers, whose children are merged",
        &["story", "prd.json", "--yes", "--enable-delegation"],
        0,
        || {
            let turns = [
                says("US-001", "[delegate:Implement JWT:1]\n[delegate:Create UI:1]"),
                done("US-001"),
                writes("Implement JWT", "jwt", "by jwt\n"),
                done("Implement JWT"),
                writes("Create UI", "ui", "by ui\n"),
                done("Create UI"),
            ];
            Project::new(&one_story(), turns)
        },
    ),
    Scenario::new(
        "a budget at its edge",
        &["delegate", "--yes", "--budget-tokens", "6000", "-t", "a=Look"],
        3,
        || script(&(GLOB.to_owned() + "[[turn]]\ntext = \"Seen.\"\n")),
    ),
    Scenario::new(
        "a model that fails",
        &["delegate", "--yes", "-t", "a=Look", "-t", "b=Look"],
        1,
        || script("[[turn]]\nerror = \"bad_request\"\nmessage = \"no\"\n"),
    ),
    Scenario::new(
        "a question, which is answered",
        &["delegate", "--yes", "--set", "contract=standard", "-t", "docs=Describe it"],
        5,
        asks_for_whom,
    )
    .then(&[
        &["resume", "<docs>", "--say", "users"],
        &["resume", "<docs>", "--say", "once more"],
        &["result", "RUN"],
    ]),
    Scenario::new(
        "a writer that is told to do more after its end",
        &["delegate", "--yes", "--write", "-t", "a=Write"],
        0,
        || {
            let turns = [
                writes("a", "a.txt", "by a\n"),
                says("a", "Done."),
                runs("a", "cat a.txt && echo more >> a.txt"),
                says("a", "Done again."),
            ];
            Project::new(&one_story(), turns)
        },
    )
    .then(&[&["resume", "<a>", "--say", "more"], &["diff", "RUN"], &["merge", "RUN"]]),
    Scenario::new("work that is cancelled", &["delegate", "--yes", "-t", "a=Wait"], 130, || {
        script(LATE)
    })
    .meanwhile(&["cancel", "RUN"]),
    Scenario::new(
        "a deadline that passes",
        &["delegate", "--yes", "--set", "timeout_s=1", "-t", "a=Wait"],
        3,
        || script(LATE),
    ),
];

/// Asks a question in its first turn, and ends with the answer.
fn asks_for_whom() -> Project {
    let error = json!({
        "type": "validation",
        "message": "For users or for developers?",
        "code": "VALIDATION_FAILED",
        "recoverable": true,
        "recommendation": "Say which",
    });
    let asks = json!({
        "status": "blocked",
        "summary": "There are two readers. I need to know which one is meant.",
        "artifacts": [],
        "errors": [error],
    });
    let done = json!({
        "status": "completed",
        "summary": "It is written. I wrote it for {{last}}.",
        "artifacts": [],
        "errors": [],
    });
    let turn = |text| format!("[[turn]]\nlabel = 'docs'\ntext = '{text}'\n");
    script(&(turn(asks) + &turn(done)))
}

impl Scenario {
    fn run(&self, runtime: &str) -> (Project, Ending) {
        let project = (self.project)();
        let rig = project.rig();
        let named = ["script.toml", "script.json"].map(|name| rig.path().join(name));
        let script = named.iter().find(|path| path.is_file()).unwrap();
        let model = format!("script:{}", script.display());
        let args = [self.args, &["--model", &model, "--runtime", runtime]].concat();
        let mut front = project.call(&args).start();
        if !self.meanwhile.is_empty() {
            front.wait_for("started");
            let output = project.call(named_args(&project, self.meanwhile)).run();
            assert_eq!(output.code, 0, "{output}");
        }
        let first = front.finish();
        assert_eq!(first.code, self.exit, "{}: {first}", self.name);
        let then = self.then.iter().map(|args| project.call(named_args(&project, args)).run());
        let outputs: Vec<Output> = [first].into_iter().chain(then).collect();
        let report = rig.run(["result", &rig.only_run(), "--json"]);
        let ending = Ending {
            outputs: outputs.iter().map(|it| (it.code, times_removed(&it.data()))).collect(),
            report: serde_json::from_str(&report.data()).map(without_times).unwrap(),
            kinds: kinds(rig),
            changes: project.repo.git(["status", "--porcelain"])
                + &project.repo.git(["diff", "--stat"]),
        };
        (project, ending)
    }
}

fn named_args(project: &Project, args: &[&str]) -> Vec<String> {
    let run = project.rig().only_run();
    let named = |arg: &&str| match arg.strip_prefix('<').and_then(|it| it.strip_suffix('>')) {
        Some(label) => project.session(&run, label),
        None if *arg == "RUN" => run.clone(),
        None => (*arg).to_owned(),
    };
    args.iter().map(named).collect()
}

/// Removes members that are about time, and the ids of commits, which contain it.
fn without_times(value: Value) -> Value {
    let is_time = |name: &str| {
        name.starts_with("duration_")
            || name.ends_with("_ms")
            || name.ends_with("_at")
            || ["at", "commit"].contains(&name)
    };
    match value {
        Value::Object(members) => {
            let kept = members.into_iter().filter(|(name, _)| !is_time(name));
            kept.map(|(name, value)| (name, without_times(value))).collect()
        }
        Value::Array(items) => items.into_iter().map(without_times).collect(),
        Value::String(text) => times_removed(&text).into(),
        plain @ (Value::Null | Value::Bool(_) | Value::Number(_)) => plain,
    }
}

/// Returns how often each kind of event is in the only run.
fn kinds(rig: &Rig) -> BTreeMap<String, usize> {
    let mut kinds = BTreeMap::new();
    for event in rig.events(&rig.only_run()) {
        // Their number depends on speed.
        if !["progressed", "printed"].contains(&event["type"].as_str().unwrap()) {
            *kinds.entry(event["type"].to_string()).or_default() += 1;
        }
    }
    kinds
}

#[test]
fn work_on_a_cluster_ends_as_it_does_here() {
    let Some(node) = server() else { return };
    let base = Rig::new();
    let mut cluster = Cluster::start(&base, node);
    cluster.start_worker("one", None);
    cluster.start_worker("two", None);
    for scenario in SCENARIOS {
        let name = scenario.name;
        let (_, local) = scenario.run("local");
        let (there, remote) = scenario.run(&cluster.runtime());
        assert_eq!(remote, local, "{name}");
        let address = there.rig().run_folder(&there.rig().only_run()).join("runtime");
        assert!(address.is_file(), "{name} was at work on the cluster");
        there.rig().assert_unharmed();
    }
}

/// Removes how long commands took.
fn times_removed(text: &str) -> String {
    let is_time = |word: &str| {
        let word = word.trim_end_matches([',', ')']);
        word.strip_suffix('s').is_some_and(|number| number.parse::<f64>().is_ok())
            || word.parse::<f64>().is_ok()
    };
    text.split_whitespace().filter(|word| !is_time(word)).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_question_of_a_run_on_a_cluster_is_answered_by_its_front_end() {
    let Some(node) = server() else { return };
    let rig = Rig::with_script("[[turn]]\ntext = \"Seen.\"\n");
    let mut cluster = Cluster::start(&rig, node);
    cluster.start_worker("one", None);
    let runtime = cluster.runtime();
    let args = ["delegate", "--model", rig.model(), "--runtime", &runtime, "-t", "a=Look"];
    for (answer, code, granted) in [("y\n", 0, 1), ("n\n", 4, 0)] {
        let before = rig.runs();
        let mut terminal = Terminal::start(&rig, 100, &[], &args);
        terminal.wait_for("Start");
        terminal.types(answer);
        assert_eq!(terminal.finish(), code);
        let run = rig.runs().into_iter().find(|run| !before.contains(run)).unwrap();
        let events = rig.events(&run);
        assert_eq!(
            events.iter().filter(|it| it["type"] == "started").count(),
            granted,
            "{}",
            json!(events)
        );
    }
}
