//! The tool Read, which shows a file or part of it with line numbers.
//!
//! Reads as a stream, so memory use depends on the shown part, not on the file size. Start at [`read`].

use std::fmt::Write;
use std::io;

use adjutant_workspace::OpenedFile;

use crate::args::{CallArguments, ToolArgumentError};
use crate::line_reader::{FileLine, LineReader, MAX_LINE_BYTES, NextLine};
use crate::mask::{KeyLineTracker, SecretKind};
use crate::output::{ToolCallResult, remark};
use crate::toolbox::ToolCallContext;
use crate::{ToolName, show};

/// The number of bytes at the start in which a NUL byte marks a file as binary.
const BINARY_BYTES: usize = 8 * 1024;

/// How many bytes of a line are kept beyond the shown part, so that a secret at the cut is masked first.
const CUT_MARGIN_BYTES: usize = 4 * 1024;

/// How many bytes are kept of a skipped line, enough to recognize the markers of a key block.
const SKIPPED_BYTES: usize = 256;

/// The maximum number of bytes read only to count the remaining lines.
const COUNT_BYTES: u64 = 64 * 1024 * 1024;

/// How many cut lines are listed by number; more are only counted.
const NAMED_LINES: usize = 10;

/// Executes a call of Read.
pub(crate) fn read(call: &ToolCallContext<'_>) -> Result<ToolCallResult, ToolArgumentError> {
    let args = CallArguments::new(ToolName::Read, call.arguments)?;
    let written = args.required("file_path")?;
    let offset = args.number("offset", 1)?.unwrap_or(1);
    let limit = args.number("limit", 1)?.unwrap_or(u64::MAX).min(call.caps.read_lines);
    let (path, opened) = match call.open(&written) {
        Ok(opened) => opened,
        Err(error) => return Ok(ToolCallResult::error(show::path_error(&written, &error))),
    };
    let mut output = match page(call, opened, offset, limit) {
        Ok(output) => output,
        Err(error) => return Ok(ToolCallResult::error(format!("`{written}` broke off: {error}"))),
    };
    if !output.is_error {
        output.touched.push(path.as_path().to_string_lossy().into_owned());
    }
    Ok(output)
}

fn page(
    call: &ToolCallContext<'_>,
    opened: OpenedFile,
    offset: u64,
    limit: u64,
) -> io::Result<ToolCallResult> {
    let len = opened.len;
    let mut lines = LineReader::new(opened.file, len, call.should_stop);
    let head = lines.peek()?;
    if head.is_empty() {
        return Ok(ToolCallResult::ok("[the file is empty]"));
    }
    if head[..head.len().min(BINARY_BYTES)].contains(&0) {
        return Ok(ToolCallResult::error(format!("binary file of {len} bytes, not shown")));
    }
    let mut page = FilePage::new(call, offset, limit);
    page.fill(&mut lines)?;
    page.finish(&mut lines)
}

/// The shown lines and the remarks about them.
struct FilePage<'call> {
    call: &'call ToolCallContext<'call>,
    offset: u64,
    limit: u64,
    text: String,
    /// The number of the last line read.
    at: u64,
    /// The number of the last line shown.
    last: u64,
    keys: KeyLineTracker,
    in_key: bool,
    cut_lines: Vec<u64>,
    cut_count: usize,
    lossy: bool,
    crlf: u64,
    end: PageEnd,
}

/// Why a Read returned no more lines.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PageEnd {
    OfFile,
    Lines,
    Bytes,
    /// The last line read does not end within [`MAX_LINE_BYTES`].
    EndlessLine,
    Stopped,
}

impl<'call> FilePage<'call> {
    fn new(call: &'call ToolCallContext<'call>, offset: u64, limit: u64) -> Self {
        Self {
            call,
            offset,
            limit,
            text: String::new(),
            at: 0,
            last: 0,
            keys: KeyLineTracker::default(),
            in_key: false,
            cut_lines: Vec::new(),
            cut_count: 0,
            lossy: false,
            crlf: 0,
            end: PageEnd::OfFile,
        }
    }

