//! A person's settings for workspaces, and opening the repository of a working tree with them.
//!
//! Start at [`WorkspaceSetup::open`]. [`WorkspaceSetup::sweep`] cleans up workspaces that crashes left behind.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use adjutant_core::VerifyCommand;
use adjutant_core::workspace::{MergeRequest, WorkspaceKind};
use adjutant_tools::ToolAvailability;
use adjutant_workspace::sandbox::{NetworkAccess, ResourceBounds, SandboxHelper};
use adjutant_workspace::space::{
    SandboxOptions, SweepOutcome, WorkspaceBackingChoice, WorkspaceError, WorkspaceOptions,
    Workspaces,
};
use adjutant_workspace::toolchains::{FoundToolchain, SYSTEM_TOOLCHAIN, tool_summary};
use adjutant_workspace::{
    GitError, why_no_repository, why_results_cannot_be_kept, with_link_targets,
};

use crate::archive::{Archive, ArchiveError, RunLiveness};
use crate::engine::EngineError;
use crate::error_chain::error_chain;
use crate::runner::clock::wall_now;

/// A person's settings for workspaces.
#[derive(Clone, Debug)]
pub struct WorkspaceSetup {
    /// The state directory, below which workspaces are made.
    pub state: PathBuf,
    /// The kind; `None` for the best that works here.
    pub kind: Option<WorkspaceKind>,
    /// Ignored directories to include, such as `target` or `node_modules`.
    pub include_ignored: Vec<PathBuf>,
    /// Whether commands run without a sandbox. Only a person can set this.
    pub sandbox_off: bool,
    /// What to do with completed results when the run has ended. Recorded, so that `resume` does it too.
    pub merge: Option<MergeRequest>,
    /// The command that must succeed before the work of an agent counts as done. Recorded, so that it also applies
    /// to tasks that are delegated after a `resume`.
    pub verify: Option<VerifyCommand>,
    /// Directories that commands may read beside system directories.
    pub grants: Vec<PathBuf>,
    /// The toolchains of this machine that commands see, and the system's tools.
    pub toolchains: Vec<FoundToolchain>,
    /// The names of the toolchains that a person switched off.
    pub toolchains_off: Vec<String>,
    /// Whether a person switched off all toolchains.
    pub no_toolchains: bool,
    /// The tools that commands need. Without one of them no workspace is made.
    pub needed_tools: Vec<String>,
    /// The person's home directory: commands see a private directory at its path.
    pub home: Option<PathBuf>,
    /// Further directories that are hidden from commands.
    pub hidden: Vec<PathBuf>,
    /// The person's configuration directory, which agents can neither read nor write.
    pub config: Option<PathBuf>,
    /// Directories that agents working in place can read but not write, such as the person's agent definitions.
    pub read_only: Vec<PathBuf>,
    /// Files that agents must not change; results never contain them.
    pub reserved: Vec<PathBuf>,
    /// The resource limits of one command; a run sets those of its policy.
    pub bounds: ResourceBounds,
    /// The most bytes that all workspaces may occupy; a run sets that of its policy.
    pub disk_bytes: Option<u64>,
    /// The sandbox helper program; `None` for this program.
    pub helper: Option<PathBuf>,
    /// The path of the person's checkout, if it is on another machine and this one has a copy of it.
    pub copy_of: Option<PathBuf>,
}

impl WorkspaceSetup {
    /// Returns the default settings: the best kind that works here, with a sandbox.
    #[must_use]
    pub fn new(state: PathBuf) -> Self {
        Self {
            state,
            kind: None,
            include_ignored: Vec::new(),
            sandbox_off: false,
            merge: None,
            verify: None,
            grants: Vec::new(),
            toolchains: Vec::new(),
            home: None,
            toolchains_off: Vec::new(),
            no_toolchains: false,
            needed_tools: Vec::new(),
            hidden: Vec::new(),
            config: None,
            read_only: Vec::new(),
            reserved: Vec::new(),
            bounds: ResourceBounds::default(),
            disk_bytes: None,
            helper: None,
            copy_of: None,
        }
    }

    /// Returns the tools that commands see in a sandbox, in one line; `None` without a sandbox, or if none is known.
    #[must_use]
    pub fn commands_see(&self) -> Option<String> {
        (!self.sandbox_off).then(|| tool_summary(&self.toolchains)).flatten()
    }

