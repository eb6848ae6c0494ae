//! All workspaces of one repository.
//!
//! Chooses between overlays and work trees, shares captures of the user's tree within a batch, and defines the
//! paths: `<state>/spaces/<repository>/<run>/<child>`, and `.private` next to the runs for what they share.

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
use super::visible_path::{can_be_home, why_not_at};
use super::workspace::{Workspace, WorkspaceFiles};
use super::workspace_dir::{WorkspaceDir, is_empty};
use super::worktree::WorktreeWorkspace;
use super::{WorkspaceBacking, WorkspaceError};
use crate::git::{CommitRange, MissingWork, bytes_of};
use crate::overlay::Overlay;
use crate::private;
use crate::sandbox::{NetworkAccess, SandboxHelper};
use crate::trees::CheckoutDates;
use crate::{
    Conflict, Git, GitError, HeadRef, ObjectId, Repository, ResultRef, SkipReason, SkippedPath,
    WorkTreeSnapshot, head_around,
};

/// Captures that are cached. A batch ends long before this many others have begun.
const MAX_BATCHES: usize = 64;

/// The part of a reference name below which base commits are kept.
pub(super) const BASES_REF_DIR: &str = "_bases/";

/// The search path for git if `PATH` is not set.
const USUAL_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// The most paths that a remark lists.
const MAX_NAMED_PATHS: usize = 5;

/// Which kind of workspace to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WorkspaceBackingChoice {
    /// An overlay if the machine supports it, otherwise a work tree.
    #[default]
    Best,
    /// An overlay; opening fails if there can be none.
    Overlay,
    /// A work tree.
    Worktree,
}

/// Options for the workspaces of a repository.
#[derive(Clone, Debug)]
pub struct WorkspaceOptions {
    /// The kind of workspace.
    pub backing: WorkspaceBackingChoice,
    /// Whether programs in them may use the network.
    pub network: NetworkAccess,
    /// Ignored files and directories to copy into workspaces, relative to the repository.
    pub include_ignored: Vec<PathBuf>,
    /// Files that are never part of an agent's work, by their paths in the repository.
    pub reserved: Vec<PathBuf>,
    /// Directories and files that are never part of a workspace or a result, such as the user's Adjutant
    /// configuration.
    pub closed: Vec<PathBuf>,
    /// Whether capturing the same state twice gives the same commit, so that later work can build on results that
    /// started from it.
    pub reproducible: bool,
    /// Whether commands run in a sandbox. They then see a workspace at the path of the user's checkout.
    pub sandboxed: bool,
    /// The user's home directory; commands see a private directory at its path.
    pub home: Option<PathBuf>,
    /// Package caches of the user, which commands use copy-on-write at their own paths.
    pub caches: Vec<PathBuf>,
    /// The most bytes that the workspaces of all repositories may occupy in the state directory; `None` for no bound.
    pub disk_bytes: Option<u64>,
    /// The path at which commands see a workspace, if it is not that of the checkout: that of the checkout on another
    /// machine.
    pub shown_at: Option<PathBuf>,
    /// The program that is started as the sandbox helper.
    pub helper: SandboxHelper,
}

impl WorkspaceOptions {
    /// Returns options for sandboxed commands that see nothing of the user's home directory and caches.
    #[must_use]
    pub fn new(helper: SandboxHelper) -> Self {
        Self {
            backing: WorkspaceBackingChoice::default(),
            network: NetworkAccess::Off,
            include_ignored: Vec::new(),
            reserved: Vec::new(),
            closed: Vec::new(),
            reproducible: false,
            sandboxed: true,
            home: None,
            caches: Vec::new(),
            disk_bytes: None,
            shown_at: None,
            helper,
        }
    }
}

/// The workspaces of one repository, for all its runs.
#[derive(Clone, Debug)]
pub struct Workspaces {
    pub(super) shared: Arc<WorkspacesContext>,
}

