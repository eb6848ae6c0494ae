//! An overlay workspace: its lower layers, its own layers of changes, and the mount that shows them.
//!
//! Invariant: a layer of changes is either the upper layer of one mount, or frozen and a lower layer of others,
//! never both. The file lock on its directory says which.

use std::sync::Arc;
use std::time::SystemTime;

use super::delegation_dirs::DelegationDirs;
use super::layers::{LowerLayers, retry_while_holder_exits};
use super::record::LayerName;
use super::workspace_dir::{WorkspaceDir, is_empty};
use super::workspaces::WorkspacesContext;
use super::{WorkspaceBacking, WorkspaceError, WorkspaceRecord};
use crate::git::{ImportedCommit, ObjectStorage, check_change_count};
use crate::overlay::{MountedOverlay, Overlay, OverlayError, OverlayLayers};
use crate::trees::{grant_owner_access, grant_top_access_by_handle};
use crate::{
    FileChange, NewCommit, ObjectId, PathError, ResultRef, Root, SkippedPath, layer_changes,
};

/// The most layers of its own that a workspace freezes; the kernel accepts 500 layers in all.
const MAX_OWN_LAYERS: usize = 200;

/// An overlay workspace that this process has locked.
#[derive(Debug)]
pub(super) struct OverlayWorkspace {
    shared: Arc<WorkspacesContext>,
    reference: ResultRef,
    dir: WorkspaceDir,
    /// The layers below its own.
    lower: Arc<LowerLayers>,
    base: ObjectId,
    remarks: Vec<String>,
    /// The number of the upper layer; its own layers with lower numbers are frozen.
    top: usize,
    mounted: Option<Arc<MountedOverlay>>,
    /// The commit of the state in the layers below this number.
    frozen: Option<(usize, ObjectId)>,
}

/// The state a workspace starts from.
#[derive(Debug)]
pub(super) struct WorkspaceStart {
    pub(super) lower: Arc<LowerLayers>,
    pub(super) base: ObjectId,
    pub(super) remarks: Vec<String>,
}

impl OverlayWorkspace {
    /// Makes the workspace in an empty directory, or mounts the layers that are already in it.
    pub(super) fn mount(
        shared: Arc<WorkspacesContext>,
        reference: ResultRef,
        dir: WorkspaceDir,
        start: WorkspaceStart,
        top: usize,
    ) -> Result<Self, WorkspaceError> {
        let WorkspaceStart { lower, base, remarks } = start;
        let mut space =
            Self { shared, reference, dir, lower, base, remarks, top, mounted: None, frozen: None };
        space.dir.make_upper(top)?;
        space.dir.write_record(&space.record())?;
        space.mounted()?;
        Ok(space)
    }

    pub(super) fn record(&self) -> WorkspaceRecord {
        let own = (0..=self.top).map(|number| self.own_name(number));
        WorkspaceRecord {
            kind: WorkspaceBacking::Overlay,
            path: self.dir.tree().to_string_lossy().into_owned(),
            base: self.base.to_string(),
            layers: self.lower.names.iter().cloned().chain(own).map(|it| it.to_string()).collect(),
            remarks: self.remarks.clone(),
        }
    }

    pub(super) fn delegation_dirs(&self) -> DelegationDirs {
        self.dir.delegation_dirs()
    }

    fn own_name(&self, number: usize) -> LayerName {
        LayerName::Upper(self.reference.clone(), number)
    }

    /// Returns the mount, mounting the overlay if necessary.
    pub(super) fn mounted(&mut self) -> Result<Arc<MountedOverlay>, WorkspaceError> {
        if let Some(mounted) = &self.mounted {
            return Ok(Arc::clone(mounted));
        }
        let frozen = (0..self.top).map(|number| self.dir.upper(number));
        let layers = OverlayLayers {
            lowers: self.lower.paths.iter().cloned().chain(frozen).collect(),
            upper: self.dir.upper(self.top),
            work: self.dir.work(self.top),
            at: self.dir.tree(),
            network: self.shared.options.network,
            caches: self.dir.delegation_dirs().make_caches(&self.shared.options.caches)?,
        };
        let mounted = retry_while_holder_exits(|| {
            match Overlay::mount(&self.shared.options.helper, layers.clone()) {
                Err(OverlayError::InUse { .. }) => Ok(None),
                done => Ok(Some(Arc::new(done?))),
            }
        })?;
        let mounted = mounted.ok_or(WorkspaceError::InUse { path: layers.upper })?;
        self.mounted = Some(Arc::clone(&mounted));
        Ok(mounted)
    }

    pub(super) fn root(&mut self) -> Result<Root, WorkspaceError> {
        let mounted = self.mounted()?;
        let path = self.shared.visible_path(&self.dir.tree());
        let handle = mounted
            .root()
            .try_clone_to_owned()
            .map_err(WorkspaceError::io("duplicating the root handle"))?;
        // A program may have removed the permissions of the root, and thereby of the upper layer.
        grant_top_access_by_handle(&handle).map_err(WorkspaceError::path(&path))?;
        let root = Root::from_handle(handle, &path).map_err(WorkspaceError::path(path))?;
        // Keeps the mount alive: while a handle is in use, its upper layer is not frozen.
        Ok(root.keeping_alive(mounted))
    }

