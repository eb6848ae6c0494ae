//! The shapes of calls in other products: what the name that was called says about units, lists and ranges.
//!
//! Start at [`reshape`]. It leaves arguments under the names that the model wrote, except for those it converts.

use adjutant_formats::search_replace;
use serde_json::{Map, Value, json};

use super::arguments::{ToolArguments, arguments_of, canonical};
use super::names::{CallShape, ToolAlias, is_same_name};
use super::{PATCH, patch_tools};
use crate::write::RUN;

/// A call with our tool, whose arguments may still have other names.
pub(super) struct ReshapedCall {
    pub(super) tool: &'static str,
    pub(super) given: Map<String, Value>,
    pub(super) remarks: Vec<String>,
}

type Reshaped = Result<ReshapedCall, String>;

/// Names for the first and the last line of a range, counted from 1.
const FIRST_LINE: [&str; 4] = ["start_line", "line_start", "start_line_one_indexed", "from_line"];
const LAST_LINE: [&str; 4] = ["end_line", "line_end", "end_line_one_indexed_inclusive", "to_line"];
const LINE_RANGE: [&str; 3] = ["view_range", "read_range", "line_range"];

/// The file types of ripgrep that are used most, as patterns.
const FILE_TYPES: [(&str, &str); 22] = [
    ("c", "*.{c,h}"),
    ("cpp", "*.{cpp,cc,cxx,hpp,hh,hxx,h}"),
    ("cs", "*.cs"),
    ("css", "*.{css,scss}"),
    ("go", "*.go"),
    ("html", "*.{html,htm}"),
    ("java", "*.java"),
    ("js", "*.{js,jsx,cjs,mjs}"),
    ("json", "*.json"),
    ("kotlin", "*.{kt,kts}"),
    ("lua", "*.lua"),
    ("md", "*.{md,markdown,mdx}"),
    ("php", "*.php"),
    ("py", "*.{py,pyi}"),
    ("ruby", "*.rb"),
    ("rust", "*.rs"),
    ("sh", "*.{sh,bash,zsh}"),
    ("sql", "*.sql"),
    ("swift", "*.swift"),
    ("toml", "*.toml"),
    ("ts", "*.{ts,tsx,cts,mts}"),
    ("yaml", "*.{yaml,yml}"),
];

/// Turns a call into one of our tool. Returns `None` for a name that is only used in agent files.
pub(super) fn reshape(
    called: &str,
    alias: Option<&'static ToolAlias>,
    own: Option<&'static ToolArguments>,
    given: Map<String, Value>,
) -> Option<Reshaped> {
    let Some(alias) = alias else {
        return own.map(|own| by_tool(ReshapedCall { tool: own.tool, given, remarks: Vec::new() }));
    };
    let tool = alias.tools.first().copied().unwrap_or_default();
    let call = ReshapedCall { tool, given, remarks: Vec::new() };
    let call = match alias.shape {
        CallShape::AgentFilesOnly => return None,
        CallShape::Advice(advice) => Err(format!("`{called}` is not available here; {advice}")),
        CallShape::Plain => Ok(call),
        CallShape::MillisecondCommand => command(called, call, true),
        CallShape::SecondCommand => command(called, call, false),
        CallShape::ListDirectory => list_directory(call),
        CallShape::ListTree => Ok(call.with("pattern", json!("*"))),
        CallShape::FindFiles => find_files(call),
        CallShape::SearchFiles => search_files(call),
        CallShape::ReadMany => read_many(called, call),
        CallShape::TextEditor => text_editor(called, call),
        CallShape::Patch => patch(call),
        CallShape::SearchReplace => blocks(call),
        CallShape::ManyReplacements => one_file(call),
    };
    Some(call.map(from_first_line).and_then(by_tool))
}

/// Reads arguments that are the patch itself. Returns `None` if the tool takes no patch, or the text is not one.
pub(super) fn bare_patch(alias: &'static ToolAlias, text: &str) -> Option<Reshaped> {
    let is_patch = text.trim_start().starts_with("*** Begin Patch");
    (alias.shape == CallShape::Patch && is_patch).then(|| {
        let call = ReshapedCall { tool: "Edit", given: Map::new(), remarks: Vec::new() };
        patched(call, text)
    })
}

impl ReshapedCall {
    fn with(mut self, name: &str, value: Value) -> Self {
        self.given.insert(name.to_owned(), value);
        self
    }

    fn into_tool(self, tool: &'static str) -> Self {
        Self { tool, ..self }
    }

