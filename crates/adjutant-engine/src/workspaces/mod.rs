//! The workspaces of delegations that write: making, reopening and keeping them.
//!
//! All functions block and are called on threads for tools. Start at [`RunWorkspaces::make`]; `setup` has a person's
//! settings, `tool_site` is where tools act, `recorded` converts to the types of the journal. Invariant: tools of a
//! writer act in its own workspace or that of its nearest ancestor with one, never in the person's tree.

mod check;
mod recorded;
mod setup;
mod tool_site;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use adjutant_core::workspace::{
    ChangedFile, KeptWork, MergeConflict, MergedWork, OwnWorkspace, RebasedWork, WorkspaceFailure,
    WorkspaceKind,
};
use adjutant_core::{Outcome, RunId, SessionId, ToolOutput};
use adjutant_tools::{Confinement, Masker, Toolbox};
use adjutant_workspace::sandbox::Sandbox;
use adjutant_workspace::space::{KeptFiles, RebasedWorkspace, Workspace, Workspaces};
use adjutant_workspace::{BinaryContent, Conflict, HeadRef, ObjectId, PatchOptions, Root};

use crate::error_chain::error_chain;
use crate::portable::PortableWork;
use crate::runner::clock::WallClock;

pub use check::{WorkCheck, WorkCheckResult};
pub(crate) use recorded::as_record;
use recorded::{as_kept, as_space, seen_from};
pub use setup::WorkspaceSetup;
pub(crate) use tool_site::ToolSite;

/// The most bytes of a conflicting change that are quoted for the agent that resolves it.
const PATCH_BYTES: usize = 4 << 10;

/// The message of a commit that stores the state after a merge.
const MERGED: &str = "State after a merge\n";

const CLOSED: &str = "your workspace cannot be opened here";

/// The workspaces of one run.
pub(crate) struct RunWorkspaces {
    all: Workspaces,
    setup: WorkspaceSetup,
    run: String,
    wall: WallClock,
    // A std mutex: held for a map look-up, and while a workspace is reopened, so that none is mounted twice.
    open: Mutex<BTreeMap<SessionId, Arc<Workspace>>>,
    gates: Mutex<BTreeMap<SessionId, WorkspaceGate>>,
    /// Where the work is stored, if other machines may go on with it.
    portable: Option<PortableWork>,
}

/// Coordinates tools with keeping a workspace: tools hold the read lock, keeping the work takes the write lock
/// and sets it to true, after which no tool may run.
type WorkspaceGate = Arc<RwLock<bool>>;

impl RunWorkspaces {
    /// Returns the workspaces of a run.
    pub(crate) fn new(all: Workspaces, setup: WorkspaceSetup, run: RunId, wall: WallClock) -> Self {
        Self {
            all,
            setup,
            run: run.to_string(),
            wall,
            open: Mutex::default(),
            gates: Mutex::default(),
            portable: None,
        }
    }

    /// Stores the work where other machines can go on with it.
    pub(crate) fn with_portable(self, portable: Option<PortableWork>) -> Self {
        Self { portable, ..self }
    }

    /// Makes the workspace of a delegation. Delegations of one `batch` start from the same commit.
    pub(crate) fn make(
        &self,
        session: SessionId,
        batch: &str,
        above: Option<(SessionId, OwnWorkspace)>,
        takes_in: &[String],
    ) -> Result<OwnWorkspace, WorkspaceFailure> {
        let child = session.to_string();
        let none = |problem: String| {
            let path = self.all.workspace_path(&self.run, &child);
            WorkspaceFailure {
                path: path.map(|path| path.display().to_string()),
                problem,
                clash: false,
            }
        };
        let above = above.map(|(above, space)| self.get(above, &space)).transpose();
        let above = above.map_err(none)?;
        if !takes_in.is_empty() {
            let clash = self.begin_with(batch, takes_in).map_err(none)?;
            if let Some(problem) = clash {
                return Err(WorkspaceFailure { clash: true, ..none(problem) });
            }
        }
        let made = self.all.make(&self.run, &child, batch, above.as_deref());
        let made = Arc::new(made.map_err(|error| none(error_chain(&error)))?);
        if !self.all.subfolder().as_os_str().is_empty() && made.root().is_err() {
            // Best effort: the next sweep removes it.
            let _ = made.close();
            let folder = self.all.subfolder().display();
            return Err(none(format!(
                "{folder} is not in the workspace: git ignores it or has no file in it; start in another folder, \
                 with --root DIR"
            )));
        }
        let space = as_space(made.record());
        self.lock().insert(session, made);
        // Another machine that goes on with it needs the commit that it starts with.
        self.store_commit(session, &space.base).map_err(none)?;
        Ok(space)
    }

