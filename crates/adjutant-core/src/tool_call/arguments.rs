//! The arguments of our tools: their names, other names for the same thing, and what other products send beside them.
//!
//! [`canonical`] turns the arguments of a call into those of our tool. Arguments that it does not know stay, and the tool
//! rejects them.

use serde_json::{Map, Value};

use super::names::is_same_name;

/// The name of one argument, and other names that are accepted for it.
#[derive(Clone, Copy, Debug)]
pub struct ArgumentNames {
    /// The name that is offered to models.
    pub name: &'static str,
    /// The other names; case, `_` and `-` do not count, except in names that begin with `-`.
    pub others: &'static [&'static str],
}

/// The arguments of one tool.
#[derive(Clone, Copy, Debug)]
pub struct ToolArguments {
    /// The tool.
    pub tool: &'static str,
    /// Its arguments.
    pub arguments: &'static [ArgumentNames],
    /// What is ignored, because the result is the same without it.
    ignored: &'static [&'static str],
    /// What is ignored while it is on, because it cannot be switched off; with what to do instead.
    always: &'static [(&'static str, &'static str)],
    /// What cannot be given, with what to do instead. Switched off or empty it is ignored.
    refused: &'static [(&'static str, &'static str)],
}

const fn named(name: &'static str, others: &'static [&'static str]) -> ArgumentNames {
    ArgumentNames { name, others }
}

const FILE: ArgumentNames = named(
    "file_path",
    &["path", "file", "filename", "absolute_path", "target_file", "notebook_path"],
);
const FOLDER: ArgumentNames = named(
    "path",
    &[
        "directory",
        "dir",
        "dir_path",
        "folder",
        "cwd",
        "relative_workspace_path",
        "target_directory",
        "search_directory",
        "search_path",
        "directory_path",
        "root",
    ],
);
const NEVER_ALONE: &str = "commands run to their end before the next step; leave it out, and give a longer `timeout` if needed";
const SANDBOX: &str = "the limits of the sandbox hold for every command; leave it out, and say in your report what a person would have to allow";
const NO_TERMINAL: &str =
    "a command has no terminal and no input; leave it out and use options such as `--yes`";
const ALL_FILES: &str =
    "files that .gitignore and .ignore name are left out; name such a file in `path`";
const ONE_LINE: &str =
    "Grep matches within single lines; search for one of the lines and set `context`";
const LEAVE_OUT: &str = "it cannot be left out here; narrow `pattern` or `path`";

static ALL: [ToolArguments; 9] = [
    ToolArguments {
        tool: "Read",
        arguments: &[
            FILE,
            named("offset", &["line_offset", "start"]),
            named("limit", &["n_lines", "head", "max_lines", "line_count"]),
        ],
        ignored: &[
            "description",
            "explanation",
            "should_read_entire_file",
            "encoding",
            "show_line_numbers",
        ],
        always: &[],
        refused: &[
            ("pages", "PDF files cannot be shown; convert it with a command in Run"),
            ("tail", "read the file once to see its length, then give `offset`"),
            ("indentation", "give `offset` and `limit`"),
        ],
    },
    ToolArguments {
        tool: "Grep",
        arguments: &[
            named("pattern", &["regex", "query", "search_pattern", "substring_pattern"]),
            named(
                "path",
                &[
                    "directory",
                    "dir",
                    "dir_path",
                    "folder",
                    "relative_path",
                    "search_path",
                    "search_directory",
                    "file_path",
                ],
            ),
            named("glob", &["include", "include_pattern", "file_pattern", "includes", "file_glob"]),
            named("ignore_case", &["-i", "case_insensitive"]),
            named("context", &["-C", "context_lines"]),
            named("before", &["-B", "before_context", "context_lines_before"]),
            named("after", &["-A", "after_context", "context_lines_after"]),
            named("output", &["output_mode"]),
            named("offset", &[]),
            named("limit", &["head_limit", "max_results", "max_matches", "max_count"]),
        ],
        ignored: &[
            "-n",
            "-H",
            "-r",
            "line_numbers",
            "show_line_numbers",
            "match_per_line",
            "description",
            "explanation",
            "recursive",
        ],
        always: &[],
        refused: &[
            ("multiline", ONE_LINE),
            ("-o", "whole lines are shown; leave it out"),
            ("-v", "lines that do not match cannot be listed; use Run, if you have it"),
            ("exclude_pattern", "give `glob` with `!` in front of what to leave out"),
            ("exclude", "give `glob` with `!` in front of what to leave out"),
            ("no_ignore", ALL_FILES),
            ("include_ignored_files", ALL_FILES),
        ],
    },
    ToolArguments {
        tool: "Glob",
        arguments: &[
            named("pattern", &["glob", "glob_pattern", "file_pattern", "search_pattern"]),
            FOLDER,
            named("limit", &["max_results", "head_limit"]),
        ],
        ignored: &["description", "explanation", "include_dirs"],
        always: &[("respect_git_ignore", ALL_FILES), ("respect_gemini_ignore", ALL_FILES)],
        refused: &[
            ("ignore", LEAVE_OUT),
            ("exclude", LEAVE_OUT),
            ("exclude_patterns", LEAVE_OUT),
            ("excludes", LEAVE_OUT),
            ("case_sensitive", "patterns are matched as they are written; write `[Aa]` for both"),
            ("offset", "narrow `pattern` or `path`"),
            ("no_ignore", ALL_FILES),
        ],
    },
    ToolArguments {
        tool: "Edit",
        arguments: &[
            FILE,
            named(
                "old_string",
                &["old_text", "old_str", "old", "search", "target_content", "find"],
            ),
            named(
                "new_string",
                &["new_text", "new_str", "new", "replace", "replacement", "replacement_content"],
            ),
            named("replace_all", &["allow_multiple"]),
            named("edits", &["edit", "replacements"]),
            named("patch", &[]),
        ],
        ignored: &["description", "explanation", "instruction", "display_description"],
        always: &[],
        refused: &[
            (
                "code_edit",
                "give the exact text to replace as `old_string`, and what stands there instead as `new_string`",
            ),
            (
                "instructions",
                "give the exact text to replace as `old_string`, and what stands there instead as `new_string`",
            ),
            ("mode", "give `old_string` and `new_string`; create files with Write"),
            ("dry_run", "an edit is made at once; leave it out"),
            ("use_regex", "`old_string` is exact text; give the text itself"),
            ("ignore_case", "`old_string` is exact text; give the text itself"),
            ("start_line", "lines are found by their text; give `old_string`"),
            ("end_line", "lines are found by their text; give `old_string`"),
            (
                "insert_line",
                "lines are found by their text; put the line next to it into `old_string`",
            ),
        ],
    },
    ToolArguments {
        tool: "Write",
        arguments: &[
            FILE,
            named(
                "content",
                &["text", "contents", "file_text", "code_content", "file_content", "data"],
            ),
            named("patch", &[]),
        ],
        ignored: &[
            "description",
            "explanation",
            "line_count",
            "encoding",
            "create_directories",
            "empty_file",
        ],
        always: &[("overwrite", "Write replaces a file that exists; look for it with Glob first")],
        refused: &[("append", "Write replaces all of a file; add to its end with Edit")],
    },
    ToolArguments {
        tool: "Run",
        arguments: &[
            named("command", &["cmd", "command_line", "script"]),
            named(
                "cwd",
                &["workdir", "directory", "working_directory", "working_dir", "cd", "dir_path"],
            ),
            named("timeout", &["timeout_seconds", "timeout_secs", "timeout_s"]),
        ],
        ignored: &[
            "description",
            "explanation",
            "justification",
            "requires_approval",
            "require_user_approval",
            "safe_to_auto_run",
            "yield_time_ms",
            "max_output_tokens",
            "max_output_length",
            "login",
            "goal",
            "security_risk",
            "prefix_rule",
            "risk_level",
            "initial_wait",
        ],
        always: &[("wait_for_completion", NEVER_ALONE), ("blocking", NEVER_ALONE)],
        refused: &[
            ("run_in_background", NEVER_ALONE),
            ("is_background", NEVER_ALONE),
            ("background", NEVER_ALONE),
            ("async", NEVER_ALONE),
            ("detach", NEVER_ALONE),
            ("wait_ms_before_async", NEVER_ALONE),
            ("with_escalated_permissions", SANDBOX),
            ("sandbox_permissions", SANDBOX),
            ("dangerously_disable_sandbox", SANDBOX),
            ("additional_permissions", SANDBOX),
            ("sudo", SANDBOX),
            ("user", SANDBOX),
            ("network", SANDBOX),
            ("tty", NO_TERMINAL),
            ("is_input", NO_TERMINAL),
            ("interactive", NO_TERMINAL),
            ("stdin", NO_TERMINAL),
            ("shell", "commands run with /bin/sh; write `bash -c '…'` for another shell"),
            ("env", "set variables in the command: `NAME=value COMMAND`"),
            ("restart", "every command starts afresh; leave it out"),
        ],
    },
    ToolArguments {
        tool: "Note",
        arguments: &[named("content", &["note", "text", "fact", "memory"])],
        ignored: &["description", "explanation"],
        always: &[],
        refused: &[],
    },
    ToolArguments {
        tool: "WebFetch",
        arguments: &[named("url", &["uri", "link"]), named("max_chars", &["max_length", "limit"])],
        ignored: &["description", "explanation", "prompt", "timeout", "query"],
        always: &[],
        refused: &[
            ("urls", "give one page as `url`; several calls may stand in one answer"),
            ("start_index", "give a larger `max_chars`"),
            ("raw", "pages are shown as markdown; leave it out"),
            ("headers", "pages are fetched without headers of your own; leave it out"),
            ("method", "pages are only read (GET); leave it out"),
        ],
    },
    ToolArguments {
        tool: "WebSearch",
        arguments: &[
            named("query", &["q", "search_term", "search_query"]),
            named("count", &["limit", "max_results", "num_results"]),
        ],
        ignored: &["description", "explanation"],
        always: &[],
        refused: &[
            ("allowed_domains", "write `site:example.org` in `query`"),
            ("blocked_domains", "write `-site:example.org` in `query`"),
            ("domain", "write `site:example.org` in `query`"),
        ],
    },
];

/// Returns the arguments of a tool; `None` for the tools that the engine executes and those of other programs.
#[must_use]
pub fn arguments_of(tool: &str) -> Option<&'static ToolArguments> {
    ALL.iter().find(|arguments| arguments.tool == tool)
}

