//! Workspaces of delegations that write: made, found again, kept, and the tools that act in them.
//!
//! Everything here blocks and is called on threads for tools. Invariant: what a writer's tools touch
//! is its own workspace, or that of the nearest above it who has one; nobody falls back to the tree
//! of a person.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use adjutant_core::space::{ChangedFile, Clash, KeptWork, MergedWork, NoSpace, Space, SpaceKind};
use adjutant_core::{Outcome, RunId, SessionId, ToolOutput};
use adjutant_tools::{Confinement, Masker, Toolbox};
use adjutant_workspace::sandbox::{Helper, Network};
use adjutant_workspace::space::{
    Kept, Kind, KindWish, Options, PutBack, Record, SandboxWish, SpaceError, Swept, Workspace,
    Workspaces, ignored_among,
};
use adjutant_workspace::{
    Binary, Conflict, DiffStatus, GitError, ObjectId, Patch, SkipReason, Skipped,
    why_no_repository, why_not_kept,
};

use crate::archive::{Archive, ArchiveError, Life};
use crate::chain::chain;
use crate::clock::{Wall, wall_now};
use crate::engine::EngineError;
use crate::prd::temp_name;

/// What a person says about workspaces.
#[derive(Clone, Debug)]
pub struct SpaceSetup {
    /// Where they are kept.
    pub state: PathBuf,
    /// Which kind is wanted.
    pub kind: Option<SpaceKind>,
    /// Ignored folders that are there all the same, such as `target` or `node_modules`.
    pub include_ignored: Vec<PathBuf>,
    /// Whether commands run without a sandbox; only a person can say so.
    pub sandbox_off: bool,
    /// Directories that commands may read beside those of the system.
    pub grants: Vec<PathBuf>,
    /// Directories that commands never see, such as a person's home.
    pub hidden: Vec<PathBuf>,
    /// A file that agents may not change, such as the PRD they work on: no result holds it.
    pub reserved: Option<PathBuf>,
    /// The program that holds workspaces and starts what runs in them; this one where none is named.
    pub helper: Option<PathBuf>,
}

impl SpaceSetup {
    /// Takes the usual: the best kind there is, a sandbox, nothing beside.
    #[must_use]
    pub const fn new(state: PathBuf) -> Self {
        Self {
            state,
            kind: None,
            include_ignored: Vec::new(),
            sandbox_off: false,
            grants: Vec::new(),
            hidden: Vec::new(),
            reserved: None,
            helper: None,
        }
    }

