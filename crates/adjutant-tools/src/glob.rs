//! The tool Glob, which returns the paths that match a pattern.

use std::ops::ControlFlow;
use std::path::Path;

use adjutant_workspace::FileKind;

use crate::args::{CallArguments, ToolArgumentError};
use crate::glob_pattern::{GlobPattern, is_hidden};
use crate::output::{ToolCallResult, remark};
use crate::toolbox::ToolCallContext;
use crate::walk::{WalkEntry, WalkOptions, walk};
use crate::{ToolName, show};

/// Executes a call of Glob.
pub(crate) fn glob(call: &ToolCallContext<'_>) -> Result<ToolCallResult, ToolArgumentError> {
    let args = CallArguments::new(ToolName::Glob, call.arguments)?;
    let pattern = GlobPattern::new("pattern", &args.required("pattern")?, call.root)?;
    let written = args.text("path")?.unwrap_or_default();
    let limit = args.number("limit", 1)?.and_then(|limit| usize::try_from(limit).ok());
    let mut paths = MatchedPaths {
        text: String::new(),
        count: 0,
        max_count: limit.unwrap_or(usize::MAX).min(call.caps.glob_paths),
        max_bytes: call.caps.search_bytes,
        more: false,
    };
    let summary = call.root.relative(&written).and_then(|start| {
        let options = WalkOptions {
            hidden: pattern.names_hidden || is_hidden(start.as_path()),
            max_entries: call.caps.visited_entries,
            should_stop: call.should_stop,
        };
        walk(call.root, &start, &options, &mut |found| visit(&pattern, found, &mut paths))
    });
    let summary = match summary {
        Ok(summary) => summary,
        Err(error) => return Ok(ToolCallResult::error(show::path_error(&written, &error))),
    };
    let MatchedPaths { mut text, count, more, .. } = paths;
    if count == 0 {
        text.push_str("No paths match.");
    }
    if more {
        remark(&mut text, format!("first {count} paths, more match; narrow `pattern` or `path`"));
    }
    summary.remarks(&mut text);
    Ok(ToolCallResult::ok(text))
}

/// The matching paths found so far.
struct MatchedPaths {
    text: String,
    count: usize,
    max_count: usize,
    max_bytes: usize,
    more: bool,
}

impl MatchedPaths {
    fn push(&mut self, path: &Path, is_dir: bool) -> ControlFlow<()> {
        let shown = show::path(path);
        if self.count == self.max_count || self.text.len() + shown.len() > self.max_bytes {
            self.more = true;
            return ControlFlow::Break(());
        }
        self.count += 1;
        self.text.push_str(&shown);
        self.text.push_str(if is_dir { "/\n" } else { "\n" });
        ControlFlow::Continue(())
    }
}

fn visit(
    pattern: &GlobPattern,
    found: &WalkEntry<'_>,
    paths: &mut MatchedPaths,
) -> ControlFlow<()> {
    let is_dir = match found.kind {
        FileKind::Directory => true,
        FileKind::Regular | FileKind::Symlink if !pattern.directories_only => false,
        FileKind::Regular
        | FileKind::Symlink
        | FileKind::Fifo
        | FileKind::Socket
        | FileKind::CharDevice
        | FileKind::BlockDevice
        | FileKind::Unknown => return ControlFlow::Continue(()),
    };
    if pattern.selects(found) { paths.push(found.path, is_dir) } else { ControlFlow::Continue(()) }
}