    /// Returns the names of the tools that commands see.
    #[must_use]
    pub fn tool_names(&self) -> Vec<String> {
        let tools = self.toolchains.iter().flat_map(|it| &it.tools);
        let names: BTreeSet<String> = tools.map(|tool| tool.name.clone()).collect();
        names.into_iter().collect()
    }

    /// Returns the first needed tool that commands do not see.
    pub(crate) fn missing_tool(&self) -> Option<&str> {
        let seen = self.tool_names();
        self.needed_tools.iter().find(|needed| !seen.contains(needed)).map(String::as_str)
    }

    /// Says to commands that miss a tool what would make it available.
    pub(crate) fn tool_availability(&self) -> ToolAvailability {
        let names = self.toolchains.iter().map(|it| it.name);
        ToolAvailability {
            all_off: self.no_toolchains,
            off: self.toolchains_off.clone(),
            found: names.filter(|it| *it != SYSTEM_TOOLCHAIN).map(str::to_owned).collect(),
        }
    }

    /// Opens the repository at `tree`. Changes nothing.
    pub(crate) fn open(&self, tree: &Path, network: bool) -> Result<Workspaces, String> {
        let backing = match self.kind {
            // Without a sandbox nothing can be mounted, so an overlay is not possible.
            None if self.sandbox_off => WorkspaceBackingChoice::Worktree,
            None => WorkspaceBackingChoice::Best,
            Some(WorkspaceKind::Overlay) => WorkspaceBackingChoice::Overlay,
            Some(WorkspaceKind::Worktree) => WorkspaceBackingChoice::Worktree,
        };
        let options = WorkspaceOptions {
            backing,
            network: if network { NetworkAccess::Granted } else { NetworkAccess::Off },
            include_ignored: self.include_ignored.clone(),
            reserved: self.reserved_in(tree),
            closed: self.config.as_deref().map(with_link_targets).unwrap_or_default(),
            // Stories depend on the commits of earlier stories, so equal work must give equal commits.
            // Copies of a checkout must give the same commit on every machine.
            reproducible: !self.reserved.is_empty() || self.copy_of.is_some(),
            sandboxed: !self.sandbox_off,
            home: self.home.clone(),
            disk_bytes: self.disk_bytes,
            shown_at: self.copy_of.clone(),
            caches: self.toolchains.iter().flat_map(|it| it.caches.iter().cloned()).collect(),
            helper: self
                .helper
                .as_ref()
                .map_or_else(SandboxHelper::this_program, SandboxHelper::at),
        };
        let all = Workspaces::open(tree, &self.state, options).map_err(|error| {
            let is_none = matches!(error, WorkspaceError::Git(GitError::NotARepository { .. }));
            let why = is_none.then(|| why_no_repository(tree)).flatten();
            why.unwrap_or_else(|| error_chain(&error))
        })?;
        let top = all.repository().work_tree();
        if let Some(problem) = why_results_cannot_be_kept(all.repository()) {
            return Err(problem);
        }
        if self.state.canonicalize().is_ok_and(|state| state.starts_with(top)) {
            return Err(format!(
                "the state directory {} lies in the repository, where agents would see it; keep it \
                 elsewhere",
                self.state.display()
            ));
        }
        self.refuse_config_in(&all)?;
        Ok(all)
    }

    /// Returns what commands see besides their workspace.
    pub(super) fn sandbox_options(&self, network: NetworkAccess) -> SandboxOptions {
        let each = |of: fn(&FoundToolchain) -> &Vec<PathBuf>| -> Vec<PathBuf> {
            self.toolchains.iter().flat_map(of).cloned().collect()
        };
        let has_network = network == NetworkAccess::Granted;
        let variables = self.toolchains.iter().flat_map(|it| it.environment(has_network));
        SandboxOptions {
            grants: self.grants.clone(),
            toolchains: each(|it| &it.granted),
            filtered: each(|it| &it.filtered),
            path: each(|it| &it.path),
            variables: variables.map(|(name, value)| (name.into(), value.clone())).collect(),
            hidden: self.hidden.iter().chain(&self.home).cloned().collect(),
            bounds: self.bounds.clone(),
            ..SandboxOptions::default()
        }
    }