/// What all workspaces of a repository share.
#[derive(Debug)]
pub(super) struct WorkspacesContext {
    pub(super) repository: Repository,
    pub(super) options: WorkspaceOptions,
    /// Where agents start: a directory relative to the top of the repository, empty for the top itself.
    pub(super) subfolder: PathBuf,
    /// Adjutant's state directory.
    pub(super) state: PathBuf,
    /// The directory of this repository in the state directory.
    pub(super) folder: PathBuf,
    pub(super) private: PathBuf,
    /// Which entries of object directories sandboxes must hide.
    pub(super) object_dirs: ObjectDirCache,
    kind: WorkspaceBacking,
    fallback: Option<String>,
    batches: Mutex<VecDeque<(String, Arc<CaptureBatch>)>>,
    pub(super) credentials: CredentialScan,
}

/// The capture of one batch, made by the first workspace that needs it.
#[derive(Debug, Default)]
struct CaptureBatch {
    captured: Mutex<Option<CapturedState>>,
}

/// The captured state of the user's tree, and the layers that show it.
#[derive(Debug)]
struct CapturedState {
    layers: Vec<LayerName>,
    commit: ObjectId,
    /// What the user's HEAD named; `None` if it changed while the state was captured.
    head: Option<HeadRef>,
    remarks: Vec<String>,
    /// Whether a reference keeps the commit from being garbage collected.
    held: bool,
    /// Owned by the workspaces that use it.
    lower: Weak<LowerLayers>,
    /// The times of the user's files; `None` if no build results are included, to which they matter.
    dates: Option<Arc<CheckoutDates>>,
}

