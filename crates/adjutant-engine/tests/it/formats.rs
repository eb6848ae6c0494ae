//! Journals of older builds can always be read; those of newer builds are refused with an error.
//!
//! `tests/fixtures/journal-v1.jsonl` was written by the first build of format 1 and has every kind of event it knew.
//! It must never be changed: a build that cannot read it would lose users' runs. For a new format or new kinds of
//! events, add another file with [`write_a_fixture`].
#![expect(clippy::unwrap_used, reason = "the helpers of these tests are test code too")]

use std::collections::{BTreeSet, VecDeque};

use adjutant_core::policy::ApprovalRule;
use adjutant_core::schema::{DELEGATE, ReturnFormat};
use adjutant_core::tree::EffectsInFlight;
use adjutant_core::{
    AgentName, AttemptError, Brief, Command, DelegationOrigin, Effect, Event, Label,
    ModelErrorKind, ModelReply, ModelSpec, Outcome, Policy, Preset, RequestedTask, Rights, RunId,
    SessionId, StopReason, Timestamp, ToolCall, ToolOutput, ToolSet, Tree, Usage,
};
use adjutant_store::{
    Durability, FORMAT, Journal, JournalPosition, JournalReader, JournalRecord, JournalTail,
    MemoryDisk,
};
use adjutant_view::story::StoryReport;
use adjutant_view::{RunView, TimedEvent};
use serde_json::{Value, json};

const V1: &str = include_str!("../fixtures/journal-v1.jsonl");

/// A story with two conflicting writers and a verify command, written by the first build with stories.
const STORY_V1: &str = include_str!("../fixtures/journal-story-v1.jsonl");

const KINDS_OF_V1: &str = "agent_defined approval_asked approved attempt_failed crashed delegated \
denied ended granted late overran progressed refused replied reserved run_ended run_started settled \
started told tool_called tool_refused tool_returned";

fn run_id() -> RunId {
    RunId::new(1_735_460_684, [0, 27, 1, 28, 2, 29])
}

fn story_id() -> RunId {
    "run_1794778976_hgcoed".parse().unwrap()
}

fn records(bytes: &[u8]) -> Vec<JournalRecord<Event>> {
    records_of(run_id(), bytes)
}

fn records_of(run: RunId, bytes: &[u8]) -> Vec<JournalRecord<Event>> {
    let mut reader = JournalReader::new(bytes, JournalPosition::start(run));
    let records = (&mut reader).map(|record| record.unwrap()).collect();
    assert_eq!(reader.tail(), JournalTail::Clean);
    records
}

fn kinds(records: &[JournalRecord<Event>]) -> String {
    let kind = |event: &Event| serde_json::to_value(event).unwrap()["type"].clone();
    let kinds: BTreeSet<String> =
        records.iter().map(|record| kind(&record.event).as_str().unwrap().to_owned()).collect();
    kinds.into_iter().collect::<Vec<_>>().join(" ")
}

/// Folds the records into a tree and a view. Returns the end of each delegation.
fn folded(records: &[JournalRecord<Event>]) -> (Tree, Vec<String>) {
    let mut tree = Tree::default();
    for record in records {
        tree.evolve(record.at, &record.event).unwrap();
    }
    let view = seen(records);
    assert!([run_id(), story_id()].map(Some).contains(&view.run()));
    let ends = tree.nodes().map(|node| format!("{} {}", node.label, node.state().word())).collect();
    (tree, ends)
}

fn seen(records: &[JournalRecord<Event>]) -> RunView {
    RunView::of(
        records.iter().map(|record| TimedEvent::new(record.at, record.wall_ms, &record.event)),
    )
}

#[test]
fn story_journal_of_the_first_build_can_be_folded() {
    let mut records = records_of(story_id(), STORY_V1.as_bytes());
    assert_eq!(records.len(), STORY_V1.lines().count());
    let kinds = kinds(&records);
    for kind in ["story_taken", "markers_read", "merged", "checking", "checked", "space_made"] {
        assert!(kinds.split(' ').any(|it| it == kind), "{kind} is not among {kinds}");
    }
    for is_stripped in [false, true] {
        if is_stripped {
            records.iter_mut().for_each(|record| record.event = record.event.without_content());
        }
        let (tree, ends) = folded(&records);
        assert_eq!(tree.outcome(), Some(Outcome::Completed));
        assert_eq!(ends, ["US-001 completed", "Wait longer completed", "Say less completed"]);
        let report = StoryReport::of(&seen(&records)).unwrap();
        assert!(report.passes, "stripped: {is_stripped}");
    }
}