    fn fill(&mut self, lines: &mut LineReader<'_>) -> io::Result<()> {
        let keep = self.call.caps.line_chars.saturating_mul(4).saturating_add(CUT_MARGIN_BYTES);
        loop {
            let shown = self.at + 1 >= self.offset;
            let (line, is_endless) = match lines.next(if shown { keep } else { SKIPPED_BYTES })? {
                NextLine::Line(line) => (line, false),
                NextLine::Endless(line) => (line, true),
                NextLine::End => return Ok(()),
                NextLine::Stopped => {
                    self.end = PageEnd::Stopped;
                    return Ok(());
                }
            };
            self.at += 1;
            let key = self.keys.is_key(line.bytes);
            if is_endless {
                self.end = PageEnd::EndlessLine;
            }
            if !shown {
                match self.end {
                    PageEnd::EndlessLine => return Ok(()),
                    PageEnd::OfFile | PageEnd::Lines | PageEnd::Bytes | PageEnd::Stopped => {
                        continue;
                    }
                }
            }
            let before = (self.text.len(), self.last);
            if self.at - self.offset == self.limit {
                self.end = PageEnd::Lines;
            } else {
                self.push(&line, key);
                if self.text.len() > self.call.caps.read_bytes && before.0 > 0 {
                    self.text.truncate(before.0);
                    self.last = before.1;
                    self.end = PageEnd::Bytes;
                }
            }
            if self.end != PageEnd::OfFile {
                return Ok(());
            }
        }
    }

    fn push(&mut self, line: &FileLine<'_>, key: bool) {
        self.last = self.at;
        if key {
            // One mask replaces all lines of a key; line numbering continues after it.
            if !self.in_key {
                self.push_text(SecretKind::PrivateKey.replacement());
            }
            self.in_key = true;
            return;
        }
        self.in_key = false;
        let whole = line.is_whole();
        let bytes = line.bytes.strip_suffix(b"\r").filter(|_| whole);
        self.crlf += u64::from(bytes.is_some());
        let (text, lossy) = show::decode(bytes.unwrap_or(line.bytes), whole);
        self.lossy |= lossy;
        let max = self.call.caps.line_chars;
        if text.len() <= max {
            return self.push_text(&text);
        }
        let masked = self.call.masker.mask(&text);
        match show::first_chars(&masked, max) {
            Some(head) => {
                self.push_text(&format!("{head}…"));
                self.cut_count += 1;
                if self.cut_lines.len() < NAMED_LINES {
                    self.cut_lines.push(self.at);
                }
            }
            None => self.push_text(&masked),
        }
    }

    fn push_text(&mut self, text: &str) {
        let _ = writeln!(self.text, "{}\t{text}", self.at);
    }

    fn finish(mut self, lines: &mut LineReader<'_>) -> io::Result<ToolCallResult> {
        let (first, last, end) = (self.offset, self.last, self.end);
        if end == PageEnd::Stopped {
            let words = format!("stopped after line {}: out of time or cancelled", self.at);
            remark(&mut self.text, words);
            return Ok(ToolCallResult { is_error: last == 0, ..ToolCallResult::ok(self.text) });
        }
        if end == PageEnd::EndlessLine {
            return Ok(self.finish_endless());
        }
        if last == 0 {
            let total = self.at;
            return Ok(ToolCallResult::error(format!(
                "offset {first} is past the end, line {total}"
            )));
        }
        if end != PageEnd::OfFile {
            let (rest, complete) = lines.count_rest(COUNT_BYTES)?;
            let total = self.at + rest;
            let least = if complete { "" } else { "at least " };
            let why = match end {
                PageEnd::Bytes => format!(" ({} byte limit)", self.call.caps.read_bytes),
                PageEnd::OfFile | PageEnd::Lines | PageEnd::EndlessLine | PageEnd::Stopped => {
                    String::new()
                }
            };
            let next = last + 1;
            let words =
                format!("lines {first}–{last} of {least}{total}{why}; continue with offset {next}");
            remark(&mut self.text, words);
        } else if first > 1 {
            remark(&mut self.text, format!("lines {first}–{last} of {last}"));
        }
        self.remarks();
        Ok(ToolCallResult::ok(self.text))
    }

    /// Adds the remark that nothing after an endless line is shown.
    fn finish_endless(mut self) -> ToolCallResult {
        let mib = MAX_LINE_BYTES >> 20;
        let words = format!("line {} is longer than {mib} MiB; nothing after it is read", self.at);
        if self.last == 0 {
            return ToolCallResult::error(format!(
                "offset {} is not reached: {words}",
                self.offset
            ));
        }
        remark(&mut self.text, words);
        self.remarks();
        ToolCallResult::ok(self.text)
    }

    fn remarks(&mut self) {
        if self.cut_count > 0 {
            let numbers: Vec<_> = self.cut_lines.iter().map(u64::to_string).collect();
            let more = if self.cut_count > NAMED_LINES { ", …" } else { "" };
            let words = format!(
                "cut after {} characters: line {}{more}",
                self.call.caps.line_chars,
                numbers.join(", ")
            );
            remark(&mut self.text, words);
        }
        if self.crlf > 0 {
            remark(&mut self.text, format!("{} of the lines shown end in CRLF", self.crlf));
        }
        if self.lossy {
            remark(&mut self.text, "invalid UTF-8 was replaced by U+FFFD");
        }
    }
}
