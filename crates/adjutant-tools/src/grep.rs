//! The tool Grep, which returns lines, files or counts that match a regular expression.
//!
//! Uses ripgrep's matcher and searcher on files opened relative to directory handles. Start at [`grep`].

use std::ops::ControlFlow;
use std::path::Path;

use adjutant_workspace::{FileKind, OpenedFile, PathError};
use grep_matcher::LineTerminator;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder};

use crate::args::{CallArguments, ToolArgumentError};
use crate::file_matches::{FileMatches, FileSearchEnd, GrepOutputMode};
use crate::glob_pattern::{GlobPattern, is_hidden};
use crate::output::{ToolCallResult, count, remark};
use crate::toolbox::ToolCallContext;
use crate::walk::{WalkOptions, WalkSummary, walk};
use crate::{ToolName, show};

/// The maximum length of an expression, and the maximum memory of its automata.
const MAX_PATTERN_BYTES: usize = 8 * 1024;
const MAX_REGEX_BYTES: usize = 10 * 1024 * 1024;

/// The maximum length of a line that can be searched.
const MAX_LINE_BYTES: usize = 64 * 1024 * 1024;

/// The maximum number of context lines on either side of a match.
const MAX_CONTEXT: u64 = 10;

/// Executes a call of Grep.
pub(crate) fn grep(call: &ToolCallContext<'_>) -> Result<ToolCallResult, ToolArgumentError> {
    let args = CallArguments::new(ToolName::Grep, call.arguments)?;
    let matcher = matcher(&args)?;
    let mode = mode(&args)?;
    let filter = match args.text("glob")?.filter(|glob| !glob.is_empty()) {
        Some(written) => Some(GlobPattern::new("glob", &written, call.root)?),
        None => None,
    };
    let context = args.number("context", 0)?.unwrap_or(0);
    let before = args.number("before", 0)?.unwrap_or(context).min(MAX_CONTEXT);
    let after = args.number("after", 0)?.unwrap_or(context).min(MAX_CONTEXT);
    let offset = args.number("offset", 1)?.and_then(|offset| usize::try_from(offset).ok());
    let limit = args.number("limit", 1)?.and_then(|limit| usize::try_from(limit).ok());
    let mut search = GrepSearch {
        call,
        matcher: &matcher,
        searcher: if mode == GrepOutputMode::Content {
            searcher(before, after)
        } else {
            searcher(0, 0)
        },
        mode,
        limit: limit.unwrap_or(usize::MAX).min(call.caps.grep_matches),
        skip: offset.map_or(0, |offset| offset - 1),
        text: String::new(),
        tally: GrepSummary::default(),
        touched: Vec::new(),
    };
    let written = args.text("path")?.unwrap_or_default();
    match search.run(&written, filter.as_ref()) {
        Ok(summary) => Ok(search.finish(&summary)),
        Err(error) => Ok(ToolCallResult::error(show::path_error(&written, &error))),
    }
}

fn matcher(args: &CallArguments) -> Result<RegexMatcher, ToolArgumentError> {
    let pattern = args.required("pattern")?;
    if pattern.len() > MAX_PATTERN_BYTES {
        return Err(ToolArgumentError(format!(
            "`pattern` is longer than {MAX_PATTERN_BYTES} bytes"
        )));
    }
    RegexMatcherBuilder::new()
        .case_insensitive(args.switch("ignore_case")?)
        .line_terminator(Some(b'\n'))
        .crlf(true)
        .size_limit(MAX_REGEX_BYTES)
        .dfa_size_limit(MAX_REGEX_BYTES)
        .build(&pattern)
        .map_err(|error| {
            ToolArgumentError(format!("`pattern` is not a valid regular expression: {error}"))
        })
}

fn mode(args: &CallArguments) -> Result<GrepOutputMode, ToolArgumentError> {
    match args.text("output")?.as_deref() {
        None | Some("" | "content") => Ok(GrepOutputMode::Content),
        Some("files" | "files_with_matches") => Ok(GrepOutputMode::Files),
        Some("count") => Ok(GrepOutputMode::Count),
        Some(other) => {
            let other = crate::args::brief(other);
            let words = "`output` must be \"content\", \"files\" or \"count\"";
            Err(ToolArgumentError(format!("{words}, got {other:?}")))
        }
    }
}

fn searcher(before: u64, after: u64) -> Searcher {
    let [before, after] = [before, after].map(|lines| usize::try_from(lines).unwrap_or_default());
    SearcherBuilder::new()
        .line_number(true)
        .line_terminator(LineTerminator::crlf())
        .binary_detection(BinaryDetection::quit(0))
        .heap_limit(Some(MAX_LINE_BYTES))
        .before_context(before)
        .after_context(after)
        .build()
}

/// The state of one Grep call: what it searches for, how much it may return, and the text so far.
struct GrepSearch<'call> {
    call: &'call ToolCallContext<'call>,
    matcher: &'call RegexMatcher,
    searcher: Searcher,
    mode: GrepOutputMode,
    /// The maximum number of matching lines, or files, to return.
    limit: usize,
    /// How many of the first matching lines, or files, are not returned.
    skip: usize,
    text: String,
    tally: GrepSummary,
    touched: Vec<String>,
}

/// What a search visited and left out, for the remarks after the results.
#[derive(Default)]
struct GrepSummary {
    searched: usize,
    matching_files: usize,
    matches: usize,
    /// The matching lines, or files, before the first that is returned.
    skipped: usize,
    binary: usize,
    failed: usize,
    stopped: bool,
    /// Whether there are more matches than may be returned.
    more: bool,
}

