//! Running git: its environment, options and limits.
//!
//! Does not know what git is asked to do. No call that starts here uses hooks, monitors, pagers or the user's
//! configuration; [`ScratchGitDir`](super::ScratchGitDir) disables attributes, and with them filters and drivers.
//!
//! Start at [`Git::call`]. Invariant: the environment is built, never inherited, and every command line has the
//! options that disable helpers.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::process::{Pid, Signal, kill_process_group};

use super::GitError;
use crate::sandbox::terminate_with_parent;

/// The oldest git that knows `merge-tree --stdin`; Debian 12 has it.
const MINIMUM: (u32, u32) = (2, 39);
/// The same as text.
pub(super) const MINIMUM_TEXT: &str = "2.39";

/// The default timeout; long enough to check out a very large tree.
const TIMEOUT: Duration = Duration::from_secs(300);

/// The default limit of output: the status of a million paths.
const MAX_BYTES: usize = 256 * 1024 * 1024;

/// The most bytes of error output that are kept.
const STDERR_BYTES: usize = 64 * 1024;

/// The most characters of an error message that are shown.
const MESSAGE_CHARS: usize = 400;

/// Configuration on every command line. An empty value disables a helper.
const CONFIG: [&str; 21] = [
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.attributesFile=/dev/null",
    "core.pager=cat",
    "core.editor=false",
    "core.askPass=",
    "core.sshCommand=false",
    "core.splitIndex=false",
    "core.autocrlf=false",
    "core.safecrlf=false",
    "core.useReplaceRefs=false",
    "core.warnAmbiguousRefs=false",
    "protocol.allow=never",
    "protocol.ext.allow=never",
    "commit.gpgSign=false",
    "log.showSignature=false",
    "diff.external=",
    "merge.default=text",
    "submodule.recurse=false",
    "gc.auto=0",
    "maintenance.auto=false",
];

/// Environment variables of every call, besides those that name the repository.
const ENVIRONMENT: [(&str, &str); 17] = [
    ("HOME", "/nonexistent"),
    ("XDG_CONFIG_HOME", "/nonexistent"),
    ("LC_ALL", "C"),
    ("TZ", "UTC"),
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_CONFIG_SYSTEM", "/dev/null"),
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_ATTR_NOSYSTEM", "1"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_OPTIONAL_LOCKS", "0"),
    ("GIT_NO_REPLACE_OBJECTS", "1"),
    ("GIT_NO_LAZY_FETCH", "1"),
    ("GIT_LITERAL_PATHSPECS", "1"),
    ("GIT_ADVICE", "0"),
    ("GIT_ALLOW_PROTOCOL", "none"),
    ("GIT_CEILING_DIRECTORIES", "/"),
    ("GIT_DISCOVERY_ACROSS_FILESYSTEM", "0"),
];

/// A git program that is new enough.
#[derive(Clone, Debug)]
pub struct Git {
    program: PathBuf,
    search: OsString,
    version: String,
    timeout: Duration,
}

impl Git {
    /// Finds git in a search path such as the value of `PATH`.
    ///
    /// Relative directories are skipped: a work tree may contain a file called `git`.
    ///
    /// # Errors
    ///
    /// [`GitError::NoGit`] or [`GitError::TooOld`].
    pub fn find(search: &OsStr) -> Result<Self, GitError> {
        let folders: Vec<PathBuf> =
            std::env::split_paths(search).filter(|folder| folder.is_absolute()).collect();
        let program =
            folders.iter().map(|folder| folder.join("git")).find(|path| is_executable(path));
        let program = program.ok_or(GitError::NoGit)?;
        let search = std::env::join_paths(&folders).map_err(|_| GitError::NoGit)?;
        let git = Self { program, search, version: String::new(), timeout: TIMEOUT };
        let output = git.call("version").run()?;
        let text = String::from_utf8_lossy(&output.bytes);
        let version = text.trim().trim_start_matches("git version ").to_owned();
        let mut parts = version.split('.').map_while(|part| part.parse::<u32>().ok());
        let found = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        if found < MINIMUM {
            return Err(GitError::TooOld { found: version });
        }
        Ok(Self { version, ..git })
    }

    /// Sets the timeout of every call.
    #[must_use]
    pub const fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Returns the version as git prints it.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Returns the program.
    pub(super) fn program(&self) -> &Path {
        &self.program
    }

