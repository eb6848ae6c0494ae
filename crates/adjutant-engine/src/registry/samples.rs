//! What ended delegations consumed, recorded when a run ends.

use std::time::Duration;

use adjutant_core::RegistryCommand;
use adjutant_core::registry::SampleGroup;

use super::{RegistryError, RegistryHandle};

/// How long the end of a run waits for the registry; samples are not worth more.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);

impl RegistryHandle {
    /// Records what the delegations of an ended run consumed. Touches no file if there is nothing to record.
    ///
    /// # Errors
    ///
    /// Why it could not be recorded. Later questions then do not count this run.
    pub fn record_samples(&self, groups: Vec<SampleGroup>) -> Result<(), RegistryError> {
        if groups.is_empty() {
            return Ok(());
        }
        self.submit_within(LOCK_PATIENCE, RegistryCommand::RecordSamples { groups }).map(drop)
    }
}
