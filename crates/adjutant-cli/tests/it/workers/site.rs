//! A repository, a fake provider and the scripted agent, configured as the worker `scripted`.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use adjutant_testkit::fake::{
    Api, FakeServer, RecordedRequest, RunningServer, Script, Turn, Usage,
};
use serde_json::{Value, json};
use tokio::runtime::Handle;

use crate::kills::servers;
use crate::support::redact::redacted;
use crate::support::repository::{Repo, lines};
use crate::support::rig::{BINARY, Call, Output, Rig};
use crate::support::running::GUARD;
use crate::support::schema::assert_fits;
use crate::support::server::KEY;

/// The usage that the provider reports unless a test says otherwise.
pub(super) const USAGE: Usage =
    Usage { input: 100, cache_read: 0, cache_write: 0, output: 10, thinking: 0 };

/// The dollars of one call with [`USAGE`].
pub(super) const CALL_USD: f64 = (100.0 * 2.0 + 10.0 * 10.0) / 1e6;

/// The environment of one test.
pub(super) struct WorkerSite {
    pub(super) repo: Repo,
    pub(super) provider: Provider,
    api: Api,
}

/// A fake provider and the thread that it runs on.
pub(super) struct Provider {
    server: RunningServer,
    runtime: Handle,
}

impl Provider {
    pub(super) fn start(api: Api, script: Script) -> Self {
        let runtime = servers();
        let server = FakeServer::new(api, script.using(USAGE)).key(KEY).with_exact_delays();
        let server = runtime.block_on(server.start());
        Self { server, runtime }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.server.address())
    }

    pub(super) fn requests(&self) -> Vec<RecordedRequest> {
        self.server.requests()
    }

    /// Waits until this many requests have arrived.
    pub(super) fn wait_for_requests(&self, count: usize) {
        let arrived =
            async { tokio::time::timeout(GUARD, self.server.wait_for_requests(count)).await };
        self.runtime.block_on(arrived).unwrap();
    }

    /// Returns the tokens that were served, input and output together.
    pub(super) fn served_tokens(&self) -> u64 {
        let usages = self.requests().into_iter().filter_map(|request| request.usage);
        usages.map(|usage| usage.all_input() + usage.output).sum()
    }
}

/// Returns the program of the scripted agent.
pub(super) fn agent() -> PathBuf {
    let path = Path::new(BINARY).parent().unwrap().join("examples/acp-agent");
    assert!(path.exists(), "{} is not built; run the tests without --test", path.display());
    path
}

/// Returns a script with these prompts, each a list of steps.
pub(super) fn prompts<const N: usize>(prompts: [Value; N]) -> Value {
    let prompts: Vec<Value> = prompts.into_iter().map(|steps| json!({"steps": steps})).collect();
    json!({ "prompt": prompts })
}

/// Returns the step of a plain model call.
pub(super) fn call() -> Value {
    json!({"call_model": {"max_tokens": 200}})
}

/// Returns the step that says a valid final answer.
pub(super) fn done() -> Value {
    json!({"say": "The work is done. Nothing is left."})
}

impl WorkerSite {
    /// Makes a repository, and a provider that always answers.
    pub(super) fn new() -> Self {
        Self::with(Api::Chat, Script::always([Turn::says("ok")]))
    }

    pub(super) fn with(api: Api, script: Script) -> Self {
        let repo = Repo { rig: Rig::new() };
        repo.git(["init", "-q", "-b", "main", "."]);
        repo.rig.write("long", lines(&[]));
        repo.commit("first");
        Self { repo, provider: Provider::start(api, script), api }
    }

    pub(super) fn rig(&self) -> &Rig {
        &self.repo.rig
    }

    /// Configures the worker with this script.
    pub(super) fn script(&self, script: &Value) -> &Self {
        let wire = match self.api {
            Api::Anthropic => "anthropic",
            Api::Chat => "chat",
            Api::Responses => "responses",
            Api::Gemini => "gemini",
        };
        let mut script = script.clone();
        script["version"] = json!(self.marker());
        self.configure(&worker_section(wire, &script), &self.provider.url(), wire)
    }

    /// Returns a text that is in the command lines of this test's agents and of no other process.
    pub(super) fn marker(&self) -> String {
        let name = self.rig().path().file_name().unwrap();
        format!("of-{}", name.to_str().unwrap().trim_start_matches('.'))
    }

    /// Waits until no process of an agent is left.
    #[track_caller]
    pub(super) fn wait_until_gone(&self) {
        wait_until("the end of all processes", || processes_with(&self.marker()).is_empty());
    }

    /// Writes the user config: this text, a provider and a model.
    pub(super) fn configure(&self, workers: &str, url: &str, wire: &str) -> &Self {
        crate::support::server::configure(self.rig(), url, wire);
        let path = self.rig().home().join(".config/adjutant/config.toml");
        let config = fs::read_to_string(&path).unwrap();
        fs::write(path, format!("{config}\n{workers}")).unwrap();
        self
    }

