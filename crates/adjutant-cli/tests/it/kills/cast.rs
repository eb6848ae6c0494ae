//! The programs that are killed: the binary with subagents, with a parent agent, with agents that change files, and
//! the engine in another program whose tool records its calls.

use std::path::Path;
use std::process::{Command, Stdio};

use adjutant_testkit::fake::{Api, FakeServer, RunningServer, Script, Turn, Usage};
use serde_json::json;
use tokio::runtime::Handle;

use super::files;
use crate::support::rig::{BINARY, Rig};
use crate::support::running::ProcessGroup;
use crate::support::server::configure;

/// The prompt of a parent agent, which also identifies its conversation.
pub(crate) const GOAL: &str = "Find the way home";

/// The prompts of the agents, which also identify their conversations.
pub(crate) const LOOKS: [&str; 3] = ["Look north", "Look east", "Look south"];

/// A program and what it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    Subagents,
    Lead,
    Engine,
    Writers,
}

impl Part {
    pub(crate) const ALL: [Self; 4] = [Self::Subagents, Self::Lead, Self::Engine, Self::Writers];

    /// The replies of the model, sent slowly so that a kill can hit any part.
    fn script(self) -> Script {
        let mut script = Script::new().using(Usage { input: 900, output: 60, ..Usage::default() });
        let read = || Turn::says("I look around.").and_calls("Read", &json!({ "path": "map.txt" }));
        let note = |who: &str| Turn::calls("Note", &json!({ "content": format!("{who}: a map") }));
        if self == Self::Lead {
            let tasks = json!({ "tasks": [
                { "label": "north", "prompt": LOOKS[0] }, { "label": "east", "prompt": LOOKS[1] },
            ] });
            let turns =
                [read(), Turn::calls("Delegate", &tasks), Turn::says("Home is north-east.")];
            script = script.on(GOAL, turns.map(slowly));
        }
        if self == Self::Writers {
            return LOOKS.iter().fold(script, |script, who| {
                script.on(who, files::turns(who).into_iter().map(|turn| in_pieces(turn, 15)))
            });
        }
        for who in LOOKS {
            let append = |turn: u32, call: u32| {
                ("Append", json!({ "line": format!("{who}, turn {turn}, call {call}") }))
            };
            let first = match self {
                Self::Engine => {
                    let (name, line) = append(0, 1);
                    read().and_calls(name, &line)
                }
                Self::Subagents | Self::Lead | Self::Writers => {
                    read().and_calls("Grep", &json!({ "pattern": "x" }))
                }
            };
            let second = match self {
                Self::Engine => {
                    let (name, line) = append(1, 0);
                    let (_, other) = append(1, 1);
                    Turn::calls(name, &line).and_calls(name, &other)
                }
                Self::Subagents | Self::Lead | Self::Writers => note(who),
            };
            let last = Turn::says(&format!("{who}: nothing but trees.")).thinking("Trees.");
            script = script.on(who, [first, second, last].map(slowly));
        }
        script
    }
}

/// Sends an answer a few characters at a time.
fn slowly(turn: Turn) -> Turn {
    in_pieces(turn, 5)
}

fn in_pieces(turn: Turn, characters: usize) -> Turn {
    turn.fragmented(&[characters]).delivered(|way| way.event_delay_ms = 2)
}

/// A place, a server, and a program between them.
pub(crate) struct Stage {
    pub(crate) part: Part,
    pub(crate) rig: Rig,
    pub(crate) server: RunningServer,
    pub(crate) key: &'static str,
}

impl Stage {
    pub(crate) fn new(part: Part, api: Api, runtime: &Handle) -> Self {
        let rig = Rig::new();
        rig.write("map.txt", "x marks the spot\n");
        if part == Part::Writers {
            files::lay_out(&rig);
        }
        let key = adjutant_testkit::fake::KEY;
        let server = runtime.block_on(FakeServer::new(api, part.script()).key(key).start());
        configure(&rig, &server.url, api.word());
        Self { part, rig, server, key }
    }

