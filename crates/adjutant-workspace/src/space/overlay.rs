//! An overlay workspace: what it stands on, what was written, and the mount that shows both.
//!
//! Invariant: a layer of changes is either the top of one mount, or frozen and below others, never
//! both. The kernel's lock on its folder says which.

use std::sync::Arc;
use std::time::SystemTime;

use super::layers::{LowerLayers, retry_while_holder_exits};
use super::record::LayerName;
use super::workspace_dir::{WorkspaceDir, is_empty};
use super::workspaces::WorkspacesContext;
use super::{WorkspaceBacking, WorkspaceError, WorkspaceRecord};
use crate::git::{Imported, Storing, bounded};
use crate::overlay::{MountedOverlay, Overlay, OverlayError, OverlayLayers};
use crate::trees::{grant_owner_access, grant_top_access_by_handle};
use crate::{Change, Commit, ObjectId, PathError, ResultRef, Root, Skipped, layer_changes};

/// Layers of one's own beyond which nothing is frozen any more; the kernel takes 500 in all.
const MAX_OWN_LAYERS: usize = 200;

/// An overlay workspace that this process holds.
#[derive(Debug)]
pub(super) struct OverlayWorkspace {
    shared: Arc<WorkspacesContext>,
    reference: ResultRef,
    dir: WorkspaceDir,
    /// What was there before it.
    lower: Arc<LowerLayers>,
    base: ObjectId,
    remarks: Vec<String>,
    /// The number of the layer that takes changes; those before it are frozen.
    top: usize,
    mounted: Option<Arc<MountedOverlay>>,
    /// The commit of the state up to the layer of this number, itself not included.
    frozen: Option<(usize, ObjectId)>,
}

/// What a workspace begins with.
#[derive(Debug)]
pub(super) struct WorkspaceStart {
    pub(super) lower: Arc<LowerLayers>,
    pub(super) base: ObjectId,
    pub(super) remarks: Vec<String>,
}

impl OverlayWorkspace {
    /// Makes the workspace in a directory that holds nothing, or takes up the layers it has.
    pub(super) fn begin(
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

    fn own_name(&self, number: usize) -> LayerName {
        LayerName::Upper(self.reference.clone(), number)
    }

    /// Returns the mount, mounting first where there is none.
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
        let path = self.dir.tree();
        let handle =
            mounted.root().try_clone_to_owned().map_err(WorkspaceError::io("sharing a root"))?;
        // A program may have closed it, and with it the layer that takes changes.
        grant_top_access_by_handle(&handle).map_err(WorkspaceError::path(&path))?;
        let root = Root::from_handle(handle, &path).map_err(WorkspaceError::path(path))?;
        // While a handle is in use the layer it writes to is not frozen.
        Ok(root.keeping_alive(mounted))
    }

    /// Makes a commit of everything that was written, upon the base, or says what it would be; no reference
    /// is moved.
    pub(super) fn import(
        &mut self,
        message: &str,
        at: SystemTime,
        storing: Storing,
    ) -> Result<(Imported, Vec<Skipped>), WorkspaceError> {
        // The merged tree says what is there now, whichever layer it lies in.
        let root = self.root()?;
        let (changes, mut skipped) = self.changes(&root)?;
        let (changes, ignored) =
            self.shared.repository.leave_out_ignored(&self.base, &root, changes)?;
        skipped.extend(ignored);
        let changes = self.shared.repository.without_reserved(changes, &mut skipped);
        bounded(&changes)?;
        let base = &self.base;
        let commit = Commit { base: Some(base), root: &root, changes: &changes, message, at };
        let imported = self.shared.repository.scratch(None)?.import(commit, storing)?;
        skipped.extend(imported.made.skipped.iter().cloned());
        skipped.sort();
        skipped.dedup();
        Ok((imported, skipped))
    }

    /// Lists what its own layers change, each path once.
    fn changes(&self, merged: &Root) -> Result<(Vec<Change>, Vec<Skipped>), WorkspaceError> {
        let mut changes: Vec<Change> = Vec::new();
        let mut skipped = Vec::new();
        for number in 0..=self.top {
            let upper = self.dir.upper(number);
            let read = |layer: &Root| {
                // Below the top nothing is closed any more: it was read before it was frozen.
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

    /// Says whether anything at all was written.
    pub(super) fn is_untouched(&self) -> Result<bool, WorkspaceError> {
        for number in 0..=self.top {
            if !is_empty(&self.dir.upper(number))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the commit of the state as it is, and the layers that show it to another workspace.
    ///
    /// Where nobody uses the mount at this moment, the layer that takes changes is frozen and a new one
    /// put on top. Otherwise what git keeps of the state is written as a layer of its own.
    pub(super) fn snapshot(&mut self, at: SystemTime) -> Result<WorkspaceStart, WorkspaceError> {
        let unchanged = is_empty(&self.dir.upper(self.top))?;
        let state = match &self.frozen {
            Some((top, commit)) if *top == self.top && unchanged => commit.clone(),
            Some(_) | None if self.is_untouched()? => self.base.clone(),
            Some(_) | None => {
                self.import(super::workspace::STATE, at, Storing::Durable)?.0.made.commit
            }
        };
        self.shared.keep_commit(&self.reference, &state)?;
        if unchanged || self.freeze()? {
            self.frozen = Some((self.top, state.clone()));
            return self.start_for_child(state);
        }
        let remark = "its parent was at work: ignored files the parent wrote are not in it";
        let mut start = self.shared.layers_for_commit(&self.lower.names, state)?;
        start.remarks.push(remark.to_owned());
        Ok(start)
    }

    /// The layers of this workspace but the top one, for another to stand on.
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

    /// Puts a new layer on top of the one that takes changes; says whether that was possible.
    fn freeze(&mut self) -> Result<bool, WorkspaceError> {
        if self.top >= MAX_OWN_LAYERS {
            return Ok(false);
        }
        // Nobody gets another handle while this is borrowed.
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
        // Recorded first: after a crash the frozen layer is not written to again.
        if let Err(error) = self.dir.write_record(&self.record()) {
            self.top -= 1;
            return Err(error);
        }
        self.mounted()?;
        Ok(true)
    }

    /// Unmounts and removes the folder.
    pub(super) fn remove(mut self) -> Result<(), WorkspaceError> {
        if let Some(mounted) = self.mounted.take() {
            match Arc::try_unwrap(mounted) {
                Ok(mounted) => mounted.unmount(),
                // Whoever has it sees an empty tree from here on.
                Err(still_used) => drop(still_used),
            }
        }
        self.dir.remove()
    }
}

/// Turns what went wrong into what the file tools understand.
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
        | WorkspaceError::Include { .. } => PathError::Io(std::io::Error::other(error)),
    }
}
