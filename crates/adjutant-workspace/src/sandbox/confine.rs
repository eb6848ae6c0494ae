//! Restrictions that the first process puts on itself before it starts the program: resource limits, capabilities,
//! Landlock.
//!
//! Every program of the sandbox inherits them, and none can lift them.

use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;

use landlock::{
    ABI, Access as _, AccessFs, BitFlags, CompatLevel, Compatible as _, PathBeneath, PathFd,
    Ruleset, RulesetAttr as _, RulesetCreatedAttr as _, RulesetError, Scope,
};
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::{
    CapabilitiesSecureBits, CapabilitySet, CapabilitySets, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_capabilities_secure_bits,
    set_no_new_privs,
};

use super::plan::{BoundsPlan, RunPlan, SandboxLayer, SetupFailure, StepErrorContext as _};

/// Sets the resource limits of each process.
pub(crate) fn set_resource_limits(bounds: &BoundsPlan) -> Result<(), SetupFailure> {
    let mut limits = vec![
        (Resource::Core, 0),
        (Resource::Nofile, bounds.open_files),
        (Resource::Fsize, bounds.disk_bytes),
        (Resource::Msgqueue, 0),
        (Resource::Memlock, 64 << 10),
    ];
    limits.extend(bounds.address_space_bytes.map(|bytes| (Resource::As, bytes)));
    for (resource, most) in limits {
        // A lower limit inherited from outside stays.
        let now = rustix::process::getrlimit(resource).maximum.unwrap_or(u64::MAX);
        let most = Some(most.min(now));
        setrlimit(resource, Rlimit { current: most, maximum: most }).step("set a limit")?;
    }
    Ok(())
}

/// Drops every capability, for this process and all programs it starts.
///
/// The first process keeps CAP_DAC_READ_SEARCH: it must measure directories that the program made unreadable, or a
/// program could hide what it writes. No program it starts inherits it.
pub(crate) fn drop_privileges() -> Result<(), SetupFailure> {
    for bit in 0..u64::BITS {
        let one = CapabilitySet::from_bits_retain(1 << bit);
        match remove_capability_from_bounding_set(one) {
            Ok(()) => {}
            // Capabilities end at the first number the kernel does not know.
            Err(rustix::io::Errno::INVAL) => break,
            Err(errno) => return Err(SetupFailure::new("drop capabilities", errno)),
        }
    }
    let bits = CapabilitiesSecureBits::NO_ROOT
        | CapabilitiesSecureBits::NO_ROOT_LOCKED
        | CapabilitiesSecureBits::NO_SETUID_FIXUP
        | CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED
        | CapabilitiesSecureBits::KEEP_CAPS_LOCKED
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED;
    set_capabilities_secure_bits(bits).step("lock capabilities")?;
    clear_ambient_capability_set().step("drop capabilities")?;
    let kept = CapabilitySet::DAC_READ_SEARCH;
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: none };
    set_capabilities(None, sets).step("drop capabilities")?;
    set_no_new_privs(true).step("no new privileges")
}

/// Restricts file access with Landlock, and abstract sockets and signals if the kernel supports it.
///
/// Returns the layers that the kernel does not support.
///
/// The first process may list the `measured` directories.
pub(crate) fn apply_landlock<'d>(
    plan: &RunPlan,
    measured: impl Iterator<Item = &'d OwnedFd> + Clone,
) -> Result<Vec<SandboxLayer>, SetupFailure> {
    let fail = |error: RulesetError| SetupFailure {
        step: error.to_string(),
        errno: None,
        layer: Some(SandboxLayer::Landlock),
    };
    match restrict(plan, measured.clone(), ABI::V6) {
        Ok(()) => Ok(Vec::new()),
        Err(_) if plan.may_miss.contains(&SandboxLayer::LandlockScopes) => {
            match restrict(plan, measured, ABI::V3) {
                Ok(()) => Ok(vec![SandboxLayer::LandlockScopes]),
                Err(_) if plan.may_miss.contains(&SandboxLayer::Landlock) => {
                    Ok(vec![SandboxLayer::Landlock, SandboxLayer::LandlockScopes])
                }
                Err(error) => Err(fail(error)),
            }
        }
        Err(error) => Err(fail(error)),
    }
}

fn restrict<'d>(
    plan: &RunPlan,
    measured: impl Iterator<Item = &'d OwnedFd>,
    abi: ABI,
) -> Result<(), RulesetError> {
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(abi))?;
    if abi >= ABI::V6 {
        // No rules for TCP ports: they would also forbid the sandbox's own loopback. The network namespace isolates.
        rules = rules.scope(Scope::from_all(abi))?;
    }
    let all = AccessFs::from_all(abi);
    let read = AccessFs::from_read(abi);
    let mut rules = rules.create()?;
    let devices = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::ReadDir;
    let mut places = vec![
        (PathBuf::from("/"), read),
        (plan.at.as_path(), all),
        (PathBuf::from("/tmp"), all),
        (PathBuf::from("/dev/shm"), all),
        (PathBuf::from("/dev"), devices),
    ];
    if plan.pseudo_terminals {
        // Kernels with an older ABI do not restrict device requests.
        let requests = if abi >= ABI::V5 { AccessFs::IoctlDev.into() } else { BitFlags::EMPTY };
        places.push((PathBuf::from("/dev/pts"), devices | requests));
        places
            .push((PathBuf::from("/dev/tty"), AccessFs::ReadFile | AccessFs::WriteFile | requests));
    }
    let writable = plan.private.iter().chain(&plan.caches);
    places.extend(writable.map(|it| (it.at.as_path(), all)));
    for (path, access) in places {
        // All of these were just mounted. A path that cannot be opened gets no rights, which is safe.
        if let Ok(handle) = PathFd::new(path) {
            rules = rules.add_rule(PathBeneath::new(handle, access))?;
        }
    }
    for directory in measured {
        // Lets the first process measure the upper directories; programs inside have no path to them.
        rules = rules.add_rule(PathBeneath::new(directory.as_fd(), AccessFs::ReadDir))?;
    }
    rules.restrict_self()?;
    Ok(())
}
