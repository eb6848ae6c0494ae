//! `init` on a terminal: every branch of the conversation, and that an aborted one leaves nothing behind.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use serde_json::Value;

use super::served_model::{Answer, serve};
use crate::support::rig::{BINARY, Rig};
use crate::support::schema::assert_fits;
use crate::support::terminal::Terminal;

const KEY: &str = "sk-secret-of-the-person";

/// Nothing answers here.
const NOWHERE: &str = "http://127.0.0.1:9/v1";

fn config(rig: &Rig) -> PathBuf {
    rig.home().join(".config/adjutant/config.toml")
}

fn settings(rig: &Rig) -> toml::Table {
    toml::from_str(&fs::read_to_string(config(rig)).unwrap()).unwrap()
}

/// Starts `init` with OpenAI at `openai`, whose key is in the environment, and Ollama at `ollama`.
fn start(rig: &Rig, columns: u16, openai: &str, ollama: &str) -> Terminal {
    let env = [("OPENAI_API_KEY", KEY), ("OPENAI_BASE_URL", openai), ("OLLAMA_BASE_URL", ollama)];
    Terminal::start(rig, columns, &env, &["init"])
}

/// The number of the menu's line with this text.
fn number(terminal: &Terminal, text: &str) -> String {
    let screen = terminal.screen();
    let mut lines = screen.lines().map(str::trim_start);
    let line = lines.rfind(|line| line.contains(text));
    let line = line.unwrap_or_else(|| panic!("no {text} on\n{screen}"));
    line.split(' ').next().unwrap().to_owned()
}

