//! Checks the layout rules of the workspace: dependencies between crates, file lengths, documents.
#![expect(clippy::unwrap_used, reason = "a workspace that cannot be read fails the test")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The workspace crates that each crate may depend on. A crate that is missing here fails the test.
const ARROWS: [(&str, &[&str]); 17] = [
    ("adjutant-formats", &[]),
    ("adjutant-core", &["adjutant-formats"]),
    ("adjutant-view", &["adjutant-core", "adjutant-formats"]),
    ("adjutant-model", &["adjutant-core", "adjutant-formats"]),
    ("adjutant-workspace", &["adjutant-core", "adjutant-formats"]),
    ("adjutant-store", &["adjutant-core", "adjutant-formats"]),
    ("adjutant-tools", &["adjutant-core", "adjutant-formats", "adjutant-workspace"]),
    (
        "adjutant-engine",
        &[
            "adjutant-core",
            "adjutant-formats",
            "adjutant-model",
            "adjutant-store",
            "adjutant-tools",
            "adjutant-workspace",
        ],
    ),
    (
        "adjutant-workers",
        &[
            "adjutant-core",
            "adjutant-formats",
            "adjutant-engine",
            "adjutant-model",
            "adjutant-workspace",
        ],
    ),
    ("adjutant-restate", &["adjutant-core", "adjutant-engine"]),
    // Not the store. The model is allowed for the one module that chooses it.
    (
        "adjutant-cli",
        &[
            "adjutant-core",
            "adjutant-formats",
            "adjutant-engine",
            "adjutant-mcp",
            "adjutant-model",
            "adjutant-restate",
            "adjutant-tui",
            "adjutant-view",
            "adjutant-workers",
        ],
    ),
    ("adjutant-tui", &["adjutant-core", "adjutant-engine", "adjutant-view"]),
    // The library for other programs chooses a model too.
    (
        "adjutant",
        &[
            "adjutant-core",
            "adjutant-formats",
            "adjutant-engine",
            "adjutant-model",
            "adjutant-view",
        ],
    ),
    ("adjutant-mcp", &["adjutant-core", "adjutant-formats", "adjutant-engine", "adjutant-view"]),
    (
        "adjutant-testkit",
        &[
            "adjutant-core",
            "adjutant-formats",
            "adjutant-engine",
            "adjutant-model",
            "adjutant-store",
        ],
    ),
    (
        "adjutant-bench",
        &[
            "adjutant-core",
            "adjutant-formats",
            "adjutant-tui",
            "adjutant-view",
            "adjutant-store",
            "adjutant-workspace",
            "adjutant-engine",
        ],
    ),
    ("xtask", &[]),
];

/// The external crates that the pure crates may use: data, text and checksums, nothing that does IO.
const PURE: [&str; 9] = [
    "jsonc-parser",
    "pulldown-cmark",
    "serde",
    "serde_json",
    "sha2",
    "thiserror",
    "toml",
    "toml_edit",
    "unicode-width",
];

/// The maximum length of a source file in lines.
const MAX_LINES: usize = 700;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn packages() -> Vec<Value> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

