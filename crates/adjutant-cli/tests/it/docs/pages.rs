//! The commands of the README and of all pages of the guide: run as written, or marked with the reason why not.
//!
//! A page says in comments how its commands are tested:
//!
//! - `<!-- not run: REASON -->` above a block: its lines are read by the argument parser and counted;
//! - `<!-- test model: FILE -->`: the scripted model of the page, a file of the repository;
//! - `<!-- test provider: VARIABLE -->`: a fake provider is started, and the variable has its address;
//! - `<!-- test setup: COMMAND -->`: runs before the first command of the page;
//! - `<!-- test file: NAME -->` above a block: the block is written to this file.
//!
//! A line that ends with `# exits with N` must do so; all others must succeed. Start at [`run_page`].

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use adjutant_testkit::fake::{Api, Conversation, Script, Turn, Usage};

use crate::docs::commands::repository;
use crate::support::rig::{BINARY, Rig};
use crate::support::server::Server;

/// Pages whose own tests run their commands and check what they print.
const OWN_TESTS: [&str; 5] =
    ["docs/commands.md", "docs/mcp.md", "docs/stories.md", "docs/workers.md", "docs/workspaces.md"];

/// A block of commands, and why it is not run.
pub(crate) struct CommandBlock<'a> {
    pub(crate) lines: Vec<&'a str>,
    pub(crate) not_run: Option<&'a str>,
}

/// Returns the blocks of a page that are fenced as `console` or `sh`, without `export` lines.
pub(crate) fn command_blocks(page: &str) -> Vec<CommandBlock<'_>> {
    let lines: Vec<&str> = page.lines().collect();
    let starts = (0..lines.len()).filter(|at| lines[*at] == "```console" || lines[*at] == "```sh");
    let block = |at: usize| {
        let inside = lines[at + 1..].iter().take_while(|line| **line != "```");
        let typed = inside
            .map(|line| line.strip_prefix("$ ").unwrap_or(line))
            .filter(|line| !line.starts_with("export "))
            .collect();
        let above = at.checked_sub(1).and_then(|above| comment(lines[above], "not run"));
        CommandBlock { lines: typed, not_run: above }
    };
    starts.map(block).collect()
}

/// Returns the text of a comment `<!-- NAME: TEXT -->`.
fn comment<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    line.strip_prefix("<!-- ")?.strip_prefix(name)?.strip_prefix(": ")?.strip_suffix(" -->")
}

/// Runs lines as a shell does, with the environment of a rig and some variables.
pub(crate) struct Shell<'a> {
    rig: &'a Rig,
    variables: Vec<(String, OsString)>,
}

impl<'a> Shell<'a> {
    pub(crate) fn new(rig: &'a Rig) -> Self {
        let shell = Self { rig, variables: Vec::new() };
        shell.with("REPO", repository()).with("TMPDIR", rig.home())
    }

    pub(crate) fn with(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.variables.push((name.to_owned(), value.into()));
        self
    }

    /// Returns the exit code of a line and everything it printed.
    pub(crate) fn run(&self, line: &str) -> (i32, String) {
        let programs = Path::new(BINARY).parent().unwrap().display();
        let out = Command::new("sh")
            .args(["-c", line])
            .env_clear()
            .envs(self.rig.environment())
            .env("PATH", format!("{programs}:{}", std::env::var("PATH").unwrap()))
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .current_dir(self.rig.work())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        (out.status.code().unwrap(), String::from_utf8([out.stdout, out.stderr].concat()).unwrap())
    }

    /// Lets the argument parser read a line up to a flag for help, which ends it before anything happens.
    pub(crate) fn parse(&self, line: &str) -> (i32, String) {
        let line = line.split(" # ").next().unwrap();
        let line = match line.split_once(" -- ") {
            Some((own, program)) => format!("{own} --help -- {program}"),
            None => format!("{line} --help"),
        };
        self.run(&line)
    }
}

/// What happened to the commands of a page.
#[derive(Default)]
pub(crate) struct PageCounts {
    pub(crate) run: usize,
    /// Lines of marked blocks that the argument parser accepted, with the reason.
    pub(crate) parsed: Vec<String>,
    /// Lines of marked blocks that are commands of other programs, with the reason.
    pub(crate) others: Vec<String>,
}

