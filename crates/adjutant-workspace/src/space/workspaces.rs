//! The workspaces of one repository.
//!
//! Owns the choice of the kind, the captures that batches share, and where everything lies:
//! `<state>/spaces/<repository>/<run>/<child>`, and `.private` next to the runs for what they share.

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::SystemTime;

use super::credentials::CredentialScan;
use super::ignored_files::{Fnv1aHash, IgnoredFiles};
use super::interrupted::is_interrupted;
use super::layers::LowerLayers;
use super::object_dirs::ObjectDirCache;
use super::overlay::{OverlayWorkspace, WorkspaceStart};
use super::record::LayerName;
use super::workspace::{AnyWorkspace, Workspace};
use super::workspace_dir::{WorkspaceDir, is_empty};
use super::worktree::WorktreeWorkspace;
use super::{WorkspaceBacking, WorkspaceError};
use crate::git::{Ahead, Work, bytes_of};
use crate::overlay::Overlay;
use crate::private;
use crate::sandbox::{NetworkAccess, SandboxHelper};
use crate::{
    Conflict, Git, GitError, ObjectId, Repository, ResultRef, SkipReason, Skipped, Snapshot,
};

/// Captures that are remembered; a batch is over long before as many others began.
const MAX_BATCHES: usize = 64;

/// The part of the name of references that hold states which work began from.
pub(super) const BASES_REF_DIR: &str = "_bases/";

/// Where git is looked for when nobody says where programs are.
const USUAL_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// How much of a list of paths a remark names.
const MAX_NAMED_PATHS: usize = 5;

/// Which kind of workspace is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BackingChoice {
    /// An overlay where the machine allows it, a work tree elsewhere.
    #[default]
    Best,
    /// An overlay or nothing.
    Overlay,
    /// A work tree.
    Worktree,
}

/// How the workspaces of a repository are to be.
#[derive(Clone, Debug)]
pub struct WorkspaceOptions {
    /// Which kind.
    pub wish: BackingChoice,
    /// Whether programs in them reach the network.
    pub network: NetworkAccess,
    /// Ignored folders that come along, relative to the repository.
    pub include_ignored: Vec<PathBuf>,
    /// Files that are no part of anybody's work, by their paths in the repository.
    pub reserved: Vec<PathBuf>,
    /// Directories and files that are never part of a workspace or a result, such as the person's configuration of
    /// this program.
    pub closed: Vec<PathBuf>,
    /// Whether the same state of the tree is the same commit each time, so that later work can stand on
    /// what began from it.
    pub alike: bool,
    /// The program that mounts and confines.
    pub helper: SandboxHelper,
}

/// The workspaces of one repository, for all its runs.
#[derive(Clone, Debug)]
pub struct Workspaces {
    pub(super) shared: Arc<WorkspacesContext>,
}

/// What all workspaces of a repository have in common.
#[derive(Debug)]
pub(super) struct WorkspacesContext {
    pub(super) repository: Repository,
    pub(super) options: WorkspaceOptions,
    /// The state directory of the product.
    pub(super) state: PathBuf,
    /// The folder of this repository in it.
    pub(super) folder: PathBuf,
    pub(super) private: PathBuf,
    /// What sandboxes must not show of the objects.
    pub(super) objects: ObjectDirCache,
    kind: WorkspaceBacking,
    fallback: Option<String>,
    batches: Mutex<VecDeque<(String, Arc<CaptureBatch>)>>,
    pub(super) secrets: CredentialScan,
}

/// One capture, made by whoever needs it first.
#[derive(Debug, Default)]
struct CaptureBatch {
    captured: Mutex<Option<CapturedState>>,
}

#[derive(Debug)]
struct CapturedState {
    layers: Vec<LayerName>,
    commit: ObjectId,
    remarks: Vec<String>,
    /// Whether a reference keeps the commit.
    held: bool,
    /// Kept by those who stand on it.
    lower: Weak<LowerLayers>,
}

