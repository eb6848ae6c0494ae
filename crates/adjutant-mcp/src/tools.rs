//! The tools that clients see: names, descriptions and schemas. Each description has two sentences.

use std::sync::Arc;

use adjutant_core::schema::{CallLimits, DELEGATE, ReturnFormat, delegate_spec};
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde::Deserialize;
use serde_json::{Value, json};

/// A tool of this server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum McpTool {
    Delegate,
    Start,
    Write,
    Command,
    Story,
    Wait,
    Status,
    Result,
    Diff,
    Merge,
    Cancel,
    Validate,
}

impl McpTool {
    /// All tools, in the order in which they are listed.
    pub(crate) const ALL: [Self; 12] = [
        Self::Delegate,
        Self::Start,
        Self::Write,
        Self::Command,
        Self::Story,
        Self::Wait,
        Self::Status,
        Self::Result,
        Self::Diff,
        Self::Merge,
        Self::Cancel,
        Self::Validate,
    ];

    /// Returns the tool with this name.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.name() == name)
    }

    /// Returns whether a call of this tool may block until a run changes.
    pub(crate) const fn may_wait(self) -> bool {
        match self {
            Self::Delegate
            | Self::Start
            | Self::Write
            | Self::Command
            | Self::Story
            | Self::Merge
            | Self::Wait => true,
            Self::Status | Self::Result | Self::Diff | Self::Cancel | Self::Validate => false,
        }
    }

    /// Returns the name in the protocol.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Delegate => DELEGATE,
            Self::Start => "delegate_start",
            Self::Write => "delegate_write",
            Self::Command => "delegate_command",
            Self::Story => "delegate_story",
            Self::Wait => "delegate_wait",
            Self::Status => "delegate_status",
            Self::Result => "delegate_result",
            Self::Diff => "delegate_diff",
            Self::Merge => "delegate_merge",
            Self::Cancel => "delegate_cancel",
            Self::Validate => "validate_return",
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Self::Delegate => "Delegate to subagents",
            Self::Start => "Start subagents",
            Self::Write => "Delegate to subagents that write",
            Self::Command => "Delegate a slash command",
            Self::Story => "Delegate a story",
            Self::Wait => "Wait for subagents",
            Self::Status => "Status of subagents",
            Self::Result => "Results of subagents",
            Self::Diff => "Patches of subagents",
            Self::Merge => "Merge the work of subagents",
            Self::Cancel => "Cancel subagents",
            Self::Validate => "Validate a return",
        }
    }

    const fn description(self) -> &'static str {
        match self {
            Self::Delegate => {
                "Delegates independent tasks to read-only subagents that work in parallel, waits, and \
                    returns their reports; each subagent sees only its prompt and context files, so say \
                    what it must know and what its report must contain. If the work takes longer than a \
                    call may, the answer contains the finished reports and a `run`: call delegate_wait \
                    with it, and do not delegate the same tasks again."
            }
            Self::Start => {
                "Starts subagents like Delegate, with the same arguments, but returns their `run` at \
                    once, so that you can do other work meanwhile. Collect the reports with delegate_wait; \
                    an equal call within ten minutes returns the same run."
            }
            Self::Write => {
                "Delegates independent tasks to subagents that write and run commands, each in its own \
                    copy of this tree, waits, and returns their reports with the changed files, the patch, \
                    a git ref and whether `verify` passed; your files stay as they are until delegate_merge. \
                    If the work takes longer than a call may, the answer contains a `run`: call \
                    delegate_wait with it, and do not delegate the same tasks again."
            }
            Self::Command => {
                "Delegates a slash command of this project, such as `/plan 12 keep it small`, to the \
                    command's agent, waits, and returns the result; the prompts of this server list the \
                    commands. If it takes longer than a call may, the answer contains a `run`: call \
                    delegate_wait with it, and do not start the same command again."
            }
            Self::Story => {
                "Works on one story of a PRD file in its own workspace, by default the next one that is \
                    ready, and returns the result; the work stays on a branch for a person to review. If \
                    it takes longer than a call may, the answer contains a `run`: call delegate_wait with \
                    it."
            }
            Self::Wait => {
                "Waits until a run has ended or `timeout_s` has passed, and returns its reports so far. \
                    Call it again while `done` is false; there is no need to poll the status in between."
            }
            Self::Status => {
                "Shows what each subagent of a run is doing, with tokens, cost and time, or lists the \
                    runs of this tree if no `run` is given, live ones first. It does not wait: use \
                    delegate_wait for results."
            }
            Self::Result => {
                "Returns the reports of a run, or those finished so far if it is still running. Give a \
                    session id instead of a run for the report of one subagent."
            }
            Self::Diff => {
                "Returns what the writers of a run changed, as patches against the files they started \
                    from, with the git ref of each result. Give a session id instead of a run for the patch \
                    of one subagent."
            }
            Self::Merge => {
                "Shows what merging the results of a run, or of one session, into this tree would change, \
                    and which files conflict. With `apply` it merges them as uncommitted changes once a \
                    person has approved it, and never overwrites changes that the subagent did not see."
            }
            Self::Cancel => {
                "Cancels a run and all its subagents within two seconds, or, given a session id, that \
                    subagent and those below it. What they found until then is kept; delegate_result \
                    returns it."
            }
            Self::Validate => {
                "Checks a subagent's return against the standard format and lists every error. Give the \
                    return as an object, or the text that contains it; artifacts are looked up in this \
                    tree."
            }
        }
    }

    fn annotations(self) -> ToolAnnotations {
        let hints = ToolAnnotations::with_title(self.title());
        match self {
            // Subagents reach a model, and the network if the person allows it.
            Self::Delegate | Self::Start | Self::Write | Self::Command | Self::Story => {
                hints.read_only(false).destructive(false).idempotent(true).open_world(true)
            }
            Self::Wait | Self::Status | Self::Result | Self::Diff | Self::Validate => {
                hints.read_only(true).idempotent(true).open_world(false)
            }
            Self::Merge | Self::Cancel => {
                hints.read_only(false).destructive(true).idempotent(true).open_world(false)
            }
        }
    }

    fn input(self, limits: &CallLimits) -> Value {
        let run = json!({
            "type": "string",
            "description": "The id of a run, or of a session in it.",
        });
        let form = json!({
            "type": "string",
            "enum": ReturnFormat::ALL.map(ReturnFormat::as_str),
            "default": ReturnFormat::default().as_str(),
        });
        let (properties, required) = match self {
            Self::Delegate | Self::Start => return delegate_spec(limits).schema,
            Self::Write => return write_schema(limits),
            Self::Command => (
                json!({
                    "command": {
                        "type": "string",
                        "description": "The command as a person would type it, starting with the slash.",
                    },
                }),
                json!(["command"]),
            ),
            Self::Story => (
                json!({
                    "prd": {
                        "type": "string",
                        "description": "The path of the PRD, a JSON file of stories, relative to the root.",
                    },
                    "story": {
                        "type": "string",
                        "description": "The id of the story. Default: the next one that is ready.",
                    },
                }),
                json!(["prd"]),
            ),
            Self::Wait => (
                json!({
                    "run": run,
                    "timeout_s": {
                        "type": "integer", "minimum": 0, "maximum": MAX_WAIT_S,
                        "description": "The maximum time to wait, in seconds. The server never waits longer than this client's own timeout allows.",
                    },
                    "return": form,
                }),
                json!(["run"]),
            ),
            Self::Status => (json!({ "run": run }), json!([])),
            Self::Result => (json!({ "run": run, "return": form }), json!(["run"])),
            Self::Merge => (
                json!({
                    "run": run,
                    "apply": {
                        "type": "boolean", "default": false,
                        "description": "Whether to merge. Otherwise nothing is changed.",
                    },
                }),
                json!(["run"]),
            ),
            Self::Diff | Self::Cancel => (json!({ "run": run }), json!(["run"])),
            Self::Validate => (
                json!({
                    "return": {
                        "type": ["object", "string"],
                        "description": "The return, or the text that contains it.",
                    },
                    "session_id": {
                        "type": "string",
                        "description": "The session id that the return must contain.",
                    },
                    "artifacts_required": {
                        "type": "boolean", "default": false,
                        "description": "Whether `completed` without artifacts is an error.",
                    },
                }),
                json!(["return"]),
            ),
        };
        json!({
            "type": "object", "properties": properties, "required": required,
            "additionalProperties": false,
        })
    }

    fn output(self) -> Value {
        let text = || json!({ "type": "string" });
        let (properties, required) = match self {
            Self::Delegate
            | Self::Start
            | Self::Write
            | Self::Command
            | Self::Story
            | Self::Wait
            | Self::Result => (
                json!({
                    "v": { "type": "integer" },
                    "run": { "type": "string", "description": "The handle for the other tools." },
                    "state": text(),
                    "done": { "type": "boolean", "description": "Whether the run has ended." },
                    "repeated": {
                        "type": "boolean", "description": "Whether an earlier, equal call started the run.",
                    },
                    "note": { "type": "string", "description": "How to treat the quoted text." },
                    "results": {
                        "type": "object",
                        "description": "Counts, and for each task its report or its state.",
                        "properties": { "results": { "type": "array" } },
                    },
                    "synthesis": {
                        "type": "string", "description": "The final message of a slash command's agent.",
                    },
                    "patches": {
                        "type": "array", "items": { "type": "object" },
                        "description": "For each result of a writer: its patch, git ref and commit.",
                    },
                    "story": {
                        "type": "object",
                        "description": "For a run on a story: whether it passes, its branch, files and cost.",
                    },
                    "next": { "type": ["string", "null"], "description": "What to do next." },
                    "approval": {
                        "type": ["object", "null"],
                        "description": "The question that waits for a person; no tool can answer it.",
                    },
                }),
                json!(["v", "run", "state", "done"]),
            ),
            Self::Status => (
                json!({
                    "v": { "type": "integer" },
                    "runs": { "type": "array", "items": { "type": "object" } },
                    "more": { "type": "integer", "description": "Runs that are not listed." },
                    "unseen": {
                        "type": "integer",
                        "description": "Older runs that were not examined; they may belong to other directories.",
                    },
                }),
                json!(["v", "runs"]),
            ),
            Self::Diff => (
                json!({
                    "v": { "type": "integer" }, "run": text(),
                    "note": { "type": "string", "description": "How to treat the quoted text." },
                    "patches": { "type": "array", "items": { "type": "object" } },
                }),
                json!(["v", "run", "patches"]),
            ),
            Self::Merge => (
                json!({
                    "v": { "type": "integer" }, "run": text(),
                    "dry_run": { "type": "boolean", "description": "Whether nothing was changed." },
                    "results": {
                        "type": "array", "items": { "type": "object" },
                        "description": "For each result its `fate`, its files or conflicts, and its verification.",
                    },
                    "undo": {
                        "type": ["string", "null"], "description": "What a person types to undo the merge.",
                    },
                    "next": { "type": ["string", "null"], "description": "What to do next." },
                    "approval": {
                        "type": ["object", "null"],
                        "description": "The question that waits for a person; no tool can answer it.",
                    },
                }),
                json!(["v", "run", "results"]),
            ),
            Self::Cancel => (
                json!({
                    "v": { "type": "integer" }, "run": text(), "session": {
                        "type": ["string", "null"],
                    }, "state": text(), "how": text(),
                }),
                json!(["v", "run", "state", "how"]),
            ),
            Self::Validate => (
                json!({
                    "valid": { "type": "boolean" },
                    "errors": { "type": "array", "items": { "type": "object" } },
                    "warnings": { "type": "array", "items": { "type": "object" } },
                    "return": { "type": ["object", "null"] },
                }),
                json!(["valid", "errors", "warnings"]),
            ),
        };
        json!({ "type": "object", "properties": properties, "required": required })
    }

    /// Returns the tool as `tools/list` shows it.
    pub(crate) fn to_listed_tool(self, limits: &CallLimits) -> Tool {
        let tool = Tool::new(self.name(), self.description(), json_object(self.input(limits)));
        tool.with_title(self.title())
            .with_raw_output_schema(json_object(self.output()))
            .with_annotations(self.annotations())
    }
}

