//! Part of `lifecycle`: calls that change files.

use adjutant_core::{
    AgentName, ContentChange, ResumeOptions, Rights, ToolSet, WriteFinding, WriteScope,
};

use super::*;

fn writer() -> (Sim, SessionId) {
    let settings = ["approval=none", "contract=report"];
    let mut sim = Sim::new(policy(Preset::Command, &settings));
    let child = sim.child(about("x"));
    (sim, child)
}

fn write(id: &str, path: &str) -> ToolCall {
    tool(id, "Write", json!({ "file_path": path, "content": id }))
}

fn change(path: &str) -> ContentChange {
    ContentChange { path: path.into(), before: None, after: Some("after".into()) }
}

fn prepare(session: SessionId, call: u32, path: &str) -> Command {
    Command::PrepareWrite { session, turn: 1, call, intent: change(path).into() }
}

/// Shows the effects that write, in order.
fn steps(sim: &Sim) -> Vec<String> {
    let step = |effect: &Effect| match effect {
        Effect::PrepareWrite { index, writes, .. } => Some(format!("prepare {index} {writes}")),
        Effect::Write { index, writes, intent, .. } => {
            Some(format!("write {index} {writes} {}", intent.change.path))
        }
        _ => None,
    };
    sim.effects.iter().filter_map(step).collect()
}

#[test]
fn writes_run_one_at_a_time_and_are_recorded_before_they_happen() {
    let (mut sim, child) = writer();
    sim.call(child, vec![write("a", "a"), read("r", "x"), write("b", "b")]);
    let first = "prepare 0 below .adjutant/specs";
    assert_eq!(steps(&sim), [first]);
    assert_eq!(looks(&sim), [0_u32; 0], "a read sees what is written before it");
    assert_eq!(kinds(&sim.submit(prepare(child, 0, "a")).unwrap()), "write_prepared");
    // The same report twice, or one of a turn that is over, changes nothing.
    assert_eq!(kinds(&sim.submit(prepare(child, 0, "a")).unwrap()), "");
    let old =
        Command::PrepareWrite { session: child, turn: 9, call: 2, intent: change("b").into() };
    assert_eq!(kinds(&sim.submit(old).unwrap()), "");
    sim.output(child, 0, "Created");
    let all = [first, "write 0 below .adjutant/specs a", "prepare 2 below .adjutant/specs"];
    assert_eq!(steps(&sim), all);
    assert_eq!(looks(&sim), [1]);
    sim.output(child, 1, "text");
    assert_eq!(steps(&sim), all, "a read has nothing to do with the write behind it");
    // A call that turns out to be wrong is answered without a change.
    assert_eq!(kinds(&sim.output(child, 2, "nothing to do")), "tool_returned reserved");
    assert_eq!(steps(&sim), all);
}

/// The started calls that read files, in order.
fn looks(sim: &Sim) -> Vec<u32> {
    let look = |effect: &Effect| match effect {
        Effect::Tool { index, call, .. } if call.name != "Run" => Some(*index),
        _ => None,
    };
    sim.effects.iter().filter_map(look).collect()
}

#[test]
fn reads_run_in_parallel_but_never_before_an_earlier_write() {
    let (mut sim, child) = writer();
    let calls = ["Read", "Glob", "Write", "Grep", "Note", "Read", "Write", "Read"];
    let args = |name: &str| match name {
        "Write" => json!({ "file_path": name, "content": "x" }),
        "Read" => json!({ "path": name }),
        "Note" => json!({ "content": "x" }),
        _ => json!({ "pattern": "x" }),
    };
    let calls = calls.iter().enumerate().map(|(at, name)| {
        let mut call = tool(&at.to_string(), name, args(name));
        // Each is another one, so that no loop is seen in them.
        let path = if *name == "Write" { "file_path" } else { "path" };
        call.arguments[path] = json!(at.to_string());
        call
    });
    sim.call(child, calls.collect());
    assert_eq!(looks(&sim), [0, 1, 4], "nothing changes before these, or they do not look");
    sim.output(child, 0, "text");
    assert_eq!(looks(&sim), [0, 1, 4]);
    sim.submit(prepare(child, 2, "a")).unwrap();
    sim.output(child, 2, "Created");
    assert_eq!(looks(&sim), [0, 1, 4, 3, 5]);
    // A write without a change unblocks the others too.
    sim.output(child, 6, "nothing to do");
    assert_eq!(looks(&sim), [0, 1, 4, 3, 5, 7]);
    // After a restart every call without a result is started again, in order.
    sim.effects.clear();
    let rights = Rights::of(sim.tree.policy());
    sim.restart(ResumeOptions { rights, ..ResumeOptions::default() });
    let mut again = looks(&sim);
    again.dedup();
    assert_eq!(again, [1, 3, 4, 5, 7]);
}