    /// Opens the repository at `tree`; nothing is changed by it.
    pub(crate) fn open(&self, tree: &Path, network: bool) -> Result<Workspaces, String> {
        let wish = match self.kind {
            // Without a sandbox nothing is mounted, so there must be a directory as it is.
            None if self.sandbox_off => KindWish::Worktree,
            None => KindWish::Best,
            Some(SpaceKind::Overlay) => KindWish::Overlay,
            Some(SpaceKind::Worktree) => KindWish::Worktree,
        };
        let options = Options {
            wish,
            network: if network { Network::Granted } else { Network::Off },
            include_ignored: self.include_ignored.clone(),
            reserved: self.reserved_in(tree).unwrap_or_default(),
            // Whoever keeps a record of results goes on from them.
            alike: self.reserved.is_some(),
            helper: self.helper.as_ref().map_or_else(Helper::this_program, Helper::at),
        };
        let all = Workspaces::open(tree, &self.state, options).map_err(|error| {
            let is_none = matches!(error, SpaceError::Git(GitError::NotARepository { .. }));
            let why = is_none.then(|| why_no_repository(tree)).flatten();
            why.unwrap_or_else(|| chain(&error))
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
        if let Some(problem) = why_not_kept(all.repository()) {
            return Err(problem);
        }
        if self.state.canonicalize().is_ok_and(|state| state.starts_with(top)) {
            return Err(format!(
                "the state directory {} lies in the repository, where agents would see it; keep it \
                 elsewhere",
                self.state.display()
            ));
        }
        Ok(all)
    }

    /// Says why agents would have no workspaces of their own in `tree`; nothing is changed by it.
    ///
    /// # Errors
    ///
    /// [`EngineError::Spaces`] with the reason.
    pub fn check(&self, tree: &Path, network: bool) -> Result<(), EngineError> {
        self.open(tree, network).map(drop).map_err(EngineError::Spaces)
    }

    /// Returns the reserved file as the repository at `tree` knows it, and the copy that is made of it while it is
    /// saved; none where it lies elsewhere.
    fn reserved_in(&self, tree: &Path) -> Option<Vec<PathBuf>> {
        let file = self.reserved.as_ref()?;
        // The folder may be reached by a link, the file may not be one.
        let folder = file.parent()?.canonicalize().ok()?;
        let name = file.file_name()?;
        let folder = folder.strip_prefix(tree.canonicalize().ok()?).ok()?;
        Some(vec![folder.join(name), folder.join(temp_name(name))])
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
            Err(error) => return vec![left(&chain(&error))],
        };
        // Best effort: the next one tries again.
        let _ = all.let_go(&|run| is_over(archive, run));
        let said = swept.into_iter().map(|it| match it {
            Swept::Kept(reference, _) => format!("kept what was left in {reference}"),
            Swept::Removed(reference) => format!("removed the empty workspace of {reference}"),
            Swept::Unclear(reference, why) => format!("left {reference} alone: {why}"),
        });
        said.collect()
    }

    /// Lets go of what ended runs in `tree` began from, where nothing they made is left.
    pub fn let_go(&self, tree: &Path, archive: &Archive) {
        // Nothing is mounted for it, so nobody need find out whether that would work.
        let setup = Self { kind: Some(SpaceKind::Worktree), ..self.clone() };
        if let Ok(all) = setup.open(tree, false) {
            // Best effort: the next sweep tries again.
            let _ = all.let_go(&|run| is_over(archive, run));
        }
    }
}

/// Says whether a run is known here and nobody is at work for it.
///
/// One that is not known may be of another home, which uses the same repository.
fn is_over(archive: &Archive, run: &str) -> bool {
    archive.find(run).is_ok_and(|(files, _)| matches!(files.life(), Ok(Life::Dead)))
}

/// Says whether somebody may be at work for a run.
fn may_live(archive: &Archive, run: &str) -> bool {
    match archive.find(run) {
        // Whatever cannot be told is left alone.
        Ok((files, _)) => !matches!(files.life(), Ok(Life::Dead)),
        // Nobody works for a run whose records are gone, and nobody else would look for its work.
        Err(error) => !matches!(error, ArchiveError::Find(_)),
    }
}

/// The workspaces of one run.
pub(crate) struct Spaces {
    all: Workspaces,
    setup: SpaceSetup,
    run: String,
    wall: Wall,
    // A std mutex: held for a map look-up, and while a workspace is taken up again, so that none is
    // mounted twice.
    open: Mutex<BTreeMap<SessionId, Arc<Workspace>>>,
    gates: Mutex<BTreeMap<SessionId, Gate>>,
}

/// Tools go in and out of a workspace; keeping its work waits until all are out, and lets nobody in
/// afterwards. Says whether it is shut.
type Gate = Arc<RwLock<bool>>;

impl Spaces {
    /// Returns the workspaces of a run.
    pub(crate) fn new(all: Workspaces, setup: SpaceSetup, run: RunId, wall: Wall) -> Self {
        Self {
            all,
            setup,
            run: run.to_string(),
            wall,
            open: Mutex::default(),
            gates: Mutex::default(),
        }
    }