    /// Starts the program from the beginning.
    pub(crate) fn start(&self, inject: Option<Inject>) -> ProcessGroup {
        let model = ["--yes", "--model", "fake/priced"];
        match self.part {
            Part::Subagents => self.adjutant(inject, &[&["delegate"], &model[..], &TASKS].concat()),
            Part::Writers => {
                self.adjutant(inject, &[&["delegate"], &model[..], &TASKS, &files::FLAGS].concat())
            }
            Part::Lead => self.adjutant(inject, &[&["run", GOAL], &model[..]].concat()),
            Part::Engine => {
                let tasks = ["--task", "north=Look north", "--task", "east=Look east"];
                let more = ["--task", "south=Look south"];
                self.engine(inject, &[&["start"], &tasks[..], &more].concat())
            }
        }
    }

    /// Starts the program again to resume a run.
    pub(crate) fn resume(&self, run: &str, inject: Option<Inject>) -> ProcessGroup {
        match self.part {
            Part::Subagents | Part::Lead => self.adjutant(inject, &["resume", run, "--yes"]),
            Part::Writers => self.adjutant(inject, &["resume", run, "--yes", "--in-place"]),
            Part::Engine => self.engine(inject, &["resume", "--run", run]),
        }
    }

    fn adjutant(&self, inject: Option<Inject>, args: &[&str]) -> ProcessGroup {
        let mut command = under(inject, BINARY.as_ref());
        command.args(args).env("FAKE_KEY", self.key);
        self.spawn(command)
    }

    /// This test binary, which acts as the crash rig if its environment variable is set.
    fn engine(&self, inject: Option<Inject>, args: &[&str]) -> ProcessGroup {
        let mut command = under(inject, &std::env::current_exe().unwrap());
        command.args(["--exact", "kills::cast::child_process_that_is_killed"]);
        command.args(["--ignored", "--nocapture"]);
        let home = self.rig.state().display().to_string();
        let (work, ledger) = (self.rig.work(), self.rig.path().join("ledger"));
        let work = work.display().to_string();
        let ledger = ledger.display().to_string();
        let place = ["--home", &home, "--workdir", &work, "--ledger", &ledger];
        let server = ["--url", &self.server.url, "--api", self.server.api().word()];
        let words = [args, &place, &server, &["--stay-ms", "6"]].concat();
        command.env(WORDS, words.join("\n"));
        self.spawn(command)
    }

    fn spawn(&self, mut command: Command) -> ProcessGroup {
        let log = std::fs::File::create(self.rig.path().join("stderr")).unwrap();
        command.current_dir(self.rig.work());
        let kept = std::env::var_os(WORDS);
        assert_eq!(kept, None, "a program to be killed starts no others");
        for (name, value) in self.rig.environment() {
            command.env(name, value);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        ProcessGroup::start(command)
    }
}

/// A kill when a thread of the program makes a system call for the nth time, from 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inject {
    pub(crate) call: &'static str,
    pub(crate) nth: u64,
}

pub(crate) fn under(inject: Option<Inject>, program: &Path) -> Command {
    let Some(Inject { call, nth }) = inject else { return Command::new(program) };
    let mut command = Command::new("strace");
    let inject = format!("inject={call}:signal=KILL:when={nth}");
    command.args(["-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={call}"), "-e", &inject]);
    command.arg(program);
    command
}

const TASKS: [&str; 8] = [
    "-t",
    "north=Look north",
    "-t",
    "east=Look east",
    "-t",
    "south=Look south",
    "--concurrency",
    "3",
];

const WORDS: &str = "ADJUTANT_CRASH_RIG";

/// Not a test: the process that the suite starts and kills.
#[test]
#[ignore = "a program of the kill suite"]
fn child_process_that_is_killed() {
    let Ok(words) = std::env::var(WORDS) else { return };
    let words = words.lines().map(str::to_owned);
    std::process::exit(adjutant_testkit::crash_rig::main(words).into());
}