    /// Stores a commit of the work of a delegation, if other machines may go on with it.
    fn store_commit(&self, session: SessionId, commit: &str) -> Result<(), String> {
        let (Some(portable), Some(commit)) = (&self.portable, ObjectId::parse(commit)) else {
            return Ok(());
        };
        let stored = portable.store(self.all.repository(), (&self.run, session), &commit);
        stored.map_err(|error| error_chain(&error))
    }

    /// Commits and stores the work in a workspace after a step that may have changed it, if other machines may go on
    /// with it.
    fn store_work(
        &self,
        session: SessionId,
        space: &OwnWorkspace,
        message: &str,
    ) -> Result<(), String> {
        if self.portable.is_none() {
            return Ok(());
        }
        let at = SystemTime::UNIX_EPOCH + Duration::from_millis((self.wall)());
        let kept = self.get(session, space)?.keep(message, at);
        let kept = kept.map_err(|error| error_chain(&error))?;
        // Without changes, the state is that of the base.
        let commit = kept.commit.unwrap_or(kept.base);
        self.store_commit(session, commit.as_str())
    }

    /// Merges the commits `takes_in`, the work of the stories that this run's story depends on, into the
    /// commit from which all workspaces of `batch` start.
    ///
    /// If they conflict, returns a message that says where; the batch then has no start, and the caller
    /// makes no workspace.
    fn begin_with(&self, batch: &str, takes_in: &[String]) -> Result<Option<String>, String> {
        let id = |commit: &String| {
            ObjectId::parse(commit).ok_or_else(|| format!("{commit} is not a commit id"))
        };
        let results: Vec<ObjectId> = takes_in.iter().map(id).collect::<Result<_, _>>()?;
        let clash = self.all.begin_with(&self.run, batch, &results);
        let clash = clash.map_err(|error| error_chain(&error))?;
        Ok(clash.map(|(commit, conflicts)| {
            let clash = |it: &Conflict| format!("{}: {}", it.path.display(), it.kind.describe());
            let commit = commit.to_string();
            format!(
                "the work it depends on ({}) conflicts with your files or with other work it depends on: {}",
                commit.get(..12).unwrap_or(&commit),
                conflicts.iter().map(clash).collect::<Vec<_>>().join("; ")
            )
        }))
    }

    /// Returns a workspace, and reopens it if another process made it.
    fn get(&self, session: SessionId, space: &OwnWorkspace) -> Result<Arc<Workspace>, String> {
        let mut open = self.lock();
        if let Some(known) = open.get(&session) {
            return Ok(Arc::clone(known));
        }
        let elsewhere = self
            .portable
            .as_ref()
            .map(|portable| portable.recreate(&self.all, (&self.run, session), space));
        let found = match elsewhere.transpose().map_err(|error| error_chain(&error))?.flatten() {
            Some(recreated) => recreated,
            None => self
                .all
                .adopt(&self.run, &session.to_string(), &as_record(space))
                .map_err(|error| error_chain(&error))?,
        };
        let found = Arc::new(found);
        open.insert(session, Arc::clone(&found));
        Ok(found)
    }

    /// Returns the tools that commands see.
    pub(crate) fn commands_see(&self) -> Option<String> {
        self.setup.commands_see()
    }

    /// Returns the tools of `toolbox` with the workspace as root.
    pub(crate) fn toolbox(
        &self,
        session: SessionId,
        space: &OwnWorkspace,
        toolbox: &Toolbox,
    ) -> Result<Toolbox, String> {
        let root = self.get(session, space)?.root().map_err(|error| error_chain(&error))?;
        Ok(toolbox.with_root(root))
    }

    /// Opens the files of a workspace; `None` if that fails.
    pub(crate) fn root(&self, session: SessionId, space: &OwnWorkspace) -> Option<Root> {
        self.get(session, space).ok()?.root().ok()
    }