    /// Returns a call of a git command.
    pub(crate) fn call(&self, command: &'static str) -> GitCall<'_> {
        GitCall {
            git: self,
            command,
            options: Vec::new(),
            arguments: Vec::new(),
            environment: Vec::new(),
            folder: PathBuf::from("/"),
            max_bytes: MAX_BYTES,
            cut: false,
            timeout: self.timeout,
            accepted: &[0],
            held: None,
            input: None,
        }
    }
}

/// A git call that is being built.
#[derive(Debug)]
#[must_use]
pub(crate) struct GitCall<'a> {
    git: &'a Git,
    command: &'static str,
    options: Vec<OsString>,
    arguments: Vec<OsString>,
    environment: Vec<(&'static str, OsString)>,
    folder: PathBuf,
    max_bytes: usize,
    cut: bool,
    timeout: Duration,
    accepted: &'static [i32],
    held: Option<OwnedFd>,
    input: Option<File>,
}

/// The output of git.
#[derive(Debug)]
pub(crate) struct GitOutput {
    /// The exit status, one of the accepted ones.
    pub(crate) code: i32,
    /// Its standard output.
    pub(crate) bytes: Vec<u8>,
    /// Whether the output was cut at the limit.
    pub(crate) truncated: bool,
}

/// Produces git's input piece by piece: adds to the buffer, or returns false at the end.
pub(crate) type InputFeed<'f> = dyn FnMut(&mut Vec<u8>) -> Result<bool, GitError> + 'f;

impl<'a> GitCall<'a> {
    /// Adds an argument after the command.
    pub(crate) fn arg(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Adds arguments after the command.
    pub(crate) fn args<A: Into<OsString>>(mut self, all: impl IntoIterator<Item = A>) -> Self {
        self.arguments.extend(all.into_iter().map(Into::into));
        self
    }

    /// Sets a configuration value for this call (`-c`).
    pub(crate) fn config(mut self, key_value: impl Into<OsString>) -> Self {
        self.options.push("-c".into());
        self.options.push(key_value.into());
        self
    }

    /// Sets an environment variable for this call.
    pub(crate) fn env(mut self, name: &'static str, value: impl Into<OsString>) -> Self {
        self.environment.push((name, value.into()));
        self
    }

    /// Runs git in this directory.
    pub(crate) fn folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folder = folder.into();
        self
    }

    /// Cuts the output at this size instead of failing.
    pub(crate) const fn truncate_at(mut self, max_bytes: usize) -> Self {
        self.max_bytes = max_bytes;
        self.cut = true;
        self
    }

    /// Accepts these exit statuses as success.
    pub(crate) const fn accept(mut self, codes: &'static [i32]) -> Self {
        self.accepted = codes;
        self
    }

    /// Passes a locked descriptor to git while it runs.
    ///
    /// A lock belongs to the open file description: if this process is killed, it is held until git and its
    /// children have ended, so no other process sees a tree that is still being written. Git then gets SIGTERM, so
    /// that others do not wait long.
    pub(crate) fn holding_lock(mut self, lock: OwnedFd) -> Self {
        self.held = Some(lock);
        self
    }

    /// Passes an open file to git as its standard input.
    pub(crate) fn input(mut self, file: File) -> Self {
        self.input = Some(file);
        self
    }

    /// Runs it without input.
    pub(crate) fn run(self) -> Result<GitOutput, GitError> {
        self.start(None)
    }

    /// Starts it without input and returns at once.
    pub(crate) fn begin(self) -> Result<RunningGit<'a>, GitError> {
        self.spawn(false)
    }

    /// Runs it with `bytes` as input.
    pub(crate) fn run_with_input(self, bytes: &[u8]) -> Result<GitOutput, GitError> {
        let mut given = false;
        self.stream(&mut |buffer| {
            let more = !std::mem::replace(&mut given, true);
            if more {
                buffer.extend_from_slice(bytes);
            }
            Ok(more)
        })
    }

    /// Runs it with the output of `feed` as input.
    pub(crate) fn stream(self, feed: &mut InputFeed<'_>) -> Result<GitOutput, GitError> {
        self.start(Some(feed))
    }

    fn start(self, feed: Option<&mut InputFeed<'_>>) -> Result<GitOutput, GitError> {
        self.spawn(feed.is_some())?.finish(feed)
    }

