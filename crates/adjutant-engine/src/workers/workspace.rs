//! The workspace of a delegation as the place where its worker runs.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use adjutant_tools::command_environment;
use adjutant_workspace::sandbox::Sandbox;

use crate::workspaces::ToolSite;

/// The workspace of a delegation whose work is done by a worker.
pub struct WorkerWorkspace {
    site: ToolSite,
    /// The variables that commands of the delegation get.
    variables: Vec<(String, String)>,
}

/// A sandbox in the workspace, and how programs are started in it.
pub struct WorkerSandbox {
    /// The sandbox.
    pub sandbox: Sandbox,
    /// The path of the checkout as programs see it.
    pub checkout: PathBuf,
    /// The environment of programs: their search path, the private home, the variables of toolchains.
    pub environment: Vec<(OsString, OsString)>,
}

impl WorkerWorkspace {
    pub(crate) const fn new(site: ToolSite, variables: Vec<(String, String)>) -> Self {
        Self { site, variables }
    }

    /// Calls `act` with a sandbox of the workspace in which programs also see `folders`, read-only. The work is not
    /// committed before `act` returns. Blocks.
    ///
    /// # Errors
    ///
    /// Why there is no sandbox with all layers; `act` is not called then.
    pub fn with_sandbox<T>(
        &self,
        folders: &[PathBuf],
        act: impl FnOnce(WorkerSandbox) -> T,
    ) -> Result<T, String> {
        self.site.with_worker_sandbox(folders, |sandbox| {
            let config = sandbox.config();
            let checkout: PathBuf = if config.start == Path::new("") {
                config.at.clone()
            } else {
                config.at.join(&config.start)
            };
            let environment = command_environment(Some(config), &self.variables);
            act(WorkerSandbox { sandbox, checkout, environment })
        })
    }
}
