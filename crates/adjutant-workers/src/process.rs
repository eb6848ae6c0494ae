//! The process of a worker in the sandbox of its workspace: its lines, its input, its end.
//!
//! The process runs on a thread of its own, which holds the workspace open until every process of the sandbox has ended.
//! Start at [`start_process`]. Invariant: lines wait in bounded queues, so an agent that writes faster than it is read
//! is slowed down.

use std::ffi::OsString;
use std::io::{self, PipeWriter, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use adjutant_engine::{CancelHandle, WorkerSandbox, WorkerWorkspace};
use adjutant_workspace::sandbox::{
    OutputSink, OutputStream, ProgramEnd, ProgramInput, ProgramSpec, RunError, SandboxedExit,
};
use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};

use crate::definition::PlaceholderValues;
use crate::gateway::base_url;

/// The longest line that a worker may write.
const MAX_LINE_BYTES: usize = 16 << 20;

/// Lines that wait to be read.
const WAITING_LINES: usize = 64;

/// The bytes that are kept of a worker's error stream, for messages about its end.
const KEPT_ERROR_BYTES: usize = 2 << 10;

/// A worker has no timeout of its own: the deadline of its delegation ends it.
const NO_TIMEOUT: Duration = Duration::from_secs(30 * 24 * 3600);

/// How a worker's process is started.
pub(crate) struct ProcessPlan {
    /// The program and its arguments; may contain placeholders.
    pub(crate) words: Vec<OsString>,
    /// The variables beside those of all commands; may contain placeholders.
    pub(crate) environment: Vec<(String, String)>,
    /// A shell command that prepares the private home.
    pub(crate) prepare: Option<String>,
    /// The folders it needs to see.
    pub(crate) folders: Vec<PathBuf>,
    pub(crate) pseudo_terminals: bool,
    pub(crate) values: PlaceholderValues,
}

/// A line that a worker wrote, or the end of its output.
#[derive(Debug)]
pub(crate) enum WorkerOutput {
    /// A line without its end.
    Line(Bytes),
    /// A line that is too long to be read.
    LineTooLong,
    /// The process has ended; why, for people.
    Ended(String),
}

/// A running process of a worker. Dropping it kills every process of its sandbox.
pub(crate) struct WorkerProcess {
    /// What it writes.
    pub(crate) output: mpsc::Receiver<WorkerOutput>,
    /// Writes lines to its standard input.
    pub(crate) input: mpsc::Sender<Vec<u8>>,
    /// The path of the checkout as it sees it.
    pub(crate) checkout: PathBuf,
    pub(crate) killer: ProcessKiller,
}

/// Kills every process of a worker's sandbox when it is dropped.
pub(crate) struct ProcessKiller(CancelHandle);

impl ProcessKiller {
    pub(crate) fn kill(&self) {
        self.0.cancel();
    }
}

impl Drop for ProcessKiller {
    fn drop(&mut self) {
        self.kill();
    }
}

/// What the thread of a process reports before the program starts.
struct StartedSandbox {
    listener: std::net::TcpListener,
    checkout: PathBuf,
}

/// Starts a worker in the sandbox of a workspace. Returns its process and the listener for its gateway.
pub(crate) async fn start_process(
    workspace: WorkerWorkspace,
    plan: ProcessPlan,
) -> Result<(WorkerProcess, std::net::TcpListener), String> {
    let cancel = CancelHandle::new().map_err(|error| error.to_string())?;
    let killer = ProcessKiller(cancel.clone());
    let (lines, output) = mpsc::channel(WAITING_LINES);
    let (started, starting) = oneshot::channel();
    let (write_end, input) = ProgramInput::pipe().map_err(|error| error.to_string())?;
    let thread = std::thread::Builder::new().name("adjutant-worker".to_owned());
    let run = move || {
        let ended = lines.clone();
        let folders = plan.folders.clone();
        let run = |sandbox| run_process(sandbox, plan, input, &cancel, lines, started);
        let end = workspace.with_sandbox(&folders, run).and_then(|ended| ended);
        let end = end.unwrap_or_else(|problem| problem);
        // The receiver is gone if the worker was told to stop.
        let _ = ended.blocking_send(WorkerOutput::Ended(end));
    };
    thread.spawn(run).map_err(|error| error.to_string())?;
    let input = start_writer(write_end).map_err(|error| error.to_string())?;
    let mut process = WorkerProcess { output, input, checkout: PathBuf::new(), killer };
    match starting.await {
        Ok(StartedSandbox { listener, checkout }) => {
            process.checkout = checkout;
            Ok((process, listener))
        }
        Err(_gone) => match process.output.recv().await {
            Some(WorkerOutput::Ended(problem)) => Err(problem),
            Some(WorkerOutput::Line(_) | WorkerOutput::LineTooLong) | None => {
                Err("its sandbox could not be built".to_owned())
            }
        },
    }
}