    /// Returns what the user's HEAD named when the workspaces of a batch were captured.
    pub(crate) fn captured_head(&self, batch: &str) -> Option<HeadRef> {
        self.all.captured_head(&self.run, batch)
    }

    /// Returns the confinement of commands in a workspace.
    pub(crate) fn confinement(
        &self,
        session: SessionId,
        space: &OwnWorkspace,
    ) -> Result<Confinement, String> {
        self.confine(&*self.get(session, space)?, space.kind)
    }

    fn confine(&self, workspace: &Workspace, kind: WorkspaceKind) -> Result<Confinement, String> {
        if self.setup.sandbox_off {
            if kind == WorkspaceKind::Overlay {
                let text =
                    "without a sandbox no command can be run in this workspace: it is an overlay";
                return Err(text.to_owned());
            }
            return Ok(Confinement::Off { root: workspace.start_path() });
        }
        workspace
            .sandbox(self.setup.sandbox_options(self.all.network()))
            .map(|it| Confinement::Sandboxed(Box::new(it)))
            .map_err(|error| error_chain(&error))
    }

    /// Returns a sandbox for a worker in a workspace, in which `folders` are visible too.
    pub(crate) fn worker_sandbox(
        &self,
        session: SessionId,
        space: &OwnWorkspace,
        folders: &[PathBuf],
    ) -> Result<Sandbox, String> {
        if self.setup.sandbox_off {
            return Err("a worker runs only in the sandbox, which is switched off".to_owned());
        }
        let mut options = self.setup.sandbox_options(self.all.network());
        options.toolchains.extend(folders.iter().cloned());
        let workspace = self.get(session, space)?;
        workspace.sandbox(options).map_err(|error| error_chain(&error))
    }

    fn gate(&self, session: SessionId) -> WorkspaceGate {
        let mut gates = self.gates.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(gates.entry(session).or_default())
    }

    /// Removes a workspace whose delegation ended while it was made.
    pub(crate) fn drop_unused(&self, session: SessionId) {
        if let Some(unused) = self.lock().remove(&session) {
            // Best effort: the next sweep removes it.
            let _ = unused.close();
        }
    }

    /// Commits the work in a workspace, then removes the workspace. Of the ignored files only those that the agent's
    /// tools `changed` are reported as left out; build output is expected to be lost.
    pub(crate) fn keep(
        &self,
        session: SessionId,
        space: &OwnWorkspace,
        message: &str,
        changed: BTreeSet<PathBuf>,
    ) -> Result<KeptWork, String> {
        let gate = self.gate(session);
        let mut is_shut = gate.write().unwrap_or_else(PoisonError::into_inner);
        let workspace = self.get(session, space)?;
        let at = SystemTime::UNIX_EPOCH + Duration::from_millis((self.wall)());
        let folder = self.all.subfolder();
        let mut changed: BTreeSet<PathBuf> = changed.iter().map(|path| folder.join(path)).collect();
        if space.kind == WorkspaceKind::Worktree {
            // Git does not list the files of an ignored directory, so deleted ones are filtered out here.
            let is_there = |path: &PathBuf| Path::new(&space.path).join(path).symlink_metadata();
            changed.retain(|path| is_there(path).is_ok());
        }
        if self.portable.is_some() {
            // Before the files are removed: the result must be where other machines find it.
            let kept = workspace.keep(message, at).map_err(|error| error_chain(&error))?;
            let commit = kept.commit.unwrap_or(kept.base);
            self.store_commit(session, commit.as_str())?;
        }
        let kept = workspace.keep_and_close(message, at).map_err(|error| error_chain(&error))?;
        self.lock().remove(&session);
        *is_shut = true;
        Ok(as_kept(kept, &changed, folder))
    }

    /// Recreates the closed workspace of a delegation from the user's present files, with its work merged into them.
    pub(crate) fn rebase(&self, session: SessionId) -> Result<RebasedWork, String> {
        let at = SystemTime::UNIX_EPOCH + Duration::from_millis((self.wall)());
        let rebased = self.all.rebase(&self.run, &session.to_string(), at);
        let RebasedWorkspace { workspace, conflicts } =
            rebased.map_err(|error| error_chain(&error))?;
        let conflict = |it: &Conflict| MergeConflict {
            path: seen_from(self.all.subfolder(), &it.path),
            what: it.kind.describe().to_owned(),
            patch: None,
        };
        let conflicts = conflicts.iter().map(conflict).collect();
        let space = as_space(workspace.record());
        self.lock().insert(session, Arc::new(workspace));
        Ok(RebasedWork { session, space, conflicts })
    }

