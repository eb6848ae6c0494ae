//! The tool names of other products, with ours: one table for agent files and for calls of models.
//!
//! A name is compared in lower case and without `_`, `-`, `.` and `:`. [`tool_aliases`] lists the table, [`find`] looks a
//! name up.

/// A tool name of other products.
#[derive(Clone, Copy, Debug)]
pub struct ToolAlias {
    /// The name, in lower case without separators.
    pub name: &'static str,
    /// Our tools that it stands for; empty if there is no such tool here.
    pub tools: &'static [&'static str],
    pub(super) shape: CallShape,
}

/// How a call by an alias is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallShape {
    /// The arguments are those of our tool, by any of their names.
    Plain,
    /// A command whose `timeout` is in milliseconds.
    MillisecondCommand,
    /// A command whose `timeout` is in seconds.
    SecondCommand,
    /// Lists a directory.
    ListDirectory,
    /// Lists a directory and everything below it.
    ListTree,
    /// Finds files by a part of their names.
    FindFiles,
    /// Searches contents, if it has a regular expression.
    SearchFiles,
    /// A list of files to read.
    ReadMany,
    /// One tool whose `command` says whether it views, creates or changes a file.
    TextEditor,
    /// A patch in the `*** Begin Patch` format.
    Patch,
    /// Blocks of text to search for and to replace.
    SearchReplace,
    /// A list of replacements that each name their file.
    ManyReplacements,
    /// Not possible; says what to do instead.
    Advice(&'static str),
    /// Only a name in agent files. Calls need the exact name.
    AgentFilesOnly,
}

use CallShape::{
    Advice, AgentFilesOnly, FindFiles, ListDirectory, ListTree, ManyReplacements,
    MillisecondCommand, Patch, Plain, ReadMany, SearchFiles, SearchReplace, SecondCommand,
    TextEditor,
};

const READ: &[&str] = &["Read"];
const GREP: &[&str] = &["Grep"];
const GLOB: &[&str] = &["Glob"];
const EDIT: &[&str] = &["Edit"];
const WRITE: &[&str] = &["Write"];
const RUN: &[&str] = &["Run"];
const NOTE: &[&str] = &["Note"];
const FETCH: &[&str] = &["WebFetch"];
const SEARCH: &[&str] = &["WebSearch"];
const TASK: &[&str] = &["Task"];
/// A patch changes files and adds files.
const PATCH: &[&str] = &["Edit", "Write"];
const EDITOR: &[&str] = &["Read", "Edit", "Write"];
const NONE: &[&str] = &[];

const SEARCH_TEXT: &str = "search for words with Grep, for file names with Glob";
const ENDED: &str = "a command runs to its end and Run returns all of its output; start a longer one with a larger `timeout`";
const AS_TEXT: &str = "write it as text in your answer";
const PLAN: &str = "keep the plan in your answers, and findings with Note";
const ASK: &str = "no person answers while you work; state the question in your final report";
const FINAL: &str = "write your final report as text, or call `Return` if you have it";
const REMOVE: &str =
    "remove and rename files with `rm` and `mv` in Run; without Run, name them in your report";
const INSERT: &str = "use Edit: put the line next to it into `old_string`, and that line with the new text into `new_string`";
const DELEGATES: &str = "call `Delegate` or `Task` with their own arguments, if you have them";
const CHECKS: &str = "run the compiler, the linter or the tests with Run";

