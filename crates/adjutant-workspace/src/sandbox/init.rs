//! The first process of a sandbox: builds the sandbox around itself, starts the program, and watches it.
//!
//! When it ends, the kernel kills every process of its process namespace. Invariant: the program is started only
//! after every required layer is in force for this process.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::process::{
    DumpableBehavior, Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, pidfd_open,
    set_dumpable_behavior, set_parent_process_death_signal, setsid, wait,
};
use rustix::thread::UnshareFlags;

use super::helper::{SELF_TEST, SUBCOMMAND};
use super::plan::{
    InitReport, RunPlan, RunTarget, SandboxLayer, SetupFailure, StepErrorContext as _,
};
use super::self_test::PROBE_SOCKET;
use super::watch::{MeasuredDirs, ResourceWatch, resident_bytes};
use super::{confine, raw, rootfs, seccomp, wire};

/// The interval at which orphans are reaped and resources are measured.
const TICK: Duration = Duration::from_millis(50);

/// Runs as the first process; standard input is the socket to the engine.
pub(crate) fn run_first_process() -> Result<(), SetupFailure> {
    let control = io::stdin();
    let Some((plan, files)) = wire::receive::<RunPlan>(&control).step("read the plan")? else {
        return Ok(());
    };
    let input = files.into_iter().next();
    let report = match build(&plan) {
        Ok(BuiltSandbox { missing, watch, _probe_socket }) => match start(&plan, input) {
            Ok(program) => {
                send_report(&control, &InitReport::Started { missing })?;
                watch_program(&control, program, watch)?
            }
            Err(failure) => InitReport::NotStarted(failure),
        },
        Err(failure) => InitReport::Refused(failure),
    };
    send_report(&control, &report)
}

fn send_report(control: impl AsFd, report: &InitReport) -> Result<(), SetupFailure> {
    wire::send(control, report, &[]).step("report")
}

/// The sandbox that was built around this process.
struct BuiltSandbox {
    /// Missing layers that the caller accepts as missing.
    missing: Vec<SandboxLayer>,
    watch: ResourceWatch,
    /// For the self-test: an abstract socket created before Landlock, which programs must not reach.
    _probe_socket: Option<UnixListener>,
}

/// Applies every layer to this process.
fn build(plan: &RunPlan) -> Result<BuiltSandbox, SetupFailure> {
    setsid().step("leave the terminal")?;
    // The kernel kills these processes first when memory runs out; programs inside cannot lower the score.
    std::fs::write("/proc/self/oom_score_adj", "1000").step("set the out-of-memory score")?;
    // The network, host name and cgroup namespaces are already those of the holder.
    let kinds = UnshareFlags::NEWNS | UnshareFlags::NEWIPC;
    raw::unshare(kinds)
        .step("create namespaces")
        .map_err(|it| it.in_layer(SandboxLayer::Namespaces))?;
    let upper = plan.upper.as_ref().map(open_measured).transpose()?;
    let private = plan.measured.iter().map(open_measured).collect::<Result<Vec<_>, _>>()?;
    let lowers = open_lowers(plan)?;
    let workspace = rootfs::enter(plan)
        .map_err(|it| if it.layer.is_some() { it } else { it.in_layer(SandboxLayer::Root) })?;
    rootfs::enter_directory(&workspace, &plan.cwd.as_path())?;
    confine::set_resource_limits(&plan.bounds).map_err(|it| it.in_layer(SandboxLayer::Limits))?;
    confine::drop_privileges().map_err(|it| it.in_layer(SandboxLayer::Privileges))?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .step("make the first process undumpable")?;
    // A change of credentials may have cleared it.
    set_parent_process_death_signal(Some(Signal::KILL)).step("die with the parent")?;
    let door = open_probe_socket(plan)?;
    let measured = upper.iter().chain(&private);
    let missing = confine::apply_landlock(plan, measured)?;
    seccomp::restrict(plan.network).map_err(|step| SetupFailure {
        step,
        errno: None,
        layer: Some(SandboxLayer::Seccomp),
    })?;
    let dirs = MeasuredDirs { workspace, upper, lowers, private };
    let watch = ResourceWatch::new(&plan.bounds, dirs);
    Ok(BuiltSandbox { missing, watch, _probe_socket: door })
}

