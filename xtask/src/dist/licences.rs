//! The crates in the program, their licences, and the texts that must travel with it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::{Problem, output};

/// What a static program contains besides crates, and the licences of that.
const SYSTEM: &str = include_str!("../../packaging/system-notices");

/// A crate that is compiled into the program.
pub(super) struct Dependency {
    name: String,
    version: String,
    licence: String,
    folder: PathBuf,
}

/// Returns the crates of other people in the program, sorted by name.
pub(super) fn dependencies(root: &Path) -> Result<Vec<Dependency>, Problem> {
    let cargo = || Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let tree = output(
        cargo()
            .args(["tree", "--locked", "-p", "adjutant-cli", "-e", "normal", "--prefix", "none"])
            .args(["--format", "{p}"])
            .current_dir(root),
    )?;
    let metadata =
        output(cargo().args(["metadata", "--locked", "--format-version", "1"]).current_dir(root))?;
    let metadata: Value = serde_json::from_str(&metadata).map_err(|error| error.to_string())?;
    let mut found = BTreeMap::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let text = |key: &str| package[key].as_str().unwrap_or_default().to_owned();
        let (name, version) = (text("name"), text("version"));
        // A crate of this workspace has no source.
        let is_used = tree.lines().any(|line| line.starts_with(&format!("{name} v{version}")));
        if is_used && !package["source"].is_null() {
            let folder =
                Path::new(&text("manifest_path")).parent().unwrap_or(Path::new("")).to_owned();
            let licence = text("license");
            found.insert(
                (name.clone(), version.clone()),
                Dependency { name, version, licence, folder },
            );
        }
    }
    if found.is_empty() {
        return Err("cargo names no dependencies".to_owned());
    }
    Ok(found.into_values().collect())
}

/// Returns one line per crate, and for the libraries of the system in a static program.
pub(super) fn list(dependencies: &[Dependency]) -> String {
    let line = |it: &Dependency| format!("{} {}: {}\n", it.name, it.version, it.licence);
    let crates: String = dependencies.iter().map(line).collect();
    format!("{crates}GNU C Library: LGPL-2.1-or-later\nRust standard library: MIT OR Apache-2.0\n")
}

/// Returns the licence texts of all crates; equal texts stand once, below the names of their crates.
pub(super) fn notices(dependencies: &[Dependency]) -> Result<String, Problem> {
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for dependency in dependencies {
        let entries = fs::read_dir(&dependency.folder).map_err(|error| error.to_string())?;
        let mut files: Vec<PathBuf> = entries.filter_map(|it| Some(it.ok()?.path())).collect();
        files.retain(|file| is_notice(file));
        files.sort();
        let crate_name = format!("{} {}", dependency.name, dependency.version);
        if files.is_empty() {
            let text =
                format!("Licence: {} (the crate contains no text of it)", dependency.licence);
            texts.entry(text).or_default().push(crate_name.clone());
        }
        for file in files {
            let text = fs::read(&file).map_err(|error| error.to_string())?;
            let text = String::from_utf8_lossy(&text).replace('\r', "").trim().to_owned();
            let named = texts.entry(text).or_default();
            if named.last() != Some(&crate_name) {
                named.push(crate_name.clone());
            }
        }
    }
    let mut sections: Vec<String> = texts
        .into_iter()
        .map(|(text, crates)| format!("{}\n\n{text}\n", crates.join(", ")))
        .collect();
    sections.sort();
    let line = format!("\n{}\n\n", "-".repeat(80));
    let head = "Adjutant contains these libraries of other people, under these licences.\n";
    Ok(format!("{head}{line}{SYSTEM}{line}{}", sections.join(&line)))
}

fn is_notice(file: &Path) -> bool {
    let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_uppercase();
    let is_text = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"]
        .iter()
        .any(|word| name.starts_with(word));
    is_text && file.is_file()
}
