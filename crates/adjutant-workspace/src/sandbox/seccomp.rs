//! The seccomp filter for system calls.
//!
//! A deny list, because programs of every kind run here. System calls that are newer than this list or use another
//! calling convention fail with ENOSYS. So do a few known ones, so that programs use their older alternatives.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter, sock_filter,
};

/// The first system call number that this file does not know (Linux 6.18).
const FIRST_UNKNOWN: u32 = 470;

/// `open_tree_attr`, which the libc crate does not name on every architecture.
const OPEN_TREE_ATTR: i64 = 467;

/// The number of `fchmodat2`, the same on all architectures; libc does not have it for ARM64.
const FCHMODAT2: i64 = 452;

/// System calls that are refused whatever their arguments.
const REFUSED: &[i64] = &[
    // The view of the file system.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_mount_setattr,
    OPEN_TREE_ATTR,
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_fanotify_init,
    // Namespaces.
    libc::SYS_setns,
    libc::SYS_unshare,
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_move_pages,
    libc::SYS_migrate_pages,
    // The kernel itself.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_syslog,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_vhangup,
    libc::SYS_nfsservctl,
    libc::SYS_lookup_dcookie,
];

#[cfg(target_arch = "x86_64")]
const REFUSED_HERE: &[i64] = &[
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_modify_ldt,
    libc::SYS_uselib,
    libc::SYS_ustat,
    libc::SYS_sysfs,
    libc::SYS__sysctl,
];
#[cfg(not(target_arch = "x86_64"))]
const REFUSED_HERE: &[i64] = &[];

/// System calls that fail with ENOSYS: programs have an alternative.
///
/// `clone3` and `openat2` pass flags and modes in memory, where a filter cannot see them. Memory of `memfd_create`
/// is not counted for any process.
const ABSENT: &[i64] = &[
    libc::SYS_clone3,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_memfd_create,
    libc::SYS_memfd_secret,
    libc::SYS_openat2,
];

/// System calls that set a file's mode, with the index of the mode argument.
///
/// Setting the set-user-id bit is refused: such a program would be owned by this account and could be run by others
/// after the sandbox has ended.
const MODES: &[(i64, u8)] =
    &[(libc::SYS_fchmod, 1), (libc::SYS_fchmodat, 2), (FCHMODAT2, 2), (libc::SYS_mknodat, 2)];

#[cfg(target_arch = "x86_64")]
const MODES_HERE: &[(i64, u8)] =
    &[(libc::SYS_chmod, 1), (libc::SYS_open, 2), (libc::SYS_creat, 1), (libc::SYS_mknod, 1)];
#[cfg(not(target_arch = "x86_64"))]
const MODES_HERE: &[(i64, u8)] = &[];

/// System calls that set a mode only when they create a file, with the index of the flags argument; the mode
/// follows.
const OPENINGS: &[(i64, u8)] = &[(libc::SYS_openat, 2)];
#[cfg(target_arch = "x86_64")]
const OPENINGS_HERE: &[(i64, u8)] = &[(libc::SYS_open, 1)];
#[cfg(not(target_arch = "x86_64"))]
const OPENINGS_HERE: &[(i64, u8)] = &[];

/// The `clone` flags that create namespaces.
const NAMESPACE_FLAGS: [libc::c_int; 8] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
    0x80,
];

/// `ioctl` requests that put input into a terminal: `TIOCSTI` and `TIOCLINUX`.
const TERMINAL_REQUESTS: [u64; 2] = [0x5412, 0x541c];

/// Installs the filter for this process and all its children.
pub(crate) fn restrict(network: bool) -> Result<(), String> {
    let refused = refused_calls(network).and_then(|rules| compile(rules, libc::EPERM));
    let refused = refused.map_err(|error| error.to_string())?;
    // One combined program: the kernel simulates each filter for every system call number when it is installed.
    let sockets = if network { Vec::new() } else { loopback_sockets_filter() };
    let program = [absent_calls_filter(), sockets, refused].concat();
    apply_filter(&program).map_err(|error| error.to_string())
}