impl Workspaces {
    /// Opens the workspaces of the repository around `tree`, in which agents start; everything is stored below
    /// `state`.
    ///
    /// # Errors
    ///
    /// [`GitError::NotARepository`], which says how to create one; [`WorkspaceError::Overlay`] if an overlay is
    /// required and there can be none; otherwise what could not be opened.
    pub fn open(
        tree: &Path,
        state: &Path,
        mut options: WorkspaceOptions,
    ) -> Result<Self, WorkspaceError> {
        let git = Git::find(&std::env::var_os("PATH").unwrap_or_else(|| USUAL_PATH.into()))?;
        let tree = fs::canonicalize(tree).map_err(WorkspaceError::io("opening the directory"))?;
        private::ensure_dir(state).map_err(WorkspaceError::io("creating the state directory"))?;
        let state =
            fs::canonicalize(state).map_err(WorkspaceError::io("opening the state directory"))?;
        let top = tree.ancestors().find(|folder| folder.join(".git").symlink_metadata().is_ok());
        let top = top.ok_or_else(|| GitError::NotARepository { path: tree.clone() })?;
        let folder = state.join("spaces").join(directory_name(top));
        let private = folder.join(".private");
        let repository = Repository::open(&git, &tree, &private)?.with_user_excludes()?;
        let mut closed = options.closed.clone();
        closed.push(state.clone());
        let repository = repository.with_reserved(options.reserved.clone()).with_protected(&closed);
        let (kind, fallback) = choose_backing(&options, &private)?;
        // Links in the path of the home directory would have to exist inside the sandbox, too.
        options.home = options.home.and_then(|home| home.canonicalize().ok());
        options.home.take_if(|home| !can_be_home(home));
        let subfolder =
            tree.strip_prefix(repository.work_tree()).unwrap_or(Path::new("")).to_owned();
        let shared = WorkspacesContext {
            repository,
            options,
            subfolder,
            state,
            folder,
            private,
            object_dirs: ObjectDirCache::default(),
            kind,
            fallback,
            batches: Mutex::default(),
            credentials: CredentialScan::default(),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Returns the kind of the workspaces.
    #[must_use]
    pub fn kind(&self) -> WorkspaceBacking {
        self.shared.kind
    }

    /// Returns whether programs in the workspaces may use the network.
    #[must_use]
    pub fn network(&self) -> NetworkAccess {
        self.shared.options.network
    }

    /// Returns why commands see a workspace at its own path instead of the checkout's, if they do.
    #[must_use]
    pub fn why_not_at_checkout(&self) -> Option<&'static str> {
        self.shared.why_not_at_checkout()
    }

    /// Returns why work trees are used instead of overlays, if they are.
    #[must_use]
    pub fn fallback_reason(&self) -> Option<&str> {
        self.shared.fallback.as_deref()
    }

    /// Returns the repository.
    #[must_use]
    pub fn repository(&self) -> &Repository {
        &self.shared.repository
    }

    /// Returns the directory in which agents start, relative to the top of the repository; empty for the top.
    #[must_use]
    pub fn subfolder(&self) -> &Path {
        &self.shared.subfolder
    }

    /// Returns the path of a child's workspace, whether it exists or not.
    #[must_use]
    pub fn workspace_path(&self, run: &str, child: &str) -> Option<PathBuf> {
        let reference = ResultRef::new(run, child).ok()?;
        Some(match self.shared.kind {
            WorkspaceBacking::Overlay => self.shared.dir_path(&reference),
            WorkspaceBacking::Worktree => self.shared.worktree_path(&reference),
        })
    }

    /// Makes the workspaces of a batch start with results that the user's tree does not contain, merged into its
    /// state one after the other. Changes in the workspaces then do not include these results. A result that
    /// another one builds on is merged with that one.
    ///
    /// The base commit is a descendant of each result: the last result if it builds on the captured state and all
    /// others, otherwise a merge of them.
    ///
    /// A batch that is already captured stays unchanged. Returns the first result that conflicts with those before
    /// it, and the conflicts; then nothing is captured.
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
        // Usually one result builds on all the others and on the captured state.
        let MissingWork { upon, latest, each } = repository.missing_work(results, &start.commit)?;
        let upon = upon.unwrap_or_else(|| start.commit.clone());
        let mut merged = shared.merge_all(&upon, &latest)?;
        if merged.is_err() && each != latest {
            // Merging the results one by one avoids conflicts with intermediate states of the tree.
            merged = shared.merge_all(&upon, &each)?;
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

    /// Returns what the user's HEAD named when the state of their tree was captured for a batch; `None` if no state was
    /// captured for it.
    #[must_use]
    pub fn captured_head(&self, run: &str, batch: &str) -> Option<HeadRef> {
        let batch = self.shared.batch(format!("{run}/{batch}"));
        let captured = batch.captured.lock().unwrap_or_else(PoisonError::into_inner);
        captured.as_ref()?.head.clone()
    }

    /// Makes the workspace of a child agent.
    ///
    /// It starts with the state of the user's tree, captured once for all calls of the same run and `batch`; or,
    /// with `above`, with the current state of that workspace. A leftover workspace of the same name is reopened if
    /// it holds work and recreated if not.
    ///
    /// # Errors
    ///
    /// [`WorkspaceError::InUse`] if a running process uses a workspace of that name; otherwise why it could not be
    /// made.
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
                    record.remarks.push("reopened as it was left".to_owned());
                    let space = shared.reopen(&reference, dir, &record)?;
                    return Ok(Workspace::new(shared, reference, WorkspaceFiles::Overlay(space)));
                }
                dir.remove_contents()?;
                let start = match above {
                    Some(above) => above.snapshot(now)?,
                    None => shared.batch_start(run, batch)?,
                };
                let shared = Arc::clone(shared);
                WorkspaceFiles::Overlay(OverlayWorkspace::mount(
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
                    None => shared.batch_start(run, batch)?,
                };
                let space = WorktreeWorkspace::create_or_reopen(
                    shared,
                    &reference,
                    &start.base,
                    start.remarks,
                )?;
                WorkspaceFiles::Worktree(Box::new(space))
            }
        };
        Ok(Workspace::new(shared, reference, space))
    }
}

