//! A digest of what a story asks for, which changes only if the request changes.

use sha2::{Digest, Sha256};

use super::prompt::story_prompt;
use super::story::Story;

/// Returns the SHA-256, in hexadecimal, of what a story asks its agent to do: its prompt, its commands, its
/// planned children, and the verify command in force.
///
/// Its position, its priority and its outcome are not included, because they ask for nothing.
#[must_use]
pub fn story_digest(story: &Story, verify: Option<&str>) -> String {
    let mut hash = Sha256::new();
    part(&mut hash, Some("adjutant prd asked 1"));
    part(&mut hash, Some(&story_prompt(story)));
    part(&mut hash, story.verify.as_deref());
    part(&mut hash, verify);
    for planned in &story.planned {
        part(&mut hash, Some(&planned.task()));
        part(&mut hash, planned.verify.as_deref());
    }
    // Only if there are any, so that the digests of earlier versions stay the same.
    let keeps = story.planned.iter().map(|planned| &planned.verify_keep);
    for (nth, keep) in std::iter::once(&story.verify_keep).chain(keeps).enumerate() {
        for glob in keep {
            part(&mut hash, Some(&nth.to_string()));
            part(&mut hash, Some(glob));
        }
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Hashes the length first, so that adjacent parts cannot be confused; `None` differs from an empty text.
fn part(hash: &mut Sha256, text: Option<&str>) {
    hash.update([u8::from(text.is_some())]);
    let text = text.unwrap_or_default();
    hash.update((text.len() as u64).to_be_bytes());
    hash.update(text);
}
