//! What a PRD asks for that only a person can allow: asked once for exactly these wishes.

use adjutant_core::prd::Prd;
use adjutant_engine::{Archive, Consents};

use crate::ask::Terminal;
use crate::exit::Failure;
use crate::output::say;

/// Whether the wishes of a PRD count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Consent {
    /// They do, or there are none.
    Given,
    /// They count for nothing.
    Withheld,
}

impl Consent {
    /// Finds out: by the flag, by what was agreed to before, by asking where there is a terminal.
    pub(super) fn ask(prd: &Prd, archive: &Archive, trusted: bool) -> Result<Self, Failure> {
        let wishes = prd.wishes();
        if wishes.is_empty() {
            return Ok(Self::Given);
        }
        let (consents, digest) = (Consents::at(archive.path()), wishes.digest());
        if consents.has(&digest) {
            return Ok(Self::Given);
        }
        let list: String = wishes.iter().map(|wish| format!("  {wish}\n")).collect();
        let text = format!("The PRD asks for what only you can allow:\n{list}");
        let agrees = trusted
            || Terminal::open()
                .is_some_and(|terminal| terminal.confirm(&text, "Allow it, from now on? [y/N] "));
        if !agrees {
            say(&format!(
                "adjutant: {text}It counts for nothing without your consent; --trust-prd gives it."
            ));
            return Ok(Self::Withheld);
        }
        if let Err(error) = consents.give(&digest) {
            say(&format!(
                "adjutant: your consent could not be kept, so you will be asked again: {error}"
            ));
        }
        Ok(Self::Given)
    }

    pub(super) const fn is_given(self) -> bool {
        matches!(self, Self::Given)
    }
}