impl WorkspacesContext {
    pub(super) fn why_not_at_checkout(&self) -> Option<&'static str> {
        if !self.options.sandboxed {
            return Some("the sandbox is off");
        }
        why_not_at(self.checkout(), self.options.home.as_deref())
    }

    /// Returns the path of the checkout as commands and models know it.
    fn checkout(&self) -> &Path {
        self.options.shown_at.as_deref().unwrap_or_else(|| self.repository.work_tree())
    }

    /// Returns the path at which programs and models see the workspace whose files lie at `own`.
    pub(super) fn visible_path(&self, own: &Path) -> PathBuf {
        match self.why_not_at_checkout() {
            None => self.checkout().to_owned(),
            Some(_) => own.to_owned(),
        }
    }

    pub(super) fn kind(&self) -> WorkspaceBacking {
        self.kind
    }

    pub(super) fn dir_path(&self, reference: &ResultRef) -> PathBuf {
        self.folder.join(reference.run()).join(reference.child())
    }

    pub(super) fn worktree_path(&self, reference: &ResultRef) -> PathBuf {
        self.private.join("worktrees").join(reference.run()).join(reference.child())
    }

    /// Merges results into a commit one after the other. The inner error is the first result with conflicts.
    fn merge_all(
        &self,
        into: &ObjectId,
        works: &[CommitRange],
    ) -> Result<Result<ObjectId, (ObjectId, Vec<Conflict>)>, WorkspaceError> {
        let mut merged = into.clone();
        for CommitRange { commit, since } in works {
            let base = since.as_ref();
            let base = base.ok_or_else(|| GitError::Missing(format!("base of commit {commit}")))?;
            let preview = self.repository.preview_since(base, commit, &merged)?;
            if !preview.is_clean() {
                return Ok(Err((commit.clone(), preview.conflicts)));
            }
            merged = self.repository.commit_merge(&merged, (commit, base), &preview.tree)?;
        }
        Ok(Ok(merged))
    }

    /// Returns the state of the user's tree that this batch starts from, capturing it first if necessary.
    pub(super) fn batch_start(
        &self,
        run: &str,
        batch: &str,
    ) -> Result<WorkspaceStart, WorkspaceError> {
        let batch = self.batch(format!("{run}/{batch}"));
        let mut captured = batch.captured.lock().unwrap_or_else(PoisonError::into_inner);
        let known = match &mut *captured {
            Some(known) => known,
            empty => empty.insert(self.capture()?),
        };
        let (held, lower) = std::thread::scope(|scope| {
            let hold = || self.keep_commit_for(run, &known.commit);
            // Git writes the reference in parallel to making the layers.
            let hold = (!known.held).then(|| scope.spawn(hold));
            let lower = match known.lower.upgrade() {
                Some(lower) => Ok(lower),
                None if self.kind == WorkspaceBacking::Worktree => Ok(Arc::default()),
                None => {
                    let dates = known.dates.as_ref();
                    self.dated_layers(&known.layers, dates).map(Arc::new)
                }
            };
            let failed =
                |_| Err(WorkspaceError::Record("its base commit could not be kept".to_owned()));
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
        let began = SystemTime::now();
        let head = head_around(self.repository.work_tree());
        // A reproducible commit takes git longer and is needed only if later work may build on it.
        let snapshot = match self.options.reproducible {
            true => self.repository.capture_reproducibly()?,
            false => self.repository.capture(SystemTime::now())?,
        };
        let head = head.filter(|it| head_around(self.repository.work_tree()).as_ref() == Some(it));
        let mut layers = vec![
            LayerName::Base(snapshot.head_tree.clone()),
            LayerName::Delta(snapshot.head_tree.clone(), snapshot.commit.clone()),
        ];
        if let Some(included) = IgnoredFiles::scan(&self.repository, &self.options.include_ignored)?
        {
            layers.push(LayerName::Ignored(included.key().to_owned()));
        }
        let (commit, mut remarks) = (snapshot.commit.clone(), remarks(&snapshot));
        if let Some(why) = self.why_not_at_checkout() {
            remarks.push(format!("commands see the workspace at another path than yours: {why}"));
        }
        let borrows = self.repository.common_dir().join("objects/info/alternates");
        if fs::metadata(borrows).is_ok_and(|list| list.len() > 0) {
            let remark = "commands see objects borrowed from another repository only if its directory is \
                          granted";
            remarks.push(remark.to_owned());
        }
        let mut dates = None;
        if !self.options.include_ignored.is_empty() {
            let changed = self.repository.differences(&snapshot.head_tree, &commit)?;
            let changed = changed.entries.into_iter().map(|entry| entry.path);
            dates = Some(Arc::new(CheckoutDates::new(self.repository.work_tree(), changed, began)));
        }
        let (held, lower) = (false, Weak::new());
        Ok(CapturedState { layers, commit, head, remarks, held, lower, dates })
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

    /// Creates a reference that keeps a base commit from being garbage collected.
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
        match self.repository.update_ref(&name, commit, None) {
            // The reference is named after its commit, so it already has the right value.
            Err(GitError::Moved { .. }) => Ok(()),
            done => Ok(done?),
        }
    }

    /// Returns layers that show a commit, on top of the same base as `like`, which is probably checked out already.
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
        // An interrupted verify command may have deleted all changes.
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

/// Returns the prefix of the references that keep the base commits of a run.
pub(super) fn base_refs(run: &str) -> String {
    // A directory below the run's, so that it is not listed as a result of a child.
    format!("{}{run}/{BASES_REF_DIR}", ResultRef::PREFIX)
}

fn choose_backing(
    options: &WorkspaceOptions,
    private: &Path,
) -> Result<(WorkspaceBacking, Option<String>), WorkspaceError> {
    if options.backing == WorkspaceBackingChoice::Worktree {
        return Ok((WorkspaceBacking::Worktree, Some("work trees were requested".to_owned())));
    }
    match Overlay::probe(&options.helper, private) {
        Ok(()) => Ok((WorkspaceBacking::Overlay, None)),
        Err(error) if options.backing == WorkspaceBackingChoice::Overlay => Err(error.into()),
        Err(error) => Ok((WorkspaceBacking::Worktree, Some(error.to_string()))),
    }
}

/// Names the directory of a repository: its own name for people, and a hash of its path for uniqueness.
fn directory_name(tree: &Path) -> String {
    let mut hash = Fnv1aHash::default();
    hash.add(bytes_of(tree));
    let name = tree.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    let plain = |letter: &char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_');
    let name: String = name.chars().filter(plain).take(32).collect();
    format!("{name}-{:016x}", hash.0)
}

/// Returns remarks for the user about a captured state.
fn remarks(snapshot: &WorkTreeSnapshot) -> Vec<String> {
    let mut all = Vec::new();
    if !snapshot.unmerged.is_empty() {
        let what = "files with merge conflicts are included with their conflict markers";
        all.push(format!("{what}: {}", join_paths(&snapshot.unmerged)));
    }
    if !snapshot.submodules.is_empty() {
        all.push(format!("submodules are empty: {}", join_paths(&snapshot.submodules)));
    }
    if snapshot.filtered {
        all.push("files with a content filter have the content that git stores".to_owned());
    }
    let large = |skipped: &&SkippedPath| matches!(skipped.reason, SkipReason::TooLarge(_));
    let large: Vec<PathBuf> =
        snapshot.skipped.iter().filter(large).map(|skipped| skipped.path.clone()).collect();
    if !large.is_empty() {
        all.push(format!(
            "changed files that are too large are not in the workspaces: {}",
            join_paths(&large)
        ));
    }
    for (reason, text) in [
        (SkipReason::NestedRepository, "repositories inside the repository are left out"),
        (SkipReason::Special, "pipes, sockets and devices are left out"),
        (SkipReason::Unreadable, "files that cannot be read are left out"),
        (SkipReason::TooDeep, "files in too deeply nested directories are left out"),
    ] {
        let skipped = snapshot.skipped.iter().filter(|skipped| skipped.reason == reason);
        let paths: Vec<PathBuf> = skipped.map(|skipped| skipped.path.clone()).collect();
        if !paths.is_empty() {
            all.push(format!("{text}: {}", join_paths(&paths)));
        }
    }
    all
}

fn join_paths(paths: &[PathBuf]) -> String {
    let shown = paths.iter().take(MAX_NAMED_PATHS).map(|path| path.display().to_string());
    let mut text = shown.collect::<Vec<_>>().join(", ");
    if paths.len() > MAX_NAMED_PATHS {
        text.push_str(&format!(" and {} more", paths.len() - MAX_NAMED_PATHS));
    }
    text
}
