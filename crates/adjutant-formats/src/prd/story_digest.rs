//! What a story asks for, as a digest that is the same until it asks for something else.

use sha2::{Digest, Sha256};

use super::prompt::story_prompt;
use super::story::Story;

/// Returns the SHA-256 of what is asked of whoever works on a story, in hexadecimal digits: its
/// prompt, the commands and the children of its entry, and the command that is in force.
///
/// Where it stands, its priority and what came of it do not count: they ask for nothing.
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
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The length goes in first, so that parts cannot run into each other; none is no empty text.
fn part(hash: &mut Sha256, text: Option<&str>) {
    hash.update([u8::from(text.is_some())]);
    let text = text.unwrap_or_default();
    hash.update((text.len() as u64).to_be_bytes());
    hash.update(text);
}
