//! The matching lines of one file in a Grep.
//!
//! Keeps only the lines that will be shown. Lines are masked before they are cut, so that no part of a secret
//! remains at the cut. Start at [`FileMatches::search`].

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs::File;
use std::io::{self, Read, Seek};

use grep_matcher::Matcher;
use grep_regex::RegexMatcher;
use grep_searcher::{Searcher, Sink, SinkContext, SinkContextKind, SinkMatch};

use crate::line_reader::{LineReader, NextLine};
use crate::mask::{KeyLineTracker, SecretKind, is_body_line};
use crate::show;
use crate::toolbox::ToolCallContext;

/// How many bytes around a match are considered in a very long line.
const AROUND_BYTES: usize = 16 * 1024;

/// The minimum length of a line that may belong to a private key.
const KEY_LINE_BYTES: usize = 16;

/// What a Grep returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GrepOutputMode {
    /// The matching lines.
    Content,
    /// The files that match.
    Files,
    /// How many lines match, per file.
    Count,
}

/// How the search of one file ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileSearchEnd {
    /// The file was searched completely, or as far as needed.
    Done,
    /// The file is binary; its matches are dropped.
    Binary,
    /// The caller asked to stop.
    Stopped,
    /// The file could not be read, or a line is too long.
    Failed,
}

/// The matching lines of one file.
pub(crate) struct FileMatches<'call> {
    call: &'call ToolCallContext<'call>,
    matcher: &'call RegexMatcher,
    mode: GrepOutputMode,
    /// The number of matching lines that may still be kept.
    room: usize,
    /// The number of matching lines that are not kept, because they come before the first that is wanted.
    skip: usize,
    pub(crate) skipped: usize,
    /// The lines with their context; `None` separates groups that are not adjacent.
    lines: Vec<Option<MatchedLine>>,
    /// The number of matching lines.
    pub(crate) matches: usize,
    /// Whether there are more matches than could be kept.
    pub(crate) more: bool,
    is_binary: bool,
    may_hold_key: bool,
}

struct MatchedLine {
    number: u64,
    is_match: bool,
    text: String,
}

impl<'call> FileMatches<'call> {
    pub(crate) fn new(
        call: &'call ToolCallContext<'call>,
        matcher: &'call RegexMatcher,
        mode: GrepOutputMode,
        room: usize,
        skip: usize,
    ) -> Self {
        let (lines, matches, skipped) = (Vec::new(), 0, 0);
        let (more, is_binary, may_hold_key) = (false, false, false);
        Self {
            call,
            matcher,
            mode,
            room,
            skip,
            skipped,
            lines,
            matches,
            more,
            is_binary,
            may_hold_key,
        }
    }

    /// Returns how many of the first `lines` lines are matches.
    pub(crate) fn matches_in(&self, lines: usize) -> usize {
        self.lines.iter().take(lines).flatten().filter(|line| line.is_match).count()
    }

    /// Searches `file` from the start.
    pub(crate) fn search(&mut self, searcher: &mut Searcher, file: &File) -> FileSearchEnd {
        let mut reader = StoppableFile { file, should_stop: self.call.should_stop, stopped: false };
        let result = searcher.search_reader(self.matcher, &mut reader, &mut *self);
        match result {
            _ if self.is_binary => FileSearchEnd::Binary,
            _ if reader.stopped => FileSearchEnd::Stopped,
            Ok(()) => FileSearchEnd::Done,
            Err(_) => FileSearchEnd::Failed,
        }
    }

    /// Writes the lines, each with its number and `:`, or `-` for context.
    pub(crate) fn write(&mut self, file: File, out: &mut String) {
        let keys = if self.may_hold_key { self.key_lines(file) } else { BTreeSet::new() };
        for line in &self.lines {
            let _ = match line {
                None => writeln!(out, "--"),
                Some(hit) => {
                    let sign = if hit.is_match { ':' } else { '-' };
                    let key = keys.contains(&hit.number);
                    let text = if key { SecretKind::PrivateKey.replacement() } else { &hit.text };
                    writeln!(out, "{}{sign}{text}", hit.number)
                }
            };
        }
    }

