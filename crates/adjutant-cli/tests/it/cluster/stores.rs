//! Workers that share nothing but the cluster and its store: work goes on elsewhere, and results come back.

use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use adjutant_testkit::fake::{Api, Script};
use rustix::process::Signal;

use crate::cluster::node::{Cluster, request, server, until};
use crate::support::project::{Project, done, one_story, runs, says, writes};
use crate::support::rig::Rig;
use crate::support::running::Running;
use crate::support::server::Server;

/// The files of a store that belong to runs.
fn stored_runs(rig: &Rig) -> Vec<PathBuf> {
    let runs = rig.path().join("store").join("runs");
    fs::read_dir(runs).into_iter().flatten().map(|entry| entry.unwrap().path()).collect()
}

fn home(rig: &Rig, worker: &str) -> PathBuf {
    rig.path().join(format!("home-of-{worker}"))
}

/// The address of a store in a directory of the test.
fn directory_store(rig: &Rig) -> String {
    let store = rig.path().join("store");
    fs::create_dir_all(&store).unwrap();
    format!("file://{}", store.display())
}

/// Starts a worker with a state directory of its own.
fn start(rig: &Rig, cluster: &mut Cluster<'_>, worker: &str, provider: Option<&Server>) {
    start_with(rig, cluster, worker, provider, &directory_store(rig));
}

fn start_with(
    rig: &Rig,
    cluster: &mut Cluster<'_>,
    worker: &str,
    provider: Option<&Server>,
    store: &str,
) {
    let home = home(rig, worker).display().to_string();
    let flags = ["--home", &home, "--store", store, "--keep", "5s"].map(str::to_owned);
    cluster.start_worker_with(worker, provider, &flags);
}

