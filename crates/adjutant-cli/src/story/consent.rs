//! What a PRD asks for that only a person can allow: asked once for exactly these wishes of that file.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use adjutant_core::prd::Prd;
use adjutant_engine::{Archive, Consents};
use adjutant_view::sanitize;

use crate::ask::Terminal;
use crate::output::say;

/// Whether the wishes of a PRD count, and which ones that was said of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Consent {
    /// The digest of the wishes and of the place of the file.
    of: String,
    is_given: bool,
}

impl Consent {
    /// Finds out: by the flag, by what was agreed to before, by asking where there is a terminal.
    pub(super) fn ask(prd: &Prd, path: &Path, archive: &Archive, trusted: bool) -> Self {
        let (wishes, of) = (prd.wishes(), digest(prd, path));
        let consents = Consents::at(archive.path());
        if wishes.is_empty() || consents.has(&of) {
            return Self { of, is_given: true };
        }
        let line = |wish: String| format!("  {}\n", sanitize::line(&wish));
        let list: String = wishes.iter().map(|wish| line(wish.to_string())).collect();
        let text = format!("The PRD asks for what only you can allow:\n{list}");
        let is_given = trusted
            || Terminal::open()
                .is_some_and(|terminal| terminal.confirm(&text, "Allow it, from now on? [y/N] "));
        if !is_given {
            say(&format!(
                "adjutant: {text}It counts for nothing without your consent; --trust-prd gives it."
            ));
        } else if let Err(error) = consents.give(&of) {
            say(&format!(
                "adjutant: your consent could not be kept, so you will be asked again: {error}"
            ));
        }
        Self { of, is_given }
    }

    /// Asks anew where the PRD has other wishes by now: the flag was typed for those it had.
    pub(super) fn renew(&mut self, prd: &Prd, path: &Path, archive: &Archive) {
        if digest(prd, path) != self.of {
            say("adjutant: the PRD was changed meanwhile and asks for something else");
            *self = Self::ask(prd, path, archive, false);
        }
    }

    pub(super) const fn is_given(&self) -> bool {
        self.is_given
    }
}

fn digest(prd: &Prd, path: &Path) -> String {
    let place = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    prd.wishes().digest_at(place.as_os_str().as_bytes())
}
