//! Reads a file line by line in constant memory, whatever the length of its lines.
//!
//! Keeps only the start of a long line and counts the rest. Start at [`LineReader::next`].

use std::fs::File;
use std::io::{self, Read};

/// The maximum number of bytes read to find the end of a line.
///
/// Reading stops there, because a sparse file without line breaks would take minutes to read.
pub(crate) const MAX_LINE_BYTES: u64 = 16 * 1024 * 1024;

/// The maximum number of bytes per read.
const CHUNK_BYTES: u64 = 64 * 1024;

/// The next piece of a file.
pub(crate) enum NextLine<'lines> {
    /// A line, without its newline.
    Line(FileLine<'lines>),
    /// The start of a line that does not end within [`MAX_LINE_BYTES`]; reading ends here.
    Endless(FileLine<'lines>),
    /// The end of the file.
    End,
    /// The caller asked to stop.
    Stopped,
}

/// A line, or the start of one.
pub(crate) struct FileLine<'lines> {
    /// The kept bytes of the line.
    pub(crate) bytes: &'lines [u8],
    /// The length of the whole line, or the number of bytes read of an endless one.
    pub(crate) len: u64,
}

impl FileLine<'_> {
    /// Returns whether the whole line was kept.
    pub(crate) fn is_whole(&self) -> bool {
        self.bytes.len() as u64 == self.len
    }
}

/// Reads a file line by line.
pub(crate) struct LineReader<'call> {
    file: File,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    kept: Vec<u8>,
    should_stop: &'call dyn Fn() -> bool,
}

impl<'call> LineReader<'call> {
    pub(crate) fn new(file: File, len: u64, should_stop: &'call dyn Fn() -> bool) -> Self {
        // One byte more than the file size, so that a small file needs only two reads.
        let size = usize::try_from(len.saturating_add(1).clamp(512, CHUNK_BYTES)).unwrap_or(512);
        Self { file, buffer: vec![0; size], start: 0, end: 0, kept: Vec::new(), should_stop }
    }

    /// Returns the first bytes of the file without consuming them.
    pub(crate) fn peek(&mut self) -> io::Result<&[u8]> {
        if self.start == self.end {
            self.fill()?;
        }
        Ok(&self.buffer[self.start..self.end])
    }

    /// Returns the next line, keeping at most `keep` bytes of a line that spans chunks.
    pub(crate) fn next(&mut self, keep: usize) -> io::Result<NextLine<'_>> {
        self.kept.clear();
        let mut len = 0_u64;
        loop {
            if self.start == self.end {
                if (self.should_stop)() {
                    return Ok(NextLine::Stopped);
                }
                if self.fill()? == 0 {
                    break;
                }
            }
            let from = self.start;
            let newline = memchr::memchr(b'\n', &self.buffer[from..self.end]);
            let part_len = newline.unwrap_or(self.end - from);
            self.start = from + part_len + usize::from(newline.is_some());
            if len == 0 && newline.is_some() {
                let bytes = &self.buffer[from..from + part_len.min(keep)];
                return Ok(NextLine::Line(FileLine { bytes, len: part_len as u64 }));
            }
            len += part_len as u64;
            let room = keep.saturating_sub(self.kept.len());
            self.kept.extend_from_slice(&self.buffer[from..from + part_len.min(room)]);
            if newline.is_some() {
                return Ok(NextLine::Line(FileLine { bytes: &self.kept, len }));
            }
            if len > MAX_LINE_BYTES {
                return Ok(NextLine::Endless(FileLine { bytes: &self.kept, len }));
            }
        }
        Ok(if len == 0 {
            NextLine::End
        } else {
            NextLine::Line(FileLine { bytes: &self.kept, len })
        })
    }

    /// Counts the remaining lines, giving up after about `budget` bytes.
    ///
    /// Returns the count and whether it is complete.
    pub(crate) fn count_rest(&mut self, mut budget: u64) -> io::Result<(u64, bool)> {
        let (mut lines, mut open) = (0, false);
        loop {
            let chunk = &self.buffer[self.start..self.end];
            lines += memchr::memchr_iter(b'\n', chunk).count() as u64;
            open = chunk.last().map_or(open, |byte| *byte != b'\n');
            budget = budget.saturating_sub(chunk.len() as u64);
            self.start = self.end;
            if budget == 0 || (self.should_stop)() {
                return Ok((lines, false));
            }
            if self.fill()? == 0 {
                return Ok((lines + u64::from(open), true));
            }
        }
    }

    fn fill(&mut self) -> io::Result<usize> {
        (self.start, self.end) = (0, 0);
        loop {
            match self.file.read(&mut self.buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
                Ok(read) => {
                    self.end = read;
                    return Ok(read);
                }
            }
        }
    }
}
