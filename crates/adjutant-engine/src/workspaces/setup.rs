//! What a person says about workspaces, and opening those of a tree by it.
//!
//! Start at [`WorkspaceSetup::open`], which says why there are none; [`WorkspaceSetup::sweep`] deals with what
//! crashes left.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use adjutant_core::space::{MergeRequest, SpaceKind};
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

/// What a person says about workspaces.
#[derive(Clone, Debug)]
pub struct WorkspaceSetup {
    /// Where they are kept.
    pub state: PathBuf,
    /// Which kind is wanted.
    pub kind: Option<SpaceKind>,
    /// Ignored folders that are there all the same, such as `target` or `node_modules`.
    pub include_ignored: Vec<PathBuf>,
    /// Whether commands run without a sandbox; only a person can say so.
    pub sandbox_off: bool,
    /// What is done with completed results when the run has ended; it is recorded, so that `resume` can do it.
    pub merge: Option<MergeRequest>,
    /// Directories that commands may read beside those of the system.
    pub grants: Vec<PathBuf>,
    /// Directories that commands never see, such as a person's home.
    pub hidden: Vec<PathBuf>,
    /// The directory with the person's own configuration, which agents neither read nor write.
    pub config: Option<PathBuf>,
    /// Directories that agents who work in place may read and not write, such as those with the person's agents.
    pub read_only: Vec<PathBuf>,
    /// Files that agents may not change: no result holds them.
    pub reserved: Vec<PathBuf>,
    /// What one command may use; a run sets what its policy says.
    pub bounds: ResourceBounds,
    /// The program that holds workspaces and starts what runs in them; this one where none is named.
    pub helper: Option<PathBuf>,
}

impl WorkspaceSetup {
    /// Takes the usual: the best kind there is, a sandbox, nothing beside.
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

    /// Opens the repository at `tree`; nothing is changed by it.
    pub(crate) fn open(&self, tree: &Path, network: bool) -> Result<Workspaces, String> {
        let backing = match self.kind {
            // Without a sandbox nothing is mounted, so there must be a directory as it is.
            None if self.sandbox_off => BackingChoice::Worktree,
            None => BackingChoice::Best,
            Some(SpaceKind::Overlay) => BackingChoice::Overlay,
            Some(SpaceKind::Worktree) => BackingChoice::Worktree,
        };
        let options = WorkspaceOptions {
            backing,
            network: if network { NetworkAccess::Granted } else { NetworkAccess::Off },
            include_ignored: self.include_ignored.clone(),
            reserved: self.reserved_in(tree),
            closed: self.config.as_deref().map(with_link_targets).unwrap_or_default(),
            // Whoever keeps a record of results goes on from them.
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

    /// Refuses a repository whose commits hold the person's configuration: every workspace would show it.
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

    /// Says why agents would have no workspaces of their own in `tree`; nothing is changed by it.
    ///
    /// # Errors
    ///
    /// [`EngineError::Workspaces`] with the reason.
    pub fn check(&self, tree: &Path, network: bool) -> Result<(), EngineError> {
        self.open(tree, network).map(drop).map_err(EngineError::Workspaces)
    }

    /// Returns the reserved files as the repository at `tree` knows them, without those that lie elsewhere.
    fn reserved_in(&self, tree: &Path) -> Vec<PathBuf> {
        let Ok(tree) = tree.canonicalize() else { return Vec::new() };
        let within = |file: &PathBuf| {
            // The folder may be reached by a link, the file may not be one.
            let folder = file.parent()?.canonicalize().ok()?;
            Some(folder.strip_prefix(&tree).ok()?.join(file.file_name()?))
        };
        self.reserved.iter().filter_map(within).collect()
    }

    /// Finds what crashes left of workspaces of `tree`: work is kept, the rest is removed. Returns what
    /// was done, a line each.
    pub fn sweep(&self, tree: &Path, archive: &Archive) -> Vec<String> {
        let left = |why: &str| format!("left the workspaces of {} alone: {why}", tree.display());
        let all = match self.open(tree, false) {
            Ok(all) => all,
            Err(why) => return vec![left(&why)],
        };
        let at = SystemTime::UNIX_EPOCH + Duration::from_millis(wall_now());
        let swept = match all.sweep(&|run| may_live(archive, run), at) {
            Ok(swept) => swept,
            Err(error) => return vec![left(&error_chain(&error))],
        };
        // Best effort: the next one tries again.
        let _ = all.drop_base_refs(&|run| is_over(archive, run));
        let said = swept.into_iter().map(|it| match it {
            SweptWorkspace::Kept(reference, _) => format!("kept what was left in {reference}"),
            SweptWorkspace::Removed(reference) => {
                format!("removed the empty workspace of {reference}")
            }
            SweptWorkspace::Unclear(reference, why) => format!("left {reference} alone: {why}"),
        });
        said.collect()
    }

    /// Lets go of what ended runs in `tree` began from, where nothing they made is left.
    pub fn release_base_refs(&self, tree: &Path, archive: &Archive) {
        // Nothing is mounted for it, so nobody need find out whether that would work.
        let setup = Self { kind: Some(SpaceKind::Worktree), ..self.clone() };
        if let Ok(all) = setup.open(tree, false) {
            // Best effort: the next sweep tries again.
            let _ = all.drop_base_refs(&|run| is_over(archive, run));
        }
    }
}

/// Says whether a run is known here and nobody is at work for it.
///
/// One that is not known may be of another home, which uses the same repository.
fn is_over(archive: &Archive, run: &str) -> bool {
    archive.find(run).is_ok_and(|(files, _)| matches!(files.liveness(), Ok(RunLiveness::Dead)))
}

/// Says whether somebody may be at work for a run.
fn may_live(archive: &Archive, run: &str) -> bool {
    match archive.find(run) {
        // Whatever cannot be told is left alone.
        Ok((files, _)) => !matches!(files.liveness(), Ok(RunLiveness::Dead)),
        // Nobody works for a run whose records are gone, and nobody else would look for its work.
        Err(error) => !matches!(error, ArchiveError::Find(_)),
    }
}
