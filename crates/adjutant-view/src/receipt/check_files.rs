//! Which changed files belong to the check that judges the work: tests, their configuration, and the script of the
//! verify command.
//!
//! The lists are by name only and err on the side of naming a file: a person reads them. Start at [`among`].

use adjutant_core::workspace::ChangedFile;
use serde::Serialize;

/// Directories whose files are tests or their data.
const TEST_DIRECTORIES: &[&str] = &[
    "tests",
    "test",
    "Tests",
    "Test",
    "__tests__",
    "__mocks__",
    "__snapshots__",
    "spec",
    "e2e",
    "testdata",
    "testing",
    "fixtures",
    "snapshots",
];

/// Names of tests. `*` stands for any text.
const TEST_NAMES: &[&str] = &[
    "test_*.py",
    "*_test.py",
    "tests.py",
    "*_test.go",
    "*_test.rs",
    "tests.rs",
    "test.rs",
    "*.test.js",
    "*.test.jsx",
    "*.test.ts",
    "*.test.tsx",
    "*.test.mjs",
    "*.test.cjs",
    "*.test.mts",
    "*.spec.js",
    "*.spec.jsx",
    "*.spec.ts",
    "*.spec.tsx",
    "*.spec.mjs",
    "*.spec.cjs",
    "*.snap",
    "*Test.java",
    "*Tests.java",
    "*IT.java",
    "*Test.kt",
    "*Tests.kt",
    "*Test.php",
    "*Tests.cs",
    "*Test.cs",
    "*Tests.swift",
    "*Spec.scala",
    "*Spec.hs",
    "*_spec.rb",
    "*_test.rb",
    "test_*.rb",
    "*_test.exs",
    "*_test.dart",
    "*.bats",
    "*_test.c",
    "*_test.cc",
    "*_test.cpp",
    "*_unittest.cc",
];

/// Names of files that decide which tests run and how, or how the code under test is built.
const CONFIGURATION_NAMES: &[&str] = &[
    // Python
    "conftest.py",
    "pytest.ini",
    ".pytest.ini",
    "tox.ini",
    "setup.cfg",
    "setup.py",
    "pyproject.toml",
    "noxfile.py",
    ".coveragerc",
    "sitecustomize.py",
    "usercustomize.py",
    "requirements*.txt",
    "Pipfile",
    "*.pth",
    "manage.py",
    ".python-version",
    // JavaScript and TypeScript
    "package.json",
    "package-lock.json",
    "pnpm-lock.yaml",
    "yarn.lock",
    ".npmrc",
    ".mocharc*",
    "jest.config*",
    "jest.setup*",
    "vitest.config*",
    "vite.config*",
    "playwright.config*",
    "cypress.config*",
    "karma.conf*",
    "babel.config*",
    ".babelrc*",
    "tsconfig*.json",
    "deno.json*",
    "bunfig.toml",
    // C, C++ and make
    "Makefile",
    "makefile",
    "GNUmakefile",
    "*.mk",
    "CMakeLists.txt",
    "CTestTestfile.cmake",
    "CTestConfig.cmake",
    "CMakePresets.json",
    "meson.build",
    "configure",
    "configure.ac",
    // Rust
    "Cargo.toml",
    "Cargo.lock",
    "build.rs",
    ".cargo/config*",
    "rust-toolchain*",
    "nextest.toml",
    // Go
    "go.mod",
    "go.work",
    "magefile.go",
    // Others
    "Gemfile",
    "Rakefile",
    ".rspec",
    "pom.xml",
    "build.gradle*",
    "settings.gradle*",
    "gradle.properties",
    "build.sbt",
    "mix.exs",
    "composer.json",
    "phpunit.xml*",
    "*.csproj",
    "Directory.Build.*",
    "Package.swift",
    "stack.yaml",
    "*.cabal",
    "BUILD",
    "BUILD.bazel",
    "justfile",
    "Justfile",
    "Taskfile*",
    ".env*",
    ".gitignore",
    ".mvn/*",
    ".yarnrc*",
];

/// Directories of installed programs and packages, which are usually ignored: a file in one that is part of the work may
/// take the place of a test runner.
const PACKAGE_DIRECTORIES: &[&str] = &["node_modules", ".venv", "venv", "vendor"];

/// A changed test, test configuration or script of the verify command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckFile {
    /// Its path; the old one if it was renamed away.
    pub path: String,
    /// What it is.
    pub kind: CheckFileKind,
    /// Whether the verify command saw the file of the base instead of the changed one.
    pub from_base: bool,
}

/// What a file of the check is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckFileKind {
    /// A test, or data of tests.
    Test,
    /// A file that decides which tests run and how.
    Configuration,
    /// A file that the verify command names.
    Script,
}

impl CheckFileKind {
    /// Returns the words for a report.
    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::Test => "test",
            Self::Configuration => "configuration",
            Self::Script => "named by the verify command",
        }
    }
}

