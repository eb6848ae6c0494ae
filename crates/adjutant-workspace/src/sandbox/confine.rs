//! What the first process takes from itself before it starts anything: limits, privileges, files.
//!
//! All of it is inherited by every program of the sandbox and can be given up by none.

use std::os::fd::AsFd;
use std::path::Path;

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, CompatLevel, Compatible as _, PathBeneath, PathFd,
    Ruleset, RulesetAttr as _, RulesetCreatedAttr as _, RulesetError, Scope,
};
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::{
    CapabilitiesSecureBits, CapabilitySet, CapabilitySets, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_capabilities_secure_bits,
    set_no_new_privs,
};

use super::plan::{BoundsPlan, RunPlan, SandboxLayer, SetupFailure, StepContext as _};

/// Bounds what each process may use.
pub(crate) fn limit(bounds: &BoundsPlan) -> Result<(), SetupFailure> {
    let mut limits = vec![
        (Resource::Core, 0),
        (Resource::Nofile, bounds.open_files),
        (Resource::Fsize, bounds.disk_bytes),
        (Resource::Msgqueue, 0),
        (Resource::Memlock, 64 << 10),
    ];
    limits.extend(bounds.address_space_bytes.map(|bytes| (Resource::As, bytes)));
    for (resource, most) in limits {
        // A limit inherited from outside is kept when it is lower.
        let now = rustix::process::getrlimit(resource).maximum.unwrap_or(u64::MAX);
        let most = Some(most.min(now));
        setrlimit(resource, Rlimit { current: most, maximum: most }).step("set a limit")?;
    }
    Ok(())
}

/// Gives up every capability, now and after any program is started.
///
/// The first process itself keeps one: looking into directories that the program closed to its own
/// account, or a program could hide from the watch on its writing. No program it starts gets it.
pub(crate) fn drop_privileges() -> Result<(), SetupFailure> {
    for bit in 0..u64::BITS {
        let one = CapabilitySet::from_bits_retain(1 << bit);
        match remove_capability_from_bounding_set(one) {
            Ok(()) => {}
            // The first number that is no capability.
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

/// Restricts files by Landlock, and TCP, abstract sockets and signals where the kernel can.
///
/// Returns the layers that the kernel does not have.
pub(crate) fn landlock(
    plan: &RunPlan,
    upper: Option<&impl AsFd>,
) -> Result<Vec<SandboxLayer>, SetupFailure> {
    let fail = |error: RulesetError| SetupFailure {
        step: error.to_string(),
        errno: None,
        layer: Some(SandboxLayer::Landlock),
    };
    match restrict(plan, upper, ABI::V6) {
        Ok(()) => Ok(Vec::new()),
        Err(_) if plan.may_miss.contains(&SandboxLayer::LandlockScopes) => {
            match restrict(plan, upper, ABI::V3) {
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

fn restrict(plan: &RunPlan, upper: Option<&impl AsFd>, abi: ABI) -> Result<(), RulesetError> {
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(abi))?;
    if abi >= ABI::V6 {
        rules = rules.scope(Scope::from_all(abi))?;
        if !plan.network {
            rules = rules.handle_access(AccessNet::from_all(abi))?;
        }
    }
    let all = AccessFs::from_all(abi);
    let read = AccessFs::from_read(abi);
    let mut rules = rules.create()?;
    let at = plan.at.as_path();
    let places = [
        (Path::new("/"), read),
        (at.as_path(), all),
        (Path::new("/tmp"), all),
        (Path::new("/dev/shm"), all),
        (Path::new("/dev"), AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::ReadDir),
    ];
    for (path, access) in places {
        // These were all just mounted. A path that cannot be opened gets no rights, which is safe.
        if let Ok(handle) = PathFd::new(path) {
            rules = rules.add_rule(PathBeneath::new(handle, access))?;
        }
    }
    if let Some(upper) = upper {
        // For the watch on its size; no program inside has a path there.
        rules = rules.add_rule(PathBeneath::new(upper.as_fd(), AccessFs::ReadDir))?;
    }
    rules.restrict_self()?;
    Ok(())
}
