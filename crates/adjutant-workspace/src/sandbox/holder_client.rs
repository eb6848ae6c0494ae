//! The engine's side of a namespace holder: starting it, talking to it, ending it.
//!
//! Holders are started from one thread that never ends, because the kernel sends the parent-death signal when the
//! starting *thread* ends. A holder also ends when its socket closes.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::helper::{HOLD, SUBCOMMAND};
use super::plan::{HolderPlan, HolderReply, HolderRequest, SetupFailure};
use super::wire;

/// The program that is started as the sandbox helper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxHelper {
    program: PathBuf,
}

impl SandboxHelper {
    /// Uses the running program itself, even if its file was replaced meanwhile.
    ///
    /// Its `main` must call [`helper_main_if_asked`](super::helper_main_if_asked) first; otherwise the whole
    /// program runs a second time.
    #[must_use]
    pub fn this_program() -> Self {
        Self { program: PathBuf::from("/proc/self/exe") }
    }

    /// Uses another program whose `main` calls [`helper_main_if_asked`](super::helper_main_if_asked) first.
    #[must_use]
    pub fn at(program: impl Into<PathBuf>) -> Self {
        Self { program: program.into() }
    }

    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    fn command(&self, role: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.args([SUBCOMMAND, role]);
        command
    }
}

/// A running holder process. Dropping this ends the process.
#[derive(Debug)]
pub(crate) struct NamespaceHolder {
    /// A std mutex: held for one request and its answer, which the holder sends at once.
    socket: Mutex<Option<OwnedFd>>,
    process: Mutex<Child>,
}

/// A holder's answer: file descriptors, or what failed.
pub(crate) type HolderResult = Result<Vec<OwnedFd>, SetupFailure>;

impl NamespaceHolder {
    /// Starts a holder and sends it `plan`. The second part says whether it could carry out the plan.
    pub(crate) fn start(
        helper: &SandboxHelper,
        plan: &HolderPlan,
    ) -> io::Result<(Self, HolderResult)> {
        let (ours, theirs) = wire::socket_pair()?;
        let mut command = helper.command(HOLD);
        command.env_clear().current_dir("/").stdin(Stdio::from(theirs));
        command.stdout(Stdio::null()).stderr(Stdio::null());
        set_socket_timeout(&ours, Timeout::Recv, Some(ANSWER_WITHIN))?;
        let process = spawn(command)?;
        let holder = Self { socket: Mutex::new(Some(ours)), process: Mutex::new(process) };
        let answer = holder.exchange(plan, &[])?;
        Ok((holder, answer))
    }

    /// Starts the first process of a sandbox; its pidfd is the only file in the answer.
    pub(crate) fn run(&self, files: &[BorrowedFd<'_>]) -> io::Result<HolderResult> {
        self.exchange(&HolderRequest::Run, files)
    }

    /// Listens on loopback in the holder's network namespace; the socket is the only file in the answer.
    pub(crate) fn listen(&self) -> io::Result<HolderResult> {
        self.exchange(&HolderRequest::Listen, &[])
    }

    /// Ends the holder process and waits for it.
    pub(crate) fn end(self) {
        drop(self);
    }

    fn exchange(
        &self,
        message: &impl serde::Serialize,
        files: &[BorrowedFd<'_>],
    ) -> io::Result<HolderResult> {
        let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        let socket = socket.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        wire::send(socket.as_fd(), message, files)?;
        match wire::receive(socket.as_fd())? {
            Some((HolderReply::Done, files)) => Ok(Ok(files)),
            Some((HolderReply::Failed(failure), _)) => Ok(Err(failure)),
            None => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the holder has ended")),
        }
    }
}

impl Drop for NamespaceHolder {
    fn drop(&mut self) {
        self.socket.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let process = self.process.get_mut().unwrap_or_else(PoisonError::into_inner);
        // The holder ends by itself when its socket is closed, which releases its locks. A stopped or stuck holder
        // is killed.
        if !ends_within(process, PATIENCE) {
            let _ = process.kill();
        }
        let _ = process.wait();
    }
}

/// How long a holder may take to answer. It never waits for anything itself; the timeout keeps a stopped holder
/// from blocking the engine.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// How long a holder may take to end by itself before it is killed.
const PATIENCE: Duration = Duration::from_secs(1);

fn ends_within(process: &Child, patience: Duration) -> bool {
    let number = i32::try_from(process.id()).ok().and_then(Pid::from_raw);
    let handle = number.and_then(|it| pidfd_open(it, PidfdFlags::empty()).ok());
    let Some(handle) = handle else { return false };
    let patience = rustix::time::Timespec::try_from(patience).ok();
    poll(&mut [PollFd::new(&handle, PollFlags::IN)], patience.as_ref()).is_ok_and(|ready| ready > 0)
}

/// A command for the starting thread, and the channel for its result.
type SpawnRequest = (Command, Sender<io::Result<Child>>);

/// Starts a program from a thread that lives as long as this process.
fn spawn(command: Command) -> io::Result<Child> {
    static STARTER: OnceLock<Mutex<Sender<SpawnRequest>>> = OnceLock::new();
    let gone = || io::Error::other("the thread that starts helpers has ended");
    let starter = STARTER.get_or_init(|| {
        let (orders, queue) = channel::<SpawnRequest>();
        let work = move || {
            for (mut command, answer) in queue {
                // If the caller is gone, the child is dropped and its socket closes.
                let _ = answer.send(command.spawn());
            }
        };
        // If the thread cannot be started, the channel is closed and every send fails.
        let _ = std::thread::Builder::new().name("sandbox-starter".to_owned()).spawn(work);
        Mutex::new(orders)
    });
    let (answer, answered) = channel();
    let orders = starter.lock().unwrap_or_else(PoisonError::into_inner).clone();
    orders.send((command, answer)).map_err(|_| gone())?;
    answered.recv().map_err(|_| gone())?
}