/// Returns the changed files that belong to the check of a verify command. `from_base` are those that it did not see.
pub(super) fn among(
    changed: &[ChangedFile],
    command: &str,
    from_base: &[String],
) -> Vec<CheckFile> {
    let words: Vec<&str> = command_words(command).collect();
    let paths = changed.iter().flat_map(|file| {
        let before = file.how.strip_prefix("renamed from ");
        before.into_iter().chain([file.path.as_str()])
    });
    let mut all: Vec<CheckFile> = Vec::new();
    for path in paths {
        let from_base = from_base.iter().any(|it| it == path);
        // A person said that kept files belong to the check.
        let kept = from_base.then_some(CheckFileKind::Configuration);
        let Some(kind) = kind_of(path, &words).or(kept) else { continue };
        all.push(CheckFile { path: path.to_owned(), kind, from_base });
    }
    // What decides without being seen comes first.
    all.sort_by_key(|file| file.from_base);
    all
}

fn kind_of(path: &str, words: &[&str]) -> Option<CheckFileKind> {
    if words.iter().any(|word| names(word, path)) {
        return Some(CheckFileKind::Script);
    }
    let (folders, name) = path.rsplit_once('/').unwrap_or(("", path));
    if CONFIGURATION_NAMES.iter().any(|pattern| match pattern.split_once('/') {
        Some((folder, pattern)) => folders.ends_with(folder) && matches(pattern, name),
        None => matches(pattern, name),
    }) || folders.split('/').any(|folder| PACKAGE_DIRECTORIES.contains(&folder))
    {
        return Some(CheckFileKind::Configuration);
    }
    let is_test = TEST_NAMES.iter().any(|pattern| matches(pattern, name))
        || folders.split('/').any(|folder| TEST_DIRECTORIES.contains(&folder));
    is_test.then_some(CheckFileKind::Test)
}

/// Returns the words of a shell command, without quotes and operators.
fn command_words(command: &str) -> impl Iterator<Item = &str> {
    let is_between = |c: char| c.is_whitespace() || "\"'`;|&()<>=$,".contains(c);
    command.split(is_between).map(|word| word.trim_start_matches("./")).filter(|it| !it.is_empty())
}

/// Says whether a word of a command names a file: by its path, by its end, or as a Python module.
fn names(word: &str, path: &str) -> bool {
    let is_end = |word: &str| {
        path.strip_suffix(word).is_some_and(|before| before.is_empty() || before.ends_with('/'))
    };
    // A bare word such as `test` names a target more often than a file in some directory.
    let is_path = word.contains('/') || word.contains('.');
    path == word
        || (is_path && is_end(word))
        || path.strip_suffix(".py").is_some_and(|stem| {
            let module = stem.strip_suffix("/__main__").or(stem.strip_suffix("/__init__"));
            module.unwrap_or(stem).replace('/', ".") == word
        })
}

/// Says whether a name matches a pattern in which `*` stands for any text.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((start, end)) => {
            name.len() >= start.len() + end.len() && name.starts_with(start) && name.ends_with(end)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(command: &str, paths: &[&str]) -> Vec<String> {
        let file = |path: &&str| {
            let (how, path) = match path.split_once(" -> ") {
                Some((from, to)) => (format!("renamed from {from}"), to),
                None => ("modified".to_owned(), *path),
            };
            ChangedFile { path: path.to_owned(), how, added: None, removed: None }
        };
        let changed: Vec<ChangedFile> = paths.iter().map(file).collect();
        let found = among(&changed, command, &["tests/kept.py".to_owned()]);
        found.iter().map(|it| format!("{} {}", it.kind.words(), it.path)).collect()
    }

    #[test]
    fn a_file_that_takes_the_place_of_a_runner_belongs_to_the_check() {
        let paths = [
            "unittest/__main__.py",
            "gate/__init__.py",
            "web/node_modules/.bin/jest",
            ".venv/bin/x",
            "src/a.py",
        ];
        insta::assert_snapshot!(check("python3 -m unittest && python3 -m gate", &paths).join("\n"), @r"
        named by the verify command unittest/__main__.py
        named by the verify command gate/__init__.py
        configuration web/node_modules/.bin/jest
        configuration .venv/bin/x
        ");
    }

    #[test]
    fn tests_their_configuration_and_the_script_belong_to_the_check() {
        let paths = [
            "src/lib.rs",
            "src/parser_test.go",
            "tests/kept.py",
            "a/test_parser.py",
            "web/app.test.tsx",
            "conftest.py",
            "sub/pytest.ini",
            "package.json",
            ".cargo/config.toml",
            "ci/check.sh",
            "tools/gate.py",
            "docs/contest.md",
            "src/latest.rs",
            "tests/moved.py -> src/moved.py",
        ];
        insta::assert_snapshot!(check("cd ci && ./check.sh; python3 -m tools.gate", &paths).join("\n"), @r"
        test src/parser_test.go
        test a/test_parser.py
        test web/app.test.tsx
        configuration conftest.py
        configuration sub/pytest.ini
        configuration package.json
        configuration .cargo/config.toml
        named by the verify command ci/check.sh
        named by the verify command tools/gate.py
        test tests/moved.py
        test tests/kept.py
        ");
    }

    #[test]
    fn the_target_of_a_command_is_no_script() {
        assert_eq!(check("make test", &["bin/test", "src/make.c"]), Vec::<String>::new());
        assert_eq!(
            check("bash 'bin/test'", &["bin/test"]),
            ["named by the verify command bin/test"]
        );
        assert_eq!(check("OUT=x ./run", &["run"]), ["named by the verify command run"]);
    }
}