    /// Merges the commit of a child into a workspace. With a conflict nothing is changed, and the quoted patches
    /// are masked.
    pub(crate) fn take_in(
        &self,
        session: SessionId,
        space: &OwnWorkspace,
        (child, commit): (SessionId, &str),
        masker: &Masker,
    ) -> Result<MergedWork, String> {
        let gate = self.gate(session);
        let is_shut = gate.read().unwrap_or_else(PoisonError::into_inner);
        if *is_shut {
            return Err(CLOSED.to_owned());
        }
        if let (Some(portable), Some(commit)) = (&self.portable, ObjectId::parse(commit)) {
            let found = portable.fetch_missing(self.all.repository(), (&self.run, child), &commit);
            found.map_err(|error| error_chain(&error))?;
        }
        let merged = self.take_into(&*self.get(session, space)?, commit, masker)?;
        self.store_work(session, space, MERGED)?;
        Ok(merged)
    }

    fn take_into(
        &self,
        workspace: &Workspace,
        commit: &str,
        masker: &Masker,
    ) -> Result<MergedWork, String> {
        let result =
            ObjectId::parse(commit).ok_or_else(|| format!("{commit} is not a commit id"))?;
        let at = SystemTime::UNIX_EPOCH + Duration::from_millis((self.wall)());
        let taken = workspace.take_in(&result, at).map_err(|error| error_chain(&error))?;
        let path = |path: &Path| seen_from(self.all.subfolder(), path);
        let clash = |it: &Conflict| MergeConflict {
            path: path(&it.path),
            what: it.kind.describe().to_owned(),
            patch: self.patch(&result, &it.path, masker),
        };
        Ok(MergedWork {
            files: taken.diff.entries.iter().map(|entry| path(&entry.path)).collect(),
            conflicts: taken.conflicts.iter().map(clash).collect(),
        })
    }

    /// Returns the patch of a file in a result, masked and shortened. Masked before it is cut, because a part of an
    /// API key would not be recognised.
    fn patch(&self, result: &ObjectId, path: &Path, masker: &Masker) -> Option<String> {
        let repository = self.all.repository();
        let base = repository.base_of(result).ok()?;
        let paths = [path.to_owned()];
        let what = PatchOptions {
            paths: &paths,
            binary: BinaryContent::Named,
            max_bytes: 2 * PATCH_BYTES,
        };
        let (bytes, more) = repository.patch_of(&base, result, what).ok()?;
        let masked = masked_lines(&bytes, more, masker);
        let kept = &masked[..masked.floor_char_boundary(PATCH_BYTES)];
        Some(if more || kept.len() < masked.len() {
            format!("{kept}\n(cut)")
        } else {
            kept.to_owned()
        })
    }

    /// Commits the work in the workspace of `owner` and runs a verify command in a fresh workspace made from that
    /// commit, which is removed afterwards. The workspace of `owner` is not changed. The files that match the globs
    /// `keep` are those of the base; returns which of them the work had changed.
    fn verify(
        &self,
        session: SessionId,
        (owner, space): (SessionId, &OwnWorkspace),
        (message, keep): (&str, &[String]),
        toolbox: &Toolbox,
        run: impl FnOnce(&Toolbox, &Confinement) -> ToolOutput,
    ) -> Result<(ToolOutput, Vec<String>), String> {
        let keep = KeptFiles::new(keep, self.all.subfolder())?;
        let workspace = self.get(owner, space)?;
        let at = SystemTime::UNIX_EPOCH + Duration::from_millis((self.wall)());
        let fresh = workspace.make_verify_workspace(&session.to_string(), message, at, &keep);
        let fresh = fresh.map_err(|error| error_chain(&error))?;
        let mut output = {
            let root = fresh.root().map_err(|error| error_chain(&error))?;
            let confinement = self.confine(&fresh, space.kind)?;
            run(&toolbox.with_root(root), &confinement)
        };
        // The agent can open only paths of its own workspace, so the output names those.
        let [there, here] = [fresh.path(), workspace.path()].map(|path| path.display().to_string());
        output.content = output.content.replace(&there, &here);
        let from_base: Vec<String> =
            fresh.from_base().iter().map(|path| seen_from(self.all.subfolder(), path)).collect();
        if !from_base.is_empty() {
            output.content += &format!("\n[{}]", taken_from_base(&from_base));
        }
        Ok((output, from_base))
    }