    fn spawn(mut self, is_fed: bool) -> Result<RunningGit<'a>, GitError> {
        let mut command = Command::new(&self.git.program);
        command.env_clear().env("PATH", &self.git.search).envs(ENVIRONMENT);
        command.envs(self.environment.drain(..)).current_dir(&self.folder);
        command.arg("--no-pager");
        for setting in CONFIG {
            command.arg("-c").arg(setting);
        }
        command.args(&self.options).arg(self.command).args(&self.arguments);
        if self.held.is_some() {
            terminate_with_parent(&mut command);
        }
        let input = self.held.take().or_else(|| self.input.take().map(OwnedFd::from));
        command.stdin(match (input, is_fed) {
            (Some(file), false) => Stdio::from(file),
            (None, false) => Stdio::null(),
            (_, true) => Stdio::piped(),
        });
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let child = command.spawn().map_err(GitError::io("starting git"))?;
        RunningGit::new(self, child)
    }

    fn wait(&self, pipes: [&Option<File>; 3], deadline: Instant) -> Result<(), GitError> {
        let wanted = [PollFlags::OUT, PollFlags::IN, PollFlags::IN];
        let mut all: Vec<PollFd<'_>> = pipes
            .iter()
            .zip(wanted)
            .filter_map(|(pipe, flags)| {
                Some(PollFd::from_borrowed_fd(pipe.as_ref()?.as_fd(), flags))
            })
            .collect();
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(|_| self.timed_out())?;
        match poll(&mut all, Some(&left)) {
            Ok(0) => Err(self.timed_out()),
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(errno) => Err(GitError::io("communicating with git")(errno)),
        }
    }

    fn timed_out(&self) -> GitError {
        GitError::TimedOut { command: self.command.to_owned(), limit: self.timeout }
    }

    fn exit_error(&self, status: ExitStatus, complaint: &[u8]) -> GitError {
        let status = match (status.code(), status.signal()) {
            (Some(code), _) => format!("status {code}"),
            (None, Some(signal)) => format!("signal {signal}"),
            (None, None) => "no status".to_owned(),
        };
        GitError::Failed { command: self.command.to_owned(), status, message: shorten(complaint) }
    }
}

/// A running git; dropping this kills it.
#[derive(Debug)]
#[must_use]
pub(crate) struct RunningGit<'a> {
    call: GitCall<'a>,
    /// `None` once it has been waited for.
    child: Option<Child>,
    deadline: Instant,
    stdin: Option<File>,
    stdout: Option<File>,
    stderr: Option<File>,
    said: Vec<u8>,
    complaint: Vec<u8>,
    truncated: bool,
}

impl<'a> RunningGit<'a> {
    fn new(call: GitCall<'a>, mut child: Child) -> Result<Self, GitError> {
        let deadline = Instant::now() + call.timeout;
        let stdin = child.stdin.take().map(|pipe| File::from(OwnedFd::from(pipe)));
        let stdout = child.stdout.take().map(|pipe| File::from(OwnedFd::from(pipe)));
        let stderr = child.stderr.take().map(|pipe| File::from(OwnedFd::from(pipe)));
        let (child, said, complaint) = (Some(child), Vec::new(), Vec::new());
        let truncated = false;
        let running =
            Self { call, child, deadline, stdin, stdout, stderr, said, complaint, truncated };
        for pipe in [&running.stdin, &running.stdout, &running.stderr].into_iter().flatten() {
            fcntl_setfl(pipe, OFlags::NONBLOCK).map_err(GitError::io("communicating with git"))?;
        }
        Ok(running)
    }

    /// Waits for git to end and returns its output.
    pub(crate) fn wait_output(self) -> Result<GitOutput, GitError> {
        self.finish(None)
    }

    fn finish(mut self, mut feed: Option<&mut InputFeed<'_>>) -> Result<GitOutput, GitError> {
        let (mut waiting, mut given) = (Vec::new(), 0);
        // On an error, dropping `self` kills git.
        while self.stdout.is_some() || self.stderr.is_some() {
            self.transfer(&mut feed, &mut waiting, &mut given)?;
        }
        let Some(child) = &mut self.child else { return Err(self.call.timed_out()) };
        let status = child.wait().map_err(GitError::io("waiting for git"))?;
        self.child = None;
        let (bytes, truncated) = (std::mem::take(&mut self.said), self.truncated);
        match status.code() {
            Some(code) if self.call.accepted.contains(&code) => {
                Ok(GitOutput { code, bytes, truncated })
            }
            // Git got SIGPIPE because enough output had been read.
            _ if truncated => Ok(GitOutput { code: 0, bytes, truncated }),
            Some(_) | None => Err(self.call.exit_error(status, &self.complaint)),
        }
    }