/// Returns the worker that has a checkout of the only run.
fn worker_at_work(rig: &Rig, workers: &[&'static str]) -> &'static str {
    let has_checkout = |worker: &&&str| {
        let checkouts = home(rig, worker).join("cluster").join("checkouts").join(worker);
        fs::read_dir(checkouts).into_iter().flatten().count() > 0
    };
    workers.iter().find(has_checkout).unwrap()
}

#[test]
fn the_work_of_a_lost_worker_goes_on_at_another_one() {
    let Some(node) = server() else { return };
    let project = Project::new(&one_story(), []);
    let store = directory_store(project.rig());
    let _cluster = lose_a_worker(&project, node, &store, &[]);
    until("the store has nothing of the run", || stored_runs(project.rig()).is_empty());
}

#[test]
fn the_store_may_be_a_bucket_of_an_s3_service() {
    let Some(node) = server() else { return };
    let Some(mut service) = FakeS3::start() else { return };
    let project = Project::new(&one_story(), []);
    let environment = [
        ("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{}", service.port)),
        ("AWS_ACCESS_KEY_ID", "anyone".to_owned()),
        ("AWS_SECRET_ACCESS_KEY", "a-key-of-a-fake".to_owned()),
        ("AWS_REGION", "us-east-1".to_owned()),
    ];
    let _cluster = lose_a_worker(&project, node, "s3://bucket/adjutant", &environment);
    until("the bucket has nothing of the run", || !service.objects().contains("adjutant/runs/"));
    assert!(service.objects().contains("adjutant/history/full/"), "{}", service.objects());
    service.stop();
    // The keys are in no record.
    let records = fs::read_to_string(
        project.rig().run_folder(&project.rig().only_run()).join("journal.jsonl"),
    );
    assert!(!records.unwrap().contains("a-key-of-a-fake"));
}

/// An S3 service on this machine: the program `moto_server`, from PyPI.
struct FakeS3 {
    port: u16,
    process: Child,
}

impl FakeS3 {
    /// Starts the service with an empty bucket, or says that nothing is checked.
    fn start() -> Option<Self> {
        let Some(program) = std::env::var_os("ADJUTANT_TEST_S3") else {
            println!(
                "NOT CHECKED: ADJUTANT_TEST_S3 names no moto_server, so no S3 service was used; tests/cluster/run sets it"
            );
            return None;
        };
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new(program);
        command.args(["-H", "127.0.0.1", "-p", &port.to_string()]);
        let process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let service = Self { port, process };
        until("the service has a bucket", || {
            request(port, "PUT /bucket", "").is_some_and(|answer| answer.contains(" 200"))
        });
        Some(service)
    }

    /// The names of all objects, as XML.
    fn objects(&self) -> String {
        request(self.port, "GET /bucket", "").unwrap()
    }

    fn stop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for FakeS3 {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Has a writer work on one of two workers that share only the store, loses that worker with all of its files, and
/// checks the result. Returns the cluster.
fn lose_a_worker<'rig>(
    project: &'rig Project,
    node: PathBuf,
    store: &str,
    environment: &[(&'static str, String)],
) -> Cluster<'rig> {
    // Slow enough that the worker can be lost between two steps.
    let provider = Server::start(
        Api::Chat,
        Script::from_toml(
            r#"
delay_ms = 700
[[conversation]]
[[conversation.turn]]
parts = [{ call = { name = "Write", arguments = { file_path = "made.txt", content = "first\n" } } }]
[[conversation.turn]]
parts = [{ call = { name = "Run", arguments = { command = "cat made.txt mine.txt && echo second >> made.txt && pwd" } } }]
[[conversation.turn]]
parts = [{ text = "Done." }]
"#,
        )
        .unwrap(),
    );
    let rig = project.rig();
    rig.write("mine.txt", "uncommitted");
    let mut cluster = Cluster::start(rig, node);
    cluster.environment = environment.to_vec();
    for worker in ["one", "two"] {
        start_with(rig, &mut cluster, worker, Some(&provider), store);
    }
    let runtime = cluster.runtime();
    let args = [
        "delegate",
        "--yes",
        "--write",
        "--model",
        "fake/priced",
        "-t",
        "a=Write",
        "--runtime",
        &runtime,
    ];
    let path = std::env::var_os("PATH").unwrap();
    let front = provider.call(rig, &args).env("PATH", path);
    let front = environment.iter().fold(front, |call, (name, value)| call.env(name, value)).start();
    until("the first step is recorded", || provider.requests().len() >= 2);
    let lost = worker_at_work(rig, &["one", "two"]);
    cluster.kill_worker(lost);
    // Nothing of it is left.
    fs::remove_dir_all(home(rig, lost)).unwrap();
    let output = front.finish();
    assert_eq!(output.code, 0, "{output}");
    let run = rig.only_run();
    let events = rig.events(&run);
    let kept = events.iter().find(|event| event["type"] == "space_kept").unwrap();
    let commit = kept["commit"].as_str().unwrap();
    let result = project.repo.git(["show", &format!("{commit}:made.txt")]);
    assert_eq!(result, "first\nsecond", "both steps are in the result");
    let reference = kept["reference"].as_str().unwrap();
    assert_eq!(project.repo.git(["rev-parse", reference]).trim(), commit);
    let told: Vec<&str> = events
        .iter()
        .filter(|event| event["type"] == "tool_returned")
        .filter_map(|event| event["content"].as_str())
        .collect();
    assert!(told.iter().any(|text| text.contains("uncommitted")), "{told:?}");
    let shown = rig.work().canonicalize().unwrap().display().to_string();
    assert!(told.iter().any(|text| text.contains(&shown)), "the path of the checkout: {told:?}");
    let made = events.iter().find(|event| event["type"] == "space_made").unwrap();
    assert!(made["project"].is_null(), "the agent is told what the run is told: {made}");
    let asked_again = provider.requests().len() - 3;
    assert!(asked_again <= 1, "only the call that was under way is made again");
    rig.assert_unharmed();
    cluster
}

#[test]
fn a_worker_that_is_restarted_during_a_command_goes_on_with_the_stored_work() {
    let Some(node) = server() else { return };
    let turns = [
        writes("a", "made.txt", "made\n"),
        runs("a", "echo run >> made.txt; echo begun; sleep 600"),
        says("a", "{{result | first_line}}"),
    ];
    let project = Project::new(&one_story(), turns);
    let rig = project.rig();
    let mut cluster = Cluster::start(rig, node);
    start(rig, &mut cluster, "one", None);
    let mut front = start_writer(&project, &cluster.runtime());
    front.wait_for("[a] Run");
    let run = rig.only_run();
    until("the command runs", || rig.events(&run).iter().any(|event| event["type"] == "printed"));
    cluster.kill_worker("one");
    start(rig, &mut cluster, "one", None);
    let output = front.finish();
    assert_eq!(output.code, 0, "{output}");
    assert!(output.stdout.contains("Interrupted"), "{output}");
    let work = project.left(&run, "a", "made.txt");
    assert!(["made\nrun", "made"].contains(&work.as_str()), "{work}");
    rig.assert_unharmed();
}

#[test]
fn work_that_comes_back_to_a_worker_has_what_was_done_elsewhere_meanwhile() {
    let Some(node) = server() else { return };
    let steps = 9;
    let mut script = "delay_ms = 1500\n[[conversation]]\n".to_owned();
    for step in 1..=steps {
        script += &format!(
            "[[conversation.turn]]\nparts = [{{ call = {{ name = \"Run\", arguments = {{ command = \"echo step {step} >> made.txt\" }} }} }}]\n"
        );
    }
    script += "[[conversation.turn]]\nparts = [{ text = \"Done.\" }]\n";
    let provider = Server::start(Api::Chat, Script::from_toml(&script).unwrap());
    let project = Project::new(&one_story(), []);
    let rig = project.rig();
    let mut cluster = Cluster::start(rig, node);
    for worker in ["one", "two"] {
        start(rig, &mut cluster, worker, Some(&provider));
    }
    let runtime = cluster.runtime();
    let args = ["delegate", "--yes", "--write", "--model", "fake/priced", "-t", "a=Write"];
    let args = [&args[..], &["--runtime", &runtime]].concat();
    let path = std::env::var_os("PATH").unwrap();
    let front = provider.call(rig, &args).env("PATH", path).start();
    until("the first steps are recorded", || provider.requests().len() >= 3);
    let first = worker_at_work(rig, &["one", "two"]);
    let second = if first == "one" { "two" } else { "one" };
    cluster.signal_worker(first, Signal::STOP);
    let before = provider.requests().len();
    until("the other worker goes on", || provider.requests().len() >= before + 3);
    cluster.signal_worker(first, Signal::CONT);
    until("it goes on further", || provider.requests().len() >= before + 4);
    cluster.kill_worker(second);
    let output = front.finish();
    assert_eq!(output.code, 0, "{output}");
    let run = rig.only_run();
    let events = rig.events(&run);
    let outputs = events.iter().filter(|event| event["type"] == "tool_returned");
    let interrupted: Vec<usize> = (1..=steps)
        .zip(outputs)
        .filter(|(_, event)| event["content"].as_str().unwrap().starts_with("Interrupted"))
        .map(|(step, _)| step)
        .collect();
    let work = project.left(&run, "a", "made.txt");
    for step in 1..=steps {
        let times = work.lines().filter(|line| *line == format!("step {step}")).count();
        assert!(times == 1 || interrupted.contains(&step) && times == 0, "step {step}:\n{work}");
    }
    rig.assert_unharmed();
}

/// Starts a subagent that writes, with the label `a`, and returns the process.
fn start_writer<'a>(project: &'a Project, runtime: &str) -> Running<'a> {
    let model = format!("script:{}", project.rig().path().join("script.json").display());
    let args = ["delegate", "--yes", "--write", "--model", &model, "-t", "a=Write"];
    project.call(args).args(["--runtime", runtime]).start()
}

/// Starts the only story of a project, and returns the process.
fn start_story<'a>(project: &'a Project, runtime: &str) -> Running<'a> {
    let model = format!("script:{}", project.rig().path().join("script.json").display());
    let args = ["story", "prd.json", "--yes", "--enable-delegation", "--model", &model];
    project.call(args).args(["--runtime", runtime]).start()
}