#[test]
fn a_waiting_read_runs_after_an_interruption() {
    let (mut sim, child) = writer();
    sim.call(child, vec![write("a", "a"), read("r", "x")]);
    sim.submit(prepare(child, 0, "a")).unwrap();
    let looked = [((child, 0), vec![WriteFinding::Applied])].into_iter().collect();
    let rights = Rights::of(sim.tree.policy());
    sim.restart(ResumeOptions { rights, write_findings: looked, ..ResumeOptions::default() });
    assert!(looks(&sim).contains(&1), "{:?}", sim.effects);
}

#[test]
fn an_interrupted_write_is_judged_by_the_file_and_never_repeated() {
    for (looked, says) in [
        (Some(WriteFinding::Applied), "but it was done"),
        (Some(WriteFinding::NotApplied), "before it was done"),
        (Some(WriteFinding::Unknown), "outcome unknown"),
        (None, "outcome unknown"),
    ] {
        for cancelled in [false, true] {
            let (mut sim, child) = writer();
            sim.call(child, vec![write("a", "a")]);
            sim.submit(prepare(child, 0, "a")).unwrap();
            let open: Vec<_> = sim.tree.open_writes().map(|(of, _, call, _)| (of, call)).collect();
            assert_eq!(open, [(child, 0)]);
            if cancelled {
                sim.cancel(child);
            }
            let looked = looked.map(|looked| ((child, 0), vec![looked])).into_iter().collect();
            let rights = Rights::of(sim.tree.policy());
            sim.restart(ResumeOptions {
                rights,
                write_findings: looked,
                ..ResumeOptions::default()
            });
            let mut talk = Conversation::default();
            let own = sim.log.iter().filter(|(_, event)| event.conversation() == Some(child));
            own.for_each(|(_, event)| talk.apply(event));
            let heard = talk.messages().iter().any(|message| message.text().contains(says));
            assert!(heard, "{says}: {talk:?}");
            let again = sim
                .effects
                .iter()
                .any(|effect| matches!(effect, Effect::Write { .. } | Effect::PrepareWrite { .. }));
            assert!(!again, "{:?}", sim.effects);
            assert_eq!(sim.tree.open_writes().count(), 0);
        }
    }
}

#[test]
fn a_write_that_was_not_prepared_starts_again() {
    let (mut sim, child) = writer();
    sim.call(child, vec![write("a", "a"), write("b", "b")]);
    sim.effects.clear();
    let rights = Rights::of(sim.tree.policy());
    sim.restart(ResumeOptions { rights, ..ResumeOptions::default() });
    assert_eq!(steps(&sim), ["prepare 0 below .adjutant/specs"]);
}

#[test]
fn the_right_to_write_only_shrinks_on_the_way_down() {
    let settings = ["in_place=true", "max_depth=3", "cycle_key=task", "concurrency=9"];
    let mut sim = Sim::new(policy(Preset::Command, &settings));
    let tools = || ToolSet::new(["Read", "Write", "Task"]);
    let define = |agent: &str, tools: ToolSet, writes: WriteScope| Command::Define {
        agent: AgentName::new(agent),
        system: String::new(),
        tools: Vec::new(),
        rights: Rights { tools, network: false, writes },
        max_turns: None,
        worker: None,
    };
    let docs = WriteScope::Below("docs".into());
    sim.submit(define("docs", tools(), docs.clone())).unwrap();
    sim.submit(define("all", tools(), WriteScope::Anywhere)).unwrap();
    sim.submit(define("plans", tools(), WriteScope::Below("docs/plans".into()))).unwrap();
    sim.submit(define("code", tools(), WriteScope::Below("src".into()))).unwrap();
    sim.submit(define("reader", ToolSet::new(["Read"]), WriteScope::Anywhere)).unwrap();
    let writes = |sim: &Sim, session| sim.node(session).rights.writes.clone();
    let any = sim.child(brief("all", "all", "a"));
    assert_eq!(writes(&sim, any), WriteScope::Anywhere);
    let parent = sim.child(brief("docs", "docs", "b"));
    assert_eq!(writes(&sim, parent), docs);
    let more = sim.child_of(parent, brief("all", "all", "c"));
    assert_eq!(writes(&sim, more), docs, "a definition is a ceiling and no grant");
    let less = sim.child_of(parent, brief("plans", "plans", "d"));
    assert_eq!(writes(&sim, less), WriteScope::Below("docs/plans".into()));
    let other = sim.child_of(parent, brief("code", "code", "e"));
    assert_eq!(writes(&sim, other), WriteScope::Nowhere);
    assert!(!sim.node(other).rights.usable_tools().contains("Write"));
    let reader = sim.child(brief("reader", "reader", "f"));
    assert!(!sim.node(reader).rights.usable_tools().contains("Write"));
}

#[test]
fn a_scout_never_writes_whatever_is_set() {
    let settings = ["in_place=true", "write_below=docs", "tools=[\"Read\",\"Write\",\"Edit\"]"];
    let rights = Rights::of(&scout(&settings));
    assert_eq!(rights.writes, WriteScope::Nowhere);
    assert_eq!(rights.usable_tools().to_string(), "Delegate, Read, Task");
}
