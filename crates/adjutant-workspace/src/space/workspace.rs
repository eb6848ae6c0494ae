//! One workspace, as the engine uses it.
//!
//! Start at [`Workspace::root`], [`Workspace::sandbox`] and [`Workspace::keep`].

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use super::credentials::without_secrets;
use super::delegation_dirs::DelegationDirs;
use super::git_mounts::GitMounts;
use super::overlay::{OverlayWorkspace, WorkspaceStart, path_error};
use super::workspaces::WorkspacesContext;
use super::worktree::WorktreeWorkspace;
use super::{WorkspaceError, WorkspaceRecord};
use crate::git::{ImportedCommit, ObjectStorage};
use crate::sandbox::{
    ResourceBounds, Sandbox, SandboxConfig, SandboxLayer, SandboxUnavailable, SandboxWorkspace,
};
use crate::{Diff, ObjectId, PathError, ResultRef, Root, SkippedPath};

/// The commit message for a state that another workspace starts from.
pub(super) const STATE: &str = "State of the workspace before the work\n";

/// The workspace of one child.
#[derive(Debug)]
pub struct Workspace {
    shared: Arc<WorkspacesContext>,
    reference: ResultRef,
    path: PathBuf,
    /// A std mutex: held during one operation of git or the kernel, never while a program runs.
    space: Mutex<Option<WorkspaceFiles>>,
    /// The last record, for use after the workspace is closed.
    last: Mutex<WorkspaceRecord>,
}

/// The files of a workspace, in an overlay or in a git work tree.
#[derive(Debug)]
pub(super) enum WorkspaceFiles {
    Overlay(OverlayWorkspace),
    Worktree(Box<WorktreeWorkspace>),
}

/// What a sandbox shows besides the workspace, and its bounds.
#[derive(Clone, Debug, Default)]
pub struct SandboxOptions {
    /// Directories that a person granted, mounted read-only; credentials in them are searched for and hidden.
    pub grants: Vec<PathBuf>,
    /// Toolchains, mounted read-only.
    pub toolchains: Vec<PathBuf>,
    /// Settings files of toolchains, which are shown without lines that may contain passwords or tokens.
    pub filtered: Vec<PathBuf>,
    /// Directories that come before the system's in `PATH`.
    pub path: Vec<PathBuf>,
    /// Environment variables that toolchains need.
    pub variables: Vec<(OsString, OsString)>,
    /// Hidden even below a grant, such as the home directory; the state directory and the user's own checkout are
    /// always hidden.
    pub hidden: Vec<PathBuf>,
    /// The resources one program run may use.
    pub bounds: ResourceBounds,
    /// Sandbox layers that may be missing. Empty unless a person accepted a weaker sandbox.
    pub may_miss: Vec<SandboxLayer>,
}

/// What [`Workspace::keep`] committed: commit, changed files and skipped paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptCommit {
    /// The commit; `None` if there is no work.
    pub commit: Option<ObjectId>,
    /// The reference that keeps it.
    pub reference: ResultRef,
    /// The commit the workspace started from.
    pub base: ObjectId,
    /// The changed files, with line counts.
    pub diff: Diff,
    /// Paths that are not in the commit, and why.
    pub skipped: Vec<SkippedPath>,
}

impl WorkspaceFiles {
    pub(super) fn record(&self) -> WorkspaceRecord {
        match self {
            Self::Overlay(space) => space.record(),
            Self::Worktree(space) => space.record(),
        }
    }

    pub(super) fn delegation_dirs(&self) -> DelegationDirs {
        match self {
            Self::Overlay(space) => space.delegation_dirs(),
            Self::Worktree(space) => space.delegation_dirs(),
        }
    }

    pub(super) fn import(
        &mut self,
        message: &str,
        at: SystemTime,
        storing: ObjectStorage,
    ) -> Result<(ImportedCommit, Vec<SkippedPath>), WorkspaceError> {
        match self {
            Self::Overlay(space) => space.import(message, at, storing),
            Self::Worktree(space) => Ok(space.worktree.import(message, at, storing)?),
        }
    }
}