/// Returns how many results of tools the only run has; none before it has begun.
fn tool_results(rig: &Rig) -> usize {
    let Some(run) = rig.runs().pop() else { return 0 };
    let log = rig.run(["log", &run, "--json"]);
    log.lines().filter(|record| record["event"]["type"] == "tool_returned").count()
}

/// Returns the files of the story's branch, with the ids of their contents.
fn story_files(project: &Project) -> String {
    let branches = project.repo.git(["branch", "--list", "--format=%(refname:short)"]);
    let story = branches.lines().find(|name| *name != "main").unwrap().to_owned();
    project.repo.git(["ls-tree", "-r", &story])
}

#[test]
fn a_story_with_children_on_workers_that_share_nothing_ends_as_it_does_locally() {
    let Some(node) = server() else { return };
    let project = || {
        let turns = [
            writes("US-001", "ground", "laid by the parent\n"),
            says("US-001", "[delegate:Implement JWT:1]\n[delegate:Create UI:1]"),
            done("US-001"),
            writes("Implement JWT", "jwt", "by jwt\n"),
            runs("Implement JWT", "cat prd.json ground > copy && ls"),
            done("Implement JWT"),
            writes("Create UI", "ui", "by ui\n"),
            done("Create UI"),
        ];
        Project::new(&one_story(), turns)
    };
    let base = Rig::new();
    let mut cluster = Cluster::start(&base, node);
    for worker in ["one", "two", "three"] {
        start(&base, &mut cluster, worker, None);
    }
    let runtime = cluster.runtime();
    let run = |runtime: &str| {
        let project = project();
        let output = start_story(&project, runtime).finish();
        assert_eq!(output.code, 0, "{runtime}: {output}");
        story_files(&project)
    };
    assert_eq!(run(&runtime), run("local"));
    until("the store has nothing of the run", || stored_runs(&base).is_empty());
    base.assert_unharmed();
}

