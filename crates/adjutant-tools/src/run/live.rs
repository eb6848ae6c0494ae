//! Output while it comes: everything is counted, the beginning and the end are kept, the latest lines are shown.
//!
//! Invariant: what is shown was masked as whole lines, because half a secret would not be known as one.

use std::time::{Duration, Instant};

use adjutant_workspace::sandbox::{BoundedOutput, OutputSink, OutputStream};

use super::text::{self, cleaned};
use crate::Masker;
use crate::mask::{KeyLineTracker, SecretKind};

/// The time between two chunks that are shown: a flood becomes ten events a second.
const PACE: Duration = Duration::from_millis(100);

/// The most that one chunk holds.
const CHUNK_BYTES: usize = 4 * 1024;

/// How much is held between two chunks. A line that is longer is not shown while the command runs.
const HELD_BYTES: usize = 64 * 1024;

/// Where the output of one command goes.
pub(super) struct LiveOutput<'call> {
    kept: BoundedOutput,
    masker: &'call Masker,
    on_output: &'call mut dyn FnMut(&str),
    /// What came and was not shown yet.
    held: Vec<u8>,
    has_line: bool,
    /// Whether the line at the beginning of `held` has lost its own beginning.
    is_torn: bool,
    /// Whether lines were lost, one of which may have begun a key.
    has_gap: bool,
    keys: KeyLineTracker,
    /// When the next chunk may be shown.
    next: Instant,
}

impl<'call> LiveOutput<'call> {
    pub(super) fn new(
        max_bytes: usize,
        masker: &'call Masker,
        on_output: &'call mut dyn FnMut(&str),
    ) -> Self {
        Self {
            kept: BoundedOutput::new(max_bytes),
            masker,
            on_output,
            held: Vec::new(),
            has_line: false,
            is_torn: false,
            has_gap: false,
            keys: KeyLineTracker::default(),
            next: Instant::now(),
        }
    }

    /// Shows what was not shown yet and returns all that was kept.
    pub(super) fn finish(mut self) -> String {
        self.show(self.held.len());
        text::kept(&self.kept, self.masker)
    }

    fn hold(&mut self, bytes: &[u8]) {
        let kept = bytes.len().min(HELD_BYTES);
        let lost = (self.held.len() + kept).saturating_sub(HELD_BYTES);
        if lost > 0 || kept < bytes.len() {
            self.is_torn = true;
            self.has_gap = true;
        }
        self.held.drain(..lost);
        self.held.extend_from_slice(&bytes[bytes.len() - kept..]);
        self.has_line |= memchr::memchr2(b'\n', b'\r', bytes).is_some();
    }

    fn show_lines(&mut self) {
        let end = memchr::memrchr2(b'\n', b'\r', &self.held).map_or(0, |at| at + 1);
        self.show(end);
        self.has_line = false;
    }

    /// Shows what is held up to `end`, which lies between two lines or at the end of all.
    fn show(&mut self, end: usize) {
        let lines: Vec<u8> = self.held.drain(..end).collect();
        let from = match memchr::memchr2(b'\n', b'\r', &lines) {
            Some(at) if self.is_torn => at + 1,
            None if self.is_torn => lines.len(),
            Some(_) | None => 0,
        };
        self.is_torn &= lines.is_empty();
        let text = self.without_keys(&cleaned(&lines[from..]));
        let text = self.masker.mask(&text);
        let shown = latest(&text);
        if !shown.is_empty() {
            (self.on_output)(&shown);
            self.next = Instant::now() + PACE;
        }
    }

    /// Leaves out the bodies of keys, also of those that began in an earlier chunk.
    fn without_keys(&mut self, text: &str) -> String {
        let orphaned = if self.has_gap { text::orphaned_key(text.as_bytes()) } else { 0 };
        // Nothing but the body of a key: its end is still to come.
        self.has_gap &= orphaned == text.len();
        let mut out = String::with_capacity(text.len());
        let mut was_key = false;
        for line in text[orphaned..].split_inclusive('\n') {
            let is_key = self.keys.is_key(line.as_bytes());
            match (is_key, was_key) {
                (false, _) => out.push_str(line),
                (true, false) => {
                    out.push_str(SecretKind::PrivateKey.replacement());
                    out.push('\n');
                }
                (true, true) => {}
            }
            was_key = is_key;
        }
        out
    }
}

impl OutputSink for LiveOutput<'_> {
    fn chunk(&mut self, stream: OutputStream, bytes: &[u8]) {
        self.kept.chunk(stream, bytes);
        self.hold(bytes);
        if self.due().is_some_and(|due| due <= Instant::now()) {
            self.show_lines();
        }
    }

    fn due(&self) -> Option<Instant> {
        self.has_line.then_some(self.next)
    }

    fn wake(&mut self) {
        self.show_lines();
    }
}

/// Returns the end of a text that is too long for one chunk, from the beginning of a line where there is one.
fn latest(text: &str) -> String {
    const CUT: &str = "…\n";
    if text.len() <= CHUNK_BYTES {
        return text.to_owned();
    }
    let tail = &text[text.ceil_char_boundary(text.len() - (CHUNK_BYTES - CUT.len()))..];
    let tail = match tail.find('\n') {
        Some(at) if at + 1 < tail.len() => &tail[at + 1..],
        Some(_) | None => tail,
    };
    format!("{CUT}{tail}")
}