fn open_probe_socket(plan: &RunPlan) -> Result<Option<UnixListener>, SetupFailure> {
    match plan.start {
        RunTarget::Program(_) => Ok(None),
        RunTarget::SelfTest => {
            let address = SocketAddr::from_abstract_name(PROBE_SOCKET).step("name a socket")?;
            UnixListener::bind_addr(&address).step("open a socket").map(Some)
        }
    }
}

fn open_measured(directory: &wire::OsText) -> Result<OwnedFd, SetupFailure> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(CWD, directory.as_path(), flags, Mode::empty()).step("open a directory to measure")
}

/// Opens the lower layers, topmost first, for looking up names in them.
fn open_lowers(plan: &RunPlan) -> Result<Vec<OwnedFd>, SetupFailure> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open = |lower: &wire::OsText| openat(CWD, lower.as_path(), flags, Mode::empty());
    plan.lowers.iter().rev().map(|lower| open(lower).step("open a lower layer")).collect()
}

/// Starts the program. Afterwards only the program holds `input`, so the other end notices when it has ended.
fn start(plan: &RunPlan, input: Option<OwnedFd>) -> Result<Pid, SetupFailure> {
    let mut command = match &plan.start {
        RunTarget::Program(words) => {
            let mut words = words.iter().map(wire::OsText::as_os);
            let program = words.next().ok_or(io::ErrorKind::InvalidInput).step("no program")?;
            let mut command = Command::new(program);
            command.args(words);
            command
        }
        RunTarget::SelfTest => {
            let mut command = Command::new(rootfs::SELF_TEST_AT);
            command.args([SUBCOMMAND, SELF_TEST]);
            command
        }
    };
    command.env_clear();
    command.envs(plan.environment.iter().map(|(name, value)| (name.as_os(), value.as_os())));
    command.stdin(input.map_or_else(Stdio::null, Stdio::from)).process_group(0);
    let child = command.spawn().step("start the program")?;
    let number = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    number.ok_or(io::ErrorKind::InvalidData).step("read the pid of the program")
}

/// Waits for the program, reaps orphans, and enforces the resource bounds.
fn watch_program(
    control: &io::Stdin,
    program: Pid,
    mut watch: ResourceWatch,
) -> Result<InitReport, SetupFailure> {
    let ended = pidfd_open(program, PidfdFlags::empty()).step("watch the program")?;
    let null = File::open("/dev/null").step("close the output")?;
    // From now on only programs write to the output streams; this process must not keep them open.
    rustix::stdio::dup2_stdout(&null).step("close the output")?;
    rustix::stdio::dup2_stderr(&null).step("close the output")?;
    loop {
        let tick = rustix::time::Timespec::try_from(TICK).unwrap_or_default();
        let mut ready = [PollFd::new(&ended, PollFlags::IN), PollFd::new(control, PollFlags::IN)];
        match poll(&mut ready, Some(&tick)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(SetupFailure::new("wait for the program", errno)),
        }
        let hung_up = !ready[1].revents().is_empty();
        if let Some(status) = reap(program) {
            let signal = status.terminating_signal();
            return Ok(InitReport::Exited { code: status.exit_status(), signal });
        }
        if hung_up {
            // The engine closed its end. When this process exits, the kernel kills all others.
            std::process::exit(0);
        }
        if let Some(report) = watch.check(Instant::now(), resident_bytes) {
            return Ok(report);
        }
    }
}

fn reap(program: Pid) -> Option<WaitStatus> {
    let mut found = None;
    while let Ok(Some((number, status))) = wait(WaitOptions::NOHANG) {
        if number == program {
            found = Some(status);
        }
    }
    found
}