/// The table, by tool.
const ALIASES: &[ToolAlias] = &[
    alias("read", READ, Plain),
    alias("readfile", READ, Plain),
    alias("readtextfile", READ, Plain),
    alias("fileread", READ, Plain),
    alias("openfile", READ, Plain),
    alias("view", READ, Plain),
    alias("viewfile", READ, Plain),
    alias("notebookread", READ, Plain),
    alias("readmanyfiles", READ, ReadMany),
    alias("readmultiplefiles", READ, ReadMany),
    alias("readfiles", READ, ReadMany),
    alias("grep", GREP, Plain),
    alias("grepsearch", GREP, Plain),
    alias("grepfiles", GREP, Plain),
    alias("ripgrep", GREP, Plain),
    alias("searchfilecontent", GREP, Plain),
    alias("searchforpattern", GREP, Plain),
    alias("searchtext", GREP, Plain),
    alias("searchfiles", GREP, SearchFiles),
    alias("codebasesearch", GREP, Advice(SEARCH_TEXT)),
    alias("semanticsearch", GREP, Advice(SEARCH_TEXT)),
    alias(
        "listcodedefinitionnames",
        GREP,
        Advice("search for definitions with Grep, such as `^(pub )?fn `"),
    ),
    alias("glob", GLOB, Plain),
    alias("fileglobsearch", GLOB, Plain),
    alias("findpath", GLOB, Plain),
    alias("findfiles", GLOB, Plain),
    alias("filesearch", GLOB, FindFiles),
    alias("findbyname", GLOB, FindFiles),
    alias("ls", GLOB, ListDirectory),
    alias("list", GLOB, ListDirectory),
    alias("listdir", GLOB, ListDirectory),
    alias("listdirectory", GLOB, ListDirectory),
    alias("listfiles", GLOB, ListDirectory),
    alias("directorytree", GLOB, ListTree),
    alias("webfetch", FETCH, Plain),
    alias("fetch", FETCH, Plain),
    alias("fetchurl", FETCH, Plain),
    alias("fetchwebpage", FETCH, Plain),
    alias("readurlcontent", FETCH, Plain),
    alias("websearch", SEARCH, Plain),
    alias("googlewebsearch", SEARCH, Plain),
    alias("searchweb", SEARCH, Plain),
    alias("edit", EDIT, Plain),
    alias("editfile", EDIT, Plain),
    alias("multiedit", EDIT, Plain),
    alias("replace", EDIT, Plain),
    alias("strreplace", EDIT, Plain),
    alias("strreplacefile", EDIT, Plain),
    alias("searchreplace", EDIT, Plain),
    alias("searchandreplace", EDIT, Plain),
    alias("singlefindandreplace", EDIT, Plain),
    alias("replacestringinfile", EDIT, Plain),
    alias("multireplacestringinfile", EDIT, ManyReplacements),
    alias("replaceinfile", EDIT, SearchReplace),
    alias("applydiff", EDIT, SearchReplace),
    alias("notebookedit", EDIT, Advice("change the text of the .ipynb file with Edit")),
    alias("insertcontent", EDIT, Advice(INSERT)),
    alias("inserteditintofile", EDIT, Advice(INSERT)),
    alias("insertline", EDIT, Advice(INSERT)),
    alias("patch", PATCH, Patch),
    alias("applypatch", PATCH, Patch),
    alias("strreplaceeditor", EDITOR, TextEditor),
    alias("strreplacebasededittool", EDITOR, TextEditor),
    alias("texteditor", EDITOR, TextEditor),
    alias("developertexteditor", EDITOR, TextEditor),
    alias("write", WRITE, Plain),
    alias("writefile", WRITE, Plain),
    alias("writetofile", WRITE, Plain),
    alias("create", WRITE, Plain),
    alias("createfile", WRITE, Plain),
    alias("createnewfile", WRITE, Plain),
    alias("savefile", WRITE, Plain),
    alias("bash", RUN, MillisecondCommand),
    alias("shell", RUN, MillisecondCommand),
    alias("localshell", RUN, MillisecondCommand),
    alias("shellcommand", RUN, MillisecondCommand),
    alias("containerexec", RUN, MillisecondCommand),
    alias("terminal", RUN, MillisecondCommand),
    alias("runinterminal", RUN, MillisecondCommand),
    alias("runterminalcmd", RUN, MillisecondCommand),
    alias("run", RUN, SecondCommand),
    alias("runcommand", RUN, SecondCommand),
    alias("runshellcommand", RUN, SecondCommand),
    alias("runterminalcommand", RUN, SecondCommand),
    alias("execcommand", RUN, SecondCommand),
    alias("executecommand", RUN, SecondCommand),
    alias("executebash", RUN, SecondCommand),
    alias("developershell", RUN, SecondCommand),
    alias("bashoutput", RUN, Advice(ENDED)),
    alias("killshell", RUN, Advice(ENDED)),
    alias("killbash", RUN, Advice(ENDED)),
    alias(
        "writestdin",
        RUN,
        Advice(
            "a command has no input; give it a file or a pipe, such as `printf 'yes\\n' | COMMAND`",
        ),
    ),
    alias("getterminaloutput", RUN, Advice(ENDED)),
    alias("commandstatus", RUN, Advice(ENDED)),
    alias("note", NOTE, Plain),
    alias("savememory", NOTE, Plain),
    alias("task", TASK, AgentFilesOnly),
    alias("agent", TASK, AgentFilesOnly),
    alias("delegate", &["Delegate"], AgentFilesOnly),
    alias("return", &["Return"], AgentFilesOnly),
    alias("runsubagent", NONE, Advice(DELEGATES)),
    alias("spawnagent", NONE, Advice(DELEGATES)),
    alias("newtask", NONE, Advice(DELEGATES)),
    alias("todowrite", NONE, Advice(PLAN)),
    alias("todoread", NONE, Advice(PLAN)),
    alias("writetodos", NONE, Advice(PLAN)),
    alias("updateplan", NONE, Advice(PLAN)),
    alias("managetodolist", NONE, Advice(PLAN)),
    alias("settodolist", NONE, Advice(PLAN)),
    alias("updatetodolist", NONE, Advice(PLAN)),
    alias("planmoderespond", NONE, Advice(PLAN)),
    alias("exitplanmode", NONE, Advice(PLAN)),
    alias("think", NONE, Advice(AS_TEXT)),
    alias("thinking", NONE, Advice(AS_TEXT)),
    alias("sequentialthinking", NONE, Advice(AS_TEXT)),
    alias("reportintent", NONE, Advice(AS_TEXT)),
    alias("askuser", NONE, Advice(ASK)),
    alias("askuserquestion", NONE, Advice(ASK)),
    alias("askfollowupquestion", NONE, Advice(ASK)),
    alias("requestuserinput", NONE, Advice(ASK)),
    alias("attemptcompletion", NONE, Advice(FINAL)),
    alias("finish", NONE, Advice(FINAL)),
    alias("submit", NONE, Advice(FINAL)),
    alias("taskcomplete", NONE, Advice(FINAL)),
    alias("completetask", NONE, Advice(FINAL)),
    alias("deletefile", NONE, Advice(REMOVE)),
    alias("deletepath", NONE, Advice(REMOVE)),
    alias("removefile", NONE, Advice(REMOVE)),
    alias("movefile", NONE, Advice(REMOVE)),
    alias("movepath", NONE, Advice(REMOVE)),
    alias("renamefile", NONE, Advice(REMOVE)),
    alias("copypath", NONE, Advice("write the copy with Write, or copy it with `cp` in Run")),
    alias("createdirectory", NONE, Advice("Write makes missing folders")),
    alias("undoedit", NONE, Advice("change it back with Edit")),
    alias("diagnostics", NONE, Advice(CHECKS)),
    alias("geterrors", NONE, Advice(CHECKS)),
    alias("getdiagnostics", NONE, Advice(CHECKS)),
    alias("readlints", NONE, Advice(CHECKS)),
    alias("runtests", NONE, Advice(CHECKS)),
    alias("lsp", NONE, Advice("search for the name with Grep")),
    alias("viewimage", NONE, Advice("images cannot be shown; work from text")),
    alias(
        "browseraction",
        NONE,
        Advice("there is no browser; fetch pages with WebFetch, if you have it"),
    ),
    alias("usemcptool", NONE, Advice("call the tools that you were offered by their own names")),
    alias(
        "accessmcpresource",
        NONE,
        Advice("call the tools that you were offered by their own names"),
    ),
    alias(
        "skill",
        NONE,
        Advice("there are no skills here; do the work with the tools that you were offered"),
    ),
];