impl Workspaces {
    /// Opens the workspaces of the repository that `tree` lies in; `state` is where everything is kept.
    ///
    /// # Errors
    ///
    /// [`GitError::NotARepository`], which says how to make one; [`WorkspaceError::Overlay`] when nothing but
    /// overlays is wanted and there can be none; otherwise what could not be opened.
    pub fn open(
        tree: &Path,
        state: &Path,
        options: WorkspaceOptions,
    ) -> Result<Self, WorkspaceError> {
        let git = Git::find(&std::env::var_os("PATH").unwrap_or_else(|| USUAL_PATH.into()))?;
        let tree = fs::canonicalize(tree).map_err(WorkspaceError::io("opening the folder"))?;
        private::ensure_dir(state).map_err(WorkspaceError::io("making the state directory"))?;
        let state =
            fs::canonicalize(state).map_err(WorkspaceError::io("opening the state directory"))?;
        let top = tree.ancestors().find(|folder| folder.join(".git").symlink_metadata().is_ok());
        let top = top.ok_or_else(|| GitError::NotARepository { path: tree.clone() })?;
        let folder = state.join("spaces").join(name_of(top));
        let private = folder.join(".private");
        let repository = Repository::open(&git, &tree, &private)?.with_persons_excludes()?;
        let mut closed = options.closed.clone();
        closed.push(state.clone());
        let repository = repository.with_reserved(options.reserved.clone()).closing(&closed);
        let (kind, fallback) = choose(&options, &private)?;
        let shared = WorkspacesContext {
            repository,
            options,
            state,
            folder,
            private,
            objects: ObjectDirCache::default(),
            kind,
            fallback,
            batches: Mutex::default(),
            secrets: CredentialScan::default(),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Says which kind the workspaces are.
    #[must_use]
    pub fn kind(&self) -> WorkspaceBacking {
        self.shared.kind
    }

    /// Says why they are no overlays, where they are none.
    #[must_use]
    pub fn fallback(&self) -> Option<&str> {
        self.shared.fallback.as_deref()
    }

    /// Returns the repository.
    #[must_use]
    pub fn repository(&self) -> &Repository {
        &self.shared.repository
    }

    /// Says where the workspace of a child is, or would be.
    #[must_use]
    pub fn workspace_path(&self, run: &str, child: &str) -> Option<PathBuf> {
        let reference = ResultRef::new(run, child).ok()?;
        Some(match self.shared.kind {
            WorkspaceBacking::Overlay => self.shared.dir_path(&reference),
            WorkspaceBacking::Worktree => self.shared.worktree_path(&reference),
        })
    }

    /// Lets the workspaces of a batch begin with results that the user's tree does not have, merged into
    /// its state one after the other; what is changed in them is then theirs alone. One that comes before
    /// another of them is taken in with that.
    ///
    /// The commit that they begin from comes after each of the results: it is the last one where that
    /// stands on the state and on the others, and a merge of them elsewhere.
    ///
    /// A batch that was captured already stays as it is. Returns the first result that does not go
    /// together with those before it, and where; nothing is captured then.
    ///
    /// # Errors
    ///
    /// Why the state could not be captured or merged.
    pub fn begin_with(
        &self,
        run: &str,
        batch: &str,
        results: &[ObjectId],
    ) -> Result<Option<(ObjectId, Vec<Conflict>)>, WorkspaceError> {
        let shared = &self.shared;
        let batch = shared.batch(format!("{run}/{batch}"));
        let mut captured = batch.captured.lock().unwrap_or_else(PoisonError::into_inner);
        if captured.is_some() {
            return Ok(None);
        }
        let repository = &shared.repository;
        let mut start = shared.capture()?;
        // Most often the work of one stands on that of all the others, and on the state.
        let Ahead { upon, latest, each } = repository.ahead(results, &start.commit)?;
        let upon = upon.unwrap_or_else(|| start.commit.clone());
        let mut merged = shared.merged(&upon, &latest)?;
        if merged.is_err() && each != latest {
            // Taken one by one, what a state of the tree had is in nobody's way.
            merged = shared.merged(&upon, &each)?;
        }
        match merged {
            Ok(commit) => start.commit = commit,
            Err(clash) => return Ok(Some(clash)),
        }
        shared.keep_commit_for(run, &start.commit)?;
        start.held = true;
        for layer in &mut start.layers {
            if let LayerName::Delta(_, commit) = layer {
                commit.clone_from(&start.commit);
            }
        }
        *captured = Some(start);
        Ok(None)
    }

    /// Makes the workspace of a child.
    ///
    /// It begins with the state of the user's tree, captured once for all calls of the same run and
    /// `batch`; or, with `above`, with the state of that workspace at this moment. One of the same name
    /// that a crash left is taken up where it holds work and made anew where it holds none.
    ///
    /// # Errors
    ///
    /// [`WorkspaceError::InUse`] when there is a living one of that name; otherwise why it could not be made.
    pub fn make(
        &self,
        run: &str,
        child: &str,
        batch: &str,
        above: Option<&Workspace>,
    ) -> Result<Workspace, WorkspaceError> {
        let reference = ResultRef::new(run, child)?;
        let shared = &self.shared;
        let now = SystemTime::now();
        let space = match shared.kind {
            WorkspaceBacking::Overlay => {
                let dir = WorkspaceDir::lock_or_create(shared.dir_path(&reference))?;
                if let Some(mut record) = dir.record()?
                    && !shared.is_untouched(&reference, &record)?
                {
                    record.remarks.push("taken up as it was left".to_owned());
                    let space = shared.reopen(&reference, dir, &record)?;
                    return Ok(Workspace::new(shared, reference, AnyWorkspace::Overlay(space)));
                }
                dir.remove_contents()?;
                let start = match above {
                    Some(above) => above.snapshot(now)?,
                    None => shared.captured(run, batch)?,
                };
                let shared = Arc::clone(shared);
                AnyWorkspace::Overlay(OverlayWorkspace::begin(
                    shared,
                    reference.clone(),
                    dir,
                    start,
                    0,
                )?)
            }
            WorkspaceBacking::Worktree => {
                let start = match above {
                    Some(above) => above.snapshot(now)?,
                    None => shared.captured(run, batch)?,
                };
                let space =
                    WorktreeWorkspace::begin(shared, &reference, &start.base, start.remarks)?;
                AnyWorkspace::Worktree(Box::new(space))
            }
        };
        Ok(Workspace::new(shared, reference, space))
    }
}

impl WorkspacesContext {
    pub(super) fn kind(&self) -> WorkspaceBacking {
        self.kind
    }

    pub(super) fn dir_path(&self, reference: &ResultRef) -> PathBuf {
        self.folder.join(reference.run()).join(reference.child())
    }

    pub(super) fn worktree_path(&self, reference: &ResultRef) -> PathBuf {
        self.private.join("worktrees").join(reference.run()).join(reference.child())
    }

    /// Merges works into a commit one after the other; otherwise the first that cannot be, and where.
    fn merged(
        &self,
        into: &ObjectId,
        works: &[Work],
    ) -> Result<Result<ObjectId, (ObjectId, Vec<Conflict>)>, WorkspaceError> {
        let mut merged = into.clone();
        for Work { commit, since } in works {
            let base = since.as_ref();
            let base = base.ok_or_else(|| GitError::Missing(format!("base of commit {commit}")))?;
            let preview = self.repository.preview_since(base, commit, &merged)?;
            if !preview.is_clean() {
                return Ok(Err((commit.clone(), preview.conflicts)));
            }
            merged = self.repository.join(&merged, (commit, base), &preview.tree)?;
        }
        Ok(Ok(merged))
    }

    /// Returns the state of the user's tree as this batch knows it.
    fn captured(&self, run: &str, batch: &str) -> Result<WorkspaceStart, WorkspaceError> {
        let batch = self.batch(format!("{run}/{batch}"));
        let mut captured = batch.captured.lock().unwrap_or_else(PoisonError::into_inner);
        let known = match &mut *captured {
            Some(known) => known,
            empty => empty.insert(self.capture()?),
        };
        let (held, lower) = std::thread::scope(|scope| {
            let hold = || self.keep_commit_for(run, &known.commit);
            // Git writes the reference while the layers are made.
            let hold = (!known.held).then(|| scope.spawn(hold));
            let lower = match known.lower.upgrade() {
                Some(lower) => Ok(lower),
                None if self.kind == WorkspaceBacking::Worktree => Ok(Arc::default()),
                None => self.lower_layers(&known.layers).map(Arc::new),
            };
            let failed =
                |_| Err(WorkspaceError::Record("a base that could not be held".to_owned()));
            (hold.map_or(Ok(()), |hold| hold.join().unwrap_or_else(failed)), lower)
        });
        held?;
        known.held = true;
        let lower = lower?;
        known.lower = Arc::downgrade(&lower);
        let (base, remarks) = (known.commit.clone(), known.remarks.clone());
        Ok(WorkspaceStart { lower, base, remarks })
    }

    fn capture(&self) -> Result<CapturedState, WorkspaceError> {
        // Only what later work may stand on has to share its history, and that takes git a moment.
        let snapshot = match self.options.alike {
            true => self.repository.capture_alike()?,
            false => self.repository.capture(SystemTime::now())?,
        };
        let mut layers = vec![
            LayerName::Base(snapshot.head_tree.clone()),
            LayerName::Delta(snapshot.head_tree.clone(), snapshot.commit.clone()),
        ];
        if let Some(included) = IgnoredFiles::scan(&self.repository, &self.options.include_ignored)?
        {
            layers.push(LayerName::Ignored(included.key().to_owned()));
        }
        let (commit, mut remarks) = (snapshot.commit.clone(), remarks(&snapshot));
        let borrows = self.repository.common_dir().join("objects/info/alternates");
        if fs::metadata(borrows).is_ok_and(|list| list.len() > 0) {
            let remark = "objects borrowed from another repository are seen by commands only where a person \
                          grants its folder";
            remarks.push(remark.to_owned());
        }
        Ok(CapturedState { layers, commit, remarks, held: false, lower: Weak::new() })
    }

    fn batch(&self, key: String) -> Arc<CaptureBatch> {
        let mut batches = self.batches.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, batch)) = batches.iter().find(|(known, _)| *known == key) {
            return Arc::clone(batch);
        }
        let batch = Arc::<CaptureBatch>::default();
        batches.push_back((key, Arc::clone(&batch)));
        if batches.len() > MAX_BATCHES {
            batches.pop_front();
        }
        batch
    }