/// Runs the process to its end. Blocks. Returns how it ended.
fn run_process(
    worker: WorkerSandbox,
    plan: ProcessPlan,
    input: ProgramInput,
    cancel: &CancelHandle,
    lines: mpsc::Sender<WorkerOutput>,
    started: oneshot::Sender<StartedSandbox>,
) -> Result<String, String> {
    let WorkerSandbox { sandbox, checkout, mut environment } = worker;
    if !sandbox.level().is_full() {
        return Err(format!(
            "its own sandbox and questions are off, so it runs only in a full sandbox; here it is {}",
            sandbox.level()
        ));
    }
    let listener = sandbox.listen_on_loopback().map_err(|error| error.to_string())?;
    let port = listener.local_addr().map_err(|error| error.to_string())?.port();
    let home = environment.iter().find(|(name, _)| name == "HOME");
    let home = home.map_or("/tmp".to_owned(), |(_, home)| home.to_string_lossy().into_owned());
    let gateway = base_url(port, None);
    let fill = |text: &str| plan.values.fill(text, &gateway, &home);
    for (name, value) in &plan.environment {
        environment.retain(|(known, _)| known != name.as_str());
        environment.push((name.into(), fill(value).into()));
    }
    let filled =
        plan.words.iter().map(|word| word.to_str().map_or(word.clone(), |it| fill(it).into()));
    let words: Vec<OsString> = match &plan.prepare {
        None => filled.collect(),
        Some(prepare) => {
            let script = format!("{prepare} && exec \"$0\" \"$@\"");
            ["/bin/sh".into(), "-c".into(), script.into()].into_iter().chain(filled).collect()
        }
    };
    let program = ProgramSpec {
        environment,
        timeout: NO_TIMEOUT,
        input: Some(input),
        pseudo_terminals: plan.pseudo_terminals,
        ..ProgramSpec::new(words)
    };
    // The caller is gone if the worker was told to stop meanwhile; the run below ends at once then.
    let _ = started.send(StartedSandbox { listener, checkout });
    let mut reader =
        WorkerLineReader { lines, line: Vec::new(), is_too_long: false, errors: Vec::new() };
    let ended = sandbox.run(&program, cancel, &mut reader);
    Ok(end_text(ended, &reader.errors))
}

/// Says how a process ended.
fn end_text(ended: Result<SandboxedExit, RunError>, errors: &[u8]) -> String {
    let how = match ended {
        Err(error) => return error.to_string(),
        Ok(exit) => match exit.end {
            ProgramEnd::Exited(code) => format!("it exited with status {code}"),
            ProgramEnd::Signalled(signal) => format!("it was killed by signal {signal}"),
            ProgramEnd::TimedOut | ProgramEnd::Cancelled => "it was ended".to_owned(),
            ProgramEnd::OutOfMemory { .. } => "it used more memory than allowed".to_owned(),
            ProgramEnd::TooManyEntries { .. } => "it made more files than allowed".to_owned(),
            ProgramEnd::TooMuchWritten { .. } => "it wrote more than allowed".to_owned(),
        },
    };
    let text = String::from_utf8_lossy(errors);
    let last: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    match last.len() {
        0 => how,
        count => format!("{how}: {}", last[count.saturating_sub(3)..].join("; ")),
    }
}

/// Splits the output of a worker into lines.
struct WorkerLineReader {
    lines: mpsc::Sender<WorkerOutput>,
    line: Vec<u8>,
    is_too_long: bool,
    /// The end of its error stream.
    errors: Vec<u8>,
}

impl OutputSink for WorkerLineReader {
    fn chunk(&mut self, stream: OutputStream, bytes: &[u8]) {
        match stream {
            OutputStream::Err => {
                self.errors.extend_from_slice(bytes);
                let surplus = self.errors.len().saturating_sub(KEPT_ERROR_BYTES);
                self.errors.drain(..surplus);
            }
            OutputStream::Out => {
                let mut rest = bytes;
                while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                    self.push(&rest[..end]);
                    rest = &rest[end + 1..];
                    self.end_line();
                }
                self.push(rest);
            }
        }
    }
}

impl WorkerLineReader {
    fn push(&mut self, bytes: &[u8]) {
        if self.is_too_long {
            return;
        }
        if self.line.len() + bytes.len() > MAX_LINE_BYTES {
            self.is_too_long = true;
            self.line = Vec::new();
            // Reported at once, because the end of the line may never come.
            return self.send(WorkerOutput::LineTooLong);
        }
        self.line.extend_from_slice(bytes);
    }

    fn end_line(&mut self) {
        let line = Bytes::from(std::mem::take(&mut self.line));
        if !std::mem::take(&mut self.is_too_long) {
            self.send(WorkerOutput::Line(line));
        }
    }

    fn send(&self, output: WorkerOutput) {
        // The receiver is gone if the worker was told to stop.
        let _ = self.lines.blocking_send(output);
    }
}

/// Starts the thread that writes to the standard input of a worker. It ends when the sender is dropped or the worker no
/// longer reads.
fn start_writer(mut write_end: PipeWriter) -> io::Result<mpsc::Sender<Vec<u8>>> {
    let (sender, mut lines) = mpsc::channel::<Vec<u8>>(WAITING_LINES);
    std::thread::Builder::new().name("adjutant-worker-input".to_owned()).spawn(move || {
        while let Some(line) = lines.blocking_recv() {
            if write_end.write_all(&line).is_err() {
                break;
            }
        }
    })?;
    Ok(sender)
}
