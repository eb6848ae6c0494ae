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
use crate::{Diff, ResultRef};

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
    /// Mounts the layers of a folder that is there; one whose verify command an earlier version was running is made
    /// anew from the commit of the work.
    pub(super) fn take_up(
        self: &Arc<Self>,
        reference: &ResultRef,
        slot: Slot,
        record: &Record,
    ) -> Result<OverlaySpace, SpaceError> {
        let base = record.base()?;
        if let Some(work) = self.keep_interrupted(reference, &self.slot_path(reference))? {
            let diff = self.repository.differences(&base, &work)?;
            return self.make_overlay(reference, slot, record, &diff);
        }
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
        let work = match self.repository.result(reference)? {
            Some(kept) => self.repository.differences(&base, &kept)?,
            None => Diff::default(),
        };
        let mut remarks = record.remarks.clone();
        remarks.push("made anew from what was kept of it".to_owned());
        match self.kind() {
            Kind::Worktree => {
                let space = WorktreeSpace::begin(self, reference, &base, remarks)?;
                space.bring(self, &work)?;
                Ok(Space::Worktree(Box::new(space)))
            }
            Kind::Overlay => {
                let slot = Slot::take(self.slot_path(reference))?;
                let record = Record { remarks, ..record.clone() };
                Ok(Space::Overlay(self.make_overlay(reference, slot, &record, &work)?))
            }
        }
    }
}