    /// Keeps a commit that work stands on from being collected.
    pub(super) fn keep_commit(
        &self,
        of: &ResultRef,
        commit: &ObjectId,
    ) -> Result<(), WorkspaceError> {
        self.keep_commit_for(of.run(), commit)
    }

    fn keep_commit_for(&self, run: &str, commit: &ObjectId) -> Result<(), WorkspaceError> {
        let name = format!("{}{}", base_refs(run), commit);
        if self.repository.common_dir().join(&name).is_file() {
            return Ok(());
        }
        match self.repository.point(&name, commit, None) {
            // It leads to nothing but the commit it is named after.
            Err(GitError::Moved { .. }) => Ok(()),
            done => Ok(done?),
        }
    }

    /// Layers that show a commit, from a base that is likely to be warm.
    pub(super) fn layers_for_commit(
        &self,
        like: &[LayerName],
        commit: ObjectId,
    ) -> Result<WorkspaceStart, WorkspaceError> {
        let tree = match like.first() {
            Some(LayerName::Base(tree)) => tree.clone(),
            Some(_) | None => self.repository.tree_of(&commit)?,
        };
        let mut names = vec![LayerName::Base(tree.clone()), LayerName::Delta(tree, commit.clone())];
        names.extend(like.iter().filter(|name| matches!(name, LayerName::Ignored(_))).cloned());
        let lower = Arc::new(self.lower_layers(&names)?);
        Ok(WorkspaceStart { lower, base: commit, remarks: Vec::new() })
    }

