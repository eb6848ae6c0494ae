//! The bars of the pure core, measured in this process.

use adjutant_core::story_graph::StoryGraph;
use adjutant_core::{Command, Event, Preset, Timestamp, Tree};
use adjutant_formats::contract::{ReturnContract, unchecked, validate};
use adjutant_formats::marker::{self, MarkerContext};

use crate::Failure;
use crate::history::{TreeDriver, run_id, task, unlimited_policy};
use crate::sample::{Plan, Spread, cpu_micros};
use crate::table::{MICROS, MILLIS, NANOS, Row, TIMES};
use crate::task_bars;

/// Rounds of everything here: each is short.
const ROUNDS: usize = 15;

/// A return as the standard's own example has it.
const RETURN: &str = r#"{
  "status": "completed",
  "summary": "Research completed on three search tools. All of them have official interfaces: one speaks HTTP, one has a command line, one offers REST endpoints. The REST integration is the smallest step and should come first.",
  "artifacts": [
    {"type": "research", "path": "specs/195_tools/reports/research-001.md", "summary": "Interfaces of all three tools"},
    {"type": "summary", "path": "specs/195_tools/summaries/research-summary.md", "summary": "Findings and recommendation"}
  ],
  "metadata": {
    "session_id": "sess_1790000000_abc123",
    "duration_seconds": 1250,
    "agent_type": "researcher",
    "delegation_depth": 1,
    "delegation_path": ["orchestrator", "research", "researcher"]
  },
  "errors": [],
  "next_steps": "Create a plan for the REST integration."
}"#;

/// Measures the group.
pub(crate) fn measure(plan: &Plan) -> Result<Vec<Row>, Failure> {
    let mut rows = measure_admission(plan, Preset::Scout)?;
    rows.extend(measure_admission(plan, Preset::Story)?);
    rows.extend(measure_graph_search(plan));
    rows.push(measure_marker_parsing(plan)?);
    rows.push(measure_return_validation(plan)?);
    rows.push(task_bars::measure_update(plan)?);
    Ok(rows)
}

/// One more task, as a tree with so many live delegations judges it.
fn measure_admission(plan: &Plan, preset: Preset) -> Result<Vec<Row>, Failure> {
    let sizes = [10, plan.pick(1_000, 50), plan.pick(10_000, 100)];
    let calls = plan.pick(500, 20);
    let trees = sizes.map(|live| live_tree(preset, live));
    let mut taken = [const { Vec::new() }; 3];
    for _ in 0..plan.pick(ROUNDS, 2) {
        for ((tree, live), taken) in trees.iter().zip(sizes).zip(&mut taken) {
            let tree = tree.as_ref().map_err(ToString::to_string)?;
            taken.push(time_admission(tree, live, calls)?);
        }
    }
    let [small, middle, large] = taken.map(Spread::of);
    let row = |live: usize, spread: Spread| {
        let what = format!("admission, {preset}, {live} live delegations");
        Row::at_most(what, spread, 10.0, MICROS)
    };
    let flat = Spread::exact(large.median / small.median);
    Ok(vec![
        row(sizes[0], small),
        row(sizes[1], middle),
        row(sizes[2], large),
        Row::at_most(
            format!("admission, {preset}, {} against {}", sizes[2], sizes[0]),
            flat,
            3.0,
            TIMES,
        ),
    ])
}

fn live_tree(preset: Preset, live: usize) -> Result<Tree, Failure> {
    let mut sink = |_: Timestamp, _: &Event| Ok(());
    let mut driver = TreeDriver::begin(run_id(1), &unlimited_policy(preset), &mut sink)?;
    driver.delegate(live)?;
    let working = driver.tree.nodes().filter(|node| node.reservation().is_some()).count();
    if working != live {
        return Err(format!("{working} of {live} delegations are live").into());
    }
    Ok(driver.tree)
}

