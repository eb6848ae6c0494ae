//! What the context files of a call hold: two calls that name the same files mean something else once
//! one of them has changed.

use std::fs::File;
use std::io::Read;
use std::path::{Component, Path};

use rustix::fs::{Mode, OFlags};
use serde_json::Value;
use sha2::{Digest, Sha256};

/// Bytes that are read of one file. A call with a file that has more is refused.
const MAX_FILE_BYTES: u64 = (256 << 10) + 1;

/// Returns one name for what all of them hold; none where there are none.
pub(crate) fn digest(call: &Value, root: &Path) -> Option<String> {
    let tasks = call["tasks"].as_array().into_iter().flatten();
    let files = tasks.flat_map(|task| task["context"].as_array().into_iter().flatten());
    let files: Vec<_> = files.filter_map(Value::as_str).collect();
    let mut all = Sha256::new();
    for file in &files {
        all.update(hash_file(root, Path::new(file)).unwrap_or_default());
    }
    let digest = || all.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    (!files.is_empty()).then(digest)
}

/// Returns the hash of what a file holds; nothing where there is none that could be used.
fn hash_file(root: &Path, file: &Path) -> Option<[u8; 32]> {
    let is_inside = |part| matches!(part, Component::Normal(_) | Component::CurDir);
    let inside = file.strip_prefix(root).unwrap_or(file);
    if !inside.components().all(is_inside) {
        return None;
    }
    // Not blocking: what looks like a file may be one that nobody ever writes to.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(root.join(inside), flags, Mode::empty()).ok()?);
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES).read_to_end(&mut bytes).ok()?;
    Some(Sha256::digest(&bytes).into())
}