    /// Commits everything that was written on top of the base, or only computes the commit; no reference is moved.
    pub(super) fn import(
        &mut self,
        message: &str,
        at: SystemTime,
        storing: ObjectStorage,
    ) -> Result<(ImportedCommit, Vec<SkippedPath>), WorkspaceError> {
        // Content is read from the merged tree, whichever layer it lies in.
        let root = self.root()?;
        let (changes, mut skipped) = self.changes(&root)?;
        let (changes, ignored) =
            self.shared.repository.leave_out_ignored(&self.base, &root, changes)?;
        skipped.extend(ignored);
        let changes = self.shared.repository.without_reserved(changes, &mut skipped);
        check_change_count(&changes)?;
        let base = &self.base;
        let commit = NewCommit { base: Some(base), root: &root, changes: &changes, message, at };
        let imported = self.shared.repository.scratch(None)?.import(commit, storing)?;
        skipped.extend(imported.made.skipped.iter().cloned());
        skipped.sort();
        skipped.dedup();
        Ok((imported, skipped))
    }

    /// Lists the changes of its own layers, each path once.
    fn changes(
        &self,
        merged: &Root,
    ) -> Result<(Vec<FileChange>, Vec<SkippedPath>), WorkspaceError> {
        let mut changes: Vec<FileChange> = Vec::new();
        let mut skipped = Vec::new();
        for number in 0..=self.top {
            let upper = self.dir.upper(number);
            let read = |layer: &Root| {
                // Frozen layers are readable: they were committed before they were frozen.
                if number == self.top {
                    grant_owner_access(layer, merged)?;
                }
                layer_changes(layer)
            };
            let found = Root::open(&upper).and_then(|layer| read(&layer));
            let (more, left) = found.map_err(WorkspaceError::path(upper))?;
            changes.extend(more);
            skipped.extend(left);
        }
        changes.sort();
        changes.dedup();
        Ok((changes, skipped))
    }

    /// Says whether nothing was written.
    pub(super) fn is_untouched(&self) -> Result<bool, WorkspaceError> {
        for number in 0..=self.top {
            if !is_empty(&self.dir.upper(number))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Commits the current state, and returns it with the layers that show it to another workspace.
    ///
    /// If the mount is not in use at this moment, the upper layer is frozen and a new one is mounted on top.
    /// Otherwise the committed state is written as a separate layer.
    pub(super) fn snapshot(&mut self, at: SystemTime) -> Result<WorkspaceStart, WorkspaceError> {
        let unchanged = is_empty(&self.dir.upper(self.top))?;
        let state = match &self.frozen {
            Some((top, commit)) if *top == self.top && unchanged => commit.clone(),
            Some(_) | None if self.is_untouched()? => self.base.clone(),
            Some(_) | None => {
                self.import(super::workspace::STATE, at, ObjectStorage::Durable)?.0.made.commit
            }
        };
        self.shared.keep_commit(&self.reference, &state)?;
        if unchanged || self.freeze()? {
            self.frozen = Some((self.top, state.clone()));
            return self.start_for_child(state);
        }
        let remark = "its parent was in use: ignored files that the parent wrote are missing";
        let mut start = self.shared.layers_for_commit(&self.lower.names, state)?;
        start.remarks.push(remark.to_owned());
        Ok(start)
    }

    /// Returns the frozen layers of this workspace as the start of another.
    fn start_for_child(&self, state: ObjectId) -> Result<WorkspaceStart, WorkspaceError> {
        let mut lower = LowerLayers::clone(&self.lower);
        for number in 0..self.top {
            self.shared.add_layer(&mut lower, self.own_name(number))?;
        }
        if state != self.base
            && let Some(LayerName::Base(tree)) = lower.names.first().cloned()
        {
            self.shared.add_layer(&mut lower, LayerName::Meta(tree, state.clone()))?;
        }
        Ok(WorkspaceStart { lower: Arc::new(lower), base: state, remarks: Vec::new() })
    }

    /// Freezes the upper layer and mounts a new one on top. Returns false if that is not possible now.
    fn freeze(&mut self) -> Result<bool, WorkspaceError> {
        if self.top >= MAX_OWN_LAYERS {
            return Ok(false);
        }
        // No other thread can get a handle now: `self` is borrowed mutably.
        let Some(mounted) = self.mounted.take() else { return Ok(false) };
        match Arc::try_unwrap(mounted) {
            Ok(mounted) => mounted.unmount(),
            Err(mounted) => {
                self.mounted = Some(mounted);
                return Ok(false);
            }
        }
        self.dir.make_upper(self.top + 1)?;
        self.top += 1;
        // Recorded before mounting: after a crash the frozen layer must not be written again.
        if let Err(error) = self.dir.write_record(&self.record()) {
            self.top -= 1;
            return Err(error);
        }
        self.mounted()?;
        Ok(true)
    }

    /// Unmounts the overlay and removes the directory.
    pub(super) fn remove(mut self) -> Result<(), WorkspaceError> {
        if let Some(mounted) = self.mounted.take() {
            match Arc::try_unwrap(mounted) {
                Ok(mounted) => mounted.unmount(),
                // Remaining users of the mount see an empty tree from now on.
                Err(still_used) => drop(still_used),
            }
        }
        self.dir.remove()
    }
}

/// Converts an error to what the file tools expect.
pub(super) fn path_error(error: WorkspaceError) -> PathError {
    match error {
        WorkspaceError::Path { source, .. } => source,
        WorkspaceError::Io { source, .. } => PathError::Io(source),
        WorkspaceError::Git(_)
        | WorkspaceError::Overlay(_)
        | WorkspaceError::InUse { .. }
        | WorkspaceError::Unkept { .. }
        | WorkspaceError::Closed { .. }
        | WorkspaceError::Record(_)
        | WorkspaceError::Include { .. }
        | WorkspaceError::Credentials { .. } => PathError::Io(std::io::Error::other(error)),
    }
}