#[test]
fn a_provider_with_a_key_is_chosen_checked_and_written_on_a_narrow_terminal() {
    let (rig, url) = (Rig::new(), serve(Answer::Ready));
    let mut terminal = start(&rig, 50, &url, NOWHERE);
    terminal.wait_for("Number [1]:").types("\r").wait_for("Model [").types("gpt-5\r");
    terminal.wait_for("[y/N]");
    let asked = terminal.screen();
    let check = asked.split("Check it").nth(1).unwrap();
    insta::assert_snapshot!(format!("Check it{check}"), @"
    Check it with one small request (at most 2,000
    tokens, $0.02)? [y/N]
    ");
    assert!(asked.contains("the key is in OPENAI_API_KEY") && !asked.contains(KEY), "{asked}");
    assert!(!config(&rig).exists(), "nothing is written before the last answer");
    terminal.types("y\r").wait_for("Try it:");
    assert_eq!(terminal.finish(), 0);
    let end = terminal.screen();
    assert!(end.contains("✓ openai/gpt-5 answered in"), "{end}");
    assert!(end.contains("adjutant delegate -t try='What is here?'"), "{end}");
    assert_eq!(settings(&rig)["model"].as_str(), Some("openai/gpt-5"));
    assert_eq!(settings(&rig).len(), 1);
    assert_eq!(fs::metadata(config(&rig)).unwrap().permissions().mode() & 0o777, 0o600);
    let ended = rig.events(&rig.only_run()).pop().unwrap();
    assert_eq!(ended["type"], "run_ended", "the check is a run like any other");
}

#[test]
fn a_local_server_is_used_only_after_a_typed_yes() {
    let (rig, url) = (Rig::new(), serve(Answer::Ready));
    let env = [("OLLAMA_BASE_URL", url.as_str())];
    let mut terminal = Terminal::start(&rig, 80, &env, &["init"]);
    terminal.wait_for("Number:").types("\r").wait_for("`` is not a number");
    let ollama = number(&terminal, "ollama: qwen3 and 1 more");
    terminal.types(&format!("{ollama}\r")).wait_for("Send the work of subagents to the program at");
    terminal.types("\r").wait_until("menu again", |it| it.matches("Which model").count() == 3);
    terminal.types(&format!("{ollama}\r"));
    terminal.wait_until("question again", |it| it.matches("Send the work").count() == 2);
    terminal.types("yes\r").wait_for("Model [qwen3]:").types("llama\r");
    terminal.wait_for("its price is not known").types("y\r").wait_for("Try it:");
    assert_eq!(terminal.finish(), 0, "{}", terminal.screen());
    assert_eq!(settings(&rig)["model"].as_str(), Some("ollama/llama"));
}

#[test]
fn a_model_that_does_not_answer_says_why_and_leads_back_to_the_menu() {
    for (answer, said) in [
        (serve(Answer::WrongKey), "authentication failed: HTTP 401"),
        (serve(Answer::UnknownModel), "model_not_found"),
        (NOWHERE.to_owned(), "cannot connect to 127.0.0.1:9"),
    ] {
        let rig = Rig::new();
        let mut terminal = start(&rig, 100, &answer, NOWHERE);
        terminal.wait_for("Number [1]:").types("\r").wait_for("Model [").types("\r");
        terminal.wait_for("[y/N]").types("y\r").wait_for("Use it all the same?");
        let screen = terminal.screen();
        assert!(screen.contains("✗ openai/") && screen.contains(said), "{said}:\n{screen}");
        terminal.types("n\r").wait_until("menu again", |it| it.matches("Which model").count() == 2);
        let later = number(&terminal, "no model now");
        terminal.types(&format!("{later}\r")).wait_for("Try it:");
        assert_eq!(terminal.finish(), 0);
        assert!(settings(&rig).is_empty());
    }
}

#[test]
fn a_typed_key_is_not_shown_and_is_only_in_the_private_file() {
    let (rig, url) = (Rig::new(), serve(Answer::Ready));
    let env = [("OPENAI_BASE_URL", url.as_str()), ("OLLAMA_BASE_URL", NOWHERE)];
    let mut terminal = Terminal::start(&rig, 120, &env, &["init"]);
    terminal.wait_for("Number:");
    let other = number(&terminal, "another provider");
    terminal.types(&format!("{other}\r")).wait_for("Provider (").types("openai\r");
    terminal.wait_for("export OPENAI_API_KEY").wait_for("Key:").types(&format!("{KEY}\r"));
    terminal.wait_for("Model [").types("\r").wait_for("[y/N]").types("y\r").wait_for("Try it:");
    assert_eq!(terminal.finish(), 0, "{}", terminal.screen());
    assert!(!terminal.raw.contains(KEY), "{}", terminal.raw);
    assert_eq!(settings(&rig)["providers"]["openai"]["key"].as_str(), Some(KEY));
    assert_eq!(fs::metadata(config(&rig)).unwrap().permissions().mode() & 0o777, 0o600);
    let journal =
        fs::read_to_string(rig.run_folder(&rig.only_run()).join("journal.jsonl")).unwrap();
    assert!(!journal.contains(KEY));
    assert!(rig.run(["doctor"]).stdout.contains("reading subagents with openai/"));
}

#[test]
fn each_client_that_is_installed_is_offered_and_changed_only_after_a_yes() {
    let (rig, url) = (Rig::new(), serve(Answer::Ready));
    rig.program(&rig.path().join("bin/claude"));
    rig.program(&rig.path().join("bin/gemini"));
    let path = format!("{}/bin", rig.path().display());
    let env = [("OPENAI_API_KEY", KEY), ("OPENAI_BASE_URL", url.as_str()), ("PATH", path.as_str())];
    let mut terminal = Terminal::start(&rig, 120, &env, &["init"]);
    terminal.wait_for("Number [1]:").types("\r").wait_for("Model [").types("\r");
    terminal.wait_for("small request").types("\r");
    terminal.wait_for("Let Claude Code delegate to Adjutant?").types("y\r");
    terminal.wait_for("Let Gemini CLI delegate to Adjutant?").types("\r").wait_for("Try it:");
    assert_eq!(terminal.finish(), 0);
    let text = fs::read_to_string(rig.work().join(".mcp.json")).unwrap();
    let entry: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(entry["mcpServers"]["adjutant"]["args"][0], "mcp");
    assert!(!text.contains(KEY));
    assert!(!rig.work().join(".gemini").exists());
}

#[test]
fn ctrl_c_and_ctrl_d_at_every_question_leave_nothing_behind() {
    let url = serve(Answer::Ready);
    // What is typed before, each with what it waits for.
    let steps: [(&str, &str); 4] = [
        ("Number [1]:", "\r"),
        ("Model [", "\r"),
        ("small request", "y\r"),
        ("Let Claude Code", ""),
    ];
    for stop in ["\u{3}", "\u{4}"] {
        for last in 0..steps.len() {
            let rig = Rig::new();
            rig.program(&rig.path().join("bin/claude"));
            let path = format!("{}/bin", rig.path().display());
            let env = [
                ("OPENAI_API_KEY", KEY),
                ("OPENAI_BASE_URL", url.as_str()),
                ("PATH", path.as_str()),
            ];
            let mut terminal = Terminal::start(&rig, 100, &env, &["init"]);
            for (shown, typed) in &steps[..last] {
                terminal.wait_for(shown).types(typed);
            }
            terminal.wait_for(steps[last].0).types(stop);
            assert_eq!(terminal.finish(), 130, "{}", terminal.screen());
            assert!(terminal.screen().contains("adjutant: cancelled"), "{}", terminal.screen());
            // Only the last question comes after the file.
            assert_eq!(config(&rig).exists(), last == 3, "{last}");
            assert!(!rig.work().join(".mcp.json").exists());
        }
    }
}

#[test]
fn ctrl_c_at_the_key_shows_typing_again() {
    let rig = Rig::new();
    let line = format!("trap : INT; {BINARY} init; stty -a");
    let mut terminal = Terminal::shell(&rig, &line);
    terminal.wait_for("Number:");
    let other = number(&terminal, "another provider");
    terminal.types(&format!("{other}\r")).wait_for("Provider (").types("gemini\r");
    terminal.wait_for("Key:").types("half a key\u{3}");
    assert_eq!(terminal.finish(), 0);
    assert!(terminal.raw.contains(" echo "), "{}", terminal.raw);
    assert!(!terminal.raw.contains("half a key"), "{}", terminal.raw);
    assert!(!config(&rig).exists());
}

#[test]
fn an_existing_file_stays_as_it_is_and_the_lines_to_add_are_shown() {
    let (rig, url) = (Rig::new(), serve(Answer::Ready));
    fs::create_dir_all(config(&rig).parent().unwrap()).unwrap();
    let own = format!("[providers.mine]\nbase_url = \"{url}\"\n");
    fs::write(config(&rig), &own).unwrap();
    let mut terminal = Terminal::start(&rig, 160, &[("OLLAMA_BASE_URL", NOWHERE)], &["init"]);
    terminal.wait_for("exists and stays as it is").wait_for("Number:");
    let mine = number(&terminal, "mine: qwen3");
    // A key could not be stored, so the person is told where to put it.
    let other = number(&terminal, "another provider");
    terminal.types(&format!("{other}\r")).wait_for("Provider (").types("openai\r");
    terminal.wait_for("Export OPENAI_API_KEY").wait_for("[providers.openai]").wait_for("Number:");
    terminal.types(&format!("{mine}\r")).wait_for("Send the work").types("y\r");
    terminal.wait_for("Model [qwen3]").types("\r").wait_for("small request").types("n\r");
    terminal.wait_for("Try it:");
    assert_eq!(terminal.finish(), 0);
    assert!(terminal.screen().contains("  model = \"mine/qwen3\""), "{}", terminal.screen());
    assert_eq!(fs::read_to_string(config(&rig)).unwrap(), own);
}

#[test]
fn the_file_that_init_wrote_without_a_model_is_completed() {
    let (rig, url) = (Rig::new(), serve(Answer::Ready));
    assert_eq!(rig.run(["init"]).code, 0);
    let mut terminal = start(&rig, 100, NOWHERE, &url);
    terminal.wait_for("Number [1]:");
    let local = number(&terminal, "ollama: qwen3");
    terminal.types(&format!("{local}\r")).wait_for("Send the work").types("y\r");
    terminal.wait_for("Model [qwen3]").types("\r").wait_for("small request").types("n\r");
    terminal.wait_for("Try it:");
    assert_eq!(terminal.finish(), 0, "{}", terminal.screen());
    assert_eq!(settings(&rig)["model"].as_str(), Some("ollama/qwen3"));
}

#[test]
fn what_cannot_be_written_is_said_before_the_first_question() {
    let rig = Rig::new();
    fs::write(rig.home().join(".config"), "a file where a directory belongs").unwrap();
    let mut terminal = Terminal::start(&rig, 100, &[], &["init"]);
    assert_eq!(terminal.finish(), 1);
    let screen = terminal.screen();
    assert!(screen.contains("cannot write") && !screen.contains("Which model"), "{screen}");
    let mut terminal =
        Terminal::start(&rig, 100, &[("HOME", ""), ("XDG_CONFIG_HOME", "")], &["init"]);
    assert_eq!(terminal.finish(), 2);
    assert!(terminal.screen().contains("HOME is not set"), "{}", terminal.screen());
}

#[test]
fn yes_and_a_missing_terminal_write_the_commented_file_once() {
    let rig = Rig::new();
    let mut terminal = Terminal::start(&rig, 100, &[], &["init", "--yes"]);
    assert_eq!(terminal.finish(), 0);
    assert!(settings(&rig).is_empty());
    let again = rig.run(["init"]);
    assert_eq!(again.code, 2);
    assert!(again.stderr.contains("exists already and was left alone"), "{again}");
    fs::remove_file(config(&rig)).unwrap();
    let json = rig.run(["init", "--json"]).json();
    assert_fits("init", &json);
    assert_eq!(json["path"], config(&rig).to_str().unwrap());
}