impl GrepSearch<'_> {
    fn run(
        &mut self,
        written: &str,
        filter: Option<&GlobPattern>,
    ) -> Result<WalkSummary, PathError> {
        let start = self.call.root.relative(written)?;
        match self.call.root.open_file(&start) {
            Ok(opened) => {
                let _ = self.file(start.as_path(), opened);
                return Ok(WalkSummary::default());
            }
            Err(PathError::NotRegular(FileKind::Directory)) => {}
            Err(error) => return Err(error),
        }
        let names_hidden = filter.is_some_and(|filter| filter.names_hidden);
        let options = WalkOptions {
            hidden: names_hidden || is_hidden(start.as_path()),
            max_entries: self.call.caps.visited_entries,
            should_stop: self.call.should_stop,
        };
        walk(self.call.root, &start, &options, &mut |found| {
            let wanted = found.kind == FileKind::Regular
                && filter.is_none_or(|filter| filter.selects(found));
            if !wanted {
                return ControlFlow::Continue(());
            }
            match found.dir.open_file(found.name) {
                Ok(opened) => self.file(found.path, opened),
                Err(_) => {
                    self.tally.failed += 1;
                    ControlFlow::Continue(())
                }
            }
        })
    }

    /// Searches one file; breaks if the limit is reached.
    fn file(&mut self, path: &Path, opened: OpenedFile) -> ControlFlow<()> {
        let room = self.limit.saturating_sub(self.tally.matches);
        let skip = self.skip - self.tally.skipped;
        let mut hits = FileMatches::new(self.call, self.matcher, self.mode, room, skip);
        let end = hits.search(&mut self.searcher, &opened.file);
        self.tally.searched += 1;
        match end {
            FileSearchEnd::Done => {}
            FileSearchEnd::Binary => {
                self.tally.binary += 1;
                return ControlFlow::Continue(());
            }
            FileSearchEnd::Failed => self.tally.failed += 1,
            FileSearchEnd::Stopped => self.tally.stopped = true,
        }
        self.tally.skipped += hits.skipped;
        if hits.matches > 0 && self.mode != GrepOutputMode::Content && skip > 0 {
            self.tally.skipped += 1;
        } else if hits.matches > 0 || hits.more {
            self.add(path, opened, &mut hits)?;
        }
        if self.tally.stopped { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn add(
        &mut self,
        path: &Path,
        opened: OpenedFile,
        hits: &mut FileMatches<'_>,
    ) -> ControlFlow<()> {
        let full = match self.mode {
            GrepOutputMode::Content => hits.matches == 0,
            GrepOutputMode::Files | GrepOutputMode::Count => {
                self.tally.matching_files == self.limit
            }
        };
        let mut part = String::new();
        let shown = show::path(path);
        match self.mode {
            GrepOutputMode::Files => part = format!("{shown}\n"),
            GrepOutputMode::Count => part = format!("{shown}:{}\n", hits.matches),
            GrepOutputMode::Content => {
                part.push_str(if self.text.is_empty() { "" } else { "\n" });
                part.push_str(&shown);
                part.push('\n');
                hits.write(opened.file, &mut part);
            }
        }
        let room = self.call.caps.search_bytes.saturating_sub(self.text.len());
        let fits = part.len() <= room;
        if full || (!fits && !self.text.is_empty()) {
            self.tally.more = true;
            return ControlFlow::Break(());
        }
        let shown = if fits { &part } else { whole_lines(&part, room) };
        self.text.push_str(shown);
        self.tally.matching_files += 1;
        if self.mode == GrepOutputMode::Content {
            // A line for the path comes first, and a blank one before all files but the first.
            let heading = part.lines().take_while(|line| line.is_empty()).count() + 1;
            let shown = shown.lines().count().saturating_sub(heading);
            self.tally.matches += if fits { hits.matches } else { hits.matches_in(shown) };
        }
        self.touched.push(path.to_string_lossy().into_owned());
        self.tally.more |= hits.more || !fits;
        if self.tally.more { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn finish(self, summary: &WalkSummary) -> ToolCallResult {
        let Self { mut text, tally, touched, mode, .. } = self;
        let files = count(tally.matching_files, "file");
        if tally.matching_files == 0 {
            text = format!("No matches in {} searched.", count(tally.searched, "file"));
            if tally.skipped > 0 {
                remark(&mut text, format!("`offset` is beyond the last of {}", tally.skipped));
            }
        } else if tally.more {
            let is_content = mode == GrepOutputMode::Content;
            let what = if is_content { "matches" } else { "files" };
            let shown = if is_content { tally.matches } else { tally.matching_files };
            let next = tally.skipped + shown + 1;
            let narrow = "or narrow `pattern`, `path` or `glob`";
            remark(
                &mut text,
                format!(
                    "more {what} exist than are shown; continue with `offset` {next}, {narrow}"
                ),
            );
        } else if mode == GrepOutputMode::Content {
            remark(&mut text, format!("{} in {files}", count(tally.matches, "match")));
        }
        if tally.stopped && !summary.stopped {
            remark(&mut text, "stopped: out of time or cancelled; narrow `path` or `glob`");
        }
        if tally.binary > 0 {
            remark(&mut text, format!("{} skipped", count(tally.binary, "binary file")));
        }
        if tally.failed > 0 {
            remark(&mut text, format!("{} could not be searched", count(tally.failed, "file")));
        }
        summary.remarks(&mut text);
        ToolCallResult { touched, ..ToolCallResult::ok(text) }
    }
}

/// Returns the whole lines at the start of `text` that fit into `max` bytes.
fn whole_lines(text: &str, max: usize) -> &str {
    let head = &text[..text.floor_char_boundary(max)];
    head.rfind('\n').map_or("", |end| &head[..=end])
}