/// Returns the microseconds of one decision; none of them changes the tree.
fn time_admission(tree: &Tree, live: usize, calls: usize) -> Result<f64, Failure> {
    let parent = run_id(1).root_session();
    let commands = (0..calls)
        .map(|number| {
            let tasks = vec![task(tree.policy(), live + number + 1)?];
            Ok(Command::Delegate { parent, tasks, concurrency: None, origin: None })
        })
        .collect::<Result<Vec<_>, Failure>>()?;
    let mut answers = Vec::with_capacity(calls);
    let taken = cpu_micros(|| {
        for command in commands {
            answers.push(tree.decide(Timestamp::ZERO, command));
        }
    });
    let granted = |answer: &Result<Vec<Event>, _>| {
        answer.as_ref().is_ok_and(|events| matches!(events.first(), Some(Event::Granted(_))))
    };
    if !answers.iter().all(granted) {
        return Err(format!("a task was not admitted: {:?}", answers.first()).into());
    }
    Ok(taken / calls as f64)
}

/// A search that visits every edge and finds nothing.
fn measure_graph_search(plan: &Plan) -> Vec<Row> {
    let sizes = [1_000, plan.pick(10_000, 2_000), plan.pick(100_000, 4_000)];
    let graphs = sizes.map(diamond_graph);
    let mut taken = [const { Vec::new() }; 3];
    for _ in 0..plan.pick(ROUNDS, 2) {
        for ((graph, edges), taken) in graphs.iter().zip(sizes).zip(&mut taken) {
            let searches = sizes[2] / edges;
            let micros = cpu_micros(|| {
                (0..searches).filter(|_| graph.cycle_closed_by("top", "0").is_some()).count()
            });
            taken.push(micros * 1_000.0 / (searches * edges) as f64);
        }
    }
    let [small, middle, large] = taken.map(Spread::of);
    let worst = middle.median.max(large.median) / small.median;
    let what = |edges: usize| format!("graph search, per edge of {edges}");
    vec![
        Row::info(what(sizes[0]), small, NANOS),
        Row::info(what(sizes[1]), middle, NANOS),
        Row::info(what(sizes[2]), large, NANOS),
        Row::at_most(
            "graph search, dearest edge against the small graph's",
            Spread::exact(worst),
            3.0,
            TIMES,
        ),
    ]
}

fn diamond_graph(edges: usize) -> StoryGraph {
    let mut graph = StoryGraph::default();
    graph.connect("top", "0");
    for story in 0..edges / 2 {
        graph.connect(&story.to_string(), &(story + 1).to_string());
        graph.connect(&story.to_string(), &(story + 2).to_string());
    }
    graph
}

fn measure_marker_parsing(plan: &Plan) -> Result<Row, Failure> {
    let count = 1_000;
    let text: String = (0..count)
        .map(|number| {
            format!("Part {number} is large, so `it` goes on.\n[delegate:Split module {number} [core] in two:2]\n\n")
        })
        .collect();
    let request = MarkerContext { parent: "US-001", depth: 0, start: 1, max: count };
    let found = marker::parse(&text, &request).delegations.len();
    if found != count {
        return Err(format!("{found} of {count} markers were found").into());
    }
    let spread = plan.rounds(ROUNDS, || {
        Ok::<_, Failure>(cpu_micros(|| marker::parse(&text, &request)) / 1_000.0)
    })?;
    Ok(Row::at_most("parse 1000 markers", spread, 2.0, MILLIS))
}

fn measure_return_validation(plan: &Plan) -> Result<Row, Failure> {
    let contract = ReturnContract::default();
    if validate(RETURN, &contract, &unchecked).accepted().is_none() {
        return Err("the sample return is not valid".into());
    }
    let times = plan.pick(500, 20);
    let spread = plan.rounds(ROUNDS, || {
        let micros = cpu_micros(|| {
            (0..times)
                .filter(|_| validate(RETURN, &contract, &unchecked).accepted().is_some())
                .count()
        });
        Ok::<_, Failure>(micros / times as f64)
    })?;
    Ok(Row::at_most("validate a typical return", spread, 50.0, MICROS))
}