impl Workspace {
    pub(super) fn new(
        shared: &Arc<WorkspacesContext>,
        reference: ResultRef,
        space: WorkspaceFiles,
    ) -> Self {
        let record = space.record();
        Self {
            shared: Arc::clone(shared),
            reference,
            path: shared.visible_path(Path::new(&record.path)),
            space: Mutex::new(Some(space)),
            last: Mutex::new(record),
        }
    }

    /// Returns the path under which programs and models see the workspace: that of the user's checkout, if possible.
    ///
    /// Use [`Workspace::root`] for access.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the directory of its files. An overlay is mounted there only for its own programs.
    #[must_use]
    pub fn directory(&self) -> PathBuf {
        PathBuf::from(self.record().path)
    }

    /// Returns the reference for its result.
    #[must_use]
    pub fn reference(&self) -> &ResultRef {
        &self.reference
    }

    /// Returns the path at which commands start and relative paths begin: [`Workspace::path`], or the subfolder of
    /// it that was opened.
    #[must_use]
    pub fn start_path(&self) -> PathBuf {
        self.path.join(&self.shared.subfolder)
    }

    /// Opens the directory in which the agent starts, for the file tools.
    ///
    /// Use it for one tool call only: after a child was made from this workspace, an older handle may show an older
    /// state, and making a child is slower while a handle is open.
    ///
    /// # Errors
    ///
    /// When the workspace is closed or cannot be opened.
    pub fn root(&self) -> Result<Root, PathError> {
        let mut space = self.lock();
        let space = space.as_mut().ok_or(PathError::NotFound)?;
        let top = match space {
            WorkspaceFiles::Overlay(space) => space.root().map_err(path_error)?,
            WorkspaceFiles::Worktree(space) => {
                Root::open(space.worktree.path())?.known_as(&self.path)
            }
        };
        top.subfolder(&self.shared.subfolder)
    }

    /// Returns the record for reopening it, which changes when a child is made from it.
    #[must_use]
    pub fn record(&self) -> WorkspaceRecord {
        let now = self.lock().as_ref().map(WorkspaceFiles::record);
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(now) = now {
            *last = now;
        }
        last.clone()
    }

    /// Creates a sandbox whose programs run in this workspace; for one call, like [`Workspace::root`].
    ///
    /// # Errors
    ///
    /// When the workspace is closed, or a required layer of the sandbox is missing.
    pub fn sandbox(&self, more: SandboxOptions) -> Result<Sandbox, SandboxUnavailable> {
        let why = |error: WorkspaceError| SandboxUnavailable { why: error.to_string() };
        let shared = &self.shared;
        let SandboxOptions { grants, mut hidden, mut bounds, may_miss, .. } = more;
        let mut git = GitMounts::find(shared, &grants).map_err(why)?;
        hidden.append(&mut git.hidden);
        hidden.extend(shared.credentials.credentials_below(&grants));
        let opened = self.with_open(|shared, space| {
            let private = space.delegation_dirs().make(shared.options.home.as_deref())?;
            Ok(match space {
                WorkspaceFiles::Overlay(space) => {
                    git.lend_to(&self.path.join(".git"));
                    (private, SandboxWorkspace::Overlay(space.mounted()?))
                }
                WorkspaceFiles::Worktree(space) => {
                    git.show_git_dir(space.private_git_dir(), &self.path.join(".git"));
                    bounds.base_entries = space.base_entries();
                    let path = space.worktree.path().to_owned();
                    let namespaces = Some(space.namespaces(shared)?);
                    (private, SandboxWorkspace::Directory { path, namespaces })
                }
            })
        });
        let (private, workspace) = opened.map_err(why)?;
        let repository = &shared.repository;
        hidden.push(repository.work_tree().to_owned());
        hidden.push(repository.common_dir().to_owned());
        hidden.extend_from_slice(repository.protected_paths());
        let mut variables = more.variables;
        if let Some(home) = &shared.options.home {
            variables.push(("HOME".into(), home.into()));
        }
        let mut replaced = git.replaced;
        replaced.extend(more.filtered.into_iter().filter_map(|file| {
            // Behind a link, the file itself must be replaced.
            let file = file.canonicalize().ok()?;
            let shown = without_secrets(&fs::read(&file).ok()?)?;
            Some((file, OsString::from_vec(shown)))
        }));
        Sandbox::new(SandboxConfig {
            start: shared.subfolder.clone(),
            grants: [grants, more.toolchains].concat(),
            data: git.mounted,
            private,
            replaced,
            path: more.path,
            variables,
            hidden,
            network: shared.options.network,
            bounds,
            may_miss,
            ..SandboxConfig::new(shared.options.helper.clone(), workspace, &self.path)
        })
    }

