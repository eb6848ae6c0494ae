//! Which sandbox layers work on this machine, proved by trying to break each one from inside.

use std::collections::HashMap;
use std::fmt;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use super::holder_client::SandboxHelper;
use super::output::{BoundedOutput, OutputSink as _, OutputStream};
use super::plan::{RunTarget, SandboxLayer};
use super::run::{
    CancelHandle, ProgramEnd, ProgramSpec, Sandbox, SandboxConfig, SandboxUnavailable,
    SandboxWorkspace,
};
use super::self_test::{HOST_PORT, LayerTrialResult};

/// Layers that a person may accept as missing, because the other layers still confine a program.
const OPTIONAL: [SandboxLayer; 3] =
    [SandboxLayer::PidMax, SandboxLayer::Landlock, SandboxLayer::LandlockScopes];

/// Whether all layers of the sandbox confine programs on this machine, or which are missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SandboxLevel {
    /// Every layer.
    Full,
    /// Every layer except these.
    Reduced(Vec<SandboxLayer>),
}

impl SandboxLevel {
    fn from_missing(mut missing: Vec<SandboxLayer>) -> Self {
        missing.sort_unstable();
        missing.dedup();
        if missing.is_empty() { Self::Full } else { Self::Reduced(missing) }
    }

    /// Says whether every layer is active.
    #[must_use]
    pub fn is_full(&self) -> bool {
        match self {
            Self::Full => true,
            Self::Reduced(_) => false,
        }
    }

    /// Returns the missing layers.
    #[must_use]
    pub fn missing(&self) -> &[SandboxLayer] {
        match self {
            Self::Full => &[],
            Self::Reduced(missing) => missing,
        }
    }

    /// Refuses if a layer is missing that is not in `may_miss`.
    pub(crate) fn check_missing(
        &self,
        may_miss: &[SandboxLayer],
    ) -> Result<(), SandboxUnavailable> {
        let wanting = self.missing().iter().filter(|layer| !may_miss.contains(layer));
        let names: Vec<_> = wanting.map(ToString::to_string).collect();
        if names.is_empty() {
            return Ok(());
        }
        Err(SandboxUnavailable { why: format!("this machine lacks {}", names.join(", ")) })
    }

    /// Returns this level with further layers missing.
    pub(crate) fn without(&self, missing: &[SandboxLayer]) -> Self {
        Self::from_missing([self.missing(), missing].concat())
    }
}

impl fmt::Display for SandboxLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("full: every layer is active and was tested"),
            Self::Reduced(missing) => {
                let names: Vec<_> = missing.iter().map(ToString::to_string).collect();
                write!(f, "reduced: without {}", names.join(", "))
            }
        }
    }
}

/// Proves the level once for each helper program and caches it for the life of this process.
pub(crate) fn prove_level(helper: &SandboxHelper) -> Result<SandboxLevel, SandboxUnavailable> {
    type Proofs = Mutex<HashMap<PathBuf, Result<SandboxLevel, SandboxUnavailable>>>;
    static PROOFS: OnceLock<Proofs> = OnceLock::new();
    let proofs = PROOFS.get_or_init(Mutex::default);
    // Held during the proof, so that eight writers that start together prove it once.
    let mut proofs = proofs.lock().unwrap_or_else(PoisonError::into_inner);
    proofs.entry(helper.program().to_owned()).or_insert_with(|| run_self_test(helper)).clone()
}

impl Sandbox {
    /// Determines the sandbox level of this machine without creating a sandbox; for `doctor`.
    ///
    /// # Errors
    ///
    /// Why there can be no sandbox at all.
    pub fn level_here(helper: &SandboxHelper) -> Result<SandboxLevel, SandboxUnavailable> {
        prove_level(helper)
    }
}