    /// Removes an argument by any of these names; `null` counts as absent.
    fn take(&mut self, names: &[&str]) -> Result<Option<(String, Value)>, String> {
        let is_named = |key: &&String| names.iter().any(|name| is_same_name(key, name));
        let keys: Vec<String> = self.given.keys().filter(is_named).cloned().collect();
        let mut taken: Option<(String, Value)> = None;
        for key in keys {
            let Some(value) = self.given.remove(&key).filter(|value| !value.is_null()) else {
                continue;
            };
            match &taken {
                Some((first, other)) if *other != value => {
                    return Err(format!(
                        "`{first}` and `{key}` are the same argument with different values; give only one of them"
                    ));
                }
                Some(_) => {}
                None => taken = Some((key, value)),
            }
        }
        Ok(taken)
    }
}

fn by_tool(mut call: ReshapedCall) -> Reshaped {
    match call.tool {
        "Read" => line_range(call),
        "Grep" => search(call),
        "Glob" => {
            if let Some((_, Value::Object(options))) = call.take(&["file_filtering_options"])? {
                call.given.extend(options);
            }
            Ok(call)
        }
        "Edit" => edits(call),
        "Write" => overwrite(call),
        "Run" => milliseconds(call),
        "WebFetch" => page_format(call),
        _ => Ok(call),
    }
}

/// Lines are counted from 1 here. Other products also write 0 for the first one.
fn from_first_line(mut call: ReshapedCall) -> ReshapedCall {
    if call.tool != "Read" {
        return call;
    }
    let counts_from_zero = call.given.contains_key("absolute_path");
    match call.given.get("offset").and_then(whole_number) {
        Some(0) => drop(call.given.remove("offset")),
        Some(offset) if counts_from_zero => {
            call.given.insert("offset".to_owned(), json!(offset.saturating_add(1)));
        }
        Some(_) | None => {}
    }
    call
}

fn line_range(mut call: ReshapedCall) -> Reshaped {
    let (mut first, mut last) = (None, None);
    if let Some((key, value)) = call.take(&LINE_RANGE)? {
        let ends: Option<Vec<i64>> =
            value.as_array().map(|ends| ends.iter().filter_map(whole_number).collect());
        let Some([from, to]) = ends.as_deref() else {
            return Err(format!(
                "`{key}` must be two line numbers; give `offset` and `limit` instead"
            ));
        };
        (first, last) = (Some(*from), Some(*to).filter(|to| *to >= 0));
    }
    for (names, end) in [(&FIRST_LINE, &mut first), (&LAST_LINE, &mut last)] {
        if let Some((key, value)) = call.take(names)? {
            let number = whole_number(&value);
            let number = number.ok_or_else(|| format!("`{key}` must be a line number"))?;
            // -1 stands for the last line.
            *end = Some(number).filter(|number| *number >= 0);
        }
    }
    if first.is_none() && last.is_none() {
        return Ok(call);
    }
    if call.given.contains_key("offset") || call.given.contains_key("limit") {
        return Err("give either a range of lines or `offset` and `limit`, not both".to_owned());
    }
    let from = first.unwrap_or(1).max(1);
    if let Some(last) = last {
        if last < from {
            return Err(format!("the last line {last} is before the first line {from}"));
        }
        call.given.insert("limit".to_owned(), json!(last - from + 1));
    }
    if from > 1 {
        call.given.insert("offset".to_owned(), json!(from));
    }
    Ok(call)
}

fn search(mut call: ReshapedCall) -> Reshaped {
    if let Some((_, value)) = call.take(&["case_sensitive"])? {
        let ignores = is_false(&value);
        if ignores {
            call = call.with("ignore_case", json!(true));
        }
    }
    let literal =
        call.take(&["fixed_strings", "literal", "-F"])?.is_some_and(|(_, it)| is_true(&it));
    let not_regex =
        call.take(&["is_regexp", "is_regex", "regexp"])?.is_some_and(|(_, it)| is_false(&it));
    if literal || not_regex {
        for name in ["pattern", "query"] {
            if let Some(Value::String(text)) = call.given.get_mut(name) {
                *text = escaped(text);
            }
        }
    }
    if let Some((key, value)) = call.take(&["type", "file_type"])? {
        let name = value.as_str().unwrap_or_default();
        let pattern =
            FILE_TYPES.iter().find(|(known, _)| *known == name).map(|(_, pattern)| *pattern);
        let Some(pattern) = pattern else {
            return Err(format!("`{key}` {value} is not known here; give `glob`, such as `*.rs`"));
        };
        if call.given.contains_key("glob") {
            return Err(format!(
                "give either `{key}` or `glob`, not both; the type means `{pattern}`"
            ));
        }
        call = call.with("glob", json!(pattern));
    }
    for name in ["output_mode", "output"] {
        if call.given.get(name).is_some_and(|mode| mode == "files_with_matches") {
            call.given.insert(name.to_owned(), json!("files"));
        }
    }
    // Elsewhere 0 stands for no limit and for the first match.
    for name in ["head_limit", "limit", "offset"] {
        if call.given.get(name).and_then(whole_number) == Some(0) {
            call.given.remove(name);
        }
    }
    Ok(call)
}

