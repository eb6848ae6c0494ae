//! What discovery returns: [`FoundToolchain`], with a [`ToolVersion`] for each of its tools.

use std::ffi::OsString;
use std::path::PathBuf;

/// A toolchain of this machine, and what a sandbox needs to show it.
///
/// Every path is absolute and canonical and exists. None of them is `/`, the home directory or a parent of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundToolchain {
    /// The name of its row, such as `rust` or `node (nvm)`. Settings switch it off by this name.
    pub name: &'static str,
    /// The tools that commands see. Empty for a cache, and if no version is chosen by default.
    pub tools: Vec<ToolVersion>,
    /// Directories to mount read-only at their own paths. System directories are not among them.
    pub granted: Vec<PathBuf>,
    /// Directories to mount at their own paths with a private writable layer.
    pub caches: Vec<PathBuf>,
    /// Directories to put before the system's in `PATH`, in this order.
    pub path: Vec<PathBuf>,
    /// Environment variables to set. Those named in `offline` are for commands without network only.
    pub variables: Vec<(String, OsString)>,
    /// The names of variables that keep the tool from using the network.
    pub offline: Vec<&'static str>,
    /// Text files in `granted` or `caches` that may contain tokens and must be shown without them.
    pub filtered: Vec<PathBuf>,
}

impl FoundToolchain {
    /// Returns the environment variables to set for commands with or without network.
    pub fn environment(&self, has_network: bool) -> impl Iterator<Item = &(String, OsString)> {
        let is_set = move |name: &str| !has_network || !self.offline.contains(&name);
        self.variables.iter().filter(move |(name, _)| is_set(name))
    }
}

/// A development tool that commands find in the sandbox, with its version and origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolVersion {
    /// The name of the program, such as `cargo`.
    pub name: String,
    /// The version, such as `1.95.0`; `None` if no file tells it.
    pub version: Option<String>,
    /// The directory in which it is installed.
    pub source: PathBuf,
}

impl ToolVersion {
    pub(super) fn new(
        name: impl Into<String>,
        version: Option<String>,
        source: impl Into<PathBuf>,
    ) -> Self {
        Self { name: name.into(), version, source: source.into() }
    }
}