fn run_self_test(helper: &SandboxHelper) -> Result<SandboxLevel, SandboxUnavailable> {
    let fail = |why: String| SandboxUnavailable { why };
    // The self-test has a workspace of its own.
    let workspace = SandboxWorkspace::directory("/");
    let config = SandboxConfig {
        may_miss: OPTIONAL.to_vec(),
        ..SandboxConfig::new(helper.clone(), workspace, "/work")
    };
    let sandbox = Sandbox::without_proof(config, SandboxLevel::Full)?;
    // The self-test tries to reach this server, which it must not. Connections are never accepted.
    let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let server = server.map_err(|error| fail(format!("cannot listen on loopback: {error}")))?;
    let port = server.local_addr().map_err(|error| fail(error.to_string()))?.port();
    let mut program = ProgramSpec::new([]);
    program.environment.push((HOST_PORT.into(), port.to_string().into()));
    program.timeout = Duration::from_secs(30);
    let cancel = CancelHandle::new().map_err(|error| fail(error.to_string()))?;
    let (mut said, mut complaints) = (Vec::new(), BoundedOutput::new(4096));
    let mut sink = |stream, bytes: &[u8]| match stream {
        OutputStream::Out => said.extend_from_slice(bytes),
        OutputStream::Err => complaints.chunk(stream, bytes),
    };
    let ended = sandbox
        .run_target(RunTarget::SelfTest, &program, &cancel, &mut sink)
        .map_err(|error| fail(error.to_string()))?;
    if ended.end != ProgramEnd::Exited(0) {
        let said = String::from_utf8_lossy(&complaints.bytes()).into_owned();
        return Err(fail(format!("the self-test ended with {:?}: {said}", ended.end)));
    }
    let findings: Vec<LayerTrialResult> =
        serde_json::from_slice(&said).map_err(|error| fail(format!("self-test: {error}")))?;
    level_from_findings(&findings, ended.level.missing())
}

/// Derives the level from the self-test. A required layer that is in force but was broken means that there is no
/// sandbox: then nothing can be relied on.
fn level_from_findings(
    findings: &[LayerTrialResult],
    missing: &[SandboxLayer],
) -> Result<SandboxLevel, SandboxUnavailable> {
    for layer in SandboxLayer::ALL {
        if missing.contains(&layer) {
            continue;
        }
        let mut of_layer = findings.iter().filter(|finding| finding.layer == layer).peekable();
        if of_layer.peek().is_none() {
            return Err(SandboxUnavailable { why: format!("{layer} was not tested") });
        }
        if let Some(broken) = of_layer.find(|finding| !finding.held) {
            let tried = &broken.tried;
            if OPTIONAL.contains(&layer) {
                return level_from_findings(findings, &[missing, &[layer]].concat());
            }
            return Err(SandboxUnavailable { why: format!("{layer} did not prevent {tried}") });
        }
    }
    Ok(SandboxLevel::from_missing(missing.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_held() -> Vec<LayerTrialResult> {
        SandboxLayer::ALL
            .map(|layer| LayerTrialResult { layer, tried: "it".to_owned(), held: true })
            .to_vec()
    }

    #[test]
    fn a_broken_required_layer_means_no_sandbox() {
        for layer in SandboxLayer::ALL {
            let mut findings = all_held();
            findings.push(LayerTrialResult { layer, tried: "a trick".to_owned(), held: false });
            let judged = level_from_findings(&findings, &[]);
            if OPTIONAL.contains(&layer) {
                assert_eq!(judged, Ok(SandboxLevel::Reduced(vec![layer])));
            } else {
                assert!(judged.unwrap_err().why.contains("a trick"));
            }
        }
    }

    #[test]
    fn a_layer_that_was_not_tested_is_not_trusted() {
        let findings: Vec<_> = all_held()
            .into_iter()
            .filter(|finding| finding.layer != SandboxLayer::Seccomp)
            .collect();
        assert!(level_from_findings(&findings, &[]).unwrap_err().why.contains("was not tested"));
    }

    #[test]
    fn a_reduced_level_is_refused_unless_accepted() {
        let level = SandboxLevel::Reduced(vec![SandboxLayer::Landlock]);
        assert!(level.check_missing(&[]).unwrap_err().why.contains("Landlock"));
        assert!(level.check_missing(&[SandboxLayer::Landlock]).is_ok());
        assert!(level.check_missing(&[SandboxLayer::PidMax]).is_err());
    }
}
