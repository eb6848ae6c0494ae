//! Taking up workspaces that are recorded, after a crash or to go on with a run.

use std::sync::Arc;

use super::overlay::{OverlaySpace, Start};
use super::record::LayerName;
use super::slot::Slot;
use super::take_in::settle_in;
use super::workspace::{Space, Workspace};
use super::workspaces::{Shared, Workspaces};
use super::worktree::WorktreeSpace;
use super::{Kind, Record, SpaceError};
use crate::ResultRef;

impl Workspaces {
    /// Takes up a recorded workspace.
    ///
    /// What its own folder says goes before `record`, which may be from before a child was made from it.
    /// Where the files are gone, they are made anew from the base and the kept result.
    ///
    /// # Errors
    ///
    /// [`SpaceError::InUse`] while a living process works in it; otherwise why it cannot be had.
    pub fn adopt(&self, run: &str, child: &str, record: &Record) -> Result<Workspace, SpaceError> {
        let shared = &self.shared;
        let reference = ResultRef::new(run, child)?;
        let space = match record.kind {
            Kind::Overlay => {
                let slot = Slot::take(shared.slot_path(&reference))?;
                match slot.record_or(&reference, record)? {
                    Some(newer) => Some(Space::Overlay(shared.take_up(&reference, slot, &newer)?)),
                    None => {
                        slot.clear()?;
                        None
                    }
                }
            }
            Kind::Worktree => {
                let found = WorktreeSpace::take_up(shared, &reference, record.remarks.clone())?;
                found.map(|space| Space::Worktree(Box::new(space)))
            }
        };
        let space = match space {
            Some(space) => space,
            None => shared.restore(&reference, record)?,
        };
        Ok(Workspace::new(shared, reference, space))
    }
}

impl Shared {
    /// Mounts the layers of a folder that is there.
    pub(super) fn take_up(
        self: &Arc<Self>,
        reference: &ResultRef,
        slot: Slot,
        record: &Record,
    ) -> Result<OverlaySpace, SpaceError> {
        let base = record.base()?;
        let is_own = |name: &LayerName| matches!(name, LayerName::Upper(of, _) if of == reference);
        let (own, below): (Vec<_>, Vec<_>) = record.layers()?.into_iter().partition(is_own);
        let top = own.len().saturating_sub(1);
        let mut remarks = record.remarks.clone();
        let ground = match self.ground(&below) {
            Ok(ground) => Arc::new(ground),
            // A layer of one above is gone: the commit it began from has what git keeps of it.
            Err(SpaceError::Record(_)) => {
                remarks.push("ignored files of its parent are gone".to_owned());
                self.afresh(&below, base.clone())?.ground
            }
            Err(error) => return Err(error),
        };
        let start = Start { ground, base, remarks };
        let folder = self.slot_path(reference);
        let mut space = OverlaySpace::begin(Arc::clone(self), reference.clone(), slot, start, top)?;
        settle_in(&folder, || space.root())?;
        Ok(space)
    }

    /// Makes a workspace anew from its base and its kept result.
    fn restore(
        self: &Arc<Self>,
        reference: &ResultRef,
        record: &Record,
    ) -> Result<Space, SpaceError> {
        let base = record.base()?;
        let kept = self.repository.result(reference)?;
        let mut remarks = record.remarks.clone();
        remarks.push("made anew from what was kept of it".to_owned());
        match self.kind() {
            Kind::Worktree => {
                let space = WorktreeSpace::begin(self, reference, &base, remarks)?;
                if let Some(kept) = &kept {
                    space.bring(self, kept)?;
                }
                Ok(Space::Worktree(Box::new(space)))
            }
            Kind::Overlay => {
                let mut start = self.afresh(&record.layers()?, base.clone())?;
                start.remarks = remarks;
                let slot = Slot::take(self.slot_path(reference))?;
                slot.empty()?;
                if let Some(kept) = &kept {
                    // Before the record: what is cut short here is made again from the start.
                    slot.make_upper(0)?;
                    self.write_difference(&base, kept, &slot.upper(0))?;
                }
                let shared = Arc::clone(self);
                let space = OverlaySpace::begin(shared, reference.clone(), slot, start, 0)?;
                Ok(Space::Overlay(space))
            }
        }
    }
}
