//! What a PRD asks for that only a person can allow: asked once for exactly these wishes of that file.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use adjutant_engine::Archive;
use adjutant_formats::prd::{Prd, Wish};
use adjutant_view::sanitize;

use crate::ask::Terminal;
use crate::exit::{Exit, Failure};
use crate::hints::advise;
use crate::output::say;

/// Whether the wishes of a PRD count, and which ones that was said of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PrdConsent {
    /// The digest of the wishes and of the place of the file.
    of: String,
    is_given: bool,
    /// Whether a command of the person decides about stories in place of those of the PRD.
    own_verify: bool,
    /// What a person types to allow everything.
    trust: String,
}

impl PrdConsent {
    /// Finds out: by the flag, by what was agreed to before, by asking where there is a terminal.
    pub(super) fn ask(
        prd: &Prd,
        path: &Path,
        archive: &Archive,
        (trusted, own_verify): (bool, bool),
        trust: String,
    ) -> Self {
        let (wishes, of) = (prd.wishes(), digest(prd, path));
        let registry = archive.registry();
        if wishes.is_empty() || registry.has_consent(&of) {
            return Self { of, is_given: true, own_verify, trust };
        }
        // Nobody needs to allow a command that is not going to be run.
        let counts =
            |wish: &&Wish| !(own_verify && matches!(wish, Wish::Verify { child: None, .. }));
        let line = |wish: &Wish| format!("  {}\n", sanitize::line(&wish.to_string()));
        let list: String = wishes.iter().filter(counts).map(line).collect();
        if list.is_empty() && !trusted {
            return Self { of, is_given: false, own_verify, trust };
        }
        let text = format!("The PRD asks for what only you can allow:\n{list}");
        // What was not shown is not agreed to for good.
        let is_all = wishes.iter().all(|wish| counts(&wish));
        let question =
            if is_all { "Allow it, from now on? [y/N] " } else { "Allow it, this time? [y/N] " };
        let is_given =
            trusted || Terminal::open().is_some_and(|terminal| terminal.confirm(&text, question));
        if !is_given {
            advise(&format!(
                "adjutant: {text}It counts for nothing without your consent; {trust} gives it."
            ));
        } else if (trusted || is_all)
            && let Err(error) = registry.give_consent(&of)
        {
            let failure = Failure::caused(Exit::Failed, &error);
            say(&format!(
                "adjutant: your consent could not be kept, so you will be asked again: {failure}"
            ));
        }
        Self { of, is_given, own_verify, trust }
    }

    /// Asks anew where the PRD has other wishes by now: the flag was typed for those it had.
    pub(super) fn renew(&mut self, prd: &Prd, path: &Path, archive: &Archive) {
        if digest(prd, path) != self.of {
            say("adjutant: the PRD was changed meanwhile and asks for something else");
            *self = Self::ask(prd, path, archive, (false, self.own_verify), self.trust.clone());
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