    /// Makes the workspace of a delegation; `batch` is what it was handed down with.
    pub(crate) fn make(
        &self,
        session: SessionId,
        batch: &str,
        above: Option<(SessionId, Space)>,
        takes_in: &[String],
    ) -> Result<Space, NoSpace> {
        let child = session.to_string();
        let none = |problem: String| {
            let path = self.all.place_of(&self.run, &child);
            NoSpace { path: path.map(|path| path.display().to_string()), problem, clash: false }
        };
        let above = above.map(|(above, space)| self.get(above, &space)).transpose();
        let above = above.map_err(none)?;
        if !takes_in.is_empty() {
            let clash = self.begin_with(batch, takes_in).map_err(none)?;
            if let Some(problem) = clash {
                return Err(NoSpace { clash: true, ..none(problem) });
            }
        }
        let made = self.all.make(&self.run, &child, batch, above.as_deref());
        let made = Arc::new(made.map_err(|error| none(chain(&error)))?);
        let space = as_space(made.record());
        self.lock().insert(session, made);
        Ok(space)
    }

    /// Lets a batch begin with the work of the stories before; returns what does not go together.
    fn begin_with(&self, batch: &str, takes_in: &[String]) -> Result<Option<String>, String> {
        let id = |commit: &String| {
            ObjectId::parse(commit).ok_or_else(|| format!("{commit} is no commit"))
        };
        let results: Vec<ObjectId> = takes_in.iter().map(id).collect::<Result<_, _>>()?;
        let clash = self.all.begin_with(&self.run, batch, &results);
        let clash = clash.map_err(|error| chain(&error))?;
        Ok(clash.map(|(commit, conflicts)| {
            let clash = |it: &Conflict| format!("{}: {}", it.path.display(), it.kind.words());
            let commit = commit.to_string();
            format!(
                "the work it depends on ({}) does not go together with your files or with other work it depends on: {}",
                commit.get(..12).unwrap_or(&commit),
                conflicts.iter().map(clash).collect::<Vec<_>>().join("; ")
            )
        }))
    }

    /// Returns a workspace, taken up again where this process has not seen it yet.
    fn get(&self, session: SessionId, space: &Space) -> Result<Arc<Workspace>, String> {
        let mut open = self.lock();
        if let Some(known) = open.get(&session) {
            return Ok(Arc::clone(known));
        }
        let found = self.all.adopt(&self.run, &session.to_string(), &as_record(space));
        let found = Arc::new(found.map_err(|error| chain(&error))?);
        open.insert(session, Arc::clone(&found));
        Ok(found)
    }

    /// Returns the tools of `toolbox`, acting in a workspace.
    pub(crate) fn toolbox(
        &self,
        session: SessionId,
        space: &Space,
        toolbox: &Toolbox,
    ) -> Result<Toolbox, String> {
        let root = self.get(session, space)?.root().map_err(|error| chain(&error))?;
        Ok(toolbox.with_root(root))
    }

    /// Returns what commands run in.
    pub(crate) fn confinement(
        &self,
        session: SessionId,
        space: &Space,
    ) -> Result<Confinement, String> {
        let workspace = self.get(session, space)?;
        if self.setup.sandbox_off {
            if space.kind == SpaceKind::Overlay {
                let text =
                    "without a sandbox no command can be run in this workspace: it is an overlay";
                return Err(text.to_owned());
            }
            return Ok(Confinement::Off { root: PathBuf::from(&space.path) });
        }
        let (grants, hidden) = (self.setup.grants.clone(), self.setup.hidden.clone());
        let wish = SandboxWish { grants, hidden, ..SandboxWish::default() };
        workspace
            .sandbox(wish)
            .map(|it| Confinement::Sandboxed(Box::new(it)))
            .map_err(|error| chain(&error))
    }

    fn gate(&self, session: SessionId) -> Gate {
        let mut gates = self.gates.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(gates.entry(session).or_default())
    }

    /// Clears away a workspace that came too late for the one it was made for.
    pub(crate) fn drop_unused(&self, session: SessionId) {
        if let Some(unused) = self.lock().remove(&session) {
            // What stays behind is found by the next sweep.
            let _ = unused.close();
        }
    }

