//! The same work on this machine and on a cluster: the same results, exit codes and kinds of events.

use std::collections::BTreeMap;
use std::fs;

use serde_json::json;

use crate::cluster::node::{Cluster, server};
use crate::support::project::{Project, done, one_story, runs, says, writes};
use crate::support::rig::{COMMANDS, Output, Rig};
use crate::support::terminal::Terminal;

/// One piece of work.
struct Scenario {
    name: &'static str,
    project: fn() -> Project,
    args: &'static [&'static str],
    /// The exit code of both.
    exit: i32,
}

fn script(turns: &str) -> Project {
    let project = Project::new(&one_story(), []);
    fs::write(project.rig().path().join("script.toml"), turns).unwrap();
    project
}

const SCENARIOS: [Scenario; 8] = [
    Scenario {
        name: "a parent and children three deep",
        project: || {
            script(
                "
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
",
            )
        },
        args: &["delegate", "--yes", "--set", "max_depth=3", "-t", "one=Go"],
        exit: 0,
    },
    Scenario {
        name: "a delegation that the limits refuse",
        project: || {
            script(
                "
[[turn]]
text = \"\"
[[turn.call]]
tool = \"Delegate\"
args = { tasks = [{ label = \"a\", prompt = \"Look\" }, { label = \"b\", prompt = \"Look\" }] }
[[turn]]
text = \"{{result | first_line}}\"
",
            )
        },
        args: &[
            "delegate",
            "--yes",
            "--set",
            "max_depth=2",
            "--set",
            "children_per_parent=1",
            "-t",
            "x=Go",
        ],
        exit: 0,
    },
    Scenario {
        name: "writers with a command and a verify command",
        project: || {
            let turns =
                [writes("a", "a.txt", "by a\n"), runs("a", "cat a.txt"), says("a", "Done.")];
            Project::new(&one_story(), turns)
        },
        args: &["delegate", "--yes", "--write", "--verify", "grep -q by a.txt", "-t", "a=Write"],
        exit: 0,
    },
    Scenario {
        name: "a verify command that fails",
        project: || {
            let turns = [
                writes("a", "a.txt", "by a\n"),
                says("a", "Done."),
                says("a", "Really."),
                says("a", "Again."),
                says("a", "So."),
            ];
            Project::new(&one_story(), turns)
        },
        args: &["delegate", "--yes", "--write", "--verify", "false", "-t", "a=Write"],
        exit: 3,
    },
    Scenario {
        name: "a slash command",
        project: || {
            let project = script(COMMANDS);
            project.rig().tasks(".adjutant/specs", &[1]);
            project.repo.commit("tasks");
            project
        },
        args: &["run", "--yes", "/research 1"],
        exit: 0,
    },
    Scenario {
        name: "a story with markers, whose children are merged",
        project: || {
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
        args: &["story", "prd.json", "--yes", "--enable-delegation"],
        exit: 0,
    },
    Scenario {
        name: "a budget at its edge",
        project: || {
            script(
                "[[turn]]\ntext = \"\"\n[[turn.call]]\ntool = \"Glob\"\nargs = { pattern = \"*\" }\n[[turn]]\ntext = \"Seen.\"\n",
            )
        },
        args: &["delegate", "--yes", "--budget-tokens", "6000", "-t", "a=Look"],
        exit: 3,
    },
    Scenario {
        name: "a model that fails",
        project: || script("[[turn]]\nerror = \"bad_request\"\nmessage = \"no\"\n"),
        args: &["delegate", "--yes", "-t", "a=Look", "-t", "b=Look"],
        exit: 1,
    },
];

impl Scenario {
    fn run(&self, runtime: &str) -> (Project, Output) {
        let project = (self.project)();
        let path = project.rig().path().to_owned();
        let named = ["script.toml", "script.json"].map(|name| path.join(name));
        let script = named.iter().find(|path| path.is_file()).unwrap();
        let model = format!("script:{}", script.display());
        let args = [self.args, &["--model", &model, "--runtime", runtime]].concat();
        let output = project.call(&args).run();
        (project, output)
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
        let (here, local) = scenario.run("local");
        let (there, remote) = scenario.run(&cluster.runtime());
        assert_eq!(remote.code, local.code, "{name}:\n{remote}\ninstead of\n{local}");
        assert_eq!(times_removed(&remote.data()), times_removed(&local.data()), "{name}");
        assert_eq!(kinds(there.rig()), kinds(here.rig()), "{name}:\n{remote}");
        assert_eq!(local.code, scenario.exit, "{name}: {local}");
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
