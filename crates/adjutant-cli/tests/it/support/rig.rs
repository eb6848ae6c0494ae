//! The environment of a test: its own state directory, work tree and home, only the variables set here, and no
//! terminal.
//!
//! Start at [`Rig::new`], then [`Rig::run`] or [`Rig::call`].

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::support::redact::redacted;
use crate::support::running::Running;
use crate::support::schema::assert_fits;

/// The binary under test.
pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_adjutant");

/// A script in which the built-in commands delegate their work and it is completed.
pub(crate) const COMMANDS: &str = include_str!("../../../../../examples/scripts/commands.toml");

/// The length of a test's directory. No longer, because the paths of control sockets in it have at most 107 bytes.
const PATH_LENGTH: usize = 50;

/// The characters that make the name of a test's directory unique.
const RANDOM_CHARS: usize = 6;

/// The directories and the environment of one test.
pub(crate) struct Rig {
    dir: TempDir,
}

impl Rig {
    /// Makes an empty place.
    pub(crate) fn new() -> Self {
        // The same length wherever temporary files are: paths are in prompts, so their length is in counts of tokens.
        let base = std::env::temp_dir();
        let length = base.as_os_str().len() + 1 + RANDOM_CHARS;
        let name = "t".repeat(PATH_LENGTH.saturating_sub(length).max(1));
        let dir = tempfile::Builder::new().prefix(&name).rand_bytes(RANDOM_CHARS).tempdir_in(base);
        let rig = Self { dir: dir.unwrap() };
        fs::create_dir(rig.work()).unwrap();
        fs::create_dir(rig.home()).unwrap();
        rig
    }

    /// Makes a place with a script for the model, named `script.toml` beside the work tree.
    pub(crate) fn with_script(script: &str) -> Self {
        let rig = Self::new();
        fs::write(rig.dir.path().join("script.toml"), script).unwrap();
        rig
    }

    /// The directory everything of this test lies in.
    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// The tree that subagents look at, and the working directory of commands.
    pub(crate) fn work(&self) -> PathBuf {
        self.path().join("work")
    }

    /// The state directory; made by the first command that needs it.
    pub(crate) fn state(&self) -> PathBuf {
        self.path().join("state")
    }

    /// The home directory.
    pub(crate) fn home(&self) -> PathBuf {
        self.path().join("home")
    }

    /// Writes a file of the work tree.
    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.work().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    /// Writes a program that prints its own path.
    pub(crate) fn program(&self, path: &Path) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "#!/bin/sh\necho \"$0\"\n").unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Writes a list of tasks with these numbers into a specs folder; commands about others are refused.
    pub(crate) fn tasks(&self, folder: &str, numbers: &[u64]) {
        let entry = |number: &u64| format!("### {number}. Add JWT\n- **Status**: [NOT STARTED]\n");
        let entries: Vec<String> = numbers.iter().map(entry).collect();
        self.write(&format!("{folder}/TODO.md"), entries.join("\n"));
    }

    /// Runs a command to its end.
    pub(crate) fn run<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Output {
        self.call(args).run()
    }

    /// Delegates to the script without asking.
    pub(crate) fn delegate(&self, args: &[&str]) -> Output {
        self.delegating(args).run()
    }

    /// Prepares to delegate to the script without asking.
    pub(crate) fn delegating(&self, args: &[&str]) -> Call<'_> {
        self.call(["delegate", "--yes"]).arg("--model").arg(self.model()).args(args)
    }

    /// The name of this place's scripted model.
    ///
    /// Relative, because the name is shown in tables and a path would move their columns.
    pub(crate) fn model(&self) -> &'static str {
        "script:../script.toml"
    }

    /// Prepares a command.
    pub(crate) fn call<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Call<'_> {
        let mut command = Command::new(BINARY);
        command.args(args).env_clear().envs(self.environment()).current_dir(self.work());
        detach(&mut command);
        Call { rig: self, command, stdin: Some(Vec::new()) }
    }

    /// The whole environment of a command.
    pub(crate) fn environment(&self) -> [(&'static str, PathBuf); 5] {
        [
            ("HOME", self.home()),
            ("ADJUTANT_HOME", self.state()),
            ("XDG_CONFIG_HOME", self.home().join(".config")),
            ("XDG_STATE_HOME", self.home().join(".local/state")),
            ("TERM", PathBuf::from("xterm")),
        ]
    }

    /// The ids of all runs, the oldest second first.
    pub(crate) fn runs(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.state().join("runs")) else { return Vec::new() };
        let mut runs: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        runs.sort_unstable();
        runs
    }

    /// The id of the only run.
    pub(crate) fn only_run(&self) -> String {
        let runs = self.runs();
        assert_eq!(runs.len(), 1, "{runs:?}");
        runs.into_iter().next().unwrap()
    }

    /// The folder of a run.
    pub(crate) fn run_folder(&self, run: &str) -> PathBuf {
        self.state().join("runs").join(run)
    }

    /// The events of a run, as `log --json` prints them.
    pub(crate) fn events(&self, run: &str) -> Vec<Value> {
        let log = self.run(["log", run, "--json"]);
        assert_eq!(log.code, 0, "{log}");
        let records = log.lines().inspect(|record| assert_fits("log", record));
        records.map(|record| record["event"].clone()).collect()
    }

    /// Checks that every run in the store is readable and ended. Errors may be marked as fixed after the end.
    #[track_caller]
    pub(crate) fn assert_unharmed(&self) {
        for run in self.runs() {
            // These are recorded after the end.
            let mut events = self.events(&run);
            events
                .retain(|event| event["type"] != "error_fixed" && event["type"] != "result_merged");
            let last = events.pop().unwrap();
            assert_eq!(last["type"], "run_ended", "{run} ends with {last}");
        }
    }

    /// Redacts output so that it is equal from run to run.
    pub(crate) fn redacted(&self, text: &str) -> String {
        redacted(text, self.path())
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        // A run that a server began is a process of its own and may be waiting for a slow answer.
        for run in self.runs() {
            let path = self.run_folder(&run).join("lock");
            // A test may have left a pipe there, and opening it would wait for a writer.
            if !path.is_file() {
                continue;
            }
            let lock = fs::read_to_string(path).unwrap_or_default();
            let lock: Value = serde_json::from_str(&lock).unwrap_or_default();
            let pid = lock["pid"].as_i64().filter(|_| lock["released"] != true);
            let pid = pid.and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
            if let Some(pid) = pid.filter(|pid| self.started(*pid)) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }
}

