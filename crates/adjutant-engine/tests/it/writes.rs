//! Agents that write in place: permissions, order, and crashes.
#![expect(clippy::expect_used, reason = "a test that cannot build its tree has failed")]

use std::path::Path;

use adjutant_core::policy::ContractKind;
use adjutant_core::{Event, Outcome, Preset, Timestamp, WriteScope};
use adjutant_engine::{EngineError, ResumeRequest};
use adjutant_testkit::{Rig, RunTrace};

/// Two edits of one file in one reply, a new file, and a report. Every edit adds a line, so a duplicate line shows
/// that an edit was made twice.
const SCRIPT: &str = r#"
    [[turn]]
    text = "I add two lines."
    [[turn.call]]
    tool = "Edit"
    args = { file_path = ".adjutant/specs/list.md", old_string = "END", new_string = "first\nEND" }
    [[turn.call]]
    tool = "Read"
    args = { path = "map.txt" }
    [[turn.call]]
    tool = "Edit"
    args = { file_path = ".adjutant/specs/list.md", old_string = "END", new_string = "second\nEND" }
    [[turn]]
    [[turn.call]]
    tool = "Write"
    args = { file_path = ".adjutant/specs/12/plan.md", content = "the plan\n" }
    [[turn]]
    text = "done"
"#;

const LIST: &str = ".adjutant/specs/list.md";
const PLAN: &str = ".adjutant/specs/12/plan.md";

fn command() -> Rig {
    Rig::new()
        .preset(Preset::Command)
        .policy(|policy| policy.contract = ContractKind::Report)
        .file("map.txt", "x marks the spot")
}

fn rig() -> Rig {
    command().file(LIST, "END\n").script(SCRIPT).task("writer", "Write it down")
}

fn read(tree: &Path, path: &str) -> Option<String> {
    std::fs::read_to_string(tree.join(path)).ok()
}

fn told(trace: &RunTrace) -> Vec<String> {
    let said = trace.events.iter().filter_map(|(_, event)| match event {
        Event::ToolReturned { output, .. } => Some(output.content.clone()),
        Event::ToolRefused { text, .. } => Some(text.clone()),
        _ => None,
    });
    said.collect()
}

/// Runs and returns a copy of the tree.
async fn watched(rig: Rig) -> (RunTrace, tempfile::TempDir) {
    let (tree, copy) = (rig.tree(), tempfile::TempDir::new().expect("a folder"));
    let kept = copy.path().to_owned();
    // The rig removes the tree, so it is copied when the run has ended.
    let rig = rig.on_event(move |event, _| {
        if matches!(event, Event::RunEnded { .. }) {
            copy_tree(&tree, &kept);
        }
    });
    (rig.delegate().await, copy)
}