    /// Prepares a command with the provider's key.
    pub(super) fn call(&self, args: &[&str]) -> Call<'_> {
        self.rig().call(args).env("PATH", std::env::var_os("PATH").unwrap()).env("FAKE_KEY", KEY)
    }

    /// Prepares to delegate one task to the worker.
    pub(super) fn delegate(&self, flags: &[&str]) -> Call<'_> {
        let args = ["delegate", "--write", "--worker", "scripted", "--model", "fake/priced"];
        self.call(&args).args(["--yes", "--json", "-t", "a=Do the work"]).args(flags)
    }

    /// Delegates one task to a worker with this script.
    #[track_caller]
    pub(super) fn run(&self, script: &Value, flags: &[&str]) -> WorkerRun {
        self.script(script);
        WorkerRun::read(self.delegate(flags).run())
    }

    /// Returns the events of the only run, of one type.
    pub(super) fn events(&self, kind: &str) -> Vec<Value> {
        let mut events = self.rig().events(&self.rig().only_run());
        events.retain(|event| event["type"] == kind);
        events
    }

    /// Returns the path in the state directory of the only run's journal.
    pub(super) fn journal(&self) -> PathBuf {
        self.rig().run_folder(&self.rig().only_run()).join("journal.jsonl")
    }

    /// Returns a file of the kept work of the only run.
    #[track_caller]
    pub(super) fn kept(&self, path: &str) -> String {
        let names = self.repo.git(["for-each-ref", "--format=%(refname)", "refs/adjutant"]);
        let name = names.lines().last().unwrap_or_default();
        self.repo.git(["show", &format!("{name}:{path}")])
    }

    /// Waits until the journal of the only run contains a text.
    #[track_caller]
    pub(super) fn wait_for_event(&self, text: &str) {
        wait_until(text, || {
            self.rig().runs().iter().any(|run| {
                let journal = self.rig().run_folder(run).join("journal.jsonl");
                fs::read_to_string(journal).is_ok_and(|journal| journal.contains(text))
            })
        });
    }

    /// Checks that every admitted model call was settled once, and that the bill is what was settled.
    #[track_caller]
    pub(super) fn assert_settled_once(&self) {
        let number = |event: &Value| (event["session"].clone().to_string(), event["call"].as_u64());
        let mut reserved: Vec<_> = self.events("worker_call_reserved").iter().map(number).collect();
        let mut settled: Vec<_> = self.events("worker_call_settled").iter().map(number).collect();
        reserved.sort();
        settled.sort();
        assert_eq!(reserved, settled);
    }
}

/// Returns a `[workers.scripted]` section.
pub(super) fn worker_section(wire: &str, script: &Value) -> String {
    let text = |text: &str| toml::Value::String(text.to_owned()).to_string();
    format!(
        "[workers.scripted]\ncommand = [{}, {}]\nwires = [\"{wire}\"]\n[workers.scripted.environment]\n\
         ACP_AGENT_BASE_URL = \"{{gateway}}\"\nACP_AGENT_MODEL = \"{{model}}\"\n",
        text(&agent().display().to_string()),
        text(&script.to_string()),
    )
}

/// Waits until a condition holds. Its failure names `what`.
#[track_caller]
pub(super) fn wait_until(what: &str, is_done: impl Fn() -> bool) {
    let until = Instant::now() + GUARD;
    while !is_done() {
        assert!(Instant::now() < until, "waited in vain for: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns the processes whose command lines contain a marker.
pub(super) fn processes_with(marker: &str) -> Vec<(i32, String)> {
    let line = |entry: std::io::Result<fs::DirEntry>| {
        let entry = entry.ok()?;
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        line.contains(marker).then_some((pid, line))
    };
    fs::read_dir("/proc").unwrap().filter_map(line).collect()
}

/// The output of a delegation with one task.
pub(super) struct WorkerRun {
    pub(super) out: Output,
    pub(super) json: Value,
}

impl WorkerRun {
    #[track_caller]
    pub(super) fn read(out: Output) -> Self {
        assert!(!out.stdout.is_empty(), "{out}");
        let json = out.json();
        assert_fits("result", &json);
        assert_eq!(json["results"].as_array().unwrap().len(), 1, "{out}");
        Self { out, json }
    }

    pub(super) fn result(&self) -> &Value {
        &self.json["results"][0]
    }

    pub(super) fn status(&self) -> &str {
        self.result()["outcome"].as_str().unwrap()
    }

    /// Returns the report of the worker.
    pub(super) fn report(&self) -> &str {
        self.result()["report"].as_str().unwrap_or_default()
    }

    /// Returns the outcome; if it is not completed, with the code, the message and the recommendation.
    pub(super) fn end(&self) -> String {
        let error = &self.result()["reason"];
        if error.is_null() {
            return self.status().to_owned();
        }
        let text = |name: &str| error[name].as_str().unwrap_or_default().to_owned();
        let end = format!(
            "{}\n{}: {}\n{}",
            self.status(),
            text("code"),
            text("message"),
            text("recommendation")
        );
        redacted(&end, &self.out.place)
    }
}
