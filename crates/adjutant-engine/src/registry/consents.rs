//! Consents: what a person agreed to once and is not asked again, keyed by the digest of the exact text.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use adjutant_core::RegistryCommand;

use super::{RegistryError, RegistryHandle};
use crate::prd::PrdFile;

impl RegistryHandle {
    /// Returns whether a person agreed to the text with this digest; false if the registry cannot be read.
    #[must_use]
    pub fn has_consent(&self, digest: &str) -> bool {
        self.read_unlocked().is_ok_and(|registry| registry.has_consent(digest))
    }

    /// Records that a person agreed to the text with this digest.
    ///
    /// # Errors
    ///
    /// Why it could not be recorded. The person is asked again next time.
    pub fn give_consent(&self, digest: &str) -> Result<(), RegistryError> {
        self.submit(RegistryCommand::GiveConsent { digest: digest.to_owned() }).map(drop)
    }

    /// Returns what a PRD asks for that no person has agreed to; empty if the file cannot be read.
    #[must_use]
    pub fn lacking_consents(&self, prd: &Path) -> Vec<String> {
        // Without a lock: this query must not write into the person's tree.
        let Ok(found) = PrdFile::read_unlocked(prd) else { return Vec::new() };
        let wishes = found.consent_requests();
        let place = prd.canonicalize().unwrap_or_else(|_| prd.to_owned());
        let is_allowed = || self.has_consent(&wishes.digest_at(place.as_os_str().as_bytes()));
        if wishes.is_empty() || is_allowed() {
            return Vec::new();
        }
        wishes.iter().map(ToString::to_string).collect()
    }
}