    /// Refuses a repository that tracks the person's configuration, because every workspace would contain it.
    fn refuse_config_in(&self, all: &Workspaces) -> Result<(), String> {
        let Some(config) = self.config.as_ref().and_then(|config| config.canonicalize().ok())
        else {
            return Ok(());
        };
        let top = all.repository().work_tree();
        let elsewhere = "work in another repository, with --root DIR";
        if top.starts_with(&config) {
            let (top, config) = (top.display(), config.display());
            return Err(format!(
                "{top} lies in your configuration directory {config}, which agents neither see nor change; \
                 {elsewhere}"
            ));
        }
        let tracked = all.repository().tracked_protected().map_err(|error| error_chain(&error))?;
        match tracked.iter().find(|path| top.join(path) == config) {
            Some(path) => Err(format!(
                "the repository tracks your configuration directory {}, where agents would see it; {elsewhere}, or \
                 type `git rm -r --cached {}` and commit",
                config.display(),
                path.display()
            )),
            None => Ok(()),
        }
    }

    /// Checks that agents can have workspaces in `tree`. Changes nothing.
    ///
    /// # Errors
    ///
    /// [`EngineError::Workspaces`] with the reason.
    pub fn check(&self, tree: &Path, network: bool) -> Result<(), EngineError> {
        self.open(tree, network).map(drop).map_err(EngineError::Workspaces)
    }

    /// Returns the reserved files within the repository around `tree`, relative to its top.
    fn reserved_in(&self, tree: &Path) -> Vec<PathBuf> {
        let Ok(tree) = tree.canonicalize() else { return Vec::new() };
        let top = tree.ancestors().find(|folder| folder.join(".git").symlink_metadata().is_ok());
        let top = top.unwrap_or(&tree);
        let within = |file: &PathBuf| {
            // The parent may be a symbolic link; the file itself is not resolved.
            let folder = file.parent()?.canonicalize().ok()?;
            Some(folder.strip_prefix(top).ok()?.join(file.file_name()?))
        };
        self.reserved.iter().filter_map(within).collect()
    }

    /// Cleans up workspaces of `tree` that crashes left behind: commits the work in them and removes them. Returns a
    /// message for each.
    pub fn sweep(&self, tree: &Path, archive: &Archive) -> Vec<String> {
        let left =
            |why: &str| format!("did not clean up the workspaces of {}: {why}", tree.display());
        let all = match self.open(tree, false) {
            Ok(all) => all,
            Err(why) => return vec![left(&why)],
        };
        let at = SystemTime::UNIX_EPOCH + Duration::from_millis(wall_now());
        let swept = match all.sweep(&|run| may_live(archive, run), at) {
            Ok(swept) => swept,
            Err(error) => return vec![left(&error_chain(&error))],
        };
        // Best effort: the next sweep tries again.
        let _ = all.drop_base_refs(&|run| is_over(archive, run));
        let said = swept.into_iter().map(|it| match it {
            SweepOutcome::Kept(reference, _) => {
                format!("kept the work that was left in {reference}")
            }
            SweepOutcome::Removed(reference) => {
                format!("removed the empty workspace of {reference}")
            }
            SweepOutcome::Unclear(reference, why) => format!("left {reference} alone: {why}"),
        });
        said.collect()
    }

    /// Drops the refs to the start commits of ended runs in `tree` that have no results left.
    pub fn release_base_refs(&self, tree: &Path, archive: &Archive) {
        // Nothing is mounted, so probing for overlay support can be skipped.
        let setup = Self { kind: Some(WorkspaceKind::Worktree), ..self.clone() };
        if let Ok(all) = setup.open(tree, false) {
            // Best effort: the next sweep tries again.
            let _ = all.drop_base_refs(&|run| is_over(archive, run));
        }
    }
}

/// Returns whether a run is in this archive and not live.
///
/// An unknown run may belong to another state directory that uses the same repository.
fn is_over(archive: &Archive, run: &str) -> bool {
    archive.find(run).is_ok_and(|(files, _)| matches!(files.liveness(), Ok(RunLiveness::Dead)))
}

/// Returns whether a run may be live, so that its workspace must not be touched.
fn may_live(archive: &Archive, run: &str) -> bool {
    match archive.find(run) {
        // Unknown liveness counts as live.
        Ok((files, _)) => !matches!(files.liveness(), Ok(RunLiveness::Dead)),
        // A run without records is not live, and only this sweep would keep its work.
        Err(error) => !matches!(error, ArchiveError::Find(_)),
    }
}
