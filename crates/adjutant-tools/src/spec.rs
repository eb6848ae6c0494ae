//! The descriptions of the tools for models.

use adjutant_core::message::ToolSpec;
use serde_json::{Value, json};

use crate::run::DEFAULT_SECONDS;
use crate::web::{fetch, search};
use crate::{ToolCaps, ToolName};

/// Returns the description of a tool; `None` for tools that the engine executes.
pub(crate) fn of(name: ToolName, caps: &ToolCaps) -> Option<ToolSpec> {
    match name {
        ToolName::Read => Some(read()),
        ToolName::Grep => Some(grep()),
        ToolName::Glob => Some(glob()),
        ToolName::Note => Some(note()),
        ToolName::WebFetch => Some(fetch::spec()),
        ToolName::WebSearch => Some(search::spec()),
        ToolName::Edit => Some(edit()),
        ToolName::Write => Some(write()),
        ToolName::Run => Some(run(caps)),
        ToolName::Delegate | ToolName::Task | ToolName::Return => None,
    }
}

fn read() -> ToolSpec {
    spec(
        ToolName::Read,
        "Shows a text file of the workspace. Each line is its number, a tab, and the text; a file \
         is shown up to 2,000 lines, 256 KiB and 2,000 characters per line. Remarks in [brackets] \
         without a number are the tool's own and say what was cut and how to continue.",
        &json!({
            "file_path": {"type": "string", "description": "The file, relative to the workspace root."},
            "offset": {"type": "integer", "minimum": 1, "description": "The first line to show, counted from 1."},
            "limit": {"type": "integer", "minimum": 1, "description": "How many lines to show; 2,000 at most."}
        }),
        &["file_path"],
    )
}

fn grep() -> ToolSpec {
    spec(
        ToolName::Grep,
        "Searches file contents line by line with a regular expression (Rust syntax, as in \
         ripgrep). Each file is a heading, below it `number:line` for matches and `number-line` \
         for context. Leaves out what .gitignore and .ignore name, binary files, and hidden files \
         unless `path` or `glob` names them.",
        &json!({
            "pattern": {"type": "string", "description": "The regular expression."},
            "path": {"type": "string", "description": "The file or directory to search; the whole workspace if absent."},
            "glob": {"type": "string", "description": "Only files that match, such as `*.rs` or `src/**/*.ts`; `!` in front leaves them out."},
            "ignore_case": {"type": "boolean", "description": "Whether case does not matter."},
            "context": {"type": "integer", "minimum": 0, "maximum": 10, "description": "Lines to show around each match."},
            "before": {"type": "integer", "minimum": 0, "maximum": 10, "description": "Lines to show before each match, if not as many as after it."},
            "after": {"type": "integer", "minimum": 0, "maximum": 10, "description": "Lines to show after each match."},
            "output": {"type": "string", "enum": ["content", "files", "count"], "description": "Matching lines (the default), only file names, or matches per file."},
            "offset": {"type": "integer", "minimum": 1, "description": "The first match, or file, to return, counted from 1."},
            "limit": {"type": "integer", "minimum": 1, "description": "How many matches, or files, to return; 500 at most."}
        }),
        &["pattern"],
    )
}

fn glob() -> ToolSpec {
    spec(
        ToolName::Glob,
        "Finds files and directories by name, sorted by path; directories end in `/`. A pattern \
         without a slash matches names at any depth (`*.rs`), one with a slash whole paths \
         (`src/**/*.rs`), `/*` lists one directory. Leaves out what .gitignore and .ignore name, \
         and hidden names unless the pattern names them.",
        &json!({
            "pattern": {"type": "string", "description": "The glob pattern: `*`, `**`, `?`, `[ab]`, `{a,b}`."},
            "path": {"type": "string", "description": "The directory to look in; the whole workspace if absent."},
            "limit": {"type": "integer", "minimum": 1, "description": "How many paths to return; 1,000 at most."}
        }),
        &["pattern"],
    )
}

fn note() -> ToolSpec {
    spec(
        ToolName::Note,
        "Keeps one line in your scratchpad. If you are cut off before your final answer, your \
         notes are what is handed back, so note findings as you make them.",
        &json!({
            "content": {"type": "string", "description": "What to keep; line breaks become spaces, 4 KiB at most."}
        }),
        &["content"],
    )
}

fn write() -> ToolSpec {
    spec(
        ToolName::Write,
        "Creates a file, or replaces all of one, with exactly this content; missing folders are made. To \
         change a part of a file use Edit, if you have it. 8 MiB at most.",
        &json!({
            "file_path": {"type": "string", "description": "The file, relative to the workspace root."},
            "content": {"type": "string", "description": "All of the file, with its last line break."}
        }),
        &["file_path", "content"],
    )
}

fn edit() -> ToolSpec {
    spec(
        ToolName::Edit,
        "Replaces text in a file. `old_string` must match exactly, spaces and line ends included, without the \
         line numbers that Read shows, and must occur once unless `replace_all` is set. All else stays byte for \
         byte. Read the file first. Several edits of one file go into `edits` instead, in order; if one fails, none \
         is made.",
        &json!({
            "file_path": {"type": "string", "description": "The file, relative to the workspace root."},
            "old_string": {"type": "string", "description": "The text to replace, with enough around it to be the only match."},
            "new_string": {"type": "string", "description": "What stands there instead; may be empty."},
            "replace_all": {"type": "boolean", "description": "Whether every match is replaced."},
            "edits": {
                "type": "array",
                "description": "Several edits, instead of `old_string` and `new_string`; 100 at most.",
                "items": {
                    "type": "object",
                    "properties": {
                        "old_string": {"type": "string"},
                        "new_string": {"type": "string"},
                        "replace_all": {"type": "boolean"}
                    },
                    "required": ["old_string", "new_string"],
                    "additionalProperties": false
                }
            }
        }),
        &["file_path"],
    )
}

fn run(caps: &ToolCaps) -> ToolSpec {
    let usual = DEFAULT_SECONDS.min(caps.run_seconds);
    spec(
        ToolName::Run,
        "Runs a shell command (`/bin/sh -c`) in the workspace and returns how it ended, then what it said on both \
         streams. It has no input and no terminal, sees the system's programs and the workspace, may write only \
         the workspace and /tmp, and has no network unless a person granted it. Every process it started ends \
         with it; nothing but files stays, so chain `cd` and variables in one command. Of long output the middle \
         is left out.",
        &json!({
            "command": {"type": "string", "description": "The command; 64 KiB at most."},
            "cwd": {"type": "string", "description": "The directory to start in, relative to the workspace root, which it is if absent."},
            "timeout": {"type": "integer", "minimum": 1, "maximum": caps.run_seconds, "description": format!("Seconds until it is stopped; {usual} if absent.")}
        }),
        &["command"],
    )
}

pub(crate) fn spec(
    name: ToolName,
    description: &str,
    properties: &Value,
    required: &[&str],
) -> ToolSpec {
    ToolSpec {
        name: name.as_str().to_owned(),
        description: description.to_owned(),
        schema: json!({
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": false
        }),
    }
}