fn edits(mut call: ReshapedCall) -> Reshaped {
    if let Some((key, value)) = call.take(&["expected_replacements"])? {
        match whole_number(&value) {
            Some(1) => {}
            Some(2..) => {
                call = call.with("replace_all", json!(true));
                call.remarks.push(format!("`{key}` was read as `replace_all`"));
            }
            Some(_) | None => return Err(format!("`{key}` must be a whole number of at least 1")),
        }
    }
    let Some((key, value)) = call.take(&["edits", "edit", "replacements"])? else {
        return Ok(call);
    };
    let value = match &value {
        // Some models write the list as text.
        Value::String(text) => serde_json::from_str(text)
            .map_err(|_| format!("`{key}` must be a list of edits, not a string"))?,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            value
        }
    };
    let items = match value {
        Value::Array(items) => items,
        one @ Value::Object(_) => vec![one],
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            return Err(format!("`{key}` must be a list of edits"));
        }
    };
    let Some(known) = super::arguments_of("Edit") else { return Ok(call) };
    let mut edits = Vec::with_capacity(items.len());
    for (index, item) in items.into_iter().enumerate() {
        let Value::Object(given) = item else {
            return Err(format!("item {} of `{key}` must be an object", index + 1));
        };
        let item = super::canonical(known, &given);
        edits.push(Value::Object(
            item.map_err(|why| format!("item {} of `{key}`: {why}", index + 1))?.arguments,
        ));
    }
    Ok(call.with("edits", Value::Array(edits)))
}

fn overwrite(mut call: ReshapedCall) -> Reshaped {
    if let Some((key, value)) = call.take(&["mode"])?
        && !["overwrite", "create", "write", "w"].iter().any(|mode| value == *mode)
    {
        return Err(format!(
            "`{key}` {value} is not possible: Write replaces all of a file; change a part of it with Edit"
        ));
    }
    Ok(call)
}

fn milliseconds(mut call: ReshapedCall) -> Reshaped {
    let Some((key, value)) =
        call.take(&["timeout_ms", "timeout_millis", "timeout_milliseconds"])?
    else {
        return Ok(call);
    };
    let seconds = whole_seconds(&key, &value)?;
    if call.given.get("timeout").and_then(whole_number).is_some_and(|other| other != seconds) {
        return Err(format!(
            "`timeout` and `{key}` have different values; give only `timeout`, in seconds"
        ));
    }
    Ok(call.with("timeout", json!(seconds)))
}

/// Converts milliseconds. A value below one second is probably meant in seconds, so it is refused.
fn whole_seconds(key: &str, value: &Value) -> Result<i64, String> {
    match whole_number(value) {
        Some(ms @ 1_000..) => Ok(ms.saturating_add(999) / 1_000),
        Some(ms @ 1..) => Err(format!(
            "`{key}` is in milliseconds here, and {ms} is less than a second; give {ms}000 for {ms} seconds, or call Run, \
             whose `timeout` is in seconds"
        )),
        Some(_) | None => {
            Err(format!("`{key}` must be a whole number of milliseconds, not {value}"))
        }
    }
}

fn page_format(mut call: ReshapedCall) -> Reshaped {
    match call.take(&["format"])? {
        Some((_, value)) if value != "markdown" && value != "text" => {
            Err(format!("`format` {value} is not possible: pages are shown as markdown"))
        }
        Some(_) | None => Ok(call),
    }
}