#[test]
fn journal_of_the_first_build_can_be_folded() {
    let records = records(V1.as_bytes());
    assert_eq!(records.len(), V1.lines().count());
    assert_eq!(kinds(&records), KINDS_OF_V1);
    let (tree, ends) = folded(&records);
    assert_eq!(tree.outcome(), Some(Outcome::Completed));
    assert_eq!(
        ends,
        [
            "root completed",
            "reads completed",
            "fails cancelled",
            "hangs cancelled",
            "breaks failed",
            "denied refused"
        ]
    );
    let root = tree.nodes().next().unwrap();
    assert_eq!((root.usage.input, root.usage.output), (302_000, 300));
    assert_eq!(root.ledger.settled.tokens, 318_104);
    let said = records.iter().any(|record| matches!(&record.event, Event::Replied { text, .. } if text == "All of it is done."));
    assert!(said, "what was said is there word for word");
}

#[test]
fn pruned_journal_folds_to_the_same_tree() {
    let mut records = records(V1.as_bytes());
    let (before, ends) = folded(&records);
    for record in &mut records {
        record.event = record.event.without_content();
    }
    let (after, stripped) = folded(&records);
    assert_eq!(stripped, ends);
    assert_eq!(after.outcome(), before.outcome());
}

#[test]
fn newer_journal_format_is_refused_with_both_versions_and_advice() {
    let newer = V1.replacen("{\"v\":1,", "{\"v\":7,", 1);
    let reader = JournalReader::<Event, _>::new(newer.as_bytes(), JournalPosition::start(run_id()));
    let errors: Vec<String> = reader.map(|record| record.unwrap_err().to_string()).collect();
    assert_eq!(
        errors,
        [format!(
            "journal format 7 is newer than this adjutant understands ({FORMAT}); \
             read it with the adjutant that wrote it, or a newer one"
        )]
    );
}

/// The fixture writer must cover every kind of event; a new kind needs a new fixture.
#[test]
fn fixture_writer_writes_every_kind_of_event() {
    assert_eq!(kinds(&records(&history())), KINDS_OF_V1);
}

#[test]
#[ignore = "writes tests/fixtures/journal-new.jsonl; to be run and renamed for a new format"]
fn write_a_fixture() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/journal-new.jsonl");
    std::fs::write(path, history()).unwrap();
}

/// Writes a journal with every kind of event, without an engine.
struct FixtureWriter {
    tree: Tree,
    in_flight: EffectsInFlight,
    journal: Journal<Event>,
    now: u64,
    hashes: Vec<String>,
}

impl FixtureWriter {
    fn submit(&mut self, command: Command) {
        let mut queue = VecDeque::from([command]);
        while let Some(command) = queue.pop_front() {
            self.now += 7;
            let now = Timestamp::from_millis(self.now);
            let events = self.tree.decide(now, command).unwrap();
            for event in &events {
                let wall_ms = 1_735_460_684_000 + self.now;
                self.journal.append(now, wall_ms, event, Durability::Sync).unwrap();
                self.tree.evolve(now, event).unwrap();
            }
            let reaction = self.tree.react(&events, &mut self.in_flight);
            queue.extend(reaction.commands);
            for effect in reaction.effects {
                if let Effect::AskApproval { hash, .. } = effect {
                    self.hashes.push(hash);
                }
            }
        }
    }

    fn reply(&mut self, session: SessionId, reply: ModelReply) {
        let node = self.tree.node(session).unwrap();
        let open = node.reservation().unwrap();
        let (turn, attempt) = (open.turn, open.attempt);
        self.submit(Command::Reply { session, turn, attempt, reply });
    }

    fn output(&mut self, session: SessionId, call: u32, content: &str) {
        let turn = self.tree.node(session).unwrap().turn;
        let output = ToolOutput {
            content: content.into(),
            note: Some("a note".into()),
            touched: vec!["src/lib.rs".into()],
            ..ToolOutput::default()
        };
        self.submit(Command::TakeOutput { session, turn, call, output });
    }

    fn delegate(&mut self, tasks: Vec<RequestedTask>) {
        let parent = run_id().root_session();
        let turn = self.tree.node(parent).unwrap().turn;
        let origin = Some(DelegationOrigin { turn, index: Some(0), form: ReturnFormat::Markdown });
        self.submit(Command::Delegate { parent, tasks, concurrency: Some(4), origin });
    }
}

fn model() -> ModelSpec {
    ModelSpec {
        name: "acme/large".into(),
        window: 1_000_000,
        max_output: 4_096,
        price: None,
        effort: None,
    }
}

fn session(nth: u8) -> SessionId {
    SessionId::new(1_735_460_685, [0, 0, 0, 0, 0, nth])
}

