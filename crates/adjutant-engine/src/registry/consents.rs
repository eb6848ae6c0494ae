//! What a person agreed to once and is not asked again, known by the digest of exactly that.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use adjutant_core::RegistryCommand;

use super::{RegistryError, RegistryHandle};
use crate::prd::PrdFile;

impl RegistryHandle {
    /// Says whether a person agreed to what has this digest. A registry that cannot be read knows of no consent.
    #[must_use]
    pub fn has_consent(&self, digest: &str) -> bool {
        self.look().is_ok_and(|registry| registry.has_consent(digest))
    }

    /// Remembers that a person agreed to what has this digest.
    ///
    /// # Errors
    ///
    /// Why it could not be recorded; the person is asked again then.
    pub fn give_consent(&self, digest: &str) -> Result<(), RegistryError> {
        self.submit(RegistryCommand::GiveConsent { digest: digest.to_owned() }).map(drop)
    }

    /// Returns what a PRD asks for that no person has agreed to; nothing where the file cannot be read.
    #[must_use]
    pub fn lacking_consents(&self, prd: &Path) -> Vec<String> {
        // Read only: whoever asks leaves the person's tree as it is.
        let Ok(found) = PrdFile::look(prd) else { return Vec::new() };
        let wishes = found.wishes();
        let place = prd.canonicalize().unwrap_or_else(|_| prd.to_owned());
        let is_allowed = || self.has_consent(&wishes.digest_at(place.as_os_str().as_bytes()));
        if wishes.is_empty() || is_allowed() {
            return Vec::new();
        }
        wishes.iter().map(ToString::to_string).collect()
    }
}