    /// Keeps the work in a workspace, then clears the workspace away. Of what is ignored only what the agent
    /// itself `changed` is said to be left out: nobody expects a build to come back.
    pub(crate) fn keep(
        &self,
        session: SessionId,
        space: &Space,
        message: &str,
        mut changed: BTreeSet<PathBuf>,
    ) -> Result<KeptWork, String> {
        let gate = self.gate(session);
        let mut is_shut = gate.write().unwrap_or_else(PoisonError::into_inner);
        let workspace = self.get(session, space)?;
        let at = SystemTime::UNIX_EPOCH + Duration::from_millis((self.wall)());
        if space.kind == SpaceKind::Worktree {
            // Of a folder that is ignored as a whole nobody says what is in it.
            let is_there = |path: &PathBuf| Path::new(&space.path).join(path).symlink_metadata();
            changed.retain(|path| is_there(path).is_ok());
        }
        let kept = workspace.conclude(message, at).map_err(|error| chain(&error))?;
        self.lock().remove(&session);
        *is_shut = true;
        Ok(as_kept(kept, &changed))
    }

    /// Merges the kept work of a child into a workspace; with a conflict nothing is changed, and what
    /// is quoted of it is masked.
    pub(crate) fn take_in(
        &self,
        session: SessionId,
        space: &Space,
        commit: &str,
        masker: &Masker,
    ) -> Result<MergedWork, String> {
        let gate = self.gate(session);
        let is_shut = gate.read().unwrap_or_else(PoisonError::into_inner);
        if *is_shut {
            return Err(CLOSED.to_owned());
        }
        self.take_into(&*self.get(session, space)?, commit, masker)
    }

    fn take_into(
        &self,
        workspace: &Workspace,
        commit: &str,
        masker: &Masker,
    ) -> Result<MergedWork, String> {
        let result = ObjectId::parse(commit).ok_or_else(|| format!("{commit} is no commit"))?;
        let at = SystemTime::UNIX_EPOCH + Duration::from_millis((self.wall)());
        let taken = workspace.take_in(&result, at).map_err(|error| chain(&error))?;
        let path = |path: &Path| path.display().to_string();
        let clash = |it: &Conflict| Clash {
            path: path(&it.path),
            what: it.kind.words().to_owned(),
            patch: self.patch(&result, &it.path, masker),
        };
        Ok(MergedWork {
            files: taken.diff.entries.iter().map(|entry| path(&entry.path)).collect(),
            conflicts: taken.conflicts.iter().map(clash).collect(),
        })
    }

    /// Returns what a result changed in a file, cut and masked. Whole lines are masked: half a key has no
    /// shape.
    fn patch(&self, result: &ObjectId, path: &Path, masker: &Masker) -> Option<String> {
        let repository = self.all.repository();
        let base = repository.base_of(result).ok()?;
        let paths = [path.to_owned()];
        let what = Patch { paths: &paths, binary: Binary::Named, max_bytes: 2 * PATCH_BYTES };
        let (bytes, more) = repository.patch_of(&base, result, what).ok()?;
        let text = String::from_utf8_lossy(&bytes);
        let whole_lines = text.rfind('\n').filter(|_| more).map_or(&*text, |end| &text[..end]);
        let masked = masker.mask(whole_lines);
        let kept = &masked[..masked.floor_char_boundary(PATCH_BYTES)];
        Some(if more || kept.len() < masked.len() {
            format!("{kept}\n(cut)")
        } else {
            kept.to_owned()
        })
    }

    /// Runs a command in a workspace that is no part of the work; returns what was put back as well. Where
    /// it passes the work is what it judged, and there is nothing to put back.
    fn judging(
        &self,
        session: SessionId,
        space: &Space,
        changed: &BTreeSet<PathBuf>,
        act: impl FnOnce() -> Result<ToolOutput, String>,
    ) -> Result<(ToolOutput, PutBack), String> {
        let workspace = self.get(session, space)?;
        let at = SystemTime::UNIX_EPOCH + Duration::from_millis((self.wall)());
        workspace.claim(at, changed).map_err(|error| chain(&error))?;
        let judged = Judged(&workspace);
        let done = act();
        drop(judged);
        let passed = |output: &ToolOutput| output.sandbox.is_some() && !output.is_error;
        if done.as_ref().is_ok_and(passed) {
            return Ok((done?, PutBack::default()));
        }
        match workspace.put_back() {
            Ok(back) => Ok((done?, back)),
            Err(error) => Ok((not_back(done, &chain(&error)), PutBack::default())),
        }
    }