/// Returns the input schema of `delegate_write`: that of `Delegate`, the verify command and the agent.
fn write_schema(limits: &CallLimits) -> Value {
    let mut schema = delegate_spec(limits).schema;
    schema["properties"][VERIFY] = json!({
        "type": "string", "minLength": 1, "maxLength": VERIFY_BYTES,
        "description": "A shell command that must succeed in a fresh copy of the finished work, such as `cargo test`. If it fails, the subagent gets its output and continues.",
    });
    schema["properties"][VERIFY_KEEP] = json!({
        "type": "array", "maxItems": MAX_KEEP,
        "items": { "type": "string", "minLength": 1 },
        "description": "Globs, as in .gitignore, of files that the verify command sees as they were before the work, such as `tests/**`.",
    });
    schema["properties"][AGENT] = json!({
        "type": "string", "minLength": 1,
        "description": "The name of an agent definition of the project or the user that all tasks are given to.",
    });
    schema
}

/// The properties of `delegate_write` that `Delegate` does not have.
pub(crate) const VERIFY: &str = "verify";
pub(crate) const VERIFY_KEEP: &str = "verifyKeep";
pub(crate) const AGENT: &str = "agent";

/// The maximum length of a verify command or of one glob, in bytes. Inclusive. The approval shows all of it.
pub(crate) const VERIFY_BYTES: usize = 4096;

