//! Looks for the programs of workers: in the search path and where npm installs packages for all projects.
//!
//! Nothing is started, and the project's own folders are not searched: a repository must not choose the program.
//! Start at [`WorkerPaths::find`].

use std::ffi::OsString;
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::definition::WorkerDefinition;

/// Where programs are looked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkerPaths {
    /// The folders of the search path.
    pub path: Vec<PathBuf>,
}

/// A worker that is installed here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundWorker {
    /// The program and the arguments that come before those of its definition.
    pub words: Vec<OsString>,
    /// The folders that it needs to see.
    pub folders: Vec<PathBuf>,
    /// Its version, if a package file names it.
    pub version: Option<String>,
}

impl WorkerPaths {
    /// Looks for the program of a worker.
    ///
    /// # Errors
    ///
    /// Why it cannot be used, as the end of a sentence.
    pub fn find(&self, definition: &WorkerDefinition) -> Result<FoundWorker, String> {
        let named = definition.programs.iter().find_map(|program| self.program(program));
        let packaged = || {
            let packages = definition.packages.iter().zip(&definition.programs);
            packages.into_iter().find_map(|(package, program)| self.packaged(package, program))
        };
        let program = named.or_else(packaged).ok_or_else(|| not_found(definition))?;
        let target =
            program.canonicalize().map_err(|error| format!("{error}: {}", program.display()))?;
        let package = package_of(&target);
        let mut folders = vec![package_root(&target)];
        let version = package.as_ref().and_then(|(_, version)| version.clone());
        if !is_script_of_node(&target) {
            folders.retain(|folder| !is_shown_anyway(folder));
            return Ok(FoundWorker { words: vec![target.into()], folders, version });
        }
        let node = self.node(&target, definition.node.unwrap_or(0))?;
        folders.push(installation_of(&node));
        folders.retain(|folder| !is_shown_anyway(folder));
        Ok(FoundWorker { words: vec![node.into(), target.into()], folders, version })
    }

    fn program(&self, name: &str) -> Option<PathBuf> {
        let written = Path::new(name);
        if written.is_absolute() {
            return is_executable(written).then(|| written.to_owned());
        }
        self.path.iter().map(|folder| folder.join(name)).find(|file| is_executable(file))
    }

    /// Looks for a program of an npm package that is installed for all projects, beside each `bin` of the search path.
    fn packaged(&self, package: &str, program: &str) -> Option<PathBuf> {
        self.path.iter().find_map(|folder| {
            let modules = folder.parent()?.join("lib/node_modules").join(package);
            let manifest = read_manifest(&modules)?;
            let entry = match &manifest["bin"] {
                Value::String(entry) => entry.clone(),
                Value::Object(entries) => entries.get(program)?.as_str()?.to_owned(),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => return None,
            };
            let file = modules.join(entry);
            file.is_file().then_some(file)
        })
    }

    /// Finds Node.js: installed with the program, else in the search path.
    fn node(&self, target: &Path, lowest: u32) -> Result<PathBuf, String> {
        let beside = target
            .ancestors()
            .filter(|folder| folder.ends_with("node_modules"))
            .map(|folder| folder.join("node/bin/node"));
        let in_path = self.path.iter().map(|folder| folder.join("node"));
        let mut found = None;
        for node in beside.chain(in_path).filter(|node| is_executable(node)) {
            let node = node.canonicalize().unwrap_or(node);
            match node_major(&node) {
                Some(major) if major < lowest => found = Some(major),
                Some(_) | None => return Ok(node),
            }
        }
        Err(match found {
            Some(major) => format!("it needs Node.js {lowest} or newer, and {major} is installed"),
            None => format!("it needs Node.js {lowest} or newer, which is not in the search path"),
        })
    }
}

/// Says whether every sandbox shows this folder.
fn is_shown_anyway(folder: &Path) -> bool {
    folder == Path::new("/") || folder.starts_with("/usr")
}

fn not_found(definition: &WorkerDefinition) -> String {
    let programs = definition.programs.join(" or ");
    match definition.packages.first() {
        Some(package) => format!(
            "`{programs}` is not in the search path; install it with `npm install -g {package}`"
        ),
        None => format!("`{programs}` is not in the search path"),
    }
}

fn is_executable(file: &Path) -> bool {
    file.metadata().is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
}

/// Says whether a file is a script that Node.js runs.
fn is_script_of_node(file: &Path) -> bool {
    let mut start = [0; 64];
    let read = fs::File::open(file).and_then(|mut file| file.read(&mut start)).unwrap_or(0);
    let first = start.get(..read).unwrap_or_default();
    let line = first.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let is_script = first.starts_with(b"#!") && line.windows(4).any(|word| word == b"node");
    is_script || file.extension().is_some_and(|it| it == "js" || it == "mjs" || it == "cjs")
}

fn read_manifest(folder: &Path) -> Option<Value> {
    serde_json::from_slice(&fs::read(folder.join("package.json")).ok()?).ok()
}

/// Returns the folder of the npm package that contains a file, and its version.
fn package_of(file: &Path) -> Option<(PathBuf, Option<String>)> {
    file.ancestors().skip(1).find_map(|folder| {
        let manifest = read_manifest(folder)?;
        manifest["name"].as_str()?;
        Some((folder.to_owned(), manifest["version"].as_str().map(str::to_owned)))
    })
}

/// Returns the folder that a program needs to see: the outermost `node_modules` around it, else its installation.
fn package_root(program: &Path) -> PathBuf {
    let modules = program.ancestors().filter(|folder| folder.ends_with("node_modules")).last();
    modules.map_or_else(|| installation_of(program), Path::to_owned)
}

/// Returns the folder of an installation: the parent of `bin`, else the folder of the program.
fn installation_of(program: &Path) -> PathBuf {
    let folder = program.parent().unwrap_or(Path::new("/"));
    match folder.parent() {
        Some(parent) if folder.ends_with("bin") => parent.to_owned(),
        Some(_) | None => folder.to_owned(),
    }
}

/// Returns the major version of a Node.js installation from its files.
fn node_major(node: &Path) -> Option<u32> {
    let installation = installation_of(node);
    let of_package = read_manifest(&installation)
        .filter(|it| it["name"].as_str().is_some_and(|name| name.starts_with("node")))
        .and_then(|it| it["version"].as_str().map(str::to_owned));
    let of_header = || {
        let header = fs::read_to_string(installation.join("include/node/node_version.h")).ok()?;
        let line = header.lines().find(|line| line.contains("NODE_MAJOR_VERSION"))?;
        Some(line.split_whitespace().last()?.to_owned())
    };
    let version = of_package.or_else(of_header)?;
    version.trim_start_matches('v').split('.').next()?.parse().ok()
}
