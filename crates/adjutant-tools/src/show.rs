//! Formats paths and text for the model.

use std::borrow::Cow;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use adjutant_workspace::{FileKind, PathError};

use crate::args::brief;

/// Formats a path on one line: as it is, or quoted with escapes if it has unusual characters.
pub(crate) fn path(path: &Path) -> String {
    match path.to_str() {
        Some("") => ".".to_owned(),
        Some(text) if !text.chars().any(char::is_control) && !text.starts_with('"') => {
            text.to_owned()
        }
        Some(_) | None => escaped(path.as_os_str().as_bytes()),
    }
}

fn escaped(bytes: &[u8]) -> String {
    let mut out = String::from("\"");
    for chunk in bytes.utf8_chunks() {
        out.extend(chunk.valid().chars().flat_map(char::escape_debug));
        for byte in chunk.invalid() {
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
    out.push('"');
    out
}

/// Explains why the path `written` could not be opened and what to do about it.
pub(crate) fn path_error(written: &str, error: &PathError) -> String {
    let shown = brief(written);
    match error {
        PathError::Outside => {
            format!("`{shown}` is outside the workspace; give a path relative to its root")
        }
        PathError::NotFound => format!("`{shown}` does not exist; find paths with Glob"),
        PathError::NotRegular(FileKind::Directory) => {
            format!("`{shown}` is a directory; list it with Glob, path `{shown}`, pattern `/*`")
        }
        PathError::NotRegular(kind) => format!("`{shown}` is a {kind}, not a regular file"),
        PathError::NotDirectory => format!("`{shown}` is not a directory"),
        PathError::Loop => format!("`{shown}` leads into a loop of symbolic links"),
        PathError::PermissionDenied => format!("permission to open `{shown}` was denied"),
        PathError::NameTooLong => format!("`{shown}` is longer than a path may be"),
        PathError::Invalid => format!("`{shown}` contains a NUL byte"),
        PathError::SymbolicLink => {
            format!("`{shown}` leads through a symbolic link; name the real path")
        }
        PathError::InGitDir => {
            format!("`{shown}` is in a git directory, or would make one; agents do not write there")
        }
        PathError::GitDirUnknown => format!(
            "`{shown}` was not written: the git directory that `.git` names here cannot be found, and it must \
             not be written in; a person has to repair `.git`"
        ),
        PathError::Protected => {
            format!(
                "`{shown}` is a record or a setting of adjutant itself, or of the user's agents; no agent may write it"
            )
        }
        PathError::Exists => format!("`{shown}` was created in the meantime; read it first"),
        PathError::ReadOnly => format!("`{shown}` is read-only"),
        PathError::TooLarge { max_bytes } => {
            format!("`{shown}` has more than {max_bytes} bytes, the most that is taken")
        }
        PathError::DiskFull => format!("`{shown}` was not written: no space is left on the disk"),
        PathError::Unsupported => format!("`{shown}` was not opened: {error}"),
        PathError::Io(source) => format!("`{shown}` could not be opened: {source}"),
    }
}

/// Decodes a line, or the start of one; also returns whether invalid UTF-8 was replaced.
pub(crate) fn decode(bytes: &[u8], is_whole: bool) -> (Cow<'_, str>, bool) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (Cow::Borrowed(text), false),
        // The start of a longer line may end inside a character, which is not an error of the file.
        Err(error) if !is_whole && error.error_len().is_none() => {
            (String::from_utf8_lossy(&bytes[..error.valid_up_to()]), false)
        }
        Err(_) => (String::from_utf8_lossy(bytes), true),
    }
}

/// Returns the first `max` characters of `text` if it is longer.
pub(crate) fn first_chars(text: &str, max: usize) -> Option<&str> {
    if text.len() <= max {
        return None;
    }
    text.char_indices().nth(max).map(|(end, _)| &text[..end])
}