fn copy_tree(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).expect("the tree") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("a kind").is_dir() {
            std::fs::create_dir(&target).expect("a folder");
            copy_tree(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("a copy");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn writes_of_one_reply_are_sequential_and_recorded_before_they_are_made() {
    let (trace, tree) = watched(rig()).await;
    assert_eq!(trace.outcome(), Outcome::Completed, "{:?}", told(&trace));
    assert_eq!(read(tree.path(), LIST).unwrap(), "first\nsecond\nEND\n");
    assert_eq!(read(tree.path(), PLAN).unwrap(), "the plan\n");
    let steps: Vec<String> = trace
        .events
        .iter()
        .filter_map(|(_, event)| match event {
            Event::WritePrepared { call, intent, .. } => {
                Some(format!("{call} {}", intent.change.path))
            }
            Event::ToolReturned { call, output, .. } if !output.touched.is_empty() => {
                Some(format!("{call} {}", output.content.lines().next().unwrap()))
            }
            _ => None,
        })
        .collect();
    let writes: Vec<&String> = steps.iter().filter(|step| !step.contains("x marks")).collect();
    assert_eq!(
        writes,
        [
            "0 .adjutant/specs/list.md",
            "0 Replaced 1 match in `.adjutant/specs/list.md` (line 1).",
            "2 .adjutant/specs/list.md",
            "2 Replaced 1 match in `.adjutant/specs/list.md` (line 2).",
            "0 .adjutant/specs/12/plan.md",
            "0 Created `.adjutant/specs/12/plan.md`: 1 line, 9 bytes.",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn crash_during_a_write_is_resolved_from_the_files() {
    let first = rig();
    let disk = first.disk();
    let (whole, done) = watched(first).await;
    let journal = disk.bytes();
    let cuts = journal.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1);
    let (mut looked, mut began_again) = (0, 0);
    for (nth, cut) in cuts.enumerate() {
        // The state of the files at this crash: every write with a result was made.
        let past = whole.events.get(..=nth).unwrap_or(&whole.events);
        let prepared =
            past.iter().filter(|(_, event)| matches!(event, Event::WritePrepared { .. }));
        let prepared = prepared.count();
        let returned = past
            .iter()
            .filter(|(_, event)| matches!(event, Event::ToolReturned { call: 0 | 2, .. }))
            .count();
        // A recorded write without a result may or may not have been made.
        let possible: &[usize] =
            if prepared > returned { &[returned, prepared] } else { &[returned] };
        for &happened in possible {
            let mut lines = String::new();
            lines.push_str(if happened >= 1 { "first\n" } else { "" });
            lines.push_str(if happened >= 2 { "second\n" } else { "" });
            let mut again = rig().file(LIST, &format!("{lines}END\n"));
            if happened >= 3 {
                again = again.file(PLAN, "the plan\n");
            }
            let left = half_written(past, possible.len() == 2);
            if let Some(left) = &left {
                again = again.file(left, "half a li");
            }
            let (tree, kept) = (again.tree(), tempfile::TempDir::new().unwrap());
            let to = kept.path().to_owned();
            let again = again.on_event(move |event, _| {
                if matches!(event, Event::RunEnded { .. }) {
                    copy_tree(&tree, &to);
                }
            });
            let trace = again.resume(&journal[..cut], ResumeRequest::default()).await;
            if matches!(trace.result, Err(EngineError::NothingToResume(_))) || trace.recalled == 0 {
                continue;
            }
            assert_eq!(trace.outcome(), Outcome::Completed, "cut at {cut}");
            let news = told(&trace).concat();
            let is_lost = possible.len() == 2 && happened == returned;
            if possible.len() == 2 {
                looked += 1;
                let expected =
                    if is_lost { "Interrupted before it was done" } else { "but it was done" };
                assert!(news.contains(expected), "cut at {cut}: {news}");
            } else {
                assert!(!news.contains("Interrupted"), "cut at {cut}: {news}");
                began_again += 1;
            }
            let list = read(kept.path(), LIST).unwrap();
            let plan = read(kept.path(), PLAN);
            // A write that was not made is not repeated by the engine; its agent gets an error.
            let missing = usize::from(is_lost);
            let count = list.matches("first").count()
                + list.matches("second").count()
                + usize::from(plan.is_some());
            assert_eq!(
                count,
                3 - missing,
                "cut at {cut}, {happened} had happened: {list:?} {plan:?}"
            );
            if !is_lost {
                assert_eq!(Some(list), read(done.path(), LIST));
                assert_eq!(plan, read(done.path(), PLAN));
            }
            let left = left.is_some_and(|left| kept.path().join(left).exists());
            assert!(!left, "cut at {cut}: what was half written is still there");
        }
    }
    assert!(looked >= 6, "each of three writes was cut off before and after it happened: {looked}");
    assert!(began_again > 10, "{began_again}");
}

/// Returns the temporary file of the unfinished write.
fn half_written(past: &[(Timestamp, Event)], is_open: bool) -> Option<String> {
    let turns = past.iter().filter(|(_, event)| matches!(event, Event::Replied { .. })).count();
    let (session, call, path) = past.iter().rev().find_map(|(_, event)| match event {
        Event::WritePrepared { session, call, intent } => {
            Some((session, call, &intent.change.path))
        }
        _ => None,
    })?;
    let folder = Path::new(path).parent()?.to_str()?;
    is_open.then(|| format!("{folder}/.adjutant-{session}-{turns}-{call}.tmp"))
}

#[tokio::test(start_paused = true)]
async fn file_edited_after_a_crash_makes_the_write_unknown() {
    let first = rig();
    let disk = first.disk();
    let whole = first.delegate().await;
    let journal = disk.bytes();
    let nth = whole.kinds().iter().position(|kind| kind == "write_prepared").unwrap();
    let cut =
        journal.iter().enumerate().filter(|(_, byte)| **byte == b'\n').nth(nth).unwrap().0 + 1;
    let trace =
        rig().file(LIST, "a person wrote this\n").resume(&journal[..cut], ResumeRequest::default());
    let news = told(&trace.await).concat();
    assert!(news.contains("Interrupted, outcome unknown: `.adjutant/specs/list.md`"), "{news}");
}

/// Returns the result of one tool call, and the content of `path` after it.
async fn one_call(rig: Rig, tool: &str, path: &str) -> (String, Option<String>) {
    let script = format!(
        "[[turn]]\n[[turn.call]]\ntool = \"{tool}\"\nargs = {{ file_path = \"{path}\", content = \"new\" }}\n\
         [[turn]]\ntext = \"done\"\n"
    );
    let (trace, tree) = watched(rig.script(&script).task("writer", "Write")).await;
    (told(&trace).join("\n"), read(tree.path(), path))
}

#[tokio::test(start_paused = true)]
async fn write_permissions_by_policy_and_path() {
    let in_place = |rig: Rig| rig.policy(|policy| policy.in_place = true);
    let scout = || Rig::new().file("a", "old");
    let agent = |tools: &str| {
        let text = format!("---\nname: helper\ndescription: d\ntools: {tools}\n---\nHelp.");
        command().file("a", "old").file(".claude/agents/helper.md", &text).default_agent("helper")
    };
    let opencode = || command().file(".opencode/specs/todo.md", "x").file("a", "old");
    let specs = ".adjutant/specs/x";
    for (what, rig, tool, path, says, leaves) in [
        ("a scout", scout(), "Write", "a", "not available to you", Some("old")),
        ("a scout in place", in_place(scout()), "Write", "a", "not available to you", Some("old")),
        (
            "a command",
            command().file("a", "old"),
            "Write",
            "a",
            "only below `.adjutant/specs`",
            Some("old"),
        ),
        ("a command in its folder", command(), "Write", specs, "Created", Some("new")),
        (
            "a command in place",
            in_place(command().file("a", "old")),
            "Write",
            "a",
            "Replaced",
            Some("new"),
        ),
        (
            "a command in place, at git",
            in_place(command()),
            "Write",
            ".git/hooks/x",
            "is in a git directory",
            None,
        ),
        (
            "with specs of opencode",
            opencode(),
            "Write",
            ".opencode/specs/x",
            "Created",
            Some("new"),
        ),
        (
            "with specs of opencode, elsewhere",
            opencode(),
            "Write",
            specs,
            "only below `.opencode/specs`",
            None,
        ),
        (
            "a reader by definition",
            in_place(agent("Read, Grep")),
            "Write",
            "a",
            "not available to you",
            Some("old"),
        ),
        (
            "an editor by definition",
            in_place(agent("Read, Edit")),
            "Write",
            "a",
            "not available to you",
            Some("old"),
        ),
        (
            "a writer by definition",
            in_place(agent("Read, Write")),
            "Write",
            "a",
            "Replaced",
            Some("new"),
        ),
        (
            "a writer by definition, below",
            agent("Read, Write"),
            "Write",
            "a",
            "only below",
            Some("old"),
        ),
        (
            "a command that runs",
            in_place(command().file("a", "old")),
            "Run",
            "a",
            "needs a workspace of your own",
            Some("old"),
        ),
    ] {
        let (said, left) = one_call(rig, tool, path).await;
        assert!(said.contains(says), "{what}: {said}");
        assert_eq!(left.as_deref(), leaves, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn tool_descriptions_name_the_writable_folder() {
    let script = "[[turn]]\ntext = 'done'";
    let trace = command().script(script).task("a", "Look").delegate().await;
    let defined = trace.events.iter().find_map(|(_, event)| match event {
        Event::AgentDefined { tools, rights, .. } => Some((tools.clone(), rights.clone())),
        _ => None,
    });
    let (tools, rights) = defined.unwrap();
    assert_eq!(rights.writes, WriteScope::Below(".adjutant/specs".into()));
    let write = tools.iter().find(|tool| tool.name == "Write").unwrap();
    assert!(write.description.ends_with("only below `.adjutant/specs`."), "{}", write.description);
    assert!(trace.single_request().tools.contains(&"Edit".to_owned()));
    let trace = Rig::new().script(script).task("a", "Look").delegate().await;
    assert!(!trace.single_request().tools.contains(&"Write".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn resumed_rights_are_the_intersection_of_recorded_and_present() {
    let rig = |in_place: bool| {
        let script = SCRIPT.replace(".adjutant/specs/", "docs/");
        let rig = command().file("docs/list.md", "END\n").script(&script);
        rig.policy(|policy| policy.in_place = in_place).task("writer", "Write it down")
    };
    let first = rig(true);
    let disk = first.disk();
    let whole = first.delegate().await;
    assert!(told(&whole).concat().contains("Created `docs/12/plan.md`"));
    let journal = disk.bytes();
    let nth = whole.kinds().iter().position(|kind| kind == "tool_called").unwrap();
    let cut =
        journal.iter().enumerate().filter(|(_, byte)| **byte == b'\n').nth(nth).unwrap().0 + 1;
    let again = rig(false).resume(&journal[..cut], ResumeRequest::default()).await;
    let news = told(&again).concat();
    assert!(news.contains("you may write only below `.adjutant/specs`"), "{news}");
    assert!(!news.contains("Created"), "{news}");
}
