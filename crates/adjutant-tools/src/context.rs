//! Context files: files whose content a brief includes in a child's prompt.
//!
//! A missing file is only a warning. A file outside the root, a non-regular file or one over the size limit
//! refuses the whole task before any model call. Start at [`load_context`].

use std::fmt::Write;
use std::io::{self, Read};

use adjutant_workspace::{PathError, Root};

use crate::Masker;
use crate::args::brief;
use crate::quote::{attribute, tag};

/// The default size limit of a context file. Inclusive; the same as the limit of one Read.
pub const CONTEXT_CAP_BYTES: u64 = 256 * 1024;

/// A context file named by a brief.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContextFileContent {
    /// The path as written in the brief.
    pub path: String,
    /// Its content, if it exists.
    pub state: ContextFileState,
}

/// The result of reading a context file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContextFileState {
    /// The file was read; secrets in it are masked.
    Loaded {
        /// The content.
        text: String,
        /// Whether invalid UTF-8 was replaced.
        lossy: bool,
    },
    /// The file does not exist.
    Missing,
}

/// Why a task is refused because of one of its context files.
#[derive(Debug, thiserror::Error)]
pub enum ContextFileError {
    /// The path leaves the root or is not a readable regular file.
    #[error("context file `{path}`")]
    Path {
        /// The path as written in the brief.
        path: String,
        /// The problem with the path.
        source: PathError,
    },
    /// The file is too large.
    #[error("context file `{path}` has more than {cap_bytes} bytes")]
    TooLarge {
        /// The path as written in the brief.
        path: String,
        /// The limit in bytes. Inclusive.
        cap_bytes: u64,
    },
    /// The file was opened but could not be read.
    #[error("context file `{path}` could not be read")]
    Io {
        /// The path as written in the brief.
        path: String,
        /// The system's error.
        source: io::Error,
    },
}

/// Reads the context files of a brief in order, each up to `cap_bytes`.
///
/// # Errors
///
/// If a file refuses the task; see [`ContextFileError`].
pub fn load_context<P: AsRef<str>>(
    root: &Root,
    paths: &[P],
    cap_bytes: u64,
    masker: &Masker,
) -> Result<Vec<ContextFileContent>, ContextFileError> {
    paths.iter().map(|path| load(root, path.as_ref(), cap_bytes, masker)).collect()
}

/// Formats context files for a prompt: each with its path, inside tags that its content cannot close.
#[must_use]
pub fn render_context(files: &[ContextFileContent]) -> String {
    let mut out = String::new();
    for file in files {
        let path = attribute(&file.path);
        let _ = match &file.state {
            ContextFileState::Missing => writeln!(out, "<file path=\"{path}\" missing=\"true\"/>"),
            ContextFileState::Loaded { text, lossy } => {
                let tag = tag("file", text);
                let note = if *lossy { " note=\"invalid UTF-8 was replaced\"" } else { "" };
                let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
                writeln!(out, "<{tag} path=\"{path}\"{note}>\n{text}{end}</{tag}>")
            }
        };
    }
    out
}

fn load(
    root: &Root,
    written: &str,
    cap_bytes: u64,
    masker: &Masker,
) -> Result<ContextFileContent, ContextFileError> {
    let path = written.to_owned();
    let opened = match root.relative(written).and_then(|path| root.open_file(&path)) {
        Ok(opened) => opened,
        Err(PathError::NotFound) => {
            return Ok(ContextFileContent { path, state: ContextFileState::Missing });
        }
        Err(source) => return Err(ContextFileError::Path { path: brief(written), source }),
    };
    let mut bytes = Vec::new();
    if opened.len <= cap_bytes {
        // Reads one byte more than the limit, because the file may have grown since its size was checked.
        let read = opened.file.take(cap_bytes.saturating_add(1)).read_to_end(&mut bytes);
        read.map_err(|source| ContextFileError::Io { path: brief(written), source })?;
    }
    if opened.len > cap_bytes || bytes.len() as u64 > cap_bytes {
        return Err(ContextFileError::TooLarge { path: brief(written), cap_bytes });
    }
    let (text, lossy) = match String::from_utf8(bytes) {
        Ok(text) => (text, false),
        Err(error) => (String::from_utf8_lossy(error.as_bytes()).into_owned(), true),
    };
    let text = masker.mask_owned(text);
    Ok(ContextFileContent { path, state: ContextFileState::Loaded { text, lossy } })
}
