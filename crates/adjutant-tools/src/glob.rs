//! Glob: the paths that match a pattern.

use std::ops::ControlFlow;
use std::path::Path;

use adjutant_workspace::FileKind;

use crate::args::{ArgError, Args, Field};
use crate::globs::{Pattern, is_hidden};
use crate::output::{ToolOutput, remark};
use crate::toolbox::Call;
use crate::walk::{Found, Options, walk};
use crate::{ToolName, show};

pub(crate) static FIELDS: [Field; 3] = [
    Field::new("pattern", &["glob"]),
    Field::new("path", &["directory"]),
    Field::new("limit", &[]),
];

/// Performs a Glob.
pub(crate) fn glob(call: &Call<'_>) -> Result<ToolOutput, ArgError> {
    let args = Args::new(ToolName::Glob, call.arguments, &FIELDS)?;
    let pattern = Pattern::new("pattern", &args.required("pattern")?, call.root)?;
    let written = args.text("path")?.unwrap_or_default();
    let limit = args.number("limit", 1)?.and_then(|limit| usize::try_from(limit).ok());
    let mut paths = Paths {
        text: String::new(),
        count: 0,
        max_count: limit.unwrap_or(usize::MAX).min(call.caps.glob_paths),
        max_bytes: call.caps.search_bytes,
        more: false,
    };
    let summary = call.root.relative(&written).and_then(|start| {
        let options = Options {
            hidden: pattern.names_hidden || is_hidden(start.as_path()),
            max_entries: call.caps.visited_entries,
            should_stop: call.should_stop,
        };
        walk(call.root, &start, &options, &mut |found| visit(&pattern, found, &mut paths))
    });
    let summary = match summary {
        Ok(summary) => summary,
        Err(error) => return Ok(ToolOutput::error(show::path_error(&written, &error))),
    };
    let Paths { mut text, count, more, .. } = paths;
    if count == 0 {
        text.push_str("No paths match.");
    }
    if more {
        remark(&mut text, format!("first {count} paths, more match; narrow `pattern` or `path`"));
    }
    summary.remarks(&mut text);
    Ok(ToolOutput::ok(text))
}

/// The paths collected so far.
struct Paths {
    text: String,
    count: usize,
    max_count: usize,
    max_bytes: usize,
    more: bool,
}

impl Paths {
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

fn visit(pattern: &Pattern, found: &Found<'_>, paths: &mut Paths) -> ControlFlow<()> {
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