    /// Returns the numbers of the lines that belong to a private key, by reading the file again.
    ///
    /// If the file cannot be read as far as the last match, all lines are treated as part of a key.
    fn key_lines(&self, mut file: File) -> BTreeSet<u64> {
        let mut wanted: BTreeSet<u64> = self.lines.iter().flatten().map(|hit| hit.number).collect();
        let Some(last) = wanted.last().copied().filter(|_| file.rewind().is_ok()) else {
            return wanted;
        };
        let mut lines = LineReader::new(file, u64::MAX, self.call.should_stop);
        let mut keys = KeyLineTracker::default();
        for number in 1..=last {
            match lines.next(256) {
                Ok(NextLine::Line(line)) => {
                    if !keys.is_key(line.bytes) {
                        wanted.remove(&number);
                    }
                }
                Ok(NextLine::Endless(_) | NextLine::End | NextLine::Stopped) | Err(_) => break,
            }
        }
        wanted
    }

    fn push(&mut self, bytes: &[u8], number: Option<u64>, is_match: bool) {
        let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
        self.may_hold_key |= bytes.len() >= KEY_LINE_BYTES && is_body_line(bytes);
        let text = self.excerpt(bytes, is_match);
        self.lines.push(Some(MatchedLine { number: number.unwrap_or_default(), is_match, text }));
    }

    /// Returns a line, or the part of a long line around its match.
    fn excerpt(&self, bytes: &[u8], is_match: bool) -> String {
        let max = self.call.caps.grep_line_chars;
        if bytes.len() <= max {
            return String::from_utf8_lossy(bytes).into_owned();
        }
        let at = if is_match { self.position(bytes) } else { 0 };
        let around = at.saturating_sub(AROUND_BYTES)..bytes.len().min(at + AROUND_BYTES);
        let is_cut = around.start > 0 || around.end < bytes.len();
        let text = String::from_utf8_lossy(&bytes[around]);
        let masked = self.call.masker.mask(&text);
        let at = if is_match { self.position(masked.as_bytes()) } else { 0 };
        let before = masked.floor_char_boundary(at.saturating_sub(max / 4));
        let rest = &masked[before..];
        let shown = show::first_chars(rest, max);
        let head = if before > 0 { "…" } else { "" };
        let tail = if shown.is_some() || is_cut { "…" } else { "" };
        format!("{head}{}{tail} [part of {} bytes]", shown.unwrap_or(rest), bytes.len())
    }

    fn position(&self, bytes: &[u8]) -> usize {
        self.matcher.find(bytes).ok().flatten().map_or(0, |found| found.start())
    }
}

impl Sink for &mut FileMatches<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> Result<bool, io::Error> {
        match self.mode {
            GrepOutputMode::Files => {
                self.matches = 1;
                return Ok(false);
            }
            GrepOutputMode::Count => {
                self.matches += 1;
                return Ok(true);
            }
            GrepOutputMode::Content if self.skipped < self.skip => {
                self.skipped += 1;
                return Ok(true);
            }
            GrepOutputMode::Content if self.matches == self.room => {
                self.more = true;
                return Ok(false);
            }
            GrepOutputMode::Content => {}
        }
        self.matches += 1;
        self.push(found.bytes(), found.line_number(), true);
        Ok(true)
    }

    fn context(&mut self, _: &Searcher, line: &SinkContext<'_>) -> Result<bool, io::Error> {
        // Skips the context of matches that are not kept.
        let is_shown = match line.kind() {
            SinkContextKind::Before => self.skipped == self.skip && self.matches < self.room,
            SinkContextKind::After | SinkContextKind::Other => self.matches > 0,
        };
        if is_shown {
            self.push(line.bytes(), line.line_number(), false);
        }
        Ok(true)
    }

    fn context_break(&mut self, _: &Searcher) -> Result<bool, io::Error> {
        if self.matches > 0 && self.matches < self.room {
            self.lines.push(None);
        }
        Ok(true)
    }

    fn binary_data(&mut self, _: &Searcher, _: u64) -> Result<bool, io::Error> {
        self.is_binary = true;
        Ok(false)
    }
}

/// A file whose reads fail once the caller asks to stop.
struct StoppableFile<'call> {
    file: &'call File,
    should_stop: &'call dyn Fn() -> bool,
    stopped: bool,
}

impl Read for StoppableFile<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if (self.should_stop)() {
            self.stopped = true;
            return Err(io::Error::other("stopped"));
        }
        self.file.read(buffer)
    }
}