fn command(called: &str, mut call: ReshapedCall, is_in_milliseconds: bool) -> Reshaped {
    // An object that describes the call, as the Responses API sends it.
    if let Some((_, Value::Object(action))) = call.take(&["action"])? {
        call.given.extend(action.into_iter().filter(|(key, _)| key != "type"));
    }
    if is_in_milliseconds && let Some((key, value)) = call.take(&["timeout"])? {
        let seconds = whole_seconds(&key, &value)?;
        call = call.with("timeout", json!(seconds));
    }
    let Some((key, value)) = call.take(&["command", "cmd", "command_line", "script"])? else {
        return Ok(call);
    };
    let command = match value {
        Value::Array(words) => {
            let words: Option<Vec<&str>> = words.iter().map(Value::as_str).collect();
            let words =
                words.ok_or_else(|| format!("`{key}` of `{called}` must be a list of words"))?;
            if let ["apply_patch" | "applypatch", text] = words[..] {
                return patched(call, text);
            }
            command_line(&words)
        }
        Value::String(text) => text,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {
            return Ok(call.with(&key, value));
        }
    };
    match heredoc_patch(&command) {
        Some(text) => patched(call, text),
        None => Ok(call.with("command", json!(command))),
    }
}

/// Writes words as a command of a shell.
fn command_line(words: &[&str]) -> String {
    let shell = |program: &str| program.strip_prefix("/bin/").unwrap_or(program).to_owned();
    match words {
        [program, "-c" | "-lc", script]
            if shell(program) == "sh" || heredoc_patch(script).is_some() =>
        {
            (*script).to_owned()
        }
        // A login shell would set its own `PATH`, without the toolchains of the sandbox.
        [program, "-lc", script] if ["bash", "zsh"].contains(&shell(program).as_str()) => {
            format!("{program} -c {}", quoted(script))
        }
        words => words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "),
    }
}

fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./=:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Returns the patch of a command that is nothing but `apply_patch` with a here-document.
fn heredoc_patch(command: &str) -> Option<&str> {
    let rest = command.trim().strip_prefix("apply_patch")?.trim_start().strip_prefix("<<")?;
    let (word, body) = rest.split_once('\n')?;
    let word = word.trim().trim_matches(['\'', '"']);
    let body = body.trim_end().strip_suffix(word)?;
    let is_patch = body.trim_start().starts_with("*** Begin Patch");
    (!word.is_empty() && body.ends_with('\n') && is_patch).then_some(body)
}

fn list_directory(mut call: ReshapedCall) -> Reshaped {
    let is_recursive = call.take(&["recursive"])?.is_some_and(|(_, value)| is_true(&value));
    if let Some((key, value)) = call.take(&["depth"])?
        && whole_number(&value) != Some(1)
    {
        return Err(format!(
            "`{key}` is not possible: Glob with the pattern `*` lists all levels below `path`"
        ));
    }
    if call.given.contains_key("pattern") {
        return Ok(call);
    }
    let pattern = if is_recursive { "*" } else { "/*" };
    Ok(call.with("pattern", json!(pattern)))
}

fn find_files(mut call: ReshapedCall) -> Reshaped {
    let Some((_, Value::String(query))) = call.take(&["query", "pattern"])? else {
        return Err("name the files as `pattern`, such as `*.rs`".to_owned());
    };
    let pattern = match (query.contains(['*', '?', '[', '{']), query.contains('/')) {
        (true, _) => query,
        (false, false) => format!("*{query}*"),
        (false, true) => format!("**/*{}*", query.trim_start_matches('/')),
    };
    Ok(call.with("pattern", json!(pattern)))
}

fn search_files(call: ReshapedCall) -> Reshaped {
    if call.given.contains_key("regex") || call.given.contains_key("query") {
        return Ok(call);
    }
    Err("find files by name with Glob, search their contents with Grep".to_owned())
}

fn read_many(called: &str, mut call: ReshapedCall) -> Reshaped {
    let paths = call.take(&["paths", "include", "files", "file_paths"])?;
    let only = paths.as_ref().and_then(|(_, value)| match value.as_array()?.as_slice() {
        [Value::String(path)] => Some(path),
        _ => None,
    });
    match only {
        Some(path) if !path.contains(['*', '?', '{']) => {
            let call = ReshapedCall { given: Map::new(), ..call };
            Ok(call.with("file_path", json!(path)))
        }
        Some(_) | None => Err(format!(
            "`{called}` with several files is not possible: call Read for each; several calls in one answer run at the \
             same time, and Glob finds files by a pattern"
        )),
    }
}