fn refused_calls(
    network: bool,
) -> Result<BTreeMap<i64, Vec<SeccompRule>>, seccompiler::BackendError> {
    let always = REFUSED.iter().chain(REFUSED_HERE);
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        always.map(|call| (*call, Vec::new())).collect();
    let mut cloning = Vec::new();
    for flag in NAMESPACE_FLAGS {
        let flag = u64::from(flag.unsigned_abs());
        cloning.push(rule(0, SeccompCmpOp::MaskedEq(flag), &[flag])?);
    }
    rules.insert(libc::SYS_clone, cloning);
    if network {
        let families = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];
        let families = families.map(|family| u64::from(family.unsigned_abs()));
        rules.insert(libc::SYS_socket, vec![rule(0, SeccompCmpOp::Ne, &families)?]);
    }
    let mut typing = Vec::new();
    for request in TERMINAL_REQUESTS {
        typing.push(rule(1, SeccompCmpOp::Eq, &[request])?);
    }
    rules.insert(libc::SYS_ioctl, typing);
    let set_user = u64::from(libc::S_ISUID);
    for (call, argument) in MODES.iter().chain(MODES_HERE) {
        let refused = rule(*argument, SeccompCmpOp::MaskedEq(set_user), &[set_user])?;
        rules.insert(*call, vec![refused]);
    }
    for (call, flags) in OPENINGS.iter().chain(OPENINGS_HERE) {
        let mut refused = Vec::new();
        // The part of O_TMPFILE that is not O_DIRECTORY.
        for creating in [libc::O_CREAT, libc::O_TMPFILE & !libc::O_DIRECTORY] {
            let creating = u64::from(creating.unsigned_abs());
            let both = [(*flags, creating), (flags + 1, set_user)];
            let set = |(argument, bits)| {
                let masked = SeccompCmpOp::MaskedEq(bits);
                SeccompCondition::new(argument, SeccompCmpArgLen::Dword, masked, bits)
            };
            refused.push(SeccompRule::new(both.map(set).into_iter().collect::<Result<_, _>>()?)?);
        }
        rules.insert(*call, refused);
    }
    Ok(rules)
}

/// Returns a rule that matches if the argument compares true with every value.
fn rule(
    argument: u8,
    operator: SeccompCmpOp,
    values: &[u64],
) -> Result<SeccompRule, seccompiler::BackendError> {
    let condition = |value: &u64| {
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator.clone(), *value)
    };
    SeccompRule::new(values.iter().map(condition).collect::<Result<_, _>>()?)
}

fn compile(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    errno: libc::c_int,
) -> Result<BpfProgram, seccompiler::BackendError> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    let refuse = SeccompAction::Errno(errno.unsigned_abs());
    SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch)?.try_into()
}

/// Returns ENOSYS for the absent system calls and for unknown numbers, which on x86-64 include all of x32. Other
/// calls fall through to the next filter instructions.
fn absent_calls_filter() -> BpfProgram {
    let step = |code: u32, jt, jf, k| sock_filter { code: code as u16, jt, jf, k };
    let compare = |operator, number| step(libc::BPF_JMP | operator | libc::BPF_K, 0, 1, number);
    let refuse = u32::from(SeccompAction::Errno(libc::ENOSYS.unsigned_abs()));
    let refuse = || step(libc::BPF_RET | libc::BPF_K, 0, 0, refuse);
    let mut program = vec![step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0)];
    program.extend([compare(libc::BPF_JGE, FIRST_UNKNOWN), refuse()]);
    for call in ABSENT {
        let number = u32::try_from(*call).unwrap_or(u32::MAX);
        program.extend([compare(libc::BPF_JEQ, number), refuse()]);
    }
    program
}

/// Lets `socket` open what the private loopback needs: Unix sockets, TCP and UDP over IPv4 and IPv6, and netlink for
/// listing interfaces and routes. Other sockets fail with the error that a kernel without them would give.
fn loopback_sockets_filter() -> BpfProgram {
    // The low halves of the system call's three arguments in `struct seccomp_data`.
    const FAMILY: u32 = 16;
    const KIND: u32 = 24;
    const PROTOCOL: u32 = 32;
    let step = |code: u32, jt, jf, k| sock_filter { code: code as u16, jt, jf, k };
    let load = |offset| step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, offset);
    let skip_if = |number: libc::c_int, steps| {
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, steps, 0, number.unsigned_abs())
    };
    let refuse = |errno: libc::c_int| {
        let action = u32::from(SeccompAction::Errno(errno.unsigned_abs()));
        step(libc::BPF_RET | libc::BPF_K, 0, 0, action)
    };
    let call = u32::try_from(libc::SYS_socket).unwrap_or(u32::MAX);
    // Each number counts the steps that are skipped; the last step is followed by the next filter.
    vec![
        load(0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 19, call),
        load(FAMILY),
        skip_if(libc::AF_UNIX, 17),
        skip_if(libc::AF_INET, 3),
        skip_if(libc::AF_INET6, 2),
        skip_if(libc::AF_NETLINK, 11),
        refuse(libc::EAFNOSUPPORT),
        // IPv4 and IPv6: the kind without the flags for close-on-exec and non-blocking.
        load(KIND),
        step(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 0, 0, 0xf),
        skip_if(libc::SOCK_STREAM, 2),
        skip_if(libc::SOCK_DGRAM, 1),
        refuse(libc::EPROTONOSUPPORT),
        load(PROTOCOL),
        skip_if(0, 6),
        skip_if(libc::IPPROTO_TCP, 5),
        skip_if(libc::IPPROTO_UDP, 4),
        refuse(libc::EPROTONOSUPPORT),
        // Netlink.
        load(PROTOCOL),
        skip_if(libc::NETLINK_ROUTE, 1),
        refuse(libc::EPERM),
    ]
}