    /// Lets go of what the run began from, once it has ended well and left nothing.
    ///
    /// One that ended otherwise may be taken up again from there.
    pub(crate) fn let_go(&self, outcome: Outcome) {
        if outcome == Outcome::Completed {
            // Best effort: the next sweep tries again.
            let _ = self.all.let_go(&|run| run == self.run);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<SessionId, Arc<Workspace>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A workspace whose work is judged, until this goes, be it by a panic.
struct Judged<'w>(&'w Workspace);

impl Drop for Judged<'_> {
    fn drop(&mut self) {
        self.0.accept();
    }
}

/// Says that a command left files nobody can work with: its agent would go on with what is not its work.
///
/// Like all that was not held by a sandbox it counts as not run, so it says nothing about the work.
fn not_back(done: Result<ToolOutput, String>, problem: &str) -> ToolOutput {
    let said = done.map_or_else(|problem| problem, |output| output.content);
    ToolOutput::error(format!(
        "What it changed could not be put back ({problem}). The work is what there was before it ran, and is kept \
         so; a full disk is a usual cause. What it said:\n\n{said}"
    ))
}

fn as_space(record: Record) -> Space {
    let kind = match record.kind {
        Kind::Overlay => SpaceKind::Overlay,
        Kind::Worktree => SpaceKind::Worktree,
    };
    let Record { path, base, layers, remarks, .. } = record;
    Space { kind, path, base, layers, remarks }
}

fn as_record(space: &Space) -> Record {
    let kind = match space.kind {
        SpaceKind::Overlay => Kind::Overlay,
        SpaceKind::Worktree => Kind::Worktree,
    };
    let Space { path, base, layers, remarks, .. } = space.clone();
    Record { kind, path, base, layers, remarks }
}

fn as_kept(kept: Kept, changed: &BTreeSet<PathBuf>) -> KeptWork {
    let files = kept.diff.entries.iter().map(|entry| ChangedFile {
        path: entry.path.display().to_string(),
        how: how(&entry.status),
        added: entry.lines.map(|lines| lines.added),
        removed: entry.lines.map(|lines| lines.removed),
    });
    let left_out = |it: &&Skipped| it.reason != SkipReason::Ignored && !it.is_work();
    let named = |it: &Skipped| format!("{} ({})", it.path.display(), why(it.reason));
    let skipped = kept.skipped.iter().filter(left_out).map(named);
    let ignored = ignored_among(changed, &kept.skipped);
    let ignored = ignored.map(|path| format!("{} ({})", path.display(), why(SkipReason::Ignored)));
    let left = kept.skipped.iter().filter(|it| it.is_work());
    KeptWork {
        reference: kept.commit.as_ref().map(|_| kept.reference.to_string()),
        commit: kept.commit.map(|commit| commit.as_str().to_owned()),
        files: files.collect(),
        skipped: skipped.chain(ignored).collect(),
        left: left.map(named).collect(),
    }
}

fn how(status: &DiffStatus) -> String {
    match status {
        DiffStatus::Added => "added".to_owned(),
        DiffStatus::Deleted => "deleted".to_owned(),
        DiffStatus::Modified => "modified".to_owned(),
        DiffStatus::TypeChanged => "type changed".to_owned(),
        DiffStatus::Renamed(from) => format!("renamed from {}", from.display()),
    }
}

fn why(reason: SkipReason) -> String {
    match reason {
        SkipReason::NestedRepository => "a repository of its own".to_owned(),
        SkipReason::Reserved => "only Adjutant changes it".to_owned(),
        SkipReason::Special => "no file, folder or link".to_owned(),
        SkipReason::Unreadable => "cannot be read".to_owned(),
        SkipReason::Ignored => "ignored".to_owned(),
        SkipReason::TooDeep => "too deep".to_owned(),
        SkipReason::TooLarge(bytes) => format!("too large, {bytes} bytes"),
    }
}

/// The most of a change in conflict that is quoted for the one who has to settle it.
const PATCH_BYTES: usize = 4 << 10;

const CLOSED: &str = "your workspace cannot be opened here";

/// Where the tools of one delegation act.
#[derive(Clone)]
pub(crate) enum Bench {
    /// In the tree of a person.
    Shared(Arc<Toolbox>),
    /// Nowhere: the workspace it belongs to cannot be had.
    Closed,
    /// In a workspace.
    Own { spaces: Arc<Spaces>, owner: SessionId, space: Space, toolbox: Arc<Toolbox> },
}

impl Bench {
    /// Does something with the tools; the workspace is not kept before that is over. Blocks.
    pub(crate) fn with_toolbox<T>(
        &self,
        act: impl FnOnce(&Toolbox) -> Result<T, String>,
    ) -> Result<T, String> {
        let gate = match self {
            Self::Own { spaces, owner, .. } => Some(spaces.gate(*owner)),
            Self::Shared(_) | Self::Closed => None,
        };
        let inside = gate.as_ref().map(|gate| gate.read().unwrap_or_else(PoisonError::into_inner));
        if inside.as_ref().is_some_and(|is_shut| **is_shut) {
            return Err(CLOSED.to_owned());
        }
        act(&*self.toolbox()?)
    }

