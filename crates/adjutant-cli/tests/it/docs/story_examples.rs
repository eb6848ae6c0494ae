//! Every example of `examples/stories` runs with its one command in a fresh repository, and its tree, its
//! bill and its merge are what `docs/stories.md` says.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::docs::commands::repository;
use crate::support::rig::{BINARY, Rig};
use crate::support::schema::assert_fits;

/// The expected outcome of an example.
struct Expected {
    name: &'static str,
    /// All agents, parents first: id, depth, outcome and merge result.
    tree: &'static [&'static str],
    /// The cost of each story, children included.
    costs: &'static [f64],
    /// The files of the last story's branch that no commit had before.
    files: &'static [&'static str],
}

const EXAMPLES: [Expected; 5] = [
    Expected {
        name: "simple",
        tree: &["US-001 0 completed", "US-001-DEL-001 1 completed merged"],
        costs: &[0.0225],
        files: &["greet.sh"],
    },
    Expected {
        name: "parallel",
        tree: &[
            "US-001 0 completed",
            "US-001-DEL-001 1 completed merged",
            "US-001-DEL-001-DEL-001 2 completed merged",
            "US-001-DEL-002 1 completed merged",
            "US-001-DEL-003 1 completed merged",
            "US-002 0 completed",
        ],
        costs: &[0.054, 0.0135],
        files: &["docs/login.md", "src/token.sh", "tests/token.sh", "ui/login.html"],
    },
    Expected {
        name: "conflict",
        tree: &[
            "US-001 0 completed",
            "US-001-DEL-001 1 completed merged",
            "US-001-DEL-002 1 completed conflict",
        ],
        costs: &[0.045],
        files: &[],
    },
    Expected {
        name: "failure",
        tree: &[
            "US-001 0 completed",
            "US-001-DEL-001 1 failed",
            "US-001-DEL-002 1 completed merged",
        ],
        costs: &[0.0315],
        files: &["count.txt", "page.md"],
    },
    Expected {
        name: "budget",
        tree: &["US-001 0 completed", "US-001-DEL-001 1 refused"],
        costs: &[0.042],
        files: &["summary.txt"],
    },
];

fn folder() -> PathBuf {
    repository().join("examples/stories")
}

/// Types `examples/stories/try`, with the scratch repository in a place of the rig's.
fn tried(rig: &Rig, args: &[&str]) -> (i32, String, String) {
    let programs = Path::new(BINARY).parent().unwrap().display();
    let scratch = rig.path().join("scratch");
    fs::create_dir_all(&scratch).unwrap();
    let out = Command::new("sh")
        .arg(folder().join("try"))
        .args(args)
        .env_clear()
        .envs(rig.environment())
        .env("TMPDIR", scratch)
        // What a person exported for other runs does not count.
        .env("ADJUTANT_MODEL", "script:/no/such/file.toml")
        .env("PATH", format!("{programs}:{}", std::env::var("PATH").unwrap()))
        .current_dir(rig.work())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (out.status.code().unwrap(), text(out.stdout), text(out.stderr))
}

