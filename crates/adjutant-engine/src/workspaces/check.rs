//! Runs a check of finished work: a command on the files of a tree, with files of its own laid over them.
//!
//! It is run as a verify command is, in a fresh workspace that is removed afterwards, but always in the sandbox and
//! without network. Start at [`WorkspaceSetup::run_check`].

use std::path::{Path, PathBuf};

use adjutant_tools::{Confinement, ToolCaps, Toolbox};
use adjutant_workspace::sandbox::CancelHandle;
use serde_json::json;

use super::WorkspaceSetup;
use crate::engine::EngineError;
use crate::error_chain::error_chain;

/// The run and the name of the workspaces of checks.
const RUN_NAME: &str = "check";

/// A command that judges finished work.
#[derive(Clone, Debug)]
pub struct WorkCheck {
    /// The shell command; it passes if it exits with 0.
    pub command: String,
    /// Its time limit in seconds.
    pub timeout_s: u64,
    /// Files that are laid over the work, by their paths from the top of the tree.
    pub files: Vec<(PathBuf, Vec<u8>)>,
}

/// How a [`WorkCheck`] ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkCheckResult {
    /// Whether the command succeeded.
    pub passed: bool,
    /// How it ended, such as `exit 1` or `timed out after 60 s`, or why its files could not be laid over the work.
    pub ended: String,
    /// Its output.
    pub output: String,
}

impl WorkspaceSetup {
    /// Runs a check on the present files of `tree`, which stays unchanged. Blocks until it ends, is cancelled or has
    /// timed out.
    ///
    /// # Errors
    ///
    /// [`EngineError::Workspaces`] if it could not be run: there is no sandbox, or no workspace could be made.
    pub fn run_check(
        &self,
        tree: &Path,
        check: &WorkCheck,
        cancel: &CancelHandle,
    ) -> Result<WorkCheckResult, EngineError> {
        if self.sandbox_off {
            let text = "a check runs only in the sandbox, which is switched off";
            return Err(EngineError::Workspaces(text.to_owned()));
        }
        let failed = |why: String| EngineError::Workspaces(why);
        let all = self.open(tree, false).map_err(failed)?;
        let fresh = all.make_verify_workspace(RUN_NAME, RUN_NAME);
        let fresh = fresh.map_err(|error| failed(error_chain(&error)))?;
        let files = check.files.iter().map(|(path, bytes)| (path.as_path(), bytes.as_slice()));
        if let Err(error) = fresh.lay_over(files) {
            // The work is in the way of the check, so it has not passed.
            let ended = format!("not run: {}", error_chain(&error));
            return Ok(WorkCheckResult { passed: false, ended, output: String::new() });
        }
        let root = fresh.root().map_err(|error| failed(error_chain(&error)))?;
        let sandbox = fresh.sandbox(self.sandbox_options(all.network()));
        let sandbox = sandbox.map_err(|error| failed(error_chain(&error)))?;
        let arguments = json!({ "command": check.command, "timeout": check.timeout_s });
        let result = Toolbox::new(root, ToolCaps::default()).run_check(
            &arguments,
            &Confinement::Sandboxed(Box::new(sandbox)),
            &[],
            cancel,
            &mut |_| {},
        );
        // The sandbox level is set only if the command ran.
        if result.sandbox.is_none() {
            return Err(failed(result.text));
        }
        let ended = result.exit.map_or_else(|| "stopped".to_owned(), |exit| exit.to_string());
        Ok(WorkCheckResult { passed: !result.is_error, ended, output: result.text })
    }
}
