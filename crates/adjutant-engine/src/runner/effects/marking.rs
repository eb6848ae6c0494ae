//! Updating the status of tasks in the project's list when work on them begins and ends.

use std::path::Path;

use adjutant_core::TaskListUpdate;
use adjutant_formats::task::{TaskNumber, TaskUpdate};

use crate::error_chain::error_chain;
use crate::runner::clock::WallClock;
use crate::specs::Specs;

/// Writes a mark to the project's list and returns what was written: nothing if the project has no list. Blocks.
///
/// The call is idempotent, so it can be repeated after an interruption.
pub(crate) fn make(
    workdir: &Path,
    wall: WallClock,
    mark: &TaskListUpdate,
) -> Result<TaskListUpdate, String> {
    let made = || -> Result<TaskListUpdate, crate::specs::SpecsError> {
        let specs = Specs::open(workdir)?.with_clock(wall);
        let number = TaskNumber::new(mark.task);
        let is_listed = !specs.read()?.tasks().is_empty();
        let Some(number) = number.filter(|_| is_listed) else {
            return Ok(TaskListUpdate {
                status: None,
                reason: None,
                links: Vec::new(),
                ..mark.clone()
            });
        };
        let TaskListUpdate { status, reason, links, .. } = mark.clone();
        specs.update(number, TaskUpdate { status, reason, links })?;
        Ok(mark.clone())
    };
    made().map_err(|error| error_chain(&error))
}
