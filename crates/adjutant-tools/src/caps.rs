//! How much one call may read, visit and return.

/// The limits of a call; all inclusive. What a limit cut away is said in the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToolCaps {
    /// Bytes of text one Read returns.
    pub read_bytes: usize,
    /// Lines one Read returns.
    pub read_lines: u64,
    /// Characters shown of one line of a file.
    pub line_chars: usize,
    /// Matching lines, or files, one Grep returns.
    pub grep_matches: usize,
    /// Characters shown of one line found by Grep.
    pub grep_line_chars: usize,
    /// Paths one Glob returns.
    pub glob_paths: usize,
    /// Bytes of text one Grep or Glob returns.
    pub search_bytes: usize,
    /// Directory entries one Grep or Glob visits.
    pub visited_entries: usize,
    /// Bytes of one note.
    pub note_bytes: usize,
    /// Bytes of a file that Write or Edit makes, and of one that they replace.
    pub write_bytes: u64,
    /// Bytes of output one Run returns: half from its beginning, half from its end.
    pub run_bytes: usize,
    /// Seconds one Run may ask for.
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
