//! The self-test, which runs as a program inside the sandbox and tries what each layer must prevent.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixStream};

use rustix::net::{AddressFamily, SocketType, socket};
use rustix::process::{Resource, getppid, getrlimit};
use rustix::thread::UnshareFlags;
use serde::{Deserialize, Serialize};

use super::plan::{SandboxLayer, SetupFailure, StepErrorContext as _};
use super::raw;
use super::rootfs::ONLY_LANDLOCK;

/// The name of the abstract socket that only Landlock protects.
pub(crate) const PROBE_SOCKET: &str = "adjutant-self-test";

/// The variable with the port on which the engine listens outside during the self-test.
pub(crate) const HOST_PORT: &str = "ADJUTANT_SELF_TEST_PORT";

/// The result of one trial: whether the layer prevented it. A layer has several trials.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LayerTrialResult {
    pub(crate) layer: SandboxLayer,
    /// What was tried; completes the sentence "… did not prevent …".
    pub(crate) tried: String,
    pub(crate) held: bool,
}

/// A layer, what is tried, and a function that returns true if the trial broke the layer.
type LayerTrial = (SandboxLayer, &'static str, fn() -> bool);

/// Runs all trials and prints the results as JSON.
pub(crate) fn self_test() -> Result<(), SetupFailure> {
    let trials: [LayerTrial; 23] = [
        (SandboxLayer::Namespaces, "seeing processes outside", sees_other_processes),
        (SandboxLayer::Namespaces, "having a parent outside", || {
            getppid().is_some_and(|it| !it.is_init())
        }),
        (SandboxLayer::Network, "seeing a network device besides loopback", sees_network),
        (SandboxLayer::Network, "having a route", has_route),
        (SandboxLayer::Network, "connecting to a server on the host", reaches_host),
        (SandboxLayer::Root, "writing to /usr", || writes("/usr/adjutant-self-test")),
        (SandboxLayer::Root, "writing to /etc", || writes("/etc/adjutant-self-test")),
        (SandboxLayer::Root, "writing to the root", || writes("/adjutant-self-test")),
        (SandboxLayer::Root, "writing to .git", || writes(".git/adjutant-self-test")),
        (SandboxLayer::Root, "reading /etc/shadow", || File::open("/etc/shadow").is_ok()),
        (SandboxLayer::Root, "seeing /sys", || exists("/sys")),
        (SandboxLayer::Root, "seeing /home", || exists("/home")),
        (SandboxLayer::Root, "seeing /root", || exists("/root")),
        (SandboxLayer::Proc, "writing to /proc/sys", || writes("/proc/sys/kernel/core_pattern")),
        (SandboxLayer::Proc, "reading the first process's memory map", || {
            read("/proc/1/maps").is_some()
        }),
        (SandboxLayer::PidMax, "having no bound", || {
            number("/proc/sys/kernel/pid_max") > Some(1 << 14)
        }),
        (SandboxLayer::Limits, "dumping core", || getrlimit(Resource::Core).current != Some(0)),
        (SandboxLayer::Privileges, "having a capability", has_capability),
        (SandboxLayer::Privileges, "gaining privileges", || {
            status("NoNewPrivs:") != Some("1".to_owned())
        }),
        (SandboxLayer::Landlock, "writing where only Landlock forbids it", only_landlock),
        (
            SandboxLayer::LandlockScopes,
            "connecting to a socket outside the Landlock domain",
            reaches_probe_socket,
        ),
        (SandboxLayer::Seccomp, "creating a user namespace", || {
            raw::unshare(UnshareFlags::NEWUSER).is_ok()
        }),
        (SandboxLayer::Seccomp, "listening to kernel events", || {
            let events = Some(rustix::net::netlink::KOBJECT_UEVENT);
            socket(AddressFamily::NETLINK, SocketType::DGRAM, events).is_ok()
        }),
    ];
    let findings: Vec<LayerTrialResult> = trials
        .into_iter()
        .map(|(layer, tried, broken)| LayerTrialResult {
            layer,
            tried: tried.to_owned(),
            held: !broken(),
        })
        .collect();
    let text = serde_json::to_vec(&findings).map_err(std::io::Error::from).step("findings")?;
    // The workspace must be writable; otherwise the trials above could fail for the wrong reason.
    File::create("usable").step("write in the workspace")?;
    File::create("/tmp/usable").step("write in /tmp")?;
    use_loopback().step("use the loopback interface")?;
    std::io::stdout().write_all(&text).step("findings")
}

fn writes(path: &str) -> bool {
    OpenOptions::new().create(true).append(true).open(path).is_ok()
}

fn exists(path: &str) -> bool {
    std::fs::symlink_metadata(path).is_ok()
}

fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

fn number(path: &str) -> Option<u64> {
    read(path)?.trim().parse().ok()
}

fn status(field: &str) -> Option<String> {
    let all = read("/proc/self/status")?;
    all.lines().find_map(|line| line.strip_prefix(field)).map(|value| value.trim().to_owned())
}

fn has_capability() -> bool {
    let zero = |field| status(field).is_some_and(|value| value.bytes().all(|digit| digit == b'0'));
    !["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"].into_iter().all(zero)
}

/// Only two processes run here: the first process and this one.
fn sees_other_processes() -> bool {
    let Ok(entries) = std::fs::read_dir("/proc") else { return true };
    let is_process = |name: &[u8]| name.iter().all(u8::is_ascii_digit);
    let names = entries.flatten().map(|entry| entry.file_name());
    names.filter(|name| is_process(name.as_encoded_bytes())).count() != 2
}

fn sees_network() -> bool {
    let devices = read("/proc/self/net/dev").unwrap_or_else(|| "unreadable:".to_owned());
    devices.lines().filter_map(|line| line.split_once(':')).any(|(name, _)| name.trim() != "lo")
}

/// Every IPv4 route counts. The kernel lists IPv6 routes of the loopback interface, which lead nowhere else.
fn has_route() -> bool {
    let unreadable = || "\nunreadable".to_owned();
    let routes = read("/proc/self/net/route").unwrap_or_else(unreadable);
    let routes6 = read("/proc/self/net/ipv6_route").unwrap_or_default();
    routes.lines().nth(1).is_some() || routes6.lines().any(|line| !line.trim_end().ends_with(" lo"))
}

/// Connects to the port on which the engine listens outside, on the same address.
fn reaches_host() -> bool {
    let port = std::env::var(HOST_PORT).ok().and_then(|port| port.parse::<u16>().ok());
    let Some(port) = port else { return true };
    let reached = TcpStream::connect((Ipv4Addr::LOCALHOST, port));
    // Any other error means that loopback does not work here, which proves nothing.
    reached.err().is_none_or(|error| error.kind() != std::io::ErrorKind::ConnectionRefused)
}

/// Connects to a server in the sandbox itself, as tests do.
fn use_loopback() -> std::io::Result<()> {
    let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    TcpStream::connect(server.local_addr()?)?;
    server.accept().map(|_| ())
}

fn only_landlock() -> bool {
    // The directory exists and is world-writable, so only Landlock can refuse.
    !exists(ONLY_LANDLOCK) || writes(&format!("{ONLY_LANDLOCK}/file"))
}

fn reaches_probe_socket() -> bool {
    let reached = SocketAddr::from_abstract_name(PROBE_SOCKET)
        .and_then(|address| UnixStream::connect_addr(&address));
    // Any other error means that the socket does not exist, which proves nothing.
    reached.err().is_none_or(|error| error.kind() != std::io::ErrorKind::PermissionDenied)
}
