//! Messages to running agents, and requests over the control socket.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where")]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use adjutant_core::schema::TaskSpec;
use adjutant_core::{Event, Message, Outcome, Preset, SessionId, Tree};
use adjutant_engine::{
    Archive, CancelOutcome, ControlCommand, ControlError, Engine, EngineSetup, RunFiles, RunHost,
    RunLiveness, RunState,
};
use adjutant_model::ScriptedModel;
use adjutant_testkit::Rig;
use tempfile::TempDir;

/// Reads a file, then reports; an agent that got a message reports that.
const SCRIPT: &str = r#"
    [[turn]]
    text = "I will look."
    [[turn.call]]
    tool = "Note"
    args = { content = "looked" }
    [[turn]]
    text = "done"
    [[turn]]
    last = "Mind the gap"
    text = "minded"
"#;

fn users(messages: &[Message]) -> Vec<&str> {
    messages
        .iter()
        .map(|message| match message {
            Message::User { content } => content.lines().last().unwrap_or_default(),
            Message::Assistant { content, .. } => content.as_str(),
            Message::Tool { .. } => "(result)",
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn message_to_an_agent_is_in_its_next_request_after_the_tool_results() {
    let mut told = false;
    let trace = Rig::new()
        .script(SCRIPT)
        .task("a", "Look")
        .on_event(move |event, control| {
            if let Event::Replied { session, .. } = event
                && !std::mem::replace(&mut told, true)
            {
                let text = "Mind the gap.".to_owned();
                control.try_send(ControlCommand::Tell(*session, text)).unwrap();
            }
        })
        .delegate()
        .await;
    assert_eq!(trace.outcome(), Outcome::Completed);
    let last = trace.requests.last().unwrap();
    assert!(last.messages.iter().any(|message| message.text().contains("> Mind the gap.")));
    let talk = users(&last.messages);
    let result = talk.iter().position(|line| *line == "(result)").unwrap();
    let word = talk.iter().position(|line| line.starts_with("Take this into account")).unwrap();
    assert!(word > result, "{talk:?}");
}

#[tokio::test(start_paused = true)]
async fn message_reaches_the_root_agent() {
    let script =
        "[[turn]]\ntext = \"done\"\n[[turn]]\nlast = \"Mind the gap\"\ntext = \"minded\"\n";
    let trace = Rig::new()
        .script(script)
        .goal("Travel")
        .on_event(|event, control| {
            if let Event::RunStarted { run, .. } = event {
                let text = "Mind the gap.".to_owned();
                control.try_send(ControlCommand::Tell(run.root_session(), text)).unwrap();
            }
        })
        .delegate()
        .await;
    assert_eq!((trace.outcome(), trace.requests.len()), (Outcome::Completed, 2));
    let heard = trace.requests[1].messages.last().unwrap().text();
    assert!(heard.contains("> Mind the gap."), "{heard}");
}

/// The timeout after which a test counts as hanging.
const GUARD: Duration = Duration::from_secs(60);

/// A state directory with a live run that another thread sends requests to.
struct StateDirectory {
    dir: TempDir,
}

impl StateDirectory {
    fn new() -> Self {
        Self { dir: TempDir::new().unwrap() }
    }

    /// A path longer than the maximum of a Unix socket address.
    fn state(&self) -> PathBuf {
        self.dir.path().join("long/".repeat(30)).join("state")
    }

    fn archive(&self) -> Archive {
        Archive::open(&self.state()).unwrap()
    }

    fn engine(&self, script: &str) -> Engine {
        let model = Arc::new(ScriptedModel::from_toml(script).unwrap());
        Engine::new(EngineSetup::new(Preset::Scout.policy(), model, self.dir.path())).unwrap()
    }

    /// Runs up to two children that hang, while `meanwhile` runs on another thread.
    fn while_running<T: Send + 'static>(
        &self,
        labels: &[&str],
        meanwhile: impl FnOnce(RunFiles, Vec<SessionId>) -> T + Send + 'static,
    ) -> (Outcome, T) {
        let (sender, receiver) = std::sync::mpsc::channel();
        let archive = self.archive();
        let mut asked = Vec::new();
        let (count, looker) = (labels.len(), archive.clone());
        let staff = RunHost::unattended(archive.storage()).with_reporter(
            move |_: adjutant_core::Timestamp, _: u64, event: &Event| {
                if let Event::Reserved { session, .. } = event {
                    asked.push(*session);
                    if asked.len() == count {
                        sender.send(asked.clone()).unwrap();
                    }
                }
            },
        );
        let other = std::thread::spawn(move || {
            let sessions = receiver.recv_timeout(GUARD).unwrap();
            let (files, _) = looker.find("latest").unwrap();
            meanwhile(files, sessions)
        });
        let engine = self.engine("[[turn]]\ndelay_ms = 300000\ntext = \"late\"\n");
        let task = |label: &&str| TaskSpec::new(label, label).unwrap();
        let briefs = engine.briefs(&labels.iter().map(task).collect::<Vec<_>>());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let finished = runtime.block_on(engine.delegate(briefs, None, staff)).unwrap();
        (finished.outcome, other.join().unwrap())
    }
}

#[test]
fn live_run_answers_on_its_control_socket_and_removes_it_at_the_end() {
    let place = StateDirectory::new();
    let (outcome, files) = place.while_running(&["a", "b"], |files, sessions| {
        let answer = files.ping().unwrap();
        assert!(answer.ok);
        assert_eq!((answer.run, answer.pid), (files.id(), std::process::id()));
        assert_eq!(answer.state, RunState::Running);
        files.tell(sessions[0], "Hurry.".into()).unwrap();
        let events: Vec<Event> = files.records().unwrap().map(|it| it.unwrap().event).collect();
        let last = events.last().unwrap();
        assert!(matches!(last, Event::Messaged { text, .. } if text == "Hurry."), "{last:?}");
        // Cancels one of two; the other works until the run is cancelled.
        assert_eq!(files.cancel(Some(sessions[1])).unwrap(), CancelOutcome::ByItsProcess);
        let again = files.cancel(Some(sessions[1])).unwrap();
        assert_eq!(again, CancelOutcome::EndedBefore(Outcome::Cancelled));
        assert!(matches!(files.liveness().unwrap(), RunLiveness::Live { .. }));
        let refused = files.tell(sessions[1], "Hello?".into()).unwrap_err();
        assert!(matches!(refused, ControlError::Refused(_)), "{refused}");
        assert_eq!(files.cancel(None).unwrap(), CancelOutcome::ByItsProcess);
        assert_eq!(files.liveness().unwrap(), RunLiveness::Dead);
        files
    });
    assert_eq!(outcome, Outcome::Cancelled);
    assert!(!files.path().join("control.sock").exists());
    assert!(matches!(files.ping(), Err(ControlError::NotLive)));
    assert!(matches!(
        files.tell(files.id().root_session(), "x".into()),
        Err(ControlError::NotLive)
    ));
    assert_eq!(files.cancel(None).unwrap(), CancelOutcome::EndedBefore(Outcome::Cancelled));
}

/// After a crash at any record, cancelling ends the run once and keeps all records.
#[test]
fn run_that_died_after_any_record_can_be_cancelled() {
    let place = StateDirectory::new();
    let (_, (run, journal)) = place.while_running(&["a", "b"], |files, sessions| {
        files.tell(sessions[0], "Hurry.".into()).unwrap();
        files.cancel(Some(sessions[1])).unwrap();
        files.cancel(None).unwrap();
        (files.id(), std::fs::read_to_string(files.path().join("journal.jsonl")).unwrap())
    });
    let lines: Vec<&str> = journal.split_inclusive('\n').collect();
    for kept in 1..=lines.len() {
        let dead = StateDirectory::new();
        let archive = dead.archive();
        let folder = dead.state().join("runs").join(run.to_string());
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("journal.jsonl"), lines[..kept].concat()).unwrap();
        // The records of one decision count only together.
        let open = |line: &&&str| line.contains(r#","more":true,"#);
        let unfinished = lines[..kept].iter().rev().take_while(open).count();
        let counting = lines[..kept - unfinished].concat();
        if counting.is_empty() {
            continue;
        }
        let (files, _) = archive.find(&run.to_string()).unwrap();
        let cancelled = files.cancel(None).unwrap();
        let whole = kept == lines.len();
        assert_eq!(
            matches!(cancelled, CancelOutcome::EndedBefore(_)),
            whole,
            "{kept}: {cancelled:?}"
        );
        let now = std::fs::read_to_string(folder.join("journal.jsonl")).unwrap();
        assert!(now.starts_with(&counting), "{kept}");
        let mut tree = Tree::default();
        for record in files.records().unwrap() {
            let record = record.unwrap();
            tree.evolve(record.at, &record.event).unwrap();
        }
        assert!(tree.outcome().is_some(), "{kept}");
        assert!(tree.nodes().all(|node| !node.is_live()), "{kept}");
    }
}