    /// Commits the work in a workspace and returns the paths of the files that differ from the base.
    fn changed_files(
        &self,
        session: SessionId,
        space: &OwnWorkspace,
        message: &str,
    ) -> Result<BTreeSet<String>, String> {
        let at = SystemTime::UNIX_EPOCH + Duration::from_millis((self.wall)());
        let kept = self.get(session, space)?.keep(message, at);
        let kept = kept.map_err(|error| error_chain(&error))?;
        let kept = as_kept(kept, &BTreeSet::new(), self.all.subfolder());
        let both = |file: &ChangedFile| {
            let before = file.how.strip_prefix("renamed from ").map(str::to_owned);
            before.into_iter().chain([file.path.clone()]).collect::<Vec<_>>()
        };
        Ok(kept.files.iter().flat_map(both).collect())
    }

    /// Commits the work in a workspace and returns it as a diff with the base, masked, and cut after about
    /// `max_bytes`. Returns `None` if there is no work.
    fn work_diff(
        &self,
        session: SessionId,
        space: &OwnWorkspace,
        message: &str,
        max_bytes: usize,
        masker: &Masker,
    ) -> Result<Option<WorkDiff>, String> {
        let at = SystemTime::UNIX_EPOCH + Duration::from_millis((self.wall)());
        let kept = self.get(session, space)?.keep(message, at);
        let kept = kept.map_err(|error| error_chain(&error))?;
        let Some(commit) = &kept.commit else { return Ok(None) };
        let repository = self.all.repository();
        let shown = |path: &Path| seen_from(self.all.subfolder(), path);
        let files = kept.diff.entries.iter().map(|entry| shown(&entry.path)).collect();
        let patch = repository.base_of(commit).and_then(|base| {
            // Git stops there; the diff is cut to the exact size after it is masked.
            repository.patch(&base, commit, max_bytes)
        });
        let (bytes, is_cut) = patch.map_err(|error| error_chain(&error))?;
        let patch = masked_lines(&bytes, is_cut, masker);
        Ok(Some(WorkDiff { files, patch, is_cut }))
    }

    /// Drops the refs to the commits that the run started from, if it completed.
    ///
    /// Otherwise they are kept, because the run may be resumed.
    pub(crate) fn release_base_refs(&self, outcome: Outcome) {
        if outcome == Outcome::Completed {
            // Best effort: the next sweep tries again.
            let _ = self.all.drop_base_refs(&|run| run == self.run);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<SessionId, Arc<Workspace>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The work in a workspace, compared with its base.
pub(crate) struct WorkDiff {
    /// The changed files.
    pub(crate) files: BTreeSet<String>,
    /// The patch, or its beginning.
    pub(crate) patch: String,
    /// Whether `patch` is only the beginning.
    pub(crate) is_cut: bool,
}

/// Returns a patch with secrets masked, without a last line that was cut: a part of an API key would not be recognised.
fn masked_lines(patch: &[u8], is_cut: bool, masker: &Masker) -> String {
    let text = String::from_utf8_lossy(patch);
    let whole_lines = text.rfind('\n').filter(|_| is_cut).map_or(&*text, |end| &text[..end]);
    masker.mask(whole_lines).into_owned()
}

/// Returns why globs cannot name files that a verify command takes from the base; `None` if they can.
#[must_use]
pub fn why_not_kept(globs: &[String]) -> Option<String> {
    KeptFiles::new(globs, Path::new("")).err()
}

/// The most files that a remark about a verification names.
const FILES_NAMED: usize = 20;

/// Says which changed files were not part of a verification.
fn taken_from_base(paths: &[String]) -> String {
    let mut named = paths.iter().take(FILES_NAMED).cloned().collect::<Vec<_>>().join(", ");
    if let more @ 1.. = paths.len().saturating_sub(FILES_NAMED) {
        named += &format!(" and {more} more");
    }
    format!("taken from the base, without the changes of the work: {named}")
}