fn git(tree: &Path, args: &[&str]) -> String {
    let out = Command::new("git").arg("-C").arg(tree).args(args).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

fn node(node: &Value) -> String {
    let id = node["id"].as_str().unwrap_or("-");
    let depth = node["depth"].as_u64().unwrap_or(0);
    let merge = node["work"]["merge"].as_str().unwrap_or_default();
    format!("{id} {depth} {} {merge}", node["outcome"].as_str().unwrap()).trim_end().to_owned()
}

fn check(expected: &Expected) {
    let (rig, name) = (Rig::new(), expected.name);
    let (code, stdout, stderr) = tried(&rig, &[name, "--json"]);
    assert_eq!(code, 0, "{name}\n{stdout}\n{stderr}");
    let json: Value = serde_json::from_str(&stdout).unwrap();
    let stories = json["stories"].as_array().unwrap();
    let all = stories
        .iter()
        .flat_map(|story| [story].into_iter().chain(story["children"].as_array().unwrap()));
    assert_eq!(all.map(node).collect::<Vec<_>>(), expected.tree, "{name}: {json:#}");
    let costs = stories.iter().map(|story| story["inclusive"]["cost_usd"].as_f64().unwrap());
    assert_eq!(costs.collect::<Vec<_>>(), expected.costs, "{name}");
    for story in stories {
        assert_eq!((&story["passes"], &story["verified"]), (&true.into(), &true.into()), "{name}");
        let run = story["run"].as_str().unwrap();
        let cost = rig.run(["cost", run, "--json"]);
        assert_fits("cost", &cost.json());
        let (own, below) = (story["own"]["cost_usd"].as_f64().unwrap(), direct(story));
        let sum = own + below;
        let whole = story["inclusive"]["cost_usd"].as_f64().unwrap();
        assert!((sum - whole).abs() < 1e-9, "{name}: {own} and {below} are not {whole}");
    }
    let tree = PathBuf::from(json["prd"].as_str().unwrap()).parent().unwrap().to_owned();
    merged(&rig, &tree, expected, stories);
    written(&tree, name, stories);
    rig.assert_unharmed();
}

/// What the children that a story called itself cost, with all below them.
fn direct(story: &Value) -> f64 {
    let children = story["children"].as_array().unwrap().iter();
    let own = children.filter(|child| child["depth"] == 1);
    own.map(|child| child["inclusive"]["cost_usd"].as_f64().unwrap()).sum()
}

/// The branches are there, the files were left alone, and merging in order brings what was verified.
fn merged(rig: &Rig, tree: &Path, expected: &Expected, stories: &[Value]) {
    let (name, files) = (expected.name, |of: &str| -> BTreeSet<String> {
        git(tree, &["ls-tree", "-r", "--name-only", of]).lines().map(str::to_owned).collect()
    });
    let mut new = BTreeSet::new();
    for story in stories {
        let branch = format!("adjutant/{}", story["id"].as_str().unwrap());
        assert_eq!(git(tree, &["rev-parse", &branch]).trim(), story["commit"], "{name}");
        new.extend(files(&branch).difference(&files("HEAD")).cloned());
    }
    assert_eq!(new.into_iter().collect::<Vec<_>>(), expected.files, "{name}");
    assert_eq!(
        git(tree, &["status", "--porcelain"]),
        " M prd.json\n",
        "{name}: only the PRD changed"
    );
    for story in stories {
        let merge = rig.call(["merge", story["run"].as_str().unwrap()]).cwd(tree).run();
        assert_eq!(merge.code, 0, "{name}: {merge}");
    }
    for story in stories {
        let verify = story["verify"].as_str().unwrap();
        let passes = Command::new("sh").args(["-c", verify]).current_dir(tree).status().unwrap();
        assert!(passes.success(), "{name}: {verify}");
    }
    // Failed or conflicting work is not part of a story.
    assert!(!tree.join("schema.sql").exists());
}

/// The PRD contains the outcome of the story and its children.
fn written(tree: &Path, name: &str, stories: &[Value]) {
    let text = fs::read_to_string(tree.join("prd.json")).unwrap();
    let prd: Value = serde_json::from_str(&text).unwrap();
    let entries = prd["userStories"].as_array().unwrap();
    let entry = |id: &Value| entries.iter().find(|it| it["id"] == *id);
    for story in stories {
        assert_eq!(entry(&story["id"]).unwrap()["passes"], true, "{name}: {text}");
        let children = story["children"].as_array().unwrap().iter();
        for child in children.filter(|child| child["outcome"] != "refused") {
            let entry = entry(&child["id"]).unwrap_or_else(|| panic!("{name}: {child}\n{text}"));
            // Conflicting work is not part of the story, whatever the outcome of its agent.
            let is_in = child["work"]["merge"] != "conflict";
            let passes = child["outcome"] == "completed" && is_in;
            assert_eq!(entry["passes"], passes, "{name}: {entry}");
        }
    }
}

#[test]
fn a_simple_story() {
    check(&EXAMPLES[0]);
}

#[test]
fn three_at_once_one_of_them_nested_and_a_story_that_depends_on_it() {
    check(&EXAMPLES[1]);
}

#[test]
fn a_conflict_that_the_parent_resolves() {
    check(&EXAMPLES[2]);
}

#[test]
fn a_child_that_fails() {
    check(&EXAMPLES[3]);
}

#[test]
fn a_task_that_does_not_fit_the_context() {
    check(&EXAMPLES[4]);
}

#[test]
fn the_guide_lists_every_example_with_its_cost_and_outcome() {
    let names = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap());
    let names = names.filter(|entry| entry.path().is_dir());
    let there: BTreeSet<String> =
        names.map(|entry| entry.file_name().into_string().unwrap()).collect();
    assert_eq!(there, EXAMPLES.iter().map(|it| it.name.to_owned()).collect());
    let guide = fs::read_to_string(repository().join("docs/stories.md")).unwrap();
    for expected in &EXAMPLES {
        let row = guide.lines().find(|line| line.starts_with(&format!("| `{}` |", expected.name)));
        let cells: Vec<&str> = row.unwrap().split('|').map(str::trim).collect();
        let [_, _, _, spent, ends, _] = cells[..] else { panic!("{cells:?}") };
        assert_eq!(spent, format!("${:.4}", expected.costs.iter().sum::<f64>()));
        let count = expected.costs.len();
        let passes = if count == 1 { "story passes" } else { "stories pass" };
        assert_eq!(ends, format!("{count} of {count} {passes}"));
    }
}

/// The same command with `--model` uses another model.
#[test]
fn an_example_runs_on_another_model_with_one_flag() {
    let rig = Rig::new();
    let (code, _, said) = tried(&rig, &["simple", "--model", "anthropic/claude-haiku-4-5"]);
    assert_ne!(code, 0);
    assert!(said.contains("no API key for provider anthropic"), "{said}");
}

#[test]
fn an_unknown_example_is_named() {
    let (code, _, said) = tried(&Rig::new(), &["nothing"]);
    assert_eq!(code, 2);
    assert!(said.contains("there is no example nothing"), "{said}");
}
