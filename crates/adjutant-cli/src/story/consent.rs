//! Consent to what a PRD requests and only a person can allow, such as its verify commands.
//!
//! Consent is recorded for the exact set of requests and the path of the PRD; any change asks again.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use adjutant_engine::Archive;
use adjutant_formats::prd::{ConsentRequest, Prd};
use adjutant_view::sanitize;

use crate::ask::Terminal;
use crate::exit::{Exit, Failure};
use crate::hints::advise;
use crate::output::say;

/// Whether the person consents to the requests of a PRD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PrdConsent {
    /// The digest of the requests and of the path of the PRD.
    of: String,
    is_given: bool,
    /// Whether the person's own verify command replaces those of the PRD.
    own_verify: bool,
    /// What a person types to consent.
    trust: String,
}

impl PrdConsent {
    /// Determines consent: by `--trust-prd`, by an earlier consent in the registry, or by asking on the terminal.
    pub(super) fn ask(
        prd: &Prd,
        path: &Path,
        archive: &Archive,
        (trusted, own_verify): (bool, bool),
        trust: String,
    ) -> Self {
        let (wishes, of) = (prd.consent_requests(), digest(prd, path));
        let registry = archive.registry();
        if wishes.is_empty() || registry.has_consent(&of) {
            return Self { of, is_given: true, own_verify, trust };
        }
        // A command that will not run needs no consent.
        let counts = |wish: &&ConsentRequest| {
            !(own_verify && matches!(wish, ConsentRequest::Verify { child: None, .. }))
        };
        let line = |wish: &ConsentRequest| format!("  {}\n", sanitize::line(&wish.to_string()));
        let list: String = wishes.iter().filter(counts).map(line).collect();
        if list.is_empty() && !trusted {
            return Self { of, is_given: false, own_verify, trust };
        }
        let text = format!("The PRD asks for what only you can allow:\n{list}");
        // Only if every request was shown is the consent recorded for later.
        let is_all = wishes.iter().all(|wish| counts(&wish));
        let question =
            if is_all { "Allow it, from now on? [y/N] " } else { "Allow it, this time? [y/N] " };
        let is_given =
            trusted || Terminal::open().is_some_and(|terminal| terminal.confirm(&text, question));
        if !is_given {
            advise(&format!(
                "adjutant: {text}It is ignored without your consent; {trust} gives it."
            ));
        } else if (trusted || is_all)
            && let Err(error) = registry.give_consent(&of)
        {
            let failure = Failure::from_error(Exit::Failed, &error);
            say(&format!(
                "adjutant: your consent could not be saved, so you will be asked again: {failure}"
            ));
        }
        Self { of, is_given, own_verify, trust }
    }

    /// Asks again if the requests have changed: `--trust-prd` was typed for the earlier ones.
    pub(super) fn renew(&mut self, prd: &Prd, path: &Path, archive: &Archive) {
        if digest(prd, path) != self.of {
            say("adjutant: the PRD has changed and now requests something else");
            *self = Self::ask(prd, path, archive, (false, self.own_verify), self.trust.clone());
        }
    }

    pub(super) const fn is_given(&self) -> bool {
        self.is_given
    }
}

fn digest(prd: &Prd, path: &Path) -> String {
    let place = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    prd.consent_requests().digest_at(place.as_os_str().as_bytes())
}