const fn alias(name: &'static str, tools: &'static [&'static str], shape: CallShape) -> ToolAlias {
    ToolAlias { name, tools, shape }
}

/// Returns all tool names of other products.
#[must_use]
pub const fn tool_aliases() -> &'static [ToolAlias] {
    ALIASES
}

/// Finds the alias for a name of another product. `functions.` and `default_api.` in front of it do not count.
#[must_use]
pub fn find_alias(name: &str) -> Option<&'static ToolAlias> {
    let name = ["functions.", "default_api.", "default_api:"]
        .iter()
        .find_map(|prefix| name.strip_prefix(prefix))
        .unwrap_or(name);
    ALIASES.iter().find(|alias| is_same_name(name, alias.name))
}

/// Says whether two names are equal without regard to case and separators.
pub(super) fn is_same_name(one: &str, two: &str) -> bool {
    fn letters(name: &str) -> impl Iterator<Item = char> {
        name.chars().filter(|c| !matches!(c, '_' | '-' | '.' | ':')).flat_map(char::to_lowercase)
    }
    letters(one).eq(letters(two))
}

impl ToolAlias {
    /// Says whether a call by this name may become a call of `tool`.
    #[must_use]
    pub fn may_become(&self, tool: &str) -> bool {
        let is_command =
            matches!(self.shape, CallShape::MillisecondCommand | CallShape::SecondCommand);
        // `shell` with `apply_patch` as its command is a patch.
        self.tools.contains(&tool) || (is_command && PATCH.contains(&tool))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_plain_and_stands_once() {
        let mut seen = std::collections::BTreeSet::new();
        for alias in tool_aliases() {
            assert!(alias.name.bytes().all(|b| b.is_ascii_lowercase()), "{}", alias.name);
            assert!(seen.insert(alias.name), "{} stands twice", alias.name);
        }
    }

    #[test]
    fn case_and_separators_of_a_name_do_not_count() {
        for (name, found) in [
            ("Bash", Some("bash")),
            ("read_file", Some("readfile")),
            ("container.exec", Some("containerexec")),
            ("functions.shell", Some("shell")),
            ("default_api:read_file", Some("readfile")),
            ("developer__shell", Some("developershell")),
            ("bash2", None),
            ("", None),
        ] {
            assert_eq!(find_alias(name).map(|alias| alias.name), found, "{name}");
        }
    }
}