fn text_editor(called: &str, mut call: ReshapedCall) -> Reshaped {
    let (_, command) = call.take(&["command"])?.unwrap_or_default();
    let tool = match command.as_str() {
        Some("view") => "Read",
        Some("create" | "write") => "Write",
        Some("str_replace") => "Edit",
        Some("insert") => {
            return Err(format!(
                "`{called}` with `insert` is not possible: use Edit, with the line next to it in `old_string`, and that \
                 line with the new text in `new_string`"
            ));
        }
        Some("undo_edit") => {
            return Err(format!(
                "`{called}` with `undo_edit` is not possible: change it back with Edit"
            ));
        }
        Some(_) | None => {
            return Err(format!("`command` of `{called}` must be view, create or str_replace"));
        }
    };
    // An empty list of lines stands for the whole file.
    if call.given.get("view_range").is_some_and(super::arguments::is_off) {
        call.given.remove("view_range");
    }
    Ok(call.into_tool(tool))
}

fn patch(mut call: ReshapedCall) -> Reshaped {
    match call.take(&["input", "patch", "patch_text", "diff"])? {
        Some((_, Value::String(text))) => patched(call, &text),
        Some(_) | None => {
            Err("give the patch as `input`, from `*** Begin Patch` to `*** End Patch`, or use Edit"
                .to_owned())
        }
    }
}

/// Makes a call that applies a patch. Paths in a patch are relative to the checkout, so another directory is refused.
fn patched(mut call: ReshapedCall, text: &str) -> Reshaped {
    let directories =
        ["cwd", "workdir", "directory", "working_directory", "working_dir", "cd", "dir_path"];
    if let Some((key, value)) = call.take(&directories)?
        && value != ""
        && value != "."
    {
        return Err(format!(
            "nothing was changed: `{key}` is not possible with a patch; leave it out, and write the paths in the patch \
             relative to the checkout"
        ));
    }
    if call.tool == RUN
        && let Some(known) = arguments_of(RUN)
    {
        // Refuses what Run refuses, such as more rights. The rest means nothing for a patch.
        canonical(known, &call.given)?;
        call.given.clear();
    }
    let tools = patch_tools(text)?;
    let tool = tools.first().copied().unwrap_or("Edit");
    Ok(call.into_tool(tool).with(PATCH, json!(text)))
}

fn blocks(mut call: ReshapedCall) -> Reshaped {
    let Some((key, Value::String(diff))) = call.take(&["diff", "blocks"])? else {
        return Err(
            "give the blocks as `diff`, or use Edit with `old_string` and `new_string`".to_owned()
        );
    };
    let blocks = search_replace::parse(&diff)
        .map_err(|why| format!("`{key}`: {why}; or use Edit with `old_string` and `new_string`"))?;
    let edits =
        blocks.into_iter().map(|it| json!({"old_string": it.search, "new_string": it.replace}));
    let edits: Value = edits.collect();
    Ok(call.with("edits", edits))
}

fn one_file(mut call: ReshapedCall) -> Reshaped {
    let Some((key, Value::Array(mut items))) = call.take(&["replacements"])? else {
        return Err("give the edits of one file as `edits` of Edit".to_owned());
    };
    let mut path: Option<Value> = None;
    for fields in items.iter_mut().filter_map(Value::as_object_mut) {
        let name =
            ["filePath", "file_path", "path"].into_iter().find(|name| fields.contains_key(*name));
        let named = name.and_then(|name| fields.remove(name));
        fields.retain(|name, _| name != "explanation");
        match (&path, named) {
            (Some(path), Some(other)) if *path != other => {
                return Err(format!(
                    "`{key}` name several files: call Edit once for each, with `edits`; several calls may stand in one answer"
                ));
            }
            (None, Some(first)) => path = Some(first),
            (Some(_), _) | (None, None) => {}
        }
    }
    let call = if let Some(path) = path { call.with("file_path", path) } else { call };
    Ok(call.with("edits", Value::Array(items)))
}

/// Escapes what a regular expression gives a meaning.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if r"\.+*?()|[]{}^$#&-~".contains(c) {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

fn whole_number(value: &Value) -> Option<i64> {
    match value {
        Value::Number(number) => number.as_i64().or_else(|| {
            let whole = number.as_f64().filter(|it| it.fract() == 0.0 && it.abs() < 1e15)?;
            whole.to_string().parse().ok()
        }),
        Value::String(text) => text.trim().parse().ok(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

fn is_true(value: &Value) -> bool {
    *value == Value::Bool(true) || value == "true"
}

fn is_false(value: &Value) -> bool {
    *value == Value::Bool(false) || value == "false"
}
