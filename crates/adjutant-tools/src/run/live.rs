//! Live output of a command: keeps its start and end, and shows the latest lines while it runs.
//!
//! Invariant: only whole lines are masked and shown, because part of a secret would not be recognized.

use std::time::{Duration, Instant};

use adjutant_workspace::sandbox::{BoundedOutput, OutputSink, OutputStream};

use super::text::{self, clean_output};
use crate::Masker;
use crate::mask::{KeyLineTracker, SecretKind};

/// The minimum time between two shown chunks, which limits a flood to ten events per second.
const PACE: Duration = Duration::from_millis(100);

/// The maximum size of a chunk.
const CHUNK_BYTES: usize = 4 * 1024;

/// The maximum size of the buffer between two chunks. A longer line is not shown while the command runs.
const HELD_BYTES: usize = 64 * 1024;

/// Receives the output of one command.
pub(super) struct LiveOutput<'call> {
    kept: BoundedOutput,
    masker: &'call Masker,
    on_output: &'call mut dyn FnMut(&str),
    /// Output that was not shown yet.
    held: Vec<u8>,
    has_line: bool,
    /// Whether the first line in `held` is incomplete, because its start was dropped.
    is_torn: bool,
    /// Whether lines were dropped, one of which may have started a private key.
    has_gap: bool,
    keys: KeyLineTracker,
    /// The time at which the next chunk may be shown.
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

    /// Says whether a part of the output was not kept.
    pub(super) fn is_cut(&self) -> bool {
        self.kept.cut_bytes() > 0
    }

    /// Shows the rest of the output and returns the kept text.
    pub(super) fn finish(mut self) -> String {
        self.show(self.held.len());
        text::kept_output_text(&self.kept, self.masker)
    }

    fn hold_back(&mut self, bytes: &[u8]) {
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

    /// Shows the buffer up to `end`, which is the end of a line or of the output.
    fn show(&mut self, end: usize) {
        let lines: Vec<u8> = self.held.drain(..end).collect();
        let from = match memchr::memchr2(b'\n', b'\r', &lines) {
            Some(at) if self.is_torn => at + 1,
            None if self.is_torn => lines.len(),
            Some(_) | None => 0,
        };
        self.is_torn &= lines.is_empty();
        let text = self.without_keys(&clean_output(&lines[from..]));
        let text = self.masker.mask(&text);
        let shown = latest(&text);
        if !shown.is_empty() {
            (self.on_output)(&shown);
            self.next = Instant::now() + PACE;
        }
    }

    /// Removes the bodies of private keys, including those that began in an earlier chunk.
    fn without_keys(&mut self, text: &str) -> String {
        let orphaned = if self.has_gap { text::orphaned_key(text.as_bytes()) } else { 0 };
        // The whole text is the body of a key, so its end is still to come.
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
        self.hold_back(bytes);
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

/// Returns the end of a text that is too long for one chunk, starting at a line if possible.
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
