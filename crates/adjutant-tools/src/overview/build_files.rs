//! Recognises the languages, build files and test commands of a project by its file names and a few of its files.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::Read;
use std::path::Path;

use adjutant_workspace::Dir;
use serde_json::Value;

use super::listing::TopLevels;

/// The most bytes of a build file that are read.
const MAX_FILE_BYTES: u64 = 64 * 1024;

/// The most languages that are named.
const MAX_LANGUAGES: usize = 6;

/// A build file, its language if it has only one, and how its tests are run.
struct BuildFile {
    name: &'static str,
    language: Option<&'static str>,
    tests: TestCommand,
}

/// Where the test command of a build file is found.
#[derive(Clone, Copy)]
enum TestCommand {
    /// It is always the same.
    Usual(&'static str),
    /// The file must contain a line that begins with the first text.
    IfLine(&'static str, &'static str),
    /// It is a script of `package.json`.
    PackageScript,
    /// The file says nothing about tests.
    Unknown,
}

const fn file(name: &'static str, language: Option<&'static str>, tests: TestCommand) -> BuildFile {
    BuildFile { name, language, tests }
}

const BUILD_FILES: [BuildFile; 26] = [
    file("CMakeLists.txt", None, TestCommand::IfLine("enable_testing", "ctest")),
    file("Cargo.toml", Some("Rust"), TestCommand::Usual("cargo test")),
    file("Gemfile", Some("Ruby"), TestCommand::Unknown),
    file("Makefile", None, TestCommand::IfLine("test:", "make test")),
    file("Package.swift", Some("Swift"), TestCommand::Usual("swift test")),
    file("Rakefile", Some("Ruby"), TestCommand::Unknown),
    file("build.gradle", Some("Java"), TestCommand::Usual("gradle test")),
    file("build.gradle.kts", Some("Kotlin"), TestCommand::Usual("gradle test")),
    file("build.sbt", Some("Scala"), TestCommand::Usual("sbt test")),
    file("build.zig", Some("Zig"), TestCommand::Usual("zig build test")),
    file("composer.json", Some("PHP"), TestCommand::Unknown),
    file("deno.json", Some("TypeScript"), TestCommand::Usual("deno test")),
    file("dune-project", Some("OCaml"), TestCommand::Usual("dune test")),
    file("go.mod", Some("Go"), TestCommand::Usual("go test ./...")),
    file("justfile", None, TestCommand::IfLine("test", "just test")),
    file("meson.build", None, TestCommand::Usual("meson test")),
    file("mix.exs", Some("Elixir"), TestCommand::Usual("mix test")),
    file("package.json", Some("JavaScript"), TestCommand::PackageScript),
    file("pom.xml", Some("Java"), TestCommand::Usual("mvn test")),
    file("pyproject.toml", Some("Python"), TestCommand::IfLine("[tool.pytest", "pytest")),
    file("pytest.ini", Some("Python"), TestCommand::Usual("pytest")),
    file("rebar.config", Some("Erlang"), TestCommand::Usual("rebar3 eunit")),
    file("setup.cfg", Some("Python"), TestCommand::IfLine("[tool:pytest", "pytest")),
    file("setup.py", Some("Python"), TestCommand::Unknown),
    file("stack.yaml", Some("Haskell"), TestCommand::Usual("stack test")),
    file("tox.ini", Some("Python"), TestCommand::Usual("tox")),
];

/// Endings of source files.
const EXTENSIONS: [(&str, &str); 24] = [
    ("c", "C"),
    ("cc", "C++"),
    ("cpp", "C++"),
    ("cs", "C#"),
    ("ex", "Elixir"),
    ("exs", "Elixir"),
    ("go", "Go"),
    ("hs", "Haskell"),
    ("java", "Java"),
    ("js", "JavaScript"),
    ("jsx", "JavaScript"),
    ("kt", "Kotlin"),
    ("lua", "Lua"),
    ("mjs", "JavaScript"),
    ("ml", "OCaml"),
    ("php", "PHP"),
    ("py", "Python"),
    ("rb", "Ruby"),
    ("rs", "Rust"),
    ("scala", "Scala"),
    ("sh", "Shell"),
    ("swift", "Swift"),
    ("ts", "TypeScript"),
    ("tsx", "TypeScript"),
];

/// The languages, build files and test commands of a project.
#[derive(Debug, Default)]
pub(super) struct ProjectKind {
    /// The languages, the most frequent first.
    pub(super) languages: Vec<String>,
    /// The build files in its root.
    pub(super) build_files: Vec<String>,
    /// Commands that its files suggest for running tests.
    pub(super) test_commands: Vec<String>,
}

impl ProjectKind {
    pub(super) fn of(root: &Dir, levels: &TopLevels) -> Self {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for name in levels.names() {
            let extension = Path::new(name).extension().and_then(OsStr::to_str);
            let known = EXTENSIONS.binary_search_by(|(known, _)| Some(*known).cmp(&extension));
            if let Ok(found) = known {
                *counts.entry(EXTENSIONS[found].1).or_default() += 1;
            }
        }
        let mut kind = Self::default();
        for file in BUILD_FILES.iter().filter(|file| levels.has(root, file.name)) {
            kind.build_files.push(file.name.to_owned());
            if let Some(language) = file.language {
                *counts.entry(language).or_default() += 1;
            }
            let command = file.tests.find(root, file.name, levels);
            kind.test_commands.extend(command.filter(|it| !kind.test_commands.contains(it)));
        }
        let mut languages: Vec<(&str, usize)> = counts.into_iter().collect();
        languages.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        languages.truncate(MAX_LANGUAGES);
        kind.languages = languages.into_iter().map(|(name, _)| name.to_owned()).collect();
        kind
    }
}

impl TestCommand {
    fn find(self, root: &Dir, name: &str, levels: &TopLevels) -> Option<String> {
        match self {
            Self::Usual(command) => Some(command.to_owned()),
            Self::Unknown => None,
            Self::IfLine(start, command) => {
                let text = read(root, name)?;
                text.lines().any(|line| line.starts_with(start)).then(|| command.to_owned())
            }
            Self::PackageScript => {
                let package: Value = serde_json::from_str(&read(root, name)?).ok()?;
                let script = package.get("scripts")?.get("test")?.as_str()?;
                let managers =
                    [("pnpm-lock.yaml", "pnpm"), ("yarn.lock", "yarn"), ("bun.lock", "bun run")];
                let manager = managers.iter().find(|(lock, _)| levels.has(root, lock));
                let manager = manager.map_or("npm", |(_, manager)| manager);
                Some(format!("{manager} test ({script})"))
            }
        }
    }
}

fn read(root: &Dir, name: &str) -> Option<String> {
    let opened = root.open_file(OsStr::new(name)).ok()?;
    let mut bytes = Vec::new();
    opened.file.take(MAX_FILE_BYTES).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_are_sorted_for_the_search() {
        assert!(EXTENSIONS.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert!(BUILD_FILES.windows(2).all(|pair| pair[0].name < pair[1].name));
    }
}