    /// Returns the paths that a commit of the current work would leave out, and why; nothing is stored.
    ///
    /// # Errors
    ///
    /// When the work could not be examined.
    pub fn left_out(&self) -> Result<Vec<SkippedPath>, WorkspaceError> {
        self.with_open(|_, space| {
            Ok(space.import(STATE, SystemTime::UNIX_EPOCH, ObjectStorage::Nothing)?.1)
        })
    }

    /// Commits the work to `refs/adjutant/<run>/<child>`.
    ///
    /// The commit replaces that of the last call; without changes it stays, and if the files equal the base again,
    /// the reference is deleted. Skipped paths (ignored, reserved, unreadable, too large, …) are listed in the
    /// result; see [`SkippedPath::is_work`].
    ///
    /// # Errors
    ///
    /// Why the work could not be committed. The files are unchanged.
    pub fn keep(&self, message: &str, at: SystemTime) -> Result<KeptCommit, WorkspaceError> {
        let mut space = self.lock();
        let space = space.as_mut().ok_or_else(|| self.closed())?;
        keep(&self.shared, &self.reference, space, message, at)
    }

    /// Commits the work as [`Workspace::keep`] does, then removes the files without checking again that they are
    /// committed. If a skipped path is work, the files stay.
    ///
    /// # Errors
    ///
    /// Why the work could not be committed. The files are unchanged. Files that could not be removed are not an error: the
    /// next sweep removes them.
    pub fn keep_and_close(
        &self,
        message: &str,
        at: SystemTime,
    ) -> Result<KeptCommit, WorkspaceError> {
        // Saves the record for calls after closing.
        let _ = self.record();
        let mut lock = self.lock();
        let mut space = lock.take().ok_or_else(|| self.closed())?;
        let kept = keep(&self.shared, &self.reference, &mut space, message, at);
        let is_whole = |kept: &KeptCommit| !kept.skipped.iter().any(SkippedPath::is_work);
        if kept.as_ref().is_ok_and(is_whole) {
            let _ = remove(space);
        } else {
            *lock = Some(space);
        }
        kept
    }

    /// Unmounts the workspace and removes its files; closing a closed one does nothing.
    ///
    /// # Errors
    ///
    /// [`WorkspaceError::Unkept`] if there is work that is not kept; otherwise why it could not be removed.
    pub fn close(&self) -> Result<(), WorkspaceError> {
        // Saves the record for calls after closing.
        let _ = self.record();
        let mut lock = self.lock();
        let Some(mut space) = lock.take() else { return Ok(()) };
        match is_kept(&self.shared, &self.reference, &mut space) {
            Ok(true) => remove(space),
            Ok(false) => {
                *lock = Some(space);
                Err(WorkspaceError::Unkept { path: self.path.clone() })
            }
            Err(error) => {
                *lock = Some(space);
                Err(error)
            }
        }
    }

    /// Returns the start for another workspace that is made from this one.
    pub(super) fn snapshot(&self, at: SystemTime) -> Result<WorkspaceStart, WorkspaceError> {
        let mut space = self.lock();
        let space = space.as_mut().ok_or_else(|| self.closed())?;
        match space {
            WorkspaceFiles::Overlay(space) => space.snapshot(at),
            WorkspaceFiles::Worktree(space) => {
                let (state, _) = space.worktree.import(STATE, at, ObjectStorage::Durable)?;
                let base = if state.made.tree == state.base_tree {
                    space.worktree.base().clone()
                } else {
                    state.made.commit
                };
                self.shared.keep_commit(&self.reference, &base)?;
                Ok(WorkspaceStart { lower: Arc::default(), base, remarks: Vec::new() })
            }
        }
    }

