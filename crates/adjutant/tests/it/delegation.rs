//! Reports, errors, cancellation and the bounds of the event queue.

use std::collections::BTreeSet;
use std::future::Future;
use std::path::{Component, Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use adjutant::{
    Adjutant, AdjutantBuilder, ApprovalDecision, CustomTool, Error, ErrorCode, LiveRun, Outcome,
    Preset, ProgressKind, ScriptedModel, SessionId, Task, ToolCallResult, ToolSpec,
};
use tempfile::TempDir;

fn builder(directory: &Path, script: &str) -> AdjutantBuilder {
    Adjutant::builder()
        .model(ScriptedModel::from_toml(script).unwrap())
        .root(directory)
        .state_dir(directory.join("state"))
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Runtime::new().unwrap()
}

const DONE: &str = "[[turn]]\ntext = '{{label}} is done'\n";
const SLOW: &str = "[[turn]]\n[[turn.call]]\ntool = 'Note'\nargs = { text = 'found one' }\n\
                    [[turn]]\ndelay_ms = 600000\ntext = 'too late'\n";

#[test]
fn futures_can_be_spawned_on_a_runtime_with_several_threads() {
    let directory = TempDir::new().unwrap();
    let adjutant = builder(directory.path(), DONE).build().unwrap();
    let runtime = runtime();
    let several: Vec<_> = (0..4)
        .map(|it| {
            let adjutant = adjutant.clone();
            let label = format!("task {it}");
            runtime.spawn(async move { adjutant.delegate([Task::new(label, "Look")]).await })
        })
        .collect();
    let texts: Vec<String> = several
        .into_iter()
        .map(|it| runtime.block_on(it).unwrap().unwrap().results[0].text.clone())
        .collect();
    assert_eq!(texts, ["task 0 is done", "task 1 is done", "task 2 is done", "task 3 is done"]);
}

#[test]
fn results_come_in_the_order_of_the_tasks_with_refusals_among_them() {
    let directory = TempDir::new().unwrap();
    let mut policy = Preset::Scout.policy();
    policy.children_per_run = Some(2);
    let adjutant = builder(directory.path(), DONE).policy(policy).build().unwrap();
    let tasks = ["a", "b", "c"].map(|label| Task::new(label, format!("Look at {label}")));
    let report = runtime().block_on(adjutant.delegate(tasks)).unwrap();
    let seen: Vec<_> = report.results.iter().map(|it| (it.label.as_str(), it.outcome)).collect();
    let expected = [("a", Outcome::Completed), ("b", Outcome::Completed), ("c", Outcome::Refused)];
    assert_eq!(seen, expected);
    assert!(!report.is_completed());
    let refused = report.refusals().next().unwrap();
    assert_eq!(refused.reason.as_ref().unwrap().code, ErrorCode::MaxDelegationsExceeded);
    assert_eq!(refused.spent.calls, 0);
    let spent: u64 = report.results.iter().map(|it| it.spent.usage.total()).sum();
    assert_eq!(report.spent.usage.total(), spent);
}

#[test]
fn a_cancelled_run_reports_what_was_found() {
    let directory = TempDir::new().unwrap();
    let adjutant = builder(directory.path(), SLOW).build().unwrap();
    let report = runtime().block_on(async {
        let mut run = adjutant.start([Task::new("slow", "Take your time")]).unwrap();
        while let Some(event) = run.next_event().await {
            if matches!(event.what, ProgressKind::Note { .. }) {
                run.cancel();
            }
        }
        run.report().await.unwrap()
    });
    assert_eq!(report.results[0].outcome, Outcome::Cancelled);
    assert!(report.results[0].notes.contains("found one"), "{:?}", report.results[0].notes);
}

#[test]
fn a_full_queue_of_commands_loses_no_cancellation() {
    let directory = TempDir::new().unwrap();
    let adjutant = builder(directory.path(), SLOW).build().unwrap();
    let run = adjutant.start([Task::new("slow", "Take your time")]).unwrap();
    let nobody: SessionId = "sess_1700000000_zzzzzz".parse().unwrap();
    let full = (0..100_000).find_map(|_| run.tell(nobody, "Hurry up").err()).unwrap();
    assert_eq!(full.to_string(), "16 commands already wait for the run; send this one again later");
    run.cancel();
    let report = runtime().block_on(async {
        tokio::time::timeout(Duration::from_secs(60), run.report()).await.unwrap().unwrap()
    });
    assert_eq!(report.results[0].outcome, Outcome::Cancelled);
}

#[test]
fn a_command_for_a_run_that_has_ended_is_an_error() {
    let directory = TempDir::new().unwrap();
    let adjutant = builder(directory.path(), DONE).build().unwrap();
    let mut run = adjutant.start([Task::new("a", "Look")]).unwrap();
    runtime().block_on(async { while run.next_event().await.is_some() {} });
    let nobody: SessionId = "sess_1700000000_zzzzzz".parse().unwrap();
    // The queue closes after the last event, with the runtime of the run.
    let ended = (0..1_000_000).find_map(|_| match run.cancel_task(nobody) {
        Err(Error::RunEnded) => Some(()),
        Err(Error::TooManyCommands) | Ok(()) => {
            std::thread::yield_now();
            None
        }
        Err(other) => panic!("{other}"),
    });
    assert_eq!(ended, Some(()));
}

#[test]
fn a_dropped_run_is_cancelled_and_can_be_resumed() {
    let directory = TempDir::new().unwrap();
    let adjutant = builder(directory.path(), SLOW).build().unwrap();
    let id = runtime().block_on(async {
        let mut run = adjutant.start([Task::new("slow", "Take your time")]).unwrap();
        loop {
            let event = run.next_event().await.unwrap();
            if matches!(event.what, ProgressKind::Note { .. }) {
                break run.id();
            }
        }
    });
    let quick = SLOW.replace("delay_ms = 600000\n", "");
    let resumed = builder(directory.path(), &quick).build().unwrap();
    let report = runtime().block_on(async {
        // The dropped run still writes its end.
        loop {
            match resumed.resume(&id.to_string()).await {
                Err(Error::Engine(error)) if error.is_in_use() => tokio::task::yield_now().await,
                other => break other.unwrap(),
            }
        }
    });
    assert_eq!(report.run, id);
    assert_eq!(report.results[0].text, "too late");
}

#[test]
fn a_program_can_deny_a_batch() {
    let directory = TempDir::new().unwrap();
    let adjutant = builder(directory.path(), DONE)
        .on_approval(|_| ApprovalDecision::Deny("not on a Friday".to_owned()))
        .build()
        .unwrap();
    let report = runtime().block_on(adjutant.delegate([Task::new("a", "Look")])).unwrap();
    let reason = report.results[0].reason.as_ref().unwrap();
    assert_eq!(reason.code, ErrorCode::ApprovalDenied);
    assert!(reason.message.contains("not on a Friday"), "{}", reason.message);
}

#[test]
fn advice_is_for_programs_not_for_a_command_line() {
    let directory = TempDir::new().unwrap();
    let denied = builder(directory.path(), DONE)
        .on_approval(|_| ApprovalDecision::Deny("no".to_owned()))
        .build()
        .unwrap();
    let mut policy = Preset::Scout.policy();
    policy.children_per_run = Some(1);
    let limited = builder(directory.path(), DONE).policy(policy).build().unwrap();
    let mut policy = Preset::Scout.policy();
    policy.budget_tokens_run = Some(100);
    let poor = builder(directory.path(), DONE).policy(policy).build().unwrap();
    let tasks = || [Task::new("a", "Look"), Task::new("b", "Look again")];
    let advice = |adjutant: &Adjutant| {
        runtime().block_on(async {
            let mut run = adjutant.start(tasks()).unwrap();
            let mut said = BTreeSet::new();
            while let Some(event) = run.next_event().await {
                if let ProgressKind::Refused { recommendation, .. } = event.what {
                    said.insert(recommendation);
                }
            }
            match run.report().await {
                Ok(report) => {
                    let reasons = report.results.iter().filter_map(|it| it.reason.as_ref());
                    said.extend(reasons.map(|it| it.recommendation.clone()));
                }
                Err(error) => said.extend(error.recommendation()),
            }
            said.into_iter().collect::<Vec<_>>().join("\n")
        })
    };
    insta::assert_snapshot!([&denied, &limited, &poor].map(advice).join("\n"), @"
    Approve it in the callback of AdjutantBuilder::on_approval.
    Delegate fewer, larger tasks, or start a new run with Policy::children_per_run = 2.
    Start a new run with Policy::budget_tokens_run = 5101, or delegate less.
    Start a new run with Policy::budget_tokens_run = 5102, or delegate less.
    ");
}

/// Returns a path to `directory` from the current directory.
fn relative(directory: &Path) -> PathBuf {
    let here = std::env::current_dir().unwrap();
    let up: PathBuf = here.components().skip(1).map(|_| Component::ParentDir).collect();
    up.join(directory.strip_prefix("/").unwrap())
}

#[test]
fn relative_paths_do_not_follow_the_current_directory_later() {
    let directory = TempDir::new().unwrap();
    let path = relative(&directory.path().canonicalize().unwrap());
    assert!(path.is_relative() && path.is_dir(), "{}", path.display());
    let adjutant = builder(&path, DONE).build().unwrap();
    let report = runtime().block_on(adjutant.delegate([Task::new("a", "Look")])).unwrap();
    assert!(report.directory.as_ref().unwrap().is_absolute(), "{:?}", report.directory);
    let error = builder(&path, DONE).root("no/such/directory").build().err().unwrap().to_string();
    assert!(error.starts_with("cannot open the working tree /"), "{error}");
}

#[test]
fn bad_input_is_an_error_that_says_what_to_do() {
    let directory = TempDir::new().unwrap();
    let build_error = |builder: AdjutantBuilder| builder.build().err().unwrap().to_string();
    let adjutant = builder(directory.path(), DONE).build().unwrap();
    let delegate = |tasks: Vec<Task>| runtime().block_on(adjutant.delegate(tasks)).err().unwrap();
    insta::assert_snapshot!(
        [
            build_error(Adjutant::builder().state_dir(directory.path().join("state"))),
            build_error(builder(directory.path(), DONE).allow_writing()),
            build_error(builder(directory.path(), DONE).root("/no/such/directory")),
            build_error(builder(directory.path(), DONE).root("")),
            delegate(vec![Task::new("", "Look")]).to_string(),
            delegate(vec![Task::new("a", "Look").timeout(Duration::ZERO)]).to_string(),
            delegate(Vec::new()).to_string(),
            runtime().block_on(adjutant.resume("sess_1700000000_zzzzzz")).err().unwrap().to_string(),
        ]
        .join("\n"),
        @"
    no model is set; name one with AdjutantBuilder::model
    agents that write need adjutant::run_sandbox_helper_if_asked() as the first call of main
    cannot open the working tree /no/such/directory
    cannot make the path `` absolute
    `` is not a label
    the timeout of `a` is zero; leave it out to use that of the policy
    the call contains no tasks
    no run has the session sess_1700000000_zzzzzz
    "
    );
}

/// Tells the test that an agent has called it.
struct Signal(mpsc::Sender<()>);

impl CustomTool for Signal {
    fn spec(&self) -> ToolSpec {
        let schema = serde_json::json!({ "type": "object" });
        ToolSpec { name: "Signal".to_owned(), description: "Signals.".to_owned(), schema }
    }

    fn run(&self, _: &serde_json::Value, _: &dyn Fn() -> bool) -> ToolCallResult {
        self.0.send(()).unwrap();
        ToolCallResult::ok("signalled")
    }
}

#[test]
fn events_that_are_not_read_do_not_stop_the_run() {
    let directory = TempDir::new().unwrap();
    let note = |number: usize| {
        format!("[[turn.call]]\ntool = 'Note'\nargs = {{ text = 'note {number}' }}\n")
    };
    // Each note is two events, so these fill the queue.
    let notes: String = (0..LiveRun::MAX_WAITING_EVENTS / 2 + 10).map(note).collect();
    let script = format!(
        "[[turn]]\n{notes}[[turn]]\n[[turn.call]]\ntool = 'Signal'\nargs = {{}}\n[[turn]]\ntext = 'done'\n"
    );
    let (sender, signalled) = mpsc::channel();
    let adjutant = builder(directory.path(), &script).tool(Signal(sender)).build().unwrap();
    let run = adjutant.start([Task::new("noisy", "Note a lot")]).unwrap();
    let signal = signalled.recv_timeout(Duration::from_secs(60));
    let report = runtime().block_on(run.report()).unwrap();
    assert_eq!(signal, Ok(()), "{report:?}");
    assert_eq!(report.results[0].text, "done");
}

/// Fails to compile if a future of the library cannot move to another thread.
#[test]
fn all_futures_are_send() {
    fn is_send<T: Future + Send>(_: T) {}
    let directory = TempDir::new().unwrap();
    let adjutant = builder(directory.path(), DONE).build().unwrap();
    is_send(adjutant.delegate([Task::new("a", "Look")]));
    is_send(adjutant.resume("sess"));
    is_send(adjutant.start([Task::new("a", "Look")]).unwrap().report());
}
