//! The reference pages are those of this program. `UPDATE_REFERENCE=1 cargo test -p adjutant-cli --test it
//! docs::reference` writes them anew: `docs/cli.md` and `docs/policy.md` whole, and the parts between markers of other pages.

use std::collections::{BTreeMap, BTreeSet};
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
pub(crate) fn commands(help: &str) -> Vec<String> {
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

/// Compares the part of a page between the markers of this name.
#[track_caller]
fn compare_part(page: &str, name: &str, text: &str) {
    let old = read(page);
    let begin = format!("<!-- generated: {name} -->\n");
    let end = format!("<!-- end of {name} -->");
    let at = old.find(&begin).unwrap_or_else(|| panic!("{page} has no {begin}")) + begin.len();
    let length = old[at..].find(&end).unwrap_or_else(|| panic!("{page} has no {end}"));
    compare(page, &format!("{}\n{text}\n{}", &old[..at], &old[at + length..]));
}

#[test]
fn the_table_of_exit_codes_is_that_of_the_help() {
    let help = Rig::new().run(["--help"]).stdout;
    let (_, codes) = help.split_once("Exit codes:").unwrap();
    let mut table = "| exit code | |\n|---|---|\n".to_owned();
    // Several codes may be on a line, each a number and two spaces before its text.
    let number = regex::Regex::new(r"(\d+)  (\S.*?)(?:  |\n|$)").unwrap();
    let rows: BTreeMap<u8, String> = number
        .captures_iter(codes)
        .map(|it| (it[1].parse().unwrap(), format!("| {} | {} |\n", &it[1], it[2].trim())))
        .collect();
    assert_eq!(rows.len(), 8, "{codes}");
    table += &rows.into_values().collect::<String>();
    compare_part("docs/environment.md", "exit codes", &table);
}

#[test]
fn the_list_of_schemas_has_the_title_and_description_of_each() {
    let mut files: Vec<_> = fs::read_dir(repository().join("docs/schemas"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".json"))
        .collect();
    files.sort();
    let mut table = "| file | title | description | version |\n|---|---|---|---|\n".to_owned();
    for file in files {
        let schema: Value = serde_json::from_str(&read(&format!("docs/schemas/{file}"))).unwrap();
        let text =
            |key: &str| schema[key].as_str().unwrap_or_else(|| panic!("{file} has no {key}"));
        let version = versions(&schema);
        table += &format!(
            "| [{file}]({file}) | {} | {} | {version} |\n",
            text("title"),
            text("description")
        );
    }
    compare_part("docs/schemas/README.md", "schemas", &table);
}

/// The values that the schema allows for `v` anywhere in it.
fn versions(schema: &Value) -> String {
    let mut found = BTreeSet::new();
    let mut open = vec![schema];
    while let Some(value) = open.pop() {
        found.extend(value.pointer("/properties/v/const").and_then(Value::as_u64));
        match value {
            Value::Object(fields) => open.extend(fields.values()),
            Value::Array(items) => open.extend(items),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let found: Vec<String> = found.iter().map(|it| format!("`v: {it}`")).collect();
    if found.is_empty() { "none".to_owned() } else { found.join(", ") }
}

/// The name of a variant as serde writes it.
fn snake_case(name: &str) -> String {
    let mut text = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !text.is_empty() {
            text.push('_');
        }
        text.push(letter.to_ascii_lowercase());
    }
    text
}

#[test]
fn the_page_of_the_journal_lists_every_event_and_whether_it_must_be_durable() {
    let source = read("crates/adjutant-core/src/event/mod.rs");
    let body =
        |start: &str, end: &str| source.split_once(start).unwrap().1.split_once(end).unwrap().0;
    let (_, not_durable) = body("fn must_be_durable", "\n    }\n").split_once("!matches!").unwrap();
    let mut table = "| event | durable | what happened |\n|---|---|---|\n".to_owned();
    let (mut names, mut comment) = (BTreeSet::new(), String::new());
    // Variants and their comments have the least indentation.
    let is_outer = |line: &&str| line.starts_with("    ") && !line.starts_with("     ");
    for line in body("pub enum Event {", "\n}\n").lines().filter(is_outer) {
        if let Some(text) = line.trim_start().strip_prefix("///") {
            comment += text;
        } else if line.trim_start().starts_with(|it: char| it.is_ascii_uppercase()) {
            let name: String =
                line.trim_start().chars().take_while(char::is_ascii_alphanumeric).collect();
            let is_durable = !not_durable.contains(&format!("Self::{name} "));
            let name = snake_case(&name);
            let durable = if is_durable { "yes" } else { "no" };
            table +=
                &format!("| `{name}` | {durable} | {} |\n", std::mem::take(&mut comment).trim());
            names.insert(name);
        }
    }
    // What serde reads, so that the source was read as the compiler reads it.
    let complaint = serde_json::from_str::<adjutant_core::Event>(r#"{"type":"?"}"#).unwrap_err();
    let complaint = complaint.to_string();
    let (_, expected) = complaint.split_once("expected one of").unwrap();
    let expected: BTreeSet<String> =
        expected.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    assert_eq!(names, expected);
    compare_part("docs/journal.md", "events", &table);
}

/// The names of variables in string literals of the sources.
fn variables(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        if entry.path().is_dir() {
            variables(&entry.path(), found);
        } else if entry.path().extension().is_some_and(|it| it == "rs") {
            let text = fs::read_to_string(entry.path()).unwrap();
            let is_name = |it: &&str| {
                it.contains('_') && it.chars().all(|it| it.is_ascii_uppercase() || it == '_')
            };
            found.extend(text.split('"').filter(is_name).map(str::to_owned));
        }
    }
}

#[test]
fn every_variable_of_the_sources_is_on_the_page_and_every_variable_of_the_page_in_the_sources() {
    let of = |folders: &[&str]| {
        let mut found = BTreeSet::new();
        folders.iter().for_each(|it| variables(&repository().join("crates").join(it), &mut found));
        found
    };
    // Set by Adjutant for itself and for a worker, or by cargo.
    let internal =
        ["ADJUTANT_CONTEXT", "ADJUTANT_GEMINI_SETTINGS", "ADJUTANT_SELF_TEST_PORT", "ADJUTANT_"];
    let page = read("docs/environment.md");
    let names: BTreeSet<&str> = page.split('`').skip(1).step_by(2).collect();
    let all: Vec<String> = fs::read_dir(repository().join("crates"))
        .unwrap()
        .map(|it| format!("{}/src", it.unwrap().file_name().into_string().unwrap()))
        .filter(|it| !it.starts_with("adjutant-testkit"))
        .collect();
    let all = of(&all.iter().map(String::as_str).collect::<Vec<_>>());
    let providers = of(&["adjutant-model/src/provider"]);
    let settings =
        fs::read_to_string(repository().join("crates/adjutant-cli/src/settings.rs")).unwrap();
    let seeds = settings.split_once("STORY_ENVIRONMENT").unwrap().1.split_once("];").unwrap().0;
    let seeds = seeds.split('"').skip(1).step_by(2).map(str::to_owned);
    let own = all.iter().filter(|it| it.starts_with("ADJUTANT_")).cloned();
    let expected: BTreeSet<String> = own.chain(providers).chain(seeds).collect();
    for name in expected.iter().filter(|it| !internal.contains(&it.as_str())) {
        assert!(names.contains(name.as_str()), "{name} is not on the page");
    }
    assert!(expected.len() > 15, "{expected:?}");
    let is_variable =
        |it: &&str| it.contains('_') && it.chars().all(|it| it.is_ascii_uppercase() || it == '_');
    // An example of `ADJUTANT_<KEY>`.
    for name in names.into_iter().filter(is_variable).filter(|it| *it != "ADJUTANT_BUDGET_USD") {
        assert!(all.contains(name), "{name} is not in the sources");
    }
}
