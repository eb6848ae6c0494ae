//! Files that a brief hands to a child before its first word.
//!
//! A missing file is a warning the child can live with; a file that lies outside, is not regular
//! or is over the cap refuses the whole task, before any model call. Start at [`load_context`].

use std::fmt::Write;
use std::io::{self, Read};

use adjutant_workspace::{PathError, Root};

use crate::Masker;
use crate::args::brief;
use crate::quote::{attribute, tag};

/// The usual cap of one context file. Inclusive; what one Read would return at most.
pub const CONTEXT_CAP_BYTES: u64 = 256 * 1024;

/// A file a brief names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContextFileContent {
    /// The path as the brief wrote it.
    pub path: String,
    /// What was found there.
    pub state: ContextFileState,
}

/// What became of a context file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContextFileState {
    /// It was read; secrets in it are masked.
    Loaded {
        /// The content.
        text: String,
        /// Whether invalid UTF-8 was replaced.
        lossy: bool,
    },
    /// It does not exist.
    Missing,
}

/// Says why a task with such a context file is refused.
#[derive(Debug, thiserror::Error)]
pub enum ContextFileError {
    /// The path leads elsewhere, or to something that is not a readable regular file.
    #[error("context file `{path}`")]
    Path {
        /// The path as the brief wrote it.
        path: String,
        /// What is wrong with it.
        source: PathError,
    },
    /// The file is larger than a context file may be.
    #[error("context file `{path}` has more than {cap_bytes} bytes")]
    TooLarge {
        /// The path as the brief wrote it.
        path: String,
        /// The cap. Inclusive.
        cap_bytes: u64,
    },
    /// The file was opened but could not be read.
    #[error("context file `{path}` could not be read")]
    Io {
        /// The path as the brief wrote it.
        path: String,
        /// What the system said.
        source: io::Error,
    },
}

/// Reads the context files of a brief, each up to `cap_bytes`, in their order.
///
/// # Errors
///
/// The first file that refuses the task; see [`ContextFileError`].
pub fn load_context<P: AsRef<str>>(
    root: &Root,
    paths: &[P],
    cap_bytes: u64,
    masker: &Masker,
) -> Result<Vec<ContextFileContent>, ContextFileError> {
    paths.iter().map(|path| load(root, path.as_ref(), cap_bytes, masker)).collect()
}

/// Renders context files for a prompt: each quoted with its origin, in tags it cannot close.
#[must_use]
pub fn render_context(files: &[ContextFileContent]) -> String {
    let mut out = String::new();
    for file in files {
        let path = attribute(&file.path);
        // Writing to a string cannot fail.
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
        // One byte more than allowed: the file may have grown since its size was asked for.
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
