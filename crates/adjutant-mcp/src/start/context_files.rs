//! The contents of a call's context files, as part of its identity: once a file has changed, a repeated call
//! is a new one.

use std::fs::File;
use std::io::Read;
use std::path::{Component, Path};

use rustix::fs::{Mode, OFlags};
use serde_json::Value;
use sha2::{Digest, Sha256};

/// How many bytes of a file are hashed. A call with a larger file is refused later.
const MAX_FILE_BYTES: u64 = (256 << 10) + 1;

/// Returns a hash over the contents of all context files, or `None` if the call has none.
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

/// Returns the hash of a file. Returns `None` if the file is outside the tree, missing or not a regular file.
fn hash_file(root: &Path, file: &Path) -> Option<[u8; 32]> {
    let is_inside = |part| matches!(part, Component::Normal(_) | Component::CurDir);
    let inside = file.strip_prefix(root).unwrap_or(file);
    if !inside.components().all(is_inside) {
        return None;
    }
    // Non-blocking, because the path may be a FIFO without a writer.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(root.join(inside), flags, Mode::empty()).ok()?);
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES).read_to_end(&mut bytes).ok()?;
    Some(Sha256::digest(&bytes).into())
}
