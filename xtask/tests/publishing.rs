//! Checks what `cargo package --workspace` and a registry demand of the manifests, without packaging anything.
#![expect(clippy::unwrap_used, reason = "a workspace that cannot be read fails the test")]

use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use serde_json::Value;

fn packages() -> Vec<Value> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

/// Returns the packages that may be published: those without `publish = false`.
fn published() -> Vec<Value> {
    let all: Vec<Value> = packages().into_iter().filter(|it| it["publish"].is_null()).collect();
    assert!(all.len() > 10, "{} packages may be published", all.len());
    all
}

fn folder(package: &Value) -> PathBuf {
    Path::new(package["manifest_path"].as_str().unwrap()).parent().unwrap().to_owned()
}

#[test]
fn every_crate_and_every_dependency_on_one_has_the_version_of_the_workspace() {
    let version = env!("CARGO_PKG_VERSION");
    for package in packages() {
        assert_eq!(package["version"], version, "{}", package["name"]);
        let ours = package["dependencies"].as_array().unwrap().iter();
        for dependency in ours.filter(|it| !it["path"].is_null()) {
            // A dev-dependency with a version would have to be published first, which the circle around testkit forbids.
            let exact = format!("={version}");
            let expected = if dependency["kind"] == "dev" { "*" } else { exact.as_str() };
            assert_eq!(dependency["req"], expected, "{} needs {dependency:#}", package["name"]);
        }
    }
}

#[test]
fn what_is_published_says_what_it_is_and_has_its_licences() {
    for package in published() {
        let name = package["name"].as_str().unwrap();
        for field in ["description", "repository", "readme", "license"] {
            assert!(package[field].is_string(), "{name} has no {field}");
        }
        let description = package["description"].as_str().unwrap();
        let is_internal = description.contains("Internal to Adjutant");
        assert_eq!(is_internal, !["adjutant", "adjutant-cli"].contains(&name), "{name}");
        for text in ["LICENSE-MIT", "LICENSE-APACHE"] {
            assert!(folder(&package).join(text).is_file(), "{name} has no {text}");
        }
    }
}

/// Files outside a crate are not in its package, so it could not be compiled.
#[test]
fn sources_include_no_file_outside_their_crate() {
    for package in published() {
        let root = folder(&package);
        for file in rust_files(&root.join("src")) {
            let text = fs::read_to_string(&file).unwrap();
            for literal in
                text.split("include_str!(\"").skip(1).chain(text.split("include_bytes!(\"").skip(1))
            {
                let included = literal.split('"').next().unwrap();
                let path = without_dots(&file.parent().unwrap().join(included));
                assert!(path.starts_with(&root), "{} includes {included}", file.display());
            }
        }
    }
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") && !path.is_symlink()
        {
            files.push(path);
        }
    }
    files
}

fn without_dots(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut seen, part| {
        if part == Component::ParentDir {
            seen.pop();
        } else {
            seen.push(part);
        }
        seen
    })
}
