//! The parts of a PRD that need the user's consent, with a digest that changes only if they change.

use std::fmt;

use sha2::{Digest, Sha256};

use super::read::Prd;

/// A request of a PRD that only the user can allow.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConsentRequest {
    /// Merge the results.
    Merge {
        /// The merge mode, as written.
        how: String,
    },
    /// Use a certain model for a story.
    Model {
        /// The story.
        story: String,
        /// The model.
        model: String,
    },
    /// Run a command that verifies a story.
    Verify {
        /// The story.
        story: String,
        /// The planned child, counted from 1; `None` for the story itself.
        child: Option<usize>,
        /// The command.
        command: String,
        /// Globs of files that it takes from the base instead of from the work.
        keep: Vec<String>,
    },
}

impl fmt::Display for ConsentRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Merge { how } => write!(f, "merge results: {how}"),
            Self::Model { story, model } => write!(f, "story {story}: use the model {model}"),
            Self::Verify { story, child, command, keep } => {
                let child = child.map(|child| format!(", planned child {child}"));
                write!(f, "story {story}{}: run `{command}`", child.unwrap_or_default())?;
                if keep.is_empty() {
                    return Ok(());
                }
                write!(f, ", with {} from the base", keep.join(", "))
            }
        }
    }
}

/// All consent requests of a PRD, sorted independently of the file order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsentRequests(Vec<ConsentRequest>);

impl ConsentRequests {
    /// Returns whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Iterates over the requests.
    pub fn iter(&self) -> impl Iterator<Item = &ConsentRequest> {
        self.0.iter()
    }

    /// Returns the SHA-256 of these requests, in hexadecimal.
    #[must_use]
    pub fn digest(&self) -> String {
        let mut hash = Sha256::new();
        part(&mut hash, "adjutant prd wishes 1");
        for wish in &self.0 {
            let (kind, story, child, text) = match wish {
                ConsentRequest::Merge { how } => ("merge", "", None, how),
                ConsentRequest::Model { story, model } => ("model", story.as_str(), None, model),
                ConsentRequest::Verify { story, child, command, .. } => {
                    ("verify", story.as_str(), *child, command)
                }
            };
            part(&mut hash, kind);
            part(&mut hash, story);
            part(&mut hash, &child.map_or_else(String::new, |child| child.to_string()));
            part(&mut hash, text);
            // Only if there are any: earlier versions had none, and consent to them stays valid.
            if let ConsentRequest::Verify { keep, .. } = wish
                && !keep.is_empty()
            {
                part(&mut hash, "keep");
                keep.iter().for_each(|glob| part(&mut hash, glob));
            }
        }
        hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl ConsentRequests {
    /// Returns the SHA-256 of these requests and the path of the PRD, so that consent to one file does not
    /// apply to another with the same content.
    #[must_use]
    pub fn digest_at(&self, path: &[u8]) -> String {
        let mut hash = Sha256::new();
        part(&mut hash, "adjutant prd wishes at 1");
        part(&mut hash, &self.digest());
        hash.update((path.len() as u64).to_be_bytes());
        hash.update(path);
        hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Hashes the length first, so that adjacent parts cannot be confused.
fn part(hash: &mut Sha256, text: &str) {
    hash.update((text.len() as u64).to_be_bytes());
    hash.update(text);
}

impl Prd {
    /// Returns the requests that need the user's consent: models, verify commands and merging.
    ///
    /// Includes stories that pass, so that recording an outcome does not change the digest.
    #[must_use]
    pub fn consent_requests(&self) -> ConsentRequests {
        let mut wishes: Vec<ConsentRequest> = self
            .merge()
            .map(|how| ConsentRequest::Merge { how: how.to_owned() })
            .into_iter()
            .collect();
        for story in self.stories() {
            let id = || story.id.clone();
            let verify = |child: Option<usize>, command: &String, keep: &[String]| {
                let (command, keep) = (command.clone(), keep.to_vec());
                ConsentRequest::Verify { story: id(), child, command, keep }
            };
            let model =
                |model: &String| ConsentRequest::Model { story: id(), model: model.clone() };
            wishes.extend(story.suggested_model.iter().map(model));
            wishes.extend(story.verify.iter().map(|it| verify(None, it, &story.verify_keep)));
            for (nth, planned) in story.planned.iter().enumerate() {
                let of_child = |it| verify(Some(nth + 1), it, &planned.verify_keep);
                wishes.extend(planned.verify.iter().map(of_child));
            }
        }
        wishes.sort();
        ConsentRequests(wishes)
    }
}