    /// Runs `work` while the workspace is locked.
    pub(super) fn with_open<T>(
        &self,
        work: impl FnOnce(&WorkspacesContext, &mut WorkspaceFiles) -> Result<T, WorkspaceError>,
    ) -> Result<T, WorkspaceError> {
        let mut space = self.lock();
        work(&self.shared, space.as_mut().ok_or_else(|| self.closed())?)
    }

    /// Removes the files whatever they contain; discarding a closed workspace does nothing.
    pub(super) fn discard(&self) -> Result<(), WorkspaceError> {
        match self.lock().take() {
            Some(space) => discard(space),
            None => Ok(()),
        }
    }

    pub(super) fn shared(&self) -> &Arc<WorkspacesContext> {
        &self.shared
    }

    fn closed(&self) -> WorkspaceError {
        WorkspaceError::Closed { path: self.path.clone() }
    }

    fn lock(&self) -> MutexGuard<'_, Option<WorkspaceFiles>> {
        self.space.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Commits the differences from the base, unless the reference already has them.
pub(super) fn keep(
    shared: &WorkspacesContext,
    reference: &ResultRef,
    space: &mut WorkspaceFiles,
    message: &str,
    at: SystemTime,
) -> Result<KeptCommit, WorkspaceError> {
    let base = space.record().base()?;
    let before = shared.repository.result(reference)?;
    if before.is_none()
        && let WorkspaceFiles::Overlay(overlay) = &*space
        && overlay.is_untouched()?
    {
        let (diff, skipped) = (Diff::default(), Vec::new());
        return Ok(KeptCommit { commit: None, reference: reference.clone(), base, diff, skipped });
    }
    let (ImportedCommit { made, base_tree }, skipped) =
        space.import(message, at, ObjectStorage::Durable)?;
    let had = before.as_ref().map(|commit| shared.repository.tree_of(commit)).transpose()?;
    let commit = match before {
        Some(before) if had.as_ref() == Some(&made.tree) => Some(before),
        None if made.tree == base_tree => None,
        // The agent undid the kept work, for example after a failed verify command.
        Some(before) if made.tree == base_tree => {
            shared.repository.discard(reference, &before)?;
            None
        }
        before => {
            shared.repository.keep(reference, &made.commit, before.as_ref())?;
            Some(made.commit)
        }
    };
    let diff = match &commit {
        Some(commit) => shared.repository.diff(&base, commit)?,
        None => Diff::default(),
    };
    Ok(KeptCommit { commit, reference: reference.clone(), base, diff, skipped })
}

/// Says whether the reference contains all differences from the base.
pub(super) fn is_kept(
    shared: &WorkspacesContext,
    reference: &ResultRef,
    space: &mut WorkspaceFiles,
) -> Result<bool, WorkspaceError> {
    if let WorkspaceFiles::Overlay(overlay) = &*space
        && overlay.is_untouched()?
    {
        return Ok(true);
    }
    let now = space.import(STATE, SystemTime::UNIX_EPOCH, ObjectStorage::Nothing)?;
    if now.1.iter().any(SkippedPath::is_work) {
        return Ok(false);
    }
    let ImportedCommit { made, base_tree } = now.0;
    if made.tree == base_tree {
        return Ok(true);
    }
    let Some(kept) = shared.repository.result(reference)? else { return Ok(false) };
    Ok(shared.repository.tree_of(&kept)? == made.tree)
}

/// Removes the files of a workspace whose work is kept.
pub(super) fn remove(space: WorkspaceFiles) -> Result<(), WorkspaceError> {
    match space {
        WorkspaceFiles::Overlay(space) => space.remove(),
        WorkspaceFiles::Worktree(space) => space.remove(),
    }
}

/// Removes the files of a workspace whatever they contain.
pub(super) fn discard(space: WorkspaceFiles) -> Result<(), WorkspaceError> {
    match space {
        WorkspaceFiles::Overlay(space) => space.remove(),
        WorkspaceFiles::Worktree(space) => space.discard(),
    }
}
