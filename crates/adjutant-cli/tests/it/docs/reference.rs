//! The reference pages are those of this program. `UPDATE_REFERENCE=1 cargo test -p adjutant-cli --test it
//! docs::reference` writes `docs/cli.md` and `docs/policy.md` anew.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::docs::commands::repository;
use crate::docs::pages::read;
use crate::support::rig::Rig;

const MADE: &str =
    "<!-- Generated from the program; see crates/adjutant-cli/tests/it/docs/reference.rs. -->";

#[track_caller]
fn compare(page: &str, text: &str) {
    if std::env::var_os("UPDATE_REFERENCE").is_some() {
        fs::write(repository().join(page), text).unwrap();
    }
    let is_current = fs::read_to_string(repository().join(page)).is_ok_and(|it| it == text);
    assert!(is_current, "{page} is out of date; set UPDATE_REFERENCE=1 and run this test again");
}

/// Returns the commands that the help of a command lists: the first words of indented lines below a heading.
fn commands(help: &str) -> Vec<String> {
    let (mut names, mut is_list) = (Vec::new(), false);
    for line in help.lines() {
        if !line.starts_with(' ') && !line.is_empty() {
            let is_other = ["Options:", "Arguments:", "Usage:", "Exit codes:"];
            is_list = line.ends_with(':') && !is_other.iter().any(|it| line.starts_with(it));
        } else if is_list && line.starts_with("  ") && !line.starts_with("   ") {
            names.extend(line.split_whitespace().next().map(str::to_owned));
        }
    }
    names
}

#[test]
fn the_page_of_commands_has_the_help_of_every_command() {
    let rig = Rig::new();
    let help = |words: &[&str]| rig.call(words).arg("--help").run().stdout;
    let root = help(&[]);
    let mut page = format!("# Commands\n\n{MADE}\n\n```text\n{}\n```\n", root.trim_end());
    let names = commands(&root);
    assert!(names.len() > 30, "{names:?}");
    for name in names {
        let text = help(&[&name]);
        page += &format!("\n## adjutant {name}\n\n```text\n{}\n```\n", text.trim_end());
    }
    let page: Vec<&str> = page.lines().map(str::trim_end).collect();
    compare("docs/cli.md", &(page.join("\n") + "\n"));
}

#[test]
fn the_page_of_policy_keys_has_the_values_of_every_preset() {
    let rig = Rig::new();
    let presets = ["scout", "command", "story"]
        .map(|preset| rig.run(["policy", "explain", "--json", "--preset", preset]).json());
    let mut page = format!(
        "# Policy keys\n\n{MADE}\n\n`adjutant policy explain` prints the values in force and where each comes from.\n\n\
         | key | `scout` | `command` | `story` | what it bounds | in a project file it |\n|---|---|---|---|---|---|\n"
    );
    for (key, first) in presets[0]["keys"].as_object().unwrap() {
        let values = presets.each_ref().map(|preset| match &preset["keys"][key]["value"] {
            Value::Null => "none".to_owned(),
            Value::String(text) => text.clone(),
            Value::Array(list) => {
                list.iter().map(|it| it.as_str().unwrap_or("?")).collect::<Vec<_>>().join(" ")
            }
            other @ (Value::Bool(_) | Value::Number(_) | Value::Object(_)) => other.to_string(),
        });
        let [bounds, files] = ["bounds", "project_files"].map(|it| first[it].as_str().unwrap());
        page += &format!("| `{key}` | {} | {bounds} | {files} |\n", values.join(" | "));
    }
    compare("docs/policy.md", &page);
}

#[test]
fn the_table_of_exit_codes_is_that_of_the_help() {
    let help = Rig::new().run(["--help"]).stdout;
    let (_, codes) = help.split_once("Exit codes:").unwrap();
    let page = read("docs/environment.md");
    let rows: Vec<(&str, &str)> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |")?.split_once(" | "))
        .filter(|(code, _)| code.parse::<u8>().is_ok())
        .collect();
    assert_eq!(rows.len(), 8);
    for (code, text) in rows {
        assert!(codes.contains(&format!("{code}  {text}")), "{code}: {text}");
    }
}

/// The names of variables in string literals of the sources.
fn variables(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        if entry.path().is_dir() {
            variables(&entry.path(), found);
        } else if entry.path().extension().is_some_and(|it| it == "rs") {
            let text = fs::read_to_string(entry.path()).unwrap();
            let literals = text.split('"').filter(|it| it.starts_with("ADJUTANT_"));
            let is_name = |it: &&str| it.chars().all(|it| it.is_ascii_uppercase() || it == '_');
            found.extend(literals.filter(is_name).map(str::to_owned));
        }
    }
}

#[test]
fn every_variable_of_the_sources_is_on_the_page() {
    // Set by Adjutant for itself and for a worker.
    let internal =
        ["ADJUTANT_CONTEXT", "ADJUTANT_GEMINI_SETTINGS", "ADJUTANT_SELF_TEST_PORT", "ADJUTANT_"];
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(repository().join("crates")).unwrap().map(Result::unwrap) {
        let is_tested = !entry.file_name().to_string_lossy().ends_with("testkit");
        if is_tested {
            variables(&entry.path().join("src"), &mut found);
        }
    }
    let page = read("docs/environment.md");
    for name in found.iter().filter(|it| !internal.contains(&it.as_str())) {
        assert!(page.contains(&format!("`{name}`")), "{name} is not on the page");
    }
    assert!(found.len() > 5, "{found:?}");
}