/// The maximum number of globs in `verifyKeep`.
pub(crate) const MAX_KEEP: usize = 32;

/// The largest `timeout_s` that a client may request.
pub(crate) const MAX_WAIT_S: u64 = 3600;

fn json_object(schema: Value) -> Arc<JsonObject> {
    match schema {
        Value::Object(map) => Arc::new(map),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Arc::default()
        }
    }
}

/// The arguments of `delegate_wait`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WaitToolArgs {
    pub(crate) run: String,
    #[serde(default)]
    pub(crate) timeout_s: Option<u64>,
    #[serde(default, rename = "return")]
    pub(crate) form: ReturnFormat,
}

/// The arguments of `delegate_status`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StatusToolArgs {
    #[serde(default)]
    pub(crate) run: Option<String>,
}

/// The arguments of `delegate_result`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ResultToolArgs {
    pub(crate) run: String,
    #[serde(default, rename = "return")]
    pub(crate) form: ReturnFormat,
}

/// The arguments of `delegate_diff` and `delegate_cancel`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunIdArgs {
    pub(crate) run: String,
}

/// The arguments of `delegate_merge`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MergeToolArgs {
    pub(crate) run: String,
    #[serde(default)]
    pub(crate) apply: bool,
}

/// The arguments of `validate_return`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ValidateToolArgs {
    #[serde(rename = "return")]
    pub(crate) returned: Value,
    #[serde(default)]
    pub(crate) session_id: Option<String>,
    #[serde(default)]
    pub(crate) artifacts_required: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delegate_and_delegate_start_have_the_input_schema_of_core() {
        let limits = CallLimits::default();
        for tool in [McpTool::Delegate, McpTool::Start] {
            assert_eq!(tool.input(&limits), delegate_spec(&limits).schema);
        }
    }

    /// An additional key could carry something that no limit covers.
    #[test]
    fn every_tool_schema_rejects_unknown_arguments() {
        for tool in McpTool::ALL {
            let schema = tool.input(&CallLimits::default());
            assert_eq!(schema["additionalProperties"], false, "{}", tool.name());
            assert_eq!(McpTool::parse(tool.name()), Some(tool));
        }
    }

    #[test]
    fn a_description_is_two_sentences() {
        for tool in McpTool::ALL {
            let text = tool.description();
            let ends = text.matches(". ").count() + usize::from(text.ends_with('.'));
            assert_eq!(ends, 2, "{}: {text}", tool.name());
        }
    }
}
