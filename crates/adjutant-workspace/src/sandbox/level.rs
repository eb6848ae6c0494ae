//! How much of the sandbox this machine gives, proved by trying to break it from inside.

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use super::client::Helper;
use super::output::{Captured, Sink as _, Stream};
use super::plan::{Layer, Start};
use super::probe::Finding;
use super::run::{Bounds, Cancel, Config, End, Network, Place, Program, Sandbox, Unavailable};

/// Layers without which others still hold a program, so that a person may accept their absence.
const OPTIONAL: [Layer; 3] = [Layer::PidMax, Layer::Landlock, Layer::LandlockScopes];

/// What holds programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Level {
    /// Every layer.
    Full,
    /// Every layer but these.
    Reduced(Vec<Layer>),
}

impl Level {
    fn from_missing(mut missing: Vec<Layer>) -> Self {
        missing.sort_unstable();
        missing.dedup();
        if missing.is_empty() { Self::Full } else { Self::Reduced(missing) }
    }

    /// The layers that are missing.
    #[must_use]
    pub fn missing(&self) -> &[Layer] {
        match self {
            Self::Full => &[],
            Self::Reduced(missing) => missing,
        }
    }

    /// Refuses when a layer is missing that is not among those accepted.
    pub(crate) fn allow(&self, may_miss: &[Layer]) -> Result<(), Unavailable> {
        let wanting = self.missing().iter().filter(|layer| !may_miss.contains(layer));
        let names: Vec<_> = wanting.map(ToString::to_string).collect();
        if names.is_empty() {
            return Ok(());
        }
        Err(Unavailable { why: format!("this machine lacks {}", names.join(", ")) })
    }

    /// This level with further layers missing.
    pub(crate) fn without(&self, missing: &[Layer]) -> Self {
        Self::from_missing([self.missing(), missing].concat())
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("full: every layer is on and was tried"),
            Self::Reduced(missing) => {
                let names: Vec<_> = missing.iter().map(ToString::to_string).collect();
                write!(f, "reduced: without {}", names.join(", "))
            }
        }
    }
}

/// Proves the level once for each helper and remembers it as long as this process lives.
pub(crate) fn prove(helper: &Helper) -> Result<Level, Unavailable> {
    type Proofs = Mutex<HashMap<PathBuf, Result<Level, Unavailable>>>;
    static PROOFS: OnceLock<Proofs> = OnceLock::new();
    let proofs = PROOFS.get_or_init(Mutex::default);
    // Held while the proof is made, so that eight writers who start together prove it once.
    let mut proofs = proofs.lock().unwrap_or_else(PoisonError::into_inner);
    proofs.entry(helper.program().to_owned()).or_insert_with(|| try_out(helper)).clone()
}

impl Sandbox {
    /// Proves what the sandbox is worth on this machine, without making one; for `doctor`.
    ///
    /// # Errors
    ///
    /// Why there can be none at all.
    pub fn level_here(helper: &Helper) -> Result<Level, Unavailable> {
        prove(helper)
    }
}

fn try_out(helper: &Helper) -> Result<Level, Unavailable> {
    let fail = |why: String| Unavailable { why };
    let config = Config {
        helper: helper.clone(),
        // The self-test brings a workspace of its own.
        place: Place::Directory(PathBuf::from("/")),
        at: PathBuf::from("/work"),
        grants: Vec::new(),
        data: Vec::new(),
        hidden: Vec::new(),
        network: Network::Off,
        bounds: Bounds::default(),
        may_miss: OPTIONAL.to_vec(),
    };
    let sandbox = Sandbox::unproved(config, Level::Full)?;
    let mut program = Program::new([]);
    program.timeout = Duration::from_secs(30);
    let cancel = Cancel::new().map_err(|error| fail(error.to_string()))?;
    let (mut said, mut complaints) = (Vec::new(), Captured::new(4096));
    let mut sink = |stream, bytes: &[u8]| match stream {
        Stream::Out => said.extend_from_slice(bytes),
        Stream::Err => complaints.chunk(stream, bytes),
    };
    let ended = sandbox
        .carry_out(Start::SelfTest, &program, &cancel, &mut sink)
        .map_err(|error| fail(error.to_string()))?;
    if ended.end != End::Exited(0) {
        let said = String::from_utf8_lossy(&complaints.bytes()).into_owned();
        return Err(fail(format!("the self-test ended with {:?}: {said}", ended.end)));
    }
    let findings: Vec<Finding> =
        serde_json::from_slice(&said).map_err(|error| fail(format!("self-test: {error}")))?;
    judge(&findings, ended.level.missing())
}

/// A layer that was put on but did not hold is worse than one that is missing: nothing can be relied on.
fn judge(findings: &[Finding], missing: &[Layer]) -> Result<Level, Unavailable> {
    for layer in Layer::ALL {
        if missing.contains(&layer) {
            continue;
        }
        let mut of_layer = findings.iter().filter(|finding| finding.layer == layer).peekable();
        if of_layer.peek().is_none() {
            return Err(Unavailable { why: format!("{layer} was not tried") });
        }
        if let Some(broken) = of_layer.find(|finding| !finding.held) {
            let tried = &broken.tried;
            if OPTIONAL.contains(&layer) {
                return judge(findings, &[missing, &[layer]].concat());
            }
            return Err(Unavailable { why: format!("{layer} does not hold: {tried} worked") });
        }
    }
    Ok(Level::from_missing(missing.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_held() -> Vec<Finding> {
        Layer::ALL.map(|layer| Finding { layer, tried: "it".to_owned(), held: true }).to_vec()
    }

    #[test]
    fn a_required_layer_that_does_not_hold_means_no_sandbox() {
        for layer in Layer::ALL {
            let mut findings = all_held();
            findings.push(Finding { layer, tried: "a trick".to_owned(), held: false });
            let judged = judge(&findings, &[]);
            if OPTIONAL.contains(&layer) {
                assert_eq!(judged, Ok(Level::Reduced(vec![layer])));
            } else {
                assert!(judged.unwrap_err().why.contains("a trick"));
            }
        }
    }

    #[test]
    fn a_layer_that_was_not_tried_is_not_believed() {
        let findings: Vec<_> =
            all_held().into_iter().filter(|finding| finding.layer != Layer::Seccomp).collect();
        assert!(judge(&findings, &[]).unwrap_err().why.contains("was not tried"));
    }

    #[test]
    fn less_than_full_is_refused_unless_accepted() {
        let level = Level::Reduced(vec![Layer::Landlock]);
        assert!(level.allow(&[]).unwrap_err().why.contains("Landlock"));
        assert!(level.allow(&[Layer::Landlock]).is_ok());
        assert!(level.allow(&[Layer::PidMax]).is_err());
    }
}
