//! What `docs/workers.md` tells people to type works as it stands, and what it quotes is true.
//!
//! A fake provider stands behind the page's `[providers.home]`, and the scripted ACP agent of the testkit behind its
//! `[workers.my-agent]`. That agent is this test binary, started again; see `this_binary_as_the_agent_of_the_page`.

use std::fs;

use adjutant_testkit::acp_agent;
use adjutant_testkit::fake::{Api, Conversation, Script, Turn, Usage};
use serde_json::json;

use crate::docs::commands::{blocks, repository};
use crate::docs::pages::{Shell, run_page};
use crate::support::rig::Rig;
use crate::support::schema::assert_fits;
use crate::support::server::{KEY, Server};

/// What the agent of the page does with each prompt.
const AGENT: &str = r#"
[[prompt]]
steps = [
    { call_model = { wire = "chat", text = "I am the worker.", max_tokens = 500 } },
    { write = { path = "greeting.txt", text = "Hello from the worker.\n" } },
    { run = "cat greeting.txt" },
    { say = '{"status": "completed", "summary": "I wrote greeting.txt and read it back.", "artifacts": []}' },
]
"#;

fn page() -> String {
    fs::read_to_string(repository().join("docs/workers.md")).unwrap()
}

/// A provider that answers the parent agent, workers and programs.
fn provider() -> Server {
    let usage = Usage { input: 100, output: 50, ..Usage::default() };
    let task = json!({ "tasks": [{ "label": "greet", "prompt": "Write a greeting" }] });
    let lead = [Turn::calls("Delegate", &task), Turn::says("The greeting is written.")];
    let answers = Conversation {
        when: String::new(),
        turns: vec![Turn::says("Understood.")],
        repeat_last: true,
    };
    let mut script = Script::new().using(usage).on("Have the greeting written", lead);
    script.conversations.push(answers);
    Server::start(Api::Chat, script)
}

/// Writes the page's files: its configuration, with the provider and the agent of this test in their places, its agent
/// file and its PRD.
fn prepare(rig: &Rig, page: &str, server: &Server) {
    let [config] = blocks(page, "toml")[..] else { panic!("one configuration is shown") };
    let [agent_file] = blocks(page, "markdown")[..] else { panic!("one agent file is shown") };
    let [prd] = blocks(page, "json")[..] else { panic!("one PRD is shown") };
    rig.write(".adjutant/agents/fixer.md", agent_file);
    rig.write("prd.json", prd);
    rig.write("agent.toml", AGENT);
    let this = std::env::current_exe().unwrap();
    let name = "docs::workers::this_binary_as_the_agent_of_the_page";
    let words = json!([this, "--exact", name, "--nocapture"]).to_string();
    let script = format!(
        "[workers.my-agent.environment]\nACP_AGENT_SCRIPT = {:?}",
        rig.work().join("agent.toml")
    );
    let changed = [
        ("http://127.0.0.1:8000/v1", server.url.as_str()),
        (r#"["my-agent", "--acp"]"#, &words),
        ("[workers.my-agent.environment]", &script),
    ];
    let config = changed.iter().fold(config.to_owned(), |config, (shown, here)| {
        assert!(config.contains(shown), "the configuration has no {shown}");
        config.replace(shown, here)
    });
    let folder = rig.home().join(".config/adjutant");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("config.toml"), config).unwrap();
}

#[test]
fn every_command_of_the_page_works_in_the_order_it_is_shown() {
    let (rig, page, server) = (Rig::new(), page(), provider());
    prepare(&rig, &page, &server);
    let shell = Shell::new(&rig).with("ADJUTANT_MODEL", "home/qwen3").with("HOME_MODEL_KEY", KEY);
    let counts = run_page(&page, &shell, |line, said| check_output(&rig, line, said));
    assert!(counts.run > 10, "{}", counts.run);
    println!("{} commands were run, {} only parsed:", counts.run, counts.parsed.len());
    println!("{}", counts.parsed.join("\n"));
    let requests = server.stop();
    let keys =
        requests.iter().filter(|request| format!("{request:?}").contains("held-by-adjutant"));
    assert_eq!(keys.count(), 0, "the placeholder reached the provider");
}

fn check_output(rig: &Rig, line: &str, said: &str) {
    let has = |words: &str| assert!(said.contains(words), "{line}: {words}\n{said}");
    let greeting = fs::read_to_string(rig.work().join("greeting.txt")).unwrap_or_default();
    match line {
        "adjutant workers" => has("✓ my-agent"),
        "adjutant diff" => has("+Hello from the worker."),
        "adjutant cost" => {
            has("home/qwen3");
            // 100 tokens at $2 and 50 at $10 a million.
            has("$0.0007");
        }
        "adjutant merge" => assert_eq!(greeting, "Hello from the worker.\n"),
        line if line.contains("delegate") || line.contains(" run ") => has("greeting.txt"),
        line if line.starts_with("adjutant story") => has("1 of 1 story passes"),
        line if line.contains("echo \"$OPENAI_BASE_URL\"") => has("http://127.0.0.1:"),
        line if line.contains("curl") => {
            has("Understood.");
            has("$0.0007");
        }
        _ => {}
    }
}

#[test]
fn the_page_has_a_row_for_every_built_in_worker() {
    let (rig, page) = (Rig::new(), page());
    let run = fs::read_to_string(repository().join("tests/workers/run")).unwrap();
    let listed = rig.run(["workers", "--json"]).json();
    assert_fits("workers", &listed);
    for worker in listed["workers"].as_array().unwrap() {
        let name = worker["name"].as_str().unwrap();
        let row = page.lines().find(|line| line.starts_with(&format!("| `{name}` |")));
        let row = row.unwrap_or_else(|| panic!("no row for {name}"));
        let pinned = run.lines().find_map(|line| line.trim().strip_prefix(&format!("[{name}]=")));
        let (package, version) = pinned.unwrap().rsplit_once('@').unwrap();
        assert!(row.contains(&format!("`{package}` {version}")), "{row}");
        let apis = [
            ("anthropic", "Anthropic"),
            ("chat", "Chat"),
            ("responses", "Responses"),
            ("gemini", "Gemini"),
        ];
        let wire = worker["wires"][0].as_str().unwrap();
        let (_, api) = apis.into_iter().find(|(it, _)| *it == wire).unwrap();
        assert!(row.contains(api), "{row}");
    }
}

/// Is the agent of the page if it was started as one, and nothing otherwise.
#[test]
fn this_binary_as_the_agent_of_the_page() {
    if std::env::var_os("ACP_AGENT_SCRIPT").is_some() {
        // Ends the line on which the test runner may have written the name of this test.
        println!();
        let _ = acp_agent::main(std::iter::empty());
        std::process::exit(0);
    }
}