    /// Runs a command that judges the work of `session`: what it writes is no part of that work. Where it
    /// fails that is put back, as the answer says. Blocks.
    pub(crate) fn judge(
        &self,
        session: SessionId,
        changed: &BTreeSet<PathBuf>,
        act: impl FnOnce(&Toolbox) -> Result<ToolOutput, String>,
    ) -> Result<(ToolOutput, PutBack), String> {
        self.with_toolbox(|toolbox| match self {
            Self::Own { spaces, owner, space, .. } if *owner == session => {
                spaces.judging(session, space, changed, || act(toolbox))
            }
            // Others may be at work there, whose work it is.
            Self::Own { .. } | Self::Shared(_) | Self::Closed => {
                Ok((act(toolbox)?, PutBack::default()))
            }
        })
    }

    /// Returns those of some paths that git ignores in the workspace of `session`, so that its result will not
    /// have them. Blocks.
    pub(crate) fn ignored(
        &self,
        session: SessionId,
        some: &BTreeSet<PathBuf>,
    ) -> BTreeSet<PathBuf> {
        let left_out = match self {
            Self::Own { spaces, owner, space, .. } if *owner == session && !some.is_empty() => {
                let workspace = spaces.get(session, space);
                workspace.and_then(|it| it.left_out().map_err(|error| chain(&error)))
            }
            Self::Own { .. } | Self::Shared(_) | Self::Closed => return BTreeSet::new(),
        };
        // What cannot be told now is told when the work is kept.
        let left_out = left_out.unwrap_or_default();
        ignored_among(some, &left_out).map(Path::to_owned).collect()
    }

    fn toolbox(&self) -> Result<Arc<Toolbox>, String> {
        match self {
            Self::Shared(toolbox) => Ok(Arc::clone(toolbox)),
            Self::Closed => Err(CLOSED.to_owned()),
            Self::Own { spaces, owner, space, toolbox } => {
                spaces.toolbox(*owner, space, toolbox).map(Arc::new)
            }
        }
    }

    /// Returns what commands run in; blocks.
    pub(crate) fn confinement(&self) -> Result<Confinement, String> {
        match self {
            Self::Shared(_) => Err("commands run only in a workspace of your own".to_owned()),
            Self::Closed => Err(CLOSED.to_owned()),
            Self::Own { spaces, owner, space, .. } => spaces.confinement(*owner, space),
        }
    }
}