#[test]
fn the_work_of_a_story_and_its_children_is_complete_after_their_worker_was_lost() {
    let Some(node) = server() else { return };
    let children = ["Implement JWT", "Create UI", "Write docs", "Add tests"];
    let marker = |child| format!("[delegate:{child}:1]\n");
    let mut turns = vec![
        writes("US-001", "ground", "laid by the parent\n"),
        says("US-001", &format!("{}[delegate:Look:1]", children.map(marker).concat())),
        // It changes nothing, so it has no result, also not at the other worker.
        runs("Look", "cat ground; sleep 5"),
        done("Look"),
        runs("US-001", "cat 'Implement JWT' 'Create UI' 'Write docs' 'Add tests' > all"),
        done("US-001"),
    ];
    for (nth, child) in children.iter().enumerate() {
        turns.push(writes(child, child, &format!("by {child}\n")));
        // They end one after another, so that some are merged by the worker that takes over.
        turns.push(runs(child, &format!("sleep {}", 3 + nth)));
        turns.push(done(child));
    }
    let project = Project::new(&one_story(), turns);
    let rig = project.rig();
    let mut cluster = Cluster::start(rig, node);
    for worker in ["one", "two", "three"] {
        start(rig, &mut cluster, worker, None);
    }
    let front = start_story(&project, &cluster.runtime());
    until("the parent and its children have written", || tool_results(rig) > children.len());
    let lost = worker_at_work(rig, &["one", "two", "three"]);
    cluster.kill_worker(lost);
    fs::remove_dir_all(home(rig, lost)).unwrap();
    let output = front.finish();
    assert_eq!(output.code, 0, "{output}");
    let files = story_files(&project);
    let names: Vec<&str> =
        files.lines().map(|line| line.split('\t').next_back().unwrap()).collect();
    for name in children.into_iter().chain(["ground", "all"]) {
        assert!(names.iter().any(|it| it.trim_matches('"') == name), "{name}: {files}");
    }
    let events = rig.events(&rig.only_run());
    let results = events.iter().filter(|event| event["type"] == "space_kept");
    let results = results.filter(|event| !event["commit"].is_null()).count();
    assert_eq!(results, 1 + children.len());
    rig.assert_unharmed();
}