impl Rig {
    /// Returns whether a process has the environment of this test; its pid may have been reused.
    fn started(&self, pid: Pid) -> bool {
        let state = format!("ADJUTANT_HOME={}", self.state().display());
        let environment = fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero()));
        let is_state = |entry: &[u8]| entry == state.as_bytes();
        environment.is_ok_and(|it| it.split(|byte| *byte == 0).any(is_state))
    }
}

/// Puts a command into its own session, so that it cannot use the terminal of the developer who runs
/// the tests.
#[expect(unsafe_code, reason = "the standard library has no stable way to begin a session")]
fn detach(command: &mut Command) {
    // SAFETY: setsid is async-signal-safe, and nothing else happens between fork and exec.
    unsafe {
        command.pre_exec(|| {
            rustix::process::setsid()?;
            Ok(())
        });
    }
}

/// A command that has not started.
#[must_use]
pub(crate) struct Call<'rig> {
    rig: &'rig Rig,
    command: Command,
    stdin: Option<Vec<u8>>,
}

impl<'rig> Call<'rig> {
    pub(crate) fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.command.arg(arg);
        self
    }

    pub(crate) fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.command.args(args);
        self
    }

    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    pub(crate) fn env_remove(mut self, name: &str) -> Self {
        self.command.env_remove(name);
        self
    }

    pub(crate) fn cwd(mut self, path: &Path) -> Self {
        self.command.current_dir(path);
        self
    }

    /// What standard input holds; nothing otherwise.
    pub(crate) fn stdin(mut self, bytes: impl AsRef<[u8]>) -> Self {
        self.stdin = Some(bytes.as_ref().to_owned());
        self
    }

    /// Where standard output goes instead of to the test.
    pub(crate) fn stdout(mut self, to: impl Into<Stdio>) -> Running<'rig> {
        self.command.stdout(to);
        Running::start(self.rig, self.command, self.stdin)
    }

    /// Starts the command.
    pub(crate) fn start(self) -> Running<'rig> {
        self.stdout(Stdio::piped())
    }

    /// Runs the command to its end.
    pub(crate) fn run(self) -> Output {
        self.start().finish()
    }
}

/// The output of a command, its exit code, and a redacted form for snapshots.
#[must_use]
pub(crate) struct Output {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// The exit code, or 128 and the signal.
    pub(crate) code: i32,
    pub(crate) place: PathBuf,
}

impl Output {
    /// Standard output as one JSON value.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}\n{self}"))
    }

    /// Standard output as JSON, one value per line.
    pub(crate) fn lines(&self) -> impl Iterator<Item = Value> {
        self.stdout.lines().map(|line| {
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in {line}"))
        })
    }

    /// Standard output, made equal from run to run.
    pub(crate) fn data(&self) -> String {
        redacted(&self.stdout, &self.place)
    }

    /// Standard error and the exit code.
    pub(crate) fn talk(&self) -> String {
        format!("{}[exit {}]", redacted(&self.stderr, &self.place), self.code)
    }
}

impl std::fmt::Display for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // One redaction for both, so that an id has the same name in both.
        let text = format!("{}--- stderr ---\n{}", self.stdout, self.stderr);
        write!(f, "{}[exit {}]", redacted(&text, &self.place), self.code)
    }
}
