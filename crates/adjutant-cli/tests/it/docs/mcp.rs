//! What `docs/mcp.md` tells people to type works as it stands, and its tables are those of the program.

use std::fs;
use std::net::TcpListener;

use serde_json::json;

use crate::docs::commands::{blocks, lines, repository};
use crate::docs::stories::typed;
use crate::support::mcp_client::{Client, SCRIPT};
use crate::support::rig::Rig;

fn page() -> String {
    fs::read_to_string(repository().join("docs/mcp.md")).unwrap()
}

#[test]
fn every_command_of_the_page_works_in_the_order_it_is_shown() {
    let (rig, page) = (Rig::new(), page());
    let lines = lines(&page);
    assert!(lines.len() > 10, "{lines:?}");
    for line in lines {
        let (code, said) = typed(&rig, line);
        assert_eq!(code, 0, "{line}\n{said}");
        let has = |words: &str| assert!(said.contains(words), "{line}: {words}\n{said}");
        match line {
            "adjutant doctor" => has("with --approve-below 1.00 --budget-usd 0.25"),
            "adjutant mcp install codex --print" => has("tool_timeout_sec = 600"),
            "adjutant mcp remove claude" => has("no longer starts the server"),
            "adjutant approvals" => has("Nothing waits"),
            "adjutant result" => has("One. Two. Three. Four. Five."),
            line if line.starts_with("grep ") => {
                has("first.jsonl:\"done\":false,\"repeated\":false");
                has("again.jsonl:\"done\":true,\"repeated\":true");
            }
            _ => {}
        }
    }
    assert_eq!(rig.runs().len(), 1, "the equal call began nothing");
    rig.assert_unharmed();
}

#[test]
fn the_script_that_speaks_http_gets_an_answer() {
    let (rig, page) = (Rig::new(), page());
    let [script] = blocks(&page, "sh")[..] else { panic!("one script is shown") };
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (code, said) = typed(&rig, &script.replace("8765", &free.to_string()));
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("\"protocolVersion\":\"2025-11-25\""), "{said}");
}

#[test]
fn every_tool_has_a_row_with_all_its_arguments() {
    let (rig, page) = (Rig::with_script(SCRIPT), page());
    let mut client = Client::start(&rig, &[], &[]);
    client.initialize("tester", "2025-11-25");
    let tools = client.request("tools/list", json!({}));
    let tools = tools["result"]["tools"].as_array().unwrap();
    for tool in tools {
        let name = tool["name"].as_str().unwrap();
        let row = page.lines().find(|line| line.starts_with(&format!("| `{name}` |")));
        let row = row.unwrap_or_else(|| panic!("no row for {name}"));
        for argument in tool["inputSchema"]["properties"].as_object().unwrap().keys() {
            let is_named = row.contains(&format!("`{argument}`")) || row.contains("the same");
            assert!(is_named, "{argument}: {row}");
        }
    }
    let rows = page.lines().filter(|line| line.starts_with("| `delegate_")).count();
    assert_eq!(rows + 2, tools.len());
}

#[test]
fn every_client_has_a_row_with_the_file_that_is_changed() {
    let (rig, page) = (Rig::new(), page());
    let (work, home) = (rig.work().display().to_string(), rig.home().display().to_string());
    let rows: Vec<&str> =
        page.lines().filter(|line| line.contains("| `adjutant mcp install ")).collect();
    assert_eq!(rows.iter().filter(|row| row.split('|').count() == 6).count(), 6, "{rows:?}");
    for row in rows.iter().filter(|row| row.split('|').count() == 6) {
        let command = row.split('`').nth(1).unwrap();
        for (scope, folder) in [("project", &work), ("user", &home)] {
            let (code, said) = typed(&rig, &format!("{command} --print --scope {scope}"));
            assert_eq!(code, 0, "{said}");
            let file = said
                .lines()
                .find_map(|line| line.strip_prefix("adjutant: ")?.strip_suffix(" must contain:"));
            let file = file.unwrap().strip_prefix(folder.as_str()).unwrap().trim_start_matches('/');
            // Where there may be several, the folder is named.
            let named = [file, file.trim_end_matches("opencode.json")];
            assert!(named.iter().any(|it| !it.is_empty() && row.contains(it)), "{file}: {row}");
        }
    }
}