#[test]
fn work_that_an_agent_has_undone_stays_undone_at_another_worker() {
    let Some(node) = server() else { return };
    let turns = [
        writes("a", "made.txt", "made\n"),
        runs("a", "rm made.txt"),
        runs("a", "sleep 600"),
        runs("a", "ls"),
        says("a", "{{result | first_line}}"),
    ];
    let project = Project::new(&one_story(), turns);
    let rig = project.rig();
    let mut cluster = Cluster::start(rig, node);
    start(rig, &mut cluster, "one", None);
    let front = start_writer(&project, &cluster.runtime());
    until("the file is removed again", || tool_results(rig) == 2);
    start(rig, &mut cluster, "two", None);
    cluster.kill_worker("one");
    fs::remove_dir_all(home(rig, "one")).unwrap();
    let output = front.finish();
    assert_eq!(output.code, 0, "{output}");
    let events = rig.events(&rig.only_run());
    let listed = events.iter().rfind(|event| event["type"] == "tool_returned").unwrap();
    let listed = listed["content"].as_str().unwrap();
    assert!(listed.contains("prd.json") && !listed.contains("made.txt"), "{listed}");
    let kept = events.iter().find(|event| event["type"] == "space_kept").unwrap();
    assert!(kept["commit"].is_null(), "there is no result: {kept}");
    rig.assert_unharmed();
}

#[test]
fn a_result_that_the_user_has_discarded_does_not_come_back_when_the_run_is_continued() {
    let Some(node) = server() else { return };
    let turns = [
        writes("a", "a.txt", "a\n"),
        says("a", "Done."),
        writes("b", "b.txt", "b\n"),
        says("b", "Done."),
        writes("a", "more.txt", "more\n"),
        says("a", "Done again."),
    ];
    let project = Project::new(&one_story(), turns);
    let rig = project.rig();
    let mut cluster = Cluster::start(rig, node);
    start(rig, &mut cluster, "one", None);
    let runtime = cluster.runtime();
    let model = format!("script:{}", rig.path().join("script.json").display());
    let args =
        ["delegate", "--yes", "--write", "--model", &model, "-t", "a=Write", "-t", "b=Write"];
    let output = project.call(args).args(["--runtime", &runtime]).run();
    assert_eq!(output.code, 0, "{output}");
    assert_eq!(project.call(["discard", "b", "--yes"]).run().code, 0);
    let output = project.call(["resume", "a", "--say", "More", "--yes"]).run();
    assert_eq!(output.code, 0, "{output}");
    let output = project.call(["diff", "--stat"]).run();
    assert!(output.stdout.contains("more.txt"), "{output}");
    assert!(!output.stdout.contains("b.txt"), "{output}");
    rig.assert_unharmed();
}

#[test]
fn what_cannot_be_done_on_copies_is_refused_before_the_run_begins() {
    let Some(node) = server() else { return };
    let project = Project::new(&one_story(), [says("a", "Done.")]);
    let rig = project.rig();
    let mut cluster = Cluster::start(rig, node);
    start(rig, &mut cluster, "one", None);
    let runtime = cluster.runtime();
    let model = format!("script:{}", rig.path().join("script.json").display());
    let delegate = |more: &[&str]| {
        let args = ["delegate", "--yes", "--model", &model, "-t", "a=Look", "--runtime", &runtime];
        project.call([args.as_slice(), more].concat()).run()
    };
    let command = ["run", "--yes", "--model", &model, "/research 1", "--runtime", &runtime];
    let on_list = ["run", "--write", "--yes", "--model", &model, "/research 1"];
    let on_list = [&on_list[..], &["--runtime", &runtime]].concat();
    rig.tasks(".adjutant/specs", &[1]);
    let refused = [
        (delegate(&["--write", "--include-ignored", "target"]), "leave --include-ignored out"),
        (project.call(command).run(), "use --write, or --runtime local"),
        (project.call(on_list).run(), "the list of tasks there would not be updated"),
    ];
    for (output, text) in refused {
        assert_eq!(output.code, 1, "{output}");
        assert!(output.stderr.contains(text), "{text}: {output}");
    }
    rig.write(".env", "TOKEN=secret");
    let output = delegate(&[]);
    assert_eq!(output.code, 1, "{output}");
    assert!(output.stderr.contains(".env is in git"), "{output}");
    assert_eq!(rig.runs(), Vec::<String>::new(), "nothing began");
    // A worker with another store, or none, would not find the files.
    cluster.start_worker("other", None);
    fs::remove_file(rig.work().join(".env")).unwrap();
    let output = delegate(&[]);
    assert!(output.stderr.contains("use different stores"), "{output}");
}
