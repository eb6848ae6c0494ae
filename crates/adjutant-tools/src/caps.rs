//! The limits of one tool call: how much it may read, search and return.

/// The limits of one tool call, all inclusive. The result says what a limit cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToolCaps {
    /// The maximum number of bytes that one Read returns.
    pub read_bytes: usize,
    /// The maximum number of lines that one Read returns.
    pub read_lines: u64,
    /// The maximum number of characters shown of one line.
    pub line_chars: usize,
    /// The maximum number of matching lines, or files, that one Grep returns.
    pub grep_matches: usize,
    /// The maximum number of characters shown of one line found by Grep.
    pub grep_line_chars: usize,
    /// The maximum number of paths that one Glob returns.
    pub glob_paths: usize,
    /// The maximum number of bytes that one Grep or Glob returns.
    pub search_bytes: usize,
    /// The maximum number of directory entries that one Grep or Glob visits.
    pub visited_entries: usize,
    /// The maximum size of a note in bytes.
    pub note_bytes: usize,
    /// The maximum size in bytes of a file that Write or Edit creates or replaces.
    pub write_bytes: u64,
    /// The maximum number of bytes of output that one Run returns: half from the start, half from the end.
    pub run_bytes: usize,
    /// The maximum timeout of a Run, in seconds.
    pub run_seconds: u64,
}

impl Default for ToolCaps {
    fn default() -> Self {
        Self {
            read_bytes: 256 * 1024,
            read_lines: 2_000,
            line_chars: 2_000,
            grep_matches: 500,
            grep_line_chars: 400,
            glob_paths: 1_000,
            search_bytes: 64 * 1024,
            visited_entries: 100_000,
            note_bytes: 4 * 1024,
            write_bytes: 8 * 1024 * 1024,
            run_bytes: 32 * 1024,
            run_seconds: 600,
        }
    }
}
