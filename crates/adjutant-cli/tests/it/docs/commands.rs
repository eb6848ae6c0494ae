//! The commands in `docs/commands.md` work as written and print what the page quotes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use adjutant_formats::task::TaskStatus;

use crate::support::rig::{BINARY, Rig};

pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn page() -> String {
    fs::read_to_string(repository().join("docs/commands.md")).unwrap()
}

/// The blocks of a kind of fence, in order.
pub(crate) fn blocks<'a>(page: &'a str, kind: &str) -> Vec<&'a str> {
    let fence = format!("```{kind}\n");
    page.split(fence.as_str()).skip(1).map(|rest| rest.split("```").next().unwrap()).collect()
}

/// The commands of a page, in order, without the line that exports the model.
pub(crate) fn lines(page: &str) -> Vec<&str> {
    blocks(page, "console")
        .iter()
        .flat_map(|block| block.lines())
        .map(|line| line.strip_prefix("$ ").unwrap_or_else(|| panic!("{line}")))
        .filter(|line| !line.starts_with("export "))
        .collect()
}

/// Runs a line as a shell does, with a scripted model and nothing else in the environment but what a rig has.
pub(crate) fn typed(rig: &Rig, script: &str, line: &str) -> (i32, String) {
    let programs = Path::new(BINARY).parent().unwrap().display();
    let model = repository().join("examples/scripts").join(script);
    let out = Command::new("sh")
        .args(["-c", line])
        .env_clear()
        .envs(rig.environment())
        .env("PATH", format!("{programs}:{}", std::env::var("PATH").unwrap()))
        .env("ADJUTANT_MODEL", format!("script:{}", model.display()))
        .current_dir(rig.work())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = [out.stdout, out.stderr].concat();
    (out.status.code().unwrap(), String::from_utf8(said).unwrap())
}

#[test]
fn every_command_of_the_page_works_in_the_order_it_is_shown() {
    let (rig, page) = (Rig::new(), page());
    let lines = lines(&page);
    assert!(lines.len() > 15, "{lines:?}");
    for line in lines {
        let (code, said) = typed(&rig, "commands.toml", line);
        assert_eq!(code, 0, "{line}\n{said}");
        if line.contains("undo --dry-run") {
            assert!(said.contains("src/token.txt"), "{said}");
        }
    }
    for path in [
        "1_add_jwt/reports/research-001.md",
        "1_add_jwt/plans/implementation-001.md",
        "errors.json",
    ] {
        let there = rig.work().join(".adjutant/specs").join(path).is_file();
        assert_eq!(there, path != "errors.json", "{path}");
    }
    rig.assert_unharmed();
}

#[test]
fn the_command_file_of_the_page_is_read_whole() {
    let (rig, page) = (Rig::new(), page());
    let [file] = blocks(&page, "markdown")[..] else { panic!("one file is shown") };
    rig.write(".claude/commands/since.md", file);
    let json = rig.run(["commands", "since", "--json"]).json();
    let command = &json["commands"][0];
    assert_eq!(command["ignored"], serde_json::json!([]), "{command}");
    assert_eq!(
        (&command["usage"], &command["timeout_s"]),
        (&"/since TAG [PATH]".into(), &600.into()),
        "{command}"
    );
}

#[test]
fn the_page_lists_every_command_with_its_agent() {
    let (rig, page) = (Rig::new(), page());
    let json = rig.run(["commands", "--json"]).json();
    for command in json["commands"].as_array().unwrap() {
        let name = command["name"].as_str().unwrap();
        let row = page.lines().find(|line| line.starts_with(&format!("| `/{name}")));
        let row = row.unwrap_or_else(|| panic!("no row for /{name}"));
        if let Some(agent) = command["routing"][0]["agent"].as_str() {
            assert!(row.contains(&format!("`{agent}`")), "{row}");
        }
    }
}

#[test]
fn the_table_of_steps_matches_what_task_set_allows() {
    let page = page();
    for status in TaskStatus::ALL {
        let next: Vec<String> = status.next().iter().map(|it| format!("`{it}`")).collect();
        let row = format!("| `{}` | {} |", status.marker(), next.join(", "));
        assert!(page.lines().any(|line| line == row), "no row {row}");
    }
}