/// Runs the commands of a page in order and parses those that are marked; `check` judges what each printed.
pub(crate) fn run_page(page: &str, shell: &Shell<'_>, check: impl Fn(&str, &str)) -> PageCounts {
    let mut counts = PageCounts::default();
    for block in command_blocks(page) {
        for line in block.lines {
            let Some(reason) = block.not_run else {
                let (code, said) = shell.run(line);
                let expected =
                    line.rsplit_once("# exits with ").map_or(0, |it| it.1.parse().unwrap());
                assert_eq!(code, expected, "{line}\n{said}");
                check(line, &said);
                counts.run += 1;
                continue;
            };
            if line.starts_with("adjutant ") {
                let (code, said) = shell.parse(line);
                assert_eq!(code, 0, "{line}\n{said}");
                counts.parsed.push(format!("{line}   ({reason})"));
            } else {
                counts.others.push(format!("{line}   ({reason})"));
            }
        }
    }
    counts
}

/// Returns the README and all pages of the guide, as paths in the repository.
pub(crate) fn pages() -> Vec<String> {
    let mut pages = vec!["README.md".to_owned()];
    for folder in ["docs", "docs/recipes", "docs/schemas"] {
        let entries = fs::read_dir(repository().join(folder)).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        pages.extend(names.filter(|it| it.ends_with(".md")).map(|it| format!("{folder}/{it}")));
    }
    pages.sort();
    pages
}

pub(crate) fn read(page: &str) -> String {
    fs::read_to_string(repository().join(page)).unwrap()
}

/// A local provider that answers every request and asks for no key.
fn provider() -> Server {
    let answer = Conversation {
        when: String::new(),
        turns: vec![Turn::says("Understood.")],
        repeat_last: true,
    };
    let mut script = Script::new().using(Usage { input: 100, output: 50, ..Usage::default() });
    script.conversations.push(answer);
    Server::start_without_key(Api::Chat, script)
}

/// Writes the files that a page shows to the work tree.
fn write_files(rig: &Rig, page: &str) {
    let lines: Vec<&str> = page.lines().collect();
    for (at, line) in lines.iter().enumerate() {
        let Some(name) = comment(line, "test file") else { continue };
        let inside = lines[at + 2..].iter().take_while(|line| **line != "```");
        let text: Vec<&str> = inside.copied().collect();
        rig.write(name, text.join("\n"));
    }
}

#[test]
fn every_command_of_the_readme_and_the_guide_works_or_says_why_it_is_not_run() {
    let mut total = PageCounts::default();
    for name in pages() {
        let page = read(&name);
        if OWN_TESTS.contains(&name.as_str()) {
            continue;
        }
        let (rig, server) = (Rig::new(), provider());
        let mut shell = Shell::new(&rig);
        for line in page.lines() {
            if let Some(file) = comment(line, "test model") {
                let file: PathBuf = repository().join(file);
                shell = shell.with("ADJUTANT_MODEL", format!("script:{}", file.display()));
            }
            if let Some(variable) = comment(line, "test provider") {
                shell = shell.with(variable, server.url.as_str());
            }
        }
        write_files(&rig, &page);
        for command in page.lines().filter_map(|line| comment(line, "test setup")) {
            let (code, said) = shell.run(command);
            assert_eq!(code, 0, "{name}: {command}\n{said}");
        }
        println!("{name}");
        let counts = run_page(&page, &shell, |_, _| ());
        total.run += counts.run;
        total.parsed.extend(counts.parsed);
        total.others.extend(counts.others);
    }
    println!("{} commands were run.", total.run);
    println!("{} were only parsed:\n{}", total.parsed.len(), total.parsed.join("\n"));
    println!("{} of other programs were not run:\n{}", total.others.len(), total.others.join("\n"));
    assert!(total.run > 40, "{}", total.run);
}

#[test]
fn the_readme_has_at_most_900_words() {
    assert!(read("README.md").split_whitespace().count() <= 900);
}

#[test]
fn a_line_that_is_only_parsed_fails_if_a_flag_does_not_exist() {
    let rig = Rig::new();
    let shell = Shell::new(&rig);
    let (code, said) = shell.parse("adjutant delegate --write --wroker codex -t a=b");
    assert_eq!(code, 2, "{said}");
    let (code, said) = shell.parse("adjutant gateway --budget-usd two -- true");
    assert_eq!(code, 2, "{said}");
}