impl ArgumentNames {
    fn is(&self, given: &str) -> bool {
        self.name == given
            || self.others.iter().any(|other| is_spelling(given, other))
            || is_spelling(given, self.name)
    }
}

/// Arguments of our tool, and what was left out of those that were given.
#[derive(Debug, Default, PartialEq)]
pub struct CanonicalArguments {
    /// The arguments.
    pub arguments: Map<String, Value>,
    /// The names that are ignored.
    pub ignored: Vec<String>,
}

/// Turns the arguments of a call into those of our tool.
///
/// # Errors
///
/// If one thing is given twice with different values, or something is asked for that the tool does not do.
pub fn canonical(
    tool: &'static ToolArguments,
    given: &Map<String, Value>,
) -> Result<CanonicalArguments, String> {
    let mut result = CanonicalArguments::default();
    let mut spelled: Vec<(&str, &str)> = Vec::new();
    for (key, value) in given {
        if let Some(argument) = tool.arguments.iter().find(|argument| argument.is(key)) {
            let kept = result.arguments.get(argument.name);
            match kept {
                Some(kept)
                    if !kept.is_null() && !value.is_null() && !is_same_value(kept, value) =>
                {
                    let first = spelled.iter().find(|(name, _)| *name == argument.name);
                    let first = first.map_or(argument.name, |(_, key)| key);
                    return Err(format!(
                        "`{first}` and `{key}` are the same argument with different values; give only `{}`",
                        argument.name
                    ));
                }
                Some(kept) if !kept.is_null() => {}
                Some(_) | None => {
                    result.arguments.insert(argument.name.to_owned(), value.clone());
                    spelled.push((argument.name, key));
                }
            }
        } else if tool.ignored.iter().any(|name| is_spelling(key, name)) {
            result.ignored.push(key.clone());
        } else if let Some((_, advice)) =
            tool.always.iter().find(|(name, _)| is_spelling(key, name))
        {
            if !value.is_null() && is_off(value) {
                return Err(format!("`{key}` cannot be switched off: {advice}"));
            }
            result.ignored.push(key.clone());
        } else if let Some((_, advice)) =
            tool.refused.iter().find(|(name, _)| is_spelling(key, name))
        {
            if !is_off(value) {
                return Err(format!("`{key}` is not possible: {advice}"));
            }
            result.ignored.push(key.clone());
        } else {
            result.arguments.insert(key.clone(), value.clone());
        }
    }
    Ok(result)
}

/// Says whether a name was given in this or another spelling.
fn is_spelling(given: &str, name: &str) -> bool {
    given == name
        || (!name.starts_with('-') && !given.starts_with('-') && is_same_name(given, name))
}

/// Says whether a value asks for nothing.
pub(super) fn is_off(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) => false,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => {
            ["", "false", "never", "default", "use_default"].contains(&text.as_str())
        }
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

/// Compares values without regard to whether numbers and switches are written as strings.
fn is_same_value(one: &Value, two: &Value) -> bool {
    fn text(value: &Value) -> Option<String> {
        match value {
            Value::String(text) => Some(text.clone()),
            Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
            Value::Null | Value::Array(_) | Value::Object(_) => None,
        }
    }
    one == two || text(one).is_some_and(|one| text(two) == Some(one))
}