fn task(nth: u8, label: &str, agent: &str) -> RequestedTask {
    let mut brief = Brief::new(Label::new(label).unwrap(), AgentName::new(agent), label);
    brief.model = Some(model());
    RequestedTask { session: session(nth), brief }
}

fn says(text: &str, calls: Vec<(&str, Value)>) -> ModelReply {
    let stop = if calls.is_empty() { StopReason::EndTurn } else { StopReason::ToolUse };
    let call = |(nth, (name, arguments)): (usize, (&str, Value))| ToolCall {
        id: format!("call_{nth}"),
        name: name.into(),
        arguments,
        malformed: false,
    };
    ModelReply {
        text: text.into(),
        tool_calls: calls.into_iter().enumerate().map(call).collect(),
        stop,
        opaque: Some(json!({ "provider": "acme", "thought": "é" })),
        usage: Some(Usage { input: 1_000, output: 100, ..Usage::default() }),
    }
}

/// Returns the bytes of the journal of that run.
fn history() -> Vec<u8> {
    let disk = MemoryDisk::default();
    let journal = Journal::start_inline(disk.clone(), JournalPosition::start(run_id()), |_| ());
    let mut run = FixtureWriter {
        tree: Tree::default(),
        in_flight: EffectsInFlight::default(),
        journal,
        now: 0,
        hashes: Vec::new(),
    };
    let root = run_id().root_session();
    let policy = Policy {
        approval: ApprovalRule::Batch,
        budget_tokens: None,
        budget_tokens_run: None,
        budget_usd: None,
        ..Preset::Scout.policy()
    };
    let rights =
        Rights { tools: ToolSet::new(["Read", DELEGATE]), network: false, ..Rights::default() };
    run.submit(Command::Begin {
        run: run_id(),
        agent: AgentName::new("lead"),
        goal: "Look at everything".into(),
        workdir: "work/tree".into(),
        policy: Box::new(policy),
        version: "0.1.0".into(),
        model: Some(model()),
        terms: None,
        base_depth: 0,
        environment: None,
    });
    for agent in ["lead", "scout"] {
        let (agent, system) = (AgentName::new(agent), format!("You are the {agent}."));
        run.submit(Command::Define {
            agent,
            system,
            tools: Vec::new(),
            rights: rights.clone(),
            max_turns: None,
            worker: None,
        });
    }
    run.submit(Command::TakeTurn { session: root });
    run.submit(Command::Progress { session: root, bytes: 5_000 });
    let billed = Usage { input: 300_000, output: 100, ..Usage::default() };
    let delegates = says("I hand this down.", vec![(DELEGATE, json!({ "tasks": [] }))]);
    run.reply(root, ModelReply { usage: Some(billed), ..delegates.clone() });
    let mut tasks: Vec<RequestedTask> = (1..)
        .zip(["reads", "fails", "hangs", "breaks"])
        .map(|(nth, label)| task(nth, label, "scout"))
        .collect();
    tasks.push(task(5, "refused", "nobody"));
    run.delegate(tasks);
    let hash = run.hashes.pop().unwrap();
    run.submit(Command::Approve { hash });
    let [reads, fails, hangs, breaks] = [1, 2, 3, 4].map(session);
    let calls = vec![("Read", json!({ "path": "src/lib.rs" })), ("Dance", json!({}))];
    run.reply(reads, says("", calls));
    run.output(reads, 0, "the file");
    run.reply(reads, ModelReply { stop: StopReason::MaxOutput, ..says("too lo", vec![]) });
    run.reply(reads, says("It says so.", vec![]));
    let error = AttemptError {
        kind: ModelErrorKind::Overloaded,
        message: "try later".into(),
        retry_after_ms: Some(900),
        never_began: false,
    };
    run.submit(Command::FailAttempt { session: fails, turn: 1, attempt: 1, error });
    run.submit(Command::Cancel { session: fails });
    run.submit(Command::Cancel { session: hangs });
    let late = says("too late", vec![]);
    run.submit(Command::Reply { session: hangs, turn: 1, attempt: 1, reply: late });
    let (message, backtrace) = ("index out of bounds".into(), "at turn.rs:1".into());
    run.submit(Command::Crash { session: breaks, message, backtrace });
    run.output(root, 0, "The tasks have ended.");
    run.reply(root, delegates);
    run.delegate(vec![task(6, "denied", "scout")]);
    let hash = run.hashes.pop().unwrap();
    run.submit(Command::Deny { hash, reason: "not now".into() });
    run.output(root, 0, "Denied.");
    run.reply(root, says("All of it is done.", vec![]));
    assert!(run.tree.outcome().is_some());
    run.journal.close().unwrap();
    disk.bytes()
}