    /// Says whether nothing was written in a recorded workspace.
    pub(super) fn is_untouched(
        &self,
        reference: &ResultRef,
        record: &super::WorkspaceRecord,
    ) -> Result<bool, WorkspaceError> {
        // The interrupted command may have removed all there was.
        if is_interrupted(&self.dir_path(reference)) {
            return Ok(false);
        }
        for name in record.layers()? {
            if let LayerName::Upper(of, number) = name
                && of == *reference
                && !is_empty(&super::workspace_dir::upper_in(&self.dir_path(reference), number))?
            {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// The references that hold the states that the work of a run began from.
pub(super) fn base_refs(run: &str) -> String {
    // A folder below the run's: no result of a child, and not listed as one.
    format!("{}{run}/{BASES_REF_DIR}", ResultRef::PREFIX)
}

fn choose(
    options: &WorkspaceOptions,
    private: &Path,
) -> Result<(WorkspaceBacking, Option<String>), WorkspaceError> {
    if options.wish == BackingChoice::Worktree {
        return Ok((WorkspaceBacking::Worktree, Some("work trees were asked for".to_owned())));
    }
    match Overlay::probe(&options.helper, private) {
        Ok(()) => Ok((WorkspaceBacking::Overlay, None)),
        Err(error) if options.wish == BackingChoice::Overlay => Err(error.into()),
        Err(error) => Ok((WorkspaceBacking::Worktree, Some(error.to_string()))),
    }
}

/// Names the folder of a repository: by its own name for people, by its path for us.
fn name_of(tree: &Path) -> String {
    let mut hash = Fnv1aHash::default();
    hash.add(bytes_of(tree));
    let name = tree.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    let plain = |letter: &char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_');
    let name: String = name.chars().filter(plain).take(32).collect();
    format!("{name}-{:016x}", hash.0)
}

/// Says what a person should know about a captured state.
fn remarks(snapshot: &Snapshot) -> Vec<String> {
    let mut all = Vec::new();
    if !snapshot.unmerged.is_empty() {
        let what =
            "files that a merge of yours left in conflict are as they lie there, with its marks";
        all.push(format!("{what}: {}", listed(&snapshot.unmerged)));
    }
    if !snapshot.submodules.is_empty() {
        all.push(format!("submodules are empty: {}", listed(&snapshot.submodules)));
    }
    if snapshot.filtered {
        all.push("files with a content filter are as git stores them".to_owned());
    }
    let large = |skipped: &&Skipped| matches!(skipped.reason, SkipReason::TooLarge(_));
    let large: Vec<PathBuf> =
        snapshot.skipped.iter().filter(large).map(|skipped| skipped.path.clone()).collect();
    if !large.is_empty() {
        all.push(format!("changed files that are too large are left out: {}", listed(&large)));
    }
    for (reason, text) in [
        (SkipReason::NestedRepository, "repositories inside the repository are left out"),
        (SkipReason::Special, "pipes, sockets and devices are left out"),
        (SkipReason::Unreadable, "files that cannot be read are left out"),
        (SkipReason::TooDeep, "files that lie too deep are left out"),
    ] {
        let skipped = snapshot.skipped.iter().filter(|skipped| skipped.reason == reason);
        let paths: Vec<PathBuf> = skipped.map(|skipped| skipped.path.clone()).collect();
        if !paths.is_empty() {
            all.push(format!("{text}: {}", listed(&paths)));
        }
    }
    all
}

fn listed(paths: &[PathBuf]) -> String {
    let shown = paths.iter().take(MAX_NAMED_PATHS).map(|path| path.display().to_string());
    let mut text = shown.collect::<Vec<_>>().join(", ");
    if paths.len() > MAX_NAMED_PATHS {
        text.push_str(&format!(" and {} more", paths.len() - MAX_NAMED_PATHS));
    }
    text
}