/// Returns the dependencies of a kind; normal dependencies have the kind `null` in the metadata.
fn dependencies(package: &Value, kind: Option<&str>) -> BTreeSet<String> {
    let of_kind = |dependency: &&Value| dependency["kind"].as_str() == kind;
    let all = package["dependencies"].as_array().unwrap().iter().filter(of_kind);
    all.map(|dependency| dependency["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn every_dependency_between_our_crates_is_an_arrow_of_the_picture() {
    let allowed: BTreeMap<&str, BTreeSet<&str>> =
        ARROWS.iter().map(|(name, to)| (*name, to.iter().copied().collect())).collect();
    for package in packages() {
        let name = package["name"].as_str().unwrap();
        let Some(allowed) = allowed.get(name) else { panic!("{name} is not in the picture") };
        for dependency in dependencies(&package, None) {
            if dependency.starts_with("adjutant-") {
                assert!(
                    allowed.contains(dependency.as_str()),
                    "{name} must not depend on {dependency}"
                );
            }
        }
    }
}

#[test]
fn the_pure_crates_use_nothing_that_does_anything() {
    for package in packages() {
        let name = package["name"].as_str().unwrap();
        if !["adjutant-formats", "adjutant-core", "adjutant-view"].contains(&name) {
            continue;
        }
        for dependency in dependencies(&package, None) {
            let known = ["adjutant-formats", "adjutant-core"].contains(&dependency.as_str())
                || PURE.contains(&dependency.as_str());
            assert!(known, "{name} is pure and must not depend on {dependency}");
        }
    }
}

#[test]
fn the_testkit_is_a_dev_dependency_only() {
    for package in packages() {
        assert!(!dependencies(&package, None).contains("adjutant-testkit"), "{}", package["name"]);
    }
}

#[test]
fn only_the_wiring_of_the_front_end_names_a_model() {
    let front = root().join("crates/adjutant-cli/src");
    for file in sources(&front) {
        let names_it = fs::read_to_string(&file).unwrap().contains("adjutant_model");
        assert!(
            !names_it || file.ends_with("wiring.rs"),
            "{} names adjutant_model",
            file.display()
        );
    }
}

#[test]
fn the_architecture_mentions_every_crate() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    for package in packages() {
        let name = package["name"].as_str().unwrap().to_owned();
        let name = if name == "adjutant-bench" { "`benches`".to_owned() } else { name };
        assert!(text.contains(&name), "ARCHITECTURE.md does not mention {name}");
    }
}

/// Returns the texts between backticks in a document, without code blocks.
fn code_spans(document: &str) -> Vec<String> {
    let text = fs::read_to_string(root().join(document)).unwrap();
    let prose: String = text.split("```").step_by(2).collect();
    prose.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn the_documents_for_contributors_name_only_types_and_files_that_exist() {
    let is_word = |it: char| it.is_ascii_alphanumeric() || it == '_';
    let sources: String = sources(&root().join("crates"))
        .iter()
        .map(|file| fs::read_to_string(file).unwrap())
        .collect();
    let words: BTreeSet<&str> = sources.split(|it: char| !is_word(it)).collect();
    for document in ["ARCHITECTURE.md", "CONTRIBUTING.md"] {
        for span in code_spans(document) {
            let is_path = span.contains('/') && span.starts_with(|it: char| it.is_lowercase());
            if is_path && !span.contains(' ') && !span.starts_with("refs/") {
                let found = ["", "crates"].iter().any(|it| root().join(it).join(&span).exists());
                let is_made = span.starts_with("target/") || span.starts_with("provider/");
                assert!(found || is_made, "{document}: `{span}` does not exist");
            }
            let is_type = |it: &str| {
                it.starts_with(|it: char| it.is_ascii_uppercase())
                    && it.contains(|it: char| it.is_ascii_lowercase())
            };
            let path = span.split('(').next().unwrap_or_default();
            if path.chars().all(|it| is_word(it) || it == ':') {
                for name in path.split("::").filter(|it| is_type(it)) {
                    assert!(words.contains(name), "{document}: no source file has `{name}`");
                }
            }
        }
    }
}

#[test]
fn every_crate_takes_the_workspace_s_lints() {
    for package in packages() {
        let manifest = fs::read_to_string(package["manifest_path"].as_str().unwrap()).unwrap();
        assert!(manifest.contains("[lints]\nworkspace = true"), "{}", package["name"]);
    }
}

/// A file that no `mod` declares is never compiled, so its tests never run.
#[test]
fn every_file_of_an_integration_test_is_declared() {
    for package in packages() {
        let folder = Path::new(package["manifest_path"].as_str().unwrap())
            .parent()
            .unwrap()
            .join("tests/it");
        for file in if folder.exists() { sources(&folder) } else { Vec::new() } {
            let stem = file.file_stem().unwrap().to_str().unwrap();
            let (declaring, name) = match stem {
                "main" => continue,
                "mod" => (file.parent().unwrap().parent().unwrap(), folder_name(&file)),
                stem => (file.parent().unwrap(), stem.to_owned()),
            };
            let declares =
                |name: &str| fs::read_to_string(declaring.join(name)).unwrap_or_default();
            let declared = declares("main.rs") + &declares("mod.rs");
            assert!(
                declared.contains(&format!("mod {name};")),
                "{} is not declared",
                file.display()
            );
        }
    }
}

fn folder_name(file: &Path) -> String {
    file.parent().unwrap().file_name().unwrap().to_str().unwrap().to_owned()
}

#[test]
fn no_source_file_is_long() {
    for folder in ["crates", "benches", "xtask"] {
        for file in sources(&root().join(folder)) {
            let lines = fs::read_to_string(&file).unwrap().lines().count();
            assert!(lines <= MAX_LINES, "{} has {lines} lines", file.display());
        }
    }
}

#[test]
fn a_slow_build_dependency_has_not_crept_in() {
    let lock = fs::read_to_string(root().join("Cargo.lock")).unwrap();
    assert!(!lock.contains("aws-lc-sys"), "TLS is rustls with ring");
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.ends_with("target") {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files
}
