//! A person's settings for workspaces, and opening the repository of a working tree with them.
//!
//! Start at [`WorkspaceSetup::open`]. [`WorkspaceSetup::sweep`] cleans up workspaces that crashes left behind.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use adjutant_core::workspace::{MergeRequest, OwnWorkspaceKind};
use adjutant_workspace::sandbox::{NetworkAccess, ResourceBounds, SandboxHelper};
use adjutant_workspace::space::{
    BackingChoice, SweptWorkspace, WorkspaceError, WorkspaceOptions, Workspaces,
};
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
    pub kind: Option<OwnWorkspaceKind>,
    /// Ignored directories to include, such as `target` or `node_modules`.
    pub include_ignored: Vec<PathBuf>,
    /// Whether commands run without a sandbox. Only a person can set this.
    pub sandbox_off: bool,
    /// What to do with completed results when the run has ended. Recorded, so that `resume` does it too.
    pub merge: Option<MergeRequest>,
    /// Directories that commands may read beside system directories.
    pub grants: Vec<PathBuf>,
    /// Directories that are hidden from commands, such as the person's home.
    pub hidden: Vec<PathBuf>,
    /// The person's configuration directory, which agents can neither read nor write.
    pub config: Option<PathBuf>,
    /// Directories that agents working in place can read but not write, such as the person's agent definitions.
    pub read_only: Vec<PathBuf>,
    /// Files that agents must not change; results never contain them.
    pub reserved: Vec<PathBuf>,
    /// The resource limits of one command; a run sets those of its policy.
    pub bounds: ResourceBounds,
    /// The sandbox helper program; `None` for this program.
    pub helper: Option<PathBuf>,
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
            grants: Vec::new(),
            hidden: Vec::new(),
            config: None,
            read_only: Vec::new(),
            reserved: Vec::new(),
            bounds: ResourceBounds::default(),
            helper: None,
        }
    }

    /// Opens the repository at `tree`. Changes nothing.
    pub(crate) fn open(&self, tree: &Path, network: bool) -> Result<Workspaces, String> {
        let backing = match self.kind {
            // Without a sandbox nothing can be mounted, so an overlay is not possible.
            None if self.sandbox_off => BackingChoice::Worktree,
            None => BackingChoice::Best,
            Some(OwnWorkspaceKind::Overlay) => BackingChoice::Overlay,
            Some(OwnWorkspaceKind::Worktree) => BackingChoice::Worktree,
        };
        let options = WorkspaceOptions {
            backing,
            network: if network { NetworkAccess::Granted } else { NetworkAccess::Off },
            include_ignored: self.include_ignored.clone(),
            reserved: self.reserved_in(tree),
            closed: self.config.as_deref().map(with_link_targets).unwrap_or_default(),
            // Stories depend on the commits of earlier stories, so equal work must give equal commits.
            reproducible: !self.reserved.is_empty(),
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
        if top != tree.canonicalize().map_err(|error| error.to_string())? {
            return Err(format!(
                "{} is a folder within the repository {}; agents that write work in all of it, so go there or \
                 add --root {}",
                tree.display(),
                top.display(),
                top.display()
            ));
        }
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

    /// Returns the reserved files within `tree`, relative to it.
    fn reserved_in(&self, tree: &Path) -> Vec<PathBuf> {
        let Ok(tree) = tree.canonicalize() else { return Vec::new() };
        let within = |file: &PathBuf| {
            // The parent may be a symbolic link; the file itself is not resolved.
            let folder = file.parent()?.canonicalize().ok()?;
            Some(folder.strip_prefix(&tree).ok()?.join(file.file_name()?))
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
            SweptWorkspace::Kept(reference, _) => {
                format!("kept the work that was left in {reference}")
            }
            SweptWorkspace::Removed(reference) => {
                format!("removed the empty workspace of {reference}")
            }
            SweptWorkspace::Unclear(reference, why) => format!("left {reference} alone: {why}"),
        });
        said.collect()
    }

    /// Drops the refs to the start commits of ended runs in `tree` that have no results left.
    pub fn release_base_refs(&self, tree: &Path, archive: &Archive) {
        // Nothing is mounted, so probing for overlay support can be skipped.
        let setup = Self { kind: Some(OwnWorkspaceKind::Worktree), ..self.clone() };
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