    /// Waits until a pipe is ready, and transfers bytes.
    fn transfer(
        &mut self,
        feed: &mut Option<&mut InputFeed<'_>>,
        waiting: &mut Vec<u8>,
        given: &mut usize,
    ) -> Result<(), GitError> {
        self.call.wait([&self.stdin, &self.stdout, &self.stderr], self.deadline)?;
        if self.stdin.is_some() {
            write_available(&mut self.stdin, feed, waiting, given)?;
        }
        read_available(&mut self.stderr, &mut self.complaint, STDERR_BYTES)?;
        let max_bytes = self.call.max_bytes;
        if read_available(&mut self.stdout, &mut self.said, max_bytes)? {
            if !self.call.cut {
                let command = self.call.command.to_owned();
                return Err(GitError::TooMuch { command, max_bytes });
            }
            self.truncated = true;
            self.stdout = None;
        }
        Ok(())
    }
}

impl Drop for RunningGit<'_> {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            kill_group(child);
        }
    }
}

/// Reads all available bytes; returns true if there were more than `max`.
fn read_available(
    pipe: &mut Option<File>,
    into: &mut Vec<u8>,
    max: usize,
) -> Result<bool, GitError> {
    let Some(file) = pipe else { return Ok(false) };
    let mut buffer = [0; 64 * 1024];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => {
                *pipe = None;
                return Ok(false);
            }
            Ok(count) => {
                let room = max.saturating_sub(into.len());
                into.extend_from_slice(buffer.get(..count.min(room)).unwrap_or_default());
                if count > room {
                    return Ok(true);
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(GitError::io("reading from git")(error)),
        }
    }
}

/// Writes as much as the pipe accepts now; closes it after the last byte.
fn write_available(
    pipe: &mut Option<File>,
    feed: &mut Option<&mut InputFeed<'_>>,
    waiting: &mut Vec<u8>,
    given: &mut usize,
) -> Result<(), GitError> {
    loop {
        if *given == waiting.len() {
            waiting.clear();
            *given = 0;
            let more = match feed {
                Some(feed) => feed(waiting)?,
                None => false,
            };
            if !more {
                *pipe = None;
                return Ok(());
            }
            continue;
        }
        let Some(file) = pipe else { return Ok(()) };
        match file.write(waiting.get(*given..).unwrap_or_default()) {
            Ok(count) => *given += count,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            // Git ended before it read all input; its exit status says why.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {
                *pipe = None;
                return Ok(());
            }
            Err(error) => return Err(GitError::io("writing to git")(error)),
        }
    }
}

/// Kills git and its children.
fn kill_group(child: &mut Child) {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // Fails only if it has already ended.
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.wait();
}

fn is_executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// Returns the end of an error message in one line, without control characters.
fn shorten(complaint: &[u8]) -> String {
    let text = String::from_utf8_lossy(complaint);
    let plain: Vec<char> =
        text.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let skipped = plain.len().saturating_sub(MESSAGE_CHARS);
    let kept: String = plain.iter().skip(skipped).collect();
    if skipped > 0 { format!("…{kept}") } else { kept }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn an_error_message_is_one_short_line_without_control_characters() {
        let long = format!("first\n{}\u{1b}[31mlast", "x".repeat(1000));
        let short = shorten(long.as_bytes());
        assert_eq!(short.chars().count(), MESSAGE_CHARS + 1);
        assert!(short.ends_with("last") && !short.contains(char::is_control), "{short}");
    }

    #[test]
    fn a_lock_is_held_until_the_children_of_git_have_ended() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        // Like git's checkout workers, the child reads from a pipe and outlives its parent for a while.
        let text = "#!/bin/sh\ncase $* in *version) echo git version 2.99.0; exit;; esac\n\
                    cd \"${0%/*}\"; (read -r end < pipe) < /dev/null > /dev/null 2>&1 &\n";
        fs::write(path("git"), text).unwrap();
        fs::set_permissions(path("git"), fs::Permissions::from_mode(0o755)).unwrap();
        assert!(Command::new("mkfifo").arg(path("pipe")).status().unwrap().success());
        let search = std::env::join_paths([folder.path(), "/usr/bin".as_ref(), "/bin".as_ref()]);
        let git = Git::find(&search.unwrap()).unwrap();
        let open = || File::options().create(true).append(true).open(path("lock")).unwrap();
        let lock = open();
        lock.lock().unwrap();
        git.call("read-tree").holding_lock(lock.into()).run().unwrap();
        let other = open();
        assert!(other.try_lock().is_err(), "git is gone, its worker is not");
        fs::write(path("pipe"), "end\n").unwrap();
        other.lock().unwrap();
    }

    #[test]
    fn relative_directories_of_the_search_path_are_skipped() {
        assert!(matches!(Git::find(OsStr::new(".:bin:")), Err(GitError::NoGit)));
    }
}
